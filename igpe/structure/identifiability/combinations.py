"""Unknowns that cannot be told apart, and what can be determined of them all the same.

Unknowns belong together that some minimal dependence links: the connected parts of the null space's
reduced basis, which are the same for any basis. If as many symmetries of one kind are found in a
part as it has directions, what these leave unchanged is all that can be determined.

Simple symmetries: ways in which some unknowns may change together without any output noticing.

Directions n of the null space at a point theta are

    scalings      n[i] = w[i] theta[i]:  theta[i] -> lambda**w[i] theta[i]
    translations  n[i] = w[i]:           theta[i] -> theta[i] + w[i] epsilon
    mixed         some of each:          an activation energy grows, its rate constant with it

if the same numbers w do at every point. For scalings and translations they are searched for among
small quotients, which residues modulo different primes give away.

What symmetries leave unchanged, in words: products of powers, and sums.

Which further measurements would make unknowns identifiable: the smallest sets, by exact rank.

The rows of all states and algebraic variables have been computed with those of what is measured. On
the null space Z of the latter, a further measurement leaves open what its rows times Z leave open;
these matrices are as wide as there are directions, so that many sets can be tried.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from math import gcd, lcm
from typing import NamedTuple

import numpy as np

from igpe.core.connected import connected
from igpe.structure.identifiability.sensitivity_rows import ExactRows
from igpe.structure.series.field import (
    Echelon,
    Residues,
    echelon,
    null_space,
    product,
    reconstructed,
)

LARGEST_WEIGHT = 100  # numerator and denominator; one in 1e5 random residues is such a quotient


class Mixed(NamedTuple):
    """One direction in which some unknowns are translated and others scaled.

    translated, scaled  places in the part, increasing
    """

    translated: tuple[int, ...]
    scaled: tuple[int, ...]


def weights(rows: ExactRows, part: list[int], *, scaling: bool) -> list[list[Fraction]]:
    """The reduced basis of all scalings (or translations) of a part; empty if there are none.

    Points of one prime are stacked: a weight must leave the outputs alone at each of them. Primes
    must agree, else they are no small quotients.
    """
    result = []
    for prime, points in _by_prime(rows):
        basis = null_space(_stacked(rows, points, part, scaling=scaling), prime)
        result.append([
            [reconstructed(int(v), prime, LARGEST_WEIGHT) for v in row] for row in basis
        ])
    known = [[w for w in row if w is not None] for row in result[0]]
    agreed = all(one == result[0] for one in result) and known == result[0]
    return known if agreed else []


def mixed(rows: ExactRows, part: list[int]) -> Mixed | None:
    """How the only direction of a part mixes translations and scalings; None if it does not."""
    for reference in range(len(part)):
        result = [_mixed_modulo(rows, points, part, reference) for _, points in _by_prime(rows)]
        if result[0] is not None and all(one == result[0] for one in result):
            return result[0]
    return None


def _mixed_modulo(
    rows: ExactRows, points: list[int], part: list[int], reference: int
) -> Mixed | None:
    """The same at the points of one prime, if the unknown at `reference` is translated."""
    prime = rows.primes[points[0]]
    shifts, scales = [], []
    for k in points:
        (direction,) = null_space(_restricted(rows, k, part), prime).tolist()
        over = pow(direction[reference], -1, prime)
        shifts.append([n * over % prime for n in direction])
        values = [int(v) for v in rows.values[k, part]]
        scales.append([
            s * pow(v, -1, prime) % prime for s, v in zip(shifts[-1], values, strict=True)
        ])
    translated = tuple(i for i in range(len(part)) if len({s[i] for s in shifts}) == 1)
    scaled = tuple(i for i in range(len(part)) if len({s[i] for s in scales}) == 1)
    covered = len(points) > 1 and set(translated) | set(scaled) == set(range(len(part)))
    return Mixed(translated, scaled) if covered else None


def _by_prime(rows: ExactRows) -> Iterator[tuple[int, list[int]]]:
    for prime, points in groupby(rows.best, key=lambda k: rows.primes[k]):
        yield prime, list(points)


def _stacked(rows: ExactRows, points: list[int], part: list[int], *, scaling: bool) -> Echelon:
    prime = np.uint64(rows.primes[points[0]])
    factors = [rows.values[k, part] if scaling else np.uint64(1) for k in points]
    matrices = [
        _restricted(rows, k, part).rows * f % prime for k, f in zip(points, factors, strict=True)
    ]
    return echelon(np.vstack(matrices), int(prime))


def _restricted(rows: ExactRows, k: int, part: list[int]) -> Echelon:
    """The rows of a part: those of other parts have nothing but zeros in its columns."""
    matrix: Residues = rows.measured[k].rows[:, part]
    return echelon(matrix, rows.primes[k])


Weights = list[list[Fraction]]


def products(weights: Weights, names: Sequence[str]) -> tuple[str, ...]:
    """Independent products of powers that scalings with these weights leave unchanged."""
    result = _simplest(weights)
    return tuple(_product(exponents, names) for exponents in result)


def sums(weights: Weights, names: Sequence[str]) -> tuple[str, ...]:
    """Independent sums that translations with these weights leave unchanged."""
    result = _simplest(weights)
    return tuple(_sum(factors, names) for factors in result)


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
    result = []
    for j in (j for j in range(len(order)) if j not in pivots):
        v = [Fraction(0)] * len(order)
        v[j] = Fraction(1)
        for row, pivot in zip(w, pivots, strict=True):
            v[pivot] = -row[j]
        result.append(_whole([v[order.index(i)] for i in range(len(order))]))
    return sorted(result, key=lambda v: [e == 0 for e in v])


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


@dataclass(frozen=True)
class IdentifiableCombination:
    """Unknowns of which only functions can be determined.

    unknowns    in the problem's order
    directions  in how many independent ways they may change unseen
    functions   what can be determined of them: "k1*s1", "p1 + p3"; empty if nothing can, or if it
                has no simple form
    """

    unknowns: tuple[str, ...]
    directions: int
    functions: tuple[str, ...] = ()

    @property
    def nothing(self) -> bool:
        """Whether the outputs tell nothing of them."""
        return self.directions == len(self.unknowns)


def combinations(rows: ExactRows, names: Sequence[str]) -> tuple[IdentifiableCombination, ...]:
    """The parts of the null space."""
    k = rows.best[0]
    basis = null_space(rows.measured[k], rows.primes[k])
    return tuple(_combination(rows, part, names) for part in _parts(basis))


def _parts(basis: Residues) -> list[list[int]]:
    """Columns that the rows of the reduced basis link."""
    return sorted(sorted(part) for part in connected(np.flatnonzero(r).tolist() for r in basis))


def _combination(rows: ExactRows, part: list[int], names: Sequence[str]) -> IdentifiableCombination:
    own = tuple(names[i] for i in part)
    pivots = rows.measured[rows.best[0]].pivots
    directions = len(part) - sum(pivot in part for pivot in pivots)
    nothing = directions == len(part)
    functions = () if nothing else _functions(rows, part, own, directions)
    return IdentifiableCombination(own, directions, functions)


def _functions(
    rows: ExactRows, part: list[int], names: Sequence[str], directions: int
) -> tuple[str, ...]:
    scalings = weights(rows, part, scaling=True)
    if len(scalings) == directions:
        return products(scalings, names)
    translations = weights(rows, part, scaling=False)
    if len(translations) == directions:
        return sums(translations, names)
    both = mixed(rows, part) if directions == 1 else None
    return mixtures(both, names) if both else ()


MOST_CANDIDATES = 60  # of which pairs are tried


def additional(rows: ExactRows) -> dict[int, tuple[tuple[str, ...], ...]]:
    """Unknown that is not identifiable -> the smallest sets, of one or of two, that free it."""
    k = rows.best[0]
    prime = rows.primes[k]
    open_ = null_space(rows.measured[k], prime)
    forms = {
        name: echelon(product(own, open_.T, prime), prime).rows
        for name, own in rows.extra[k].items()
    }
    forms = {name: matrix for name, matrix in forms.items() if len(matrix)}
    waiting = set(np.flatnonzero(open_.any(axis=0)).tolist())
    result: dict[int, list[tuple[str, ...]]] = {i: [] for i in sorted(waiting)}
    for size in (1, 2):
        candidates = list(forms) if size == 1 else list(forms)[:MOST_CANDIDATES]
        for names in itertools.combinations(candidates, size):
            for i in waiting & _freed(np.vstack([forms[n] for n in names]), open_, prime):
                result[i].append(names)
        waiting = {i for i in waiting if not result[i]}
        if not waiting:
            break
    return {i: tuple(sets) for i, sets in result.items()}


def _freed(matrix: Residues, open_: Residues, prime: int) -> set[int]:
    """Unknowns that no direction moves any more."""
    left = product(null_space(echelon(matrix, prime), prime), open_, prime)
    return set(np.flatnonzero(~left.any(axis=0)).tolist())
