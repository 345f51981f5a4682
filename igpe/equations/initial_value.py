"""The initial value problem that one experiment poses, as a function of its free unknowns q.

dx = f(t, x, y, u, q),   0 = g(t, x, y, u, q),   x(t0) = x0(q),   measured = h(t, x, y, u, q)

Unknowns that vary with time are sums of switches that are known inputs:

    w(t) = sum of w_i s_i(t),     s_i = 1 from break i to the next, else 0

The switches are tables, so that integrators cut their pieces at the breaks as they do for any
input, and derivatives by the values w_i stay exact.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import ModelError, Unsupported
from igpe.equations.reading.pieces import moves, of_time, ramp
from igpe.equations.sizes import ProblemSizes
from igpe.equations.switching import Jump, Switching, with_modes
from igpe.equations.switching import switching as make_switching
from igpe.equations.symbols import stack
from igpe.equations.system import System
from igpe.equations.timed import Held, Stops, TimeSymbols, as_products, stops
from igpe.equations.translate import with_safe_powers
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem

NOISE = 1e-2  # of a state's largest size: so far below 0 a rough integration may put a base


@dataclass(frozen=True)
class InitialValueProblem:
    """One experiment as a function of the unknowns it depends on. All symbols are SX vectors.

    states, implicit  names of x and y (algebraic variables that are solved numerically)
    unknowns  names of q: the problem's free unknowns that matter here, in their order
    t0        start time
    t, x, y, u, q   symbols; u holds only inputs given by tables, and switches of what varies
    f, g, start     see above
    written   f before powers rest at 0 and conditions become inputs, for messages
    measured  h, in the order of the experiment's measured names, then estimated deviations
    algebraic names -> expressions of the model's algebraic variables
    tables    one for each entry of u
    until     up to here the tables are known; conditions on time are among them
    scale     (n_x,) positive: how large each state is; errors of integration are relative to it
    largest   (n_x,) the same at its largest; what counts as running away is relative to it
    unknown_scale   (n_q,) positive: an unknown nearer to 0 counts as so large in sensitivities
    implicit_scale  (n_y,) the same of y
    guess     (n_y,) where a search for consistent y may begin: inside the bounds
    lower, upper    (n_y,) bounds of y in the model; its root must lie between them
    given     (n_y,) other than 0 where the model gives the guess
    switching events, and jumps that unknowns or states move; None if there are none
    rest      what comes to rest where this one starts; None if it starts at `start`
    duration  of the problem's longest experiment, for what comes to rest
    shared    the same with numbers that differ between experiments as inputs u, so that one formula
              serves them all; None if there are none, or once other expressions replaced these
    constants of such a one: which of u they are
    kept      what others made of it, by who made it: forms with other numbers share it
    """

    states: tuple[str, ...]
    implicit: tuple[str, ...]
    unknowns: tuple[str, ...]
    t0: float
    t: Any
    x: Any
    y: Any
    u: Any
    q: Any
    f: Any
    g: Any
    written: Any
    start: Any
    measured: Any
    algebraic: dict[str, Any]
    tables: tuple[Table, ...]
    scale: FloatArray
    largest: FloatArray
    unknown_scale: FloatArray
    implicit_scale: FloatArray
    guess: FloatArray
    lower: FloatArray
    upper: FloatArray
    given: FloatArray
    until: float = np.inf
    switching: Switching | None = None
    rest: "InitialValueProblem | None" = None
    duration: float = 1.0
    shared: "InitialValueProblem | None" = None
    constants: tuple[int, ...] = ()
    kept: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def breaks(self, last: float) -> list[float]:
        """Times between start and `last` at which an input or its slope jumps.

        raises ValueError beyond `until`
        """
        if last > self.until:
            raise ValueError(
                f"The conditions on time were evaluated only up to {self.until:g}, not up to "
                f"{last:g}."
            )
        inside = {float(t) for table in self.tables for t in table.times}
        return sorted(t for t in inside if self.t0 < t < last)

    def stops(self, last: float) -> Stops:
        """Times between start and `last` that an integrator must not step over.

        raises ModelError if a function of time rises and falls too often
        """
        return stops(self._clock(last), (self.f, self.g))

    def outputs_at_start(self, points: FloatArray) -> FloatArray | None:
        """(n, n_measured) what is measured at the start, at values (n, n_q) of the unknowns.

        None where the start is at rest, or where algebraic variables are implicit.
        """
        if self.rest is not None or self.implicit:
            return None
        a, b = self.input_segment(self.t0)
        symbols = [self.t, self.x, self.u], [self.t0, self.start, ca.DM(a + b * self.t0)]
        measured = ca.substitute([ca.densify(self.measured)], *symbols)
        return np.asarray(ca.Function("measured", [self.q], measured)(points.T), dtype=float).T

    def without_conditions(self, times: FloatArray) -> "InitialValueProblem":
        """The same for arithmetic that knows no conditions: switches are factors, 0 or 1.

        times   (n,) increasing, at which something is measured
        raises  Unsupported if something measured switches at the very time of its measurement
        """
        last = float(times[-1])
        clock = self._clock(last)
        here = Held(clock, [self.measured], [self.t0, *times, *self.breaks(last)])
        if (time := here.differs(clock.segments, times)) is not None:
            raise Unsupported(
                f"A measured expression contains a condition on time that changes at t = {time:g}, "
                "and the expression is measured at this time. Move the switch or the measurement "
                "to another time."
            )
        tables = (*self.tables, *here.tables)
        u = ca.vertcat(self.u, *here.switches)
        switches = [u[i] for i, v in enumerate(tables) if v.hold and set(v.values) <= {0.0, 1.0}]
        if not switches:
            return self
        parts = [self.f, self.g, here.expressions[0]]
        f, g, measured = (as_products(e, ca.vertcat(*switches)) for e in parts)
        return replace(self, u=u, tables=tables, f=f, g=g, measured=measured, shared=None)

    def reporting(self, *, breaks: bool) -> "InitialValueProblem":
        """What is between switches; it reports states and implicit variables too.

        breaks  whether it contains all that happens, but for its start
        """
        shared = None if self.shared is None else self.shared.reporting(breaks=breaks)
        switching = self.switching if breaks else None
        before, outputs = self.kept.get("reporting", (None, None))
        if before is not self.measured:
            outputs = ca.vertcat(self.measured, self.x, self.y)
            self.kept["reporting"] = self.measured, outputs
        return replace(self, switching=switching, rest=None, measured=outputs, shared=shared)

    def _clock(self, last: float) -> TimeSymbols:
        known = len(self.tables) - (self.switching.modes if self.switching else 0)
        u, modes = self.u[:known], self.u[known:]  # a mode is no more known than a state
        rest = ca.vertcat(self.x, self.y, modes)
        return TimeSymbols(self.t, u, self.q, rest, self.tables[:known], self.t0, last)

    def input_segment(self, time: float) -> tuple[FloatArray, FloatArray]:
        """(n_u,), (n_u,): coefficients a, b of u = a + b t from `time` to the next break."""
        pairs = np.array([table.segment(time) for table in self.tables]).reshape(-1, 2)
        return pairs[:, 0], pairs[:, 1]


def initial_value_problem(
    problem: Problem,
    experiment: Experiment,
    system: System,
    *,
    until: float = -np.inf,
    plain_powers: bool = False,
    switches: bool = False,
    constants: frozenset[str] = frozenset(),
    like: InitialValueProblem | None = None,
    rests: dict[Any, InitialValueProblem] | None = None,
) -> InitialValueProblem:
    """The experiment's initial value problem; the problem's fixed unknowns become numbers.

    until         up to this time, and to the last of the experiment's, it may be integrated
    plain_powers  powers stay single operations, for readers that know themselves what they do
                  at bases <= 0 (see `with_safe_powers`)
    switches      whether events happen, or unknowns or states move a jump
    constants     inputs, numbers here, that are kept apart in its `shared` form
    like          that of another experiment with this system and these outputs, which says the same
    rests         what comes to rest before other experiments; those that differ in nothing before
                  their start share it
    raises        ModelError for a condition on time that changes too often

    Conditions on time alone become inputs that are held in f and g; in `measured` they stay as
    written, so that what is measured at the very time of a switch is what Pyomo evaluates there.
    """
    posing = _Posing(until, plain_powers, switches, experiment.outputs)
    posed = _with_shared(problem, experiment, system, posing, constants, like=like)
    if experiment.steady is None:
        return posed
    rests, key = {} if rests is None else rests, _before(problem, experiment, system, constants)
    if key not in rests:
        rests[key] = _at_rest(problem, experiment, system, constants)
    return replace(posed, rest=rests[key])


def _with_shared(
    problem: Problem,
    experiment: Experiment,
    system: System,
    posing: "_Posing",
    constants: frozenset[str],
    *,
    like: InitialValueProblem | None = None,
) -> InitialValueProblem:
    """See `initial_value_problem`; with the form that other experiments share."""
    posed = _posed(problem, experiment, system, posing, frozenset())
    if not constants:
        return posed
    if like is not None and constants == experiment.inputs.keys():
        known = _with_numbers(posed, like, experiment)
        if known is not None and not ca.depends_on(system.residual, system.symbols.s):
            return replace(posed, shared=known)
    shared = _posed(problem, experiment, system, posing, constants)
    if len(shared.tables) != len(posed.tables) + len(constants):
        return posed
    return replace(posed, shared=shared)


_FORMULAS = ("t", "x", "u", "q", "f", "g", "written", "measured", "algebraic")


def _with_numbers(
    posed: InitialValueProblem, like: InitialValueProblem, experiment: Experiment
) -> InitialValueProblem | None:
    """The shared form of another experiment with this one's numbers; None where it has more."""
    switched = posed.switching is not None and bool(
        posed.switching.gaps.numel() or posed.switching.jumps
    )
    if posed.tables or posed.implicit or switched or posed.unknowns != like.unknowns:
        return None
    if len(like.tables) != len(experiment.inputs):
        return None
    return replace(
        posed,
        **{n: getattr(like, n) for n in _FORMULAS},
        start=ca.substitute(posed.start, posed.q, like.q),
        tables=tuple(_constant(experiment, v) for v in experiment.inputs.values()),
        rest=None,
        constants=like.constants,
        kept=like.kept,
    )


