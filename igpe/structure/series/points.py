"""Random points at which implicit equations hold, with random start values.

A finite field has few roots. So the implicit variables are drawn like everything else, and as many
unknowns as there are equations, in which these are linear, follow from them. Where no component of
the solutions lacks such a coordinate the point is as random as one found the other way round. Where
the equations are linear in the implicit variables themselves, these follow from the rest.

Start values are drawn in the smallest flat set that a trajectory never leaves: the known start plus
the span of all values that slopes take there. So they are generic for the experiment without
leaving what holds along its trajectory: a state that stays where it is, a sum that is conserved. At
given unknowns the same is true of states together with their derivatives by the unknowns, of which
more holds: where a state is proportional to an unknown, it is its derivative times that.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.symbols import stack
from igpe.equations.system import linear_parameters
from igpe.structure.series.field import Field, Residues, Singular, echelon, product, residue, solved
from igpe.structure.series.graph import Dynamics
from igpe.structure.series.power_series import Constants, start_values

Levels = tuple[tuple[Fraction | None, ...], ...]
"""Of an experiment's inputs, all that occur together; None: any."""

MOST_NUMBERS = 400  # states and derivatives of which the span is computed


def random_moves(dynamics: Dynamics, field: Field) -> Residues:
    """(points, n_x, size) random moves of the start in that set, without derivatives.

    For all values of unknowns, inputs and implicit variables.

    field  its size is 1 + the number of unknowns
    """
    d, n = dynamics, dynamics.x.numel()

    def slopes(directions: Residues, prime: int) -> Residues:
        """(n + 1, n) at random places of the set spanned so far."""
        one = Field([prime] * (n + 1), 1, field.random)
        constants = Constants(one)

        def drawn(m: int) -> Residues:
            return field.random.integers(1, prime, (n + 1, m), dtype=np.uint64)

        q, weights = drawn(d.q.numel()), drawn(len(directions))
        starts = start_values(one, constants, d.start, [d.q], [_columns(q)])
        x = (product(weights, directions, prime) + _rows(starts, n + 1)) % np.uint64(prime)
        rest = [drawn(d.y.numel()), q, drawn(d.u.numel()), drawn(1)]
        values = [_columns(v) for v in (x, *rest)]
        return _rows(start_values(one, constants, d.f, d.symbols, values), n + 1)

    def spanned(prime: int) -> Residues:
        try:
            return _span(lambda known: slopes(known, prime), n, prime)
        except Singular:
            return np.eye(n, dtype=np.uint64)

    directions = {p: spanned(p) for p in dict.fromkeys(field.primes)}
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
    d, n, width = dynamics, dynamics.x.numel(), dynamics.x.numel() * field.size
    if not n or width > MOST_NUMBERS or d.y.numel():
        return random_moves(d, field)

    def tangents(k: int, prime: int) -> Residues:
        """(directions, n_x * size) what spans states and derivatives at point k."""
        many = Field([prime] * (len(levels) * (1 + width // 4)), field.size, field.random)
        size, places = len(many.primes), [k] * len(many.primes)
        seeds = many.unknowns(np.tile(q[k], (size, 1)))
        starts = start_values(many, constants, d.start, [d.q], [seeds], places=places)
        base = np.stack(starts, axis=1).reshape(size, width)

        def slopes(known: Residues) -> Residues:
            weights = many.random.integers(1, prime, (size, len(known)), dtype=np.uint64)
            x = (base + product(weights, known, prime)) % np.uint64(prime)
            inputs = [many.draw() for _ in range(d.u.numel())]
            for j, own in enumerate(inputs):
                for i, one in enumerate(levels):
                    if (level := one[j]) is not None:
                        own[i :: len(levels)] = [residue(level, prime)] * len(own[i :: len(levels)])
            states = [*x.reshape(-1, n, field.size).transpose(1, 0, 2)]
            given = [many.constant(one) for one in inputs]
            values = [states, [], seeds, given, [many.constant(many.draw())]]
            rows = start_values(many, constants, d.f, d.symbols, values, places=places)
            return np.stack(rows, axis=1).reshape(size, width)

        return _span(slopes, width, prime)

    moves = [_combined(tangents(k, p), p, field.random) for k, p in enumerate(field.primes)]
    return np.array(moves, dtype=np.uint64).reshape(len(moves), n, field.size)


def _span(more: Callable[[Residues], Residues], n: int, prime: int) -> Residues:
    """(k, n) a basis to which `more` adds no further direction."""
    known, result = -1, np.zeros((0, n), dtype=np.uint64)
    while known < len(result) < n:
        known = len(result)
        result = echelon(np.vstack([result, more(result)]), prime).rows
    return result


def _combined(directions: Residues, prime: int, random: np.random.Generator) -> Residues:
    weights = random.integers(1, prime, (1, len(directions)), dtype=np.uint64)
    return np.asarray(product(weights, directions, prime)[0])


def _columns(values: Residues) -> list[Residues]:
    """(points, n) values as n numbers without derivatives."""
    return [column[:, None] for column in values.T]


def _rows(numbers: Sequence[Residues], points: int) -> Residues:
    """(points, n) the values of n numbers."""
    return np.array([a[:, 0] for a in numbers], dtype=np.uint64).reshape(-1, points).T


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
    constants: Constants,
    *,
    moved: Sequence[Residues | None] = (),
) -> RandomPoint:
    """A point for all experiments together; the field's numbers have no derivatives.

    moved   what is added to the start values of each experiment
    raises  NoPoint, Singular, UnknownOperation
    """
    points, moves = len(field.primes), list(moved) or [None] * len(courses)

    def values(lists: Sequence[list[int]]) -> Residues:
        return np.array(lists, dtype=np.uint64).reshape(-1, points).T.copy()

    q, shifts = ca.SX.sym("q", n_q), [ca.SX.sym("shift", d.x.numel()) for d in courses]
    free = values([field.draw() for _ in range(n_q)])
    parts = [(i, d) for i, course in enumerate(courses) for d in _instants(course)]
    y = [values([field.draw() for _ in range(d.y.numel())]) for _, d in parts]
    x = [
        np.zeros((points, d.x.numel()), dtype=np.uint64) if m is None else m
        for d, m in zip(courses, moves, strict=True)
    ]
    known = np.hstack([np.zeros((points, 0), dtype=np.uint64), *x])
    own = [ca.SX.sym("y", d.y.numel()) for _, d in parts]
    at_start = [_at_start(d, q, shifts[i], mine) for (i, d), mine in zip(parts, own, strict=True)]
    bent = [
        mine.numel() > 0 and any(ca.which_depends(g, mine, 2))
        for g, mine in zip(at_start, own, strict=True)
    ]
    if any(bent):
        hard = [i for i, is_bent in enumerate(bent) if is_bent]
        equations, both = stack(at_start[i] for i in hard), stack([q, *shifts])
        symbols = [both, stack(own[i] for i in hard)]
        whole = [np.hstack([free, known]), np.hstack([y[i] for i in hard])]
        is_moved = any(m is not None for m in moves)  # given start values stay
        columns = linear_parameters(equations, both).jointly
        candidates = [c for c in columns if c < n_q or is_moved]
        _solve(equations, symbols, whole, (0, candidates), (field, constants))
        free, known = whole[0][:, :n_q], whole[0][:, n_q:]
    for i, (_, d) in enumerate(parts):
        if d.y.numel() and not bent[i]:
            symbols, solved_for = [q, own[i], stack(shifts)], range(d.y.numel())
            whole = [free, y[i], known]
            _solve(at_start[i], symbols, whole, (1, solved_for), (field, constants))
    starts = np.split(known, np.cumsum([d.x.numel() for d in courses])[:-1], axis=1)
    return RandomPoint(
        free,
        [
            np.hstack([mine for mine, (k, _) in zip(y, parts, strict=True) if k == i])
            for i in range(len(courses))
        ],
        [s if m is not None else None for s, m in zip(starts, moves, strict=True)],
    )


def _instants(d: Dynamics) -> list[Dynamics]:
    """Without implicit variables there is nothing to solve, and one stands for all."""
    return d.instants() if d.y.numel() else [replace(d, g=ca.SX(0, 1), u=ca.SX(0, 1))]


def _at_start(d: Dynamics, q: Any, shift: Any, y: Any) -> Any:
    """g at the start, in the symbols of all unknowns, of y and of what moves the start.

    y  a symbol of its own: the instants of one experiment share theirs
    """
    own = stack(q[c] for c in d.columns)
    start = ca.substitute(d.start, d.q, own) + shift
    return ca.substitute([d.g], [d.q, d.x, d.t, d.y], [own, start, ca.SX(d.t0), y])[0]


def _solve(
    equations: Any,
    symbols: list[Any],
    values: list[Residues],
    unknown: tuple[int, Sequence[int]],
    over: tuple[Field, Constants],
) -> None:
    """Overwrite some elements among values[argument] so that equations, linear in them, hold.

    unknown  the argument, and which of its elements may be overwritten
    over     the field, and the constants drawn in it
    """
    (argument, candidates), (field, constants) = unknown, over

    def evaluated(column: Any) -> Residues:
        numbers = [[field.constant(one) for one in given.T] for given in values]
        return _rows(start_values(field, constants, column, symbols, numbers), len(field.primes))

    columns, n = list(candidates), equations.numel()
    part = stack(symbols[argument][j] for j in columns)
    slopes = evaluated(ca.vec(ca.jacobian(equations, part)))
    chosen = []
    for k, prime in enumerate(field.primes):
        pivots = list(echelon(slopes[k].reshape(len(columns), n).T, prime).pivots)
        if len(pivots) < n:
            raise NoPoint
        chosen.append(pivots)
        values[argument][k, [columns[j] for j in pivots]] = 0
    rest = evaluated(equations)
    for k, (prime, pivots) in enumerate(zip(field.primes, chosen, strict=True)):
        matrix = slopes[k].reshape(len(columns), n).T[:, pivots]
        result = solved(matrix, (np.uint64(prime) - rest[k])[:, None], prime)
        values[argument][k, [columns[j] for j in pivots]] = result[:, 0]
