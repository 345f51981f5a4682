"""The power series of an experiment's states and outputs, with their derivatives by the unknowns.

Coefficient k of the right-hand side gives coefficient k + 1 of the states. Coefficient k of the
implicit variables follows from that of their equations, in which it is linear for k > 0: first its
value, then its derivatives, by the same matrix dg/dy at the start.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import casadi as ca
import numpy as np

from igpe.equations.operations import Node
from igpe.structure.series.field import (
    Field,
    Residues,
    Singular,
    product,
    rational,
    residue,
    solved,
)
from igpe.structure.series.graph import ELEMENTARY, Dynamics, SeriesGraph, series_graph

PARTS = 12  # exp is drawn at a twelfth of its argument: of that all quotients below are multiples
LARGEST_TERM = 4  # of those quotients
_TERMS = range(1, LARGEST_TERM + 1)
_MULTIPLES = sorted(
    {sign * n for a in _TERMS for b in _TERMS for n in (a, PARTS * a // b) for sign in (1, -1)},
    key=abs,
)
"""What is tried: the argument may be so many times one whose value is known."""


class Constants:
    """Values at the start of functions that are known by their differential equations alone.

    In a finite field there is no exp(2). The equation z' = g' z knows exp(g) up to a factor, its
    value at the start, and this is drawn at random: the verdicts hold for nearly all such factors.
    The same argument gives the same value at every place and in every experiment; exp and log undo
    each other; exp of an argument times a quotient of small numbers is the power; sine and cosine
    lie on a circle.

    field  of the random source; its `size` does not matter
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        points = range(len(field.primes))
        self._exp: list[dict[int, int]] = [{0: 1} for _ in points]
        self._log: list[dict[int, int]] = [{1: 0} for _ in points]
        self._circle: list[dict[int, tuple[int, int]]] = [{0: (0, 1)} for _ in points]
        self._others: list[dict[tuple[str, float, int], int]] = [{} for _ in points]

    def at(self, k: int, name: str, g: int, exponent: float) -> int:
        """The function's value at point k; g is the argument's value there.

        raises Singular for log(0) and a power of 0
        """
        prime = self.field.primes[k]
        match name:
            case "exp":
                return self._exponential(k, g)
            case "log":
                return self._logarithm(k, g)
            case "power":
                ratio = residue(rational(exponent), prime)
                return self._exponential(k, ratio * self._logarithm(k, g) % prime)
            case "sin" | "cos":
                return self._on_circle(k, g)[name == "cos"]
        return 0 if g == 0 else self._others[k].setdefault((name, exponent, g), self._draw(k))

    def _exponential(self, k: int, g: int) -> int:
        known, prime = self._exp[k], self.field.primes[k]
        for m in _MULTIPLES:
            part = pow(m, -1, prime) * g % prime
            if part in known:
                return pow(known[part], m, prime)
        unit = self._draw(k)
        known[pow(PARTS, -1, prime) * g % prime] = unit
        known[g] = value = pow(unit, PARTS, prime)
        self._log[k][value] = g
        return value

    def _logarithm(self, k: int, g: int) -> int:
        if g == 0:
            raise Singular
        if g not in self._log[k]:
            self._log[k][g] = argument = self._draw(k)
            self._exp[k][argument] = g
        return self._log[k][g]

    def _on_circle(self, k: int, g: int) -> tuple[int, int]:
        known, prime = self._circle[k], self.field.primes[k]
        if g not in known:
            m = self._draw(k)
            while (1 + m * m) % prime == 0:
                m = self._draw(k)
            over = pow(1 + m * m, -1, prime)
            sine, cosine = 2 * m * over % prime, (1 - m * m) * over % prime
            known[g], known[prime - g] = (sine, cosine), (prime - sine, cosine)
        return known[g]

    def _draw(self, k: int) -> int:
        return int(self.field.random.integers(2, self.field.primes[k]))


