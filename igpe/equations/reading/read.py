"""From a user's model to the equations of each experiment, and whether these are what was written.

The model is built at times of our own, its equations are read at several of them, translated to
CasADi, and compared with Pyomo's values. What cannot be read is refused.

So are the events of an experiment, from numbers, names and Pyomo rules to CasADi expressions.

Explicit dependence on time hides in the numbers of a Pyomo constraint. Where its members at several
times are not built alike, or its rule asks for the time, the rule is asked again with an `Instant`
and its answer is what is read. Nothing is decided by comparing values at some point.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import PyomoException
from pyomo.core.expr.numvalue import is_potentially_variable
from pyomo.core.expr.relational_expr import EqualityExpression
from pyomo.core.expr.visitor import identify_variables
from pyomo.dae import ContinuousSet

from igpe.core.errors import ModelError
from igpe.core.markup import bracketed, in_words
from igpe.equations.incidence import at_any_order, differentiated
from igpe.equations.reading.agreement import require_agreement
from igpe.equations.reading.instant import REFUSALS, Instant, Pretended, plain, reason, said
from igpe.equations.reading.pieces import Joined, Roles, alike, explored, mentions, places
from igpe.equations.reduction import reduced
from igpe.equations.switching import Jump, gap_of
from igpe.equations.symbols import Role, Symbols, make_symbols, require_at, stack
from igpe.equations.system import System, combined
from igpe.equations.translate import Translator
from igpe.problem.building import build, kind_of
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.inputs import evaluate
from igpe.problem.model import Instance, Series, along_time, model_starts
from igpe.problem.problem import Problem
from igpe.problem.space import skipped, without_formula
from igpe.problem.starts import without_start


def read_jumps(
    experiment: Experiment, instance: Instance, symbols: Symbols, time: float
) -> tuple[Jump, ...]:
    """The events in the order in which they happen at one time.

    time    one at which the instance is asked
    raises  ModelError for a rule that cannot be followed
    """
    known = {
        i: getattr(symbols, role.kind)[role.place]
        for i, role in symbols.roles(instance, time).items()
    }
    translate = Translator(known, symbols.t)

    def translated(rule: Callable[..., Any], number: int) -> Any:
        instant = Instant(time)
        try:
            expression = translate(plain(rule(instance.model, instant)))
        except (*REFUSALS, ModelError) as error:
            raise ModelError(
                f"igpe cannot follow a rule of event {number} in experiment '{experiment.name}': "
                f"{reason(error)}. Write it with the model's components at t and with Pyomo's "
                "functions: lambda m, t: 0.5 * m.A[t]."
            ) from error
        if instant.seen:
            raise ModelError(
                f"A rule of event {number} uses Python's `if` with a condition on time. Write "
                "pyo.Expr_if(t < 0.4, a, b), or give two events."
            )
        return expression

    def value(given: Any, number: int) -> Any:
        if isinstance(given, str):
            return symbols.p[symbols.parameters.index(given)]
        return ca.SX(translated(given, number) if callable(given) else float(given))

    found = []
    for number, event in enumerate(experiment.events, start=1):
        places = {n: i for i, n in enumerate(symbols.states)}
        after = {places[n]: symbols.x[places[n]] + value(v, number) for n, v in event.add.items()}
        after |= {places[n]: value(v, number) for n, v in event.set.items()}
        trigger, at = None, None if event.at is None else value(event.at, number)
        if event.when is not None and (trigger := gap_of(translated(event.when, number))) is None:
            raise ModelError(
                f"The condition `when` of event {number} must compare quantities that change with "
                "time, for example when=lambda m, t: m.V[t] >= 2.0. For several conditions, give "
                "several events."
            )
        delay, is_after = value(event.delay, number), event.measured == "after"
        gap, closed = trigger or (None, True)
        jump = Jump(at, gap, after, delay, is_after, event.at_start, event.before, closed)
        found.append((-event.priority, number, jump))
    return tuple(jump for *_, jump in sorted(found, key=lambda one: one[:2]))


# Generic places to read equations at; those next to the ends show a lag phase.
INTERIOR = (0.14589803, 0.38196601, 0.72360680, 0.93301270, 0.98768834, 0.05278640, 0.01231166)


def read_systems(
    problem: Problem, experiments: Sequence[Experiment], *, compare: bool = True
) -> list[System]:
    """Translate the model as each experiment uses it; `compiled` keeps this for all later uses.

    Experiments of one kind (`igpe.problem.building.kind_of`) share equations that are read once.

    compare  whether what was translated is compared with the model
    raises   ModelError if an equation cannot be translated, depends on time in a way that cannot be
             followed or is not what Pyomo computes, or if the equations and their derivatives do
             not determine slopes and algebraic variables
    """
    kinds = [
        (kind_of(problem.model, e), tuple(e.inputs), e.start_time, bool(e.events))
        for e in experiments
    ]
    families: dict[Any, list[Experiment]] = {}
    for kind, experiment in zip(kinds, experiments, strict=True):
        families.setdefault(kind, []).append(experiment)
    read: dict[Any, _Reading] = {}
    systems = []
    for kind, experiment in zip(kinds, experiments, strict=True):
        again = kind in read
        if not again:
            read[kind] = _Reading(problem, families[kind])
        system = read[kind].system(experiment)
        if compare:
            require_agreement(problem, experiment, system, read[kind].instance, again=again)
        if (array := read[kind].derivatives) is not None:
            system = reduced(problem, experiment, system, array)
        else:
            system = read[kind].solved(system)
            _require_starts(system, experiment)
        systems.append(system)
    return systems


def _require_starts(system: System, experiment: Experiment) -> None:
    missing = [n for n in system.symbols.states if system.start_of(n, experiment) is None]
    if missing:
        raise without_start("", missing)


class _Reading:
    """The equations of experiments of one kind, read from a model at times of our own.

    instance     the model at these times
    read         the equations as the model has them
    solvable     the same, combinations in the place of equations that depend on each other
    derivatives  of equations of a higher index: these with their derivatives; else None
    """

    def __init__(self, problem: Problem, experiments: Sequence[Experiment]) -> None:
        every = dict.fromkeys(n for e in experiments for n in e.outputs)
        experiment = experiments[0].reporting(every)
        first = experiment.start_time
        span = max(float(e.times[-1]) for e in experiments) - first or 1.0
        places = [first + share * span for share in INTERIOR]
        times = [first, *places, first + span]
        self.problem, self.instance = problem, build(problem.model, times, experiment)
        interior = np.array(list(self.instance.time)[1:-1])  # the model may have times of its own
        if not interior.size:
            raise ModelError(
                f"The model's time has only the points {list(self.instance.time)}; the builder "
                "must put the times that it receives into its ContinuousSet: "
                "m.t = ContinuousSet(initialize=times)."
            )
        nearest = dict.fromkeys(float(interior[np.argmin(np.abs(interior - p))]) for p in places)
        self.usual = next(iter(nearest))
        self.symbols = make_symbols(problem, experiment, self.instance, self.usual)
        equations, self.measured, reader = _read_equations(
            self.instance, self.symbols, experiment.outputs, list(nearest)
        )
        self.jumps, self.instants = reader.jumps, reader.instants
        self.read = System(
            symbols=self.symbols,
            equations=tuple(equations),
            residual=stack(equations.values()),
            measured=self.measured,
            starts={},
            any_value=frozenset(_of_any_value(self.instance, self.symbols, self.usual)),
        )
        self.derivatives, self.solvable = None, combined(self.read)
        if not self.solvable.is_solvable:
            _refuse_unsolvable(self.solvable, self.instance)
            names, residual = self.solvable.equations, self.solvable.residual
            self.derivatives = differentiated(names, residual, self.symbols)

    def system(self, experiment: Experiment) -> System:
        """The equations as one of the experiments uses them."""
        names = [e.name for e in self.problem.experiments]
        own = self.problem.instances[names.index(experiment.name)]
        used = {*self.read.equations, *experiment.outputs}
        jumps = tuple((n, condition) for n, condition in self.jumps if n in used)
        parts_of_own: dict[str, Any] = dict(
            measured={n: self.measured[n] for n in experiment.outputs},
            starts=_starts(experiment, own, self.symbols),
            jumps=jumps,
            instants=tuple(self._without_effect(experiment.outputs)),
            events=read_jumps(experiment, self.instance, self.symbols, self.usual),
        )
        if self.derivatives is not None:
            return replace(self.read, **parts_of_own)
        return self.read.of_another(**parts_of_own)

    def solved(self, system: System) -> System:
        """A system with the equations of `solvable`."""
        if self.solvable is self.read:
            return system
        own = {"equations": self.solvable.equations, "residual": self.solvable.residual}
        return replace(system, **own)

    def _without_effect(self, outputs: Sequence[str]) -> Iterator[tuple[str, float]]:
        """What differs at single instants, unless what is measured may differ there as well."""
        every = dict(zip(self.read.equations, ca.vertsplit(self.read.residual), strict=True))
        for name, time in self.instants:
            is_slope = name in every and ca.depends_on(every[name], self.symbols.dx)
            if is_slope or set(outputs) <= set(self.symbols.states):
                yield name, time


def _of_any_value(instance: Instance, symbols: Symbols, time: float) -> Iterator[str]:
    """Algebraic variables of which the model says nothing but their equations."""
    for name in symbols.algebraics:
        data = instance.series[name][time]
        said = (*getattr(data, "bounds", (0, 0)), getattr(data, "value", 0))
        if all(number is None for number in said):
            yield name


def _starts(experiment: Experiment, instance: Instance, symbols: Symbols) -> dict[str, Any]:
    """State -> start value where the model gives it, with the inputs at the first time."""
    given, first = model_starts(instance), instance.first
    known = {id(instance.scalars[n]): symbols.p[i] for i, n in enumerate(symbols.parameters)}
    for name, value in experiment.inputs.items():
        data = instance.scalars.get(name, instance.series.get(name, {}).get(first))
        known[id(data)] = ca.SX(evaluate(value, first))
    starts: dict[str, Any] = dict(given.fixed)
    for state, constraint in given.conditions.items():
        if state in experiment.start:
            continue
        unknown = ca.SX.sym(state)
        start = instance.states[state][first]
        others = dict(_inserted(constraint, instance, symbols, {**starts, **experiment.start}))
        translate = Translator({**known, **others, id(start): unknown}, symbols.t)
        lower, body, _ = constraint.to_bounded_expression()
        residual = ca.SX(translate(body) - translate(lower))
        slope = ca.jacobian(residual, unknown)
        if ca.which_depends(residual, unknown, 2)[0] or slope.is_zero():
            raise ModelError(
                f"The initial condition '{constraint.name}' is not linear in '{state}', or does "
                f"not determine '{state}'. Write this condition as {state} == an expression in "
                "the parameters and inputs."
            )
        starts[state] = -ca.substitute(residual, unknown, 0) / slope
    return starts


def _inserted(
    constraint: Any, instance: Instance, symbols: Symbols, starts: Mapping[str, Any]
) -> Iterator[tuple[int, Any]]:
    """Id of each state in an initial condition whose start is known -> its start value."""
    held = {id(v) for v in identify_variables(constraint.expr)}
    for other, series in instance.states.items():
        data = series[instance.first]
        if other not in starts or id(data) not in held:
            continue
        value = starts[other]
        if isinstance(value, Unknown):
            raise ModelError(
                f"The initial condition '{constraint.name}' contains '{other}', whose start value "
                f"is unknown. Make it a parameter: start={{'{other}': 'name of the parameter'}}."
            )
        if isinstance(value, str):
            value = symbols.p[symbols.parameters.index(value)]
        yield id(data), ca.SX(value)


def _refuse_unsolvable(system: System, instance: Instance) -> None:
    """Refuse equations that their derivatives do not make solvable either."""
    slopes = {id(data) for series in instance.slopes.values() for data in series.values()}
    for name, constraint in instance.conditions.items():
        if any(id(v) in slopes for v in identify_variables(constraint.expr)):
            raise ModelError(
                f"The constraint '{name}' contains a derivative but is not indexed by time, so it "
                "applies only at individual times. Write it as a rule indexed by time: m.balance = "
                "Constraint(m.t, rule=lambda m, t: m.dA[t] == ...), not in a ConstraintList or as "
                "individual constraints."
            )
    found = at_any_order(system.residual, system.symbols)
    if not found.spare_rows and not found.spare_columns:
        return
    names = (*system.symbols.states, *system.symbols.algebraics)
    spare = [system.equations[i] for i in found.over_rows]
    free = [names[j] for j in found.under_columns]
    pairs = [(d, state) for d, state in without_formula(instance) if d in names]
    if lacking := [d for d, state in pairs if {d, state} & {*free}]:
        raise ModelError(
            f"The discretisation has no formula for {bracketed(lacking)}, so the equations do not "
            "determine all variables. Second derivatives have formulas only between the ends. For "
            "first derivatives, a balance at the upper end of a set needs the scheme 'backward', "
            "and one at the lower end 'forward'. Otherwise, write a boundary condition there. If "
            "the boundary has a balance of its own, such as that of a wall, write this balance for "
            "a variable over time alone, m.w[t], and the condition m.T[t, 0] == m.w[t]. "
            "Variables, and members such as 'T[hot]', can have their own schemes: "
            "igpe.integrators.FiniteDifference(50, {'hot': 'backward', 'cold': 'forward'}). With "
            "space=, igpe also has formulas for boundary conditions."
        )
    blocks = instance.model.component_objects(pyo.Block, active=True)
    if curves := [b.name for b in blocks if isinstance(b, pyo.Piecewise)]:
        raise ModelError(
            f"igpe does not support pyo.Piecewise ({bracketed(curves)}). Write the function as one "
            "expression: a smooth formula, such as a polynomial, or pyo.Expr_if(x < limit, ..., "
            "...) for each piece."
        )
    gaps = [f"'{name}' at {in_words(at)}" for name, at in skipped(instance).items()]
    single = dict.fromkeys(c.parent_component().name for c in instance.conditions.values())
    many = f"; too many equations for the unknowns that they contain: {bracketed(spare)}"
    model, time = instance.model, instance.time
    has_space = any(s is not time for s in model.component_objects(ContinuousSet))
    raise ModelError(
        "Even when differentiated repeatedly, the equations do not determine the states and "
        "algebraic variables"
        + many * bool(spare)
        + f"; undetermined: {bracketed(free)}" * bool(free)
        + ". Remove an equation that follows from others, or add a missing equation."
        + " If a variable is an input, give it in Experiment(inputs=...)." * bool(free)
        + " At a boundary in space, give each variable a boundary condition. A balance can replace "
        "this condition only if the discretisation scheme has a formula for this point."
        * has_space
        + f" The model skips {in_words(gaps)}." * bool(free and gaps)
        + f" igpe does not use {bracketed(single)} here: they are not indexed by time, so they "
        "apply only at individual times. Write equations that always hold as rules over time: "
        "m.inlet = Constraint(m.t, rule=lambda m, t: m.c[0, t] == 1)." * bool(free and single)
    )


SOME = 0.7  # what all quantities are where a change at one instant is computed
PRETENDED = 199  # times at which a rule that computes outside Pyomo is asked


def _read_equations(
    instance: Instance, symbols: Symbols, measured: Sequence[str], times: Sequence[float]
) -> tuple[dict[str, Any], dict[str, Any], "_Reader"]:
    """The equations (as expressions that must be zero), measured quantities, and their reader.

    times   generic times of the instance at which they are read and compared
    returns name -> expression, twice; what knows their jumps
    raises  ModelError if they depend on the time in a way that no symbol for the time explains
    """
    reader = _Reader(instance, symbols, times)
    constant = {n: dict.fromkeys(times, instance.scalars.get(n)) for n in measured}
    series = {n: instance.over_time(n) or constant[n] for n in measured}
    return (
        {n: reader.read(n, c) for n, c in instance.equations.items()},
        {n: reader.read(n, c) for n, c in series.items()},
        reader,
    )


class _Reader:
    """Reads components over time; knows which named expressions depend on the time.

    jumps     names and conditions at whose change they jump
    instants  names and times at which alone they differ
    """

    def __init__(self, instance: Instance, symbols: Symbols, times: Sequence[float]) -> None:
        self.times, self.first, self.last = times, instance.first, float(instance.time.last())
        self.time = instance.time
        self.roles: list[dict[int, Role]] = [dict(symbols.roles(instance, t)) for t in times]
        self.symbols = {i: getattr(symbols, r.kind)[r.place] for i, r in self.roles[0].items()}
        self.translate = Translator(self.symbols, symbols.t)  # making one takes Pyomo long
        self.explicit: set[int] = set()
        self.jumps: list[tuple[str, Any]] = []
        self.instants: list[tuple[str, float]] = []
        for place, (name, series) in enumerate(instance.expressions.items()):
            # They may hide the time from equations that use them. One that cannot be read is
            # looked into wherever it is used.
            with suppress(ModelError, *REFUSALS):
                if all(t in series for t in times) and self._depends_on_time(name, series):
                    own = id(series[times[0]])
                    self.symbols[own] = self._with_time(name, series)
                    self.explicit.add(own)
                    # Equations jump where an expression that they use does.
                    self.translate.behind[own] = [condition for _, condition in self.jumps]
                    self.jumps.clear()
                    for time, roles in zip(times, self.roles, strict=True):
                        roles[id(series[time])] = Role("e", place)

    def read(self, name: str, series: Series) -> Any:
        """Expression of a component over time that holds at any time."""
        for time in self.times:
            require_at(series, time)
        if self._depends_on_time(name, series):
            return self._with_time(name, series)
        self.translate.jumps.clear()
        return self._residual(name, [self.translate(s) for s in _sides(series[self.times[0]])])

    def _residual(self, name: str, sides: Sequence[Any]) -> Any:
        """The difference of both sides, or the only one; keeps the jumps of what was translated."""
        self.jumps += [(name, condition) for condition in self.translate.jumps]
        self.translate.jumps.clear()
        return sides[0] - sides[1] if len(sides) > 1 else sides[0]

    def _depends_on_time(self, name: str, series: Series) -> bool:
        """Whether the members differ in structure, or the rule asks for the time."""
        place = id(series[self.times[0]])
        if place in self.symbols:
            return place in self.explicit
        first, *others = (_sides(series[time]) for time in self.times)
        pairs = zip(others, self.roles[1:], strict=True)
        if not all(_alike(first, other, self.roles[0], roles) for other, roles in pairs):
            return True
        if self.explicit and any(mentions(side, self.explicit) for side in first):
            return True
        instant = Instant(self.times[0])
        try:
            answer = said(series[self.times[0]], self.time, instant)
        except REFUSALS as error:
            if isinstance(error, TypeError | PyomoException):
                self._refuse_if_computed(name, series[self.times[0]], error)
            return False
        return any(n > self.first for n in instant.seen) or mentions(answer, set())

    def _refuse_if_computed(self, name: str, data: Any, error: Exception) -> None:
        """Refuse a rule that computes with the time outside Pyomo if it ever says another thing."""
        for k in range(1, PRETENDED + 1):
            now = self.first + (self.last - self.first) * k / (PRETENDED + 1)
            with suppress(*REFUSALS):
                answer = said(data, self.time, Pretended(now, self.times[0]))
                roles = self.roles[0]
                if not _alike(_standard(data, answer), _sides(data), roles, roles):
                    raise _unexplained(name, reason(error))

    def _with_time(self, name: str, series: Series) -> Any:
        """Expression that the rule returns for a symbol of time."""
        data = series[self.times[0]]
        if id(data) in self.explicit:
            self.jumps += [(name, condition) for condition in self.translate.behind[id(data)]]
            return self.symbols[id(data)]
        for side in _sides(data):
            self.translate(side)  # what cannot be translated at all is refused for that
        try:
            cuts, answers = explored(
                lambda now: self._ask(series, 0, now), self.first, self.times[0]
            )
            self._require_rule(name, series, cuts, answers)
            self.translate.jumps.clear()
            joined = Joined(self.translate, self.roles[0])
            for k in range(1, len(answers)):  # an equation may be skipped where the horizon ends
                if answers[k] is None and cuts[(k - 1) // 2] >= self.last:
                    answers[k] = answers[k - 1]
            if any(answer is None for answer in answers):
                raise ValueError("it is skipped at some times; an equation must hold at all times")
            self._note_instants(name, cuts, answers)
            return self._residual(name, [joined(cuts, row) for row in zip(*answers, strict=True)])
        except REFUSALS as error:
            raise _unexplained(name, reason(error)) from error

    def _note_instants(self, name: str, cuts: Sequence[float], answers: Sequence[Any]) -> None:
        """Keep the cuts at which alone a component has another value."""
        roles = self.roles[0]
        for cut, before, at, after in zip(
            cuts, answers[::2], answers[1::2], answers[2::2], strict=False
        ):
            if cut < self.last and _alike(before, after, roles, roles):
                usual, own = ([self.translate(side) for side in row] for row in (before, at))
                change = stack(o - u for o, u in zip(own, usual, strict=True))
                time, held = self.translate.time, ca.symvar(change)
                others = [s for s in held if s.element_hash() != time.element_hash()]
                values = ca.Function("change", [time, ca.vertcat(*others)], [change])(cut, SOME)
                if np.isfinite(found := np.asarray(values)).all() and found.any():
                    self.instants.append((name, cut))
        self.translate.jumps.clear()

    def _ask(self, series: Series, k: int, now: float) -> tuple[Any, set[float]]:
        data, instant = series[self.times[k]], Instant(self.times[k], now)
        answer = said(data, self.time, instant)
        if not isinstance(answer, EqualityExpression):
            return _standard(data, answer), instant.seen
        left, right = answer.args  # as the user wrote them, in the order of a member's
        is_turned = is_potentially_variable(right) and not is_potentially_variable(left)
        return ((right, left) if is_turned else (left, right)), instant.seen

    def _require_rule(
        self, name: str, series: Series, cuts: Sequence[float], answers: Sequence[Any]
    ) -> None:
        """The members must say what the rule says, and that at all times but for the symbol."""
        for time, roles in zip(self.times, self.roles, strict=True):
            data = series[time]
            if not _alike(_standard(data, said(data, self.time, time)), _sides(data), roles, roles):
                raise _unexplained(name, "it was changed after its rule had been evaluated")
        for k in range(1, len(self.times)):
            for now, answer in zip(places(cuts, self.first, self.times[k]), answers, strict=True):
                other, _ = self._ask(series, k, now)
                if not _alike(answer, other, self.roles[0], self.roles[k]):
                    raise _unexplained(name, self._numbers_over_time(series))

    def _numbers_over_time(self, series: Series) -> str:
        """Name what holds other numbers at other times: Params by a rule, Vars that are fixed."""
        model = series[self.times[0]].model()
        varying = sorted(
            repr(name)
            for kind in (pyo.Param, pyo.Var)
            for name, data in along_time(model, self.time, kind)[1].items()
            if len({_number(data.get(t)) for t in self.times}) > 1
        )
        named = f", for example those of {', '.join(varying)}" if varying else ""
        return f"it uses numbers that depend on time{named}"


def _number(data: Any) -> float | None:
    """The number that stands in an expression for a Param or for a Var that is fixed."""
    if isinstance(data, int | float):
        return float(data)
    return data.value if data is not None and getattr(data, "fixed", True) else None


def _sides(component: Any) -> tuple[Any, ...]:
    """Both sides of a constraint; anything else is one."""
    if not hasattr(component, "to_bounded_expression"):
        return component.args if component.is_named_expression_type() else (component,)
    return component.to_bounded_expression()[1:]  # type: ignore[no-any-return]


def _standard(data: Any, answer: Any) -> tuple[Any, ...] | None:
    """The sides of a rule's answer as Pyomo brings them into a member; None if it skips it."""
    if answer is pyo.Constraint.Skip:
        return None
    if data.parent_component().ctype is not pyo.Constraint:
        return (answer,)
    constraint = pyo.Constraint(expr=answer)
    constraint.construct()
    return _sides(constraint)


def _alike(one: Any, other: Any, roles: Roles, roles_of_other: Roles) -> bool:
    """Whether two tuples of sides say the same."""
    if one is None or other is None or len(one) != len(other):
        return one is other
    pairs = zip(one, other, strict=True)
    return all(alike(a, b, roles, roles_of_other) for a, b in pairs)


def _unexplained(name: str, why: str) -> ModelError:
    return ModelError(
        f"'{name}' changes with time in a way that igpe cannot follow: {why}. Write it with "
        "Pyomo's functions of t (pyo.exp(-t), pyo.Expr_if(t < 0.4, ...)) in an Expression indexed "
        "by time, or make the changing quantity a mutable Param indexed by time and give its "
        "values in Experiment(inputs=...)."
    )
