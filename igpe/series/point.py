"""Random points at which implicit equations hold.

A finite field has few roots. So the implicit variables are drawn like everything else, and as many
unknowns as there are equations, in which these are linear, follow from them. Where no component of
the solutions lacks such a coordinate the point is as random as one found the other way round. Where
the equations are linear in the implicit variables themselves, these follow from the rest.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.linearity import linear_parameters
from igpe.equations.stack import stack
from igpe.series.constants import Constants
from igpe.series.course import Signals
from igpe.series.dynamics import Dynamics
from igpe.series.evaluation import Evaluation
from igpe.series.field import Field, Residues, Singular
from igpe.series.linear_algebra import echelon, solved
from igpe.series.tape import tape_of


class Point(NamedTuple):
    """Values of all unknowns, and of each experiment's variables at its start, at each point.

    q  (points, n_q)
    y  of each experiment, (points, n_y) implicit variables
    x  of each experiment, (points, n_x) what stands for start values that depend on no unknown;
       None where those given are taken
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
    generic: bool = False,
) -> Point:
    """A point for all experiments together; the field's numbers have no derivatives.

    generic  whether start values that depend on no unknown are drawn as well
    raises   NoPoint, Singular, UnknownOperation
    """
    sizes = [n_q, *(d.x.numel() * generic for d in courses)]
    symbols = ca.SX.sym("free", sum(sizes))
    q, *starts = ca.vertsplit(symbols, np.cumsum([0, *sizes]).tolist())
    free = _drawn(field, sum(sizes))
    y = [_drawn(field, d.y.numel()) for d in courses]
    at_start = [_at_start(d, q, start) for d, start in zip(courses, starts, strict=True)]
    bent = [d.y.numel() > 0 and any(ca.which_depends(d.g, d.y, 2)) for d in courses]
    hard = [i for i, is_bent in enumerate(bent) if is_bent]
    if hard:
        equations = stack(at_start[i] for i in hard)
        ys, us = stack(courses[i].y for i in hard), stack(courses[i].u for i in hard)
        given = np.hstack([y[i] for i in hard])
        keys = [key for i in hard for key in courses[i].inputs]
        solver = _Linear(equations, [symbols, ys, us], field, shared[0])
        candidates = linear_parameters(equations, symbols).jointly
        solver.solve(0, candidates, [free, given, _u(keys, shared[1])])
    for i, d in enumerate(courses):
        if d.y.numel() and not bent[i]:
            solver = _Linear(at_start[i], [symbols, d.y, d.u], field, shared[0])
            solver.solve(1, range(d.y.numel()), [free, y[i], _u(d.inputs, shared[1])])
    values, *x = np.split(free, np.cumsum(sizes)[:-1], axis=1)
    return Point(values, y, [one if generic else None for one in x])


def _at_start(d: Dynamics, q: Any, drawn: Any) -> Any:
    """g at the start, in the symbols of all unknowns, of y and of u.

    drawn  (n_x,) what stands for start values that depend on no unknown; empty: those given
    """
    own = stack(q[c] for c in d.columns)
    start = ca.substitute(d.start, d.q, own)
    if drawn.numel():
        depends = ca.which_depends(d.start, d.q, 1, True)
        start = stack(start[i] if known else drawn[i] for i, known in enumerate(depends))
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
