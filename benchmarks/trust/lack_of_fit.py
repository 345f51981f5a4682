"""How often `igpe.estimate` says "lack of fit" of right models and of wrong ones.

Each case draws a small kinetic model, one to three experiments, one to three measured species, 8 to
40 measured times each (some with replicates), and normal noise of 1 to 5 %, constant or
proportional. In a good case the fitted model is the one that made the data. In a wrong case
something is missing in it: a reaction, the order of one, an inhibition, a saturation, or the
temperature of three experiments that share one set of rate constants.

A wrong case is drawn again until a chi-square test at 5 % with the true standard deviations finds
lack of fit with a power of 99 %: by the noncentral chi-square whose noncentrality is the least sum
of squares of the wrong model on data without noise (SciPy, several starts). Draws that were not
taken are counted. Standard deviations are given to igpe in every second wrong case, and in half of
the good ones. Everything follows from the case's name.
"""

import argparse
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most
from pyomo import dae
from scipy.integrate import odeint
from scipy.optimize import least_squares
from scipy.stats import chi2, ncx2

import igpe
from trust.run import Answer, run

COUNT = 500
CASES = tuple(f"{kind}-{i:03d}" for kind in ("good", "wrong") for i in range(COUNT))
KINDS = ("reaction left out", "wrong order", "pooled temperatures", "inhibition", "saturation")
LEVEL, POWER = 0.05, 0.99
UPPER = 10.0  # bound of every parameter
STARTS = 5  # searches for the wrong model's best fit
GAS = 8.314e-3  # kJ/mol/K
DRAWS = 500  # of a case, at most
FALSE_ALARMS, ALARMS = 0.08, 0.90


@dataclass(frozen=True)
class Reaction:
    """A rate law: k times powers of concentrations, perhaps inhibited or saturated.

    orders   species -> order;  products: species made, one each; each species with an order >= 1
             loses one (two for the order 2 of a dimerisation)
    rate     parameter
    divided  (parameter, species): the rate is divided by 1 + parameter * concentration
    """

    orders: tuple[tuple[str, float], ...]
    products: tuple[str, ...]
    rate: str
    divided: tuple[str, str] | None = None

    def value(self, c: Any, p: Any) -> Any:
        """The rate from concentrations and parameters: numbers or Pyomo's expressions."""
        found = p[self.rate]
        for species, order in self.orders:
            found = found * (c[species] if order == 1 else c[species] ** order)
        if self.divided:
            found = found / (1 + p[self.divided[0]] * c[self.divided[1]])
        return found


class Run(NamedTuple):
    """One experiment: start values, measured times (ascending), and a factor of each true rate."""

    start: Mapping[str, float]
    times: np.ndarray
    factors: Mapping[str, float]


class Case(NamedTuple):
    """All that makes a case; `model` is fitted, `truth` made the data."""

    kind: str
    truth: tuple[Reaction, ...]
    model: tuple[Reaction, ...]
    values: Mapping[str, float]
    runs: tuple[Run, ...]
    measured: tuple[str, ...]
    share: float
    proportional: bool
    sigma_given: bool


def species_of(reactions: Sequence[Reaction]) -> list[str]:
    """All species, sorted."""
    return sorted({s for r in reactions for s in (*dict(r.orders), *r.products)})


def parameters_of(reactions: Sequence[Reaction]) -> list[str]:
    """All parameters, sorted."""
    return sorted({n for r in reactions for n in (r.rate, *(r.divided or ())[:1])})


def draw(name: str, attempt: int) -> Case:
    """One attempt at a case."""
    word, number = name.split("-")
    random = np.random.default_rng([zlib.crc32(name.encode()), attempt])
    wrong = word == "wrong"
    kind = KINDS[random.integers(len(KINDS))]
    base = _base(random)
    extended = base if kind == "pooled temperatures" else _extended(random, base, kind)
    if wrong:
        truth, model = extended, base
    else:
        truth = extended if random.random() < 0.5 else base
        model, kind = truth, "good"
    values = {n: float(np.exp(random.uniform(np.log(0.15), np.log(2.0)))) for n in _all(truth)}
    known = int(number) % 2 == 1 if wrong else bool(random.random() < 0.5)
    present = species_of(base)
    count = int(random.integers(1, min(3, len(present)) + 1))
    return Case(
        kind=kind,
        truth=truth,
        model=model,
        values=values,
        runs=_runs(random, truth, kind),
        measured=tuple(sorted(random.choice(present, count, replace=False).tolist())),
        share=float(random.uniform(0.01, 0.05)),
        proportional=bool(random.random() < 0.5),
        sigma_given=known,
    )


