"""Single shooting and its residuals on problems with known parameters."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from zoo import CASES, every_case

from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import NormalPrior
from igpe.problem.problem import Problem
from models import rikitake


@every_case
def test_the_derivative_of_the_residuals_against_central_differences(case):
    problem = case.problem(noise=0.05)
    residuals = Residuals(problem, Sundials(rtol=1e-11, atol=1e-13))
    x = problem.box.vector(case.near)
    exact = residuals(x).jacobian
    for i in range(len(x)):
        h = 1e-4 * x[i] * np.eye(len(x))[i]
        central = (residuals(x + h).residual - residuals(x - h).residual) / (2 * h[i])
        assert exact[:, i] == pytest.approx(central, rel=1e-5, abs=1e-5 * abs(central).max())


def decay_runs(**second):
    """Two decays with start values 2 and 1, sigma 0.1 and 0.2."""
    t = np.linspace(0.0, 3.0, 7)
    tables = [pd.DataFrame({"time": t, "A": a0 * np.exp(-0.7 * t)}) for a0 in (2.0, 1.0)]
    first = Experiment(tables[0], name="one", start={"A": 2.0}, sigma=0.1)
    given = {"name": "two", "start": {"A": Unknown(0, 5)}, "sigma": 0.2, **second}
    return [first, Experiment(tables[1], **given)]


def decays(**settings):
    """The problem of both decays."""
    return Problem(CASES["decay"].builder, parameters=["k"], experiments=decay_runs(), **settings)


def test_residuals_are_weighted_and_priors_stand_at_the_end():
    problem = decays(priors={"k": NormalPrior(1.0, 0.5), "A(t0)@two": NormalPrior(2.0, 4.0)})
    residuals = Residuals(problem, Sundials())
    at = residuals(problem.box.vector({"k": 0.5, "A(t0)@two": 3.0}))
    t = np.linspace(0.0, 3.0, 7)
    first = (2 * np.exp(-0.5 * t) - 2 * np.exp(-0.7 * t)) / 0.1
    second = (3 * np.exp(-0.5 * t) - np.exp(-0.7 * t)) / 0.2
    assert at.residual == pytest.approx([*first, *second, -1.0, 0.25], rel=1e-6, abs=1e-8)
    assert at.jacobian[:7, 1].tolist() == [0.0] * 7
    assert at.jacobian[7:14, 1] == pytest.approx(np.exp(-0.5 * t) / 0.2, rel=1e-6)
    assert at.jacobian[14:].tolist() == [[2.0, 0.0], [0.0, 0.25]]


def test_unknown_starts_and_shared_parameters_are_found():
    found = SingleShooting().estimate(decays(), {"k": 2.0, "A(t0)@two": 4.0})
    assert found.parameters == pytest.approx({"k": 0.7, "A(t0)@two": 1.0}, rel=1e-6)


def test_local_parameters_are_found_each_from_its_own_experiment():
    t = np.linspace(0.0, 3.0, 7)
    runs = [
        Experiment(pd.DataFrame({"time": t, "A": np.exp(-k * t)}), start={"A": 1.0})
        for k in (0.3, 1.1)
    ]
    problem = Problem(CASES["decay"].builder, parameters=["k"], local=["k"], experiments=runs)
    found = SingleShooting().estimate(problem, {"k@1": 0.7, "k@2": 0.7})
    assert found.parameters == pytest.approx({"k@1": 0.3, "k@2": 1.1}, rel=1e-6)


def test_a_strong_prior_wins_and_a_held_unknown_stays():
    strong = SingleShooting().estimate(
        decays(priors={"k": NormalPrior(1.0, 1e-6)}), {"k": 0.5, "A(t0)@two": 1.0}
    )
    assert strong.parameters["k"] == pytest.approx(1.0, abs=1e-4)
    held = SingleShooting().estimate(decays().fixing({"k": 0.7}), {"A(t0)@two": 4.0})
    assert held.parameters == pytest.approx({"A(t0)@two": 1.0}, rel=1e-6)


def test_nothing_to_estimate_is_a_status_with_the_cost():
    everything = {"k": 0.7, "A(t0)@two": 2.0}
    found = SingleShooting().estimate(decays().fixing(everything), {})
    t = np.linspace(0.0, 3.0, 7)
    assert (found.status, dict(found.parameters)) == (Status.NOTHING_TO_DO, {})
    assert found.objective == pytest.approx(np.sum((np.exp(-0.7 * t) / 0.2) ** 2), rel=1e-6)


def test_missing_values_and_replicates():
    t = [0.0, 1.0, 1.0, 2.0, 3.0]
    data = pd.DataFrame({"time": t, "A": 2 * np.exp(-0.7 * np.array(t))})
    data.loc[3, "A"] = np.nan
    data.loc[[1, 2], "A"] += [0.01, -0.01]
    run = Experiment(data, start={"A": 2.0}, replicates=True)
    problem = Problem(CASES["decay"].builder, parameters=["k"], experiments=run)
    found = SingleShooting().estimate(problem, {"k": 1.5})
    assert found.parameters["k"] == pytest.approx(0.7, rel=1e-6)
    assert found.objective == pytest.approx(2e-4, rel=1e-6)


def test_chaos_whose_derivatives_have_no_square_is_a_status():
    found = SingleShooting(Sundials()).estimate(rikitake.problem(), rikitake.START)
    assert found.status is Status.INTEGRATION_BROKE
    assert "too large to be squared" in found.notes[0]


def test_what_it_cannot_do_is_refused():
    def tied(times):
        m = CASES["decay"].builder(times)
        m.end = pyo.Constraint(expr=m.A[m.t.last()] >= 0.1)
        return m

    run = Experiment(CASES["decay"].data(), start={"A": 2.0}, start_time=0.0)
    problem = Problem(tied, parameters=["k"], experiments=run)
    with pytest.raises(Unsupported, match=r"constraints \['end'\]\. Use igpe\.MultipleShooting"):
        SingleShooting().estimate(problem, {})


@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e6])
@pytest.mark.parametrize("measured", [["A", "B", "C"], ["B"]])
def test_concentrations_of_any_size_give_the_same_rates(size, measured):
    case = CASES["consecutive"]

    def found(factor):
        table = case.data()[["time", *measured]]
        table[measured] *= factor * (1 + 0.05 * np.cos(np.arange(len(table))))[:, None]
        start = {n: factor * v for n, v in case.start.items()}
        run = Experiment(table, start=start, sigma=0.01 * factor, start_time=0.0)
        problem = Problem(case.builder, parameters=list(case.truth), experiments=run)
        return SingleShooting().estimate(problem, case.near)

    small, plain = found(size), found(1.0)
    assert small.status is Status.CONVERGED
    assert small.parameters == pytest.approx(plain.parameters, rel=1e-6)
    assert small.objective == pytest.approx(plain.objective, rel=1e-6)


def rooted(times):
    """The chain, measured by the root of its intermediate."""
    m = CASES["consecutive"].builder(times)
    m.y = pyo.Expression(m.t, rule=lambda m, t: pyo.sqrt(m.k2 * m.B[t]))
    m.w = pyo.Expression(m.t, rule=lambda m, t: pyo.sqrt(m.k1 - 1) + m.B[t])
    return m


def test_a_measured_root_that_starts_at_zero():
    case = CASES["consecutive"]
    table = case.data()
    table["y"] = np.sqrt(case.truth["k2"] * table["B"].clip(0))
    table = pd.concat([pd.DataFrame({"time": [0.0], "y": [0.0]}), table[table["time"] > 0]])
    run = Experiment(table[["time", "y"]], start=case.start)
    problem = Problem(rooted, parameters=list(case.truth), experiments=run)
    found = SingleShooting().estimate(problem, case.near)
    assert found.status is Status.CONVERGED
    assert found.parameters == pytest.approx(case.truth, rel=1e-4)


def test_an_infinite_derivative_is_no_derivative():
    case = CASES["consecutive"]
    run = Experiment(case.data()[["time", "B"]].rename(columns={"B": "w"}), start=case.start)
    problem = Problem(rooted, parameters=list(case.truth), experiments=run)
    at = Residuals(problem, Sundials())
    assert at(problem.box.vector({"k1": 1.0, "k2": 0.4})) is None
    found = SingleShooting().estimate(problem, {"k1": 1.0, "k2": 0.4})
    assert found.status is Status.INTEGRATION_BROKE
