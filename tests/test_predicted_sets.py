"""Sets of values that structure predicts, and where the search for other optima goes with them."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time

import igpe
from igpe.core.box import Box
from igpe.estimation.equally_good import predicted
from igpe.results.answer import actions
from igpe.structure.solutions import Alternatives

pytestmark = pytest.mark.thorough

TIMES = np.linspace(0.0, 8.0, 60)


def box(**bounds):
    low, high = np.array(list(bounds.values()), dtype=float).T
    return Box(tuple(bounds), low, high)


@pytest.mark.parametrize(
    ("functions", "start", "other"),
    [
        (("3*k1 + 4*k2", "k1*k2"), {"other": 0.5, "k1": 2.0, "k2": 0.3}, [0.5, 0.4, 1.5]),
        (("q + q1", "q*q1"), {"q": 2.0, "q1": 0.3}, [0.3, 2.0]),
        (("k1 + k2", "k1*k2"), {"k1": 2.0, "k2": 0.3, "A(t0)": 1.0}, [0.3, 2.0, 1.0]),
    ],
    ids=["beside another", "names that begin alike", "A(t0) in no function stays and is free"],
)
def test_the_other_solution_is_that_of_the_functions(functions, start, other):
    one = Alternatives(tuple(n for n in start if n != "other"), 2, functions)
    own = box(**dict.fromkeys(start, (0, 10)))
    ((point, held),) = predicted([one], own, np.array(list(start.values())), seed=0)
    assert [own.names[i] for i in held] == [n for n in start if n in functions[0]]
    assert point == pytest.approx(other, rel=1e-6)


def test_what_shares_no_function_moves_at_once_and_what_no_function_determines_stays():
    """Two compartments of four change places; of their start values only the product is known."""
    names = ("k13", "k14", "k31", "k41", "x3(t0)", "x4(t0)")
    functions = "3*k13 + 4*k14", "6*k31 + 7*k41", "k13*k14", "k31*k41", "x3(t0)*x4(t0)"
    x = np.array([0.3, 0.27225, 0.777, 0.4068 / 0.7, 0.7, 0.6])
    points = predicted(
        [Alternatives(names, 2, functions)], box(**dict.fromkeys(names, (1e-5, 10))), x, seed=3
    )
    exchanged = [0.363, 0.225, 0.678, 0.666, 0.7, 0.6]
    assert points[0][0] == pytest.approx(exchanged, rel=1e-6)
    assert [held for _, held in points] == [[0, 1, 2, 3]] * 3


@pytest.mark.parametrize("functions", [(), ("sin(k1)",), ("__import__('os')",)])
def test_what_is_no_plain_formula_predicts_nothing(functions):
    one = Alternatives(("k1", "k2"), 2, functions)
    assert predicted([one], box(k1=(0, 1), k2=(0, 1)), np.array([0.5, 0.2]), seed=0) == []


def test_solutions_beyond_the_bounds_are_left_out():
    one = Alternatives(("k1", "k2"), 2, ("3*k1 + 4*k2", "k1*k2"))
    assert predicted([one], box(k1=(1, 10), k2=(0, 10)), np.array([2.0, 0.3]), seed=0) == []


def scaled(times):
    """A feeds two pools that are seen as one weighted sum: they may change places, scaled."""
    m = over_time(times, "A B C", **dict.fromkeys("pqrs", (0.01, 10)))
    m.a = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.A[t])
    m.b = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.p * m.A[t] - 3 * m.r * m.B[t])
    m.c = pyo.Constraint(m.t, rule=lambda m, t: m.dC[t] == m.q * m.A[t] - 4 * m.s * m.C[t])
    m.y = pyo.Expression(m.t, rule=lambda m, t: 1.2 * m.B[t] + 1.6 * m.C[t])
    return m


@pytest.mark.slow
def test_an_estimate_has_both_sets():
    truth = {"p": 0.9, "q": 0.4, "r": 0.1, "s": 0.5}
    start = {"A": 1.0, "B": 0.0, "C": 0.0}
    blank = pd.DataFrame({"time": TIMES[1:], "y": 0.0})
    posed = igpe.Problem(
        scaled,
        parameters=list(truth),
        experiments=igpe.Experiment(blank, start=start, start_time=0.0),
    )
    exact = igpe.simulate(posed, truth, TIMES[1:])["y"].to_numpy()
    noise = 1e-5 * np.random.default_rng(0).standard_normal(len(exact))
    result = igpe.estimate(posed.with_data(blank.assign(y=exact + noise)))
    sets = [result.parameters, *(one.parameters for one in result.other_optima)]
    mirrored = {"p": 4 / 3 * 0.4, "q": 3 / 4 * 0.9, "r": 4 / 3 * 0.5, "s": 3 / 4 * 0.1}
    assert len(sets) == 2
    for wanted in (truth, mirrored):
        assert any(one == pytest.approx(wanted, rel=0.05) for one in sets)


def test_like_terms_exchange_their_values_and_more_of_the_same_data_cannot_help():
    slopes = {"a": lambda m, t: -m.ka * m.a[t], "b": lambda m, t: -m.kb * m.b[t]}
    total = {"s": lambda m, t: m.a[t] + m.b[t]}
    model = ode(slopes, outputs=total, ka=(0.01, 5), kb=(0.01, 5), fa=(0, 2), fb=(0, 2))
    t = np.linspace(0, 12, 25)
    noise = 0.002 * np.random.default_rng(1).standard_normal(25)
    data = pd.DataFrame({"time": t, "s": 1.2 * np.exp(-1.1 * t) + 0.6 * np.exp(-0.2 * t) + noise})
    run = igpe.Experiment(data, start={"a": "fa", "b": "fb"}, sigma=0.002)
    problem = igpe.Problem(model, parameters=["ka", "kb", "fa", "fb"], experiments=[run])
    result = igpe.estimate(problem, certify=False)
    (sets,) = [line for line in actions(result) if "sets of values" in line]
    assert "Between sets, ka and kb exchange their values, and so do fa and fb." in sets
    assert "give the order by a constraint (m.ka >= m.kb) or by bounds." in sets
    assert "Measure more" not in sets
    assert "can distinguish the sets" not in result.details.text
    (other,) = result.other_optima
    estimates = tuple(replace(p, value=1.01 * p.value) for p in other.estimates)
    moved = replace(result, other_optima=(replace(other, estimates=estimates),))
    assert "Measure more, or narrow the bounds." in actions(moved)[0]
