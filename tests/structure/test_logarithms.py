"""A measured logarithm says what it is the logarithm of, also of a state that starts at 0."""

import casadi as ca
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

import igpe
from igpe.equations.symbols import without_logarithm

EVENT = igpe.Event(at=23.0, set={"P": lambda m, t: 0.9 * m.P[t]})


def model(times):
    """P is made from m, which decays; the logarithm of P is measured."""
    m = over_time(times, "m P", made=(0.01, 100), lost=(1e-3, 1), decay=(0.01, 10))
    m.a = pyo.Constraint(m.t, rule=lambda m, t: m.dm[t] == 0.5 - m.decay * m.m[t])
    m.b = pyo.Constraint(m.t, rule=lambda m, t: m.dP[t] == m.made * m.m[t] - m.lost * m.P[t])
    m.L = pyo.Expression(m.t, rule=lambda m, t: pyo.log10(m.P[t]))
    return m


@pytest.mark.parametrize("events", [[], [EVENT]])
def test_what_a_logarithm_of_0_at_the_start_determines_is_seen(events):
    data = pd.DataFrame({"time": [1.0, 2, 4, 8, 16, 30, 50], "L": 0.0, "m": 0.0})
    run = igpe.Experiment(data, start={"m": 0.6, "P": 0.0}, start_time=0.0, events=events)
    parameters = ["made", "lost", "decay"]
    said = str(igpe.check(igpe.Problem(model, parameters=parameters, experiments=run)))
    wanted = "locally identifiable" if events else "globally identifiable"
    assert said.count(wanted) == len(parameters)
    assert "Undecided" not in said


def test_only_a_known_scale_and_offset_are_taken_off_with_a_logarithm():
    x, k = ca.SX.sym("x"), ca.SX.sym("k")
    logarithm = ca.log(k * x)
    for form in (logarithm, 2 - ca.log10(k * x) / 3, -logarithm + logarithm * 0):
        assert ca.is_equal(without_logarithm(form), k * x, 5)
    for form in (k * logarithm, logarithm + k, 1 / logarithm, ca.exp(logarithm), x, ca.SX(2)):
        assert ca.is_equal(without_logarithm(form), form, 5)
