"""Switches and jumps whose times are not known before the integration.

A comparison on states or unknowns becomes a mode, 0 or 1, which is an input that is held between
switches. It changes where its gap, right side minus left side, passes through 0. Events are jumps
of the states: at a time that unknowns may move, or where a gap becomes positive.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import casadi as ca

from igpe.core.errors import Unsupported
from igpe.equations.operations import apply_to_sx, operation_names
from igpe.equations.symbols import stack
from igpe.equations.timed import STATE, TIME, UNKNOWN, TimeSymbols

COMPARISONS = {"LT", "LE"}
OPPOSITE = {"LT": "LE", "LE": "LT"}


class Jump(NamedTuple):
    """States jump at once; SX expressions.

    at     the time, or None;  gap: else what becomes positive; in an initial value problem its
           place among the gaps
    after  state -> its new value; in an initial value problem (n_x,) all states
    delay  between the time or the switch and the jump
    is_measured_after  whether measurements at its very time see it
    at_start           whether it happens where the gap is positive at the start
    before             whether it also happens during the approach to a steady-state start
    closed             whether the gap counts as positive where it stays 0
    """

    at: Any
    gap: Any
    after: Any
    delay: Any
    is_measured_after: bool = False
    at_start: bool = False
    before: bool = False
    closed: bool = True


@dataclass(frozen=True)
class Switching:
    """What happens between the pieces of an initial value problem.

    modes   how many modes there are: the last so many inputs u
    gaps    (n_gaps,) SX: of each mode, positive where it is 1, then of the jumps that wait for one
    times   of each gap: SX (2,) the time at which it is 0 (of one that time does not move -inf)
            and its slope (its sign then), both of the unknowns alone; None if states, inputs or
            other modes move it
    jumps   in the order in which they happen at one time
    closed  of each gap: whether it counts as positive where it stays 0 (<= and >=)
    """

    modes: int
    gaps: Any
    times: tuple[Any, ...]
    jumps: tuple[Jump, ...]
    closed: tuple[bool, ...] = ()

    @property
    def all_times(self) -> Any:
        """SX (n,): of all modes, then of all jumps, if it is timed."""
        return stack([*(time[0] for time in self.times), *(j.at + j.delay for j in self.jumps)])

    @property
    def is_timed(self) -> bool:
        """Whether unknowns alone give the time of all that happens."""
        return all(time is not None for time in self.times) and all(
            jump.at is not None for jump in self.jumps
        )

    @property
    def moves_jumps(self) -> bool:
        """Whether states jump at a time that unknowns move, themselves or by the states."""
        return any(j.at is None or ca.symvar(stack([j.at, j.delay])) for j in self.jumps)

    @property
    def has_delayed(self) -> bool:
        """Whether a jump waits after a switch that states bring about."""
        return any(j.gap is not None and not j.delay.is_zero() for j in self.jumps)

    @property
    def carries(self) -> bool:
        """Whether events that happen before a steady-state start go on in the experiment."""
        return any(jump.before for jump in self.jumps)

    def is_seen(self, gap: int | None, jump: int | None = None) -> bool:
        """Whether what is measured at a switch or jump is measured after it."""
        return any(
            one.is_measured_after and (j == jump or (gap is not None and one.gap == gap))
            for j, one in enumerate(self.jumps)
        )


class Modes(NamedTuple):
    """Symbols that stand for comparisons; see `Switching` for gaps and closed."""

    symbols: list[Any]
    gaps: list[Any]
    closed: list[bool]


def with_modes(column: Any, clock: TimeSymbols) -> tuple[Any, Modes]:
    """The SX column with symbols for comparisons on states or unknowns; and these."""
    column = ca.densify(ca.SX(column))
    function = ca.Function("column", ca.symvar(column), [column])
    if COMPARISONS.isdisjoint(operation_names(function)):
        return column, Modes([], [], [])
    nodes, rows = clock.nodes(column)
    modes: dict[tuple[str, int, int], Any] = {}
    gaps: list[Any] = []
    made: list[Any] = []
    for node in nodes:
        if not _is_open(node):
            operands = [made[i] for i in node.operands]
            made.append(apply_to_sx(node.operation, operands) if operands else node.expression)
            continue
        low, high = node.operands
        opposite = OPPOSITE[node.operation], high, low
        if opposite in modes:
            made.append(1 - modes[opposite])
            continue
        own = node.operation, low, high
        if own not in modes:
            modes[own] = ca.SX.sym(f"mode {len(modes)}")
            gaps.append(made[high] - made[low])
        made.append(modes[own])
    closed = [operation == "LE" for operation, *_ in modes]
    return stack(made[r] for r in rows), Modes(list(modes.values()), gaps, closed)


def _is_open(node: Any) -> bool:
    moves = node.depends & (TIME | STATE)
    return bool(node.operation in COMPARISONS and moves and node.depends & (STATE | UNKNOWN))


def gap_of(condition: Any) -> tuple[Any, bool] | None:
    """What is positive where an SX comparison is true, and whether that is so where it is 0.

    None if it is no comparison.
    """
    if isinstance(condition, bool) or ca.SX(condition).op() not in {ca.OP_LT, ca.OP_LE}:
        return None
    return condition.dep(1) - condition.dep(0), condition.op() == ca.OP_LE


def switching(modes: Modes, jumps: Iterable[Jump], clock: TimeSymbols, x: Any) -> Switching:
    """Sort what was read; the gaps and times must be free of the conditions on known times."""
    every, own, closed = list(modes.gaps), list[Jump](), list(modes.closed)
    states = ca.vertsplit(x)
    for jump in jumps:
        place = None
        if jump.gap is not None:
            place = len(every)
            every.append(jump.gap)
            closed.append(jump.closed)
        after = stack(jump.after.get(i, s) for i, s in enumerate(states))
        own.append(jump._replace(gap=place, after=after))
    moving = ca.vertcat(clock.u, clock.rest)
    times = tuple(_time(*one, clock.t, moving) for one in zip(every, closed, strict=True))
    return Switching(len(modes.symbols), stack(every), times, tuple(own), tuple(closed))


def _time(gap: Any, is_closed: bool, t: Any, moving: Any) -> Any | None:
    """Of a gap a + b t: -a / b and b; where b is 0, one that has always had the sign of a."""
    slope = ca.jacobian(gap, t)
    if slope.is_zero() or ca.depends_on(gap, moving) or ca.depends_on(slope, t):
        return None
    constant, is_level = ca.substitute(gap, t, 0), slope == 0
    sign = ca.if_else(constant == 0, 1 if is_closed else -1, constant)
    time = ca.if_else(is_level, -ca.inf, -constant / ca.if_else(is_level, 1, slope))
    return ca.vertcat(time, ca.if_else(is_level, sign, slope))


def refused(method: str) -> Unsupported:
    """That a method knows neither events nor switches at times that unknowns or states move."""
    return Unsupported(
        f"{method} cannot follow events, steady-state starts, or conditions that depend on "
        "unknowns or states. igpe.estimate, igpe.simulate, igpe.SingleShooting, igpe.profile and "
        "igpe.predict support them."
    )
