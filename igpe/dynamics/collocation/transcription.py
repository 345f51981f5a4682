"""A problem as one Pyomo nonlinear program on a mesh for each experiment.

The user's builder is called with all collocation points as its times, so that every equation,
Expression and bound of the model is there as the user wrote it; only the equations that tie slopes
to states are added. (pyomo.dae's own transformation rounds its points to six decimals, which a
horizon of microseconds does not survive, and an equation with explicit time is wrong at.) A model
that insists on times of its own, as parmest's do, is discretised by pyomo.dae, or kept as it is.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.modeling import unique_component_name
from pyomo.core.expr.numeric_expr import Expr_ifExpression, LinearExpression
from pyomo.core.expr.numvalue import is_fixed
from pyomo.core.expr.visitor import (
    identify_components,
    identify_mutable_parameters,
    identify_variables,
    replace_expressions,
)
from pyomo.dae import DerivativeVar, Integral

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError, Unsupported
from igpe.dynamics.collocation.mesh import (
    NO_IDEA,
    CollocatedTrajectory,
    Mesh,
    Radau,
    guess,
    largest,
    objective_size,
    state_sizes,
    unknown_sizes,
)
from igpe.dynamics.shooting.base import Profile
from igpe.equations.compiled import compiled
from igpe.problem.building import build
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import evaluate
from igpe.problem.losses import ROUNDING
from igpe.problem.model import Instance, ModelStarts, differences_of, is_over, model_starts, read
from igpe.problem.problem import Problem
from igpe.solvers.base import Answer
from igpe.solvers.ipopt import Ipopt, KnownOptimum, PreparedModel
from igpe.solvers.nl import Sizes

INSIDE = {"descend_into_named_expressions": True, "remove_named_expressions": True}


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


def _refuse_higher_index(problem: Problem) -> None:
    with suppress(ModelError):  # equations that cannot be read may be collocated all the same
        if any(system.reduction is not None for system in compiled(problem).systems):
            raise Unsupported(
                "The model has a higher index. It also has constraints, bounds on slopes or bounds "
                "that vary with time. To enforce these, igpe would have to collocate the original "
                "Pyomo equations, which would be inaccurate. Remove these constraints and bounds, "
                "or use igpe.MultipleShooting(), which enforces constraints."
            )


class Transcription:
    """The nonlinear program on one mesh for each experiment, as variables that have values.

    unknowns   name -> the Pyomo variables that it is, one or one for each experiment
    meshes     with the model's own times among the edges
    refinable  whether other meshes are possible: no model keeps its own
    """

    def __init__(self, problem: Problem, meshes: Sequence[Mesh]) -> None:
        _refuse_higher_index(problem)
        self.problem, self.model = problem, pyo.ConcreteModel()
        scalars = _Scalars(problem)
        runs, cost = [], []
        for k, (experiment, mesh) in enumerate(zip(problem.experiments, meshes, strict=True)):
            run, instance = _run(problem, experiment, mesh)
            _require_breaks(problem, run)
            starts = model_starts(instance)
            _require_same_times(problem.starts[k].others, starts.others, instance)
            for objective in instance.model.component_data_objects(pyo.Objective, active=True):
                objective.deactivate()
            cost += _set_conditions(problem, experiment, instance, starts, scalars)
            if run.is_ours:
                _drop_discretisation(instance)
                _add_polynomials(run, instance.model)
            self.model.add_component(f"experiment_{k}", instance.model)
            runs.append(run)
        self.runs, self.unknowns = tuple(runs), scalars.unknowns
        self.meshes = [run.mesh for run in runs]
        self.refinable = all(run.is_ours for run in runs)
        self.model.links = pyo.ConstraintList()
        for one, other in scalars.links:
            self.model.links.add(one == other)
        cost += [
            ((self.unknowns[n][0] - prior.mean) / prior.deviation) ** 2
            for n, prior in problem.normal_priors.items()
        ]
        free = problem.box.names
        cost += [
            varying.penalty * (self.unknowns[after][0] - self.unknowns[before][0]) ** 2
            for name, varying in problem.time_varying.items()
            for experiment in (problem.experiments if varying.penalty else ())
            for before, after in pairwise(problem.pieces(name, experiment))
            if before in free or after in free
        ]
        self.model.sum_of_squares = pyo.Objective(expr=sum(cost))
        self._prepared: PreparedModel | None = None

    def begin(self, start: Mapping[str, float], profiles: Sequence[Profile]) -> None:
        """Give the variables the values a solve begins at.

        start     unknown -> value; those left out keep the model's value
        profiles  one per experiment, or none
        """
        for k, run in enumerate(self.runs):
            profile, times = profiles[k] if profiles else None, run.mesh.times
            for name, variables in (run.states | run.algebraics).items():
                otherwise = _values(variables)
                _put(variables, guess(name, run.experiment, times, profile, otherwise))
        # Last, because an unknown start value is a state's variable too.
        for name in start.keys() & self.unknowns.keys():
            _put(self.unknowns[name], np.full(len(self.unknowns[name]), start[name]))
        for run in self.runs:
            for name, x in run.states.items():
                _put(run.slopes[name], run.mesh.slope(_values(x)))

    def sizes(self, starts: Sequence[Mapping[str, float]]) -> Sizes:
        """Magnitudes of all variables, from the measurements and where the variables now stand.

        starts  all unknowns' values that solves will begin at

        A problem in other units has the sizes in these units.
        """
        sizes = pyo.ComponentMap()
        for run in self.runs:
            of_state = state_sizes(run.experiment, {n: _values(x) for n, x in run.states.items()})
            width = np.diff(run.mesh.edges)
            width = np.array([width[0], *np.repeat(width, run.mesh.radau.points)])
            for name, size in of_state.items():
                sizes.update((x, size) for x in run.states[name])
                # What a slope does to its state within the element is what matters.
                sizes.update(zip(run.slopes[name], size / width, strict=True))
            for variables in run.algebraics.values():
                size = largest(_values(variables)) or NO_IDEA
                sizes.update((z, size) for z in variables)
        for name, size in unknown_sizes(self.problem, starts).items():
            sizes.update((v, size) for v in self.unknowns[name] if v not in sizes)
        return Sizes(sizes, objective_size(self.problem))

    def prepare(self, solver: Ipopt, starts: Sequence[Mapping[str, float]]) -> None:
        """See `Assembled.prepare`."""
        self._prepared = solver.prepare(self.model, self.sizes(starts))

    def solve(self, time_limit: float | None, known: Sequence[KnownOptimum]) -> Answer:
        """See `Assembled.solve`."""
        assert self._prepared is not None, "solve is called only after prepare"
        return self._prepared.solve(time_limit, known)

    @property
    def handles(self) -> tuple[object, ...]:
        """What `KnownOptimum` names the unknowns by: Pyomo variables."""
        return tuple(self.unknowns[n][0] for n in self.problem.box.names)

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return {n: float(self.unknowns[n][0].value) for n in self.problem.box.names}

    def trajectories(self) -> list[CollocatedTrajectory]:
        """As the variables now stand."""
        families = ((run.mesh, run.states, run.algebraics) for run in self.runs)
        return [
            CollocatedTrajectory(
                mesh, *({n: _values(v) for n, v in family.items()} for family in both)
            )
            for mesh, *both in families
        ]


def _put(variables: Sequence[Any], values: FloatArray) -> None:
    for variable, value in zip(variables, values, strict=True):
        if not variable.fixed:
            variable.set_value(float(value), skip_validation=True)


def _values(variables: Sequence[Any]) -> FloatArray:
    return np.array([NO_IDEA if v.value is None else v.value for v in variables], dtype=float)


class _Scalars:
    """The unknowns as Pyomo variables, gathered experiment by experiment.

    unknowns  name -> variables, one for each experiment that has it
    links     pairs of variables that are the same unknown
    """

    def __init__(self, problem: Problem) -> None:
        self.unknowns: dict[str, list[Any]] = {}
        self.links: list[tuple[Any, Any]] = []
        box, self._fixed = problem.unknowns, problem.fixed
        self._bounds = dict(zip(box.names, zip(box.lower, box.upper, strict=True), strict=True))

    def take(self, name: str, variable: Any) -> None:
        """From now on the variable is the unknown of this name."""
        lower, upper = (float(b) for b in self._bounds[name])
        variable.domain = pyo.Reals
        variable.unfix()
        known = self.unknowns.setdefault(name, [])
        known.append(variable)
        # Bounds stand once; IPOPT would count them twice.
        is_bounded = len(known) == 1 and name not in self._fixed
        variable.setlb(lower if is_bounded else None)
        variable.setub(upper if is_bounded else None)
        if name in self._fixed:
            variable.fix(self._fixed[name])
        elif len(known) > 1:
            self.links.append((known[0], variable))


def _set_conditions(
    problem: Problem,
    experiment: Experiment,
    instance: Instance,
    starts: ModelStarts,
    scalars: _Scalars,
) -> list[Any]:
    """Turn the instance into the experiment; returns its weighted squared residuals.

    starts  those that the model gives
    """
    replaced = _parameters(problem, experiment, instance, scalars)
    replaced |= _pieces(problem, experiment, instance, scalars)
    moving = _inputs(experiment, instance)
    _set_starts(problem, experiment, instance, starts.conditions, scalars)
    residuals, m = [], experiment.measurements
    for row, column, value, sigma in zip(m.row, m.column, m.value, m.sigma, strict=True):
        series, t = instance.over_time(m.names[column]), float(m.times[row])
        assert series is not None, (
            "the problem has already checked that the model contains all measured quantities"
        )
        quantity = _written(_near(series, t), replaced | moving.at(t))
        residuals.append((quantity - float(value)) / float(sigma))
    families = [*instance.equations.values(), *instance.inequalities.values()]
    times = {id(c): float(t) for family in families for t, c in family.items()}
    times |= {id(c): instance.first for c in starts.conditions.values()}
    for constraint in instance.model.component_data_objects(pyo.Constraint, active=True):
        here = replaced
        if id(constraint) in times:
            here = replaced | moving.at(times[id(constraint)])
        else:
            moving.require_none(constraint)
        if (written := _written(constraint.expr, here)) is not constraint.expr:
            constraint.set_value(written)
    _leave_out(instance, residuals)
    return [r**2 for r in residuals]


@dataclass(frozen=True)
class _Moving:
    """Inputs that the model has as one number, although they change with time.

    inputs  Pyomo's component -> the input;  first: the first time
    """

    inputs: Sequence[tuple[Any, Any]]
    first: float

    def at(self, t: float) -> dict[int, Any]:
        """Id of each component -> its value at a time; see `_value`."""
        return {id(component): _value(given, t, self.first) for component, given in self.inputs}

    def require_none(self, constraint: Any) -> None:
        """Raise Unsupported if a constraint without a time contains one."""
        components = {id(component) for component, _ in self.inputs}
        if not components:
            return
        used = [*identify_variables(constraint.expr), *identify_mutable_parameters(constraint.expr)]
        lost = next((c.name for c in used if id(c) in components), None)
        if lost is not None:
            raise Unsupported(
                f"The constraint '{constraint.name}' contains the input '{lost}', which "
                "changes with time, but neither of them is indexed by time. Index the input by "
                "time."
            )


def _inputs(experiment: Experiment, instance: Instance) -> _Moving:
    """Give the inputs their values; those that cannot have them in one component are returned."""
    moving, first = list[tuple[Any, Any]](), instance.first
    for name, value in experiment.inputs.items():
        if name not in instance.scalars:
            for t, data in instance.series[name].items():
                _set(data, _value(value, float(t), first))
            continue
        _set(instance.scalars[name], evaluate(value, first))
        if not isinstance(value, float):
            moving.append((instance.scalars[name], value))
    return _Moving(moving, first)


def _value(given: Any, t: float, first: float) -> float:
    """Of an input. An element owns its right end: there a jump has not happened yet."""
    return evaluate(given, t, before=t > first)


def _parameters(
    problem: Problem, experiment: Experiment, instance: Instance, scalars: _Scalars
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
    problem: Problem, experiment: Experiment, instance: Instance, scalars: _Scalars
) -> dict[int, Any]:
    """Id of what varies with time, at each time -> the variable of its piece there.

    An element owns its right end: at a break the piece before it.
    """
    replaced: dict[int, Any] = {}
    near = ROUNDING * (experiment.times[-1] - instance.first)
    for name in problem.time_varying:
        pieces = problem.pieces(name, experiment)
        home = unique_component_name(instance.model, "pieces")
        instance.model.add_component(home, pyo.Var(range(len(pieces))))
        variables = list(getattr(instance.model, home).values())
        for unknown, variable in zip(pieces, variables, strict=True):
            scalars.take(unknown, variable)
        begins = np.array(list(pieces.values())) + near
        for t, data in instance.series[name].items():
            replaced[id(data)] = variables[max(int(np.searchsorted(begins, t)) - 1, 0)]
    return replaced


def _set(data: Any, value: float) -> None:
    if data.is_variable_type():
        data.fix(value, skip_validation=True)
    else:
        data.set_value(value)


def _set_starts(
    problem: Problem,
    experiment: Experiment,
    instance: Instance,
    conditions: Mapping[str, Any],
    scalars: _Scalars,
) -> None:
    equal = pyo.ConstraintList()
    instance.model.add_component(unique_component_name(instance.model, "start"), equal)
    for state, value in experiment.start.items():
        x = instance.states[state][instance.first]
        if state in conditions:
            conditions[state].deactivate()
        x.unfix()
        if isinstance(value, Unknown):
            scalars.take(problem.start_unknown(state, experiment), x)
        elif isinstance(value, str):
            equal.add(x == instance.scalars[value])
        else:
            x.fix(value, skip_validation=True)


def _near(series: Mapping[float, Any], t: float) -> Any:
    """The member at a time, or at the one that differs from it by rounding."""
    return series[t] if t in series else series[min(series, key=lambda other: abs(other - t))]


def _written(expression: Any, replaced: Mapping[int, Any]) -> Any:
    """The expression with components replaced, and with the branches of conditions that are known.

    Pyomo's writer takes the first branch where a condition is a plain bool.
    replaced  id of a component -> what takes its place
    """
    while True:
        if replaced:
            expression = replace_expressions(expression, replaced, **INSIDE)
        conditions = identify_components(expression, {Expr_ifExpression})
        known = [c for c in conditions if is_fixed(c.args[0])]
        replaced = {id(c): c.args[1 if pyo.value(c.args[0]) else 2] for c in known}
        if not known:
            return expression


def _leave_out(instance: Instance, residuals: Iterable[Any]) -> None:
    """Deactivate equations of the first time that only determine what nothing else uses.

    A Radau method has no equation for slopes at the first time. There the model's right-hand side
    may be undefined (0/0), and nothing depends on it.
    """
    first = instance.first
    slopes = [series[first] for series in instance.slopes.values()]
    others = [series[first] for series in instance.series.values()]
    spare = {id(v) for v in slopes if v.is_variable_type() and not v.fixed}
    spare |= {
        id(v)
        for v in others
        if v.is_variable_type() and not v.fixed and v.lb is None and v.ub is None
    }
    here = {c for c in (s.get(first) for s in instance.equations.values()) if c is not None}
    inside = {c: _variables(c.expr) & spare for c in here if c.active}
    uses = Counter(v for used in inside.values() for v in used)
    for constraint in instance.model.component_data_objects(pyo.Constraint, active=True):
        if constraint not in inside:
            uses.update(_variables(constraint.expr) & spare)
    for residual in residuals:
        uses.update(_variables(residual) & spare)
    while alone := [c for c, used in inside.items() if any(uses[v] == 1 for v in used)]:
        for constraint in alone:
            constraint.deactivate()
            uses.subtract(inside.pop(constraint))


def _variables(expression: Any) -> set[int]:
    return {id(v) for v in identify_variables(expression, include_fixed=False)}


def _run(problem: Problem, experiment: Experiment, mesh: Mesh) -> tuple[Run, Instance]:
    instance = build(problem.model, mesh.times, experiment)
    times = {float(t) for t in instance.time}
    own = times - set(mesh.times)
    if own and set(mesh.times) <= times:  # some more: they become edges
        mesh = Mesh(np.unique([*_snapped(mesh.edges, np.array(sorted(own))), *own]), mesh.radau)
        instance = build(problem.model, mesh.times, experiment)
    is_ours = sorted(float(t) for t in instance.time) == list(mesh.times)
    if not is_ours:
        instance, mesh = _as_it_is(instance, mesh.radau)
    given = {*experiment.inputs, *problem.time_varying}
    algebraics = {
        n: s
        for n, s in instance.series.items()
        if n not in given and s[instance.first].is_variable_type()
    }
    families = (instance.states, instance.slopes, algebraics)
    times_in_order = sorted(instance.time)
    columns = ({n: [s[t] for t in times_in_order] for n, s in f.items()} for f in families)
    return Run(experiment, mesh, is_ours, *columns), instance


def _snapped(edges: FloatArray, own: FloatArray) -> FloatArray:
    """(n,) the edges; the model's own times in place of those that differ from them by rounding."""
    nearest = own[np.argmin(abs(edges[:, None] - own), axis=1)]
    return np.where(abs(nearest - edges) <= ROUNDING * (edges[-1] - edges[0]), nearest, edges)


