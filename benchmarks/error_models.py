"""Errors proportional to the true value: are estimates right on average, and intervals honest?

    python benchmarks/error_models.py [coverage] [bias] [fits] [conditions] [logs] [limits]
                                      [between] [in_time] [replicates] [outliers]
                                      [--seeds N] [--quick] [--json FILE]

coverage  how often 95 % intervals hold the true value
bias      mean and root mean square error of estimates with weights of the model, beside weights of
          the measurements themselves and beside the true weights, which nobody knows
fits      how often a problem is fitted until its weights stand still
conditions  start values and inputs known with an error: how often 95 % intervals of each unknown
          hold the truth, in 500 draws, beside those that take the conditions as exact. The target
          is the 99.9 % band of the binomial distribution
logs      the same with log-normal errors
limits    the same with values below a limit of detection, and the bias of estimates beside that
          where such values are left out or replaced by half the limit
between   the same with errors of two quantities that are correlated at each time, the correlation
          known, estimated, and estimated with both variances (the full covariance), a fifth of the
          values of one quantity missing; and the estimated correlation; beside errors that are
          treated as independent
in_time   the same with AR(1) errors at even and at uneven times
replicates  the same with three values of each quantity at each time, their standard deviations
          known, unknown, and unknown but equal
outliers  the same with values of which one in ten has an error ten times as large, by robust losses
          with known and unknown standard deviations, beside least squares
--quick   20 draws of each section from conditions on, no verdict
"""

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most, command
from pyomo import dae
from scipy.stats import binom

import igpe
from igpe.core.arrays import FloatArray
from igpe.dynamics.likelihood import errors_at
from igpe.dynamics.shooting.reweighting import weighted_at
from igpe.numerics.covariance import Uncertainty, uncertainty
from igpe.numerics.least_squares.active import on_bounds
from igpe.problem.losses import (
    AR1,
    L1,
    Censored,
    Correlated,
    Huber,
    LeastSquares,
    LogNormal,
    Loss,
    NormalPrior,
)
from igpe.problem.noise.sigma import Noise

METHOD = igpe.SingleShooting(
    igpe.integrators.Sundials(rtol=1e-8, atol=1e-10)
)  # nothing is compiled
SEEDS, DRAWS = 200, 500


class Case(NamedTuple):
    """A model with known parameters, and its measurements without error."""

    model: Callable[..., Any]
    truth: Mapping[str, float]
    start: Mapping[str, Any]
    exact: pd.DataFrame
    bounds: tuple[float, float]

    def data(self, error: Noise, seed: int) -> pd.DataFrame:
        """Measurements with normal errors."""
        data, random = self.exact.copy(), np.random.default_rng(seed)
        for name in data.columns.drop("time"):
            h = data[name].to_numpy()
            data[name] = h + error.deviation(h) * random.standard_normal(len(h))
        return data

    def problem(self, data: pd.DataFrame, sigma: Any) -> igpe.Problem:
        """The truth is to be estimated."""
        run = igpe.Experiment(data, start=self.start, start_time=0.0, sigma=sigma)
        names = [n for n in self.truth if not n.endswith("(t0)")]
        return igpe.Problem(
            self.model, parameters=dict.fromkeys(names, self.bounds), experiments=run
        )


def chain() -> Case:
    """A -> B -> C with an unknown start of A."""
    from consecutive import model  # noqa: PLC0415 - the command line makes it known

    times = np.linspace(0.1, 3.0, 20)
    k1, k2, a = 2.0, 0.7, 1.5
    first, second = np.exp(-k1 * times), np.exp(-k2 * times)
    exact = pd.DataFrame({
        "time": times, "x1": a * first, "x2": a * k1 / (k2 - k1) * (first - second),
    })  # fmt: skip
    start = {"x1": igpe.Unknown(0.1, 10.0, guess=0.1), "x2": 0.0}
    return Case(model, {"p1": k1, "p2": k2, "x1(t0)": a}, start, exact, (0.0, 10.0))


def predators() -> Case:
    """Lotka and Volterra's equations as in the paper on incremental shooting."""
    from lotka_volterra_iss import START, TRUTH, model, simulated  # noqa: PLC0415

    values = simulated(seed=0, noise=0.0)[["time", "y1", "y2"]]
    return Case(model, TRUTH, START, values, (0.0, 10.0))


