"""Budgets and constraints at their edges: dropped experiments, Ctrl-C."""

import signal

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from test_design_limits import P

import igpe
from igpe.planning.design_problem import read_design
from igpe.planning.design_search import DesignSearch, SampledDesign
from igpe.planning.sample_choice import SampleChoice

AT = {"k1": 0.5, "k2": 0.3}


def chain(limit):
    """A to B to C, with one more constraint."""

    def build(times):
        m = over_time(times, "A B C", k1=(0.01, 10), k2=(0.01, 10))
        m.a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k1 * m.A[t])
        m.b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
        m.c = pyo.Constraint(m.t, rule=lambda m, t: m.dC[t] == m.k2 * m.B[t])
        if limit is not None:
            m.limit = limit(m)
        return m

    return build


def planned(limit=None, at=AT, start=None, local=(), **more):
    """A plan with 4 samples of A and B in each experiment."""
    begin = {"B": 0.0, "C": 0.0} if start is None else start
    nothing = P.ProblemWithoutData(
        chain(limit), list(AT), ["A", "B"], 10.0, start=begin, local=local
    )
    given = {
        "free": {"A": P.Between(0.5, 2)},
        "times": P.Sampling(np.linspace(1, 10, 10), at_most=4),
        "measure": {"A": 0.05, "B": 0.05},
        "pool": 16,
        "starts": 1,
    } | more
    return igpe.design(nothing, at, **given)


def ordered(m):
    """A constraint on unknowns alone."""
    return pyo.Constraint(expr=m.k2 <= m.k1)


def test_constraints_on_unknowns_alone_hold_for_the_given_values():
    assert planned(ordered).after == pytest.approx(planned().after, rel=1e-3)
    with pytest.raises(igpe.errors.ProblemError, match="satisfies limit"):
        planned(ordered, at={"k1": 0.3, "k2": 0.5})
    two = pd.DataFrame({"k1": [0.5, 0.6], "k2": [0.2, 0.9]})
    with pytest.raises(igpe.errors.ProblemError, match="satisfies limit"):
        planned(ordered, samples=two)


def test_constraints_without_a_value_are_not_taken_as_kept():
    """A selectivity is 0/0 at the start; no plan may pass as if it were checked."""

    def selectivity(m):
        return pyo.Constraint(m.t, rule=lambda m, t: m.B[t] / (m.B[t] + m.C[t]) >= 0.9)

    with pytest.raises(igpe.errors.ProblemError, match="satisfies limit"):
        planned(selectivity)


def test_weights_belong_to_the_experiments_of_the_plan():
    """Experiments without samples come last, and their weights with them."""
    nothing = P.ProblemWithoutData(chain(None), list(AT), ["A"], 10.0, start={"B": 0.0, "C": 0.0})
    posed = read_design(
        nothing, AT, free={"A": P.Between(0.5, 2)}, conditions={}, times=[1.0, 2.0],
        measure={"A": 0.05}, criterion=P.DOptimal(), count=2, existing=True, like=None,
        integrator=igpe.integrators.Automatic(),
    )  # fmt: skip
    taken = np.array([[[False], [False]], [[True], [True]]])
    chosen = SampleChoice(taken, 0.0, np.inf, taken.astype(float))
    design = np.array([[0.7], [1.5]])
    best = DesignSearch(posed, [{}], 1, 1, 0)._best([SampledDesign(design, chosen, 0.0)])
    assert best.design.ravel().tolist() == [1.5, 0.7]
    assert (best.chosen.weights == best.chosen.taken).all()
    assert best.chosen.taken[0].all()


def test_modified_e_takes_samples_where_nothing_is_known():
    """The ratio of two infinite axes is not 1."""
    plan = planned(criterion=P.ModifiedE(), experiments=2, budgets=P.Budget(5, sample=1))
    assert sum(len(e.times) for e in plan.experiments) == 5
    assert 1 <= plan.after < 10


@pytest.mark.parametrize("method", ["_finished", "_sampled"])
def test_ctrl_c_keeps_plans_with_free_times(method, monkeypatch):
    """In the search, and when the times are refined."""
    original = getattr(DesignSearch, method)

    def interrupted(*given, **named):
        if method == "_finished" or named["thorough"]:
            signal.raise_signal(signal.SIGINT)
        return original(*given, **named)

    monkeypatch.setattr(DesignSearch, method, interrupted)
    plan = planned(times=P.Sampling((1.0, 10.0), at_most=4, free=True))
    assert plan.notes[0].startswith("Interrupted")
    assert len(plan.experiments[0].times) == 4
