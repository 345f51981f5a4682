"""Elementary functions by their Taylor coefficients: f(x), f'(x), f''(x)/2, ... over intervals.

That is all that is known of a function here. Polynomials use the coefficients at a point and the
last one over the range (Lagrange); derivatives use the second.
"""

from collections.abc import Callable

import numpy as np

from igpe.proofs.checker.interval import Interval, library, point

FAR = 1e6  # arguments of sin and cos from which their reduction is not believed
Coefficients = Callable[[Interval, int], list[Interval]]
"""(x, n) -> coefficients 0..n."""


def exp(x: Interval, n: int) -> list[Interval]:
    """exp(x) / k!"""
    value = x.monotone(np.exp)
    found = [Interval(np.maximum(value.low, 0.0), value.high)]
    for k in range(1, n + 1):
        found.append(found[-1] / point(k))
    return found


def log(x: Interval, n: int) -> list[Interval]:
    """log(x), then (-1)^(k-1) / (k x^k); unbounded where x is not positive."""
    value = _where_positive(x, x.monotone(np.log))
    inverse = point(1.0) / x
    found, power = [value], point(-1.0)
    for k in range(1, n + 1):
        power = -(power * inverse)
        found.append(_where_positive(x, power / point(k)))
    return found


def reciprocal(x: Interval, n: int) -> list[Interval]:
    """(-1)^k / x^(k+1)"""
    inverse = point(1.0) / x
    found = [inverse]
    for _ in range(n):
        found.append(-(found[-1] * inverse))
    return found


def sqrt(x: Interval, n: int) -> list[Interval]:
    """Binomial coefficients of 1/2 times x^(1/2 - k)"""
    value = _where_positive(x, x.monotone(np.sqrt))
    found = [value]
    inverse = point(1.0) / x
    for k in range(n):
        found.append(found[-1] * inverse * point(0.5 - k) / point(k + 1))
    return [_where_positive(x, f) for f in found]


def sin(x: Interval, n: int) -> list[Interval]:
    """sin, cos, -sin, -cos over k!"""
    return _circular(x, n, 0)


def cos(x: Interval, n: int) -> list[Interval]:
    """cos, -sin, -cos, sin over k!"""
    return _circular(x, n, 1)


def _circular(x: Interval, n: int, first: int) -> list[Interval]:
    s, c = _sine(x), _sine(x, quarter=True)
    found, factorial = [], point(1.0)
    for k in range(n + 1):
        factorial = factorial * point(max(k, 1))
        found.append((s, c, -s, -c)[(first + k) % 4] / factorial)
    return found


def _sine(x: Interval, quarter: bool = False) -> Interval:
    """Of sin, or of cos, without locating peaks: value at the middle, slope at most 1."""
    at = np.cos(x.middle) if quarter else np.sin(x.middle)
    found = library(at, at) + Interval(-x.radius, x.radius)
    low, high = np.maximum(found.low, -1.0), np.minimum(found.high, 1.0)
    far = ~(x.size < FAR)
    return Interval(np.where(far, -1.0, low), np.where(far, 1.0, high))


def _where_positive(x: Interval, found: Interval) -> Interval:
    good = x.low > 0
    return Interval(np.where(good, found.low, -np.inf), np.where(good, found.high, np.inf))
