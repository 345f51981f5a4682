"""What is estimated of the errors beside the unknowns: standard deviations and correlations.

Standard deviations are unknowns like others, and their logarithms count in the residuals.
Correlations are estimated by restricted maximum likelihood.

With the whitening W of unknown correlations, residuals z in standard deviations and their
derivative Z at the estimate, what is left of W z beside W Z has

    -2 log L = |P W z|^2 - 2 sum log W_ii + log det (W Z)'(W Z),     P: off the columns of W Z,

or (n - p) log |P W z|^2 for the first term where standard deviations are relative. The last term
makes up for the p unknowns that were fitted, without which correlations are too small (Patterson &
Thompson, Biometrika 58 (1971), 545). Alternated with fits this is iterated generalised least
squares. Restricted likelihoods of different models cannot be compared, so criteria of models use
the largest likelihood itself: n for n - p and without the last term (`likelihood_gain`).
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import splu

from igpe.core.arrays import BoolArray, FloatArray, column_sizes
from igpe.numerics.least_squares.base import Linearised, stacked
from igpe.problem.measurements import Measurements
from igpe.problem.noise.correlated import Correlation, Free
from igpe.problem.problem import Problem

FAR = 5.0  # standard deviations from a measurement


class Piece(NamedTuple):
    """Residuals of one run, divided by what is known of the deviations.

    spread, slope, estimated  see `likelihood_residuals`; None where all deviations are known
    """

    plain: Linearised
    spread: FloatArray | None = None
    slope: FloatArray | None = None
    estimated: BoolArray | None = None

    @property
    def least_deviation(self) -> float:
        """The smallest of the deviations that are estimated; infinite if there are none."""
        if self.spread is None or self.estimated is None:
            return np.inf
        return float(self.spread[self.estimated].min(initial=np.inf))


def joined(pieces: Sequence[Piece]) -> Linearised:
    """The residuals of several runs, and those by which estimated deviations count."""
    plain = stacked([piece.plain for piece in pieces])
    if all(piece.estimated is None for piece in pieces):
        return plain
    spread, slope, estimated = [], [], []
    for linearised, s, by, which in pieces:
        jacobian = linearised.jacobian
        spread.append(np.ones(len(jacobian)) if s is None else s)
        slope.append(np.zeros(jacobian.shape) if by is None else by)
        estimated.append(np.zeros(len(jacobian), dtype=bool) if which is None else which)
    every = np.concatenate(spread), np.vstack(slope), np.concatenate(estimated)
    return likelihood_residuals(plain, *every)


def likelihood_residuals(
    plain: Linearised, spread: FloatArray, slope: FloatArray, estimated: BoolArray
) -> Linearised:
    """(m + k,) residuals with (m + k, n) derivative, k measurements having an estimated deviation.

    plain      residuals and derivative, divided by what is known of the deviations
    spread     (m,) s;  slope (m, n) its derivative;  both count only where `estimated`
    NaN where some s is not positive
    """
    s, by_unknown = spread[estimated], slope[estimated]
    with np.errstate(all="ignore"):  # what is no number afterwards is refused (`have_squares`)
        factor = np.ones(len(spread))
        factor[estimated] = np.where(s > 0, 1 / s, np.nan)
        z = plain.residual * factor
        logarithms = 2 * float(np.log(s).sum())
        root = np.sqrt(2.0) * np.maximum(np.abs(z[estimated]) / FAR, 1.0)
        own = (1 - z[estimated] ** 2) / root
        relative = by_unknown * factor[estimated][:, None]
        jacobian = np.vstack([plain.jacobian * factor[:, None], root[:, None] * relative])
        offset = plain.offset + logarithms - float(own @ own)
    return Linearised(np.concatenate([z, own]), jacobian, offset)


STRONG = 0.98  # next to the largest that is estimated
RANK = 1e-8  # of the largest singular value: a direction that moves nothing


class Unwhitened(NamedTuple):
    """Residuals (m,) of one experiment in standard deviations, and their derivative (m, n)."""

    measurements: Measurements
    residual: FloatArray
    jacobian: FloatArray


class Unknowns:
    """The correlations that are to be estimated, as bounded numbers; kinds are shared.

    given  of each experiment;  bounds: of the numbers, which are 0 where errors are independent
    open_  of each experiment that one which is to be estimated; None: those without a number
    """

    def __init__(
        self, every: Sequence[Measurements], open_: Sequence[Correlation | None] | None = None
    ) -> None:
        self.given = [m.correlation for m in every]
        unknown = [c if c is not None and c.is_estimated else None for c in self.given]
        self._open = unknown if open_ is None else open_
        self._kinds: dict[type[Correlation], tuple[Free, slice]] = {}
        self.bounds: list[tuple[float, float]] = []
        for kind in dict.fromkeys(type(c) for c in self._open if c is not None):
            pairs = zip(self._open, every, strict=True)
            free = kind.free([(c, m.layout) for c, m in pairs if type(c) is kind])
            own = slice(len(self.bounds), len(self.bounds) + len(free.bounds))
            self._kinds[kind], self.bounds = (free, own), self.bounds + free.bounds

    def at(self, x: FloatArray) -> tuple[Correlation | None, ...]:
        """Of each experiment; None where it is not to be estimated."""
        known: list[Correlation | None] = []
        for one in self._open:
            free, own = self._kinds[type(one)] if one is not None else (None, slice(0))
            known.append(None if free is None else free.at(x[own], one))
        return tuple(known)


def independent(every: Sequence[Measurements]) -> tuple[Correlation | None, ...]:
    """Of each experiment none, to begin with; None where it is not to be estimated."""
    unknowns = Unknowns(every)
    return unknowns.at(np.zeros(len(unknowns.bounds)))


def estimated_correlations(
    every: Sequence[Unwhitened], priors: FloatArray, *, sigma_known: bool
) -> tuple[Correlation | None, ...]:
    """Of each experiment the likeliest; None where it is not to be estimated.

    priors  (k, n) derivative of residuals that hang on no measurement
    """
    unknowns = Unknowns([one.measurements for one in every])
    basis = _basis(np.vstack([*(one.jacobian for one in every), priors]))

    def criterion(x: FloatArray) -> float:
        own = [new or old for new, old in zip(unknowns.at(x), unknowns.given, strict=True)]
        return _minus_two_log(every, own, basis, sigma_known=sigma_known)

    bounds = unknowns.bounds
    return unknowns.at(minimize(criterion, np.zeros(len(bounds)), bounds=bounds).x)


def likelihood_gain(problem: Problem, at: Linearised, held: BoolArray) -> float:
    """How much larger the log-likelihood is where estimated correlations maximise it.

    The other unknowns follow, to first order.

    problem  with the correlations that were estimated
    at       residuals and derivative at its optimum;  held: (n,) which unknowns lie on a bound
    """
    if problem.held_weights is None or not any(problem.held_weights.correlations):
        return 0.0
    runs = [e.measurements for e in problem.experiments]
    unknowns = Unknowns(runs, problem.held_weights.correlations)
    ends = np.cumsum([len(m.value) for m in runs])
    *residuals, rest = np.split(at.residual, ends)
    *jacobians, priors = np.split(at.jacobian[:, ~held], ends)
    every = []
    for m, residual, jacobian in zip(runs, residuals, jacobians, strict=True):
        both = np.column_stack([residual, jacobian])
        if (whitening := m.whitening()) is not None:
            both = splu(whitening.tocsc()).solve(both)
        every.append(Unwhitened(m, both[:, 0], both[:, 1:]))
    basis = _basis(np.vstack([*(one.jacobian for one in every), priors]))

    def criterion(x: FloatArray | None) -> float:
        new = (None,) * len(runs) if x is None else unknowns.at(x)
        own = [a or b for a, b in zip(new, unknowns.given, strict=True)]
        return _minus_two_log(every, own, basis, sigma_known=problem.sigma_known, rest=rest)

    best = minimize(criterion, np.zeros(len(unknowns.bounds)), bounds=unknowns.bounds).fun
    return max(0.0, (criterion(None) - float(best)) / 2)


def _basis(jacobian: FloatArray) -> FloatArray:
    """Orthonormal columns of the space that the unknowns move residuals in."""
    u, singular, _ = np.linalg.svd(jacobian / column_sizes(jacobian), full_matrices=False)
    return np.asarray(u[:, singular > RANK * singular.max(initial=0.0)])


def _minus_two_log(
    every: Sequence[Unwhitened],
    correlations: Sequence[Correlation | None],
    basis: FloatArray,
    *,
    sigma_known: bool,
    rest: FloatArray | None = None,
) -> float:
    """At the best values of the other unknowns, to first order.

    rest  residuals that hang on no measurement, for the likelihood; None: for the restricted one
    """
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
    degrees = begin
    if rest is None:
        degrees -= basis.shape[1]
        constant += 2 * float(np.log(np.abs(np.diag(r))).sum())
    else:
        residual[begin:] = rest
    left = residual - q @ (q.T @ residual)
    squares = float(left @ left)
    return constant + (squares if sigma_known else degrees * float(np.log(squares)))


def correlation_remarks(problem: Problem) -> Iterator[str]:
    """Which correlations were estimated and on what premise, and where errors are correlated."""
    if known := problem.correlations:
        each = ", ".join(f"{n} {v:.2f}" for n, v in known.items())
        yield (
            f"Correlations of errors were estimated by restricted maximum likelihood: {each}. They "
            "are assumed to be the same in all experiments and at all times. Errors and intervals "
            "are computed as if the correlations were known."
        )
        if max(map(abs, known.values())) >= STRONG:
            yield "Correlations this strong are probably caused by a trend that the model misses."
    if problem.is_correlated:
        yield (
            "Steps 1 and 3 treated errors as independent. Steps 4 and 5, standard errors and tests "
            "account for the correlations."
        )
