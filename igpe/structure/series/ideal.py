"""Polynomial equations modulo a prime between unknowns and Taylor coefficients; their ideals.

Polynomials are sparse. A monomial lists the numbers of its variables, increasing, each as often as
its power: x1**2 x4 is (1, 1, 4). A polynomial holds monomials with residues other than zero; + - *
** work, also with whole numbers.

The recurrences of the power series, written down instead of computed: the states' coefficients are
variables, each with the equation that makes it of those before (Hong et al. 2019). So all degrees
stay small. A quotient brings the inverse of its denominator's value at the start as one more
variable, which also says that this value is not zero.

Linear consequences of the equations are looked for first (`_linear`); what these leave has a
Gröbner basis, which is SymPy's, with a limit on its work. If the equations have few solutions,
polynomials modulo the equations are a space of that dimension, in which the normal form of each
gives its coordinates.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from itertools import chain
from math import comb
from operator import mul, neg
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.operations import Node
from igpe.structure.series.field import Singular, echelon, rational, residue
from igpe.structure.series.graph import series_graph
from igpe.structure.series.power_series import STEADY, PowerSeries

Monomial = tuple[int, ...]


class TooLong(Exception):
    """Equations or their Groebner basis need more work than is allowed."""


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

    @cached_property
    def variables(self) -> set[int]:
        """The numbers of the variables that occur."""
        return {i for monomial in self.terms for i in monomial}

    def value(self, values: Sequence[int]) -> int:
        """The value where the variables have these."""
        terms = (reduce(mul, (values[i] for i in m), c) for m, c in self.terms.items())
        return sum(terms) % self.prime

    def inserted(self, i: int, by: "ModularPolynomial") -> "ModularPolynomial":
        """The polynomial with another one in place of variable i."""
        if i not in self.variables:
            return self
        result = {m: c for m, c in self.terms.items() if i not in m}
        powers = {n: by**n for n in {m.count(i) for m in self.terms.keys() - result.keys()}}
        for m, c in self.terms.items():
            rest = tuple(j for j in m if j != i)
            for other, d in powers[m.count(i)].terms.items() if i in m else ():
                both = tuple(sorted(rest + other))
                result[both] = result.get(both, 0) + c * d
        return ModularPolynomial(result, self.prime)


LONGEST = 8  # terms that take the place of a variable
MOST_ENTRIES = 20_000  # of a matrix of equations: some milliseconds


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
        while linear := _linear(rest):
            rest, solved = _substituted([*linear, *rest], most_work)
            for i, by in solved:
                self._solved = [(j, other.inserted(i, by)) for j, other in self._solved]
            self._solved += solved
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
        rest = [b for a in rest if (b := a.inserted(i, by))]
    return rest, solved


def _linear(equations: Sequence[ModularPolynomial]) -> list[ModularPolynomial]:
    """Linear equations that follow from others and their multiples of about the same degree.

    They solve most equations that have one solution, without a Gröbner basis: it takes SymPy, which
    loads for 0.3 s.
    """
    variables = sorted({i for a in equations for i in a.variables})
    top = max((len(m) for a in equations for m in a.terms), default=0) + 1
    rows, known = list(equations), 0
    while len(rows) > known:
        known = len(rows)
        for a in rows[:known]:
            if max(map(len, a.terms)) < top:
                rows += [a * ModularPolynomial({(i,): 1}, a.prime) for i in variables]
        if len(rows) * len({m for a in rows for m in a.terms}) > MOST_ENTRIES:
            break
        rows = _eliminated(rows)
        short = (a for a in rows if len(a.terms) <= LONGEST + 1)  # which substitution takes
        if linear := [a for a in short if max(map(len, a.terms)) == 1]:
            return linear
    return []


def _eliminated(equations: Sequence[ModularPolynomial]) -> list[ModularPolynomial]:
    """Equations with the same solutions, without monomials of the highest degrees if possible."""
    prime = equations[0].prime
    monomials = sorted({m for a in equations for m in a.terms}, key=lambda m: (-len(m), m))
    places = {m: k for k, m in enumerate(monomials)}
    matrix = np.zeros((len(equations), len(monomials)), dtype=np.uint64)
    for row, a in zip(matrix, equations, strict=True):
        row[[places[m] for m in a.terms]] = list(a.terms.values())
    return [
        ModularPolynomial({monomials[k]: int(row[k]) for k in np.flatnonzero(row)}, prime)
        for row in echelon(matrix, prime).rows
    ]


def _products(equations: Sequence[ModularPolynomial], i: int, length: int) -> int:
    """Products of terms, at most, that put so many terms in place of variable i.

    A high power of a few terms has so many that one substitution may last for minutes.
    """
    those = (a for a in equations if i in a.variables)
    powers = Counter(n for a in those for m in a.terms if (n := m.count(i)))
    return sum(count * comb(length + n - 1, n) for n, count in powers.items())


def _simple(equations: Sequence[ModularPolynomial]) -> tuple[int, int] | None:
    """Place of an equation that gives a variable in few terms, or one that no other contains."""
    among = Counter(chain.from_iterable(a.variables for a in equations))
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
            return sum(monomial), tuple(map(neg, reversed(monomial)))

        def __eq__(self, other: object) -> bool:
            return self is other

        def __hash__(self) -> int:
            return id(self)

    return ring(names, GF(prime, symmetric=False), Limited())[0]


LARGEST_ROOT = 4  # denominator of an exponent


class FunctionValue(NamedTuple):
    """A function's name, its argument and its value at the start."""

    name: str
    argument: ModularPolynomial
    value: ModularPolynomial


