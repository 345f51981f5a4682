"""Identifiability by integration and singular values, where nothing exact can be computed.

At random unknowns within their bounds every experiment is integrated with its sensitivities. Scaled
to outputs and unknowns of order one, the sensitivities have singular values that a wide gap divides
into those of what is determined and those of nothing but errors of integration; without such a gap
nothing is decided. This is evidence, not a proof: it speaks of the points tried, and of the inputs,
start values and measured times as they were given.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.dynamics.integrators.base import Integrator, Simulation
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.integrators.sundials import Sundials
from igpe.equations.initial_value import initial_value_problem
from igpe.equations.system import System
from igpe.problem.problem import Problem
from igpe.structure.identifiability.posed import FEWEST_TIMES

INTEGRATOR = Sundials(rtol=1e-11, atol=1e-13)
STEPS = 10_000  # of an integration; counted, so that every machine says the same
POINTS = 3
ATTEMPTS = 12  # points tried for these
TIMES = 60  # at which the outputs are compared
SMALLEST = 1e-6  # of the largest singular value: what is below may be error
NOTHING = 1e-8  # of the largest: what is below is error
GAP = 1e3  # by which determined directions must stand out of it
TOUCHED = 1e-4  # share of an unknown in a direction that is more than error
WIDEST = 10.0  # unknowns without bounds are drawn between this and its reciprocal


def moved_unknowns(
    problem: Problem, systems: Sequence[System], seed: int, integrator: Integrator = INTEGRATOR
) -> BoolArray | None:
    """(n,) which unknowns some unseen direction moves; None if it is not clear.

    All points must say the same.
    """
    random = np.random.default_rng(seed)
    runs = [_run(problem, k, system, integrator) for k, system in enumerate(systems)]
    found: list[BoolArray] = []
    for _ in range(ATTEMPTS):
        q = _drawn(problem.box, random)
        matrix = _sensitivities(runs, q)
        if matrix is not None:
            moved = _moved(matrix * np.maximum(np.abs(q), 1e-3))
            if moved is None or any((moved != other).any() for other in found):
                return None
            found.append(moved)
        if len(found) == POINTS:
            return found[0]
    return None


class _Run(NamedTuple):
    """One experiment.

    places  of its unknowns among all n
    seen    (n_times, n_measured) when each quantity is measured, or known over time
    """

    simulation: Simulation
    places: list[int]
    n: int
    seen: BoolArray


def _run(problem: Problem, k: int, system: System, integrator: Integrator) -> _Run:
    experiment, names = problem.experiments[k], problem.box.names
    ivp = initial_value_problem(problem, experiment, system)
    own = [np.unique(experiment.measurements.of(n)[0]) for n in experiment.measured]
    dense = np.linspace(experiment.start_time, experiment.times[-1], TIMES)
    times = np.unique(np.concatenate([dense, *own]))
    simulation = integrator.prepare(ivp, times, sensitivities=True)
    seen = [times <= t[-1] if len(t) >= FEWEST_TIMES else np.isin(times, t) for t in own]
    return _Run(simulation, [names.index(n) for n in ivp.unknowns], len(names), np.stack(seen, 1))


def _drawn(box: Box, random: np.random.Generator) -> FloatArray:
    """Unknowns well inside their bounds, spread over the logarithm where these allow it."""
    bounded = np.isfinite(box.lower) & np.isfinite(box.upper)
    lower = np.where(bounded, box.lower, np.maximum(box.lower, 1 / WIDEST))
    upper = np.where(bounded, box.upper, np.maximum(lower, 1 / WIDEST) * WIDEST**2)
    share = random.uniform(0.2, 0.8, len(box))
    plain = lower + share * (upper - lower)
    positive = lower > 0
    safe = np.where(positive, lower, 1.0)
    return np.where(positive, safe * (np.where(positive, upper, 1.0) / safe) ** share, plain)


def _sensitivities(runs: Sequence[_Run], q: FloatArray) -> FloatArray | None:
    """(rows, n) all outputs of all experiments, each relative to its largest; None if one broke."""
    found = []
    for simulation, places, n, seen in runs:
        with allowance(STEPS):
            came = simulation.run(q[places])
        if not came.status.usable or not np.isfinite(came.measured_by_unknown).all():
            return None
        m = seen.shape[1]
        size = np.max(np.abs(came.measured[:, :m]), axis=0)
        rows = (came.measured_by_unknown[:, :m] / np.where(size > 0, size, 1.0)[:, None])[seen]
        whole = np.zeros((len(rows), n))
        whole[:, places] = rows
        found.append(whole)
    return np.vstack(found)


def _moved(matrix: FloatArray) -> BoolArray | None:
    """(n,) columns that take part in the directions of small singular values, if a gap shows.

    What is nothing at all is not seen. What is much smaller than the rest may be error or may be
    not, which is not clear; the sizes of the rest do not matter.
    """
    size = np.linalg.norm(matrix, axis=0)
    if np.any((size > 0) & (size < SMALLEST * size.max(initial=0.0))):
        return None
    _, singular, rows = np.linalg.svd(matrix / np.where(size > 0, size, 1.0), full_matrices=False)
    rank = int(np.sum(singular > SMALLEST * singular[0]))
    if rank < len(singular) and (
        singular[rank - 1] < GAP * singular[rank] or singular[rank] > NOTHING * singular[0]
    ):
        return None
    return np.asarray(np.abs(rows[rank:]).max(axis=0, initial=0.0) > TOUCHED)
