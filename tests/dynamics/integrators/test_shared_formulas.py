"""One compiled formula for experiments that differ in numbers, 0 and 1 among them."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import needs_compiler
from ode import over_time

import igpe
from igpe.dynamics.integrators.runge_kutta import RungeKuttaIntervals
from igpe.dynamics.shooting.residuals import runs_of
from igpe.equations.compiled import compiled

TIMES = np.array([0.0, 0.5, 1.0, 2.0, 4.0])


def reactor(extra):
    """A decays, a drug takes B away; `extra` is added to what B gains."""

    def model(times):
        m = over_time(
            times,
            "A B",
            k={"bounds": (0.01, 10), "initialize": 0.8},
            d={"bounds": (0.01, 10), "initialize": 0.3},
        )
        m.drug = pyo.Param(m.t, mutable=True, initialize=0.0)
        m.n = pyo.Param(m.t, mutable=True, initialize=1.0)
        m.rate_a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        m.rate_b = pyo.Constraint(
            m.t,
            rule=lambda m, t: (
                m.dB[t] == m.k * m.A[t] - m.d * m.drug[t] * m.B[t] + extra(m, t) * m.n[t] / m.n[t]
            ),
        )
        return m

    return model


def run(name, start, **inputs):
    table = pd.DataFrame({"time": TIMES, "A": np.exp(-TIMES), "B": 0.5})
    return igpe.Experiment(table, name=name, start={"A": 1.0, "B": start}, inputs=inputs, sigma=0.1)


def problem(extra, runs):
    return igpe.Problem(reactor(extra), parameters=["k", "d"], experiments=runs)


def trajectories(made):
    method = igpe.integrators.Automatic()
    q = np.array([0.7, 0.4])
    return [r.simulation.run(q[: len(r.ivp.unknowns)]) for r in runs_of(made, method)]


def require_same_alone(extra, runs):
    """Together and each alone: the numbers that an experiment has of its own formula."""
    together = trajectories(problem(extra, runs))
    for one, own in zip(together, runs, strict=True):
        (alone,) = trajectories(problem(extra, [own]))
        assert one.status.usable
        assert alone.status.usable
        np.testing.assert_allclose(one.measured, alone.measured, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(one.by_unknown, alone.by_unknown, rtol=1e-7, atol=1e-9)


def libraries(made):
    every = [r.simulation.intervals for r in runs_of(made, igpe.integrators.Automatic())]
    assert all(isinstance(one, RungeKuttaIntervals) for one in every)
    return {one.model.slopes.slopes for one in every}


@pytest.mark.slow
@needs_compiler
def test_experiments_with_and_without_a_drug_share_a_library_and_keep_their_numbers():
    runs = [run("none", 0.1, drug=0.0), run("one", 0.1, drug=1.0), run("more", 0.2, drug=2.5)]
    made = problem(lambda m, t: 0.0, runs)
    assert len(libraries(made)) == 1
    require_same_alone(lambda m, t: 0.0, runs)


@pytest.mark.slow
@needs_compiler
def test_numbers_in_smooth_functions_are_shared():
    """exp(d u) is 1 where u is 0, with no derivative by d."""

    def extra(m, t):
        return pyo.exp(-m.d * m.drug[t]) * m.A[t] + pyo.sin(m.k * m.drug[t])

    runs = [run("none", 0.1, drug=0.0), run("one", 0.1, drug=1.0), run("more", 0.2, drug=2.5)]
    made = problem(extra, runs)
    assert compiled(made).constants == [{"drug"}] * 3
    assert len(libraries(made)) == 1
    require_same_alone(extra, runs)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    "lost",
    [pyo.log, lambda b: 1 / b, lambda b: 1 / (b * pyo.exp(1 / b))],
    ids=["logarithm", "quotient", "both"],
)
def test_a_term_without_a_value_does_not_count_where_its_factor_is_zero(lost):
    """B starts at 0, and 0 * log(0) is no number: the experiment's own formula has no such term."""
    runs = [run("none", 0.0, drug=0.0), run("some", 0.5, drug=0.01)]
    made = problem(lambda m, t: -m.drug[t] * lost(m.B[t]), runs)
    assert all(one.status.usable for one in trajectories(made))
    require_same_alone(lambda m, t: -m.drug[t] * lost(m.B[t]), runs)


def test_numbers_in_exponents_and_conditions_stay_where_they_are():
    def extra(m, t):
        return 0.1 * m.A[t] ** m.n[t] + pyo.Expr_if(t >= m.drug[t], 0.1, 0.0)

    runs = [run("first", 0.1, drug=0.0, n=1.0), run("other", 0.1, drug=1.0, n=2.0)]
    assert compiled(problem(extra, runs)).constants == [frozenset(), frozenset()]
    runs = [run("first", 0.1, drug=0.0, n=2.0), run("other", 0.1, drug=1.0, n=2.0)]
    assert compiled(problem(lambda m, t: 0.0, runs)).constants == [{"drug"}, {"drug"}]


def test_experiments_of_one_model_are_read_once():
    runs = [run("none", 0.1, drug=0.0), run("one", 0.1, drug=1.0)]
    one, other = compiled(problem(lambda m, t: 0.0, runs)).systems
    assert one.residual is other.residual
    assert one.solved is other.solved