class Relations:
    """Variables with their values at one point, and equations that hold there.

    values     of the variables
    equations  what vanishes
    reduced    polynomial -> the same modulo the equations, in simplest form; None: not known yet,
               and what is to be named gets a variable of its own
    pairs      functions of unknowns at the start; their values are variables of their own
    branches   whether the equations also hold elsewhere: on other branches of roots or implicit
               equations, or where the values of a pair do not belong together
    work       products of terms that are left, as of an `Ideal`; those of `Unrolled` count
    """

    def __init__(self, prime: int, most_work: float = np.inf) -> None:
        self.prime, self.work = prime, most_work
        self.values: list[int] = []
        self.equations: list[ModularPolynomial] = []
        self.reduced: Callable[[ModularPolynomial], ModularPolynomial] | None = None
        self.pairs: list[FunctionValue] = []
        self.branches = False
        self._inverses: dict[frozenset[tuple[Monomial, int]], ModularPolynomial] = {}

    def number(self, value: int) -> ModularPolynomial:
        """A residue as a polynomial."""
        return ModularPolynomial({(): value}, self.prime)

    def unknown(self, value: int) -> ModularPolynomial:
        """A new variable."""
        self.values.append(value % self.prime)
        return ModularPolynomial({(len(self.values) - 1,): 1}, self.prime)

    def vanishes(self, a: ModularPolynomial) -> None:
        """Add an equation."""
        self.equations += [a] if a else []

    def fix(self, a: ModularPolynomial) -> None:
        """Add the equation that the polynomial has the value it has at the point."""
        self.vanishes(a - self.value(a))

    def value(self, a: ModularPolynomial) -> int:
        """The value at the point."""
        return a.value(self.values)

    def named(self, a: ModularPolynomial) -> ModularPolynomial:
        """A short form of the polynomial."""
        if len(a.terms) <= 1:
            return a
        if self.reduced is not None:
            return self.reduced(a)
        short = self.unknown(self.value(a))
        self.vanishes(short - a)
        return short

    def inverse(self, a: ModularPolynomial) -> ModularPolynomial:
        """1 / a. Raises Singular if it is zero at the point."""
        if not self.value(a):
            raise Singular
        inverse = pow(self.value(a), -1, self.prime)
        if a.constant is not None:
            return self.number(inverse)
        key = frozenset(a.terms.items())
        if key not in self._inverses:
            self._inverses[key] = self.unknown(inverse)
            self.vanishes(a * self._inverses[key] - 1)
        return self._inverses[key]

    def quotient(self, a: ModularPolynomial, b: ModularPolynomial) -> ModularPolynomial:
        """a / b. Raises Singular if b is zero at the point."""
        inverse = self.inverse(b)
        if not a or b.constant is not None:
            return a * inverse
        if self.reduced is not None:
            return self.reduced(a * inverse)
        result = self.unknown(self.value(a) * self.value(inverse))
        self.vanishes(b * result - a)
        return result


