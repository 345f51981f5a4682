"""Constraints on unknowns and nodes beyond bounds, linearised and condensed.

    low <= c(q, s) <= high,    low = high where it is an equation

F2 = 0 and F3 >= 0 of Peifer & Timmer (2007, eq. 6); a constraint may couple nodes of several
intervals, as a periodic course does. Condensed, ds_k = A_k dq + a_k, it is a row in dq like that of
a bound.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray


class Limits(NamedTuple):
    """The c constraints of one chain at a point, with their exact derivatives.

    value, low, high  (c,)
    by_unknown        (c, n) d value / d q
    row, owner        (e,): constraint and interval of each of the derivatives by nodes,
    by_node           (e, n_x); those of the same constraint and interval add up
    """

    value: FloatArray
    low: FloatArray
    high: FloatArray
    by_unknown: FloatArray
    row: IntArray
    owner: IntArray
    by_node: FloatArray

    @property
    def missed(self) -> FloatArray:
        """(c,) by how much each is violated; 0 where it is kept."""
        return np.maximum(np.maximum(self.low - self.value, self.value - self.high), 0.0)

    @property
    def equations(self) -> BoolArray:
        """(c,) which are equations."""
        return np.asarray(self.low == self.high)

    def along(self, moves: FloatArray) -> FloatArray:
        """(c, n + 1) change of the values if nodes move by moves (K, n_x, n + 1) in dq and 1."""
        found = np.column_stack([self.by_unknown, np.zeros(len(self.value))])
        parts = np.matmul(self.by_node[:, None, :], moves[self.owner])[:, 0, :]
        np.add.at(found, self.row, parts)
        return found

    def shifted(self, shift: FloatArray) -> FloatArray:
        """(c,) change of the values if the nodes alone move, by (K, n_x)."""
        found = np.zeros(len(self.value))
        np.add.at(found, self.row, np.sum(self.by_node * shift[self.owner], axis=1))
        return found

    def scale(self, size: FloatArray, node_size: FloatArray) -> FloatArray:
        """(c,) positive: how much each changes when all it depends on changes by its size."""
        squares = np.sum((self.by_unknown * size) ** 2, axis=1)
        np.add.at(squares, self.row, np.sum((self.by_node * node_size) ** 2, axis=1))
        found = np.sqrt(squares)
        return np.where(found > 0, found, 1.0)
