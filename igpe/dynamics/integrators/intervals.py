"""All intervals of a multiple shooting at once: their ends, what is measured, all derivatives.

Interval k runs from nodes[k] to nodes[k+1] and begins at states of its own, whatever the interval
before ended at (Peifer & Timmer 2007, section 2.2; their equation 8 for the derivatives).
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator, Simulation, Trajectory
from igpe.equations.initial_value import InitialValueProblem


class Shots(NamedTuple):
    """What came of K intervals; all of an interval that broke down is NaN.

    ends                 (K, n_x) states at its end
    by_start             (K, n_x, n_x) d end / d start; empty (K, n_x, 0) without derivatives
    by_unknown           (K, n_x, n_q) d end / d unknown; likewise
    measured             (n_times, n_h) each time in the interval that begins at or before it, the
                         last node's in the last interval
    measured_by_start    (n_times, n_h, n_x) d measured / d start of that interval
    measured_by_unknown  (n_times, n_h, n_q)
    status               (K,) CONVERGED, INTEGRATION_BROKE or NO_SOLVER
    reason               (K,) sentences; empty where nothing broke down
    """

    ends: FloatArray
    by_start: FloatArray
    by_unknown: FloatArray
    measured: FloatArray
    measured_by_start: FloatArray
    measured_by_unknown: FloatArray
    status: tuple[Status, ...]
    reason: tuple[str, ...]


@dataclass(frozen=True)
class Along:
    """What came of K intervals along some directions of (start, q).

    ends         (K, n_x);  ends_by (K, n_x, n_d) their derivatives
    measured     (n_times, n_h);  measured_by (n_times, n_h, n_d)
    steps        (K, 2) explicit and implicit steps that were taken
    status, reason   (K,) as in `Shots`
    """

    ends: FloatArray
    ends_by: FloatArray
    measured: FloatArray
    measured_by: FloatArray
    steps: IntArray
    status: tuple[Status, ...]
    reason: tuple[str, ...]

    def shots(self, n_x: int) -> Shots:
        """Directions that are the unit vectors of start (n_x) and q, by name; all are views."""
        ends_by, by = self.ends_by, self.measured_by
        return Shots(
            self.ends,
            ends_by[:, :, :n_x],
            ends_by[:, :, n_x:],
            self.measured,
            by[:, :, :n_x],
            by[:, :, n_x:],
            self.status,
            self.reason,
        )


class Recorded(NamedTuple):
    """A run of all intervals with what a sweep back through its steps wants.

    along  see `Chaining.chained`, probed;  q (n_q,) the unknowns
    tape   the steps, as the integrator keeps them
    """

    along: Along
    q: FloatArray
    tape: Any


class Swept(NamedTuple):
    """Derivatives of a weighted sum of all that was told, through all intervals.

    by_node     (K, n_x) by the state each interval begins at, the later ones moving with it
    by_unknown  (n_q,) by the unknowns, all nodes but the first moving with them
    """

    by_node: FloatArray
    by_unknown: FloatArray


class Intervals(Protocol):
    """The intervals of one initial value problem, made ready for many starts and unknowns.

    It remembers nothing: the same arguments give the same bits, whatever ran before. It belongs to
    one thread, as it works in memory of its own.
    """

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """Integrate each interval from its start.

        starts  (K, n_x) differential states at nodes[:-1]
        q       (n_q,) unknowns, in the order of the problem's names
        """
        ...


class Chaining(Protocol):
    """Intervals that can be asked for few derivatives that go through all of them."""

    def chained(
        self,
        starts: FloatArray,
        q: FloatArray,
        first: FloatArray,
        *,
        gaps: FloatArray | None = None,
        probed: bool = False,
    ) -> Along:
        """Derivatives along directions that go through all intervals (Schloeder's trick).

        Those of an interval begin where those of the one before ended, and the last takes up the
        gaps between them: ds[k+1] = X[k] ds[k] + P[k] dq + gap[k+1] (Houska et al., equations 7 to
        10). With columns for what is free of (start, q) and a last one of zeros this is the
        condensed problem, without the n_x + n_q derivatives of each interval. What follows a broken
        interval is broken too.

        first   (n_x + n_q, n_d) the changes of the first start and of q, in columns
        gaps    (K, n_x) before each interval, the first not being used; by default those that there
                are, end[k] - start[k+1]
        probed  whether step control looks, beside the states, at one direction of its own, a change
                of all there is, in place of the given ones. Then steps depend on starts and q
                alone: what came of two calls is derivatives of the very same steps
        """
        ...


class Sweeping(Chaining, Protocol):
    """Intervals that can be asked for the gradient of a weighted sum of what is told as well."""

    def recorded(self, starts: FloatArray, q: FloatArray, first: FloatArray) -> Recorded:
        """`chained`, with a probe, and a record of its steps."""
        ...

    def swept(self, recorded: Recorded, weights: FloatArray) -> Swept:
        """One sweep back through a run in which no interval broke down (backward lifting).

        What comes is what `chained` would give times the weights, to rounding, at a cost that does
        not grow with the number of unknowns: sigma[k] = sigma[k+1] X[k] + mu[k], and the sum of
        sigma[k+1] P[k] (Houska et al., section 4.2). NaN where a matrix is singular.

        weights  (n_times, n_h) of what is told; what counts 0 may be no number
        """
        ...


class IntervalIntegrator(Protocol):
    """Solves initial value problems on many intervals, with their variational equations."""

    def prepare_intervals(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> Intervals:
        """Make ready.

        nodes  (K + 1,) increasing; the first is the problem's start, the last its end
        times  (n_times,) increasing, within the nodes: where measured quantities are reported
        """
        ...


def interval_of(nodes: FloatArray, times: FloatArray) -> IntArray:
    """(n_times,) the interval that each time belongs to."""
    found = np.searchsorted(nodes, times, side="right") - 1
    return np.minimum(found, len(nodes) - 2).astype(np.intp)


@dataclass(frozen=True)
class OneByOne:
    """Any integrator, on one interval after the other: right for all problems, and slow."""

    integrator: Integrator = Automatic()

    def prepare_intervals(
        self, ivp: InitialValueProblem, nodes: FloatArray, times: FloatArray
    ) -> "OneByOneIntervals":
        """See `IntervalIntegrator`."""
        grid, ends = np.array(times, dtype=float), np.array(nodes, dtype=float)
        return OneByOneIntervals(ivp, ends, grid, self.integrator)


@dataclass(frozen=True)
class OneByOneIntervals:
    """See `Intervals`; each interval is an initial value problem whose start is unknown."""

    ivp: InitialValueProblem
    nodes: FloatArray
    times: FloatArray
    integrator: Integrator

    def run(self, starts: FloatArray, q: FloatArray, *, derivatives: bool = True) -> Shots:
        """See `Intervals`."""
        runs = self._with_derivatives if derivatives else self._without
        ran = [s.run(np.concatenate([x, q])) for s, x in zip(runs, starts, strict=True)]
        return self._gathered(ran)

    def _gathered(self, ran: list[Trajectory]) -> Shots:
        n_x, width = ran[0].by_unknown.shape[1:]
        n_k, n_t, n_h = len(ran), len(self.times), self.ivp.measured.numel()
        n_s = min(n_x, width)  # 0 without derivatives
        ends, by = np.full((n_k, n_x), np.nan), np.full((n_k, n_x, width), np.nan)
        measured = np.full((n_t, n_h), np.nan)
        measured_by = np.full((n_t, n_h, width), np.nan)
        for k, (run, rows) in enumerate(zip(ran, self._rows, strict=True)):
            if run.status.usable:
                ends[k], by[k] = run.states[-1], run.by_unknown[-1]
                places = np.searchsorted(run.times, self.times[rows])
                measured[rows] = run.measured[places]
                measured_by[rows] = run.measured_by_unknown[places]
        return Shots(
            ends,
            by[:, :, :n_s],
            by[:, :, n_s:],
            measured,
            measured_by[:, :, :n_s],
            measured_by[:, :, n_s:],
            tuple(run.status for run in ran),
            tuple(run.reason for run in ran),
        )

    @cached_property
    def _rows(self) -> list[IntArray]:
        """Which of the times belong to each interval."""
        owner = interval_of(self.nodes, self.times)
        return [np.flatnonzero(owner == k) for k in range(len(self.nodes) - 1)]

    @cached_property
    def _with_derivatives(self) -> list[Simulation]:
        return self._prepared(sensitivities=True)

    @cached_property
    def _without(self) -> list[Simulation]:
        return self._prepared(sensitivities=False)

    def _prepared(self, *, sensitivities: bool) -> list[Simulation]:
        ivp, found = started_anywhere(self.ivp), []
        for k, rows in enumerate(self._rows):
            here = replace(ivp, t0=float(self.nodes[k]))
            grid = np.union1d(self.times[rows], self.nodes[k + 1])
            found.append(self.integrator.prepare(here, grid, sensitivities=sensitivities))
        return found


def started_anywhere(ivp: InitialValueProblem) -> InitialValueProblem:
    """The same equations with unknowns [start of each state, q]."""
    start = ca.SX.sym("s", ivp.x.numel())
    names = tuple(f"start of {n}" for n in ivp.states)
    unknowns = (*names, *ivp.unknowns)
    return replace(
        ivp,
        unknowns=unknowns,
        q=ca.vertcat(start, ivp.q),
        start=start,
        unknown_scale=np.concatenate([ivp.scale, ivp.unknown_scale]),
    )
