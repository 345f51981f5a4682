"""Criteria of optimum experimental design, and the information of planned experiments together.

A criterion judges C (k, k), the covariance of the unknowns of interest, relative to their values,
by a number Φ that is the larger the better. For D, A and E exp(Φ) is concave and homogeneous in the
information matrix (Kiefer's information functions; Pukelsheim, Optimal Design of Experiments,
chapter 5): exp(Φ1 - Φ2) is an efficiency, the share of replicates with which the better experiment
is as informative. exp(-Φ/2) is a relative standard error: a mean, or the worst.

The search needs finite criteria also where a design determines too little. It judges

    F + `RIDGE` diag(F) + `NOTHING` I

in the place of F, which is linear in F and not below it, so that slopes, concavity and upper bounds
of the criteria hold. What a plan reports is computed from F alone, by `determined`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.special import logsumexp, softmax

from igpe.core.arguments import shown
from igpe.core.arrays import BoolArray, FloatArray, IntArray, column_sizes
from igpe.core.errors import ProblemError
from igpe.numerics.covariance import RANK, directions


@dataclass(frozen=True)
class Criterion:
    """Base of criteria, which judge covariances.

    of       unknowns of interest (or one name), all if empty; all others are nuisance parameters
             (Ds, As, ...), whose errors do not count
    meaning  what exp(-Φ/2) is, in words
    concave  whether Φ is concave in the information matrix, so that losses can be bounded
    """

    of: tuple[str, ...] = ()
    meaning: ClassVar[str]
    concave: ClassVar[bool] = True

    def __post_init__(self) -> None:
        names = (self.of,) if isinstance(self.of, str) else self.of
        if not (isinstance(names, tuple | list) and all(isinstance(n, str) for n in names)):
            raise ProblemError(
                f"{type(self).__name__} has of={shown(self.of)}; expected names of unknowns, for "
                "example of=('k1', 'k2')."
            )
        object.__setattr__(self, "of", tuple(names))

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """Φ of one covariance (k, k) or of many (..., k, k)."""
        raise NotImplementedError

    def slope(self, covariance: FloatArray) -> FloatArray:
        """(k, k) dΦ/dC at one covariance."""
        raise NotImplementedError


@dataclass(frozen=True)
class DOptimal(Criterion):
    """Criterion that minimises the volume of the confidence ellipsoid: Φ = -log(det C)/k.

    The criterion does not depend on the units of the unknowns.
    """

    meaning = "geometric mean relative error, det(C)^(1/2n)"

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.linalg.slogdet(covariance)[1] / covariance.shape[-1])

    def slope(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.linalg.inv(covariance) / len(covariance))


@dataclass(frozen=True)
class AOptimal(Criterion):
    """Criterion that minimises the mean variance of the relative errors: Φ = -log(tr C / k)."""

    meaning = "root mean square relative error, (tr C / n)^(1/2)"

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.log(np.trace(covariance, axis1=-2, axis2=-1) / covariance.shape[-1]))

    def slope(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.eye(len(covariance)) / np.trace(covariance))


@dataclass(frozen=True)
class EOptimal(Criterion):
    """Criterion that minimises the longest axis of the confidence ellipsoid of relative errors.

    Φ = -log λmax(C).
    """

    meaning = "relative error of the worst combination, λmax(C)^(1/2)"

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        return np.asarray(-np.log(np.linalg.eigvalsh(covariance)[..., -1]))

    def slope(self, covariance: FloatArray) -> FloatArray:
        """Return the gradient, or a supergradient at a repeated eigenvalue; see `Criterion`."""
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(-np.outer(vectors[:, -1], vectors[:, -1]) / values[-1])


@dataclass(frozen=True)
class ModifiedE(Criterion):
    """Criterion that makes the confidence ellipsoid of relative errors as round as possible.

    Φ = -log(λmax/λmin), which does not depend on the size of the ellipsoid.
    This criterion is not concave, so igpe cannot bound its value for the best possible sampling.
    """

    meaning = "ratio of the longest to the shortest axis, (λmax/λmin)^(1/2)"
    concave = False

    def log_information(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        values = np.maximum(np.linalg.eigvalsh(covariance), np.finfo(float).tiny)
        least = np.minimum(values[..., 0], UNDETERMINED)  # no information is not round
        return np.asarray(np.log(least) - np.log(values[..., -1]))

    def slope(self, covariance: FloatArray) -> FloatArray:
        """See `Criterion`."""
        values, vectors = np.linalg.eigh(covariance)
        one, last = vectors[:, 0], vectors[:, -1]
        return np.asarray(np.outer(one, one) / values[0] - np.outer(last, last) / values[-1])


UNDETERMINED = 1e12  # relative variance: a larger one is as good as infinite
RIDGE = 1e-12  # of the diagonal: rounding alone makes singular matrices this regular
NOTHING = 1e-30  # information of an unknown that no measurement depends on
SINGULAR = 1e-7  # of the largest singular value: what is below are errors of integration


@dataclass(frozen=True)
class UnknownSpace:
    """The unknowns (n of them) of existing and planned experiments.

    names     those of the problem, then those of each planned experiment alone
    sizes     (n,) to which errors are relative
    places    (n_experiments, n_p): where the unknowns of a planned experiment are among them
    interest  (k,) those that the criterion looks at
    """

    names: tuple[str, ...]
    sizes: FloatArray
    places: IntArray
    interest: IntArray

    def full(self, informations: FloatArray, experiment: int) -> FloatArray:
        """(..., n_p, n_p) of one planned experiment as (..., n, n)."""
        n, place = len(self.names), self.places[experiment]
        padded = np.zeros((*informations.shape[:-2], n, n))
        padded[..., place[:, None], place] = informations
        return padded


@dataclass(frozen=True)
class RegularisedCriterion:
    """A criterion on information matrices F (n, n) in relative units, of one or several scenarios.

    shares  of the scenarios: Φ is log(sum of share * exp(Φ of the scenario)), an information
            function as they are. Empty: the mean of their Φ
    """

    criterion: Criterion
    interest: IntArray
    shares: tuple[float, ...] = ()

    def __call__(self, information: FloatArray) -> FloatArray:
        """Φ of one or many (..., n, n)."""
        return self.criterion.log_information(self._of_interest(covariance(information)))

    def slope(self, information: FloatArray) -> FloatArray:
        """(n, n) dΦ/dF = -C E (dΦ/dC) E' C."""
        full = covariance(information)
        columns = full[:, self.interest]
        full_slope = -columns @ self.criterion.slope(self._of_interest(full)) @ columns.T
        return np.asarray(full_slope + RIDGE * np.diag(np.diag(full_slope)))

    def together(self, each: Sequence[Any]) -> FloatArray:
        """Φ of all scenarios from that of each, (n_scenarios, ...) -> (...)."""
        if not self.shares:
            return np.asarray(np.mean(each, axis=0))
        values = np.moveaxis(np.asarray(each), 0, -1)
        return np.asarray(logsumexp(values, axis=-1, b=np.array(self.shares)))

    def influence(self, each: Sequence[float]) -> FloatArray:
        """(n_scenarios,) dΦ/dΦ of each scenario."""
        if not self.shares:
            return np.full(len(each), 1 / len(each))
        return np.asarray(softmax(np.asarray(each) + np.log(self.shares)))

    def exact(self, determined: "Determined") -> float:
        """Φ without the search's regularisation; -inf if what it looks at is not estimable."""
        own = self._of_interest(determined.covariance)
        return float(self.criterion.log_information(own)) if np.isfinite(own).all() else -np.inf

    def _of_interest(self, full: FloatArray) -> FloatArray:
        return np.asarray(full[..., self.interest[:, None], self.interest])


