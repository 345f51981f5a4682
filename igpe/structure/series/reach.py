"""States that a trajectory can come near: the smallest flat set that it never leaves.

From known start values the states stay in the start plus the span of all values their slopes take
there. Drawn at random in this set, a start is generic for the experiment without leaving what holds
along its trajectory: a state that stays where it is, a sum that is conserved. At given values of
the unknowns the same is true of the states together with their derivatives by the unknowns, of
which more holds: where a state is proportional to an unknown, it is its derivative times that.
"""

from fractions import Fraction

import numpy as np

from igpe.structure.series.course import Constants, Evaluation, Given, PointConstants
from igpe.structure.series.field import Field, Residues, Singular, echelon, product, residue
from igpe.structure.series.graph import Dynamics, series_graph

Levels = tuple[tuple[Fraction | None, ...], ...]
"""Of an experiment's inputs, all that occur together; None: any."""

MOST_NUMBERS = 400  # states and derivatives of which the span is computed


def random_moves(dynamics: Dynamics, field: Field) -> Residues:
    """(points, n_x, size) random moves of the start in that set, without derivatives.

    field  its size is 1 + the number of unknowns
    """
    directions = {p: _directions(dynamics, p, field.random) for p in dict.fromkeys(field.primes)}
    n = dynamics.x.numel()
    found = np.zeros((len(field.primes), n, field.size), dtype=np.uint64)
    for k, p in enumerate(field.primes):
        found[k, :, 0] = _combined(directions[p], p, field.random)
    return found


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
    found = []
    for k, p in enumerate(field.primes):
        one = Field([p], field.size, field.random)
        spanned = _tangents(dynamics, (q[k], levels), one, constants.alone(k))
        found.append(_combined(spanned, p, field.random).reshape(n, field.size))
    return np.array(found, dtype=np.uint64).reshape(len(found), n, field.size)


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
    found = np.zeros((0, width), dtype=np.uint64)
    while len(found) < width:
        weights = many.random.integers(1, prime, (len(many.primes), len(found)), dtype=np.uint64)
        x = (base + product(weights, found, prime)) % np.uint64(prime)
        values = [
            [*x.reshape(-1, d.x.numel(), field.size).transpose(1, 0, 2)],
            [],
            seeds,
            [many.constant(_levels(levels, i, many)) for i in range(d.u.numel())],
            [many.constant(many.draw())],
        ]
        slopes = Evaluation(many, graph, constants).compute(0, _given(values))
        rows = np.stack(slopes, axis=1).reshape(len(many.primes), width)
        more = echelon(np.vstack([found, rows]), prime).rows
        if len(more) == len(found):
            break
        found = more
    return found


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
    found = np.zeros((0, n), dtype=np.uint64)
    try:
        while len(found) < n:
            more = echelon(np.vstack([found, _slopes(d, found, prime, random)]), prime).rows
            if len(more) == len(found):
                break
            found = more
    except Singular:
        return np.eye(n, dtype=np.uint64)
    return found


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
