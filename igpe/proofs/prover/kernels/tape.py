"""The right-hand side as a flat list of operations, a tape, which compiled code interprets.

One interpreter serves every model. `Writer` writes operations one after the other, equal ones once.
Functions of one variable are written as their Taylor polynomial about the middle of the step
(Horner's scheme) plus a remainder, so that sums, products and quotients are all that the Taylor
models have to know. What a run measures stands here too: this file loads without Numba.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray

CONST, STATE, PARAMETER, INPUT, TIME, ADD, SUB, MUL, DIV, NEG, SQUARE = range(11)
SHIFT, COEFFICIENT, HORNER, CLOSE, TERM, FRACTION, GENERAL_POWER = range(11, 18)
EXP, LOG, POWER, SIN, COS = range(5)
TERMS = 6  # of a function's polynomial


class OpTape(NamedTuple):
    """Operations in order; the arguments of each stand before it.

    op       (n,) what it is
    a, b     (n,) positions of its arguments; of a leaf: its index; of COEFFICIENT, SHIFT, HORNER
             and CLOSE b is the function's slot; of FRACTION where its TERMs begin, and how many;
             of a GENERAL_POWER base**n, 0 where base <= 0, a is where exp(n log(base)) stands
    number   (n,) value of a CONST; the coefficient's index of COEFFICIENT and HORNER; the weight
             w_i of a TERM t_i of the FRACTION sum w_i t_i / sum t_i (in interval arithmetic alone)
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


LEAVES = frozenset({CONST, STATE, PARAMETER, INPUT, TIME})
BINARY = frozenset({ADD, SUB, MUL, DIV})


class Schedule(NamedTuple):
    """What one experiment measures, and when.

    start    time at which it begins
    stops    (n_stops,) increasing: measured times, and breaks of the inputs
    first    (n_stops + 1,) where the rows of each stop begin
    column   (m,) which measured quantity;  value, weight (m,): measurement, 1 / standard deviation
    inputs   (n_stops, n_u, 2) coefficients a, b of a + b t up to each stop
    scale    (n_x,) positive: how large each state is
    """

    start: float
    stops: FloatArray
    first: IntArray
    column: IntArray
    value: FloatArray
    weight: FloatArray
    inputs: FloatArray
    scale: FloatArray


def arguments(op: int, a: int, b: int, of_slots: Sequence[int]) -> list[int]:
    """Which operations one is made of; `of_slots` are the arguments of functions."""
    if op in LEAVES:
        return []
    if op == FRACTION:
        return list(range(a, a + b))
    return [a, *([b] if op in BINARY else []), *([of_slots[b]] if op == CLOSE else [])]


MOST_FACTORS = 8  # of an integer power that is multiplied out


