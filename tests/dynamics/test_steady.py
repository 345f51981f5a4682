"""Steady starts: values in closed form, derivatives against differences, and what is refused."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.core.errors import EstimationFailed, Unsupported
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.residuals import Residuals
from igpe.equations.compiled import compiled

TIMES = np.linspace(0.0, 10.0, 11)
TRUTH = {"k": 0.3, "r": 0.2, "f": 3.0, "total": 2.0}


def model(slopes):
    """A, B, C with slopes (m, t) -> three expressions; u is an input."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.u = pyo.Var(m.t)
        for name, value in TRUTH.items():
            m.add_component(name, pyo.Var(initialize=value, bounds=(0.01, 10)))
        for name in "ABC":
            m.add_component(name, pyo.Var(m.t))
        for i, name in enumerate("ABC"):
            slope = dae.DerivativeVar(m.component(name))
            m.add_component(f"d{name}", slope)
            rule = lambda m, t, i=i, s=slope: s[t] == slopes(m, t)[i]  # noqa: E731
            m.add_component(f"of_{name}", pyo.Constraint(m.t, rule=rule))
        return m

    return build


def binding(m, t):
    """A <-> B under u, C made by B and lost by its square: A + B is conserved."""
    forth = m.k * m.u[t] * m.A[t] - m.r * m.B[t]
    return -forth, forth, m.f * m.B[t] - m.C[t] ** 2


def posed(slopes=binding, steady=True, u=0.5, start=None):
    table = pd.DataFrame({"time": TIMES, "A": 0.0, "C": 0.0})
    run = igpe.Experiment(
        table,
        start=start or {"A": "total", "B": 0.0, "C": 1.0},
        inputs={"u": u},
        steady=steady,
        sigma=0.1,
    )
    return igpe.Problem(model(slopes), parameters=list(TRUTH), experiments=run)


@pytest.mark.parametrize(("steady", "u"), [(True, 0.5), ({"u": 0.5}, 2.0)])
def test_it_starts_at_rest_with_conserved_sums(steady, u):
    table = igpe.simulate(posed(steady=steady, u=u), TRUTH, times=[0.0, 1.0])
    b = 2.0 - 2 * 0.2 / (0.3 * 0.5 + 0.2)
    first = table[["A", "B", "C"]].to_numpy()[0]
    assert first == pytest.approx([2.0 - b, b, np.sqrt(3.0 * b)], rel=1e-12)
    moved = table["A"].iloc[1] - table["A"].iloc[0]
    assert moved == pytest.approx(0.0, abs=1e-9) if u == 0.5 else moved < -0.1


def test_derivatives_are_those_of_the_implicit_function():
    residuals = Residuals(posed(steady={"u": 0.5}, u=2.0), Automatic(1e-11, 1e-13))
    x = np.array(list(TRUTH.values()))
    by = [(residuals(x + d).residual - residuals(x - d).residual) / 2e-5 for d in 1e-5 * np.eye(4)]
    assert np.abs(residuals(x).jacobian - np.stack(by, 1)).max() <= 1e-6


RESTLESS = {
    "oscillating": (lambda m, t: (m.B[t], -m.A[t], -m.C[t]), "grow or oscillate"),
    "growing": (lambda m, t: (0.1 * m.A[t], -m.B[t], -m.C[t]), "grow or oscillate"),
    "unstable": (lambda m, t: (-m.A[t], (m.B[t] - 0.5) * m.k, -m.C[t]), "unstable"),
    "what it rests at depends on the way": (
        lambda m, t: (-m.A[t] * m.B[t], -m.B[t], -m.C[t]),
        "not isolated",
    ),
}


@pytest.mark.parametrize("name", RESTLESS)
def test_what_does_not_come_to_rest_is_said(name):
    slopes, words = RESTLESS[name]
    start = {"A": "total", "B": 0.5, "C": 1.0}
    with pytest.raises(EstimationFailed, match=words):
        igpe.simulate(posed(slopes, start=start), TRUTH, times=TIMES)


def test_equations_of_time_never_rest():
    slopes = lambda m, t: (-m.k * m.A[t] + pyo.sin(t), -m.B[t], -m.C[t])  # noqa: E731
    with pytest.raises(Unsupported, match="depend on time"):
        compiled(posed(slopes)).initial_value_problem(0, switching=True)


def test_multiple_shooting_refuses():
    with pytest.raises(Unsupported, match="knows no steady starts"):
        igpe.MultipleShooting().estimate(posed(), TRUTH)
