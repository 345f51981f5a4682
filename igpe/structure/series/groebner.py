"""SymPy's Groebner bases modulo a prime, with an end to their work."""

from collections.abc import Sequence
from typing import Any

from sympy.polys.domains import GF
from sympy.polys.groebnertools import groebner
from sympy.polys.orderings import MonomialOrder
from sympy.polys.rings import ring

from igpe.structure.series.polynomials import TooLong


class _Counted(MonomialOrder):  # type: ignore[misc]
    """Total degree, then reverse lexicographic; it counts how often it is asked."""

    def __init__(self, most: float) -> None:
        self.asked, self.most = 0, most

    def __call__(self, monomial: tuple[int, ...]) -> Any:
        self.asked += 1
        if self.asked > self.most:
            raise TooLong
        return sum(monomial), tuple(-e for e in reversed(monomial))

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def ring_of(names: Sequence[str], prime: int, most_work: float) -> Any:
    """Polynomials in these variables modulo the prime; more comparisons raise TooLong."""
    return ring(names, GF(prime, symmetric=False), _Counted(most_work))[0]


def basis(polynomials: Sequence[Any], of: Any) -> list[Any]:
    """A Groebner basis; raises TooLong."""
    return list(groebner(polynomials, of)) if polynomials else []
