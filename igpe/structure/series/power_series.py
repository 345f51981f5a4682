"""The power series of an experiment's states and outputs, with their derivatives by the unknowns.

Coefficient k of the right-hand side gives coefficient k + 1 of the states. Coefficient k of the
implicit variables follows from that of their equations, in which it is linear for k > 0: first its
value, then its derivatives, by the same matrix dg/dy at the start.

Where the coefficients of an experiment's series are computed.

Let all times of an experiment be e times as long. Its states at time t0 + e s are power series in
e, whose coefficient k is a polynomial of degree k in s on each piece of the inputs, and continuous.
Without breaks it is a number times s**k: one node, s = 1, is enough. With breaks each piece has as
many nodes as there are orders, so that polynomials are integrated without error.

The nodes of a graph as power series in time, one coefficient after the other.

Values at the start of functions that are known by their differential equations alone.

In a finite field there is no exp(2). The equation z' = g' z knows exp(g) up to a factor, its value
at the start, and this is drawn at random: what is found holds for nearly all such factors. The same
argument gives the same value at every place and in every experiment; exp and log undo each other;
exp of an argument times a quotient of small numbers is the power; sine and cosine lie on a circle.
"""

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction

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
from igpe.structure.series.graph import ELEMENTARY, Dynamics, SeriesGraph, degree, series_graph

PARTS = 12  # exp is drawn at a twelfth of its argument: of that all quotients below are multiples
LARGEST_TERM = 4  # of those quotients

