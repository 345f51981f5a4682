"""A problem's experiments as chains of nodes: residuals, gaps and exact derivatives at a point.

The first node of a chain is what the experiment starts at, start(q), exactly: known numbers,
parameters or estimated start values. The others are free.

Where the nodes of a multiple shooting begin.

Measured states begin on a curve through their measurements, the others where the user says, or
where the model, driven by the measured ones, takes them.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.deadline import require_going_on
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator, Intervals, Shots
from igpe.dynamics.integrators.cut import interval_of
from igpe.dynamics.shooting.base import Profile, spread_of
from igpe.dynamics.shooting.multiple.limits_of_model import ModelLimits, Places, model_limits
from igpe.dynamics.shooting.residuals import (
    NO_NUMBER,
    Broken,
    Starting,
    measured_only,
    starting,
    unmeasured,
)
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.numerics.least_squares.base import PLAIN, Fit, Robust
from igpe.numerics.least_squares.chains.chains import Chain, Chained, Limits, Point, Reduced
from igpe.problem.experiment import Experiment, Measurements, Unknown
from igpe.problem.model import Instance
from igpe.problem.problem import Problem

BREAK_DOWNS = {Status.INTEGRATION_BROKE, Status.NO_SOLVER, Status.STALLED}
ALIKE = 3.0  # ratio of standard deviations in a column that need no levelling


@dataclass(frozen=True)
class Shooting:
    """One experiment made ready.

    name          of the experiment
    measurements  at all times that the intervals report, those of constraints too, and no others
    nodes         (K + 1,) times;  index (n_q,) places its unknowns among the problem's
    spread        what a standard deviation of the measurements is in their `sigma`
    limits        the model's constraints; None if there are none
    """

    name: str
    measurements: Measurements
    ivp: InitialValueProblem
    nodes: FloatArray
    intervals: Intervals
    index: IntArray
    spread: float
    limits: ModelLimits | None = None

    def levelled(self) -> "Shooting | None":
        """With one standard deviation in each column; None if they hardly differ.

        Relative errors pull a fit towards zero, where every residual is small: from a bad start
        they are not what to begin with.
        """
        m, sigma = self.measurements, self.measurements.sigma.copy()
        for column in range(len(m.names)):
            mine = m.column == column
            sigma[mine] = np.sqrt(np.mean(sigma[mine] ** 2))
        ratio = sigma / m.sigma
        if np.max(ratio, initial=1.0) <= ALIKE:
            return None
        return replace(self, measurements=replace(m, sigma=sigma))

    def start(self, unknowns: FloatArray) -> FloatArray:
        """(n_x,) the start at the problem's unknowns (n,)."""
        return self._start(unknowns[self.index]).states

    def shoot(self, unknowns: FloatArray, starts: FloatArray) -> Shots:
        """All intervals at the problem's unknowns (n,) from `starts` (K, n_x), no derivatives."""
        return self.intervals.run(starts, unknowns[self.index], derivatives=False)

    def starts(
        self, unknowns: FloatArray, nodes: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The experiment's own unknowns (n_q,), where all intervals begin, and d start / d q."""
        q = unknowns[self.index]
        first = self._start(q)
        return q, np.vstack([first.states, nodes[1:]]), first.by_unknown

    def gaps(self, ends: FloatArray, starts: FloatArray) -> FloatArray:
        """(K, n_x) before each interval; none before the first."""
        return np.vstack([np.zeros(starts.shape[1]), ends[:-1] - starts[1:]])

    def residual(self, measured: FloatArray) -> FloatArray:
        """(m,) in standard deviations, by time."""
        value = self.measurements.value[self._order]
        return np.asarray((measured[self._told] - value) * self._weight)

    def weighted(self, measured_by: FloatArray) -> FloatArray:
        """(m, n) derivatives of the residuals from those of all that is measured."""
        return np.asarray(measured_by[self._told] * self._weight[:, None])

    def chain(self, unknowns: FloatArray, nodes: FloatArray) -> "Chain | Reduced | Broken":
        """The chain at unknowns (n,) and nodes (K, n_x), or what broke down."""
        n = len(unknowns)
        q, starts, by_q = self.starts(unknowns, nodes)
        shots = self.intervals.run(starts, q)
        for status, reason in zip(shots.status, shots.reason, strict=True):
            if not status.usable:
                return Broken(self.name, status, reason)
        shots = self._resting(shots, by_q)
        found = Chain(
            residual=self.residual(shots.measured),
            by_node=self.weighted(shots.measured_by_start),
            by_unknown=self.wide(self.weighted(shots.measured_by_unknown), n),
            owner=self._owner,
            gap=self.gaps(shots.ends, starts),
            step=np.concatenate([np.zeros_like(shots.by_start[:1]), shots.by_start[:-1]]),
            drift=self.wide(np.concatenate([by_q[None], shots.by_unknown[:-1]]), n),
            limits=self._limits(shots, q, n),
        )
        return found if found.is_finite else Broken(self.name, Status.INTEGRATION_BROKE, NO_NUMBER)

    def _resting(self, shots: Shots, by_q: FloatArray) -> Shots:
        """Derivatives of what is measured at a start that no unknown moves: 0 where they are none.

        sqrt(k B) at B = 0 gives 0 / 0 by k and infinity by B; `Run.linearised` has the same rule.
        """
        if not self.told_at_start:
            return shots
        by, n_x = shots.measured_by[0], len(by_q)
        still = ~np.isfinite(by) & np.append((by_q == 0).all(axis=1), np.zeros(by_q.shape[1], bool))
        lost = np.isnan(by) & np.append(np.zeros(n_x, bool), (by_q == 0).all(axis=0))
        if not (still.any() or lost.any()):
            return shots
        measured_by = shots.measured_by.copy()
        measured_by[0] = np.where(still | lost, 0.0, by)
        return replace(shots, measured_by=measured_by)

    @property
    def told_at_start(self) -> bool:
        """Whether something is measured there."""
        times = self.measurements.times
        return bool(len(times) and times[0] <= self.nodes[0])

    def _limits(self, shots: Shots, q: FloatArray, size: int) -> Limits | None:
        if self.limits is None:
            return None
        found = self.limits.at(shots, q, self._places)
        return found._replace(by_unknown=self.wide(found.by_unknown, size))

    def wide(self, by_own: FloatArray, size: int) -> FloatArray:
        """Derivatives by the experiment's unknowns, as ones by all of the problem's."""
        if len(self.index) == size:  # the problem's order is the experiment's
            return by_own
        found = np.zeros((*by_own.shape[:-1], size))
        found[..., self.index] = by_own
        return found

    @cached_property
    def _places(self) -> Places:
        assert self.limits is not None, "only asked for with constraints"
        return self.limits.placed(self.ivp, self.nodes, self.measurements.times)

    @cached_property
    def _order(self) -> IntArray:
        """The measurements by time, as intervals come."""
        return np.argsort(self.measurements.row, kind="stable").astype(np.intp)

    @cached_property
    def _told(self) -> tuple[IntArray, IntArray]:
        """Rows and columns of the measurements among all that is told, by time."""
        return self.measurements.row[self._order], self.measurements.column[self._order]

    @cached_property
    def _owner(self) -> IntArray:
        return interval_of(self.nodes, self.measurements.times)[self._told[0]]

    @cached_property
    def _weight(self) -> FloatArray:
        return np.asarray(1 / (self.spread * self.measurements.sigma[self._order]))

    @cached_property
    def _start(self) -> Starting:
        return starting(self.ivp)


class Chains:
    """All experiments: what `igpe.numerics.least_squares` asks of a point.

    broken     what broke down last; None if nothing did since it was last set so
    over_time  names of the inequalities over time
    """

    def __init__(self, problem: Problem, shootings: Sequence[Shooting]) -> None:
        self.shootings = tuple(shootings)
        self._loss, self._factor = PLAIN, 1.0
        self.broken: Broken | None = None
        self.names = problem.box.names
        self.over_time = problem.inequalities
        self._spread, self._unmeasured = shootings[0].spread, unmeasured(problem)

    def integrated(self, integrator: Integrator) -> "Chains":
        """The same by another integrator."""
        other = copy(self)
        other.shootings = tuple(
            replace(s, intervals=integrator.prepare(s.ivp, s.nodes, s.measurements.times))
            for s in self.shootings
        )
        return other

    def counted(self, loss: Robust, factor: float) -> "Chains":
        """The same with another loss, and unmeasured residuals multiplied by a factor."""
        other = copy(self)
        other._loss, other._factor = loss, factor
        return other

    def levelled(self) -> "Chains | None":
        """The same with levelled standard deviations; None if they are nearly level."""
        found = [shooting.levelled() for shooting in self.shootings]
        if not any(found):
            return None
        level = copy(self)
        level.shootings = tuple(f or s for f, s in zip(found, self.shootings, strict=True))
        return level

    def reasons(self, fit: Fit) -> tuple[str, ...]:
        """Why a search ended, if it is for an integration that broke down."""
        return (self.broken.sentence,) if self.broken and fit.status in BREAK_DOWNS else ()

    def __len__(self) -> int:
        """How many residuals there are."""
        return sum(len(s.measurements.value) for s in self.shootings) + self._unmeasured.size

    def __call__(self, point: Point) -> Chained | None:
        """Residuals, gaps and derivatives, or None if an interval broke down: see `broken`.

        raises KeyboardInterrupt once the call must end (`igpe.core.deadline`)
        """
        require_going_on()
        found = []
        for shooting, nodes in zip(self.shootings, point.nodes, strict=True):
            chain = shooting.chain(point.unknowns, nodes)
            if isinstance(chain, Broken):
                self.broken = chain
                return None
            found.append(chain)
        free = self._unmeasured(point.unknowns, self._factor / self._spread)
        return Chained(tuple(found), free, self._loss)


def shootings(problem: Problem, integrator: Integrator, count: int) -> list[Shooting]:
    """All experiments in at most `count` intervals each."""
    found, names = [], problem.box.names
    for k, experiment in enumerate(problem.experiments):
        ivp = compiled(problem).initial_value_problem(k)
        limits = model_limits(problem, k, ivp)
        measurements = measured_only(experiment.measurements)
        if limits is not None:
            ivp, measurements = limits.watching(ivp), _also_at(measurements, limits.times)
        nodes = node_times(experiment, count, measurements.times)
        found.append(
            Shooting(
                name=experiment.name,
                measurements=measurements,
                ivp=ivp,
                nodes=nodes,
                intervals=integrator.prepare(ivp, nodes, measurements.times),
                index=np.array([names.index(n) for n in ivp.unknowns], dtype=np.intp),
                spread=spread_of(problem),
                limits=limits,
            )
        )
    return found


def _also_at(m: Measurements, more: FloatArray) -> Measurements:
    """With further times, at which nothing was measured."""
    times = np.union1d(m.times, more)
    return replace(m, times=times, row=np.searchsorted(times, m.times)[m.row].astype(np.intp))


def node_times(
    experiment: Experiment, intervals: int, more: FloatArray | tuple[float, ...] = ()
) -> FloatArray:
    """(K + 1,) at most so many intervals of about the same length, between measured times.

    Where there are as many intervals as times allow, each ends at the next; `more` are times at
    which something else is asked for.
    """
    measured = measured_only(experiment.measurements).times
    times = np.union1d(experiment.start_time, np.union1d(measured, more))
    if intervals >= len(times) - 1:
        return times
    wanted = np.linspace(times[0], times[-1], intervals + 1)
    after = np.clip(np.searchsorted(times, wanted), 1, len(times) - 1)
    before_is_nearer = wanted - times[after - 1] <= times[after] - wanted
    return np.asarray(times[np.unique(after - before_is_nearer)])


SETTLED = 1e-3  # relative change of driven states that no longer matters


@dataclass(frozen=True)
class Given:
    """What is known of the states of one experiment at its nodes.

    values        (K, n_x), NaN where nothing is known
    size          (n_x,) how large the states are
    lower, upper  (n_x,) bounds of the states' Pyomo variables
    """

    values: FloatArray
    size: FloatArray
    lower: FloatArray
    upper: FloatArray


def given(
    problem: Problem,
    index: int,
    shooting: Shooting,
    profile: Profile | None,
    unobserved: Mapping[str, float] | float | None,
) -> Given:
    """What profile, measurements and user say of experiment `index`, in this order."""
    experiment = problem.experiments[index]
    times, states = shooting.nodes[:-1], shooting.ivp.states
    values = np.full((len(times), len(states)), np.nan)
    size = np.array(shooting.ivp.scale, dtype=float)
    for i, name in enumerate(states):
        known = None if profile is None else profile(name, times)
        if known is None and name in experiment.measured:
            known = _curve(experiment, name, times)
        if known is None and unobserved is not None:
            said = unobserved.get(name) if isinstance(unobserved, Mapping) else unobserved
            known = None if said is None else np.full(len(times), float(said))
        if known is not None:
            values[:, i] = known
        size[i] = _size(experiment, name, values[:, i]) or size[i]
    return Given(values, size, *_bounds(problem.instances[index], states))


def starting_point(
    problem: Problem, shootings: Sequence[Shooting], known: Sequence[Given], start: FloatArray
) -> Point:
    """Unknowns and nodes to begin with.

    start  (n,) unknowns; estimated start values of states with a curve begin there instead
    """
    box, unknowns = problem.box, start.copy()
    for experiment, mine, shooting in zip(problem.experiments, known, shootings, strict=True):
        for i, state in enumerate(shooting.ivp.states):
            name = problem.start_unknown(state, experiment)
            estimated = isinstance(experiment.start.get(state), Unknown) and name in box.names
            if estimated and np.isfinite(mine.values[0, i]):
                unknowns[box.names.index(name)] = mine.values[0, i]
    unknowns = box.clip(unknowns)
    return Point(
        unknowns,
        tuple(_filled(s, k, unknowns) for s, k in zip(shootings, known, strict=True)),
    )


def _filled(shooting: Shooting, known: Given, unknowns: FloatArray) -> FloatArray:
    """(K, n_x) nodes at unknowns (n,): where nothing is known, driven by what is.

    Each sweep hands on the ends of all intervals, until nothing changes; an interval that breaks
    down hands on what it began with.
    """
    start, free = shooting.start(unknowns), np.isnan(known.values)
    nodes = np.clip(np.where(free, start, known.values), known.lower, known.upper)
    nodes[0] = start
    for _ in range(len(nodes) - 1 if free.any() else 0):
        ends = shooting.shoot(unknowns, nodes).ends
        ends = np.clip(np.where(np.isfinite(ends), ends, nodes), known.lower, known.upper)
        after = nodes.copy()
        after[1:][free[1:]] = ends[:-1][free[1:]]
        if (np.abs(after - nodes) <= SETTLED * known.size).all():
            break
        nodes = after
    return nodes


def _bounds(instance: Instance, states: tuple[str, ...]) -> tuple[FloatArray, FloatArray]:
    pairs = [getattr(instance.states[n][instance.first], "bounds", (None, None)) for n in states]
    lower = np.array([-np.inf if low is None else float(low) for low, _ in pairs])
    upper = np.array([np.inf if high is None else float(high) for _, high in pairs])
    return lower, upper


def _curve(experiment: Experiment, name: str, times: FloatArray) -> FloatArray:
    table = experiment.table()[name].dropna()
    found = np.interp(times, table.index.to_numpy(dtype=float), table.to_numpy(dtype=float))
    return np.asarray(found)


def _size(experiment: Experiment, name: str, nodes: FloatArray) -> float:
    """Root mean square of a state's measurements, else of its nodes; 0 if there are none."""
    values = experiment.measurements.of(name)[1] if name in experiment.measured else nodes
    here: BoolArray = np.isfinite(values)
    return float(np.sqrt(np.mean(values[here] ** 2))) if here.any() else 0.0
