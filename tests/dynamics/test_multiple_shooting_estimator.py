"""Multiple shooting on ordinary problems: chains, nodes, the estimator, its errors."""

import henon_heiles
import numpy as np
import pandas as pd
import pendulum
import pyomo.environ as pyo
import pytest
from ode import ode
from zoo import CASES, every_case

from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.cut import interval_of
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.chains import node_times
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.covariance import uncertainty
from igpe.numerics.least_squares.chains import Point, condensed
from igpe.numerics.least_squares.soft_links import SoftLinks
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import NormalPrior
from igpe.problem.problem import Problem

EXACT = Automatic(rtol=1e-11, atol=1e-13)


def away(prepared, start, seed=0):
    """A point where the nodes do not meet."""
    point = prepared.begin(prepared.problem.box.vector(start))
    rng = np.random.default_rng(seed)
    nodes = tuple(s * (1 + 0.05 * rng.normal(size=s.shape)) for s in point.nodes)
    return Point(point.unknowns, nodes)


def numbers(chain):
    return np.concatenate([chain.residual, chain.gap.ravel()])


@every_case
def test_the_derivatives_of_a_chain_against_central_differences(case):
    prepared = MultipleShooting(EXACT, intervals=4).prepare(case.problem(noise=0.05))
    point = away(prepared, case.near)
    (chain,) = prepared.chains(point).chains
    for i in range(len(point.unknowns)):
        h = 1e-4 * point.unknowns[i] * np.eye(len(point.unknowns))[i]
        pair = [
            numbers(prepared.chains(point._replace(unknowns=point.unknowns + s * h)).chains[0])
            for s in (1, -1)
        ]
        central = (pair[0] - pair[1]) / (2 * h[i])
        by_first = np.where(chain.owner[:, None] == 0, chain.by_node, 0.0)
        residual = chain.by_unknown[:, i] + by_first @ chain.drift[0, :, i]
        gap = chain.drift[:, :, i].copy()
        gap[1] += chain.step[1] @ chain.drift[0, :, i]
        gap[0] = 0.0  # the first node goes with the start
        exact = np.concatenate([residual, gap.ravel()])
        assert exact == pytest.approx(central, rel=1e-5, abs=1e-5 * abs(central).max())
    nodes = point.nodes[0]
    for k, i in np.ndindex(nodes.shape):
        if k == 0:
            continue
        h = 1e-5 * np.zeros_like(nodes)
        h[k, i] = 1e-4 * max(abs(nodes[k, i]), 1e-2)
        pair = [prepared.chains(point._replace(nodes=(nodes + s * h,))).chains[0] for s in (1, -1)]
        central = [(a - b) / (2 * h[k, i]) for a, b in zip(*map(parts, pair), strict=True)]
        hanging = np.where(chain.owner == k, chain.by_node[:, i], 0.0)
        links = np.zeros_like(nodes)
        links[k, i] = -1.0
        if k + 1 < len(nodes):
            links[k + 1] = chain.step[k + 1][:, i]
        for exact, known in zip((hanging, links), central, strict=True):
            assert exact == pytest.approx(known, rel=1e-5, abs=1e-5 * max(abs(known).max(), 1e-3))


def parts(chain):
    return chain.residual, chain.gap


def test_where_nodes_meet_the_condensed_problem_is_that_of_single_shooting():
    case = CASES["lotka_volterra"]
    problem = case.problem(noise=0.05)
    for intervals in (1, 3, 7, 50):
        prepared = MultipleShooting(EXACT, intervals=intervals).prepare(problem)
        x = problem.box.vector(case.near)
        point = prepared.begin(x)
        for _ in range(len(point.nodes[0])):  # each turn one more node is where it belongs
            chain = prepared.chains(point).chains[0]
            point = point._replace(nodes=(point.nodes[0] + chain.gap,))
        ours = condensed(prepared.chains(point)).at
        known = Residuals(problem, Sundials(rtol=1e-11, atol=1e-13))(x)
        order = np.argsort(problem.experiments[0].measurements.row, kind="stable")
        spread = known.residual[order] / ours.residual
        assert spread == pytest.approx(spread[0], rel=1e-5)
        assert ours.jacobian * spread[0] == pytest.approx(known.jacobian[order], rel=1e-5, abs=1e-6)