class Unrolled:
    """One experiment's series at one of the points at which a course was computed.

    course     the same in numbers
    k          which of its points
    q          the experiment's unknowns
    relations  where variables and equations go
    raises     Singular; TooLong
    """

    def __init__(
        self, course: PowerSeries, k: int, q: list[ModularPolynomial], relations: Relations
    ) -> None:
        self.course, self.k, self.q, self.relations = course, k, q, relations
        d = course.dynamics
        self._graph = series_graph(ca.vertcat(d.f, d.g, d.outputs), d.symbols, STEADY)
        self._series: list[list[ModularPolynomial]] = [[] for _ in self._graph.nodes]
        self._x, self._y = [self._start()], list[list[ModularPolynomial]]()
        self.order = 0

    def advance(self) -> list[ModularPolynomial]:
        """The next coefficient of every output."""
        j, d, relations = self.order, self.course.dynamics, self.relations
        n_x, n_y = d.f.numel(), d.g.numel()
        self._y.append([relations.unknown(v) for v in self.course.implicit(j, self.k)])
        relations.branches |= n_y > 0
        for i, node in enumerate(self._graph.nodes):
            self._series[i].append(self._coefficient(i, j, node))
        result = [self._series[i][j] for i in self._graph.results]
        over = pow(j + 1, -1, relations.prime)
        self._x.append([relations.named(a * over) for a in result[:n_x]])
        for a in result[n_x : n_x + n_y]:
            relations.vanishes(a)
        self.order += 1
        return result[n_x + n_y :]

    def _start(self) -> list[ModularPolynomial]:
        """Start values; those that depend on no unknown are the course's numbers."""
        d = self.course.dynamics
        graph = series_graph(d.start, [d.q], (True,))
        # A function refers to a later node, the slope of its series, which is not needed here.
        series: list[list[ModularPolynomial]] = [[] for _ in graph.nodes]
        for i, node in enumerate(graph.nodes):
            is_input = node.name == "INPUT"
            series[i].append(self.q[node.place[1]] if is_input else self._made(i, 0, series, node))
        depends = ca.which_depends(d.start, d.q, 1, True)
        return [
            series[i][0] if free else self.relations.number(self.course.start(j, self.k))
            for j, (i, free) in enumerate(zip(graph.results, depends, strict=True))
        ]

    def _coefficient(self, i: int, j: int, node: Node) -> ModularPolynomial:
        if j > 0 and self._graph.steady[i]:
            return self.relations.number(0)
        if node.name != "INPUT":
            return self._made(i, j, self._series, node)
        argument, element = node.place
        match argument:
            case 0 | 1:
                return (self._x, self._y)[argument][j][element]
            case 2:
                return self.q[element]
        coefficient = self.course.exogenous(argument, element, j)
        return self.relations.number(int(coefficient[self.k, 0]))

    def _made(
        self, i: int, j: int, series: list[list[ModularPolynomial]], node: Node
    ) -> ModularPolynomial:
        relations = self.relations
        if node.name == "CONST":
            return relations.number(residue(rational(node.value), relations.prime))
        a, b = (series[argument] for argument in node.arguments)
        match node.name:
            case "ADD" | "SUB":
                return a[j].plus(b[j], 1 if node.name == "ADD" else -1)
            case "MUL":
                return self._convolution(a, b, range(j + 1), j)
            case "DIV":
                known = self._convolution(b, series[i], range(1, j + 1), j)
                return relations.quotient(a[j] - known, b[0])
        if j == 0:
            return self._value_of(node, a[0])
        # An integral: z[j] = 1/j sum of i g[i] w[j - i] over i = 1..j.
        total = self._convolution([c * i for i, c in enumerate(a)], b, range(1, j + 1), j)
        return self._short(total * pow(j, -1, relations.prime))

    def _value_of(self, node: Node, g: ModularPolynomial) -> ModularPolynomial:
        """A function's value at the start, which is drawn where its argument is known."""
        relations = self.relations
        z = self.course.constants.at(self.k, node.name, relations.value(g), node.value)
        if g.constant is not None:
            return relations.number(z)
        relations.branches = True
        result = relations.unknown(z)
        relations.pairs.append(FunctionValue(node.name, g, result))
        exponent = rational(node.value)
        above, below = abs(exponent.numerator), exponent.denominator
        if node.name == "power" and max(above, below) <= LARGEST_ROOT:
            # z is g to that power, times a number.
            base = (g if exponent > 0 else relations.inverse(g)) ** above
            both = result**below
            ratio = relations.value(both) * pow(relations.value(base), -1, relations.prime)
            relations.vanishes(both.plus(base, -ratio))
        return result

    def _convolution(
        self, a: Sequence[ModularPolynomial], b: Sequence[ModularPolynomial], places: range, j: int
    ) -> ModularPolynomial:
        """The sum of a[i] b[j - i]."""
        pairs = [(a[i], b[j - i]) for i in places if a[i] and b[j - i]]
        self.relations.work -= sum(len(one.terms) * len(other.terms) for one, other in pairs)
        if self.relations.work < 0:
            raise TooLong
        return self._short(sum((one * other for one, other in pairs), self.relations.number(0)))

    def _short(self, a: ModularPolynomial) -> ModularPolynomial:
        """Where the equations are known in simplest form everything is kept in it."""
        return a if self.relations.reduced is None else self.relations.reduced(a)
