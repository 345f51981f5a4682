"""The best linear parameters at one theta (variable projection)."""

import numpy as np

from igpe.algebraic.bounds.bound import minimum
from igpe.algebraic.bounds.separable import Separable
from igpe.core.arrays import FloatArray

RIDGE = 1e-12


def best_linear(problem: Separable, columns: FloatArray) -> tuple[FloatArray, float] | None:
    """(beta, sum of squares); None where the columns are not finite or no beta is feasible.

    columns  (n_residuals, 1 + K), `Separable.values` at one theta
    """
    if not np.isfinite(columns).all():
        return None
    d, phi = problem.target - columns[:, 0], columns[:, 1:]
    size = np.linalg.norm(phi, axis=0)
    size = np.where(size > 0, size, 1.0)
    square = (phi / size).T @ (phi / size) + RIDGE * np.eye(len(size))
    rows = [
        sign * (_unit(r.second, len(size)) - factor * _unit(r.first, len(size)))
        for r in problem.ratios
        for factor, sign in ((r.low, 1.0), (r.high, -1.0))
        if np.isfinite(factor)
    ]
    lower = np.concatenate([problem.lower * size, np.zeros(len(rows))])
    upper = np.concatenate([problem.upper * size, np.full(len(rows), np.inf)])
    matrix = np.array(rows).reshape(len(rows), len(size)) / size
    scale = np.abs(matrix).max(axis=1, initial=0.0)[:, None] if rows else 1.0
    x = minimum(square, -((phi / size).T @ d), matrix / scale, lower, upper)
    if x is None:
        return None
    beta = np.clip(x / size, problem.lower, problem.upper)
    rest = d - phi @ beta
    return beta, float(rest @ rest)


def _unit(k: int, n: int) -> FloatArray:
    return np.asarray(np.eye(n)[k])
