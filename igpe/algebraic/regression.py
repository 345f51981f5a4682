"""The algebraic estimation problem of step 3.

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
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.equations.elimination import InPlace
from igpe.numerics.least_squares.base import Linearised


@dataclass(frozen=True)
class Piece:
    """What one state of one experiment contributes.

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

    def thinned(self, share: float, rng: np.random.Generator) -> "Piece":
        """A random share of the residuals, in their order, at least one."""
        n, q = len(self.target), 1 if self.combine is None else self.combine.shape[1]
        kept = np.sort(rng.permutation(n)[: max(int(share * n), 1)])
        places = (kept[:, None] * q + np.arange(q)).ravel()
        combine = None if self.combine is None else self.combine[kept]
        known, target, weight = self.known[:, places], self.target[kept], self.weight[kept]
        return Piece(self.predict, known, combine, target, weight)

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

    def by_parameter(self, slopes: Any) -> Any:
        """(n_p, n_residuals) their derivative from that of slopes (n_p, n_places), MX."""
        return -ca.mtimes(slopes, self._weighted.T)

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
    pieces: tuple[Piece, ...]
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
        p = ca.MX.sym("p", len(self.box))
        each: list[Any] = [None] * len(self.pieces)
        for alike in _at_same_places(self.pieces):
            own = [self.pieces[k] for k in alike]
            found = _slopes(own, p, with_derivative=with_derivative)
            for k, values in zip(alike, found, strict=True):
                each[k] = values
        pairs = list(zip(self.pieces, each, strict=True))
        told = [ca.densify(ca.vertcat(*[piece.residual(v.slopes) for piece, v in pairs]))]
        if with_derivative:
            told.append(ca.densify(ca.horzcat(*[q.by_parameter(v.by_p) for q, v in pairs])))
        function = InPlace(ca.Function("regression", [p], told))
        at, *results = self._compiled
        function.read(0, at)
        for i, result in enumerate(results[: len(told)]):
            function.write(i, result)
        return function

    def thinned(self, most: int, seed: int) -> "Regression":
        """About so many of the residuals, drawn from each piece alike; itself if it has no more."""
        share = most / sum(len(piece.target) for piece in self.pieces)
        if share >= 1:
            return self
        rng = np.random.default_rng(seed)
        return replace(self, pieces=tuple(piece.thinned(share, rng) for piece in self.pieces))

    def symbolic(self) -> tuple[Any, Any]:
        """Symbols p and weighted residuals as SX columns."""
        p = ca.SX.sym("p", len(self.box))
        return p, ca.vertcat(*[piece.symbolic(p) for piece in self.pieces])


class _Values(NamedTuple):
    """One piece's slopes (1, n_places) and their derivatives by all parameters (n_p, n_places)."""

    slopes: Any
    by_p: Any


def _at_same_places(pieces: Sequence[Piece]) -> list[list[int]]:
    """Indices of pieces that know the same: they share rate laws."""
    found: dict[bytes, list[int]] = {}
    for k, piece in enumerate(pieces):
        found.setdefault(piece.known.tobytes(), []).append(k)
    return list(found.values())


def _slopes(pieces: Sequence[Piece], p: Any, *, with_derivative: bool) -> list[_Values]:
    """Of pieces at the same places, what they have in common being computed once."""
    known, q = pieces[0].predict.sx_in(0), pieces[0].predict.sx_in(1)
    slopes = ca.vertcat(*[piece.predict(known, q) for piece in pieces])
    told = ca.cse([ca.densify(slopes), ca.densify(ca.vec(ca.jacobian(slopes, q).T))])
    count, numbers, n = pieces[0].known.shape[1], ca.DM(pieces[0].known), q.numel()
    points = ca.repmat(p, 1, count)
    function = ca.Function("slopes", [known, q], told if with_derivative else told[:1])
    both = function.map(count).call([numbers, points])
    by_p = both[1] if with_derivative else ca.MX(n * len(pieces), count)
    return [_Values(both[0][k, :], by_p[k * n : (k + 1) * n, :]) for k in range(len(pieces))]
