"""Polynomial equations that tie the unknowns to an experiment's Taylor coefficients.

The recurrences of the power series, written down instead of computed: the states' coefficients are
variables, each with the equation that makes it of those before (Hong et al. 2019). So all degrees
stay small. A quotient brings the inverse of its denominator's value at the start as one more
variable, which also says that this value is not zero.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import casadi as ca

from igpe.equations.operations import Node
from igpe.structure.series import polynomials as poly
from igpe.structure.series.field import Singular, rational, residue
from igpe.structure.series.graph import series_graph
from igpe.structure.series.polynomials import Polynomial
from igpe.structure.series.power_series import STEADY, PowerSeries

LARGEST_ROOT = 4  # denominator of an exponent


class FunctionValue(NamedTuple):
    """A function's argument and its value at the start; polynomial equations do not tell all of it.

    name  of the function
    """

    name: str
    argument: Polynomial
    value: Polynomial


class Relations:
    """Variables with their values at one point, and equations that hold there.

    values     of the variables
    equations  what vanishes
    reduced    polynomial -> the same modulo the equations, in simplest form; None: not known yet,
               and what is to be named gets a variable of its own
    pairs      functions of unknowns at the start; their values are variables of their own
    branches   whether the equations also hold elsewhere: on other branches of roots or implicit
               equations, or where the values of a pair do not belong together
    """

    def __init__(self, prime: int) -> None:
        self.prime = prime
        self.values: list[int] = []
        self.equations: list[Polynomial] = []
        self.reduced: Callable[[Polynomial], Polynomial] | None = None
        self.pairs: list[FunctionValue] = []
        self.branches = False
        self._inverses: dict[frozenset[tuple[poly.Monomial, int]], Polynomial] = {}

    def unknown(self, value: int) -> Polynomial:
        """A new variable."""
        self.values.append(value % self.prime)
        return poly.variable(len(self.values) - 1)

    def vanishes(self, a: Polynomial) -> None:
        """One more equation."""
        if a:
            self.equations.append(a)

    def named(self, a: Polynomial) -> Polynomial:
        """A short form of the polynomial."""
        if len(a) <= 1:
            return a
        if self.reduced is not None:
            return self.reduced(a)
        short = self.unknown(self.value(a))
        self.vanishes(poly.plus(short, a, self.prime, -1))
        return short

    def inverse(self, a: Polynomial) -> Polynomial:
        """1 / a. Raises Singular if it is zero at the point."""
        if not self.value(a):
            raise Singular
        inverse = pow(self.value(a), -1, self.prime)
        if poly.constant(a) is not None:
            return poly.number(inverse, self.prime)
        key = frozenset(a.items())
        if key not in self._inverses:
            result = self._inverses[key] = self.unknown(inverse)
            product = poly.times(a, result, self.prime)
            self.vanishes(poly.plus(product, poly.number(1, self.prime), self.prime, -1))
        return self._inverses[key]

    def quotient(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """a / b. Raises Singular if b is zero at the point."""
        inverse = self.inverse(b)
        if not a or poly.constant(b) is not None:
            return poly.times(a, inverse, self.prime)
        if self.reduced is not None:
            return self.reduced(poly.times(a, inverse, self.prime))
        result = self.unknown(self.value(a) * self.value(inverse))
        self.vanishes(poly.plus(poly.times(b, result, self.prime), a, self.prime, -1))
        return result

    def fix(self, a: Polynomial) -> None:
        """The polynomial has no other value than at the point."""
        self.vanishes(poly.plus(a, poly.number(self.value(a), self.prime), self.prime, -1))

    def value(self, a: Polynomial) -> int:
        """At the point."""
        return poly.value(a, self.values, self.prime)


class Unrolled:
    """One experiment's series at one of the points at which a course was computed.

    course     the same in numbers
    k          which of its points
    q          the experiment's unknowns
    relations  where variables and equations go
    raises     Singular
    """

    def __init__(
        self, course: PowerSeries, k: int, q: list[Polynomial], relations: Relations
    ) -> None:
        self.course, self.k, self.q, self.relations = course, k, q, relations
        self.prime = relations.prime
        d = course.dynamics
        self._n = [int(e.numel()) for e in (d.f, d.g, d.outputs)]
        self._graph = series_graph(ca.vertcat(d.f, d.g, d.outputs), d.symbols, STEADY)
        self._series: list[list[Polynomial]] = [[] for _ in self._graph.nodes]
        self._x: list[list[Polynomial]] = [self._start()]
        self._y: list[list[Polynomial]] = []
        self.order = 0

    def advance(self) -> list[Polynomial]:
        """The next coefficient of every output."""
        j = self.order
        self._y.append([self.relations.unknown(v) for v in self.course.implicit(j, self.k)])
        self.relations.branches |= self._n[1] > 0
        for i, node in enumerate(self._graph.nodes):
            self._series[i].append(self._coefficient(i, j, node))
        result = [self._series[i][j] for i in self._graph.results]
        over = pow(j + 1, -1, self.prime)
        self._x.append([self.relations.named(self._scaled(a, over)) for a in result[: self._n[0]]])
        for a in result[self._n[0] : self._n[0] + self._n[1]]:
            self.relations.vanishes(a)
        self.order += 1
        return result[self._n[0] + self._n[1] :]

    def _start(self) -> list[Polynomial]:
        """Start values; those that depend on no unknown are the course's numbers."""
        d = self.course.dynamics
        graph = series_graph(d.start, [d.q], (True,))
        series: list[list[Polynomial]] = [[] for _ in graph.nodes]
        for i, node in enumerate(graph.nodes):
            is_input = node.name == "INPUT"
            a = self.q[node.place[1]] if is_input else self._made(i, 0, series, node)
            series[i].append(a)
        depends = ca.which_depends(d.start, d.q, 1, True)
        return [
            series[i][0] if free else poly.number(self.course.start(j, self.k), self.prime)
            for j, (i, free) in enumerate(zip(graph.results, depends, strict=True))
        ]

    def _coefficient(self, i: int, j: int, node: Node) -> Polynomial:
        if j > 0 and self._graph.steady[i]:
            return {}
        if node.name != "INPUT":
            return self._made(i, j, self._series, node)
        argument, element = node.place
        if argument in (0, 1):
            return (self._x if argument == 0 else self._y)[j][element]
        if argument == 2:  # noqa: PLR2004 - q, which is steady
            return self.q[element]
        coefficient = self.course.exogenous(argument, element, j)
        return poly.number(int(coefficient[self.k, 0]), self.prime)

    def _made(self, i: int, j: int, series: list[list[Polynomial]], node: Node) -> Polynomial:
        if node.name == "CONST":
            return poly.number(residue(rational(node.value), self.prime), self.prime)
        a, b = (series[argument] for argument in node.arguments)
        if node.name == "ADD":
            return poly.plus(a[j], b[j], self.prime)
        if node.name == "SUB":
            return poly.plus(a[j], b[j], self.prime, -1)
        if node.name == "MUL":
            return self._convolution(a, b, range(j + 1), j)
        if node.name != "DIV":
            return self._integral(node, a, b, j)
        known = self._convolution(b, series[i], range(1, j + 1), j)
        return self.relations.quotient(poly.plus(a[j], known, self.prime, -1), b[0])

    def _integral(self, node: Node, g: list[Polynomial], w: list[Polynomial], j: int) -> Polynomial:
        """z[j] = 1/j sum of i g[i] w[j - i] over i = 1..j."""
        if j == 0:
            return self._value_of(node, g[0])
        slopes = [self._scaled(a, i) for i, a in enumerate(g)]
        total = self._convolution(slopes, w, range(1, j + 1), j)
        return self._short(self._scaled(total, pow(j, -1, self.prime)))

    def _value_of(self, node: Node, g: Polynomial) -> Polynomial:
        """A function's value at the start, which is drawn where its argument is known."""
        at = self.relations.value(g)
        z = self.course.constants.at(self.k, node.name, at, node.value)
        if poly.constant(g) is not None:
            return poly.number(z, self.prime)
        self.relations.branches = True
        result = self.relations.unknown(z)
        self.relations.pairs.append(FunctionValue(node.name, g, result))
        exponent = rational(node.value)
        if (
            node.name == "power"
            and max(exponent.denominator, abs(exponent.numerator)) <= LARGEST_ROOT
        ):
            self._root(result, g, exponent)
        return result

    def _root(self, z: Polynomial, g: Polynomial, exponent: Fraction) -> None:
        """z is g to that power, times a number."""
        relations, prime = self.relations, self.prime
        base = g if exponent > 0 else relations.inverse(g)
        above = poly.power(base, abs(exponent.numerator), prime)
        both = poly.power(z, exponent.denominator, prime)
        ratio = relations.value(both) * pow(relations.value(above), -1, prime)
        relations.vanishes(poly.plus(both, above, prime, -ratio))

    def _convolution(
        self, a: list[Polynomial], b: list[Polynomial], places: range, j: int
    ) -> Polynomial:
        """The sum of a[i] b[j - i]; series that are shorter are steady."""
        result: Polynomial = {}
        for i in places:
            if a[i] and b[j - i]:
                result = poly.plus(result, poly.times(a[i], b[j - i], self.prime), self.prime)
        return self._short(result)

    def _scaled(self, a: Polynomial, factor: int) -> Polynomial:
        return poly.plus({}, a, self.prime, factor)

    def _short(self, a: Polynomial) -> Polynomial:
        """Where the equations are known in simplest form everything is kept in it."""
        return a if self.relations.reduced is None else self.relations.reduced(a)
