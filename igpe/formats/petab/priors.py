"""Priors of PEtab's parameter table."""

from typing import Any

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, ProblemError
from igpe.problem.losses import NormalPrior, Prior

FLAT = ("uniform", "parameterScaleUniform")  # priors inside the bounds
LAWS = {
    "normal": ("normal", False),
    "laplace": ("laplace", False),
    "logNormal": ("log-normal", False),
    "logLaplace": ("log-laplace", False),
    "parameterScaleNormal": ("normal", True),
    "parameterScaleLaplace": ("laplace", True),
}
"""Prior of version 1 -> its law, and whether it is one of the parameter on its scale."""


def read_prior(name: str, row: Any) -> NormalPrior | Prior | None:
    """The objective prior of a row of the parameter table; None where the bounds are all.

    raises DataError for numbers that the law does not have
    """
    kind = row.get("objectivePriorType")
    if kind is None or pd.isna(kind) or not kind or kind in FLAT:
        return None
    law, on_scale = LAWS.get(str(kind), (str(kind), False))
    numbers = row["objectivePriorParameters"]
    lower, upper = (float(row.get(n, s * np.inf)) for n, s in (("from", -1), ("to", 1)))
    try:
        values = tuple(float(v) for v in str(numbers).split(";"))
        scale = str(row["parameterScale"]) if on_scale else "lin"
        if law == "normal" and scale == "lin":
            mean, deviation = values
            return NormalPrior(mean, deviation, lower=lower, upper=upper)
        return Prior(law, values, scale, lower, upper)
    except (ValueError, TypeError, ProblemError) as error:
        raise DataError(
            f"The prior of '{name}' is {kind} with the parameters {numbers}: {error}"
        ) from None


def flat(parameters: pd.DataFrame) -> float:
    """Minus the logarithm of the uniform densities, which version 2 counts."""
    if "from" not in parameters:
        return 0.0
    kinds = parameters["objectivePriorType"].astype(object).fillna("")
    plain = parameters[kinds.isin(["", *FLAT])]
    widths = (plain["to"] - plain["from"]).astype(float)
    return float(np.log(widths[np.isfinite(widths)]).sum())
