"""How far a likelihood region reaches along each unknown, by points on its edge.

The point with the largest (least) value of one unknown, the sum of squares being at most a level,
comes from residuals that are linearised again and again (Venzon & Moolgavkar, Appl. Statist. 37
(1988) 87, with Gauss-Newton's curvature). No proof hangs on it: the search of the tree meets what
it misses, and the points are proved to lie in the region afterwards.
"""

from dataclasses import dataclass, field

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.deadline import require_going_on
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.posed import Dynamic

ORDER, STEPS = 12, 20_000  # in time, and steps at most, of a point's integration
APART = 1e-7  # of an unknown: radius of the box that stands for a point
NEAR_ZERO = 1e-3  # of an unknown's range: smaller values are as large as that
FARTHEST = 2.0  # a step, relative to the unknown
MOST_STEPS, MOST_HALVINGS = 30, 6
RANK = 1e-9  # smaller singular values, relative to the largest, count as large as that
FAR_ABOVE = 3.0  # rises that a step may lead above the level


@dataclass(frozen=True)
class RegionPoint:
    """Parameters x (n,), residuals (m,) and their derivative (m, n) there, in plain doubles."""

    x: FloatArray
    residual: FloatArray
    jacobian: FloatArray

    @property
    def cost(self) -> float:
        """Sum of squares."""
        return float(self.residual @ self.residual)


@dataclass
class Extents:
    """Points on the edge of the region of a problem.

    level   that the sum of squares reaches there;  rise: of it from the optimum
    digits  how near a point must be to the edge, as a share of the region's width
    """

    dynamic: Dynamic
    level: float
    rise: float
    digits: float
    _enclosure: BoxEnclosure = field(init=False)

    def __post_init__(self) -> None:
        self._enclosure = BoxEnclosure(self.dynamic, 1, ORDER, tolerance=0.0, directions=1)
        lower, upper = self.dynamic.lower, self.dynamic.upper
        self.range = np.where(upper > lower, upper - lower, 1.0)

    def at(self, x: FloatArray) -> RegionPoint | None:
        """Residuals and derivative at a point; None if the model cannot be integrated there."""
        require_going_on()
        given, n = self.dynamic, len(x)
        size = np.maximum(np.abs(x), NEAR_ZERO * self.range)
        low, high = x - APART * size, x + APART * size
        low, high = np.maximum(low, given.lower), np.minimum(high, given.upper)
        found = self._enclosure.examine(low, high, np.inf, with_tube=False, most=STEPS)
        radius = 0.5 * (high - low)
        rows = self._enclosure.rows.c
        jacobian = rows[:, 1 : 1 + n] / np.where(radius > 0, radius, 1.0)
        known = found.rows == self._enclosure.size
        if not (known and np.isfinite(rows[:, 0]).all() and np.isfinite(jacobian).all()):
            return None
        shift = x - 0.5 * (low + high)
        return RegionPoint(x, rows[:, 0] + jacobian @ shift, jacobian)

    def optimum(self, start: RegionPoint) -> RegionPoint:
        """The least sum of squares near a point, by Gauss-Newton with halved steps."""
        point = start
        for _ in range(MOST_STEPS):
            step = self._step(point, None, 1.0)
            gain = point.cost - float(np.sum((point.residual + point.jacobian @ step) ** 2))
            trial = self._tried(point, step, point.cost) if gain > 1e-4 * self.rise else None
            if trial is None or not trial.cost < point.cost:
                break
            point = trial
        return point

    def edge(self, start: RegionPoint, axis: int, sign: float, width: float) -> list[RegionPoint]:
        """Points of the region that lie further and further along an axis from the start.

        width  of the region along the axis, where it is known; else 0
        """
        point, inside = start, [start] if start.cost <= self.level else []
        allowed = self.level + FAR_ABOVE * self.rise
        for _ in range(MOST_STEPS):
            step = self._step(point, axis, sign)
            size = abs(point.x[axis] - start.x[axis]) + width
            ahead = sign * step[axis]
            if point.cost <= self.level and ahead <= self.digits * size:
                break
            trial = self._tried(point, step, max(allowed, point.cost))
            if trial is None:
                break
            still = np.abs(trial.x - point.x).max(initial=0.0) <= 0
            point = trial
            best = sign * inside[-1].x[axis] if inside else -np.inf
            if point.cost <= self.level and sign * point.x[axis] > best:
                inside.append(point)
            if still:
                break
        return inside

    def _tried(self, point: RegionPoint, step: FloatArray, most: float) -> RegionPoint | None:
        """The point after a step, halved until the sum of squares is at most `most`."""
        limit = FARTHEST * np.maximum(np.abs(point.x), NEAR_ZERO * self.range)
        share = np.max(np.abs(step) / limit, initial=1.0)
        for k in range(MOST_HALVINGS):
            x = np.clip(point.x + step / share * 0.5**k, self.dynamic.lower, self.dynamic.upper)
            trial = self.at(x)
            if trial is not None and trial.cost <= most:
                return trial
        return None

    def _step(self, point: RegionPoint, axis: int | None, sign: float) -> FloatArray:
        """To the edge of the linearised region along an axis; to its optimum without one.

        What would leave the bounds is held there, and the rest follows.
        """
        n = len(point.x)
        low, high = self.dynamic.lower - point.x, self.dynamic.upper - point.x
        step, free = np.zeros(n), high > low
        for _ in range(n + 1):
            if not free.any():
                break
            step[free] = self._free_step(point, step, free, axis, sign)
            beyond = free & ((step < low) | (step > high))
            if not beyond.any():
                break
            if axis is not None and beyond[axis]:  # the others may come to other places then
                beyond = np.arange(n) == axis
            step[beyond] = np.clip(step, low, high)[beyond]
            free = free & ~beyond
        return np.clip(step, low, high)

    def _free_step(
        self, point: RegionPoint, held: FloatArray, free: BoolArray, axis: int | None, sign: float
    ) -> FloatArray:
        r = point.residual + point.jacobian[:, ~free] @ held[~free]
        j = point.jacobian[:, free]
        scale = np.linalg.norm(j, axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        short = max(j.shape[1] - len(j), 0)  # rows of zeros: no direction is left out
        j, r = np.pad(j / scale, ((0, short), (0, 0))), np.pad(r, (0, short))
        u, s, v = np.linalg.svd(j, full_matrices=False)
        s = np.maximum(s, RANK * s.max(initial=1e-300))
        along = u.T @ r
        z = -(v.T / s) @ along
        if axis is not None and free[axis]:
            room = self.level - float(r @ r - along @ along)
            k = int(np.count_nonzero(free[:axis]))
            w = (v.T / s**2) @ v[:, k]
            if room > 0 and w[k] > 0:
                z = z + sign * np.sqrt(room / w[k]) * w
        return np.asarray(z / scale)
