"""How multiple shooting converged: its pieces of trajectories, its gaps and its objective.

Functions that draw take axes or make them, and return them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate, Horizon, Iterate
from igpe.core.markup import label as escaped
from igpe.dynamics.integrators.batch.automatic_intervals import AutomaticIntervals
from igpe.dynamics.integrators.intervals import Intervals
from igpe.equations.compiled import compiled
from igpe.problem.problem import Problem
from igpe.results.plots.axes import axes_for, colour, labelled

PANEL = (3.4, 2.6)  # inches
INSIDE = 20  # times at which a piece is drawn
END = 1e-9  # share of a piece by which its last time lies before the next one begins
SHORTER = 0.3  # how much the largest gap is from one drawn iterate to the next, of the one before
LEAST = 1e-16  # a gap that is drawn
MARGIN = 0.15  # around the data of what a panel shows, in their range
MARKERS = "os^D"


def plot_gaps(estimate: Estimate, axes: Any = None) -> Any:
    """The largest gap and the objective after every iteration, one line for each stage.

    Gaps are relative to the size of their state, the objective is in standard deviations; stages
    may count it differently (level errors first, a robust loss last).

    estimate  of `MultipleShooting(record=True)`
    axes      two matplotlib axes; None makes a figure
    returns   array of axes
    raises    ProblemError if the estimate has no iterates
    """
    stages = _stages(estimate)
    drawn = axes_for(2, axes)
    told = (("gap", "largest gap / size of its state"), ("objective", "objective"))
    for ax, (field, label) in zip(drawn, told, strict=True):
        first = 0
        for k, stage in enumerate(stages):
            values = np.maximum([getattr(i, field) for i in stage.iterates], LEAST)
            number = np.arange(first, first + len(values))
            look = {"color": colour(k), "marker": MARKERS[k % len(MARKERS)], "markersize": 4}
            ax.plot(number, values, label=stage.method, linewidth=1, **look)
            first += len(values) - 1  # a stage begins where the one before ended
        ax.set_yscale("log")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlabel("iteration")
        ax.set_ylabel(label)
    drawn[0].legend(fontsize="small")
    return drawn


def plot_pieces(
    problem: Problem, estimate: Estimate, axes: Any = None, *, iterates: int = 4
) -> Any:
    """What each interval made of the model while gaps between them closed.

    problem   that was estimated;  estimate: of `MultipleShooting(record=True)`
    axes      matplotlib axes, one for each iterate of each experiment; None makes a figure
    iterates  at most so many are drawn: the first, the last, and others as gaps become shorter
    returns   (n_experiments, n_iterates) axes
    raises    ProblemError if the estimate has no iterates, or none is asked for
    """
    stages = _stages(estimate)
    if not isinstance(iterates, int) or iterates < 1:
        raise ProblemError(f"iterates is {iterates!r}; wanted a whole number, 1 or more.")
    chosen = _chosen(stages, iterates)
    shape = len(problem.experiments), len(chosen)
    drawn = _grid(shape) if axes is None else axes_for(shape[0] * shape[1], axes).reshape(shape)
    pieces = [_Pieces.of(problem, k, stages[0].iterates[0].nodes[k]) for k in range(shape[0])]
    for column, (number, at) in enumerate(chosen):
        for k, ax in enumerate(drawn[:, column]):
            pieces[k].draw(ax, at, problem)
        drawn[0, column].set_title(f"iteration {number}, gap {at.gap:.1e}", fontsize="medium")
    if shape[0] > 1:
        for ax, experiment in zip(drawn[:, 0], problem.experiments, strict=True):
            ax.set_ylabel(escaped(f"experiment {experiment.name}"))
    _legend(drawn, above=axes is None)
    return drawn


def _legend(drawn: Any, *, above: bool) -> None:
    """Above all panels of a figure made here, where it hides nothing; else inside the last ones."""
    if not above:
        for ax in drawn[:, -1]:
            ax.legend(fontsize="small")
        return
    told = [ax.get_legend_handles_labels() for ax in drawn[:, 0]]
    marks = {label: mark for some in told for mark, label in zip(*some, strict=True)}
    drawn[0, 0].figure.legend(
        marks.values(), marks.keys(), loc="outside upper center", ncols=len(marks), frameon=False
    )


def _stages(estimate: Estimate) -> list[Horizon]:
    found = [h for h in estimate.trail if isinstance(h, Horizon) and h.iterates]
    if not found:
        raise ProblemError(
            f"The estimate ({estimate.method}, {estimate.status.name}) has no iterates to draw. "
            "Give one of igpe.MultipleShooting(record=True)."
        )
    return found


def _chosen(stages: Sequence[Horizon], count: int) -> list[tuple[int, Iterate]]:
    """Iterates with their numbers, as `plot_gaps` counts them."""
    whole = [*stages[0].iterates, *(i for s in stages[1:] for i in s.iterates[1:])]
    last = len(whole) - 1
    wanted = whole[0].gap * SHORTER ** np.arange(count - 1)
    before = [next((i for i, at in enumerate(whole) if at.gap <= gap), last) for gap in wanted]
    return [(i, whole[i]) for i in sorted({*before, last})]


class _Pieces(NamedTuple):
    """One experiment's intervals, ready to be drawn.

    place  of the experiment;  times: (n,) where pieces are drawn
    names  of the unknowns that the experiment has
    """

    place: int
    times: FloatArray
    names: tuple[str, ...]
    intervals: Intervals

    @classmethod
    def of(cls, problem: Problem, index: int, nodes: FloatArray) -> "_Pieces":
        ivp = compiled(problem).initial_value_problem(index)
        ends = nodes[1:] - END * np.diff(nodes)
        times = np.linspace(nodes[:-1], ends, INSIDE, axis=1).ravel()
        ready = AutomaticIntervals().prepare_intervals(ivp, nodes, times)
        return cls(index, times, ivp.unknowns, ready)

    def draw(self, ax: Any, at: Iterate, problem: Problem) -> None:
        """Measurements, and a line for each interval."""
        experiment = problem.experiments[self.place]
        q = np.array([at.parameters[n] for n in self.names])
        told = self.intervals.run(at.starts[self.place], q, derivatives=False).measured
        pieces = told.reshape(-1, INSIDE, told.shape[1])
        grid, shown = self.times.reshape(-1, INSIDE), []
        for number, name in enumerate(experiment.measured):
            times, values, _ = experiment.measurements.of(name)
            look, label = {"color": colour(number)}, labelled(name, problem.unit(name))
            ax.plot(times, values, "o", markersize=3, fillstyle="none", label=label, **look)
            ax.plot(grid.T, pieces[:, :, number].T, linewidth=1.2, **look)
            ax.plot(grid[:, 0], pieces[:, 0, number], "s", markersize=2, **look)
            shown.append(values)
        data = np.concatenate(shown)
        extra = MARGIN * (float(np.ptp(data)) or 1.0)
        ax.set_ylim(data.min() - extra, data.max() + extra)
        ax.set_xlabel("time")


def _grid(shape: tuple[int, int]) -> Any:
    import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import, not needed without pictures

    size = PANEL[0] * shape[1], PANEL[1] * shape[0]
    _, grid = plt.subplots(*shape, figsize=size, squeeze=False, layout="constrained", sharey="row")
    return grid
