"""Expressions as the kernels read them, and their values over intervals with derivatives."""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.proofs.checker.kernels.intervals import (
    LOG,
    Pair,
    add,
    divide,
    multiply,
    power,
    series,
    size,
    square,
    subtract,
)
from igpe.proofs.compiled import kernel

CONST, TIME, STATE, PARAMETER, INPUT, ADD, SUB, MUL, DIV, NEG, SQUARE, POWER, FUNCTION = range(13)
LEAVES = frozenset({CONST, TIME, STATE, PARAMETER, INPUT})


class ReplayTape(NamedTuple):
    """Operations in order; the arguments of each stand before it.

    op       (n,) what it is; FUNCTION + k: function k of `intervals`
    a, b     (n,) positions of its arguments; of a leaf: its index
    smooth   (n,) of a POWER a ** b: where exp(b log(a)) stands
    number   (n,) value of a CONST
    length   (n,) how many powers of the time a polynomial of it has where states have all
    depends  (n, n_states) on which states it depends
    results  (n_results,) positions of the results
    rates    (n_rates,) operations of which results are sums
    share    (n_results, n_rates) how often, to one rounding
    """

    op: IntArray
    a: IntArray
    b: IntArray
    smooth: IntArray
    number: FloatArray
    length: IntArray
    depends: BoolArray
    results: IntArray
    rates: IntArray
    share: FloatArray


class Values(NamedTuple):
    """Values of leaves, or of all operations: intervals, each (n, 2), and derivatives.

    value  (n_operations, 2);  slope  (n_operations, n_states, 2), written where `depends`
    """

    value: FloatArray
    slope: FloatArray


@kernel
def evaluate(
    tape: ReplayTape,
    time: Pair,
    x: FloatArray,
    p: FloatArray,
    u: FloatArray,
    derivatives: bool,
    to: Values,
) -> None:
    """Write the range of every operation, for x, p, u (n, 2), and of its derivatives by states."""
    v, coefficients = to.value, np.empty((2, 2))
    for i in range(len(tape.op)):
        op, a, b = tape.op[i], tape.a[i], tape.b[i]
        if op == CONST:
            v[i, 0] = v[i, 1] = tape.number[i]
        elif op == TIME:
            v[i] = time
        elif op == STATE:
            v[i, 0], v[i, 1] = x[a, 0], x[a, 1]
        elif op == PARAMETER:
            v[i, 0], v[i, 1] = p[a, 0], p[a, 1]
        elif op == INPUT:
            v[i, 0], v[i, 1] = u[a, 0], u[a, 1]
        elif op == ADD:
            v[i] = add(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
        elif op == SUB:
            v[i] = subtract(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
        elif op == MUL:
            v[i] = multiply(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
        elif op == DIV:
            v[i] = divide(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
        elif op == NEG:
            v[i] = -v[a, 1], -v[a, 0]
        elif op == SQUARE:
            v[i] = square(v[a, 0], v[a, 1])
        elif op == POWER:
            v[i] = power(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
        else:
            series(op - FUNCTION, v[a, 0], v[a, 1], 1, coefficients)
            v[i] = coefficients[0, 0], coefficients[0, 1]
        if derivatives:
            _differentiate(tape, i, coefficients[1], to)


@kernel
def _differentiate(tape: ReplayTape, i: int, outer: FloatArray, to: Values) -> None:
    """Derivatives of operation i, whose own value, and that of its arguments, is known."""
    op, a, b, v, s = tape.op[i], tape.a[i], tape.b[i], to.value, to.slope
    by_a, by_b = (1.0, 1.0), (1.0, 1.0)
    if op == MUL:
        by_a, by_b = (v[b, 0], v[b, 1]), (v[a, 0], v[a, 1])
    elif op == SUB:
        by_b = (-1.0, -1.0)
    elif op == DIV:  # (a' - (a / b) b') / b
        by_b = (-v[i, 1], -v[i, 0])
    elif op == NEG:
        by_a = (-1.0, -1.0)
    elif op == SQUARE:
        by_a = add(v[a, 0], v[a, 1], v[a, 0], v[a, 1])
    elif op == POWER:
        by_a, by_b = _power_slopes(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
    elif op >= FUNCTION:
        by_a = (outer[0], outer[1])
    is_binary = op in (ADD, SUB, MUL, DIV, POWER)
    for j in range(s.shape[1]):
        if not tape.depends[i, j]:
            continue
        if op == STATE:
            s[i, j, 0] = s[i, j, 1] = 1.0
            continue
        low = high = 0.0
        if tape.depends[a, j]:
            low, high = multiply(s[a, j, 0], s[a, j, 1], by_a[0], by_a[1])
        if is_binary and tape.depends[b, j]:
            p, q = multiply(s[b, j, 0], s[b, j, 1], by_b[0], by_b[1])
            low, high = add(low, high, p, q)
        if op == DIV:
            low, high = divide(low, high, v[b, 0], v[b, 1])
        s[i, j, 0], s[i, j, 1] = low, high


@kernel
def _power_slopes(a: float, b: float, c: float, d: float) -> tuple[Pair, Pair]:
    """Derivatives of a power by base and exponent; 0 where the base is not positive.

    Where the base reaches 0 they hold on either side of it, and the power is continuous if
    exponents are positive; if one is not, the power jumps and no slope bounds it.
    """
    less = subtract(c, d, 1.0, 1.0)
    low, high = power(a, b, less[0], less[1])
    by_base = multiply(c, d, low, high)
    if not (a > 0 or c > 0):
        by_base = -np.inf, np.inf
    logarithm = np.empty((1, 2))
    series(LOG, a, b, 0, logarithm)
    low, high = power(a, b, c, d)
    return by_base, multiply(low, high, logarithm[0, 0], logarithm[0, 1])


@kernel
def jacobian(tape: ReplayTape, to: Values, length: Pair, m: FloatArray) -> None:
    """M >= h J_ij on the diagonal, >= h |J_ij| elsewhere, h in `length`, into m (n, n)."""
    for i in range(len(tape.results)):
        at = tape.results[i]
        for j in range(m.shape[1]):
            m[i, j] = 0.0
            if tape.depends[at, j]:
                s = to.slope[at, j]
                low, high = multiply(s[0], s[1], length[0], length[1])
                m[i, j] = high if i == j else size(low, high)
