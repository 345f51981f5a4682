"""States that are used up in finite time: what drains by a root, what reacts by a power.

Torricelli's tank, dh/dt = -k sqrt(h), is empty after 2/k; a shrinking core, dx/dt = k (1-x)^n with
n < 1, has reacted after 1/(k (1-n)). Integration overshoots both ends by its errors.
"""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from pyomo import dae

import igpe
from igpe.core.errors import EstimationFailed

TIMES = np.linspace(0.0, 14.0, 15)
TANK = np.clip(1 - 0.1 * TIMES, 0, None) ** 2
CORE = 1 - np.clip(1 - TIMES / 9, 0, None) ** 3


def _pose(slope, exact, start, bounds, seed=1):
    model = ode({"x": lambda m, t: slope(m, m.x[t])}, **bounds)
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
    with pytest.raises(EstimationFailed, match=r"sqrt\(x\) is undefined"):
        igpe.simulate(leak, {"k": 0.2})


@pytest.mark.parametrize(
    "share",
    [
        lambda c, m: c**m.n / (m.K**m.n + c**m.n),
        lambda c, m: 1 / (1 + (c / m.K) ** (-m.n)),
        lambda c, m: 1 - 1 / (1 + (c / m.K) ** m.n),
        lambda c, m: 1 / (1 + m.K**m.n / c**m.n),
        lambda c, m: 1 / (1 + (m.K / c) ** m.n),
    ],
)
@pytest.mark.parametrize("kind", ["input", "state"])
def test_a_dose_of_zero_has_an_effect_of_zero(share, kind):
    """0**n is 0, and infinity for -n, with derivatives by an unknown n."""

    def model(times):
        m = over_time(times, "R", "c", E=(0, 50), K=(0.01, 100), n=(0.3, 8))
        m.effect = pyo.Constraint(
            m.t, rule=lambda m, t: m.dR[t] == m.E * share(m.c[t], m) - 0.5 * m.R[t]
        )
        if kind == "state":
            m.dc = dae.DerivativeVar(m.c)
            m.stays = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t] == 0)
        return m

    times, runs = np.array([0.5, 1.0, 2.0, 4.0, 7.0]), []
    draw = np.random.default_rng(1).standard_normal
    for dose in (0.0, 1.0, 3.0, 8.0):
        effect = 4 * dose**2.3 / (3**2.3 + dose**2.3)
        measured = 2 * effect * (1 - np.exp(-0.5 * times)) + 0.02 * draw(len(times))
        starts = {"R": 0.0} | ({"c": dose} if kind == "state" else {})
        inputs = {"c": dose} if kind == "input" else {}
        table = pd.DataFrame({"time": times, "R": measured})
        runs.append(igpe.Experiment(table, start=starts, start_time=0, inputs=inputs, sigma=0.02))
    problem = igpe.Problem(model, parameters=["E", "K", "n"], experiments=runs)
    control = igpe.simulate(problem, {"E": 4.0, "K": 3.0, "n": 2.3}, times)["R"][: len(times)]
    assert control.to_numpy() == pytest.approx(np.zeros(len(times)), abs=1e-60)
    result = igpe.estimate(problem, certify=False)
    for estimate, true in zip(result.estimates, (4.0, 3.0, 2.3), strict=True):
        assert estimate.lower - 0.05 < true < estimate.upper + 0.05
    assert "good" in result.verdict["fit"]