def _constant(experiment: Experiment, value: Any) -> Table:
    return Table(np.array([experiment.start_time]), np.array([value]), hold=True)


class _Posing(NamedTuple):
    """Arguments of `initial_value_problem`, and what is reported."""

    until: float
    plain_powers: bool
    switches: bool
    outputs: tuple[str, ...]


def _posed(
    problem: Problem,
    experiment: Experiment,
    system: System,
    posing: _Posing,
    constants: frozenset[str],
) -> InitialValueProblem:
    """See `initial_value_problem`; the `constants` are inputs."""
    until, plain_powers, switches, outputs = posing
    symbols, solved = system.symbols, system.solved
    n_x = len(symbols.states)
    posed = _Posed(problem, experiment, system, constants)
    p = stack(posed.free(problem.unknown_of(n, experiment)) for n in symbols.parameters)
    start = stack(posed.start(n) for n in symbols.states)
    posed.read()
    y = stack(system.unknowns[j] for j in solved.implicit)
    computed = ca.substitute(start, symbols.s, start)  # from other start values
    initial, moved = ca.substitute(computed, symbols.p, p), ca.vertcat(symbols.x, y)
    sizes = ProblemSizes(problem, experiment, system.starts)
    scale, largest = sizes.of_states(symbols.states)
    safe = _resting(plain_powers, moved, largest, ca.symvar(stack(posed.inputs)))

    def numbered(expressions: Any) -> Any:
        old, new = [symbols.p, symbols.s, symbols.u], [p, initial, stack(posed.inputs)]
        return ca.substitute([ca.SX(expressions)], old, new)[0]

    def inserted(expressions: Any) -> Any:
        return safe(numbered(expressions))

    measured = stack(system.measured[n] for n in outputs)
    known = system.unknowns, stack(solved.expressions)  # what is measured may contain slopes
    unknowns = tuple(n for n in problem.box.names if n in posed.symbols)
    q, t0 = stack(posed.symbols[n] for n in unknowns), experiment.start_time
    last = max(until, float(experiment.times[-1]))
    u = stack(posed.switches)
    clock = TimeSymbols(symbols.t, u, q, moved, tuple(posed.tables), t0, last)
    implicit = tuple(system.unknown_names[j] for j in solved.implicit)
    equations = numbered(stack(solved.expressions[:n_x])), inserted(solved.remaining)
    events = list(_inserted(system.events, inserted, known))
    if switches:
        _refuse_moving_times(events, symbols.states, ca.vertcat(symbols.t, moved, u))
    field = _field(
        clock, experiment.times, equations, events if switches else None, safe, x=symbols.x
    )
    return InitialValueProblem(
        states=symbols.states,
        implicit=implicit,
        unknowns=unknowns,
        t0=t0,
        t=symbols.t,
        x=symbols.x,
        y=y,
        u=field.u,
        q=q,
        f=field.f,
        g=field.g,
        written=equations[0],
        start=initial,
        measured=inserted(ca.substitute(measured, *known)),
        algebraic={
            n: inserted(known[1][n_x + i])
            for i, n in enumerate(symbols.algebraics)
            if n not in system.auxiliary
        },
        tables=field.tables,
        scale=scale,
        largest=largest,
        unknown_scale=sizes.of_unknowns(unknowns),
        implicit_scale=sizes.of_implicit(implicit, symbols.states, scale),
        **dict(zip(("guess", "lower", "upper", "given"), sizes.search(implicit), strict=True)),
        until=field.until,
        switching=field.switching,
        constants=tuple(posed.constants),
    )