def _all(reactions: Sequence[Reaction]) -> list[str]:
    return parameters_of(reactions)


def _base(random: np.random.Generator) -> tuple[Reaction, ...]:
    """One to three reactions: a chain, a branch, a reverse reaction, or of two species."""
    first = Reaction((("A", 1.0),), ("B",), "k1")
    others = [
        Reaction((("B", 1.0),), ("C",), "k2"),
        Reaction((("A", 1.0),), ("C",), "k2"),
        Reaction((("B", 1.0),), ("A",), "k2"),
        Reaction((("A", 1.0), ("B", 1.0)), ("C",), "k2"),
    ]
    found = [first]
    if random.random() < 0.8:
        found.append(others[random.integers(len(others))])
    if len(found) == 2 and random.random() < 0.4:
        last = found[1].products[0]
        found.append(Reaction(((last, 1.0),), ("D",), "k3"))
    return tuple(found)


def _extended(
    random: np.random.Generator, base: tuple[Reaction, ...], kind: str
) -> tuple[Reaction, ...]:
    """The base with what a wrong model lacks."""
    which = int(random.integers(len(base)))
    one, present = base[which], species_of(base)
    if kind == "reaction left out":
        source = present[random.integers(len(present))]
        target = [*present, "E"][random.integers(len(present) + 1)]
        orders = ((source, 1.0),)
        if random.random() < 0.3:
            partner = present[random.integers(len(present))]
            orders = orders if partner == source else (*orders, (partner, 1.0))
        made = "E" if target in dict(orders) else target
        return (*base, Reaction(orders, (made,), "x"))
    if kind == "wrong order":
        order = float(random.choice([1.5, 2.0]))
        changed = replace(one, orders=((one.orders[0][0], order), *one.orders[1:]))
    else:
        by = one.products[0] if kind == "inhibition" else one.orders[0][0]
        changed = replace(one, divided=("x", by))
    return (*base[:which], changed, *base[which + 1 :])


def _runs(random: np.random.Generator, truth: Sequence[Reaction], kind: str) -> tuple[Run, ...]:
    """One to three experiments; pooled temperatures need two or three."""
    pooled = kind == "pooled temperatures"
    horizon, spaced = random.uniform(2.0, 8.0), random.integers(3)
    energies = {r.rate: random.uniform(30.0, 90.0) for r in truth}
    step = random.uniform(5.0, 20.0)
    found = []
    for number in range(int(random.integers(2 if pooled else 1, 4))):
        start = {
            s: float(random.uniform(0.5, 2.0))
            if s == "A"
            else float(random.uniform(0.1, 1.0) * (random.random() < 0.25))
            for s in species_of(truth)
        }
        at = 320.0 + step * number
        factors = {
            n: float(np.exp(-e / GAS * (1 / at - 1 / 320.0))) if pooled else 1.0
            for n, e in energies.items()
        }
        found.append(Run(start, _times(random, horizon, int(spaced)), factors))
    return tuple(found)


