"""Waterfalls: steps, what failed, what did not arrive, and objectives that are not positive."""

import consecutive
import matplotlib as mpl
import numpy as np
import pytest

import igpe
from igpe.results.plots.stages import draw_waterfall, plot_gaps, plot_waterfall, series, words

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
ENDS = [30.0, 2.0, np.inf, 2.0001, 2.0, 30.0, 50.0]


@pytest.fixture
def ax():
    return plt.subplots(layout="constrained")[1]


def told(ax):
    return [text.get_text() for text in ax.texts]


def test_ends_ascend_and_steps_are_counted(ax):
    draw_waterfall(ax, {"": series(ENDS)})
    (line,) = ax.lines
    assert line.get_ydata().tolist() == [2.0, 2.0, 2.0001, 30.0, 30.0, 50.0]
    assert line.get_xdata().tolist() == [1, 2, 3, 4, 5, 6]
    assert line.get_drawstyle() == "steps-mid"
    assert told(ax) == ["3 starts"]
    assert (ax.get_yscale(), ax.get_ylabel()) == ("log", "objective")
    assert ax.get_xlabel() == "starts, the best first"


def test_what_failed_is_counted_in_the_legend(ax):
    draw_waterfall(ax, {"SS": series(ENDS), "MS": series([2.0, 2.0])})
    assert [t.get_text() for t in ax.get_legend().texts] == ["SS: 1 of 7 failed", "MS"]
    assert told(ax) == []  # several lines would hide numbers


def test_what_did_not_arrive_is_hollow(ax):
    draw_waterfall(ax, {"SS": series([3.0, 1.0, 2.0], [True, False, True])})
    whole, far = ax.lines
    assert whole.get_markevery().tolist() == [False, True, True]
    assert far.get_ydata().tolist() == [1.0]
    assert far.get_markerfacecolor() == "none"


@pytest.mark.parametrize(
    ("ends", "rounding", "drawn", "words_there"),
    [
        ([-80.0, 20.0, -83.0], 1e-8, [1.0, 4.0, 104.0], ([], "objective - best objective + 1")),
        ([1e-20, 3e-22, 5e-21], 1e-12, [1e-12] * 3, (["3 starts"], "objective")),
        ([1.0, 1.0001, 1.0002], 0.0, [1.0, 1.0001, 1.0002], ([], "objective")),
    ],
    ids=["not positive", "rounding is no step", "alike look flat"],
)
def test_objectives_on_their_scale(ax, ends, rounding, drawn, words_there):
    texts, label = words_there
    draw_waterfall(ax, {"": series(ends)}, rounding=rounding)
    assert ax.lines[0].get_ydata().tolist() == drawn
    assert told(ax)[: len(texts)] == texts
    assert ax.get_ylabel() == label
    assert ax.get_ylim()[0] < 0.7 * drawn[0]
    assert ax.get_ylim()[1] > 1.4 * drawn[-1]


def test_nothing_but_failures_can_be_drawn(ax):
    draw_waterfall(ax, {"": series([np.inf, np.inf])})
    assert [t.get_text() for t in ax.get_legend().texts] == ["2 of 2 failed"]


def test_the_words():
    assert words(series([np.inf] * 2)) == "None of the 2 starts returned an objective."
    assert words(series(ENDS)) == (
        "Objectives of 7 starts in ascending order, from 2 to 50. 3 of them reached the best "
        "objective. Number of different objectives: 3."
    )


def test_a_search_from_many_starts_keeps_where_they_ended():
    problem = consecutive.problem()
    found = igpe.search.MultiStart(trials=8, starts=4).estimate(problem, {})
    assert len(found.reached) == 4
    assert min(found.reached) == found.objective
    alone = igpe.search.MultiStart(igpe.MultipleShooting(), starts=2).estimate(problem, {})
    assert len(alone.reached) == 2
    (ax,) = plot_waterfall(found)
    assert len(ax.lines[0].get_xdata()) == 4
    assert plot_waterfall(found, ax)[0] is ax


def test_restarts_keep_where_they_ended():
    """In units of the objective, whose standard deviations are not known here."""
    problem = consecutive.problem()
    far = {n: 9.0 for n in problem.box.names}
    for method in (igpe.MultipleShooting(), igpe.IncrementalShooting()):
        found = method.estimate(problem, far)
        assert len(found.reached) >= 1
        assert min(found.reached) == pytest.approx(found.objective)


def test_one_start_is_no_waterfall():
    problem = consecutive.problem()
    found = igpe.SingleShooting().estimate(problem, dict.fromkeys(problem.box.names, 1.0))
    says = r"one start\. Pass what.*igpe\.estimation\.compare"
    with pytest.raises(igpe.errors.ProblemError, match=says):
        plot_waterfall(found)


@pytest.mark.parametrize("plot", [plot_waterfall, plot_gaps])
def test_a_result_is_no_search(plot):
    result = igpe.estimate(consecutive.problem(), certify=False)
    says = r"how a search went, which a Result does not contain. Pass what igpe\."
    with pytest.raises(igpe.errors.ProblemError, match=says):
        plot(result)
