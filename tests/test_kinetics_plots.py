"""Plots of reaction kinetics: what is drawn agrees with the model's own formulas."""

from dataclasses import replace
from types import SimpleNamespace

import consecutive
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from legible import crowded

import igpe
from igpe import kinetics
from igpe.results.plots.kinetics import _line

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
FACTOR, ENERGY, REFERENCE = 0.5, 4e4, 350.0
TIMES = np.linspace(0.5, 6.0, 8)
CONSTANT = kinetics.Arrhenius("k", "E", REFERENCE)


def constant(temperature):
    gas = CONSTANT.gas
    return FACTOR * np.exp(-ENERGY / gas * (1 / np.asarray(temperature) - 1 / REFERENCE))


def run(temperature, rng):
    exact = np.exp(-constant(temperature) * TIMES)
    table = pd.DataFrame({"time": TIMES, "A": exact + 0.005 * rng.standard_normal(len(TIMES))})
    name = f"{temperature:g} K"
    start, inputs = {"A": 1.0, "B": 0.0}, {"T": temperature}
    units = {"A": "mol/L", "time": "h"}
    return igpe.Experiment(
        table, name=name, start=start, start_time=0.0, inputs=inputs, sigma=0.005, units=units
    )


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(3)
    reaction = kinetics.Reaction("A -> B", kinetics.MassAction(CONSTANT))
    bounds, units = {"k": (0.01, 10.0), "E": (0.0, 1e5)}, kinetics.Units("mol", "L", "h")
    reactor = kinetics.Batch([reaction], bounds=bounds, units=units)
    runs = [run(t, rng) for t in (340.0, 350.0, 360.0)]
    return igpe.Problem(reactor, parameters=["k", "E"], experiments=runs)


@pytest.fixture(scope="module")
def result(problem):
    return igpe.estimate(problem)


def test_units_are_those_of_the_user_and_time_has_its_own(problem, result):
    assert (problem.unit("time"), problem.unit("A"), problem.unit("k")) == ("h", "mol/L", "1/h")
    (ax,) = result.plot()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time [h]", "A [mol/L]")
    assert igpe.Result.from_json(result.to_json()).time_unit == "h"
    simulated = igpe.simulate(problem, {"k": FACTOR, "E": ENERGY}, TIMES)
    assert simulated.attrs["units"] == {"time": "h", "A": "mol/L", "B": "mol/L"}
    (drawn,) = igpe.predict(problem, result, TIMES, names="B").plot()
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("time [h]", "B [mol/L]")


def test_the_band_of_the_fit_is_that_of_the_prediction(problem, result):
    predicted = igpe.predict(problem, result, names="A").table
    assert predicted["time"].tolist() == result.curves["time"].tolist()
    for end in ("lower", "upper"):
        assert result.curves[end].to_numpy() == pytest.approx(predicted[end].to_numpy(), abs=2e-6)


def test_arrhenius(problem, result):
    plot = igpe.plots.plot_arrhenius(result, problem)
    line, marks = plot[0].lines
    x, y = line.get_data()
    assert np.abs(y - np.log(constant(1000 / x))).max() < 0.05
    assert sorted(1000 / marks.get_xdata()) == pytest.approx([340, 350, 360])
    band = plot[0].collections[0].get_paths()[0].vertices
    at = band[np.abs(band[:, 0] - x[40]) < 1e-12, 1]
    assert (at.min() + at.max()) / 2 == pytest.approx(y[40])
    centre, half = _line(result, CONSTANT, np.array([REFERENCE]))
    k = result.to_frame().loc["k"]
    assert np.exp(centre) == pytest.approx(k["estimate"])
    assert half == pytest.approx(1.96 * k["standard_error"] / k["estimate"], rel=1e-3)
    assert crowded(plot.figure) == []


def test_arrhenius_with_estimates_at_single_temperatures(problem, result):
    own = pd.DataFrame({"constant": "k", "temperature": [340.0, 360.0]})
    own["value"] = constant(own["temperature"])
    table = own.assign(lower=0.9 * own["value"], upper=1.1 * own["value"])
    (ax,) = igpe.plots.plot_arrhenius(result, problem, temperatures=(330, 370), table=table)
    marks = ax.containers[0].lines[0].get_ydata()
    assert marks == pytest.approx(np.log(own["value"]))
    assert 1000 / ax.lines[0].get_xdata()[[0, -1]] == pytest.approx([330, 370])


def test_rates_and_slopes(problem, result):
    plot = igpe.plots.plot_rates(result, problem)
    rate, slope = plot
    assert (rate.get_ylabel(), slope.get_ylabel()) == ("r1 [mol/L/h]", "d A / dt [mol/L/h]")
    assert rate.get_title() == "A -> B"
    k = constant(340.0)
    for ax, sign in ((rate, 1), (slope, -1)):
        t, value = ax.lines[0].get_data()
        assert np.abs(value - sign * k * np.exp(-k * t)).max() < 0.03 * k
    assert crowded(plot.figure) == []


def test_shares_add_to_the_whole(result):
    plot = igpe.plots.plot_contributions(result)
    bars = [sum(p.get_width() for p in container) for container in plot[0].containers]
    assert bars == pytest.approx([100, 100, 100])
    assert len(plot[0].get_yticklabels()) == 3


def test_arrhenius_over_the_fitted_temperatures_where_they_are_measured(problem, result):
    bare = SimpleNamespace(model=problem.model, experiments=[SimpleNamespace(inputs={})])
    with pytest.raises(igpe.errors.ProblemError, match="neither given nor measured"):
        igpe.plots.plot_arrhenius(result, bare)
    fitted = np.linspace(330, 365, len(result.points))
    warm = replace(result, points=result.points.assign(name="T", fitted=fitted))
    marks = igpe.plots.plot_arrhenius(warm, bare)[0].lines[1]
    assert sorted(1000 / marks.get_xdata()) == pytest.approx([330, 365])


def test_parity(result):
    plot = igpe.plots.plot_parity(result)
    (ax,) = plot
    assert ax.get_xlim() == ax.get_ylim()
    drawn = np.concatenate([c.lines[0].get_ydata() for c in ax.containers])
    assert sorted(drawn) == pytest.approx(sorted(result.points["measured"]))


def test_other_models_have_neither(result):
    with pytest.raises(igpe.errors.ProblemError, match="names="):
        igpe.plots.plot_rates(result, consecutive.problem())
    with pytest.raises(igpe.errors.ProblemError, match=r"kinetics\.Arrhenius"):
        igpe.plots.plot_arrhenius(result, consecutive.problem())


def test_times_in_two_units_that_nothing_converts():
    table = pd.read_csv(consecutive.DATA)
    runs = [
        igpe.Experiment(table, start={"x1": 1.0, "x2": 0.0}, start_time=0.0, units={"time": u})
        for u in ("min", "h")
    ]
    with pytest.raises(igpe.errors.DataError, match=r"\['h', 'min'\]"):
        igpe.Problem(consecutive.model, parameters=["p1", "p2"], experiments=runs)
    alone = igpe.Problem(consecutive.model, parameters=["p1", "p2"], experiments=runs[0])
    assert alone.unit("time") == "min"
