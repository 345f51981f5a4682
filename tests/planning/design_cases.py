"""Seeded designs, and what they are worth by independent means.

A model here is a right-hand side that is written once and read twice: by Pyomo, and by SciPy, whose
integration (DOP853 at 1e-12, piece by piece between jumps) is differentiated by central differences
of fourth order. Information matrices, criteria and the best choice of samples among all of them
come from these sensitivities alone; nothing of igpe is used for them but the plan's own settings.
"""

from dataclasses import dataclass, field
from itertools import combinations, combinations_with_replacement, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from ode import over_time
from scipy.integrate import solve_ivp

import igpe

P = igpe.planning

STEP = 1e-3  # of a parameter, or of its typical size
INFORMATION = [f"information {seed}" for seed in range(36)]
BRUTE = [f"brute {seed}" for seed in range(10)]


@dataclass(frozen=True)
class Model:
    """Right-hand sides rhs(x, p, u, exp) by state; parameters -> (lower, upper, typical)."""

    states: tuple
    parameters: dict
    rhs: Any
    start: dict
    inputs: dict = field(default_factory=dict)
    horizon: float = 10.0
    signed: tuple = ()  # parameters that may be near 0

    def build(self, extra=()):
        """The builder for igpe; `extra` are estimated deviations: parameter -> bounds."""

        def model(times):
            bounds = {n: v[:2] for n, v in self.parameters.items()}
            bounds |= dict.fromkeys(extra, (1e-5, 1.0))
            m = over_time(times, " ".join(self.states), **bounds)
            for n, value in self.inputs.items():
                m.add_component(n, pyo.Param(m.t, mutable=True, default=value))
            for n in self.states:
                m.add_component(f"law_{n}", pyo.Constraint(m.t, rule=self._rule(n)))
            if "share" in extra:
                last = m.component(self.states[-1])
                m.sd = pyo.Expression(m.t, rule=lambda m, t: 0.01 + m.share * last[t])
            return m

        return model

    def _rule(self, n):
        def law(m, t):
            p = {k: m.component(k) for k in self.parameters}
            x = {k: m.component(k)[t] for k in self.states}
            u = {k: m.component(k)[t] for k in self.inputs}
            return m.component(f"d{n}")[t] == self.rhs(x, p, u, pyo.exp)[n]

        return law

    def simulate(self, p, start, inputs, times):
        """(n_times, n_states); inputs are numbers or tables of igpe."""
        times = np.asarray(times, dtype=float)
        tables = [u for u in inputs.values() if hasattr(u, "times")]
        inner = {float(t) for u in tables for t in u.times if 0 < t < times.max()}
        edges = sorted({0.0, *inner, float(times.max())})
        x = np.array([p[start[n]] if isinstance(start[n], str) else start[n] for n in self.states])
        found = np.full((len(times), len(self.states)), np.nan)
        found[times == 0.0] = x
        for a, b in pairwise(edges):
            inside = np.unique(times[(times > a) & (times <= b)])
            run = solve_ivp(
                self._slope, (a, b), x, "DOP853", t_eval=np.union1d(inside, [b]),
                rtol=1e-12, atol=1e-14, args=(p, inputs, (a + b) / 2),
            )  # fmt: skip
            for t, row in zip(run.t, run.y.T, strict=True):
                found[times == t] = row
            x = run.y[:, -1]
        return found

    def _slope(self, t, x, p, inputs, middle):
        u = {n: _input(inputs.get(n, v), t, middle) for n, v in self.inputs.items()}
        slope = self.rhs(dict(zip(self.states, x, strict=True)), p, u, np.exp)
        return [slope[n] for n in self.states]


def _input(given, t, middle):
    if not hasattr(given, "times"):
        return given
    if given.hold:
        return given.values[max(np.searchsorted(given.times, middle, "right") - 1, 0)]
    return np.interp(t, given.times, given.values)


