"""Errors that are not independent: correlated between quantities, or in time.

All else sees the whitening: a sparse W with W R W' = 1, R the correlation of all errors of one
experiment. Residuals in standard deviations and their derivative are multiplied by it (`Run`), so
that a sum of squares is again that of independent errors of variance 1, and log det R is minus
twice the sum of log W_ii. Row i of W holds errors before i only: an early part of the measurements,
or those without a missing value, has the W of its own marginal correlation.

A new kind is one class here. Its unknown correlations are estimated in dynamics/shooting/
correlations.py.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from igpe.core.arguments import Checked, PositiveOrNone, Rule, is_finite, or_none
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import DataError, ProblemError

MOST = 0.99  # an estimated correlation: beyond it the model is wrong
EVEN = 1e-6  # relative difference of spacings that are one
LARGEST = MOST / np.sqrt(1 - MOST**2)  # of a number of `Correlated.free`


class Layout(NamedTuple):
    """Times and quantities of an experiment's measurements.

    times   (n_times,) of its table, increasing
    time, column  (n,) of each measurement
    """

    times: FloatArray
    time: FloatArray
    column: IntArray

    @property
    def gaps(self) -> FloatArray:
        """Distances between times; 1 for a single one."""
        return np.diff(self.times) if len(self.times) > 1 else np.ones(1)


class Free(NamedTuple):
    """Unknown correlations as bounded numbers that are 0 where errors are independent.

    at  numbers, and one experiment's correlation -> the same with these correlations
    """

    bounds: list[tuple[float, float]]
    at: Callable[[FloatArray, Any], Any]


class Correlation(ABC):
    """Correlation of the errors of one experiment, in addition to their standard deviations."""

    @property
    @abstractmethod
    def is_estimated(self) -> bool:
        """Return True if the correlation will be estimated; until then it is treated as 0."""

    @property
    @abstractmethod
    def named(self) -> dict[str, float]:
        """The correlations by name."""

    @abstractmethod
    def of(self, columns: Sequence[str], layout: Layout) -> Self:
        """Return the correlation for the measured columns of one experiment.

        raises  DataError if the correlation does not fit these columns
        """

    @abstractmethod
    def whitening(self, layout: Layout) -> Any:
        """(n, n) W, as above."""

    @classmethod
    @abstractmethod
    def free(cls, every: Sequence[tuple[Any, Layout]]) -> Free:
        """The unknown ones of several experiments, which share them."""

    def scaled(self, factor: float) -> Self:
        """Return the correlation for another unit of time; one old unit equals `factor` new
        units."""
        return self


SHARE = Rule(lambda v: is_finite(v) and 0 <= v < 1, "a number that is at least 0 and below 1")


@dataclass(frozen=True)
class AR1(Checked, Correlation):
    """Correlation between errors of the same quantity at different times (first-order
    autoregression).

        corr(e(t), e(t')) = rho^(|t - t'| / step),

    In continuous time this is the Ornstein-Uhlenbeck process, so times may be unevenly spaced and
    values may be missing. Errors of different quantities are independent.

    rho     correlation of two errors that are one `step` apart, at least 0 and below 1; None: igpe
            estimates one correlation for all quantities and experiments
    step    time difference to which `rho` refers; None: the spacing of the experiment's times,
            which must then be constant
    raises  ProblemError for invalid numbers
    """

    rho: Annotated[float | None, or_none(SHARE)] = None
    step: PositiveOrNone = None

    @property
    def is_estimated(self) -> bool:
        return self.rho is None

    @property
    def named(self) -> dict[str, float]:
        return {f"errors {self.step:g} apart in time": self.rho or 0.0}

    def of(self, columns: Sequence[str], layout: Layout) -> "AR1":
        gaps = layout.gaps
        if self.step is None and np.ptp(gaps) > EVEN * gaps.max():
            raise DataError(
                "igpe.losses.AR1 needs a step, because the time between measurements ranges from "
                f"{gaps.min():g} to {gaps.max():g}. Give the time difference to which rho refers: "
                f"igpe.losses.AR1(step={np.median(gaps):g})."
            )
        return self if self.step is not None else replace(self, step=float(np.median(gaps)))

    def whitening(self, layout: Layout) -> Any:
        """Return the matrix that subtracts from each error its prediction from the previous error,
        and scales the difference to variance 1."""
        order = np.lexsort((layout.time, layout.column))
        time, column = layout.time[order], layout.column[order]
        follows = np.flatnonzero(column[1:] == column[:-1]) + 1
        carried = np.zeros(len(order))
        gap = time[follows] - time[follows - 1]
        carried[follows] = (self.rho or 0.0) ** (gap / (self.step or 1.0))
        weight = 1 / np.sqrt(1 - carried**2)
        values = np.concatenate([weight, -(carried * weight)[follows]])
        rows = np.concatenate([order, order[follows]])
        columns = np.concatenate([order, order[follows - 1]])
        return sparse.csr_array((values, (rows, columns)), shape=(len(order),) * 2)

    @classmethod
    def free(cls, every: Sequence[tuple[Any, Layout]]) -> Free:
        """Parametrise by the correlation of errors that are one median time step apart."""
        apart = float(np.median(np.concatenate([layout.gaps for _, layout in every])))
        return Free(
            [(0.0, MOST)],
            lambda x, own: replace(own, rho=float(x[0]) ** (own.step / apart)),
        )

    def scaled(self, factor: float) -> "AR1":
        return replace(self, step=None if self.step is None else abs(factor) * self.step)


def _are_pairs(given: Any) -> bool:
    """Whether it holds correlations of distinct pairs of names, each once."""
    if not isinstance(given, Mapping) or not all(isinstance(pair, tuple) for pair in given):
        return False
    pairs = {frozenset(pair) for pair in given}
    sound = len(pairs) == len(given) and all(len(pair) == 2 for pair in pairs)  # noqa: PLR2004
    names = all(isinstance(n, str) for pair in pairs for n in pair)
    return sound and names and all(is_finite(v) and -1 < v < 1 for v in given.values())


PAIRS = Rule(_are_pairs, "correlations between -1 and 1 for pairs of names: {('A', 'B'): 0.5}")


@dataclass(frozen=True)
class Correlated(Checked, Correlation):
    """Correlation between errors of different quantities at the same time; errors at different
    times are independent.

    The covariance of the errors of A and B is s_A s_B times their correlation, where s_A and s_B
    are the standard deviations from `sigma`. If a value is missing, igpe uses the marginal
    covariance of the other values.

    between  a dict {pair of measured columns: correlation of their errors}, for example
             {("A", "B"): 0.6}; pairs that are not listed have correlation 0. None: igpe
             estimates all correlations, assuming that they are the same at all times and in all
             experiments. If sigma is None as well, igpe estimates the full covariance
    columns  names of the measured columns; the experiment sets this argument
    raises   ProblemError for numbers that are not between -1 and 1, or if the correlations do not
             form a valid correlation matrix
    """

    between: Annotated[Mapping[tuple[str, str], float] | None, or_none(PAIRS)] = None
    columns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        names = tuple(dict.fromkeys(n for pair in self.between or {} for n in pair))
        least = np.linalg.eigvalsh(self._matrix(names)).min(initial=1.0)
        if least <= 0:
            raise ProblemError(
                f"The correlations {dict(self.between or {})} are impossible: their matrix has "
                f"the eigenvalue {least:.2g}, but all eigenvalues must be positive. Give "
                "correlations estimated from the same measurements."
            )

    @property
    def is_estimated(self) -> bool:
        return self.between is None

    @property
    def named(self) -> dict[str, float]:
        return {f"errors of {a} and {b}": v for (a, b), v in (self.between or {}).items()}

    def of(self, columns: Sequence[str], layout: Layout) -> "Correlated":
        strange = sorted({n for pair in self.between or {} for n in pair} - {*columns})
        if strange or len(columns) < 2:  # noqa: PLR2004
            raise DataError(
                f"igpe.losses.Correlated {f'contains {strange}' if strange else 'needs a pair'}, "
                f"but the measured columns are {[*columns]}. Give pairs of measured columns, or "
                "leave out correlation=."
            )
        return replace(self, columns=tuple(columns))

    def whitening(self, layout: Layout) -> Any:
        """Return the matrix with the inverse Cholesky factors of the correlation matrices: one
        factor for the quantities measured at each time."""
        distinct, row = np.unique(layout.time, return_inverse=True)
        place = np.full((len(distinct), len(self.columns)), -1)
        place[row, layout.column] = np.arange(len(row))
        there, full = place >= 0, self._matrix(self.columns)
        values, rows, columns = [], [], []
        for pattern in np.unique(there, axis=0):
            own = place[(there == pattern).all(axis=1)][:, pattern]
            inverse = np.linalg.inv(np.linalg.cholesky(full[np.ix_(pattern, pattern)]))
            shape = (len(own), *inverse.shape)
            values.append(np.broadcast_to(inverse, shape).ravel())
            rows.append(np.broadcast_to(own[:, :, None], shape).ravel())
            columns.append(np.broadcast_to(own[:, None, :], shape).ravel())
        at = np.concatenate(rows), np.concatenate(columns)
        return sparse.csr_array((np.concatenate(values), at), shape=(len(row),) * 2)

    @classmethod
    def free(cls, every: Sequence[tuple[Any, Layout]]) -> Free:
        """Parametrise the correlation matrix as L L', where L is lower triangular with rows of
        length 1."""
        names = tuple(dict.fromkeys(n for own, _ in every for n in own.columns))
        below = np.tril_indices(len(names), -1)

        def at(x: FloatArray, own: "Correlated") -> "Correlated":
            triangle = np.eye(len(names))
            triangle[below] = x
            triangle /= np.linalg.norm(triangle, axis=1)[:, None]
            product = triangle @ triangle.T
            here = [(i, j) for i, j in _pairs_of(names) if {names[i], names[j]} <= {*own.columns}]
            between = {(names[i], names[j]): float(product[i, j]) for i, j in here}
            return replace(own, between=between)

        return Free([(-LARGEST, LARGEST)] * len(below[0]), at)

    def _matrix(self, names: Sequence[str]) -> FloatArray:
        matrix, known = np.eye(len(names)), self.between or {}
        for i, j in _pairs_of(names):
            pair = names[i], names[j]
            matrix[i, j] = matrix[j, i] = known.get(pair, known.get(pair[::-1], 0.0))
        return matrix


def _pairs_of(names: Sequence[str]) -> Iterable[tuple[int, int]]:
    return combinations(range(len(names)), 2)