def _resting(
    plain_powers: bool, moved: Any, largest: FloatArray, inputs: list[Any]
) -> Callable[[Any], Any]:
    """See `with_safe_powers`; implicit variables, last in `moved`, have no noise."""
    noise = np.zeros(moved.numel())
    noise[: len(largest)] = NOISE * largest

    def safe(expressions: Any) -> Any:
        return expressions if plain_powers else with_safe_powers(expressions, moved, noise, inputs)

    return safe


def _before(
    problem: Problem, experiment: Experiment, system: System, constants: frozenset[str]
) -> Any:
    """Equal for experiments that come to rest in the same way; its name for one that rests alone.

    A state that is measured has a size of its own in each experiment.
    """
    before, states = experiment.at_rest(), system.symbols.states
    inputs = tuple(before.inputs.items())
    is_own = any((
        problem.local,
        problem.time_varying,
        before.events,
        experiment.start,
        {*states} & {*experiment.measured},
    ))
    if is_own or not all(isinstance(given, float) for _, given in inputs):
        return experiment.name
    starts = ca.Function("starts", [system.symbols.p], [stack(system.starts[n] for n in states)])
    return id(system.residual), constants, experiment.start_time, inputs, starts.serialize()


def _at_rest(
    problem: Problem, experiment: Experiment, system: System, constants: frozenset[str]
) -> InitialValueProblem:
    """The equations before a steady-state start, and what switches them; they report nothing.

    raises Unsupported if they depend on time, or have implicit algebraic variables
    """
    before = experiment.at_rest()
    own = system.of_another(
        events=tuple(jump for jump in system.events if jump.before),
        jumps=tuple(jump for jump in system.jumps if jump[0] in system.equations),
    )
    posing = _Posing(-np.inf, False, moves(problem, before, own), ())
    posed = _with_shared(problem, before, own, posing, constants)
    given, clock = posed.switching, ca.vertcat(posed.t, posed.u)
    timed = [posed.f]
    if given is not None:
        clock = ca.vertcat(posed.t, posed.u[: posed.u.numel() - given.modes])
        timed += [given.gaps, *(jump.after for jump in given.jumps)]
    if not posed.implicit and not ca.depends_on(ca.vertcat(*timed), clock):
        longest = max(float(e.times[-1]) - e.start_time for e in problem.experiments)
        return replace(posed, duration=longest if longest > 0 else 1.0)
    raise Unsupported(
        f"Experiment '{experiment.name}' has a steady-state start, but its equations depend on "
        "time or have implicit algebraic variables. igpe cannot compute a steady state for such "
        "equations. Give the inputs before the start as numbers (steady={'feed': 0.0}), or omit "
        "`steady` and estimate the start values (start={'A': igpe.Unknown(0, 5)})."
    )


