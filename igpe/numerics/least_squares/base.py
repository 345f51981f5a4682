"""Nonlinear least squares: min |r(x)|^2 inside bounds. Knows no time and no model.

Sizes. Nothing here is in the unknowns' units, so that an unknown of 1e-12 is as good as one of 1.
Unknowns between positive bounds may be sought by their logarithms, u = log x: one step of 0.1 is
10 % of x wherever it lies, and the linear model does not predict negative rate constants. The size
of an unknown whose value does not tell it is taken from where the search begins, else from the
bounds, else from the residuals themselves (`floors`).

Robust losses. Residuals count as squares up to some size, and linearly beyond.

    rho(r) = r^2 if |r| <= delta, else 2 delta |r| - delta^2          (Huber)

Least squares is delta = infinity; rho / (2 delta) with a small delta is the sum of absolute values.
A residual that counts rho(r) is a weighted square, w = min(1, delta / |r|), whose weight changes
with it: solving with the weights of the last solution until they stay is the minimum. There, with
psi = rho' / 2 and expected values over the measurements' errors,

    cost(x + d) / kappa ~ ... + d'J'J d E[psi'] / kappa,     kappa = E[psi^2] / E[psi'],

rises like chi squared, as a sum of squares in standard deviations does, and the covariance is
E[psi^2] / E[psi']^2 (J'J)^-1 (Huber & Ronchetti, Robust Statistics (2009), section 7.6). Of m
residuals and n unknowns E[psi^2] is sum psi^2 / (m - n) (1 + n/m var(psi') / E[psi']^2)^2 (there).
It is an estimate, so that limits are Student's, with m - n degrees of freedom.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray, typical
from igpe.core.box import Box
from igpe.core.status import Status

LARGEST = 1e150  # what is not below it has no square


def have_squares(*numbers: FloatArray | float) -> bool:
    """Whether all of them are numbers, and small enough to be squared."""
    return all(np.vdot(part, part) < LARGEST**2 for part in numbers)  # NaN is not


class Linearised(NamedTuple):
    """Residuals at a point and their exact derivative.

    residual  (m,), already divided by the standard deviations
    jacobian  (m, n), d residual / d x
    offset    cost minus the sum of squares: 0 for least squares. A likelihood with unknown
              deviations and a robust loss have one; jacobian' residual is half the gradient of the
              cost there too
    rest      the part of the offset that is a sum of squares too: residuals whose derivative is
              zero, such as those that eliminated unknowns leave
    """

    residual: FloatArray
    jacobian: FloatArray
    offset: float = 0.0
    rest: float = 0.0

    @property
    def cost(self) -> float:
        """Sum of squared residuals, and the offset."""
        return self.squares + self.offset

    @property
    def squares(self) -> float:
        """Sum of squared residuals."""
        return float(self.residual @ self.residual)

    @property
    def every_square(self) -> float:
        """Sum of all squared residuals, with those that no unknown changes."""
        return self.squares + self.rest

    def with_rest(self, squares: float) -> "Linearised":
        """Add a sum of squares that no unknown changes."""
        return self._replace(offset=self.offset + squares, rest=self.rest + squares)


def stacked(parts: Sequence[Linearised]) -> Linearised:
    """All residuals of several parts."""
    if len(parts) == 1:
        return parts[0]
    return Linearised(
        np.concatenate([p.residual for p in parts]),
        np.vstack([p.jacobian for p in parts]),
        sum(p.offset for p in parts),
        sum(p.rest for p in parts),
    )


Residual: TypeAlias = Callable[[FloatArray], Linearised | None]
"""Residuals at x, or None where they cannot be computed (an integration that broke down)."""


class Fit(NamedTuple):
    """Where a search ended.

    x            (n,) best point found
    at           residual and derivative there; None if not even the start could be evaluated
    status       CONVERGED, ITERATION_LIMIT, STALLED, FAILED, or INTEGRATION_BROKE: at the start
                 itself (then `at` is None), or at a step of a search that bears no failure;
                 NO_SOLVER for it where what integrates is missing
    iterations   accepted and rejected steps together
    steps        accepted ones
    promised     decrease of the cost that the linear model still promised at the end; large where
                 the residuals are too inexact to keep the promise
    active       (k, n) derivative of constraints that are active there; None if there are none
    """

    x: FloatArray
    at: Linearised | None
    status: Status
    iterations: int
    steps: int = 0
    promised: float = 0.0
    active: FloatArray | None = None

    @property
    def cost(self) -> float:
        """Sum of squared residuals at x; infinite if it could not be evaluated."""
        return float("inf") if self.at is None else self.at.cost


class Search(Protocol):
    """A local method for bounded nonlinear least squares.

    It ends where it cannot decrease the cost by more than tolerance * cost + absolute.
    """

    @property
    def tolerance(self) -> float: ...

    @property
    def absolute(self) -> float: ...

    def fit(self, residual: Residual, start: FloatArray, box: Box) -> Fit:
        """Search from `start` (n,), clipped into the box. Failure is the status of the Fit."""
        ...


class Logarithms:
    """The way there and back for one box.

    box    of u
    which  (n,) unknowns that are logarithms there
    """

    def __init__(self, box: Box) -> None:
        self.own = box
        self.which = box.in_logarithms
        logs = zip(box.names, self.which, strict=True)
        kinks = {n: math.log(v) if log else v for n, log in logs if (v := box.kinks.get(n))}
        self.box = Box(box.names, self.there(box.lower), self.there(box.upper), kinks=kinks)

    def there(self, x: FloatArray) -> FloatArray:
        """(n,) u of x."""
        return np.where(self.which, np.log(np.where(self.which, x, 1.0)), x)

    def home(self, u: FloatArray) -> FloatArray:
        """(n,) x of u; a bound is that bound, whatever the rounding."""
        x = self.own.clip(np.where(self.which, np.exp(np.where(self.which, u, 0.0)), u))
        x = np.where(u <= self.box.lower, self.own.lower, x)
        return np.where(u >= self.box.upper, self.own.upper, x)

    def seen(self, residual: Residual) -> Residual:
        """The residual as a function of u."""

        def in_logarithms(u: FloatArray) -> Linearised | None:
            x = self.home(u)
            at = residual(x)
            return None if at is None else at._replace(jacobian=at.jacobian * self._slope(x))

        return in_logarithms

    def back(self, fit: Fit) -> Fit:
        """Solution in terms of x."""
        x, at = self.home(fit.x), fit.at
        if at is not None:
            at = at._replace(jacobian=at.jacobian / self._slope(x))
        return fit._replace(x=x, at=at)

    def _slope(self, x: FloatArray) -> FloatArray:
        """(n,) dx / du."""
        return np.where(self.which, x, 1.0)


SHARE = 1e-3  # of the range between finite bounds: the size of an unknown that begins at zero
NEAR = 1e-2  # of where it began: the size of an unknown that comes close to zero
FAINT = 1e-9  # of a step that the residuals ask for: a size below is lost in rounding
UNKNOWN = 1e-2  # where nothing is known: neither start nor bounds, and no residual depends on it


def floors(at: Linearised, start: FloatArray, box: Box) -> FloatArray:
    """(n,) positive: the least size of each unknown on a search from `start` (n,).

    at  residuals and derivative at the start; where start and bounds tell nothing, the size is that
        of a step which the residuals' own size asks for
    """
    width = box.upper - box.lower
    ranged = np.where(np.isfinite(width), SHARE * width, 0.0)
    given = np.where(start != 0, NEAR * np.abs(start), ranged)
    slope = np.sqrt((at.jacobian**2).sum(axis=0))
    has_effect = (slope > 0) & (at.squares > 0)
    step = np.sqrt(at.squares) / np.where(has_effect, slope, 1.0)
    floor = np.where(given > 0, np.maximum(given, FAINT * step * has_effect), step * has_effect)
    return np.asarray(np.where(floor > 0, floor, UNKNOWN))


@dataclass(frozen=True)
class Robust:
    """Squares up to `delta`, linear beyond.

    absolute  whether the loss is rho / (2 delta), which is |r| but for what is below delta
    """

    delta: float = np.inf
    absolute: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether these are least squares."""
        return bool(np.isinf(self.delta))

    def worth(self, residual: FloatArray) -> float:
        """Sum of rho."""
        if self.is_plain:
            return float(residual @ residual)
        return float(np.sum(self._rho(residual)))

    def weights(self, residual: FloatArray) -> FloatArray:
        """(m,) of the squares."""
        if self.is_plain:
            return np.ones(len(residual))
        return np.asarray(self.delta / np.maximum(np.abs(residual), self.delta))

    def squared(self, residual: FloatArray, jacobian: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Residuals whose squares are rho, and their derivative."""
        if self.is_plain:
            return residual, jacobian
        root = np.sqrt(self._rho(residual))
        inner = np.minimum(np.abs(residual), self.delta)
        slope = np.where(root > 0, inner / np.maximum(root, np.finfo(float).tiny), 1.0)
        return np.copysign(root, residual), slope[:, None] * jacobian

    def reweighted(self, at: Linearised) -> Linearised:
        """Weighted squares and an offset with the cost and the gradient of the loss."""
        if self.is_plain:
            return at
        root = np.sqrt(self.weights(at.residual) / self._unit)
        squares = Linearised(root * at.residual, root[:, None] * at.jacobian)
        offset = self.worth(at.residual) / self._unit - squares.squares
        return squares._replace(offset=at.offset + offset)

    def unweighted(self, at: Linearised) -> Linearised:
        """The residuals of which `reweighted` made these."""
        size = np.abs(at.residual) * np.sqrt(self._unit)
        factor = np.sqrt(self._unit) * np.maximum(size, self.delta) / self.delta
        return Linearised(at.residual * factor, at.jacobian * factor[:, None])

    def judged(self, at: Linearised, unknowns: int, deviation: float | None) -> "Judged":
        """Squares in standard deviations that stand for the loss at its minimum.

        at         plain residuals and derivative there
        deviation  that of the errors; None: unknown
        """
        size = np.abs(at.residual)
        psi = np.clip(at.residual, -self.delta, self.delta) / self._unit
        degrees = max(len(size) - unknowns, 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            if self.absolute:
                left = np.sort(size)[min(unknowns, len(size) - 1) :]
                spread = np.float64(typical(left) if deviation is None else deviation)
                density = 1 / (np.sqrt(2 * np.pi) * spread)
                slope, square = density, 0.25
            else:
                slope = np.mean(size <= self.delta)
                few = 1 + unknowns / len(size) * (1 - slope) / slope
                square = float(few**2 * (psi @ psi)) / degrees
            kappa = square / slope
            squares = Linearised(psi / np.sqrt(slope * kappa), at.jacobian * np.sqrt(slope / kappa))
        return Judged(squares, float(kappa), float(kappa / slope), not self.absolute)

    @property
    def _unit(self) -> float:
        return 2 * self.delta if self.absolute else 1.0

    def _rho(self, residual: FloatArray) -> FloatArray:
        size = np.abs(residual)
        outer = 2 * self.delta * size - self.delta**2
        return np.asarray(np.where(size <= self.delta, size**2, outer))


class Judged(NamedTuple):
    """A minimum of a robust loss as least squares in standard deviations.

    kappa     rise of the loss that counts as one unit of chi squared
    variance  of the estimate, in units of (J'J)^-1
    is_estimated  whether both come from the residuals' sizes
    """

    squares: Linearised
    kappa: float
    variance: float
    is_estimated: bool = True


PLAIN = Robust()
