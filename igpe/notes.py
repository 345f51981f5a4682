"""Sentences worth reading beside a result."""

from collections.abc import Mapping, Sequence

import numpy as np

from igpe.problem import Problem
from igpe.result import Candidate, Parameter

INDISTINCT = 3.84  # rise of chi squared that chance exceeds once in twenty (one degree of freedom)
RELATIVE = 1e-3  # of the objective, where nothing tells the variance: discretisation error
APART = 1e-2  # relative difference of unknowns that are not the same
SMALL = 1e-3  # of the bounds' width: below it the difference of an unknown counts absolutely
COUNTS = ("Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
UNEVEN = 100.0  # ratio of two columns' largest numbers beyond which their weights matter


def alike(
    parameters: Sequence[Parameter], candidates: Sequence[Candidate], variance: float
) -> list[str]:
    """Whether several sets of parameters explain the measurements alike.

    Intervals tell of the neighbourhood of one optimum only. Another that fits as well says that
    confidence is low, though no interval shows it (Michalik et al. 2009, IGPE, section 5).

    parameters  the estimates of the best candidate, with intervals
    candidates  best first
    variance    of a residual of weight 1; infinite or NaN if nothing tells it
    """
    objective = candidates[0].objective
    rise = INDISTINCT * variance if np.isfinite(variance) else 0.0
    level = objective + max(rise, RELATIVE * objective)
    sets = [({p.name: p.value for p in parameters}, objective)]
    for other in candidates[1:]:
        good = other.status.usable and other.objective <= level
        new = all(_unlike(parameters, known, other.corrected) for known, _ in sets)
        if good and new and _outside(parameters, other.corrected):
            sets.append((dict(other.corrected), other.objective))
    if len(sets) == 1:
        return []
    told = " and ".join(f"{_words(values)} (sum of squares {cost:.6g})" for values, cost in sets)
    count = COUNTS[len(sets) - 2] if len(sets) - 2 < len(COUNTS) else str(len(sets))
    return [
        f"{count} sets of parameters explain the measurements alike: {told}. The intervals are of "
        "the first alone; more data or a simpler model is needed to tell them apart."
    ]


def passed(count: int) -> list[str]:
    """What step 3 found and the later steps did not follow."""
    if count == 0:
        return []
    return [
        f"{count} more local optima of step 3 are nearly as good as its best and were not "
        "corrected; Routes(most=...) in the settings takes more."
    ]


def uneven(problem: Problem) -> list[str]:
    """A warning where unknown deviations let columns of large numbers rule the fit."""
    size: dict[str, float] = {}
    for m in (e.measurements for e in problem.experiments):
        for k, name in enumerate(m.names):
            largest = float(np.max(np.abs(m.value[m.column == k]), initial=0.0))
            size[name] = max(size.get(name, 0.0), largest)
    small, large = min(size, key=size.__getitem__), max(size, key=size.__getitem__)
    if problem.sigma_known or size[large] <= UNEVEN * size[small]:
        return []
    return [
        f"Without standard deviations every number counts alike, so {large} (up to "
        f"{size[large]:.3g}) rules the fit and {small} (up to {size[small]:.3g}) hardly counts; "
        "give sigma={...}."
    ]


def _outside(parameters: Sequence[Parameter], other: Mapping[str, float]) -> bool:
    """Whether an unknown lies outside its interval; without one, whether it is another value."""
    return any(
        p.name in other
        and _apart(p, p.value, other[p.name])
        and not p.lower <= other[p.name] <= p.upper
        for p in parameters
    )


def _unlike(
    parameters: Sequence[Parameter], a: Mapping[str, float], b: Mapping[str, float]
) -> bool:
    named = (p for p in parameters if p.name in a and p.name in b)
    return any(_apart(p, a[p.name], b[p.name]) for p in named)


def _apart(p: Parameter, a: float, b: float) -> bool:
    width = p.bounds[1] - p.bounds[0]
    small = SMALL * width if np.isfinite(width) else 0.0
    return abs(a - b) > APART * max(abs(a), abs(b), small)


def _words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{n} = {v:.4g}" for n, v in values.items())