_TERMS = range(1, LARGEST_TERM + 1)
_MULTIPLES = sorted(
    {sign * n for a in _TERMS for b in _TERMS for n in (a, PARTS * a // b) for sign in (1, -1)},
    key=abs,
)
"""What is tried: the argument may be so many times one whose value is known."""


class Constants:
    """The values drawn so far.

    field  of the random source; its `size` does not matter
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        points = range(len(field.primes))
        self._exp: list[dict[int, int]] = [{0: 1} for _ in points]
        self._log: list[dict[int, int]] = [{1: 0} for _ in points]
        self._circle: list[dict[int, tuple[int, int]]] = [{0: (0, 1)} for _ in points]
        self._others: list[dict[tuple[str, float, int], int]] = [{} for _ in points]

    def of(self, name: str, argument: Residues, exponent: float) -> list[int]:
        """The function's value at all nodes of each point.

        raises Singular for log(0) and a power of 0
        """
        nodes = len(argument) // len(self.field.primes)
        return [
            self.at(k // nodes, name, int(argument[k, 0]), exponent) for k in range(len(argument))
        ]

    def alone(self, k: int) -> "PointConstants":
        """Those of point k, for any number of places at it."""
        return PointConstants(self, k)

    def at(self, k: int, name: str, g: int, exponent: float) -> int:
        """The same at point k alone; g is the argument's value there."""
        if name == "exp":
            return self._exponential(k, g)
        if name == "log":
            return self._logarithm(k, g)
        if name == "power":
            ratio = residue(rational(exponent), self.field.primes[k])
            return self._exponential(k, ratio * self._logarithm(k, g) % self.field.primes[k])
        if name in ("sin", "cos"):
            return self._on_circle(k, g)[name == "cos"]
        known = self._others[k]
        return 0 if g == 0 else known.setdefault((name, exponent, g), self._draw(k))

    def _exponential(self, k: int, g: int) -> int:
        known, prime = self._exp[k], self.field.primes[k]
        for m in _MULTIPLES:
            part = pow(m, -1, prime) * g % prime
            if part in known:
                return pow(known[part], m, prime)
        unit = self._draw(k)
        known[pow(PARTS, -1, prime) * g % prime] = unit
        return self._pair(k, g, pow(unit, PARTS, prime))

    def _logarithm(self, k: int, g: int) -> int:
        if g == 0:
            raise Singular
        if g not in self._log[k]:
            self._pair(k, self._draw(k), g)
        return self._log[k][g]

    def _pair(self, k: int, argument: int, value: int) -> int:
        self._exp[k][argument], self._log[k][value] = value, argument
        return value

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


class PointConstants:
    """The values at one point, where many places at it are computed side by side."""

    def __init__(self, shared: Constants, k: int) -> None:
        self._shared, self._k = shared, k

    def of(self, name: str, argument: Residues, exponent: float) -> list[int]:
        """The function's value at each place."""
        return [self._shared.at(self._k, name, int(g), exponent) for g in argument[:, 0]]


class Grid:
    """The nodes of one experiment at all points: first those of point 0, piece after piece.

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
        if not self.is_single:
            self._rules = {p: _Rule(p, self.m) for p in dict.fromkeys(primes)}

    def spread(self, values: Residues) -> Residues:
        """(points, ...) values of each point, at its nodes."""
        return np.repeat(values, self.size, axis=0)

    def spread_pieces(self, values: Residues) -> Residues:
        """(points, n_pieces * n) values of each piece, at its nodes: (nodes, n)."""
        blocks = max(1, len(self.pieces))
        n = values.shape[1] // blocks
        return np.repeat(values.reshape(self.points * blocks, n), self.m, axis=0)

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
            over = np.array([pow(order + 1, -1, p) for p in self.primes], dtype=np.uint64)
            return slopes * over[:, None] % np.array(self.primes, dtype=np.uint64)[:, None]
        result = np.empty_like(slopes)
        for k, p in enumerate(self._base):
            rule, before = self._rules[p], np.zeros((1, slopes.shape[1]), dtype=np.uint64)
            for j, piece in enumerate(self.pieces):
                at = slice(k * self.size + j * self.m, k * self.size + (j + 1) * self.m)
                result[at] = (before + product(rule.integrals, slopes[at], p)) % np.uint64(p)
                if piece.end is not None:
                    whole = rule.integral_to(piece.end - piece.start)
                    before = (before + product(whole, slopes[at], p)) % np.uint64(p)
        return result

    def at(self, values: Residues, k: int, time: Fraction) -> Residues:
        """(m, n) values at the nodes of point k -> (n,) at that time; at a break: before it."""
        p = self._base[k]
        j = max((j for j, piece in enumerate(self.pieces) if piece.start < time), default=0)
        own = values[j * self.m : (j + 1) * self.m]
        weights = self._rules[p].values_at(time - self.pieces[j].start)
        return np.asarray(product(weights, own, p)[0], dtype=np.uint64)


class _Rule:
    """Interpolation by polynomials on m nodes, modulo a prime."""

    def __init__(self, prime: int, m: int) -> None:
        self.prime, self.m = prime, m
        self.nodes = list(range(1, m + 1))
        powers = self._powers(self.nodes, range(m))
        inverse = solved(powers, np.eye(m, dtype=np.uint64), prime)
        if inverse is None:
            raise Singular
        self._inverse = inverse
        self.integrals = self._integrals(self.nodes)

    def values_at(self, time: Fraction) -> Residues:
        """(1, m) weights of the nodes' values."""
        powers = self._powers([residue(time, self.prime)], range(self.m))
        return product(powers, self._inverse, self.prime)

    def integral_to(self, time: Fraction) -> Residues:
        """(1, m) weights of the nodes' values in the integral from 0."""
        return self._integrals([residue(time, self.prime)])

    def _integrals(self, ends: Sequence[int]) -> Residues:
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
    """Coefficients of all nodes, up to the order computed last.

    Coefficient k of a node needs coefficient k of its arguments and lower ones; it may be computed
    again with other inputs of that order.
    """

    def __init__(
        self, field: Field, graph: SeriesGraph, constants: Constants | PointConstants
    ) -> None:
        self.field, self.graph, self.constants = field, graph, constants
        self._zero = field.number(0.0)
        shape = (len(field.primes), field.size)
        self._room = FIRST_ROOM
        self._series: list[Residues] = [
            np.zeros((*shape, 1 if steady else FIRST_ROOM), dtype=np.uint64)
            for steady in graph.steady
        ]

    def compute(self, k: int, given: Given) -> list[Residues]:
        """Coefficient k of the outputs. Raises Singular where the equations are not defined."""
        if k >= self._room:
            self._enlarge()
        # At the start an integral needs the value of w, which may stand behind it: hence twice.
        for _ in range(2 if k == 0 else 1):
            for i, node in enumerate(self.graph.nodes):
                if k == 0 or not self.graph.steady[i]:
                    self._series[i][:, :, k] = self._coefficient(i, node, k, given)
        return [self._at(i, k) for i in self.graph.results]

    def _coefficient(self, i: int, node: Node, k: int, given: Given) -> Residues:
        if node.name == "CONST":
            return self.field.number(node.value)
        if node.name == "INPUT":
            return given(*node.place, k)
        a, b = node.arguments
        if node.name == "ADD":
            return self.field.plus(self._at(a, k), self._at(b, k))
        if node.name == "SUB":
            return self.field.minus(self._at(a, k), self._at(b, k))
        if node.name == "MUL":
            return self._product(a, b, k)
        return self._quotient(i, a, b, k) if node.name == "DIV" else self._integral(node, k)

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
        return self.field.product(rest, self.field.inverse(self._at(b, 0)))

    def _integral(self, node: Node, k: int) -> Residues:
        """z[k] = 1/k sum of j g[j] w[k - j] over j = 1..k."""
        g, w = node.arguments
        field = self.field
        if k == 0:
            argument, weight = self._at(g, 0), self._at(w, 0)
            start = field.constant(self.constants.of(node.name, argument, node.value))
            start[:, 1:] = (weight[:, :1] * argument[:, 1:]) % field.modulus
            return start
        if self.graph.steady[w]:
            return field.product(self._at(g, k), self._at(w, 0))
        j = np.arange(1, k + 1, dtype=np.uint64)
        slopes = (self._series[g][:, :, 1 : k + 1] * j) % field.modulus[:, :, None]
        return field.divided(field.convolution(slopes, self._series[w][:, :, k - 1 :: -1]), k)

    def _at(self, i: int, k: int) -> Residues:
        if k > 0 and self.graph.steady[i]:
            return self._zero
        return self._series[i][:, :, k]

    def _enlarge(self) -> None:
        for i, steady in enumerate(self.graph.steady):
            if not steady:
                old = self._series[i]
                self._series[i] = np.concatenate([old, np.zeros_like(old)], axis=2)
        self._room *= 2


STEADY = (False, False, True, False, False)  # of x, y, q, u, t


class Signals:
    """Inputs of which nothing is known: their coefficients are random, and remembered by key."""

    def __init__(self, field: Field) -> None:
        self.field = field
        self._drawn: dict[tuple[Hashable, int], list[int]] = {}

    def at(self, key: Hashable, order: int) -> list[int]:
        """A coefficient at each point."""
        if (key, order) not in self._drawn:
            self._drawn[key, order] = self.field.draw()
        return self._drawn[key, order]


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
        shared: tuple[Constants, Signals],
        q: Residues,
        y: Residues,
        *,
        x: Residues | None = None,
        orders: int = 0,
    ) -> None:
        self.grid = Grid(dynamics, field.primes, orders)
        self.dynamics = dynamics
        self.field = field = Field(self.grid.primes, field.size, field.random)
        self.constants, self.signals = shared
        self.order = 0
        self.outputs: list[list[Residues]] = []
        self._n = [int(e.numel()) for e in (dynamics.f, dynamics.g, dynamics.outputs)]
        column = ca.vertcat(dynamics.f, dynamics.g, dynamics.outputs)
        self._graph = series_graph(column, dynamics.symbols, STEADY)
        self._evaluation = Evaluation(field, self._graph, self.constants)
        self._q = self._seeds(self.grid.spread(q))
        self._x = [self._start_values(None if x is None else self.grid.spread(x))]
        y = self.grid.spread_pieces(self._by_piece(y))
        self._y = [[field.constant([int(v) for v in y[:, i]]) for i in range(y.shape[1])]]
        self._inverses = self._inverted() if self._n[1] else []

    @property
    def degree(self) -> int:
        """Of the equations and outputs in all their symbols."""
        return degree(self._graph)

    @property
    def degree_of_start(self) -> int:
        """Of the start values, and of unknowns that implicit equations were solved for."""
        starts = degree(series_graph(self.dynamics.start, [self.dynamics.q], (True,)))
        return max(1, starts) * max(1, self._n[1] * self.degree)

    @property
    def beyond(self) -> set[str]:
        """Names of the functions in them that are no quotients of polynomials."""
        return {node.name for node in self._graph.nodes} - ELEMENTARY

    def start(self, state: int, k: int) -> int:
        """A state's value at the start, at point k."""
        return int(self._x[0][state][k * self.grid.size, 0])

    def implicit(self, order: int, k: int) -> list[int]:
        """That coefficient of each implicit variable at point k; it must have been computed."""
        return [int(y[k * self.grid.size, 0]) for y in self._y[order]] if self._n[1] else []

    def advance(self) -> list[Residues]:
        """The next coefficient of every output."""
        k = self.order
        if k > 0:
            self._y.append([self.field.number(0.0)] * self._n[1])
        result = self._evaluation.compute(k, self._given)
        if self._n[1]:
            result = self._consistent(k, result)
        slopes, outputs = result[: self._n[0]], result[self._n[0] + self._n[1] :]
        self._x.append([self.grid.integrated(slope, k) for slope in slopes])
        self.outputs.append(outputs)
        self.order += 1
        return outputs

    def _consistent(self, k: int, result: list[Residues]) -> list[Residues]:
        """All outputs again, after the implicit variables' coefficient has been solved for."""
        for part in (slice(0, 1), slice(1, None)) if k > 0 else (slice(1, None),):
            rest = np.stack(result[self._n[0] : self._n[0] + self._n[1]], axis=1)
            for i, step in enumerate(self._steps(rest[:, :, part])):
                corrected = self._y[k][i].copy()
                corrected[:, part] = (corrected[:, part] + step) % self.field.modulus
                self._y[k][i] = corrected
            result = self._evaluation.compute(k, self._given)
        return result

    def _steps(self, rest: Residues) -> list[Residues]:
        """-(dg/dy)^-1 rest, for each implicit variable (points, n); rest (points, n_y, n)."""
        primes = self.field.primes
        moved = np.stack([
            product(inverse, np.uint64(p) - r, p)
            for inverse, r, p in zip(self._inverses, rest, primes, strict=True)
        ])
        return [moved[:, i] for i in range(self._n[1])]

    def _inverted(self) -> list[Residues]:
        d = self.dynamics
        graph = series_graph(ca.vec(ca.jacobian(d.g, d.y)), d.symbols, STEADY)
        entries = Evaluation(self.field, graph, self.constants).compute(0, self._given)
        n = self._n[1]
        result = []
        for k, prime in enumerate(self.field.primes):
            matrix = np.array([int(e[k, 0]) for e in entries], dtype=np.uint64).reshape(n, n).T
            inverse = solved(matrix, np.eye(n, dtype=np.uint64), prime)
            if inverse is None:
                raise Singular
            result.append(inverse)
        return result

    def _seeds(self, q: Residues) -> list[Residues]:
        seeds = [self.field.constant([int(v) for v in q[:, i]]) for i in range(q.shape[1])]
        for i, seed in enumerate(seeds):
            seed[:, 1 + i] = 1
        return seeds

    def _given(self, argument: int, element: int, k: int) -> Residues:
        if argument in (0, 1):
            return (self._x, self._y)[argument][k][element]
        if argument == 2:  # noqa: PLR2004 - q, which is steady
            return self._q[element]
        return self.exogenous(argument, element, k)

    def exogenous(self, argument: int, element: int, k: int) -> Residues:
        """A coefficient of an input or of the time."""
        if argument == 3:  # noqa: PLR2004 - u
            if self.grid.pieces:
                return self.field.constant(self.grid.input(element, k))
            return self.field.constant(self.signals.at(self.dynamics.inputs[element], k))
        if k == 1:
            return self.field.constant(self.grid.times())
        return self.field.number(self.dynamics.t0 if k == 0 else 0.0)

    def _by_piece(self, y: Residues) -> Residues:
        """(points, n_pieces * n_y) from the values of all different instants."""
        levels = [piece.levels for piece in self.grid.pieces]
        instants = list(dict.fromkeys(levels)) or [()]
        n = y.shape[1] // len(instants)
        places = [instants.index(one) for one in levels or [()]]
        return np.hstack([y[:, i * n : (i + 1) * n] for i in places])

    def _start_values(self, moved: Residues | None) -> list[Residues]:
        """The states at the start, with their derivatives; `moved` is added."""
        graph = series_graph(self.dynamics.start, [self.dynamics.q], (True,))
        result = Evaluation(self.field, graph, self.constants).compute(
            0, lambda _, i, k: self._q[i]
        )
        if moved is not None:
            result = [self.field.plus(a, moved[:, i]) for i, a in enumerate(result)]
        return result
