"""The integrator that suits a problem, chosen by rules that depend on nothing but problem and q.

Derivatives of m measurements by n unknowns take n directions forwards through an integration, or m
sums of one sweep back through its steps. Both give the same Jacobian, so that a search and its end
do not depend on which (`cheaper`). What each costs is counted before: a step has s stages, and in
each of them a direction or sum takes the products with the entries of the Jacobians f_x and f_q,
in the implicit pair the solve with the factors of 1 - h a f_x, and a combination of stages. The
state, the Jacobians and their factors are shared; a sweep needs them a second time.
"""

import logging
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from igpe.core.arguments import Positive
from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.integrators.base import Integrator, Intervals, Shots, Trajectory
from igpe.dynamics.integrators.lock_step import LockStep, LockStepIntervals
from igpe.dynamics.integrators.runge_kutta import RungeKutta, RungeKuttaIntervals
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.integrators.switched import switched
from igpe.equations.initial_value import InitialValueProblem

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Automatic(Integrator):
    """Automatic choice of an integrator that suits the equations.

    - `RungeKutta` integrates the equations, if a C compiler is found and the equations are short
      enough to compile. `RungeKutta` chooses between its explicit and implicit pairs within each
      interval. If a trajectory reaches the step limit, or fails with implicit algebraic variables,
      `Sundials` integrates it again from its start; any other failure is final. Each run repeats
      these attempts independently of earlier runs, so the same values of the unknowns always give
      the same results.
    - If the equations are not compiled, `Sundials` integrates those with implicit algebraic
      variables. For all others, the message `slow` says why. If there is only one interval,
      `Sundials` integrates it. Otherwise igpe uses NumPy to integrate several intervals at once; if
      NumPy fails on an interval, `Sundials` integrates this interval.

    slack    as for `RungeKutta`: factor by which errors in sensitivities may exceed errors in
             states
    seconds  limit on the wall time of each attempt by one integrator, in seconds
    """

    compiles: ClassVar[bool] = True

    slack: Positive = 1.0

    def prepare(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """Choose the integrator that suits the equations, the available compiler and the number
        of intervals."""
        given = asdict(self)
        quick = RungeKutta(**given)
        stiff = Sundials(**{name: v for name, v in given.items() if name != "slack"})
        if not quick.carries_out(ivp):
            return switched(self, ivp, nodes, times)
        compiled = quick.prepare(ivp, nodes, times)
        if isinstance(compiled, RungeKuttaIntervals):
            return replace(compiled, otherwise=stiff)
        if ivp.y.numel():
            return stiff.prepare(ivp, nodes, times)
        if ivp.switching is not None:
            return switched(self, ivp, nodes, times)
        slow = (
            "igpe integrated the equations without compiling them, which is many times slower. "
            f"{compiled.refused}"
        )
        LOG.info(slow)
        if compiled.cut.intervals == 1:
            return replace(stiff.prepare(ivp, nodes, times), slow=slow)
        side = LockStep(**given).prepare(ivp, nodes, times)
        assert isinstance(side, LockStepIntervals), "LockStep supports all explicit equations"
        return replace(side, otherwise=stiff, slow=slow)


# Nanoseconds of an operation, measured for a network of 150 states; choice and report are ratios.
PRODUCT, SUM, SOLVE = 0.18, 0.18, 0.45  # of one direction: with an entry, of stages, by a factor
EVALUATE, ELIMINATE = 0.5, 1.0  # shared by all directions: of the formulas, of the factors
OUTPUT = 4.0  # a derivative of a state at a time of output: combined, and copied twice
CALL = 1.5e5  # a sweep in Python
SUMMED = 5.0  # numbers that one of a stage or of an error is combined of
STAGES = np.array([6.0, 5.0])  # of both pairs that are not known before
NEWTON = 2.0  # corrections of an implicit stage
LIVE = 0.75  # of the sums that a step has, on average: the others begin at earlier times
USUAL, ORDER = 3.5, 5  # steps: so many times rtol to the -1/5
REPORTED = 1e-8
PAYS = 0.8  # of the time of directions: what sweeps back must promise


class Costs(NamedTuple):
    """Counted operations of a model.

    states, entries, by_unknowns  how many states, entries of f_x and of f_q
    factors, eliminated           entries of the factors of 1 - h a f_x, operations that make them
    operations                    of f and of its Jacobians
    """

    states: int
    entries: int
    by_unknowns: int
    factors: int
    eliminated: float
    operations: int

    @classmethod
    def of(cls, intervals: RungeKuttaIntervals) -> "Costs":
        """Counts of a compiled model."""
        model, places = intervals.model.slopes, intervals.model.slopes.kept[0]
        n, factors, eliminated = model.states, model.states**2, model.states**3 / 3
        if model.lu_n:
            first, diagonal = places["lu_first"], places["lu_diagonal"]
            above = first[1:] - diagonal - 1
            row = np.repeat(np.arange(n), np.diff(first))
            below = np.arange(model.lu_n) < diagonal[row]
            factors, eliminated = model.lu_n, float(above[places["lu_col"][below]].sum())
        length = intervals.model.operations
        return cls(n, model.fx_n, model.fq_n, factors, eliminated, length)

    def step(self, lanes: float, unknowns: float) -> FloatArray:
        """(2,) ns of a step of both pairs with so many directions or sums.

        unknowns  share of the entries of f_q that one of them meets
        """
        shared = EVALUATE * self.operations + np.array([0.0, ELIMINATE * self.eliminated])
        met, combined = unknowns * self.by_unknowns, SUMMED * self.states * SUM
        each = combined + np.array([PRODUCT * (self.entries + met), SOLVE * (self.factors + met)])
        return np.asarray(STAGES * (shared + lanes * each))

    def state(self) -> FloatArray:
        """(2,) ns that an implicit step takes for Newton's method, and an explicit one for none."""
        own = EVALUATE * self.operations / 2 + ELIMINATE * self.factors
        return np.asarray(STAGES * np.array([0.0, NEWTON * own]))

    def forwards(self, directions: int, outputs: float) -> FloatArray:
        """(2,) ns of a step of both pairs with directions, and so many times of output in it."""
        lanes = -(-directions // 4) * 4
        reported = OUTPUT * outputs * self.states * lanes
        return self.step(lanes, 1 / max(directions, 1)) + self.state() + reported

    def back(self, sums: int, steps: float) -> FloatArray:
        """(2,) ns of a step with a probe and in a sweep back of so many sums; steps: of all."""
        swept = self.step(LIVE * (-(-sums // 4) * 4), 1.0)
        products = PRODUCT * self.entries * LIVE * sums * STAGES * np.array([0.0, 1.0])
        return np.asarray(self.step(4, 1.0) + self.state() + swept + products + CALL / steps)


@dataclass(frozen=True)
class Backward(Intervals):
    """One compiled interval from the problem's own start, with derivatives by a sweep back.

    What cannot be derived so is derived forwards.

    inner          what integrates
    rows, columns  of the outputs whose derivatives are computed, by time; others are NaN
    predicted      time, of that of derivatives forwards
    reported       the same at a tolerance of `REPORTED`: all searches of an estimate say the same
    """

    inner: RungeKuttaIntervals
    rows: IntArray
    columns: IntArray
    predicted: float
    reported: float

    @property
    def compiled(self) -> bool:
        """See `Intervals`."""
        return True

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        return self.inner.run(starts, q, derivatives=derivatives)

    def trajectory(self, q: FloatArray, *, derivatives: bool = True) -> Trajectory:
        """See `Intervals`."""
        if not derivatives:
            return self.inner.trajectory(q, derivatives=False)
        return self.inner.retried(super().trajectory(q), q, derivatives=True)

    def from_start(self, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        if not derivatives:
            return self.inner.from_start(q, derivatives=False)
        start, by_unknown = self.inner.start(q)
        none = np.zeros((start.size + len(q), 1))
        recorded = self.inner.recorded(start[None], q, none)
        shots = recorded.along
        by = np.full((*shots.measured.shape, len(q)), np.nan)
        if all(status.usable for status in shots.status):
            swept = self.inner.swept(recorded, *self._seeds)
            moves = by_unknown.any(axis=1)  # a start that no unknown moves counts 0 times infinity
            rows = swept.by_unknown + by_unknown[moves].T @ swept.by_node[0][moves]
            if not np.isfinite(rows).all():
                return self.inner.from_start(q)
            by[self.rows, self.columns] = rows.T
        ends, states = (v[..., :0] for v in (shots.ends_by, shots.states_by))
        return replace(shots, ends_by=ends, states_by=states, measured_by=by)

    @cached_property
    def _seeds(self) -> tuple[FloatArray, IntArray]:
        """Each output is a sum of its own, the latest the first."""
        shape = len(self.cut.times), self.ivp.measured.numel()
        weights, sums = np.zeros(shape), np.zeros(shape, dtype=np.intp)
        weights[self.rows, self.columns] = 1.0
        sums[self.rows, self.columns] = np.arange(len(self.rows))
        return weights, sums

    def until(self, last: float) -> Intervals:
        """See `Intervals`."""
        inner = replace(self.inner, cut=self.cut.until(last))
        early = self.rows < len(inner.cut.times)
        rows, columns = self.rows[early], self.columns[early]
        return replace(self, inner=inner, cut=inner.cut, rows=rows, columns=columns)

    def rougher(self, rtol: float) -> Intervals:
        """See `Intervals`."""
        return replace(self, inner=self.inner.rougher(rtol))

    def over(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        """See `Intervals`; derivatives are forwards there."""
        return self.inner.over(ivp, nodes, times)

    @property
    def forwards(self) -> Intervals:
        """See `Intervals`."""
        return self.inner

    @property
    def share(self) -> float:
        """See `Intervals`."""
        return self.predicted

    @property
    def manner(self) -> str:
        """See `Intervals`."""
        return (
            f"igpe computed the derivatives of {len(self.rows)} measured values by "
            f"{len(self.ivp.unknowns)} unknowns in one sweep back through each integration. It "
            f"expects {100 * self.reported:.0f} % of the time that forward sensitivities take."
        )


def swept_back(intervals: RungeKuttaIntervals, rows: IntArray, columns: IntArray) -> Backward:
    """One interval with derivatives by a sweep back, and what is predicted of it.

    rows, columns  of the outputs whose derivatives are needed
    """
    n_h, costs = intervals.ivp.measured.numel(), Costs.of(intervals)
    cells = np.unique(rows * n_h + columns)[::-1]  # the latest first
    own = intervals.ivp, intervals.cut, intervals, cells // n_h, cells % n_h

    def share(rtol: float) -> float:
        steps = max(USUAL * rtol ** (-1 / ORDER), 1.0)
        often = len(intervals.cut.times) / steps
        back, forwards = costs.back(len(cells), steps), costs.forwards(intervals.directions, often)
        return float((back / forwards).max())

    return Backward(*own, share(intervals.method.rtol), share(REPORTED), slow=intervals.slow)


def cheaper(intervals: Intervals, rows: IntArray, columns: IntArray) -> Intervals:
    """The same, with derivatives by a sweep back where counted operations promise less time.

    rows, columns  as of `swept_back`
    """
    if not isinstance(intervals, RungeKuttaIntervals) or intervals.cut.intervals != 1:
        return intervals
    if not len(rows) or intervals.directions <= intervals.model.slopes.few:
        return intervals
    back = swept_back(intervals, rows, columns)
    return back if back.share <= PAYS else intervals
