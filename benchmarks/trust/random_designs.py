"""Random experiments on small models, whose sensitivities say what is identifiable.

`draw(name)` gives a `random_models.Model` with 1 to 3 states: laws with and without redundant
parameters, inputs as constants, steps and ramps (some beyond the last measurement), explicit time,
zero and steady-state starts, temperatures at few levels, unmeasured states, scaled outputs.

`sensitivities` integrates the variational equations of the same text with SciPy. Derivatives of
right-hand sides come from the complex step: exact to rounding.
"""

import re
import zlib
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from scipy.integrate import solve_ivp

from trust.random_features import generic_times, rounded
from trust.random_models import Input, Judge, Model, Run, Unsolved

STEP = 1e-30  # of the complex step
COUNT = 24  # times that are measured


class Draw:
    """A design under construction."""

    def __init__(self, name: str, most: int) -> None:
        self.r = np.random.default_rng(zlib.crc32(f"design {name} {most}".encode()))
        self.most = most
        self.kind = name.rsplit("-", 1)[0]
        self.m = Model(name, horizon=rounded(self.between(1, 8)))
        self.start: dict[str, float] = {}
        several = self.chance(0.3) or (self.kind == "arrhenius" and self.chance(0.6))
        self.inputs: list[dict[str, Input]] = [{} for _ in range(1 + several * 2)]
        self.inputs = self.inputs[: int(self.r.integers(2, 4))] if several else self.inputs

    def chance(self, share: float) -> bool:
        """True so often."""
        return bool(self.r.random() < share)

    def between(self, low: float, high: float) -> float:
        """Uniform."""
        return float(self.r.uniform(low, high))

    def one(self, *options: str) -> str:
        """One of them."""
        return options[int(self.r.integers(len(options)))]

    def p(self, stem: str, low: float = 0.4, high: float = 2.0) -> str:
        """A new unknown."""
        name = f"{stem}{len(self.m.unknowns) + 1}"
        self.m.unknowns[name] = rounded(self.between(low, high), 6)
        return name

    def model(self) -> Model:
        """All of it."""
        m, count = self.m, int(self.r.integers(1, 4))
        names = [f"x{i + 1}" for i in range(count)]
        for i, name in enumerate(names):
            terms = [f"-{self._loss(name)}"]
            if i:
                terms.append(self._gain(names[i - 1]))
            if not i or self.chance(0.15):
                terms.append(self._source(name))
            m.states[name] = " + ".join(t for t in terms if t).replace("+ -", "- ")
            m.size[name] = 1.0
            m.equations.append((f"d_{name}", m.states[name]))
        self._starts(names)
        self._outputs(names)
        m.runs = [self._run(k, u) for k, u in enumerate(self.inputs)]
        return m

    # laws

    def _constant(self) -> str:
        """A rate constant, perhaps of several unknowns that only act together."""
        if not self.chance(0.25 if self.kind != "redundant" else 0.6):
            return self.p("k")
        a, b = self.p("k"), self.p("c")
        third = [self.p("a")] if self.chance(0.2) else []
        return self.one(
            f"{a}*{b}", f"({a} + {b})", f"{a}/{b}", *(f"({a} + {b}*{c})" for c in third)
        )

    def _loss(self, x: str) -> str:
        k = self._constant()
        forms = [f"{k}*{x}"] * 3 + [f"{k}*{x}**2", f"{k}*{x}*exp(-{self._later()}*t)"]
        if self.kind == "saturation":
            forms = [f"{k}*{x}/({self.p('K')} + {x})", f"{k}*{x}*(1 + {self.p('a')}*{x})"]
        if self.kind == "arrhenius" and self.chance(0.7):
            return f"{x}*{self._arrhenius()}"
        if self.kind == "input" and self.chance(0.6):
            return f"{x}*{self._driven()}"
        return forms[int(self.r.integers(len(forms)))]

    def _later(self) -> str:
        return self.p("b") if self.kind == "time" else "0.7"

    def _gain(self, x: str) -> str:
        k = self._constant()
        if self.kind == "saturation":
            n = self.one("2", "6", self.p("n", 1.3, 3)) if self.chance(0.6) else "1"
            half = self.p("K")
            return f"{k}*power({x}, {n})/(power({half}, {n}) + power({x}, {n}))"
        if self.kind == "input" and self.chance(0.3):
            return f"{k}*{x}*{self._input('u', 1.0)}"
        return self.one(f"{k}*{x}", f"{k}*{x}", f"{k}*{x}**2")

    def _source(self, x: str) -> str:
        if self.kind == "time":
            b, a = self.p("b"), self.p("a")
            return self.one(
                f"{a}*exp(-{b}*t)", f"{a}*sin({b}*t)**2", f"{a}*t", f"{a} + {b}*t",
                f"{a}/(1 + {b}*t)",
                f"{a}*(t if tc < {rounded(self.m.horizon / 2)!r} else {b})",
            ) if not self._cut() else ""  # fmt: skip
        if self.kind == "input":
            return self._driven()
        if self.kind == "steady":
            k = self._constant()
            self.start[x] = 1.0
            return self.one(f"{k}*(1 - {x})", f"{k}*({x} - {x}**2)", f"{k}*(1 - {x})*{self.p('a')}")
        return self.one("", self.p("s"), "1.0")

    def _cut(self) -> bool:
        self.m.cuts.add(rounded(self.m.horizon / 2))
        return False

    def _driven(self) -> str:
        u = self._input("u", 1.0)
        a, b, c = self.p("a"), self.p("b"), self.p("c")
        used = self.one(
            f"({a} + {b}*{u})",
            f"({a} + {b}*{u} + {c}*{u}**2)",
            f"{a}*{u}/({b} + {u})",
            f"{a}*power({u} + 0.1, {b})",
            f"{a}*{u}**2/({b}**2 + {u}**2)*exp(-{c}*{u})",
        )
        return used

    def _arrhenius(self) -> str:
        t, k0, e = self._input("T", 350.0), self.p("k0_"), self.p("E", 20.0, 60.0)
        shifted = f"exp(-{e}*1000/8.314*(1/{t} - 1/350))"
        if self.chance(0.3):
            return f"{k0}*{shifted}*({t}/350)**{self.p('n')}"
        if self.chance(0.2):
            return f"{k0}*exp(-{e}*10/({t} - 250))"
        return f"{k0}*{shifted}"

    def _input(self, stem: str, middle: float) -> str:
        name = f"{stem}{len(self.inputs[0])}"
        kind = self.one("number", "steps", "steps", "linear", "function")
        levels = list(middle + (20.0 if stem == "T" else 0.8) * self.r.uniform(-1, 1, 3))
        for run in self.inputs:
            run[name] = self._given(kind, [rounded(v, 6) for v in levels])
            if self.chance(0.8):
                levels = list(middle + (20.0 if stem == "T" else 0.8) * self.r.uniform(-1, 1, 3))
        return name

    def _given(self, kind: str, levels: list[float]) -> Input:
        h = self.m.horizon
        if kind == "number":
            return Input("number", values=(levels[0],))
        if kind == "function":
            return Input(
                "function", code=f"{levels[0]!r} + {rounded((levels[1] - levels[0]) / h)!r}*t"
            )
        count = int(self.r.integers(2, 4))
        times = [0.0, *sorted(self.r.uniform(0.1, 0.9, count - 1) * h)]
        if self.chance(0.25):
            times[-1] = 1.5 * h  # a step that no measurement sees
        if self.chance(0.2):
            levels = [levels[0]] * (count - 1) + [levels[1]]
        return Input(kind, times=tuple(rounded(t, 6) for t in times), values=tuple(levels[:count]))

    # starts and outputs

    def _starts(self, names: list[str]) -> None:
        for name in names:
            how = self.one("number", "number", "unknown", "parameter")
            number = rounded(self.between(0.3, 1.8), 6)
            if name in self.start or (self.kind in {"zero", "saturation"} and self.chance(0.5)):
                number, how = self.start.get(name, 0.0), "number"
            self.start[name] = number
            self.m.starts[name] = how
            if how == "parameter":
                self.m.unknowns[f"{name}_begin"] = number

    def _outputs(self, names: list[str]) -> None:
        seen = [n for n in names if self.chance(0.6)]
        if not seen or self.chance(0.3):
            x = self.one(*names)
            form = self.one("{s}*{x}", "{s}*{x} + {o}", "{x} + {s}", "{s}*{o}*{x}", "{all}")
            text = form.format(s=self.p("scale"), o=self.p("o"), x=x, all=" + ".join(names))
            self.m.definitions["signal"] = text
            seen = [*seen[:1], "signal"] if self.chance(0.5) else ["signal"]
        self.m.measured = seen
        self._drop_idle()
        while len(self.m.unknowns) > self.most:
            name, value = self.m.unknowns.popitem()
            if name.endswith("_begin"):
                self.m.starts[name.removesuffix("_begin")] = "number"
            else:
                self.m.constants[name] = (value, "mutable")
        if not self.m.unknowns:
            self.m.unknowns["idle"] = 1.0

    def _drop_idle(self) -> None:
        """Unknowns that no text contains leave the model, but for a few without any effect."""
        m = self.m
        words = set(re.findall(r"\w+", " ".join((*m.states.values(), *m.definitions.values()))))
        for name in list(m.unknowns):
            if name not in words and not name.endswith("_begin") and self.chance(0.85):
                del m.unknowns[name]

    def _run(self, k: int, inputs: dict[str, Input]) -> Run:
        start = dict(self.start)
        for name, how in self.m.starts.items():
            if k and how in {"number", "unknown"} and self.chance(0.6) and self.kind != "steady":
                start[name] = rounded(start[name] * self.between(0.5, 1.5), 6)
        return Run(f"run{k + 1}", start, inputs)


