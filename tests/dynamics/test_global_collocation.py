"""Step 4 with a proof: the collocated problem before a global solver."""

import os
import signal
import time
from collections.abc import Mapping
from typing import Any, cast

import lotka_volterra
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from igpe.dynamics.collocation.global_collocation import GlobalCollocation, Truncation
from igpe.dynamics.search.complement import complement
from igpe.solvers.base import Answer, Solver

TRUTH = {"k1": 5.0, "k2": 1.0}
START = {"A": 1.0, "B": 0.0, "C": 0.0}
TIMES = np.linspace(0.1, 1.0, 6)


def model(times: Any) -> Any:
    """A -> B -> C without the balance of C, and without bounds on the courses."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.B = pyo.Var(m.t), pyo.Var(m.t)
    m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
    m.k1, m.k2 = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(0, 10))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
    return m


def model_with_c(times: Any) -> Any:
    """The same with the balance of C."""
    m = model(times)
    m.C = pyo.Var(m.t)
    m.dC = dae.DerivativeVar(m.C)
    m.rate_C = pyo.Constraint(m.t, rule=lambda m, t: m.dC[t] == m.k2 * m.B[t])
    return m


def courses(k1: float, k2: float, times: np.ndarray) -> dict[str, np.ndarray]:
    """The model integrated independently of igpe."""
    run = solve_ivp(
        lambda _, x: [-k1 * x[0], k1 * x[0] - k2 * x[1], k2 * x[1]],
        (0, times[-1]),
        list(START.values()),
        t_eval=times,
        rtol=1e-9,
        atol=1e-11,
    )
    return dict(zip("ABC", run.y, strict=True))


def problem(measured: str = "AB", noise: float = 0.01, size: float = 1.0) -> igpe.Problem:
    """The truth with noise; `size` is the amounts' unit."""
    rng = np.random.default_rng(0)
    values = courses(**TRUTH, times=TIMES)
    noisy = {n: size * (values[n] + noise * rng.normal(size=len(TIMES))) for n in measured}
    has_c = "C" in measured
    start = {n: size * v for n, v in START.items() if has_c or n != "C"}
    run = igpe.Experiment(pd.DataFrame({"time": TIMES, **noisy}), start=start, start_time=0.0)
    build = model_with_c if has_c else model
    return igpe.Problem(build, parameters=["k1", "k2"], experiments=[run])


def globally(solver: Solver = igpe.solvers.Scip(), **more: Any) -> igpe.Collocation:  # noqa: B008
    return igpe.Collocation(solver=solver, points=2, **more)


def squares(one: igpe.Problem, k: Mapping[str, float]) -> float:
    """Sum of squared residuals by independent integration."""
    m = one.experiments[0].measurements
    found = courses(k["k1"], k["k2"], TIMES)
    return float(sum(np.sum((m.of(n)[1] - found[n]) ** 2) for n in m.names))


def test_the_gap_closes_and_nothing_on_a_grid_is_below_the_bound() -> None:
    one = problem()
    found = globally().estimate(one, {})
    assert found.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert found.gap == pytest.approx(0.0, abs=1e-3)
    assert found.lower_bound <= found.objective
    assert "gap is about this mesh and courses within" in found.method
    grid = [{"k1": a, "k2": b} for a in np.linspace(0, 10, 21) for b in np.linspace(0, 10, 21)]
    assert min(squares(one, k) for k in grid) > found.lower_bound
    assert found.parameters == pytest.approx(TRUTH, rel=0.05)


def test_the_incumbent_is_the_local_optimum_on_the_same_mesh() -> None:
    one = problem()
    local = igpe.Collocation(points=2, max_refinements=0).estimate(one, TRUTH)
    found = globally().estimate(one, {})
    assert found.objective == pytest.approx(local.objective, rel=1e-6)
    assert found.parameters == pytest.approx(dict(local.parameters), rel=1e-4)


def test_other_units_have_the_same_gap() -> None:
    small, usual = (globally().estimate(problem(size=s), {}) for s in (1e-6, 1.0))
    assert small.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert small.parameters == pytest.approx(dict(usual.parameters), rel=1e-4)
    assert small.lower_bound == pytest.approx(1e-12 * usual.lower_bound, rel=1e-3)


def test_at_the_time_limit_there_are_point_and_bound() -> None:
    hard = lotka_volterra.problem()
    found = globally(time_limit=3.0).estimate(hard, {})
    assert found.status is igpe.Status.TIME_LIMIT
    assert 0.0 <= found.lower_bound < found.objective < np.inf


def test_maingo_finds_the_same() -> None:
    if not igpe.solvers.MAiNGO().available():
        pytest.skip(igpe.solvers.MAiNGO().install)
    scip = globally().estimate(problem(), {})
    maingo = globally(igpe.solvers.MAiNGO(), time_limit=20.0).estimate(problem(), {})
    assert maingo.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert maingo.objective == pytest.approx(scip.objective, rel=1e-6)


def test_maingo_may_be_the_witness() -> None:
    if not igpe.solvers.MAiNGO().available():
        pytest.skip(igpe.solvers.MAiNGO().install)
    witnessed = GlobalCollocation(igpe.solvers.Scip(), igpe.solvers.MAiNGO(), time_limit=20.0)
    assert witnessed.estimate(problem(), []).status is igpe.Status.OPTIMAL_WITHIN_GAP


