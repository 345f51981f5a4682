"""What methods on constant unknowns say of unknowns that vary, and of constraints."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

import igpe

TIMES = np.linspace(0.0, 2.0, 9)
SEARCHES = "Use igpe.MultipleShooting"


def model(times):
    m = over_time(times, "x", scale=(0.1, 5))
    m.k = pyo.Var(m.t, bounds=(0, 5))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.scale * m.k[t] * m.x[t])
    return m


def kept(times):
    m = model(times)
    m.k.fix(1.0)
    m.path = pyo.Constraint(m.t, rule=lambda m, t: m.x[t] <= 2)
    return m


RUN = igpe.Experiment(pd.DataFrame({"time": TIMES, "x": np.exp(-TIMES)}), start={"x": 1.0})
PIECES = {"k": igpe.losses.PiecewiseConstant([1.0], 0.0, 5.0)}
VARYING = igpe.Problem(model, parameters=["scale"], experiments=RUN, time_varying=PIECES)
KEPT = igpe.Problem(kept, parameters=["scale"], experiments=RUN)


@pytest.mark.parametrize("method", [igpe.profile, igpe.bootstrap, igpe.predict, igpe.certify])
def test_analyses_name_what_helps_them_and_no_other_search(method):
    with pytest.raises(igpe.errors.Unsupported) as refused:
        method(VARYING, dict.fromkeys(VARYING.box.names, 1.0))
    assert "pyo.Expr_if(t < 30" in str(refused.value)
    assert SEARCHES not in str(refused.value)


def test_searches_name_others():
    for problem in (VARYING, KEPT):
        with pytest.raises(igpe.errors.Unsupported, match=SEARCHES):
            igpe.IncrementalShooting().estimate(problem, dict.fromkeys(problem.box.names, 1.0))


@pytest.mark.parametrize("analysis", [igpe.profile, igpe.bootstrap, igpe.predict])
@pytest.mark.parametrize("method", [igpe.MultipleShooting(), "single"])
def test_analyses_name_the_methods_that_they_support(analysis, method):
    name = type(method).__name__
    with pytest.raises(igpe.errors.ProblemError, match=f"method is {name}; igpe.* needs igpe.Sing"):
        analysis(KEPT, {"scale": 1.0}, method=method)
