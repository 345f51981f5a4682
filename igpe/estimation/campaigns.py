"""One estimator from many starts, and several methods on one problem from the same starts."""

import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arguments import is_number, require
from igpe.core.arrays import FloatArray
from igpe.core.deadline import finishing, session
from igpe.core.errors import DataError, EstimationFailed, ProblemError
from igpe.core.estimates import Estimate
from igpe.core.markup import Rows, Shown, counted, frame_rows, number
from igpe.core.progress import Progress, Share, teller, with_bar
from igpe.core.status import Status
from igpe.dynamics.search.engine import (
    PERFECT,
    Run,
    SearchJob,
    given_starts,
    is_estimator,
    searched,
)
from igpe.dynamics.shooting.base import Estimator, spread_of
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.optima import is_same_objective
from igpe.problem.problem import Problem, takes_problem
from igpe.results.plots.axes import Plot, axes_for
from igpe.results.plots.stages import draw_waterfall, series
from igpe.tasks.run import Backend, Workers

ARRIVED = {
    Status.CONVERGED,
    Status.BEST_OF_SEVERAL,
    Status.OPTIMAL_WITHIN_GAP,
    Status.GLOBAL_BY_CONVEXITY,
}
WORDS = ("method", "status", "found_by", "note")
NUMBERS = ("start", "objective", "seconds", "iterations")
WORK = ("equivalent_iterations", "equivalent_integrations")
ORDER = ("method", "start", "status", "arrived", *NUMBERS[1:], *WORK, *WORDS[2:])


