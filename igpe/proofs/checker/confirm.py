"""Confirms that the sum of squares is nowhere below a level on given boxes.

A claim is a part [low, high] of a box. The box is integrated once; bounds of the part come from its
residuals as polynomials. A part that they do not confirm is halved some times on the same
polynomials; what is still left is hulled, and becomes a box of its own, halved where it did not
shrink. So a proof may be as coarse as it likes: the checker finds the rest, at its own cost.

On a part of a box the residuals are again r in c + g s + s't s + q(s) +- e, |s_j| <= 1, where q has
degree 3, or is 0. Three bounds:

(a) each residual alone, sum of min r^2;
(b) for any u:  sum r^2 >= 2 u'r - |u|^2, where u'r is a polynomial whose curvature may cancel;
(c) for any y, L:  sum (c + g s + s't s + q)^2 >= |c|^2 + 2 c'G s + s'(G'G + T) s + higher terms
    >= |c|^2 + 2 c'G s + (2 y'L's - |y|^2) + s'(G'G + T - L L')s + higher terms; the squares of
    s't s + q are >= 0 and left out. With L L' the convex part of the form it is as good as a Newton
    step.

u, y and L are computed in plain floating point: any numbers do.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.progress import Share, say
from igpe.proofs.checker.experiments import Replay
from igpe.proofs.checker.interval import SLACK, TINY, UNIT, above, down, outward, up
from igpe.proofs.checker.interval import point as exactly
from igpe.proofs.checker.kernels.integration import Pace, ReplayRows, integrate


@lru_cache
def monomials(n: int, *, cubic: bool) -> tuple[tuple[int, ...], ...]:
    """(), (i,), (i, j) and (i, j, l) with i <= j <= l < n, in the order of their coefficients."""
    degrees = range(4 if cubic else 3)
    return tuple(m for d in degrees for m in combinations_with_replacement(range(n), d))


@dataclass(frozen=True)
class Boxes:
    """Boxes of parameters [low, high], and center + half * delta, which contain them.

    Each (n_parameters, n_boxes).
    """

    low: FloatArray
    high: FloatArray
    center: FloatArray
    half: FloatArray

    @classmethod
    def around(cls, low: FloatArray, high: FloatArray) -> "Boxes":
        """Those from low to high."""
        center = np.clip(low / 2 + high / 2, low, high)
        half = above(np.maximum(high - center, center - low))
        return cls(low, high, center, np.where(low == high, 0.0, half))

    def __len__(self) -> int:
        return int(self.center.shape[1])

    def __getitem__(self, index: IntArray | BoolArray) -> "Boxes":
        return Boxes(*(getattr(self, f.name)[:, index] for f in fields(self)))


@dataclass(frozen=True)
class BoxRows:
    """Residuals r of many boxes as polynomials of degree 2 or 3 in the offsets delta, +- e.

    c  (n_terms, n_rows, n_boxes) of 1, delta_i, delta_i delta_j and delta_i delta_j delta_l
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

    order      of a step in time; None: as pays for what the box spreads (`_order`)
    growth     h ||J|| of a step is about that at most: long steps add up alternating series
    precision  what a step may lose, relative to how much the box spreads the states
    absolute   and relative to the states themselves
    most       steps for a box, tried ones included
    cubic      whether polynomials have degree 3, not 2; None: of at most `MOST_CUBIC` parameters
    end        `time.monotonic()` from which every box is given up
    """

    order: int | None = None
    growth: float = 1.0
    precision: float = 1e-4
    absolute: float = 1e-14
    most: int = 600
    cubic: bool | None = None
    end: float = np.inf


ORDERS = 4, 12  # the lowest and the highest
IDLE = 8  # after so many tubes for nothing one in so many boxes is tried
MANY = 8  # terms for each state from which products take most of the time
MOST_CUBIC = 5  # of more parameters, terms of degree 3 take longer than they gain


def residuals(
    experiment: Replay, boxes: Boxes, effort: Effort, cut: float, known: FloatArray
) -> BoxRows:
    """ReplayRows of one experiment.

    known  (n_boxes,) lower bound of other rows; where the sum exceeds `cut` integration stops
    """
    (n, count), program = boxes.center.shape, experiment.program
    cubic = n <= MOST_CUBIC if effort.cubic is None else effort.cubic
    c = np.zeros((len(monomials(n, cubic=cubic)), len(program.value), count))
    many_terms = len(c) >= MANY * len(program.start.results)
    e, total, spread = np.full(c.shape[1:], np.inf), np.zeros(count), np.zeros((n, count))
    idle = 0  # tubes, one after the other, that have not excluded their box
    for k in range(count):
        if time.monotonic() >= effort.end:
            break
        rows = ReplayRows(np.zeros(c.shape[:2]), np.full(c.shape[1], np.inf), np.zeros(n))
        center, half = boxes.center[:, k].copy(), boxes.half[:, k].copy()
        order = effort.order or _order(effort, center, half, many_terms=many_terms)
        tubes = idle < IDLE or k % IDLE == 0
        given = effort.growth, effort.precision, effort.absolute, effort.most
        pace = Pace(order, *given, cubic, tubes)
        ends = np.stack([boxes.low[:, k], boxes.high[:, k]], axis=1)
        total[k] = integrate(program, center, half, ends, pace, float(cut - known[k]), rows)
        c[:, :, k], e[:, k], spread[:, k] = rows
        is_excluded = total[k] > cut - known[k] and np.isinf(rows.e).all()
        idle = 0 if is_excluded else idle + int(tubes)
    return BoxRows(c, e, total, spread)


def _order(effort: Effort, center: FloatArray, half: FloatArray, *, many_terms: bool) -> int:
    """Order 1 - log(e) / 2 takes the least time for an error e (Jorba & Zou, Exp. Math. 14, 2005).

    Of states that a box spreads as it does its parameters, relative to their size. Where there are
    so many terms that products take most of a step's time, a lower order is faster for large errors
    (measured: the line is fitted to seven models).
    """
    spread = np.max(half / np.where(center != 0, np.abs(center), half + TINY), initial=0.0)
    digits = -np.log(effort.precision * min(spread, 1.0) + effort.absolute)
    order = 1 + 0.5 * digits
    if many_terms:
        order = min(order, 0.75 * digits - 3.8)
    return int(np.clip(np.rint(order), *ORDERS))


def load_kernels(experiment: Replay, unknowns: int) -> None:
    """Compile the kernels, or load them: that is not of the time given for a proof."""
    say("Preparing the check (about a minute the first time on this machine)")
    none, pace = np.zeros((unknowns, 2)), Pace(1, 1.0, 1.0, 1.0, 0, cubic=False, tubes=True)
    terms, rows = len(monomials(unknowns, cubic=False)), len(experiment.program.value)
    room = ReplayRows(np.zeros((terms, rows)), np.full(rows, np.inf), np.zeros(unknowns))
    with np.errstate(all="ignore"):
        integrate(experiment.program, none[:, 0].copy(), none[:, 0].copy(), none, pace, -1.0, room)
    say("Checking the certificate")


PRECISE = Effort(order=12, growth=0.7, precision=1e-13, absolute=1e-16, most=20000, cubic=False)


def value_at(
    experiments: Sequence[Replay], point: FloatArray, end: float = np.inf
) -> tuple[float, float]:
    """Lower and upper bound of the sum of squares at `point` (n_parameters,); (0, inf) if none.

    end  `time.monotonic()` at which integration stops
    """
    low, high = values_at(experiments, point[None], end)
    return float(low[0]), float(high[0])


def values_at(
    experiments: Sequence[Replay], points: FloatArray, end: float = np.inf
) -> tuple[FloatArray, FloatArray]:
    """`value_at` for many points (k, n_parameters): lower and upper bounds (k,)."""
    box, total = Boxes.around(points.T, points.T), exactly(np.zeros(len(points)))
    with np.errstate(all="ignore"):
        for experiment in experiments:
            known = np.zeros(len(points))
            rows = residuals(experiment, box, replace(PRECISE, end=end), np.inf, known)
            for c, e in zip(rows.c[0], rows.e, strict=True):
                total = total + outward(c - e, c + e).square()
    low, high = np.maximum(np.nan_to_num(total.low, nan=0.0), 0.0), total.high
    return low, np.where(np.isfinite(high), high, np.inf)


def residuals_at(experiment: Replay, point: FloatArray) -> FloatArray:
    """The residuals (m,) of one experiment at `point` (n_parameters,), to rounding."""
    box = Boxes.around(point[:, None], point[:, None])
    return np.asarray(residuals(experiment, box, PRECISE, np.inf, np.zeros(1)).c[0, :, 0])


SWEEPS, SETTLED = 12, 1e-3  # of coordinate descent, and when it ends


class LocalRows(NamedTuple):
    """Residuals on a part of the box, see above.

    c  (n_rows, n);  g  (n_parameters, n_rows, n);  t  (n_pairs, n_rows, n);  e  (n_rows, n)
    q  (n_triples or 0, n_rows, n)
    """

    c: FloatArray
    g: FloatArray
    t: FloatArray
    q: FloatArray
    e: FloatArray


def least(
    rows: BoxRows, boxes: Boxes, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, LocalRows]:
    """(n,) lower bounds of the sum of squares on [low, high] (n_parameters, n), a part of each box.

    Also the residuals there: where to cut is read off them.
    """
    half = np.where(boxes.half > 0, boxes.half, 1.0)
    first = outward(low - boxes.center, low - boxes.center)
    last = outward(high - boxes.center, high - boxes.center)
    ends = outward(first.low / half, last.high / half)
    left, right = np.clip(ends.low, -1.0, 1.0), np.clip(ends.high, -1.0, 1.0)
    m = left / 2 + right / 2
    local = _shifted(rows, m, (right - left) / 2 * (1 + 4 * UNIT) + 4 * UNIT * np.abs(m))
    with np.errstate(all="ignore"):
        s = _minimiser(local)
        bounds = [_each(local), _multiplied(local, s), _quadratic(local, s)]
    return np.max([np.where(np.isfinite(f), f, 0.0) for f in bounds], axis=0), local


def pairs(n: int) -> tuple[tuple[int, ...], ...]:
    """i <= j in the order in which delta_i delta_j are kept."""
    return monomials(n, cubic=False)[1 + n :]


def triples(n: int) -> tuple[tuple[int, ...], ...]:
    """i <= j <= l in the order in which delta_i delta_j delta_l are kept."""
    return monomials(n, cubic=True)[len(monomials(n, cubic=False)) :]


def _shifted(rows: BoxRows, m: FloatArray, w: FloatArray) -> LocalRows:
    """The residuals at delta = m + w s, |s| <= 1."""
    n, two = len(m), pairs(len(m))
    known = np.isfinite(rows.e) & np.isfinite(rows.c).all(axis=0)
    c0 = np.where(known, rows.c, 0.0)
    first = 1 + n + len(two)
    c, g, t, q = c0[0].copy(), c0[1 : 1 + n].copy(), c0[1 + n : first].copy(), c0[first:]
    for j in range(n):
        c += g[j] * m[j]
    for k, (i, j) in enumerate(two):
        c += t[k] * (m[i] * m[j])
        g[i] += t[k] * m[j]
        g[j] += t[k] * m[i]
    if len(q):
        place = {pair: k for k, pair in enumerate(two)}
        for k, (i, j, h) in enumerate(triples(n)):
            c += q[k] * (m[i] * m[j] * m[h])
            for one, a, b in ((i, j, h), (j, i, h), (h, i, j)):
                g[one] += q[k] * (m[a] * m[b])
                t[place[a, b]] += q[k] * m[one]
        q = q * np.array([w[i] * w[j] * w[h] for i, j, h in triples(n)])[:, None]
    t *= np.array([w[i] * w[j] for i, j in two])[:, None]
    g *= w[:, None]
    rounding = 8 * (4 + n + n**2 + n**3) * UNIT * np.abs(c0).sum(axis=0)
    return LocalRows(c, g, t, q, np.where(known, up(rows.e + rounding), np.inf))


def _each(local: LocalRows) -> FloatArray:
    low = local.c - _peak(-local.g, -local.t)
    high = local.c + _peak(local.g, local.t)
    slack = local.e + np.abs(local.q).sum(axis=0) + _slack(local)
    alone = np.maximum(np.maximum(low - slack, -high - slack), 0.0)
    return down(down(down(alone) ** 2).sum(axis=0))


def _multiplied(local: LocalRows, s: FloatArray) -> FloatArray:
    """(b), with u the residuals at s as far as they exceed their remainders."""
    at = local.c + (local.g * s[:, None]).sum(axis=0)
    for k, (i, j) in enumerate(pairs(len(s))):
        at = at + local.t[k] * s[i] * s[j]
    e = np.where(np.isfinite(local.e), local.e, 0.0)
    u = np.where(np.isfinite(local.e), np.sign(at) * np.maximum(np.abs(at) - e, 0.0), 0.0)
    sums = LocalRows(
        (u * local.c).sum(axis=0)[None],
        (u * local.g).sum(axis=1)[:, None],
        (u * local.t).sum(axis=1)[:, None],
        (u * local.q).sum(axis=1)[:, None],
        up((np.abs(u) * (e + _slack(local, len(u)))).sum(axis=0))[None],
    )
    beyond = np.abs(sums.q).sum(axis=0) + sums.e + _slack(sums)
    value = sums.c - _peak(-sums.g, -sums.t) - beyond
    norm = (u * u).sum(axis=0)
    return np.asarray((2 * value[0] - norm) - 4 * SLACK * (np.abs(value[0]) + norm))


def _quadratic(local: LocalRows, s: FloatArray) -> FloatArray:
    """(c); rows whose remainder is infinite or large are left out."""
    n, size = len(local.g), _size(local)
    good = local.e < size
    c, g, t, q, size = (np.where(good, x, 0.0) for x in (local.c, local.g, local.t, local.q, size))
    e = np.where(good, local.e, 0.0)
    constant, linear = (c * c).sum(axis=0), 2 * (c * g).sum(axis=1)
    form = np.einsum("irb,jrb->ijb", g, g)
    for k, (i, j) in enumerate(pairs(n)):
        curved = (c * t[k]).sum(axis=0)
        form[i, j] += curved
        form[j, i] += curved
    lost = 2 * (e * size).sum(axis=0) + _higher(c, g, t, q)
    lost = lost + 8 * (len(c) + 20) * UNIT * (size * size).sum(axis=0)
    matrix = np.nan_to_num(form.transpose(2, 0, 1), nan=0.0, posinf=0.0, neginf=0.0)
    values, vectors = np.linalg.eigh(matrix)  # L L' is the part that is not negative, nearly
    factor = (vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]).transpose(1, 2, 0)
    rest = form - np.einsum("ikb,jkb->ijb", factor, factor)
    squares = (np.abs(factor) ** 2).sum(axis=(0, 1))
    lost = lost + np.abs(rest).sum(axis=(0, 1)) + 8 * n * n * (n + 2) * UNIT * squares
    y = np.einsum("ikb,ib->kb", factor, s)
    slope = linear + 2 * np.einsum("ikb,kb->ib", factor, y)
    sizes = np.abs(linear) + 2 * np.einsum("ikb,kb->ib", np.abs(factor), np.abs(y))
    lost = lost + (np.abs(slope) + 8 * (n + 2) * UNIT * sizes).sum(axis=0) + (y * y).sum(axis=0)
    return np.asarray(constant - lost - SLACK * (lost + constant))


def _higher(c: FloatArray, g: FloatArray, t: FloatArray, q: FloatArray) -> FloatArray:
    """Bound on 2 sum_r (g s)(s't s + q) + c q; degree 3 is summed before it is bounded."""
    n, terms = len(g), dict[tuple[int, ...], FloatArray]()
    for j in range(n):
        for k, pair in enumerate(pairs(n)):
            key = tuple(sorted((j, *pair)))
            terms[key] = terms.get(key, 0.0) + 2 * (g[j] * t[k]).sum(axis=0)
    if len(q):
        for k, key in enumerate(triples(n)):
            terms[key] = terms[key] + 2 * (c * q[k]).sum(axis=0)
    linear, cubic = np.abs(g).sum(axis=0), np.abs(q).sum(axis=0)
    sizes = (linear * np.abs(t).sum(axis=0) + np.abs(c) * cubic).sum(axis=0)
    fourth = 2 * up((linear * cubic).sum(axis=0))
    return np.asarray(sum(np.abs(v) for v in terms.values()) + 8 * len(c) * UNIT * sizes + fourth)


def _minimiser(local: LocalRows) -> FloatArray:
    """(n_parameters, n) nearly the least of sum (|c + g s| - e)_+^2 in the box."""
    good = np.isfinite(local.e) & np.isfinite(local.c)
    c, e = np.where(good, local.c, 0.0), np.where(good, local.e, 0.0)
    g = np.where(good & np.isfinite(local.g), local.g, 0.0)
    s, r, squares = np.zeros((len(g), c.shape[1])), c.copy(), g * g
    for _ in range(SWEEPS):
        before = s.copy()
        for j in range(len(g)):
            beyond = r - np.minimum(np.maximum(r, -e), e)
            curvature = (squares[j] * (beyond != 0)).sum(axis=0) + 1e-300
            moved = s[j] - (g[j] * beyond).sum(axis=0) / curvature
            moved = np.minimum(np.maximum(moved, -1.0), 1.0)
            r += g[j] * (moved - s[j])
            s[j] = moved
        if not np.abs(s - before).max(initial=0.0) > SETTLED:
            break
    return s


def _peak(g: FloatArray, t: FloatArray) -> FloatArray:
    """Nearly the maximum of g s + s't s (off-diagonal terms by their size)."""
    total = np.zeros(g.shape[1:])
    for k, (i, j) in enumerate(pairs(len(g))):
        if i == j:
            inside = (t[k] < 0) & (np.abs(g[i]) < -2 * t[k])
            below = np.where(inside, -4 * t[k], 1.0)
            total = total + np.where(inside, g[i] * (g[i] / below), np.abs(g[i]) + t[k])
        else:
            total = total + np.abs(t[k])
    return total


def _slack(local: LocalRows, terms: int = 0) -> FloatArray:
    """Bound on the rounding of `_peak` and of sums over so many residuals."""
    n = len(local.g)
    return np.asarray(2 * (terms + 8 * n**2 + 8 + len(local.q)) * UNIT * _size(local))


def _size(local: LocalRows) -> FloatArray:
    """Sum of the sizes of all terms."""
    parts = (np.abs(part).sum(axis=0) for part in (local.g, local.t, local.q))
    return np.asarray(np.abs(local.c) + sum(parts))


BATCH = 256  # boxes side by side
CHUNK = 1024  # parts side by side
HALVINGS = 7  # of a part on the same polynomials
MOST_PIECES = 48  # of one part that are left after a halving; more are given up
STUCK = 0.7  # share of pieces that are left; with more it is given up as well
PATIENCE = 2  # but not before so many halvings
SHRUNK = 0.6  # a hull of so much of the part's volume is not halved
NARROWEST = 0.05  # of the widest axis, by the size of the values: narrower ones are not halved
WIDE = 8.0  # ratio of bounds from which a range is cut at its geometric mean


@dataclass(frozen=True)
class Claims:
    """Parts of boxes; each array (n_claims, n_parameters).

    box_low, box_high  the box that is integrated
    low, high          the part of it on which the claim is
    number             (n_claims,) which of the first claims it is a part of
    """

    box_low: FloatArray
    box_high: FloatArray
    low: FloatArray
    high: FloatArray
    number: IntArray

    def __len__(self) -> int:
        return len(self.number)

    def __getitem__(self, index: IntArray | BoolArray | slice) -> "Claims":
        return Claims(*(getattr(self, f.name)[index] for f in fields(self)))

    @classmethod
    def joined(cls, parts: "Sequence[Claims]") -> "Claims":
        """All of them in a row."""
        return cls(*(np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(cls)))


@dataclass(frozen=True)
class Confirmed:
    """Outcome of `confirm`.

    left    claims that were not confirmed, on boxes that may be smaller than the given ones
    better  (n_parameters,) where the sum of squares is proved to be below the level, if anywhere
    boxes   how many were integrated
    subdivided  how many claims their first integration did not confirm
    interrupted  whether Ctrl-C ended it
    """

    left: Claims
    better: FloatArray | None
    boxes: int
    subdivided: int
    interrupted: bool = False


def is_over(outcomes: Sequence[Confirmed]) -> bool:
    """Whether the user ended the check by Ctrl-C."""
    return any(o.interrupted for o in outcomes)


def confirm(
    experiments: Sequence[Replay], claims: Claims, cut: float, effort: Effort, seconds: float
) -> Confirmed:
    """Try to show that the sum of squares is at least `cut` on all claims."""
    end = time.monotonic() + seconds
    todo, done, again = [replace(claims, number=np.arange(len(claims)))], 0, set[int]()
    while todo and time.monotonic() < end:
        now = todo.pop()
        now, later = now[:BATCH], now[BATCH:]
        try:
            left, better, boxes = _once(experiments, now, cut, effort)
        except KeyboardInterrupt:
            open_ = Claims.joined([now, later, *todo])
            return Confirmed(open_, None, done, len(again), interrupted=True)
        done += boxes
        if better is not None:
            return Confirmed(Claims.joined([left, later, *todo]), better, done, len(again))
        again |= set(left.number.tolist())
        parts = [*todo, later, left]
        small = [c for c in parts if 0 < len(c) < BATCH]  # joined, to be integrated side by side
        todo = [c for c in parts if len(c) >= BATCH]
        todo += [Claims.joined(small)] if small else []
        known = len(claims) - len(set[int]().union(*(c.number.tolist() for c in todo)))
        words = f"Checking the certificate: {known} of {len(claims)} boxes confirmed"
        say(Share(words, known / len(claims), steady=False))
    return Confirmed(Claims.joined([claims[:0], *todo]), None, done, len(again))


def _once(
    experiments: Sequence[Replay], claims: Claims, cut: float, effort: Effort
) -> tuple[Claims, FloatArray | None, int]:
    """Integrate each box once; unconfirmed claims as new boxes, a better point, and how many."""
    ends = np.concatenate([claims.box_low, claims.box_high], axis=1)
    distinct, owner = np.unique(ends, axis=0, return_inverse=True)
    owner = owner.reshape(-1)
    n = claims.low.shape[1]
    boxes = Boxes.around(distinct[:, :n].T, distinct[:, n:].T)
    rows = everything(experiments, boxes, effort, cut)
    with np.errstate(all="ignore"):
        seems = (rows.c[0] ** 2).sum(axis=0) < cut * (1 - 1e-9)
    middles = boxes.center.T[owner]  # what a contraction keeps says nothing about its slabs
    seems &= np.isfinite(rows.e).all(axis=0)
    mine = seems[owner] & ((claims.low <= middles) & (middles <= claims.high)).all(axis=1)
    candidates = boxes.center[:, np.unique(owner[mine])].T
    better = next((p for p in candidates if value_at(experiments, p)[1] < cut), None)
    open_ = np.flatnonzero(~(rows.sum[owner] >= cut))  # also where it is no number
    if not len(open_) or better is not None:
        return claims[open_], better, len(distinct)
    return _reduced(rows, boxes, claims[open_], owner[open_], cut), None, len(distinct)


def everything(experiments: Sequence[Replay], boxes: Boxes, effort: Effort, cut: float) -> BoxRows:
    """Rows of all experiments."""
    known = np.zeros(len(boxes))
    parts: list[BoxRows] = []
    for experiment in experiments:
        parts.append(residuals(experiment, boxes, effort, cut, known))
        known = (known + parts[-1].sum) * (1 - 1e-12)
    c = np.concatenate([r.c for r in parts], axis=1)
    e = np.concatenate([r.e for r in parts])
    return BoxRows(c, e, known, np.sum([r.spread for r in parts], axis=0))


def _reduced(rows: BoxRows, boxes: Boxes, claims: Claims, owner: IntArray, cut: float) -> Claims:
    """Halve claims on the same polynomials; return what they do not confirm as new boxes."""
    part = np.arange(len(claims))  # which claim a piece belongs to
    low, high = claims.low, claims.high
    scores = np.zeros(low.shape)
    for level in range(HALVINGS + 1):
        bounds, score = _bounds(rows, boxes, owner[part], low, high)
        scores = score if level == 0 else scores
        keep = ~(bounds >= cut)
        part, low, high, score = part[keep], low[keep], high[keep], score[keep]
        pieces = np.bincount(part, minlength=len(claims))
        hopeless = (pieces > MOST_PIECES) | (pieces > STUCK * 2**level) & (level >= PATIENCE)
        if level == HALVINGS or (hopeless | (pieces == 0)).all():
            break
        part, low, high = _halved(part, low, high, score, ~hopeless[part])
    # what is left of each claim is hulled, and becomes a box of its own, or two
    hull_low, hull_high = np.full(claims.low.shape, np.inf), np.full(claims.low.shape, -np.inf)
    np.minimum.at(hull_low, part, low)
    np.maximum.at(hull_high, part, high)
    left = np.unique(part)
    low, high, was, owner = hull_low[left], hull_high[left], claims[left], owner[left]
    box = was.box_high - was.box_low
    share = np.prod(np.where(box > 0, (high - low) / np.where(box > 0, box, 1.0), 1.0), axis=1)
    known: BoolArray = np.all(np.isfinite(rows.e[:, owner]), axis=0)
    score = np.where(known[:, None], scores[left], rows.spread[:, owner].T)
    width = (high - low) / np.maximum(np.maximum(np.abs(low), np.abs(high)), TINY)
    score = np.where(width > NARROWEST * width.max(axis=1, keepdims=True), score, 0.0)
    flat = ~(score.max(axis=1) > 0)
    score[flat] = (high - low)[flat]
    number, low, high = _halved(was.number, low, high, score, share > SHRUNK, wide=~known)
    return Claims(low, high, low, high, number)


def _bounds(
    rows: BoxRows, boxes: Boxes, owner: IntArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds (n,), and (n, n_parameters) how much each parameter moves the residuals."""
    bounds, scores = [np.zeros(0)], [np.zeros((0, low.shape[1]))]
    for k in range(0, len(owner), CHUNK):
        at = owner[k : k + CHUNK]
        bound, local = least(rows[at], boxes[at], low[k : k + CHUNK].T, high[k : k + CHUNK].T)
        bounds.append(bound)
        scores.append((np.where(np.isfinite(local.e), local.g, 0.0) ** 2).sum(axis=1).T)
    return np.concatenate(bounds), np.concatenate(scores)


def _halved(
    number: IntArray,
    low: FloatArray,
    high: FloatArray,
    score: FloatArray,
    cut: BoolArray,
    *,
    wide: BoolArray | None = None,
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Boxes and their numbers, some cut across the axis of the highest score.

    wide  which are cut at the geometric mean where they span orders of magnitude
    """
    axis = np.argmax(np.where(high > low, score, -1.0), axis=1)[cut]
    first, last, at = low[cut], high[cut], np.arange(len(axis))
    a, b = first[at, axis], last[at, axis]
    middle = a / 2 + b / 2
    if wide is not None:
        far = wide[cut] & (a >= 0) & (b > WIDE * a)
        middle = np.where(far, np.where(a > 0, np.sqrt(a * b), b / WIDE), middle)
    left, right = last.copy(), first.copy()
    left[at, axis] = right[at, axis] = middle
    return (
        np.concatenate([number[~cut], number[cut], number[cut]]),
        np.concatenate([low[~cut], first, right]),
        np.concatenate([high[~cut], left, last]),
    )
