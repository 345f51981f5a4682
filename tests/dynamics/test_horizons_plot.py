"""The horizons as a table and as pictures."""

import lotka_volterra_iss as lotka
import matplotlib as mpl
import numpy as np
import pytest
from legible import crowded

import igpe

mpl.use("agg")
import matplotlib.pyplot as plt

PROBLEM = lotka.problem(seed=55)


@pytest.fixture(scope="module")
def found():
    return igpe.IncrementalShooting().estimate(PROBLEM, lotka.PAPER_START)


def test_the_table_has_the_papers_rows(found):
    lines = igpe.plots.horizon_table(found).splitlines()
    rows = {line[:16].strip(): line[16:].split() for line in lines[:-1]}
    assert rows["until"] == ["0.5", "1", "2", "4", "8", "10"]
    assert rows["iterations"] == [str(h.iterations) for h in found.trail]
    assert [float(v) for v in rows["k4"]] == pytest.approx(
        [h.parameters["k4"] for h in found.trail], rel=1e-4
    )
    assert f"{found.equivalent_iterations:.3g} " in lines[-1]


def test_other_estimates_have_no_horizons():
    other = igpe.Estimate({"k": 1.0}, 0.0, igpe.Status.CONVERGED)
    assert "no horizons" in igpe.plots.horizon_table(other)


@pytest.mark.slow
def test_the_film_strip_shows_what_each_horizon_knew(found):
    drawn = igpe.plots.plot_film_strip(PROBLEM, found)
    assert drawn.axes.shape == (2, 6)  # y1 and y2, each on its own scale
    assert [row[0].get_ylabel() for row in drawn] == ["y1", "y2"]
    assert crowded(drawn.figure) == []
    for ax, known in zip(drawn[1], (1, 2, 4, 8, 16, 20), strict=True):
        filled = [
            line
            for line in ax.lines
            if line.get_fillstyle() == "full" and len(line.get_xdata()) == known
        ]
        assert len([line for line in filled if line.get_marker() == "o"]) == 1
    last = drawn[0, -1]
    courses = [
        line for line in last.lines if line.get_linestyle() == "-" and len(line.get_xdata()) > 50
    ]
    model = courses[0].get_data()
    times, values, sigma = PROBLEM.experiments[0].measurements.of("y1")
    assert np.abs(np.interp(times, *model) - values).max() < 5 * sigma.max()


def test_axes_can_be_given(found):
    _, axes = plt.subplots(2, 6)
    assert igpe.plots.plot_film_strip(PROBLEM, found, axes)[0, 0] is axes[0, 0]


def test_without_horizons_there_is_nothing_to_draw():
    single = igpe.SingleShooting().estimate(PROBLEM, lotka.TRUTH)
    held = igpe.IncrementalShooting().estimate(PROBLEM.fixing(lotka.TRUTH), {})
    for other in (single, held):
        with pytest.raises(igpe.errors.ProblemError, match="contains no horizons"):
            igpe.plots.plot_film_strip(PROBLEM, other)


def test_experiments_at_other_times_and_curves_that_break_are_drawn():
    early, late = lotka.simulated(55), lotka.simulated(55)
    late["time"] += 50
    runs = [
        igpe.Experiment(
            table,
            name=name,
            start=lotka.START,
            start_time=begin,
            sigma={"y1": "sd_y1", "y2": "sd_y2"},
        )
        for name, table, begin in (("a", early, 0.0), ("b", late, 50.0))
    ]
    both = igpe.Problem(lotka.model, parameters=list(lotka.TRUTH), experiments=runs)
    pole = {"k1": 0.5, "k2": 0.5, "k3": 0.5, "k4": -0.2}
    horizon = igpe.core.estimates.Horizon(
        pole, 1.0, igpe.Status.CONVERGED, until={"a": 1.0, "b": 51.0}
    )
    found = igpe.Estimate(pole, 1.0, igpe.Status.CONVERGED, trail=(horizon,))
    drawn = igpe.plots.plot_film_strip(both, found)
    for ax, begin in zip(drawn[::2, 0], (0.0, 50.0), strict=True):
        curve = next(line for line in ax.lines if len(line.get_xdata()) > 100)
        times, values = curve.get_data()
        assert (times.min(), times.max()) == (begin, begin + 10.0)
        assert np.isfinite(values[times <= begin + 1.0]).all()
        assert np.isnan(values[-1])


def test_several_estimates_beside_the_measurements(found):
    other = {n: 2 * v for n, v in lotka.TRUTH.items()}
    plot = igpe.plots.plot_estimates(PROBLEM, {"found": found, "other": other})
    assert [ax.get_ylabel() for ax in plot] == ["y1", "y2"]
    assert [t.get_text() for t in plot.figure.legends[0].texts] == ["found", "other", "measured"]
    times, values, sigma = PROBLEM.experiments[0].measurements.of("y2")
    first, second, measured = plot[1].lines
    assert np.abs(np.interp(times, *first.get_data()) - values).max() < 5 * sigma.max()
    assert np.abs(np.interp(times, *second.get_data()) - values).max() > 5 * sigma.max()
    assert measured.get_ydata().tolist() == values.tolist()
