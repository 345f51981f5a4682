"""Gröbner bases of polynomial equations modulo a prime (SymPy), with a limit on their work.

With few solutions polynomials modulo the equations are a space of that dimension, in which the
normal form of each gives its coordinates.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from igpe.structure.series import polynomials as poly
from igpe.structure.series.polynomials import Polynomial

LONGEST = 8  # terms that take the place of a variable


class Ideal:
    """The solutions of some equations, points at infinity aside.

    equations  what vanishes
    most_work  comparisons of monomials; a million is about two seconds
    raises     TooLong
    """

    def __init__(self, equations: Iterable[Polynomial], prime: int, most_work: float) -> None:
        self.prime = prime
        rest, self._solved = _substituted(list(equations), prime)
        self._forms: dict[poly.Monomial, Polynomial] = {}
        occurring = sorted({i for a in rest for i in poly.variables(a)}, reverse=True)
        self._place = {i: j for j, i in enumerate(occurring)}
        self._variables = occurring
        names = [f"v{i}" for i in occurring]
        self._basis: list[Any] = []
        if names:
            from sympy.polys.groebnertools import groebner  # noqa: PLC0415 - SymPy is slow to load

            self._ring = _ring(names, prime, most_work)
            polynomials = [self._inside(a) for a in rest]
            self._basis = list(groebner(polynomials, self._ring)) if polynomials else []

    def reduced(self, a: Polynomial) -> Polynomial:
        """The normal form: equal for polynomials that are equal at all solutions. Raises TooLong.

        Variables of which the equations say nothing are left as they are.
        """
        for i, by in self._solved:
            if any(i in monomial for monomial in a):
                a = poly.inserted(a, i, by, self.prime)
        known: Polynomial = {}
        for monomial, c in a.items():
            inner = tuple(i for i in monomial if i in self._place)
            outer = tuple(i for i in monomial if i not in self._place)
            form = poly.times({outer: c}, self._normal_form(inner), self.prime)
            known = poly.plus(known, form, self.prime)
        return known

    def degree(self, a: Polynomial, most: int) -> int | None:
        """How many values the polynomial has at the solutions, at most; None if more than that.

        The degree of its minimal polynomial: how many powers are independent. Raises TooLong.
        """
        powers = [poly.number(1, self.prime)]
        rows: list[Polynomial] = []
        base = self.reduced(a)
        while len(powers) <= most + 1:
            rest = _eliminated(powers[-1], rows, self.prime)
            if not rest:
                return len(powers) - 1
            rows.append(rest)
            powers.append(self.reduced(poly.times(powers[-1], base, self.prime)))
        return None

    def _normal_form(self, monomial: poly.Monomial) -> Polynomial:
        if not self._basis or not monomial:
            return {monomial: 1}
        if monomial not in self._forms:
            self._forms[monomial] = self._outside(self._inside({monomial: 1}).rem(self._basis))
        return self._forms[monomial]

    def _inside(self, a: Polynomial) -> Any:
        result = {}
        for monomial, c in a.items():
            exponents = [0] * len(self._variables)
            for i in monomial:
                exponents[self._place[i]] += 1
            result[tuple(exponents)] = self._ring.domain(c)
        return self._ring.from_dict(result)

    def _outside(self, a: Any) -> Polynomial:
        return {
            tuple(sorted(i for i, e in zip(self._variables, m, strict=True) for _ in range(e))): (
                int(c) % self.prime
            )
            for m, c in a.items()
        }


def _eliminated(a: Polynomial, rows: Sequence[Polynomial], prime: int) -> Polynomial:
    """What is left of it after rows have been subtracted; each row's first monomial has 1."""
    rest = dict(a)
    for row in rows:
        lead = next(iter(row))
        if lead in rest:
            rest = poly.plus(rest, row, prime, -rest[lead])
    if not rest:
        return rest
    over = pow(next(iter(rest.values())), -1, prime)
    return {monomial: c * over % prime for monomial, c in rest.items()}


def _substituted(
    equations: list[Polynomial], prime: int
) -> tuple[list[Polynomial], list[tuple[int, Polynomial]]]:
    """The equations without variables that are simple expressions of others, and these."""
    rest = [a for a in equations if a]
    solved: list[tuple[int, Polynomial]] = []
    while (used := _simple(rest)) is not None:
        at, i = used
        a = rest.pop(at)
        over = pow(-a[(i,)], -1, prime)
        by = {m: c * over % prime for m, c in a.items() if m != (i,)}
        solved = [(j, poly.inserted(other, i, by, prime)) for j, other in solved]
        solved.append((i, by))
        rest = [poly.inserted(b, i, by, prime) if i in poly.variables(b) else b for b in rest]
        rest = [b for b in rest if b]
    return rest, solved


def _simple(equations: list[Polynomial]) -> tuple[int, int] | None:
    """Place of an equation that gives a variable in few terms, or one that no other contains."""
    among = Counter(i for a in equations for i in poly.variables(a))
    for at in sorted(range(len(equations)), key=lambda at: len(equations[at])):
        a = equations[at]
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
                raise poly.TooLong
            return sum(monomial), tuple(-e for e in reversed(monomial))

        def __eq__(self, other: object) -> bool:
            return self is other

        def __hash__(self) -> int:
            return id(self)

    return ring(names, GF(prime, symmetric=False), Limited())[0]
