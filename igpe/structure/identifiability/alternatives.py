"""Unknowns with several values that give the same outputs, and what is the same for all of them.

Two unknowns change together if they have fewer pairs of values than any value with any other would
make. Of what has one value sums with known factors are looked for, of unknowns and of products of
two: factors that do at every point are small quotients, as for symmetries.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, groupby

import numpy as np

from igpe.core.connected import connected
from igpe.structure.identifiability.combinations import LARGEST_WEIGHT, combined
from igpe.structure.series import polynomials as poly
from igpe.structure.series.field import Residues, echelon, null_space, reconstructed
from igpe.structure.series.ideal import Ideal
from igpe.structure.series.polynomials import Monomial, Polynomial

MOST_TOGETHER = 120  # sets of values that are counted


@dataclass(frozen=True)
class Alternatives:
    """Unknowns whose values change together.

    unknowns   in the problem's order
    number     of sets of values that give the same outputs, complex ones included
    functions  what is the same for all: "k1 + k2", "k1*k2"; empty if nothing simple was found
    """

    unknowns: tuple[str, ...]
    number: int
    functions: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Fibre:
    """All solutions at one point.

    ideal     the equations
    unknowns  place of an unknown that is locally identifiable -> polynomial
    branches  whether solutions on other branches of roots or implicit equations are among them
    """

    ideal: Ideal
    unknowns: dict[int, Polynomial]
    branches: bool

    def is_fixed(self, a: Polynomial) -> bool:
        """Whether it has the same value at all solutions."""
        return poly.constant(self.ideal.reduced(a)) is not None

    def mixed(self, places: Sequence[int]) -> Polynomial:
        """A sum that has as many values as the unknowns have together, for nearly all factors."""
        result: Polynomial = {}
        for j, i in enumerate(places):
            result = poly.plus(result, self.unknowns[i], self.ideal.prime, 1 + 7919 * j**3)
        return result


def alternatives(
    fibres: Sequence[Fibre], several: Sequence[int], names: Sequence[str]
) -> tuple[Alternatives, ...]:
    """Groups of unknowns that change together; TooLong as `Ideal`.

    several  places of the unknowns that have several values
    """
    first = fibres[0]
    number = {i: first.ideal.degree(first.unknowns[i], MOST_TOGETHER) or 0 for i in several}
    links: list[tuple[int, ...]] = [(i,) for i in several]
    for pair in combinations(several, 2):
        most = number[pair[0]] * number[pair[1]]
        together = first.ideal.degree(first.mixed(pair), most)
        if together is not None and together < most:
            links.append(pair)
    groups = sorted(sorted(part) for part in connected(links))
    return tuple(
        Alternatives(
            tuple(names[i] for i in group),
            first.ideal.degree(first.mixed(group), MOST_TOGETHER) or 0,
            _functions(fibres, group, names),
        )
        for group in groups
    )


def _functions(
    fibres: Sequence[Fibre], group: Sequence[int], names: Sequence[str]
) -> tuple[str, ...]:
    """What has one value; no more than there are unknowns."""
    products = [(i, i) for i in group if all(_is_square_fixed(f, i) for f in fibres)]
    terms = [*((i,) for i in group), *combinations(group, 2), *products]
    words = [_word(term, names) for term in terms]
    result = [
        _invariants(list(some), terms)
        for _, some in groupby(fibres, key=lambda fibre: fibre.ideal.prime)
    ]
    rows = [row for row in result[0] if all(row in other for other in result)]
    simplest = sorted(rows, key=lambda row: sum(len(terms[j]) for j, w in enumerate(row) if w))
    return tuple(combined(row, words) for row in simplest[: len(group)])


def _is_square_fixed(fibre: Fibre, i: int) -> bool:
    return fibre.is_fixed(poly.power(fibre.unknowns[i], 2, fibre.ideal.prime))


def _word(term: tuple[int, ...], names: Sequence[str]) -> str:
    one = names[term[0]]
    if len(term) == 1:
        return one
    return f"{one}**2" if term[0] == term[1] else f"{one}*{names[term[1]]}"


def _invariants(fibres: list[Fibre], terms: Sequence[tuple[int, ...]]) -> list[list[Fraction]]:
    """Factors with which sums of the terms have one value, at all points of one prime."""
    prime = fibres[0].ideal.prime
    basis = null_space(echelon(np.vstack([_varying(f, terms) for f in fibres]), prime), prime)
    known = [[reconstructed(int(v), prime, LARGEST_WEIGHT) for v in row] for row in basis]
    return [[w for w in row if w is not None] for row in known if None not in row]


def _varying(fibre: Fibre, terms: Sequence[tuple[int, ...]]) -> Residues:
    """(coordinates, terms) of the terms' normal forms, without what is constant."""
    prime = fibre.ideal.prime
    forms = []
    for term in terms:
        product = poly.number(1, prime)
        for i in term:
            product = poly.times(product, fibre.unknowns[i], prime)
        forms.append(fibre.ideal.reduced(product))
    coordinates: list[Monomial] = sorted({m for form in forms for m in form} - {()})
    rows = [[form.get(m, 0) for form in forms] for m in coordinates]
    return np.array(rows, dtype=np.uint64).reshape(len(rows), len(terms))
