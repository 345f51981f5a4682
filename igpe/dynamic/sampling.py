"""Whether measurements are dense enough for the model they are fitted with.

A model that oscillates between two measurements looks at them like a slower one: Lotka-Volterra
with all rates 18.6 times as large goes through the same points at equally spaced times, with the
same sum of squares. Its states then go a way between measurements that is many times as long as
what they change from one to the next,

    sum of (|dx/dt(t_k-1)| + |dx/dt(t_k)|) / 2 (t_k - t_k-1)  >>  sum of |x(t_k) - x(t_k-1)| .
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from igpe.arrays import FloatArray
from igpe.dynamic.residuals import Run

TOLD = (
    "The model oscillates between the measurements; a slower one that fits as well may exist, but "
    "was not found. Measure more often."
)
LONGER = 3.0  # with two measurements in each turn, the slowest double is three times as fast


class Sampling:
    """The slopes of one experiment's model where it was measured."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def _slopes(self) -> Any:
        ivp = self.run.ivp
        return ca.Function("slopes", [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], [ca.densify(ivp.f)])

    def too_sparse(self, unknowns: FloatArray) -> bool:
        """Whether at the problem's unknowns (n,) every state oscillates between measurements."""
        ivp, q = self.run.ivp, unknowns[self.run.index]
        found = self.run.simulation.run(q)
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


def too_sparse(samplings: Sequence[Sampling], unknowns: FloatArray) -> bool:
    """Whether no experiment is measured densely enough to tell the model from a slower one."""
    return all(s.too_sparse(unknowns) for s in samplings)
