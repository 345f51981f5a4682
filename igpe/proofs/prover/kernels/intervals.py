"""Interval arithmetic over a tape, outward: one range for each operation.

An infinite end means that no bound is known; it is never a value. A range that is not a number, or
whose ends are crossed, becomes the whole line, so that every range is ordered.
"""

import math

import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.proofs.compiled import kernel
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.tape import OpTape

UNIT = 2.0**-53  # largest relative rounding error of one operation
UP = 1 + 2.0**-40  # more than the rounding of 4000 operations on numbers that are not negative
TINY = 1e-300  # more than whatever underflows
ROUND = 2.0**-50  # eight times the rounding of an operation; four ulps of a library function
MOST_EXPONENT = 709.0  # exp of it is a double
HUGE = 8e307  # less than that, and than the largest double: what overflowed is at least as large


@kernel
def outward(low: float, high: float) -> tuple[float, float]:
    """The interval with the rounding of its ends covered; everything where one is no number."""
    if not (low <= high):
        return -np.inf, np.inf
    low = min(low, HUGE)
    high = max(high, -HUGE)
    return low - abs(low) * ROUND - TINY, high + abs(high) * ROUND + TINY


@kernel
def times(a0: float, a1: float, b0: float, b1: float) -> tuple[float, float]:
    """Product of two intervals, not rounded; the whole line where an end is no number."""
    p, q, r, s = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    if math.isfinite(p + q + r + s):
        return min(p, q, r, s), max(p, q, r, s)
    if not (a0 <= a1 and b0 <= b1):
        return -np.inf, np.inf
    # an infinite end is no value, so that zero times it is zero
    p = 0.0 if a0 == 0.0 or b0 == 0.0 else a0 * b0
    q = 0.0 if a0 == 0.0 or b1 == 0.0 else a0 * b1
    r = 0.0 if a1 == 0.0 or b0 == 0.0 else a1 * b0
    s = 0.0 if a1 == 0.0 or b1 == 0.0 else a1 * b1
    return min(p, q, r, s), max(p, q, r, s)


@kernel
def _wave(a: float, b: float, low: float, high: float, top: float) -> tuple[float, float]:
    """Range of a sine whose ends are a and b, and whose maxima are at 2 pi (k + top).

    Maxima and minima are looked for with some room to spare.
    """
    room, turn = 1e-9 * (1.0 + abs(low) + abs(high)), 2.0 * math.pi
    first, last = (low - room) / turn - top, (high + room) / turn - top
    largest = 1.0 if math.ceil(first) <= math.floor(last) else max(a, b)
    smallest = -1.0 if math.ceil(first - 0.5) <= math.floor(last - 0.5) else min(a, b)
    return smallest, largest


@kernel
def of_function(kind: int, exponent: float, low: float, high: float) -> tuple[float, float]:
    """Range of a function over an interval; nan where it is not defined."""
    if not (low <= high):
        return np.nan, np.nan
    if kind == ops.EXP:
        least = math.exp(low) if low < MOST_EXPONENT else HUGE
        return least, math.exp(high) if high < MOST_EXPONENT else np.inf
    if not (math.isfinite(low) and math.isfinite(high)):
        if kind in (ops.SIN, ops.COS):
            return -1.0, 1.0
        return np.nan, np.nan
    if kind == ops.SIN:
        return _wave(math.sin(low), math.sin(high), low, high, 0.25)
    if kind == ops.COS:
        return _wave(math.cos(low), math.cos(high), low, high, 0.0)
    if kind == ops.LOG:
        return (math.log(low), math.log(high)) if low > 0.0 else (np.nan, np.nan)
    if low < 0.0 or (low == 0.0 and exponent < 0.0):
        return np.nan, np.nan
    a, b = low**exponent, high**exponent
    return min(a, b), max(a, b)


