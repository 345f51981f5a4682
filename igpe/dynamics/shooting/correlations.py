"""Correlations of errors that are estimated, by restricted maximum likelihood.

With the whitening W of unknown correlations, residuals z in standard deviations and their
derivative Z at the estimate, what is left of W z beside W Z has

    -2 log L = |P W z|^2 - 2 sum log W_ii + log det (W Z)'(W Z),     P: off the columns of W Z,

or (n - p) log |P W z|^2 for the first term where standard deviations are relative. The last term
makes up for the p unknowns that were fitted, without which correlations are too small (Patterson &
Thompson, Biometrika 58 (1971), 545). Alternated with fits this is iterated generalised least
squares.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from igpe.core.arrays import FloatArray
from igpe.problem.measurements import Measurements
from igpe.problem.noise.correlated import Correlation, Free

RANK = 1e-8  # of the largest singular value: a direction that moves nothing


class Unwhitened(NamedTuple):
    """Residuals (m,) of one experiment in standard deviations, and their derivative (m, n)."""

    measurements: Measurements
    residual: FloatArray
    jacobian: FloatArray


def estimated_correlations(
    every: Sequence[Unwhitened], priors: FloatArray, *, sigma_known: bool
) -> tuple[Correlation | None, ...]:
    """Of each experiment the likeliest; None where it is not to be estimated.

    priors  (k, n) derivative of residuals that hang on no measurement
    """
    given = [one.measurements.correlation for one in every]
    open_ = [c if c is not None and c.is_estimated else None for c in given]
    if not any(open_):
        return tuple(open_)
    kinds, begin = dict.fromkeys(type(c) for c in open_ if c is not None), 0
    parts: dict[type[Correlation], tuple[Free, slice]] = {}
    for kind in kinds:
        own = zip(open_, every, strict=True)
        free = kind.free([(c, one.measurements.layout) for c, one in own if type(c) is kind])
        parts[kind] = free, slice(begin, begin + len(free.bounds))
        begin += len(free.bounds)

    def at(x: FloatArray) -> list[Correlation | None]:
        free = ((c, *parts[type(c)]) if c is not None else None for c in open_)
        return [None if one is None else one[1].at(x[one[2]], one[0]) for one in free]

    basis = _basis(np.vstack([*(one.jacobian for one in every), priors]))

    def criterion(x: FloatArray) -> float:
        pairs = zip(at(x), given, strict=True)
        own = [new or old for new, old in pairs]
        return _minus_two_log(every, own, basis, sigma_known=sigma_known)

    bounds = [pair for free, _ in parts.values() for pair in free.bounds]
    return tuple(at(minimize(criterion, np.zeros(begin), bounds=bounds).x))


def _basis(jacobian: FloatArray) -> FloatArray:
    """Orthonormal columns of the space that the unknowns move residuals in."""
    size = np.linalg.norm(jacobian, axis=0)
    u, singular, _ = np.linalg.svd(jacobian / np.where(size > 0, size, 1.0), full_matrices=False)
    return np.asarray(u[:, singular > RANK * singular.max(initial=0.0)])


def _minus_two_log(
    every: Sequence[Unwhitened],
    correlations: Sequence[Correlation | None],
    basis: FloatArray,
    *,
    sigma_known: bool,
) -> float:
    residual, moved = np.zeros(len(basis)), basis.copy()
    constant, begin = 0.0, 0
    for one, correlation in zip(every, correlations, strict=True):
        own = slice(begin, begin + len(one.residual))
        residual[own], begin = one.residual, own.stop
        if correlation is not None:
            whitening = correlation.whitening(one.measurements.layout)
            residual[own], moved[own] = whitening @ residual[own], whitening @ moved[own]
            constant -= 2 * float(np.log(whitening.diagonal()).sum())
    q, r = np.linalg.qr(moved)
    left = residual - q @ (q.T @ residual)
    squares, degrees = float(left @ left), begin - basis.shape[1]
    constant += 2 * float(np.log(np.abs(np.diag(r))).sum())
    return constant + (squares if sigma_known else degrees * float(np.log(squares)))