class Grid:
    """The nodes of one experiment at all points: first those of point 0, piece after piece.

    Let all times of an experiment be e times as long. Its states at time t0 + e s are power series
    in e, whose coefficient k is a polynomial of degree k in s on each piece of the inputs, and
    continuous. Without breaks it is a number times s**k: one node, s = 1, is enough. With breaks
    each piece has as many nodes as there are orders: polynomials are integrated without error.

    primes  one for each node
    size    number of nodes at one point
    """

    def __init__(self, dynamics: Dynamics, primes: Sequence[int], orders: int) -> None:
        self.pieces = dynamics.pieces
        self.is_single = len(self.pieces) <= 1
        self.m = 1 if self.is_single else orders
        self.size = max(1, len(self.pieces)) * self.m
        self.points = len(primes)
        self.primes = [p for p in primes for _ in range(self.size)]
        self._base = list(primes)
        self._rules = {} if self.is_single else {p: _Rule(p, self.m) for p in set(primes)}

    def times(self) -> list[int]:
        """s at all nodes."""
        if self.is_single:
            return [1] * self.points
        return [
            (residue(piece.start, p) + v) % p
            for p in self._base
            for piece in self.pieces
            for v in self._rules[p].nodes
        ]

    def input(self, element: int, order: int) -> list[int]:
        """That coefficient of an input at all nodes."""
        if order > 1:
            return [0] * len(self.primes)
        result = []
        for p in self._base:
            nodes = [1] if self.is_single else self._rules[p].nodes
            for piece in self.pieces:
                level, rise, slope = (
                    residue(v[element], p) for v in (piece.levels, piece.rises, piece.slopes)
                )
                result += [level if order == 0 else (rise + slope * s) % p for s in nodes]
        return result

    def integrated(self, slopes: Residues, order: int) -> Residues:
        """Coefficient order + 1 of a state from coefficient `order` of its slope."""
        if self.is_single:
            over = np.array([[pow(order + 1, -1, p), p] for p in self.primes], dtype=np.uint64)
            return slopes * over[:, :1] % over[:, 1:]
        result = np.empty_like(slopes)
        for k, p in enumerate(self._base):
            rule, before = self._rules[p], np.zeros((1, slopes.shape[1]), dtype=np.uint64)
            for j, piece in enumerate(self.pieces):
                at = slice(k * self.size + j * self.m, k * self.size + (j + 1) * self.m)
                result[at] = (before + product(rule.integrals, slopes[at], p)) % np.uint64(p)
                if piece.end is not None:
                    length = residue(piece.end - piece.start, p)
                    whole = product(rule.integrals_to([length]), slopes[at], p)
                    before = (before + whole) % np.uint64(p)
        return result

    def at(self, values: Residues, k: int, time: Fraction) -> Residues:
        """(m, n) values at the nodes of point k -> (n,) at that time; at a break: before it."""
        p = self._base[k]
        j = max((j for j, piece in enumerate(self.pieces) if piece.start < time), default=0)
        weights = self._rules[p].values_at(residue(time - self.pieces[j].start, p))
        return np.asarray(product(weights, values[j * self.m : (j + 1) * self.m], p)[0])


class _Rule:
    """Interpolation by polynomials on the nodes 1, ..., m modulo a prime: weights of the values."""

    def __init__(self, prime: int, m: int) -> None:
        self.prime, self.m = prime, m
        self.nodes = list(range(1, m + 1))
        self._inverse = solved(
            self._powers(self.nodes, range(m)), np.eye(m, dtype=np.uint64), prime
        )
        self.integrals = self.integrals_to(self.nodes)

    def values_at(self, place: int) -> Residues:
        """(1, m) for the value at a place."""
        return product(self._powers([place], range(self.m)), self._inverse, self.prime)

    def integrals_to(self, ends: Sequence[int]) -> Residues:
        """(len(ends), m) for the integrals from 0 to each end."""
        over = np.array([pow(i + 1, -1, self.prime) for i in range(self.m)], dtype=np.uint64)
        powers = self._powers(ends, range(1, self.m + 1)) * over % np.uint64(self.prime)
        return product(powers, self._inverse, self.prime)

    def _powers(self, places: Sequence[int], exponents: range) -> Residues:
        rows = [[pow(v, e, self.prime) for e in exponents] for v in places]
        return np.array(rows, dtype=np.uint64)


FIRST_ROOM = 8  # coefficients; doubled when they are full

Given = Callable[[int, int, int], Residues]
"""(argument, element, order) -> a coefficient of an input, (points, size)."""


