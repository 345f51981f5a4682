"""IDAS and implicit algebraic variables: their start, their bounds, their size."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import simulation
from pyomo import dae
from zoo import ZOO

from igpe.core.status import Status
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


def test_the_start_of_a_dae_is_consistent():
    case = next(c for c in ZOO if c.name == "dimer")
    came = simulation(case.problem(), [0.0, 1e-6]).run(np.array([0.6, 0.5]))
    root = (np.sqrt(1 + 8 * 0.5 * 3.0) - 1) / (4 * 0.5)
    assert came.implicit[0, 0] == pytest.approx(root, rel=1e-9)
    by_K = ((1 + 24 * 0.5) ** -0.5 * 12 * 2 - 4 * (np.sqrt(13.0) - 1)) / (4 * 0.5**2 * 4)
    assert came.measured_by_unknown[0, 1] == pytest.approx([0.0, by_K], rel=1e-8, abs=1e-10)


def branches(bounds, initial, *, size=1.0, times=(0.0, 0.5, 1.5)):
    """dx = k z, z^2 = x size: z has two branches; on the lower sqrt(x) falls linearly."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x, m.z = pyo.Var(m.t), pyo.Var(m.t, bounds=bounds, initialize=initial)
        m.dx = dae.DerivativeVar(m.x)
        m.k = pyo.Var(bounds=(0, 5))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.k * m.z[t])
        m.root = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] ** 2 == m.x[t] * size)
        return m

    run = Experiment(
        pd.DataFrame({"time": times, "x": np.full(len(times), size)}), start={"x": size}
    )
    return Problem(build, parameters=["k"], experiments=run)


@pytest.mark.parametrize(
    ("bounds", "initial", "sign"),
    [
        ((-10, 0), -1.0, -1),
        ((-10, 0), None, -1),
        ((-10, 0), 0.0, -1),
        ((None, None), -1.0, -1),
        ((None, -1e-3), 5.0, -1),
        ((0, None), -1.0, 1),
        ((None, None), None, 1),
    ],
)
def test_the_algebraic_root_is_that_of_the_model(bounds, initial, sign):
    times = np.array([0.0, 0.5, 1.5])
    came = simulation(branches(bounds, initial), times).run(np.array([0.8]))
    assert came.implicit[:, 0] == pytest.approx(sign + 0.4 * times, rel=1e-6)
    assert came.by_unknown[:, 0, 0] == pytest.approx(times * (sign + 0.4 * times), rel=1e-6)


def test_a_root_outside_the_bounds_is_a_status():
    came = simulation(branches((2.0, 10.0), 3.0), [0.0, 1.0]).run(np.array([0.8]))
    assert (came.status, came.reached) == (Status.INTEGRATION_BROKE, 0.0)


def test_algebraic_variables_of_any_size():
    problem = branches((-1e-8, 0), -1e-9, size=1e-9)
    times = np.array([0.0, 0.5, 1.5])
    came = simulation(problem, times).run(np.array([0.8]))
    assert came.implicit[:, 0] / 1e-9 == pytest.approx(-1 + 0.4 * times, rel=1e-6)
