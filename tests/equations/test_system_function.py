"""The equations as functions: exact first and second derivatives, and where they are linear."""

from typing import Any

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from zoo import ZOO, Case

from igpe.equations.compiled import compiled
from igpe.equations.system import equation_linearity
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

cases = pytest.mark.parametrize("case", ZOO, ids=lambda c: c.name)


def central(function, point: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Derivative by central differences, one column per entry of the point."""
    steps = h * np.eye(len(point))
    return np.stack([(function(point + s) - function(point - s)) / (2 * h) for s in steps], axis=-1)


@cases
def test_first_and_second_derivatives_are_exact(case: Case) -> None:
    problem = case.problem()
    system = compiled(problem).systems[0]
    everything = ca.vertcat(*system.symbols.vectors)
    n = everything.numel()
    whole = ca.Function("whole", [everything], [system.residual])
    first = ca.Function("first", [everything], [ca.jacobian(system.residual, everything)])
    weights = np.arange(1.0, system.residual.numel() + 1)
    hessian, gradient = ca.hessian(ca.dot(weights, system.residual), everything)
    second = ca.Function("second", [everything], [hessian])
    slope = ca.Function("slope", [everything], [gradient])
    point = np.random.default_rng(3).uniform(0.5, 1.5, n)

    def value(x: np.ndarray) -> np.ndarray:
        return np.asarray(whole(x)).ravel()

    def by_weight(x: np.ndarray) -> np.ndarray:
        return np.asarray(slope(x)).ravel()

    assert np.asarray(first(point)) == pytest.approx(central(value, point), rel=1e-6, abs=1e-7)
    assert np.asarray(second(point)) == pytest.approx(central(by_weight, point), rel=1e-6, abs=1e-6)


@cases
def test_the_function_takes_the_symbols_in_their_order(case: Case) -> None:
    problem = case.problem()
    system = compiled(problem).systems[0]
    function = system.function()
    assert function.name_in() == ["t", "dx", "x", "z", "u", "p", "s"]
    assert function.size1_out(0) == len(system.equations)


def test_in_which_parameters_an_equation_is_linear() -> None:
    case = next(c for c in ZOO if c.name == "michaelis_menten")
    problem = case.problem()
    system = compiled(problem).systems[0]
    found = list(equation_linearity(system).values())
    names = [[system.symbols.parameters[i] for i in one.individually] for one in found]
    nonlinear = set(system.symbols.parameters) - set(names[0])
    assert len(nonlinear) == 1  # the Michaelis constant
    assert set(found[0].jointly) <= set(found[0].individually)


@pytest.mark.parametrize("inside", [0.5, 1.9999])
def test_a_branch_on_time_between_the_reading_places_is_read(inside: float) -> None:
    def model(times: list[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x = pyo.Var(m.t)
        m.dx = dae.DerivativeVar(m.x)
        m.k = pyo.Var(bounds=(0, 1))

        def rate(m: Any, t: float) -> Any:
            if t == m.t.first():
                return pyo.Constraint.Skip
            return m.dx[t] == -m.k * m.x[t] + (20 if inside <= t <= inside + 1e-3 else 0)

        m.rate = pyo.Constraint(m.t, rule=rate)
        return m

    data = pd.DataFrame({"time": [0.0, 1.0, 2.0], "x": [1.0, 0.5, 0.2]})
    run = Experiment(data, start={"x": 1.0})
    problem = Problem(model, parameters=["k"], experiments=run)
    f = compiled(problem).systems[0].function()
    for t, source in (
        (inside - 1e-6, 0),
        (inside, 20),
        (inside + 1e-3, 20),
        (inside + 1.0001e-3, 0),
        (3, 0),
    ):
        residual = f(t, 0.0, 1.0, [], [], 0.25, 0.0)
        assert float(residual) == pytest.approx(0.25 - source)
