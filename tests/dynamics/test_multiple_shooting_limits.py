"""Constraints in multiple shooting: boundary conditions, periodic courses, path constraints."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from pyomo import dae
from scipy.integrate import solve_ivp

from igpe.core.errors import Unsupported
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.numerics.covariance import uncertainty
from igpe.numerics.least_squares.chains import Point
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import step_input
from igpe.problem.losses import L1
from igpe.problem.problem import Problem

EXACT = Automatic(rtol=1e-11, atol=1e-13)
ONCE = MultipleShooting(restarts=Restarts(count=0))
TIMES = np.linspace(0.0, 3.0, 13)


def oscillator(times):
    """Van der Pol's, after one period where it began."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x, m.y = pyo.Var(m.t, initialize=1.0), pyo.Var(m.t, initialize=0.5)
    m.dx, m.dy = dae.DerivativeVar(m.x), dae.DerivativeVar(m.y)
    m.mu, m.w = pyo.Var(bounds=(0.1, 5)), pyo.Var(bounds=(0.1, 3))
    m.of_x = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.y[t])
    m.of_y = pyo.Constraint(
        m.t, rule=lambda m, t: m.dy[t] == m.mu * (1 - m.x[t] ** 2) * m.y[t] - m.w * m.x[t]
    )
    m.closed_x = pyo.Constraint(expr=m.x[m.t.last()] == m.x[m.t.first()])
    m.closed_y = pyo.Constraint(expr=m.y[m.t.last()] == m.y[m.t.first()])
    return m


PERIOD, TOP = 6.908280930334428, 2.01273153  # for mu = 1.3, w = 1: x at y = 0


def swing(mu, w, start, times):
    def slope(_, s):
        return [s[1], mu * (1 - s[0] ** 2) * s[1] - w * s[0]]

    ran = solve_ivp(slope, (0, times[-1]), start, rtol=1e-12, atol=1e-13, t_eval=times)
    return ran.y


def periodic(noise, builder=oscillator):
    t = np.linspace(0.0, PERIOD, 25)
    x = swing(1.3, 1.0, [TOP, 0.0], t)[0] + noise * np.random.default_rng(0).normal(size=len(t))
    start = {"x": Unknown(-5, 5), "y": Unknown(-5, 5)}
    run = Experiment(pd.DataFrame({"time": t, "x": x}), start=start, sigma=max(noise, 0.01))
    return Problem(builder, parameters=["mu", "w"], experiments=run)


FAR = {"mu": 0.5, "w": 2.0, "x(t0)": 1.0, "y(t0)": 0.0}


@pytest.mark.slow
def test_a_noisy_limit_cycle_closes_and_fits_as_well_as_by_collocation():
    problem = periodic(0.1)
    found = MultipleShooting(EXACT).estimate(problem, FAR)
    assert found.status.usable
    p = found.parameters
    end = swing(p["mu"], p["w"], [p["x(t0)"], p["y(t0)"]], np.array([0.0, PERIOD]))
    assert end[:, 1] == pytest.approx(end[:, 0], abs=1e-8)
    known = Collocation(points=5, tolerance=1e-8).estimate(problem, p)
    assert dict(p) == pytest.approx(dict(known.parameters), rel=1e-5, abs=1e-5)
    assert found.objective == pytest.approx(known.objective, rel=1e-5)
    loose = periodic(0.1, open_ended)
    free = MultipleShooting().estimate(loose, FAR)
    assert free.objective < found.objective - 0.1


def open_ended(times):
    m = oscillator(times)
    m.closed_x.deactivate()
    m.closed_y.deactivate()
    return m


def test_errors_move_along_what_constraints_leave_free():
    fit = MultipleShooting(EXACT).prepare(periodic(0.1)).fit(FAR)
    assert fit.active.shape == (2, 4)
    told = uncertainty(
        fit.x, fit.at.residual, fit.at.jacobian,
        held=np.zeros(4, bool), sigma_known=True, active=fit.active,
    )  # fmt: skip
    assert told.degrees == 25 - 2
    assert fit.active @ told.covariance == pytest.approx(np.zeros((2, 4)), abs=1e-10)
    free = MultipleShooting(EXACT).prepare(periodic(0.1, open_ended)).fit(FAR)
    assert free.active is None
    alone = uncertainty(
        free.x, free.at.residual, free.at.jacobian, held=np.zeros(4, bool), sigma_known=True
    )
    assert alone.degrees == 25 - 4
    assert (told.standard_error < alone.standard_error).all()


