"""Pictures: which panels there are, what they show, and how they are labelled."""

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest

from igpe.results.plots.axes import COLOURS
from igpe.results.plots.fit import plot_fit, plot_simulation, residual_panel

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
TIMES, GRID = np.linspace(0.0, 1.0, 11), np.linspace(0.0, 1.0, 50)


def table(columns, runs, names):
    every = [
        pd.DataFrame({"experiment": r, "name": n, "unit": "mol/L" if n == "A" else ""} | columns)
        for r in runs
        for n in names
    ]
    return pd.concat(every, ignore_index=True)


def points(runs=("1",), names=("A", "B"), sigma=np.nan):
    """A table as `Result.points`: A in mol/L, all else without unit."""
    return table({"time": TIMES, "measured": np.exp(-TIMES), "sigma": sigma}, runs, names)


def curves(runs=("1",), names=("A", "B"), smoothed=1.0, error=0.1):
    fitted = np.exp(-GRID)
    columns = {"time": GRID, "fitted": fitted, "smoothed": smoothed * fitted}
    return table(columns | {"smoothed_error": error}, runs, names)


@pytest.fixture(autouse=True)
def _closed():
    yield
    plt.close("all")


def labels(ax):
    return ax.get_legend_handles_labels()[1]


def test_one_panel_per_measured_quantity_of_each_experiment():
    runs = ("cold", "hot")
    axes = plot_fit(points(runs), curves(runs))
    assert [ax.get_ylabel() for ax in axes] == ["A [mol/L]", "B", "A [mol/L]", "B"]
    titles = [ax.get_title() for ax in axes]
    assert titles == ["experiment cold"] * 2 + ["experiment hot"] * 2
    assert all(ax.get_xlabel() == "time" for ax in axes)


def test_what_a_panel_shows():
    """A single experiment needs no title."""
    axes = plot_fit(points(), curves())
    assert [ax.get_title() for ax in axes] == ["", ""]
    assert labels(axes[0]) == ["smoothed, 95 % band", "fitted model", "measured"]
    assert axes[0].lines[1].get_ydata() == pytest.approx(np.exp(-GRID))
    without = plot_fit(points(), curves(smoothed=np.nan, error=np.nan))[0]
    assert labels(without) == ["fitted model", "measured"]


@pytest.mark.parametrize("names", [("A",), ("A", "B")])
def test_the_legend_of_a_new_figure_hides_nothing(names):
    axes = plot_fit(points(names=names), curves(names=names))
    assert axes[0].get_legend() is None
    figure = axes[0].figure
    figure.canvas.draw()
    legend = figure.legends[0].get_window_extent()
    assert legend.y0 >= max(ax.get_window_extent().y1 for ax in axes)
    assert legend.x0 >= 0
    assert legend.x1 <= figure.bbox.x1


def test_standard_deviations_are_drawn_as_bars():
    with_bars = plot_fit(points(sigma=0.05), curves())[0].containers[0]
    without = plot_fit(points(), curves())[0].containers[0]
    assert (with_bars.has_yerr, without.has_yerr) == (True, False)


def test_given_axes_are_used():
    figure, given = plt.subplots(1, 2)
    axes = plot_fit(points(), curves(), given)
    assert list(axes) == list(given)
    assert given[0].get_legend() is not None
    assert figure.legends == []
    _, one = plt.subplots()
    assert list(plot_fit(points(names=("A",)), curves(names=("A",)), one)) == [one]
    with pytest.raises(ValueError, match="longer"):
        plot_fit(points(), curves(), one)


def test_a_wide_band_does_not_flatten_the_data_and_a_constant_is_visible():
    low, high = plot_fit(points(), curves(error=1e6))[0].get_ylim()
    assert high - low < 1.0
    flat = curves(names=("A",), error=0.0).assign(fitted=2.0, smoothed=2.0)
    low, high = plot_fit(points(names=("A",)).assign(measured=2.0), flat)[0].get_ylim()
    assert low < 2.0 < high


def test_spare_panels_are_not_shown():
    names = ("A", "B", "C", "D")
    axes = plot_fit(points(names=names), curves(names=names))
    assert len(axes) == 4
    shown = [ax for ax in axes[0].figure.axes if ax.get_visible()]
    assert shown == list(axes)


def test_simulations():
    one = pd.DataFrame({"experiment": "1", "time": TIMES, "A": TIMES, "B": -TIMES})
    two = one.assign(experiment="2")
    single, double = plot_simulation(one), plot_simulation(pd.concat([one, two]))
    assert [ax.get_ylabel() for ax in single] == ["A", "B"]
    assert single[0].get_legend() is None
    assert [len(ax.lines) for ax in double] == [2, 2]
    assert double[0].get_legend() is not None


def test_lines_have_colours_that_the_colour_blind_tell_apart():
    one = pd.DataFrame({"time": TIMES, "A": TIMES})
    (ax,) = plot_simulation(pd.concat(one.assign(experiment=k) for k in range(len(COLOURS) + 1)))
    assert [line.get_color() for line in ax.lines] == [*COLOURS, COLOURS[0]]


@pytest.mark.parametrize("standard", [True, False])
def test_residuals_have_a_band_if_they_are_in_standard_deviations(standard):
    _, ax = plt.subplots()
    residual_panel(ax, TIMES, np.sin(TIMES), "A", standard=standard)
    assert ax.get_xlabel() == "time"
    assert ax.get_ylabel() == "residual of A" + " / standard deviation" * standard
    assert ax.lines[1].get_ydata() == pytest.approx(np.sin(TIMES))
    bands = [(p.get_y(), p.get_y() + p.get_height()) for p in ax.patches]
    assert bands == ([(-1.96, 1.96)] if standard else [])
