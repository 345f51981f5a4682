"""Implicit algebraic variables in compiled equations: the same as IDAS, with all derivatives."""

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import needs_compiler, posed
from ode import over_time
from zoo import CASES

import igpe
from igpe.core.status import Status
from igpe.dynamics.integrators import formulas
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.runge_kutta_source import written
from igpe.dynamics.integrators.sundials import Sundials
from igpe.equations.compiled import compiled

pytestmark = needs_compiler
EXACT, CLOSE = Sundials(rtol=1e-11, atol=1e-13), RungeKutta(rtol=1e-10, atol=1e-12)
TIMES = np.linspace(0, 5, 21)
PARTS = ("ends", "ends_by", "measured", "measured_by")


def titration(m):
    """Each variable follows from those before; one spans decades."""

    @m.Constraint(m.t)
    def first(m, t):
        return m.y[t] + m.p * m.y[t] ** 3 == m.a[t]

    @m.Constraint(m.t)
    def second(m, t):
        return m.z[t] + pyo.log(m.z[t]) == m.y[t] - m.p

    m.z.setlb(1e-8), m.z.setub(1e2)


def mixed(m):
    """Both variables solve both equations, the diagonal of whose Jacobian is 0 at the start."""

    @m.Constraint(m.t)
    def first(m, t):
        return m.z[t] + 0.1 * m.z[t] ** 3 + m.p * m.b[t] * m.y[t] == m.a[t]

    @m.Constraint(m.t)
    def second(m, t):
        return m.y[t] ** 3 + m.y[t] + 0.1 * m.b[t] * m.z[t] ** 2 == m.u[t] + 0.5 * m.a[t]


def moved(algebraic, *inputs):
    """a and b move by y and z, which two equations give; u jumps, or is 1; a run for each input."""

    def build(times):
        m = over_time(times, "a b", "y z", k=(0.01, 10), p=(0.01, 10))
        m.u = pyo.Param(m.t, mutable=True, default=1.0)
        m.rate_a = pyo.Constraint(m.t, rule=lambda m, t: m.da[t] == -m.k * m.y[t])
        m.rate_b = pyo.Constraint(m.t, rule=lambda m, t: m.db[t] == m.k * m.y[t] - m.z[t] * m.b[t])
        algebraic(m)
        return m

    table = pd.DataFrame({"time": TIMES, "b": 0.0, "y": 0.0, "z": 0.0})
    start = {"a": 2.0, "b": 0.0}
    runs = [igpe.Experiment(table, start=start, inputs=i, sigma=0.1) for i in inputs or ({},)]
    return igpe.Problem(build, parameters=["k", "p"], experiments=runs)


JUMPING = {"u": igpe.step_input([0, 2.1], [1.0, 0.3])}
PROBLEMS = {
    "titration": moved(titration),
    "mixed": moved(mixed),
    "jumping": moved(mixed, JUMPING),
    "dimer": CASES["dimer"].problem(),
}
Q, NODES = np.array([0.7, 0.5]), np.linspace(0, 5, 4)
STARTS = np.array([[2.0, 0.0], [1.0, 0.5], [0.5, 0.4]])


def agree(one, other, parts):
    """Whether these parts are the same to the accuracy of the rougher integrator."""
    for name in parts:
        np.testing.assert_allclose(
            getattr(one, name), getattr(other, name), 1e-6, 1e-7, err_msg=name
        )


@pytest.mark.parametrize("name", PROBLEMS)
def test_trajectories_and_their_derivatives_are_those_of_idas(name):
    problem, times, q = PROBLEMS[name], TIMES, Q
    if name == "dimer":
        times, q = CASES[name].times, problem.box.vector(CASES[name].truth)
    one, other = (
        m.simulation(posed(problem), times, sensitivities=True).run(q) for m in (CLOSE, EXACT)
    )
    assert one.status is other.status is Status.CONVERGED
    agree(one, other, ("states", "implicit", "measured", "by_unknown", "measured_by_unknown"))


@pytest.mark.parametrize("name", ["titration", "mixed", "jumping"])
def test_intervals_chains_and_sweeps(name):
    ivp = posed(PROBLEMS[name])
    one, other = (m.prepare(ivp, NODES, TIMES) for m in (CLOSE, EXACT))
    agree(one.run(STARTS, Q), other.run(STARTS, Q), PARTS)
    first = np.vstack([np.zeros((2, 3)), np.eye(2, 3)])
    first[0, 2] = 0.3
    agree(one.chained(STARTS, Q, first), other.chained(STARTS, Q, first), PARTS)
    recorded = one.recorded(STARTS, Q, first)
    weights = np.random.default_rng(0).standard_normal(recorded.along.measured.shape)
    none, unit = np.zeros((3, 2)), np.eye(4)
    along = one.chained(STARTS, Q, np.hstack([unit, unit[:, :1]]), gaps=none, probed=True)
    swept = one.swept(recorded, weights)
    expected = np.einsum("th,thd->d", weights, along.measured_by)[:4]
    np.testing.assert_allclose(np.concatenate([swept.by_node[0], swept.by_unknown]), expected, 1e-9)


