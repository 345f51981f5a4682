"""Joint regions and pictures."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from michaelis_menten import DECAY_TRUTH, decay, decay_data
from pyomo import dae
from scipy import stats
from small_problems import PRODUCT_NEAR, TIMES, line, product

import igpe
from igpe.core.errors import ProblemError
from igpe.results.plots.fit import plot_correlation, plot_ellipses, plot_residuals
from igpe.uncertainty.likelihood_region import region

NEAR_LINE = {"k": 0.7, "A(t0)": 1.0}


def two_decays(times):
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.k, m.l = pyo.Var(bounds=(0.1, 10)), pyo.Var(bounds=(0.1, 10))
    m.a, m.b = pyo.Var(m.t), pyo.Var(m.t)
    m.da, m.db = dae.DerivativeVar(m.a, wrt=m.t), dae.DerivativeVar(m.b, wrt=m.t)
    m.ra = pyo.Constraint(m.t, rule=lambda m, t: m.da[t] == -m.k * m.a[t])
    m.rb = pyo.Constraint(m.t, rule=lambda m, t: m.db[t] == -m.l * m.b[t])
    return m


@pytest.mark.parametrize("sigma", [0.2, None])
def test_of_a_line_it_is_the_ellipse(sigma):
    found = region(line(sigma), NEAR_LINE, ["k", "A(t0)"])
    y = line(sigma).experiments[0].measurements.value
    fit = stats.linregress(TIMES, y)
    best = np.sum((y - fit.intercept - fit.slope * TIMES) ** 2)
    cost = [np.sum((y - a - k * TIMES) ** 2) for k, a in found.edge[["k", "A(t0)"]].to_numpy()]
    limit = 0.2**2 * stats.chi2.ppf(0.95, 2) if sigma else 2 * stats.f.ppf(0.95, 2, 8) * best / 8
    assert np.array(cost) - best == pytest.approx(np.full(len(cost), limit), rel=2e-3)
    assert (found.edge["end"] == "").all()
    assert len(found.edge) > 30


def test_every_edge_has_its_sum_of_squares():
    """Of two unknowns nothing is left to optimise: one simulation each."""
    problem = decay()
    found = region(problem, DECAY_TRUTH, ["vmax", "km"])
    data = decay_data(0)
    best = None
    for vmax, km in [found.estimate, *found.edge[["vmax", "km"]].to_numpy()[::4]]:
        run = igpe.simulate(problem, {"vmax": vmax, "km": km}, data["time"])
        cost = np.sum(((run["S"].to_numpy() - data["S"].to_numpy()) / 0.04) ** 2)
        best = cost if best is None else best
        assert cost == best or cost - best == pytest.approx(5.9915, rel=5e-3)


def test_a_bent_region_is_followed_to_the_bounds():
    found = region(product(), PRODUCT_NEAR, ["k1", "k2"])
    edge = found.edge
    assert [edge["k1"].min(), edge["k1"].max()] == pytest.approx([0.1, 10.0])
    both = edge["k1"] * edge["k2"]
    assert both.min() > 0.45
    assert both.max() < 0.56
    assert found.linearised.empty


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"names": ["vmax"]}, "two different unknowns"),
        ({"names": ["vmax", "vmax"]}, "two different unknowns"),
        ({"names": ["vmax", "k9"]}, "Unknown parameter names"),
        ({"confidence": 2}, "between 0 and 1"),
    ],
)
def test_what_makes_no_sense_is_refused(change, says):
    given = {"problem": decay(), "estimate": DECAY_TRUTH, "names": ["vmax", "km"]} | change
    with pytest.raises(ProblemError, match=says):
        region(**given)


def test_a_short_series_has_its_own_errors():
    """The size of six errors of `b`, which `l` alone moves, is less known than of 40 of `a`."""
    rng, t = np.random.default_rng(1), np.linspace(0.0, 3.0, 40)
    table = pd.DataFrame({"time": t, "a": np.exp(-t), "b": np.exp(-0.5 * t)})
    table[["a", "b"]] += 0.03 * rng.standard_normal((40, 2))
    table.loc[~table.index.isin([4, 9, 14, 19, 24, 29]), "b"] = np.nan
    run = igpe.Experiment(table, start={"a": 1.0, "b": 1.0}, start_time=0.0)
    problem = igpe.Problem(two_decays, parameters=["k", "l"], experiments=[run])
    result = igpe.estimate(problem)
    single = igpe.profile(problem, result, ["l"]).profiles[0]
    edge = region(problem, result, ["k", "l"]).edge
    joint = np.sqrt(2 * stats.f.ppf(0.95, 2, 44)) / stats.t.ppf(0.975, 44)
    far = (single.upper - result.parameters["l"]) * joint
    assert edge["l"].max() - result.parameters["l"] == pytest.approx(far, rel=0.1)


def test_without_degrees_of_freedom_there_is_none():
    rows = line().experiments[0].table().reset_index().iloc[:2]
    with pytest.raises(ProblemError, match="as many unknowns as measurements"):
        region(line(None).with_data(rows), NEAR_LINE, ["k", "A(t0)"])


def test_pictures_take_axes_and_return_them():
    result = igpe.estimate(line(0.2, runs=2))
    _, axes = plt.subplots(1, 2)
    assert list(plot_residuals(result, axes)) == list(axes)
    assert len(plot_ellipses(result)) == 3
    (ax,) = plot_correlation(result)
    for ticks in (ax.get_xticklabels(), ax.get_yticklabels()):
        assert [t.get_text() for t in ticks] == list(result.parameters)
    told = [float(t.get_text()) for t in ax.texts]
    assert told == pytest.approx(result.correlation.to_numpy().ravel(), abs=0.005)
    _, one = plt.subplots()
    assert region(line(), NEAR_LINE, ["k", "A(t0)"]).plot(one)[0] is one
    lone = igpe.estimate(line(0.2).fixing({"k": 0.7}))
    with pytest.raises(ProblemError, match="Fewer than two unknowns"):
        plot_ellipses(lone)


def test_residuals_are_drawn_as_what_they_are():
    """In standard deviations if these are known or estimated, else in the unit of the data."""
    known, unknown = igpe.estimate(line(0.2)), igpe.estimate(line(None))
    for result, scale in ((known, 0.2), (unknown, np.sqrt(unknown.variance))):
        first, quantiles = plot_residuals(result)
        assert first.get_ylabel() == "residual of A\n/ standard deviation"
        expected = result.points["residual"].to_numpy() / scale
        assert first.lines[1].get_ydata() == pytest.approx(expected)
        assert quantiles.lines[0].get_ydata() == pytest.approx(np.sort(expected))
        normal, straight = quantiles.lines[1].get_data()
        assert straight == pytest.approx(normal)
    lost = plot_residuals(replace(unknown, variance=np.nan))
    assert [ax.get_ylabel() for ax in lost] == ["residual of A", "all residuals"]
    assert lost[0].lines[1].get_ydata() == pytest.approx(unknown.points["residual"].to_numpy())
