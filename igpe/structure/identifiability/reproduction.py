"""Whether a model can give the outputs of another one: their Taylor coefficients as equations.

At a random point of one model's unknowns, modulo a prime, the coefficients of its outputs at the
start are known numbers. That another model has the same ones are polynomial equations in its own
unknowns. If these have no solution, not even a complex one, the other model gives the first one's
outputs for no values of its unknowns, for nearly all values of the first one's: the two can be told
apart by perfect measurements. With solutions nothing is proved, as they may be complex, out of
bounds, or end at a coefficient that was not computed.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from igpe.equations.compiled import compiled
from igpe.equations.operations import UnknownOperation
from igpe.equations.symbols import stack
from igpe.problem.problem import Problem
from igpe.structure.identifiability.posed import expand, pose
from igpe.structure.identifiability.sensitivity_rows import MARGIN, SeriesStart, TooMany
from igpe.structure.series.field import POINTS, Singular
from igpe.structure.series.graph import Dynamics
from igpe.structure.series.ideal import Ideal, ModularPolynomial, Relations, TooLong, Unrolled
from igpe.structure.series.points import NoPoint

MOST_WORK = 2e5  # comparisons of monomials at each point: about half a second for all
NOT_EXACT = (UnknownOperation, TooMany, TooLong, Singular, NoPoint)


def has_no_match(right: Problem, rival: Problem, seed: int = 0) -> bool:
    """Whether it is proved that `rival` cannot give what `right` gives, for nearly all its values.

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
    found = []
    for known, own, run in zip(right.courses, rival.courses, runs, strict=True):
        targets = [int(number[k, 0]) for number in known.advance()]
        own.advance()  # its implicit variables are needed
        found += [a - t for a, t in zip(run.advance(), targets, strict=True)]
    return found


def _is_empty(ideal: Ideal, equations: Sequence[ModularPolynomial]) -> bool:
    """Whether nothing solves the equations: 1 is a combination of them."""
    one = ModularPolynomial({(): 1}, ideal.prime)
    left = (ideal.reduced(a) for a in equations)
    return not ideal.reduced(one) or any(a and not a.variables for a in left)
