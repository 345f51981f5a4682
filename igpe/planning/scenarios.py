"""Other values that the unknowns may have, for designs that must be good for all of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arguments import is_count, shown
from igpe.core.errors import ProblemError
from igpe.planning.evidence import determined
from igpe.planning.posing import Posed, require_inside

LARGEST = 1.0  # relative standard error to draw from at most


def scenarios(samples: Any, posed: Posed, seed: int) -> list[Mapping[str, float]]:
    """Values of the unknowns, one mapping for each scenario.

    samples  how many to draw from the errors before, within the bounds; or a table of them
    raises   ProblemError for anything else, a table that lacks unknowns, or errors that are unknown
    """
    names = list(posed.whole.box.names)
    if isinstance(samples, pd.DataFrame):
        missing = [n for n in names if n not in samples.columns]
        if missing or not np.isfinite(samples[names].to_numpy(dtype=float)).all():
            raise ProblemError(
                f"The table samples= lacks finite values of {missing or 'some unknowns'}; wanted a "
                f"column for each of {names}, one row for each scenario."
            )
        rows = samples[names].to_numpy(dtype=float)
        found: list[Mapping[str, float]] = [
            dict(zip(names, map(float, row), strict=True)) for row in rows
        ]
        for one in found:
            require_inside(posed.whole.box, one, "samples")
        return found
    if not is_count(samples):
        raise ProblemError(
            f"samples is {shown(samples)}; wanted how many to draw, or a table with a column for "
            f"each of {names}."
        )
    return _drawn(int(samples), posed, seed)


def _drawn(count: int, posed: Posed, seed: int) -> list[Mapping[str, float]]:
    if count == 0:
        return []
    box = posed.whole.box
    errors = determined(posed.existing.at(posed.values, posed.sizes).rows).covariance
    lost = [n for n, e in zip(box.names, np.sqrt(np.diag(errors)), strict=True) if e > LARGEST]
    if lost:
        raise ProblemError(
            f"samples={count} cannot be drawn: the errors of {lost} are larger than what they are "
            "relative to (their values, or sizes=). Give a table of the values they may have: "
            "samples=pd.DataFrame({...})."
        )
    random = np.random.default_rng(seed)
    drawn = random.multivariate_normal(np.zeros(len(box)), errors, count, method="cholesky")
    at = box.vector(posed.values) + drawn * posed.sizes
    return [box.mapping(box.clip(x)) for x in at]
