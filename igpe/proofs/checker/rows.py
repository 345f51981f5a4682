"""Residuals of many boxes as polynomials in the offsets, from validated integration.

Where rates are too fast, or too unknown, for any step, coarse bounds replace them (`StateBounds`).
Let B be a box of states around those at t, and W a box around B. If, between a face of B and that
of W, a state moves outward by less than their distance during a step, whatever the others in W are,
no solution leaves W from t to t + h: what left it would have come from that face of B. No Lipschitz
constant is needed. B holds 0 and is a little larger than the bounds, so that rates of x' = -r x
push back from its faces however large r is.

Let then L be a level in W below the upper end of a state. If its slope on [L, end] is at most
-(end - L) / h, the state is at most L at t + h: it falls as long as it is above L, fast enough, and
cannot rise again. Levels above the lower end likewise.

The error of the states is carried from step to step so that it does not wrap. At the end of a step
the states are P(delta) + A z + eps, |z| <= 1, |eps| <= e. They are enclosed in P(delta) + C z',
|z'| <= 1, where the columns of C are nearly orthogonal, the longest column of A leading (Lohner's
QR method). Q is any matrix nearly orthogonal: with eta >= ||I - Q'Q||,

    |Q^-1 w|_i <= |Q'w|_i + eta / (1 - eta) max_j |Q'w|_j,

so Q diag(y) contains A z + eps where y bounds that; what rounding of C = Q diag(y) moves is added
to y as well (by Brouwer's theorem twice its first effect is enough).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.proofs.checker.experiments import Replay
from igpe.proofs.checker.interval import UNIT, Interval, above, down, outward, point, up
from igpe.proofs.checker.polynomial import Polynomial, TaylorSpace, constants
from igpe.proofs.checker.step import LEAST, StepBounds, validated_step

PARTS = 4  # steps from one time to the next
SHARES = (0.75, 0.5, 0.25, 2.0**-4, 2.0**-8, 2.0**-16, 2.0**-30)  # of a range: levels to be tried
ROOM, LEAST_STEP = 1e-9, 1e-100  # relative to the size of a state; of one that is 0


class StateBounds:
    """Bounds of the states of many boxes of parameters, from one time to the next.

    p      ranges of the parameters, each (n_boxes,)
    x      ranges of the states, now
    known  (n_boxes,) where they hold
    """

    def __init__(self, experiment: Replay, p: Sequence[Interval], boxes: int) -> None:
        self.experiment, self.p = experiment, p
        with np.errstate(all="ignore"):
            self.x = [v + point(np.zeros(boxes)) for v in experiment.start([p], point)]
        self.known: BoolArray = np.asarray(np.all([np.isfinite(v.size) for v in self.x], axis=0))

    def advance(self, k: int, begin: float) -> None:
        """Advance to the experiment's time k; `begin` is the one before."""
        for a, b in pairwise(np.linspace(begin, self.experiment.times[k], PARTS + 1)):
            if b > a and self.known.any():
                with np.errstate(all="ignore"):
                    self._step(k, float(a), float(b))

    def measured(self, k: int) -> list[Interval]:
        """Ranges of the measured quantities at the experiment's time k."""
        time = point(float(self.experiment.times[k]))
        return self.experiment.measured([[time], self.x, self.p, self._inputs(k, time)], point)

    def _inputs(self, k: int, time: Interval) -> list[Interval]:
        return [line.of(np.array([k])).between(time) for line in self.experiment.inputs]

    def _step(self, k: int, a: float, b: float) -> None:
        time = Interval(np.array([a]), np.array([b]))
        length = point(time.high) - point(time.low)
        inputs = self._inputs(k, time)
        hull = [Interval(np.minimum(v.low, 0.0), np.maximum(v.high, 0.0)) for v in self.x]
        box, wide = ([_wider(v, share) for v in hull] for share in (0.5, 1.0))

        def change(i: int, low: FloatArray, high: FloatArray) -> Interval:
            """Slope of state i in [low, high], the others anywhere in `wide`, times the step."""
            x = [*wide[:i], Interval(low, high), *wide[i + 1 :]]
            return self.experiment.slopes([[time], x, self.p, inputs], point)[i] * length

        stays, after = self.known.copy(), []
        for i, (now, inner, outer) in enumerate(zip(self.x, box, wide, strict=True)):
            stays &= change(i, inner.high, outer.high).high < 0.9 * (outer.high - inner.high)
            stays &= change(i, outer.low, inner.low).low > -0.9 * (inner.low - outer.low)
            moved = now + change(i, outer.low, outer.high)
            low, high = np.maximum(outer.low, moved.low), np.minimum(outer.high, moved.high)
            for share in SHARES:
                level = outer.low + share * (now.high - outer.low)
                falls = change(i, level, now.high).high <= (point(level) - point(now.high)).low
                high = np.where(falls & (level <= now.high), np.minimum(high, level), high)
                level = outer.high - share * (outer.high - now.low)
                rises = change(i, now.low, level).low >= (point(level) - point(now.low)).high
                low = np.where(rises & (level >= now.low), np.maximum(low, level), low)
            after.append(Interval(low, high))
        self.x, self.known = after, stays


