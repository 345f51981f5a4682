"""A problem as one Pyomo nonlinear program on a mesh for each experiment.

The user's builder is called with all collocation points as its times, so that every equation,
Expression and bound of the model is there as the user wrote it; only the equations that tie slopes
to states are added. (pyomo.dae's own transformation rounds its points to six decimals, which a
horizon of microseconds does not survive, and an equation with explicit time is wrong at.) A model
that insists on times of its own, as parmest's do, is discretised by pyomo.dae, or kept as it is.

What makes a user's model one experiment: parameters, start values, inputs, residuals.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.modeling import unique_component_name
from pyomo.core.expr.numeric_expr import LinearExpression
from pyomo.core.expr.visitor import identify_variables, replace_expressions

from igpe.core.errors import Unsupported
from igpe.dynamics.collocation.mesh import Mesh, Radau
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import evaluate
from igpe.problem.losses import ROUNDING
from igpe.problem.model import Instance, build, model_starts, read
from igpe.problem.problem import Problem


class Scalars:
    """The unknowns as Pyomo variables, gathered experiment by experiment.

    unknowns  name -> variables, one for each experiment that has it
    links     pairs of variables that are the same unknown
    """

    def __init__(self, problem: Problem) -> None:
        self.unknowns: dict[str, list[Any]] = {}
        self.links: list[tuple[Any, Any]] = []
        box = problem.unknowns
        self._fixed = problem.fixed
        self._bounds = dict(zip(box.names, zip(box.lower, box.upper, strict=True), strict=True))

    def take(self, name: str, variable: Any) -> None:
        """From now on the variable is the unknown of this name."""
        lower, upper = (float(b) for b in self._bounds[name])
        variable.domain = pyo.Reals
        variable.unfix()
        known = self.unknowns.setdefault(name, [])
        known.append(variable)
        if name in self._fixed:
            variable.setlb(None)
            variable.setub(None)
            variable.fix(self._fixed[name])
            return
        # Bounds stand once; IPOPT would count them twice.
        variable.setlb(lower if len(known) == 1 else None)
        variable.setub(upper if len(known) == 1 else None)
        if len(known) > 1:
            self.links.append((known[0], variable))


def set_conditions(
    problem: Problem, experiment: Experiment, instance: Instance, scalars: Scalars
) -> list[Any]:
    """Turn the instance into the experiment; returns its weighted squared residuals."""
    replaced = _parameters(problem, experiment, instance, scalars)
    replaced |= _pieces(problem, experiment, instance, scalars)
    _inputs(experiment, instance)
    _starts(problem, experiment, instance, scalars)
    residuals = _residuals(experiment, instance, replaced)
    if replaced:
        _replace(instance.model, replaced)
    _leave_out(instance, residuals)
    return [r**2 for r in residuals]


def _parameters(
    problem: Problem, experiment: Experiment, instance: Instance, scalars: Scalars
) -> dict[int, Any]:
    """Hand the parameters out; id(mutable Param) -> the variable that takes its place."""
    replaced: dict[int, Any] = {}
    for name in problem.parameters:
        component = instance.scalars[name]
        if not component.is_variable_type():
            home = unique_component_name(instance.model, "parameter")
            instance.model.add_component(home, pyo.Var(initialize=pyo.value(component, False)))
            replaced[id(component)] = component = getattr(instance.model, home)
        scalars.take(problem.unknown_of(name, experiment), component)
        instance.scalars[name] = component  # type: ignore[index]
    return replaced


def _pieces(
    problem: Problem, experiment: Experiment, instance: Instance, scalars: Scalars
) -> dict[int, Any]:
    """Id of what varies with time, at each time -> the variable of its piece there.

    An element owns its right end: at a break the piece before it.
    """
    replaced: dict[int, Any] = {}
    for name in problem.time_varying:
        pieces = problem.pieces(name, experiment)
        home = unique_component_name(instance.model, "pieces")
        instance.model.add_component(home, pyo.Var(range(len(pieces))))
        variables = list(getattr(instance.model, home).values())
        for unknown, variable in zip(pieces, variables, strict=True):
            scalars.take(unknown, variable)
        begins = np.array(list(pieces.values())) + ROUNDING * (
            experiment.times[-1] - instance.first
        )
        for t, data in instance.series[name].items():
            place = max(int(np.searchsorted(begins, t, side="left")) - 1, 0)
            replaced[id(data)] = variables[place]
    return replaced


def _inputs(experiment: Experiment, instance: Instance) -> None:
    first = instance.first
    for name, value in experiment.inputs.items():
        if name in instance.scalars:
            _set(instance.scalars[name], evaluate(value, first))
            continue
        for t, data in instance.series[name].items():
            # An element owns its right end: there a jump has not happened yet.
            _set(data, evaluate(value, float(t), before=t > first))


def _set(data: Any, value: float) -> None:
    if data.is_variable_type():
        data.fix(value, skip_validation=True)
    else:
        data.set_value(value)


def _starts(
    problem: Problem,
    experiment: Experiment,
    instance: Instance,
    scalars: Scalars,
) -> None:
    own = model_starts(instance)
    home = unique_component_name(instance.model, "start")
    equal = pyo.ConstraintList()
    instance.model.add_component(home, equal)
    for state, value in experiment.start.items():
        x = instance.states[state][instance.first]
        if state in own.conditions:
            own.conditions[state].deactivate()
        x.unfix()
        if isinstance(value, Unknown):
            scalars.take(problem.start_unknown(state, experiment), x)
        elif isinstance(value, str):
            equal.add(x == instance.scalars[value])
        else:
            x.fix(value, skip_validation=True)


def _residuals(experiment: Experiment, instance: Instance, replaced: dict[int, Any]) -> list[Any]:
    found = []
    m = experiment.measurements
    for row, column, value, sigma in zip(m.row, m.column, m.value, m.sigma, strict=True):
        series = instance.over_time(m.names[column])
        if series is None:
            raise AssertionError("Problem checks that everything measured is in the model")
        quantity = series[float(m.times[row])]
        if replaced:
            quantity = _replaced(quantity, replaced)
        found.append((quantity - float(value)) / float(sigma))
    return found


def _replace(model: Any, replaced: dict[int, Any]) -> None:
    for constraint in model.component_data_objects(pyo.Constraint, active=True):
        constraint.set_value(_replaced(constraint.expr, replaced))


def _replaced(expression: Any, replaced: dict[int, Any]) -> Any:
    return replace_expressions(
        expression, replaced, descend_into_named_expressions=True, remove_named_expressions=True
    )


def _leave_out(instance: Instance, residuals: Iterable[Any]) -> None:
    """Deactivate equations of the first time that only determine what nothing else uses.

    A Radau method has no equation for slopes at the first time. There the model's right-hand side
    may be undefined (0/0), and nothing depends on it.
    """
    first = instance.first
    families = (instance.slopes, instance.series)
    spare = {
        id(series[first])
        for family in families
        for series in family.values()
        if _is_spare(series[first], is_slope=family is instance.slopes)
    }
    here = {c for c in (s.get(first) for s in instance.equations.values()) if c is not None}
    inside = {c: _variables(c.expr) & spare for c in here if c.active}
    uses = Counter(v for found in inside.values() for v in found)
    for constraint in instance.model.component_data_objects(pyo.Constraint, active=True):
        if constraint not in inside:
            uses.update(_variables(constraint.expr) & spare)
    for residual in residuals:
        uses.update(_variables(residual) & spare)
    _peel(inside, uses)


def _is_spare(data: Any, *, is_slope: bool) -> bool:
    if not data.is_variable_type() or data.fixed:
        return False
    return is_slope or (data.lb is None and data.ub is None)


def _variables(expression: Any) -> set[int]:
    return {id(v) for v in identify_variables(expression, include_fixed=False)}


def _peel(inside: dict[Any, set[int]], uses: Counter[int]) -> None:
    while True:
        alone = [c for c, found in inside.items() if any(uses[v] == 1 for v in found)]
        if not alone:
            return
        for constraint in alone:
            constraint.deactivate()
            uses.subtract(inside.pop(constraint))


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
