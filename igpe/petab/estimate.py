"""How a PEtab problem is estimated where nothing else is said."""

from typing import Any

from igpe.dynamic.multistart import MultiStart
from igpe.dynamic.single_shooting import SingleShooting
from igpe.errors import EstimationFailed
from igpe.estimates import Estimate
from igpe.petab.objective import petab_objective
from igpe.problem import Problem
from igpe.status import Status

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


def told(problem: Problem, found: Estimate) -> str:
    """An estimate as the text that the command line prints."""
    wide = max(len(n) for n in found.parameters)
    lines = [found.status.value]
    lines += [
        f"{n:<{wide}}  {v:.6g} {problem.unit(n)}".rstrip() for n, v in found.parameters.items()
    ]
    objective = petab_objective(problem, found.parameters, priors=True)
    lines.append(f"negative log-likelihood {objective:.7g}, {found.method}")
    return "\n".join([*lines, *found.notes])


def as_dict(problem: Problem, found: Estimate) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "parameters": dict(found.parameters),
        "negative_log_likelihood": petab_objective(problem, found.parameters, priors=True),
        "status": found.status.name,
        "message": found.status.value,
        "method": found.method,
        "notes": list(found.notes),
        "table": [
            {"name": n, "estimate": v, "unit": problem.unit(n)} for n, v in found.parameters.items()
        ],
    }
