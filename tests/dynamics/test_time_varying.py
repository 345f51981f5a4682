"""Unknowns that vary with time: names, recovery by every method, penalties, derivatives."""

import copy
import itertools
import pickle

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.core.errors import ProblemError, Unsupported
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.incremental_shooting import IncrementalShooting
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import Residuals, unmeasured
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import step_input
from igpe.problem.losses import L1, NormalPrior, PiecewiseConstant
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 8.0, 33)
BREAKS, FEED, K = (2.5, 5.0), (1.0, 0.2, 2.0), 0.8
START = {"k": 2.0, "feed(0)": 3.0, "feed(2.5)": 3.0, "feed(5)": 3.0}
TRUTH = {"k": K, "feed(0)": 1.0, "feed(2.5)": 0.2, "feed(5)": 2.0}
FINE = Automatic(rtol=1e-11, atol=1e-13)
METHODS = [SingleShooting(), MultipleShooting(), Collocation()]


def fed(times):
    """dA = feed - k A, the feed in mol/s."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t, initialize=1.0)
    m.feed = pyo.Var(m.t, initialize=1.0, units=pyo.units.mol / pyo.units.s)
    m.dA = dae.DerivativeVar(m.A)
    m.k = pyo.Var(bounds=(0.01, 5), initialize=1.0)
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.k * m.A[t])
    return m


def course(times, a=1.0, feed=FEED, breaks=BREAKS, k=K):
    """The exact solution, piece after piece."""
    found = np.full(len(times), np.nan)
    edges = [0.0, *breaks, np.inf]
    for (begin, end), u in zip(itertools.pairwise(edges), feed, strict=True):
        here = (times >= begin) & (times <= end)
        found[here] = u / k + (a - u / k) * np.exp(-k * (times[here] - begin))
        if np.isfinite(end):
            a = u / k + (a - u / k) * np.exp(-k * (end - begin))
    return found


def posed(noise=0.0, penalty=0.0, builder=fed, breaks=BREAKS, **settings):
    values = course(TIMES) + noise * np.random.default_rng(0).normal(size=len(TIMES))
    run = Experiment(pd.DataFrame({"time": TIMES, "A": values}), start={"A": 1.0}, sigma=0.05)
    varying = {"feed": PiecewiseConstant(breaks, 0, 5, penalty=penalty)}
    return Problem(builder, parameters=["k"], experiments=run, time_varying=varying, **settings)


@pytest.mark.parametrize("penalty", [0.0, 10.0])
def test_all_methods_find_the_same_optimum_of_noisy_data(penalty):
    problem = posed(0.05, penalty)
    single, multiple, collocated = (m.estimate(problem, START) for m in METHODS)
    assert multiple.objective == pytest.approx(single.objective, rel=1e-7)
    assert dict(multiple.parameters) == pytest.approx(dict(single.parameters), rel=1e-5)
    assert collocated.objective == pytest.approx(single.objective, rel=1e-5)
    assert dict(collocated.parameters) == pytest.approx(dict(single.parameters), rel=1e-4)
    jumps = np.diff([single.parameters[n] for n in problem.varying])
    free = Residuals(posed(0.05), Sundials())
    x = problem.box.vector(single.parameters)
    assert single.objective == pytest.approx(free(x).cost + penalty * jumps @ jumps, rel=1e-6)


@pytest.mark.parametrize("integrator", [Automatic(), Sundials()])
def test_derivatives_by_the_pieces_against_central_differences(integrator):
    problem = posed(0.05, penalty=30.0)
    residuals = Residuals(problem, integrator)
    x = np.array([0.7, 1.3, 0.4, 1.6])
    at = residuals(x)
    assert len(residuals) == len(at.residual) == len(TIMES) + 2
    for i in range(4):
        h = 1e-4 * x[i] * np.eye(4)[i]
        central = (residuals(x + h).residual - residuals(x - h).residual) / (2 * h[i])
        assert at.jacobian[:, i] == pytest.approx(central, rel=1e-4, abs=1e-4)
    # what is measured at the very time of a break does not see the piece after it
    (row,) = np.flatnonzero(TIMES == 2.5)
    assert at.jacobian[row, 2] == pytest.approx(0.0, abs=1e-12)
    assert at.jacobian[row + 1, 2] != 0.0


@pytest.mark.parametrize("intervals", [1, 5])
def test_breaks_may_lie_anywhere_between_nodes(intervals):
    problem = posed(breaks=(2.4, 5.1))
    start = dict(zip(problem.box.names, START.values(), strict=True))
    known = SingleShooting().estimate(problem, start)
    found = MultipleShooting(intervals=intervals).estimate(problem, known.parameters)
    assert found.objective == pytest.approx(known.objective, rel=1e-6)
    assert dict(found.parameters) == pytest.approx(dict(known.parameters), rel=1e-5)


def test_breaks_that_are_measured_times_but_for_rounding():
    t = np.linspace(0.0, 8.0, 161)
    breaks = (1.2, 2.4, 5.6)
    assert not set(breaks) <= set(t)
    feed = (1.0, 0.2, 2.0, 0.5)
    run = Experiment(
        pd.DataFrame({"time": t, "A": course(t, 1.0, feed, tuple(t[[24, 48, 112]]))}),
        start={"A": 1.0},
    )
    varying = {"feed": PiecewiseConstant((1e-12, *breaks, 8.0 - 1e-12), 0, 5)}
    problem = Problem(fed, parameters=["k"], experiments=run, time_varying=varying)
    assert problem.pieces("feed", run)["feed(1.2)"] == t[24]
    truth = dict(zip(problem.box.names, (K, *feed), strict=True))
    for method in METHODS:
        found = method.estimate(problem, dict.fromkeys(problem.box.names, 1.0))
        assert dict(found.parameters) == pytest.approx(truth, rel=1e-6)


def test_each_experiment_has_its_own():
    t = TIMES[TIMES <= 4]
    runs = [
        Experiment(
            pd.DataFrame({"time": TIMES, "A": course(TIMES)}), name="long", start={"A": 1.0}
        ),
        Experiment(
            pd.DataFrame({"time": t, "A": course(t, 2.0, (0.5, 1.5), (2.5,))}),
            name="short",
            start={"A": Unknown(0, 5)},
        ),
    ]
    varying = {"feed": PiecewiseConstant((-1.0, 0.0, *BREAKS, 99.0), 0, 5)}
    problem = Problem(fed, parameters=["k"], experiments=runs, time_varying=varying)
    names = ("feed(0)@long", "feed(2.5)@long", "feed(5)@long", "feed(0)@short", "feed(2.5)@short")
    assert problem.box.names == ("k", "A(t0)@short", *names)
    assert problem.unit("feed(2.5)@short") == "mol/s"
    start = {**dict.fromkeys(names, 1.0), "k": 1.0, "A(t0)@short": 1.0}
    truth = dict(zip(names, (*FEED, 0.5, 1.5), strict=True)) | {"k": K, "A(t0)@short": 2.0}
    for method in METHODS:
        found = method.estimate(problem, start)
        assert dict(found.parameters) == pytest.approx(truth, rel=1e-5)
    again = pickle.loads(pickle.dumps(problem))
    assert again.box.names == copy.deepcopy(problem).box.names == problem.box.names


def test_pieces_may_be_held_have_priors_and_be_simulated():
    problem = posed(0.05, penalty=10.0, priors={"feed(5)": NormalPrior(1.5, 0.001)})
    held = problem.fixing({"feed(0)": 1.0})
    start = {n: 1.0 for n in held.box.names}
    rows = unmeasured(held)(np.array([9.0, 0.4, 1.6]))
    assert rows.residual == pytest.approx([100.0, np.sqrt(10) * (0.4 - 1.0), np.sqrt(10) * 1.2])
    found = [m.estimate(held, start) for m in METHODS]
    for one in found[1:]:
        assert dict(one.parameters) == pytest.approx(dict(found[0].parameters), rel=1e-4)
    assert found[0].parameters["feed(5)"] == pytest.approx(1.5, abs=0.005)
    table = igpe.simulate(posed(), TRUTH, times=[2.5, 5.0, 8.0])
    assert table["A"].to_numpy() == pytest.approx(course(np.array([2.5, 5.0, 8.0])), rel=1e-7)


def test_a_variable_that_is_a_parameter_over_time_and_other_inputs():
    def builder(times):
        m = fed(times)
        m.del_component(m.rate)
        m.w, m.flow = pyo.Param(m.t, mutable=True), pyo.Param(m.t, mutable=True, default=1.0)
        m.feed.fix(1.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.flow[t] * m.w[t] - m.k * m.A[t])
        return m

    inputs = {"flow": step_input([0.0, 4.0], [1.0, 0.5])}
    values = course(TIMES, 1.0, (1.0, 0.2, 0.1), (2.5, 4.0))
    run = Experiment(pd.DataFrame({"time": TIMES, "A": values}), start={"A": 1.0}, inputs=inputs)
    varying = {"w": PiecewiseConstant((2.5,), 0, 5)}
    problem = Problem(builder, parameters=["k"], experiments=run, time_varying=varying)
    for method in METHODS:
        found = method.estimate(problem, {"k": 1.0, "w(0)": 0.5, "w(2.5)": 0.5})
        truth = {"k": K, "w(0)": 1.0, "w(2.5)": 0.2}
        assert dict(found.parameters) == pytest.approx(truth, rel=1e-5)


def test_constraints_may_hold_it():
    def builder(times):
        m = fed(times)
        m.least = pyo.Constraint(m.t, rule=lambda m, t: m.feed[t] + 0.1 * m.A[t] >= 0.45)
        m.tied = pyo.Constraint(expr=m.feed[m.t.first()] <= 0.6 * m.feed[m.t.last()])
        return m

    problem = posed(0.02, builder=builder)
    known = Collocation().estimate(problem, TRUTH)
    found = MultipleShooting().estimate(problem, START)
    p = found.parameters
    assert p["feed(0)"] <= 0.6 * p["feed(5)"] + 1e-9
    # collocation keeps the path at its own points as well
    assert found.objective <= known.objective * (1 + 1e-6)
    assert any("least at 5" in note for note in found.notes)
    assert known.objective == pytest.approx(found.objective, rel=1e-4)


def test_robust_losses_count_jumps_as_squares():
    problem = posed(0.05, penalty=20.0, loss=L1())
    found = MultipleShooting(FINE).estimate(problem, START)
    residuals = Residuals(posed(0.05), Sundials())
    x = problem.box.vector(found.parameters)
    jumps = np.diff(x[1:])
    known = np.sum(np.abs(residuals(x).residual)) + 20.0 * jumps @ jumps
    assert found.objective == pytest.approx(known, rel=1e-3)
    for i in range(len(x)):  # no coordinate leads down
        for h in (-1e-3, 1e-3):
            there = x + h * np.eye(len(x))[i]
            jumps = np.diff(there[1:])
            cost = np.sum(np.abs(residuals(there).residual)) + 20.0 * jumps @ jumps
            assert cost > known - 1e-3 * known


def test_structure_judges_constants_alone():
    told = igpe.check(posed())
    assert [f.unknown for f in told.findings] == ["k"]


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda p: IncrementalShooting().prepare(p), Unsupported, "Use igpe.MultipleShooting"),
        (igpe.estimate, Unsupported, "igpe.estimate supports only constant.*MultipleShooting"),
        (lambda p: SingleShooting().estimate(p, {"k": 1.0}), ProblemError, r"'feed\(0\)'"),
        (lambda p: p.fixing({"feed": 1.0}), ProblemError, r"Unknown parameter names: \['feed'\]"),
    ],
)
def test_what_cannot_be_done_is_said(ask, error, says):
    with pytest.raises(error, match=says):
        ask(posed())


def test_a_model_may_keep_times_of_its_own_that_do_not_include_the_breaks():
    def insisting(times):
        return fed(np.linspace(0.0, 8.0, 33))

    start = {"k": 1.0, "feed(0)": 1.0, "feed(2.4)": 1.0}
    one, other = (
        Collocation().estimate(posed(builder=b, breaks=(2.4,)), start) for b in (insisting, fed)
    )
    assert one.parameters == pytest.approx(other.parameters, rel=1e-6)
