"""The hash of a problem: the same for the same, another for whatever a fit depends on."""

from importlib import import_module

import cloudpickle
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.equations.compiled import fingerprint

TIMES = np.linspace(0.0, 3.0, 7)


def builder(rate=1.0, *, constraint=None, limit=None, lowest=0.0):
    def model(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A, m.k, m.j = pyo.Var(m.t, bounds=(lowest, None)), pyo.Var(bounds=(0, 5)), pyo.Var()
        m.u = pyo.Var(m.t)
        m.dA = dae.DerivativeVar(m.A)
        m.rate = pyo.Constraint(
            m.t, rule=lambda m, t: m.dA[t] == -rate * m.k * m.A[t] + m.j * m.u[t]
        )
        if constraint is not None:
            m.tie = pyo.Constraint(expr=m.A[max(m.t)] == constraint)
        if limit is not None:
            m.limit = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] <= limit)
        return m

    return model


def problem(model=None, *, value=1.0, run=None, **settings):
    data = pd.DataFrame({"time": TIMES, "A": value * np.exp(-TIMES)})
    conditions = {"start": {"A": 1.0}, "inputs": {"u": 0.5}, "sigma": 0.1} | (run or {})
    bounds = {"k": (0.1, 5), "j": (0.1, 2)}
    given = {"parameters": bounds, "experiments": igpe.Experiment(data, **conditions)} | settings
    return igpe.Problem(model or builder(), **given)


def test_the_same_said_again_is_the_same():
    told = fingerprint(problem())
    assert told == fingerprint(problem(builder(1.0)))
    assert told == fingerprint(cloudpickle.loads(cloudpickle.dumps(problem())))
    assert told == fingerprint(problem().fixing({}))


@pytest.mark.parametrize("name", ["urethane", "stat5", "pendulum", "lotka_volterra_iss"])
def test_a_problem_that_has_travelled_is_the_same(name):
    given = import_module(name).problem()
    there = cloudpickle.loads(cloudpickle.dumps(given))
    assert there is not given
    assert fingerprint(there) == fingerprint(given)


CHANGES = {
    "equation": lambda: problem(builder(1.0 + 1e-12)),
    "constraint": lambda: problem(builder(constraint=0.1)),
    "its number": lambda: problem(builder(constraint=0.2)),
    "path constraint": lambda: problem(builder(limit=2.0)),
    "bound of a state": lambda: problem(builder(lowest=-1.0)),
    "measurement": lambda: problem(value=1.0 + 1e-12),
    "sigma": lambda: problem(run={"sigma": 0.2}),
    "sigma unknown": lambda: problem(run={"sigma": None}),
    "sigma unknown and equal": lambda: problem(run={"sigma": "equal"}),
    "error model": lambda: problem(run={"sigma": igpe.Noise(relative=0.1)}),
    "weights": lambda: problem().weighted([np.full(7, 0.1 + 1e-9)]),
    "start": lambda: problem(run={"start": {"A": 1.1}}),
    "unknown start": lambda: problem(run={"start": {"A": igpe.Unknown(0.5, 2)}}),
    "input": lambda: problem(run={"inputs": {"u": 0.6}}),
    "input's table": lambda: problem(run={"inputs": {"u": igpe.linear_input([0, 3], [0.5, 0.6])}}),
    "input's numbers": lambda: problem(
        run={"inputs": {"u": igpe.linear_input([0, 3], [0.5, 0.7])}}
    ),
    "input's jump": lambda: problem(run={"inputs": {"u": igpe.step_input([0, 1.5], [0.5, 0.6])}}),
    "event": lambda: problem(run={"events": igpe.Event(at=1.0, add={"A": 1.0})}),
    "its amount": lambda: problem(run={"events": igpe.Event(at=1.0, add={"A": 2.0})}),
    "its time": lambda: problem(run={"events": igpe.Event(at=1.2, add={"A": 1.0})}),
    "its effect": lambda: problem(run={"events": igpe.Event(at=1.0, set={"A": 1.0})}),
    "its delay": lambda: problem(run={"events": igpe.Event(at=1.0, add={"A": 1.0}, delay=0.1)}),
    "event of a state": lambda: problem(
        run={"events": igpe.Event(when=lambda m, t: m.A[t] <= 0.5, add={"A": 1.0})}
    ),
    "another level": lambda: problem(
        run={"events": igpe.Event(when=lambda m, t: m.A[t] <= 0.4, add={"A": 1.0})}
    ),
    "steady": lambda: problem(run={"steady": True}),
    "steady elsewhere": lambda: problem(run={"steady": {"u": 0.1}}),
    "name": lambda: problem(run={"name": "other"}),
    "bounds": lambda: problem(parameters={"k": (0.1, 5), "j": (0.1, 3)}),
    "held": lambda: problem().fixing({"j": 1.0}),
    "held elsewhere": lambda: problem().fixing({"j": 1.1}),
    "prior": lambda: problem(priors={"k": igpe.losses.NormalPrior(1, 0.1)}),
    "its mean": lambda: problem(priors={"k": igpe.losses.NormalPrior(1.1, 0.1)}),
    "loss": lambda: problem(loss=igpe.losses.Huber(1.5)),
    "loss's number": lambda: problem(loss=igpe.losses.Huber(1.6)),
    "logarithmic": lambda: problem(logarithmic=["k"]),
}


@pytest.fixture(scope="module")
def told():
    """The fingerprints of the problem and of all that differ from it."""
    return {"plain": fingerprint(problem())} | {n: fingerprint(p()) for n, p in CHANGES.items()}


@pytest.mark.parametrize("name", CHANGES)
def test_what_a_fit_depends_on_is_in_it(name, told):
    assert [other for other, its in told.items() if its == told[name]] == [name]