def covariance(information: FloatArray) -> FloatArray:
    """(..., n, n) inverse of symmetric matrices, regularised, scaled to a unit diagonal first."""
    diagonal = np.diagonal(information, axis1=-2, axis2=-1)
    eye = np.eye(information.shape[-1])
    regular = information + eye * (RIDGE * diagonal + NOTHING)[..., None]
    size = np.sqrt((1 + RIDGE) * diagonal + NOTHING)
    outer = size[..., :, None] * size[..., None, :]
    inverse = np.linalg.inv(regular / outer) / outer
    return np.asarray((inverse + np.swapaxes(inverse, -1, -2)) / 2)


class Determined(NamedTuple):
    """Directions of n unknowns that measurements determine, in relative units.

    covariance  (n, n); infinite in rows of unknowns that are not estimable
    lost        (k, n) directions that change no measurement
    """

    covariance: FloatArray
    lost: FloatArray


def determined(root: FloatArray) -> Determined:
    """The covariance of rows (m, n) of sensitivities by standard deviations, whose F = root' root.

    From the rows' singular values: F has the square of their condition.
    """
    norm = column_sizes(root)
    split = directions(root / norm, SINGULAR)
    half = (split.known.T / split.singular) / norm[:, None]
    covariance = half @ half.T
    lost = split.lost / norm
    undetermined = np.sum(split.lost**2, axis=0) > RANK
    covariance[undetermined, :] = covariance[:, undetermined] = np.inf
    return Determined(covariance, lost)