def _wider(x: Interval, share: float) -> Interval:
    room = share * (ROOM * x.size + LEAST_STEP)
    return outward(x.low - room, x.high + room)


NEARLY = 1e-3  # a matrix further from orthogonal is not used


def reset(a: FloatArray, e: FloatArray) -> FloatArray:
    """C (n, n, n_boxes) for A (n, n, n_boxes) and e (n, n_boxes); nan where none was found."""
    n = len(e)
    good = np.isfinite(a).all(axis=(0, 1)) & np.isfinite(e).all(axis=0)
    matrix, error = np.where(good, a, 0.0).transpose(2, 0, 1), np.where(good, e, 0.0).T
    lengths = (matrix**2).sum(axis=1)
    order = np.argsort(-lengths, axis=1)[:, None]  # the longest column's direction first
    tiny = (lengths.max(axis=1) <= (error**2).max(axis=1))[:, None, None]
    q = np.linalg.qr(np.where(tiny, np.eye(n), np.take_along_axis(matrix, order, axis=2)))[0]
    turned, sizes = q.transpose(0, 2, 1) @ matrix, np.abs(q).transpose(0, 2, 1)
    slack = 2 * n * UNIT
    y = np.abs(turned).sum(axis=2) + slack * (sizes @ np.abs(matrix)).sum(axis=2)
    y = up(y + (sizes @ error[:, :, None])[:, :, 0])
    gram = np.eye(n) - q.transpose(0, 2, 1) @ q
    eta = up(np.abs(gram).sum(axis=2).max(axis=1) + 4 * n * n * UNIT)
    beyond = up(eta / (1 - eta))[:, None]
    y = up(y + beyond * y.max(axis=1, keepdims=True))
    moved = (np.abs(q) @ y[:, :, None]) * 4 * UNIT
    back = (sizes @ moved)[:, :, 0]
    y = up(y + back + 2 * beyond * back.max(axis=1, keepdims=True))
    c = (q * y[:, None, :]).transpose(1, 2, 0)
    return np.asarray(np.where(good & (eta < NEARLY), c, np.nan))


TOO_LONG = 0.7  # a step is tried again where it should have been so much shorter
PATIENCE = 30  # steps after which a box that is too slow is given up, and
PACE = 0.1  # the share of the way to its next time that all steps left would come at least
VAGUE = 1e3  # errors from which a box is given up, times what residuals below the cut can be


@dataclass(frozen=True)
class Boxes:
    """Boxes of parameters, center + half * delta; contain [low, high] they were made of.

    center, half  (n_parameters, n_boxes)
    """

    center: FloatArray
    half: FloatArray

    @classmethod
    def around(cls, low: FloatArray, high: FloatArray) -> "Boxes":
        """Smallest ones, up to rounding outward."""
        center = np.clip(low / 2 + high / 2, low, high)
        half = above(np.maximum(high - center, center - low))
        return cls(center, np.where(low == high, 0.0, half))

    def __len__(self) -> int:
        return int(self.center.shape[1])

    def __getitem__(self, index: IntArray | BoolArray) -> "Boxes":
        return Boxes(self.center[:, index], self.half[:, index])


@dataclass(frozen=True)
class BoxRows:
    """Residuals r of many boxes: r in c_0 + c_i delta_i + c_ij delta_i delta_j +- e.

    c  (1 + n + n (n + 1) / 2, n_rows, n_boxes)
    e  (n_rows, n_boxes), infinite where nothing is known
    sum     (n_boxes,) lower bound of the sum of their squares on the whole box
    spread  (n, n_boxes) how far each parameter moved the states at last; a hint
    """

    c: FloatArray
    e: FloatArray
    sum: FloatArray
    spread: FloatArray

    def __getitem__(self, index: IntArray | BoolArray) -> "BoxRows":
        return BoxRows(*(getattr(self, f.name)[..., index] for f in fields(self)))


@dataclass(frozen=True)
class Effort:
    """Effort of the integration; only how much is confirmed depends on it, never whether.

    order      of a step in time
    growth     h ||J|| of a step is about that at most: long steps add up alternating series
    precision  what a step may lose, relative to how much the box spreads the states
    absolute   and relative to the states themselves
    most       steps for a box, tried ones included
    end        `time.monotonic()` from which every box is given up
    """

    order: int = 6
    growth: float = 0.7
    precision: float = 1e-5
    absolute: float = 1e-14
    most: int = 600
    end: float = np.inf


