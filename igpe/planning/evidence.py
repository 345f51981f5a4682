"""The information of several planned experiments together, and what a criterion says of it.

The search needs finite criteria also where a design determines too little. It judges

    F + `RIDGE` diag(F) + `NOTHING` I

in the place of F, which is linear in F and not below it, so that slopes, concavity and upper bounds
of the criteria hold. What a plan reports is computed from F alone, by `determined`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.numerics.statistics.covariance import RANK, directions
from igpe.planning.criteria import Criterion

RIDGE = 1e-12  # of the diagonal: rounding alone makes singular matrices this regular
NOTHING = 1e-30  # information of an unknown that no measurement depends on
SINGULAR = 1e-7  # of the largest singular value: what is below are errors of integration


@dataclass(frozen=True)
class Space:
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

    def whole(self, informations: FloatArray, experiment: int) -> FloatArray:
        """(..., n_p, n_p) of one planned experiment as (..., n, n)."""
        n, place = len(self.names), self.places[experiment]
        found = np.zeros((*informations.shape[:-2], n, n))
        found[..., place[:, None], place] = informations
        return found


@dataclass(frozen=True)
class Judge:
    """A criterion on information matrices F (n, n) in relative units."""

    criterion: Criterion
    interest: IntArray

    def __call__(self, information: FloatArray) -> FloatArray:
        """Φ of one or many (..., n, n)."""
        return self.criterion.log_information(self._of_interest(covariance(information)))

    def slope(self, information: FloatArray) -> FloatArray:
        """(n, n) dΦ/dF = -C E (dΦ/dC) E' C."""
        whole = covariance(information)
        columns = whole[:, self.interest]
        found = -columns @ self.criterion.slope(self._of_interest(whole)) @ columns.T
        return np.asarray(found + RIDGE * np.diag(np.diag(found)))

    def exact(self, found: "Determined") -> float:
        """Φ without the search's regularisation; -inf if what it looks at is not estimable."""
        own = self._of_interest(found.covariance)
        if not np.isfinite(own).all():
            return -np.inf
        return float(self.criterion.log_information(own))

    def _of_interest(self, whole: FloatArray) -> FloatArray:
        return np.asarray(whole[..., self.interest[:, None], self.interest])


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
    """What measurements determine of n unknowns, in relative units.

    covariance  (n, n); infinite in rows of unknowns that are not estimable
    lost        (k, n) directions that change no measurement
    """

    covariance: FloatArray
    lost: FloatArray


def determined(root: FloatArray) -> Determined:
    """The covariance of rows (m, n) of sensitivities by standard deviations, whose F = root' root.

    From the rows' singular values: F has the square of their condition.
    """
    norm = np.linalg.norm(root, axis=0)
    norm = np.where(norm > 0, norm, 1.0)
    split = directions(root / norm, SINGULAR)
    half = (split.known.T / split.singular) / norm[:, None]
    found = half @ half.T
    lost = split.lost / norm
    gone = np.sum(split.lost**2, axis=0) > RANK
    found[gone, :] = found[:, gone] = np.inf
    return Determined(found, lost)


@dataclass(frozen=True)
class Evidence:
    """Rows of planned experiments, in one or several scenarios; Φ is their mean.

    known  (n, n) for each scenario, what is known before
    rows   for each scenario (n_experiments, n_times, n_measured, n_rows, n_p), as `Told.rows` has
           them
    """

    space: Space
    judge: Judge
    known: Sequence[FloatArray]
    rows: Sequence[FloatArray]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Experiments, times, measured quantities."""
        a, b, c = self.rows[0].shape[:3]
        return a, b, c

    def informations(self, weights: FloatArray) -> list[FloatArray]:
        """(n, n) for each scenario, of measurements taken so often."""
        return [known + self._gained(rows, weights) for known, rows in self._scenarios]

    def value(self, weights: FloatArray) -> float:
        """Φ of measurements taken so often, weights (n_experiments, n_times, n_measured)."""
        return float(np.mean([self.judge(f) for f in self.informations(weights)]))

    def gains(self, weights: FloatArray) -> FloatArray:
        """dΦ/dweights, of the same shape: what one more of each measurement would tell."""
        found = np.zeros(weights.shape)
        for information, rows in zip(self.informations(weights), self.rows, strict=True):
            slope = self.judge.slope(information)
            for e, place in enumerate(self.space.places):
                own = slope[place[:, None], place]
                found[e] += np.einsum("tmrp,pq,tmrq->tm", rows[e], own, rows[e]) / len(self.rows)
        return found

    def samples(self, experiment: int, quantities: BoolArray) -> list[FloatArray]:
        """(n_times, n, n) for each scenario: a sample's information, of these quantities."""
        once = quantities.astype(float)
        return [
            self.space.whole(
                np.einsum("tmrp,m,tmrq->tpq", r[experiment], once, r[experiment]), experiment
            )
            for r in self.rows
        ]

    def taken_rows(self, taken: BoolArray) -> list[FloatArray]:
        """(m, n) for each scenario: the rows of the samples taken."""
        whole = []
        for rows in self.rows:
            pieces = []
            for e, place in enumerate(self.space.places):
                own = rows[e][taken[e]].reshape(-1, len(place))
                piece = np.zeros((len(own), len(self.space.names)))
                piece[:, place] = own
                pieces.append(piece)
            whole.append(np.vstack(pieces))
        return whole

    @property
    def _scenarios(self) -> list[tuple[FloatArray, FloatArray]]:
        return list(zip(self.known, self.rows, strict=True))

    def _gained(self, rows: FloatArray, weights: FloatArray) -> FloatArray:
        found = np.zeros((len(self.space.names),) * 2)
        for e in range(len(rows)):
            own = np.einsum("tmrp,tm,tmrq->pq", rows[e], weights[e], rows[e])
            found += self.space.whole(own, e)
        return found
