"""Residuals that hang on no measurement: priors, and jumps of unknowns that vary with time.

(q - mean) / deviation for every prior; root(penalty) (w_(i+1) - w_i) between the pieces of an
unknown that varies with time (Houska, Logist, Diehl & Van Impe, section 2.4). All are linear.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.numerics.least_squares.base import Linearised
from igpe.problem.problem import Problem


class Unmeasured(NamedTuple):
    """k residuals weight (matrix x - known) of the free unknowns x (n,).

    matrix  (k, n);  known, weight  (k,)
    """

    matrix: FloatArray
    known: FloatArray
    weight: FloatArray

    def __call__(self, x: FloatArray, factor: float = 1.0) -> Linearised:
        """Residuals and derivative at x, all multiplied by a factor."""
        weight = factor * self.weight
        return Linearised((self.matrix @ x - self.known) * weight, self.matrix * weight[:, None])

    @property
    def size(self) -> int:
        """k, how many there are."""
        return len(self.known)


def unmeasured(problem: Problem) -> Unmeasured:
    """Those of the problem's free unknowns, priors first."""
    rows = [({n: 1.0}, p.mean, 1 / p.deviation) for n, p in problem.priors.items()]
    for name, course in problem.time_varying.items():
        weight = float(np.sqrt(course.penalty))
        for experiment in problem.experiments if weight else ():
            for before, after in pairwise(problem.pieces(name, experiment)):
                rows.append(({before: -1.0, after: 1.0}, 0.0, weight))
    return _gathered(problem, rows)


def _gathered(problem: Problem, rows: list[tuple[dict[str, float], float, float]]) -> Unmeasured:
    """The rows with a free unknown; what is held goes to the known part."""
    names, held = problem.box.names, problem.fixed
    free = [row for row in rows if any(n in names for n in row[0])]
    matrix, known = np.zeros((len(free), len(names))), np.zeros(len(free))
    for i, (factors, mean, _) in enumerate(free):
        known[i] = mean - sum(f * held[n] for n, f in factors.items() if n in held)
        for n, f in factors.items():
            if n not in held:
                matrix[i, names.index(n)] = f
    return Unmeasured(matrix, known, np.array([weight for *_, weight in free]))