class Evaluation:
    """Coefficients of all nodes of a graph, one order after the other.

    Coefficient k of a node needs coefficient k of its arguments and lower ones; it may be computed
    again with other inputs of that order.

    places  row -> which point of `constants` it is; None: rows of one point follow each other
    """

    def __init__(
        self,
        field: Field,
        graph: SeriesGraph,
        constants: Constants,
        places: Sequence[int] | None = None,
    ) -> None:
        self.field, self.graph, self.constants = field, graph, constants
        points = len(constants.field.primes)
        nodes = len(field.primes) // points
        self._places = places or [k for k in range(points) for _ in range(nodes)]
        self._zero = field.number(0.0)
        shape = (len(field.primes), field.size)
        self._room = FIRST_ROOM
        self._inverses: dict[int, Residues] = {}
        self._series: list[Residues] = [
            np.zeros((*shape, 1 if steady else FIRST_ROOM), dtype=np.uint64)
            for steady in graph.steady
        ]

    def compute(self, k: int, given: Given) -> list[Residues]:
        """Coefficient k of the outputs. Raises Singular where the equations are not defined."""
        if k >= self._room:
            self._room *= 2
            for i, steady in enumerate(self.graph.steady):
                if not steady:
                    old = self._series[i]
                    self._series[i] = np.concatenate([old, np.zeros_like(old)], axis=2)
        # At the start an integral needs the value of w, which may stand behind it: hence twice.
        for _ in range(2 if k == 0 else 1):
            for i, node in enumerate(self.graph.nodes):
                if k == 0 or not self.graph.steady[i]:
                    self._series[i][:, :, k] = self._coefficient(i, node, k, given)
        return [self._at(i, k) for i in self.graph.results]

    def _coefficient(self, i: int, node: Node, k: int, given: Given) -> Residues:
        if not node.arguments:
            is_input = node.name == "INPUT"
            return given(*node.place, k) if is_input else self.field.number(node.value)
        a, b = node.arguments
        match node.name:
            case "ADD":
                return self.field.plus(self._at(a, k), self._at(b, k))
            case "SUB":
                return self.field.minus(self._at(a, k), self._at(b, k))
            case "MUL":
                return self._product(a, b, k)
            case "DIV":
                return self._quotient(i, a, b, k)
        return self._integral(node, k)

    def _product(self, a: int, b: int, k: int) -> Residues:
        for one, other in ((a, b), (b, a)):
            if self.graph.steady[one]:
                return self.field.product(self._at(one, 0), self._at(other, k))
        return self.field.convolution(self._series[a][:, :, : k + 1], self._series[b][:, :, k::-1])

    def _quotient(self, i: int, a: int, b: int, k: int) -> Residues:
        """c[k] = (a[k] - sum of b[j] c[k - j] over j = 1..k) / b[0]."""
        rest = self._at(a, k)
        if k > 0 and not self.graph.steady[b]:
            below = self._series[i][:, :, k - 1 :: -1]
            known = self.field.convolution(self._series[b][:, :, 1 : k + 1], below)
            rest = self.field.minus(rest, known)
        return self.field.product(rest, self._over(b, k))

    def _over(self, b: int, k: int) -> Residues:
        """1 / b[0], which is final once the start is computed."""
        if k == 0:
            return self.field.inverse(self._at(b, 0))
        if b not in self._inverses:
            self._inverses[b] = self.field.inverse(self._at(b, 0))
        return self._inverses[b]

    def _integral(self, node: Node, k: int) -> Residues:
        """z[k] = 1/k sum of j g[j] w[k - j] over j = 1..k."""
        (g, w), field = node.arguments, self.field
        if k == 0:
            argument, weight = self._at(g, 0), self._at(w, 0)
            start = field.constant([
                self.constants.at(place, node.name, int(a), node.value)
                for place, a in zip(self._places, argument[:, 0], strict=True)
            ])
            start[:, 1:] = (weight[:, :1] * argument[:, 1:]) % field.modulus
            return start
        if self.graph.steady[w]:
            return field.product(self._at(g, k), self._at(w, 0))
        j = np.arange(1, k + 1, dtype=np.uint64)
        slopes = (self._series[g][:, :, 1 : k + 1] * j) % field.modulus[:, :, None]
        return field.divided(field.convolution(slopes, self._series[w][:, :, k - 1 :: -1]), k)

    def _at(self, i: int, k: int) -> Residues:
        return self._zero if k > 0 and self.graph.steady[i] else self._series[i][:, :, k]


def start_values(
    field: Field,
    constants: Constants,
    column: Any,
    symbols: Sequence[Any],
    values: Sequence[Any],
    *,
    places: Sequence[int] | None = None,
) -> list[Residues]:
    """Values of an SX column where each of the symbols has its values, a number for each element.

    raises UnknownOperation, Singular
    """
    graph = series_graph(column, list(symbols), (True,) * len(symbols))
    run = Evaluation(field, graph, constants, places)
    return run.compute(0, lambda argument, i, k: values[argument][i])


STEADY = (False, False, True, False, False)  # of x, y, q, u, t


