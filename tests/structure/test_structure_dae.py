"""Structure analysis of models with algebraic variables."""

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time

from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.structure.identifiability import Access, Dependence
from igpe.structure.structure import analyse

TIMES = np.linspace(0.0, 1.0, 6)
UNKNOWN = ["kref1", "kref2", "kref4", "kc2", "Ea1", "Ea2", "Ea4", "dh2"]
RATES = {
    "k1": ("kref1", "Ea1"),
    "k2": ("kref2", "Ea2"),
    "k4": ("kref4", "Ea4"),
    "kc": ("kc2", "dh2"),
}


def problem_of(model, parameters, measured, **conditions):
    table = pd.DataFrame({"time": TIMES, **{name: TIMES + 1.0 for name in measured}})
    return Problem(model, parameters=parameters, experiments=Experiment(table, **conditions))


def urethane(times):
    """Michalik et al. 2009, IGPE, eqs. 12 to 26, with round numbers for constants."""
    others = "nD nE V k1 k2 k3 k4 kc r1 r2 r3 r4"
    m = over_time(times, "nA nB nC", others, **dict.fromkeys(UNKNOWN, (0, 100)))
    m.T = pyo.Param(m.t, mutable=True, default=350.0)

    def add(name, rule):
        m.add_component(name, pyo.Constraint(m.t, rule=rule))

    add("A", lambda m, t: m.dnA[t] == m.V[t] * (-m.r1[t] - m.r2[t] - 3 * m.r4[t]) + 0.1)
    add("B", lambda m, t: m.dnB[t] == -m.V[t] * m.r1[t] + 0.2)
    add("C", lambda m, t: m.dnC[t] == m.V[t] * (m.r1[t] - m.r2[t] + m.r3[t]))
    add("sum_A", lambda m, t: m.nA[t] + m.nC[t] + 2 * m.nD[t] + 3 * m.nE[t] == 1 + 0.1 * t)
    add("sum_B", lambda m, t: m.nB[t] + m.nC[t] + m.nD[t] == 2 + 0.2 * t)
    add("volume", lambda m, t: m.V[t] == m.nA[t] + m.nB[t] + m.nC[t] + m.nD[t] + m.nE[t] + 3)
    for k, (factor, energy) in RATES.items():
        add(
            f"law_{k}",
            lambda m, t, k=k, f=factor, e=energy: (
                getattr(m, k)[t] == getattr(m, f) * pyo.exp(-getattr(m, e) * (1 / m.T[t] - 0.003))
            ),
        )
    add("law_k3", lambda m, t: m.k3[t] == m.k2[t] / m.kc[t])
    add("flux_1", lambda m, t: m.r1[t] == m.k1[t] * m.nA[t] * m.nB[t] / m.V[t] ** 2)
    add("flux_2", lambda m, t: m.r2[t] == m.k2[t] * m.nA[t] * m.nC[t] / m.V[t] ** 2)
    add("flux_3", lambda m, t: m.r3[t] == m.k3[t] * m.nD[t] / m.V[t])
    add("flux_4", lambda m, t: m.r4[t] == m.k4[t] * m.nA[t] ** 2 / m.V[t] ** 2)
    return m


def urethane_problem(*measured):
    temperature = pd.Series([340.0, 360.0], index=[0.0, 1.0])
    start = {"nA": 0.1, "nB": 0.1, "nC": 0.0}
    return problem_of(urethane, UNKNOWN, measured, start=start, inputs={"T": temperature})


def test_whole_urethane_model_is_suitable():
    found = analyse(urethane_problem("nA", "nB", "nC"))
    assert found.names(Access.ALGEBRAIC) == tuple(UNKNOWN)
    (group,) = found.groups
    assert len(group.equations) == 15
    assert set(group.jointly) == {"kref1", "kref2", "kref4"}
    assert found["Ea1"].form is Dependence.NONLINEAR
    assert found.surplus == ()


def test_measured_volume_isolates_the_first_reaction():
    """The slope it predicts is the number computed by hand."""
    found = analyse(urethane_problem("nA", "nB", "nC", "V"))
    smallest = found.subsystems[0]
    assert set(smallest.equations) == {"B", "law_k1", "flux_1"}
    assert smallest.parameters == ("kref1", "Ea1")
    assert smallest.slopes == ("nB",)
    (one,) = found.surplus  # three balances for the two amounts that are not measured
    assert one.equations == ("sum_A", "sum_B", "volume")
    assert one.needless == 1
    used = {e for s in found.subsystems for e in s.equations}
    assert used & set(one.equations) == {"sum_B"}  # the smallest, for nD; nobody asks for nE
    posed, slope = found.reduced[0].posed, found.slopes[0]["nB"]
    f = ca.Function("f", [posed.q, posed.data, posed.time, posed.inputs], [slope])
    q = [{"kref1": 2.0, "Ea1": 7.0}.get(n, 1.0) for n in posed.q_names]
    k1 = 2.0 * np.exp(-7.0 * (1 / 340.0 - 0.003))
    want = -5.0 * k1 * 0.3 * 0.4 / 25.0 + 0.2
    assert posed.data_names == ("nA", "nB", "nC", "V")
    assert float(f(q, [0.3, 0.4, 0.1, 5.0], 0.0, 340.0)) == pytest.approx(want, rel=1e-12)


