"""Sliders beside measurements and model: what moves, what is kept, what goes wrong."""

import sys

import consecutive
import pytest

import igpe
from igpe.core.errors import ProblemError, SolverMissing

START = {"p1": 3.0, "p2": 0.5}


@pytest.fixture
def explorer():
    return igpe.plots.explore(consecutive.problem(), START)


def test_the_model_follows_a_slider(explorer):
    before, drawn = explorer._lines.value, explorer._drawing.value
    assert before.count("<polyline") == 2
    explorer.sliders["p1"].value = 6.0
    assert explorer.parameters == {"p1": 6.0, "p2": 0.5}
    assert explorer._lines.value != before
    assert explorer._drawing.value == drawn
    assert explorer.line == "igpe.simulate(problem, {'p1': 6, 'p2': 0.5})"
    explorer.sliders["p1"].value = 3.0
    assert explorer._lines.value == before


def test_sliders_begin_at_an_estimate():
    found = igpe.Estimate(START, 0.0, igpe.Status.CONVERGED)
    assert igpe.plots.explore(consecutive.problem(), found).parameters == START


def test_what_is_drawn_is_the_simulation(explorer):
    table = igpe.simulate(consecutive.problem(), START)
    drawn = explorer._simulated()
    for name in ("x1", "x2"):
        assert drawn[name].to_numpy() == pytest.approx(table[name].to_numpy(), rel=1e-6, abs=1e-8)


def test_estimate_from_here(explorer):
    explorer.button.click()
    best = igpe.SingleShooting().estimate(consecutive.problem(), START)
    assert explorer.parameters == best.parameters
    assert best.status.value in explorer._words.value
    explorer.sliders["p1"].value = round(best.parameters["p1"], 2)  # as a browser rounds it
    assert explorer.parameters == best.parameters
    assert best.status.value in explorer._words.value


def test_a_model_that_cannot_be_integrated_is_named(explorer, monkeypatch):
    def broken():
        raise igpe.errors.EstimationFailed("No <way>.", igpe.Status.INTEGRATION_BROKE)

    monkeypatch.setattr(explorer, "_simulated", broken)
    explorer.sliders["p2"].value = 2.0
    assert "No &lt;way&gt;." in explorer._words.value
    assert explorer._lines.value == ""


def test_a_start_that_belongs_to_no_unknown_is_named():
    with pytest.raises(ProblemError, match=r"Values are given for \['p3'\]"):
        igpe.plots.explore(consecutive.problem(), START | {"p3": 1.0})


def test_without_ipywidgets(monkeypatch):
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    with pytest.raises(SolverMissing, match=r"pip install 'igpe\[notebook\]'"):
        igpe.plots.explore(consecutive.problem())
