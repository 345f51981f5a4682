"""What random models are made of: rates, modulations, inputs, algebra, and ways to write them.

`draw(name)` gives the model of a case; everything is drawn from the name. The first part of the
name is the class, whose feature the model has for certain; others come by chance.
"""

import zlib
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from trust.random_models import Algebraic, Input, Model, Run
from trust.random_templates import TEMPLATES

GAS = 8.314
BY_CHANCE = 0.08  # each further feature
MODULATIONS = ("time", "pulse", "logistic", "switch", "arrhenius", "input")
ALGEBRA = ("linear algebra", "nonlinear algebra", "rates", "first value")
CLASSES = (
    *MODULATIONS,
    *ALGEBRA,
    "nested switch",
    "table",
    "series",
    "power",
    "saturation",
    "scales",
    "indexed",
    "block",
    "expression",
    "experiments",
    "starts",
    "start time",
    "implicit",
    "kink",
    "stiff",
    "unusual",
    "template",
    "template",
    "mixed",
    "mixed",
)


class Draw:
    """A model under construction."""

    def __init__(self, name: str) -> None:
        self.r = np.random.default_rng(zlib.crc32(name.encode()))
        self.kind = name.rsplit("-", 1)[0]
        self.features = {self.kind} | {c for c in CLASSES if self.chance(BY_CHANCE)}
        self.features -= {"template", "unusual", "scales"} - {self.kind}
        if self.kind == "mixed":
            self.features |= set(self.r.choice(CLASSES[:-6], 3, replace=False))
        self.m = Model(name)
        self.inputs: list[dict[str, Input]] = [{} for _ in range(self._runs())]
        self._scales()
        self._style()

    # chance

    def chance(self, share: float) -> bool:
        """True so often."""
        return bool(self.r.random() < share)

    def between(self, low: float, high: float) -> float:
        """Uniform."""
        return float(self.r.uniform(low, high))

    def decades(self, low: float, high: float) -> float:
        """Uniform in the logarithm to the base 10."""
        return float(10 ** self.r.uniform(low, high))

    def one(self, *options: str) -> str:
        """One of them."""
        return options[int(self.r.integers(len(options)))]

    def call(self, *options: Callable[[], str]) -> str:
        """What one of them returns."""
        return options[int(self.r.integers(len(options)))]()

    # the frame

    def _runs(self) -> int:
        return int(self.r.integers(2, 4)) if "experiments" in self.features else 1

    def _scales(self) -> None:
        wide = "scales" in self.features
        self.H = rounded(self.decades(-6, 6) if wide else self.decades(-1, 3.7))
        self.X = rounded(self.decades(-12, 12) if wide else self.decades(-2, 2))
        self.spread = wide and self.chance(0.5)
        self.m.horizon = self.H
        if "start time" in self.features:
            self.m.first = rounded(self.H * self.between(-1, 4))

    def _style(self) -> None:
        f, one = self.features, self.one
        layout = "plain"
        if "indexed" in f:
            layout = one("species first", "time first", "reference")
        elif "block" in f:
            layout = "block"
        elif self.chance(0.2):
            layout = one("species first", "time first")
        skip = one("first", "zero" if self.m.first == 0 else "first") if self.chance(0.15) else ""
        self.m.style |= {
            "layout": layout,
            "rules": one("lambda", "decorator"),
            "skip": skip,
            "tuples": self.chance(0.05),
            "alias": self.chance(0.7),
            "domain": self.chance(0.2),
            "units": self.chance(0.1),
            "objective": self.chance(0.1),
            "parameters": one("plain", "plain", "plain", "params", "indexed"),
            "inputs": one("params", "params", "vars"),
            "bounded": self.chance(0.5),
            "say start": self.m.first != 0 or self.chance(0.3),
        }
        if layout == "block" and self.chance(0.4):
            self.m.style["parameters"] = "block"

    @property
    def time(self) -> str:
        """Time since the start, as text."""
        if self.m.first == 0 or self.chance(0.2):
            return "t"
        return self.one(f"(t - {self.m.first!r})", "(t - t_first)").replace("- -", "+ ")

    def ahead(self, t: float) -> str:
        """A time of the horizon (0 to H) as the model counts it."""
        return repr(rounded(self.m.first + t, 6))

    def quantity(self, stem: str, value: float) -> str:
        """A number of the model, as an unknown, a constant of some kind, or a literal."""
        name = f"{stem}{len(self.m.unknowns) + len(self.m.constants) + 1}"
        value = rounded(value)
        kind = self.one("unknown", "unknown", "unknown", "float", "Param", "mutable", "fixed")
        if kind == "unknown" or not self.m.unknowns:
            self.m.unknowns[name] = value
        elif self.chance(0.3):
            return repr(value)
        else:
            self.m.constants[name] = (value, kind)
        return name

    def rate(self, low: float = 0.3, high: float = 4.0) -> float:
        """A rate constant that matters within the horizon."""
        return self.between(low, high) / self.H

    # the model

    def model(self) -> Model:
        """All of it."""
        if self.kind == "template":
            self._template()
        else:
            self._network()
        self._equations()
        self._starts()
        self._measured()
        self._unusual()
        self.m.runs = [self._run(k, given) for k, given in enumerate(self.inputs)]
        if len(self.m.runs) > 1 and self.chance(0.3):
            self._local()
        floats = [n for n, (v, kind) in self.m.constants.items() if kind == "float" and v > 0]
        if len(self.m.runs) > 1 and self.chance(0.4) and not self.m.cuts:
            for name in floats:  # the builder looks at its experiment
                for run in self.m.runs[1:]:
                    value = self.m.constants[name][0] * self.between(0.8, 1.2)
                    run.constants[name] = rounded(value)
        return self.m

    def _template(self) -> None:
        r = self.r
        one = TEMPLATES[int(r.integers(len(TEMPLATES)))](r)
        m = self.m
        m.horizon = self.H = one.horizon
        m.first, m.style["say start"] = 0.0, False
        m.states, m.size = dict(one.states), {n: abs(s) or 1.0 for n, s in one.size.items()}
        self.terms = {n: [f"({code})"] for n, code in one.states.items()}
        self.begin = dict(one.start)
        m.definitions = dict(one.definitions)
        if self.chance(0.5):
            m.as_variable |= {n for n, d in one.definitions.items() if isinstance(d, str)}
        for name, value in one.parameters.items():
            if self.chance(0.7) or not m.unknowns:
                m.unknowns[name] = value
            else:
                m.constants[name] = (value, self.one("float", "Param", "mutable", "fixed"))
        for name, given in one.inputs.items():
            for run in self.inputs:
                run[name] = given
        m.cuts |= set(one.cuts)

    def _network(self) -> None:
        count = int(self.r.integers(1, 4))
        self.names = [f"x{i + 1}" if self.chance(0.8) else "ABCD"[i] for i in range(count)]
        for name in self.names:
            size = self.X * (self.decades(-4, 4) if self.spread else 1.0)
            self.m.size[name] = rounded(min(max(size, 1e-12), 1e12))
        self.begin = {n: self._begin(n) for n in self.names}
        self.terms: dict[str, list[str]] = {n: [] for n in self.names}
        self.m.states = dict.fromkeys(self.names, "")
        used = [f for f in MODULATIONS if f in self.features]
        used += ["switch"] * ("nested switch" in self.features)
        used += ["input"] * bool({"table", "series"} & self.features)
        self.pending = used
        for i, name in enumerate(self.names):
            self._terms_of(i, name)
        while self.pending:
            self._forced_source()
        if "stiff" in self.features:
            self._stiff()
        if "kink" in self.features:
            self._kink()
        self._algebra()
        for name in self.names:
            self.m.states[name] = " + ".join(self.terms[name]).replace("+ -", "- ")
        if "expression" in self.features or self.chance(0.15):
            self._named_expressions()

    def _begin(self, name: str) -> float:
        size = self.m.size[name]
        return 0.0 if self.chance(0.2) and name != "x1" else rounded(size * self.between(0.3, 2))

    def _terms_of(self, i: int, name: str) -> None:
        size = self.m.size
        law = self._law(name)
        self.terms[name].append(f"-{self.modulated(law)}")
        if i:
            before = self.names[i - 1]
            factor = self.quantity("y", size[name] / size[before] * self.rate())
            self.terms[name].append(f"{factor}*{before}")
        if not i or self.chance(0.4):
            source = self.quantity("s", size[name] * self.rate(0.2, 2.0))
            self.terms[name].append(self.modulated(source))
        if i and self.chance(0.4):
            other = self.names[int(self.r.integers(i))]
            k = self.quantity("k", self.rate() / size[other])
            self.terms[name].append(f"-{k}*{name}*{other}")

    def _law(self, name: str) -> str:
        size = self.m.size[name]
        if "power" in self.features and (self.kind == "power" or self.chance(0.5)):
            n = float(self.one("2", "3", "1.5", "0.5", "0.7", "1.3", "2.5"))
            k = self.quantity("k", self.rate() * size ** (1 - n))
            if n == 0.5 and self.chance(0.5):
                return f"{k}*sqrt({name})"
            if n in {2.0, 3.0}:
                return f"{k}*{name}**{int(n)}"
            exponent = self.quantity("n", n) if self.chance(0.5) else repr(n)
            if self.chance(0.3):  # numbers near 1, as in Freundlich's isotherm
                k = self.quantity("k", self.rate() * size)
                return f"{k}*power({name}/{size!r}, {exponent})"
            return f"{k}*power({name}, {exponent})"
        if "saturation" in self.features and (self.kind == "saturation" or self.chance(0.5)):
            v, half = self.quantity("V", size * self.rate()), self.quantity("K", size)
            n = self.one("2", "4", "1.7", "h")
            n = self.quantity("h", self.between(1.2, 4)) if n == "h" else n
            hill = f"{v}*power({name}, {n})/(power({half}, {n}) + power({name}, {n}))"
            return self.one(
                f"{v}*{name}/({half} + {name})", f"{v}*({name}/({half} + {name}))", hill
            )
        return f"{self.quantity('k', self.rate())}*{name}"

    def _forced_source(self) -> None:
        """A source for a modulation that no term has taken."""
        name = self.names[0]
        source = self.quantity("s", self.m.size[name] * self.rate(0.2, 2.0))
        self.terms[name].append(self.modulated(source))

    # modulations

    def modulated(self, term: str) -> str:
        """The term, or times a function of time that the features ask for."""
        if not self.pending or self.chance(0.3):
            return term
        kind = self.pending.pop()
        return f"{term}*{getattr(self, f'_{kind}')()}"

    def _time(self) -> str:
        b, t, a = (
            self.quantity("b", self.rate(0.3, 8)),
            self.time,
            repr(rounded(self.between(0.1, 0.9))),
        )
        w = self.quantity("w", 2 * np.pi * self.between(0.3, 6) / self.H)
        h = repr(self.H)
        return self.one(
            f"exp(-{b}*{t})",
            f"(1 - exp(-{b}*{t}))",
            f"(1 + {a}*sin({w}*{t}))",
            f"(1 + {a}*cos({w}*{t} + 0.7))",
            f"sin({w}*{t})**2",
            f"({t}/{h})**2",
            f"({t}/{h})",
            f"power({t}/{h}, 0.5)",
            f"power({t}/{h}, 1.5)",
            f"(1 - {a}*{t}/{h})",
            f"1/(1 + {b}*{t})",
            f"{b}*{t}*exp(-{b}*{t})",
            f"log(1 + {b}*{t})",
            f"exp(-{b}*{t})*sin({w}*{t})",
            f"exp(-({b}*{t})**2)",
        )

    def _pulse(self) -> str:
        width = rounded(self.H * self.decades(-3, -0.5))
        at = self.between(0.1, 0.9) * self.H
        centre = self.ahead(at)
        for k in (-6, -3, -1.5, 0, 1.5, 3, 6):
            self.m.cuts.add(float(centre) + k * width)
        height = repr(rounded(min(self.H / width, 300) * self.between(0.3, 1.5)))
        w = self.quantity("w", width) if self.chance(0.3) else repr(width)
        c = self.quantity("c", float(centre)) if self.chance(0.3) else centre
        if self.chance(0.15):  # a train of them
            others = [self.ahead(self.between(0.1, 0.9) * self.H) for _ in range(2)]
            for k in (-6, -3, -1.5, 0, 1.5, 3, 6):
                self.m.cuts |= {float(o) + k * width for o in others}
            train = " + ".join(f"exp(-((t - {o})/{width!r})**2)" for o in [centre, *others])
            return f"{height}*({train})".replace("- -", "+ ")
        return self.one(
            f"{height}*exp(-((t - {c})/{w})**2)",
            f"{height}*exp(-(t - {c})**2/(2*{w}**2))",
            f"{height}*exp(-0.5*((t - {c})/{w})**2)",
            f"{height}/(1 + ((t - {c})/{w})**2)",
        ).replace("- -", "+ ")

    def _logistic(self) -> str:
        width, at = rounded(self.H * self.decades(-3, -0.7)), self.between(0.1, 0.9) * self.H
        centre = self.ahead(at)
        for k in (-8, -2, 0, 2, 8):
            self.m.cuts.add(float(centre) + k * width)
        steep = self.quantity("g", 1 / width)
        return self.one(
            f"1/(1 + exp(-{steep}*(t - {centre})))",
            f"1/(1 + exp((t - {centre})/{width!r}))",
            f"0.5*(1 + tanh((t - {centre})/{width!r}))",
            f"(1 + 0.8*tanh({steep}*(t - {centre})))",
        ).replace("- -", "+ ")

    def _switch(self) -> str:
        count = int(self.r.integers(2, 4)) if "nested switch" in self.features else 1
        ends = sorted(self.r.uniform(0.08, 0.92, count) * self.H)
        texts = [self.ahead(e) for e in ends]
        self.m.cuts |= {float(text) for text in texts}
        levels = [
            self.quantity("q", self.between(0, 2)) if self.chance(0.6) else repr(i % 2)
            for i in range(count + 1)
        ]
        return self.call(
            lambda: self._nested("Expr_if(tc < {0}, {1}, {2})", texts, levels),
            lambda: self._nested("Expr_if(tc <= {0}, {1}, {2})", texts, levels),
            lambda: self._nested("Expr_if(tc >= {0}, {2}, {1})", texts, levels),
            lambda: self._nested("({1} if tc < {0} else {2})", texts, levels),
            lambda: self._nested("({2} if tc > {0} else {1})", texts, levels),
            lambda: self._nested("Expr_if(tc < {0}, {1}, {2})", self._held(texts), levels),
            lambda: self._nested("({1} if tc < value({0}) else {2})", self._held(texts), levels),
            lambda: self._window(texts, levels),
            lambda: self._ramp(texts[0]),
            lambda: self._ramp(texts[0]),
            lambda: self._periodic(levels),
        )

    def _held(self, times: list[str]) -> list[str]:
        """Switching times as fixed quantities of the model."""
        names = []
        for text in times:
            name = f"t_switch{len(self.m.constants) + len(self.m.unknowns)}"
            self.m.constants[name] = (float(text), self.one("Param", "mutable", "fixed", "float"))
            names.append(name)
        return names

    def _nested(self, form: str, times: list[str], levels: list[str]) -> str:
        text = levels[-1]
        for time, level in reversed(list(zip(times, levels[:-1], strict=True))):
            text = form.format(time, level, text)
        return text if text.startswith(("(", "E")) else f"({text})"

    def _window(self, times: list[str], levels: list[str]) -> str:
        begin = times[0]
        end = times[1] if len(times) > 1 else self.ahead(self.H)
        level = levels[0]
        return self.one(
            f"({level} if {begin} <= tc <= {end} else 0.2)",
            f"Expr_if(tc >= {begin}, 1, 0)*Expr_if(tc < {end}, {level}, 0.5)",
            f"Expr_if(tc >= {begin}, Expr_if(tc < {end}, {level}, 0.5), 0.5)",
            f"({level} if tc >= {begin} and tc < {end} else 0.0)",
        )

    def _ramp(self, corner: str) -> str:
        """A ramp that begins or ends at a known time."""
        h, first = repr(self.H), repr(self.m.first)
        return self.one(
            f"max(t - {corner}, 0)/{h}",
            f"(0.2 + max(0, t - {corner})/{h})",
            f"min(t - {first}, {corner} - {first})/{h}",
            f"Expr_if(tc > {corner}, (t - {corner})/{h}, 0)",
            f"Expr_if(tc <= {corner}, 1, exp(-(t - {corner})*3/{h}))",
            f"((t - {corner})/{h} if tc >= {corner} else 0.0)",
            f"abs(t - {corner})/{h}",
        ).replace("- -", "+ ")

    def _periodic(self, levels: list[str]) -> str:
        """Day and night, or a staircase."""
        period = rounded(self.H * self.between(0.15, 0.5), 3)
        day = rounded(period * self.between(0.3, 0.7), 3)
        begin = int(np.floor(self.m.first / period)) - 1
        for k in range(begin, begin + 12 + 1):
            self.m.cuts |= {k * period, k * period + day}
        form = self.one("switch", "switch", "stairs")
        if form == "stairs":
            return f"(1 + 0.1*floor(tc/{period!r}))"
        return f"({levels[0]} if tc % {period!r} < {day!r} else {levels[1]})"

    def _arrhenius(self) -> str:
        middle = self.between(300, 700)
        energy = rounded(self.between(3e4, 1.2e5))
        temperature = self._temperature(middle)
        factor = rounded(np.exp(energy / (GAS * middle)))
        e = self.quantity("E", energy)
        log_factor = self.quantity("lnk", np.log(factor))
        kilo = self.quantity("E", energy / 1e3)
        return self.one(
            f"{self.quantity('k0_', factor)}*exp(-{e}/({GAS}*{temperature}))",
            f"exp(-{e}/{GAS}*(1/{temperature} - 1/{rounded(middle)!r}))",
            f"exp({log_factor} - {e}/({GAS}*{temperature}))",
            f"exp(-{kilo}*1000/{GAS}*(1/{temperature} - 1/{rounded(middle)!r}))",
        )

    def _temperature(self, middle: float) -> str:
        ramp = rounded(30 * self.between(-1, 1) / self.H)
        start = rounded(middle)
        return self.call(
            lambda: self.input(middle, 15.0),
            lambda: self.input(middle, 15.0),
            lambda: repr(start),
            lambda: self.quantity("T", start),
            lambda: f"({start!r} + {ramp!r}*{self.time})",
        )

    def _input(self) -> str:
        u = self.input(1.0, self.between(0.3, 0.9))
        return self.one(u, u, f"(1 + {u})", f"exp(-{u})", f"{u}**2")

    def input(self, middle: float, swing: float) -> str:
        """A new input about the middle."""
        name = self.one("u", "uu", "feed", "temp") + str(len(self.inputs[0]))
        kinds = ["number", "steps", "linear", "series", "function", "rule", "default"]
        kind = self.one(*kinds[:5]) if self.chance(0.97) else self.one(*kinds[5:])
        kind = "series" if "series" in self.features else kind
        kind = self.one("steps", "linear") if "table" in self.features else kind
        for run in self.inputs:
            run[name] = self._given(kind, middle, swing)
        if kind in {"rule", "default"}:
            for run in self.inputs:
                run[name] = self.inputs[0][name]
        return name

    def _given(self, kind: str, middle: float, swing: float) -> Input:
        if kind in {"number", "default"}:
            return Input(kind, values=(rounded(middle + swing * self.between(-1, 1)),))
        if kind in {"function", "rule", "fixed"}:
            b, w = rounded(self.rate(0.3, 5)), rounded(self.rate(2, 30))
            m, s, t0 = rounded(middle), rounded(swing), self.m.first
            code = self.one(
                f"{m!r} + {s!r}*sin({w!r}*t)",
                f"{m!r} - {s!r}*exp(-{b!r}*(t - {t0!r}))",
                f"{m!r} + {rounded(s / self.H)!r}*(t - {t0!r})",
            )
            return Input(kind, code=code.replace("- -", "+ "))
        count = int(self.r.integers(2, 25 if "table" in self.features else 6))
        inner = np.sort(self.r.uniform(0, 1.05, count)) * self.H
        inner[0] = 0.0 if self.chance(0.8) else 0.1 * inner[1]
        times = tuple(dict.fromkeys(rounded(self.m.first + t, 8) for t in inner))
        values = middle + swing * self.r.uniform(-1, 1, len(times))
        values = np.where(self.r.random(len(times)) < 0.1, middle, values)
        return Input(kind, times=times, values=tuple(map(float, values)))

    # stiffness, kinks, algebra

    def _stiff(self) -> None:
        name, partner = self.names[0], "f1"
        size = self.m.size[name]
        fast = self.decades(3, 6) / self.H
        self.m.states[partner], self.m.size[partner] = "", size
        self.begin[partner] = rounded(size * self.between(0, 1))
        self.names.append(partner)
        kf, kb = self.quantity("kf", fast), self.quantity("kb", fast * self.between(0.3, 3))
        law = self.one(
            f"({kf}*{name} - {kb}*{partner})", f"({kf}*{name}**2/{size!r} - {kb}*{partner})"
        )
        self.terms[name].append(f"-{law}")
        self.terms[partner] = [law]

    def _kink(self) -> None:
        name = self.names[0]
        size = self.m.size[name]
        level, k = (
            self.quantity("l", size * self.between(0.4, 1.2)),
            self.quantity("k", self.rate()),
        )
        w = repr(rounded(2 * np.pi * self.between(0.5, 3) / self.H))
        self.terms[name].append(
            self.one(
                f"-{k}*{name}*abs({name} - {level})/{size!r}",
                f"-{k}*0.5*({name} + {level} - abs({name} - {level}))",
                f"{k}*{size!r}*abs(sin({w}*{self.time}))",
                f"-{k}*Max({name} - {level}, 0)",
                f"-{k}*Max(0, {name} - {level})",
                f"-{k}*Min({name}, {level})",
                f"-{k}*{name}*abs({name})/{size!r}",
            )
        )

    def _algebra(self) -> None:
        f = self.features
        if "linear algebra" in f:
            self._linear_algebra()
        if "nonlinear algebra" in f:
            self._nonlinear_algebra()
        if "first value" in f and len(self.names) > 1:
            self._first_value()
        if "rates" in f:
            self._rates()

    def _linear_algebra(self) -> None:
        x, definitions = self.names[0], self.m.definitions
        size = self.m.size[x]
        if self.chance(0.5):
            k = self.quantity("Keq", self.between(0.3, 3))
            pair = [("z1 + z2", x), (f"{k}*z1", "z2")]
            pair = pair[::-1] if self.chance(0.5) else pair
            definitions["z"] = Algebraic(["z1", "z2"], pair, [size / 2, size / 2])
        else:
            a = self.quantity("a", self.between(0.2, 2))
            forms = [(f"z1*(1 + {a})", x), (f"z1 + {a}*z1 - {x}", "0"), (x, f"z1/{a} + z1")]
            definitions["z"] = Algebraic(["z1"], [forms[int(self.r.integers(3))]], [size / 2])
        self.terms[x].append(f"-{self.quantity('k', self.rate())}*z1")

    def _nonlinear_algebra(self) -> None:
        x = self.names[0]
        size = self.m.size[x]
        k = self.quantity("Kd", size * self.between(0.3, 3))
        total = repr(rounded(size * self.between(0.5, 1.5)))
        forms = [
            ("v1**2", f"{k}*({x} - v1)"),
            (f"v1 + v1*{total}/({k} + v1)", x),
            (f"v1*exp(v1/{k})", x),
            (f"{x} - v1 - v1**3/{k}**2", "0"),
            (f"v1 - {x}*exp(-v1/{k})", "0"),
        ]
        form = forms[int(self.r.integers(len(forms)))]
        self.m.definitions["v"] = Algebraic(["v1"], [form], [size * 0.4])
        self.begin[x] = self.begin[x] or size
        self.terms[x].append(f"-{self.quantity('k', self.rate())}*v1")

    def _first_value(self) -> None:
        """What is left of a total, which the first values give."""
        a, b = self.names[:2]
        ratio = repr(rounded(self.m.size[b] / self.m.size[a]))
        self.m.definitions["rest"] = f"{a}_first*{ratio} + {b}_first - {b}"
        self.m.as_variable.add("rest")
        self.terms[b].append(f"{self.quantity('k', self.rate())}*rest")

    def _rates(self) -> None:
        """Rates of their own, as Vars or Expressions, perhaps in a Block over time."""
        done: dict[str, str] = {}
        for name in self.names:
            for i, term in enumerate(self.terms[name]):
                bare = term.removeprefix("-")
                if self.chance(0.7):
                    r = f"r{len(done) + 1}"
                    done[r] = bare
                    self.terms[name][i] = term[: len(term) - len(bare)] + r
        self.m.definitions |= done
        if self.chance(0.6):
            self.m.as_variable |= set(done)
        simple = all(isinstance(d, str) for d in self.m.definitions.values())
        if simple and self.chance(0.3):
            self.m.style["rates"] = self.one("time block", "indexed", "indexed")

    def _named_expressions(self) -> None:
        name = self.names[int(self.r.integers(len(self.names)))]
        code = self.m.states[name]
        self.m.definitions["slope"] = code
        self.m.states[name] = "slope"
        self.terms[name] = ["slope"]

    # how it is written

    def _equations(self) -> None:
        m, names = self.m, list(self.m.states)
        implicit = "implicit" in self.features
        if implicit and len(names) > 1 and self.chance(0.4):
            a, b = names[:2]
            ratio = repr(rounded(m.size[a] / m.size[b]))
            fa, fb = m.states[a], m.states[b]
            m.equations.append((f"d_{a} + {ratio}*d_{b}", f"{fa} + {ratio}*({fb})"))
            m.equations.append((f"d_{a} - 2*{ratio}*d_{b}", f"{fa} - 2*{ratio}*({fb})"))
            names = names[2:]
        m.equations += [self._written(n, implicit) for n in names]

    def _written(self, name: str, implicit: bool) -> tuple[str, str]:
        code, slope = self.m.states[name], f"d_{name}"
        terms = self.terms[name]
        if not implicit and self.chance(0.75):
            return slope, code
        size, c = repr(self.m.size[name]), repr(rounded(self.between(0.2, 20)))
        rest = " + ".join(terms[1:]) or "0"
        forms = [
            (code, slope),
            (f"{slope} - ({code})", "0"),
            ("0", f"{code} - {slope}"),
            (f"{slope} - ({rest})", terms[0]),
            (f"{c}*{slope}", f"{c}*({code})"),
            (f"{slope}/{size}", f"({code})/{size}"),
            (f"(1 + ({name}/{size})**2)*{slope}", f"(1 + ({name}/{size})**2)*({code})"),
            (f"-{slope}", f"-({code})"),
            (f"{slope} + {c}*{name}", f"{code} + {c}*{name}"),
        ]
        return forms[int(self.r.integers(len(forms)))]

    def _starts(self) -> None:
        plain = "starts" not in self.features
        for name in self.m.states:
            how = self.one("number", "unknown", "parameter", "fixed", "equation",
                           "equation of parameter")  # fmt: skip
            if plain and self.chance(0.85):
                how = "number"
            if how in {"unknown", "parameter"} and not self.begin[name]:
                how = "number"
            if how in {"parameter", "equation of parameter"}:
                self.m.unknowns[f"{name}_begin"] = self.begin[name]
            self.m.starts[name] = how

    def _measured(self) -> None:
        m = self.m
        states = [n for n in m.states if self.chance(0.7)] or [next(iter(m.states))]
        others = [
            n
            for d, text in m.definitions.items()
            for n in (text.names if isinstance(text, Algebraic) else [d])
        ]
        if "stiff" in self.features:  # the difference of two fast rates is badly conditioned
            others = [n for n in others if n[0] in "zv"]
        m.measured = states + [n for n in others if self.chance(0.4)]
        if "expression" in self.features:
            a = self.one(*m.states)
            scale, size = self.quantity("scale", self.between(0.2, 5)), repr(m.size[a])
            m.definitions["signal"] = self.one(
                f"{scale}*({' + '.join(f'{n}/{m.size[n]!r}' for n in m.states)})",
                f"{scale}*{a} + 0.1*{size}",
                f"log(1 + ({a}/{size})**2)",
                f"{scale}*{a}*{self.time}",
                f"{scale}*({a}/{size})**2",
            )
            m.measured.append("signal")
        for name in list(m.measured):
            m.size.setdefault(name, 0.0)
        self.m.size = {n: s for n, s in m.size.items() if n in m.states}

    def _unusual(self) -> None:
        """Habits that are seldom, but seen."""
        if self.kind != "unusual":
            return
        which = self.one("list", "rule", "fixed", "default", "time block", "numpy", "numpy")
        if any(isinstance(d, Algebraic) for d in self.m.definitions.values()):
            which = self.one("list", "rule", "fixed", "numpy")
        if which == "list":
            self.m.style["list"], self.m.style["skip"] = True, ""
        elif which == "time block":
            self.m.definitions["twice"] = f"{next(iter(self.m.states))}*2"
            self.m.style["rates"] = "time block"
        else:
            self._habit(which)

    def _habit(self, which: str) -> None:
        """A known function of time that no `Experiment` is told, in the last equation."""
        last, k = list(self.m.states)[-1], rounded(self.rate())
        left, right = self.m.equations[-1]
        if left != f"d_{last}":
            return
        if which == "numpy":
            knots = [rounded(self.m.first + self.H * s) for s in (0, 0.3, 1)]
            self.m.cuts |= set(knots)
            habit = self.one(
                f"math_exp(-{k!r}*(t - {self.m.first!r}))",
                f"np_exp(-{k!r}*(t - {self.m.first!r}))",
                f"np_interp(t, {knots}, [1.0, 0.3, 0.6])",
            )
        else:
            habit, given = "habit", self._given(which, 1.0, 0.5)
            for run in self.inputs:
                run["habit"] = given
        extra = f" - {k!r}*{last}*{habit}"
        self.m.states[last] += extra
        self.m.equations[-1] = (left, right + extra)

    def _run(self, k: int, inputs: dict[str, Input]) -> Run:
        start = dict(self.begin)
        for name, how in self.m.starts.items():
            if k and how in {"number", "unknown"}:
                start[name] = rounded(start[name] * self.between(0.5, 1.5))
        return Run(f"run{k + 1}", start, inputs)

    def _local(self) -> None:
        names = [n for n in self.m.unknowns if not n.endswith("_begin")]
        name = names[int(self.r.integers(len(names)))]
        for run in self.m.runs:
            run.local[name] = rounded(self.m.unknowns[name] * self.between(0.7, 1.4))


def rounded(number: float, digits: int = 4) -> float:
    """To so many digits."""
    return float(f"{float(number):.{digits}g}")


def draw(name: str) -> Model:
    """The model of a case."""
    return Draw(name).model()


def generic_times(model: Model, count: int, share: float = 0.4142) -> np.ndarray:
    """(count,) times inside the pieces, none at a cut, and the last one."""
    ends = sorted({
        model.first,
        *(c for c in model.cuts if model.first < c < model.last),
        model.last,
    })
    inside = [a + share * (b - a) for a, b in pairwise(ends)]
    even = model.first + model.horizon * (np.arange(count) + share) / count
    keep = inside if len(inside) <= count else inside[:: len(inside) // count + 1]
    return np.unique([*even, *keep, model.last])