def decaying(**changes):
    """dA = -k A + u, with constraints that `changes` add: name -> rule of the model."""

    def builder(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.u = pyo.Var(m.t, initialize=1.0), pyo.Var(bounds=(0, 5), initialize=0.1)
        m.dA = dae.DerivativeVar(m.A)
        m.k = pyo.Var(bounds=(0.01, 10), initialize=1.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] + m.u)
        for name, add in changes.items():
            m.add_component(name, add(m))
        return m

    return builder


def noisy(seed=0, a0=2.0, k=0.9, u=0.3, times=TIMES):
    exact = u / k + (a0 - u / k) * np.exp(-k * times)
    values = exact + 0.05 * np.random.default_rng(seed).normal(size=len(times))
    return pd.DataFrame({"time": times, "A": values})


def posed(start=None, data=None, **changes):
    data = noisy() if data is None else data
    run = Experiment(data, start={"A": Unknown(0, 5)} if start is None else start, sigma=0.05)
    return Problem(decaying(**changes), parameters=["k", "u"], experiments=run)


START = {"k": 2.0, "u": 1.0, "A(t0)": 1.0}
CONSTRAINTS = {
    "value at the end": lambda m: pyo.Constraint(expr=m.A[m.t.last()] == 0.5),
    "above at the end": lambda m: pyo.Constraint(expr=m.A[m.t.last()] >= 0.55),
    "between at the end": lambda m: pyo.Constraint(expr=(0.55, m.A[m.t.last()], 0.8)),
    "unknowns tied": lambda m: pyo.Constraint(expr=m.k * m.u == 0.4),
    "unknowns limited": lambda m: pyo.Constraint(expr=m.k + m.u <= 0.9),
    "end and unknown": lambda m: pyo.Constraint(expr=m.A[m.t.last()] * m.k >= 0.5),
    "path": lambda m: pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 0.52),
    "path of the slope": lambda m: pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] >= -1.3),
    "start and end": lambda m: pyo.Constraint(expr=m.A[m.t.first()] == 4.2 * m.A[m.t.last()]),
}


@pytest.fixture(scope="module")
def free():
    return MultipleShooting(EXACT).estimate(posed(), START)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_active_constraints_give_the_optimum_of_collocation(name, free):
    problem = posed(limit=CONSTRAINTS[name])
    found = MultipleShooting().estimate(problem, START)
    known = Collocation().estimate(problem, found.parameters)
    assert found.status.usable
    assert found.objective > free.objective + 0.01
    assert found.objective == pytest.approx(known.objective, rel=1e-5)
    assert dict(found.parameters) == pytest.approx(dict(known.parameters), rel=1e-5, abs=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "limit",
    [
        lambda m: pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 1.2),
        lambda m: pyo.Constraint(expr=m.A[m.t.first()] == 2 * m.A[m.t.last()]),
        lambda m: pyo.Constraint(expr=m.A[m.t.last()] ** 2 + m.k**2 == 0.3),
    ],
    ids=["path", "start and end", "sum of squares"],
)
def test_constraints_that_contradict_the_data(limit):
    """Residuals stay so large that whole Gauss-Newton steps circle around the optimum."""
    problem = posed(limit=limit)
    found, known = (m.estimate(problem, START) for m in (ONCE, Collocation()))
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(known.objective, rel=1e-5)
    assert dict(found.parameters) == pytest.approx(dict(known.parameters), rel=1e-4, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("intervals", [1, 30])
def test_where_the_nodes_stand_does_not_matter(intervals):
    problem = posed(limit=CONSTRAINTS["path"], end=CONSTRAINTS["unknowns limited"])
    known = Collocation().estimate(problem, START)
    found = MultipleShooting(intervals=intervals).estimate(problem, START)
    assert found.objective == pytest.approx(known.objective, rel=1e-5)


def test_constraints_that_are_not_in_the_way_change_nothing(free):
    loose = posed(
        low=lambda m: pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 0.1),
        tied=lambda m: pyo.Constraint(expr=m.k + m.u <= 9),
    )
    fit = MultipleShooting(EXACT).prepare(loose).fit(START)
    found = MultipleShooting(EXACT).estimate(loose, START)
    assert dict(found.parameters) == pytest.approx(dict(free.parameters), rel=1e-6)
    assert found.objective == pytest.approx(free.objective, rel=1e-9)
    assert fit.active.shape == (0, 3)
    assert not any("Active" in note for note in found.notes)


