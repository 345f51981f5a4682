"""Directions that active constraints leave free, for the statistics.

Constraints without time, on parameters and on states, are differentiated on the integrated course.
Those over time stay out, as do those on what the equations do not determine: the result says so.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import ModelError, Unsupported
from igpe.dynamics.integrators.batch.automatic_intervals import AutomaticIntervals
from igpe.dynamics.shooting.multiple.chains import shootings
from igpe.dynamics.shooting.residuals import Broken
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.least_squares.chains.chains import Chained, condensed
from igpe.numerics.least_squares.chains.limits import Limits
from igpe.problem.problem import Problem

ACTIVE = 1e-5  # distance of an active inequality from its bound, relative to what it is made of
INTEGRATOR = AutomaticIntervals(rtol=1e-8, atol=1e-10)


class Tangent(NamedTuple):
    """What active constraints forbid.

    rows  (k, n) their derivative by the free unknowns;  known: constraints that were looked at
    """

    rows: FloatArray
    known: frozenset[str]


def tangent(problem: Problem, x: FloatArray) -> Tangent:
    """The active constraints without time, at the free unknowns x (n,)."""
    nothing = Tangent(np.zeros((0, len(x))), frozenset())
    names = frozenset(n for starts in problem.starts for n in starts.others)
    if not names:
        return nothing
    try:
        experiments = shootings(problem, INTEGRATOR, 1)
    except (Unsupported, ModelError):
        return nothing
    rows = [nothing.rows]
    for shooting in experiments:
        chain = shooting.chain(x, shooting.start(x)[None])
        if isinstance(chain, Broken):
            return nothing
        if shooting.limits is None or chain.limits is None:
            continue
        free = Linearised(np.zeros(0), nothing.rows)
        along = chain.limits.along(condensed(Chained((chain,), free)).moves[0])[:, :-1]
        wanted = np.array([n in names for n in shooting.limits.names])
        rows.append(along[wanted & _are_active(chain.limits, along, x)])
    return Tangent(np.vstack(rows), names)


def _are_active(limits: Limits, along: FloatArray, x: FloatArray) -> BoolArray:
    """(c,) equations, and inequalities on their bound."""
    near = np.minimum(np.abs(limits.value - limits.low), np.abs(limits.high - limits.value))
    made_of = np.maximum(np.linalg.norm(along * x, axis=1), np.abs(limits.value))
    return np.asarray(limits.equations | (near <= ACTIVE * made_of))
