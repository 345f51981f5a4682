"""All equally good optima are reported, and none that is not one; values at bounds are on them.

How many optima a problem has within its bounds is known by construction: unknowns that may change
places or signs, or roots of a polynomial. Data are simulated by SciPy with seeded noise. A result's
optima (`Result.other_optima` and the estimate) are compared with those that the symmetry makes of
the estimate, to a part in a thousand: what lacks is missed, what is more is a false double.

Problems with a bound that the optimum must lie on have their truth outside the bounds by several
standard errors. The unknown must be reported at its bound, and all intervals lie within the bounds.
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_most
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from trust.run import Answer, run

SEEDS = 3
NOISE = 0.01
DATA = Path(__file__).resolve().parents[2] / "data"
Values = Mapping[str, float]
Slope = Callable[[Any], Any]


@dataclass(frozen=True)
class Case:
    """A model with a known number of optima.

    slopes    state -> its slope, of states, unknowns and (in `outputs` too) other quantities
    truth     unknown -> value that makes the data;  bounds: of all unknowns, or of each
    start     state -> start value, or the unknown that is it
    outputs   quantity -> expression of states and unknowns
    measured  names of what is measured;  end: of the measurements;  count: of them
    mirrors   values -> all sets of values with the same data, those out of bounds included
    at_bound  unknowns whose optimum is on a bound
    """

    slopes: Mapping[str, Slope]
    truth: Values
    bounds: tuple[float, float] | Mapping[str, tuple[float, float]]
    start: Mapping[str, float | str]
    measured: Sequence[str]
    outputs: Mapping[str, Slope] = ()  # type: ignore[assignment]
    end: float = 5.0
    count: int = 30
    mirrors: Callable[[Values], list[Values]] = lambda values: [values]
    at_bound: tuple[str, ...] = ()

    def range(self, name: str) -> tuple[float, float]:
        """Bounds of one unknown."""
        return self.bounds[name] if isinstance(self.bounds, Mapping) else self.bounds

    def model(self, times: Sequence[float]) -> Any:
        """The Pyomo model."""
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for name in self.truth:
            m.add_component(name, pyo.Var(bounds=self.range(name), initialize=1.0))
        for name in (*self.slopes, *self.outputs):
            m.add_component(name, pyo.Var(m.t))
        for name, slope in self.slopes.items():
            rate = dae.DerivativeVar(getattr(m, name))
            m.add_component(f"d{name}", rate)
            m.add_component(f"rate_{name}", pyo.Constraint(m.t, rule=self._equal(rate, slope)))
        for name, output in dict(self.outputs).items():
            rule = self._equal(getattr(m, name), output)
            m.add_component(f"output_{name}", pyo.Constraint(m.t, rule=rule))
        return m

    def _equal(self, left: Any, right: Slope) -> Any:
        return lambda m, t: left[t] == right(self._at(m, t))

    def _at(self, m: Any, t: Any) -> SimpleNamespace:
        own = {n: getattr(m, n) for n in self.truth}
        return SimpleNamespace(**own, **{n: getattr(m, n)[t] for n in self.slopes})

    def data(self, seed: int) -> pd.DataFrame:
        """Measurements with noise of one percent of each quantity's largest value."""
        random, times = np.random.default_rng(seed), np.linspace(0, self.end, self.count + 1)[1:]
        names = list(self.slopes)
        y0 = [self.truth[v] if isinstance(v, str) else v for v in self.start.values()]

        def at(y: Any) -> SimpleNamespace:
            return SimpleNamespace(**self.truth, **dict(zip(names, y, strict=True)))

        done = solve_ivp(
            lambda t, y: [self.slopes[n](at(y)) for n in names],
            (0, self.end), y0, t_eval=times, rtol=1e-10, atol=1e-12, method="LSODA",
        )  # fmt: skip
        told = dict(zip(names, done.y, strict=True))
        told |= {n: np.array([f(at(y)) for y in done.y.T]) for n, f in dict(self.outputs).items()}
        spread = {n: NOISE * np.max(np.abs(told[n])) for n in self.measured}
        noisy = {n: told[n] + s * random.standard_normal(len(times)) for n, s in spread.items()}
        return pd.DataFrame({"time": times, **noisy})

    def problem(self, seed: int) -> igpe.Problem:
        """The problem with seeded data."""
        experiment = igpe.Experiment(self.data(seed), start=dict(self.start), start_time=0.0)
        return igpe.Problem(self.model, parameters=list(self.truth), experiments=[experiment])


