"""The algebraic estimation problem of step 3, its weights, and what its routes answer.

Measured states and inputs are known at all times (step 1), so the equations of a suitable subsystem
predict the slopes of its states from the parameters p alone, and

    min over p of  sum_i [ w_i (d_i - sum_j C_ij f_j(p)) ]^2         lower <= p <= upper

where f_j is a predicted slope at one place in time. With C the identity and d the smoothed slopes
this is eq. 5 of Michalik et al. (2009, IGPE). With d the increments of the smoothed states between
measurements and C the weights of a quadrature it is the same equation integrated,
x(t) - x(s) = integral of f, which does without slopes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, runtime_checkable

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.estimates import Estimate
from igpe.equations.elimination import InPlace
from igpe.numerics.least_squares.base import Linearised


@dataclass(frozen=True)
class Contribution:
    """One state's contribution to the objective, in one experiment.

    predict   CasADi function (known (n_known,), p) -> slope
    known     (n_known, n_places): everything but p at each place
    combine   (n_residuals, n) weights C of n places in a row for each residual, or None: identity
    target    (n_residuals,) d
    weight    (n_residuals,) w
    """

    predict: Any
    known: FloatArray
    combine: FloatArray | None
    target: FloatArray
    weight: FloatArray

    def thinned(self, share: float, rng: np.random.Generator) -> "Contribution":
        """A random share of the residuals, in their order, at least one."""
        n, q = len(self.target), 1 if self.combine is None else self.combine.shape[1]
        kept = np.sort(rng.permutation(n)[: max(int(share * n), 1)])
        places = (kept[:, None] * q + np.arange(q)).ravel()
        combine = None if self.combine is None else self.combine[kept]
        known, target, weight = self.known[:, places], self.target[kept], self.weight[kept]
        return Contribution(self.predict, known, combine, target, weight)

    def symbolic(self, p: Any) -> Any:
        """Weighted residuals as SX expressions of the symbols p."""
        slopes = [self.predict(self.known[:, j], p) for j in range(self.known.shape[1])]
        f = ca.vertcat(*slopes)
        if self.combine is not None:
            n, q = self.combine.shape
            f = ca.sum2(ca.DM(self.combine) * ca.reshape(f, q, n).T)
        return ca.DM(self.weight) * (ca.DM(self.target) - f)

    def residual(self, slopes: Any) -> Any:
        """(n_residuals,) weighted residuals from slopes (1, n_places), MX."""
        return ca.DM(self.weight * self.target) - ca.mtimes(self._weighted, slopes.T)

    def by_parameter(self, slopes: Any, which: Sequence[int], size: int) -> Any:
        """(size, n_residuals) their derivative by all parameters, MX.

        slopes  (n, n_places) derivatives of the slopes by the parameters `which`, which are few
        """
        places = ca.Sparsity.triplet(size, len(which), list(which), [*range(len(which))])
        return ca.mtimes(ca.DM(places, 1.0), -ca.mtimes(slopes, self._weighted.T))

    @cached_property
    def _weighted(self) -> Any:
        """(n_residuals, n_places) w C, sparse."""
        each = np.ones((len(self.target), 1)) if self.combine is None else self.combine
        n, q = each.shape
        pattern = ca.Sparsity.triplet(n, n * q, np.repeat(range(n), q).tolist(), [*range(n * q)])
        return ca.DM(pattern, (self.weight[:, None] * each).ravel())


@dataclass(frozen=True)
class Regression:
    """An algebraic estimation problem; see the top of the file.

    box      the parameters and their bounds
    pieces   one per state and experiment
    origin   how it was posed, in words
    linear   whether every prediction is linear in all parameters together
    """

    box: Box
    pieces: tuple[Contribution, ...]
    origin: str
    linear: bool

    def linearised(self, p: FloatArray) -> Linearised | None:
        """Weighted residuals and derivative at p; None where they are not finite."""
        at, residual, jacobian = self._compiled
        at[:] = p
        self._with_derivative.evaluate()
        finite = np.isfinite(residual).all() and np.isfinite(jacobian).all()
        return Linearised(residual.copy(), jacobian.copy()) if finite else None

    def cost(self, p: FloatArray) -> float:
        """Sum of squares at p, without derivatives; inf where it is not finite."""
        at, residual, _ = self._compiled
        at[:] = p
        self._alone.evaluate()
        cost = float(residual @ residual)
        return cost if np.isfinite(cost) else np.inf

    @cached_property
    def _compiled(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Memory of the functions below: p, the residuals and their derivative by p."""
        n, m = len(self.box), sum(len(piece.target) for piece in self.pieces)
        return np.empty(n), np.empty(m), np.empty((m, n))

    @cached_property
    def _alone(self) -> InPlace:
        return self._function(with_derivative=False)

    @cached_property
    def _with_derivative(self) -> InPlace:
        return self._function(with_derivative=True)

    def _function(self, *, with_derivative: bool) -> InPlace:
        """Residuals, and their derivative; pieces at the same places share what they can."""
        p = ca.MX.sym("p", len(self.box))
        residuals, derivatives = ([ca.MX()] * len(self.pieces) for _ in range(2))
        for group in at_same_places(self.pieces):
            own = [self.pieces[k] for k in group]
            known, q = own[0].predict.sx_in(0), own[0].predict.sx_in(1)
            slopes = ca.vertcat(*[piece.predict(known, q) for piece in own])
            by_q = ca.jacobian(slopes, q).T  # most slopes depend on few parameters
            first, which = by_q.sparsity().colind(), by_q.sparsity().row()
            outputs = ca.cse([ca.densify(slopes), ca.vec(by_q.nz[:])])
            count = own[0].known.shape[1]
            function = ca.Function(
                "slopes", [known, q], outputs if with_derivative else outputs[:1]
            )
            values = function.map(count).call([ca.DM(own[0].known), ca.repmat(p, 1, count)])
            parts = [ca.vertsplit(values[0], 1)]
            parts += [ca.vertsplit(v, first) for v in values[1:]]
            for i, (k, piece) in enumerate(zip(group, own, strict=True)):
                residuals[k] = piece.residual(parts[0][i])
                if with_derivative:
                    own_q = which[first[i] : first[i + 1]]
                    derivatives[k] = piece.by_parameter(parts[1][i], own_q, q.numel())
        results = [ca.densify(ca.vertcat(*residuals))]
        if with_derivative:
            results.append(ca.densify(ca.horzcat(*derivatives)))
        compiled = InPlace(ca.Function("regression", [p], results))
        at, *memory = self._compiled
        compiled.read(0, at)
        for i in range(len(results)):
            compiled.write(i, memory[i])
        return compiled

    def thinned(self, most: int, seed: int) -> "Regression":
        """About so many residuals, the same share of each piece; itself if it has no more."""
        share = most / sum(len(piece.target) for piece in self.pieces)
        if share >= 1:
            return self
        rng = np.random.default_rng(seed)
        return replace(self, pieces=tuple(piece.thinned(share, rng) for piece in self.pieces))

    def symbolic(self) -> tuple[Any, Any]:
        """Symbols p and weighted residuals as SX columns."""
        p = ca.SX.sym("p", len(self.box))
        return p, ca.vertcat(*[piece.symbolic(p) for piece in self.pieces])