def residuals(
    experiment: Replay, boxes: Boxes, effort: Effort, cut: float, known: FloatArray
) -> BoxRows:
    """Rows of one experiment.

    known  (n_boxes,) lower bound of other rows; where the sum exceeds `cut` integration stops
    """
    integration = _Integration(experiment, boxes, effort, cut, known)
    rows = integration.rows
    integration.record_reached()
    while len(integration.active):
        integration.advance()
        integration.record_reached()
    lost = np.isinf(rows.e).any(axis=0) & (rows.sum + known <= cut)
    if lost.any():
        _coarse(experiment, boxes, rows, np.flatnonzero(lost))
    return rows


def _coarse(experiment: Replay, boxes: Boxes, rows: BoxRows, at: IntArray) -> None:
    """Rows without a polynomial become numbers with errors, where `StateBounds` bound them."""
    pairs = zip(boxes.center[:, at], boxes.half[:, at], strict=True)
    levels = StateBounds(experiment, [outward(c - h, c + h) for c, h in pairs], len(at))
    row = 0
    for k, begin in enumerate([experiment.t0, *experiment.times[:-1]]):
        levels.advance(k, begin)
        if not levels.known.any():
            break
        with np.errstate(all="ignore"):
            outputs = levels.measured(k)
            for column, y, sigma in zip(*experiment.rows[k], strict=True):
                r = (outputs[column] - point(float(y))) / point(float(sigma))
                r = Interval(r.low + np.zeros(len(at)), r.high + np.zeros(len(at)))
                fresh = levels.known & np.isinf(rows.e[row, at]) & np.isfinite(r.radius)
                here = at[fresh & np.isfinite(r.middle)]
                one = Interval(*(v[fresh & np.isfinite(r.middle)] for v in (r.low, r.high)))
                rows.c[:, row, here] = 0.0
                rows.c[0, row, here], rows.e[row, here] = one.middle, one.radius
                rows.sum[here] = down(rows.sum[here] + down(one.least**2))
                row += 1


