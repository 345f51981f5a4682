"""ModularPolynomial equations that tie the unknowns to an experiment's Taylor coefficients.

The recurrences of the power series, written down instead of computed: the states' coefficients are
variables, each with the equation that makes it of those before (Hong et al. 2019). So all degrees
stay small. A quotient brings the inverse of its denominator's value at the start as one more
variable, which also says that this value is not zero.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import casadi as ca

from igpe.equations.operations import Node
from igpe.structure.series.field import Singular, rational, residue
from igpe.structure.series.graph import series_graph
from igpe.structure.series.polynomials import ModularPolynomial, Monomial
from igpe.structure.series.power_series import STEADY, PowerSeries

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
    """

    def __init__(self, prime: int) -> None:
        self.prime = prime
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
    raises     Singular
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
        products = (a[i] * b[j - i] for i in places if a[i] and b[j - i])
        return self._short(sum(products, self.relations.number(0)))

    def _short(self, a: ModularPolynomial) -> ModularPolynomial:
        """Where the equations are known in simplest form everything is kept in it."""
        return a if self.relations.reduced is None else self.relations.reduced(a)