class PowerSeries:
    """One experiment's series, as far as they have been computed.

    field    its size is 1 + the number of this experiment's unknowns
    q        (points, n_q) values of the unknowns
    y        (points, n_instants * n_y) values of the implicit variables as each of `instants` of
             the dynamics begins, where g vanishes
    x        (points, n_x, size) what is added to the start values; None: nothing
    orders   how many coefficients are computed, where the inputs have breaks
    raises   Singular if the equations are not defined there, UnknownOperation
    """

    def __init__(
        self,
        dynamics: Dynamics,
        field: Field,
        constants: Constants,
        q: Residues,
        y: Residues,
        *,
        x: Residues | None = None,
        orders: int = 0,
    ) -> None:
        self.grid = Grid(dynamics, field.primes, orders)
        self.dynamics = d = dynamics
        self.field = field = Field(self.grid.primes, field.size, field.random)
        self.constants, self.order = constants, 0
        self.outputs: list[list[Residues]] = []
        self._n_x, self._n_y = int(d.f.numel()), int(d.g.numel())
        self._graph = series_graph(ca.vertcat(d.f, d.g, d.outputs), d.symbols, STEADY)
        self._evaluation = Evaluation(field, self._graph, self.constants)
        self._q = field.unknowns(np.repeat(q, self.grid.size, axis=0))
        starts = start_values(field, self.constants, d.start, [d.q], [self._q])
        if x is not None:
            moves = np.repeat(x, self.grid.size, axis=0)
            starts = [field.plus(a, moves[:, i]) for i, a in enumerate(starts)]
        self._x = [starts]
        self._y = [[field.constant(column) for column in self._at_nodes(y).T]]
        self._inverses = self._inverted() if self._n_y else []

    @property
    def beyond(self) -> set[str]:
        """Names of the functions in them that are no quotients of polynomials."""
        return {node.name for node in self._graph.nodes} - ELEMENTARY

    def start(self, state: int, k: int) -> int:
        """A state's value at the start, at point k."""
        return int(self._x[0][state][k * self.grid.size, 0])

    def implicit(self, order: int, k: int) -> list[int]:
        """That coefficient of each implicit variable at point k; it must have been computed."""
        return [int(y[k * self.grid.size, 0]) for y in self._y[order]] if self._n_y else []

    def advance(self) -> list[Residues]:
        """The next coefficient of every output."""
        k, n_x, n_y = self.order, self._n_x, self._n_y
        if k > 0:
            self._y.append([self.field.number(0.0)] * n_y)
        result = self._evaluation.compute(k, self._given)
        # The implicit variables' coefficient is solved for: its value, then its derivatives.
        for part in [slice(0, 1)] * (n_y > 0 and k > 0) + [slice(1, None)] * (n_y > 0):
            rest = np.stack(result[n_x : n_x + n_y], axis=1)[:, :, part]
            for i, step in enumerate(self._steps(rest)):
                self._y[k][i] = corrected = self._y[k][i].copy()
                corrected[:, part] = (corrected[:, part] + step) % self.field.modulus
            result = self._evaluation.compute(k, self._given)
        self._x.append([self.grid.integrated(slope, k) for slope in result[:n_x]])
        self.outputs.append(result[n_x + n_y :])
        self.order += 1
        return self.outputs[-1]

    def _steps(self, rest: Residues) -> Residues:
        """-(dg/dy)^-1 rest, (n_y, points, n); rest (points, n_y, n)."""
        return np.stack(
            [
                product(inverse, np.uint64(p) - r, p)
                for inverse, r, p in zip(self._inverses, rest, self.field.primes, strict=True)
            ],
            axis=1,
        )

    def _inverted(self) -> list[Residues]:
        """(dg/dy)^-1 at each node."""
        d, n = self.dynamics, self._n_y
        graph = series_graph(ca.vec(ca.jacobian(d.g, d.y)), d.symbols, STEADY)
        entries = Evaluation(self.field, graph, self.constants).compute(0, self._given)
        matrices = np.stack([e[:, 0] for e in entries], axis=1).reshape(-1, n, n)
        return [
            solved(matrix.T, np.eye(n, dtype=np.uint64), prime)
            for matrix, prime in zip(matrices, self.field.primes, strict=True)
        ]

    def _given(self, argument: int, element: int, k: int) -> Residues:
        match argument:
            case 0 | 1:
                return (self._x, self._y)[argument][k][element]
            case 2:
                return self._q[element]
        return self.exogenous(argument, element, k)

    def exogenous(self, argument: int, element: int, k: int) -> Residues:
        """A coefficient of an input or of the time."""
        if argument == 3:  # noqa: PLR2004 - u
            return self.field.constant(self.grid.input(element, k))
        if k == 1:
            return self.field.constant(self.grid.times())
        return self.field.number(self.dynamics.t0 if k == 0 else 0.0)

    def _at_nodes(self, y: Residues) -> Residues:
        """(nodes, n_y) from the values of all different instants."""
        levels = [piece.levels for piece in self.grid.pieces] or [()]
        instants = list(dict.fromkeys(levels))
        blocks = y.reshape(len(y), len(instants), -1)[:, [instants.index(one) for one in levels]]
        return np.repeat(blocks.reshape(len(y) * len(levels), -1), self.grid.m, axis=0)
