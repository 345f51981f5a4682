"""Where collocation begins: courses guessed from profiles, measurements or the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pyomo.environ as pyo

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError
from igpe.dynamics.collocation.mesh import Mesh, Radau, first_mesh
from igpe.dynamics.collocation.transcription import Run, Transcription
from igpe.dynamics.shooting.base import Profile
from igpe.equations.compiled import Compiled, compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem
from igpe.solvers.nl import Sizes

NO_IDEA = 1.0  # of variables nobody has a guess for; 0 would divide by zero in rate laws
JUST = 1e-9  # of the horizon: what is just before a switch
LEAST = 1e-6  # of its largest bound: an unknown's size if it starts at next to nothing


@dataclass(frozen=True)
class Course:
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


def course(run: Run) -> Course:
    """The courses that the run's variables now have."""
    return Course(
        run.mesh,
        {n: _values(x) for n, x in run.states.items()},
        {n: _values(z) for n, z in run.algebraics.items()},
    )


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
    equations = _compiled(problem)
    for k, experiment in enumerate(problem.experiments):
        guesses = [_known(profiles[k], n) for n in problem.instance.states] if profiles else []
        stops = _stops(problem, experiment)
        if equations is not None:
            ivp = equations.initial_value_problem(k)
            stops = np.union1d(stops, _landings(ivp, float(stops[-1]), start))
        usable = [g for g in guesses if g(stops) is not None]
        meshes.append(first_mesh(stops, usable, radau, tolerance))
    return meshes


def begin(program: Transcription, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
    """Give the program's variables the values a solve begins at.

    start     unknown -> value; those left out keep the model's value
    profiles  one per experiment, or none
    """
    for k, run in enumerate(program.runs):
        profile = profiles[k] if profiles else None
        for name, variables in (run.states | run.algebraics).items():
            otherwise = _values(variables)
            _put(variables, guess(name, run.experiment, run.mesh.times, profile, otherwise))
    # Last, because an unknown start value is a state's variable too.
    for name in start.keys() & program.unknowns.keys():
        _put(program.unknowns[name], np.full(len(program.unknowns[name]), start[name]))
    for run in program.runs:
        for name, x in run.states.items():
            _put(run.slopes[name], run.mesh.slope(_values(x)))


def sizes(program: Transcription, starts: Sequence[Mapping[str, float]]) -> Sizes:
    """Magnitudes of all variables, from the measurements and where the variables now stand.

    starts  all unknowns' values that solves will begin at

    A problem in other units has the sizes in these units.
    """
    found = pyo.ComponentMap()
    for run in program.runs:
        of_state = state_sizes(run.experiment, {n: _values(x) for n, x in run.states.items()})
        width = np.diff(run.mesh.edges)
        width = np.array([width[0], *np.repeat(width, run.mesh.radau.points)])
        for name, size in of_state.items():
            found.update((x, size) for x in run.states[name])
            # What a slope does to its state within the element is what matters.
            found.update(zip(run.slopes[name], size / width, strict=True))
        for variables in run.algebraics.values():
            size = largest(_values(variables)) or NO_IDEA
            found.update((z, size) for z in variables)
    for name, size in unknown_sizes(program.problem, starts).items():
        found.update((v, size) for v in program.unknowns[name] if v not in found)
    return Sizes(found, objective_size(program.problem))


def unknown_sizes(problem: Problem, starts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Magnitudes of the free unknowns: where solves begin, or a little of their bounds."""
    box, found = problem.box, {}
    for name, lower, upper in zip(box.names, box.lower, box.upper, strict=True):
        begins = largest([s[name] for s in starts if name in s])
        found[name] = max(begins, LEAST * largest([lower, upper])) or NO_IDEA
    return found


def state_sizes(experiment: Experiment, values: Mapping[str, FloatArray]) -> dict[str, float]:
    """Magnitudes of the states, whose courses begin at `values`.

    Those that nothing is known of are as large as the others.
    """
    found = {}
    for name, course_of in values.items():
        if name in experiment.measured:
            found[name] = largest(experiment.measurements.of(name)[1])
        found[name] = found.get(name) or largest(course_of)
    known = [s for s in found.values() if s > 0]
    typical = float(np.median(known)) if known else NO_IDEA
    return {n: s or typical for n, s in found.items()}


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


def _known(profile: Profile, name: str) -> Any:
    return partial(profile, name)


def _stops(problem: Problem, experiment: Experiment) -> FloatArray:
    first, last = experiment.start_time, float(experiment.times[-1])
    breaks = [t for u in experiment.inputs.values() if isinstance(u, Table) for t in u.times]
    for name in problem.time_varying:
        breaks += problem.pieces(name, experiment).values()
    inside = [float(t) for t in breaks if first < t < last]
    stops = np.unique([first, *experiment.times, *inside])
    # A problem of one time still has a course: give it an element.
    return stops if len(stops) > 1 else np.array([first, first + 1.0])


def _compiled(problem: Problem) -> Compiled | None:
    """The problem's equations; None where igpe can read them at one time after the other alone."""
    try:
        return compiled(problem)
    except ModelError:
        return None


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
    found = profile(name, times) if profile is not None else None
    if found is not None and np.isfinite(found).all():
        return np.asarray(found, dtype=float)
    if name in experiment.measured:
        return _between_measurements(name, experiment, times)
    given = experiment.start.get(name)
    if isinstance(given, (float, Unknown)):
        return np.full(len(times), given if isinstance(given, float) else _amid(given))
    return otherwise


def _amid(start: Unknown) -> float:
    return (start.lower + start.upper) / 2 if start.guess is None else start.guess


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


def _put(variables: Sequence[Any], values: FloatArray) -> None:
    for variable, value in zip(variables, values, strict=True):
        if not variable.fixed:
            variable.set_value(float(value), skip_validation=True)


def _values(variables: Sequence[Any]) -> FloatArray:
    return np.array([NO_IDEA if v.value is None else v.value for v in variables], dtype=float)
