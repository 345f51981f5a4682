"""Linear algebra modulo a prime, on matrices of residues."""

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