def _gathered(runs: Iterable[Run], unknowns: Sequence[str]) -> tuple[pd.DataFrame, bool]:
    """One row for each run, as they came; False if Ctrl-C came between.

    A campaign may have millions of runs: a number takes 8 bytes, and equal words are one.
    """
    words: list[tuple[str, ...]] = []
    numbers = array("d")
    complete = True
    try:
        for run in runs:
            one = run.estimate
            note = "" if one.status.usable else " ".join(one.notes)
            words.append(tuple(map(sys.intern, (run.method, one.status.name, one.method, note))))
            numbers.extend((run.number, one.objective, one.seconds, one.iterations, *run.work))
            numbers.extend(float(one.parameters[n]) for n in unknowns)
    except KeyboardInterrupt:
        complete = False
    names = [*NUMBERS, *WORK, *unknowns]
    values = pd.DataFrame(np.array(numbers).reshape(len(words), len(names)), columns=names)
    table = pd.concat([pd.DataFrame(words, columns=list(WORDS)), values], axis=1)
    table["arrived"] = table["status"].isin([status.name for status in ARRIVED])
    return table.astype({"start": int, "iterations": int})[[*ORDER, *unknowns]], complete


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Results of several methods from the same starts.

    runs      one row for each run. The columns are `method`, `start` (number of the start),
              `status`, `arrived` (True if the run reached an optimum), `objective`, `seconds`,
              `iterations`, `equivalent_iterations` and `equivalent_integrations` (over all
              horizons), `found_by` (description of the method), `note` (reason for a missing
              estimate), and one column for each unknown
    best      best known objective
    complete  False if the run was interrupted
    rounding  largest difference between objectives that igpe treats as rounding error; relevant for
              perfect fits
    """

    runs: pd.DataFrame
    best: float
    complete: bool = True
    rounding: float = 0.0

    @property
    def table(self) -> pd.DataFrame:
        """One row for each method: number of runs, percentages of runs, and medians.

        `arrived %` is the percentage of runs that reached an optimum, `best %` the percentage that
        reached the best optimum (objective within 1e-3), and `broke %` the percentage in which the
        model could not be integrated.
        """
        is_best = partial(is_same_objective, self.best, rounding=self.rounding)
        rows = {
            method: {
                "runs": len(runs),
                "arrived %": 100 * runs["arrived"].mean(),
                "best %": 100 * (runs["arrived"] & runs["objective"].map(is_best)).mean(),
                "broke %": 100 * (runs["status"] == Status.INTEGRATION_BROKE.name).mean(),
                "median s": runs["seconds"].median(),
                "median iterations": runs["iterations"].median(),
            }
            for method, runs in self.runs.groupby("method", sort=False)
        }
        return pd.DataFrame.from_dict(rows, orient="index")

    def plot(self, axes: Any = None) -> Plot:
        """Draw a waterfall plot: each method's objectives in ascending order.

        axes  matplotlib axes; None: draw in a new figure
        """
        ax = axes_for(1, axes)[0]
        groups = self.runs.groupby("method", sort=False)
        ends = {str(name): series(own["objective"], own["arrived"]) for name, own in groups}
        draw_waterfall(ax, ends, rounding=self.rounding)
        return Plot([ax])

    def _shown(self) -> tuple[list[Rows], list[str]]:
        ended = [] if self.complete else ["Interrupted before all runs were finished."]
        best = f"Best objective {self.best:.8g}."
        if not np.isfinite(self.best):
            best = "No run reached an optimum. Give bounds, or give starts closer to the optimum."
        return [frame_rows(self.table, 3)], [best, *ended]


@takes_problem
@with_bar
@session()
def compare(
    problem: Problem,
    methods: Mapping[str, Estimator] | Sequence[Estimator],
    starts: int | Sequence[Mapping[str, float]] = 20,
    *,
    seed: int = 0,
    optimum: float = np.inf,
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress = None,
) -> Comparison:
    """Run several methods from the same starts, and compare the results.

    If standard deviations depend on the model, each objective uses the standard deviations of its
    own fit.

    problem   the problem, the same for all methods
    methods   a dict {name: estimator}, or a list of estimators, which igpe names after their
              classes
    starts    a list of starts, each with a value for every free unknown; or a number of starts,
              which are spread within the bounds by a seeded Sobol sequence
    seed      seed of the Sobol sequence
    optimum   the best objective known from other sources, defined in the same way as the objective
              of the `methods`; the methods may find a better value
    executor, store, timeout   executor, store and time limit of the runs, as for `igpe.campaign`
    progress  a function that receives each message; or True, False or None, as for `igpe.estimate`
    returns   the runs; if the call is interrupted (Ctrl-C), only the finished ones
    raises    ProblemError if there is no method or no start, if a method is invalid, if a start has
              no value for an unknown, or if `starts` is a number but bounds are missing;
              Unsupported if a method does not support the problem; other errors as in
              `igpe.campaign`
    """
    named = _named(methods)
    require(is_number(optimum), "compare", "optimum", optimum, "a number")
    given = given_starts(problem, starts, seed, "compare")
    backend = Backend(executor, store, timeout)

    tell = teller(progress)

    def begins(name: str) -> None:
        tell(f"{name} from {len(given)} starts")

    outcomes = searched(SearchJob(problem, named), given, backend, begins=begins)
    runs, complete = _gathered(outcomes, problem.box.names)
    order = {name: k for k, name in enumerate(named)}
    runs = runs.iloc[np.lexsort((runs["start"], runs["method"].map(order)))].reset_index(drop=True)
    arrived = runs["objective"][runs["arrived"]]
    rounding = PERFECT * spread_of(problem) ** 2
    return Comparison(runs, float(min([optimum, *arrived])), complete, rounding)


def joined(parts: Sequence[Comparison]) -> Comparison:
    """Comparisons of different methods on one problem, from the same starts, as one."""
    return Comparison(
        pd.concat([p.runs for p in parts if len(p.runs)] or [parts[0].runs], ignore_index=True),
        min(p.best for p in parts),
        all(p.complete for p in parts),
        max(p.rounding for p in parts),
    )


def _named(methods: Mapping[str, Estimator] | Sequence[Estimator]) -> dict[str, Estimator]:
    if isinstance(methods, Mapping):
        named = dict(methods)
    else:
        expected = (
            "a list of estimators, or a mapping with names as keys: {'MS': igpe.MultipleShooting()}"
        )
        is_list = isinstance(methods, Sequence) and not isinstance(methods, str)
        require(is_list, "compare", "methods", methods, expected)
        names = [type(m).__name__ for m in methods]
        numbers = [f" {1 + names[:k].count(n)}" * (names.count(n) > 1) for k, n in enumerate(names)]
        named = dict(zip(map(add, names, numbers), methods, strict=True))
    if not named:
        raise ProblemError("There is no method to compare; give at least one estimator.")
    for name, method in named.items():
        expected = "estimators: igpe.MultipleShooting()"
        require(is_estimator(method), "compare", f"method {name}", method, expected)
    return named


TELL = 100  # runs
TRUE = 1e-2  # relative difference of an objective that is computed again
ROUNDING = 1e-10  # of the objective at the first start: what integration errors make of none


@dataclass(frozen=True, repr=False)
class Campaign(Shown):
    """Results of one estimator from many starts.

    table     one row for each finished start, indexed by the number of the start. The columns are
              `status`, `arrived` (True if the run reached an optimum), `objective`, `seconds`,
              `iterations`, `equivalent_iterations` and `equivalent_integrations` (over all
              horizons), `found_by` (description of the method), `note` (reason for a missing
              estimate), and one column for each unknown
    starts    the starts, with their numbers as index and a column for each unknown
    complete  False if the campaign was interrupted or its executor stopped
    notes     remarks on worker failures
    """

    table: pd.DataFrame = field(repr=False)
    starts: pd.DataFrame = field(repr=False)
    complete: bool = True
    notes: tuple[str, ...] = ()

    @property
    def objectives(self) -> FloatArray:
        """(n,) objectives of the runs that reached an optimum, in ascending order."""
        reached = self.table["objective"][self.table["arrived"]].to_numpy(dtype=float)
        return np.sort(reached[np.isfinite(reached)])

    @property
    def best(self) -> Estimate:
        """The best optimum; if no run reached an optimum, the best end point.

        raises EstimationFailed if no run returned usable parameter values
        """
        usable = self.table[self.table["status"].isin([s.name for s in Status if s.usable])]
        rows = usable[usable["arrived"]] if usable["arrived"].any() else usable
        if not np.isfinite(rows["objective"]).any():
            last = self.table["status"].iloc[-1] if len(self.table) else Status.INTERRUPTED.name
            raise EstimationFailed(
                f"igpe tried {counted(len(self.table), 'start')}, but none gave usable parameter "
                "values. `.table` contains the status and the note of each start. The last status: "
                f"{Status[last].value}",
                Status[last],
            )
        chosen: Any = rows["objective"].idxmin()
        row = rows.loc[chosen]
        status = Status[row["status"]]
        return Estimate(
            {n: float(row[n]) for n in self.starts.columns},
            float(row["objective"]),
            Status.BEST_OF_SEVERAL if status is Status.CONVERGED else status,
            f"best of {len(self.table)} starts, {row['found_by']}",
            seconds=float(row["seconds"]),
            iterations=int(row["iterations"]),
        )

    @property
    def counts(self) -> dict[str, int]:
        """Number of starts that ended with each status."""
        return {str(k): int(v) for k, v in self.table["status"].value_counts().items()}

    def plot(self, axes: Any = None) -> Plot:
        """Draw a waterfall plot: the objectives of all starts in ascending order.

        axes  matplotlib axes; None: draw in a new figure
        """
        ax = axes_for(1, axes)[0]
        draw_waterfall(ax, {"": series(self.table["objective"], self.table["arrived"])})
        return Plot([ax])

    def _shown(self) -> tuple[list[Rows], list[str]]:
        ends = [(Status[name].value, str(count)) for name, count in self.counts.items()]
        tables: list[Rows] = [[("", "starts"), *ends]]
        lines, reached = [], self.objectives
        if len(reached):
            near = sum(is_same_objective(reached[0], one) for one in reached)
            count = len(self.table)
            lines.append(f"Best objective {reached[0]:.8g}, reached from {near} of {count} starts.")
            values = self.best.parameters
            tables.append([("", "best value"), *((n, number(v)) for n, v in values.items())])
        if not self.complete:
            lines.append(
                f"Interrupted: {len(self.table)} of {len(self.starts)} starts were finished."
            )
        return tables, [*lines, *self.notes]


@takes_problem
@with_bar
@session()
def campaign(
    problem: Problem,
    estimator: Estimator = SingleShooting(),
    starts: int | Sequence[Mapping[str, float]] = 100,
    *,
    seed: int = 0,
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress = None,
) -> Campaign:
    """Estimate the unknowns from many starts, in parallel if requested; keep all finished starts.

    problem    the problem, the same for all starts; each process translates and compiles it once
    estimator  method that runs from each start
    starts     number of starts, spread within the bounds by a seeded Sobol sequence; or a list of
               starts, each with a value for every free unknown
    seed       seed of the Sobol sequence; with the same seed, the results do not depend on the
               executor or on the order in which the starts run
    executor   None: igpe runs the starts one after the other in this process; a number: the number
               of processes that igpe creates to run the starts; otherwise a
               concurrent.futures executor, or `dask_client.get_executor()`
    store      SQLite file to which igpe writes the result of each start as soon as it is finished.
               igpe does not repeat a start whose result, for the same problem and estimator, is
               already in the file
    timeout    time limit for each start, in seconds. igpe stops a start that takes longer and
               records it as TIMED_OUT; later calls repeat it only with a longer timeout. With a
               timeout, each start runs in a separate process
    progress   a function that receives each message; or True, False or None, as for `igpe.estimate`
    returns    the starts; if the call is interrupted (Ctrl-C), only the finished ones
    raises     ProblemError for invalid arguments, for a problem that cannot be sent to a process or
               prepared there, or for an executor that accepts no work; DataError if `store` is not
               an igpe store; Unsupported if the estimator does not support the problem

    If a process dies during a start, igpe tries this start three more times, and then records it as
    WORKER_DIED. A start is recorded as RAISED if it ends with an unexpected error, or if its worker
    cannot build the model although other workers can. With a store, later calls repeat such starts
    if igpe, the estimator or one of your modules has changed. If a Dask cluster has no worker for
    30 s, processes on this machine do its work, and a note says so.
    """
    expected = "an estimator: igpe.SingleShooting()"
    require(is_estimator(estimator), "campaign", "estimator", estimator, expected)
    given = given_starts(problem, starts, seed, "campaign")
    notes: list[str] = []
    tell = teller(progress)

    def report(sentence: str) -> None:
        notes.append(sentence)
        tell(sentence)

    def finished() -> Iterator[Run]:
        backend, done = Backend(executor, store, timeout, report=report), 0
        job = SearchJob(problem, {type(estimator).__name__: estimator})
        try:
            for done, run in enumerate(searched(job, given, backend), start=1):
                if done % TELL == 0 or done == len(given):
                    words = f"Campaign: {done} of {len(given)} starts"
                    tell(Share(words, done / len(given)))
                yield run
        except ProblemError as error:  # the executor ended: what was finished is kept
            if done == 0:
                raise
            report(str(error))

    table, complete = _gathered(finished(), problem.box.names)
    complete = complete and len(table) == len(given)
    table = table.drop(columns="method").set_index("start").sort_index()
    starts_table = pd.DataFrame(given, columns=list(problem.box.names))
    result = Campaign(table, starts_table, complete, tuple(notes))
    if store is not None:
        with finishing():
            _require_true(result, problem, estimator, store)
    return result


def _require_true(
    campaign: Campaign, problem: Problem, estimator: Estimator, store: str | Path
) -> None:
    """Compute the best again: what a file says of it may not be so.

    The sum of squares is that of an integration; where a method has another one (on the mesh of its
    collocation, or with weights that depend on the fit), that of the method from there.

    raises DataError if neither is as good as the file says
    """
    try:
        best = campaign.best
    except EstimationFailed:
        return
    first = at = None
    if not problem.weights_follow_fit:
        residuals = SingleShooting().prepare(problem).residuals
        first = residuals(campaign.starts.iloc[0].to_numpy(dtype=float))
        at = residuals(problem.box.vector(best.parameters))
    rounding = 0.0 if first is None else ROUNDING * abs(first.cost)

    def is_true(objective: float) -> bool:
        return objective <= best.objective + TRUE * abs(objective) + rounding

    if at is not None and is_true(at.cost):
        return
    again = estimator.estimate(problem, best.parameters).objective
    if not is_true(again):
        raise DataError(
            f"According to the store '{store}', a start reached the objective "
            f"{best.objective:.6g}, but for the stored parameters igpe computes {again:.6g}. "
            "Either the file was changed, or something that the problem depends on was changed. "
            "Remove the file to repeat all starts."
        )
