"""What notebooks show: equations typeset, tables of problems and results, names escaped."""

import json
from html.parser import HTMLParser
from xml.etree import ElementTree

import consecutive
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae

import igpe
from igpe.problem.card import VARIES, equations, mathml, problem_equations, symbol


def model(times):
    """Whatever equations may hold; `<b>` is a name."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.species = pyo.Set(initialize=["A", "<b>"])
    m.c = pyo.Var(m.species, m.t)
    m.dc = dae.DerivativeVar(m.c, wrt=m.t)
    m.k, m.n = pyo.Var(bounds=(0, 1)), pyo.Var(bounds=(1, 2))
    m.rate = pyo.Expression(m.t, rule=lambda m, t: m.k * m.c["A", t] ** m.n)
    m.first = pyo.Constraint(m.t, rule=lambda m, t: m.dc["A", t] == -m.rate[t] * pyo.sin(t))
    m.second = pyo.Constraint(m.t, rule=lambda m, t: m.dc["<b>", t] == (m.rate[t] - m.k) / (1 + t))
    m.start = pyo.Constraint(expr=m.c["A", times[0]] == m.k)
    m.least = pyo.Constraint(m.t, rule=lambda m, t: m.c["A", t] >= 0)
    return m


@pytest.fixture(scope="module")
def problem():
    data = pd.DataFrame({"time": [0.0, 0.5, 1.5], "c[A]": [1.0, 0.5, 0.2]})
    run = igpe.Experiment(data, name="<run>", start={"c[<b>]": igpe.Unknown(0, 1)})
    return igpe.Problem(model, parameters=["k", "n"], experiments=run)


def test_equations_are_those_of_the_model(problem):
    assert problem_equations(problem) == [
        ["=", ["d", "c[A]"], ["*", ["-", "rate"], VARIES]],
        ["=", ["d", "c[<b>]"], ["/", ["+", "rate", ["*", -1.0, "k"]], VARIES]],
        ["<=", 0.0, "c[A]"],
        ["=", "rate", ["*", "k", ["^", "c[A]", "n"]]],
        ["=", "k", ["at", "c[A]", 0.0]],
    ]


@pytest.mark.parametrize(("factor", "tree"), [(1, "t"), (-1, ["-", "t"]), (0.25, ["*", 0.25, "t"])])
def test_explicit_time_is_t(factor, tree):
    def timed(times):
        m = consecutive.model(times)
        m.x3 = pyo.Var(m.t)
        m.linear = pyo.Constraint(m.t, rule=lambda m, t: m.x3[t] == factor * t * m.p1 + 1.0)
        return m

    assert equations(timed, 0.0, 2.0)[-1] == ["=", "x3", ["+", ["*", tree, "p1"], 1.0]]


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (["-", ["+", "a", "b"]], "-(a+b)"),
        (["*", ["+", "a", ["*", -1.0, "b"]], "c"], "(a-b)·c"),
        (["+", "a", ["-", ["-", "b"]]], "a+b"),
        (["+", "a", ["-", ["+", "b", "c"]]], "a-(b+c)"),
        (["*", "a", -2.0], "-a·2"),
        (["+", "a", -1.5e-7], "a-1.5·10-7"),
        (["/", "a", ["-", "b"]], "-ab"),
        (["^", ["*", "a", "b"], "c"], "(a·b)c"),
        (["^", ["-", "a"], 2.0], "(-a)2"),
        (["f", "max", "a", ["+", "b", 1.0]], "max(a,b+1)"),
        (["<=", 0.0, "a", 1.0], "0≤a≤1"),
        (["if", ["<", "a", 1.0], "b", "c"], "{bif a<1cotherwise"),
    ],
)
def test_brackets_and_signs(tree, text):
    written = mathml(tree)
    said = "".join(ElementTree.fromstring(f"<p>{written}</p>").itertext())
    assert said.translate({0x2212: "-", 0xA0: " ", 0x20: ""}) == text
    assert mathml(json.loads(json.dumps(tree))) == written


def test_a_long_fraction_can_be_broken_into_lines():
    terms = ["+", *(["*", f"k{i}", f"c{i}"] for i in range(30))]
    short, long = mathml(["/", "a", "b"]), mathml(["/", terms, ["+", 1.0, "b"]])
    assert short.count("<math") == 1
    assert "<mfrac>" in short
    assert long.count("<math") > 30
    assert "<mfrac>" not in long


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("k1", "<msub><mi>k</mi><mi>1</mi></msub>"),
        ("mu_max", "<msub><mi>μ</mi><mi>max</mi></msub>"),
        ("H2O", "<mi>H2O</mi>"),
        ("a<b", "<mi>a&lt;b</mi>"),
        ("c[<b>]", "<msub><mi>c</mi><mi>&lt;b&gt;</mi></msub>"),
    ],
)
def test_names_have_indices_and_are_escaped(name, written):
    assert symbol(name) == written


class Balanced(HTMLParser):
    """Complains of tags that are not closed in order."""

    def __init__(self):
        super().__init__()
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_a_problem_shows_equations_experiments_and_unknowns(problem):
    html = problem._repr_html_()
    Balanced().feed(html)
    assert html.count("<math") >= 5
    assert "<b>" not in html
    assert "&lt;run&gt;" in html
    assert "c[&lt;b&gt;] = unknown in [0, 1]" in html
    assert '<th scope="row" style="text-align:left">n</th><td>1</td><td>2</td>' in html
    assert "prior" not in html
    held = problem.fixing({"n": 1.25})._repr_html_()
    assert '<td style="text-align:left">held at 1.25</td>' in held
    assert "&lt;run&gt;" in problem.experiments[0]._repr_html_()


def test_a_reactor_shows_reactions_and_equations():
    html = igpe.kinetics.Batch(["A + B -> C", "C <-> D"])._repr_html_()
    assert "A + B -&gt; C" in html
    assert html.count("<math") >= 6


def test_an_estimate_is_a_table_with_what_is_known():
    found = igpe.Estimate({"k<1>": 0.5, "k2": 2.0}, 3.0, igpe.Status.CONVERGED, "a & b")
    assert str(found).splitlines()[1:3] == ["k<1>  0.5", "k2    2"]
    assert repr(found) == str(found)
    assert "<td>0.5</td>" in found._repr_html_()
    assert "k&lt;1&gt;" in found._repr_html_()
    assert "a &amp; b" in found._repr_html_()
    assert igpe.Status.CONVERGED.value in found._repr_html_()
