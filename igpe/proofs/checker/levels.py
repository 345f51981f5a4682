"""Coarse bounds where polynomials have none: rates too fast, or too unknown, for any step.

Let B be a box of states around those at t, and W a box around B. If, between a face of B and that
of W, a state moves outward by less than their distance during a step, whatever the others in W are,
no solution leaves W from t to t + h: what left it would have come from that face of B. No Lipschitz
constant is needed. B holds 0 and is a little larger than the bounds, so that rates of x' = -r x
push back from its faces however large r is.

Let then L be a level in W below the upper end of a state. If its slope on [L, end] is at most
-(end - L) / h, the state is at most L at t + h: it falls as long as it is above L, fast enough, and
cannot rise again. Levels above the lower end likewise.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.proofs.checker.course import Course
from igpe.proofs.checker.interval import Interval, outward, point

PARTS = 4  # steps from one time to the next
SHARES = (0.75, 0.5, 0.25, 2.0**-4, 2.0**-8, 2.0**-16, 2.0**-30)  # of a range: levels to be tried
ROOM, LEAST = 1e-9, 1e-100  # relative to the size of a state; of one that is 0


class Levels:
    """Bounds of the states of many boxes of parameters, from one time to the next.

    p      ranges of the parameters, each (n_boxes,)
    x      ranges of the states, now
    known  (n_boxes,) where they hold
    """

    def __init__(self, course: Course, p: Sequence[Interval], boxes: int) -> None:
        self.course, self.p = course, p
        with np.errstate(all="ignore"):
            x = course.start([p], point)
            self.x = [v + point(np.zeros(boxes)) for v in x]
        finite = [np.isfinite(v.size) for v in self.x]
        self.known: BoolArray = np.asarray(np.all(finite, axis=0))

    def advance(self, k: int, begin: float) -> None:
        """To the course's time k; `begin` is the one before."""
        edges = np.linspace(begin, self.course.times[k], PARTS + 1)
        for a, b in pairwise(edges):
            if b > a and self.known.any():
                with np.errstate(all="ignore"):
                    self._step(k, float(a), float(b))

    def measured(self, k: int) -> list[Interval]:
        """Ranges of the measured quantities at the course's time k."""
        time = point(float(self.course.times[k]))
        return self.course.measured([[time], self.x, self.p, self._inputs(k, time)], point)

    def _inputs(self, k: int, time: Interval) -> list[Interval]:
        return [line.of(np.array([k])).between(time) for line in self.course.inputs]

    def _step(self, k: int, a: float, b: float) -> None:
        time = Interval(np.array([a]), np.array([b]))
        inputs = self._inputs(k, time)
        hull = [Interval(np.minimum(v.low, 0.0), np.maximum(v.high, 0.0)) for v in self.x]
        box, wide = ([_wider(v, share) for v in hull] for share in (0.5, 1.0))

        def slope(i: int, others: list[Interval], low: FloatArray, high: FloatArray) -> Interval:
            x = [*others[:i], Interval(low, high), *others[i + 1 :]]
            return self.course.slopes([[time], x, self.p, inputs], point)[i]

        length = point(np.array([b])) - point(np.array([a]))
        stays = self.known.copy()
        for i, (inner, outer) in enumerate(zip(box, wide, strict=True)):
            rise = slope(i, wide, inner.high, outer.high) * length
            fall = slope(i, wide, outer.low, inner.low) * length
            stays &= rise.high < 0.9 * (outer.high - inner.high)
            stays &= fall.low > -0.9 * (inner.low - outer.low)
        self.known = stays
        self.x = [
            _after(now, wide[i], partial(slope, i, wide), length) for i, now in enumerate(self.x)
        ]


def _wider(x: Interval, share: float) -> Interval:
    room = share * (ROOM * x.size + LEAST)
    return outward(x.low - room, x.high + room)


def _after(
    now: Interval,
    box: Interval,
    slope: Callable[[FloatArray, FloatArray], Interval],
    length: Interval,
) -> Interval:
    """Where a state is after a step that it begins in `now` and spends in `box`."""
    moved = now + slope(box.low, box.high) * length
    low, high = np.maximum(box.low, moved.low), np.minimum(box.high, moved.high)
    for share in SHARES:
        level = box.low + share * (now.high - box.low)
        falls = (slope(level, now.high) * length).high <= (point(level) - point(now.high)).low
        high = np.where(falls & (level <= now.high), np.minimum(high, level), high)
        level = box.high - share * (box.high - now.low)
        rises = (slope(now.low, level) * length).low >= (point(level) - point(now.low)).high
        low = np.where(rises & (level >= now.low), np.maximum(low, level), low)
    return Interval(low, high)
