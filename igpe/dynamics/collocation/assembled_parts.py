"""What a discretised problem is made of whatever the mesh, translated and differentiated once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import ModelError
from igpe.dynamics.collocation.element import Linear, Piece, element, linear, residual, start
from igpe.dynamics.collocation.guess import NO_IDEA
from igpe.dynamics.collocation.mesh import Radau
from igpe.dynamics.shooting.base import constraints
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.reading.read import read_systems
from igpe.equations.system import System
from igpe.problem.experiment import Experiment
from igpe.problem.model import Instance
from igpe.problem.problem import Problem


class Bounds(NamedTuple):
    """Of some quantities at all times."""

    lower: FloatArray
    upper: FloatArray


@dataclass(frozen=True)
class Part:
    """What one experiment's program is made of on any mesh.

    index      (n_q,) places of its unknowns among the problem's
    linear, residuals   told quantity -> what it is
    states, implicit, bounded   bounds, of states and implicit variables and of `element`'s values
    values     (n_x,) the states' values in the model
    """

    experiment: Experiment
    ivp: InitialValueProblem
    index: IntArray
    element: Piece
    start: Piece
    linear: Mapping[int, Linear]
    residuals: Mapping[int, Piece]
    states: Bounds
    implicit: Bounds
    bounded: Bounds
    values: FloatArray


@dataclass(frozen=True)
class Parts:
    """All experiments of a problem, ready for meshes."""

    problem: Problem
    each: tuple[Part, ...]


def parts(problem: Problem, radau: Radau, systems: tuple[System, ...] = ()) -> Parts | None:
    """The problem made ready; None where it wants the user's Pyomo model on the mesh.

    Constraints beyond the equations do, bounds that change with time, or of slopes, a model with
    times of its own, and what is measured or bounded at the start by way of implicit variables.
    """
    if constraints(problem) or not all(map(_has_constant_bounds, problem.instances)):
        return None
    try:
        systems = systems or read_systems(problem)
    except ModelError:
        return None
    if not all(system.any_times for system in systems):
        return None
    found = []
    for experiment, instance, system in zip(
        problem.experiments, problem.instances, systems, strict=True
    ):
        ivp = initial_value_problem(problem, experiment, system)
        part = _part(problem, experiment, instance, ivp, radau)
        if part is None:
            return None
        found.append(part)
    return Parts(problem, tuple(found))


def _has_constant_bounds(instance: Instance) -> bool:
    """Whether bounds are the same at all times, and slopes have none."""
    families = {**instance.states, **instance.series}
    return all(_bounds(s) is not None for s in families.values()) and all(
        _bounds(s) == (-np.inf, np.inf) for s in instance.slopes.values()
    )


def _bounds(series: Any) -> tuple[float, float] | None:
    """At all times; None if they change."""
    found = set()
    for variable in series.values():
        if variable.is_variable_type():
            lower, upper = variable.bounds
            found.add((-np.inf if lower is None else lower, np.inf if upper is None else upper))
    if not found:
        return -np.inf, np.inf
    return found.pop() if len(found) == 1 else None


def _part(
    problem: Problem,
    experiment: Experiment,
    instance: Instance,
    ivp: InitialValueProblem,
    radau: Radau,
) -> Part | None:
    families = {**instance.states, **instance.series}
    own = {n: _bounds(s) or (-np.inf, np.inf) for n, s in families.items()}
    bounded = [
        n for n in ivp.algebraic if n not in ivp.implicit and np.isfinite(own.get(n, ())).any()
    ]
    told = dict.fromkeys(experiment.measurements.column.tolist())
    lines = {k: line for k in told if (line := linear(ivp, k)) is not None}
    early = experiment.measurements.times[experiment.measurements.row] <= ivp.t0
    at_start = set(experiment.measurements.column[early].tolist())
    there = [*(ivp.measured[k] for k in at_start), *(ivp.algebraic[n] for n in bounded)]
    if any(any(ca.which_depends(told_there, ivp.y, 1)) for told_there in there):
        return None
    names = problem.box.names
    return Part(
        experiment,
        ivp,
        index=np.array([names.index(n) for n in ivp.unknowns], dtype=np.intp),
        element=element(ivp, radau, bounded),
        start=start(ivp, bounded),
        linear=lines,
        residuals={k: residual(ivp, k) for k in told if k not in lines},
        states=_of(own, ivp.states),
        implicit=Bounds(ivp.lower, ivp.upper),
        bounded=_of(own, bounded),
        values=np.array([_value(instance.states[n][instance.first]) for n in ivp.states]),
    )


def _of(bounds: Mapping[str, tuple[float, float]], names: Sequence[str]) -> Bounds:
    return Bounds(np.array([bounds[n][0] for n in names]), np.array([bounds[n][1] for n in names]))


def _value(variable: Any) -> float:
    return NO_IDEA if variable.value is None else float(variable.value)
