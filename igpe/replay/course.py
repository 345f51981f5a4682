"""What the checker knows of a problem: one tape for slopes, starts and measured quantities each."""

from dataclasses import dataclass

import casadi as ca
import numpy as np

from igpe.arrays import FloatArray, IntArray
from igpe.equations.initial_value import initial_value_problem
from igpe.equations.system import read_systems
from igpe.errors import Unsupported
from igpe.experiment import Experiment
from igpe.loss import LeastSquares
from igpe.problem import Problem
from igpe.replay.tape import Tape


@dataclass(frozen=True)
class Course:
    """One experiment: x' = slopes(t, x, p), x(t0) = start(p), r = (measured(t, x, p) - y) / sigma.

    states   how many
    times    (n_times,) increasing, none before t0; rows at t0 are measured at the start
    rows     for each time the measured quantities (column), values y and sigma, exact doubles
    """

    states: int
    t0: float
    slopes: Tape
    start: Tape
    measured: Tape
    times: FloatArray
    rows: tuple[tuple[IntArray, FloatArray, FloatArray], ...]


def courses(problem: Problem) -> tuple[Course, ...]:
    """One for each experiment, of the problem's free unknowns in the order of `problem.box`.

    raises Unsupported where a sum of squares has parts that the checker does not know
    """
    _require_plain(problem)
    systems = read_systems(problem)
    names = problem.box.names
    found = []
    for experiment, system in zip(problem.experiments, systems, strict=True):
        ivp = initial_value_problem(problem, experiment, system)
        if ivp.implicit or ivp.tables:
            what = "implicit algebraic variables" if ivp.implicit else "inputs given by tables"
            raise Unsupported(
                f"The checker knows no {what}; experiment {experiment.name} has some."
            )
        p = ca.SX.sym("p", len(names))
        q = ca.vertcat(*(p[names.index(n)] for n in ivp.unknowns))
        f, start, h = (
            ca.substitute([e], [ivp.q], [q])[0] for e in (ivp.f, ivp.start, ivp.measured)
        )
        times, rows = _rows(experiment)
        found.append(
            Course(
                states=len(ivp.states),
                t0=ivp.t0,
                slopes=Tape([ivp.t, ivp.x, p], f),
                start=Tape([p], start),
                measured=Tape([ivp.t, ivp.x, p], h),
                times=times,
                rows=rows,
            )
        )
    return tuple(found)


def _rows(
    experiment: Experiment,
) -> tuple[FloatArray, tuple[tuple[IntArray, FloatArray, FloatArray], ...]]:
    m = experiment.measurements
    used = np.unique(m.row)
    at = [m.row == k for k in used]
    return m.times[used], tuple((m.column[a], m.value[a], m.sigma[a]) for a in at)


def _require_plain(problem: Problem) -> None:
    strange = [
        what
        for what, there in {
            "priors": problem.priors,
            "a loss other than LeastSquares()": not isinstance(problem.loss, LeastSquares),
            "unknowns that vary with time": problem.time_varying,
            "standard deviations that follow the model": problem.sigma_follows_model,
            "estimated standard deviations": problem.sigma_estimated,
        }.items()
        if there
    ]
    if strange:
        raise Unsupported(f"The checker knows no {', '.join(strange)}; certificates without these.")
