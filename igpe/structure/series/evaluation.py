"""The nodes of a tape as power series in time, one coefficient after the other."""

from collections.abc import Callable

import numpy as np

from igpe.structure.series.constants import Constants, PointConstants
from igpe.structure.series.field import Field, Residues
from igpe.structure.series.tape import Kind, Node, Tape

FIRST_ROOM = 8  # coefficients; doubled when they are full

Given = Callable[[int, int, int], Residues]
"""(argument, element, order) -> a coefficient of an input, (points, size)."""


class Evaluation:
    """Coefficients of all nodes, up to the order computed last.

    Coefficient k of a node needs coefficient k of its arguments and lower ones; it may be computed
    again with other inputs of that order.
    """

    def __init__(self, field: Field, tape: Tape, constants: Constants | PointConstants) -> None:
        self.field, self.tape, self.constants = field, tape, constants
        self._zero = field.number(0.0)
        shape = (len(field.primes), field.size)
        self._room = FIRST_ROOM
        self._series: list[Residues] = [
            np.zeros((*shape, 1 if node.steady else FIRST_ROOM), dtype=np.uint64)
            for node in tape.nodes
        ]

    def compute(self, k: int, given: Given) -> list[Residues]:
        """Coefficient k of the outputs. Raises Singular where the equations are not defined."""
        if k >= self._room:
            self._enlarge()
        # At the start an integral needs the value of w, which may stand behind it: hence twice.
        for _ in range(2 if k == 0 else 1):
            for i, node in enumerate(self.tape.nodes):
                if k == 0 or not node.steady:
                    self._series[i][:, :, k] = self._coefficient(i, node, k, given)
        return [self._at(i, k) for i in self.tape.results]

    def _coefficient(self, i: int, node: Node, k: int, given: Given) -> Residues:
        field, kind = self.field, node.kind
        if kind is Kind.CONST:
            return field.number(node.value)
        if kind is Kind.INPUT:
            argument, element = node.name
            return given(argument, element, k)
        a, b = node.arguments
        if kind is Kind.ADD:
            return field.plus(self._at(a, k), self._at(b, k))
        if kind is Kind.SUB:
            return field.minus(self._at(a, k), self._at(b, k))
        if kind is Kind.MUL:
            return self._product(a, b, k)
        return self._quotient(i, a, b, k) if kind is Kind.DIV else self._integral(node, k)

    def _product(self, a: int, b: int, k: int) -> Residues:
        for one, other in ((a, b), (b, a)):
            if self.tape.nodes[one].steady:
                return self.field.product(self._at(one, 0), self._at(other, k))
        return self.field.convolution(self._series[a][:, :, : k + 1], self._series[b][:, :, k::-1])

    def _quotient(self, i: int, a: int, b: int, k: int) -> Residues:
        """c[k] = (a[k] - sum of b[j] c[k - j] over j = 1..k) / b[0]."""
        rest = self._at(a, k)
        if k > 0 and not self.tape.nodes[b].steady:
            below = self._series[i][:, :, k - 1 :: -1]
            known = self.field.convolution(self._series[b][:, :, 1 : k + 1], below)
            rest = self.field.minus(rest, known)
        return self.field.product(rest, self.field.inverse(self._at(b, 0)))

    def _integral(self, node: Node, k: int) -> Residues:
        """z[k] = 1/k sum of j g[j] w[k - j] over j = 1..k."""
        g, w = node.arguments
        field = self.field
        if k == 0:
            argument, weight = self._at(g, 0), self._at(w, 0)
            start = field.constant(self.constants.of(node.name, argument, node.value))
            start[:, 1:] = (weight[:, :1] * argument[:, 1:]) % field.modulus
            return start
        if self.tape.nodes[w].steady:
            return field.product(self._at(g, k), self._at(w, 0))
        j = np.arange(1, k + 1, dtype=np.uint64)
        slopes = (self._series[g][:, :, 1 : k + 1] * j) % field.modulus[:, :, None]
        return field.divided(field.convolution(slopes, self._series[w][:, :, k - 1 :: -1]), k)

    def _at(self, i: int, k: int) -> Residues:
        if k > 0 and self.tape.nodes[i].steady:
            return self._zero
        return self._series[i][:, :, k]

    def _enlarge(self) -> None:
        for i, node in enumerate(self.tape.nodes):
            if not node.steady:
                old = self._series[i]
                self._series[i] = np.concatenate([old, np.zeros_like(old)], axis=2)
        self._room *= 2
