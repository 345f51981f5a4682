"""Whether one rival can reproduce all outputs of another with other parameters.

Where a model's outputs are among those of the other, no measurement of these quantities under these
conditions distinguishes them, however exact it is. `has_no_match` proves by algebra that they are
not, where it can; else `reproduces` fits one model to outputs of the other without errors, at
several points. That is a test at points, not a proof.

The algebra: at a random point of one model's unknowns, modulo a prime, the coefficients of its
outputs at the start are known numbers. That another model has the same ones are polynomial
equations in its own unknowns. If these have no solution, not even a complex one, the other model
gives the first one's outputs for no values of its unknowns, for nearly all values of the first
one's: perfect measurements distinguish the two. With solutions nothing is proved, as they
may be complex, out of bounds, or end at a coefficient that was not computed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import NamedTuple

import numpy as np
import pandas as pd

from igpe.core.deadline import require_going_on
from igpe.core.errors import EstimationFailed, IgpeError
from igpe.dynamics.shooting.base import constraints
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import simulate
from igpe.equations.compiled import compiled
from igpe.equations.operations import UnknownOperation
from igpe.equations.symbols import stack
from igpe.problem.problem import Problem
from igpe.results.result import Result
from igpe.structure.posed import expand, pose
from igpe.structure.sensitivity_rows import MARGIN, SeriesStart, TooMany
from igpe.structure.series.field import POINTS, Singular
from igpe.structure.series.graph import Dynamics
from igpe.structure.series.ideal import Ideal, ModularPolynomial, Relations, TooLong, Unrolled
from igpe.structure.series.points import NoPoint

MOST_WORK = 2e5  # comparisons of monomials at each point: about half a second for all
NOT_EXACT = (UnknownOperation, TooMany, TooLong, Singular, NoPoint)


def has_no_match(right: Problem, rival: Problem, seed: int = 0) -> bool:
    """Whether `rival` provably cannot produce the outputs of `right`, for nearly all values.

    False if it may, or nothing exact can be computed: events, functions that are no quotients of
    polynomials, unknowns that vary with time, too much work.
    """
    if any(p.time_varying or any(compiled(p).switching) for p in (right, rival)):
        return False
    try:
        one, other = (_start(p, seed) for p in (right, rival))
        return all(_contradicts(one, other, k) for k in (0, POINTS))
    except NOT_EXACT:
        return False


def _start(problem: Problem, seed: int) -> SeriesStart:
    """All experiments, with what is measured over time, up to the first break of an input."""
    posed = [pose(problem, k) for k in range(len(problem.experiments))]
    dynamics: list[Dynamics] = []
    for e in expand(problem, posed):
        places = {o.name: i for i, o in enumerate(e.outputs) if o.continuous}
        outputs = stack(e.dynamics.outputs[places[n]] for n in sorted(places))
        dynamics.append(replace(e.dynamics, outputs=outputs, pieces=e.dynamics.pieces[:1]))
    return SeriesStart(dynamics, len(problem.box), np.random.default_rng(seed))


def _contradicts(right: SeriesStart, rival: SeriesStart, k: int) -> bool:
    """Whether the equations at point k have no solution."""
    relations = Relations(rival.primes[k])
    q = [relations.unknown(int(v)) for v in rival.point.q[k]]
    runs = [Unrolled(c, k, [q[i] for i in c.dynamics.columns], relations) for c in rival.courses]
    states = [d.dynamics.x.numel() for start in (right, rival) for d in start.courses]
    first = len(q) + MARGIN
    for order in range(first + max(states) + MARGIN):
        fresh = _equations(right, rival, runs, k)
        if relations.pairs:
            return False  # values of functions at the start are drawn, each model's its own
        fresh = [a for a in map(relations.reduced or (lambda a: a), fresh) if a]
        for one in fresh:
            relations.vanishes(one)
        if any(not one.variables for one in fresh):
            return True
        if fresh and order + 1 >= first:
            ideal = Ideal(relations.equations, relations.prime, MOST_WORK)
            relations.reduced = ideal.reduced
            if _is_empty(ideal, relations.equations):
                return True
    return False


def _equations(
    right: SeriesStart, rival: SeriesStart, runs: Sequence[Unrolled], k: int
) -> list[ModularPolynomial]:
    """The next coefficients of the rival's outputs less those of the right model, in numbers."""
    equations = []
    for known, own, run in zip(right.courses, rival.courses, runs, strict=True):
        targets = [int(number[k, 0]) for number in known.advance()]
        own.advance()  # its implicit variables are needed
        equations += [a - t for a, t in zip(run.advance(), targets, strict=True)]
    return equations


def _is_empty(ideal: Ideal, equations: Sequence[ModularPolynomial]) -> bool:
    """Whether nothing solves the equations: 1 is a combination of them."""
    one = ModularPolynomial({(): 1}, ideal.prime)
    left = (ideal.reduced(a) for a in equations)
    return not ideal.reduced(one) or any(a and not a.variables for a in left)


PARAMETER_SETS = 3  # one next to the estimate, and others
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
        """Whether the rival reproduced the outputs at all points tried, and there was a point."""
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
    containments = []
    try:
        for right, rival in permutations(fitted, 2):
            require_going_on()
            if has_no_match(fitted[right][0], fitted[rival][0], seed):
                containments.append(Containment(right, rival, contained=False, how="algebra"))
                continue
            one = reproduces(*fitted[rival], *fitted[right], seed)
            if one.points:
                containments.append(Containment(right, rival, one.contained, "fits"))
    except KeyboardInterrupt:
        return containments, False
    return containments, True


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
    factors = FACTOR ** random.uniform(-1, 1, (PARAMETER_SETS - 1, len(box)))
    return [box.mapping(x) for x in (inside, *(box.clip(inside * f) for f in factors))]


def _reproduced(
    rival: Problem, own: Mapping[str, float], right: Problem, values: Mapping[str, float], seed: int
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