class _Field(NamedTuple):
    """Slopes and algebraic equations between all that jumps; see `InitialValueProblem`."""

    f: Any
    g: Any
    u: Any
    tables: tuple[Table, ...]
    until: float
    switching: Switching | None


def _field(
    clock: TimeSymbols,
    known: Iterable[float],
    equations: tuple[Any, Any],
    jumps: list[Jump] | None,
    safe: Callable[[Any], Any],
    *,
    x: Any,
) -> _Field:
    """Conditions become inputs: on known times held tables, on all else modes.

    known      times that matter besides;  equations: f, before `safe`, and g
    jumps      events, where such are followed; None where no unknown or state moves a jump
    safe       see `initial_value_problem`
    """
    (f, g), modes, switching = equations, list[Any](), None
    if jumps is not None:
        both, read = with_modes(ca.vertcat(f, g), clock)
        f, g = ca.vertsplit(both, [0, f.numel(), both.numel()])
        modes = read.symbols
        clock = replace(clock, rest=ca.vertcat(clock.rest, *modes))
        read = read._replace(gaps=[safe(gap) for gap in read.gaps])
        switching = make_switching(read, jumps, clock, x)
    known = {*known, *clock.segments.edges}
    without = Held(clock, [safe(f), g, ca.SX(0, 1) if switching is None else switching.gaps], known)
    f, g, gaps_of = without.expressions
    tables = (*clock.tables, *without.tables)
    for _ in modes:
        tables = (*tables, Table(np.array([clock.first]), np.zeros(1), hold=True))
    return _Field(
        f,
        g,
        stack([*ca.vertsplit(clock.u), *without.switches, *modes]),
        tables,
        clock.last if without.switches else np.inf,
        None if switching is None else replace(switching, gaps=gaps_of),
    )


