"""From a user's model to the equations of each experiment, and whether these are what was written.

The model is built at times of our own, its equations are read at several of them, translated to
CasADi, and compared with Pyomo's values. What cannot be read is refused.
"""

from typing import Any

import casadi as ca
import numpy as np
from pyomo.core.expr.visitor import identify_variables

from igpe.core.errors import ModelError
from igpe.equations.incidence import incidence, parts
from igpe.equations.reading.agreement import require_agreement
from igpe.equations.reading.events import read_jumps
from igpe.equations.reading.readings import read_equations
from igpe.equations.symbols import Symbols, make_symbols, stack
from igpe.equations.system import System
from igpe.equations.translate import Translator
from igpe.problem.experiment import Experiment
from igpe.problem.model import Instance, build, model_starts
from igpe.problem.problem import Problem

# Generic places to read equations at; those next to the ends show a lag phase.
INTERIOR = (0.14589803, 0.38196601, 0.72360680, 0.93301270, 0.98768834, 0.05278640, 0.01231166)


def read_system(problem: Problem, experiment: Experiment, *, compare: bool = True) -> System:
    """Translate the model as one experiment uses it; `compiled` keeps it for all later uses.

    compare  whether what was translated is compared with the model
    raises   ModelError if an equation cannot be translated, depends on time in a way that cannot be
             followed or is not what Pyomo computes, or if the equations do not determine slopes and
             algebraic variables (higher index)
    """
    first, last = experiment.start_time, float(experiment.times[-1])
    span = last - first or 1.0
    places = [first + share * span for share in INTERIOR]
    times = [first, *places, first + span]
    instance = build(problem.model, times, experiment)
    interior = np.array(list(instance.time)[1:-1])  # the model may have times of its own
    if not interior.size:
        raise ModelError(
            f"The model's time has only the points {list(instance.time)}; the builder must put the "
            "times it is given into its ContinuousSet: m.t = ContinuousSet(initialize=times)."
        )
    nearest = dict.fromkeys(float(interior[np.argmin(np.abs(interior - p))]) for p in places)
    symbols = make_symbols(problem, experiment, instance, next(iter(nearest)))
    equations, measured, jumps = read_equations(instance, symbols, experiment.told, list(nearest))
    system = System(
        symbols=symbols,
        equations=tuple(equations),
        residual=stack(equations.values()),
        measured=measured,
        starts=_starts(instance, symbols),
        any_times=set(map(float, instance.time)) == set(times),
        jumps=tuple(jumps),
        events=read_jumps(experiment, instance, symbols, next(iter(nearest))),
    )
    _refuse_unsolvable(system, instance)
    if compare:
        require_agreement(problem, experiment, system, instance)
    return system


def _starts(instance: Instance, symbols: Symbols) -> dict[str, Any]:
    given = model_starts(instance)
    known = {id(instance.scalars[n]): symbols.p[i] for i, n in enumerate(symbols.parameters)}
    starts: dict[str, Any] = dict(given.fixed)
    for state, constraint in given.conditions.items():
        unknown = ca.SX.sym(state)
        start = instance.states[state][instance.first]
        translate = Translator({**known, id(start): unknown}, symbols.t)
        lower, body, _ = constraint.to_bounded_expression()
        residual = ca.SX(translate(body) - translate(lower))
        slope = ca.jacobian(residual, unknown)
        if ca.which_depends(residual, unknown, 2)[0] or slope.is_zero():
            raise ModelError(
                f"The start condition '{constraint.name}' is not linear in '{state}', or does not "
                f"determine it; write it as {state} == expression of parameters."
            )
        starts[state] = -ca.substitute(residual, unknown, 0) / slope
    return starts


def _refuse_unsolvable(system: System, instance: Instance) -> None:
    found = parts(incidence(system.residual, system.unknowns))
    if not found.spare_rows and not found.spare_columns:
        return
    slopes = {id(data) for series in instance.slopes.values() for data in series.values()}
    for name, constraint in instance.conditions.items():
        if any(id(v) in slopes for v in identify_variables(constraint.expr)):
            raise ModelError(
                f"The constraint '{name}' holds a derivative but is not indexed by the time, so "
                "igpe cannot tell what holds at other times. Write it as a rule over the time: "
                "m.balance = Constraint(m.t, rule=lambda m, t: m.dA[t] == ...), not in a "
                "ConstraintList or as single constraints."
            )
    spare = [system.equations[i] for i in found.over_rows]
    free = [system.unknown_names[j] for j in found.under_columns]
    many = f"; too many equations: {spare} hold only known quantities or share unknowns"
    raise ModelError(
        "The equations do not determine the slopes and algebraic variables at each time"
        + many * bool(spare)
        + f"; undetermined: {free}" * bool(free)
        + ". If an equation constrains states alone the model has a higher index: differentiate it "
        "and use the result in its place. If a variable is an input, give it in "
        "Experiment(inputs=...)."
    )