class Writer:
    """Writes operations one after the other, equal ones once."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, float]] = []
        self.known: dict[tuple[int, int, int, float], int] = {}
        self.slots: dict[tuple[int, float, int], int] = {}
        self.fractions: dict[tuple[tuple[int, float], ...], int] = {}

    @classmethod
    def of(cls, tape: OpTape) -> "Writer":
        """One that has written a tape without functions."""
        writer = cls()
        columns = (tape.op, tape.a, tape.b, tape.number)
        for op, a, b, number in zip(*(c.tolist() for c in columns), strict=True):
            writer.put(op, a, b, number)
        return writer

    def finished(self, results: Sequence[int]) -> OpTape:
        """What was written, with the positions of its results."""
        op, a, b, number = zip(*self.rows, strict=True)
        function, exponent, argument = ([s[i] for s in self.slots] for i in range(3))
        integers = (np.array(c, dtype=np.int64) for c in (op, a, b, results, function, argument))
        op_, a_, b_, results_, function_, argument_ = integers
        return OpTape(
            op_, a_, b_, np.array(number, dtype=float),
            results_, function_, np.array(exponent, dtype=float), argument_,
            _reach(self.rows), self._needed(results), not self.slots and DIV not in op,
        )  # fmt: skip

    def needed_only(self, results: Sequence[int]) -> OpTape:
        """What was written as far as the results need it; there are no functions."""
        kept = np.flatnonzero(self._needed(results).any(axis=0)).tolist()
        place = {k: i for i, k in enumerate(kept)}
        short = Writer()
        for k in kept:
            op, a, b, number = self.rows[k]
            a, b = a if op in LEAVES else place[a], place[b] if op in BINARY else b
            short.rows.append((op, a, b, number))
        return short.finished([place[r] for r in results])

    def _needed(self, results: Sequence[int]) -> BoolArray:
        needed = np.zeros((len(results), len(self.rows)), dtype=bool)
        needed[np.arange(len(results)), list(results)] = True
        of_slots = [a for _, _, a in self.slots]
        for k in range(len(self.rows) - 1, -1, -1):
            for j in arguments(*self.rows[k][:3], of_slots):
                needed[:, j] |= needed[:, k]
        return needed

    def put(self, op: int, a: int = 0, b: int = 0, number: float = 0.0) -> int:
        """Where an operation stands, written if it is new; see `OpTape`."""
        row = (op, a, b, float(number))
        if row not in self.known:
            self.known[row] = len(self.rows)
            self.rows.append(row)
        return self.known[row]

    def product(self, a: int, b: int) -> int:
        """a b."""
        return self.put(SQUARE, a) if a == b else self.put(MUL, a, b)

    def one_over(self, a: int) -> int:
        """1 / a."""
        return self.put(DIV, self.put(CONST, number=1.0), a)

    def fraction(self, places: Sequence[int], weights: Sequence[float]) -> int:
        """sum w_i t_i / sum t_i of the operations t_i at these places."""
        terms = tuple(zip(places, weights, strict=True))
        if terms not in self.fractions:
            first = len(self.rows)
            self.rows += [(TERM, place, 0, float(weight)) for place, weight in terms]
            self.fractions[terms] = len(self.rows)
            self.rows.append((FRACTION, first, len(terms), 0.0))
        return self.fractions[terms]

    def function(self, kind: int, a: int, exponent: float = 0.0) -> int:
        """A function of a: its polynomial about the middle of a step, and what closes it."""
        slot = self.slots.setdefault((kind, exponent, a), len(self.slots))
        middle = self.put(SHIFT, a, slot)
        total = self.put(COEFFICIENT, a, slot, TERMS)
        for i in range(TERMS - 1, -1, -1):
            # Horner's product with the shifted argument, which is the node after its slot's shift
            total = self.put(HORNER, self.put(MUL, total, middle), slot, i)
        return self.put(CLOSE, total, slot)

    def power(self, a: int, b: int) -> int:
        """a to the power of b, multiplied out where b is a small whole number."""
        if self.rows[b][0] != CONST:
            result = self.function(EXP, self.put(MUL, b, self.function(LOG, a)))
            return result if self.rows[a][0] == CONST else self.put(GENERAL_POWER, result)
        exponent = self.rows[b][3]
        if exponent == int(exponent) and 0 < abs(exponent) <= MOST_FACTORS:
            result = self.whole_power(a, int(abs(exponent)))
            return result if exponent > 0 else self.one_over(result)
        if exponent == 0:
            return self.put(CONST, number=1.0)
        return self.function(POWER, a, exponent)

    def whole_power(self, a: int, n: int) -> int:
        """a to the power of n >= 1 by squares."""
        if n == 1:
            return a
        half = self.whole_power(a, n // 2)
        square = self.put(SQUARE, half)
        return square if n % 2 == 0 else self.put(MUL, square, a)

    def tanh(self, a: int) -> int:
        """1 - 2 / (exp(2 a) + 1)."""
        one, two = self.put(CONST, number=1.0), self.put(CONST, number=2.0)
        growth = self.function(EXP, self.put(MUL, two, a))
        return self.put(SUB, one, self.put(DIV, two, self.put(ADD, growth, one)))


class Faces(NamedTuple):
    """Which operations of slopes have to be computed for the faces of a tube.

    moving  (n_moving,) those that depend on states, inputs or time
    need, need_first  those that slope i is made of begin at need_first[i] in `need`
    own, own_first    the same, of those that depend on state i
    """

    moving: IntArray
    need: IntArray
    need_first: IntArray
    own: IntArray
    own_first: IntArray


def faces(tape: OpTape) -> Faces:
    """Those of slopes of all states, in their order, and perhaps of sums."""
    depends = np.zeros((len(tape.results) + 1, len(tape.op)), dtype=bool)
    slots, columns = tape.argument.tolist(), (tape.op.tolist(), tape.a.tolist(), tape.b.tolist())
    for k, (op, a, b) in enumerate(zip(*columns, strict=True)):
        depends[-1, k] = op in (STATE, INPUT, TIME)
        if op == STATE:
            depends[a, k] = True
        for j in arguments(op, a, b, slots):
            depends[:, k] |= depends[:, j]
    need, own = (_listed(rows) for rows in (tape.needed, tape.needed & depends[:-1]))
    return Faces(np.flatnonzero(depends[-1]), *need, *own)


def _listed(rows: BoolArray) -> tuple[IntArray, IntArray]:
    """Places of the true entries of all rows (n_rows, n), and where each row's begin."""
    places = np.ascontiguousarray(np.nonzero(rows)[1])  # kernels are compiled for one layout
    return places, np.append(0, np.cumsum(rows.sum(axis=1)))


