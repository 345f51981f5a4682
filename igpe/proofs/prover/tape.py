"""The right-hand side as a flat list of operations, which compiled code interprets.

One interpreter serves every model. Functions of one variable are written as their Taylor polynomial
about the middle of the step (Horner's scheme) plus a remainder, so that sums, products and
quotients are all that the Taylor models have to know.
"""

from collections.abc import Sequence
from typing import NamedTuple

from igpe.core.arrays import BoolArray, FloatArray, IntArray

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
    TERM,
    FRACTION,
    GENERAL_POWER,
) = range(18)
EXP, LOG, POWER, SIN, COS = range(5)
TERMS = 6  # of a function's polynomial


class Tape(NamedTuple):
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


def arguments(tape: Tape, k: int) -> list[int]:
    """Which operations the one at k is made of."""
    return arguments_of(int(tape.op[k]), int(tape.a[k]), int(tape.b[k]), tape.argument.tolist())


def arguments_of(op: int, a: int, b: int, of_slots: Sequence[int]) -> list[int]:
    """The same of one operation as it is written; `of_slots` are the arguments of functions."""
    if op in (CONST, STATE, PARAMETER, INPUT, TIME):
        return []
    if op == FRACTION:
        return list(range(a, a + b))
    found = [a, b] if op in (ADD, SUB, MUL, DIV) else [a]
    return [*found, of_slots[b]] if op == CLOSE else found
