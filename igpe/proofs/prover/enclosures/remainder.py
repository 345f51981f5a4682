"""How far the operations on a tape may be from their polynomials, over a whole step.

Every operation is polynomial +- (d + M |eps|) where the states are polynomial + eps and |eps| <= e.
d holds what truncation of products and every rounding lose, by the norms of the coefficients'
classes (order in time x degree): numbers that are not negative, so that one factor `UP` after each
operation covers the rounding of the bound itself.
"""

import math

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.prover.compiled import kernel
from igpe.proofs.prover.enclosures.intervals import MOST_EXPONENT
from igpe.proofs.prover.enclosures.recursion import TINY, UNIT, UP, Algebra, Space
from igpe.proofs.prover.writer import (
    ADD,
    CLOSE,
    COEFFICIENT,
    CONST,
    DIV,
    EXP,
    HORNER,
    INPUT,
    LOG,
    MUL,
    PARAMETER,
    POWER,
    SQUARE,
    STATE,
    SUB,
    TERMS,
    TIME,
    Tape,
)

LIBRARY = 8 * UNIT  # four units in the last place: what functions of the C library may be off


@kernel
def norms(tape: Tape, algebra: Algebra, space: Space, order: int, h: float) -> None:
    """Norms of all coefficients by class and order, times h^k; and their sums."""
    for n in range(len(tape.op)):
        power, total = 1.0, 0.0
        for k in range(order + 1):
            for g in range(algebra.degree + 2):
                found = 0.0
                if k <= tape.reach[n]:
                    for m in range(algebra.first[g], algebra.first[g + 1]):
                        found += abs(space.c[n, k, m])
                found = found * power * UP
                space.norm[n, k, g] = found
                total += found
            power *= h
        space.total[n] = total * UP + TINY


@kernel
def _not_kept(algebra: Algebra, space: Space, a: int, b: int, order: int) -> float:
    """Bound on the products of a and b that truncation drops."""
    classes = algebra.degree + 2
    left, norm = space.left, space.norm
    late = 0.0  # of b: all of higher order in time
    for k in range(order, -1, -1):
        for g in range(classes):
            left[k, g] = late
        for g in range(classes):
            late += norm[b, k, g]
    # and those of no higher order, but of higher degree
    for g in range(classes - 2, -1, -1):
        higher = 0.0
        for k in range(order + 1):
            for i in range(g + 1, classes):
                higher += norm[b, k, i]
            left[k, g] += higher
    total = 0.0
    for k in range(order + 1):
        for g in range(classes):
            highest = classes - 1 if g == 0 else algebra.degree - g
            if g == classes - 1:
                highest = 0
            total += norm[a, k, g] * left[order - k, highest]
    return float(total * UP)


@kernel
def losses(
    tape: Tape, algebra: Algebra, space: Space, order: int, p: FloatArray, sizes: FloatArray
) -> None:
    """What truncation and rounding lose in each operation; needs `norms`.

    p      (n_p, 5) of the parameters, whose polynomials lose something too: see `scales`
    sizes  (n_u,) |a| + |b t| of the inputs a + b t, which may cancel
    """
    total = space.total
    many = (order + 1.0) * (algebra.most + 2.0) + 8.0
    for n in range(len(tape.op)):
        op, a, b = tape.op[n], tape.a[n], tape.b[n]
        lost = 0.0
        if op in (ADD, SUB):
            lost = UNIT * (total[a] + total[b])
        elif op in (MUL, SQUARE):
            other = a if op == SQUARE else b
            lost = _not_kept(algebra, space, a, other, order)
            lost += many * UNIT * total[a] * total[other]
        elif op == DIV:
            lost = _not_kept(algebra, space, n, b, order)
            lost += 2.0 * many * UNIT * (total[n] * total[b] + total[a])
        elif op == PARAMETER:
            lost = p[a, 4]
        elif op == INPUT:
            lost = 4.0 * UNIT * (total[n] + sizes[a])
        elif op in (HORNER, COEFFICIENT):
            g = abs(space.g[b, int(tape.number[n])])
            lost = UNIT * total[a] * (op == HORNER) + (LIBRARY + 4.0 * TERMS * UNIT) * g
        space.lost[n] = lost * UP + TINY


