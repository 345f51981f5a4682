"""The next experiment that distinguishes rival models; `rival_design` has the criteria."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.special import ndtr

from igpe.core.arguments import is_count, is_finite, require, require_mapping
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.deadline import finishing, session
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.markup import Rows, Shown, frame_rows
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.residuals import Residuals, unmeasured
from igpe.dynamics.shooting.reweighting import fully_held_weights
from igpe.numerics.lack_of_fit import FAR, akaike_weights
from igpe.numerics.least_squares.base import Linearised, Residual, stacked
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.planning.design_limits import Budget
from igpe.planning.design_problem import EMPTY, DesignProblem, Values, read_design
from igpe.planning.design_search import BestDesign, DesignSearch, planned_experiments
from igpe.planning.design_variables import DesignVariable, Sampling
from igpe.planning.information import DOptimal
from igpe.planning.plan import LaboratoryPlan, PlannedExperiment
from igpe.planning.planned_model import PlannedSensitivities, PredictedOutputs
from igpe.planning.rival_design import BoxHill, Discriminating, RivalDesign, RivalPair, variance_of
from igpe.problem.experiment import Experiment
from igpe.problem.noise.sigma import Deviation
from igpe.problem.problem import Problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_rival_plan

POINTS = 200  # of the predicted trajectories
NOTHING = 1e-6  # of chi squared: below it, predictions are equal
LEAST_POWER = 0.8  # below it a note says so
LARGEST_DELTA = 500.0  # of AICc, so that weights stay numbers


@dataclass(frozen=True, repr=False)
class RivalPlan(LaboratoryPlan, Shown):
    """Planned experiments that distinguish rival models.

    experiments  the planned experiments, as in `Plan`
    bounds       a dict {free setting: its bounds}
    power        table with the index (`right`, `rival`) and the columns `delta_before` (current
                 AICc of the rival minus AICc of the right model), `expected` (expected increase in
                 the rival's sum of squares after the planned experiments and a new fit), and
                 `power` (probability that the rival's AICc is then worse by more than 10, so that
                 the rival has no support)
    criterion    the requested criterion
    efficiency   proved lower bound on the criterion's value for the chosen samples, relative to
                 its value for the best choice with the same settings; NaN if there is no proof
    courses      table of the predictions on a fine grid, with the columns `rival`, `experiment`,
                 `name`, `time`, `predicted`, `error` (standard error of the prediction) and `sigma`
                 (standard deviation of a measurement)
    sigma_known, deviations, units, seed, notes  as in `Plan`
    """

    experiments: tuple[PlannedExperiment, ...]
    bounds: Mapping[str, tuple[float, float]]
    power: pd.DataFrame
    criterion: Discriminating
    efficiency: float
    courses: pd.DataFrame = field(repr=False)
    sigma_known: bool = True
    deviations: Mapping[str, Deviation] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    seed: int = 0
    notes: tuple[str, ...] = ()

    def simulated(self, seed: int, right: str | None = None) -> pd.DataFrame:
        """Return `table` with simulated measurements, assuming that one rival is right.

        right   name of the correct rival; None: the first
        raises  ProblemError if there is no such rival
        """
        names = list(self.courses["rival"].unique())
        if right is not None and right not in names:
            raise ProblemError(f"There is no rival {right!r}; the plan has {names}.")
        own = self.courses[self.courses["rival"] == (names[0] if right is None else right)]
        return self._simulated(own, seed)

    def plot(self, axes: Any = None) -> Plot:
        """Plot the predicted trajectories of all rivals with their errors, and the planned samples.

        axes  matplotlib axes, one for each experiment and measured quantity; None: draw in a new
              figure
        """
        return plot_rival_plan(self.experiments, self.courses, axes, units=self.units)

    def _shown(self) -> tuple[list[Rows], list[str]]:
        power = self.power.reset_index().set_index("right")
        shown: list[Rows] = [frame_rows(self.settings)] if self.bounds else []
        shown.append(frame_rows(power))
        sentence = f"{type(self.criterion).__name__}: {self.criterion.meaning}."
        return shown, [*self._samples, sentence, *self.notes]


@session()
def discriminate(
    problems: Mapping[str, Problem],
    parameters: Mapping[str, Values],
    *,
    deltas: Mapping[str, float] = EMPTY,
    free: Mapping[str, DesignVariable] = EMPTY,
    conditions: Mapping[str, Any] = EMPTY,
    times: Sampling | Sequence[float] | FloatArray | None = None,
    measure: Mapping[str, Deviation | float] | Sequence[str] | None = None,
    criterion: Discriminating = BoxHill(),
    experiments: int = 1,
    existing: bool = True,
    like: str | None = None,
    budgets: Budget | Sequence[Budget] = (),
    pool: int = 128,
    starts: int = 3,
    seed: int = 0,
    integrator: Integrator = Automatic(),
) -> RivalPlan:
    """Choose the conditions and samples of experiments that distinguish rival models.

    problems    a dict {name: problem}; all problems must have the same experiments, and igpe uses
                the noise of the first problem for all
    parameters  a dict {name of the problem: its parameter values}; the values are given as a
                result, an estimate, or a dict {unknown: value}
    deltas      a dict {name of the problem: its current AICc minus the smallest AICc}; {}: all
                differences are 0. `BoxHill` weights each model by exp(-delta/2). The predicted
                power accounts for these differences
    criterion   `igpe.planning.BoxHill()`, `BuzziFerraris()` or `HunterReiner()`
    free, conditions, times, measure, experiments, existing, like, budgets, pool, starts, seed,
    integrator                  as for `igpe.design`
    returns     the plan; if the call is interrupted (Ctrl-C), the best plan so far, with a note
    raises      ProblemError if settings are not valid for all models, or if there are fewer than
                two models; EstimationFailed if no experiment could be integrated with all models;
                Unsupported as in `igpe.design`
    """
    counts = (("experiments", experiments), ("pool", pool), ("starts", starts))
    for name, count in counts:
        require(is_count(count) and count > 0, "discriminate", name, count, "1 or more")
    require(is_count(seed), "discriminate", "seed", seed, "a non-negative integer")
    expected = "igpe.planning.BoxHill(), BuzziFerraris() or HunterReiner()"
    is_one = isinstance(criterion, Discriminating)
    require(is_one, "discriminate", "criterion", criterion, expected)
    shared: dict[str, Any] = {
        "free": free, "conditions": conditions, "times": times, "criterion": DOptimal(),
        "count": experiments, "existing": existing, "like": like, "integrator": integrator,
        "budgets": budgets,
    }  # fmt: skip
    posed = _posed(problems, parameters, measure, shared)
    known = _deltas(posed, deltas)
    weights = akaike_weights(np.minimum(list(known.values()), LARGEST_DELTA))
    probabilities = dict(zip(known, weights.tolist(), strict=True))
    design = RivalDesign(posed, criterion.pairs(probabilities))
    search = DesignSearch(design, design.pairs, pool, starts, seed)
    search, best = search.best(" with all rivals")
    with finishing():
        return _report(search.posed, best, criterion, known, seed)


def _posed(
    problems: Mapping[str, Problem],
    parameters: Mapping[str, Values],
    measure: Any,
    shared: Mapping[str, Any],
) -> dict[str, DesignProblem]:
    """Each rival's design problem, with the noise of the first.

    raises  ProblemError if there are fewer than two, or they have different choices
    """
    example = "discriminate({'a': problem_a, 'b': problem_b}, {'a': result_a, 'b': result_b})"
    require_mapping("problems", problems, example, ProblemError)
    require_mapping("parameters", parameters, example, ProblemError)
    missing = [n for n in problems if n not in parameters]
    if len(problems) < 2 or missing:  # noqa: PLR2004
        raise ProblemError(
            f"The given models are {list(problems)}"
            + f", and parameters are missing for {missing}" * bool(missing)
            + f". Give two or more models, and parameters for each: {example}."
        )
    posed: dict[str, DesignProblem] = {}
    for name, problem in problems.items():
        if not isinstance(problem, Problem):
            raise ProblemError(
                f"The rival '{name}' is a {type(problem).__name__}; give an igpe.Problem."
            )
        first = next(iter(posed.values()), None)
        given = measure if first is None else dict(first.noise)
        try:
            posed[name] = read_design(problem, parameters[name], measure=given, **shared)
        except ProblemError as error:
            raise ProblemError(f"In the rival '{name}': {error}") from None
    return posed


def _deltas(posed: Mapping[str, DesignProblem], given: Mapping[str, float]) -> dict[str, float]:
    require_mapping("deltas", given, "deltas={'a': 0.0, 'b': 1.3}", ProblemError)
    lost = [n for n in posed if not is_finite(given.get(n))]
    if given and lost:
        raise ProblemError(f"`deltas` lacks finite numbers for {lost}; give one for each rival.")
    known = {n: float(given.get(n, 0.0)) for n in posed}
    least = min(known.values())
    return {n: v - least for n, v in known.items()}


def _report(
    design: RivalDesign,
    best: BestDesign,
    criterion: Discriminating,
    deltas: Mapping[str, float],
    seed: int,
) -> RivalPlan:
    first = design.first
    experiments = planned_experiments(first, best)
    courses = [
        _trajectories(design, name, e, k, best.design[k])
        for name in design.posed
        for k, e in zip(best.used, experiments, strict=True)
    ]
    power = _power(design, best, deltas)
    names = (*first.noise, *(i for e in experiments for i in e.inputs))
    return RivalPlan(
        experiments=experiments,
        bounds={c.label: (c.lower, c.upper) for c in first.plan.choices},
        power=power,
        criterion=criterion,
        efficiency=best.chosen.efficiency,
        courses=pd.concat(courses, ignore_index=True),
        sigma_known=first.sigma_known,
        deviations=first.deviations,
        units={n: first.full.unit(n) for n in ("time", *dict.fromkeys(names))},
        seed=seed,
        notes=(*best.notes, *_notes(power), *first.warnings(experiments)),
    )


class _Part(NamedTuple):
    """Some of a rival's residuals, and the places of their unknowns among all of the rival's."""

    residual: Residual
    places: IntArray
    factor: float = 1.0

    def at(self, x: FloatArray) -> Linearised | None:
        """All multiplied by the factor, with derivatives by all unknowns x (n,)."""
        own, square = self.residual(x[self.places]), self.factor**2
        if own is None:
            return None
        jacobian = np.zeros((len(own.residual), len(x)))
        jacobian[:, self.places] = self.factor * own.jacobian
        return Linearised(
            self.factor * own.residual, jacobian, square * own.offset, square * own.rest
        )


class RefittedRival:
    """One rival, fitted to the measurements so far and to another rival's predictions for a plan.

    Standard deviations that follow the fit are held.
    """

    def __init__(self, design: RivalDesign, name: str, best: BestDesign) -> None:
        self.posed = posed = design.posed[name]
        held = fully_held_weights(posed.full, posed.values, posed.values)
        known: Residual = unmeasured(held).__call__
        if posed.existing.counted:
            known = Residuals(held, posed.integrator)
        places, factor = np.arange(len(posed.full.box)), 1 / np.sqrt(variance_of(design.first))
        self._known = _Part(known, places, float(factor))
        self._planned = {k: self._residuals(best, k) for k in best.used}
        box = posed.full.unknowns.select(posed.sources)
        pairs = zip(posed.space.names, box.in_logarithms, strict=True)
        logarithmic = frozenset(name for name, is_sought in pairs if is_sought)
        self._start = posed.at
        self._box = replace(box, names=posed.space.names, logarithmic=logarithmic)
        self._before = self._least([])

    def _residuals(self, best: BestDesign, k: int) -> tuple[Residuals, IntArray]:
        """Residuals of a planned experiment without measurements, and places of its unknowns."""
        posed, plan, taken = self.posed, self.posed.plan, best.chosen.taken[k]
        start, inputs = plan.settings(best.design[k])
        table = pd.DataFrame(np.where(taken, 0.0, np.nan), columns=[*posed.noise])
        table = table.dropna(axis=1, how="all").assign(time=posed.allowed.times)
        run = Experiment(
            table[taken.any(axis=1)], start=start, start_time=plan.conditions.begin,
            inputs=inputs, sigma=1.0, replicates=True,
        )  # fmt: skip
        box = plan.problem.unknowns
        box = box.select([n for n in plan.problem.parameters if n not in plan.free])
        ends = zip(box.lower.tolist(), box.upper.tolist(), strict=True)
        bounds = dict(zip(box.names, ends, strict=True))
        problem = Problem(plan.problem.model, parameters=bounds, experiments=run)
        values, names = plan.values(posed.values), [*plan.shared, *plan.own]
        problem = problem.fixing({n: v for n, v in values.items() if n not in names})
        places = posed.space.places[k][[names.index(n) for n in problem.box.names]]
        return Residuals(problem, posed.integrator), places

    def rise(self, predicted: Mapping[int, PredictedOutputs]) -> float:
        """Return how much the sum of squares rises if planned experiments give these outputs."""
        return self._least([self._measured(k, own) for k, own in predicted.items()]) - self._before

    def _measured(self, k: int, outputs: PredictedOutputs) -> _Part:
        """The residuals of a planned experiment that gives these outputs."""
        residuals, places = self._planned[k]
        (run,), quantities = residuals.runs, [*self.posed.noise]
        m = run.measurements
        columns = np.array([quantities.index(n) for n in m.names])[m.column]
        at = np.searchsorted(self.posed.allowed.times, m.times[m.row]), columns
        m = replace(m, value=outputs.value[at], sigma=outputs.sigma[at])
        filled = copy(residuals)
        filled.runs = (replace(run, measurements=m),)
        return _Part(filled, places)

    def _least(self, planned: Iterable[_Part]) -> float:
        """The sum of squares at the optimum that its estimate leads to."""
        parts = [self._known, *planned]

        def residual(x: FloatArray) -> Linearised | None:
            known = [one for part in parts if (one := part.at(x)) is not None]
            return stacked(known) if len(known) == len(parts) else None

        return GaussNewton().fit(residual, self._start, self._box).cost


def _power(design: RivalDesign, best: BestDesign, deltas: Mapping[str, float]) -> pd.DataFrame:
    """One row for each ordered pair: see `RivalPlan.power`.

    Where i is right and j fitted again, the difference of their sums of squares is about normal
    with mean lambda and variance 4 lambda.
    """
    rows, count = [], int(best.chosen.taken.sum())
    rivals = {n: RefittedRival(design, n, best) for n in design.posed}
    predicted: dict[str, dict[int, PredictedOutputs]] = {n: {} for n in rivals}
    for name, k in product(rivals, best.used):
        outputs = design.predicted(name, best.design[k])
        assert outputs is not None, "the search returns only designs that can be integrated"
        predicted[name][k] = outputs
    for pair in BoxHill().pairs(dict.fromkeys(rivals, 1.0)):
        expected = rivals[pair.rival].rise(predicted[pair.right])
        expected = expected if expected > NOTHING else 0.0
        before = deltas[pair.rival] - deltas[pair.right]
        needed, variance = _needed(design, pair, deltas, count)
        spread = np.sqrt(4 * expected + variance)
        reached = (expected - needed) / spread if expected else -np.inf
        rows.append((pair.right, pair.rival, before, expected, float(ndtr(reached))))
    columns = ["right", "rival", "delta_before", "expected", "power"]
    return pd.DataFrame(rows, columns=columns).set_index(["right", "rival"])


def _needed(
    design: RivalDesign, pair: RivalPair, deltas: Mapping[str, float], count: int
) -> tuple[float, float]:
    """Rise of the rival's sum of squares that new measurements must cause, and its variance.

    Where sigma is unknown, AICc is n log S and a penalty, so that a rise r of S changes it by
    n log(1 + r / S): by much less than r, if r is large. S is in units of the variance that the
    first rival leaves: of that one, its degrees of freedom.

    count  new measurements
    """
    if design.first.sigma_known:
        return FAR - deltas[pair.rival] + deltas[pair.right], 0.0
    old, sigmas = design.first.full.size, max(len(design.first.full.relative_sigma), 1)
    right, rival = design.posed[pair.right], design.posed[pair.rival]

    def share(delta: float, n: int, k: int, k_other: int) -> float:
        """Relative excess of another model's S if its AICc is larger by delta."""
        sizes = (k_other + sigmas, k + sigmas)
        if n <= max(sizes) + 1:
            return np.inf
        other, own = (2 * m * n / (n - m - 1) for m in sizes)  # 2 k + 2 k (k + 1) / (n - k - 1)
        return float(np.expm1((delta - other + own) / n))

    def squares(name: str) -> float:
        """S of a rival in the old measurements."""
        first, k = next(iter(design.posed)), len(design.first.full.box)
        more = share(deltas[name] - deltas[first], old, k, len(design.posed[name].full.box))
        return (old - k) * (1 + (more if np.isfinite(more) else 0.0))

    most = share(FAR, old + count, len(right.space.names), len(rival.space.names))
    if not np.isfinite(most):
        return np.inf, 0.0
    own = squares(pair.right)
    return (own + count) * most - squares(pair.rival) + own, 2 * count * most**2


def _trajectories(
    design: RivalDesign, name: str, planned: PlannedExperiment, k: int, numbers: FloatArray
) -> pd.DataFrame:
    """A rival's predictions in a planned experiment, with their errors, on a fine grid."""
    posed = design.posed[name]
    plan, sizes = posed.plan, dict(zip(posed.full.box.names, posed.sizes, strict=True))
    ivp = plan.with_sensitivities(posed.values, sizes)
    end = plan.conditions.end
    grid = np.union1d(np.linspace(planned.start_time, end, POINTS), posed.allowed.times)
    bounds = plan.lower, plan.lower + plan.width
    noise = list(posed.noise.values())
    run = PlannedSensitivities(ivp, grid, noise, posed.integrator, bounds).predicted(numbers)
    if run is None:
        raise EstimationFailed(
            f"The planned experiment {planned.name} cannot be integrated with the rival '{name}'.",
            Status.INTEGRATION_BROKE,
        )
    errors = design.errors(name, run.sensitivities, k)
    tables = []
    for i, quantity in enumerate(posed.noise):
        columns = {
            "rival": name, "experiment": planned.name, "name": quantity, "time": grid,
            "predicted": run.value[:, i], "error": errors[:, i], "sigma": run.sigma[:, i],
        }  # fmt: skip
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def _notes(power: pd.DataFrame) -> list[str]:
    """Probabilities that wrong models lose their support."""
    weak: Any = power["power"][power["power"] < LEAST_POWER]
    notes = [
        f"If {right} is right, {rival} keeps some support (AICc worse by at most {FAR:g}) with a "
        f"probability of {100 * (1 - value):.3g} %."
        for (right, rival), value in weak.items()
    ]
    if not notes:
        share = min(float(np.floor(1000 * power["power"].min())) / 10, 99.9)
        notes = [
            f"If one of the rivals is right, every other rival loses its support (AICc worse by "
            f"{FAR:g}) with a probability of at least {share:g} %."
        ]
    return [
        *notes,
        "igpe fitted each rival again to what the other one predicts, and assumed that one of the "
        "rivals is right.",
    ]
