"""How a PEtab problem is estimated where nothing else is said."""

from typing import Any

import pandas as pd

from igpe.core.errors import EstimationFailed
from igpe.core.estimates import Estimate
from igpe.core.json_form import plain
from igpe.core.status import Status
from igpe.dynamics.search.iterated_search import IteratedSearch
from igpe.formats.petab.objective import petab_objective
from igpe.problem.problem import Problem

ERRORS = (
    "Errors by the observed information on the table's scale, of the parameters themselves by the "
    "delta rule; intervals are symmetric on the scale."
)
ROUGH = 5  # searches from random starts for each that is asked for; as many redrawn without gain
MOST = 20  # redrawn ones for each


def estimate_petab(problem: Problem, starts: int = 20, seed: int = 0) -> Estimate:
    """The best of many maxima of the likelihood, by iterated search.

    What PEtab problems measure is seldom a state, so that nothing can be estimated algebraically.

    starts   effort: 5 times as many rough searches from random starts, then up to 20 times as many
             from the best with some unknowns redrawn (`igpe.IteratedSearch`)
    returns  an Estimate; `petab_objective` of its parameters is what PEtab compares; after Ctrl-C
             the best of the searches that were finished
    raises   EstimationFailed if no start could be simulated
    """
    method = IteratedSearch(
        starts=ROUGH * starts, patience=ROUGH * starts, most=MOST * starts, seed=seed
    )
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