def _require_same_times(
    built: Mapping[str, Any], here: Mapping[str, Any], instance: Instance
) -> None:
    """Refuse constraints without time whose rules depend on which times the model is built at.

    built, here  those of the model at the measured times, and on the mesh
    """
    if any(True for _ in instance.model.component_objects(Integral)):  # it belongs to a mesh
        return
    for name, constraint in here.items():
        if name in built and _names(constraint.expr) != _names(built[name].expr):
            raise Unsupported(
                f"The constraint '{name}' depends on the times at which igpe builds the model, as "
                "a sum over m.t does. Write an integral (pyomo.dae.Integral), or name the times "
                "that the constraint is about."
            )


def _names(expression: Any) -> set[str]:
    return {v.name for v in identify_variables(expression)}


def _require_breaks(problem: Problem, run: Run) -> None:
    """Refuse a mesh of the model's own that does not know when an unknown may jump."""
    edges = run.mesh.edges
    near = ROUNDING * (edges[-1] - edges[0])
    for name in problem.time_varying:
        begins = problem.pieces(name, run.experiment).values()
        lost = [b for b in begins if np.min(np.abs(edges - b)) > near]
        if lost:
            raise Unsupported(
                "Collocation uses the model's own times, which do not include the breaks "
                f"{lost} of '{name}'. Add them to the model's time, or use "
                "igpe.MultipleShooting."
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


def _drop_discretisation(instance: Instance) -> None:
    """Deactivate what pyomo.dae has added, as finite differences: polynomials take its place."""
    for component in instance.model.component_objects():  # Pyomo lists them among the Vars then
        is_slope = isinstance(component, DerivativeVar) and is_over(component, instance.time)
        if is_slope and (added := differences_of(component)) is not None:
            added.deactivate()


def _add_polynomials(run: Run, model: Any) -> None:
    """Slopes are the derivatives of the states' polynomials, at all collocation points."""
    equations = pyo.ConstraintList()
    model.add_component(unique_component_name(model, "collocation"), equations)
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
