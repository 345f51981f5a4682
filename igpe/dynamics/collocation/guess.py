"""Where collocation begins: trajectories guessed from profiles, measurements or the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError
from igpe.dynamics.collocation.mesh import Mesh, Radau, first_mesh
from igpe.dynamics.shooting.base import Profile
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem

NO_IDEA = 1.0  # of variables nobody has a guess for; 0 would divide by zero in rate laws
JUST = 1e-9  # of the horizon: what is just before a switch
LEAST = 1e-6  # of its largest bound: an unknown's size if it starts at next to nothing


@dataclass(frozen=True)
class CollocatedTrajectory:
    """The polynomials of one experiment, as the variables stand. Values at the mesh's times."""

    mesh: Mesh
    states: Mapping[str, FloatArray]
    algebraics: Mapping[str, FloatArray]

    def profile(self, name: str, times: FloatArray) -> FloatArray | None:
        """A `Profile` that follows the polynomials."""
        if name in self.states:
            return self.mesh.evaluate(self.states[name], times, state=True)
        if name in self.algebraics:
            return self.mesh.evaluate(self.algebraics[name], times, state=False)
        return None


def first_meshes(
    problem: Problem,
    profiles: Sequence[Profile],
    radau: Radau,
    tolerance: float,
    *,
    start: Mapping[str, float] = MappingProxyType({}),
) -> list[Mesh]:
    """A mesh for each experiment: edges where something happens, and where profiles are steep.

    start  unknown -> value that a solve begins at; pulses that unknowns move are looked for there
    """
    meshes = []
    try:
        equations = compiled(problem)
    except ModelError:  # igpe can read them at one time after the other alone
        equations = None
    for k, experiment in enumerate(problem.experiments):
        guesses: list[Any] = (
            [partial(profiles[k], n) for n in problem.instance.states] if profiles else []
        )
        stops = _stops(problem, experiment)
        if equations is not None:
            ivp = equations.initial_value_problem(k)
            stops = np.union1d(stops, _landings(ivp, float(stops[-1]), start))
        usable = [g for g in guesses if g(stops) is not None]
        meshes.append(first_mesh(stops, usable, radau, tolerance))
    return meshes


def unknown_sizes(problem: Problem, starts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Magnitudes of the free unknowns: where solves begin, or a little of their bounds."""
    box, sizes = problem.box, {}
    for name, lower, upper in zip(box.names, box.lower, box.upper, strict=True):
        begins = largest([s[name] for s in starts if name in s])
        sizes[name] = max(begins, LEAST * largest([lower, upper])) or NO_IDEA
    return sizes


def state_sizes(experiment: Experiment, values: Mapping[str, FloatArray]) -> dict[str, float]:
    """Magnitudes of the states, whose trajectories begin at `values`.

    Those that nothing is known of are as large as the others.
    """
    sizes = {}
    for name, trajectory in values.items():
        if name in experiment.measured:
            sizes[name] = largest(experiment.measurements.of(name)[1])
        sizes[name] = sizes.get(name) or largest(trajectory)
    known = [s for s in sizes.values() if s > 0]
    typical = float(np.median(known)) if known else NO_IDEA
    return {n: s or typical for n, s in sizes.items()}


def objective_size(problem: Problem) -> float:
    """The square of a column of measurements over its standard deviation, typically."""
    squares = []
    for experiment in problem.experiments:
        m = experiment.measurements
        column = np.zeros(len(m.names))
        np.maximum.at(column, m.column, abs(m.value))
        squares.append((column[m.column] / m.sigma) ** 2)
    some = np.concatenate(squares)
    some = some[np.isfinite(some) & (some > 0)]
    return float(np.median(some)) if len(some) else 1.0


def largest(values: Any) -> float:
    """The largest finite magnitude; 0 if there is none."""
    magnitudes = abs(np.asarray(values, dtype=float))
    return float(magnitudes[np.isfinite(magnitudes)].max(initial=0.0))


def _stops(problem: Problem, experiment: Experiment) -> FloatArray:
    first, last = experiment.start_time, float(experiment.times[-1])
    breaks = [t for u in experiment.inputs.values() if isinstance(u, Table) for t in u.times]
    for name in problem.time_varying:
        breaks += problem.pieces(name, experiment).values()
    inside = [float(t) for t in breaks if first < t < last]
    stops = np.unique([first, *experiment.times, *inside])
    # A problem of one time still has a course: give it an element.
    return stops if len(stops) > 1 else np.array([first, first + 1.0])


def _landings(ivp: InitialValueProblem, last: float, start: Mapping[str, float]) -> list[float]:
    """Breaks and pulses of time, and times just before the breaks.

    A rule of the user's that is asked at the very time of a switch answers for what comes after it,
    also at the end of the element before. So an element that short ends there.
    """
    breaks = ivp.breaks(last)
    just_before = [t - JUST * (last - ivp.t0) for t in breaks] if ivp.until < np.inf else []
    pulses = ivp.stops(last).through(np.array([start.get(n, np.nan) for n in ivp.unknowns]))
    return [t for t in (*breaks, *just_before, *pulses) if ivp.t0 < t < last]


def guess(
    name: str,
    experiment: Experiment,
    times: FloatArray,
    profile: Profile | None,
    otherwise: FloatArray,
) -> FloatArray:
    """A course to begin with: the profile's, the measurements', the start value's, or `otherwise`.

    All are values at the times.
    """
    own = profile(name, times) if profile is not None else None
    if own is not None and np.isfinite(own).all():
        return np.asarray(own, dtype=float)
    if name in experiment.measured:
        return _between_measurements(name, experiment, times)
    given = experiment.start.get(name)
    if isinstance(given, Unknown):
        middle = (given.lower + given.upper) / 2
        given = float(middle if given.guess is None else given.guess)
    return np.full(len(times), given) if isinstance(given, float) else otherwise


def _between_measurements(name: str, experiment: Experiment, times: FloatArray) -> FloatArray:
    measured_at, values, _ = experiment.measurements.of(name)
    distinct, which = np.unique(measured_at, return_inverse=True)
    if len(distinct) == 0:
        return np.full(len(times), NO_IDEA)
    mean = np.bincount(which, weights=values) / np.bincount(which)
    given = experiment.start.get(name)
    if isinstance(given, float) and experiment.start_time < distinct[0]:
        distinct, mean = np.array([experiment.start_time, *distinct]), np.array([given, *mean])
    return np.interp(times, distinct, mean)
