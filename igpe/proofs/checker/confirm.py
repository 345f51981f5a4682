"""Confirms that the sum of squares is nowhere below a level on given boxes.

A claim is a part [low, high] of a box. The box is integrated once; bounds of the part come from its
residuals as polynomials. A part that they do not confirm is halved some times on the same
polynomials; what is still left is hulled, and becomes a box of its own, halved where it did not
shrink. So a proof may be as coarse as it likes: the checker finds the rest, at its own cost.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.proofs.checker.bound import Local, least
from igpe.proofs.checker.course import Course
from igpe.proofs.checker.rows import Boxes, Effort, Rows, residuals
from igpe.proofs.checker.value import value_at

BATCH = 256  # boxes side by side
CHUNK = 1024  # parts side by side
HALVINGS = 7  # of a part on the same polynomials
MOST_PIECES = 48  # of one part that are left after a halving; more are given up
STUCK = 0.7  # share of pieces that are left; with more it is given up as well
PATIENCE = 2  # but not before so many halvings
SHRUNK = 0.6  # a hull of so much of the part's volume is not halved
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
        return Claims(
            self.box_low[index],
            self.box_high[index],
            self.low[index],
            self.high[index],
            self.number[index],
        )

    @classmethod
    def joined(cls, parts: "Sequence[Claims]") -> "Claims":
        """All of them in a row."""
        names = ("box_low", "box_high", "low", "high", "number")
        return cls(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))


@dataclass(frozen=True)
class Confirmed:
    """What came of it.

    left    claims that were not confirmed, on boxes that may be smaller than asked for
    better  (n_parameters,) where the sum of squares is proved to be below the level, if anywhere
    boxes   how many were integrated
    subdivided  how many claims their first integration did not confirm
    """

    left: Claims
    better: FloatArray | None
    boxes: int
    subdivided: int


def confirm(
    courses: Sequence[Course], claims: Claims, cut: float, effort: Effort, seconds: float
) -> Confirmed:
    """Try to show that the sum of squares is at least `cut` on all claims."""
    end = time.monotonic() + seconds
    numbered = replace(claims, number=np.arange(len(claims)))
    todo, done, again = [numbered], 0, set[int]()
    while todo and time.monotonic() < end:
        now = todo.pop()
        now, later = now[:BATCH], now[BATCH:]
        found = _once(courses, now, cut, effort)
        done += found.boxes
        if found.better is not None:
            return Confirmed(
                Claims.joined([found.left, later, *todo]), found.better, done, len(again)
            )
        again |= set(found.left.number.tolist())
        todo = _gathered([*todo, later, found.left])
    return Confirmed(Claims.joined([claims[:0], *todo]), None, done, len(again))


def _gathered(todo: list[Claims]) -> list[Claims]:
    """Small lists are joined, so that boxes are integrated side by side."""
    small = [c for c in todo if 0 < len(c) < BATCH]
    large = [c for c in todo if len(c) >= BATCH]
    return [*large, Claims.joined(small)] if small else large


def _once(courses: Sequence[Course], claims: Claims, cut: float, effort: Effort) -> Confirmed:
    """What one integration of each box leaves, cut into new boxes."""
    ends = np.concatenate([claims.box_low, claims.box_high], axis=1)
    distinct, owner = np.unique(ends, axis=0, return_inverse=True)
    owner = owner.reshape(-1)
    n = claims.low.shape[1]
    boxes = Boxes.around(distinct[:, :n].T, distinct[:, n:].T)
    rows = everything(courses, boxes, effort, cut)
    better = _better(courses, rows, boxes, cut)
    open_ = np.flatnonzero(~(rows.sum[owner] >= cut))  # also where it is no number
    if not len(open_) or better is not None:
        return Confirmed(claims[open_], better, len(distinct), 0)
    left = _reduced(rows, boxes, claims[open_], owner[open_], cut)
    return Confirmed(left, None, len(distinct), 0)


def _better(courses: Sequence[Course], rows: Rows, boxes: Boxes, cut: float) -> FloatArray | None:
    """The middle of a box, if it seems to be, and is proved to be, below the level."""
    with np.errstate(all="ignore"):
        seems = (rows.c[0] ** 2).sum(axis=0) < cut * (1 - 1e-9)
    for k in np.flatnonzero(seems & np.isfinite(rows.e).all(axis=0)):
        point = boxes.center[:, k]
        if value_at(courses, point)[1] < cut:
            return point
    return None


def everything(courses: Sequence[Course], boxes: Boxes, effort: Effort, cut: float) -> Rows:
    """Rows of all experiments."""
    known = np.zeros(len(boxes))
    found: list[Rows] = []
    for course in courses:
        found.append(residuals(course, boxes, effort, cut, known))
        known = (known + found[-1].sum) * (1 - 1e-12)
    c = np.concatenate([r.c for r in found], axis=1)
    e = np.concatenate([r.e for r in found])
    return Rows(c, e, known, np.sum([r.spread for r in found], axis=0))


def _reduced(rows: Rows, boxes: Boxes, claims: Claims, owner: IntArray, cut: float) -> Claims:
    """What the polynomials do not confirm of each claim, as new boxes."""
    part = np.arange(len(claims))  # which claim a piece belongs to
    low, high = claims.low, claims.high
    scores = np.zeros(low.shape)
    for level in range(HALVINGS + 1):
        bounds, score = _bounds(rows, boxes, owner[part], low, high)
        if level == 0:
            scores = score
        keep = ~(bounds >= cut)
        part, low, high, score = part[keep], low[keep], high[keep], score[keep]
        pieces = np.bincount(part, minlength=len(claims))
        hopeless = (pieces > MOST_PIECES) | (pieces > STUCK * 2**level) & (level >= PATIENCE)
        if level == HALVINGS or (hopeless | (pieces == 0)).all():
            break
        going = ~hopeless[part]
        first, second = _halves(low[going], high[going], score[going])
        part = np.concatenate([part[~going], part[going], part[going]])
        low = np.concatenate([low[~going], first[0], second[0]])
        high = np.concatenate([high[~going], first[1], second[1]])
    return _next_boxes(rows, claims, owner, scores, (part, low, high))


def _bounds(
    rows: Rows, boxes: Boxes, owner: IntArray, low: FloatArray, high: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Lower bounds (n,), and (n, n_parameters) how much each parameter moves the residuals."""
    bounds, scores = [np.zeros(0)], [np.zeros((0, low.shape[1]))]
    for k in range(0, len(owner), CHUNK):
        at = owner[k : k + CHUNK]
        found, local = least(rows[at], boxes[at], low[k : k + CHUNK].T, high[k : k + CHUNK].T)
        bounds.append(found)
        scores.append(_scores(local))
    return np.concatenate(bounds), np.concatenate(scores)


