"""The discretised problem in CasADi: derivatives, and the same optimum as one of Pyomo's."""

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

from igpe.core.status import Status
from igpe.dynamics.collocation.assembled import Assembled, parts
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.collocation.mesh import Radau, first_meshes
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import evaluate, linear_input
from igpe.problem.losses import NormalPrior
from igpe.problem.problem import Problem
from igpe.solvers.ipopt import Ipopt

TIMES = np.linspace(0.0, 2.0, 9)
RADAU = Radau(2)


def model(times):
    """An implicit z, an explicit w (its bounds by `bounded`), a table u and the time itself."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x, m.z = pyo.Var(m.t, initialize=1.0), pyo.Var(m.t, bounds=(0, 9), initialize=0.7)
    m.w = pyo.Var(m.t, initialize=1.0)
    m.u = pyo.Param(m.t, mutable=True, default=0.0)
    m.dx = dae.DerivativeVar(m.x)
    m.k, m.b = pyo.Var(bounds=(0.1, 5), initialize=1.0), pyo.Var(bounds=(0.1, 5), initialize=1.0)
    m.implicit = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] ** 3 + m.b * m.z[t] == m.x[t])
    m.explicit = pyo.Constraint(m.t, rule=lambda m, t: m.w[t] == m.k * m.x[t])
    m.balance = pyo.Constraint(
        m.t, rule=lambda m, t: m.dx[t] == -m.w[t] * m.z[t] + m.u[t] * pyo.exp(-t)
    )
    m.square = pyo.Expression(m.t, rule=lambda m, t: m.x[t] ** 2 * m.b)
    return m


def bounded(times):
    m = model(times)
    for w in m.w.values():
        w.setub(1.0)
    return m


def with_constraints(times):
    """Constraints of all kinds, all of which hold the optimum of made-up data."""
    m = bounded(times)
    m.path = pyo.Constraint(m.t, rule=lambda m, t: m.z[t] + m.u[t] <= 0.9 + 0.1 * t)
    m.end = pyo.Constraint(expr=m.x[m.t.last()] >= 0.35 * m.x[m.t.first()])
    m.between = pyo.Constraint(expr=m.k + m.b >= 1.5)
    for t, x in m.x.items():
        x.setub(1.8 - 0.4 * t)
    for dx in m.dx.values():
        dx.setlb(-1.4)
    return m


def posed(builder=model, names=("x", "square"), **options):
    """Made-up data: what is compared needs no good fit."""
    random = np.random.default_rng(3)
    data = pd.DataFrame({"time": TIMES})
    for name in names:
        data[name] = (1.5 if name == "x" else 2.0) * np.exp(-0.6 * TIMES)
        data[name] += 0.05 * random.normal(size=len(TIMES))
    feed = {"u": linear_input([0.0, 1.1, 2.0], [0.0, 0.4, 0.1])}
    known = Experiment(data, sigma=0.1, start={"x": 1.5}, inputs=feed, name="known")
    sought = Experiment(
        data.iloc[2:], sigma=0.2, start={"x": Unknown(0.5, 4.0)}, inputs=feed, name="sought"
    )
    return Problem(builder, parameters=["k", "b"], experiments=[known, sought], **options)


def assembled(problem, radau=RADAU):
    return Assembled(problem, parts(problem, radau), first_meshes(problem, (), radau, 1e-3))


def start_of(problem):
    return problem.box.mapping(problem.box.clip(np.ones(len(problem.box))))


@pytest.mark.parametrize(
    ("builder", "names"), [(bounded, ("x", "square")), (with_constraints, ("x", "z"))]
)
def test_derivatives_against_central_differences(builder, names, monkeypatch):
    kept = {}

    def compiled(scaled, settings, functions):
        kept.update(scaled=scaled, functions=functions)

    monkeypatch.setattr("igpe.dynamics.collocation.assembled.CompiledProgram", compiled)
    problem = posed(builder, names, priors={"k": NormalPrior(1.0, 0.3)})
    one = assembled(problem)
    one.begin(start_of(problem), ())
    one.prepare(Ipopt(), [start_of(problem)])
    program, functions = kept["scaled"].program, kept["functions"]
    n, m = program["x"].numel(), program["g"].numel()
    random, h, lam_f = np.random.default_rng(1), 1e-6, 0.7
    x = one.values / kept["scaled"].variables * random.uniform(0.8, 1.2, n)
    lam_g = random.normal(size=m)
    of = ca.Function("of", [program["x"]], [program["f"], program["g"]])

    def differences(function):
        columns = [(function(x + e) - function(x - e)) / (2 * h) for e in h * np.eye(n)]
        return np.array(columns).T

    def slope(at):
        gradient, jacobian = functions["grad_f"](at, [])[1], functions["jac_g"](at, [])[1]
        return np.array(lam_f * gradient + ca.mtimes(jacobian.T, lam_g)).ravel()

    (f, gradient), (g, jacobian) = functions["grad_f"](x, []), functions["jac_g"](x, [])
    upper = np.array(functions["hess_lag"](x, [], lam_f, lam_g))
    assert float(f) == pytest.approx(float(of(x)[0]), rel=1e-14)
    assert np.array(g) == pytest.approx(np.array(of(x)[1]), abs=1e-14)
    by_x = differences(lambda at: np.array(of(at)[0]).ravel())
    assert pytest.approx(by_x, rel=1e-6, abs=1e-7) == np.array(gradient).T
    by_x = differences(lambda at: np.array(of(at)[1]).ravel())
    assert np.array(jacobian) == pytest.approx(by_x, rel=1e-6, abs=1e-8)
    hessian = upper + np.triu(upper, 1).T
    assert (np.tril(upper, -1) == 0).all()
    assert hessian == pytest.approx(differences(slope), rel=1e-6, abs=1e-7)
    assert abs(hessian).max() > 0.1


def by_pyomo(problem, builder, meshes):
    """Objective and unknowns of the same program, written with the models on these meshes."""
    whole = pyo.ConcreteModel()
    whole.k, whole.b = (pyo.Var(bounds=(0.1, 5), initialize=1.0) for _ in "kb")
    whole.tied, cost = pyo.ConstraintList(), ((whole.b - 1.0) / 0.5) ** 2
    for experiment, mesh in zip(problem.experiments, meshes, strict=True):
        m = builder(mesh.times)
        whole.add_component(experiment.name, m)
        for t, u in m.u.items():
            u.set_value(evaluate(experiment.inputs["u"], t))
        whole.tied.add(m.k == whole.k)
        whole.tied.add(m.b == whole.b)
        if experiment.name == "known":
            m.x[0].fix(1.5)
        else:
            m.x[0].setlb(0.5)
            m.x[0].setub(4.0)
        times = mesh.times
        m.polynomials = pyo.ConstraintList()
        for members, width in zip(mesh.members, np.diff(mesh.edges), strict=True):
            at = [float(times[i]) for i in members]
            for row, t in zip(mesh.radau.slopes[1:], at[1:], strict=True):
                slope = sum(float(c) * m.x[s] for c, s in zip(row, at, strict=True))
                m.polynomials.add(slope == float(width) * m.dx[t])
        measured = experiment.measurements
        for row, column, value, sigma in zip(
            measured.row, measured.column, measured.value, measured.sigma, strict=True
        ):
            quantity = m.find_component(measured.names[column])[float(measured.times[row])]
            cost += ((quantity - float(value)) / float(sigma)) ** 2
    whole.cost = pyo.Objective(expr=cost)
    answer = Ipopt().solve(whole)
    assert answer.status is Status.CONVERGED
    return answer.objective, {"k": whole.k.value, "b": whole.b.value}


@pytest.mark.parametrize("builder", [model, bounded, with_constraints])
def test_the_optimum_is_that_of_a_pyomo_program(builder):
    """All equations, bounds and constraints stand there as the user wrote them."""
    problem = posed(builder, priors={"b": NormalPrior(1.0, 0.5)})
    one = assembled(problem, Radau(3))
    one.begin(start_of(problem), ())
    one.prepare(Ipopt(), [start_of(problem)])
    answer = one.solve()
    assert answer.status is Status.CONVERGED
    cost, values = by_pyomo(problem, builder, one.meshes)
    assert answer.objective == pytest.approx(cost, rel=1e-6)
    found = one.parameters()
    assert {n: found[n] for n in values} == pytest.approx(values, rel=1e-5)


def test_bounds_of_what_is_eliminated_are_kept():
    free, held = (Collocation().estimate(posed(b), start_of(posed(b))) for b in (model, bounded))
    assert held.status is Status.CONVERGED
    assert held.objective > 1.01 * free.objective
    assert free.parameters["k"] * 1.5 > 1.1  # w at the start, at most 1 where it is bounded
    assert held.parameters["k"] * 1.5 <= 1 + 1e-6  # IPOPT relaxes bounds a little


def test_times_of_the_model_become_edges():
    def own_times(times):
        return model(sorted({*times, 1.234}))

    def path(times):
        m = own_times(times)
        m.path = pyo.Constraint(m.t, rule=lambda m, t: m.x[t] >= -1)
        return m

    def at_a_time(times):
        m = own_times(times)
        m.one = pyo.Constraint(expr=m.x[1.234] >= -1)
        return m

    assert 1.234 not in assembled(posed(own_times)).meshes[0].edges  # nothing needs it
    for builder in (path, at_a_time):
        assert 1.234 in assembled(posed(builder)).meshes[0].edges


@pytest.mark.parametrize("names", [("x", "z"), ("x", "square")])
def test_what_is_measured_at_the_start_may_be_implicit(names):
    problem = posed(names=names)
    found = Collocation().estimate(problem, start_of(problem))
    shot = SingleShooting().estimate(problem, found.parameters)
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(shot.objective, rel=1e-6)
    assert found.parameters == pytest.approx(shot.parameters, rel=1e-4)
