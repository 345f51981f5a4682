"""A dynamic least-squares problem as the tapes and tables that the enclosures read."""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import Unsupported
from igpe.dynamics.shooting.base import (
    require_bounds,
    require_known_sigma,
    require_numbers,
    require_plain,
)
from igpe.dynamics.shooting.residuals import measured_only
from igpe.dynamics.shooting.unmeasured import Unmeasured, unmeasured
from igpe.equations.initial_value import InitialValueProblem, initial_value_problem
from igpe.equations.operations import in_words
from igpe.equations.reading.read import read_systems
from igpe.equations.system import System
from igpe.problem.experiment import Experiment, Measurements
from igpe.problem.problem import Problem
from igpe.proofs.prover.enclosures.mueller import Course
from igpe.proofs.prover.factored import factored
from igpe.proofs.prover.tape import Tape
from igpe.proofs.prover.translate import Symbols, UnknownOperation, tape


class Posed(NamedTuple):
    """One experiment: tapes of slopes, told quantities and start values, and what is measured.

    sharp   the slopes again, as interval arithmetic likes them
    labels  one for each row: (experiment, time, quantity)
    """

    tapes: tuple[Tape, Tape, Tape]
    sharp: Tape
    course: Course
    labels: tuple[tuple[str, float, str], ...]


class Dynamic(NamedTuple):
    """The whole problem: its experiments, and the residuals that hang on no measurement."""

    experiments: tuple[Posed, ...]
    unmeasured: Unmeasured
    lower: FloatArray
    upper: FloatArray


def posed(problem: Problem) -> Dynamic:
    """The problem for `igpe.certify`.

    raises  Unsupported for what has no enclosure here, ProblemError without bounds
    """
    name = "igpe.certify"
    require_plain(problem, name, constraints_too=True)
    require_known_sigma(problem, name)
    require_numbers(problem, name)
    require_bounds(problem, name)
    systems = read_systems(problem)
    runs = tuple(
        _experiment(problem, e, s) for e, s in zip(problem.experiments, systems, strict=True)
    )
    box = problem.box
    return Dynamic(runs, unmeasured(problem), box.lower.astype(float), box.upper.astype(float))


def _experiment(problem: Problem, experiment: Experiment, system: System) -> Posed:
    ivp = initial_value_problem(problem, experiment, system, plain_powers=True)
    if ivp.implicit:
        raise Unsupported(
            f"igpe.certify needs explicit slopes, but {', '.join(ivp.implicit)} can only be solved "
            "numerically; write the model's equations so that they can be solved one by one."
        )
    measurements = measured_only(experiment.measurements)
    ivp = ivp.without_conditions(measurements.times)
    index = [problem.box.names.index(n) for n in ivp.unknowns]
    symbols = Symbols(ivp.x, ivp.q, ivp.u, ivp.t)
    try:
        tapes = tuple(tape(part, symbols, index) for part in (ivp.f, ivp.measured, ivp.start))
    except UnknownOperation as error:
        raise Unsupported(
            f"The model uses {in_words([str(error)])}. igpe.certify has no bounds for that; it "
            "knows + - * / ** exp log sqrt sin cos tanh."
        ) from None
    order = np.lexsort((measurements.column, measurements.row))
    column, value = measurements.column[order], measurements.value[order]
    labels = tuple(
        (experiment.name, float(measurements.times[r]), measurements.names[c])
        for r, c in zip(measurements.row[order], column, strict=True)
    )
    course = _course(ivp, measurements)._replace(
        column=column.astype(np.int64), value=value, weight=1 / measurements.sigma[order]
    )
    return Posed((tapes[0], tapes[1], tapes[2]), factored(tapes[0]), course, labels)


def _course(ivp: InitialValueProblem, m: Measurements) -> Course:
    last = float(m.times[-1])
    stops = np.array(sorted({*m.times.tolist(), *ivp.breaks(last)}))
    begins = np.concatenate([[ivp.t0], stops[:-1]])
    inputs = [np.stack(ivp.input_segment(float(t)), axis=1) for t in begins]
    first = np.searchsorted(np.sort(m.times[m.row]), stops)
    return Course(
        float(ivp.t0),
        stops,
        np.append(first, len(m.row)).astype(np.int64),
        np.zeros(0, dtype=np.int64),
        np.zeros(0),
        np.zeros(0),
        np.array(inputs).reshape(len(stops), len(ivp.tables), 2),
        np.asarray(ivp.largest, dtype=float),
    )
