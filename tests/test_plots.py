"""Pictures: which panels there are, what they show, how they are labelled, and that all is legible.

What is drawn is compared, not pixels.
"""

from itertools import combinations

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from legible import crowded

from igpe.core.errors import DataError, ProblemError
from igpe.results.plots.axes import COLOURS, Plot, labelled, looks
from igpe.results.plots.fit import draw_residuals, plot_fit, plot_simulation

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


def curves(runs=("1",), names=("A", "B"), smoothed=1.0, error=0.1, half=0.05):
    fitted = np.exp(-GRID)
    columns = {"time": GRID, "fitted": fitted, "smoothed": smoothed * fitted}
    columns |= {"lower": fitted - half, "upper": fitted + half, "smoothed_error": error}
    return table(columns, runs, names)


def legend(plot):
    return [t.get_text() for t in plot.figure.legends[0].texts]


def test_one_panel_per_quantity_and_one_colour_per_experiment():
    runs = ("cold", "hot")
    plot = plot_fit(points(runs), curves(runs), time_unit="min")
    assert [ax.get_ylabel() for ax in plot] == ["A [mol/L]", "B"]
    assert all(ax.get_xlabel() == "time [min]" for ax in plot)
    assert legend(plot) == [*runs, "measured", "fitted model", "95 % band of the model"]
    for ax in plot:
        lines = [line for line in ax.lines if line.get_linestyle() != "None"]
        assert [line.get_color() for line in lines] == list(COLOURS[:2])
        assert all(line.get_ydata() == pytest.approx(np.exp(-GRID)) for line in lines)
        assert len(ax.containers) == 2  # measurements


def test_smoothing_is_drawn_on_request_only():
    plain, both = plot_fit(points(), curves()), plot_fit(points(), curves(), smoothed=True)
    assert legend(plain) == ["measured", "fitted model", "95 % band of the model"]
    assert legend(both) == [*legend(plain), "smoothed, 95 % band"]
    assert [len(ax.collections) for ax in (plain[0], both[0])] == [1, 2]
    without = plot_fit(points(), curves(half=np.nan, smoothed=np.nan), smoothed=True)
    assert legend(without) == ["measured", "fitted model"]


def test_strips_of_residuals():
    values = np.tile(np.sin(9 * TIMES), 2)
    plot = plot_fit(points(), curves(), residuals=values)
    assert len(plot) == 4
    panel, strip = plot[0].get_window_extent(), plot[2].get_window_extent()
    assert strip.y1 < panel.y0
    assert (strip.x0, strip.x1) == pytest.approx((panel.x0, panel.x1))
    assert plot[2].get_xlim() == plot[0].get_xlim()
    assert plot[2].lines[1].get_ydata() == pytest.approx(values[: len(TIMES)])


def test_replicates_are_drawn_each():
    twice = pd.concat([points(names=("A",)), points(names=("A",)).assign(measured=0.5)])
    (ax,) = plot_fit(twice.reset_index(drop=True), curves(names=("A",)))
    assert sorted(ax.containers[0].lines[0].get_ydata()) == sorted(twice["measured"])


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 12, 40])
def test_nothing_overlaps(count):
    """Numbers, names, units, titles and the legend; neither small nor large numbers, nor names."""
    names = [f"a_rather_long_name_{k}" if k % 5 == 0 else f"c{k}" for k in range(count)]
    runs = ("first run", "second run", "third run")
    measured, fitted = points(runs, names), curves(runs, names)
    for table, columns in ((measured, ["measured"]), (fitted, ["fitted", "lower", "upper"])):
        size = 10.0 ** (table["name"].map(names.index) % 8 - 5)
        table[columns] = table[columns].mul(size, axis=0)
    plot = plot_fit(measured.assign(unit="mol/L"), fitted, time_unit="h")
    assert len(plot) == count
    assert crowded(plot.figure) == []


def test_what_overlaps_is_noticed():
    figure, ax = plt.subplots()
    ax.text(0.5, 0.5, "one")
    ax.text(0.51, 0.5, "other")
    assert crowded(figure) == [("one", "other")]
    ax.set_ylabel("longer than the figure " * 9)
    assert len(crowded(figure)) > 1


def test_a_label_fits_beside_its_panel():
    assert labelled("A", "mol/L") == "A [mol/L]"
    lines = labelled("a name of many words that has no end in sight at all", "mol/L").split("\n")
    assert len(lines) == 2
    assert max(map(len, lines)) <= 26
    assert lines[1].endswith("[mol/L]")


