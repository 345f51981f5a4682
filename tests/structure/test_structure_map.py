"""The map of a model's structure: what stands where, in what words, and how it is drawn."""

import json
from dataclasses import replace
from itertools import pairwise

import matplotlib as mpl
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
import urethane
from pyomo.dae import ContinuousSet, DerivativeVar
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_bipartite_matching

import igpe
from igpe.core.json_form import made
from igpe.results.plots.structure_map import plot_maps
from igpe.results.result_data import DYNAMIC, OVER, SQUARE, UNDER, StructureMap

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
TIMES = np.linspace(0.0, 5.0, 9)


def chain(length):
    """A -> B -> C ..., rates being variables of their own."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t, m.i = ContinuousSet(initialize=times), pyo.RangeSet(length)
        m.k = pyo.Var(m.i, bounds=(0, 5), initialize=1)
        m.c = pyo.Var(m.i, m.t, initialize=1)
        m.slope, m.rate = DerivativeVar(m.c, wrt=m.t), pyo.Var(m.i, m.t, initialize=1)

        @m.Constraint(m.i, m.t)
        def law(m, i, t):
            return m.rate[i, t] == m.k[i] * m.c[i, t]

        @m.Constraint(m.i, m.t)
        def balance(m, i, t):
            return m.slope[i, t] == (m.rate[i - 1, t] if i > 1 else 0) - m.rate[i, t]

        return m

    return build


def checked(length, measured):
    table = pd.DataFrame({"time": TIMES, **{f"c[{i}]": np.exp(-TIMES * i / 5) for i in measured}})
    start = {f"c[{i}]": float(i == 1) for i in range(1, length + 1)}
    run = igpe.Experiment(table, start=start)
    problem = igpe.Problem(chain(length), parameters=["k"], experiments=run)
    return igpe.check(problem, identifiability=False)


@pytest.fixture(scope="module")
def short():
    """Of five, the last is not measured."""
    return checked(5, range(1, 5))


@pytest.fixture(scope="module")
def paper():
    return igpe.check(urethane.problem(), identifiability=False)


def filled(pairs, shape):
    found = np.zeros(shape, dtype=bool)
    found[tuple(np.array(pairs).T)] = True
    return found


def test_every_equation_stands_once(short, paper):
    (one,) = short.maps
    names = [f"{n}[{i}]" for n in ("law", "balance") for i in range(1, 6)]
    assert sorted(one.equations) == sorted(names)
    assert sorted(paper.maps[0].equations) == sorted([
        "balance_A", "balance_B", "rate_A", "rate_B", "rate_C", "volume",
    ])  # fmt: skip


def test_the_parts_of_a_chain(short):
    (one,) = short.maps
    assert [(p.kind, p.rows, p.columns) for p in one.parts] == [
        (SQUARE, (0, 8), (0, 8)),
        (UNDER, (8, 9), (8, 10)),
        (DYNAMIC, (9, 10), (0, 0)),
    ]
    assert one.equations[8:] == ("law[5]", "balance[5]")
    assert set(one.unknowns[8:]) == {"c[5]", "rate[5]"}
    assert one.measured == ("c[1]", "c[2]", "c[3]", "c[4]")
    assert one.reach == ("algebraic",) * 4 + ("unreachable",)


def test_experiments_that_look_alike_share_a_map(paper):
    (one,) = paper.maps
    assert one.experiments == ("run1", "run2", "run3", "run4")
    assert [(p.kind, p.rows[1] - p.rows[0]) for p in one.parts] == [(OVER, 3), (SQUARE, 3)]
    assert {s.name for s in one.sources} == {"slope of nA", "slope of nB", "slope of nC"}


def coupled():
    """Two equations that must be solved together before the slope, which needs both."""

    def build(times):
        m = pyo.ConcreteModel()
        m.t, m.k = ContinuousSet(initialize=times), pyo.Var(bounds=(0, 5), initialize=1)
        m.A, m.u, m.w = (pyo.Var(m.t, initialize=1) for _ in range(3))
        m.dA = DerivativeVar(m.A, wrt=m.t)
        m.sum = pyo.Constraint(m.t, rule=lambda m, t: m.u[t] + m.w[t] == m.A[t])
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.u[t] - m.k * m.w[t] == 0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.u[t])
        return m

    run = igpe.Experiment(pd.DataFrame({"time": TIMES, "A": np.exp(-TIMES)}), start={"A": 1.0})
    problem = igpe.Problem(build, parameters=["k"], experiments=run)
    return igpe.check(problem, identifiability=False)


DIFFERENT = {
    "all but the last": lambda: checked(12, range(1, 12)),
    "half": lambda: checked(12, (1, 2, 4, 5, 7, 9)),
    "one": lambda: checked(12, (8,)),
    "coupled": coupled,
    "too many": lambda: igpe.check(urethane.problem(), identifiability=False),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_it_is_the_decomposition_of_dulmage_and_mendelsohn(case):
    """By what defines it: matchings of each part, and zeros right of it; blocks are triangular."""
    (one,) = DIFFERENT[case]().maps
    whole = filled(one.entries, (len(one.equations), len(one.unknowns)))
    for part in one.parts:
        if part.kind == DYNAMIC:
            continue
        rows, columns = slice(*part.rows), slice(*part.columns)
        assert not whole[rows, part.columns[1] :].any()
        inside = csr_array(whole[rows, columns])
        matched = np.sum(maximum_bipartite_matching(inside) >= 0)
        assert matched == min(inside.shape)  # every equation or every unknown
        spare = {OVER: (1, 0), SQUARE: (0, 0), UNDER: (0, 1)}[part.kind]
        assert [int(n > matched) for n in inside.shape] == list(spare)
    for row, column, size in one.blocks:
        own = whole[row : row + size, column : column + size]
        assert not whole[row : row + size, column + size :].any()
        assert np.sum(maximum_bipartite_matching(csr_array(own)) >= 0) == size


def test_what_must_be_solved_together_is_one_block():
    (one,) = coupled().maps
    assert sorted(b.size for b in one.blocks) == [1, 2]
    assert set(one.equations[:2]) == {"sum", "law"}
    (ax,) = coupled().plot()
    frames = [p for p in ax.patches if p.get_facecolor()[3] == 0 and not p.get_hatch()]
    assert [p.get_width() for p in frames] == [2, 1]


def test_entries_are_those_of_the_equations(short):
    (one,) = short.maps
    rows = {n: i for i, n in enumerate(one.equations)}
    of = {n: {one.unknowns[j] for i, j in one.entries if i == r} for n, r in rows.items()}
    assert of["balance[2]"] == {"d(c[2])", "rate[1]", "rate[2]"}
    assert of["law[3]"] == {"rate[3]"}
    assert {one.parameters[j] for i, j in one.uses if i == rows["law[3]"]} == {"k[3]"}
    assert {one.measured[j] for i, j in one.known if i == rows["law[3]"]} == {"c[3]"}


def test_the_words_say_what_the_picture_shows(short, paper):
    said = short.maps[0].words
    assert "square: 8 equations, 8 unknowns; underdetermined: 1 equation, 2 unknowns" in said
    assert "left to the dynamics: 1 equation." in said
    assert "From the slope of c[2]: k[1], k[2]." in said
    assert said.endswith("Cannot be estimated: k[5].")
    assert "overdetermined: 3 equations, 2 unknowns" in paper.maps[0].words
    many = checked(40, range(1, 41)).maps[0].words
    assert many.count("From the slope") == 12
    assert many.endswith("28 more slopes and start values are not listed.")


def test_a_start_value_that_is_estimated_has_a_row():
    table = pd.DataFrame({"time": TIMES, "c[1]": np.exp(-TIMES)})
    starts = {"c[1]": igpe.Unknown(0, 2), "c[2]": igpe.Unknown(0, 2)}
    problem = igpe.Problem(
        chain(2), parameters=["k"], experiments=igpe.Experiment(table, start=starts)
    )
    (one,) = igpe.check(problem, identifiability=False).maps
    found = {s.name: [one.parameters[i] for i in s.parameters] for s in one.sources}
    assert found["start of c[1]"] == ["c[1](t0)"]
    assert found["start of c[2]"] == ["c[2](t0)"]
    assert "From the start of c[1]: c[1](t0)." in one.words
    assert "start of c[2]" not in one.words  # not estimated from measurements alone


def test_it_survives_json(short, paper):
    for one in (*short.maps, *paper.maps):
        stored = json.loads(json.dumps(dict(vars(one))))
        assert made(StructureMap, stored) == one


def texts(ticks):
    return [label.get_text() for label in ticks]


def test_names_marks_and_shades_are_drawn(short):
    (one,) = short.maps
    (ax,) = short.plot()
    assert texts(ax.get_xticklabels()) == [*one.unknowns, *one.measured, *one.parameters]
    sources = [f"slope of c[{i}]" for i in range(1, 5)]
    assert texts(ax.get_yticklabels()) == [*one.equations, *sources]
    assert len(ax.patches) == len(one.blocks) + 4  # shades of three parts, a hatch
    marked = sum(len(line.get_xdata()) for line in ax.lines[:4])
    told = sum(len(s.parameters) for s in one.sources)
    assert marked == len(one.entries) + len(one.known) + len(one.uses) + told
    assert ax.get_title() == "experiment 1"
    assert texts(ax.get_legend().texts) == [
        *(p.sentence for p in one.parts),
        "estimated without the dynamics",
        "cannot be estimated",
    ]


def test_a_long_title_is_wrapped(short):
    (own,) = short.maps
    names = tuple(f"temperature {i}, pH 7" for i in range(8))
    (ax,) = plot_maps([replace(own, experiments=names)])
    ax.figure.canvas.draw()
    title = ax.title.get_window_extent()
    assert 0 <= title.x0 < title.x1 <= ax.figure.bbox.x1


def test_nothing_overlaps_or_is_cut(short, paper):
    for structure in (short, paper, checked(14, range(1, 13))):
        (ax,) = structure.plot()
        figure = ax.figure
        figure.canvas.draw()
        for labels in (ax.get_xticklabels(), ax.get_yticklabels()):
            boxes = [label.get_window_extent() for label in labels]
            for one, other in pairwise(boxes):
                assert not one.overlaps(other)
            assert all(b.x0 >= 0 and b.y1 <= figure.bbox.y1 for b in boxes)
        legend = ax.get_legend().get_window_extent()
        assert legend.y0 >= 0
        assert legend.y1 <= ax.get_window_extent().y0 + 2


def test_where_names_do_not_fit_it_says_so():
    structure = checked(100, range(1, 100))
    (ax,) = structure.plot()
    assert ax.get_ylabel() == "200 equations: names omitted"
    assert texts(ax.get_yticklabels()) == []
    assert max(ax.figure.get_size_inches()) <= 16
    _, small = plt.subplots(figsize=(3, 2), layout="constrained")
    checked(14, range(1, 13)).plot(small)
    assert small.get_ylabel() == "28 equations: names omitted"


def test_given_axes_are_used_and_counted(short):
    _, given = plt.subplots(figsize=(8, 6))
    assert list(short.plot(given)) == [given]
    _, two = plt.subplots(1, 2)
    with pytest.raises(igpe.errors.ProblemError, match="needs 1 axes; got 2"):
        short.plot(two)


def test_nothing_measured_often_leaves_all_to_the_dynamics():
    table = pd.DataFrame({"time": TIMES[:2], "c[1]": np.exp(-TIMES[:2])})
    run = igpe.Experiment(table, start={f"c[{i}]": 1.0 for i in (1, 2)})
    problem = igpe.Problem(chain(2), parameters=["k"], experiments=run)
    (one,) = igpe.check(problem, identifiability=False).maps
    assert one.parts[-1].kind == DYNAMIC
    assert one.parts[-1].rows[1] == len(one.equations) == 4
