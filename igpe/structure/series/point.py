"""Random points at which implicit equations hold.

A finite field has few roots. So the implicit variables are drawn like everything else, and as many
unknowns as there are equations, in which these are linear, follow from them. Where no component of
the solutions lacks such a coordinate the point is as random as one found the other way round. Where
the equations are linear in the implicit variables themselves, these follow from the rest.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.symbols import stack
from igpe.equations.system import linear_parameters
from igpe.structure.series.constants import Constants
from igpe.structure.series.course import Evaluation, Signals
from igpe.structure.series.field import Field, Residues, Singular
from igpe.structure.series.linear_algebra import echelon, solved
from igpe.structure.series.tape import Dynamics, tape_of


class Point(NamedTuple):
    """Values of all unknowns, and of each experiment's variables at its start, at each point.

    q  (points, n_q)
    y  of each experiment, (points, n_instants * n_y) implicit variables
    x  of each experiment, (points, n_x) what is added to the start values; None: nothing
    """

    q: Residues
    y: list[Residues]
    x: list[Residues | None]


class NoPoint(Exception):
    """No point was found at which the implicit equations hold."""


def random_point(
    courses: Sequence[Dynamics],
    n_q: int,
    field: Field,
    shared: tuple[Constants, Signals],
    *,
    moved: Sequence[Residues | None] = (),
) -> Point:
    """A point for all experiments together; the field's numbers have no derivatives.

    moved   what is added to the start values of each experiment
    raises  NoPoint, Singular, UnknownOperation
    """
    moves = list(moved) or [None] * len(courses)
    x = [_zero(field, d) if m is None else m for d, m in zip(courses, moves, strict=True)]
    q = ca.SX.sym("q", n_q)
    free = _drawn(field, n_q)
    parts = [(i, d) for i, course in enumerate(courses) for d in _instants(course)]
    y = [_drawn(field, d.y.numel()) for _, d in parts]
    shifts = [ca.SX.sym("shift", d.x.numel()) for d in courses]
    at_start = [_at_start(d, q, shifts[i]) for i, d in parts]
    bent = [d.y.numel() > 0 and any(ca.which_depends(d.g, d.y, 2)) for _, d in parts]
    hard = [i for i, is_bent in enumerate(bent) if is_bent]
    known = np.hstack([np.zeros((len(field.primes), 0), dtype=np.uint64), *x])
    if hard:
        equations = stack(at_start[i] for i in hard)
        ys, us = stack(parts[i][1].y for i in hard), stack(parts[i][1].u for i in hard)
        # Instants of one experiment share the symbols of y: each gets its own.
        own = [ca.SX.sym("y", parts[i][1].y.numel()) for i in hard]
        equations = stack(
            ca.substitute(at_start[i], parts[i][1].y, mine)
            for i, mine in zip(hard, own, strict=True)
        )
        ys = stack(own)
        given = np.hstack([y[i] for i in hard])
        keys = [key for i in hard for key in parts[i][1].inputs]
        both, whole = stack([q, *shifts]), np.hstack([free, known])
        solver = _Linear(equations, [both, ys, us], field, shared[0])
        columns = linear_parameters(equations, both).jointly
        candidates = [
            c for c in columns if c < n_q or any(m is not None for m in moves)
        ]  # given start values stay
        solver.solve(0, candidates, [whole, given, _u(keys, shared[1])])
        free, known = whole[:, :n_q], whole[:, n_q:]
    for i, (_, d) in enumerate(parts):
        if d.y.numel() and not bent[i]:
            solver = _Linear(at_start[i], [q, d.y, d.u, stack(shifts)], field, shared[0])
            solver.solve(1, range(d.y.numel()), [free, y[i], _u(d.inputs, shared[1]), known])
    return Point(free, _together(y, [i for i, _ in parts]), _moves(known, courses, moves))


def _together(y: Sequence[Residues], owners: Sequence[int]) -> list[Residues]:
    """Of each experiment, the implicit variables of all its instants."""
    return [
        np.hstack([own for own, k in zip(y, owners, strict=True) if k == i])
        for i in range(max(owners, default=-1) + 1)
    ]


def _moves(
    values: Residues, courses: Sequence[Dynamics], moved: Sequence[Residues | None]
) -> list[Residues | None]:
    starts = np.split(values, np.cumsum([d.x.numel() for d in courses])[:-1], axis=1)
    return [s if m is not None else None for s, m in zip(starts, moved, strict=True)]


def _instants(d: Dynamics) -> list[Dynamics]:
    """Without implicit variables there is nothing to solve, and one stands for all."""
    return d.instants() if d.y.numel() else [replace(d, g=ca.SX(0, 1), u=ca.SX(0, 1), inputs=())]


def _zero(field: Field, d: Dynamics) -> Residues:
    return np.zeros((len(field.primes), d.x.numel()), dtype=np.uint64)


def _at_start(d: Dynamics, q: Any, moved: Any) -> Any:
    """g at the start, in the symbols of all unknowns, of y, of u and of what moves the start."""
    own = stack(q[c] for c in d.columns)
    start = ca.substitute(d.start, d.q, own) + moved
    return ca.substitute([d.g], [d.q, d.x, d.t], [own, start, ca.SX(d.t0)])[0]


def _drawn(field: Field, n: int) -> Residues:
    """(points, n) random residues."""
    return _columns([field.draw() for _ in range(n)], field)


def _u(keys: Sequence[Any], signals: Signals) -> Residues:
    return _columns([signals.at(k, 0) for k in keys], signals.field)


def _columns(values: list[list[int]], field: Field) -> Residues:
    """(points, n) of n lists with one value for each point."""
    return np.array(values, dtype=np.uint64).reshape(len(values), len(field.primes)).T.copy()


class _Linear:
    """Equations that are linear in some of their symbols."""

    def __init__(
        self, equations: Any, symbols: list[Any], field: Field, constants: Constants
    ) -> None:
        self.equations, self.symbols = equations, symbols
        self.field, self.constants = field, constants

    def solve(self, argument: int, candidates: Sequence[int], values: list[Residues]) -> None:
        """Overwrite some of the candidates among values[argument], so that the equations hold."""
        columns = list(candidates)
        part = stack(self.symbols[argument][j] for j in columns)
        slopes = self._evaluated(ca.vec(ca.jacobian(self.equations, part)), values)
        n = self.equations.numel()
        for k, prime in enumerate(self.field.primes):
            matrix = slopes[k].reshape(len(columns), n).T
            chosen = list(echelon(matrix, prime).pivots)
            if len(chosen) < n:
                raise NoPoint
            values[argument][k, [columns[j] for j in chosen]] = 0
            rest = self._evaluated(self.equations, values)[k]
            found = solved(matrix[:, chosen], (np.uint64(prime) - rest)[:, None], prime)
            if found is None:
                raise Singular
            values[argument][k, [columns[j] for j in chosen]] = found[:, 0]

    def _evaluated(self, column: Any, values: list[Residues]) -> Residues:
        """(points, n) the expressions' values."""
        tape = tape_of(column, self.symbols, (True,) * len(self.symbols))
        found = Evaluation(self.field, tape, self.constants).compute(
            0, lambda a, i, k: self.field.constant([int(v) for v in values[a][:, i]])
        )
        return np.stack([e[:, 0] for e in found], axis=1)
