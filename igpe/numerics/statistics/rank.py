"""Which directions a matrix determines."""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray

RANK = 1e-8  # a direction whose singular value is below this fraction of the largest is not known


class Directions(NamedTuple):
    """Right singular directions of a matrix with n columns, as rows.

    known     (r, n), with singular values `singular` (r,)
    lost      (n - r, n), those the matrix does not determine
    """

    known: FloatArray
    singular: FloatArray
    lost: FloatArray

    @property
    def touched(self) -> BoolArray:
        """(n,) which columns take part in a lost direction."""
        return np.asarray(np.sum(self.lost**2, axis=0) > RANK)


def directions(matrix: FloatArray, rank: float = RANK) -> Directions:
    """Split the column space; scale the columns first, so that rank does not depend on units.

    rank  a direction whose singular value is below this fraction of the largest is lost
    """
    short = np.linalg.qr(matrix, mode="r") if len(matrix) > matrix.shape[1] else matrix
    _, singular, rows = np.linalg.svd(short, full_matrices=True)
    singular = np.pad(singular, (0, matrix.shape[1] - len(singular)))
    known = singular > rank * max(singular[0], 1e-300)
    return Directions(rows[known], singular[known], rows[~known])


def determined(matrix: FloatArray) -> BoolArray:
    """(n,) which columns take no part in the directions that the matrix does not determine."""
    return ~directions(matrix).touched
