"""Several methods on one problem, from the same starts."""

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from igpe.arguments import is_count, is_number, require
from igpe.dynamic.base import Estimator, from_many_starts, require_bounds
from igpe.dynamic.remarks import spread_of
from igpe.dynamic.restarts import PERFECT
from igpe.dynamic.wanted import require_start
from igpe.errors import ProblemError
from igpe.estimates import Estimate
from igpe.problem import Problem
from igpe.progress import Progress
from igpe.status import Status

BEST = 1e-3  # relative difference of objectives that are the best one
ARRIVED = {
    Status.CONVERGED,
    Status.BEST_OF_SEVERAL,
    Status.OPTIMAL_WITHIN_GAP,
    Status.GLOBAL_BY_CONVEXITY,
}
CHUNK = 8  # starts of one task of an executor


@dataclass(frozen=True)
class Comparison:
    """What became of every start.

    runs     one row for each run: method, start (its number), status, arrived, objective, seconds,
             iterations, and the unknowns
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
            good = runs["arrived"] & (
                objective <= self.best + BEST * abs(self.best) + self.rounding
            )
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
        if axes is None:
            import matplotlib.pyplot as plt  # noqa: PLC0415 - slow to import

            _, axes = plt.subplots(layout="constrained")
        for method, runs in self.runs.groupby("method", sort=False):
            reached = np.sort(runs["objective"][np.isfinite(runs["objective"])].to_numpy())
            axes.plot(np.arange(1, len(reached) + 1), reached, "o-", markersize=3, label=method)
        if (self.runs["objective"] > 0).all():
            axes.set_yscale("log")
        axes.set_xlabel("starts, the best first")
        axes.set_ylabel("objective")
        axes.legend()
        return axes

    def __str__(self) -> str:
        told = self.table.to_string(float_format="{:.3g}".format)
        ended = "" if self.complete else "\nInterrupted: not all runs were made."
        return f"{told}\nbest objective {self.best:.8g}{ended}"

    def _repr_html_(self) -> str:
        return str(self.table.to_html(float_format="{:.3g}".format))


def compare(
    problem: Problem,
    methods: Mapping[str, Estimator] | Sequence[Estimator],
    starts: int | Sequence[Mapping[str, float]] = 20,
    *,
    seed: int = 0,
    optimum: float = np.inf,
    executor: Executor | None = None,
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
    executor  where the runs are made, some starts a task; None: here, one after the other. The
              problem's model must then be a function that can be pickled
    progress  is told a sentence when a method begins
    returns   what was done until then if it is interrupted (Ctrl-C)
    raises    ProblemError if there is no method or start, one that is none, or a start lacks an
              unknown, or a number of starts is asked for without bounds;  Unsupported by a method
    """
    named = _named(methods)
    require(is_number(optimum), "compare", "optimum", optimum, "a number")
    given = _given(problem, starts, seed)
    runs: list[dict[str, Any]] = []
    complete = True
    try:
        for row in _rows(problem, named, given, executor, progress):
            runs.append(row)
    except KeyboardInterrupt:
        complete = False
    table = pd.DataFrame(runs, columns=[*_COLUMNS, *problem.box.names])
    arrived = table["objective"][table["arrived"].astype(bool)]
    rounding = PERFECT * spread_of(problem) ** 2
    return Comparison(table, float(min([optimum, *arrived])), complete, rounding)


_COLUMNS = ("method", "start", "status", "arrived", "objective", "seconds", "iterations")


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
        ok = callable(getattr(method, "estimate", None)) and not isinstance(method, type)
        require(ok, "compare", f"method {name}", method, "estimators: igpe.MultipleShooting()")
    return named


def _given(
    problem: Problem, starts: int | Sequence[Mapping[str, float]], seed: int
) -> list[dict[str, float]]:
    names = problem.box.names
    wanted = "a list of mappings, or how many (above 0)"
    if not isinstance(starts, Sequence):
        require(is_count(starts), "compare", "starts", starts, wanted)
        if starts < 1:
            raise ProblemError(f"{starts} starts are asked for; at least one is needed.")
        require(is_count(seed), "compare", "seed", seed, "a whole number, 0 or more")
        require_bounds(problem, "A number of starts")
        return [problem.box.mapping(p) for p in problem.box.sobol(int(starts), seed)]
    require(not isinstance(starts, str), "compare", "starts", starts, wanted)
    if not starts:
        raise ProblemError("There is no start to compare from; give at least one, or a number.")
    for k, start in enumerate(starts):
        require_start(start, problem.box, "compare", str(k))
    return [{n: float(start[n]) for n in names} for start in starts]


def _rows(
    problem: Problem,
    methods: Mapping[str, Estimator],
    starts: Sequence[Mapping[str, float]],
    executor: Executor | None,
    progress: Progress | None,
) -> Iterator[dict[str, Any]]:
    chunks = [starts] if executor is None else _chunks(starts)
    tasks = {
        name: [] if executor is None else [executor.submit(_run, problem, m, c) for c in chunks]
        for name, m in methods.items()
    }
    for name, method in methods.items():
        if progress is not None:
            progress(f"{name} from {len(starts)} starts")
        if executor is None:
            found: Iterator[Estimate] = _runs(problem, method, starts)
        else:
            found = (e for task in tasks[name] for e in task.result())
        for number, estimate in enumerate(found):
            yield _row(name, number, estimate)


def _chunks(starts: Sequence[Mapping[str, float]]) -> list[Sequence[Mapping[str, float]]]:
    return [starts[k : k + CHUNK] for k in range(0, len(starts), CHUNK)]


def _run(
    problem: Problem, method: Estimator, starts: Sequence[Mapping[str, float]]
) -> list[Estimate]:
    return list(_runs(problem, method, starts))


def _runs(
    problem: Problem, method: Estimator, starts: Sequence[Mapping[str, float]]
) -> Iterator[Estimate]:
    search = from_many_starts(method, problem)
    for start in starts:
        began = time.perf_counter()
        yield replace(search(start), seconds=time.perf_counter() - began)


def _row(method: str, number: int, estimate: Estimate) -> dict[str, Any]:
    return {
        "method": method,
        "start": number,
        "status": estimate.status.name,
        "arrived": estimate.status in ARRIVED,
        "objective": estimate.objective,
        "seconds": estimate.seconds,
        "iterations": estimate.iterations,
        **estimate.parameters,
    }