def intervals(problem: igpe.Problem, found: igpe.Estimate) -> Uncertainty:
    """As `igpe.estimate` gives them at what was found."""
    held = weighted_at(problem, found.parameters, METHOD.integrator)
    assert held is not None, "the estimate could be integrated"
    x = problem.box.vector(found.parameters)
    at = METHOD.prepare(held).residuals(x)
    assert at is not None, "the estimate could be integrated"
    bounded = on_bounds(x, at, problem.box)
    return uncertainty(x, at.residual, at.jacobian, held=bounded, sigma_known=True)


def coverage(given: argparse.Namespace) -> Iterator[Row]:
    """Shares of 95 % intervals that hold the truth."""
    for name, case, error in (
        ("A -> B -> C, 10 %", chain(), Noise(relative=0.1)),
        ("A -> B -> C, 20 % and floor", chain(), Noise(absolute=0.02, relative=0.2)),
        ("Lotka and Volterra, 10 %", predators(), Noise(relative=0.1)),
    ):
        inside, squares = [], []
        for seed in range(given.seeds):
            problem = case.problem(case.data(error, seed), error)
            found = METHOD.estimate(problem, case.truth)
            errors, truth = intervals(problem, found), problem.box.vector(case.truth)
            inside += list((errors.lower <= truth) & (truth <= errors.upper))
            squares.append(found.objective / errors.degrees)
        share = 100 * float(np.mean(inside))
        yield at_least(name, "95 % intervals that hold the truth", share, "%", 93)
        yield at_most(name, "95 % intervals that hold the truth", share, "%", 98)
        yield at_most(name, "reduced chi squared, mean", float(np.mean(squares)))


