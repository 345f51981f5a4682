"""Measurements that obey linear balances, and the gross errors that the balances reveal.

At one instant the true values x obey A x = c + T + e: constants c, totals T that are unknown but
the same at all instants of an experiment, and e, normal with given standard deviations (0 where a
balance is exact). Measured are y = x + F b + noise, with gross errors b along the columns of F.
What is missing counts as measured with an unknown error of its own. So r = A y - c is

    r = T + A F b + A noise - e

Rows K of each instant leave out its missing values and make the rest of r uncorrelated with
variance 1 (Crowe, Garcia Campos and Hrymak, AIChE J. 29 (1983) 881). The reconciled values are the
best linear unbiased ones, x = y - J (r - T - A F b) - F b.

An error along f is tested by the generalised likelihood ratio (g' r)^2 / g' g with g = K A f, both
without their parts along what is unknown (Narasimhan and Mah, AIChE J. 33 (1987) 1514). It is
chi-squared with one degree of freedom where there is no gross error. Errors are found one after
the other, each is chosen anew as others are known, and those that others make needless are dropped.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.special import chdtrc, ndtr, ndtri

from igpe.core.arrays import BoolArray, FloatArray, IntArray, column_sizes

ROUNDING = 1e-9  # relative size below which a direction counts as none
ROUNDS = 10  # in which errors are chosen anew
NEAR = 1.959964  # in standard deviations; see `Search._one`


class Sheet(NamedTuple):
    """One experiment: measurements (t, q) with NaN where missing, and balances (b, q).

    total  (b,) what the balances sum up to; NaN where that is unknown, but the same at all times
    soft   (b,) standard deviations of the balances
    """

    values: FloatArray
    sigma: FloatArray
    matrix: FloatArray
    total: FloatArray
    soft: FloatArray


class Reconciled(NamedTuple):
    """(n,) values of all cells and their standard deviations; NaN where nothing determines them."""

    value: FloatArray
    deviation: FloatArray


class _Instant(NamedTuple):
    """K (k, b) and J (q, b) of the equations above, (q,) variances of x where T and b are known,
    and (q,) whether nothing determines x."""

    K: FloatArray
    J: FloatArray
    variance: FloatArray
    open: BoolArray


def _instant(sheet: Sheet, row: int) -> _Instant:
    A, missing = sheet.matrix, np.isnan(sheet.values[row])
    variance = np.where(missing, 0.0, sheet.sigma[row]) ** 2
    spread = np.sqrt((A**2 * variance).sum(axis=1) + sheet.soft**2)
    level = (spread[:, None] / np.where(A == 0, np.inf, np.abs(A))).max(axis=0, initial=0.0)
    # Any number does: an unknown error hides it. One of the others' size keeps V well-conditioned.
    level = np.where(level > 0, level, 1.0)
    variance = np.where(missing, level**2, variance)
    V = (A * variance) @ A.T + np.diag(sheet.soft**2)
    scale = np.sqrt(np.diag(V))
    white = np.linalg.inv(np.linalg.cholesky(V / np.outer(scale, scale)) * scale[:, None])
    left, size, right = np.linalg.svd(white @ (A * level)[:, missing])
    rank = int((size > ROUNDING * size.max(initial=0.0)).sum())
    K = left[:, rank:].T @ white
    J = (variance[:, None] * A.T) @ K.T @ K
    missed = (right[:rank].T / size[:rank]) @ left[:, :rank].T @ white
    J[missing] += level[missing, None] * missed
    is_open = np.zeros(len(variance), dtype=bool)
    is_open[missing] = (np.abs(right[rank:]) > ROUNDING).any(axis=0)
    rest = np.eye(len(variance)) - J @ A
    return _Instant(K, J, rest**2 @ variance + J**2 @ sheet.soft**2, is_open)


class Balances:
    """All experiments' balances; cells are numbered by experiment, time and quantity.

    residual  (m,), image (m, n) sparse: K r and K A
    totals    sparse: what unknown totals add to r;  known  (m, d) orthonormal: where that is
    """

    def __init__(self, sheets: Sequence[Sheet]) -> None:
        self.sheets = sheets
        each = [(s, t) for s in sheets for t in range(len(s.values))]
        self._instants = [_instant(s, t) for s, t in each]
        self._measured = np.concatenate([np.nan_to_num(s.values).ravel() for s in sheets])
        self._gap = np.concatenate([
            s.matrix @ np.nan_to_num(s.values[t]) - np.nan_to_num(s.total) for s, t in each
        ])
        self._rows = _diagonal([i.K for i in self._instants])
        self._gain = _diagonal([i.J for i in self._instants])
        self._sums = _diagonal([s.matrix for s, _ in each])
        totals = [np.eye(len(s.total))[:, np.isnan(s.total)] for s in sheets]
        self.totals = _diagonal([
            np.tile(own, (len(s.values), 1)) for own, s in zip(totals, sheets, strict=True)
        ])
        self.residual = np.asarray(self._rows @ self._gap)
        self.image = (self._rows @ self._sums).tocsc()
        self.known = basis((self._rows @ self.totals).toarray())

    def closing(self, errors: Any) -> tuple[float, int, float]:
        """Chi-squared of all balances beside errors (n, k), its degrees of freedom, and p."""
        known = basis(np.hstack([self.known, (self.image @ errors).toarray()]))
        rest = self.residual - known @ (known.T @ self.residual)
        degrees, value = len(rest) - known.shape[1], float(rest @ rest)
        return value, degrees, float(chdtrc(degrees, value)) if degrees > 0 else 1.0

    def reconciled(self, errors: Any) -> Reconciled:
        """The values that obey the balances.

        errors  (n, k) sparse: directions of gross errors of unknown size
        """
        unknown = sparse.hstack([self.totals, self._sums @ errors], format="csr")
        moved = (self._gain @ unknown).toarray()
        moved[:, self.totals.shape[1] :] -= errors.toarray()
        columns = (self._rows @ unknown).toarray()
        size = column_sizes(columns)
        orthonormal, triangle = np.linalg.qr(columns / size)
        left, singular, right = np.linalg.svd(triangle)
        rank = int((singular > ROUNDING * singular.max(initial=0.0)).sum())
        root = (right[:rank].T / singular[:rank]) / size[:, None]  # root root': their covariance
        b = root @ (left[:, :rank].T @ (orthonormal.T @ self.residual))
        value = self._measured - self._gain @ self._gap + moved @ b
        variance = np.concatenate([i.variance for i in self._instants])
        variance += ((moved @ root) ** 2).sum(axis=1)
        same = right[rank:].T / size[:, None]  # these change no residual
        terms = np.outer(abs(self._gain).sum(axis=1), (abs(unknown) @ np.abs(same)).max(axis=0))
        is_open = (np.abs(moved @ same) > ROUNDING * terms).any(axis=1)
        is_open |= np.concatenate([i.open for i in self._instants])
        deviation = np.sqrt(variance)
        return Reconciled(np.where(is_open, np.nan, value), np.where(is_open, np.nan, deviation))


def _diagonal(blocks: Sequence[FloatArray]) -> Any:
    return sparse.block_diag(blocks, format="csr")


def basis(columns: FloatArray) -> FloatArray:
    """(m, r) an orthonormal basis of what columns (m, k) span."""
    left, singular, _ = np.linalg.svd(columns / column_sizes(columns), full_matrices=False)
    return np.asarray(left[:, singular > ROUNDING * singular.max(initial=0.0)])


class Tested(NamedTuple):
    """(k,) size of the error of each suspect, and its standard deviation; NaN if not testable."""

    size: FloatArray
    deviation: FloatArray

    @property
    def ratios(self) -> FloatArray:
        """(k,) likelihood ratios; 0 where there is no test."""
        return np.nan_to_num((self.size / self.deviation) ** 2)


class Found(NamedTuple):
    """One gross error.

    suspects  (k,) columns that explain it alike, the best first;  tested  these
    p         probability of so clear an error of any suspect if there is none
    """

    suspects: IntArray
    tested: Tested
    p: float


class Search:
    """Gross errors among suspects, the columns of F (n, k).

    able    (k,) which of them the balances can reveal
    number  how many of these are different to the balances
    """

    def __init__(self, balances: Balances, suspects: Any) -> None:
        self.residual, self.known = balances.residual, balances.known
        self.g = (balances.image @ suspects).tocsc()
        level = np.concatenate([s.sigma.ravel() for s in balances.sheets])
        unprojected = suspects.multiply(1 / np.nan_to_num(level, nan=1.0)[:, None])
        # g is not longer than f in standard deviations; much shorter is rounding
        size = np.maximum(_lengths(self.g), ROUNDING * _lengths(unprojected))
        self.size = np.where(size > 0, size, 1.0)
        self.able = self._left(self.known) > ROUNDING
        self.number = self._distinct()

    def _left(self, known: FloatArray) -> FloatArray:
        """(k,) share of the squared length of g that is orthogonal to `known`."""
        left = _lengths(self.g) ** 2 - ((self.g.T @ known) ** 2).sum(axis=1)
        return np.asarray(left / self.size**2)

    def _distinct(self) -> int:
        """Directions that are the same have the same cosine with random ones, up to the sign."""
        h = np.random.default_rng(0).standard_normal((len(self.residual), 2))
        along = (self.g.T @ (h - self.known @ (self.known.T @ h)))[self.able]
        along /= (self.size * np.sqrt(np.abs(self._left(self.known))))[self.able, None]
        return len(np.unique(np.round(along * np.sign(along[:, :1]), 6), axis=0))

    def tested(self, others: Sequence[int] = ()) -> Tested:
        """Estimated size of each suspect, given other gross errors."""
        known = self.known
        if len(others):
            known = basis(np.hstack([known, self.g[:, list(others)].toarray()]))
        along = self.g.T @ (self.residual - known @ (known.T @ self.residual)) / self.size
        left = self._left(known)
        left = np.where(self.able & (left > ROUNDING), left, np.nan)
        return Tested(along / left / self.size, 1 / (self.size * np.sqrt(left)))

    def limit(self, level: float) -> float:
        """Limit that the largest root of a ratio exceeds with at most this probability (Sidak)."""
        return float(-ndtri(-np.expm1(np.log1p(-level) / max(self.number, 1)) / 2))

    def found(self, level: float) -> list[Found]:
        """The gross errors, the clearest first."""
        chosen, seen = list[int](), list[set[int]]()
        most = max((len(self.residual) - self.known.shape[1]) // 2, 1) if self.number else 0
        while len(chosen) < most and set(chosen) not in seen:
            seen.append(set(chosen))
            chosen = self._again([*chosen, *self._best(chosen, level)], level)
        return sorted((self._one(c, chosen) for c in chosen), key=lambda one: one.p)

    def _best(self, others: Sequence[int], level: float) -> list[int]:
        """The clearest suspect beside others; none if it may be chance."""
        ratios = self.tested(others).ratios
        return [int(np.argmax(ratios))] if ratios.max() > self.limit(level) ** 2 else []

    def _again(self, chosen: list[int], level: float) -> list[int]:
        """The errors, each the best beside the others, without those that are no longer clear."""
        for _ in range(ROUNDS if len(chosen) > 1 else 0):
            before = set(chosen)
            for one in before:
                others = [c for c in chosen if c != one]
                chosen = others + self._best(others, level)
            if before == set(chosen):
                break
        return chosen

    def _one(self, chosen: int, errors: Sequence[int]) -> Found:
        """Suspects whose ratio is at most NEAR^2 below the largest.

        The true one is further below a false one with a probability of 1 in 40 at most: where
        their directions are nearly equal, and less for others.
        """
        tested = self.tested([e for e in errors if e != chosen])
        ratios = tested.ratios
        near = np.flatnonzero((ratios > 0) & (ratios >= ratios[chosen] - NEAR**2))
        near = near[np.argsort(-ratios[near], kind="stable")]
        p = -np.expm1(self.number * np.log1p(-2 * ndtr(-np.sqrt(ratios[chosen]))))
        return Found(near, Tested(tested.size[near], tested.deviation[near]), float(p))


def _lengths(columns: Any) -> FloatArray:
    return np.asarray(np.sqrt(columns.multiply(columns).sum(axis=0))).ravel()


def independent(sheet: Sheet) -> tuple[list[int], list[int]]:
    """Balances that are kept, those with known totals first; and exact ones that contradict these.

    Exact balances that follow from others say nothing new.
    """
    kept, wrong = list[int](), list[int]()
    for b in sorted(range(len(sheet.total)), key=lambda b: bool(np.isnan(sheet.total[b]))):
        hard = [k for k in kept if sheet.soft[k] == 0]
        rows, own = sheet.matrix[hard], sheet.matrix[b]
        weights = np.linalg.lstsq(rows.T, own, rcond=None)[0] if hard else np.zeros(0)
        apart = np.linalg.norm(weights @ rows - own) > ROUNDING * np.linalg.norm(own)
        parts = np.append(weights * sheet.total[hard], -sheet.total[b])
        if sheet.soft[b] > 0 or apart:
            kept.append(b)
        elif abs(parts.sum()) > ROUNDING * np.abs(parts).max():
            wrong.append(b)
    return kept, wrong