def test_standard_deviations_are_drawn_as_bars():
    with_bars = plot_fit(points(sigma=0.05), curves())[0].containers[0]
    without = plot_fit(points(), curves())[0].containers[0]
    assert (with_bars.has_yerr, without.has_yerr) == (True, False)


def test_given_axes_are_used():
    figure, given = plt.subplots(1, 2)
    assert list(plot_fit(points(), curves(), given)) == list(given)
    assert given[0].get_legend() is not None
    assert figure.legends == []
    _, one = plt.subplots()
    assert list(plot_fit(points(names=("A",)), curves(names=("A",)), one)) == [one]
    with pytest.raises(ProblemError, match="needs 2 axes; got 1"):
        plot_fit(points(), curves(), one)


def test_a_wide_band_does_not_flatten_the_data_and_a_constant_is_visible():
    low, high = plot_fit(points(), curves(error=1e6, half=1e6), smoothed=True)[0].get_ylim()
    assert high - low < 2.0 * np.ptp(points()["measured"])
    flat = curves(names=("A",), error=0.0).assign(fitted=2.0, smoothed=2.0)
    low, high = plot_fit(points(names=("A",)).assign(measured=2.0), flat)[0].get_ylim()
    assert low < 2.0 < high


def test_spare_panels_are_not_shown():
    names = ("A", "B", "C", "D")
    plot = plot_fit(points(names=names), curves(names=names))
    assert len(plot) == 4
    assert [ax for ax in plot.figure.axes if ax.get_visible()] == list(plot)


def test_simulations():
    one = pd.DataFrame({"experiment": "1", "time": TIMES, "A": TIMES, "B": -TIMES})
    one.attrs["units"] = {"time": "h", "A": "mol/L"}
    two = one.assign(experiment="2")
    single, double = plot_simulation(one), plot_simulation(pd.concat([one, two]))
    assert [ax.get_ylabel() for ax in single] == ["A [mol/L]", "B"]
    assert {ax.get_xlabel() for ax in single} == {"time [h]"}
    assert single.figure.legends == []
    assert [len(ax.lines) for ax in double] == [2, 2]
    assert legend(double) == ["1", "2"]


def test_looks_differ():
    every = looks(range(100))
    assert [one.color for one in every.values()][:8] == [*COLOURS, COLOURS[0]]
    assert all(one != other for one, other in combinations(every.values(), 2))


@pytest.mark.parametrize("standard", [True, False])
def test_residuals_have_a_band_if_they_are_in_standard_deviations(standard):
    _, ax = plt.subplots()
    rows = points(names=("A",))
    draw_residuals(ax, rows, np.sin(TIMES), standard=standard)
    assert ax.lines[1].get_ydata() == pytest.approx(np.sin(TIMES))
    bands = [(p.get_y(), p.get_y() + p.get_height()) for p in ax.patches]
    assert bands == ([(-1.96, 1.96)] if standard else [])


def test_runs_of_one_sign_are_joined():
    _, ax = plt.subplots()
    values = np.array([1.0, 2, -1, -2, -3, 1, 1, 1, 1, -1, -1])
    draw_residuals(ax, points(names=("A",)), values)
    joined = ax.lines[2].get_ydata()
    runs = np.split(joined, np.flatnonzero(np.isnan(joined)))
    assert [np.isfinite(run).sum() for run in runs] == [2, 3, 4, 2]


@pytest.mark.slow
def test_a_plot_says_what_it_shows_and_is_written(tmp_path):
    plot = plot_fit(points(), curves())
    assert repr(plot) == "Plot of 2 panels: A [mol/L], B. Write it with .save('plot.png')."
    assert repr(Plot([plt.subplots()[1]])) == "Plot of 1 panel. Write it with .save('plot.png')."
    for ending, begin in (("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")):
        plot.save(tmp_path / f"fit.{ending}")
        plot.save(tmp_path / f"fit.{ending}")  # igpe's own file may be replaced
        assert (tmp_path / f"fit.{ending}").read_bytes().startswith(begin)
    (tmp_path / "notes.png").write_text("mine")
    with pytest.raises(DataError, match=r"notes\.png"):
        plot.save(tmp_path / "notes.png")
    with pytest.raises(DataError, match=r"fit\.doc' ends in \.doc.* \.pdf, .*\.png, .*\.svg"):
        plot.save(tmp_path / "fit.doc")
    shown, size = plot._repr_png_()
    assert shown.startswith(b"\x89PNG")
    assert size["width"] / size["height"] == pytest.approx(8.4 / 3.2, rel=1e-2)
