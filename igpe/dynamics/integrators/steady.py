"""Steady starts: where equations come to rest, and how that depends on the unknowns.

The equations are integrated until nothing moves any more; only from there Newton's method makes the
state exact, so that it never goes to a state at rest that the start does not lead to. Sums that the
equations conserve keep the values of the start: with W the left null space of f_x,

    f(x, q) = 0,   W' x = W' x0(q)        f_x x' = -f_q,   W' x' = W' x0'

All is in states divided by their sizes.
"""

from itertools import pairwise
from typing import NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Integrator
from igpe.equations.initial_value import InitialValueProblem

SPANS = 10.0 ** np.arange(9)  # times the experiment's duration in which it may come to rest
STILL = 1e-5  # relative change of states from one of these to the next
ENOUGH = 2  # such changes, one after the other
NEAR = 1e-3  # relative change that Newton's method may make
ZERO = 1e-11  # of the largest singular value: smaller ones are 0
KEPT = 1e-7  # relative change of what is conserved
ITERATIONS = 20
EXACT = 1e-13

MOVES = (
    "The model does not come to rest before the experiment: after {:g} times the experiment's "
    "duration states still move, grow or oscillate. {}"
)
UNSTABLE = "The state before the experiment is at rest, but unstable: a disturbance would grow."
DEGENERATE = (
    "The state at rest before the experiment is not isolated, so that it has no derivatives by the "
    "unknowns."
)


class Rest(NamedTuple):
    """A state at rest (n_x,), its derivative (n_x, n_q), and why there is none."""

    states: FloatArray
    by_unknown: FloatArray
    why: str = ""


class _Near(NamedTuple):
    """Slopes (n_x,) and their derivatives by states and unknowns."""

    f: FloatArray
    by_x: FloatArray
    by_q: FloatArray


class Resting:
    """Finds the state at which an initial value problem starts at rest, for many unknowns.

    steps  of integration so far, if they are counted
    """

    def __init__(self, ivp: InitialValueProblem, integrator: Integrator, duration: float) -> None:
        assert ivp.rest is not None, "only such problems start at rest"
        rest, self.size, self.steps = ivp.rest, len(ivp.unknowns), 0
        self.scale, self.span = rest.scale, duration
        self.own = [ivp.unknowns.index(n) for n in rest.unknowns]
        self.nodes = np.concatenate([[ivp.t0], ivp.t0 + duration * SPANS])
        self.intervals = integrator.prepare(rest, self.nodes[[0, -1]], self.nodes[1:])
        by = [ca.densify(ca.jacobian(rest.f, v)) for v in (rest.x, rest.q)]
        self._f = ca.Function("f", [rest.x, rest.q], [ca.densify(rest.f), *by])

    def __call__(self, q: FloatArray) -> Rest:
        """The state at rest for unknowns q of the problem that starts there."""
        own, n_x = np.asarray(q, dtype=float)[self.own], len(self.scale)
        start, by = self.intervals.start(own)
        states, why, still = [start / self.scale], MOVES.format(SPANS[-1], ""), 0
        for between in pairwise(self.nodes):
            over = self.intervals.over(self.intervals.ivp, np.array(between), np.array(between[1:]))
            run = over.run(states[-1][None] * self.scale, own, derivatives=False)
            self.steps += 0 if run.steps is None else int(run.steps.sum())
            if not run.status[0].usable:
                why = MOVES.format((between[0] - self.nodes[0]) / self.span, run.reason[0])
                break
            states.append(run.ends[0] / self.scale)
            still = still + 1 if self._is_still(states[-2], states[-1]) else 0
            if still < ENOUGH:
                continue
            found = self._exact(np.array(states), own)
            if isinstance(found, str):
                why = found
                continue
            x, conserved = found
            here, wide = self._near(x, own), np.zeros((n_x, self.size))
            right = -here.by_q, conserved @ (by / self.scale[:, None])
            wide[:, self.own] = self._solved(here.by_x, conserved, *right)
            return Rest(x * self.scale, wide * self.scale[:, None])
        return Rest(np.full(n_x, np.nan), np.full((n_x, self.size), np.nan), why.rstrip())

    @staticmethod
    def _is_still(before: FloatArray, after: FloatArray) -> bool:
        return bool((np.abs(after - before) <= STILL * np.maximum(np.abs(after), 1.0)).all())

    def _near(self, x: FloatArray, q: FloatArray) -> _Near:
        f, by_x, by_q = (np.asarray(v) for v in self._f(x * self.scale, q))
        column = self.scale[:, None]
        return _Near(f.ravel() / self.scale, by_x * self.scale / column, by_q / column)

    def _solved(
        self, by_x: FloatArray, conserved: FloatArray, right: FloatArray, sums: FloatArray
    ) -> FloatArray:
        """What f_x and the conserved sums make of right sides."""
        rows = np.abs(by_x).max(axis=1)
        weight = 1 / np.where(rows > 0, rows, 1.0)
        matrix = np.vstack([by_x * weight[:, None], conserved])
        both = np.concatenate([(right.T * weight).T, sums])
        return np.asarray(np.linalg.lstsq(matrix, both, rcond=None)[0])

    def _exact(self, states: FloatArray, q: FloatArray) -> tuple[FloatArray, FloatArray] | str:
        """The state at rest next to the last row, and what is conserved; or why there is none."""
        x = states[-1].copy()
        _, sizes, rows = np.linalg.svd(self._near(x, q).by_x.T)
        conserved = rows[int((sizes > ZERO * max(sizes[0], np.finfo(float).tiny)).sum()) :]
        slopes = np.array([self._near(row, q).f for row in states])
        kept = np.abs(slopes @ conserved.T).sum(axis=1)
        if bool(np.any(kept > KEPT * np.abs(slopes).sum(axis=1) + EXACT)):
            return DEGENERATE
        for _ in range(ITERATIONS):
            here = self._near(x, q)
            sums = conserved @ (states[0] - x)
            step = self._solved(here.by_x, conserved, -here.f, sums)
            x = x + step
            if (np.abs(step) <= EXACT * np.maximum(np.abs(x), 1.0)).all():
                break
        else:
            return DEGENERATE
        if not (np.abs(x - states[-1]) <= NEAR * np.maximum(np.abs(x), 1.0)).all():
            return DEGENERATE
        rates = np.linalg.eigvals(self._near(x, q).by_x)
        if rates.real.max() > np.sqrt(ZERO) * np.abs(rates).max():
            return UNSTABLE
        return x, conserved