def tank(times: Any) -> Any:
    """dA/dt = feed - k*A."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.k = pyo.Var(m.t), pyo.Var(bounds=(0.01, 10))
    m.feed = pyo.Param(mutable=True, initialize=1.0)
    m.dA = dae.DerivativeVar(m.A)
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed - m.k * m.A[t])
    return m


CONDITIONS = (("run1", 2.0, 0.5), ("run2", 0.5, 1.5))  # name, start of A, feed
RATE, ERROR, OFF = 0.6, 0.02, 0.05  # k; errors of measurements, and of start values and feeds


def tank_problem(seed: int, *, exact: bool) -> igpe.Problem:
    """Two runs whose start values and feeds were measured with errors of `OFF`."""
    random, times, runs = np.random.default_rng(seed), np.linspace(0.25, 5, 20), []
    for name, start, feed in CONDITIONS:
        left = np.exp(-RATE * times)
        values = start * left + feed / RATE * (1 - left) + ERROR * random.standard_normal(20)
        seen = np.array([start, feed]) + OFF * random.standard_normal(2)
        start_given, feed_given = seen if exact else (NormalPrior(v, OFF) for v in seen)
        runs.append(
            igpe.Experiment(
                pd.DataFrame({"time": times, "A": values}),
                name=name,
                start={"A": start_given},
                inputs={"feed": feed_given},
                start_time=0.0,
                sigma=ERROR,
            )
        )
    return igpe.Problem(tank, parameters=["k"], experiments=runs)


def conditions(given: argparse.Namespace) -> Iterator[Row]:
    """Coverage of each unknown, and of k where the conditions count as exact."""
    truth = {"k": RATE}
    truth |= {f"A(t0)@{name}": start for name, start, _ in CONDITIONS}
    truth |= {f"feed@{name}": feed for name, _, feed in CONDITIONS}
    draws = 20 if given.quick else DRAWS
    low, high = 100 * binom.ppf([0.0005, 0.9995], draws, 0.95) / draws
    for exact in (False, True):
        inside, squares = [], []
        for seed in range(draws):
            problem = tank_problem(seed, exact=exact)
            right = problem.box.vector(truth)
            found = METHOD.estimate(problem, dict(zip(problem.box.names, right, strict=True)))
            errors = intervals(problem, found)
            inside.append((errors.lower <= right) & (right <= errors.upper))
            squares.append(found.objective / errors.degrees)
        case = "conditions taken as exact" if exact else "conditions with errors"
        for name, share in zip(problem.box.names, 100 * np.mean(inside, axis=0), strict=True):
            figure = f"95 % intervals that hold {name}"
            if exact or given.quick:
                yield at_most(case, figure, share, "%")
            else:
                yield at_least(case, figure, share, "%", low)
                yield at_most(case, figure, share, "%", high)
        yield at_most(case, "reduced chi squared, mean", float(np.mean(squares)))


def logs(given: argparse.Namespace) -> Iterator[Row]:
    """Coverage with log-normal errors of 20 %."""
    case, error = chain(), LogNormal(0.2)
    draws = 20 if given.quick else DRAWS
    low, high = 100 * binom.ppf([0.0005, 0.9995], draws, 0.95) / draws
    inside = []
    for seed in range(draws):
        random, data = np.random.default_rng(seed), case.exact.copy()
        for name in ("x1", "x2"):
            data[name] *= np.exp(error.deviation * random.standard_normal(len(data)))
        problem = case.problem(data, error)
        found = METHOD.estimate(problem, case.truth)
        errors, right = intervals(problem, found), problem.box.vector(case.truth)
        inside.append((errors.lower <= right) & (right <= errors.upper))
    for name, share in zip(problem.box.names, 100 * np.mean(inside, axis=0), strict=True):
        figure = f"95 % intervals that hold {name}"
        if given.quick:
            yield at_most("log-normal, 20 %", figure, share, "%")
        else:
            yield at_least("log-normal, 20 %", figure, share, "%", low)
            yield at_most("log-normal, 20 %", figure, share, "%", high)


LIMIT, SPREAD = 0.15, 0.05  # of detection; standard deviation of the measurements


def limits(given: argparse.Namespace) -> Iterator[Row]:
    """Coverage and bias with a limit of detection, below which 62 % of x1 is."""
    case, draws = chain(), 20 if given.quick else DRAWS
    low, high = 100 * binom.ppf([0.0005, 0.9995], draws, 0.95) / draws
    ways: dict[str, tuple[Any, Callable[[pd.DataFrame], pd.DataFrame]]] = {
        "limit of detection": (Censored(SPREAD, below=LIMIT), lambda data: data),
        "values below it left out": (SPREAD, lambda data: data.where(data > LIMIT)),
        "half the limit in their place": (SPREAD, lambda data: data.where(data > LIMIT, LIMIT / 2)),
        "no limit": (SPREAD, lambda data: data),
    }
    names = ("x1", "x2")
    for way, (sigma, changed) in ways.items():
        inside, found = [], []
        for seed in range(draws):
            data = case.data(Noise(absolute=SPREAD), seed)
            problem = case.problem(data.assign(**changed(data[[*names]])), sigma)
            estimate = METHOD.estimate(problem, case.truth)
            right, x = problem.box.vector(case.truth), problem.box.vector(estimate.parameters)
            errors = errors_at(problem, x, METHOD.prepare(problem).residuals(x))
            inside.append((errors.lower <= right) & (right <= errors.upper))
            found.append(x / right - 1)
        chance = 100 * np.std(found, axis=0) / np.sqrt(draws)
        judged = way == "limit of detection" and not given.quick
        off, share = 100 * np.mean(found, axis=0), 100 * np.mean(inside, axis=0)
        for i, name in enumerate(problem.box.names):
            figure = f"95 % intervals that hold {name}"
            if judged:
                yield at_least(way, figure, share[i], "%", low)
            yield at_most(way, figure, share[i], "%", high if judged else None)
            most = 3 * chance[i] if judged else None
            yield at_most(way, f"bias of {name}, absolute", abs(off[i]), "%", most)
            yield at_most(way, f"standard error of the bias of {name}", chance[i], "%")


TOGETHER, CARRIED, SIZE = 0.8, 0.7, 0.05  # correlations, and the standard deviation
HELD_APART = 0.1  # of an uneven time from its neighbour, at least, in even spacings
MISSING = 5  # every fifth value of x2


class Way(NamedTuple):
    """How errors are treated; draws of what is not `judged` have no verdict."""

    name: str
    sigma: Any
    correlation: Any = None
    judged: bool = True
    loss: Loss = LeastSquares()


class Setting(NamedTuple):
    """A case with a source of measurements, whose errors have a known correlation."""

    name: str
    case: Case
    data: Callable[[int], pd.DataFrame]
    truth: float = 0.0
    replicates: bool = False


def longer(times: FloatArray) -> Case:
    """The chain at other times."""
    case = chain()
    k1, k2, a = case.truth.values()
    first, second = np.exp(-k1 * times), np.exp(-k2 * times)
    exact = {"time": times, "x1": a * first, "x2": a * k1 / (k2 - k1) * (first - second)}
    return case._replace(exact=pd.DataFrame(exact))


def between(given: argparse.Namespace) -> Iterator[Row]:
    """Errors of x1 and x2 that are correlated at each time."""
    case, root = chain(), np.linalg.cholesky([[1, TOGETHER], [TOGETHER, 1]])

    def data(seed: int) -> pd.DataFrame:
        random, made = np.random.default_rng(seed), case.exact.copy()
        made[["x1", "x2"]] += SIZE * random.standard_normal((len(made), 2)) @ root.T
        made.loc[made.index % MISSING == 0, "x2"] = np.nan
        return made

    ways = (
        Way("correlation known", SIZE, Correlated({("x1", "x2"): TOGETHER})),
        Way("correlation estimated", SIZE, Correlated()),
        Way("covariance estimated", None, Correlated()),
        Way("treated as independent", SIZE, None, judged=False),
    )
    yield from _recovered(given, Setting("between quantities", case, data, TOGETHER), ways)


def in_time(given: argparse.Namespace) -> Iterator[Row]:
    """AR(1) errors of x1 and x2, independent of each other."""
    even = np.linspace(0.05, 3.0, 60)
    step = even[1] - even[0]
    uneven = even + step * np.random.default_rng(0).uniform(0, 1 - HELD_APART, len(even))
    for name, times in (("even times", even), ("uneven times", uneven)):
        case = longer(times)
        apart = np.abs(times[:, None] - times) / step
        root = np.linalg.cholesky(CARRIED**apart)

        def data(seed: int, case: Case = case, root: FloatArray = root) -> pd.DataFrame:
            random, made = np.random.default_rng(seed), case.exact.copy()
            made[["x1", "x2"]] += SIZE * root @ random.standard_normal((len(made), 2))
            return made

        ways = (
            Way("rho known", SIZE, AR1(CARRIED, step)),
            Way("rho estimated", SIZE, AR1(step=step)),
            Way("rho and standard deviation estimated", "equal", AR1(step=step)),
            Way("treated as independent", SIZE, None, judged=False),
        )
        yield from _recovered(given, Setting(f"AR(1), {name}", case, data, CARRIED), ways)


def replicates(given: argparse.Namespace) -> Iterator[Row]:
    """Three values of x1 and of x2 at each of eight times."""
    case = longer(np.repeat(np.linspace(0.3, 3.0, 8), 3))

    def data(seed: int) -> pd.DataFrame:
        return case.data(Noise(absolute=SIZE), seed)

    ways = (
        Way("standard deviations known", SIZE),
        Way("standard deviations unknown", None),
        Way("unknown but equal", "equal"),
    )
    yield from _recovered(given, Setting("replicates", case, data, replicates=True), ways)


SHARE, TIMES = 0.1, 10.0  # of outliers; how much larger their errors are


def outliers(given: argparse.Namespace) -> Iterator[Row]:
    """Some values with far larger errors, of either sign."""
    case = chain()

    def data(seed: int) -> pd.DataFrame:
        random, made = np.random.default_rng(seed), case.exact.copy()
        size = np.where(random.uniform(size=(len(made), 2)) < SHARE, TIMES * SIZE, SIZE)
        made[["x1", "x2"]] += size * random.standard_normal((len(made), 2))
        return made

    ways = (
        Way("Huber, standard deviations known", SIZE, loss=Huber()),
        Way("Huber, standard deviations unknown", None, loss=Huber()),
        Way("L1, standard deviations known", SIZE, loss=L1()),
        Way("L1, standard deviations unknown", None, loss=L1()),
        Way("least squares", SIZE, judged=False),
    )
    yield from _recovered(given, Setting("outliers", case, data), ways)


def _recovered(given: argparse.Namespace, setting: Setting, ways: Sequence[Way]) -> Iterator[Row]:
    """Coverage, bias and scatter of each unknown, and the estimated correlation."""
    draws = 20 if given.quick else DRAWS
    low, high = 100 * binom.ppf([0.0005, 0.9995], draws, 0.95) / draws
    for way in ways:
        every = [_drawn(setting, way, seed) for seed in range(draws)]
        title, judged = f"{setting.name}, {way.name}", way.judged and not given.quick
        found, share = [e.off for e in every], 100 * np.mean([e.inside for e in every], axis=0)
        chance = 100 * np.std(found, axis=0) / np.sqrt(draws)
        off, spread = 100 * np.mean(found, axis=0), 100 * np.sqrt(np.mean(np.square(found), axis=0))
        for i, unknown in enumerate(every[0].names):
            figure = f"95 % intervals that hold {unknown}"
            if judged:
                yield at_least(title, figure, share[i], "%", low)
            yield at_most(title, figure, share[i], "%", high if judged else None)
            yield at_most(title, f"bias of {unknown}, absolute", abs(off[i]), "%")
            yield at_most(title, f"standard error of the bias of {unknown}", chance[i], "%")
            yield at_most(title, f"RMS error of {unknown}", spread[i], "%")
        if correlations := [v for e in every for v in e.correlations]:
            far = abs(float(np.mean(correlations)) - setting.truth)
            yield at_most(title, "mean of the estimated correlation, off by", far, "-", 0.03)
            yield at_most(title, "its scatter", float(np.std(correlations)), "-")


class Drawn(NamedTuple):
    """One estimate: relative errors of the unknowns, and whether intervals hold the truth."""

    names: tuple[str, ...]
    off: FloatArray
    inside: FloatArray
    correlations: tuple[float, ...]


def _drawn(setting: Setting, way: Way, seed: int) -> Drawn:
    case = setting.case
    run = igpe.Experiment(
        setting.data(seed), start=case.start, start_time=0.0, sigma=way.sigma,
        correlation=way.correlation, replicates=setting.replicates,
    )  # fmt: skip
    bounds = dict.fromkeys([n for n in case.truth if not n.endswith("(t0)")], case.bounds)
    problem = igpe.Problem(case.model, parameters=bounds, experiments=run, loss=way.loss)
    estimate = METHOD.estimate(problem, case.truth)
    held = weighted_at(problem, estimate.parameters, METHOD.integrator)
    assert held is not None, "the estimate could be integrated"
    right, x = problem.box.vector(case.truth), problem.box.vector(estimate.parameters)
    errors = errors_at(held, x, METHOD.prepare(held).residuals(x))
    inside = (errors.lower <= right) & (right <= errors.upper)
    return Drawn(problem.box.names, x / right - 1, inside, tuple(held.correlations.values()))


def bias(given: argparse.Namespace) -> Iterator[Row]:
    """Of the start of A, from the same measurements with different weights."""
    case, error = chain(), Noise(relative=0.2)
    truth = case.truth["x1(t0)"]
    names = case.exact.columns.drop("time")
    known = {n: error.deviation(case.exact[n].to_numpy()) for n in names}
    ways: dict[str, Callable[[pd.DataFrame], Any]] = {
        "weights of the model": lambda data: error,
        "weights of the measurements": lambda data: {n: 0.2 * data[n].abs() for n in names},
        "true weights": lambda data: known,
    }
    spread = {}
    for name, sigma in ways.items():
        found = []
        for seed in range(given.seeds):
            data = case.data(error, seed)
            estimate = METHOD.estimate(case.problem(data, sigma(data)), case.truth)
            found.append(estimate.parameters["x1(t0)"] / truth - 1)
        off = 100 * float(np.mean(found))
        chance = 100 * float(np.std(found)) / np.sqrt(len(found))
        ours = name == "weights of the model"
        yield at_most(name, "bias of x1(t0), absolute", abs(off), "%", 3 * chance if ours else None)
        yield at_most(name, "its standard error", chance, "%")
        spread[name] = float(np.sqrt(np.mean(np.square(found))))
    ratio = spread["weights of the model"] / spread["true weights"]
    yield at_most("weights of the model", "RMS error / that of true weights", ratio, "-", 1.1)


def fits(given: argparse.Namespace) -> Iterator[Row]:
    """Numbers of fits, largest of the seeds."""
    case = chain()
    for share in (0.05, 0.1, 0.2, 0.3):
        error, counts = Noise(relative=share), []
        for seed in range(given.seeds // 10):
            problem = case.problem(case.data(error, seed), error)
            method = METHOD.estimate(problem, case.truth).method
            counts.append(int(method.rsplit(" ", maxsplit=2)[1]))
        yield at_most(f"A -> B -> C, {100 * share:g} %", "fits, most", max(counts), "-", 10)


if __name__ == "__main__":
    command(
        __doc__,
        "Error models",
        {
            "coverage": coverage,
            "bias": bias,
            "fits": fits,
            "conditions": conditions,
            "logs": logs,
            "limits": limits,
            "between": between,
            "in_time": in_time,
            "replicates": replicates,
            "outliers": outliers,
        },
        lambda parser: (
            parser.add_argument("--seeds", type=int, default=SEEDS),
            parser.add_argument("--quick", action="store_true"),
        ),
    )
