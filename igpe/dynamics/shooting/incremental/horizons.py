"""How far each problem of incremental shooting reaches.

The i-th horizon holds 2^(i-1) data points (Michalik et al. 2009, ISS, section 3.2): 1, 2, 4, 8, ...
and at last all of them. Small beginnings matter: there the problem is nearly linear.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from igpe.core.arguments import is_finite, shown
from igpe.core.errors import ProblemError
from igpe.problem.experiment import Experiment


class Reach(NamedTuple):
    """One horizon: the last time of each experiment that counts, and the share of all time."""

    ends: tuple[float, ...]
    share: float


def doubling_counts(most: int) -> list[int]:
    """How many times each horizon sees.

    >>> doubling_counts(10)
    [1, 2, 4, 8, 10]
    """
    counts = [2**i for i in range(max(most - 1, 0).bit_length())]
    return [*counts, max(most, 1)]


def reaches(
    experiments: Sequence[Experiment], intervals: tuple[float, ...] | None
) -> tuple[Reach, ...]:
    """The horizons, increasing; the last holds all measurements.

    intervals  their ends, for all experiments; those before any measurement are left out. None:
               each experiment is cut at its own 1st, 2nd, 4th, ... time of measurement after the
               start; what is measured at the start belongs to all
    raises     ProblemError if intervals are no increasing times
    """
    if intervals is None:
        ends = _doubling(experiments)
    else:
        require_increasing(intervals)
        first = min(_after_start(e)[0] for e in experiments)
        useful = [end for end in intervals if end >= first]
        ends = [tuple(_last_until(e, end) for e in experiments) for end in useful]
    whole = tuple(_measured(e)[-1] for e in experiments)
    distinct = list(dict.fromkeys([*ends, whole]))
    return tuple(Reach(e, _share(experiments, e)) for e in distinct)


def require_increasing(intervals: Sequence[float]) -> None:
    """Raise ProblemError unless intervals are one or more finite numbers, in order."""
    given = isinstance(intervals, tuple | list | np.ndarray) and len(intervals) > 0
    if not (given and is_finite(*intervals) and all(a < b for a, b in pairwise(intervals))):
        raise ProblemError(
            f"The intervals {shown(intervals)} do not increase; give the finite times at which "
            "horizons end, in order: IncrementalShooting(intervals=(1.0, 5.0))."
        )


def _doubling(experiments: Sequence[Experiment]) -> list[tuple[float, ...]]:
    later = [_after_start(e) for e in experiments]
    counts = doubling_counts(max(map(len, later)))
    return [tuple(float(times[min(k, len(times)) - 1]) for times in later) for k in counts]


def _measured(experiment: Experiment) -> list[float]:
    """Times at which something was measured; the table may have more."""
    m = experiment.measurements
    return [float(t) for t in m.times[np.unique(m.row)]]


def _after_start(experiment: Experiment) -> list[float]:
    """Those after the start, where the model is still exact; the last if there are none."""
    times = _measured(experiment)
    return [t for t in times if t > experiment.start_time] or times[-1:]


def _last_until(experiment: Experiment, end: float) -> float:
    """The last time of measurement not after `end`; the start if there is none."""
    times = [t for t in _measured(experiment) if t <= end]
    return times[-1] if times else experiment.start_time


def _share(experiments: Sequence[Experiment], ends: tuple[float, ...]) -> float:
    starts = [e.start_time for e in experiments]
    now = sum(ends) - sum(starts)
    whole = sum(_measured(e)[-1] for e in experiments) - sum(starts)
    return float(now / whole) if whole > 0 else 1.0
