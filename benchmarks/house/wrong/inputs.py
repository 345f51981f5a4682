"""Measurements, conditions and problems that are read wrongly."""

from copy import copy
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from house.planting import answering, around, fault, given, method, overwritten, public


def _made(change: Any) -> Any:
    """What makes an object as always, and then changes it: change(object, *arguments)."""

    def wrong(right: Any, made: Any, *arguments: Any, **named: Any) -> None:
        right(made, *arguments, **named)
        change(made, *arguments, **named)

    return wrong


def _with_measurements(experiment: Any, **values: Any) -> Any:
    """A copy of the experiment whose measurements have other arrays."""
    other = copy(experiment)
    other.measurements = replace(experiment.measurements, **values)
    return other


@fault("test_problem test_single_shooting test_posterior")
def priors_ignored() -> None:
    """Priors are read, but do not count."""
    change = _made(lambda p, *_, **__: overwritten(p, priors=MappingProxyType({})))
    method("Problem", "__init__", change)


@fault("test_problem test_single_shooting")
def fixing_forgets_what_was_fixed() -> None:
    """Fixing an unknown frees those that were fixed before."""

    def wrong(right: Any, problem: Any, values: Any) -> Any:
        return overwritten(right(problem, values), fixed=MappingProxyType(dict(values)))

    method("Problem", "fixing", wrong)


@fault("test_problem")
def other_data_free_the_fixed() -> None:
    """A problem with other data has forgotten what was fixed."""
    change = answering(lambda problem: overwritten(problem, fixed=MappingProxyType({})))
    method("Problem", "with_data", change)


@fault("test_single_shooting test_problem test_error_model test_multiple_shooting_losses")
def sigma_of_the_second_experiment() -> None:
    """The first experiment gets the standard deviations of the second."""

    def change(problem: Any, *_: Any, **__: Any) -> None:
        first, *others = problem.experiments
        sigma = others[0].measurements.sigma if others else first.measurements.sigma
        if sigma.shape == first.measurements.sigma.shape:
            first = _with_measurements(first, sigma=sigma)
        problem.experiments = (first, *others)

    method("Problem", "__init__", _made(change))


@fault("test_problem test_tables test_single_shooting")
def weights_levelled() -> None:
    """All measurements of an experiment get the same standard deviation."""

    def change(experiment: Any, *_: Any, **__: Any) -> None:
        m = experiment.measurements
        level = np.full(m.sigma.shape, np.median(m.sigma))
        experiment.measurements = replace(m, sigma=level)

    method("Experiment", "__init__", _made(change))


@fault("test_problem test_single_shooting")
def replicates_counted_once() -> None:
    """Of several measurements at one time the first counts."""

    def change(experiment: Any, *_: Any, **__: Any) -> None:
        m = experiment.measurements
        _, kept = np.unique(np.column_stack([m.row, m.column]), axis=0, return_index=True)
        arrays = {n: getattr(m, n)[np.sort(kept)] for n in ("row", "column", "value", "sigma")}
        experiment.measurements = replace(m, **arrays)

    method("Experiment", "__init__", _made(change))


@fault("test_problem test_simulation")
def start_time_ignored() -> None:
    """The start time that is given does not count."""
    method("Experiment", "__init__", given(start_time=lambda _: None))


@fault("test_problem test_time_varying")
def steps_become_ramps() -> None:
    """An input of steps runs linearly between its points."""
    around("steps step_input", answering(lambda table: overwritten(table, hold=False)))


@fault("test_problem test_reactors test_smoothers_on_zoo test_estimators_on_zoo")
def ramps_become_steps() -> None:
    """An input that is linear between its points is held until the next one."""
    around("linear linear_input", answering(lambda table: overwritten(table, hold=True)))


@fault("test_problem test_error_model test_result")
def sigma_keeps_its_unit() -> None:
    """Measurements are converted to the model's unit, their standard deviations are not."""

    def change(problem: Any, *_: Any, experiments: Any, **__: Any) -> None:
        kind = public("Experiment")
        runs = [experiments] if isinstance(experiments, kind) else experiments
        problem.experiments = tuple(
            _with_measurements(e, sigma=run.measurements.sigma)
            for e, run in zip(problem.experiments, runs, strict=True)
        )

    method("Problem", "__init__", _made(change))


@fault("test_new test_tables test_problem")
def decimal_commas_dropped() -> None:
    """Decimal commas of a table separated by semicolons are taken for those of thousands."""

    def misread(data: Any) -> Any:
        path = Path(data) if isinstance(data, str | Path) else None
        if path is None or path.suffix != ".csv" or not path.is_file():
            return data
        raw = path.read_bytes()
        if b";" not in raw.splitlines()[0]:
            return data
        return pd.read_csv(path, sep=";", thousands=",", encoding="cp1252").rename(
            columns=str.strip
        )

    method("Experiment", "__init__", given(data=misread))
    around("read_experiments", given(data=misread))


@fault("test_problem test_tables test_smoothing_family")
def missing_values_are_zero() -> None:
    """Measurements that are missing are read as 0."""

    def filled(data: Any) -> Any:
        return data.fillna(0.0) if isinstance(data, pd.DataFrame) else data

    method("Experiment", "__init__", given(data=filled))


@fault("test_error_model")
def floor_ignored() -> None:
    """The constant part of a proportional error does not count."""

    def wrong(right: Any, model: Any, predicted: Any) -> Any:
        name = "absolute" if hasattr(model, "absolute") else "floor"
        share = getattr(model, "relative", getattr(model, "share", 0.0))
        return right(replace(model, **{name: 0.0}) if share else model, predicted)

    method("Noise Proportional", "deviation", wrong)


@fault("test_error_model test_model_weights")
def sigma_follows_the_measurements() -> None:
    """Proportional errors are shares of the measurements, not of what the model predicts."""
    method("Experiment", "sigma_at", lambda right, e, predicted: right(e, e.measurements.value))


@fault("test_multiple_shooting_losses")
def huber_with_the_default_delta() -> None:
    """Huber's loss has its default delta, whichever is given."""
    method("Huber", "__post_init__", _made(lambda loss: overwritten(loss, delta=1.345)))


@fault("test_multiple_shooting_losses")
def absolute_residuals_squared() -> None:
    """The sum of absolute residuals is asked for, that of their squares is minimised."""
    kind, squares = public("L1"), public("LeastSquares")
    change = given(loss=lambda loss: squares() if isinstance(loss, kind) else loss)
    method("Problem", "__init__", change)


@fault("test_time_varying")
def jumps_not_penalised() -> None:
    """The penalty on the jumps of a time-varying unknown does not count."""
    method("PiecewiseConstant", "__post_init__", _made(lambda p: overwritten(p, penalty=0.0)))
