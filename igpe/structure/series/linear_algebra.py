"""Linear algebra modulo a prime, on matrices of residues.

Linear algebra over power series in one variable modulo a prime, known to some order.

What has a lowest order smallest among all entries divides all of them; eliminated in this order
nothing that is known of the other rows is lost. A pivot is not zero as a series, so the rank found
is never too large, whatever follows the orders that are known.
"""

from typing import NamedTuple

import numpy as np

from igpe.structure.series.field import Residues


class Echelon(NamedTuple):
    """The reduced row echelon form.

    rows    (rank, n), without rows of zeros
    pivots  column of each row's leading 1
    """

    rows: Residues
    pivots: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of independent rows."""
        return len(self.pivots)


def echelon(matrix: Residues, prime: int) -> Echelon:
    """Gauss and Jordan's elimination."""
    rows, p = matrix.copy() % np.uint64(prime), np.uint64(prime)
    pivots: list[int] = []
    for column in range(rows.shape[1]):
        top = len(pivots)
        candidates = np.flatnonzero(rows[top:, column])
        if len(candidates) == 0:
            continue
        rows[[top, top + candidates[0]]] = rows[[top + candidates[0], top]]
        rows[top] = rows[top] * np.uint64(pow(int(rows[top, column]), -1, prime)) % p
        factors = rows[:, column].copy()
        factors[top] = 0
        touched = np.flatnonzero(factors)
        rows[touched] = (rows[touched] + (p - factors[touched, None]) * rows[top] % p) % p
        pivots.append(column)
    return Echelon(rows[: len(pivots)], tuple(pivots))


def null_space(form: Echelon, prime: int) -> Residues:
    """(n - rank, n): a basis of what the rows leave open; each has a 1 where the others have 0."""
    n = form.rows.shape[1]
    free = [j for j in range(n) if j not in form.pivots]
    basis = np.zeros((len(free), n), dtype=np.uint64)
    basis[np.arange(len(free)), free] = 1
    opposite = (np.uint64(prime) - form.rows[:, free]) % np.uint64(prime)
    basis[:, list(form.pivots)] = opposite.T
    return basis


def product(a: Residues, b: Residues, prime: int) -> Residues:
    """The matrix product; each product of residues is reduced before it is added."""
    found = np.zeros((a.shape[0], b.shape[1]), dtype=np.uint64)
    for j in range(a.shape[1]):
        found += a[:, [j]] * b[[j]] % np.uint64(prime)
    return np.asarray(found % np.uint64(prime), dtype=np.uint64)


def solved(matrix: Residues, right: Residues, prime: int) -> Residues | None:
    """x with matrix x = right, for a square matrix; None if it is singular."""
    n = len(matrix)
    form = echelon(np.hstack([matrix, right]), prime)
    if form.pivots[:n] != tuple(range(n)):
        return None
    return form.rows[:n, n:]


class Local(NamedTuple):
    """The reduced form of a matrix of series.

    form      with a number inserted for the variable; its null space is that of the series there
    steady    whether the null space is the same for all values of the variable
    orders    so many orders of the reduced form are known
    """

    form: Echelon
    steady: bool
    orders: int


def local_echelon(matrix: Residues, prime: int, at: int) -> Local:
    """Reduced form of (rows, n, orders) series; `at` is the number that is inserted."""
    p = np.uint64(prime)
    left = matrix.copy() % p
    known = left.shape[2]
    done: list[Residues] = []
    pivots: list[int] = []
    while len(left) and left.any():
        row, column, lowest = _smallest(left)
        pivot = np.zeros_like(left[row])
        pivot[:, : left.shape[2] - lowest] = left[row][:, lowest:]
        pivot = _times(pivot, _reciprocal(pivot[column], prime), prime)
        left = np.delete(left, row, axis=0)
        left = _reduced(left, pivot, column, prime)
        known = matrix.shape[2] - lowest
        done = list(_reduced(np.array(done), pivot, column, prime)) if done else []
        done.append(pivot)
        pivots.append(column)
    order = np.argsort(pivots)
    if not done:
        return Local(Echelon(np.zeros((0, matrix.shape[1]), dtype=np.uint64), ()), True, known)
    rows = np.array(done)[order][:, :, :known]
    form = Echelon(_inserted(rows, prime, at), tuple(sorted(pivots)))
    return Local(form, not rows[:, :, 1:].any(), known)


def _smallest(matrix: Residues) -> tuple[int, int, int]:
    """Row and column of an entry of lowest order, and that order."""
    for order in range(matrix.shape[2]):
        places = np.argwhere(matrix[:, :, order])
        if len(places):
            return int(places[0, 0]), int(places[0, 1]), order
    raise AssertionError


def _reciprocal(series: Residues, prime: int) -> Residues:
    values = [int(v) for v in series]
    first = pow(values[0], -1, prime)
    found = [first]
    for k in range(1, len(values)):
        rest = sum(values[j] * found[k - j] for j in range(1, k + 1))
        found.append(-rest * first % prime)
    return np.array(found, dtype=np.uint64)


def _times(rows: Residues, series: Residues, prime: int) -> Residues:
    """Each of the (..., orders) series times one."""
    p, n = np.uint64(prime), rows.shape[-1]
    found = np.zeros_like(rows)
    for k in range(n):
        found[..., k:] += rows[..., : n - k] * series[..., k, None] % p
    return np.asarray(found % p, dtype=np.uint64)


def _reduced(rows: Residues, pivot: Residues, column: int, prime: int) -> Residues:
    """Rows without their entry in the pivot's column."""
    p, n = np.uint64(prime), rows.shape[2]
    factors = rows[:, column].copy()
    found = np.zeros_like(rows)
    for k in range(n):
        found[..., k:] += factors[:, None, k, None] * pivot[None, :, : n - k] % p
    return np.asarray((rows + p - found % p) % p, dtype=np.uint64)


def _inserted(rows: Residues, prime: int, at: int) -> Residues:
    p = np.uint64(prime)
    found = np.zeros(rows.shape[:2], dtype=np.uint64)
    for k in reversed(range(rows.shape[2])):
        found = (found * np.uint64(at) + rows[:, :, k]) % p
    return found