MODELS = {
    "line": Model(
        ("y",),
        {"a": (-5.0, 5.0, 1.0), "b": (-5.0, 5.0, 0.7)},
        lambda x, p, u, exp: {"y": p["b"]},
        {"y": "a"},
        horizon=1.0,
        signed=("a",),
    ),
    "chain": Model(
        ("A", "B"),
        {"k1": (0.0, 5.0, 0.7), "k2": (0.0, 5.0, 0.2)},
        lambda x, p, u, exp: {"A": -p["k1"] * x["A"], "B": p["k1"] * x["A"] - p["k2"] * x["B"]},
        {"A": 1.0, "B": 0.1},
    ),
    "enzyme": Model(
        ("S", "P"),
        {"vmax": (0.0, 20.0, 1.0), "km": (0.0, 20.0, 2.0)},
        lambda x, p, u, exp: {
            "S": -p["vmax"] * x["S"] / (p["km"] + x["S"]),
            "P": p["vmax"] * x["S"] / (p["km"] + x["S"]),
        },
        {"S": 5.0, "P": 0.0},
    ),
    "tank": Model(
        ("A", "B"),
        {"k": (0.0, 5.0, 0.8), "E": (0.0, 50.0, 8.0)},
        lambda x, p, u, exp: {
            "A": u["feed"] - p["k"] * exp(-p["E"] * (350 / u["T"] - 1)) * x["A"],
            "B": p["k"] * exp(-p["E"] * (350 / u["T"] - 1)) * x["A"],
        },
        {"A": 1.0, "B": 0.05},
        {"feed": 0.1, "T": 345.0},
        horizon=4.0,
    ),
    "offset": Model(
        ("A", "s"),
        {"k": (0.0, 5.0, 0.5), "c": (-2.0, 2.0, 0.5)},
        lambda x, p, u, exp: {"A": -p["k"] * x["A"] + p["c"], "s": p["c"] * x["A"] - 0.2 * x["s"]},
        {"A": 2.0, "s": 0.3},
        signed=("c",),
    ),
}
FREE = {
    "line": {},
    "chain": {"A": P.Between(0.5, 2.0)},
    "enzyme": {"S": P.Between(0.5, 8.0)},
    "tank": {"feed": P.Levels((0.0, 1.5), 0.0, 1.0), "T": P.Ramps((0.0, 2.0, 4.0), 330, 370)},
    "offset": {"A": P.Between(0.5, 3.0)},
}
NOISE = ("constant", "both", "proportional", "share", "estimated", "expression", "unknown")
CRITERIA = (P.DOptimal(), P.AOptimal(), P.EOptimal(), P.ModifiedE())


