"""What a case of the benchmark consists of, and the problem that it poses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import igpe

FINER = 3  # times as many intervals for data that no formula gives


@dataclass(frozen=True)
class Case:
    """A model, its published parameters and how it is measured.

    model    the builder
    truth    parameter -> published value
    bounds   parameter -> bounds
    grid     of the estimation, by the name of the set
    columns  measured column -> standard deviation
    times    (n_times,) of the measurements
    start    as for `igpe.Experiment`
    inputs   as for `igpe.Experiment`
    exact    times -> columns, where a formula is known; else data come from a finer grid
    """

    model: Callable[..., Any]
    truth: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]]
    grid: Mapping[str, igpe.integrators.FiniteDifference]
    columns: Mapping[str, float]
    times: np.ndarray
    start: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    exact: Callable[[np.ndarray], Mapping[str, np.ndarray]] | None = None

    def problem(self) -> igpe.Problem:
        """The estimation problem with its measurements."""
        return self._posed(self.data(), self.grid)

    def data(self) -> pd.DataFrame:
        """Measurements with normal errors, of seed 1."""
        values = self.exact(self.times) if self.exact else self._on_a_finer_grid()
        random = np.random.default_rng(1)
        noisy = {
            n: values[n] + random.normal(0, s, len(self.times)) for n, s in self.columns.items()
        }
        return pd.DataFrame({"time": self.times, **noisy})

    def _on_a_finer_grid(self) -> Mapping[str, np.ndarray]:
        finer = {
            name: igpe.integrators.FiniteDifference(FINER * grid.intervals, grid.scheme)
            for name, grid in self.grid.items()
        }
        empty = pd.DataFrame({"time": self.times} | dict.fromkeys(self.columns, self.times))
        problem = self._posed(empty, finer)
        found = igpe.simulate(problem, self.truth, self.times)
        names = problem.experiments[0].measured  # as the model spells positions
        return {n: found[m].to_numpy() for n, m in zip(self.columns, names, strict=True)}

    def _posed(self, data: pd.DataFrame, grid: Mapping[str, Any]) -> igpe.Problem:
        run = igpe.Experiment(
            data, start=self.start, start_time=0.0, inputs=self.inputs, sigma=dict(self.columns)
        )
        return igpe.Problem(self.model, parameters=dict(self.bounds), experiments=run, space=grid)