@pytest.mark.parametrize(
    "changes",
    [
        {"high": lambda m: pyo.Constraint(expr=m.A[m.t.last()] >= 30)},
        {"both": lambda m: pyo.Constraint(expr=m.k == 20)},
        {
            "one": lambda m: pyo.Constraint(expr=m.A[m.t.last()] == 0.5),
            "other": lambda m: pyo.Constraint(expr=m.A[m.t.last()] == 0.7),
        },
        {"path": lambda m: pyo.Constraint(m.t, rule=lambda m, t: m.A[t] >= 7)},
    ],
    ids=["states", "an unknown", "each other", "path"],
)
def test_constraints_that_cannot_be_kept_are_a_status_with_a_sentence(changes):
    found = ONCE.estimate(posed(**changes), START)
    assert found.status is Status.INFEASIBLE
    assert found.method == "multiple shooting"
    missed = [n for n in found.notes if "satisfy all constraints" in n]
    assert missed
    assert any(f"'{name}" in missed[0] for name in changes)


def test_a_search_that_ends_too_early_says_what_is_missed():
    once = GeneralisedGaussNewton(max_iterations=1)
    method = MultipleShooting(links=(), search=once, restarts=Restarts(count=0), finer=1)
    found = method.estimate(posed(limit=CONSTRAINTS["end and unknown"]), START)
    assert found.status is Status.FAILED
    assert not any("Active" in note for note in found.notes)


def test_constraints_of_every_experiment_are_kept():
    runs = [
        Experiment(noisy(0), name="one", start={"A": Unknown(0, 5)}, sigma=0.05),
        Experiment(noisy(1, a0=1.0, u=0.6), name="two", start={"A": 1.0}, sigma=0.05),
    ]
    builder = decaying(
        end=lambda m: pyo.Constraint(expr=m.A[m.t.last()] == m.A[m.t.first()] - 0.9 * m.k),
        sum=lambda m: pyo.Constraint(expr=m.k + m.u <= 1.4),
    )
    problem = Problem(builder, parameters=["k", "u"], experiments=runs, local=["u"])
    start = {"k": 2.0, "u@one": 1.0, "u@two": 1.0, "A(t0)@one": 1.0}
    known = Collocation().estimate(problem, start)
    found = MultipleShooting().estimate(problem, start)
    assert found.objective == pytest.approx(known.objective, rel=1e-5)
    assert dict(found.parameters) == pytest.approx(dict(known.parameters), rel=1e-4, abs=1e-5)


