"""The problem's experiments in the form that is expanded in power series.

A constant input is its number. One given as a function of time is that function. One given by a
table is what the table says between the start and the last measurement: on each piece between two
of its times a number, or a straight line. A condition on time, or on inputs, is a further input
that is held: 0 or 1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.errors import IgpeError
from igpe.equations.elimination import solve_all
from igpe.equations.reading.pieces import of_time
from igpe.equations.symbols import stack
from igpe.equations.time.timed import Clock, as_products, held
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem
from igpe.structure.identifiability.posed import FEWEST_TIMES, Posed
from igpe.structure.series.field import rational
from igpe.structure.series.tape import Dynamics, Piece, UnknownOperation


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
    slopes    state -> slope predicted from the data, in the inputs of `dynamics`
    """

    dynamics: Dynamics
    outputs: tuple[Output, ...]
    posed: Posed
    slopes: Mapping[str, Any] = field(default_factory=dict)

    def following(self, expressions: Any) -> Dynamics:
        """The dynamics with other outputs: expressions of data and time, and of its inputs.

        The data are what the outputs of that name are.
        """
        place = {output.name: i for i, output in enumerate(self.outputs)}
        data = stack(self.dynamics.outputs[place[n]] for n in self.posed.data_names)
        return replace(
            self.dynamics, outputs=ca.substitute([expressions], [self.posed.data], [data])[0]
        )


def expand(
    problem: Problem, posed: Sequence[Posed], slopes: Sequence[Mapping[str, Any]] = ()
) -> tuple[Expansion, ...]:
    """Every experiment, with all its states and algebraic variables among the outputs.

    slopes  of each experiment, state -> slope predicted from its data
    raises  UnknownOperation for conditions that cannot be followed
    """
    own = slopes or [{}] * len(posed)
    return tuple(_expanded(problem, *one) for one in zip(posed, own, strict=True))


def _expanded(problem: Problem, posed: Posed, slopes: Mapping[str, Any]) -> Expansion:
    experiment, n = problem.experiments[posed.experiment], posed.n_states
    unknowns = ca.vertcat(posed.variables[:n], posed.variables[2 * n :])
    solved = solve_all(posed.residual[: posed.n_equations], unknowns)
    names = posed.variable_names
    others = [m for m in names[n:] if m not in posed.measured]
    variable = dict(zip(names[n:], ca.vertsplit(posed.variables[n:]), strict=True))
    outputs = stack([*posed.measured.values(), *(variable[m] for m in others)])
    measured = tuple(_measured(experiment, m) for m in posed.measured)
    given = _Given.of(posed, experiment, measured)
    (start,) = given.inserted([posed.starts])
    f, g, h, *predicted = given.without_conditions(
        [
            stack(solved.expressions[:n]),
            solved.remaining,
            ca.substitute(outputs, unknowns, stack(solved.expressions)),
            *slopes.values(),
        ],
    )
    tables = given.tables
    dynamics = Dynamics(
        x=posed.variables[n : 2 * n],
        y=stack(unknowns[j] for j in solved.implicit),
        q=posed.q,
        u=stack(given.symbols),
        t=posed.time,
        f=f,
        g=g,
        start=start,
        outputs=h,
        t0=experiment.start_time,
        columns=tuple(problem.box.names.index(q) for q in posed.q_names),
        inputs=tuple((v.times.tobytes(), v.values.tobytes(), v.hold) for v in tables),
        pieces=_pieces(tables, experiment.start_time, given.last) if tables else (),
    )
    own = dict(zip(slopes, predicted, strict=True))
    return Expansion(dynamics, (*measured, *(Output(m, ()) for m in others)), posed, own)


@dataclass
class _Given:
    """What stands for the inputs of `posed`: numbers, expressions of time, or tables.

    symbols, tables  of inputs that vary before the last measurement, and of conditions
    single  times of measurements that count one by one: the last of what is known over time
    """

    posed: Posed
    values: Any
    symbols: list[Any]
    tables: list[Table]
    measured: int
    single: list[float]
    times: list[float]
    first: float
    last: float

    @classmethod
    def of(cls, posed: Posed, experiment: Experiment, measured: tuple[Output, ...]) -> "_Given":
        last = max((m.last for m in measured), default=experiment.times[-1])
        times = [np.unique(experiment.measurements.of(m.name)[0]).tolist() for m in measured]
        given = [_given(name, posed, experiment, last) for name in posed.input_names]
        values = stack(posed.inputs[i] if isinstance(v, Table) else v for i, v in enumerate(given))
        return cls(
            posed=posed,
            values=values,
            symbols=[posed.inputs[i] for i, v in enumerate(given) if isinstance(v, Table)],
            tables=[v for v in given if isinstance(v, Table)],
            measured=len(measured),
            single=[
                t
                for o, own in zip(measured, times, strict=True)
                for t in own[-1 if o.continuous else 0 :]
            ],
            times=[t for own in times for t in own],
            first=experiment.start_time,
            last=float(last),
        )

    def inserted(self, expressions: Sequence[Any]) -> list[Any]:
        """The expressions with what stands for the inputs."""
        return list(ca.substitute(list(expressions), [self.posed.inputs], [self.values]))

    def without_conditions(self, expressions: Sequence[Any]) -> list[Any]:
        """The same without conditions on time and inputs, which come to the tables; h is third."""
        parts, posed = self.inserted(expressions), self.posed
        data = zip(posed.data_names, ca.vertsplit(posed.data), strict=True)
        clock = Clock(
            posed.time,
            stack(self.symbols),
            posed.q,
            stack([posed.variables, *(d for n, d in data if n not in posed.variable_names)]),
            tuple(self.tables),
            self.first,
            self.last,
            by_held=True,
        )
        known = [*clock.segments.edges, *self.times]
        try:
            told = held(clock, [parts[2][: self.measured]], known)
            at = told.differs(clock.segments, np.unique(self.single))
            found = held(clock, parts, known)
        except IgpeError as error:
            raise UnknownOperation(str(error)) from error
        if at is not None:
            raise UnknownOperation(f"a measured expression that jumps at the measured t = {at:g}")
        self.symbols += found.switches
        self.tables += found.tables
        flags = [
            symbol
            for symbol, table in zip(self.symbols, self.tables, strict=True)
            if table.hold and set(table.values) <= {0.0, 1.0}
        ]
        return (
            [as_products(e, stack(flags)) for e in found.expressions]
            if flags
            else found.expressions
        )


def _measured(experiment: Experiment, name: str) -> Output:
    times = np.unique(experiment.measurements.of(name)[0])
    since = (rational(float(t)) - rational(experiment.start_time) for t in times)
    return Output(name, tuple(since), experiment.start_time)


def _given(name: str, posed: Posed, experiment: Experiment, last: float) -> Any:
    """A table that varies before the last measurement, or an expression of time."""
    given = experiment.inputs[name]
    if isinstance(given, Table):
        inside = given.times[(given.times > experiment.start_time) & (given.times < last)]
        seen = [given.at(t) for t in (experiment.start_time, *inside)]
        seen.append(given.at(last, before=True))
        return ca.SX(seen[0]) if np.ptp(seen) == 0 else given
    if not callable(given):
        return ca.SX(given)
    try:
        return of_time(name, given, posed.time, experiment)
    except IgpeError as error:
        raise UnknownOperation(f"the input '{name}', which is no expression of time") from error


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