@kernel
def _derivative(kind: int, exponent: float, low: float, high: float) -> float:
    """Bound on |g^(TERMS + 1)| / (TERMS + 1)! over an interval; infinite where undefined."""
    n = TERMS + 1
    factorial = 1.0
    if not (low <= high):
        return np.inf
    for i in range(2, n + 1):
        factorial *= i
    if kind == EXP:
        return math.exp(high) / factorial * (1.0 + LIBRARY) if high < MOST_EXPONENT else np.inf
    if kind not in (LOG, POWER):
        return 1.0 / factorial
    if not (0.0 < low <= high):
        return np.inf
    if kind == LOG:
        return low ** (-n) / n * (1.0 + LIBRARY)
    binomial = 1.0
    for i in range(n):
        binomial *= abs(exponent - i) / (i + 1)
    largest = max(low ** (exponent - n), high ** (exponent - n))
    return float(binomial * largest * (1.0 + LIBRARY))


@kernel
def errors(tape: Tape, algebra: Algebra, space: Space, tube: FloatArray) -> None:
    """d and M of every operation, for |eps| <= tube (n_x,); needs `losses` and `range`."""
    e, most, total, lost = space.error, space.most, space.total, space.lost
    columns = 1 + algebra.states
    for n in range(len(tape.op)):
        op, a, b = tape.op[n], tape.a[n], tape.b[n]
        if op == STATE:
            e[n] = 0.0
            e[n, 1 + a] = 1.0
        elif op in (CONST, PARAMETER, COEFFICIENT, INPUT, TIME):
            e[n] = 0.0
            e[n, 0] = lost[n]
        elif op in (ADD, SUB):
            for i in range(columns):
                e[n, i] = e[a, i] + e[b, i]
            e[n, 0] += lost[n]
        elif op in (MUL, SQUARE):
            other = a if op == SQUARE else b
            one, two = total[a], total[other] + most[other]
            for i in range(columns):
                e[n, i] = (one * e[other, i] + two * e[a, i]) * UP
            e[n, 0] += lost[n]
        elif op == DIV:
            smallest = _away(space, b)
            for i in range(columns):
                e[n, i] = (e[a, i] + total[n] * e[b, i]) / smallest * UP
            e[n, 0] += lost[n] / smallest
        else:
            for i in range(columns):
                e[n, i] = e[a, i]
            e[n, 0] += lost[n]
            if op == CLOSE:
                e[n, 0] += _last(tape, space, b)
        found = e[n, 0]
        for i in range(algebra.states):
            found += e[n, 1 + i] * tube[i]
        e[n, 0] = e[n, 0] * UP
        most[n] = found * UP


@kernel
def divides_by_zero(tape: Tape, space: Space) -> bool:
    """Whether a denominator may vanish even without errors; needs `norms` and `range`."""
    space.most[:] = 0.0
    vanishes = False
    for n in range(len(tape.op)):
        vanishes = vanishes or (tape.op[n] == DIV and not (_away(space, tape.b[n]) > 0.0))
    return vanishes


@kernel
def _away(space: Space, b: int) -> float:
    """How far an operation keeps away from zero; nan where it does not."""
    apart = 2.0 * abs(space.c[b, 0, 0]) - space.total[b] * (1.0 + 8.0 * UNIT) - space.most[b]
    low, high = space.range[b, 0], space.range[b, 1]
    bounded = low if low > 0.0 else -high  # of a range: as it stands, whatever the polynomial is
    if bounded > 0.0 and low <= high and not (apart > bounded):
        apart = bounded
    return apart / UP if apart > 0.0 else np.nan


@kernel
def _last(tape: Tape, space: Space, slot: int) -> float:
    """The remainder of a function's polynomial."""
    k = tape.argument[slot]
    middle = space.c[k, 0, 0]
    away = (
        max(space.total[k] - abs(middle), 0.0) + 8.0 * UNIT * space.total[k] + space.most[k]
    ) * UP
    if not (away >= 0.0):
        return np.inf
    # Lagrange's place lies between the middle and the argument, which its interval encloses too
    low = min(middle, max(middle - away, space.range[k, 0]))
    high = max(middle, min(middle + away, space.range[k, 1]))
    away = min(away, max(high - middle, middle - low) * UP)
    low, high = low - 4.0 * UNIT * abs(low), high + 4.0 * UNIT * abs(high)
    bound = _derivative(tape.function[slot], tape.exponent[slot], low, high)
    return float(bound * away ** (TERMS + 1) * UP * UP)
