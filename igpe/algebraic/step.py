"""Smoothed curves of a problem (step 1), and step 3 on them.

Step 3 poses every group of slopes on a ladder of smoothing levels and in both forms. One level of
smoothing cannot be trusted: cross-validation may smooth away the dynamics of scarce data (problem 6
of the paper is lost that way). So each rung of the ladder and each form of the residuals gives a
candidate; step 5 judges them. The first candidate, smoothed slopes as in the paper, is the one that
is solved with a proof.

A group is posed in either of two forms (`TargetForm`), which `igpe.algebraic.base` explains.
"""

import enum
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.algebraic.base import (
    Contribution,
    Regression,
    ResidualWeights,
    Route,
    RouteResult,
    StateErrors,
    Target,
    reseeded,
)
from igpe.algebraic.projected import Projected
from igpe.algebraic.routes import LinearRoute, LocalSearch, rounding
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible, require_going_on
from igpe.equations.symbols import stack
from igpe.numerics.optima import has_same_values
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import evaluate, just_before
from igpe.problem.model import ModelStarts
from igpe.problem.problem import Problem
from igpe.smoothing.base import Smooth, Smoother, description, without_gross_errors
from igpe.smoothing.gcv_spline import GcvSpline
from igpe.structure.identifiability import Access
from igpe.structure.posed import PosedEquations
from igpe.structure.structure import Structure
from igpe.structure.subsystems import Member, SlopeGroup


@dataclass(frozen=True)
class Curves:
    """Smoothed measurements: for each experiment, measured name -> curve."""

    smoother: Smoother
    of: tuple[Mapping[str, Smooth], ...]

    def notes(self, problem: Problem) -> tuple[str, ...]:
        """What the smoother needs the user to know, each said once with the curves it is about."""
        said: dict[str, list[str]] = {}
        for e, curves in zip(problem.experiments, self.of, strict=True):
            place = "" if len(self.of) == 1 else f" of {e.name}"
            for name, curve in curves.items():
                for note in curve.notes:
                    said.setdefault(note, []).append(f"{name}{place}")
        return tuple(f"Smoothing {', '.join(names)}: {note}" for note, names in said.items())


class MeasuredSeries(NamedTuple):
    """The measurements of one quantity in one experiment, as `Smoother.smooth` takes them.

    A start value known as a number comes first, as an exact datum.
    """

    times: FloatArray
    values: FloatArray
    sigma: FloatArray | None
    exact: BoolArray | None


AllSeries = Sequence[Mapping[str, MeasuredSeries]]
"""For each experiment, measured name -> series."""


def series_of(problem: Problem) -> AllSeries:
    """Every measured quantity; where the loss is a robust one, without gross errors."""
    each = [
        {name: _series(e, starts, name) for name in e.measured if not e.only_reports(name)}
        for e, starts in zip(problem.experiments, problem.starts, strict=True)
    ]
    if problem.loss.is_squares:
        return each
    return [{name: _trusted(series) for name, series in own.items()} for own in each]


def smooth_measurements(
    problem: Problem, smoother: Smoother, series: AllSeries | None = None
) -> Curves:
    """Smooth every measured quantity.

    series  what `series_of` has of the problem, if it is there already
    """
    each = series_of(problem) if series is None else series
    return Curves(
        smoother, tuple({n: _smooth(s, smoother) for n, s in own.items()} for own in each)
    )


def known_start(experiment: Experiment, starts: ModelStarts, state: str) -> float | None:
    """A state's start value where it is known as a number."""
    value = experiment.start.get(state, starts.fixed.get(state))
    return value if isinstance(value, float) else None


def _series(experiment: Experiment, starts: ModelStarts, name: str) -> MeasuredSeries:
    times, values, sigma = experiment.measurements.of(name)
    start = known_start(experiment, starts, name)
    given = sigma if experiment.sigma_known else None
    if start is None:
        return MeasuredSeries(times, values, given, None)
    later = times > experiment.start_time
    return MeasuredSeries(
        np.concatenate([[experiment.start_time], times[later]]),
        np.concatenate([[start], values[later]]),
        None if given is None else np.concatenate([[np.min(given)], given[later]]),
        np.concatenate([[True], np.zeros(int(later.sum()), dtype=bool)]),
    )


