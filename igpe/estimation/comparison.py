"""Several methods on one problem, from the same starts.

Many runs as one table.
"""

import sys
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.arguments import is_number, require
from igpe.core.deadline import session
from igpe.core.errors import ProblemError
from igpe.core.status import Progress, Status
from igpe.dynamics.search.restarts import PERFECT
from igpe.dynamics.search.searches import Asked, Run, given_starts, is_estimator, searched
from igpe.dynamics.shooting.base import Estimator, spread_of
from igpe.numerics.optima import is_same_objective
from igpe.problem.problem import Problem
from igpe.results.plots.axes import axes_for
from igpe.results.plots.search import draw_waterfall, series
from igpe.tasks.crew import Workers
from igpe.tasks.run import Place

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


class RunTable:
    """Grows by one row for each run, and holds no more of it: 8 bytes a number."""

    def __init__(self, unknowns: Sequence[str]) -> None:
        self._unknowns = tuple(unknowns)
        self._words: dict[str, list[str]] = {name: [] for name in WORDS}
        self._numbers = [array("d") for _ in (*NUMBERS, *WORK, *unknowns)]

    def gather(self, runs: Iterable[Run]) -> bool:
        """Add all of them; False if Ctrl-C came between."""
        try:
            for run in runs:
                self.add(run)
        except KeyboardInterrupt:
            return False
        return True

    def add(self, run: Run) -> None:
        """One more."""
        found = run.estimate
        note = "" if found.status.usable else " ".join(found.notes)
        for name, word in zip(
            WORDS, (run.method, found.status.name, found.method, note), strict=True
        ):
            self._words[name].append(sys.intern(word))
        values = (float(found.parameters[n]) for n in self._unknowns)
        told = (run.number, found.objective, found.seconds, found.iterations, *run.work, *values)
        for column, value in zip(self._numbers, told, strict=True):
            column.append(value)

    def frame(self) -> pd.DataFrame:
        """One row for each run, as they came."""
        names = [*NUMBERS, *WORK, *self._unknowns]
        found = pd.DataFrame({
            **self._words,
            **{n: np.array(c) for n, c in zip(names, self._numbers, strict=True)},
        })
        found["arrived"] = found["status"].isin([status.name for status in ARRIVED])
        found = found.astype({"start": int, "iterations": int})
        return found[[*ORDER, *self._unknowns]]


@dataclass(frozen=True)
class Comparison:
    """What became of every start.

    runs     one row for each run: method, start (its number), status, arrived, objective, seconds,
             iterations, equivalent ones of all horizons, found_by (in words), note (why there is no
             answer), and the unknowns
    best     the best objective known
    complete False if it was interrupted
    rounding difference of objectives that is none, where the fit is perfect
    """

    runs: pd.DataFrame
    best: float
    complete: bool = True
    rounding: float = 0.0

    @property
    def table(self) -> pd.DataFrame:
        """One row for each method, in percent of its runs, with medians.

        arrived at an optimum; at the best one (within 1e-3); could not be integrated; s; iterations
        """
        rows = {}
        for method, runs in self.runs.groupby("method", sort=False):
            objective = runs["objective"].to_numpy()
            good = runs["arrived"] & np.array([
                is_same_objective(self.best, one, self.rounding) for one in objective
            ])
            broke = runs["status"] == Status.INTEGRATION_BROKE.name
            rows[method] = {
                "runs": len(runs),
                "arrived %": 100 * runs["arrived"].mean(),
                "best %": 100 * good.mean(),
                "broke %": 100 * broke.mean(),
                "median s": runs["seconds"].median(),
                "median iterations": runs["iterations"].median(),
            }
        return pd.DataFrame.from_dict(rows, orient="index")

    def plot(self, axes: Any = None) -> Any:
        """A waterfall: each method's objectives in ascending order.

        axes     matplotlib axes; None makes a figure
        returns  the axes
        """
        ax = axes_for(1, axes)[0]
        found = {
            str(method): series(runs["objective"], runs["arrived"])
            for method, runs in self.runs.groupby("method", sort=False)
        }
        draw_waterfall(ax, found, rounding=self.rounding)
        return ax

    def __str__(self) -> str:
        told = self.table.to_string(float_format="{:.3g}".format)
        ended = "" if self.complete else "\nInterrupted: not all runs were made."
        return f"{told}\nbest objective {self.best:.8g}{ended}"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(float_format="{:.3g}".format))


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
    progress: Progress | None = None,
) -> Comparison:
    """Run every method from every start.

    Where standard deviations follow the model, each objective is with those of its own fit.

    problem   the same for all
    methods   name -> estimator, or estimators, which are named after their classes
    starts    each every free unknown -> value; or how many, spread over the bounds by a seeded
              Sobol sequence
    seed      of that sequence
    optimum   the best objective known elsewhere, in the methods' units; what is found may be better
    executor, store, timeout   where runs are made and kept, as for `igpe.campaign`
    progress  is told a sentence when a method begins
    returns   what was done until then if it is interrupted (Ctrl-C)
    raises    ProblemError if there is no method or start, one that is none, or a start lacks an
              unknown, or a number of starts is asked for without bounds;  Unsupported by a method;
              what `igpe.campaign` raises
    """
    named = _named(methods)
    require(is_number(optimum), "compare", "optimum", optimum, "a number")
    given = given_starts(problem, starts, seed, "compare")
    place = Place(executor, store, timeout)
    order = {name: k for k, name in enumerate(named)}
    table = RunTable(problem.box.names)

    def begins(name: str) -> None:
        if progress is not None:
            progress(f"{name} from {len(given)} starts")

    complete = table.gather(searched(Asked(problem, named), given, place, begins=begins))
    runs = table.frame()
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
        wanted = "a list of estimators, or a mapping from names: {'MS': igpe.MultipleShooting()}"
        is_list = isinstance(methods, Sequence) and not isinstance(methods, str)
        require(is_list, "compare", "methods", methods, wanted)
        names = [type(m).__name__ for m in methods]
        several = {n for n in names if names.count(n) > 1}
        numbered = [
            f"{n} {1 + names[:k].count(n)}" if n in several else n for k, n in enumerate(names)
        ]
        named = dict(zip(numbered, methods, strict=True))
    if not named:
        raise ProblemError("There is no method to compare; give at least one estimator.")
    for name, method in named.items():
        wanted = "estimators: igpe.MultipleShooting()"
        require(is_estimator(method), "compare", f"method {name}", method, wanted)
    return named
