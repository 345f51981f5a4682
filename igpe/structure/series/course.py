"""The power series of an experiment's states and outputs, with their derivatives by the unknowns.

Coefficient k of the right-hand side gives coefficient k + 1 of the states. Coefficient k of the
implicit variables follows from that of their equations, in which it is linear for k > 0: first its
value, then its derivatives, by the same matrix dg/dy at the start.
"""

from collections.abc import Hashable

import casadi as ca
import numpy as np

from igpe.structure.series.constants import Constants
from igpe.structure.series.degree import degree
from igpe.structure.series.dynamics import Dynamics
from igpe.structure.series.evaluation import Evaluation
from igpe.structure.series.field import Field, Residues, Singular
from igpe.structure.series.grid import Grid
from igpe.structure.series.linear_algebra import product, solved
from igpe.structure.series.tape import Kind, tape_of

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


class Course:
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
        self._tape = tape_of(column, dynamics.symbols, STEADY)
        self._evaluation = Evaluation(field, self._tape, self.constants)
        self._q = self._seeds(self.grid.spread(q))
        self._x = [self._start_values(None if x is None else self.grid.spread(x))]
        y = self.grid.spread_pieces(self._by_piece(y))
        self._y = [[field.constant([int(v) for v in y[:, i]]) for i in range(y.shape[1])]]
        self._inverses = self._inverted() if self._n[1] else []

    @property
    def degree(self) -> int:
        """Of the equations and outputs in all their symbols."""
        return degree(self._tape)

    @property
    def degree_of_start(self) -> int:
        """Of the start values, and of unknowns that implicit equations were solved for."""
        starts = degree(tape_of(self.dynamics.start, [self.dynamics.q], (True,)))
        return max(1, starts) * max(1, self._n[1] * self.degree)

    @property
    def beyond(self) -> set[str]:
        """Names of the functions in them that are no quotients of polynomials."""
        return {node.name for node in self._tape.nodes if node.kind is Kind.INTEGRAL}

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
        found = self._evaluation.compute(k, self._given)
        if self._n[1]:
            found = self._consistent(k, found)
        slopes, outputs = found[: self._n[0]], found[self._n[0] + self._n[1] :]
        self._x.append([self.grid.integrated(slope, k) for slope in slopes])
        self.outputs.append(outputs)
        self.order += 1
        return outputs

    def _consistent(self, k: int, found: list[Residues]) -> list[Residues]:
        """All outputs again, after the implicit variables' coefficient has been solved for."""
        for part in (slice(0, 1), slice(1, None)) if k > 0 else (slice(1, None),):
            rest = np.stack(found[self._n[0] : self._n[0] + self._n[1]], axis=1)
            for i, step in enumerate(self._steps(rest[:, :, part])):
                corrected = self._y[k][i].copy()
                corrected[:, part] = (corrected[:, part] + step) % self.field.modulus
                self._y[k][i] = corrected
            found = self._evaluation.compute(k, self._given)
        return found

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
        tape = tape_of(ca.vec(ca.jacobian(d.g, d.y)), d.symbols, STEADY)
        entries = Evaluation(self.field, tape, self.constants).compute(0, self._given)
        n = self._n[1]
        found = []
        for k, prime in enumerate(self.field.primes):
            matrix = np.array([int(e[k, 0]) for e in entries], dtype=np.uint64).reshape(n, n).T
            inverse = solved(matrix, np.eye(n, dtype=np.uint64), prime)
            if inverse is None:
                raise Singular
            found.append(inverse)
        return found

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
        tape = tape_of(self.dynamics.start, [self.dynamics.q], (True,))
        found = Evaluation(self.field, tape, self.constants).compute(0, lambda _, i, k: self._q[i])
        if moved is not None:
            found = [self.field.plus(a, moved[:, i]) for i, a in enumerate(found)]
        return found