def _times(random: np.random.Generator, horizon: float, spaced: int) -> np.ndarray:
    """Evenly, denser at the beginning, or at random; a fifth with replicates."""
    count = int(random.integers(8, 41))
    repeats = int(random.integers(2, 4)) if random.random() < 0.2 else 1
    distinct = max(count // repeats, 4)
    even = np.linspace(0, horizon, distinct + 1)[1:]
    times = (even, horizon * (even / horizon) ** 2, np.sort(random.uniform(0, horizon, distinct)))
    return np.repeat(np.round(times[spaced], 4), repeats)


def predicted(case: Case, values: Mapping[str, float], *, true: bool) -> np.ndarray:
    """Measured species in all experiments, one after the other.

    true  by the truth, whose rates depend on the experiment; else by the model
    """
    reactions = case.truth if true else case.model
    names = species_of(case.truth)
    place = {s: i for i, s in enumerate(names)}
    found = []
    for one in case.runs:
        own = {n: v * (one.factors.get(n, 1.0) if true else 1.0) for n, v in values.items()}

        def slopes(c: np.ndarray, _: float, own: Mapping[str, float] = own) -> np.ndarray:
            at = dict(zip(names, np.maximum(c, 0.0), strict=True))
            total = np.zeros(len(names))
            for r in reactions:
                rate = r.value(at, own)
                for s, lost in _lost(r):
                    total[place[s]] -= lost * rate
                for s in r.products:
                    total[place[s]] += rate
            return total

        grid, back = np.unique(one.times, return_inverse=True)
        start = [one.start[s] for s in names]
        courses = odeint(slopes, start, [0.0, *grid], rtol=1e-8, atol=1e-10)[1:]
        found += [courses[back, place[s]] for s in case.measured]
    return np.concatenate(found)


def _lost(r: Reaction) -> list[tuple[str, float]]:
    return [(s, 1.0) for s, _ in r.orders]


def deviations(case: Case, exact: np.ndarray) -> tuple[np.ndarray, dict[str, tuple[float, float]]]:
    """True standard deviations of all measurements, and (share, floor) of each species."""
    lengths = [len(r.times) for r in case.runs for _ in case.measured]
    species = np.repeat([s for _ in case.runs for s in case.measured], lengths)
    sigma, models = np.zeros(len(exact)), {}
    for s in case.measured:
        largest = float(np.max(np.abs(exact[species == s])))
        share, floor = (case.share, 0.1 * case.share * largest)
        share, floor = (share, floor) if case.proportional else (0.0, case.share * largest)
        models[s] = (share, floor)
        sigma[species == s] = np.hypot(floor, share * exact[species == s])
    return sigma, models


def power(case: Case, exact: np.ndarray, sigma: np.ndarray) -> float:
    """Of a chi-square test with the true standard deviations against the model's best fit."""
    names = parameters_of(case.model)
    degrees = len(exact) - len(names)
    threshold = chi2.isf(LEVEL, degrees)

    def residual(x: np.ndarray) -> np.ndarray:
        return (predicted(case, dict(zip(names, x, strict=True)), true=False) - exact) / sigma

    random = np.random.default_rng(0)
    starts = [np.array([case.values[n] for n in names])]
    starts += [np.exp(random.uniform(np.log(0.05), np.log(5.0), len(names))) for _ in range(STARTS)]
    found = 1.0
    for start in starts:
        fit = least_squares(residual, start, bounds=(0.0, UPPER), x_scale=start, max_nfev=60)
        found = min(found, float(ncx2.sf(threshold, degrees, 2 * fit.cost)))
        if found < POWER:
            break
    return found


class Drawn(NamedTuple):
    """A case that was taken, its data without noise, and how many draws were not."""

    case: Case
    exact: np.ndarray
    sigma: np.ndarray
    models: dict[str, tuple[float, float]]
    discarded: int


def drawn(name: str) -> Drawn:
    """The first attempt that a good chi-square test could tell from a right model."""
    for attempt in range(DRAWS):
        case = draw(name, attempt)
        exact = predicted(case, case.values, true=True)
        sigma, models = deviations(case, exact)
        if min(floor + share for share, floor in models.values()) <= 0 or not (sigma > 0).all():
            continue  # a species that is never there
        if case.kind == "good" or power(case, exact, sigma) >= POWER:
            return Drawn(case, exact, sigma, models, attempt)
    raise ValueError(f"{DRAWS} draws of {name} in vain.")


def builder(reactions: Sequence[Reaction], names: Sequence[str]) -> Any:
    """The Pyomo model of a set of reactions, for igpe."""

    def model(times: Sequence[float]) -> pyo.ConcreteModel:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for parameter in parameters_of(reactions):
            m.add_component(parameter, pyo.Var(bounds=(0.0, UPPER)))
        parameters = {n: m.component(n) for n in parameters_of(reactions)}
        for s in names:
            m.add_component(s, pyo.Var(m.t))
            m.add_component(f"d{s}", dae.DerivativeVar(m.component(s)))

        def rule(s: str) -> Any:
            def equation(m: Any, t: float) -> Any:
                at = {n: m.component(n)[t] for n in names}
                rates = [r.value(at, parameters) for r in reactions]
                made = sum(v for r, v in zip(reactions, rates, strict=True) if s in r.products)
                gone = sum(v for r, v in zip(reactions, rates, strict=True) if s in dict(_lost(r)))
                return m.component(f"d{s}")[t] == made - gone

            return equation

        for s in names:
            m.add_component(f"balance_{s}", pyo.Constraint(m.t, rule=rule(s)))
        return m

    return model


def problem(name: str) -> tuple[igpe.Problem, Drawn]:
    """The problem that igpe is given."""
    it = drawn(name)
    case, names = it.case, species_of(it.case.model)
    random = np.random.default_rng([zlib.crc32(name.encode()), DRAWS])
    values = it.exact + it.sigma * random.standard_normal(len(it.exact))
    sigma: Any = None
    if case.sigma_given:
        sigma = {
            s: igpe.Noise(absolute=floor, relative=share) for s, (share, floor) in it.models.items()
        }
    experiments, begin = [], 0
    for number, one in enumerate(case.runs):
        table = pd.DataFrame({"time": one.times})
        for s in case.measured:
            table[s] = values[begin : begin + len(one.times)]
            begin += len(one.times)
        start = {s: one.start[s] for s in names}
        experiments.append(
            igpe.Experiment(
                table,
                start=start,
                start_time=0.0,
                sigma=sigma,
                name=f"run {number}",
                replicates=True,
            )
        )
    parameters = parameters_of(case.model)
    return igpe.Problem(
        builder(case.model, names), parameters=parameters, experiments=experiments
    ), it


def work(name: str) -> Answer:
    """What igpe says of a case."""
    given, it = problem(name)
    answer: Answer = {
        "kind": it.case.kind,
        "sigma": it.case.sigma_given,
        "discarded": it.discarded,
        "size": len(it.exact),
    }
    try:
        adequacy = igpe.estimate(given).adequacy
    except igpe.errors.IgpeError as error:
        return {**answer, "verdict": "failed", "p": None, "error": str(error)[:200]}
    assert adequacy is not None
    p = None if np.isnan(adequacy.p) else adequacy.p
    said = [adequacy.sentence][:1]
    return {**answer, "verdict": adequacy.verdict, "p": p, "said": said}


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """False alarms, and alarms by what is wrong."""
    answers = run("lack_of_fit", CASES, work, given, limit=60.0)
    good = [a for n, a in answers.items() if n.startswith("good")]
    wrong = [a for n, a in answers.items() if n.startswith("wrong")]
    yield at_most("good", "alarms", _share(good), "-", FALSE_ALARMS)
    yield at_least("wrong", "alarms", _share(wrong), "-", ALARMS)
    for sigma in (True, False):
        words = "known" if sigma else "unknown"
        for title, group in (("good", good), ("wrong", wrong)):
            some = [a for a in group if a.get("sigma") is sigma]
            yield at_most(title, f"alarms, sigma {words}", _share(some))
    for kind in KINDS:
        yield at_most(
            "wrong", f"alarms, {kind}", _share([a for a in wrong if a.get("kind") == kind])
        )
    pooled = [a for a in wrong if a.get("kind") == KINDS[2]]
    named = [a for a in pooled if "experiments disagree" in str(a.get("said"))]
    yield at_most("wrong", "pooled temperatures that are named", len(named) / max(len(pooled), 1))
    for title, group in (("good", good), ("wrong", wrong)):
        verdicts = Counter(str(a.get("verdict", "none")) for a in group)
        yield at_most(title, "cases", len(group))
        yield at_most(title, "cannot be judged", verdicts["cannot be judged"])
        yield at_most(
            title, "failed, crashed or over the time limit", verdicts["failed"] + verdicts["none"]
        )
        yield at_most(title, "discarded draws", sum(a.get("discarded", 0) for a in group))
        seconds = [a.get("seconds", 60.0) for a in group]
        yield at_most(title, "processor time, all", sum(seconds), "s")


def _share(answers: Sequence[Answer]) -> float:
    """Of answers that say lack of fit; whatever is no answer does not."""
    alarms = sum(a.get("verdict") == "lack of fit" for a in answers)
    return alarms / max(len(answers), 1)
