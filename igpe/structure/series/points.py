"""Random points at which implicit equations hold, with random start values.

A finite field has few roots. So the implicit variables are drawn like everything else, and as many
unknowns as there are equations, in which these are linear, follow from them. Where no component of
the solutions lacks such a coordinate the point is as random as one found the other way round. Where
the equations are linear in the implicit variables themselves, these follow from the rest.

Start values are drawn in the smallest flat set that a trajectory never leaves.

From known start values the states stay in the start plus the span of all values their slopes take
there. Drawn at random in this set, a start is generic for the experiment without leaving what holds
along its trajectory: a state that stays where it is, a sum that is conserved. At given values of
the unknowns the same is true of the states together with their derivatives by the unknowns, of
which more holds: where a state is proportional to an unknown, it is its derivative times that.
"""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.symbols import stack
from igpe.equations.system import linear_parameters
from igpe.structure.series.field import Field, Residues, Singular, echelon, product, residue, solved
from igpe.structure.series.graph import Dynamics, series_graph
from igpe.structure.series.power_series import Constants, Evaluation, Given, PointConstants, Signals

Levels = tuple[tuple[Fraction | None, ...], ...]
"""Of an experiment's inputs, all that occur together; None: any."""

MOST_NUMBERS = 400  # states and derivatives of which the span is computed


def random_moves(dynamics: Dynamics, field: Field) -> Residues:
    """(points, n_x, size) random moves of the start in that set, without derivatives.

    field  its size is 1 + the number of unknowns
    """
    directions = {p: _directions(dynamics, p, field.random) for p in dict.fromkeys(field.primes)}
    n = dynamics.x.numel()
    result = np.zeros((len(field.primes), n, field.size), dtype=np.uint64)
    for k, p in enumerate(field.primes):
        result[k, :, 0] = _combined(directions[p], p, field.random)
    return result


def random_tangents(
    dynamics: Dynamics, q: Residues, levels: Levels, field: Field, constants: Constants
) -> Residues:
    """(points, n_x, size) the same with derivatives, at the unknowns q.

    levels     of the inputs
    constants  of the same points
    raises  Singular where the equations are not defined
    """
    n = dynamics.x.numel()
    if n * field.size > MOST_NUMBERS or dynamics.y.numel():
        return random_moves(dynamics, field)
    result = []
    for k, p in enumerate(field.primes):
        one = Field([p], field.size, field.random)
        spanned = _tangents(dynamics, (q[k], levels), one, constants.alone(k))
        result.append(_combined(spanned, p, field.random).reshape(n, field.size))
    return np.array(result, dtype=np.uint64).reshape(len(result), n, field.size)


def _combined(directions: Residues, prime: int, random: np.random.Generator) -> Residues:
    weights = random.integers(1, prime, (1, len(directions)), dtype=np.uint64)
    return np.asarray(product(weights, directions, prime)[0], dtype=np.uint64)


def _tangents(
    d: Dynamics, given: tuple[Residues, Levels], field: Field, constants: PointConstants
) -> Residues:
    """(k, n_x * size) what spans states and derivatives at one point; given: q and levels."""
    q, levels = given
    prime, width = field.primes[0], d.x.numel() * field.size
    many = Field([prime] * (len(levels) * (1 + width // 4)), field.size, field.random)
    seeds = [many.constant([int(v)] * len(many.primes)) for v in q]
    for i, seed in enumerate(seeds):
        seed[:, 1 + i] = 1
    starts = Evaluation(many, series_graph(d.start, [d.q], (True,)), constants).compute(
        0, lambda _, i, k: seeds[i]
    )
    base = np.stack(starts, axis=1).reshape(len(many.primes), width)
    graph = series_graph(d.f, d.symbols, (True,) * len(d.symbols))
    result = np.zeros((0, width), dtype=np.uint64)
    while len(result) < width:
        weights = many.random.integers(1, prime, (len(many.primes), len(result)), dtype=np.uint64)
        x = (base + product(weights, result, prime)) % np.uint64(prime)
        values = [
            [*x.reshape(-1, d.x.numel(), field.size).transpose(1, 0, 2)],
            [],
            seeds,
            [many.constant(_levels(levels, i, many)) for i in range(d.u.numel())],
            [many.constant(many.draw())],
        ]
        slopes = Evaluation(many, graph, constants).compute(0, _given(values))
        rows = np.stack(slopes, axis=1).reshape(len(many.primes), width)
        more = echelon(np.vstack([result, rows]), prime).rows
        if len(more) == len(result):
            break
        result = more
    return result


def _given(values: list[list[Residues]]) -> Given:
    return lambda argument, element, order: values[argument][element]


def _levels(levels: Levels, i: int, field: Field) -> list[int]:
    drawn = field.draw()
    own = [one[i] for one in levels]
    for k, prime in enumerate(field.primes):
        level = own[k % len(own)]
        drawn[k] = drawn[k] if level is None else residue(level, prime)
    return drawn


def _directions(d: Dynamics, prime: int, random: np.random.Generator) -> Residues:
    """(k, n_x) what spans the set: for all values of unknowns, inputs and implicit variables."""
    n = d.x.numel()
    result = np.zeros((0, n), dtype=np.uint64)
    try:
        while len(result) < n:
            more = echelon(np.vstack([result, _slopes(d, result, prime, random)]), prime).rows
            if len(more) == len(result):
                break
            result = more
    except Singular:
        return np.eye(n, dtype=np.uint64)
    return result


def _slopes(d: Dynamics, directions: Residues, prime: int, random: np.random.Generator) -> Residues:
    """(n_x + 1, n_x) slopes at random places of the set spanned so far."""
    n = d.x.numel() + 1
    field = Field([prime] * n, 1, random)
    constants = Constants(field)

    def drawn(m: int) -> Residues:
        return random.integers(1, prime, (n, m), dtype=np.uint64)

    q, weights = drawn(d.q.numel()), drawn(len(directions))
    starts = Evaluation(field, series_graph(d.start, [d.q], (True,)), constants).compute(
        0, lambda _, i, k: q[:, [i]]
    )
    moved = product(weights, directions, prime)
    x = np.stack([s[:, 0] for s in starts], axis=1) + moved if starts else moved
    given = [x % np.uint64(prime), drawn(d.y.numel()), q, drawn(d.u.numel()), drawn(1)]
    graph = series_graph(d.f, d.symbols, (True,) * len(d.symbols))
    slopes = Evaluation(field, graph, constants).compute(0, lambda a, i, k: given[a][:, [i]])
    return np.stack([s[:, 0] for s in slopes], axis=1)


class RandomPoint(NamedTuple):
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
) -> RandomPoint:
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
    return RandomPoint(free, _together(y, [i for i, _ in parts]), _moves(known, courses, moves))


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
            result = solved(matrix[:, chosen], (np.uint64(prime) - rest)[:, None], prime)
            if result is None:
                raise Singular
            values[argument][k, [columns[j] for j in chosen]] = result[:, 0]

    def _evaluated(self, column: Any, values: list[Residues]) -> Residues:
        """(points, n) the expressions' values."""
        graph = series_graph(column, self.symbols, (True,) * len(self.symbols))
        result = Evaluation(self.field, graph, self.constants).compute(
            0, lambda a, i, k: self.field.constant([int(v) for v in values[a][:, i]])
        )
        return np.stack([e[:, 0] for e in result], axis=1)
