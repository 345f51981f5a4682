"""Coarse bounds where polynomials have none: rates so fast, or so unknown, that no step is proved.

Let B be a box of states around those at t, and room > 0. If slopes on each face of B, and up to
`room` beyond it, do not point outward while the other states are within `room` of B, no solution
leaves B from t to t + h: what left it would have risen, just beyond a face, where slopes are not
positive. No Lipschitz constant is needed. B is a little larger than the states' bounds and 0, as
slopes at 0 that are 0 cannot be told from others in rounded arithmetic.

Let then L be a level below the upper end of a state in B. If its slope on [L, end] is at most
-(end - L) / h, the state is at most L at t + h: it falls as long as it is above L, fast enough, and
cannot rise again. Levels above the lower end likewise.
"""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from igpe.arrays import BoolArray, FloatArray
from igpe.replay.course import Course
from igpe.replay.interval import Interval, outward, point

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
        self.known: BoolArray = np.stack([np.isfinite(v.size) for v in self.x]).all(axis=0)

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

        stays = self.known.copy()
        for i, (inner, outer) in enumerate(zip(box, wide, strict=True)):
            stays &= slope(i, wide, inner.high, outer.high).high <= 0
            stays &= slope(i, wide, outer.low, inner.low).low >= 0
        self.known = stays
        length = point(np.array([b])) - point(np.array([a]))
        self.x = [
            _after(now, box[i], partial(slope, i, box), length) for i, now in enumerate(self.x)
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