class _Integration:
    """Boxes that are integrated side by side, each with its own time and step."""

    def __init__(
        self, experiment: Replay, boxes: Boxes, effort: Effort, cut: float, known: FloatArray
    ) -> None:
        n, count = boxes.center.shape
        self.experiment, self.effort, self.cut, self.known = experiment, effort, cut, known
        self.space = TaylorSpace(n, experiment.states, effort.order)
        self.first = np.cumsum([0, *(len(column) for column, _, _ in experiment.rows)])
        shape = self.first[-1], count
        c = np.zeros((self.space.first_error, *shape))
        self.rows = BoxRows(c, np.full(shape, np.inf), np.zeros(count), np.zeros((n, count)))
        self.active = np.arange(count)
        self.t = np.full(count, experiment.t0)
        self.next = np.zeros(count, dtype=np.intp)
        c = np.zeros((n, self.space.size, 1, count))
        for i in range(n):
            c[i, 0, 0], c[i, 1 + i, 0] = boxes.center[i], boxes.half[i]
        self.p = [Polynomial(self.space, one, np.zeros(count)) for one in c]
        x = experiment.start([self.p], constants(self.space, count))
        self.x = self._without_remainder(x, np.stack([f.e for f in x]))
        span = experiment.times[-1] - experiment.t0
        self.h = np.full(count, (span if span > 0 else 1.0) / len(experiment.times) / 2)
        self.tried = np.zeros(count, dtype=np.intp)
        self.vague = np.zeros(count, dtype=bool)
        self.shortest = 1e-9 * span

    def _without_remainder(self, x: Sequence[Polynomial], e: FloatArray) -> list[Polynomial]:
        """The remainders moved into the coordinates z."""
        z = self.space.first_error
        columns = reset(np.stack([f.c[z:, 0] for f in x]), e)
        kept = [np.concatenate([f.c[:z, 0], own]) for f, own in zip(x, columns, strict=True)]
        return [Polynomial(f.space, c[:, None], f.e * 0) for f, c in zip(x, kept, strict=True)]

    def advance(self) -> None:
        """Try one step of every box."""
        goal = self.experiment.times[self.next]
        last = self.t + 1.05 * self.h >= goal
        then = np.where(last, goal, self.t + self.h)
        h = then - self.t
        inputs = [line.of(self.next) for line in self.experiment.inputs]
        step = validated_step(self.experiment, self.p, self.x, self.t, h, u=inputs)
        fine, scale = self._step_control(step)
        self.tried += 1
        ahead = fine & np.isfinite(step.error).all(axis=0)
        moved = self._without_remainder(step.states, step.error)
        ahead &= np.isfinite(np.stack([f.c for f in moved])).all(axis=(0, 1, 2))
        chosen = [np.where(ahead, a.c, b.c) for a, b in zip(moved, self.x, strict=True)]
        self.x = [Polynomial(f.space, c, f.e * 0) for f, c in zip(self.x, chosen, strict=True)]
        self.t = np.where(ahead, then, self.t)
        grown = np.where(last & ahead, np.maximum(self.h, h * scale), h * scale)
        self.h = np.where(ahead, grown, 0.5 * h)

    def _step_control(self, step: StepBounds) -> tuple[BoolArray, FloatArray]:
        """Return whether a step is short enough, and how much longer the next one may be."""
        spread = np.stack([f.norms[1:3].sum(axis=(0, 1)) for f in step.states])
        size = np.stack([f.norm for f in step.states])
        size = np.maximum(size, 1e-3 * size.max(axis=0))
        allowed = self.effort.precision * spread + self.effort.absolute * size
        with np.errstate(all="ignore"):
            # a state at rest at 0 has neither a size nor a late term: it allows any step
            by_time = np.min((allowed + LEAST) / (step.late + LEAST), axis=0)
            by_time = by_time ** (1 / self.effort.order)
            by_growth = self.effort.growth / (step.growth + LEAST)
            scale = np.nan_to_num(np.minimum(by_time, by_growth), nan=0.0)
        return (scale > TOO_LONG), np.clip(0.9 * scale, 0.3, 2.0)

    def record_reached(self) -> None:
        """Rows of the boxes that are at a time with measurements; leave what is done."""
        times, last = self.experiment.times, len(self.experiment.times) - 1
        while (at := (self.next <= last) & (self.t == times[np.minimum(self.next, last)])).any():
            for k in np.unique(self.next[at]):
                self._measure(int(k), np.flatnonzero(at & (self.next == k)))
            self.next = self.next + at
        way = times[np.minimum(self.next, last)] - self.t
        left = (self.next <= last) & (self.tried < self.effort.most)
        left &= time.monotonic() < self.effort.end
        left &= self.rows.sum[self.active] + self.known[self.active] <= self.cut
        left &= ~(self.h < self.shortest) & np.isfinite(self.x[0].norm) & ~self.vague[self.active]
        ahead = self.h * (self.effort.most - self.tried)
        left &= ~((self.tried >= PATIENCE) & (ahead < PACE * way))
        if left.all():
            return
        linear = np.stack([np.abs(f.c[1 : 1 + len(self.p), 0]) for f in self.x])
        size = np.stack([f.norm for f in self.x])[:, None] + 1e-300
        self.rows.spread[:, self.active] = np.nan_to_num((linear / size).sum(axis=0))
        for name in ("active", "t", "next", "h", "tried"):
            setattr(self, name, getattr(self, name)[left])
        self.p, self.x = _taken(self.p, left), _taken(self.x, left)

    def _measure(self, k: int, at: IntArray) -> None:
        experiment, rows, here, z = self.experiment, self.rows, self.active[at], self.first[k]
        if z == self.first[k + 1]:
            return
        x, p, kept = _taken(self.x, at), _taken(self.p, at), self.space.first_error
        number, now = constants(self.space, len(at)), np.full(len(at), experiment.times[k])
        lines = [line.of(np.full(len(at), k)) for line in experiment.inputs]
        u = [line.polynomial(self.space, now, np.zeros(len(at))) for line in lines]
        outputs = experiment.measured([[number(float(now[0]))], x, p, u], number)
        for i, (column, y, sigma) in enumerate(zip(*experiment.rows[k], strict=True), start=z):
            r = outputs[column] - number(float(y))
            if sigma != 1:
                r = r.times(np.full(len(at), 1 / float(sigma)), units=1)
            rows.c[:, i, here] = r.c[:kept, 0]
            e = r.e + r.norms[3].sum(axis=0)
            rows.e[i, here] = np.where(np.isnan(e), np.inf, e * (1 + 1e-12))
            least = r.range().least
            least = np.where(np.isfinite(least), least, 0.0)
            rows.sum[here] = down(rows.sum[here] + down(least * least))
        errors = rows.e[z : self.first[k + 1], here]
        self.vague[here] = (errors > VAGUE * (1 + max(self.cut, 0.0) ** 0.5)).all(axis=0)


def _taken(given: Sequence[Polynomial], index: IntArray | BoolArray) -> list[Polynomial]:
    return [Polynomial(f.space, f.c[:, :, index], f.e[index]) for f in given]
