"""The information of several planned experiments together, and what a criterion says of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from igpe.arrays import FloatArray, IntArray
from igpe.planning.criteria import Criterion

LEAST = 1e-6
"""Information that every unknown has beforehand, so that no matrix is singular: a relative standard
deviation of 1000. It changes nothing that is known to better than a factor."""


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
        return np.asarray(-columns @ self.criterion.slope(self._of_interest(whole)) @ columns.T)

    def _of_interest(self, whole: FloatArray) -> FloatArray:
        return np.asarray(whole[..., self.interest[:, None], self.interest])


def covariance(information: FloatArray) -> FloatArray:
    """(..., n, n) inverse of symmetric matrices, scaled to a unit diagonal first."""
    size = np.sqrt(np.diagonal(information, axis1=-2, axis2=-1))
    outer = size[..., :, None] * size[..., None, :]
    inverse = np.linalg.inv(information / outer) / outer
    return np.asarray((inverse + np.swapaxes(inverse, -1, -2)) / 2)


@dataclass(frozen=True)
class Evidence:
    """Rows of planned experiments, in one or several scenarios; Φ is their mean.

    known  (n, n) for each scenario, what is known before
    rows   for each scenario (n_experiments, n_times, n_measured, n_p)
    """

    space: Space
    judge: Judge
    known: Sequence[FloatArray]
    rows: Sequence[FloatArray]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Experiments, times, measured quantities."""
        a, b, c, _ = self.rows[0].shape
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
                found[e] += np.einsum("tmp,pq,tmq->tm", rows[e], own, rows[e]) / len(self.rows)
        return found

    def samples(self, experiment: int, quantities: FloatArray) -> list[FloatArray]:
        """(n_times, n, n) for each scenario: a sample's information, quantities so often."""
        return [
            self.space.whole(
                np.einsum("tmp,m,tmq->tpq", r[experiment], quantities, r[experiment]), experiment
            )
            for r in self.rows
        ]

    @property
    def _scenarios(self) -> list[tuple[FloatArray, FloatArray]]:
        return list(zip(self.known, self.rows, strict=True))

    def _gained(self, rows: FloatArray, weights: FloatArray) -> FloatArray:
        found = np.zeros((len(self.space.names),) * 2)
        for e in range(len(rows)):
            own = np.einsum("tmp,tm,tmq->pq", rows[e], weights[e], rows[e])
            found += self.space.whole(own, e)
        return found
