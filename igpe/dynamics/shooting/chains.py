"""A problem's experiments as chains of nodes: residuals, gaps and exact derivatives at a point.

The first node of a chain is what the experiment starts at, start(q), exactly: known numbers,
parameters or estimated start values. The others are free. Derivatives come in three forms:

each     of each interval by its node and by the unknowns
through  along the directions that the unknowns and the gaps make of all intervals (Houska et al.,
         equations 7 to 10, Schloeder's trick): the steps of Gauss-Newton are the same, and with
         many states and few unknowns the work is far less. The natural level function needs the
         old derivatives times the gaps of a trial: one direction more, at the old point
lifted   in single directions (their section 4.2): one forwards as gaps close, one sweep back, one
         forwards along a step. They are those of the very steps of one run, which states and a
         probe alone decide, so that gradients are those of all derivatives, to rounding

Nodes of measured states begin on a curve through their measurements, the others where the user
says, or where the model, driven by the measured ones, takes them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.deadline import require_going_on
from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.integrators.base import Integrator, Intervals, Recorded, Shots
from igpe.dynamics.integrators.cut import interval_of
from igpe.dynamics.shooting.base import Profile, spread_of
from igpe.dynamics.shooting.limits_of_model import ModelLimits, Places, model_limits
from igpe.dynamics.shooting.residuals import (
    NO_NUMBER,
    Broken,
    Starting,
    Unmeasured,
    measured_only,
    starting,
    unmeasured,
)
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.numerics.least_squares.base import PLAIN, Fit, Robust
from igpe.numerics.least_squares.chains import (
    Affine,
    Chain,
    Chained,
    Lifted,
    Point,
    Reduced,
)
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.measurements import Measurements
from igpe.problem.model import bounds_over_time
from igpe.problem.problem import Problem

BREAK_DOWNS = {Status.INTEGRATION_BROKE, Status.NO_SOLVER, Status.STALLED}
ALIKE = 3.0  # ratio of standard deviations in a column that need no levelling
# What an evaluation costs, in columns of derivatives, measured from 4 to 64 states:
SHARED = 10.0  # the state and the Jacobian, which all columns share
EACH = 1.5  # a column of each interval's own derivatives, which the step control looks at
ADDED = 6  # columns beside those of the unknowns: gaps and probe, and four for a trial's gaps
PAYS = 1.25  # times that all derivatives must cost the reduced ones


@dataclass(frozen=True)
class Shooting:
    """One experiment made ready.

    name          of the experiment
    measurements  at all times that the intervals report, those of constraints too, and no others
    nodes         (K + 1,) times;  index (n_q,) places its unknowns among the problem's
    spread        what a standard deviation of the measurements is in their `sigma`
    limits        the model's constraints; None if there are none
    form          of the derivatives (module docstring); with constraints, of each interval
    """

    name: str
    measurements: Measurements
    ivp: InitialValueProblem
    nodes: FloatArray
    intervals: Intervals
    index: IntArray
    spread: float
    limits: ModelLimits | None = None
    form: Literal["each", "through", "lifted"] = "each"

    @property
    def pays(self) -> bool:
        """Whether fewer directions through all intervals are faster than each interval's own."""
        if self.limits is not None or not self.intervals.chains:
            return False
        ivp = self.ivp
        depends = ca.which_depends(ca.vertcat(ivp.f, ivp.measured), ivp.q)  # not on start values
        effort = SHARED + EACH * (len(ivp.states) + sum(depends))
        return effort >= PAYS * (2 * SHARED + len(ivp.unknowns) + ADDED)

    def levelled(self) -> "Shooting | None":
        """With one standard deviation in each column; None if they hardly differ.

        Relative errors pull a fit towards zero, where every residual is small: from a bad start
        they are not what to begin with.
        """
        m, sigma = self.measurements, self.measurements.sigma.copy()
        for column in range(len(m.names)):
            mine = m.column == column
            sigma[mine] = np.sqrt(np.mean(sigma[mine] ** 2))
        if np.max(sigma / m.sigma, initial=1.0) <= ALIKE:
            return None
        return replace(self, measurements=replace(m, sigma=sigma))

    def start(self, unknowns: FloatArray) -> FloatArray:
        """(n_x,) the start at the problem's unknowns (n,)."""
        return self._start(unknowns[self.index]).states

    def shoot(self, unknowns: FloatArray, starts: FloatArray) -> Shots:
        """All intervals at the problem's unknowns (n,) from `starts` (K, n_x), no derivatives."""
        return self.intervals.run(starts, unknowns[self.index], derivatives=False)

    def chain(self, unknowns: FloatArray, nodes: FloatArray) -> Chain | Reduced | Lifted | Broken:
        """The chain at unknowns (n,) and nodes (K, n_x), or what broke down."""
        q = unknowns[self.index]
        first = self._start(q)
        starts, by_q = np.vstack([first.states, nodes[1:]]), first.by_unknown
        make = {"each": self._each, "through": self._through, "lifted": self._lifted}[self.form]
        chain = make(q, starts, by_q, len(unknowns))
        if isinstance(chain, Broken) or chain.is_finite:
            return chain
        return Broken(self.name, Status.INTEGRATION_BROKE, NO_NUMBER)

    def _each(self, q: FloatArray, starts: FloatArray, by_q: FloatArray, n: int) -> Chain | Broken:
        shots = self.intervals.run(starts, q)
        if broken := self._broken(shots):
            return broken
        if self.measured_at_start:
            first, (n_x, n_q), still = shots.measured_by[0], by_q.shape, by_q == 0
            fixed = np.append(still.all(axis=1), np.zeros(n_q, dtype=bool))
            rest = np.append(np.zeros(n_x, dtype=bool), still.all(axis=0))
            lost = (~np.isfinite(first) & fixed) | (np.isnan(first) & rest)
            shots = replace(shots, measured_by=_resting(shots.measured_by, lost))
        limits = None
        if self.limits is not None:
            limits = self.limits.at(shots, q, self._places)
            limits = limits._replace(by_unknown=self._wide(limits.by_unknown, n))
        return Chain(
            residual=self._residual(shots.measured),
            by_node=self._weighted(shots.measured_by_start),
            by_unknown=self._wide(self._weighted(shots.measured_by_unknown), n),
            owner=self._owner,
            gap=_gaps(shots.ends, starts),
            step=np.concatenate([np.zeros_like(shots.by_start[:1]), shots.by_start[:-1]]),
            drift=self._wide(np.concatenate([by_q[None], shots.by_unknown[:-1]]), n),
            limits=limits,
        )

    def _through(
        self, q: FloatArray, starts: FloatArray, by_q: FloatArray, n: int
    ) -> Reduced | Broken:
        n_x, n_q = by_q.shape
        first = np.zeros((n_x + n_q, n_q + 1))
        first[:n_x, :n_q], first[n_x:, :n_q] = by_q, np.eye(n_q)
        chained = partial(self.intervals.chained, starts, q, probed=True)
        ran = chained(first)
        if broken := self._broken(ran):
            return broken
        gap, by = _gaps(ran.ends, starts), ran.measured_by
        if self.measured_at_start:
            by = _resting(by, np.isnan(by[0]) & np.append((by_q == 0).all(axis=0), False))
        moved, weighted = _by_dq(ran.ends_by, first[:n_x]), self._weighted(by)
        moved[:, :, -1] += gap
        moves = np.concatenate([self._wide(moved[..., :-1], n), moved[..., -1:]], axis=2)
        affine = Affine(moves, weighted[:, -1], self._wide(weighted[:, :-1], n))
        return Reduced(self._residual(ran.measured), gap, affine, partial(self._shifted, chained))

    def _shifted(
        self, chained: Callable[..., Shots], gaps: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """See `Reduced.shifted`: one direction that begins with the first gap."""
        n_x = gaps.shape[1]
        first = np.zeros((n_x + len(self.index), 1))
        first[:n_x, 0] = gaps[0]
        ran = chained(first, gaps=gaps)
        moved = _by_dq(ran.ends_by, first[:n_x])[..., 0] + gaps
        moved[0] = gaps[0]
        return moved, self._weighted(ran.measured_by)[:, 0]

    def _lifted(
        self, q: FloatArray, starts: FloatArray, by_q: FloatArray, n: int
    ) -> Lifted | Broken:
        ran = self.intervals.recorded(starts, q, np.zeros((sum(by_q.shape), 1)))
        if broken := self._broken(ran.along):
            return broken
        gap = _gaps(ran.along.ends, starts)
        all_of = self._through if self.pays else self._each

        def along(dq: FloatArray) -> FloatArray:
            own = dq[self.index]
            first = np.concatenate([by_q @ own, own])[:, None]
            moved = self.intervals.chained(starts, q, first, probed=True)
            return np.asarray(_by_dq(moved.ends_by, first[: len(by_q)])[..., 0] + gap)

        def whole() -> Chain | Reduced | None:
            chain = all_of(q, starts, by_q, n)
            return None if isinstance(chain, Broken) or not chain.is_finite else chain

        return Lifted(
            self._residual(ran.along.measured),
            gap,
            self._weighted(ran.along.measured_by)[:, 0],
            partial(self._gradient, ran, by_q, n),
            along,
            whole,
        )

    def _gradient(
        self, ran: Recorded, by_q: FloatArray, size: int, weights: FloatArray
    ) -> FloatArray:
        """See `Lifted.gradient`."""
        seeds = np.zeros_like(ran.along.measured)
        np.add.at(seeds, self._cells, weights * self._weight)
        swept = self.intervals.swept(ran, seeds)
        moves = by_q.any(axis=1)  # a start that no unknown moves counts 0 even times infinity
        own = swept.by_unknown + by_q[moves].T @ swept.by_node[0][moves]
        return self._wide(own, size)

    def _broken(self, shots: Shots) -> Broken | None:
        pairs = zip(shots.status, shots.reason, strict=True)
        return next((Broken(self.name, s, why) for s, why in pairs if not s.usable), None)

    def _residual(self, measured: FloatArray) -> FloatArray:
        """(m,) in standard deviations, by time."""
        value = self.measurements.value[self._order]
        return np.asarray((measured[self._cells] - value) * self._weight)

    def _weighted(self, measured_by: FloatArray) -> FloatArray:
        """(m, n) derivatives of the residuals from those of all that is measured."""
        return np.asarray(measured_by[self._cells] * self._weight[:, None])

    @property
    def measured_at_start(self) -> bool:
        """Whether something is measured there."""
        times = self.measurements.times
        return bool(len(times) and times[0] <= self.nodes[0])

    def _wide(self, by_own: FloatArray, size: int) -> FloatArray:
        """Derivatives by the experiment's unknowns, as ones by all of the problem's."""
        if len(self.index) == size:  # the problem's order is the experiment's
            return by_own
        by_all = np.zeros((*by_own.shape[:-1], size))
        by_all[..., self.index] = by_own
        return by_all

    @cached_property
    def _places(self) -> Places:
        assert self.limits is not None, "only with constraints"
        return self.limits.placed(self.ivp, self.nodes, self.measurements.times)

    @cached_property
    def _order(self) -> IntArray:
        """The measurements by time, as intervals come."""
        return np.argsort(self.measurements.row, kind="stable").astype(np.intp)

    @cached_property
    def _cells(self) -> tuple[IntArray, IntArray]:
        """Rows and columns of the measurements among all outputs, by time."""
        return self.measurements.row[self._order], self.measurements.column[self._order]

    @cached_property
    def _owner(self) -> IntArray:
        return interval_of(self.nodes, self.measurements.times)[self._cells[0]]

    @cached_property
    def _weight(self) -> FloatArray:
        return np.asarray(1 / (self.spread * self.measurements.sigma[self._order]))

    @cached_property
    def _start(self) -> Starting:
        return starting(self.ivp)


def _gaps(ends: FloatArray, starts: FloatArray) -> FloatArray:
    """(K, n_x) before each interval; none before the first."""
    return np.vstack([np.zeros(starts.shape[1]), ends[:-1] - starts[1:]])


def _by_dq(ends_by: FloatArray, first: FloatArray) -> FloatArray:
    """(K, n_x, n_d) of the nodes' change what is no gap: the first one's, then the ends'."""
    return np.concatenate([first[None], ends_by[:-1]])


def _resting(by: FloatArray, lost: BoolArray) -> FloatArray:
    """Derivatives of what is measured at the start: 0 where they are lost and nothing moves.

    sqrt(k B) at B = 0 gives 0 / 0 by k and infinity by B; `Run.linearised` has the same rule.
    """
    return np.concatenate([np.where(lost, 0.0, by[0])[None], by[1:]]) if lost.any() else by


@dataclass
class Chains:
    """All experiments: what `igpe.numerics.least_squares` needs at a point.

    over_time   names of the inequalities over time
    unmeasured  residuals that hang on no measurement, multiplied by `factor`
    loss        how the others count
    broken      what broke down last; None if nothing did since it was last set so
    """

    shootings: tuple[Shooting, ...]
    over_time: frozenset[str]
    unmeasured: Unmeasured
    loss: Robust = PLAIN
    factor: float = 1.0
    broken: Broken | None = field(default=None, init=False)

    def integrated(self, integrator: Integrator) -> "Chains":
        """The same by another integrator."""
        each = (
            replace(s, intervals=integrator.prepare(s.ivp, s.nodes, s.measurements.times))
            for s in self.shootings
        )
        return replace(self, shootings=tuple(each))

    def levelled(self) -> "Chains | None":
        """The same with levelled standard deviations; None if they are nearly level."""
        level = [shooting.levelled() for shooting in self.shootings]
        if not any(level):
            return None
        pairs = zip(level, self.shootings, strict=True)
        return replace(self, shootings=tuple(one or shooting for one, shooting in pairs))

    def reasons(self, fit: Fit) -> tuple[str, ...]:
        """Why a search ended, if it is for an integration that broke down."""
        return (self.broken.sentence,) if self.broken and fit.status in BREAK_DOWNS else ()

    def __len__(self) -> int:
        """How many residuals there are."""
        return sum(len(s.measurements.value) for s in self.shootings) + self.unmeasured.size

    def __call__(self, point: Point) -> Chained | None:
        """Residuals, gaps and derivatives, or None if an interval broke down: see `broken`.

        raises KeyboardInterrupt once the call must end (`igpe.core.deadline`)
        """
        require_going_on()
        chains = []
        for shooting, nodes in zip(self.shootings, point.nodes, strict=True):
            chain = shooting.chain(point.unknowns, nodes)
            if isinstance(chain, Broken):
                self.broken = chain
                return None
            chains.append(chain)
        free = self.unmeasured(point.unknowns, self.factor / self.shootings[0].spread)
        return Chained(tuple(chains), free, self.loss)


def chains_of(problem: Problem, integrator: Integrator, count: int) -> Chains:
    """All experiments in at most `count` intervals each.

    raises Unsupported for constraints on what no equation determines, and for steady starts
    """
    shootings, names = [], problem.box.names
    for k, experiment in enumerate(problem.experiments):
        ivp = compiled(problem).initial_value_problem(k, switching=True)
        limits = model_limits(problem, k, ivp)
        m = measured_only(experiment.measurements)
        if limits is not None:
            ivp, times = limits.watching(ivp), np.union1d(m.times, limits.times)
            m = replace(m, times=times, row=np.searchsorted(times, m.times)[m.row].astype(np.intp))
        nodes = node_times(experiment, most_intervals(ivp, count), m.times)
        if ivp.rest is not None:
            raise Unsupported(
                "MultipleShooting does not support steady-state starts (Experiment(steady=...)). "
                "Use igpe.SingleShooting or igpe.estimate."
            )
        intervals = integrator.prepare(ivp, nodes, m.times)
        index = np.array([names.index(n) for n in ivp.unknowns], dtype=np.intp)
        spread = spread_of(problem)
        shootings.append(Shooting(experiment.name, m, ivp, nodes, intervals, index, spread, limits))
    return Chains(tuple(shootings), problem.inequalities, unmeasured(problem))


def most_intervals(ivp: InitialValueProblem, count: int) -> int:
    """At most `count`; 1 where what a state triggers happens later, maybe in another interval."""
    return 1 if ivp.switching is not None and ivp.switching.has_delayed else count


def node_times(
    experiment: Experiment, intervals: int, more: FloatArray | tuple[float, ...] = ()
) -> FloatArray:
    """(K + 1,) at most so many intervals of about the same length, between measured times.

    Where there are as many intervals as times allow, each ends at the next; `more` are times at
    which something else is needed.
    """
    measured = measured_only(experiment.measurements).times
    times = np.union1d(experiment.start_time, np.union1d(measured, more))
    if intervals >= len(times) - 1:
        return times
    even = np.linspace(times[0], times[-1], intervals + 1)
    after = np.clip(np.searchsorted(times, even), 1, len(times) - 1)
    before_is_nearer = even - times[after - 1] <= times[after] - even
    return np.asarray(times[np.unique(after - before_is_nearer)])


STILL = 1e-3  # relative change of driven states that no longer matters


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
    experiment, instance = problem.experiments[index], problem.instances[index]
    times, states = shooting.nodes[:-1], shooting.ivp.states
    values = np.full((len(times), len(states)), np.nan)
    size = np.array(shooting.ivp.scale, dtype=float)
    bounds, of_model = np.tile([-np.inf, np.inf], (len(states), 1)), bounds_over_time(instance)
    for i, name in enumerate(states):
        known = None if profile is None else profile(name, times)
        is_measured = name in experiment.measured
        if known is None and is_measured:
            table = experiment.table()[name].dropna()
            at, measured = (c.to_numpy(dtype=float) for c in (table.index, table))
            known = np.interp(times, at, measured)
        if known is None and unobserved is not None:
            value = unobserved.get(name) if isinstance(unobserved, Mapping) else unobserved
            known = None if value is None else np.full(len(times), float(value))
        if known is not None:
            values[:, i] = known
        # Root mean square of its measurements, else of its nodes.
        some = experiment.measurements.of(name)[1] if is_measured else values[:, i]
        some = some[np.isfinite(some)]
        size[i] = (float(np.sqrt(np.mean(some**2))) if len(some) else 0.0) or size[i]
        if name in of_model:
            lower, upper = of_model[name]
            bounds[i] = lower.min(), upper.max()
    return Given(values, size, *bounds.T)


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
    nodes = (_filled(s, k, unknowns) for s, k in zip(shootings, known, strict=True))
    return Point(unknowns, tuple(nodes))


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
        if (np.abs(after - nodes) <= STILL * known.size).all():
            break
        nodes = after
    return nodes
