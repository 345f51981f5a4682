"""Sparse polynomials modulo a prime, in ever more variables.

A monomial lists its variables' numbers, increasing, each as often as its power: x1**2 x4 is
(1, 1, 4). A polynomial maps monomials to residues other than zero.
"""

from collections.abc import Sequence

Monomial = tuple[int, ...]
Polynomial = dict[Monomial, int]


class TooLong(Exception):
    """A Groebner basis needs more work than is allowed."""


def number(value: int, prime: int) -> Polynomial:
    """A residue as a polynomial."""
    return {(): value % prime} if value % prime else {}


def variable(i: int) -> Polynomial:
    """Variable i."""
    return {(i,): 1}


def constant(a: Polynomial) -> int | None:
    """What it is, if it contains no variable; else None."""
    return a.get((), 0) if not a.keys() - {()} else None


def plus(a: Polynomial, b: Polynomial, prime: int, factor: int = 1) -> Polynomial:
    """a + factor b."""
    result = dict(a)
    for monomial, c in b.items():
        result[monomial] = (result.get(monomial, 0) + factor * c) % prime
    return {monomial: c for monomial, c in result.items() if c}


def times(a: Polynomial, b: Polynomial, prime: int) -> Polynomial:
    """a b."""
    result: Polynomial = {}
    for one, c in a.items():
        for other, d in b.items():
            both = tuple(sorted(one + other))
            result[both] = (result.get(both, 0) + c * d) % prime
    return {monomial: c for monomial, c in result.items() if c}


def power(a: Polynomial, n: int, prime: int) -> Polynomial:
    """a**n, for n >= 0."""
    result = number(1, prime)
    for _ in range(n):
        result = times(result, a, prime)
    return result


def variables(a: Polynomial) -> set[int]:
    """Those that occur."""
    return {i for monomial in a for i in monomial}


def value(a: Polynomial, values: Sequence[int], prime: int) -> int:
    """At a point."""
    total = 0
    for monomial, c in a.items():
        term = c
        for i in monomial:
            term = term * values[i] % prime
        total += term
    return total % prime


def inserted(a: Polynomial, i: int, by: Polynomial, prime: int) -> Polynomial:
    """The polynomial with another one in place of variable i."""
    result = {monomial: c for monomial, c in a.items() if i not in monomial}
    powers = {1: by}
    for monomial, c in a.items():
        n = monomial.count(i)
        if n and n not in powers:
            powers[n] = power(by, n, prime)
        rest = tuple(j for j in monomial if j != i)
        for other, d in powers[n].items() if n else ():
            both = tuple(sorted(rest + other))
            result[both] = (result.get(both, 0) + c * d) % prime
    return {monomial: c for monomial, c in result.items() if c}