def exchange(
    *names: str, together: Sequence[Sequence[str]] = ()
) -> Callable[[Values], list[Values]]:
    """All permutations of the names; those of each group in `together` change places alike."""

    def mirrors(values: Values) -> list[Values]:
        found = []
        for order in permutations(range(len(names))):
            one = dict(values)
            for group in (names, *together):
                one |= {group[i]: values[group[j]] for i, j in enumerate(order)}
            found.append(one)
        return found

    return mirrors


def flip(*names: str) -> Callable[[Values], list[Values]]:
    """The names with either sign, together."""
    return lambda values: [values, {**values, **{n: -values[n] for n in names}}]


def absorbed(values: Values) -> list[Values]:
    """ka and ke change places; the volume makes up for it."""
    ka, ke, V = values["ka"], values["ke"], values["V"]
    return [values, {"ka": ke, "ke": ka, "V": V * ke / ka}]


def quartic(values: Values) -> list[Values]:
    """The roots of k**4 - 5 k**2 = c."""
    c = values["k"] ** 4 - 5 * values["k"] ** 2
    return [{"k": float(r.real)} for r in np.roots([1, 0, -5, 0, -c]) if abs(r.imag) < 1e-9]


ABSORPTION: dict[str, Any] = {
    "slopes": {"G": lambda v: -v.ka * v.G, "C": lambda v: v.ka * v.G / v.V - v.ke * v.C},
    "truth": {"ka": 2.0, "ke": 0.5, "V": 3.0},
    "start": {"G": 10.0, "C": 0.0},
    "measured": ["C"],
}
CHAIN: dict[str, Any] = {
    "slopes": {
        "A": lambda v: -v.k1 * v.A,
        "B": lambda v: v.k1 * v.A - v.k2 * v.B,
        "C": lambda v: v.k2 * v.B,
    },
    "truth": {"k1": 2.0, "k2": 0.4},
    "start": {"A": 1.0, "B": 0.0, "C": 0.0},
    "bounds": (0.0, 10.0),
}
LONG: dict[str, Any] = {
    "slopes": {
        "A": lambda v: -v.k1 * v.A,
        "B": lambda v: v.k1 * v.A - v.k2 * v.B,
        "C": lambda v: v.k2 * v.B - v.k3 * v.C,
        "D": lambda v: v.k3 * v.C,
    },
    "truth": {"k1": 4.0, "k2": 1.0, "k3": 0.25},
    "start": {"A": 1.0, "B": 0.0, "C": 0.0, "D": 0.0},
    "bounds": (0.0, 20.0),
    "end": 15.0,
    "count": 60,
}
SUM = {"slopes": {"a": lambda v: -v.k1 * v.a, "b": lambda v: -v.k2 * v.b}}
LINEAR = {"x": lambda v: v.a * v.b - (v.a + v.b) * v.x}
SEIR: dict[str, Any] = {
    "slopes": {
        "S": lambda v: -v.b * v.S * v.I,
        "E": lambda v: v.b * v.S * v.I - v.nu * v.E,
        "I": lambda v: v.nu * v.E - v.a * v.I,
    },
    "truth": {"a": 0.3, "nu": 1.2, "b": 2.0, "q": 0.5},
    "start": {"S": 1.0, "E": 0.0, "I": 0.02},
    "outputs": {"y": lambda v: v.q * v.nu * v.E},
    "measured": ["y"],
    "end": 20.0,
}
BATCH = {"x": lambda v: -v.V * v.x / (v.K + v.x)}
PREY = {
    "x": lambda v: v.a * v.x - v.b * v.x * v.y,
    "y": lambda v: v.b * v.x * v.y - v.c * v.y,
}

