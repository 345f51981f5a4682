"""A dynamic least-squares problem as the tapes and tables that the enclosures read.

Tubes over large boxes read slopes that are rewritten (`factoring`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import IgpeError, Unsupported
from igpe.dynamics.shooting.base import (
    refuse_censored,
    refuse_correlated,
    require_bounds,
    require_known_sigma,
    require_numbers,
    require_plain,
)
from igpe.dynamics.shooting.residuals import Unmeasured, measured_only, unmeasured
from igpe.equations.compiled import compiled, require_smooth_and_normal
from igpe.equations.operations import Graph, UnknownOperation
from igpe.equations.shared_rates import with_shared_rates
from igpe.problem.problem import Problem
from igpe.proofs.prover.factoring import factored
from igpe.proofs.prover.kernels import tape as ops
from igpe.proofs.prover.kernels.tape import OpTape, Schedule, Writer


class TapeSymbols(NamedTuple):
    """Symbols of the expressions: SX columns of states, parameters, inputs, and time."""

    x: Any
    q: Any
    u: Any
    t: Any


def tape(expressions: Any, symbols: TapeSymbols, index: Sequence[int]) -> OpTape:
    """The expressions as a tape.

    index   which of the problem's unknowns each entry of `symbols.q` is
    raises  UnknownOperation
    """
    variables = ca.vertcat(symbols.x, symbols.q, symbols.u, symbols.t)
    graph = Graph.of(expressions, [variables])
    graph.require(_RULES)
    leaves = [(ops.STATE, i) for i in range(symbols.x.numel())]
    leaves += [(ops.PARAMETER, int(k)) for k in index]
    leaves += [(ops.INPUT, i) for i in range(symbols.u.numel())] + [(ops.TIME, 0)]
    writer = Writer()
    results = graph.evaluate(
        lambda _, i: writer.put(*leaves[i]),
        lambda number: writer.put(ops.CONST, number=number),
        lambda name, operands: _RULES[name](writer, *operands),
    )
    return writer.finished(results)


_RULES: Mapping[str, Callable[..., int]] = {
    "ASSIGN": lambda w, a: a,
    "ADD": lambda w, a, b: w.put(ops.ADD, a, b),
    "SUB": lambda w, a, b: w.put(ops.SUB, a, b),
    "MUL": lambda w, a, b: w.product(a, b),
    "DIV": lambda w, a, b: w.put(ops.DIV, a, b),
    "INV": lambda w, a: w.one_over(a),
    "NEG": lambda w, a: w.put(ops.NEG, a),
    "TWICE": lambda w, a: w.put(ops.MUL, w.put(ops.CONST, number=2.0), a),
    "SQ": lambda w, a: w.put(ops.SQUARE, a),
    "POW": lambda w, a, b: w.power(a, b),
    "CONSTPOW": lambda w, a, b: w.power(a, b),
    "SQRT": lambda w, a: w.function(ops.POWER, a, 0.5),
    "EXP": lambda w, a: w.function(ops.EXP, a),
    "LOG": lambda w, a: w.function(ops.LOG, a),
    "SIN": lambda w, a: w.function(ops.SIN, a),
    "COS": lambda w, a: w.function(ops.COS, a),
    "TANH": lambda w, a: w.tanh(a),
}
"""By CasADi's name of the operation."""


class PosedExperiment(NamedTuple):
    """One experiment: tapes of slopes, measured quantities and start values, and what is measured.

    sharp   the slopes again, as interval arithmetic likes them
    labels  one for each row: (experiment, time, quantity)
    """

    tapes: tuple[OpTape, OpTape, OpTape]
    sharp: OpTape
    schedule: Schedule
    labels: tuple[tuple[str, float, str], ...]


class Dynamic(NamedTuple):
    """The whole problem: its experiments, and the residuals that hang on no measurement."""

    experiments: tuple[PosedExperiment, ...]
    unmeasured: Unmeasured
    lower: FloatArray
    upper: FloatArray


def posed(problem: Problem) -> Dynamic:
    """The problem for `igpe.certify`.

    raises  Unsupported for what has no enclosure here, ProblemError without bounds
    """
    require_plain(problem, "igpe.certify", constraints_too=True)
    require_smooth_and_normal(problem, "igpe.certify")
    for require in (require_known_sigma, refuse_censored, refuse_correlated, require_numbers):
        require(problem, "igpe.certify")
    require_bounds(problem, "igpe.certify")
    runs = tuple(_experiment(problem, k) for k in range(len(problem.experiments)))
    box = problem.box
    return Dynamic(runs, unmeasured(problem), box.lower.astype(float), box.upper.astype(float))


def refusal(problem: Problem) -> str:
    """Why `igpe.certify` refuses the problem; empty if it does not."""
    try:
        posed(problem)
    except IgpeError as error:
        return str(error)
    return ""


def _experiment(problem: Problem, k: int) -> PosedExperiment:
    experiment = problem.experiments[k]
    if compiled(problem).systems[k].flow is not None:
        raise Unsupported(
            "igpe.certify supports higher-index models only if the constraints are "
            "linear in the states that they constrain. Rewrite the model with independent "
            "states, without constraints between them."
        )
    ivp = compiled(problem).initial_value_problem(k, plain_powers=True)
    if ivp.implicit:
        raise Unsupported(
            f"igpe.certify needs explicit slopes, but {', '.join(ivp.implicit)} can only be "
            "computed numerically. Write the equations so that each can be solved explicitly for "
            "one variable."
        )
    measurements = measured_only(experiment.measurements)
    box, ivp = problem.box, ivp.without_conditions(measurements.times)
    index = [box.names.index(n) for n in ivp.unknowns]
    ivp = with_shared_rates(ivp, box.lower[index], box.upper[index]).ivp
    symbols = TapeSymbols(ivp.x, ivp.q, ivp.u, ivp.t)
    try:
        tapes = tuple(tape(part, symbols, index) for part in (ivp.f, ivp.measured, ivp.start))
    except UnknownOperation as error:
        raise Unsupported(
            f"The model uses {error}, for which igpe.certify has no bounds. igpe.certify "
            "supports + - * / ** exp log sqrt sin cos tanh."
        ) from None
    m, order = measurements, np.lexsort((measurements.column, measurements.row))
    column = m.column[order]
    labels = tuple(
        (experiment.name, float(m.times[r]), m.names[c])
        for r, c in zip(m.row[order], column, strict=True)
    )
    stops = np.array(sorted({*m.times.tolist(), *ivp.breaks(float(m.times[-1]))}))
    begins = np.concatenate([[ivp.t0], stops[:-1]])
    inputs = [np.stack(ivp.input_segment(float(t)), axis=1) for t in begins]
    first = np.searchsorted(np.sort(m.times[m.row]), stops)
    schedule = Schedule(
        float(ivp.t0),
        stops,
        np.append(first, len(m.row)).astype(np.int64),
        column.astype(np.int64),
        m.value[order],
        1 / m.sigma[order],
        np.array(inputs).reshape(len(stops), len(ivp.tables), 2),
        np.asarray(ivp.largest, dtype=float),
    )
    three = tapes[0], tapes[1], tapes[2]
    return PosedExperiment(three, factored(tapes[0]), schedule, labels)