KINDS = ("input", "arrhenius", "time", "saturation", "zero", "steady", "redundant")


def draw(name: str, most: int = 9) -> Model:
    """The design of a case, with at most so many unknown parameters."""
    return Draw(name, most).model()


# --- sensitivities --------------------------------------------------------------------------------

COMPLEX: dict[str, Any] = {n: getattr(np, n) for n in ("exp", "log", "log10", "sqrt", "sin", "cos")}


def _power(base: Any, exponent: Any) -> Any:
    base = np.asarray(base, dtype=complex)
    positive = base.real > 0
    return np.where(positive, np.where(positive, base, 1.0) ** exponent, 0.0)


COMPLEX |= {"tanh": np.tanh, "power": _power, "value": float, "abs": abs}
COMPLEX["Expr_if"] = lambda condition, then, otherwise: then if condition else otherwise


def unknowns(model: Model, values: dict[str, float]) -> list[tuple[str, str, str]]:
    """Of igpe's names: (name, what it is in the model, the run it belongs to or "")."""
    found = []
    for name in values:
        base, _, run = name.partition("@")
        found.append((name, base, run))
    return found


def sensitivities(
    model: Model, values: dict[str, float], times: Any, scales: list[Any] | None = None
) -> tuple[Any, Any]:
    """Outputs (n,) and relative sensitivities (n, P) of all runs, in standard scale.

    values   igpe's name of each unknown -> value; derivatives are by its relative change
    scales   for each run, what each output is divided by; default: its own largest absolute value
    raises   Unsolved if SciPy cannot integrate
    """
    rows, outputs = [], []
    for k, run in enumerate(model.runs):
        y, dy = _of_run(model, run, values, times)
        scale = output_scales(y) if scales is None else scales[k]
        outputs.append((y / scale).T.ravel())
        rows.append((dy / scale[None, :, None]).transpose(1, 0, 2).reshape(-1, len(values)))
    return np.concatenate(outputs), np.vstack(rows)