def two_decays(**settings):
    """One run with a known start, one with an estimated start and a missing value."""
    t = np.linspace(0.0, 3.0, 7)
    tables = [pd.DataFrame({"time": t, "A": a0 * np.exp(-0.7 * t)}) for a0 in (2.0, 1.0)]
    tables[1].loc[[0, 3], "A"] = np.nan
    first = Experiment(tables[0], name="one", start={"A": 2.0}, sigma=0.1)
    second = Experiment(tables[1], name="two", start={"A": Unknown(0, 5)}, sigma=0.2, start_time=0)
    return Problem(
        CASES["decay"].builder, parameters=["k"], experiments=[first, second], **settings
    )


@pytest.mark.parametrize("intervals", [1, 2, 6])
def test_several_experiments_missing_values_and_an_unknown_start(intervals):
    found = MultipleShooting(intervals=intervals).estimate(
        two_decays(), {"k": 3.0, "A(t0)@two": 4.0}
    )
    assert found.status is Status.CONVERGED
    assert dict(found.parameters) == pytest.approx({"k": 0.7, "A(t0)@two": 1.0}, rel=1e-6)


def test_priors_count_as_in_single_shooting():
    problem = two_decays(priors={"k": NormalPrior(1.0, 0.05), "A(t0)@two": NormalPrior(2.0, 0.3)})
    start = {"k": 0.5, "A(t0)@two": 3.0}
    ours, known = (
        MultipleShooting().estimate(problem, start),
        SingleShooting().estimate(problem, start),
    )
    assert dict(ours.parameters) == pytest.approx(dict(known.parameters), rel=1e-5)
    assert ours.objective == pytest.approx(known.objective, rel=1e-6)


@pytest.mark.parametrize("intervals", [1, 7, 9])
def test_errors_of_the_pendulum_are_those_published_for_any_intervals(intervals):
    problem = pendulum.problem()
    start = {"l": 1.5, "alpha": 1.0, "phi(t0)": 0.0, "omega(t0)": 0.0}
    fit = MultipleShooting(intervals=intervals).prepare(problem).fit(start)
    held = np.zeros(4, dtype=bool)
    told = uncertainty(fit.x, fit.at.residual, fit.at.jacobian, held=held, sigma_known=True)
    for i, (value, error) in enumerate(pendulum.PUBLISHED.values()):
        assert fit.x[i] == pytest.approx(value, abs=5e-4)
        assert told.standard_error[i] == pytest.approx(error, abs=5e-5)
    scaled = uncertainty(fit.x, fit.at.residual, fit.at.jacobian, held=held, sigma_known=False)
    assert scaled.variance == pytest.approx(pendulum.OBJECTIVE / 4, rel=1e-4)
    assert scaled.covariance == pytest.approx(scaled.variance * told.covariance, rel=1e-8)


def test_a_chaotic_model_from_a_start_where_it_explodes():
    problem = henon_heiles.problem()
    single = SingleShooting(Automatic()).estimate(problem, henon_heiles.START)
    assert single.objective > 2 * henon_heiles.OBJECTIVE
    found = MultipleShooting(restarts=Restarts(count=0)).estimate(problem, henon_heiles.START)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(henon_heiles.OBJECTIVE, rel=1e-5)
    assert dict(found.parameters) == pytest.approx(henon_heiles.OPTIMUM, rel=1e-3, abs=1e-3)


def test_nothing_to_estimate():
    case = CASES["decay"]
    held = case.problem().fixing(case.truth)
    assert MultipleShooting().estimate(held, {}).status is Status.NOTHING_TO_DO


def test_nodes_stand_at_measured_times_of_about_equal_distance():
    times = np.array([0.1, 0.2, 0.3, 0.4, 5.0, 5.9, 9.0, 10.0])
    run = Experiment(pd.DataFrame({"time": times, "A": times}), start_time=0.0)
    np.testing.assert_allclose(node_times(run, 2), [0.0, 5.0, 10.0])
    np.testing.assert_allclose(node_times(run, 4), [0.0, 0.4, 5.0, 9.0, 10.0])
    np.testing.assert_allclose(node_times(run, 99), [0.0, *times])


