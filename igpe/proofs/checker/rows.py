"""Residuals of many boxes as polynomials in the offsets, by the compiled `kernels`."""

import time
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.proofs.checker.experiments import Replay
from igpe.proofs.checker.interval import TINY, above
from igpe.proofs.checker.kernels.integration import Pace, ReplayRows, integrate


@lru_cache
def monomials(n: int, *, cubic: bool) -> tuple[tuple[int, ...], ...]:
    """(), (i,), (i, j) and (i, j, l) with i <= j <= l < n, in the order of their coefficients."""
    degrees = range(4 if cubic else 3)
    return tuple(m for d in degrees for m in combinations_with_replacement(range(n), d))


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
    for k in range(count):
        if time.monotonic() >= effort.end:
            break
        rows = ReplayRows(np.zeros(c.shape[:2]), np.full(c.shape[1], np.inf), np.zeros(n))
        center, half = boxes.center[:, k].copy(), boxes.half[:, k].copy()
        order = effort.order or _order(effort, center, half, many_terms=many_terms)
        pace = Pace(order, effort.growth, effort.precision, effort.absolute, effort.most, cubic)
        total[k] = integrate(program, center, half, pace, float(cut - known[k]), rows)
        c[:, :, k], e[:, k], spread[:, k] = rows
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
    none, pace = np.zeros(unknowns), Pace(1, 1.0, 1.0, 1.0, 0, cubic=False)
    terms, rows = len(monomials(unknowns, cubic=False)), len(experiment.program.value)
    room = ReplayRows(np.zeros((terms, rows)), np.full(rows, np.inf), np.zeros(unknowns))
    integrate(experiment.program, none, none, pace, -1.0, room)
