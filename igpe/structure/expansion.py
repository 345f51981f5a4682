"""The problem's experiments in the form that is expanded in power series.

A constant input is its number. One given as a function of time is that function. One given by a
table is what the table says between the start and the last measurement: on each piece between two
of its times a number, or a straight line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import casadi as ca
import numpy as np
from pyomo.common.errors import PyomoException

from igpe.equations.elimination import solve_all
from igpe.equations.instant import Instant, plain
from igpe.equations.stack import stack
from igpe.equations.translate import Translator
from igpe.experiment import Experiment
from igpe.inputs import Table, evaluate
from igpe.problem import Problem
from igpe.series.dynamics import Dynamics, Piece
from igpe.series.field import rational
from igpe.series.tape import UnknownOperation
from igpe.structure.posed import FEWEST_TIMES, Posed

PLACES = 5  # times at which an input given as a function is compared with its expression


@dataclass(frozen=True)
class Output:
    """What is measured, or could be, in one experiment.

    name   of the quantity
    since  times from the start at which it is measured; none if it is not
    start  the time of the start
    """

    name: str
    since: tuple[Fraction, ...]
    start: float = 0.0

    @property
    def times(self) -> int:
        """At how many times it is measured."""
        return len(self.since)

    @property
    def at_start(self) -> bool:
        """Whether one of these is the start."""
        return Fraction(0) in self.since

    @property
    def last(self) -> float:
        """The last of them."""
        return self.start + float(max(self.since, default=Fraction(0)))

    @property
    def continuous(self) -> bool:
        """Whether it is measured so often that it counts as known over time."""
        return self.times >= FEWEST_TIMES


@dataclass(frozen=True, eq=False)
class Expansion:
    """One experiment as it is expanded.

    dynamics  of the experiment
    outputs   what each of its outputs is
    posed     where it came from
    values    SX column, what stands for the inputs of `posed`
    """

    dynamics: Dynamics
    outputs: tuple[Output, ...]
    posed: Posed
    values: Any

    def following(self, expressions: Any) -> Dynamics:
        """The dynamics with other outputs: expressions of data, time and inputs of `posed`.

        The data are what the outputs of that name are.
        """
        place = {output.name: i for i, output in enumerate(self.outputs)}
        data = stack(self.dynamics.outputs[place[n]] for n in self.posed.data_names)
        inserted = ca.substitute([expressions], [self.posed.inputs], [self.values])
        return replace(self.dynamics, outputs=ca.substitute(inserted, [self.posed.data], [data])[0])


def expand(problem: Problem, posed: Sequence[Posed]) -> tuple[Expansion, ...]:
    """Every experiment, with all its states and algebraic variables among the outputs."""
    return tuple(_expanded(problem, one) for one in posed)


def _expanded(problem: Problem, posed: Posed) -> Expansion:
    experiment, n = problem.experiments[posed.experiment], posed.n_states
    unknowns = ca.vertcat(posed.variables[:n], posed.variables[2 * n :])
    solved = solve_all(posed.residual[: posed.n_equations], unknowns)
    names = posed.variable_names
    others = [m for m in names[n:] if m not in posed.measured]
    variable = dict(zip(names[n:], ca.vertsplit(posed.variables[n:]), strict=True))
    outputs = stack([*posed.measured.values(), *(variable[m] for m in others)])
    measured = tuple(_measured(experiment, m) for m in posed.measured)
    last = max((m.last for m in measured), default=experiment.times[-1])
    given = [_given(experiment.inputs[name], posed, experiment, last) for name in posed.input_names]
    values = stack(posed.inputs[i] if isinstance(v, Table) else v for i, v in enumerate(given))
    tables = [v for v in given if isinstance(v, Table)]
    y = stack(unknowns[j] for j in solved.implicit)
    f, g, h, start = ca.substitute(
        [
            stack(solved.expressions[:n]),
            solved.remaining,
            ca.substitute(outputs, unknowns, stack(solved.expressions)),
            posed.starts,
        ],
        [posed.inputs],
        [values],
    )
    dynamics = Dynamics(
        x=posed.variables[n : 2 * n],
        y=y,
        q=posed.q,
        u=stack(posed.inputs[i] for i, v in enumerate(given) if isinstance(v, Table)),
        t=posed.time,
        f=f,
        g=g,
        start=start,
        outputs=h,
        t0=experiment.start_time,
        columns=tuple(problem.box.names.index(q) for q in posed.q_names),
        inputs=tuple((v.times.tobytes(), v.values.tobytes(), v.hold) for v in tables),
        pieces=_pieces(tables, experiment.start_time, last) if tables else (),
    )
    return Expansion(dynamics, (*measured, *(Output(m, ()) for m in others)), posed, values)


def _measured(experiment: Experiment, name: str) -> Output:
    times = np.unique(experiment.measurements.of(name)[0])
    since = (rational(float(t)) - rational(experiment.start_time) for t in times)
    return Output(name, tuple(since), experiment.start_time)


def _given(given: Any, posed: Posed, experiment: Experiment, last: float) -> Any:
    """A table that varies before the last measurement, or an expression of time."""
    if isinstance(given, Table):
        inside = given.times[(given.times > experiment.start_time) & (given.times < last)]
        seen = [given.at(t) for t in (experiment.start_time, *inside)]
        seen.append(given.at(last, before=True))
        return ca.SX(seen[0]) if np.ptp(seen) == 0 else given
    if not callable(given):
        return ca.SX(given)
    places = np.linspace(experiment.start_time, last, PLACES)
    try:
        expression = ca.SX(Translator({}, posed.time)(plain(given(Instant(experiment.start_time)))))
        told = np.asarray(ca.Function("input", [posed.time], [expression])(places[None])).ravel()
        same = np.allclose(told, [evaluate(given, p) for p in places], rtol=1e-10, equal_nan=True)
    except (TypeError, ValueError, PyomoException):
        same = False
    if not same:
        raise UnknownOperation("an input that is no expression of time")
    return expression


def _pieces(tables: Sequence[Table], first: float, last: float) -> tuple[Piece, ...]:
    """Between all breaks of all tables, joined where nothing changes."""
    inside = sorted({float(t) for table in tables for t in table.times if first < t < last})
    t0, begins = rational(first), [first, *inside]
    found: list[Piece] = []
    for begin, end in zip(begins, [*inside, None], strict=True):
        lines = [_line(table, begin) for table in tables]
        at = rational(begin)
        origin = [_line(table, first)[0] for table in tables]
        levels = [
            line[0] if table.hold else o
            for table, line, o in zip(tables, lines, origin, strict=True)
        ]
        piece = Piece(
            start=at - t0,
            end=None if end is None else rational(end) - t0,
            levels=tuple(levels),
            rises=tuple(value - level for (value, _), level in zip(lines, levels, strict=True)),
            slopes=tuple(slope for _, slope in lines),
        )
        if found and _continues(found[-1], piece):
            piece = found.pop()._replace(end=piece.end)
        found.append(piece)
    return tuple(found)


def _continues(one: Piece, other: Piece) -> bool:
    length = other.start - one.start
    rises = tuple(r + s * length for r, s in zip(one.rises, one.slopes, strict=True))
    return (one.levels, rises, one.slopes) == (other.levels, other.rises, other.slopes)


def _line(table: Table, time: float) -> tuple[Fraction, Fraction]:
    """Value and slope from `time` on, in the numbers that the table was written with."""
    k = int(np.searchsorted(table.times, time, side="right")) - 1
    if k < 0 or table.hold or k >= len(table.times) - 1:
        return rational(float(table.values[max(k, 0)])), Fraction(0)
    times, values = (
        [rational(float(v[i])) for i in (k, k + 1)] for v in (table.times, table.values)
    )
    slope = (values[1] - values[0]) / (times[1] - times[0])
    return values[0] + slope * (rational(time) - times[0]), slope
