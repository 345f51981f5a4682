"""Criteria of optimum experimental design, as logarithms of information functions.

Each judges C (k, k), the covariance of the unknowns of interest, relative to their values, by a
number Φ that is the larger the better. For D, A and E exp(Φ) is concave and homogeneous in the
information matrix (Kiefer's information functions; Pukelsheim, Optimal Design of Experiments,
chapter 5): exp(Φ1 - Φ2) is an efficiency, the share of replicates with which the better experiment
tells as much. exp(-Φ/2) is a relative standard error: a mean, or the worst.
"""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from igpe.core.arguments import shown
from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError


@runtime_checkable
class Criterion(Protocol):
    """Judges covariances; `of` names the unknowns of interest, all if empty."""

    @property
    def of(self) -> tuple[str, ...]:
        """Unknowns of interest; the others are estimated, but their errors do not count."""
        ...

    @property
    def meaning(self) -> str:
        """What exp(-Φ/2) is, in words."""
        ...

    @property
    def concave(self) -> bool:
        """Whether Φ is concave in the information matrix, so that losses can be bounded."""
        ...

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """Φ of one covariance (k, k) or of many (..., k, k)."""
        ...

    def slope(self, covariance: FloatArray) -> FloatArray:
        """(k, k) dΦ/dC at one covariance."""
        ...


@dataclass(frozen=True)
class _OfInterest:
    """of  unknowns of interest (a text is one name); the others count as nuisance (Ds, As, ...)."""

    of: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = (self.of,) if isinstance(self.of, str) else self.of
        is_names = isinstance(names, tuple | list) and all(isinstance(n, str) for n in names)
        if not is_names:
            raise ProblemError(
                f"{type(self).__name__} has of={shown(self.of)}; wanted names of unknowns, for "
                "example of=('k1', 'k2')."
            )
        object.__setattr__(self, "of", tuple(names))


@dataclass(frozen=True)
class DOptimal(_OfInterest):
    """Least volume of the confidence ellipsoid: Φ = -log(det C)/k. Units do not matter."""

    meaning = "geometric mean relative error, det(C)^(1/2n)"
    concave = True

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.linalg.slogdet(covariance)[1] / covariance.shape[-1])

    def slope(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.linalg.inv(covariance) / len(covariance))


@dataclass(frozen=True)
class AOptimal(_OfInterest):
    """Least mean variance of the relative unknowns: Φ = -log(tr C / k)."""

    meaning = "root mean square relative error, (tr C / n)^(1/2)"
    concave = True

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.log(np.trace(covariance, axis1=-2, axis2=-1) / covariance.shape[-1]))

    def slope(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.eye(len(covariance)) / np.trace(covariance))


@dataclass(frozen=True)
class EOptimal(_OfInterest):
    """Shortest longest axis of the ellipsoid of relative unknowns: Φ = -log λmax(C)."""

    meaning = "relative error of the worst combination, λmax(C)^(1/2)"
    concave = True

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.log(np.linalg.eigvalsh(covariance)[..., -1]))

    def slope(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`; of a repeated eigenvalue one supergradient."""
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(-np.outer(vectors[:, -1], vectors[:, -1]) / values[-1])


@dataclass(frozen=True)
class ModifiedE(_OfInterest):
    """Roundest ellipsoid of relative unknowns: Φ = -log(λmax/λmin), whatever its size.

    Not concave: nothing can be said of how good the best possible sampling would be.
    """

    meaning = "longest by shortest axis, (λmax/λmin)^(1/2)"
    concave = False

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        values = np.maximum(np.linalg.eigvalsh(covariance), np.finfo(float).tiny)
        return np.asarray(np.log(values[..., 0]) - np.log(values[..., -1]))

    def slope(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        values, vectors = np.linalg.eigh(covariance)
        one, last = vectors[:, 0], vectors[:, -1]
        return np.asarray(np.outer(one, one) / values[0] - np.outer(last, last) / values[-1])
