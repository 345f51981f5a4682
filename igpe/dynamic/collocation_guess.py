"""Where collocation begins: courses guessed from profiles, measurements or the model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from igpe.arrays import FloatArray
from igpe.dynamic.base import Profile
from igpe.dynamic.mesh import Mesh, Radau, first_mesh
from igpe.dynamic.transcription import Run, Transcription
from igpe.experiment import Experiment, Unknown
from igpe.inputs import Table
from igpe.problem import Problem

NO_IDEA = 1.0  # of variables nobody has a guess for; 0 would divide by zero in rate laws


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
    problem: Problem, profiles: Sequence[Profile], radau: Radau, tolerance: float
) -> list[Mesh]:
    """A mesh for each experiment: edges where something happens, and where profiles are steep."""
    meshes = []
    for k, experiment in enumerate(problem.experiments):
        guesses = [_known(profiles[k], n) for n in problem.instance.states] if profiles else []
        stops = _stops(experiment)
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
            _put(variables, _guess(name, run, variables, profile))
    # Last, because an unknown start value is a state's variable too.
    for name in start.keys() & program.unknowns.keys():
        _put(program.unknowns[name], np.full(len(program.unknowns[name]), start[name]))
    for run in program.runs:
        for name, x in run.states.items():
            _put(run.slopes[name], run.mesh.slope(_values(x)))


def _known(profile: Profile, name: str) -> Any:
    return partial(profile, name)


def _stops(experiment: Experiment) -> FloatArray:
    first, last = experiment.start_time, float(experiment.times[-1])
    breaks = [t for u in experiment.inputs.values() if isinstance(u, Table) for t in u.times]
    inside = [float(t) for t in breaks if first < t < last]
    stops = np.unique([first, *experiment.times, *inside])
    # A problem of one time still has a course: give it an element.
    return stops if len(stops) > 1 else np.array([first, first + 1.0])


def _guess(name: str, run: Run, variables: Sequence[Any], profile: Profile | None) -> FloatArray:
    times = run.mesh.times
    found = profile(name, times) if profile is not None else None
    if found is not None and np.isfinite(found).all():
        return np.asarray(found, dtype=float)
    if name in run.experiment.measured:
        return _between_measurements(name, run.experiment, times)
    given = run.experiment.start.get(name)
    if isinstance(given, (float, Unknown)):
        constant = (
            given if isinstance(given, float) else given.guess or (given.lower + given.upper) / 2
        )
        return np.full(len(times), constant)
    return np.array([NO_IDEA if v.value is None else v.value for v in variables], dtype=float)


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