class Linear(NamedTuple):
    """Results as sums of other operations times constants.

    atoms    (n_atoms,) operations that the sums are made of;  weight  (n_results, n_atoms)
    between  (n_between,) sums and multiples on the way;  factor  (n_results, n_between)
    """

    atoms: IntArray
    weight: FloatArray
    between: IntArray
    factor: FloatArray


# sums with others are not taken apart: in doubles these overflow, or underflow unnoticed
LEAST_FACTOR, LARGEST_FACTOR = 1e-100, 1e100


def linear_parts(tape: OpTape) -> Linear:
    """Take the results apart as far as they are sums and constant multiples; factors are rounded.

    Fluxes of a reaction network are in several slopes: what one of them is off, all these are.
    """
    rows = list(zip(*(c.tolist() for c in (tape.op, tape.a, tape.b, tape.number)), strict=True))
    results = tape.results.tolist()
    shares: dict[int, dict[int, Fraction]] = {k: {} for k in sorted(results)}
    for i, k in enumerate(results):
        shares[k][i] = Fraction(1)
    whole = {k: dict(share) for k, share in shares.items()}
    between = set()
    for k in range(len(rows) - 1, -1, -1):
        for place, factor in _terms(rows, k) if k in shares else []:
            between.add(k)
            own = shares.setdefault(place, {})
            for i, share in shares[k].items():
                own[i] = own.get(i, Fraction(0)) + factor * share
    sizes = [abs(share) for own in shares.values() for share in own.values() if share]
    if not all(LEAST_FACTOR < size < LARGEST_FACTOR for size in sizes):
        shares, between = whole, set()

    def table(places: Sequence[int]) -> FloatArray:
        each = [[float(shares[k].get(i, 0)) for k in places] for i in range(len(results))]
        return np.array(each, dtype=float).reshape(len(results), len(places))

    atoms, way = sorted(shares.keys() - between), sorted(between)
    integers = (np.array(places, dtype=np.int64) for places in (atoms, way))
    return Linear(next(integers), table(atoms), next(integers), table(way))


def _terms(rows: Sequence[tuple[int, int, int, float]], k: int) -> list[tuple[int, Fraction]]:
    """Operation k as a sum of constant multiples; empty if it is something else."""
    op, a, b, _ = rows[k]
    if op in (ADD, SUB):
        return [(a, Fraction(1)), (b, Fraction(1 if op == ADD else -1))]
    if op == NEG:
        return [(a, Fraction(-1))]
    if op == MUL:
        for one, other in ((a, b), (b, a)):
            number = rows[one][3]
            if rows[one][0] == CONST and abs(number) < LARGEST_FACTOR:
                return [(other, Fraction(number))]
    return []


ENDLESS = 1000  # an order in time that no step reaches


def _reach(rows: Sequence[tuple[int, int, int, float]]) -> IntArray:
    reach: list[int] = []
    for op, a, b, _ in rows:
        if op in (CONST, PARAMETER, COEFFICIENT):
            order = 0
        elif op in (INPUT, TIME):
            order = 1
        elif op in (ADD, SUB):
            order = max(reach[a], reach[b])
        elif op in (MUL, SQUARE):
            order = min(reach[a] + reach[b if op == MUL else a], ENDLESS)
        elif op in (NEG, SHIFT, HORNER, CLOSE, GENERAL_POWER) or (op == DIV and reach[b] == 0):
            order = reach[a]
        else:
            order = ENDLESS
        reach.append(order)
    return np.array(reach, dtype=np.int64)
