"""Exact and 80-digit arithmetic, to test enclosures that account for every rounding error."""

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction
from typing import Any

import numpy as np

from igpe.algebraic.bounds.taylor import Taylor, pairs

getcontext().prec = 80

EXTREMES = (Fraction(-1), Fraction(0), Fraction(1), Fraction(-1, 2), Fraction(1, 2))


def decimal(x: Fraction) -> Decimal:
    """To 80 digits."""
    return Decimal(x.numerator) / Decimal(x.denominator)


def exp(x: Fraction) -> Fraction:
    return Fraction(decimal(x).exp())


def log(x: Fraction) -> Fraction:
    return Fraction(decimal(x).ln())


def power(x: Fraction, a: Fraction) -> Fraction:
    return exp(a * log(x))


def sigmoid(x: Fraction) -> Fraction:
    return 1 / (1 + exp(-x))


def softplus(x: Fraction) -> Fraction:
    with localcontext() as context:
        context.prec = 400 if x < -100 else 100  # exp(-700) beside 1
        return Fraction((1 + decimal(x).exp()).ln())


def tanh(x: Fraction) -> Fraction:
    return 2 * sigmoid(2 * x) - 1


def sin(x: Fraction) -> Fraction:
    """By its series, with digits enough for |x| < 100."""
    with localcontext() as context:
        context.prec = 150
        d = decimal(x)
        term, total, n = d, d, 1
        while abs(term) > Decimal("1e-90") * (1 + abs(total)) or n < abs(d):
            term = -term * d * d / ((n + 1) * (n + 2))
            total, n = total + term, n + 2
        return Fraction(total)


def cos(x: Fraction) -> Fraction:
    return sin(x + PI / 2)


PI = Fraction("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def offsets(n: int, rng: np.random.Generator, count: int = 6) -> list[tuple[Fraction, ...]]:
    """Points of [-1, 1]^n: corners, middles, and any."""
    special = [tuple(EXTREMES[i] for i in rng.integers(0, 5, n)) for _ in range(count)]
    return [*special, *(tuple(map(Fraction, rng.uniform(-1, 1, n))) for _ in range(count))]


def place(lower: float, upper: float, s: Fraction) -> Fraction:
    """The point of an interval at offset s."""
    a, b = Fraction(lower), Fraction(upper)
    return (a + b) / 2 + (b - a) / 2 * s


def polynomial(f: Taylor, s: Sequence[Fraction], box: int = 0, at: int = 0) -> Fraction:
    """The model's polynomial, exactly."""

    def number(part: Any) -> Fraction:
        part = np.asarray(part)
        return Fraction(float(part[min(box, part.shape[0] - 1), min(at, part.shape[1] - 1)]))

    total = number(f.c)
    if f.g is not None:
        total += sum(number(g) * x for g, x in zip(f.g, s, strict=True))
    if f.t is not None:
        total += sum(number(t) * s[i] * s[j] for t, (i, j) in zip(f.t, pairs(len(s)), strict=True))
    return total


def escape(
    f: Taylor, value: Callable[[tuple[Fraction, ...]], Fraction], points: Iterable[Any]
) -> float:
    """By how much values are outside of the model, in units of its remainder; <= 0: enclosed.

    f is finite and of one box and one place.
    """
    e = Fraction(float(np.ravel(f.e)[0]))
    worst = max(abs(value(s) - polynomial(f, s)) - e for s in points)
    return float(worst / e) if e else float(worst > 0)


def finite(f: Taylor) -> bool:
    """Whether anything is known of it."""
    return bool(np.isfinite(f.e).all())