CASES: dict[str, Case] = {
    "absorption": Case(**ABSORPTION, bounds=(0.01, 20.0), mirrors=absorbed),
    "absorption, mirror out of bounds": Case(
        **ABSORPTION,
        bounds={"ka": (1.0, 20.0), "ke": (0.01, 1.0), "V": (0.01, 20.0)},
        mirrors=absorbed,
    ),
    "chain, last measured": Case(**CHAIN, measured=["C"], mirrors=exchange("k1", "k2")),
    "chain, two measured": Case(**CHAIN, measured=["B", "C"]),
    "long chain, last measured": Case(**LONG, measured=["D"], mirrors=exchange("k1", "k2", "k3")),
    "long chain, last two measured": Case(
        **LONG, measured=["C", "D"], mirrors=exchange("k1", "k2")
    ),
    "sum of two exponentials": Case(
        **SUM,  # type: ignore[arg-type]
        truth={"k1": 3.0, "k2": 0.3, "A": 1.0, "B": 2.0},
        bounds=(0.0, 20.0),
        start={"a": "A", "b": "B"},
        outputs={"y": lambda v: v.a + v.b},
        measured=["y"],
        mirrors=exchange("k1", "k2", together=[("A", "B")]),
    ),
    "sum and product": Case(
        LINEAR, {"a": 0.5, "b": 2.0}, (0.05, 5.0), {"x": 0.1}, ["x"], end=3.0,
        mirrors=exchange("a", "b"),
    ),
    "square": Case(
        {"x": lambda v: -(v.k**2) * v.x}, {"k": 0.8}, (-4.0, 4.0), {"x": 1.0}, ["x"],
        mirrors=flip("k"),
    ),
    "square, one sign": Case(
        {"x": lambda v: -(v.k**2) * v.x}, {"k": 0.8}, (0.0, 4.0), {"x": 1.0}, ["x"],
        mirrors=flip("k"),
    ),
    "quartic": Case(
        {"x": lambda v: (v.k**4 - 5 * v.k**2) * v.x}, {"k": 1.1}, (-3.0, 3.0), {"x": 1.0}, ["x"],
        end=1.0, mirrors=quartic,
    ),
    "product of signs": Case(
        {"x": lambda v: -v.k * v.z, "z": lambda v: v.k * v.x - v.z / 2}, {"k": 2.0}, (-5.0, 5.0),
        {"x": 1.0, "z": 0.0}, ["x"], mirrors=flip("k"),
    ),
    "hidden sign": Case(
        {"x": lambda v: v.p * v.z - v.x, "z": lambda v: -0.5 * v.z}, {"p": 2.0, "z0": 1.0},
        {"p": (-5.0, 5.0), "z0": (1.0, 1.5)}, {"x": 0.3, "z": "z0"}, ["x", "z"],
    ),
    "epidemic": Case(**SEIR, bounds=(0.01, 5.0)),
    "two exchanged in two states": Case(
        {
            "x": lambda v: -(v.k1 + v.k2) * v.x + v.k1 * v.k2 * v.z,
            "z": lambda v: v.x - 0.1 * v.z,
        },
        {"k1": 0.6, "k2": 1.8}, (0.0, 6.0), {"x": 1.0, "z": 0.0}, ["x", "z"],
        mirrors=exchange("k1", "k2"),
    ),
    "saturated": Case(BATCH, {"V": 1.0, "K": 0.5}, (0.01, 10.0), {"x": 2.0}, ["x"]),
    "predator and prey": Case(
        PREY, {"a": 1.0, "b": 0.8, "c": 0.6}, (0.01, 5.0), {"x": 1.0, "y": 0.5}, ["x", "y"],
        end=10.0,
    ),
    "predator hidden": Case(
        PREY, {"a": 1.0, "b": 0.8, "c": 0.6}, (0.01, 5.0), {"x": 1.0, "y": 0.5}, ["x"], end=10.0,
    ),
    "only a product": Case(
        {"x": lambda v: -v.k * v.c * v.x}, {"k": 0.5, "c": 1.5}, (0.1, 5.0), {"x": 1.0}, ["x"],
        mirrors=lambda values: [values],
    ),
}  # fmt: skip
BOUNDED: dict[str, Case] = {
    "reverse reaction": Case(
        {"A": lambda v: -v.k1 * v.A + v.k2 * v.B, "B": lambda v: v.k1 * v.A - v.k2 * v.B},
        {"k1": 1.0, "k2": -0.03}, {"k1": (0.0, 10.0), "k2": (0.0, 10.0)}, {"A": 1.0, "B": 0.0},
        ["A", "B"], at_bound=("k2",),
    ),
    "leak": Case(
        {"A": lambda v: -v.k * v.A - v.leak}, {"k": 0.7, "leak": -0.05},
        {"k": (0.0, 10.0), "leak": (0.0, 1e3)}, {"A": 1.0}, ["A"], at_bound=("leak",),
    ),
    "too fast": Case(
        {"A": lambda v: -v.k1 * v.A, "B": lambda v: v.k1 * v.A - v.k2 * v.B},
        {"k1": 3.0, "k2": 0.5}, {"k1": (0.0, 2.0), "k2": (0.0, 5.0)}, {"A": 1.0, "B": 0.0},
        ["A", "B"], at_bound=("k1",),
    ),
    "activation": Case(
        {
            "A": lambda v: -v.k * pyo.exp(-v.E * 1e-4) * v.A if not _plain(v.A) else
            -v.k * np.exp(-v.E * 1e-4) * v.A,
            "B": lambda v: -v.k * v.B,
        },
        {"k": 0.6, "E": -3000.0}, {"k": (0.0, 10.0), "E": (0.0, 2e5)}, {"A": 1.0, "B": 1.0},
        ["A", "B"], at_bound=("E",),
    ),
    "two at bounds": Case(
        {
            "A": lambda v: -v.k1 * v.A + v.k2 * v.B,
            "B": lambda v: v.k1 * v.A - v.k2 * v.B - v.k3 * v.B + v.k4,
        },
        {"k1": 1.0, "k2": -0.05, "k3": 0.5, "k4": -0.05}, (0.0, 10.0), {"A": 1.0, "B": 0.2},
        ["A", "B"], at_bound=("k2", "k4"),
    ),
    "hidden, from the dynamics": Case(
        {"A": lambda v: -v.k1 * v.A, "B": lambda v: v.k1 * v.A - v.k2 * v.B},
        {"k1": 1.0, "k2": -0.05}, (0.0, 10.0), {"A": 1.0, "B": 0.0}, ["B"], at_bound=("k2",),
    ),
}  # fmt: skip


