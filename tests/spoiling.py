"""A sound table, experiment and problem, each spoilt where the caller says."""

from collections.abc import Callable
from typing import Any

import bad_models as bad
import pandas as pd

from igpe.equations.compiled import compiled
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

Cases = dict[str, tuple[Callable[[], Any], str]]
"""What is done, and what the message must contain, apart by bars."""


def table(time: Any = (0.0, 1.0, 2.0), **columns: Any) -> pd.DataFrame:
    """Three rows of A, unless told otherwise."""
    return pd.DataFrame({"time": time, **(columns or {"A": [1.0, 0.5, 0.2]})})


def run(data: pd.DataFrame | None = None, **conditions: Any) -> Experiment:
    """A sound experiment but for what is told."""
    return Experiment(table() if data is None else data, **{"start": {"A": 1.0}, **conditions})


def pose(model: Any = bad.model, **settings: Any) -> Problem:
    """A sound problem but for what is told."""
    return Problem(model, **{"parameters": ["k"], "experiments": [run()], **settings})


def read(model: Any) -> Any:
    """Read the equations of a problem that is sound but for its model."""
    return compiled(pose(model)).systems


def twins() -> list[Experiment]:
    """Two experiments of one name."""
    return [run(name="run"), run(name="run")]


def doubled_columns() -> pd.DataFrame:
    """A table with two columns A."""
    return pd.concat([table(), table()[["A"]]], axis="columns")


def two_runs() -> pd.DataFrame:
    """A table with the column `experiment`."""
    return table(experiment=["one", "one", "two"], A=[1.0, 0.5, 0.2])