def test_unmeasured_product_leaves_urethane_to_the_dynamics():
    found = analyse(urethane_problem("nA", "nB"))
    assert found.groups == ()
    assert found.names(Access.DYNAMIC) == tuple(UNKNOWN)
    assert found["kref1"].measure == (("nC",),)


def conserved(times):
    """A + B -> C, where C follows from the conserved total; B has a slope of its own."""
    m = over_time(times, "A B", "C D", k=(0, 10), K=(0, 10))
    m.rate_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] * m.B[t])
    m.rate_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == -2 * m.k * m.A[t] * m.B[t])
    m.total = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] + m.B[t] + m.C[t] == 2)
    m.bound = pyo.Constraint(m.t, rule=lambda m, t: m.D[t] + m.K * m.D[t] ** 3 == m.C[t])
    return m


def test_conservation_recovers_an_unmeasured_state():
    found = analyse(problem_of(conserved, ["k", "K"], ["A", "C"], start={"A": 1.0, "B": 1.0}))
    (one, derived) = found.subsystems
    assert set(one.equations) == {"rate_A", "total"}
    assert set(one.unknowns) == {"d(A)", "B"}
    assert set(derived.equations) == {"rate_A", "rate_B", "total", "derivative of total"}
    assert found["k"].reach is Access.ALGEBRAIC
    assert found["K"].reach is Access.UNREACHABLE
    assert found["K"].measure == (("D",),)


def test_redundant_equation_is_named():
    start = {"A": 1.0, "B": 1.0}
    found = analyse(problem_of(conserved, ["k", "K"], ["A", "B", "C"], start=start))
    assert [s.equations for s in found.surplus] == [("total",)]
    assert "equation total relates only known variables; step 3 does not need it" in str(found)


@pytest.mark.parametrize(
    ("measured", "sentence"),
    [
        (["A", "D"], "equation law relates only known variables, so the measurements constrain its "
        "unknowns without any slope, which step 3 does not use: K"),
        (["A", "E"], "equations law, twice outnumber their unmeasured variables, so the "
        "measurements constrain their unknowns without any slope, which step 3 does not use: K"),
    ],
)  # fmt: skip
def test_an_equation_with_unknowns_is_never_called_redundant(measured, sentence):
    def law(times):
        m = over_time(times, "A", "D E", k=(0, 10), K=(0, 10))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.D[t] == m.K * m.A[t])
        m.twice = pyo.Constraint(m.t, rule=lambda m, t: m.E[t] == 2 * m.D[t])
        return m

    text = str(analyse(problem_of(law, ["k", "K"], measured, start={"A": 1.0})))
    assert sentence in text
    assert "not needed" not in text
    assert "redundant" not in text


def cubic(times):
    """M vanishes; it is the root of a cubic equation."""
    m = over_time(times, "total", "M", k=(0, 10), K=(0, 10))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dtotal[t] == -m.k * m.M[t])
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.total[t] == m.M[t] + m.K * m.M[t] ** 3)
    return m


def test_without_a_closed_expression_it_is_left_to_the_dynamics():
    found = analyse(problem_of(cubic, ["k", "K"], ["total"], start={"total": 1.0}))
    assert found.groups == ()
    assert found.subsystems[0].implicit == ("M",)
    assert found["k"].reach is Access.DYNAMIC
    assert "M cannot be written in closed form" in str(found)


def test_measuring_the_implicit_variable_closes_the_expression():
    found = analyse(problem_of(cubic, ["k", "K"], ["total", "M"], start={"total": 1.0}))
    assert found["k"].reach is Access.ALGEBRAIC
    assert found["K"].reach is Access.DYNAMIC


def bound(times):
    """M follows from a long linear balance as well as from a short cubic equation."""
    m = cubic(times)
    m.P, m.Q = pyo.Var(m.t), pyo.Var(m.t)
    m.split = pyo.Constraint(m.t, rule=lambda m, t: m.M[t] + m.P[t] + m.Q[t] == 2.0)
    m.pairs = pyo.Constraint(m.t, rule=lambda m, t: m.P[t] == 2 * m.Q[t])
    return m


def test_of_overlapping_equations_those_in_closed_form_are_used():
    measured = ["total", "P", "Q"]
    found = analyse(problem_of(bound, ["k", "K"], measured, start={"total": 1.0}))
    assert found["k"].reach is Access.ALGEBRAIC
    assert found["k"].equations == ("split", "rate")


def test_no_further_measurement_is_named_where_algebra_gives_the_unknown_already():
    """An unknown of an algebraic equation alone, and a measured function of its variable."""

    def model(times):
        m = over_time(times, "A", k=(0.01, 5), K=(1e-4, 1))
        m.H = pyo.Var(m.t, bounds=(1e-9, 1), initialize=0.1)
        m.pH = pyo.Expression(m.t, rule=lambda m, t: -pyo.log10(m.H[t]))
        m.decay = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] * m.H[t])
        m.charge = pyo.Constraint(
            m.t, rule=lambda m, t: m.H[t] == m.K * (2 - m.A[t]) / (m.K + m.H[t])
        )
        return m

    found = analyse(problem_of(model, ["k", "K"], ["A", "pH"], start={"A": 1.0}))
    assert found["K"].measure == ()
    assert "K  estimated from the dynamics (step 4)" in str(found)