def true_scales(model: Model, values: dict[str, float], times: Any) -> list[Any]:
    """For each run the largest absolute value of each output."""
    return [output_scales(_of_run(model, run, values, times)[0]) for run in model.runs]


def output_scales(y: Any) -> Any:
    """(n,) of outputs (n_times, n)."""
    return np.maximum(np.abs(y).max(axis=0), 1e-6)


def _of_run(model: Model, run: Run, values: dict[str, float], times: Any) -> tuple[Any, Any]:
    count, names = len(values), list(model.states)
    space: dict[str, Any] = dict(model.unknowns)
    begin = np.array([run.start[n] for n in names], dtype=complex)[:, None] * np.ones(count)
    for j, (name, base, owner) in enumerate(unknowns(model, values)):
        if owner and owner != run.name:
            continue
        number = np.full(count, values[name], dtype=complex)
        number[j] += 1j * STEP * (values[name] or 1.0)
        state = base.removesuffix("(t0)").removesuffix("_begin")
        if state in names:
            begin[names.index(state)] = number
        if not base.endswith("(t0)"):
            space[base] = number
    judge = Judge(model, run, COMPLEX, space)
    return _integrated(judge, begin, times)


def _integrated(judge: Judge, x: Any, times: Any) -> tuple[Any, Any]:
    n, count = x.shape
    state = np.concatenate([x.real[:, :1], x.imag / STEP], axis=1).ravel()
    told = [*judge.model.states, *(m for m in judge.model.measured if m not in judge.model.states)]
    chosen = [told.index(m) for m in judge.model.measured]
    model, values, slopes = judge.model, [], []
    ends = [model.first, *judge.cuts(), model.last]

    def columns(v: Any) -> Any:
        v = v.reshape(n, count + 1)
        return v[:, :1] + 1j * STEP * v[:, 1:]

    def packed(rows: Any) -> Any:
        full = np.array([np.broadcast_to(r, count) for r in rows], dtype=complex)
        return np.concatenate([full.real[:, :1], full.imag / STEP], axis=1)

    for a, b in pairwise(ends):
        middle = (a + b) / 2
        inside = times[(a < times) & ((times < b) | ((b == model.last) & (times == b)))]
        run = solve_ivp(
            lambda t, v, tc=middle: packed(judge.slopes(t, tc, list(columns(v)))).ravel(),
            (a, b), state, "LSODA", np.unique([*inside, b]), rtol=1e-10, atol=1e-12,
        )  # fmt: skip
        if not run.success or not np.isfinite(run.y).all():
            raise Unsolved(run.message)
        for t, v in zip(inside, run.y.T[: len(inside)], strict=True):
            got = packed(judge.outputs(t, middle, list(columns(v))))[chosen]
            values.append(got[:, 0])
            slopes.append(got[:, 1:])
        state = run.y[:, -1]
    return np.array(values), np.array(slopes)


