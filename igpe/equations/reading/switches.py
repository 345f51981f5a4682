"""Jumps whose time is not known before the integration: refused.

`pyo.Expr_if(t < m.T, ...)` jumps where the unknown T says, `pyo.Expr_if(m.x[t] > 1, ...)` where the
state x does. Integrators are cut at times that are known; sensitivities would lack what a jump that
moves adds. Both branches meeting where the condition changes is no jump (see `Translator`).
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import casadi as ca

from igpe.core.errors import ModelError
from igpe.equations.system import System
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.problem import Problem

LONGEST = 80  # characters of a condition in a message


class _Cause(NamedTuple):
    """What moves a jump: its kind, its name, and the problem's unknown if it is one."""

    kind: str
    name: str
    unknown: str | None = None


def moving(problem: Problem, experiment: Experiment, system: System) -> set[str]:
    """The free unknowns that decide when the system jumps."""
    return {c.unknown for _, _, c in _causes(problem, experiment, system) if c.unknown}


def refuse_switches(problem: Problem, experiment: Experiment, system: System) -> None:
    """Raise ModelError if a jump of the system depends on a free unknown or a state."""
    for name, condition, cause in _causes(problem, experiment, system):
        text = str(condition)
        shown = text if len(text) <= LONGEST else text[:LONGEST] + "..."
        hold = f"Hold it (problem.fixing({{'{cause.unknown}': ...}})), or write"
        advice = hold if cause.unknown else "Write"
        raise ModelError(
            f"'{name}' jumps where {shown} changes, which depends on the {cause.kind} "
            f"'{cause.name}': the time of the jump is not known beforehand. igpe integrates jumps "
            f"at known times only. {advice} a smooth transition instead of the condition, for "
            "example 1/(1 + pyo.exp(-(a - b)/width))."
        )


def _causes(
    problem: Problem, experiment: Experiment, system: System
) -> Iterator[tuple[str, Any, _Cause]]:
    for name, condition in system.jumps:
        for cause in _moved_by(problem, experiment, system, ca.symvar(condition)):
            yield name, condition, cause


def _moved_by(
    problem: Problem, experiment: Experiment, system: System, used: Sequence[Any]
) -> Iterator[_Cause]:
    s = system.symbols
    unknown = {n: problem.unknown_of(n, experiment) for n in s.parameters}
    free = set(problem.box.names)
    for symbol in used:
        kind, place = _role(s, symbol)
        if kind in {"x", "dx"}:
            yield _Cause("state" if kind == "x" else "slope of the state", s.states[place])
        elif kind == "p" and unknown[s.parameters[place]] in free:
            yield _Cause("unknown", s.parameters[place], unknown[s.parameters[place]])
        elif kind == "u" and s.inputs[place] in problem.time_varying:
            yield from _of_varying(problem, experiment, s.inputs[place])
        elif kind == "s":
            yield from _of_start(problem, experiment, system, s.states[place])
        elif kind == "z":
            solved = system.solved.expressions[len(s.states) + place]
            if len(s.states) + place in system.solved.implicit:
                yield _Cause("variable", s.algebraics[place])
            else:
                yield from _moved_by(problem, experiment, system, ca.symvar(solved))


def _of_varying(problem: Problem, experiment: Experiment, name: str) -> Iterator[_Cause]:
    for unknown in problem.pieces(name, experiment):
        if unknown in problem.box.names:
            yield _Cause("unknown", unknown, unknown)


def _of_start(
    problem: Problem, experiment: Experiment, system: System, state: str
) -> Iterator[_Cause]:
    given: Any = experiment.start.get(state, system.starts.get(state))
    if isinstance(given, Unknown):
        unknown = problem.start_unknown(state, experiment)
        if unknown in problem.box.names:
            yield _Cause("unknown", unknown, unknown)
    elif isinstance(given, str):
        unknown = problem.unknown_of(given, experiment)
        if unknown in problem.box.names:
            yield _Cause("unknown", given, unknown)
    elif not isinstance(given, float):
        yield from _moved_by(problem, experiment, system, ca.symvar(ca.SX(given)))


def _role(symbols: Any, symbol: Any) -> tuple[str, int]:
    for kind in ("t", "dx", "x", "z", "u", "p", "s"):
        vector = getattr(symbols, kind)
        for place in range(vector.numel()):
            if ca.is_equal(vector[place], symbol):
                return kind, place
    raise KeyError(str(symbol))