def _trusted(series: MeasuredSeries) -> MeasuredSeries:
    times, values, sigma, exact = series
    trusted = without_gross_errors(GcvSpline(), times, values, sigma=sigma, exact=exact)
    return series._replace(values=trusted)


def _smooth(series: MeasuredSeries, smoother: Smoother) -> Smooth:
    return smoother.smooth(series.times, series.values, sigma=series.sigma, exact=series.exact)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)  # quadrature on [-1, 1]


class TargetForm(enum.Enum):
    """Which residuals step 3 minimises; the value is what the user reads."""

    SLOPES = "slopes"
    INTEGRALS = "integrated slopes"


@dataclass(frozen=True)
class Posing:
    """How step 3 is posed: with which curves, in which form, and how its residuals count.

    slopes  the predictions that were generated; other posings of the same structure share them
    """

    problem: Problem
    structure: Structure
    curves: Curves
    form: TargetForm
    weights: ResidualWeights = StateErrors()
    slopes: dict[tuple[Member, tuple[str, ...]], Any] = field(default_factory=dict)
    _evaluated: dict[tuple[int, bytes], FloatArray] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """Describe what is fitted."""
        return f"{self.form.value} of {description(self.curves.smoother)}"

    def regression(self, group: SlopeGroup) -> Regression:
        """The group's estimation problem, its residuals in units of their standard errors."""
        posed = [self._posed(member) for member in group.members]
        weights = self.weights.of([one.target for one in posed])
        pieces = tuple(
            Contribution(
                self._prediction(group, member),
                self._known(member.experiment, one.places),
                one.combine,
                one.target.value,
                weight,
            )
            for member, one, weight in zip(group.members, posed, weights, strict=True)
        )
        linear = set(group.jointly) == set(group.parameters)
        return Regression(self.problem.box.select(group.parameters), pieces, self.origin, linear)

    def _posed(self, member: Member) -> "_Posed":
        run = self.problem.experiments[member.experiment]
        curve = self.curves.of[member.experiment][member.state]
        times = np.unique(run.measurements.of(member.state)[0])
        if self.form is TargetForm.SLOPES:
            return _Posed(times, None, Target(curve.slope(times), curve.slope_error(times)))
        if known_start(run, self.problem.starts[member.experiment], member.state) is not None:
            times = np.unique(np.append(times, run.start_time))
        half, middle = np.diff(times)[:, None] / 2, (times[1:] + times[:-1])[:, None] / 2
        places = (middle + half * NODES).ravel()
        error = np.hypot(curve.value_error(times[1:]), curve.value_error(times[:-1]))
        return _Posed(places, half * WEIGHTS, Target(np.diff(curve.value(times)), error))

    def _prediction(self, group: SlopeGroup, member: Member) -> Any:
        key = member, tuple(group.parameters)
        if key not in self.slopes:
            self.slopes[key] = _prediction(self.structure, group, member)
        return self.slopes[key]

    def _known(self, experiment: int, places: FloatArray) -> FloatArray:
        """(n_known, n_places): smoothed data, time and inputs, as `_prediction` needs them."""
        key = experiment, places.tobytes()
        if key not in self._evaluated:  # most members are posed at the same places
            self._evaluated[key] = self._evaluate(experiment, places)
        return self._evaluated[key]

    def _evaluate(self, experiment: int, places: FloatArray) -> FloatArray:
        """`_known` anew.

        What jumps at a place, by an input or by a condition on time, is taken before the jump, as
        integrators report it.
        """
        posed, run = self.structure.reduced[experiment].posed, self.problem.experiments[experiment]
        smooth = self.curves.of[experiment]
        data = [smooth[n].value(places) for n in posed.data_names]
        sides = [just_before(t) if t > run.start_time else t for t in places]
        inputs = [[evaluate(run.inputs[n], t) for t in sides] for n in posed.input_names]
        return np.vstack([*data, sides, *inputs])


class _Posed(NamedTuple):
    """Where a slope is predicted, `combine` as in `Contribution`, and what that is fitted to."""

    places: FloatArray
    combine: FloatArray | None
    target: Target


