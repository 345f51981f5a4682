"""One rival fitted, and judged by experiments that it was not fitted to."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from igpe.core.deadline import stopped
from igpe.core.errors import EstimationFailed, IgpeError
from igpe.core.json_form import plain
from igpe.core.status import Status
from igpe.dynamics.shooting.base import Estimator, constraints
from igpe.dynamics.shooting.multiple.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.reweighting import held_weights
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import simulate
from igpe.estimation.settings import Settings
from igpe.pipeline import estimate
from igpe.problem.experiment import Unknown
from igpe.problem.problem import Problem
from igpe.results.result import Result
from igpe.tasks.workers import Function, Row


class RivalJob(NamedTuple):
    """What a worker needs.

    problems  name -> problem;  cross: whether each experiment is left out once
    settings, seed, certify  as for `igpe.estimate`
    """

    problems: Mapping[str, Problem]
    settings: Settings | None
    seed: int | None
    certify: bool | Literal["auto"]
    cross: bool


def prepared(job: RivalJob) -> Function:
    """From the name of a rival to its row: status, result, and squared errors of prediction."""

    def fit(name: str) -> Row:
        problem = job.problems[name]
        try:
            result = estimate(problem, job.settings, seed=job.seed, certify=job.certify)
        except IgpeError as error:  # a refusal of one rival is no refusal of the others
            return {"status": Status.RAISED.name, "why": str(error)}
        row = {"status": result.status.name, "result": result.to_dict()}
        if job.cross and can_leave_out(problem) and not stopped():
            row["left_out"] = plain(left_out(problem, result))
        return row

    return fit


def can_leave_out(problem: Problem) -> bool:
    """Whether a fit to some experiments predicts another: none has unknowns of its own.

    Spectra are not predicted, as each run's part in the pure spectra would have to be known.
    """
    starts = (s for e in problem.experiments for s in e.start.values())
    own = (
        problem.local
        or problem.time_varying
        or problem.has_spectra
        or any(isinstance(s, Unknown) for s in starts)
    )
    return len(problem.experiments) > 1 and not own


def left_out(problem: Problem, result: Result) -> dict[str, Any]:
    """Experiment -> quantity -> [sum of squared errors of prediction, the same by sigma, number].

    Each experiment is predicted by a fit to the others, which starts from the fit to all. One whose
    fit or prediction breaks down has no entry.
    """
    if problem.is_censored:  # a value below its limit has no error of prediction
        return {}
    held = held_weights(problem, result)
    method: Estimator = MultipleShooting() if constraints(problem) else SingleShooting()
    names = [e.name for e in problem.experiments]
    table: dict[str, Any] = {}
    for name in names:
        if stopped():
            break
        others = held.of_experiments([n for n in names if n != name])
        start = {n: result.parameters[n] for n in others.box.names}
        try:
            values = method.estimate(others, start)
            if not values.status.usable:
                continue
            table[name] = _squares(held.of_experiments([name]), values.parameters)
        except EstimationFailed:
            continue
    return table


def _squares(problem: Problem, parameters: Mapping[str, float]) -> dict[str, list[float]]:
    (experiment,) = problem.experiments
    times = np.unique(experiment.measurements.times)
    curves = simulate(problem, parameters, times)
    squares = {}
    for name in experiment.measured:
        at, value, sigma = experiment.measurements.of(name)
        error = curves[name].to_numpy()[np.searchsorted(times, at)] - value
        squares[name] = [float(error @ error), float(np.sum((error / sigma) ** 2)), len(value)]
    return squares