@kernel
def of_power(b0: float, b1: float, n0: float, n1: float) -> tuple[float, float]:
    """Range of b**n over two intervals, b**n being 0 where b <= 0, but 1 for n = 0.

    Elsewhere it is monotone in b and in n, so that its extremes are at corners.
    """
    if not (b0 <= b1 and n0 <= n1):
        return np.nan, np.nan
    if b1 <= 0.0:
        return 0.0, 1.0 if n0 <= 0.0 <= n1 else 0.0
    p, q = _power(b1, n0), _power(b1, n1)
    if b0 > 0.0:
        r, s = _power(b0, n0), _power(b0, n1)
        low, high = outward(min(p, q, r, s), max(p, q, r, s))
        return max(low, 0.0), high
    if not (n0 >= 0.0):
        return 0.0, np.inf
    # as b falls to 0 powers fall from b1**n to 0, and stay at 1 where n = 0
    high = max(p, q)
    if n0 == 0.0:
        high = max(high, 1.0)
    return 0.0, outward(0.0, high)[1]


@kernel
def _power(b: float, n: float) -> float:
    """b**n of b > 0, for infinite ends as well."""
    if n == 0.0 or b == 1.0:
        return 1.0
    if math.isfinite(b) and math.isfinite(n) and abs(n * math.log(b)) < MOST_EXPONENT:
        return float(b**n)
    return np.inf if (n > 0.0) == (b > 1.0) else 0.0


@kernel
def fraction(
    places: IntArray, weights: FloatArray, first: int, count: int, out: FloatArray
) -> tuple[float, float]:
    """Range of sum w_i t_i / sum t_i, a mean of the weights if no t_i is negative.

    The terms t_i are the operations at `places`, with `weights`, from `first` on.

    It rises with t_i where w_i is above it: the largest value has its terms of largest weight at
    their upper ends and all others at their lower ends. 0 / 0 is taken for any mean.
    """
    least, most = np.inf, -np.inf
    for i in range(first, first + count):
        w = weights[i]
        least, most = min(least, w), max(most, w)
        if not (out[places[i], 0] >= 0.0 and math.isfinite(out[places[i], 1])):
            return _plain_fraction(places, weights, first, count, out)
    room = (count + 2.0) * ROUND * max(abs(least), abs(most))
    low, high = most, least
    for j in range(first, first + count):
        a0 = a1 = b0 = b1 = 0.0
        above, below = False, False  # whether positive, or negative, terms are summed up
        for i in range(first, first + count):
            w, t0, t1 = weights[i], out[places[i], 0], out[places[i], 1]
            t = t1 if w <= weights[j] else t0
            a0, b0 = a0 + w * t, b0 + t
            below = below or w * t < 0.0
            t = t1 if w >= weights[j] else t0
            a1, b1 = a1 + w * t, b1 + t
            above = above or w * t > 0.0
        if not math.isfinite(a0 + a1 + b0 + b1):
            return least, most
        if b0 > 0.0:
            quotient = a0 / b0 - room
            low = min(low, quotient if below else max(quotient, 0.0))
        if b1 > 0.0:
            quotient = a1 / b1 + room
            high = max(high, quotient if above else min(quotient, 0.0))
    if low > high:
        return least, most
    return max(low, least), min(high, most)


@kernel
def _plain_fraction(
    places: IntArray, weights: FloatArray, first: int, count: int, out: FloatArray
) -> tuple[float, float]:
    """The same where terms may be negative."""
    a0 = a1 = b0 = b1 = size = 0.0
    for i in range(first, first + count):
        w, t0, t1 = weights[i], out[places[i], 0], out[places[i], 1]
        a0, a1 = a0 + min(w * t0, w * t1), a1 + max(w * t0, w * t1)
        b0, b1 = b0 + t0, b1 + t1
        size += (1.0 + abs(w)) * max(abs(t0), abs(t1))
    room = (count + 2.0) * ROUND * size + TINY
    b0, b1 = b0 - room, b1 + room
    if not (b0 > 0.0 or b1 < 0.0) or not math.isfinite(size):
        return -np.inf, np.inf
    low, high = times(a0 - room, a1 + room, 1.0 / b1, 1.0 / b0)
    return outward(low, high)


