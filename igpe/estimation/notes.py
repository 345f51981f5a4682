"""Sentences worth reading beside a result."""

from collections.abc import Mapping, Sequence

import numpy as np

from igpe.problem.problem import Problem
from igpe.results.result_data import Optimum, Parameter

MOST = 5  # other sets of values that a sentence lists
COUNTS = ("Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
UNEVEN = 100.0  # ratio of two columns' largest numbers beyond which their weights matter


def several(parameters: Sequence[Parameter], others: Sequence[Optimum]) -> list[str]:
    """Whether several sets of values explain the measurements alike.

    Intervals tell of the neighbourhood of one optimum only. Another that fits as well says that
    confidence is low, though no interval shows it (Michalik et al. 2009, IGPE, section 5).

    parameters  the estimates, with intervals;  others: further optima
    """
    if not others:
        return []
    count = COUNTS[len(others) - 1] if len(others) <= len(COUNTS) else str(len(others) + 1)
    sets = [_words({p.name: p.value for p in parameters})]
    sets += [f"{_words(o.parameters)} (sum of squares {o.objective:.6g})" for o in others[:MOST]]
    more = f" and {len(others) - MOST} more" if len(others) > MOST else ""
    return [
        f"{count} sets of values explain the data alike: {'; or '.join(sets)}{more}. Each interval "
        "holds around its own set only. Other measurements, or narrower bounds, can tell the sets "
        "apart. igpe.check(problem) says how many sets perfect measurements would leave."
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


def _words(values: Mapping[str, float]) -> str:
    return ", ".join(f"{n} = {v:.4g}" for n, v in values.items())
