"""Moving the times of switches across measurements.

Where states jump at an unknown time, what is measured next jumps once that time passes it: the sum
of squares is only smooth between two measurements, and Gauss-Newton does not get beyond. After a
local search every such time is tried between all pairs of measurements. What the other unknowns
could gain there is estimated by their Gauss-Newton step, and a search begins at the best few.
"""

from collections.abc import Iterator

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.dynamics.shooting.residuals import Residuals, Run
from igpe.numerics.least_squares.base import Fit, Linearised, Search

ROUNDS = 4
FEW = 3  # searches in one round
GAIN = 1e-6  # relative decrease of the sum of squares that is worth another round


def moved_across(residuals: Residuals, search: Search, fit: Fit, box: Box) -> Fit:
    """The best fit, with the times of switches between any two measurements."""
    if fit.at is None or all(run.ivp.switching is None for run in residuals.runs):
        return fit
    for _ in range(ROUNDS):
        tried = [
            (_promise(at, i), x) for i, x in _moves(residuals, fit.x, box) if (at := residuals(x))
        ]
        tried.sort(key=lambda one: one[0])
        better = fit
        for promise, x in tried[:FEW]:
            if promise < better.cost:
                found = search.fit(residuals, x, box)
                better = found if found.cost < better.cost else better
        if not better.cost < (1 - GAIN) * fit.cost:
            return better
        fit = better
    return fit


def _promise(at: Linearised, held: int) -> float:
    """The sum of squares that a Gauss-Newton step of all unknowns but one predicts."""
    others = np.delete(at.jacobian, held, axis=1)
    size = np.linalg.norm(others, axis=0)
    scaled = others / np.where(size > 0, size, 1.0)
    step = np.linalg.lstsq(scaled, -at.residual, rcond=1e-8)[0]
    return float(np.sum((at.residual + scaled @ step) ** 2)) + at.offset


def _moves(residuals: Residuals, x: FloatArray, box: Box) -> Iterator[tuple[int, FloatArray]]:
    """Points that differ from x in one unknown, which moves a switch between two measurements."""
    seen = set()
    for run in residuals.runs:
        times = np.union1d(run.ivp.t0, run.measurements.times)
        middle = (times[1:] + times[:-1]) / 2
        for time, by in _times(run, x[run.index]):
            for own in np.flatnonzero(by):
                i = int(run.index[own])
                values = x[i] + (middle - time) / by[own]
                for value in values[(values >= box.lower[i]) & (values <= box.upper[i])].tolist():
                    if (i, value) not in seen:
                        seen.add((i, value))
                        moved = x.copy()
                        moved[i] = value
                        yield i, moved


def _times(run: Run, q: FloatArray) -> list[tuple[float, FloatArray]]:
    """The times of switches that unknowns give, and their derivatives (n_q,)."""
    given = run.ivp.switching
    if given is None:
        return []
    found = [e[0] for e in given.times if e is not None]
    found += [j.at + j.delay for j in given.jumps if j.at is not None]
    column = ca.densify(ca.vertcat(ca.SX(0, 1), *found))
    both = ca.Function("times", [run.ivp.q], [column, ca.densify(ca.jacobian(column, run.ivp.q))])
    values, by = (np.asarray(v) for v in both(q))
    return list(zip(values.ravel().tolist(), by, strict=True))