class Information:
    """A design of any kind; its plan, and the independent covariances before and after."""

    def __init__(self, seed):
        self.random = random = np.random.default_rng([20, seed])
        self.name = list(MODELS)[seed % len(MODELS)]
        self.model = MODELS[self.name]
        self.noise = NOISE[(seed // 2) % len(NOISE)]
        self.measured = list(self.model.states)[-int(random.integers(1, 3)) :]
        self.values = {
            n: float(typical * random.uniform(0.7, 1.3))
            for n, (_, _, typical) in self.model.parameters.items()
        }
        if self.model.signed and seed % 3 < 2:  # near 0, but not 0
            self.values[self.model.signed[0]] = float(10.0 ** random.integers(-7, -2))
        self.criterion = CRITERIA[int(random.integers(3))]
        self.count = int(random.integers(1, 3))
        self.existing = self.noise in ("unknown",) or bool(random.integers(2))
        grid = np.round(np.linspace(0.0, self.model.horizon, 12)[1:], 3)
        repeats = int(random.integers(1, 3))
        chosen = np.sort(random.choice(grid, 5, replace=False))
        whole = bool(random.integers(2))
        self.times = (
            np.repeat(chosen, repeats) if whole else P.Sampling(np.repeat(grid, repeats), at_most=6)
        )
        self.free = FREE[self.name] if random.integers(2) else {}
        self.deviations()
        self.prior = None
        if self.noise != "unknown" and random.integers(2):
            first = next(iter(self.model.parameters))
            self.prior = (first, float(random.uniform(0.05, 0.5)))
        self.plan, self.refusal = None, ""
        try:
            self.plan = self._plan()
        except igpe.errors.ProblemError as error:
            self.refusal = str(error)

    def deviations(self):
        """What igpe is given, and the values of what it estimates."""
        self.extra = {}
        if self.noise == "estimated":
            self.sigma, self.extra = igpe.EstimatedSigma("sd"), {"sd": 0.03}
        elif self.noise == "expression":
            self.sigma, self.extra = igpe.EstimatedSigma("sd"), {"share": 0.05}
        else:
            self.sigma = {
                "constant": 0.02,
                "both": igpe.Noise(0.02, 0.04),
                "proportional": igpe.Noise(absolute=0.02, relative=0.05),
                "share": igpe.Noise(relative=0.05),
                "unknown": "equal",
            }[self.noise]
        self.values |= self.extra

    def _plan(self):
        model = self.model.build(self.extra)
        names = list(self.values)
        priors = {}
        if self.prior:
            priors = {
                self.prior[0]: igpe.losses.NormalPrior(self.values[self.prior[0]], self.prior[1])
            }
        settings = {
            "free": self.free, "times": self.times, "experiments": self.count,
            "criterion": self.criterion, "pool": 8, "starts": 1,
        }  # fmt: skip
        if not self.existing:
            given = P.ProblemWithoutData(
                model, names, self.measured, self.model.horizon, start=self.model.start,
                inputs=self.model.inputs, priors=priors,
            )  # fmt: skip
            measure = dict.fromkeys(self.measured, self.sigma)
            return igpe.design(given, self.values, measure=measure, **settings)
        self.data = self._data()
        sigma = 0.02 if self.noise == "both" else self.sigma
        run = igpe.Experiment(
            self.data, name="first", start=self.model.start, start_time=0.0,
            inputs=self.model.inputs, sigma=sigma, replicates=True,
        )  # fmt: skip
        given = igpe.Problem(model, parameters=names, experiments=run, priors=priors)
        measure = dict.fromkeys(self.measured, self.sigma) if self.noise == "both" else None
        if self.noise == "unknown":
            measure = self.measured
        return igpe.design(given, self.values, measure=measure, **settings)

    def _data(self):
        times = np.sort(self.random.choice(np.linspace(0, self.model.horizon, 9)[1:], 5, False))
        times = np.append(times, times[-1])  # a replicate
        exact = self.model.simulate(self.values, self.model.start, self.model.inputs, times)
        exact = exact[:, [self.model.states.index(n) for n in self.measured]]
        noisy = exact + 0.02 * self.random.standard_normal(exact.shape)
        return pd.DataFrame({"time": times} | dict(zip(self.measured, noisy.T, strict=True)))

    def outputs(self, p, start, inputs, times, measured):
        """h (n_times, n_measured) and standard deviations of the same shape."""
        x = self.model.simulate(p, start, inputs, times)
        h = x[:, [self.model.states.index(n) for n in measured]]
        if self.noise == "estimated":
            return h, np.full(h.shape, p["sd"])
        if self.noise == "expression":
            return h, np.repeat(0.01 + p["share"] * x[:, -1:], h.shape[1], axis=1)
        floor, share = {
            "constant": (0.02, 0.0), "both": (0.02, 0.04), "proportional": (0.02, 0.05),
            "share": (0.0, 0.05), "unknown": (1.0, 0.0),
        }[self.noise]  # fmt: skip
        return h, np.hypot(floor, share * h)

    def information(self, start, inputs, times, measured, limits=None):
        """(n, n) of one experiment at the values; `limits` replaces its standard deviations."""
        h, s = self.outputs(self.values, start, inputs, times, measured)
        dh, ds = self.slopes(start, inputs, times, measured)
        s = s if limits is None else limits(h, s)
        found = np.einsum("tmp,tmq->pq", dh / s[..., None], dh / s[..., None])
        if self.extra:
            found += 2 * np.einsum("tmp,tmq->pq", ds / s[..., None], ds / s[..., None])
        return found

    def slopes(self, start, inputs, times, measured):
        """Central differences of fourth order, (n_times, n_measured, n) each."""
        columns = []
        for n, value in self.values.items():
            typical = self.model.parameters.get(n, (0, 0, value))[2]
            step = STEP * max(abs(value), 0.3 * typical)
            ends = [
                self.outputs({**self.values, n: value + k * step}, start, inputs, times, measured)
                for k in (-2, -1, 1, 2)
            ]
            weights = np.array([1, -8, 8, -1]) / (12 * step)
            columns.append([
                sum(w * e[i] for w, e in zip(weights, ends, strict=True)) for i in (0, 1)
            ])
        return tuple(np.stack([c[i] for c in columns], axis=-1) for i in (0, 1))

    def before(self):
        """(n, n) information of data and priors, and the variance where sigma is unknown."""
        n = len(self.values)
        found, variance = np.zeros((n, n)), 1.0
        if self.existing:
            times = self.data["time"].to_numpy()
            given = self.model.start, self.model.inputs, times, self.measured
            values = self.data[self.measured].to_numpy()
            limits = {"both": lambda h, s: np.full(h.shape, 0.02)}.get(self.noise)
            if self.noise == "share":
                least = 0.1 * np.abs(values).min(axis=0)
                limits = lambda h, s: 0.05 * np.maximum(np.abs(h), least)  # noqa: E731
            found = self.information(*given, limits)
            if self.noise == "unknown":
                h, _ = self.outputs(self.values, *given)
                rank = np.linalg.matrix_rank(_even(found), tol=1e-9)
                variance = float(np.sum((h - values) ** 2)) / (values.size - rank)
                found /= variance
        if self.prior:
            i = list(self.values).index(self.prior[0])
            found[i, i] += 1 / self.prior[1] ** 2
        return found, variance

    def after(self, before, variance):
        """(n, n) information after the planned experiments."""
        scale = variance if self.noise == "unknown" else 1.0
        planned = [
            self.information(e.start, {**self.model.inputs, **e.inputs}, e.times, e.measured)
            for e in self.plan.experiments
        ]
        return before + sum(planned) / scale

    def refusal_is_right(self):
        """Whether nothing can be chosen, all allowed samples leave the information singular, and
        the message names unknowns that take part in what is not estimable."""
        if self.free:
            return False
        before, _ = self.before()
        times = getattr(self.times, "times", self.times)
        given = self.model.start, self.model.inputs, times, self.measured
        after = _even(before + self.information(*given))
        values, directions = np.linalg.eigh(after)
        open_ = directions[:, values < 1e-9 * values.max()]
        parts = [n for n, row in zip(self.values, open_, strict=True) if np.abs(row).max() > 1e-3]
        return bool(parts) and all(f"'{n}'" in self.refusal for n in parts)

    def difference(self):
        """Largest difference of covariances, relative to the errors; NaN counts as 1.

        A refusal counts as 0 if it is right, as 1 if not.
        """
        if self.plan is None:
            return 0.0 if self.refusal_is_right() else 1.0
        before, variance = self.before()
        pairs = [(self.plan.covariance, self.after(before, variance))]
        if np.linalg.matrix_rank(_even(before), tol=1e-9) == len(before):
            pairs.append((self.plan.covariance_before, before))
        elif np.isfinite(self.plan.covariance_before).all():
            return 1.0  # singular is called singular
        order = [list(self.values).index(n) for n in self.plan.errors.index]
        worst = 0.0
        for found, information in pairs:
            own = _inverse(information)[np.ix_(order, order)]
            error = np.sqrt(np.diag(own))
            one = np.abs(found - own) / np.outer(error, error)
            worst = max(worst, float(np.nan_to_num(one, nan=1.0, posinf=1.0).max()))
        return worst


def _even(information):
    size = np.sqrt(np.diag(information))
    size = np.where(size > 0, size, 1.0)
    return information / np.outer(size, size)


def _inverse(information):
    size = np.sqrt(np.diag(information))
    return np.linalg.inv(information / np.outer(size, size)) / np.outer(size, size)


class Brute:
    """A choice of samples small enough to try every one."""

    def __init__(self, seed):
        random = np.random.default_rng([21, seed])
        self.inner = inner = Information.__new__(Information)
        inner.name = list(MODELS)[seed % len(MODELS)]
        inner.model, inner.noise = MODELS[inner.name], ("constant", "both")[seed % 2]
        inner.values = {n: float(v[2] * random.uniform(0.7, 1.3)) for n, v in
                        inner.model.parameters.items()}  # fmt: skip
        inner.deviations()
        inner.measured = list(inner.model.states)
        self.criterion = CRITERIA[(seed // 2 + seed) % 4]
        self.repeats = 1 + seed % 3
        n_times = int(random.integers(7, 15)) if self.repeats == 1 else int(random.integers(5, 8))
        self.grid = np.round(np.linspace(0, inner.model.horizon, n_times + 1)[1:], 3)
        self.at_most = int(random.integers(max(3, len(inner.values)), 6))
        self.quantities = 1 if len(inner.measured) > 1 and seed % 4 == 0 else None
        self.count = 2 if seed % 5 == 4 else 1
        self.sizes = {n: float(abs(v) * random.uniform(0.5, 2)) for n, v in inner.values.items()}
        given = P.ProblemWithoutData(
            inner.model.build(), list(inner.values), inner.measured, inner.model.horizon,
            start=inner.model.start, inputs=inner.model.inputs,
        )  # fmt: skip
        settings = {
            "criterion": self.criterion, "sizes": self.sizes, "experiments": self.count,
            "measure": dict.fromkeys(inner.measured, inner.sigma),
            "times": P.Sampling(
                np.repeat(self.grid, self.repeats), self.at_most, quantities=self.quantities
            ),
        }  # fmt: skip
        try:
            self.plan = igpe.design(given, inner.values, **settings)
        except igpe.errors.ProblemError:  # right only if every choice is singular: see `excess`
            self.plan = None

    def samples(self):
        """(n_times, n_measured, n, n) the information of each measurement, in relative units."""
        inner = self.inner
        given = inner.model.start, inner.model.inputs, self.grid, inner.measured
        _, s = inner.outputs(inner.values, *given)
        rows = inner.slopes(*given)[0] / s[..., None] * np.array(list(self.sizes.values()))
        return np.einsum("tmp,tmq->tmpq", rows, rows)

    def error(self, information):
        """(...,) what the criterion is about, squared, of (..., n, n): the smaller the better."""
        size = np.sqrt(np.diagonal(information, axis1=-2, axis2=-1))
        outer = size[..., :, None] * size[..., None, :]
        outer = np.where(outer > 0, outer, 1.0)
        singular = np.linalg.cond(information / outer) > 1e13
        even = np.where(singular[..., None, None], np.eye(size.shape[-1]), information / outer)
        c = np.linalg.inv(even) / outer
        axes, n = np.linalg.eigvalsh(c), size.shape[-1]
        found = {
            "DOptimal": lambda: np.exp(np.log(axes).mean(axis=-1)),
            "AOptimal": lambda: axes.sum(axis=-1) / n,
            "EOptimal": lambda: axes[..., -1],
            "ModifiedE": lambda: axes[..., -1] / axes[..., 0],
        }[type(self.criterion).__name__]()
        return np.where(singular, np.inf, found)

    def excess(self):
        """How much larger the plan's squared error is than the least of all choices; 0.01: 1 %."""
        each, m = self.samples(), len(self.inner.measured)
        fewest = self.at_most if not isinstance(self.criterion, igpe.planning.ModifiedE) else 1
        sets = [range(m)] if self.quantities is None else combinations(range(m), self.quantities)
        best = np.inf
        for quantities in sets:
            per_time = each[:, list(quantities)].sum(axis=1)
            picks = [
                per_time[list(pick)].sum(axis=0)
                for k in range(fewest, self.at_most + 1)
                for pick in combinations_with_replacement(range(len(self.grid)), k)
                if max(pick.count(i) for i in pick) <= self.repeats
            ]
            picks = np.array(picks)
            rest = [np.zeros((1, *picks.shape[1:]))] if self.count == 1 else picks[:, None]
            best = min(best, *(float(self.error(picks + one).min()) for one in rest))
        if self.plan is None:
            return 0.0 if np.isinf(best) else np.inf
        own = np.zeros(each.shape[2:])
        for e in self.plan.experiments:
            at = np.searchsorted(self.grid, e.times - 1e-9)
            columns = [self.inner.measured.index(n) for n in e.measured]
            own += each[np.ix_(at, columns)].sum(axis=(0, 1))
        return self.error(own) / best - 1
