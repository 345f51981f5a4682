"""The algebraic estimation problem of step 3.

Measured states and inputs are known at all times (step 1), so the equations of a suitable subsystem
predict the slopes of its states from the parameters p alone, and

    min over p of  sum_i [ w_i (d_i - sum_j C_ij f_j(p)) ]^2         lower <= p <= upper

where f_j is a predicted slope at one place in time. With C the identity and d the smoothed slopes
this is eq. 5 of Michalik et al. (2009, IGPE). With d the increments of the smoothed states between
measurements and C the weights of a quadrature it is the same equation integrated,
x(t) - x(s) = integral of f, which does without slopes.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from igpe.arrays import FloatArray
from igpe.box import Box
from igpe.equations.in_place import InPlace
from igpe.least_squares.base import Linearised


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

    def linearised(self, p: FloatArray) -> Linearised:
        """Weighted residuals (n_residuals,) and their derivative by p."""
        f, jacobian = self._evaluated(p)
        if self.combine is not None:
            f = np.einsum("iq,iq->i", self.combine, f.reshape(self.combine.shape))
            each = jacobian.reshape(*self.combine.shape, len(p))
            jacobian = np.einsum("iq,iqp->ip", self.combine, each)
        return Linearised(self.weight * (self.target - f), -self.weight[:, None] * jacobian)

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

    def _evaluated(self, p: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n_places,) slopes and (n_places, n_p) their derivative, in memory that is used again."""
        places, slope, by_p = self._places
        places.read(1, np.tile(p, (len(slope), 1)))
        places.evaluate()
        return slope, by_p

    @cached_property
    def _places(self) -> tuple[InPlace, FloatArray, FloatArray]:
        known, p = self.predict.sx_in(0), self.predict.sx_in(1)
        slope, count = self.predict(known, p), self.known.shape[1]
        by_p = ca.densify(ca.jacobian(slope, p).T)
        both = ca.Function("slope", [known, p], [ca.densify(slope), by_p])
        places, results = InPlace(both.map(count)), (np.empty(count), np.empty((count, p.numel())))
        places.read(0, self.known.T)
        for i, result in enumerate(results):
            places.write(i, result)
        return places, *results


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
        found = [piece.linearised(p) for piece in self.pieces]
        residual = np.concatenate([f.residual for f in found])
        jacobian = np.vstack([f.jacobian for f in found])
        finite = np.isfinite(residual).all() and np.isfinite(jacobian).all()
        return Linearised(residual, jacobian) if finite else None

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
