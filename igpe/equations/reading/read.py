"""From a user's model to the equations of each experiment, and whether these are what was written.

The model is built at times of our own, its equations are read at several of them, translated to
CasADi, and compared with Pyomo's values. What cannot be read is refused.

So are the events of an experiment, from numbers, names and Pyomo rules to CasADi expressions.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.visitor import identify_variables
from pyomo.dae import ContinuousSet

from igpe.core.errors import ModelError
from igpe.core.names import in_words, listed
from igpe.equations.differentiation import at_any_order, differentiated
from igpe.equations.incidence import incidence, parts
from igpe.equations.reading.agreement import require_agreement
from igpe.equations.reading.instant import REFUSALS, Instant, plain, reason
from igpe.equations.reading.readings import read_equations
from igpe.equations.reduction import reduced
from igpe.equations.switching import Jump, gap_of
from igpe.equations.symbols import Symbols, make_symbols, stack
from igpe.equations.system import System
from igpe.equations.translate import Translator
from igpe.problem.building import build, kind_of
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import evaluate
from igpe.problem.model import Instance, model_starts
from igpe.problem.problem import Problem
from igpe.problem.space import skipped, without_formula


def read_jumps(
    experiment: Experiment, instance: Instance, symbols: Symbols, time: float
) -> tuple[Jump, ...]:
    """The events in the order in which they happen at one time.

    time    one at which the instance is asked
    raises  ModelError for a rule that cannot be followed
    """
    known = {
        i: getattr(symbols, role.kind)[role.place]
        for i, role in symbols.roles(instance, time).items()
    }
    translate = Translator(known, symbols.t)

    def told(rule: Callable[..., Any], number: int) -> Any:
        instant = Instant(time)
        try:
            found = translate(plain(rule(instance.model, instant)))
        except (*REFUSALS, ModelError) as error:
            raise ModelError(
                f"igpe cannot follow a rule of event {number} in experiment '{experiment.name}': "
                f"{reason(error)}. Write it with the model's components at t and with Pyomo's "
                "functions: lambda m, t: 0.5 * m.A[t]."
            ) from error
        if instant.seen:
            raise ModelError(
                f"A rule of event {number} uses Python's `if` with a condition on time. Write "
                "pyo.Expr_if(t < 0.4, a, b), or give two events."
            )
        return found

    def value(given: Any, number: int) -> Any:
        if isinstance(given, str):
            return symbols.p[symbols.parameters.index(given)]
        return ca.SX(told(given, number) if callable(given) else float(given))

    found = []
    for number, event in enumerate(experiment.events, start=1):
        places = {n: i for i, n in enumerate(symbols.states)}
        after = {places[n]: symbols.x[places[n]] + value(v, number) for n, v in event.add.items()}
        after |= {places[n]: value(v, number) for n, v in event.set.items()}
        trigger, at = None, None if event.at is None else value(event.at, number)
        if event.when is not None and (trigger := gap_of(told(event.when, number))) is None:
            raise ModelError(
                f"The condition `when` of event {number} must compare quantities that change with "
                "time, for example when=lambda m, t: m.V[t] >= 2.0. For several conditions, give "
                "several events."
            )
        delay, is_after = value(event.delay, number), event.measured == "after"
        gap, closed = trigger or (None, True)
        jump = Jump(at, gap, after, delay, is_after, event.at_start, event.before, closed)
        found.append((-event.priority, number, jump))
    return tuple(jump for *_, jump in sorted(found, key=lambda one: one[:2]))


# Generic places to read equations at; those next to the ends show a lag phase.
INTERIOR = (0.14589803, 0.38196601, 0.72360680, 0.93301270, 0.98768834, 0.05278640, 0.01231166)


def read_systems(
    problem: Problem, experiments: Sequence[Experiment], *, compare: bool = True
) -> list[System]:
    """Translate the model as each experiment uses it; `compiled` keeps this for all later uses.

    Experiments of one kind (`igpe.problem.model.kind_of`) share equations that are read once.

    compare  whether what was translated is compared with the model
    raises   ModelError if an equation cannot be translated, depends on time in a way that cannot be
             followed or is not what Pyomo computes, or if the equations and their derivatives do
             not determine slopes and algebraic variables
    """
    kinds = [
        (kind_of(problem.model, e), tuple(e.inputs), e.start_time, bool(e.events))
        for e in experiments
    ]
    families: dict[Any, list[Experiment]] = {}
    for kind, experiment in zip(kinds, experiments, strict=True):
        families.setdefault(kind, []).append(experiment)
    read: dict[Any, _Reading] = {}
    systems = []
    for kind, experiment in zip(kinds, experiments, strict=True):
        again = kind in read
        if not again:
            read[kind] = _Reading(problem, families[kind])
        system = read[kind].system(experiment)
        if compare:
            require_agreement(problem, experiment, system, read[kind].instance, again=again)
        if (array := read[kind].derivatives) is not None:
            system = reduced(problem, experiment, system, array)
        systems.append(system)
    return systems


class _Reading:
    """The equations of experiments of one kind, read from a model at times of our own.

    instance     the model at these times
    derivatives  of equations of a higher index: these with their derivatives; else None
    """

    def __init__(self, problem: Problem, experiments: Sequence[Experiment]) -> None:
        every = dict.fromkeys(n for e in experiments for n in e.told)
        experiment = experiments[0].reporting(every)
        first = experiment.start_time
        span = max(float(e.times[-1]) for e in experiments) - first or 1.0
        places = [first + share * span for share in INTERIOR]
        times = [first, *places, first + span]
        self.problem, self.instance = problem, build(problem.model, times, experiment)
        interior = np.array(list(self.instance.time)[1:-1])  # the model may have times of its own
        if not interior.size:
            raise ModelError(
                f"The model's time has only the points {list(self.instance.time)}; the builder "
                "must put the times that it receives into its ContinuousSet: "
                "m.t = ContinuousSet(initialize=times)."
            )
        nearest = dict.fromkeys(float(interior[np.argmin(np.abs(interior - p))]) for p in places)
        self.usual = next(iter(nearest))
        self.symbols = make_symbols(problem, experiment, self.instance, self.usual)
        equations, self.measured, self.jumps = read_equations(
            self.instance, self.symbols, experiment.told, list(nearest)
        )
        self.read = System(
            symbols=self.symbols,
            equations=tuple(equations),
            residual=stack(equations.values()),
            measured=self.measured,
            starts={},
            any_times=set(map(float, self.instance.time)) == set(times),
            any_value=frozenset(_of_any_value(self.instance, self.symbols, self.usual)),
        )
        self.derivatives = None
        if not _is_solvable(self.read):
            _refuse_unsolvable(self.read, self.instance)
            names, residual = self.read.equations, self.read.residual
            self.derivatives = differentiated(names, residual, self.symbols)

    def system(self, experiment: Experiment) -> System:
        """The equations as one of the experiments uses them."""
        names = [e.name for e in self.problem.experiments]
        own = self.problem.instances[names.index(experiment.name)]
        used = {*self.read.equations, *experiment.told}
        jumps = tuple((n, condition) for n, condition in self.jumps if n in used)
        parts_of_own: dict[str, Any] = dict(
            measured={n: self.measured[n] for n in experiment.told},
            starts=_starts(experiment, own, self.symbols),
            jumps=jumps,
            events=read_jumps(experiment, self.instance, self.symbols, self.usual),
        )
        if self.derivatives is not None:
            return replace(self.read, **parts_of_own)
        return self.read.of_another(**parts_of_own)


def _of_any_value(instance: Instance, symbols: Symbols, time: float) -> Iterator[str]:
    """Algebraic variables of which the model says nothing but their equations."""
    for name in symbols.algebraics:
        data = instance.series[name][time]
        said = (*getattr(data, "bounds", (0, 0)), getattr(data, "value", 0))
        if all(number is None for number in said):
            yield name


def _starts(experiment: Experiment, instance: Instance, symbols: Symbols) -> dict[str, Any]:
    """State -> start value where the model gives it, with the inputs at the first time."""
    given, first = model_starts(instance), instance.first
    known = {id(instance.scalars[n]): symbols.p[i] for i, n in enumerate(symbols.parameters)}
    for name, value in experiment.inputs.items():
        data = instance.scalars.get(name, instance.series.get(name, {}).get(first))
        known[id(data)] = ca.SX(evaluate(value, first))
    starts: dict[str, Any] = dict(given.fixed)
    for state, constraint in given.conditions.items():
        unknown = ca.SX.sym(state)
        start = instance.states[state][first]
        translate = Translator({**known, id(start): unknown}, symbols.t)
        lower, body, _ = constraint.to_bounded_expression()
        residual = ca.SX(translate(body) - translate(lower))
        slope = ca.jacobian(residual, unknown)
        if ca.which_depends(residual, unknown, 2)[0] or slope.is_zero():
            raise ModelError(
                f"The initial condition '{constraint.name}' is not linear in '{state}', or does "
                f"not determine '{state}'. Write this condition as {state} == an expression in "
                "the parameters and inputs."
            )
        starts[state] = -ca.substitute(residual, unknown, 0) / slope
    return starts


def _is_solvable(system: System) -> bool:
    found = parts(incidence(system.residual, system.unknowns))
    return not found.spare_rows and not found.spare_columns


def _refuse_unsolvable(system: System, instance: Instance) -> None:
    """Refuse equations that their derivatives do not make solvable either."""
    slopes = {id(data) for series in instance.slopes.values() for data in series.values()}
    for name, constraint in instance.conditions.items():
        if any(id(v) in slopes for v in identify_variables(constraint.expr)):
            raise ModelError(
                f"The constraint '{name}' contains a derivative but is not indexed by time, so it "
                "applies only at individual times. Write it as a rule indexed by time: m.balance = "
                "Constraint(m.t, rule=lambda m, t: m.dA[t] == ...), not in a ConstraintList or as "
                "individual constraints."
            )
    found = at_any_order(system.residual, system.symbols)
    if not found.spare_rows and not found.spare_columns:
        return
    names = (*system.symbols.states, *system.symbols.algebraics)
    spare = [system.equations[i] for i in found.over_rows]
    free = [names[j] for j in found.under_columns]
    pairs = [(d, state) for d, state in without_formula(instance) if d in names]
    if lacking := [d for d, state in pairs if {d, state} & {*free}]:
        raise ModelError(
            f"The discretisation has no formula for {listed(lacking)}, so the equations do not "
            "determine all variables. Second derivatives have formulas only between the ends. For "
            "first derivatives, a balance at the upper end of a set needs the scheme 'backward', "
            "and one at the lower end 'forward'. Otherwise, write a boundary condition there. "
            "Variables can have their own schemes: "
            "igpe.integrators.FiniteDifference(50, {'hot': 'backward', 'cold': 'forward'}). With "
            "space=, igpe also has formulas for boundary conditions."
        )
    blocks = instance.model.component_objects(pyo.Block, active=True)
    if curves := [b.name for b in blocks if isinstance(b, pyo.Piecewise)]:
        raise ModelError(
            f"igpe does not support pyo.Piecewise ({listed(curves)}). Write the function as one "
            "expression: a smooth formula, such as a polynomial, or pyo.Expr_if(x < limit, ..., "
            "...) for each piece."
        )
    gaps = [f"'{name}' at {in_words(at)}" for name, at in skipped(instance).items()]
    many = f"; too many equations for the unknowns that they contain: {listed(spare)}"
    model, time = instance.model, instance.time
    has_space = any(s is not time for s in model.component_objects(ContinuousSet))
    raise ModelError(
        "Even when differentiated repeatedly, the equations do not determine the states and "
        "algebraic variables"
        + many * bool(spare)
        + f"; undetermined: {listed(free)}" * bool(free)
        + ". Remove an equation that follows from others, or add a missing equation."
        + " If a variable is an input, give it in Experiment(inputs=...)." * bool(free)
        + " At a boundary in space, give each variable a boundary condition. A balance can replace "
        "this condition only if the discretisation scheme has a formula for this point."
        * has_space
        + f" The model skips {in_words(gaps)}." * bool(free and gaps)
    )
