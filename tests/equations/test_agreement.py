"""A wrong translation is refused, whatever part of the translator is wrong."""

import pickle
from dataclasses import replace

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from pyomo.core.expr import numeric_expr

from igpe.core.errors import ModelError
from igpe.equations.compiled import compiled
from igpe.equations.reading import agreement, read
from igpe.equations.translate import Translator
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


def posed(rule=None, experiments=1):
    """x' of many kinds of nodes; start x = 2 k; the temperature is an input of 600."""

    def usual(m, t):
        rate = pyo.exp(-50000 / (8.314 * m.T[t])) * m.k * m.x[t] ** 2 / (1e-5 + abs(m.x[t]))
        jump = pyo.Expr_if(t >= 0.4, m.k, 2 * m.k)
        return m.dx[t] == -rate * jump + pyo.sin(t) - 1e-6 * m.heat[t]

    def build(times):
        m = over_time(times, "x", "T", k={"bounds": (1e-3, 10), "initialize": 1.0})
        m.heat = pyo.Expression(m.t, rule=lambda m, t: m.k * m.x[t])
        m.rate = pyo.Constraint(m.t, rule=rule or usual)
        m.begin = pyo.Constraint(expr=m.x[m.t.first()] == 2 * m.k + 1)
        return m

    times = np.linspace(0, 1, 6)
    table = pd.DataFrame({"time": times, "x": 1 + times, "heat": 2 + times})
    runs = [Experiment(table, inputs={"T": 600.0 + i}) for i in range(experiments)]
    return Problem(build, parameters=["k"], experiments=runs)


def test_what_is_right_is_accepted():
    compiled(posed())


def replaced(kind, wrong):
    """Change what the translator makes of a kind of node."""
    usual = Translator.exitNode

    def exit_node(self, node, data):
        return wrong(data) if isinstance(node, kind) else usual(self, node, data)

    return exit_node


WRONG = {
    "a sum without its last term": (numeric_expr.SumExpression, lambda d: sum(d[:-1])),
    "a product without a factor": (numeric_expr.ProductExpression, lambda d: d[1]),
    "a quotient turned": (numeric_expr.DivisionExpression, lambda d: d[1] / d[0]),
    "another power": (numeric_expr.PowExpression, lambda d: d[0] ** 3),
    "a sign": (numeric_expr.NegationExpression, lambda d: d[0]),
    "another function": (numeric_expr.UnaryFunctionExpression, lambda d: ca.cos(d[0])),
    "no absolute value": (numeric_expr.AbsExpression, lambda d: d[0]),
    "one branch": (numeric_expr.Expr_ifExpression, lambda d: d[1]),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_node_is_noticed(name, monkeypatch):
    monkeypatch.setattr(Translator, "exitNode", replaced(*WRONG[name]))
    rule = None
    if name == "one branch":
        rule = lambda m, t: m.dx[t] == -pyo.Expr_if(m.x[t] > m.k, m.x[t] - m.k, 0)  # noqa: E731
    with pytest.raises(ModelError, match=r"reads '\w+' differently from Pyomo: at .* Pyomo"):
        compiled(posed(rule))


def test_a_frozen_time_is_noticed(monkeypatch):
    usual = Translator.__init__
    monkeypatch.setattr(
        Translator, "__init__", lambda self, symbols, _: usual(self, symbols, ca.SX(0.3))
    )
    with pytest.raises(ModelError, match=r"reads 'rate' differently from Pyomo: at t = "):
        compiled(posed())


def test_a_jump_at_a_wrong_side_is_noticed(monkeypatch):
    """The threshold 0.4 is a measured time."""
    usual = read.explored

    def moved(*arguments):
        found = usual(*arguments)
        return found._replace(answers=found.answers[:1] + found.answers[:1] + found.answers[2:])

    monkeypatch.setattr(read, "explored", lambda *a: moved(*a) if usual(*a).cuts else usual(*a))
    with pytest.raises(ModelError, match=r"'rate' (as it is written|changes with time)"):
        compiled(posed())


def test_a_wrong_start_and_a_wrong_output_are_noticed(monkeypatch):
    problem = posed()
    run = problem.experiments[0]
    given = compiled(problem).systems[0]
    between = problem.instances[0]
    start = replace(given, starts={"x": given.starts["x"] * 1.001})
    with pytest.raises(ModelError, match=r"'begin'.*the start value"):
        agreement.require_agreement(problem, run, start, between)
    output = replace(given, measured={**given.measured, "heat": given.symbols.p[0]})
    with pytest.raises(ModelError, match="'heat'"):
        agreement.require_agreement(problem, run, output, between)


@pytest.mark.parametrize("share", [1e-3, 1e-6])
def test_a_small_term_that_is_lost_is_noticed(share, monkeypatch):
    rule = lambda m, t: m.dx[t] == -m.k * m.x[t] + share * t  # noqa: E731
    usual = read._Reader.read
    monkeypatch.setattr(
        read._Reader,
        "read",
        lambda self, n, c: ca.substitute(usual(self, n, c), self.translate.time, 0),
    )
    with pytest.raises(ModelError, match="'rate'"):
        compiled(posed(rule))


def test_each_experiment_is_compared_once_also_by_copies(monkeypatch):
    calls = []
    monkeypatch.setattr(
        "igpe.equations.reading.read.require_agreement", lambda *a, **_: calls.append(a[1].name)
    )
    problem = posed(experiments=2)
    for _ in range(2):
        compiled(problem)
        compiled(problem.fixing({"k": 1.0}))
    assert calls == ["1", "2"]


def test_the_users_model_keeps_its_values():
    problem = posed()
    before = [v.value for v in problem.instance.model.component_data_objects(pyo.Var)]
    compiled(problem)
    after = [v.value for v in problem.instance.model.component_data_objects(pyo.Var)]
    assert before == after


def test_overflow_says_nothing_and_rounding_is_no_difference():
    compiled(posed(lambda m, t: m.dx[t] == -pyo.exp(m.x[t] ** 3) + (1e8 + m.x[t]) - 1e8))


def test_a_start_condition_among_the_equations_is_no_difference():
    compiled(posed(lambda m, t: m.x[t] == 2 * m.k + 1 if t == 0 else m.dx[t] == -m.k * m.x[t] * t))


def test_pickle_keeps_what_was_compared():
    problem = pickle.loads(pickle.dumps(Problem(**_given())))
    assert not problem.systems
    compiled(problem)
    assert pickle.loads(pickle.dumps(problem)).systems == {("1", ("x",)): None}


def _given():
    table = pd.DataFrame({"time": [0.0, 1.0, 2.0], "x": [1.0, 0.6, 0.4]})
    run = Experiment(table, start={"x": 1.0})
    return {"model": decay, "parameters": ["k"], "experiments": run}


def decay(times):
    m = over_time(times, "x", k=(0, 2))
    m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.k * m.x[t])
    return m