def test_a_time_belongs_to_the_interval_that_begins_there():
    nodes = np.array([0.0, 1.0, 2.0])
    times = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    np.testing.assert_array_equal(interval_of(nodes, times), [0, 0, 1, 1, 1])


def test_unobserved_states_begin_where_the_user_or_the_model_says():
    case = CASES["unmeasured_intermediate"]
    problem = case.problem()
    x = problem.box.vector(case.truth)
    driven = MultipleShooting(intervals=5).prepare(problem).begin(x).nodes[0]
    exact = dict(zip(case.start, case._states(), strict=True))
    times = np.array(case.times)
    nodes = node_times(problem.experiments[0], 5)[1:-1]
    known = np.interp(nodes, times, exact["B"])
    assert driven[1:, 1] == pytest.approx(known, rel=1e-3)
    assert driven[1:, 0] == pytest.approx(np.interp(nodes, times, exact["A"]), rel=1e-9)
    method = MultipleShooting(intervals=5, unobserved={"B": 0.3})
    said = method.prepare(problem).begin(x).nodes[0]
    assert said[1:, 1] == pytest.approx(0.3)
    assert said[0, 1] == 0.0  # the start is known


def test_estimated_starts_of_measured_states_begin_on_their_curve():
    prepared = MultipleShooting().prepare(two_decays())
    point = prepared.begin(np.array([0.7, 4.9]))
    assert point.unknowns[1] == pytest.approx(np.exp(-0.7 * 0.5), rel=1e-9)  # the first seen
    assert point.nodes[1][0] == pytest.approx(point.unknowns[1])


def test_profiles_are_where_nodes_begin():
    case = CASES["decay"]

    def profile(name, times):
        return np.full(len(times), 1.25) if name == "A" else None

    prepared = MultipleShooting(intervals=4).prepare(case.problem(), [profile])
    nodes = prepared.begin(np.array([0.7])).nodes[0]
    assert nodes[:, 0] == pytest.approx([2.0, 1.25, 1.25, 1.25])


def test_relative_errors_are_levelled_for_the_beginning():
    t = np.linspace(0.0, 6.0, 13)
    values = 2 * np.exp(-t)
    data = pd.DataFrame({"time": t, "A": values, "sd": 0.1 * values})
    run = Experiment(data, start={"A": 2.0}, sigma={"A": "sd"})
    problem = Problem(CASES["decay"].builder, parameters=["k"], experiments=run)
    chains = MultipleShooting(links=(SoftLinks(),)).prepare(problem).chains
    level = chains.levelled()
    sigma = level.shootings[0].measurements.sigma
    assert sigma == pytest.approx(0.1 * np.sqrt(np.mean(values**2)))
    assert level.levelled() is None
    assert chains.shootings[0].measurements.sigma == pytest.approx(0.1 * values)
    found = MultipleShooting().estimate(problem, {"k": 4.0})
    assert found.parameters["k"] == pytest.approx(1.0, rel=1e-6)


def one_state(slope, **unknowns):
    """A builder of one state A with dA/dt = slope(m, t) and unknowns with bounds."""
    return ode({"A": slope}, outputs={"root": lambda m, t: pyo.sqrt(m.k * m.A[t])}, **unknowns)


def test_rows_without_a_number_are_not_integrated():
    t = np.linspace(0.0, 1.0, 11)
    seen = pd.DataFrame({"time": [*t, 2.0, 3.0], "A": [*(1 / (1 - 0.7 * t)), np.nan, np.nan]})
    builder = one_state(lambda m, t: m.k * m.A[t] ** 2, k=(-5, 50))  # infinite at t = 1.43
    run = Experiment(seen, start={"A": 1.0}, sigma=0.01)
    found = MultipleShooting().estimate(
        Problem(builder, parameters=["k"], experiments=run), {"k": 0.5}
    )
    assert found.parameters["k"] == pytest.approx(0.7, rel=1e-6)


