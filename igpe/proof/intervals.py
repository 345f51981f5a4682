"""Interval arithmetic over a tape, outward: one range for each operation."""

import math

import numpy as np

from igpe.arrays import FloatArray
from igpe.proof.compiled import kernel
from igpe.proof.monomials import TINY
from igpe.proof.tape import (
    ADD,
    COEFFICIENT,
    CONST,
    COS,
    DIV,
    EXP,
    HORNER,
    INPUT,
    LOG,
    MUL,
    NEG,
    PARAMETER,
    SHIFT,
    SIN,
    SQUARE,
    STATE,
    SUB,
    TIME,
    Tape,
)

ROUND = 2.0**-50  # eight times the rounding of an operation; four ulps of a library function


@kernel
def outward(low: float, high: float) -> tuple[float, float]:
    """The interval with the rounding of its ends covered; everything where one is no number."""
    if not (low <= high):
        return -np.inf, np.inf
    return low - abs(low) * ROUND - TINY, high + abs(high) * ROUND + TINY


@kernel
def times(a0: float, a1: float, b0: float, b1: float) -> tuple[float, float]:
    """Product of two intervals, not rounded."""
    p, q, r, s = a0 * b0, a0 * b1, a1 * b0, a1 * b1
    return min(p, q, r, s), max(p, q, r, s)


@kernel
def _wave(a: float, b: float, low: float, high: float, top: float) -> tuple[float, float]:
    """Range of a sine whose ends are a and b, and whose maxima are at 2 pi (k + top).

    Maxima and minima are looked for with some room to spare.
    """
    room = 1e-9 * (1.0 + abs(low) + abs(high))
    smallest, largest = min(a, b), max(a, b)
    turn = 2.0 * math.pi
    first, last = (low - room) / turn, (high + room) / turn
    if math.ceil(first - top) <= math.floor(last - top):
        largest = 1.0
    if math.ceil(first - top - 0.5) <= math.floor(last - top - 0.5):
        smallest = -1.0
    return smallest, largest


@kernel
def of_function(kind: int, exponent: float, low: float, high: float) -> tuple[float, float]:
    """Range of a function over an interval; nan where it is not defined."""
    if not (math.isfinite(low) and math.isfinite(high)):
        if kind in (SIN, COS):
            return -1.0, 1.0
        return np.nan, np.nan
    if kind == EXP:
        return math.exp(low), math.exp(high)
    if kind == SIN:
        return _wave(math.sin(low), math.sin(high), low, high, 0.25)
    if kind == COS:
        return _wave(math.cos(low), math.cos(high), low, high, 0.0)
    if kind == LOG:
        return (math.log(low), math.log(high)) if low > 0.0 else (np.nan, np.nan)
    if low < 0.0 or (low == 0.0 and exponent < 0.0):
        return np.nan, np.nan
    a, b = low**exponent, high**exponent
    return min(a, b), max(a, b)


@kernel
def enclose(
    tape: Tape, which: int, x: FloatArray, p: FloatArray, u: FloatArray, out: FloatArray
) -> None:
    """Ranges of the operations that result `which` needs (all of them: -1), into out (n, 2).

    x (n_x, 2), p (n_p, 2), u (n_u + 1, 2): ranges of states, parameters, and inputs with time last
    """
    for n in range(len(tape.op)):
        if which >= 0 and not tape.needed[which, n]:
            continue
        op, a, b = tape.op[n], tape.a[n], tape.b[n]
        if op == STATE:
            low, high = x[a, 0], x[a, 1]
        elif op == PARAMETER:
            low, high = p[a, 0], p[a, 1]
        elif op == CONST:
            low, high = tape.number[n], tape.number[n]
        elif op == INPUT:
            low, high = u[a, 0], u[a, 1]
        elif op == TIME:
            low, high = u[len(u) - 1, 0], u[len(u) - 1, 1]
        elif op in (SHIFT, COEFFICIENT, HORNER):
            continue
        else:
            if op == ADD:
                low, high = out[a, 0] + out[b, 0], out[a, 1] + out[b, 1]
            elif op == SUB:
                low, high = out[a, 0] - out[b, 1], out[a, 1] - out[b, 0]
            elif op == MUL:
                low, high = times(out[a, 0], out[a, 1], out[b, 0], out[b, 1])
            elif op == SQUARE:
                low, high = abs(out[a, 0]), abs(out[a, 1])
                low, high = min(low, high), max(low, high)
                low = 0.0 if out[a, 0] <= 0.0 <= out[a, 1] else low * low
                high *= high
            elif op == NEG:
                low, high = -out[a, 1], -out[a, 0]
            elif op == DIV:
                if out[b, 0] <= 0.0 <= out[b, 1]:
                    low, high = np.nan, np.nan
                else:
                    r, s = 1.0 / out[b, 1], 1.0 / out[b, 0]
                    low, high = times(out[a, 0], out[a, 1], r, s)
                    low, high = outward(low, high)
            else:  # CLOSE
                k = tape.argument[b]
                low, high = of_function(tape.function[b], tape.exponent[b], out[k, 0], out[k, 1])
            low, high = outward(low, high)
            if op == SQUARE and low < 0.0:
                low = 0.0
        out[n, 0], out[n, 1] = low, high
