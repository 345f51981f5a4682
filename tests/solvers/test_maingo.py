"""MAiNGO behind the wall: what it can take, what it refuses, and that it can be stopped."""

import os
import signal
import threading
import time
from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest
from test_solvers import camel, rugged, small_residuals

from igpe.core.status import Status
from igpe.solvers.ipopt import Ipopt
from igpe.solvers.maingo import MAiNGO

pytestmark = pytest.mark.skipif(not MAiNGO().available(), reason=MAiNGO().install)


def test_small_residuals_are_not_undercut() -> None:
    local, proven = small_residuals(), small_residuals()
    known = Ipopt().solve(local).objective
    answer = MAiNGO().solve(proven)
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert answer.objective == pytest.approx(known, rel=2e-4)
    assert known * (1 - 1e-3) <= answer.lower_bound <= known * (1 + 1e-6)


def test_variables_that_equations_define_need_no_bounds() -> None:
    m = camel()
    m.w, m.z = pyo.Var(bounds=(0, None)), pyo.Var()
    m.define_z = pyo.Constraint(expr=2 * m.z == m.w + m.x * m.y)
    m.define_w = pyo.Constraint(expr=m.w == m.x**2)
    m.limit = pyo.Constraint(expr=pyo.inequality(0.05, m.z, 2.0))
    answer = MAiNGO().solve(m)
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert m.w.value == pytest.approx(m.x.value**2, abs=1e-9)
    assert m.z.value == pytest.approx((m.x.value**2 + m.x.value * m.y.value) / 2, abs=1e-9)
    assert 0.05 - 1e-6 <= m.z.value <= 2.0
    assert answer.objective == pytest.approx(pyo.value(m.cost))


def test_the_one_bound_of_a_defined_variable_holds() -> None:
    m = camel()
    m.w = pyo.Var(bounds=(1.0, None))
    m.define = pyo.Constraint(expr=m.w == m.x**2)
    answer = MAiNGO().solve(m)
    assert answer.status is Status.OPTIMAL_WITHIN_GAP
    assert m.x.value**2 >= 1.0 - 1e-6


def test_definitions_in_a_circle_are_refused_unless_bounded() -> None:
    m = camel()
    m.a, m.b = pyo.Var(initialize=0.0), pyo.Var(initialize=0.0)
    m.one = pyo.Constraint(expr=m.a == m.b / 2 + m.x)
    m.other = pyo.Constraint(expr=m.b == pyo.sin(m.a) + m.y)
    answer = MAiNGO().solve(m)
    assert answer.status is Status.FAILED
    assert "Give these variables bounds" in answer.message
    m.a.setlb(-10)
    m.a.setub(10)
    assert MAiNGO().solve(m).status is Status.OPTIMAL_WITHIN_GAP


def test_integers_stay_integer() -> None:
    m = pyo.ConcreteModel()
    m.n = pyo.Var(bounds=(0, 10), domain=pyo.Integers, initialize=1)
    m.cost = pyo.Objective(expr=(m.n - 3.4) ** 2)
    answer = MAiNGO().solve(m)
    assert (m.n.value, answer.objective) == (3.0, pytest.approx(0.16))


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda m: m.x.setub(None), r"missing for \['x'\]"),
        (
            lambda m: m.add_component("odd", pyo.Constraint(expr=pyo.asinh(m.x) <= 1)),
            "does not support",
        ),
        (lambda m: m.add_component("odd", pyo.Constraint(expr=pyo.log(m.x) <= 1)), "negative"),
        (lambda m: m.add_component("odd", pyo.Constraint(expr=pyo.floor(m.x) <= 1)), "'floor'"),
    ],
)
def test_what_it_cannot_take_is_an_answer_and_leaves_the_values(spoil: Any, says: str) -> None:
    m = camel()
    spoil(m)
    answer = MAiNGO().solve(m)
    assert answer.status is Status.FAILED
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(answer.message)
    assert (m.x.value, m.y.value) == (1.6, 0.6)


def test_options_it_does_not_know_are_told() -> None:
    answer = MAiNGO(options=(("no_such_option", 1),)).solve(camel())
    assert answer.status is Status.FAILED
    assert "no_such_option" in answer.message


def test_below_its_shortest_limit_it_is_ended_and_the_values_stay() -> None:
    m = rugged()
    answer = MAiNGO().solve(m, time_limit=1.0)
    assert answer.status is Status.TIME_LIMIT
    assert np.isnan(answer.objective)
    assert m.x[0].value == 1.0


def test_ctrl_c_ends_it() -> None:
    threading.Timer(2.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.perf_counter()
    answer = MAiNGO().solve(rugged(), time_limit=60.0)
    assert answer.status is Status.INTERRUPTED
    assert time.perf_counter() - begun < 30.0  # of its limit of 60 s
