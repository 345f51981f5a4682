"""How a PEtab problem is estimated where nothing else is said."""

from typing import Any

import pandas as pd

from igpe.dynamic.multistart import MultiStart
from igpe.dynamic.single_shooting import SingleShooting
from igpe.errors import EstimationFailed
from igpe.estimates import Estimate
from igpe.json_form import plain
from igpe.petab.objective import petab_objective
from igpe.problem import Problem
from igpe.status import Status

ERRORS = (
    "Errors by the observed information on the table's scale, of the parameters themselves by the "
    "delta rule; intervals are symmetric on the scale."
)
TRIALS = 8  # integrations for each start: the best of them are searched from


def estimate_petab(problem: Problem, starts: int = 20, seed: int = 0) -> Estimate:
    """The best of several maxima of the likelihood, by single shooting.

    What PEtab problems measure is seldom a state, so that nothing can be estimated algebraically.

    starts   local searches, from the best of 8 times as many points
    returns  an Estimate; `petab_objective` of its parameters is what PEtab compares; after Ctrl-C
             the best of the searches that were finished
    raises   EstimationFailed if no start could be simulated
    """
    method = MultiStart(SingleShooting(), trials=TRIALS * starts, starts=starts, seed=seed)
    found = method.estimate(problem, {})
    if not (found.status.usable or found.status is Status.INTERRUPTED):
        raise EstimationFailed(f"Nothing could be estimated. {found.status.value}", found.status)
    return found


def told(problem: Problem, found: Estimate, errors: pd.DataFrame) -> str:
    """An estimate as the text that the command line prints.

    errors  of `petab_errors`
    """
    rows = [("", "estimate", "standard error", "95 % interval", "error on scale")]
    for name, row in errors.iterrows():
        sure = row["remark"] == ""
        interval = f"[{row['lower']:.5g}, {row['upper']:.5g}]" if sure else str(row["remark"])
        error = f"{row['standard_error']:.2g}" if sure else ""
        on_scale = f"{row['error_on_scale']:.2g} ({row['scale']})" if sure else ""
        rows.append((str(name), f"{row['estimate']:.6g}", error, interval, on_scale))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    objective = petab_objective(problem, found.parameters, priors=True)
    last = f"negative log-likelihood {objective:.7g}, {found.method}"
    return "\n".join([found.status.value, *lines, ERRORS, last, *found.notes])


def as_dict(problem: Problem, found: Estimate, errors: pd.DataFrame) -> dict[str, Any]:
    """The same as plain values.

    errors  of `petab_errors`
    """
    numbers = plain(errors.drop(columns="estimate").to_dict("index"))
    return {
        "parameters": dict(found.parameters),
        "negative_log_likelihood": petab_objective(problem, found.parameters, priors=True),
        "status": found.status.name,
        "message": found.status.value,
        "method": found.method,
        "notes": list(found.notes),
        "table": [
            {"name": n, "estimate": v, "unit": problem.unit(n), **numbers[n]}
            for n, v in found.parameters.items()
        ],
    }
