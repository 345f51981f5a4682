"""Whether measurements are dense enough for the model they are fitted with.

A model that oscillates between two measurements looks at them like a slower one: Lotka-Volterra
with all rates 18.6 times as large goes through the same points at equally spaced times, with the
same sum of squares. Its states then go a way between measurements that is many times as long as
what they change from one to the next,

    sum of (|dx/dt(t_k-1)| + |dx/dt(t_k)|) / 2 (t_k - t_k-1)  >>  sum of |x(t_k) - x(t_k-1)| .

That costs next to nothing, but a decay sampled for minutes and once the next morning looks the same
to it. So it only raises the question; the answer is how often what is measured turns between
neighbouring measurements, on a dense grid.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.integrators.base import Simulation
from igpe.dynamics.shooting.residuals import Run

TOLD = (
    "The model oscillates between the measurements; a slower one that fits as well may exist, but "
    "was not found. Measure more often."
)
LONGER = 3.0  # with two measurements in each turn, the slowest double is three times as fast
DENSE, MOST = 24, 4000  # times between two measurements; in all, about
TURNS = 2  # between two neighbouring measurements, in most gaps: the slowest double has so many
GOLDEN = 0.6180339887498949  # shares of a gap that fall in no rhythm
STILL = 1e-3  # of the range of a curve: what is no turn


class Sampling:
    """The slopes of one experiment's model where it was measured."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def _slopes(self) -> Any:
        ivp = self.run.ivp
        return ca.Function("slopes", [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], [ca.densify(ivp.f)])

    def too_sparse(self, unknowns: FloatArray) -> bool:
        """Whether at the problem's unknowns (n,) all that is measured oscillates in between."""
        q = unknowns[self.run.index]
        return self._suspect(q) and self._turning(q)

    def _suspect(self, q: FloatArray) -> bool:
        """Whether every state's slopes are too steep for what it changes."""
        ivp, found = self.run.ivp, self.run.simulation.run(q)
        if not found.status.usable or len(found.times) == 1:
            return False
        segments = [ivp.input_segment(t) for t in found.times]
        u = np.array([a + b * t for t, (a, b) in zip(found.times, segments, strict=True)])
        x, y = found.states, found.implicit
        told = self._slopes(found.times[None], x.T, y.T, u.T, np.tile(q[:, None], len(x)))
        speed, gaps = np.abs(np.asarray(told)).T, np.diff(found.times)
        way = (gaps[:, None] * (speed[1:] + speed[:-1]) / 2).sum(axis=0)
        change = np.abs(np.diff(x, axis=0)).sum(axis=0)
        moving = change > 0
        return bool(moving.any() and (way[moving] > LONGER * change[moving]).all())

    @cached_property
    def _dense(self) -> tuple[FloatArray, Simulation]:
        """Times between the measurements, at uneven distances, and the run at them."""
        times = self.run.measurements.times
        count = max(4, min(DENSE, MOST // len(times)))
        parts = np.sort(np.arange(count) * GOLDEN % 1)  # 0 first
        grid = (times[:-1, None] + np.diff(times)[:, None] * parts).ravel()
        grid = np.append(grid, times[-1])
        return grid, self.run.integrator.prepare(self.run.ivp, grid, sensitivities=True)

    def _turning(self, q: FloatArray) -> bool:
        """Whether every measured curve that moves turns often between most measurements."""
        grid, simulation = self._dense
        found = simulation.run(q)
        if not found.status.usable:
            return False
        gap = np.searchsorted(self.run.measurements.times, grid[:-1], side="right") - 1
        moving = np.ptp(found.measured, axis=0) > 0
        counts = [_turns(curve, gap) for curve in found.measured.T[moving]]
        return bool(counts) and all(float(np.median(c)) >= TURNS for c in counts)


def _turns(curve: FloatArray, gap: IntArray) -> IntArray:
    """(n_gaps,) how often a curve (n,) turns in each; gap (n - 1,) is where each change lies."""
    change = np.diff(curve)
    moves = np.abs(change) > STILL * np.ptp(curve)
    up, where = change[moves] > 0, gap[moves]
    turned = (up[1:] != up[:-1]) & (where[1:] == where[:-1])
    return np.bincount(where[1:][turned], minlength=int(gap[-1]) + 1)


def too_sparse(samplings: Sequence[Sampling], unknowns: FloatArray) -> bool:
    """Whether no experiment is measured densely enough to tell the model from a slower one."""
    return all(s.too_sparse(unknowns) for s in samplings)
