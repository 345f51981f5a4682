"""Models in tiny units, and optima that are known already."""

import numpy as np
import pyomo.environ as pyo
import pytest

from igpe.core.status import Status
from igpe.solvers.ipopt import ASTRAY, KNOWN, Ipopt, KnownOptimum
from igpe.solvers.nl import Sizes


def test_sizes_make_tolerances_relative() -> None:
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(initialize=2e-12), pyo.Var(initialize=2e-12)
    m.product = pyo.Constraint(expr=m.x * m.y == 1e-24)
    m.cost = pyo.Objective(expr=(m.x - 2e-12) ** 2 + m.y**2)
    sizes = Sizes(pyo.ComponentMap([(m.x, 1e-12), (m.y, 1e-12)]), 1e-24)
    answer = Ipopt().prepare(m, sizes).solve()
    assert answer.status is Status.CONVERGED
    x = max(r.real for r in np.roots([1, -2, 0, 0, -1]) if abs(r.imag) < 1e-9)
    assert [m.x.value, m.y.value] == pytest.approx([x * 1e-12, 1e-12 / x], rel=1e-6, abs=0.0)


def test_a_solve_stops_at_a_known_optimum() -> None:
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(initialize=-1.2), pyo.Var(initialize=1.0)
    m.cost = pyo.Objective(expr=1 + 100 * (m.y - m.x**2) ** 2 + (1 - m.x) ** 2)
    prepared = Ipopt().prepare(m)
    there = KnownOptimum((m.x,), np.array([1.0]), np.array([0.05]), 1.0, 0.1)
    elsewhere = KnownOptimum((m.x,), np.array([5.0]), np.array([0.05]), 1.0, 0.1)
    stopped = prepared.solve(known=[elsewhere, there])
    assert (stopped.status, stopped.message) == (Status.CONVERGED, KNOWN)
    assert abs(m.x.value - 1) <= 0.05
    m.x.set_value(-1.2)
    m.y.set_value(1.0)
    whole = prepared.solve(known=[elsewhere])
    assert whole.message != KNOWN
    assert whole.iterations > stopped.iterations


def test_a_solve_that_goes_astray_is_given_up_once_an_optimum_is_known() -> None:
    model = pyo.ConcreteModel()
    model.x, model.y = pyo.Var(initialize=0.0), pyo.Var(initialize=1.0)
    model.small = pyo.Constraint(expr=pyo.exp(model.x) == 1e-9 * model.y**2)
    model.large = pyo.Constraint(expr=model.y == 1e-3 * pyo.exp(-model.x))
    model.square = pyo.Objective(expr=(model.x - 1) ** 2 + model.y**2)
    prepared = Ipopt().prepare(model)
    known = KnownOptimum((model.x,), np.array([50.0]), np.array([1e-3]), 1.0, 1e-3)
    stopped = prepared.solve(known=[known])
    assert stopped.message == ASTRAY
    assert stopped.status is Status.FAILED
    model.x, model.y = 0.0, 1.0
    alone = prepared.solve()
    assert alone.status is not Status.FAILED  # with nothing else at hand it is tried to the end
    assert alone.iterations > stopped.iterations
