"""States that are used up in finite time: what drains by a root, what reacts by a power.

Torricelli's tank, dh/dt = -k sqrt(h), is empty after 2/k; a shrinking core, dx/dt = k (1-x)^n with
n < 1, has reacted after 1/(k (1-n)). Integration overshoots both ends by its errors.
"""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.core.errors import EstimationFailed

TIMES = np.linspace(0.0, 14.0, 15)
TANK = np.clip(1 - 0.1 * TIMES, 0, None) ** 2
CORE = 1 - np.clip(1 - TIMES / 9, 0, None) ** 3


def _pose(slope, exact, start, bounds, seed=1):
    def model(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x = pyo.Var(m.t)
        m.dx = dae.DerivativeVar(m.x)
        for name, limits in bounds.items():
            m.add_component(name, pyo.Var(bounds=limits))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == slope(m, m.x[t]))
        return m

    noise = 0.01 * np.random.default_rng(seed).standard_normal(len(TIMES))
    run = igpe.Experiment(pd.DataFrame({"time": TIMES, "x": exact + noise}), start={"x": start})
    return igpe.Problem(model, parameters=list(bounds), experiments=run)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [igpe.integrators.Sundials, igpe.integrators.Automatic])
def test_a_state_stays_where_it_is_used_up(integrator):
    tank = _pose(lambda m, h: -m.k * pyo.sqrt(h), TANK, 1.0, {"k": (1e-3, 10)})
    core = _pose(lambda m, x: m.k * (1 - x) ** m.n, CORE, 0.0, {"k": (1e-3, 10), "n": (0.1, 2)})
    method = integrator(1e-8, 1e-10)
    drained = igpe.simulate(tank, {"k": 0.2}, TIMES, integrator=method)
    assert drained["x"].to_numpy() == pytest.approx(TANK, abs=1e-5)
    reacted = igpe.simulate(core, {"k": 1 / 3, "n": 2 / 3}, TIMES, integrator=method)
    assert reacted["x"].to_numpy() == pytest.approx(CORE, abs=1e-5)


def test_a_tank_that_empties_is_estimated_and_judged():
    tank = _pose(lambda m, h: -m.k * pyo.sqrt(h), TANK, 1.0, {"k": (1e-3, 10)})
    result = igpe.estimate(tank, certify=False)
    (k,) = result.estimates
    assert k.lower < 0.2 < k.upper < 1.1 * k.lower
    assert "good" in result.verdict["fit"]


def test_a_conversion_of_one_is_judged():
    core = _pose(lambda m, x: m.k * (1 - x) ** m.n, CORE, 0.0, {"k": (1e-3, 10), "n": (0.1, 2)})
    result = igpe.estimate(core, certify=False)
    assert "good" in result.verdict["fit"]
    assert "determined" in result.verdict["parameters"]


def test_a_root_of_what_is_clearly_negative_has_no_value():
    """What drains on regardless leaves the model's domain: no rest hides it."""
    leak = _pose(lambda m, h: -m.k * pyo.sqrt(h) - 0.5, TANK, 1.0, {"k": (1e-3, 10)})
    with pytest.raises(EstimationFailed, match="negative numbers are undefined"):
        igpe.simulate(leak, {"k": 0.2})
