"""States that a trajectory can come near: the smallest flat set that it never leaves.

From known start values the states stay in the start plus the span of all values their slopes take
there. Drawn at random in this set, a start is generic for the experiment without leaving what holds
along its trajectory: a state that stays where it is, a sum that is conserved.
"""

import numpy as np

from igpe.series.constants import Constants
from igpe.series.dynamics import Dynamics
from igpe.series.evaluation import Evaluation
from igpe.series.field import Field, Residues, Singular
from igpe.series.linear_algebra import echelon, product
from igpe.series.tape import tape_of


def random_moves(dynamics: Dynamics, field: Field) -> Residues:
    """(points, n_x) random moves of the start in that set."""
    directions = {p: _directions(dynamics, p, field.random) for p in dict.fromkeys(field.primes)}
    found = []
    for p in field.primes:
        own = directions[p]
        weights = field.random.integers(1, p, (1, len(own)), dtype=np.uint64)
        found.append(product(weights, own, p)[0])
    return np.array(found, dtype=np.uint64).reshape(len(found), dynamics.x.numel())


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
    starts = Evaluation(field, tape_of(d.start, [d.q], (True,)), constants).compute(
        0, lambda _, i, k: q[:, [i]]
    )
    moved = product(weights, directions, prime)
    x = np.stack([s[:, 0] for s in starts], axis=1) + moved if starts else moved
    given = [x % np.uint64(prime), drawn(d.y.numel()), q, drawn(d.u.numel()), drawn(1)]
    tape = tape_of(d.f, d.symbols, (True,) * len(d.symbols))
    slopes = Evaluation(field, tape, constants).compute(0, lambda a, i, k: given[a][:, [i]])
    return np.stack([s[:, 0] for s in slopes], axis=1)