@dataclass(frozen=True)
class DesignInformation:
    """Rows of planned experiments, in one or several scenarios.

    known  (n, n) for each scenario, what is known before
    rows   for each scenario (n_experiments, n_times, n_measured, n_rows, n_p), as
           `PlannedSensitivities.rows` has them
    """

    space: UnknownSpace
    phi: RegularisedCriterion
    known: Sequence[FloatArray]
    rows: Sequence[FloatArray]

    @property
    def shape(self) -> tuple[int, ...]:
        """Experiments, times, measured quantities."""
        return self.rows[0].shape[:3]

    def informations(self, weights: FloatArray) -> list[FloatArray]:
        """(n, n) for each scenario, of measurements taken so often."""
        totals = []
        for known, rows in zip(self.known, self.rows, strict=True):
            own = np.einsum("etmrp,etm,etmrq->epq", rows, weights, rows)
            totals.append(known + sum(self.space.full(one, e) for e, one in enumerate(own)))
        return totals

    def value(self, weights: FloatArray) -> float:
        """Φ of measurements taken so often, weights (n_experiments, n_times, n_measured)."""
        return float(self.phi.together([self.phi(f) for f in self.informations(weights)]))

    def gains(self, weights: FloatArray) -> FloatArray:
        """dΦ/dweights, of the same shape: the gain from one more of each measurement."""
        gained, places = [], self.space.places
        informations = self.informations(weights)
        influence = self.phi.influence([float(self.phi(f)) for f in informations])
        for information, rows in zip(informations, self.rows, strict=True):
            own = self.phi.slope(information)[places[:, :, None], places[:, None, :]]
            gained.append(np.einsum("etmrp,epq,etmrq->etm", rows, own, rows))
        return np.asarray(np.tensordot(influence, gained, 1))

    def samples(self, quantities: BoolArray) -> list[FloatArray]:
        """(n_experiments, n_times, n, n) for each scenario: a sample's information."""
        once = quantities.astype(float)
        each = [np.einsum("etmrp,m,etmrq->etpq", r, once, r) for r in self.rows]
        return [np.array([self.space.full(f, e) for e, f in enumerate(own)]) for own in each]

    def taken_rows(self, taken: BoolArray) -> list[FloatArray]:
        """(m, n) for each scenario: the rows of the samples taken."""
        stacked = []
        for rows in self.rows:
            parts = [rows[e][taken[e]].reshape(-1, len(p)) for e, p in enumerate(self.space.places)]
            wide = [np.zeros((len(part), len(self.space.names))) for part in parts]
            for table, part, place in zip(wide, parts, self.space.places, strict=True):
                table[:, place] = part
            stacked.append(np.vstack(wide))
        return stacked
