"""The equations as functions: exact first and second derivatives, and where they are linear."""

import casadi as ca
import numpy as np
import pytest
from zoo import ZOO, Case

from igpe.equations.linearity import equation_linearity
from igpe.equations.system import read_system

cases = pytest.mark.parametrize("case", ZOO, ids=lambda c: c.name)


def central(function, point: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Derivative by central differences, one column per entry of the point."""
    steps = h * np.eye(len(point))
    return np.stack([(function(point + s) - function(point - s)) / (2 * h) for s in steps], axis=-1)


@cases
def test_first_and_second_derivatives_are_exact(case: Case) -> None:
    problem = case.problem()
    system = read_system(problem, problem.experiments[0])
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
    system = read_system(problem, problem.experiments[0])
    function = system.function()
    assert function.name_in() == ["t", "dx", "x", "z", "u", "p", "s"]
    assert function.size1_out(0) == len(system.equations)


def test_in_which_parameters_an_equation_is_linear() -> None:
    case = next(c for c in ZOO if c.name == "michaelis_menten")
    problem = case.problem()
    system = read_system(problem, problem.experiments[0])
    found = list(equation_linearity(system).values())
    names = [[system.symbols.parameters[i] for i in one.individually] for one in found]
    nonlinear = set(system.symbols.parameters) - set(names[0])
    assert len(nonlinear) == 1  # the Michaelis constant
    assert set(found[0].jointly) <= set(found[0].individually)