def _plain(value: Any) -> bool:
    return isinstance(value, float | np.ndarray | np.floating)


def _name(case: str, seed: int) -> str:
    return f"{case} #{seed}"


NAMES = [_name(c, s) for c in (*CASES, *BOUNDED) for s in range(SEEDS)] + ["sulfisoxazole #0"]


def work(name: str) -> Answer:
    """Fit one case; count optima that are missed, false ones, and what is wrong at bounds."""
    label, seed = name.rsplit(" #", 1)
    if label == "sulfisoxazole":
        return _optima(sulfisoxazole(), exchange("l1", "l2", together=[("A1", "A2")]))
    case = {**CASES, **BOUNDED}[label]
    problem = case.problem(int(seed))
    return _at_bounds(problem, case) if case.at_bound else _optima(problem, case.mirrors)


def sulfisoxazole() -> igpe.Problem:
    """Two exponentials to measured concentrations: two minima, mirror images of each other."""
    names = {"A1": "a", "A2": "b", "l1": "k1", "l2": "k2"}
    case = Case(
        {"a": lambda v: -v.l1 * v.a, "b": lambda v: -v.l2 * v.b},
        dict.fromkeys(names, 1.0), {"A1": (0, 1e3), "A2": (0, 1e3), "l1": (0, 1e3), "l2": (0, 1e3)},
        {"a": "A1", "b": "A2"}, ["conc"], {"conc": lambda v: v.a + v.b},
    )  # fmt: skip
    data = pd.read_csv(DATA / "sulfisoxazole.csv")
    run_ = igpe.Experiment(data, start=dict(case.start), start_time=0.0)
    return igpe.Problem(case.model, parameters=list(names), experiments=[run_])


def _optima(problem: igpe.Problem, mirrors: Callable[[Values], list[Values]]) -> Answer:
    result = igpe.estimate(problem)
    box = problem.box
    known = [box.vector(v) for v in mirrors(result.parameters)]
    known = [x for x in known if ((x >= box.lower) & (x <= box.upper)).all()]
    reported = [box.vector(s.parameters) for s in (result, *result.other_optima)]
    missed = sum(not any(_same(x, r) for r in reported) for x in known)
    return {"known": len(known), "missed": missed, "false": len(reported) - len(known) + missed}


def _same(one: Any, other: Any) -> bool:
    return bool(np.allclose(one, other, rtol=1e-3, atol=0.0))


def _at_bounds(problem: igpe.Problem, case: Case) -> Answer:
    result = igpe.estimate(problem)
    of = {p.name: p for p in result.estimates}
    off = [n for n in case.at_bound if "bound" not in of[n].remark]
    outside = [
        p.name
        for p in result.estimates
        if not p.bounds[0] <= p.lower <= p.value <= p.upper <= p.bounds[1]
    ]
    lost = [p.name for p in result.estimates if "not determined" in p.remark]
    return {"off": off, "outside": outside, "lost": lost}


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """The section's rows."""
    answers = run("optima", NAMES, work, given, limit=60)
    known = [a for a in answers.values() if "known" in a]
    held = [a for a in answers.values() if "off" in a]
    failed = len(answers) - len(known) - len(held)
    several = sum(a["known"] > 1 for a in known)
    yield at_most("optima", "problems", len(known))
    yield at_most("optima", "with several optima", several)
    yield at_most("optima", "without an answer", failed, limit=0)
    yield at_most("optima", "missed optima", sum(a["missed"] for a in known), limit=0)
    yield at_most("optima", "false doubles", sum(a["false"] for a in known), limit=0)
    yield at_most("bounds", "problems", len(held))
    yield at_most("bounds", "not reported at bound", sum(len(a["off"]) for a in held), limit=0)
    yield at_most(
        "bounds", "intervals beyond bounds", sum(len(a["outside"]) for a in held), limit=0
    )
    yield at_most("bounds", "called not determined", sum(len(a["lost"]) for a in held), limit=0)
