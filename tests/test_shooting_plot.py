"""How multiple shooting converged: what is kept, and what is drawn of it."""

from itertools import pairwise

import lotka_volterra_iss
import matplotlib as mpl
import numpy as np
import pytest

import igpe
from igpe.results.plots.stages import INSIDE, plot_gaps, plot_pieces

mpl.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")
START = dict.fromkeys(("k1", "k2", "k3", "k4"), 3.0)


@pytest.fixture(scope="module")
def problem():
    return lotka_volterra_iss.problem()


@pytest.fixture(scope="module")
def found(problem):
    return igpe.MultipleShooting(record=True).estimate(problem, START)


def test_nothing_is_kept_unless_asked_for_and_nothing_else_changes(problem, found):
    plain = igpe.MultipleShooting().estimate(problem, START)
    assert all(h.iterates == () for h in plain.trail)
    assert plain.parameters == found.parameters
    assert plain == found.__class__(**{**vars(found), "seconds": plain.seconds})
    with pytest.raises(
        igpe.errors.ProblemError, match=r"no iterates.*MultipleShooting\(record=True\)"
    ):
        plot_gaps(plain)
    with pytest.raises(igpe.errors.ProblemError, match="record is 'yes'"):
        igpe.MultipleShooting(record="yes")


def test_iterates_lead_from_the_start_to_the_estimate(problem, found):
    first, last = found.trail[0].iterates[0], found.trail[-1].iterates[-1]
    assert first.parameters == START
    assert last.parameters == found.parameters
    assert last.objective == pytest.approx(found.trail[-1].objective)
    assert first.gap > 0.1
    assert last.gap < 1e-6
    for stage in found.trail:
        assert len(stage.iterates) == stage.iterations + 1
    nodes, starts = last.nodes[0], last.starts[0]
    assert starts.shape == (len(nodes) - 1, 2)
    exact = igpe.simulate(problem, found.parameters, nodes[:-1])[["y1", "y2"]]
    assert starts == pytest.approx(exact.to_numpy(), rel=1e-5)


def test_gaps_and_objective_of_every_iteration(found):
    gaps, objective = plot_gaps(found)
    for ax, field in ((gaps, "gap"), (objective, "objective")):
        for line, stage in zip(ax.lines, found.trail, strict=True):
            values = [getattr(i, field) for i in stage.iterates]
            assert line.get_ydata().tolist() == pytest.approx(values)
            assert line.get_label() == stage.method
        assert ax.get_yscale() == "log"
        assert ax.get_xlabel() == "iteration"
        ends = [line.get_xdata()[[0, -1]].tolist() for line in ax.lines]
        assert all(one[1] == other[0] for one, other in pairwise(ends))
    assert ends[-1][1] == sum(h.iterations for h in found.trail)


def jumps(ax, intervals):
    """Between the end of each piece and the start of the next."""
    pieces = ax.lines[:intervals]
    ends = np.array([line.get_ydata()[[0, -1]] for line in pieces])
    assert all(len(line.get_xdata()) == INSIDE for line in pieces)
    return np.abs(ends[:-1, 1] - ends[1:, 0])


def test_pieces_meet_in_the_end(problem, found):
    axes = plot_pieces(problem, found)
    assert axes.axes.shape == (2, 4)
    intervals = len(found.trail[0].iterates[0].nodes[0]) - 1
    for quantity in (0, 1):
        assert jumps(axes[quantity, 0], intervals).max() > 0.1
        assert jumps(axes[quantity, -1], intervals).max() < 1e-5
    last = sum(h.iterations for h in found.trail)
    assert axes[0, 0].get_title().startswith("iteration 0, gap ")
    assert axes[0, -1].get_title().startswith(f"iteration {last}, gap ")
    legend = axes[0, 0].figure.legends[0]
    assert [t.get_text() for t in legend.texts] == ["model", "start of an interval", "measured"]


def test_as_many_as_asked_for_in_given_axes(problem, found):
    _, given = plt.subplots(2, 2)
    drawn = plot_pieces(problem, found, given, iterates=2)
    assert drawn.axes.tolist() == given.tolist()
    assert given[0, 0].get_legend() is not None
    assert plot_pieces(problem, found, iterates=1)[0, 0].get_title().startswith("iteration 20")
    with pytest.raises(igpe.errors.ProblemError, match="`iterates` is 0"):
        plot_pieces(problem, found, iterates=0)
