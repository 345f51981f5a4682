"""What the checker knows of a problem: one tape for slopes, starts and measured quantities each.

Priors are measurements of the unknowns themselves: they join the first experiment's, at its start.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import Unsupported
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.reading.read import read_systems
from igpe.problem.experiment import Experiment
from igpe.problem.loss import LeastSquares
from igpe.problem.problem import Problem
from igpe.proofs.checker.inputs import Line, line
from igpe.proofs.checker.tape import Tape

At = tuple[IntArray, FloatArray, FloatArray]
"""What is measured at one time: columns, values y and sigma, exact doubles."""


@dataclass(frozen=True)
class Course:
    """One experiment.

        x' = slopes(t, x, p, u),  x(t0) = start(p),  r = (measured(t, x, p, u) - y) / sigma

    states   how many
    times    (n_times,) increasing, none before t0: where something is measured, or an input jumps;
             what is measured at t0 is measured at the start
    rows     for each time the measured quantities (column), values y and sigma
    inputs   u: one for each input given by a table, as it leads to each of the times
    """

    states: int
    t0: float
    slopes: Tape
    start: Tape
    measured: Tape
    times: FloatArray
    rows: tuple[At, ...]
    inputs: tuple[Line, ...] = ()


class Known(NamedTuple):
    """Priors: (k,) which of the unknowns, means and standard deviations."""

    place: IntArray
    mean: FloatArray
    deviation: FloatArray


def courses(problem: Problem) -> tuple[Course, ...]:
    """One for each experiment, of the problem's free unknowns in the order of `problem.box`.

    raises Unsupported where a sum of squares has parts that the checker does not know
    """
    _require_plain(problem)
    systems = read_systems(problem)
    priors = _priors(problem)
    found = []
    for experiment, system in zip(problem.experiments, systems, strict=True):
        ivp = initial_value_problem(problem, experiment, system, plain_powers=True)
        if ivp.implicit:
            raise Unsupported(
                f"The checker knows no implicit algebraic variables; experiment {experiment.name} "
                "has some."
            )
        found.append(_course(problem, experiment, ivp, priors))
        priors = priors._replace(place=priors.place[:0])  # counted once
    return tuple(found)


def _course(
    problem: Problem, experiment: Experiment, ivp: InitialValueProblem, priors: Known
) -> Course:
    names = problem.box.names
    measured = _measured(experiment)
    ivp = ivp.without_conditions(np.array(sorted(measured)))
    p = ca.SX.sym("p", len(names))
    q = ca.vertcat(*(p[names.index(n)] for n in ivp.unknowns))
    f, start, h = (ca.substitute([e], [ivp.q], [q])[0] for e in (ivp.f, ivp.start, ivp.measured))
    last = max(measured)
    if len(priors.place):
        at = measured.get(ivp.t0, _nothing())
        own = priors.place + h.numel()
        measured[ivp.t0] = tuple(
            np.concatenate(pair) for pair in zip(at, (own, *priors[1:]), strict=True)
        )
        h = ca.vertcat(h, p)
    times = sorted({*measured, *ivp.breaks(last)})
    begins = [ivp.t0, *times[:-1]]
    symbols = [ivp.t, ivp.x, p, ivp.u]
    return Course(
        states=len(ivp.states),
        t0=ivp.t0,
        slopes=Tape(symbols, f),
        start=Tape([p], start),
        measured=Tape(symbols, h),
        times=np.array(times),
        rows=tuple(measured.get(t, _nothing()) for t in times),
        inputs=tuple(line(table, begins) for table in ivp.tables),
    )


def _nothing() -> At:
    return np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)


def _measured(experiment: Experiment) -> dict[float, Any]:
    """Time -> what is measured then."""
    m = experiment.measurements
    at = {float(m.times[k]): m.row == k for k in np.unique(m.row)}
    return {t: (m.column[a], m.value[a], m.sigma[a]) for t, a in at.items()}


def _priors(problem: Problem) -> Known:
    """Of the unknowns that are free; those of the others are a constant, which nobody counts."""
    names = problem.box.names
    free = {names.index(n): prior for n, prior in problem.priors.items() if n in names}
    return Known(
        np.array(list(free), dtype=np.intp),
        np.array([prior.mean for prior in free.values()]),
        np.array([prior.deviation for prior in free.values()]),
    )


def _require_plain(problem: Problem) -> None:
    strange = [
        what
        for what, there in {
            "a loss other than LeastSquares()": not isinstance(problem.loss, LeastSquares),
            "unknowns that vary with time": problem.time_varying,
            "standard deviations that follow the model": problem.sigma_follows_model,
            "estimated standard deviations": problem.sigma_estimated,
        }.items()
        if there
    ]
    if strange:
        raise Unsupported(f"The checker knows no {', '.join(strange)}; certificates without these.")
