"""Whether one rival can say all that another one says: the same outputs, for other parameters.

Where a model's outputs are among those of the other, no measurement of these quantities under these
conditions tells them apart, however exact it is. That they are not is proved by algebra where
`has_no_match` can; else `reproduces` fits one model to outputs of the other without errors, at
several points. That is a test at points, not a proof.
"""

from collections.abc import Mapping
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pandas as pd

from igpe.core.deadline import require_going_on
from igpe.core.errors import EstimationFailed, IgpeError
from igpe.dynamics.shooting.base import constraints
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import simulate
from igpe.problem.problem import Problem
from igpe.results.result import Result
from igpe.structure.identifiability.reproduction import has_no_match

POINTS = 3  # one next to the estimate, and others
FACTOR = 1.5  # how far these may be
INSIDE = 0.01  # of the width of the bounds, next to them
STARTS = 8  # of each fit, beside the rival's own estimate
SAME = 1e-5  # of an output's range: what integration and the end of a search leave
SIGMA = 1e-3  # of the range: a standard deviation for the fits
DENSE = 40  # times of an experiment at which outputs are compared


class Behaviour(NamedTuple):
    """Whether a rival reproduces another at the points tried.

    reproduced  at how many points;  points: how many were tried
    """

    reproduced: int
    points: int

    @property
    def contained(self) -> bool:
        """Whether it did at all of them, and there was one."""
        return 0 < self.points == self.reproduced


class Containment(NamedTuple):
    """Whether `rival` gives all outputs of `right`, and how that is known."""

    right: str
    rival: str
    contained: bool
    how: str


def compared(
    fitted: Mapping[str, tuple[Problem, Result]], seed: int
) -> tuple[list[Containment], bool]:
    """Every ordered pair of rivals of which anything could be said; False if interrupted."""
    found = []
    try:
        for right, rival in permutations(fitted, 2):
            require_going_on()
            if has_no_match(fitted[right][0], fitted[rival][0], seed):
                found.append(Containment(right, rival, contained=False, how="algebra"))
                continue
            one = reproduces(*fitted[rival], *fitted[right], seed)
            if one.points:
                found.append(Containment(right, rival, one.contained, "fits"))
    except KeyboardInterrupt:
        return found, False
    return found, True


def reproduces(
    rival: Problem, own: Result, right: Problem, truth: Result, seed: int = 0
) -> Behaviour:
    """Whether `rival` fits what `right` predicts without errors, near its estimate.

    own, truth  their estimates
    """
    if constraints(rival) or constraints(right):
        return Behaviour(0, 0)
    reproduced = tried = 0
    for values in _points(right, truth.parameters, seed):
        try:
            fits = _reproduced(rival, own.parameters, right, values, seed)
        except IgpeError:
            continue
        tried += 1
        reproduced += fits
        if not fits:
            break
    return Behaviour(reproduced, tried)


def _points(problem: Problem, values: Mapping[str, float], seed: int) -> list[dict[str, float]]:
    """Values of all unknowns near those given, within the bounds; none is on a bound.

    On a bound (a rate constant of 0) a model may be a simpler one.
    """
    box, random = problem.box, np.random.default_rng(seed)
    at = box.vector({n: values[n] for n in box.names})
    width = np.where(np.isfinite(box.upper - box.lower), box.upper - box.lower, np.abs(at) + 1)
    inside = np.clip(at, box.lower + INSIDE * width, box.upper - INSIDE * width)
    factors = FACTOR ** random.uniform(-1, 1, (POINTS - 1, len(box)))
    return [box.mapping(x) for x in (inside, *(box.clip(inside * f) for f in factors))]


def _reproduced(
    rival: Problem,
    own: Mapping[str, float],
    right: Problem,
    values: Mapping[str, float],
    seed: int,
) -> bool:
    """Whether a fit ends at the same outputs."""
    target, ranges = _outputs(right, values)
    exact = rival.with_data(target, {n: SIGMA * r for n, r in ranges.items()})
    box = exact.box
    starts = [{n: own[n] for n in box.names}]
    if box.bounded:
        starts += [box.mapping(x) for x in box.sobol(STARTS, seed)]
    for start in starts:
        try:
            estimate = SingleShooting().estimate(exact, start)
        except EstimationFailed:
            continue
        if estimate.status.usable and _is_same(exact, estimate.parameters, target, ranges):
            return True
    return False


def _outputs(
    problem: Problem, values: Mapping[str, float]
) -> tuple[pd.DataFrame, dict[str, float]]:
    """Outputs without errors on a dense grid, and the range of each."""
    names = list(dict.fromkeys(n for e in problem.experiments for n in e.measured))
    end = max(float(e.times[-1]) for e in problem.experiments)
    begin = max(e.start_time for e in problem.experiments)
    table = simulate(problem, values, np.linspace(begin, end, DENSE + 1)[1:])
    table = table[["experiment", "time", *names]]
    return table, {n: float(np.ptp(table[n])) or 1.0 for n in names}


def _is_same(
    problem: Problem, values: Mapping[str, float], target: pd.DataFrame, ranges: Mapping[str, float]
) -> bool:
    times = np.unique(target["time"])
    table = simulate(problem, values, times)
    off = [np.abs(table[n].to_numpy() - target[n].to_numpy()).max() / r for n, r in ranges.items()]
    return bool(max(off) <= SAME)