def test_a_constraint_can_determine_what_measurements_do_not():
    def builder(times):
        m = decaying()(times)
        m.B, m.b = pyo.Var(m.t), pyo.Var(bounds=(0, 5))
        m.dB = dae.DerivativeVar(m.B)
        m.of_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k * m.A[t] - m.b * m.B[t])
        m.end = pyo.Constraint(expr=m.B[m.t.last()] == 0.4)
        m.more = pyo.Constraint(expr=m.B[m.t.first()] == 0.65 * m.A[m.t.first()])
        return m

    run = Experiment(noisy(), start={"A": 2.0, "B": Unknown(0, 4)}, sigma=0.05)
    problem = Problem(builder, parameters=["k", "u", "b"], experiments=run)
    found = ONCE.estimate(problem, {"k": 2.0, "u": 1.0, "b": 1.0, "B(t0)": 0.5})
    free = ONCE.estimate(
        Problem(decaying(), parameters=["k", "u"], experiments=Experiment(
            noisy(), start={"A": 2.0}, sigma=0.05)), {"k": 2.0, "u": 1.0}
    )  # fmt: skip
    assert found.status.usable
    assert found.objective == pytest.approx(free.objective, rel=1e-6)
    assert not any("do not determine" in note for note in found.notes)
    k, u, b, b0 = (found.parameters[n] for n in ("k", "u", "b", "B(t0)"))

    def slope(_, s):
        return [-k * s[0] + u, k * s[0] - b * s[1]]

    course = solve_ivp(slope, (0, 3), [2.0, b0], rtol=1e-11, atol=1e-12).y[1]
    assert course[-1] == pytest.approx(0.4, abs=1e-6)
    assert b0 == pytest.approx(1.3, abs=1e-8)


def test_times_of_the_model_beside_those_measured():
    def builder(times):
        m = decaying()([*times, 1.1, 4.0])
        m.early = pyo.Constraint(expr=m.A[1.1] == 1.0)
        m.late = pyo.Constraint(expr=m.A[4.0] >= 0.45)
        return m

    run = Experiment(noisy(), start={"A": Unknown(0, 5)}, sigma=0.05)
    problem = Problem(builder, parameters=["k", "u"], experiments=run)
    found = MultipleShooting().estimate(problem, START)
    k, u, a0 = (found.parameters[n] for n in ("k", "u", "A(t0)"))

    def exact(t):
        return u / k + (a0 - u / k) * np.exp(-k * t)

    assert found.status.usable
    assert exact(1.1) == pytest.approx(1.0, abs=1e-7)
    assert exact(4.0) == pytest.approx(0.45, abs=1e-7)


def test_algebraic_variables_inputs_and_bounds_that_are_unknowns():
    def builder(times):
        m = over_time(times, "A", "r feed", k=(0.01, 10))
        m.most = pyo.Param(mutable=True, initialize=1.0)
        m.size = pyo.Expression(m.t, rule=lambda m, t: 2 * m.r[t])
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.r[t] == m.k * m.A[t])
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.r[t])
        m.fast = pyo.Constraint(
            m.t, rule=lambda m, t: m.size[t] - m.feed[t] <= m.most if t else pyo.Constraint.Skip
        )
        m.least = pyo.Constraint(expr=m.most <= 1.5)
        return m

    inputs = {"feed": step_input([0.0, 1.5], [0.1, 0.4])}
    run = Experiment(noisy(), start={"A": 2.0}, sigma=0.05, inputs=inputs)
    problem = Problem(builder, parameters={"k": (0.01, 10), "most": (0, 3)}, experiments=run)
    found = MultipleShooting(EXACT).estimate(problem, {"k": 1.0, "most": 1.0})
    assert found.status.usable
    k = found.parameters["k"]
    assert 2 * k * 2.0 - 0.1 == pytest.approx(1.5, abs=0.03)  # from just after the start


def test_implicit_algebraic_variables():
    def builder(times):
        m = decaying()(times)
        m.z = pyo.Var(m.t, initialize=1.0, bounds=(0, 5))
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] + m.z[t] ** 3 == m.A[t])
        m.end = pyo.Constraint(expr=m.z[m.t.last()] >= 0.45)
        m.path = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] <= 0.97)
        return m

    run = Experiment(noisy(), start={"A": Unknown(0, 5)}, sigma=0.05)
    problem = Problem(builder, parameters=["k", "u"], experiments=run)
    found, known = (m.estimate(problem, START) for m in (ONCE, Collocation()))
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(known.objective, rel=1e-5)
    assert any("Active constraints: end, path at 0" in note for note in found.notes)