def _prediction(structure: Structure, group: SlopeGroup, member: Member) -> Any:
    """CasADi function (known, parameters of the group) -> slope of the member."""
    posed = structure.reduced[member.experiment].posed
    slope = structure.slopes[member.experiment][member.state]
    p = stack(ca.SX.sym(n) for n in group.parameters)
    own = [n for n in group.parameters if n in posed.q_names]
    old = stack(posed.q[posed.q_names.index(n)] for n in own)
    new = stack(p[group.parameters.index(n)] for n in own)
    known = ca.vertcat(posed.data, posed.time, posed.inputs)
    return ca.Function("predict", [known, p], [ca.substitute(slope, old, new)])


ORDINALS = ("second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True)
class RouteSelection:
    """Methods for algebraic problems.

    linear  route for problems that are linear in their parameters; its optimum is always global
    proven  route for the nonlinear problems of the first candidate of step 3
    quick   route for the nonlinear problems of all other candidates of step 3
    factor  local optima whose objective is at most `factor` times the smallest objective also
            become candidates; values above 10 are treated as 10. If there are p = 2
            parameters and the smoothed slopes contain about as much information as n = 12
            independent values, factor=2 corresponds to the 95 % confidence region (Beale 1960:
            1 + p / (n - p) F)
    most    maximum number of these additional candidates. igpe divides the objective of each
            optimum by the best objective of the same algebraic problem, and takes the optima with
            the smallest ratios
    """

    linear: Route = LinearRoute()
    proven: Route = Projected()
    quick: Route = LocalSearch()
    factor: float = 2.0
    most: int = 6

    def seeded(self, seed: int) -> "RouteSelection":
        """Return a copy with another seed for each route that uses a seed."""
        proven, quick = reseeded(self.proven, seed), reseeded(self.quick, seed)
        return replace(self, proven=proven, quick=quick)

    def choose(self, regression: Regression, *, prove: bool) -> Route:
        """Return the route for one problem."""
        if regression.linear:
            return self.linear
        return self.proven if prove else self.quick


SUBSPACE = "the subspace of the spectra's leading singular vectors"


@dataclass(frozen=True)
class Algebraic:
    """One candidate of step 3.

    parameters  a dict {unknown: value}, of all groups and of start values read off the curves
    answers     one per group: the group and what its route found
    curves      the smoothed measurements it came from
    origin      smoothing and form, in words
    passed      on the first candidate: number of good local optima beyond `RouteSelection.most`
    """

    parameters: Mapping[str, float]
    answers: tuple[tuple[SlopeGroup, RouteResult], ...]
    curves: Curves
    origin: str
    passed: int = 0


def estimate_algebraic(
    problem: Problem,
    structure: Structure,
    ladder: Sequence[Curves],
    routes: RouteSelection,
    weights: ResidualWeights = StateErrors(),
) -> list[Algebraic]:
    """The candidates of step 3, distinct ones only; the first is the paper's, with its proof.

    After the best of each posing come further local optima that are nearly as good. At Ctrl-C those
    that are there, the last perhaps without some groups; raises KeyboardInterrupt if none is.
    Spectra say nothing of single species by algebra: step 4 searches in their singular vectors.
    """
    if problem.has_spectra or not structure.groups:
        start = {} if problem.has_spectra else smoothed_starts(problem, structure, ladder[0])
        origin = SUBSPACE if problem.has_spectra else "nothing algebraic"
        return [Algebraic(start, (), ladder[0], origin)]
    starts = [smoothed_starts(problem, structure, curves) for curves in ladder]
    result: list[Algebraic] = []
    further: list[tuple[float, Algebraic]] = []
    slopes: dict[tuple[Member, tuple[str, ...]], Any] = {}
    try:
        for (curves, start), form in itertools.product(
            zip(ladder, starts, strict=True), TargetForm
        ):
            require_going_on()
            with interruptible():
                posing = Posing(problem, structure, curves, form, weights, slopes)
                candidate = _candidate(posing, routes, start, prove=not result)
                if _is_new(candidate, result, problem.box):
                    result.append(candidate)
                further += _further(candidate, posing, routes.factor)
    except KeyboardInterrupt:
        if not result:
            raise
    distinct = list(result)
    for _, candidate in sorted(further, key=lambda pair: pair[0]):
        if _is_new(candidate, distinct, problem.box):
            distinct.append(candidate)
    kept = distinct[: len(result) + routes.most]
    return [replace(kept[0], passed=len(distinct) - len(kept)), *kept[1:]]


def smoothed_starts(
    problem: Problem,
    structure: Structure,
    curves: Curves,
    known: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Unknown start values that the smoothed curves give, if need be with `known` parameters."""
    names = structure.names(Access.SMOOTHING)
    values: dict[str, list[float]] = {}
    every = zip(problem.experiments, curves.of, structure.reduced, structure.states, strict=True)
    for e, smooth, reduced, states in every:
        posed, at = reduced.posed, np.array([e.start_time])
        here = {n: float(smooth[n].value(at)[0]) for n in posed.data_names}
        for unknown in set(names).intersection(posed.single_starts):
            state = posed.single_starts[unknown]
            value = here.get(state)
            if value is None and state in states:
                value = _state(posed, states[state], here, e, known)
            if value is not None and np.isfinite(value):
                values.setdefault(unknown, []).append(value)
    box = problem.box.select(values)
    return box.mapping(box.clip(np.array([np.mean(values[n]) for n in box.names])))


def _state(
    posed: PosedEquations,
    expression: Any,
    data: Mapping[str, float],
    experiment: Experiment,
    known: Mapping[str, float],
) -> float:
    """What algebra gives for an unmeasured state at the start; NaN if it needs other unknowns."""
    q = [known.get(n, np.nan) for n in posed.q_names]
    inputs = [evaluate(experiment.inputs[n], experiment.start_time) for n in posed.input_names]
    symbols = [posed.q, posed.data, posed.time, posed.inputs]
    given: list[Any] = [q, list(data.values()), experiment.start_time, inputs]
    function = ca.Function("state", symbols, [expression])
    return float(function.call(given)[0])


def _candidate(
    posing: Posing, routes: RouteSelection, start: Mapping[str, float], *, prove: bool
) -> Algebraic:
    parameters = dict(start)
    answers: list[tuple[SlopeGroup, RouteResult]] = []
    for group in posing.structure.groups:
        regression = posing.regression(group)
        try:
            require_going_on()
            with interruptible():
                answer = routes.choose(regression, prove=prove).estimate(regression)
        except KeyboardInterrupt:
            if not answers:
                raise
            break
        if answer.estimate.status.usable:
            parameters |= answer.estimate.parameters
        answers.append((group, answer))
    if not parameters.keys() >= set(posing.structure.names(Access.SMOOTHING)):
        starts = smoothed_starts(posing.problem, posing.structure, posing.curves, parameters)
        parameters = starts | parameters
    return Algebraic(parameters, tuple(answers), posing.curves, posing.origin)


def _further(
    candidate: Algebraic, posing: Posing, factor: float
) -> Iterator[tuple[float, Algebraic]]:
    """The candidate with one group at another of its optima, for all that are nearly as good.

    returns  how many times worse that optimum is, and the candidate
    """
    for k, (group, answer) in enumerate(candidate.answers):
        best = answer.estimate.objective
        least = rounding(posing.regression(group)) if answer.others else 0.0
        kept = {n: v for n, v in candidate.parameters.items() if n not in group.parameters}
        for number, other in enumerate(answer.others):
            if other.objective > factor * best + least:
                continue
            lost = tuple(n for n in group.parameters if n not in other.parameters)
            answers = list(candidate.answers)
            answers[k] = (group, RouteResult(other, lost))
            about = f" for {', '.join(group.parameters)}" if len(answers) > 1 else ""
            ordinal = ORDINALS[number] if number < len(ORDINALS) else f"{number + 2}th"
            yield (
                other.objective / max(best, least),
                replace(
                    candidate,
                    parameters=kept | dict(other.parameters),
                    answers=tuple(answers),
                    origin=f"{ordinal} local optimum{about} of {candidate.origin}",
                ),
            )


def _is_new(candidate: Algebraic, known: Sequence[Algebraic], box: Box) -> bool:
    own = box.select(candidate.parameters)
    return not any(
        candidate.parameters.keys() == other.parameters.keys()
        and has_same_values(own.vector(candidate.parameters), own.vector(other.parameters), own)
        for other in known
    )
