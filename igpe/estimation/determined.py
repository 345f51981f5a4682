"""Combinations of unknowns that the data determine, with their values and errors."""

from collections.abc import Iterator, Sequence

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.numerics.covariance import Uncertainty, root
from igpe.results.result_data import Combined
from igpe.structure.combinations import IdentifiableCombination
from igpe.structure.identifiability import Identifiability


def combined(
    exact: Identifiability,
    names: Sequence[str],
    x: FloatArray,
    jacobian: FloatArray,
    errors: Uncertainty,
) -> tuple[Combined, ...]:
    """Unknowns that cannot be told apart, where that is not in doubt.

    x  (n,) the estimate of the unknowns, whose `names` these are, with its errors
    jacobian  (m, n) of the weighted residuals there
    """
    if exact.doubtful or exact.left_out:
        return ()

    def of(one: IdentifiableCombination) -> Iterator[tuple[float, float]]:
        """Value and standard error of each function of unknowns that are products or sums."""
        own = [names.index(n) for n in one.unknowns]
        values, by_own = one.at(x[own])
        by = np.zeros((len(values), len(x)))
        by[:, own] = by_own
        with np.errstate(invalid="ignore"):  # 0 * inf, of a fit without errors
            spread = np.sqrt(errors.variance) * root(jacobian, errors.held).error(by)
        return zip(values.tolist(), spread.tolist(), strict=True)

    freeing = [{exact.measure.get(n, ()) for n in one.unknowns} for one in exact.combinations]
    return tuple(
        Combined(
            one.unknowns,
            one.functions,
            one.nothing,
            *sets if len(sets) == 1 else ((),),
            *(tuple(column) for column in zip(*of(one), strict=True)),
        )
        for one, sets in zip(exact.combinations, freeing, strict=True)
    )