def measured_times(model: Model) -> Any:
    """Times of the measurements."""
    return generic_times(model, COUNT)


def tables(model: Model, values: dict[str, float], noise: float, seed: int) -> list[pd.DataFrame]:
    """Measurements of each run, with errors of so large a share of the output's largest value."""
    times, r = measured_times(model), np.random.default_rng(seed)
    found = []
    for run in model.runs:
        y, _ = _of_run(model, run, values, times)
        y = y + noise * np.abs(y).max(axis=0) * r.standard_normal(y.shape)
        table = pd.DataFrame(y, columns=model.measured)
        table.insert(0, "time", times)
        found.append(table)
    return found


# --- rank -----------------------------------------------------------------------------------------

SEEN, UNSEEN = 1e-5, 1e-8  # singular values above are there, below are not; between: unclear
IN_NULL_SPACE, OUT_OF_IT = 1e-2, 1e-4  # component of an unknown in the null space


def lost(jacobian: Any) -> list[bool | None] | None:
    """For each unknown whether the null space moves it (None: unclear); None if rank is unclear."""
    norms = np.linalg.norm(jacobian, axis=0)
    if ((norms > UNSEEN) & (norms < SEEN)).any():
        return None
    seen = norms >= SEEN
    scaled = jacobian[:, seen] / norms[seen]
    _, s, vt = np.linalg.svd(scaled, full_matrices=False)
    if not len(s) or s[0] == 0:
        return [True] * len(norms)
    if ((s > UNSEEN) & (s < SEEN)).any():
        return None
    null = np.linalg.norm(vt[s <= UNSEEN], axis=0) if (s <= UNSEEN).any() else 0 * s
    answers: list[bool | None] = [True] * len(norms)
    for j, part in zip(np.flatnonzero(seen), null, strict=True):
        answers[j] = True if part > IN_NULL_SPACE else False if part < OUT_OF_IT else None
    return answers