def test_derivatives_are_those_of_the_values():
    run = CLOSE.simulation(posed(PROBLEMS["jumping"]), TIMES, sensitivities=True).run
    step = 1e-5
    for k, by in enumerate(np.eye(2)):
        apart = (run(Q + step * by).measured - run(Q - step * by).measured) / (2 * step)
        np.testing.assert_allclose(run(Q).measured_by_unknown[:, :, k], apart, 1e-4, 1e-6)


def test_equations_that_break_down_are_left_to_idas():
    def folded(m):
        m.first = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] ** 3 - 3 * m.y[t] == m.a[t])
        m.second = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] == m.y[t] ** 3)
        m.y.setlb(0)

    ivp = posed(moved(folded))
    found = Automatic().simulation(ivp, TIMES, sensitivities=True).run(Q)
    exact = Sundials().simulation(ivp, TIMES, sensitivities=True).run(Q)
    assert found.status is exact.status is Status.INTEGRATION_BROKE
    assert (found.reason, found.reached) == (exact.reason, exact.reached)


def test_starts_without_consistent_values_are_named():
    def without(m):
        m.first = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] ** 2 == -m.a[t])
        m.second = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] == m.y[t])

    found = Automatic().simulation(posed(moved(without)), TIMES, sensitivities=True).run(Q)
    assert "No consistent values of the algebraic variables were found at t = 0" in found.reason


def test_variables_that_dependent_equations_leave_open_are_named():
    def dependent(m):
        m.first = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] * m.z[t] == m.a[t])
        m.second = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] ** 2 * m.z[t] ** 2 == m.a[t] ** 2)

    found = EXACT.simulation(posed(moved(dependent)), TIMES, sensitivities=False).run(Q)
    assert "do not determine ['y', 'z'] uniquely at t = 0: one equation follows" in found.reason


@pytest.mark.parametrize("after", [20.0, -20.0])
def test_after_a_jump_of_an_input_the_root_lies_within_the_bounds(after):
    """Of three roots the one between 2 and 5; Newton's method alone goes on to another one."""

    def three(m):
        @m.Constraint(m.t)
        def first(m, t):
            return (m.y[t] - 1) * (m.y[t] - 3) * (m.y[t] - 6) == m.u[t] * (m.y[t] - 4)

        @m.Constraint(m.t)
        def second(m, t):
            return m.z[t] + 0.1 * m.z[t] ** 3 == 1 + m.y[t] ** 2 + 0.1 * m.p * m.a[t]

        m.y.setlb(2), m.y.setub(5)

    ivp = posed(moved(three, {"u": igpe.step_input([0, 2.1], [0.0, after])}))
    one, other = (m.simulation(ivp, TIMES, sensitivities=True).run(Q) for m in (Automatic(), EXACT))
    assert 2 < one.implicit[-1, 0] < 5
    agree(one, other, ("states", "implicit", "measured", "by_unknown", "measured_by_unknown"))


def test_an_experiment_without_consistent_values_beside_another_one():
    """Experiments share compiled formulas; the second has no root within the bounds."""

    def bounded(m):
        m.first = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] + m.y[t] ** 3 == m.u[t] * m.a[t])
        m.second = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] == m.y[t] * m.p)
        m.y.setlb(0.1)

    read = compiled(moved(bounded, {"u": 1.0}, {"u": 0.0}))
    first, second = (
        Automatic().simulation(read.initial_value_problem(k), TIMES, sensitivities=True).run(Q)
        for k in range(2)
    )
    assert first.status is Status.CONVERGED
    assert "No consistent values" in second.reason


def test_blocks_that_are_too_large_are_left_to_idas(monkeypatch):
    monkeypatch.setattr(formulas, "LARGEST_BLOCK", 1)
    written.cache_clear()
    ivp = posed(moved(mixed))
    refused = RungeKutta().prepare(ivp, NODES, TIMES)
    assert "cannot integrate these equations with the implicit" in refused.refused
    one, other = (
        m.simulation(ivp, TIMES, sensitivities=True).run(Q) for m in (Automatic(), Sundials())
    )
    assert np.array_equal(one.states, other.states)
    written.cache_clear()


@pytest.mark.parametrize("n", [1, 3])
def test_blocks_come_before_those_that_need_them(n):
    below = np.kron(np.tri(4), np.ones((n, n)))
    rng = np.random.default_rng(1)
    rows, columns = rng.permutation(4 * n), rng.permutation(4 * n)
    made = formulas.blocks_of(ca.sparsify(ca.DM(below[rows][:, columns])).sparsity())
    assert [len(equations) for equations, _ in made] == [n] * 4
    known = set()
    for equations, variables in made:
        known |= set(variables)
        needs = np.flatnonzero(below[rows][:, columns][equations].any(axis=0))
        assert set(needs.tolist()) <= known
