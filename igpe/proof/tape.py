"""The right-hand side as a flat list of operations, which compiled code interprets.

One interpreter serves every model. Functions of one variable are written as their Taylor polynomial
about the middle of the step (Horner's scheme) plus a remainder, so that sums, products and
quotients are all that the Taylor models have to know.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.arrays import BoolArray, FloatArray, IntArray
from igpe.projection.nodes import Node, nodes_of

(
    CONST,
    STATE,
    PARAMETER,
    INPUT,
    TIME,
    ADD,
    SUB,
    MUL,
    DIV,
    NEG,
    SQUARE,
    SHIFT,
    COEFFICIENT,
    HORNER,
    CLOSE,
) = range(15)
EXP, LOG, POWER, SIN, COS = range(5)
TERMS = 6  # of a function's polynomial


class Tape(NamedTuple):
    """Operations in order; the arguments of each stand before it.

    op       (n,) what it is
    a, b     (n,) positions of its arguments; of a leaf: its index; of COEFFICIENT, SHIFT, HORNER
             and CLOSE b is the function's slot
    number   (n,) value of a CONST; the coefficient's index of COEFFICIENT and HORNER
    results  (n_results,) positions of the results
    function, exponent  (n_slots,) which function a slot is, and its power
    argument (n_slots,) position of its argument
    reach    (n,) highest order in time that a node can have where states have infinitely many
    needed   (n_results, n) which operations each result is made of
    plain    whether there is neither division nor function
    """

    op: IntArray
    a: IntArray
    b: IntArray
    number: FloatArray
    results: IntArray
    function: IntArray
    exponent: FloatArray
    argument: IntArray
    reach: IntArray
    needed: BoolArray
    plain: bool


class UnknownOperation(Exception):
    """An operation that has no enclosure here; its name is the message."""


class Symbols(NamedTuple):
    """What the expressions are made of: SX columns of states, parameters, inputs, and time."""

    x: Any
    q: Any
    u: Any
    t: Any


def tape(expressions: Any, symbols: Symbols, index: Sequence[int]) -> Tape:
    """The expressions as a tape.

    index   which of the problem's unknowns each entry of `symbols.q` is
    raises  UnknownOperation
    """
    variables = ca.vertcat(symbols.x, symbols.q, symbols.u, symbols.t)
    function = ca.Function("f", [ca.SX(0, 1), variables], [ca.densify(expressions)])
    nodes, results = nodes_of(function)
    leaves = [(STATE, i) for i in range(symbols.x.numel())]
    leaves += [(PARAMETER, int(k)) for k in index]
    leaves += [(INPUT, i) for i in range(symbols.u.numel())] + [(TIME, 0)]
    return _Writer(nodes, leaves).written(results)


class _Writer:
    """Translates nodes one by one; equal operations are written once."""

    def __init__(self, nodes: list[Node], leaves: list[tuple[int, int]]) -> None:
        self.nodes, self.leaves = nodes, leaves
        self.rows: list[tuple[int, int, int, float]] = []
        self.known: dict[tuple[int, int, int, float], int] = {}
        self.slots: dict[tuple[int, float, int], int] = {}
        self.places: list[int] = []

    def written(self, results: Sequence[int]) -> Tape:
        for node in self.nodes:
            self.places.append(self._node(node))
        op, a, b, number = (np.array(c) for c in zip(*self.rows, strict=True))
        function, exponent, argument = (np.array([s[i] for s in self.slots]) for i in range(3))
        return Tape(
            op.astype(np.int64),
            a.astype(np.int64),
            b.astype(np.int64),
            number.astype(float),
            np.array([self.places[r] for r in results], dtype=np.int64),
            function.astype(np.int64),
            exponent.astype(float),
            argument.astype(np.int64),
            _reach(self.rows),
            self._needed([self.places[r] for r in results]),
            not self.slots and DIV not in op,
        )

    def _needed(self, results: Sequence[int]) -> BoolArray:
        found = np.zeros((len(results), len(self.rows)), dtype=bool)
        found[np.arange(len(results)), list(results)] = True
        arguments = [a for _, _, a in self.slots]
        for k in range(len(self.rows) - 1, -1, -1):
            op, a, b, _ = self.rows[k]
            below = [] if op in (CONST, STATE, PARAMETER, INPUT, TIME) else [a]
            below += [b] if op in (ADD, SUB, MUL, DIV) else []
            below += [arguments[b]] if op == CLOSE else []
            for j in below:
                found[:, j] |= found[:, k]
        return found

    def _put(self, op: int, a: int = 0, b: int = 0, number: float = 0.0) -> int:
        row = (op, a, b, float(number))
        if row not in self.known:
            self.known[row] = len(self.rows)
            self.rows.append(row)
        return self.known[row]

    def _node(self, node: Node) -> int:
        if node.name == "CONST":
            return self._put(CONST, number=node.value)
        if node.name == "PARAMETER":
            op, k = self.leaves[int(node.value)]
            return self._put(op, k)
        if node.name not in _RULES:
            raise UnknownOperation(node.name.lower())
        return _RULES[node.name](self, *(self.places[k] for k in node.arguments))

    def _value(self, k: int) -> float | None:
        op, _, _, number = self.rows[k]
        return number if op == CONST else None

    def product(self, a: int, b: int) -> int:
        return self._put(SQUARE, a) if a == b else self._put(MUL, a, b)

    def quotient(self, a: int, b: int) -> int:
        return self._put(DIV, a, b)

    def one_over(self, a: int) -> int:
        return self._put(DIV, self._put(CONST, number=1.0), a)

    def function(self, kind: int, a: int, exponent: float = 0.0) -> int:
        slot = self.slots.setdefault((kind, exponent, a), len(self.slots))
        middle = self._put(SHIFT, a, slot)
        total = self._put(COEFFICIENT, a, slot, TERMS)
        for i in range(TERMS - 1, -1, -1):
            # Horner's product with the shifted argument, which is the node after its slot's shift
            total = self._put(HORNER, self._put(MUL, total, middle), slot, i)
        return self._put(CLOSE, total, slot)

    def power(self, a: int, b: int) -> int:
        exponent = self._value(b)
        if exponent is None:
            return self.function(EXP, self._put(MUL, b, self.function(LOG, a)))
        if exponent == int(exponent) and 0 < abs(exponent) <= MOST_FACTORS:
            found = self._whole_power(a, int(abs(exponent)))
            return found if exponent > 0 else self.one_over(found)
        if exponent == 0:
            return self._put(CONST, number=1.0)
        return self.function(POWER, a, exponent)

    def _whole_power(self, a: int, n: int) -> int:
        if n == 1:
            return a
        half = self._whole_power(a, n // 2)
        square = self._put(SQUARE, half)
        return square if n % 2 == 0 else self._put(MUL, square, a)

    def tanh(self, a: int) -> int:
        one, two = self._put(CONST, number=1.0), self._put(CONST, number=2.0)
        growth = self.function(EXP, self._put(MUL, two, a))
        return self._put(SUB, one, self._put(DIV, two, self._put(ADD, growth, one)))


MOST_FACTORS = 8  # of an integer power that is multiplied out

_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda w, a: a,
    "ADD": lambda w, a, b: w._put(ADD, a, b),
    "SUB": lambda w, a, b: w._put(SUB, a, b),
    "MUL": lambda w, a, b: w.product(a, b),
    "DIV": lambda w, a, b: w.quotient(a, b),
    "INV": lambda w, a: w.one_over(a),
    "NEG": lambda w, a: w._put(NEG, a),
    "TWICE": lambda w, a: w._put(MUL, w._put(CONST, number=2.0), a),
    "SQ": lambda w, a: w._put(SQUARE, a),
    "POW": lambda w, a, b: w.power(a, b),
    "CONSTPOW": lambda w, a, b: w.power(a, b),
    "SQRT": lambda w, a: w.function(POWER, a, 0.5),
    "EXP": lambda w, a: w.function(EXP, a),
    "LOG": lambda w, a: w.function(LOG, a),
    "SIN": lambda w, a: w.function(SIN, a),
    "COS": lambda w, a: w.function(COS, a),
    "TANH": lambda w, a: w.tanh(a),
}
"""By CasADi's name of the operation."""

ENDLESS = 1000  # an order in time that no step reaches


def _reach(rows: Sequence[tuple[int, int, int, float]]) -> IntArray:
    found: list[int] = []
    for op, a, b, _ in rows:
        if op in (CONST, PARAMETER, COEFFICIENT):
            found.append(0)
        elif op in (INPUT, TIME):
            found.append(1)
        elif op in (ADD, SUB):
            found.append(max(found[a], found[b]))
        elif op == MUL:
            found.append(min(found[a] + found[b], ENDLESS))
        elif op == SQUARE:
            found.append(min(2 * found[a], ENDLESS))
        elif op in (NEG, SHIFT, HORNER, CLOSE):
            found.append(found[a])
        else:
            constant = op == DIV and found[b] == 0
            found.append(found[a] if constant else ENDLESS)
    return np.array(found, dtype=np.int64)
