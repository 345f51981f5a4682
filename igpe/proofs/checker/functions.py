"""Elementary functions by their Taylor coefficients: f(x), f'(x), f''(x)/2, ... over intervals.

That is all that is known of a function here. Polynomials use the coefficients at a point and the
last one over the range (Lagrange); derivatives use the second.
"""

from collections.abc import Callable

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.interval import Interval, library, point

FAR = 1e6  # arguments of sin and cos from which their reduction is not believed
Coefficients = Callable[[Interval, int], list[Interval]]
"""(x, n) -> coefficients 0..n."""


def exp(x: Interval, n: int) -> list[Interval]:
    """exp(x) / k!"""
    value = x.monotone(np.exp)
    terms = [Interval(np.maximum(value.low, 0.0), value.high)]
    for k in range(1, n + 1):
        terms.append(terms[-1] / point(k))
    return terms


def log(x: Interval, n: int) -> list[Interval]:
    """log(x), then (-1)^(k-1) / (k x^k); unbounded where x is not positive."""
    slopes = [f / point(k + 1) for k, f in enumerate(reciprocal(x, n - 1))]
    return [f.unless(~(x.low > 0)) for f in [x.monotone(np.log), *slopes][: n + 1]]


def reciprocal(x: Interval, n: int) -> list[Interval]:
    """(-1)^k / x^(k+1)"""
    inverse = point(1.0) / x
    terms = [inverse]
    for _ in range(n):
        terms.append(-(terms[-1] * inverse))
    return terms


def sqrt(x: Interval, n: int) -> list[Interval]:
    """Binomial coefficients of 1/2 times x^(1/2 - k); unbounded where x is not positive."""
    terms, inverse = [x.monotone(np.sqrt)], point(1.0) / x
    for k in range(n):
        terms.append(terms[-1] * inverse * point(0.5 - k) / point(k + 1))
    return [f.unless(~(x.low > 0)) for f in terms]


def sin(x: Interval, n: int) -> list[Interval]:
    """sin, cos, -sin, -cos over k!"""
    return _circular(x, n, 0)


def cos(x: Interval, n: int) -> list[Interval]:
    """cos, -sin, -cos, sin over k!"""
    return _circular(x, n, 1)


def _circular(x: Interval, n: int, first: int) -> list[Interval]:
    s, c = (_wave(x, function(x.middle)) for function in (np.sin, np.cos))
    terms, factorial = [], point(1.0)
    for k in range(n + 1):
        factorial = factorial * point(max(k, 1))
        terms.append((s, c, -s, -c)[(first + k) % 4] / factorial)
    return terms


def _wave(x: Interval, middle: FloatArray) -> Interval:
    """Range of a function without locating peaks: value at the middle, slope at most 1."""
    value = library(middle, middle) + Interval(-x.radius, x.radius)
    low, high = np.maximum(value.low, -1.0), np.minimum(value.high, 1.0)
    far = ~(x.size < FAR)
    return Interval(np.where(far, -1.0, low), np.where(far, 1.0, high))
