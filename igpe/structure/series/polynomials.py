"""Sparse polynomials modulo a prime, in ever more variables.

A monomial lists its variables' numbers, increasing, each as often as its power: x1**2 x4 is
(1, 1, 4). A polynomial holds monomials with residues other than zero; + - * ** work, with whole
numbers too.
"""

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import mul

Monomial = tuple[int, ...]


class TooLong(Exception):
    """A Groebner basis needs more work than is allowed."""


class ModularPolynomial:
    """terms: monomial -> residue modulo the prime; without zeros."""

    def __init__(self, terms: Mapping[Monomial, int], prime: int) -> None:
        self.prime = prime
        self.terms = {m: r for m, c in terms.items() if (r := c % prime)}

    def __bool__(self) -> bool:
        return bool(self.terms)

    def plus(self, other: "ModularPolynomial | int", factor: int) -> "ModularPolynomial":
        """self + factor other."""
        result = dict(self.terms)
        for m, c in ({(): other} if isinstance(other, int) else other.terms).items():
            result[m] = result.get(m, 0) + factor * c
        return ModularPolynomial(result, self.prime)

    def __add__(self, other: "ModularPolynomial | int") -> "ModularPolynomial":
        return self.plus(other, 1)

    def __sub__(self, other: "ModularPolynomial | int") -> "ModularPolynomial":
        return self.plus(other, -1)

    def __mul__(self, other: "ModularPolynomial | int") -> "ModularPolynomial":
        if isinstance(other, int):
            return ModularPolynomial({m: c * other for m, c in self.terms.items()}, self.prime)
        result: dict[Monomial, int] = {}
        for one, c in self.terms.items():
            for two, d in other.terms.items():
                both = tuple(sorted(one + two))
                result[both] = result.get(both, 0) + c * d
        return ModularPolynomial(result, self.prime)

    def __pow__(self, n: int) -> "ModularPolynomial":
        return reduce(mul, [self] * n, ModularPolynomial({(): 1}, self.prime))

    @property
    def constant(self) -> int | None:
        """Its value, if it contains no variable; else None."""
        return self.terms.get((), 0) if not self.terms.keys() - {()} else None

    @property
    def variables(self) -> set[int]:
        """The numbers of the variables that occur."""
        return {i for monomial in self.terms for i in monomial}

    def value(self, values: Sequence[int]) -> int:
        """The value where the variables have these."""
        terms = (reduce(mul, (values[i] for i in m), c) for m, c in self.terms.items())
        return sum(terms) % self.prime

    def inserted(self, i: int, by: "ModularPolynomial") -> "ModularPolynomial":
        """The polynomial with another one in place of variable i."""
        result = {m: c for m, c in self.terms.items() if i not in m}
        powers = {n: by**n for n in {m.count(i) for m in self.terms.keys() - result.keys()}}
        for m, c in self.terms.items():
            rest = tuple(j for j in m if j != i)
            for other, d in powers[m.count(i)].terms.items() if i in m else ():
                both = tuple(sorted(rest + other))
                result[both] = result.get(both, 0) + c * d
        return ModularPolynomial(result, self.prime)
