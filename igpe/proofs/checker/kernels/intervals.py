"""Intervals with outward rounding, one at a time, and elementary functions of them.

Every bound moves outward by 2^-51 of itself after an operation: more than its rounding and that of
moving it. What has no bound (a quotient by an interval with 0, an overflow, the logarithm of a
negative number) is the whole line, and stays it in sums and products.

Of an elementary function only its Taylor coefficients are known: f(x), f'(x), f''(x)/2, ...
Polynomials use them at a point and the last one over the range (Lagrange); derivatives use the
second.
"""

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.compiled import kernel

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
