"""The discretised problem straight in CasADi: derivatives, and the same optimum as Pyomo's."""

import sys
from pathlib import Path

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
from igpe.dynamics.collocation.transcription import Transcription
from igpe.dynamics.shooting.base import constraints
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import linear_input
from igpe.problem.losses import NormalPrior
from igpe.problem.problem import Problem
from igpe.solvers.base import Answer
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
    ready = parts(problem, radau)
    assert ready is not None
    return Assembled(problem, ready, first_meshes(problem, (), radau, 1e-3))


def start_of(problem):
    return problem.box.mapping(problem.box.clip(np.ones(len(problem.box))))


def test_derivatives_against_central_differences(monkeypatch):
    kept = {}

    def compiled(scaled, settings, functions):
        kept.update(scaled=scaled, functions=functions)

    monkeypatch.setattr("igpe.dynamics.collocation.assembled.CompiledProgram", compiled)
    problem = posed(bounded, priors={"k": NormalPrior(1.0, 0.3)})
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


@pytest.mark.parametrize("builder", [model, bounded])
def test_the_optimum_is_that_of_the_pyomo_program(builder):
    problem = posed(builder, priors={"b": NormalPrior(1.0, 0.5)})
    one, found = assembled(problem, Radau(3)), []
    for program in (one, Transcription(problem, one.meshes)):
        program.begin(start_of(problem), ())
        program.prepare(Ipopt(), [start_of(problem)])
        answer = program.solve(None, ())
        assert answer.status is Status.CONVERGED
        courses = [c.states["x"] for c in program.trajectories()]
        found.append((answer.objective, program.parameters(), np.concatenate(courses)))
    (cost, values, x), (other_cost, other_values, other_x) = found
    assert cost == pytest.approx(other_cost, rel=1e-7)
    assert values == pytest.approx(other_values, rel=1e-5)
    assert x == pytest.approx(other_x, rel=1e-5)


def test_bounds_of_what_is_eliminated_are_kept():
    free, held = (Collocation().estimate(posed(b), start_of(posed(b))) for b in (model, bounded))
    assert held.status is Status.CONVERGED
    assert held.objective > 1.01 * free.objective
    assert free.parameters["k"] * 1.5 > 1.1  # w at the start, at most 1 where it is bounded
    assert held.parameters["k"] * 1.5 <= 1 + 1e-6  # IPOPT relaxes bounds a little


MODELS = Path(__file__).parents[2] / "models"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["methanol", "pendulum", "urethane"])
def test_the_first_mesh_of_known_problems_gives_the_same_in_both(name, monkeypatch):
    monkeypatch.syspath_prepend(str(MODELS))
    problem = __import__(name).problem()
    sys.modules.pop(name)
    optimum = start_of(problem)
    one, costs = assembled(problem), []
    for program in (one, Transcription(problem, one.meshes)):
        program.begin(optimum, ())
        program.prepare(Ipopt(), [optimum])
        costs.append(program.solve(None, ()).objective)
    assert costs[0] == pytest.approx(costs[1], rel=1e-6)


def test_what_wants_the_pyomo_model_is_left_to_it():
    def changing(times):
        m = model(times)
        for t, x in m.x.items():
            x.setub(5.0 + t)
        return m

    def with_end(times):
        m = model(times)
        m.end = pyo.Constraint(expr=m.x[m.t.last()] >= 0.1)
        return m

    def steep(times):
        m = model(times)
        for dx in m.dx.values():
            dx.setlb(-5.0)
        return m

    def own_times(times):
        return model(sorted({*times, 1.234}))

    assert constraints(posed(with_end))
    for builder in (changing, with_end, steep, own_times):
        assert parts(posed(builder), RADAU) is None
    assert parts(posed(), RADAU) is not None
    assert parts(posed(names=("x", "z")), RADAU) is None  # z is measured at the start


def test_where_nothing_converges_the_pyomo_program_is_tried(monkeypatch):
    def failing(self, time_limit, known):
        return Answer(Status.FAILED, message="on purpose")

    problem = posed()
    wanted = Collocation().estimate(problem, start_of(problem))
    monkeypatch.setattr(Assembled, "solve", failing)
    found = Collocation().estimate(problem, start_of(problem))
    assert found.status is Status.CONVERGED
    assert found.parameters == pytest.approx(wanted.parameters, rel=1e-4)