def test_a_derivative_that_is_none_where_nothing_moves():
    t = np.linspace(0.0, 3.0, 13)
    builder = one_state(lambda m, t: m.q - m.A[t], k=(0, 5), q=(0, 5))
    seen = pd.DataFrame({"time": t, "root": np.sqrt(2 * 0.8 * (1 - np.exp(-t)))})
    run = Experiment(seen, start={"A": 0.0}, sigma={"root": 0.01})
    more = Experiment(
        pd.DataFrame({"time": t, "A": 0.8 * (1 - np.exp(-t))}), start={"A": 0.0}, sigma=0.01
    )
    problem = Problem(builder, parameters=["k", "q"], experiments=[run, more])
    start = {"k": 1.0, "q": 0.5}
    known = SingleShooting().estimate(problem, start)
    found = MultipleShooting().estimate(problem, start)
    assert found.status is Status.CONVERGED
    assert dict(known.parameters) == pytest.approx({"k": 2.0, "q": 0.8}, rel=1e-5)
    assert dict(found.parameters) == pytest.approx({"k": 2.0, "q": 0.8}, rel=1e-5)


@pytest.mark.parametrize(("bounds", "active"), [((0.5, None), True), ((0.0, 2.0), False)])
def test_active_bounds_of_states_are_told(bounds, active):
    def builder(times):
        m = CASES["decay"].builder(times)
        for t in m.t:
            m.A[t].bounds = bounds
        return m

    t = np.linspace(0.0, 3.0, 13)
    run = Experiment(
        pd.DataFrame({"time": t, "A": 2 * np.exp(-0.7 * t)}), start={"A": 2.0}, sigma=0.1
    )
    problem = Problem(builder, parameters=["k"], experiments=run)
    found = MultipleShooting(restarts=Restarts(count=0)).estimate(problem, {"k": 1.0})
    told = [n for n in found.notes if n.startswith("Active constraints: A >= 0.5 at 3")]
    assert bool(told) is active
    assert (found.parameters["k"] == pytest.approx(0.7, rel=1e-5)) is not active


def test_why_an_integration_broke_down_is_told():
    case = CASES["decay"]
    few = Sundials(max_steps=1)
    method = MultipleShooting(few, rough=few, restarts=Restarts(count=1))
    found = method.estimate(case.problem(), case.near)
    assert found.status is Status.INTEGRATION_BROKE
    (note,) = found.notes
    assert note.startswith("The last integration of experiment 1 failed: The step limit of 1")


def test_without_a_compiler_the_missing_solver_is_told(monkeypatch):
    monkeypatch.setattr(
        "igpe.dynamics.integrators.runge_kutta.built", lambda *_, **__: (None, "No C compiler.")
    )
    case = CASES["decay"]
    found = MultipleShooting(RungeKutta()).estimate(case.problem(), case.near)
    assert found.status is Status.NO_SOLVER
    assert found.method == "multiple shooting"  # no other start would help
    assert "No C compiler." in found.notes[0]


def test_an_optimum_that_is_hardly_determined_is_reached_by_single_shooting():
    """Two measurements of s (A + 2 B) that A -> B -> cannot fit: k1 and s are nearly one."""

    def builder(times):
        m = CASES["consecutive"].builder(times)
        m.s = pyo.Var(bounds=(0.1, 10))
        m.y = pyo.Expression(m.t, rule=lambda m, t: m.s * (m.A[t] + 2 * m.B[t]))
        return m

    data = pd.DataFrame({"time": [1.0, 2.0], "y": [4.0, 5.0]})
    run = Experiment(data, start={"A": 2.0, "B": 0.0, "C": 0.0}, sigma=0.05, start_time=0)
    problem = Problem(builder, parameters=["k1", "k2", "s"], experiments=run)
    start = {"k1": 0.5, "k2": 2.0, "s": 1.0}
    found = MultipleShooting().estimate(problem, start)
    known = SingleShooting().estimate(problem, start)
    assert found.status is Status.CONVERGED
    assert found.trail[-1].method == "single shooting"
    assert found.objective == pytest.approx(known.objective, rel=1e-6)