def _scores(local: Local) -> FloatArray:
    known = np.isfinite(local.e)
    return np.asarray((np.where(known, local.g, 0.0) ** 2).sum(axis=1).T)


def _halves(
    low: FloatArray, high: FloatArray, score: FloatArray, wide: BoolArray | None = None
) -> tuple[tuple[FloatArray, FloatArray], tuple[FloatArray, FloatArray]]:
    """Boxes cut across the axis of the highest score; where `wide`, at the geometric mean."""
    axis = np.argmax(np.where(high > low, score, -1.0), axis=1)
    at = np.arange(len(axis))
    a, b = low[at, axis], high[at, axis]
    middle = a / 2 + b / 2
    if wide is not None:
        far = wide & (a >= 0) & (b > WIDE * a)
        middle = np.where(far, np.where(a > 0, np.sqrt(a * b), b / WIDE), middle)
    left, right = high.copy(), low.copy()
    left[at, axis] = right[at, axis] = middle
    return (low, left), (right, high)


def _next_boxes(
    rows: Rows,
    claims: Claims,
    owner: IntArray,
    scores: FloatArray,
    pieces: tuple[IntArray, FloatArray, FloatArray],
) -> Claims:
    part, piece_low, piece_high = pieces
    left = np.unique(part)
    low = np.full(claims.low.shape, np.inf)
    high = np.full(claims.low.shape, -np.inf)
    np.minimum.at(low, part, piece_low)
    np.maximum.at(high, part, piece_high)
    low, high, was, owner = low[left], high[left], claims[left], owner[left]
    box = was.box_high - was.box_low
    share = np.prod(np.where(box > 0, (high - low) / np.where(box > 0, box, 1.0), 1.0), axis=1)
    whole: BoolArray = np.all(np.isfinite(rows.e[:, owner]), axis=0)
    score = np.where(whole[:, None], scores[left], rows.spread[:, owner].T)
    flat = ~(score.max(axis=1) > 0)
    score[flat] = (high - low)[flat]
    cut = share > SHRUNK
    first, second = _halves(low[cut], high[cut], score[cut], ~whole[cut])
    new_low = np.concatenate([low[~cut], first[0], second[0]])
    new_high = np.concatenate([high[~cut], first[1], second[1]])
    number = np.concatenate([was.number[~cut], was.number[cut], was.number[cut]])
    return replace(
        was, box_low=new_low, box_high=new_high, low=new_low, high=new_high, number=number
    )
