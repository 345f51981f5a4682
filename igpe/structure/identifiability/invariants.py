"""What symmetries leave unchanged, in words: products of powers, and sums."""

from collections.abc import Sequence
from fractions import Fraction
from math import gcd, lcm

from igpe.structure.identifiability.symmetries import Mixed

Weights = list[list[Fraction]]


def products(weights: Weights, names: Sequence[str]) -> tuple[str, ...]:
    """Independent products of powers that scalings with these weights leave unchanged."""
    found = _simplest(weights)
    return tuple(_product(exponents, names) for exponents in found)


def sums(weights: Weights, names: Sequence[str]) -> tuple[str, ...]:
    """Independent sums that translations with these weights leave unchanged."""
    found = _simplest(weights)
    return tuple(_sum(factors, names) for factors in found)


def mixtures(symmetry: Mixed, names: Sequence[str]) -> tuple[str, ...]:
    """What one translation with scalings leaves unchanged; c is a known number in each."""
    first, *others = symmetry.translated
    return (
        *(f"{names[i]} + c*{names[first]}" for i in others),
        *(f"{names[i]}*exp(c*{names[first]})" for i in symmetry.scaled),
    )


def combined(factors: Sequence[Fraction], names: Sequence[str]) -> str:
    """A sum with these factors, or the same times a number: k1 + 2*k2 - k3."""
    return _sum(_whole(list(factors)), names)


def _simplest(weights: Weights) -> list[list[int]]:
    """Of several bases of the invariants that with the smallest powers and fewest quotients.

    Each unknown in turn is the one that the others are multiplied with.
    """
    n = len(weights[0])
    orders = [[j, *(i for i in range(n) if i != j)] for j in range(n)]
    return min((_invariants(weights, order) for order in orders), key=_effort)


def _effort(vectors: list[list[int]]) -> int:
    return sum(abs(e) + (e < 0) for v in vectors for e in v)


def _invariants(weights: Weights, order: list[int]) -> list[list[int]]:
    """Whole v with w v = 0 for all weights; pivots are sought in this order of the unknowns."""
    w = _reduced([[row[j] for j in order] for row in weights])
    pivots = [_lead(row) for row in w]
    found = []
    for j in (j for j in range(len(order)) if j not in pivots):
        v = [Fraction(0)] * len(order)
        v[j] = Fraction(1)
        for row, pivot in zip(w, pivots, strict=True):
            v[pivot] = -row[j]
        found.append(_whole([v[order.index(i)] for i in range(len(order))]))
    return sorted(found, key=lambda v: [e == 0 for e in v])


def _whole(vector: list[Fraction]) -> list[int]:
    """The shortest multiple of whole numbers whose first is positive."""
    scale = lcm(*(e.denominator for e in vector))
    whole = [int(e * scale) for e in vector]
    shared = gcd(*whole)
    sign = 1 if next(e for e in whole if e) > 0 else -1
    return [sign * e // shared for e in whole]


def _reduced(matrix: Weights) -> Weights:
    """Gauss and Jordan's elimination on quotients; the rows are independent."""
    rows: Weights = []
    for given in matrix:
        row = list(given)
        for known in rows:
            row = _minus(row, row[_lead(known)], known)
        row = [a / row[_lead(row)] for a in row]
        rows = [_minus(known, known[_lead(row)], row) for known in rows]
        rows.append(row)
    return rows


def _minus(row: list[Fraction], factor: Fraction, other: list[Fraction]) -> list[Fraction]:
    return [a - factor * b for a, b in zip(row, other, strict=True)]


def _lead(row: list[Fraction]) -> int:
    return next(j for j, v in enumerate(row) if v)


def _product(exponents: list[int], names: Sequence[str]) -> str:
    """k1*s1**2/V."""
    above = [_power(n, e) for e, n in zip(exponents, names, strict=True) if e > 0]
    below = [_power(n, -e) for e, n in zip(exponents, names, strict=True) if e < 0]
    return "/".join(["*".join(above), *below])


def _power(name: str, exponent: int) -> str:
    return name if exponent == 1 else f"{name}**{exponent}"


def _sum(factors: list[int], names: Sequence[str]) -> str:
    """k1 + 2*k2 - k3."""
    text = ""
    for factor, name in zip(factors, names, strict=True):
        size = name if abs(factor) == 1 else f"{abs(factor)}*{name}"
        text += "" if factor == 0 else (" - " if factor < 0 else " + ") + size
    return text.removeprefix(" + ")
