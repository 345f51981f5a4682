"""Gröbner bases of polynomial equations modulo a prime (SymPy), with a limit on their work.

With few solutions polynomials modulo the equations are a space of that dimension, in which the
normal form of each gives its coordinates.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import comb
from typing import Any

from igpe.structure.series.polynomials import ModularPolynomial, Monomial, TooLong

LONGEST = 8  # terms that take the place of a variable


class Ideal:
    """The solutions of some equations, points at infinity aside.

    equations  what vanishes
    most_work  products of terms before the basis, and comparisons of monomials in it; a million
               is about two seconds
    raises     TooLong
    """

    def __init__(
        self, equations: Iterable[ModularPolynomial], prime: int, most_work: float
    ) -> None:
        self.prime = prime
        rest, self._solved = _substituted(list(equations), most_work)
        self._forms: dict[Monomial, ModularPolynomial] = {}
        self._variables = dict.fromkeys(
            sorted({i for a in rest for i in a.variables}, reverse=True)
        )
        self._basis: list[Any] = []
        if self._variables:
            from sympy.polys.groebnertools import groebner  # noqa: PLC0415 - SymPy is slow to load

            self._ring = _ring([f"v{i}" for i in self._variables], prime, most_work)
            self._basis = list(groebner([self._inside(a.terms) for a in rest], self._ring))

    def reduced(self, a: ModularPolynomial) -> ModularPolynomial:
        """The normal form: equal for polynomials that are equal at all solutions. Raises TooLong.

        Variables of which the equations say nothing are left as they are.
        """
        for i, by in self._solved:
            if i in a.variables:
                a = a.inserted(i, by)
        result = ModularPolynomial({}, self.prime)
        for monomial, c in a.terms.items():
            inner = tuple(i for i in monomial if i in self._variables)
            outer = tuple(i for i in monomial if i not in self._variables)
            result += ModularPolynomial({outer: c}, self.prime) * self._normal_form(inner)
        return result

    def degree(self, a: ModularPolynomial, most: int) -> int | None:
        """How many values the polynomial has at the solutions, at most; None if more than that.

        The degree of its minimal polynomial: how many powers are independent. Raises TooLong.
        """
        power, rows, base = (
            ModularPolynomial({(): 1}, self.prime),
            list[ModularPolynomial](),
            self.reduced(a),
        )
        while len(rows) <= most:
            rest = power
            for row in rows:  # each row's first monomial has the factor 1
                if (lead := next(iter(row.terms))) in rest.terms:
                    rest = rest.plus(row, -rest.terms[lead])
            if not rest:
                return len(rows)
            rows.append(rest * pow(next(iter(rest.terms.values())), -1, self.prime))
            power = self.reduced(power * base)
        return None

    def _normal_form(self, monomial: Monomial) -> ModularPolynomial:
        if not self._basis or not monomial:
            return ModularPolynomial({monomial: 1}, self.prime)
        if monomial not in self._forms:
            rest = self._inside({monomial: 1}).rem(self._basis)
            terms = {
                tuple(sorted(i for i, e in zip(self._variables, m, strict=True) for _ in range(e))):
                int(c) for m, c in rest.items()
            }  # fmt: skip
            self._forms[monomial] = ModularPolynomial(terms, self.prime)
        return self._forms[monomial]

    def _inside(self, terms: dict[Monomial, int]) -> Any:
        """The polynomial in SymPy's ring."""
        return self._ring.from_dict({
            tuple(m.count(i) for i in self._variables): self._ring.domain(c)
            for m, c in terms.items()
        })


def _substituted(
    equations: list[ModularPolynomial], most_work: float
) -> tuple[list[ModularPolynomial], list[tuple[int, ModularPolynomial]]]:
    """The equations without variables that are simple expressions of others, and these."""
    work = 0
    rest = [a for a in equations if a]
    solved: list[tuple[int, ModularPolynomial]] = []
    while (used := _simple(rest)) is not None:
        at, i = used
        a = rest.pop(at)
        others = ModularPolynomial({m: c for m, c in a.terms.items() if m != (i,)}, a.prime)
        by = others * pow(-a.terms[i,], -1, a.prime)
        work += _products([*rest, *(other for _, other in solved)], i, len(by.terms))
        if work > most_work:
            raise TooLong
        solved = [*((j, other.inserted(i, by)) for j, other in solved), (i, by)]
        rest = [b for a in rest if (b := a.inserted(i, by) if i in a.variables else a)]
    return rest, solved


def _products(equations: Sequence[ModularPolynomial], i: int, length: int) -> int:
    """Products of terms, at most, that put so many terms in place of variable i.

    A high power of a few terms has so many that one substitution may last for minutes.
    """
    powers = Counter(n for a in equations for m in a.terms if (n := m.count(i)))
    return sum(count * comb(length + n - 1, n) for n, count in powers.items())


def _simple(equations: Sequence[ModularPolynomial]) -> tuple[int, int] | None:
    """Place of an equation that gives a variable in few terms, or one that no other contains."""
    among = Counter(i for a in equations for i in a.variables)
    for at in sorted(range(len(equations)), key=lambda at: len(equations[at].terms)):
        a = equations[at].terms
        alone = [m[0] for m in a if len(m) == 1 and sum(m[0] in other for other in a) == 1]
        if len(a) > LONGEST + 1:
            alone = [i for i in alone if among[i] == 1]
        if alone:
            return at, max(alone)
    return None


def _ring(names: Sequence[str], prime: int, most_work: float) -> Any:
    """Polynomials in these variables modulo the prime; more comparisons raise TooLong."""
    # SymPy is slow to load.
    from sympy.polys.domains import GF  # noqa: PLC0415
    from sympy.polys.orderings import MonomialOrder  # noqa: PLC0415
    from sympy.polys.rings import ring  # noqa: PLC0415

    class Limited(MonomialOrder):  # type: ignore[misc]
        """Total degree, then reverse lexicographic, with a limit on the comparisons."""

        comparisons = 0

        def __call__(self, monomial: tuple[int, ...]) -> Any:
            self.comparisons += 1
            if self.comparisons > most_work:
                raise TooLong
            return sum(monomial), tuple(-e for e in reversed(monomial))

        def __eq__(self, other: object) -> bool:
            return self is other

        def __hash__(self) -> int:
            return id(self)

    return ring(names, GF(prime, symmetric=False), Limited())[0]