def at_same_places(pieces: Sequence[Contribution]) -> list[list[int]]:
    """Indices of pieces that know the same, combined alike: they share rate laws."""
    groups: dict[Any, list[int]] = {}
    for k, piece in enumerate(pieces):
        combine = b"" if piece.combine is None else piece.combine.tobytes()
        key = piece.known.shape, piece.known.tobytes(), len(piece.target), combine
        groups.setdefault(key, []).append(k)
    return list(groups.values())


class RouteResult(NamedTuple):
    """The answer of a route.

    estimate      of the parameters it could determine; its `lower_bound` says what is proved
    undetermined  parameters of the regression that its data do not determine
    others        further local optima it met, distinct ones up to ten times the objective, best
                  first; each without the parameters that the data do not determine there
    """

    estimate: Estimate
    undetermined: tuple[str, ...]
    others: tuple[Estimate, ...] = ()


class Route(Protocol):
    """Solves an algebraic estimation problem and says what it proved."""

    def estimate(self, regression: Regression) -> RouteResult:
        """Failure is the status of the estimate."""
        ...


@runtime_checkable
class Seeded(Protocol):
    """A route that makes random choices."""

    def seeded(self, seed: int) -> Route:
        """Return the route with another seed."""
        ...


def reseeded(route: Route, seed: int) -> Route:
    """The route with another seed, if it has one."""
    return route.seeded(seed) if isinstance(route, Seeded) else route


# All weights keep the objective in units of chi squared, as far as errors of step 1 are right and
# independent. Slopes of one curve are neither quite: neighbours share their error.

LEAST_ERROR = 1e-6  # errors below this share of the typical size are not believed


class Target(NamedTuple):
    """Data that the predictions of one state in one experiment are fitted to.

    value  (n,) slopes, or increments between measurements
    error  (n,) their standard errors from step 1; inf where it cannot tell them
    """

    value: FloatArray
    error: FloatArray

    @property
    def size(self) -> float:
        """Root mean square of the values; 1 if all are zero."""
        return _rms(self.value) or 1.0

    @property
    def typical(self) -> float:
        """Root mean square of the errors, or the size if step 1 cannot tell any."""
        known = self.error[np.isfinite(self.error)]
        return max(_rms(known) if len(known) else self.size, LEAST_ERROR * self.size)


class ResidualWeights(Protocol):
    """Gives the residuals of one algebraic problem their weights."""

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """For each target (n,) what its residuals are multiplied by, positive and finite."""
        ...


@dataclass(frozen=True)
class Unweighted:
    """Every slope has the same weight, whatever its unit and error (Michalik et al. 2009, eq. 5).

    igpe divides all residuals by the same typical error; this does not change the optimum.
    """

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """See `ResidualWeights.of`."""
        typical = _rms(np.concatenate([np.full(len(t.value), t.typical) for t in targets]))
        return [np.full(len(t.value), 1 / typical) for t in targets]


@dataclass(frozen=True)
class StateErrors:
    """One weight for each state: the reciprocal of the typical standard error of its slopes.

    These are the default weights. With them, the estimates do not depend on the units of the
    states. Estimates from slopes are equally accurate with `StateErrors` and `SlopeErrors`.
    Estimates from increments are more accurate with `StateErrors` (benchmarks/weights.py), because
    the errors of neighbouring increments are correlated.
    """

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """See `ResidualWeights.of`."""
        return [np.full(len(t.value), 1 / t.typical) for t in targets]


@dataclass(frozen=True)
class SlopeErrors:
    """Weight of each slope: the reciprocal of its standard error.

    Michalik et al. (2009, section 5) suggest these weights.

    least  smallest standard error used, as a fraction of the typical error of the state's slopes
    """

    least: float = 0.1

    def of(self, targets: Sequence[Target]) -> list[FloatArray]:
        """See `ResidualWeights.of`."""
        errors = [np.where(np.isfinite(t.error), t.error, t.typical) for t in targets]
        return [
            1 / np.maximum(e, self.least * t.typical) for e, t in zip(errors, targets, strict=True)
        ]


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.mean(values**2))) if len(values) else 0.0