def _inserted(
    jumps: Sequence[Jump], rewrite: Callable[[Any], Any], known: tuple[Any, Any]
) -> Iterator[Jump]:
    """The jumps with all expressions rewritten at once, when symbols are what is known of them."""
    if not jumps:
        return
    every = [[jump.at, jump.gap, jump.delay, *jump.after.values()] for jump in jumps]
    column = stack(ca.SX(e) for parts in every for e in parts if e is not None)
    left = iter(ca.vertsplit(rewrite(ca.substitute(column, *known))))
    for jump, parts in zip(jumps, every, strict=True):
        at, gap, delay, *after = (None if e is None else next(left) for e in parts)
        values = dict(zip(jump.after, after, strict=True))
        yield jump._replace(at=at, gap=gap, delay=delay, after=values)


def _refuse_moving_times(jumps: list[Jump], states: tuple[str, ...], moving: Any) -> None:
    for number, jump in enumerate(jumps, start=1):
        for role, value in (("at", jump.at), ("delay", jump.delay)):
            if value is not None and ca.depends_on(ca.SX(value), moving):
                raise ModelError(
                    f"`{role}` of event {number} is {value}, which depends on time, on inputs or "
                    f"on the states {list(states)}. Write it with parameters and numbers, or give "
                    "a condition: when=lambda m, t: m.V[t] >= m.full."
                )


class _Posed:
    """Unknowns as symbols, or as numbers where the problem holds them; inputs and their tables.

    symbols            unknown -> its symbol, of all that were used
    inputs             values of the model's inputs, then of its time-varying unknowns
    switches, tables   symbols of the inputs that are given by tables, and these
    constants          places of numbers among these
    """

    def __init__(
        self, problem: Problem, experiment: Experiment, system: System, kept: frozenset[str]
    ) -> None:
        self.problem, self.experiment, self.system, self.kept = problem, experiment, system, kept
        self.constants: list[int] = []
        self.symbols: dict[str, Any] = {}
        self.inputs: list[Any] = []
        self.switches: list[Any] = []
        self.tables: list[Table] = []

    def free(self, name: str) -> Any:
        """An unknown's symbol, or its number if the problem holds it fixed."""
        if name in self.problem.fixed:
            return ca.SX(self.problem.fixed[name])
        return self.symbols.setdefault(name, ca.SX.sym(name))

    def start(self, state: str) -> Any:
        """The start value of a state."""
        value: Any = self.system.start_of(state, self.experiment)
        if isinstance(value, Unknown):
            return self.free(self.problem.start_unknown(state, self.experiment))
        if isinstance(value, str):
            return self.free(self.problem.unknown_of(value, self.experiment))
        return ca.SX(value)

    def read(self) -> None:
        """Insert what the experiment gives, and unknowns that vary with time."""
        self._read_inputs()
        self._read_varying()

    def _read_inputs(self) -> None:
        s = self.system.symbols
        switching = {str(v) for _, condition in self.system.jumps for v in ca.symvar(condition)}
        for i, (name, given) in enumerate(self.experiment.inputs.items()):
            if isinstance(given, Table) and (given.hold or name not in switching):
                self.inputs.append(s.u[i])
                self.switches.append(s.u[i])
                self.tables.append(given)
            elif isinstance(given, Table):  # it decides when a condition changes
                self.inputs.append(ramp(given, s.t))
            elif name in self.kept:
                self.constants.append(len(self.tables))
                self.inputs.append(s.u[i])
                self.switches.append(s.u[i])
                self.tables.append(_constant(self.experiment, given))
            elif callable(given):
                self.inputs.append(of_time(name, given, s.t, self.experiment))
            else:
                self.inputs.append(ca.SX(given))

    def _read_varying(self) -> None:
        """Insert unknowns that vary with time, as sums of switches."""
        for name in self.problem.time_varying:
            pieces = self.problem.pieces(name, self.experiment)
            values = [self.free(unknown) for unknown in pieces]
            if len(pieces) == 1:
                self.inputs.append(values[0])
                continue
            switches = [ca.SX.sym(f"{unknown} is on") for unknown in pieces]
            self.inputs.append(ca.dot(stack(values), stack(switches)))
            begins = np.array(list(pieces.values()))
            self.switches += switches
            self.tables += [Table(begins, row, hold=True) for row in np.eye(len(begins))]