@kernel
def between(op: int, a0: float, a1: float, b0: float, b1: float) -> tuple[float, float]:
    """Range of a sum, difference, product, quotient or square, rounded but not beyond zero."""
    positive = False
    if op == ops.ADD:
        low, high = a0 + b0, a1 + b1
        positive = a0 >= 0.0 and b0 >= 0.0
    elif op == ops.SUB:
        low, high = a0 - b1, a1 - b0
        positive = a0 >= 0.0 and b1 <= 0.0
    elif op == ops.MUL:
        if (a0 == a1 == 0.0 and b0 <= b1) or (b0 == b1 == 0.0 and a0 <= a1):
            return 0.0, 0.0  # exactly
        low, high = times(a0, a1, b0, b1)
        positive = a0 >= 0.0 and b0 >= 0.0
    elif not (a0 <= a1):
        return -np.inf, np.inf
    elif op == ops.SQUARE:
        low, high = min(abs(a0), abs(a1)), max(abs(a0), abs(a1))
        low, high = (0.0 if a0 <= 0.0 <= a1 else low * low), high * high
        positive = True
    elif not (b0 > 0.0 or b1 < 0.0):
        return -np.inf, np.inf
    else:
        low, high = times(a0, a1, 1.0 / b1, 1.0 / b0)
        low, high = outward(low, high)
        positive = a0 >= 0.0 and b0 > 0.0
    low, high = outward(low, high)
    return (0.0 if positive and low < 0.0 else low), high


@kernel
def cut_off(out: FloatArray, n: int, low: float, high: float) -> None:
    """Operation n is between low and high too; nothing is learnt if that leaves nothing."""
    if not (low <= high):
        return
    low, high = max(low, out[n, 0]), min(high, out[n, 1])
    if low <= high:
        out[n, 0], out[n, 1] = low, high


@kernel
def narrow_operands(tape: OpTape, out: FloatArray) -> None:
    """Narrow the ranges out (n, 2) of operations by those of what is made of them.

    Benhamou, Goualard, Granvilliers, Puget: Revising hull and box consistency, ICLP 1999 (HC4).
    """
    for n in range(len(tape.op) - 1, -1, -1):
        op, a, b = tape.op[n], tape.a[n], tape.b[n]
        low, high = out[n, 0], out[n, 1]
        if op in (ops.ADD, ops.SUB, ops.MUL, ops.DIV):
            a0, a1, b0, b1 = out[a, 0], out[a, 1], out[b, 0], out[b, 1]
            if op == ops.ADD:
                one = between(ops.SUB, low, high, b0, b1)
                two = between(ops.SUB, low, high, a0, a1)
            elif op == ops.SUB:
                one = between(ops.ADD, low, high, b0, b1)
                two = between(ops.SUB, a0, a1, low, high)
            elif op == ops.MUL:
                one = between(ops.DIV, low, high, b0, b1)
                two = between(ops.DIV, low, high, a0, a1)
            else:
                one = between(ops.MUL, low, high, b0, b1)
                two = between(ops.DIV, a0, a1, low, high)
            cut_off(out, a, one[0], one[1])
            cut_off(out, b, two[0], two[1])
        elif op == ops.NEG:
            cut_off(out, a, -high, -low)
        elif op == ops.CLOSE and tape.function[b] == ops.LOG:
            low, high = of_function(ops.EXP, 0.0, low, high)
            low, high = outward(low, high)
            cut_off(out, tape.argument[b], low, high)
        elif op == ops.CLOSE and tape.function[b] == ops.EXP and low > 0.0 and high < np.inf:
            low, high = outward(math.log(low), math.log(high))
            cut_off(out, tape.argument[b], low, high)


@kernel
def base_and_exponent(tape: OpTape, n: int) -> tuple[int, int]:
    """Where base and exponent of a GENERAL_POWER stand."""
    product = tape.argument[tape.b[tape.a[n]]]
    logarithm = tape.b[product]
    return tape.argument[tape.b[logarithm]], tape.a[product]