def test_a_solver_that_is_missing_leaves_the_best_of_local_searches() -> None:
    missing = igpe.solvers.AmplProgram("no-such-solver")
    found = globally(missing).estimate(problem(), {})
    assert found.status is igpe.Status.BEST_OF_SEVERAL
    assert missing.install in found.method
    assert found.lower_bound == -np.inf
    assert found.parameters == pytest.approx(TRUTH, rel=0.05)


def test_bounds_are_asked_for() -> None:
    one = igpe.Problem(
        model, parameters={"k1": (0, np.inf), "k2": (0, 1)}, experiments=problem().experiments
    )
    with pytest.raises(igpe.errors.ProblemError, match=r"finite bounds; \['k1'\]"):
        globally().estimate(one, {})


def with_algebraic(times: Any, *, implicit: bool) -> Any:
    """dA/dt = -k*z, with z given by A or by an equation that has to be solved for it."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.z = pyo.Var(m.t), pyo.Var(m.t, initialize=0.5)
    m.dA, m.k = dae.DerivativeVar(m.A), pyo.Var(bounds=(0, 5))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.z[t])
    if implicit:
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] * (1 + m.z[t]) == m.A[t])
    else:
        m.law = pyo.Constraint(m.t, rule=lambda m, t: 2 * m.z[t] == m.A[t] ** 2)
    return m


@pytest.mark.parametrize("implicit", [False, True])
def test_algebraic_variables_are_bounded_only_where_no_equation_gives_them(implicit: bool) -> None:
    def z(a: Any) -> Any:
        return (np.sqrt(1 + 4 * a) - 1) / 2 if implicit else a**2 / 2

    run = solve_ivp(lambda _, x: -2 * z(x), (0, 1), [2.0], t_eval=TIMES, rtol=1e-9)
    noisy = run.y[0] + 0.01 * np.random.default_rng(0).normal(size=len(TIMES))
    start: dict[str, Any] = {"A": igpe.Unknown(1.0, 3.0)}
    data = pd.DataFrame({"time": TIMES, "A": noisy})
    runs = [igpe.Experiment(data, start=start, start_time=0.0)]
    one = igpe.Problem(
        lambda times: with_algebraic(times, implicit=implicit), parameters=["k"], experiments=runs
    )
    found = globally(time_limit=20.0).estimate(one, {})
    assert found.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert found.parameters["k"] == pytest.approx(2.0, rel=0.05)
    assert found.parameters["A(t0)"] == pytest.approx(2.0, rel=0.05)
    assert ("<= z <=" in found.method) == implicit


def test_step_4_proves_with_what_step_3_found_held() -> None:
    found = complement(problem("AC"), {"k1": 5.0}, globally())
    assert found.status is igpe.Status.OPTIMAL_WITHIN_GAP
    assert found.parameters["k1"] == 5.0
    assert found.parameters["k2"] == pytest.approx(1.0, rel=0.1)
    assert found.gap == pytest.approx(0.0, abs=1e-3)


def test_the_five_steps_with_a_proof_in_step_4() -> None:
    search, ladder = globally(time_limit=10.0), (igpe.smoothing.GcvSpline(),)
    settings = igpe.Settings(complement=search, ladder=ladder).seeded(3)
    assert settings.seed == 3
    result = igpe.estimate(problem("AC"), settings)
    assert result.seed == 3
    found = {e.name: e for e in result.estimates}
    assert found["k2"].found_by.startswith("step 4")
    assert {n: e.value for n, e in found.items()} == pytest.approx(TRUTH, rel=0.1)


class Highest:
    """A solver whose point has everything on its upper bound; keeps these bounds."""

    install = "never missing"

    def __init__(self) -> None:
        self.uppers: list[list[float]] = []

    def available(self) -> bool:
        return True

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        self.uppers.append([v.ub for v in model.v.values()])
        for v in model.v.values():
            v.set_value(v.ub)
        return Answer(igpe.Status.TIME_LIMIT, 1.0, 0.0)


def test_courses_on_their_bounds_get_more_room_and_parameters_do_not() -> None:
    solver = Highest()
    found = globally(solver).estimate(problem(), {})
    assert "at these bounds: A, B" in found.method
    first, second, third = (np.array(u) for u in solver.uppers)
    moved = second > first
    assert (third[moved] > second[moved]).all()
    assert (third[~moved] == first[~moved]).all()
    assert (~moved).sum() == 2


def test_zero_stays_a_bound_and_others_move() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(2))
    at_zero = Truncation("x", list(m.x.values()), 0.0, 2.0)
    values = pyo.ComponentMap([(m.x[0], 0.0), (m.x[1], 2.0)])
    assert (at_zero.widened(values).lower, at_zero.widened(values).upper) == (0.0, 4.0)
    above = Truncation("x", list(m.x.values()), 0.0 + 1e-9, 3.0)
    assert above.widened(values).lower == 0.0


class Interrupted:
    """A solver whose program Ctrl-C ends."""

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """Never an answer."""
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(10.0)
        raise AssertionError


def test_an_interrupted_solver_leaves_the_best_of_local_searches() -> None:
    found = globally(cast(Solver, Interrupted())).estimate(problem(), {})
    assert found.status is igpe.Status.INTERRUPTED
    assert found.lower_bound == -np.inf
    assert found.parameters == pytest.approx(TRUTH, rel=0.05)
    assert np.isfinite(found.objective)
