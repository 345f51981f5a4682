"""Intervals with outward rounding, one at a time, and elementary functions of them.

Every bound moves outward by 2^-51 of itself after an operation: more than its rounding and that of
moving it. What has no bound (a quotient by an interval with 0, an overflow, the logarithm of a
negative number) is the whole line, and stays it in sums and products.

Of an elementary function only its Taylor coefficients are known: f(x), f'(x), f''(x)/2, ...
Polynomials use them at a point and the last one over the range (Lagrange); derivatives use the
second.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.proofs.compiled import kernel, lean_kernel

UNIT = 2.0**-53
SLACK = 2.0**-40  # > 4000 UNIT: of what is computed from numbers >= 0 by so many operations
TINY = 1e-290
MOVED = 4 * UNIT
LEAST = 5e-324  # what an operation that underflows may be off, twice
LARGEST = 1.7976931348623157e308
LIBRARY = 8  # units in the last place that exp, log, sin, ... of the C library may be off
FAR = 1e6  # arguments of sin and cos from which their reduction is not believed
EXP, LOG, SQRT, SIN, COS = range(5)
Pair = tuple[float, float]


@kernel
def up(x: float) -> float:
    """Upper bound of the exact number that x >= 0 approximates."""
    return x * (1 + SLACK) + TINY


@kernel
def down(x: float) -> float:
    """Lower bound of the exact number that x >= 0 approximates."""
    return 0.0 if np.isnan(x) else max(x * (1 - SLACK) - TINY, 0.0)


@kernel
def outward(low: float, high: float) -> Pair:
    """Bounds that one operation rounded, moved apart; the whole line where one is no number."""
    if not low <= high:
        return -np.inf, np.inf
    if low == np.inf:  # it overflowed
        low = LARGEST
    elif low != -np.inf:
        low = low - (abs(low) * MOVED + LEAST)
    if high == -np.inf:
        high = -LARGEST
    elif high != np.inf:
        high = high + (abs(high) * MOVED + LEAST)
    return low, high


@kernel
def add(a: float, b: float, c: float, d: float) -> Pair:
    """[a, b] + [c, d]"""
    return outward(a + c, b + d)


@kernel
def subtract(a: float, b: float, c: float, d: float) -> Pair:
    """[a, b] - [c, d]"""
    return outward(a - d, b - c)


@kernel
def _corner(x: float, y: float) -> float:
    """Product of two ends. An infinite end is no value, so that zero times it is zero."""
    product = x * y
    if np.isnan(product) and not (np.isnan(x) or np.isnan(y)):
        return 0.0
    return product


@kernel
def _hull(p: float, q: float, r: float, s: float) -> Pair:
    if np.isnan(p) or np.isnan(q) or np.isnan(r) or np.isnan(s):
        return -np.inf, np.inf
    return outward(min(p, q, r, s), max(p, q, r, s))


@kernel
def multiply(a: float, b: float, c: float, d: float) -> Pair:
    """[a, b] [c, d]"""
    return _hull(_corner(a, c), _corner(a, d), _corner(b, c), _corner(b, d))


@kernel
def divide(a: float, b: float, c: float, d: float) -> Pair:
    """[a, b] / [c, d]"""
    if not (c > 0 or d < 0):
        return -np.inf, np.inf
    return _hull(a / c, a / d, b / c, b / d)


@kernel
def square(a: float, b: float) -> Pair:
    """x x of the same x."""
    if not a <= b:
        return -np.inf, np.inf
    least = max(a, -b, 0.0)
    most = max(abs(a), abs(b))
    low, high = outward(least * least, most * most)
    return max(low, 0.0), high


@kernel
def size(a: float, b: float) -> float:
    """The largest |x|; infinite if it is not known."""
    return max(abs(a), abs(b)) if a <= b else np.inf


@kernel
def middle(a: float, b: float) -> float:
    """Some number inside, or nan."""
    if not a <= b:
        return np.nan
    return min(max(a / 2 + b / 2, a), b)


@kernel
def radius(a: float, b: float) -> float:
    """Upper bound of the distance of `middle` to either end; infinite if it is not known."""
    at = middle(a, b)
    far = max(b - at, at - a)
    return np.inf if np.isnan(far) else far + (far * MOVED + LEAST)


@kernel
def library(low: float, high: float) -> Pair:
    """Bounds that a function of the C library returned, moved apart by `LIBRARY` units."""
    if not low <= high:
        return -np.inf, np.inf
    units = 2 * LIBRARY * UNIT
    if abs(low) < np.inf:
        low -= abs(low) * units + LIBRARY * LEAST
    if abs(high) < np.inf:
        high += abs(high) * units + LIBRARY * LEAST
    return outward(low, high)


@kernel
def power(a: float, b: float, c: float, d: float) -> Pair:
    """Range of powers; those of numbers that are not positive are 0, but 1 for the exponent 0.

    log x to n log x to exp: monotone in both. Where x reaches 0 so does x**n for n > 0, and x**n is
    anything positive for n < 0.
    """
    if not (a <= b and c <= d):
        return 0.0, np.inf
    positive = max(a, 0.0)
    low, high = library(np.log(positive), np.log(max(b, 0.0)))
    low, high = multiply(c, d, low, high)
    low, high = library(np.exp(low), np.exp(high))
    if not positive > 0 and c <= 0.0 <= d:
        high = max(high, 1.0)
    return (max(low, 0.0) if positive > 0 else 0.0), high


@kernel
def series(kind: int, a: float, b: float, n: int, out: FloatArray) -> None:
    """Coefficients 0..n of a function over [a, b] into out (n + 1, 2); unbounded where it is not
    defined."""
    if kind == EXP:
        low, high = library(np.exp(a), np.exp(b))
        out[0, 0], out[0, 1] = max(low, 0.0), high
        for k in range(n):
            out[k + 1] = divide(out[k, 0], out[k, 1], k + 1.0, k + 1.0)
    elif kind in (SIN, COS):
        _circular(a, b, n, 0 if kind == SIN else 1, out)
    else:
        _of_positive(kind, a, b, n, out)


@kernel
def coefficient(kind: int, a: float, b: float, n: int) -> Pair:
    """Coefficient n of a function over [a, b]."""
    all_ = np.empty((n + 1, 2))
    series(kind, a, b, n, all_)
    return all_[n, 0], all_[n, 1]


@kernel
def _reciprocal(a: float, b: float, n: int, out: FloatArray) -> None:
    """(-1)^k / x^(k+1)"""
    low, high = divide(1.0, 1.0, a, b)
    out[0] = low, high
    for k in range(n):
        p, q = multiply(out[k, 0], out[k, 1], low, high)
        out[k + 1] = -q, -p


@kernel
def _of_positive(kind: int, a: float, b: float, n: int, out: FloatArray) -> None:
    """log x, then (-1)^(k-1) / (k x^k); binomial coefficients of 1/2 times x^(1/2 - k)."""
    if not (0 < a <= b):
        out[: n + 1, 0], out[: n + 1, 1] = -np.inf, np.inf
    elif kind == LOG:
        _reciprocal(a, b, n, out)
        for k in range(n, 0, -1):
            out[k] = divide(out[k - 1, 0], out[k - 1, 1], float(k), float(k))
        out[0] = library(np.log(a), np.log(b))
    else:
        low, high = divide(1.0, 1.0, a, b)
        out[0] = library(np.sqrt(a), np.sqrt(b))
        for k in range(n):
            p, q = multiply(out[k, 0], out[k, 1], low, high)
            p, q = multiply(p, q, 0.5 - k, 0.5 - k)
            out[k + 1] = divide(p, q, k + 1.0, k + 1.0)


@kernel
def _circular(a: float, b: float, n: int, first: int, out: FloatArray) -> None:
    """sin, cos, -sin, -cos over k!, or from cos on."""
    at, far = middle(a, b), radius(a, b)
    s, t = _wave(np.sin(at), far, size(a, b)), _wave(np.cos(at), far, size(a, b))
    factorial = 1.0
    for k in range(n + 1):
        factorial *= max(k, 1)  # exact up to 18!
        low, high = s if (first + k) % 2 == 0 else t
        if (first + k) % 4 > 1:
            low, high = -high, -low
        out[k] = divide(low, high, factorial, factorial)


@kernel
def _wave(value: float, far: float, largest: float) -> Pair:
    """Range of a function without locating peaks: value at the middle, slope at most 1."""
    if not largest < FAR:
        return -1.0, 1.0
    low, high = library(value, value)
    low, high = add(low, high, -far, far)
    return max(low, -1.0), min(high, 1.0)


CONST, TIME, STATE, PARAMETER, INPUT, ADD, SUB, MUL, DIV, NEG, SQUARE, POWER = range(12)
WEIGHT, MEAN, FUNCTION = range(12, 15)
LEAVES = frozenset({CONST, TIME, STATE, PARAMETER, INPUT})


class ReplayTape(NamedTuple):
    """Operations in order; the arguments of each stand before it.

    code     (n, 5) of each: what it is (FUNCTION + k: function k of `intervals`); positions of its
             arguments a and b, of a leaf its index, of a MEAN where its WEIGHTs begin and how many
             there are, of a CONST b = 1 if its number is rounded; of a POWER a ** b where
             exp(b log(a)) stands; how many powers of the time a polynomial of it has where states
             have all
    number   (n,) value of a CONST; the w of a WEIGHT: the MEAN of terms t is sum w t / sum t
    depends  (n, n_states) on which states it depends
    results  (n_results,) positions of the results
    rates    (n_rates,) operations of which results are sums
    share    (n_results, n_rates) how often, to one rounding
    every    the operations that results need
    own, own_first  those that result i needs and that depend on state i: from own_first[i] on
    divides  whether there are quotients or functions among them
    is_smooth  whether all of them are locally Lipschitz wherever their ranges are bounded
    """

    code: IntArray
    number: FloatArray
    depends: BoolArray
    results: IntArray
    rates: IntArray
    share: FloatArray
    every: IntArray
    own: IntArray
    own_first: IntArray
    divides: bool
    is_smooth: bool


class Values(NamedTuple):
    """Values of leaves, or of all operations: intervals, each (n, 2), and derivatives.

    value  (n_operations, 2);  slope  (n_operations, n_states, 2), written where `depends`
    """

    value: FloatArray
    slope: FloatArray


@lean_kernel
def mean(code: IntArray, number: FloatArray, first: int, end: int, v: FloatArray) -> Pair:
    """Range of sum w t / sum t over the ranges of the terms t.

    Of terms >= 0 it is the mean of the w. It rises in a term whose w is above the mean, and falls
    in the others: the largest one has the terms with the largest w at their upper ends, and the
    others at their lower ends. Where all terms are 0 it is undefined; near that it is as it is on
    the ray from there, which ends where some are not.
    """
    least, most, positive = np.inf, -np.inf, True
    for k in range(first, end):
        least, most = min(least, number[k]), max(most, number[k])
        positive = positive and v[code[k, 1], 0] >= 0 and v[code[k, 1], 1] < np.inf
    if not positive:
        a = b = c = d = 0.0
        for k in range(first, end):
            t = code[k, 1]
            low, high = outward(number[k], number[k])
            low, high = multiply(low, high, v[t, 0], v[t, 1])
            a, b = add(a, b, low, high)
            c, d = add(c, d, v[t, 0], v[t, 1])
        return divide(a, b, c, d)
    scale = max(abs(least), abs(most))  # of w / scale, no product exceeds its term
    if not scale > 0:
        return 0.0, 0.0
    low, high, falls = 1.0, -1.0, False
    for j in range(first, end):
        above = above_all = below = below_all = 0.0
        for k in range(first, end):
            w, t = number[k], code[k, 1]
            upper, lower = (v[t, 1], v[t, 0]) if w >= number[j] else (v[t, 0], v[t, 1])
            above, above_all = above + w / scale * upper, above_all + upper
            below, below_all = below + w / scale * lower, below_all + lower
            falls = falls or (w < 0 and v[t, 1] > 0)
        if above_all > 0:
            high = max(high, above / above_all if TINY < above_all < LARGEST else most / scale)
        if below_all > 0:
            low = min(low, below / below_all if TINY < below_all < LARGEST else least / scale)
    if not low <= high:
        return outward(least, most)
    room = 8 * (end - first + 2) * UNIT
    low, high = multiply(low - room, high + room, scale, scale)
    return (low if falls else max(low, 0.0)), high


@lean_kernel
def operate(
    code: IntArray, number: FloatArray, places: IntArray, first: int, end: int, v: FloatArray
) -> None:
    """Write the ranges (n, 2) of operations places[first:end], but not of leaves.

    What cannot be negative has no lower end below 0, so that states are known to stay positive.
    """
    for k in range(first, end):
        i = places[k]
        op, a, b = code[i, 0], code[i, 1], code[i, 2]
        if op < ADD or op == WEIGHT:
            continue
        if op == ADD:
            low, high = add(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
            low = max(low, 0.0) if v[a, 0] >= 0 and v[b, 0] >= 0 else low
        elif op == SUB:
            low, high = subtract(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
            low = max(low, 0.0) if v[a, 0] >= 0 and v[b, 1] <= 0 else low
        elif op == MUL:
            low, high = multiply(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
            low = max(low, 0.0) if v[a, 0] >= 0 and v[b, 0] >= 0 else low
            if v[a, 0] == v[a, 1] == 0 or v[b, 0] == v[b, 1] == 0:
                known = size(v[a, 0], v[a, 1]) < np.inf and size(v[b, 0], v[b, 1]) < np.inf
                low, high = (0.0, 0.0) if known else (-np.inf, np.inf)
        elif op == DIV:
            low, high = divide(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
            low = max(low, 0.0) if v[a, 0] >= 0 and v[b, 0] > 0 else low
        elif op == NEG:
            low, high = -v[a, 1], -v[a, 0]
        elif op == SQUARE:
            low, high = square(v[a, 0], v[a, 1])
            high = 0.0 if v[a, 0] == v[a, 1] == 0 else high
        elif op == MEAN:
            low, high = mean(code, number, a, a + b, v)
        elif op == POWER:
            low, high = power(v[a, 0], v[a, 1], v[b, 0], v[b, 1])
        else:
            low, high = coefficient(op - FUNCTION, v[a, 0], v[a, 1], 0)
        v[i, 0], v[i, 1] = low, high


@lean_kernel
def ranges_of_leaves(
    tape: ReplayTape, time: Pair, x: FloatArray, p: FloatArray, u: FloatArray, v: FloatArray
) -> None:
    """Write the ranges (n, 2) of all leaves, for x, p, u (n, 2)."""
    for i in range(len(tape.code)):
        op, a = tape.code[i, 0], tape.code[i, 1]
        if op == CONST:
            v[i, 0] = v[i, 1] = tape.number[i]
            if tape.code[i, 2] == 1:
                v[i] = outward(tape.number[i], tape.number[i])
        elif op == TIME:
            v[i] = time
        elif op == STATE:
            v[i, 0], v[i, 1] = x[a, 0], x[a, 1]
        elif op == PARAMETER:
            v[i, 0], v[i, 1] = p[a, 0], p[a, 1]
        elif op == INPUT:
            v[i, 0], v[i, 1] = u[a, 0], u[a, 1]


@lean_kernel
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
    ranges_of_leaves(tape, time, x, p, u, to.value)
    operate(tape.code, tape.number, tape.every, 0, len(tape.every), to.value)
    if derivatives:
        for i in tape.every:
            _differentiate(tape, i, to)


@lean_kernel
def _differentiate(tape: ReplayTape, i: int, to: Values) -> None:
    """Derivatives of operation i, whose own value, and that of its arguments, is known."""
    op, a, b, v, s = tape.code[i, 0], tape.code[i, 1], tape.code[i, 2], to.value, to.slope
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
        by_a = coefficient(op - FUNCTION, v[a, 0], v[a, 1], 1)
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


@lean_kernel
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
    first, last = coefficient(LOG, a, b, 0)
    low, high = power(a, b, c, d)
    return by_base, multiply(low, high, first, last)


@lean_kernel
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
