"""Active constraints and bounds of states: what they are, and the directions that they forbid.

Those without time, on parameters and on states, are differentiated on the integrated trajectory.
Those over time count where they hold the optimum: where the residuals' derivative is not zero,
multipliers of one sign make it so,

    J' r + sum_i lambda_i grad c_i = 0,    lambda_i >= 0       (Karush, Kuhn and Tucker)

with one c_i for each contact, a time at which a constraint comes next to its limit. Models are
built at more times for this, as collocation does: a contact may lie between measurements.
"""

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy.linalg import null_space
from scipy.optimize import nnls

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import ModelError, Unsupported
from igpe.dynamics.shooting.limits_of_model import (
    SAME,
    approaches,
    at_more_times,
    limits_along,
)
from igpe.numerics.covariance import directions
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Linearised
from igpe.problem.problem import Problem

ACTIVE = 1e-5  # distance of an active inequality from its bound, relative to what it is made of
CONTACT = 1e-3  # the same of one over time, which collocation keeps at the points of its mesh
OPTIMAL = 1e-6  # share of the sum of squares along the derivative that no constraint must explain
SIGNIFICANT = 3.84  # variances by which the sum of squares would fall: chi squared, 95 %
EXPLAINED = 1e-2  # of that share: what an optimum leaves, its contacts lying between times


class Tangent(NamedTuple):
    """Directions that active constraints forbid.

    rows    (k, n) their derivative by the free unknowns, of inequalities towards what they forbid
    equations  (k,) which of them are equations;  known: constraints that were looked at
    active  those that hold the optimum, and bounds of states, with their time if they have one:
            without one of them, the model would fit significantly better
    """

    rows: FloatArray
    equations: BoolArray
    known: frozenset[str]
    active: tuple[str, ...] = ()


def tangent(problem: Problem, x: FloatArray, at: Linearised | None = None) -> Tangent:
    """The active constraints at the free unknowns x (n,).

    at  residuals and derivative there; None: constraints over time stay out
    """
    fixed, names = _without_time(problem, x)
    if at is None or not np.isfinite(at.jacobian).all():
        return fixed
    free = np.flatnonzero(~on_bounds(x, at, problem.box))
    inverse, pull = _pull(at, free, fixed.rows)
    share = float(pull @ pull)
    if share <= OPTIMAL * at.squares:
        degrees = max(len(at.residual) - len(free) + len(fixed.rows), 1)
        least = SIGNIFICANT * (1.0 if problem.sigma_known else at.squares / degrees)
        gains = [_pull(at, free, np.delete(fixed.rows, i, axis=0))[1] for i in range(len(names))]
        felt = dict.fromkeys(n for n, g in zip(names, gains, strict=True) if g @ g > least)
        return fixed._replace(known=fixed.known | problem.inequalities, active=tuple(felt))
    with suppress(Unsupported, ModelError):
        rows, names = _contacts(problem, x)
        if len(rows):
            multipliers, left = nnls(inverse @ rows[:, free].T, pull)
            if left**2 <= EXPLAINED * share:
                holds = multipliers > 0
                active = tuple(n for n, own in zip(names, holds, strict=True) if own)
                known = fixed.known | problem.inequalities
                equations = np.append(fixed.equations, np.zeros(len(active), dtype=bool))
                return Tangent(np.vstack([fixed.rows, rows[holds]]), equations, known, active)
    return fixed


def _pull(at: Linearised, free: IntArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(r, n_free), (r,): how the sum of squares falls along all directions that rows (k, n) allow.

    The square of the second is the decrease that Gauss and Newton promise.
    """
    along = null_space(rows[:, free]) if len(rows) else np.eye(len(free))
    split = directions(at.jacobian[:, free] @ along)
    inverse = split.known / split.singular[:, None] @ along.T
    return inverse, -inverse @ (at.jacobian[:, free].T @ at.residual)


def _without_time(problem: Problem, x: FloatArray) -> tuple[Tangent, list[str]]:
    """The active constraints without time, and the name of each row."""
    nothing = Tangent(np.zeros((0, len(x))), np.zeros(0, dtype=bool), frozenset())
    names = frozenset(n for starts in problem.starts for n in starts.others)
    if not names:
        return nothing, []
    rows, equations, of = [nothing.rows], [nothing.equations], list[str]()
    for k in range(len(problem.experiments)):
        try:
            made = limits_along(problem, k, x)
        except (Unsupported, ModelError):
            return nothing, []
        if made is None:
            if problem.starts[k].others:
                return nothing, []
            continue
        limits, value, along = made
        without_time = [n in names for n in limits.names]
        below, above = np.abs(value - limits.low), np.abs(limits.high - value)
        moves = np.linalg.norm(along * x, axis=1)
        made_of = np.maximum(moves, np.abs(value))
        is_active = limits.equations | (np.minimum(below, above) <= ACTIVE * made_of)
        is_active &= moves > SAME * made_of  # else it holds, or does not, whatever the unknowns are
        chosen = is_active & np.array(without_time)
        rows.append((along * np.where(below < above, -1.0, 1.0)[:, None])[chosen])
        equations.append(limits.equations[chosen])
        of += [limits.names[i] + limits.of for i in np.flatnonzero(chosen)]
    return Tangent(np.vstack(rows), np.concatenate(equations), names), of


def _contacts(problem: Problem, x: FloatArray) -> tuple[FloatArray, list[str]]:
    """Gradients (k, n), each towards what it forbids, and names of constraints over time.

    What only comes near to its limit, as a state that decays, is none: unknowns hardly move it.
    raises ModelError and Unsupported as `limits_along`
    """
    rows, names = [np.zeros((0, len(x)))], list[str]()
    for k in range(len(problem.experiments)):
        fine = at_more_times(problem, k, bounds_too=True)
        if not fine.instances[k].inequalities or (made := limits_along(fine, k, x)) is None:
            continue
        for one in approaches(made):
            if one.slack <= CONTACT * one.size < np.linalg.norm(one.gradient * x):
                rows.append(one.gradient[None])
                names.append(made.limits.names[one.row] + made.limits.of)
    return np.vstack(rows), names
