"""The integrator that suits a problem's intervals, chosen by rules that remember nothing."""

import logging
from dataclasses import dataclass, replace
from functools import cached_property

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.integrators.batch.lock_step import LockStep, LockStepIntervals
from igpe.dynamics.integrators.batch.runge_kutta import RungeKutta, RungeKuttaIntervals
from igpe.dynamics.integrators.cut import cut
from igpe.dynamics.integrators.intervals import Along, Intervals, OneByOne, Recorded, Shots, Swept
from igpe.dynamics.integrators.method import Tolerances
from igpe.dynamics.integrators.sundials import Sundials
from igpe.equations.initial_value import InitialValueProblem

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class AutomaticIntervals(Tolerances):
    """Chooses among the integrators of intervals; the fields mean what they do in `RungeKutta`.

    - Implicit algebraic variables: `Sundials` (IDAS), one interval after the other.
    - Else `RungeKutta`, if a C compiler is found and the equations are short enough to compile; it
      chooses between its explicit and its implicit pair within each interval.
    - Else `LockStep`; an interval that it cannot finish is integrated by `Sundials` (CVODES).
    """

    def prepare_intervals(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> Intervals:
        """Choose by the equations and by what is installed."""
        places = np.flatnonzero(ca.which_depends(ca.vertcat(ivp.f, ivp.g, ivp.measured), ivp.q))
        if len(places) == len(ivp.unknowns):
            return self._chosen(ivp, nodes, times)
        q = ca.vertcat(*(ivp.q[int(i)] for i in places))
        names = tuple(ivp.unknowns[i] for i in places)
        smaller = replace(
            ivp,
            q=q if len(places) else ca.SX(0, 1),
            unknowns=names,
            unknown_scale=ivp.unknown_scale[places],
        )
        inner = self._chosen(smaller, nodes, times)
        if isinstance(inner, RungeKuttaIntervals):
            return WidenedChain(inner, ivp.unknowns, places)
        return Widened(inner, ivp.unknowns, places)

    def _chosen(self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray) -> Intervals:
        pieces = cut(ivp, nodes, times)
        multistep = OneByOne(Sundials(self.rtol, self.atol, self.max_steps, self.largest))
        if ivp.y.numel():
            return multistep.prepare_intervals(ivp, pieces.nodes, pieces.times)
        fields = (self.rtol, self.atol, self.slack, self.max_steps, self.largest)
        compiled = RungeKutta(*fields).prepare_intervals(ivp, pieces.nodes, pieces.times)
        if isinstance(compiled, RungeKuttaIntervals):
            return compiled
        LOG.info("NumPy integrates: %s", compiled.reason)
        return Rescued(LockStepIntervals(ivp, pieces, LockStep(*fields)), multistep)


@dataclass(frozen=True)
class Widened(Intervals):
    """Intervals whose equations know some of the unknowns only; derivatives by the others are 0.

    Those are unknown start values: each interval has a start of its own.

    unknowns  names of all;  places (n,) of those that the `inner` intervals know
    """

    inner: Intervals
    unknowns: tuple[str, ...]
    places: IntArray

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        shots = self.inner.run(starts, self._narrow(q), derivatives=derivatives)
        if not derivatives:
            return shots
        return shots._replace(
            by_unknown=self._wide(shots.by_unknown, shots.ends),
            measured_by_unknown=self._wide(shots.measured_by_unknown, shots.measured),
        )

    def _narrow(self, q: FloatArray) -> FloatArray:
        if np.shape(q) != (len(self.unknowns),):
            raise ValueError(f"Expected one number for each of {self.unknowns}, got {q}.")
        return np.asarray(q)[self.places]

    def _wide(self, narrow: FloatArray, numbers: FloatArray) -> FloatArray:
        """All columns; 0, or NaN where the `numbers` whose derivatives they are, are none."""
        wide = np.zeros((*narrow.shape[:2], len(self.unknowns)))
        wide[np.isnan(numbers)] = np.nan
        wide[:, :, self.places] = narrow
        return wide


@dataclass(frozen=True)
class WidenedChain(Widened):
    """The same where few derivatives can go through all intervals."""

    inner: RungeKuttaIntervals

    def chained(
        self,
        starts: FloatArray,
        q: FloatArray,
        first: FloatArray,
        *,
        gaps: FloatArray | None = None,
        probed: bool = False,
    ) -> Along:
        """See `igpe.dynamics.integrators.intervals.Chaining`."""
        narrow = self._known(first, np.shape(starts)[1])
        return self.inner.chained(starts, self._narrow(q), narrow, gaps=gaps, probed=probed)

    def recorded(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Recorded:
        """See `igpe.dynamics.integrators.intervals.Sweeping`."""
        narrow = self._known(first, np.shape(starts)[1])
        return self.inner.recorded(starts, self._narrow(q), narrow)

    def swept(self, recorded: Recorded, weights: FloatArray) -> Swept:
        """See `igpe.dynamics.integrators.intervals.Sweeping`."""
        found = self.inner.swept(recorded, weights)
        by_unknown = np.zeros(len(self.unknowns))
        by_unknown[self.places] = found.by_unknown
        return found._replace(by_unknown=by_unknown)

    def _known(self, first: FloatArray, n_x: int) -> FloatArray:
        known = np.concatenate([np.arange(n_x), n_x + self.places])
        return np.asarray(np.asarray(first)[known])


@dataclass(frozen=True)
class Rescued(Intervals):
    """Intervals side by side; those that break down, again one by one; see `Intervals`."""

    first: LockStepIntervals
    second: OneByOne

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        shots = self.first.run(starts, q, derivatives=derivatives)
        for k in [k for k, status in enumerate(shots.status) if not status.usable]:
            again = self._alone(k).run(starts[k : k + 1], q, derivatives=derivatives)
            shots = _replaced(shots, again, k, self._rows(k))
        return shots

    def _rows(self, k: int) -> slice:
        rows = self.first.cut.rows
        return slice(int(rows[k]), int(rows[k + 1]))

    def _alone(self, k: int) -> Intervals:
        if k not in self._made:
            cut_ = self.first.cut
            nodes, times = cut_.nodes[k : k + 2], cut_.times[self._rows(k)]
            self._made[k] = self.second.prepare_intervals(self.first.ivp, nodes, times)
        return self._made[k]

    @cached_property
    def _made(self) -> dict[int, Intervals]:
        return {}


def _replaced(shots: Shots, again: Shots, k: int, rows: slice) -> Shots:
    """The shots with another try of interval k."""
    for whole, part in zip(shots[:3], again[:3], strict=True):
        np.asarray(whole)[k] = np.asarray(part)[0]
    for whole, part in zip(shots[3:6], again[3:6], strict=True):
        np.asarray(whole)[rows] = part
    status, reason = list(shots.status), list(shots.reason)
    status[k], reason[k] = again.status[0], again.reason[0]
    return shots._replace(status=tuple(status), reason=tuple(reason))
