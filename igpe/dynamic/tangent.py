"""Directions that active constraints on parameters leave free, for the statistics.

Only constraints that hold nothing but parameters are differentiated; those with states stay out,
and the result says so.
"""

from typing import Any

import casadi as ca
import numpy as np
from pyomo.core.expr.visitor import identify_variables

from igpe.arrays import FloatArray
from igpe.equations.stack import stack
from igpe.equations.translate import Translator
from igpe.experiment import Experiment
from igpe.problem import Problem

ACTIVE = 1e-6  # distance from its bound, relative to the bound's size, of an active inequality


def parameter_constraints(problem: Problem) -> list[tuple[Experiment, Any]]:
    """Constraints that hold only parameters, each with the experiment it comes from."""
    found = []
    for experiment, starts in zip(problem.experiments, problem.starts, strict=True):
        for constraint in starts.others.values():
            names = {v.name for v in identify_variables(constraint.expr)}
            if names <= set(problem.parameters):
                found.append((experiment, constraint))
    return found


def active_jacobian(problem: Problem, x: FloatArray) -> FloatArray:
    """(n_active, n) derivative of the active parameter constraints by the free unknowns, at x."""
    box = problem.box
    values = {**problem.fixed, **box.mapping(x)}
    rows = []
    for experiment, constraint in parameter_constraints(problem):
        own = list({v.name: v for v in identify_variables(constraint.expr)}.values())
        p = stack(ca.SX.sym(v.name) for v in own)
        lower, body, upper = constraint.to_bounded_expression()
        translate = Translator({id(v): p[i] for i, v in enumerate(own)}, ca.SX.sym("t"))
        expression = ca.SX(translate(body))
        both = ca.Function("both", [p], [expression, ca.jacobian(expression, p)])
        unknowns = [problem.unknown_of(v.name, experiment) for v in own]
        value, slope = both([values[n] for n in unknowns])
        if not _is_active(float(value), [translate(b) for b in (lower, upper) if b is not None]):
            continue
        row = np.zeros(len(box))
        for name, s in zip(unknowns, np.asarray(slope).ravel(), strict=True):
            if name in box.names:
                row[box.names.index(name)] += s
        rows.append(row)
    return np.array(rows).reshape(len(rows), len(box))


def _is_active(value: float, bounds: list[Any]) -> bool:
    return any(abs(value - float(b)) <= ACTIVE * max(abs(float(b)), 1.0) for b in bounds)
