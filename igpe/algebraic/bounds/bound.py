"""The lower bound on a box, and the search for the direction that gives it.

For every u with |u| <= 1 and every beta, theta of the box, by Cauchy and Schwarz,

    | d - sum_k beta_k phi_k(theta) |  >=  u . d - sum_k beta_k (u . phi_k(theta))
                                       >=  u . d - sum_k max over beta_k of beta_k reach_k(u)

where reach_k is an upper bound on u . phi_k over the box. So any u gives a valid bound, however it
was found. It is found by column generation: the smallest residual with the columns known so far
(a small quadratic program) gives u, and where a column reaches farthest in that direction is the
next to be known.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.hull import Atoms, Hull
from igpe.algebraic.bounds.quadratic import FREE, minimum
from igpe.algebraic.bounds.taylor.taylor import UNIT
from igpe.core.arrays import FloatArray

ROUNDS = 12  # directions tried on one box
OVERSHOOT = 1.05  # times the excess of a column, which the next direction shall make up for
FIRST = 2  # rounds without that: the columns known are still too few
PATIENCE, PROGRESS = 3, 0.7  # it must come so much nearer to the cutoff in so many rounds
RIDGE = 1e-10  # of the quadratic program, whose columns have norm one
SMALL = 1e-6  # of the data: columns below it are scaled as if they were this large


class Bounded(NamedTuple):
    """What is known of a box.

    lower     proven lower bound on the norm of the residual, >= 0
    residual  norm of the smallest residual of the relaxation, as far as it is known: not proven
    slack     by how much remainders may lower that
    weights   (n_atoms,) of the relaxation's solution
    direction (r,) that gives the lower bound; None if it is 0
    halvings  of the box, for its cells
    """

    lower: float
    residual: float
    slack: float
    weights: FloatArray
    atoms: Atoms
    direction: FloatArray | None = None
    halvings: int = 1


@dataclass(frozen=True)
class Ranges:
    """Bounds on the factor of every column of the hull, >= 0; upper may be infinite.

    ratios  (k, m, low, high): the factor of m is between low and high times that of k
    """

    lower: FloatArray
    upper: FloatArray
    ratios: tuple[tuple[int, int, float, float], ...] = ()

    def most(self, reach: FloatArray) -> float:
        """Upper bound on sum_k beta_k reach_k."""
        each = np.where(reach > 0, self.upper, self.lower)
        each = np.multiply(each, reach, out=np.zeros(len(reach)), where=reach != 0)
        taken: set[int] = set()
        for k, m, low, high in self.ratios:
            if reach[m] > 0 and np.isinf(high):
                continue
            both = reach[k] + (high if reach[m] > 0 else low) * reach[m]
            pair = self.upper[k] * both if both > 0 else self.lower[k] * both
            if pair < each[k] + each[m] and not taken & {k, m}:
                each[k], each[m] = pair, 0.0
                taken |= {k, m}  # a column's gain counts once
        total = float(each.sum())
        return total + 8 * len(each) * UNIT * float(np.abs(each).sum()) if total < np.inf else total


def bound(target: FloatArray, doubt: float, hull: Hull, ranges: Ranges, cutoff: float) -> Bounded:
    """Bound the norm of the residual from below, until it exceeds the cutoff or cannot.

    target  (r,) d, known up to an error of norm `doubt`
    """
    d = target * hull.usable
    norm_d = float(np.linalg.norm(d))
    rounding = doubt + 4 * len(d) * UNIT * norm_d
    if not hull.parts:
        return Bounded(max(norm_d - rounding, 0.0), norm_d, 0.0, np.zeros(0), hull.start())
    program = _Program(d, ranges, hull.start())
    best, margin = 0.0, np.zeros(len(ranges.lower))
    if norm_d - ranges.most(np.maximum(hull.least, 0.0)) < cutoff:  # whatever u is
        return Bounded(0.0, np.inf, np.inf, program.weights, program.atoms)
    norm = slack = 0.0
    direction = None
    short = [np.inf] * PATIENCE
    for k in range(ROUNDS):
        residual, slack = program.solve(margin, max(norm, cutoff))
        norm = float(np.sqrt(residual @ residual))
        if norm == 0.0:
            break
        u = residual / (norm * (1 + 4 * UNIT * len(d)))
        support = hull.support(u)
        reach = support.reach
        value = float(u @ d) - rounding - ranges.most(reach)
        if value > best:
            best, direction = value, u
        short.append(cutoff - value)
        hopeless = k >= FIRST and norm - slack < cutoff
        if best >= cutoff or hopeless or short[-1] > PROGRESS * short[-1 - PATIENCE]:
            break
        if k >= FIRST:
            margin = np.where(reach > 0, OVERSHOOT * reach, margin / 2)
        near = reach > -1e-3 * margin - 1e-9 * norm_d
        atoms = hull.atoms(support)
        program.add(atoms.some(near[atoms.owners]))
    return Bounded(best, norm, slack, program.weights, program.atoms, direction)


class _Program:
    """min 1/2 |d - sum w_a a|^2 - norm sum (e_a + margin) w_a,  w >= 0, sums within ranges.

    Remainders e and margins are a gain of the adversary's, so that the multiplier has room for
    them. An upper bound of a range becomes a row only when it is exceeded.
    """

    def __init__(self, d: FloatArray, ranges: Ranges, atoms: Atoms) -> None:
        self.d, self.ranges, self.atoms = d, ranges, atoms
        self._floor = SMALL * np.sqrt(d @ d) + 1e-300
        self._capped = ranges.lower > 0
        self.weights = np.zeros(len(atoms.owners))

    def add(self, new: Atoms) -> None:
        """More points of the columns."""
        self.atoms = self.atoms.and_(new)

    def solve(self, margin: FloatArray, norm: float) -> tuple[FloatArray, float]:
        """Residual, of about that norm, and the sum of remainders in it."""
        vectors, owners = self.atoms.vectors, self.atoms.owners
        square, against = vectors @ vectors.T, vectors @ self.d
        size = np.maximum(np.sqrt(square.diagonal()), self._floor)
        square = square / (size[:, None] * size)
        square.flat[:: len(size) + 1] += RIDGE
        cost = np.minimum(self.atoms.errors + margin[owners], FREE / 1e10)
        linear = -(against + norm * cost) / size
        for _ in range(2):
            x = self._solved(square, linear, size)
            self.weights = np.maximum(x, 0.0) / size
            sums = np.bincount(owners, self.weights, len(margin))
            exceeded = (sums > self.ranges.upper) & ~self._capped
            if not exceeded.any():
                break
            self._capped = self._capped | exceeded
        return self.d - self.weights @ vectors, float(self.weights @ self.atoms.errors)

    def _solved(self, square: FloatArray, linear: FloatArray, size: FloatArray) -> FloatArray:
        n = len(size)
        rows, low, high = self._rows(size)
        ends = np.concatenate([np.zeros(n), low]), np.concatenate([np.full(n, np.inf), high])
        x = minimum(square, linear, rows, *ends)
        return np.zeros(n) if x is None else x

    def _rows(self, size: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows for ranges and ratios, scaled to entries of order one."""
        owners, ranges = self.atoms.owners, self.ranges
        rows, low, high = [], [], []
        for k in np.flatnonzero(self._capped):
            row = (owners == k) / size
            scale = row.max()
            rows.append(row / scale)
            low.append(ranges.lower[k] / scale)
            high.append(ranges.upper[k] / scale)
        for first, second, least, most in ranges.ratios:
            for factor, sign in ((least, 1.0), (most, -1.0)):
                if np.isinf(factor):
                    continue
                row = sign * ((owners == second) - factor * (owners == first)) / size
                rows.append(row / np.abs(row).max())
                low.append(0.0)
                high.append(np.inf)
        return np.array(rows).reshape(len(rows), len(size)), np.array(low), np.array(high)