def test_sentences_name_the_experiment_where_there_are_several():
    builder = decaying(end=lambda m: pyo.Constraint(expr=m.A[m.t.last()] >= 0.6))
    runs = [Experiment(noisy(k), name=n, start={"A": 2.0}, sigma=0.05) for k, n in enumerate("ab")]
    problem = Problem(builder, parameters=["k", "u"], experiments=runs)
    found = ONCE.estimate(problem, {"k": 1.0, "u": 0.5})
    assert "Active constraints: end of a, end of b." in found.notes


def test_robust_losses_keep_constraints():
    run = Experiment(noisy(), start={"A": Unknown(0, 5)}, sigma=0.05)
    builder = decaying(end=CONSTRAINTS["unknowns limited"])
    problem = Problem(builder, parameters=["k", "u"], experiments=run, loss=L1())
    found = MultipleShooting().estimate(problem, START)
    assert found.status.usable
    assert found.parameters["k"] + found.parameters["u"] <= 0.9 + 1e-8


def test_an_unknown_in_a_constraint_may_be_held():
    problem = posed(tied=CONSTRAINTS["unknowns tied"]).fixing({"u": 0.5})
    found = MultipleShooting().estimate(problem, {"k": 2.0, "A(t0)": 1.0})
    assert found.parameters["k"] == pytest.approx(0.8, rel=1e-9)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_derivatives_of_constraints_against_central_differences(name):
    prepared = MultipleShooting(EXACT, intervals=4).prepare(posed(limit=CONSTRAINTS[name]))
    point = prepared.begin(np.array([0.7, 0.4, 1.8]))
    rng = np.random.default_rng(3)
    nodes = point.nodes[0] * (1 + 0.05 * rng.normal(size=point.nodes[0].shape))
    nodes[0] = point.unknowns[2]

    def values(unknowns, nodes):
        at = prepared.chains(Point(unknowns, (nodes,)))
        return at.limits[0].value, at.chains[0]

    limits = prepared.chains(Point(point.unknowns, (nodes,))).limits[0]
    by_node = np.zeros((len(limits.value), *nodes.shape))
    np.add.at(by_node, (limits.row, limits.owner), limits.by_node)
    for i, x in enumerate(point.unknowns):
        h = 1e-5 * x * np.eye(3)[i]
        pair = [values(point.unknowns + s * h, nodes)[0] for s in (1, -1)]
        central = (pair[0] - pair[1]) / (2 * h[i])
        exact = limits.by_unknown[:, i]
        if i == 2:  # the first node goes with the start
            exact = exact + by_node[:, 0, 0]
        assert exact == pytest.approx(central, rel=1e-6, abs=1e-6)
    for k in range(1, len(nodes)):
        h = np.zeros_like(nodes)
        h[k] = 1e-5
        pair = [values(point.unknowns, nodes + s * h)[0] for s in (1, -1)]
        central = (pair[0] - pair[1]) / 2e-5
        assert by_node[:, k, 0] == pytest.approx(central, rel=1e-6, abs=1e-6)


def stray(times):
    m = decaying()(times)
    m.z = pyo.Var(m.t)
    m.end = pyo.Constraint(expr=m.A[m.t.last()] == m.z[m.t.last()])
    return m


def early(times):
    m = decaying()([-1.0, *times])
    m.before = pyo.Constraint(expr=m.A[-1.0] == m.A[m.t.last()])
    return m


def foreign(times):
    m = decaying()(times)
    m.c = pyo.Var()
    m.end = pyo.Constraint(expr=m.A[m.t.last()] <= m.c)
    return m


@pytest.mark.parametrize(
    ("builder", "error", "says"),
    [
        (stray, Unsupported, r"'end' contains \['z\[3.0\]'\].*Name them"),
        (foreign, Unsupported, r"'end' contains \['c'\].*fix them"),
        (
            early,
            Unsupported,
            r"'before' contains \['A\[-1.0\]'\], at times before the experiment starts",
        ),
    ],
)
def test_what_a_constraint_may_not_hold_is_refused(builder, error, says):
    run = Experiment(noisy(), start={"A": 2.0})
    problem = Problem(builder, parameters=["k", "u"], experiments=run)
    with pytest.raises(error, match=says):
        MultipleShooting().prepare(problem)
