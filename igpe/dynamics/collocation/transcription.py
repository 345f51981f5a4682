"""A problem as one Pyomo nonlinear program on a mesh for each experiment.

The user's builder is called with all collocation points as its times, so that every equation,
Expression and bound of the model is there as the user wrote it; only the equations that tie slopes
to states are added. (pyomo.dae's own transformation rounds its points to six decimals, which a
horizon of microseconds does not survive, and an equation with explicit time is wrong at.) A model
that insists on times of its own, as parmest's do, is discretised by pyomo.dae, or kept as it is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.modeling import unique_component_name
from pyomo.core.expr.numeric_expr import LinearExpression

from igpe.core.errors import Unsupported
from igpe.dynamics.collocation.mesh import Mesh, Radau
from igpe.dynamics.collocation.transcription_of_run import Scalars, set_conditions
from igpe.problem.experiment import Experiment
from igpe.problem.loss import ROUNDING
from igpe.problem.model import Instance, build, read
from igpe.problem.problem import Problem


@dataclass(frozen=True)
class Run:
    """One experiment on its mesh; each name has a Pyomo variable for each time of the mesh.

    is_ours             False if the model keeps a discretisation of its own
    states, algebraics  name -> variables
    slopes              state -> variables
    """

    experiment: Experiment
    mesh: Mesh
    is_ours: bool
    states: dict[str, list[Any]]
    slopes: dict[str, list[Any]]
    algebraics: dict[str, list[Any]]


@dataclass(frozen=True)
class Transcription:
    """The nonlinear program.

    unknowns  name -> the Pyomo variables that it is, one or one for each experiment
    """

    problem: Problem
    model: Any
    runs: tuple[Run, ...]
    unknowns: Mapping[str, Sequence[Any]]

    @property
    def n_elements(self) -> int:
        """Of all experiments."""
        return sum(run.mesh.n_elements for run in self.runs)

    @property
    def refinable(self) -> bool:
        """Whether other meshes are possible: no model keeps its own."""
        return all(run.is_ours for run in self.runs)

    @property
    def meshes(self) -> list[Mesh]:
        """One for each experiment; with the model's own times among the edges."""
        return [run.mesh for run in self.runs]

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return {n: float(self.unknowns[n][0].value) for n in self.problem.box.names}


def transcribe(problem: Problem, meshes: Sequence[Mesh]) -> Transcription:
    """Build the program on one mesh for each experiment."""
    whole = pyo.ConcreteModel()
    scalars = Scalars(problem)
    runs, cost = [], []
    for k, (experiment, mesh) in enumerate(zip(problem.experiments, meshes, strict=True)):
        run, instance = _run(problem, experiment, mesh)
        _require_breaks(problem, run)
        for objective in instance.model.component_data_objects(pyo.Objective, active=True):
            objective.deactivate()
        cost += set_conditions(problem, experiment, instance, scalars)
        if run.is_ours:
            _add_polynomials(run, instance.model)
        whole.add_component(f"experiment_{k}", instance.model)
        runs.append(run)
    whole.links = pyo.ConstraintList()
    for one, other in scalars.links:
        whole.links.add(one == other)
    cost += [
        ((scalars.unknowns[n][0] - prior.mean) / prior.deviation) ** 2
        for n, prior in problem.priors.items()
        if n in problem.box.names
    ]
    cost += _jumps(problem, scalars)
    whole.sum_of_squares = pyo.Objective(expr=sum(cost))
    return Transcription(problem, whole, tuple(runs), scalars.unknowns)


def _run(problem: Problem, experiment: Experiment, mesh: Mesh) -> tuple[Run, Instance]:
    instance = build(problem.model, mesh.times, experiment)
    own = sorted({float(t) for t in instance.time} - set(mesh.times))
    if own and set(mesh.times) <= {float(t) for t in instance.time}:  # some more: they become edges
        mesh = Mesh(np.unique([*mesh.edges, *own]), mesh.radau)
        instance = build(problem.model, mesh.times, experiment)
    is_ours = sorted(float(t) for t in instance.time) == list(mesh.times)
    if not is_ours:
        instance, mesh = _as_it_is(instance, mesh.radau)
    run = Run(
        experiment,
        mesh,
        is_ours,
        states=_in_order(instance.states, instance.time),
        slopes=_in_order(instance.slopes, instance.time),
        algebraics=_in_order(
            {
                n: s
                for n, s in instance.series.items()
                if n not in {*experiment.inputs, *problem.time_varying}
                and s[instance.first].is_variable_type()
            },
            instance.time,
        ),
    )
    return run, instance


def _jumps(problem: Problem, scalars: Scalars) -> list[Any]:
    """Penalties of the jumps of what varies with time, but for those between what is held."""
    found = []
    for name, course in problem.time_varying.items():
        for experiment in problem.experiments if course.penalty else ():
            for pair in pairwise(problem.pieces(name, experiment)):
                if any(unknown in problem.box.names for unknown in pair):
                    before, after = (scalars.unknowns[unknown][0] for unknown in pair)
                    found.append(course.penalty * (after - before) ** 2)
    return found


def _require_breaks(problem: Problem, run: Run) -> None:
    """Refuse a mesh of the model's own that does not know when an unknown may jump."""
    edges = run.mesh.edges
    near = ROUNDING * (edges[-1] - edges[0])
    for name in problem.time_varying:
        begins = problem.pieces(name, run.experiment).values()
        lost = [b for b in begins if np.min(np.abs(edges - b)) > near]
        if lost:
            raise Unsupported(
                f"Collocation takes the model's own times, and the breaks {lost} of '{name}' are "
                "none of them. Put them into the model's time, or use igpe.MultipleShooting."
            )


def _as_it_is(instance: Instance, radau: Radau) -> tuple[Instance, Mesh]:
    """A model with times of its own, discretised by pyomo.dae unless it comes so already."""
    time = instance.time
    if not time.get_changed():
        pyo.TransformationFactory("dae.collocation").apply_to(
            instance.model, wrt=time, nfe=len(time) - 1, ncp=radau.points, scheme="LAGRANGE-RADAU"
        )
        instance = read(instance.model)
    edges = np.array(sorted(time.get_finite_elements()), dtype=float)
    points, left = divmod(len(time) - 1, len(edges) - 1)
    if left:  # finite differences and the like: nothing is known between the times
        edges, points = np.array(sorted(time), dtype=float), 1
    return instance, Mesh(edges, Radau(points))


def _in_order(family: Mapping[str, Any], time: Any) -> dict[str, list[Any]]:
    return {name: [series[t] for t in sorted(time)] for name, series in family.items()}


def _add_polynomials(run: Run, model: Any) -> None:
    """Slopes are the derivatives of the states' polynomials, at all collocation points."""
    name = unique_component_name(model, "collocation")
    equations = pyo.ConstraintList()
    model.add_component(name, equations)
    rows = run.mesh.radau.slopes
    for state, x in run.states.items():
        dx = run.slopes[state]
        for element, width in zip(run.mesh.members, np.diff(run.mesh.edges), strict=True):
            for k in range(1, len(rows)):
                body = LinearExpression(
                    constant=0.0,
                    linear_coefs=[*(float(c) for c in rows[k]), -float(width)],
                    linear_vars=[*(x[i] for i in element), dx[element[k]]],
                )
                equations.add((body, 0.0))
