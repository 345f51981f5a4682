"""An SBML model in one experiment of a PEtab problem, and its Pyomo model.

Values of the condition table override the parameter table, and that overrides the model (PEtab 1,
parameter mapping). What does not change is inserted. An experiment may have several periods: what
conditions set in the first is there from its start; later, states jump, and all else is chosen by
an input that counts the periods. A pre-equilibration is a period before a steady-state start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyomo.environ as pyo
from pyomo.dae import ContinuousSet, DerivativeVar

from igpe.core.errors import ModelError
from igpe.formats.petab.formulas import (
    TIME,
    at_time,
    boolean,
    comparisons,
    inserted,
    library,
    linear_in_time,
    names_in,
    number,
    symbol,
    to_pyomo,
)
from igpe.formats.petab.sbml import EventReading, FormulaRule, Sbml, SbmlEvent, flat, joined, unread
from igpe.problem.events import Event
from igpe.problem.inputs import Table, just_after, just_before, step_input

FIRST = 1e9  # priority of what conditions set: before all events of the model


class Period(NamedTuple):
    """A part of an experiment: when it begins, and name -> expression that its conditions set.

    time is -inf for a pre-equilibration.
    """

    time: float
    changes: Mapping[str, Any]


class Timeline(NamedTuple):
    """An experiment's periods, in order.

    resets  whether what conditions set holds for their own period alone (PEtab 1)
    """

    name: str
    periods: tuple[Period, ...]
    resets: bool = False

    @property
    def is_steady(self) -> bool:
        """Whether it begins with a pre-equilibration."""
        return self.periods[0].time == -np.inf

    @property
    def start(self) -> float:
        """The time at which it is first seen; 0 where there is nothing but a pre-equilibration."""
        times = [p.time for p in self.periods if np.isfinite(p.time)]
        return times[0] if times else 0.0


@dataclass(frozen=True)
class ConditionModel:
    """One experiment's model; SymPy expressions.

    rates     state -> slope
    starts    state -> value at the start, in estimated parameters
    rules     name -> value at every time, each after those it uses
    outputs   name -> what is measured, and standard deviations that are no numbers; also those of
              other experiments of its kind
    inputs    name -> number that differs between experiments, or what jumps at known times
    before    input -> its value before a steady-state start; None: the start is not steady
    events    jumps of the states
    shown     names of its own outputs
    kind      experiments of one kind share all formulas but starts and events
    """

    rates: Mapping[str, Any]
    starts: Mapping[str, Any]
    rules: Mapping[str, Any]
    outputs: Mapping[str, Any]
    inputs: Mapping[str, float | Table]
    before: Mapping[str, float] | None
    events: tuple[Event, ...]
    shown: frozenset[str] = frozenset()
    kind: int = 0


EMPTY: Mapping[str, Any] = MappingProxyType({})


class Meaning:
    """Values of the names of an SBML model in one period.

    given      name -> expression by the conditions
    known      name -> number by the parameter table
    estimated  parameters that stay symbols
    start      the time at which initial assignments are computed
    earlier    the period before, whose values stay where nothing is given; None: the model's own
    """

    def __init__(
        self,
        sbml: Sbml,
        given: Mapping[str, Any],
        known: Mapping[str, Any],
        estimated: set[str],
        *,
        start: float = 0.0,
        earlier: "Meaning | None" = None,
    ) -> None:
        self.sbml, self.known, self.estimated, self.start = sbml, known, estimated, start
        self.given, self.earlier = given, earlier
        self.values = {**sbml.values, **known, **{n: symbol(n) for n in estimated}, **given}
        self._resolved: dict[str, Any] = {}
        if ruled := sorted(set(given) & set(sbml.rules)):
            raise ModelError(
                f"The condition table sets {ruled}, but rules of the SBML model compute these "
                "values; remove the columns or the rules."
            )

    def at_start(self, name: str, needing: tuple[str, ...] = ()) -> Any:
        """The value of a name at the start, in estimated parameters."""
        if name in self.estimated:
            return symbol(name)
        if name in needing:
            raise ModelError(
                f"The start values of {list(needing)} form a circular dependency; "
                "correct the model."
            )
        if name not in self._resolved:
            if self.earlier is not None and name not in self.given:
                self._resolved[name] = self.earlier.at_start(name)
                return self._resolved[name]
            expression = self.values.get(name, self.sbml.rules.get(name))
            if expression is None:
                raise ModelError(
                    f"'{name}' has no value in the SBML model, the condition table or the "
                    "parameter table. Give it one."
                )
            of = self if self.earlier is None else self.earlier
            self._resolved[name] = of.resolved(expression, (*needing, name))
        return self._resolved[name]

    def resolved(self, expression: Any, needing: tuple[str, ...] = ()) -> Any:
        """The value of an expression at the start, in estimated parameters."""
        values = {n: self.at_start(n, needing) for n in names_in(expression) - {TIME}}
        return inserted(expression, {TIME: number(self.start), **values})

    def over_time(self, expression: Any, kept: Mapping[str, Any] = EMPTY) -> Any:
        """The expression with all that does not change inserted; names that are kept as symbols.

        What conditions compare is a number nevertheless, so that they are decided.
        """
        atoms = comparisons(expression) if kept else ()
        expression = expression.xreplace({
            a: inserted(a, {n: self.at_start(n) for n in names_in(a) & kept.keys()}) for a in atoms
        })
        needed = names_in(expression) - {TIME, *self.sbml.rates, *self.sbml.rules}
        return inserted(expression, {n: kept.get(n) or self.at_start(n) for n in needed})

    @property
    def moving(self) -> set[str]:
        """Names that change within a period."""
        return {TIME, *self.sbml.rates, *self.sbml.rules}


class Conditions:
    """Values of the names of an SBML model in all periods of one experiment."""

    def __init__(
        self, sbml: Sbml, timeline: Timeline, known: Mapping[str, Any], estimated: set[str]
    ) -> None:
        self.timeline = timeline
        self.kept: dict[str, Any] = {}
        """Names that are numbers in all periods and become inputs -> their symbols; see `keep`."""
        self.sets: list[dict[str, Any]] = []
        """Of each period after the first: state -> its new value."""
        read = self._resetting if timeline.resets else self._lasting
        moved: set[str] = set()
        while True:
            own = replace(sbml, rates={**dict.fromkeys(sorted(moved), number(0)), **sbml.rates})
            self.sets.clear()
            self.periods, more = read(own, known, estimated)
            if more <= moved:
                break
            moved |= more
        self.sbml = own

    def _resetting(
        self, sbml: Sbml, known: Mapping[str, Any], estimated: set[str]
    ) -> tuple[list[Meaning], set[str]]:
        """PEtab 1: parameters are those of the condition, states stay unless they are given."""
        first, *later = (
            Meaning(sbml, p.changes, known, estimated, start=self.timeline.start)
            for p in self.timeline.periods
        )
        for one in later:
            self.sets.append({n: one.at_start(n) for n in one.given if n in sbml.rates})
        return [first, *later], set()

    def _lasting(
        self, sbml: Sbml, known: Mapping[str, Any], estimated: set[str]
    ) -> tuple[list[Meaning], set[str]]:
        """PEtab 2: what is set stays; new values see the model just before.

        returns  also parameters that become states, as their values depend on states
        """
        start = self.timeline.start
        first = self.timeline.periods[0].changes
        meanings = [Meaning(sbml, first, known, estimated, start=start)]
        more: set[str] = set()
        for period in self.timeline.periods[1:]:
            before = meanings[-1]
            new = {n: before.over_time(e) for n, e in period.changes.items()}
            more |= {
                n for n, e in new.items() if n not in sbml.rates and names_in(e) & before.moving
            }
            self.sets.append({n: e for n, e in new.items() if n in sbml.rates})
            given = {n: e for n, e in new.items() if n not in sbml.rates and n not in more}
            meanings.append(Meaning(sbml, given, known, estimated, start=start, earlier=before))
        return meanings, more

    def over_time(self, expression: Any, *, keeps: bool = False) -> tuple[Any, ...]:
        """The expression in each period; `keeps` what becomes an input."""
        kept = self.kept if keeps else EMPTY
        return tuple(one.over_time(expression, kept) for one in self.periods)

    def numbers(self, name: str) -> tuple[float, ...]:
        """Number of a name in each period; () if it changes within a period or is no number."""
        if name in self.sbml.rates or name in self.sbml.rules or name in self.periods[0].estimated:
            return ()
        values = [one.at_start(name) for one in self.periods]
        if not all(v.is_number and v.is_real and v.is_finite for v in values):
            return ()
        return tuple(map(float, values))

    def model(self, outputs: Mapping[str, tuple[Any, ...]]) -> ConditionModel:
        """The model of this experiment; outputs are expressions over time in each period."""
        taken = {TIME, *self.sbml.rates, *self.sbml.rules, *outputs}
        taken |= {*self.periods[0].estimated, *(s.name for s in self.kept.values())}
        period = symbol(free_name("period", taken))
        rules, rates = (
            {
                n: self._between_events(self.over_time(e, keeps=True), period)
                for n, e in family.items()
            }
            for family in (self.sbml.rules, self.sbml.rates)
        )
        shown = {n: self._between_events(e, period) for n, e in outputs.items()}
        starts = {n: self.periods[0].at_start(n) for n in self.sbml.rates}
        if not rates:  # nothing moves, which igpe takes for a mistake
            still = free_name("constant", taken)
            rates, starts = {still: number(0)}, {still: number(1)}
        ordered = {n: rules[n] for n in self._order(rules)}
        has_events = bool(self.sbml.events or self.sets)
        numbered = {
            n: self._chosen(self.over_time(self.sbml.rules[n]), period)
            for n in (ordered if has_events else ())
        }
        read = [self._event(e, numbered, period) for e in self.sbml.events if e.sets]
        every = [e for family in (rates, rules, shown) for e in family.values()]
        inputs, before = self._periods(period, [*every, *(e for r in read for e in r.formulas)])
        events = (*self._conditioned(numbered), *joined(read))
        names = frozenset(shown)
        of = ConditionModel(rates, starts, ordered, shown, inputs, before, events, names)
        return _with_switches(of, self.timeline.start, taken)

    @staticmethod
    def _order(rules: Mapping[str, Any]) -> list[str]:
        graph = {n: sorted(names_in(r) & rules.keys()) for n, r in rules.items()}
        try:
            return list(TopologicalSorter(graph).static_order())
        except CycleError as error:
            raise ModelError(
                f"The assignment rules of {sorted(set(error.args[1]))} form a circular "
                "dependency; igpe supports only rules without such a dependency."
            ) from None

    def _between_events(self, each: Sequence[Any], period: Any) -> Any:
        """`_chosen` for formulas between events; conditions on past times are decided."""
        before = each[:1] if self.timeline.is_steady else ()
        after = (_decided(e, self.timeline.start) for e in each[len(before) :])
        return self._chosen((*before, *after), period)

    def _chosen(self, each: Sequence[Any], period: Any) -> Any:
        """Expression of the period that counts; before a steady-state start the clock stands."""
        sympy = library("sympy")
        first, *later = each
        if self.timeline.is_steady:
            clock = {a for a in comparisons(first) if TIME in names_in(a)}
            first = first.xreplace({a: a.subs(symbol(TIME), self.timeline.start) for a in clock})
        each = (first, *later)
        if all(e == each[-1] for e in each):
            return each[-1]
        cases = [(e, period < k + sympy.Rational(1, 2)) for k, e in enumerate(each[:-1])]
        return sympy.Piecewise(*cases, (each[-1], True))

    def _periods(
        self, period: Any, formulas: Sequence[Any]
    ) -> tuple[dict[str, float | Table], dict[str, float] | None]:
        """Inputs: kept numbers, and the number of the period if needed; and both before."""
        steady, counter = self.timeline.is_steady, period.name
        values = {s.name: self.numbers(n) for n, s in self.kept.items()}
        if any(counter in names_in(e) for e in formulas):
            values[counter] = tuple(map(float, range(max(len(self.periods), 1 + steady))))
        before = {n: v[0] for n, v in values.items()} if steady else None
        begins = [p.time for p in self.timeline.periods[1 if steady else 0 :]] or [
            self.timeline.start
        ]
        # A measurement at the very time of a change sees it.
        times = [begins[0], *(just_before(t) for t in begins[1:])]
        inputs: dict[str, float | Table] = {}
        for name, each in values.items():
            own = each[1:] if steady and len(each) > 1 else each
            is_number = name != counter and len(set(own)) == 1
            inputs[name] = own[0] if is_number else step_input(times, own)
        return inputs, before

    # Events

    def _conditioned(self, rules: Mapping[str, Any]) -> list[Event]:
        """Events for the values that conditions set after the start."""
        return [
            Event(
                at=period.time,
                set={n: FormulaRule(flat(e, rules)) for n, e in sets.items()},
                priority=FIRST,
                measured="after",
            )
            for period, sets in zip(self.timeline.periods[1:], self.sets, strict=True)
            if sets and np.isfinite(period.time)
        ]

    def _event(self, event: SbmlEvent, rules: Mapping[str, Any], period: Any) -> EventReading:
        """An event of the model."""
        trigger, delay, priority = (
            self._same(number(0) if e is None else e, event, rules)
            for e in (event.trigger, event.delay, event.priority)
        )
        if names_in(delay) & self.periods[-1].moving:
            raise unread(event, f"its delay {delay} changes")
        if not priority.is_number:
            raise unread(event, f"its priority {priority} is not a number")
        sets = {n: self._same(e, event, rules) for n, e in event.sets.items()}
        start = self.timeline.start
        trigger = boolean(_decided(trigger, start))
        read = EventReading(event, trigger, sets, delay, float(priority), start, period)
        if not self.timeline.is_steady:
            read = read._replace(begins=boolean(self.periods[0].resolved(event.trigger)))
        return self._before(read, rules) if self.timeline.is_steady else read

    def _before(self, read: EventReading, rules: Mapping[str, Any]) -> EventReading:
        """The event with its trigger and values before a steady-state start."""
        event, sympy = read.event, library("sympy")

        def first(expression: Any) -> Any:
            return inserted(
                flat(self.over_time(expression)[0], rules), {read.period.name: number(0)}
            )

        trigger = boolean(first(event.trigger))
        if trigger is sympy.false:
            zero = number(0)
            each = {n: (zero if TIME in names_in(e) else e, e) for n, e in read.sets.items()}
            sets = {n: self._chosen(both, read.period) for n, both in each.items()}
            return read._replace(before=trigger, sets=sets)
        if TIME in names_in(trigger):
            raise unread(event, "its trigger depends on time during a pre-equilibration")
        if trigger is sympy.true and read.trigger is sympy.true and event.at_start:
            raise unread(event, "its trigger is always true during a pre-equilibration")
        if event.delay is not None and first(event.delay) != read.delay:
            raise unread(event, "its delay differs between pre-equilibration and experiment")
        each = {n: (first(e), read.sets[n]) for n, e in event.sets.items()}
        sets = {n: self._chosen(both, read.period) for n, both in each.items()}
        return read._replace(before=trigger, sets=sets)

    def _same(self, expression: Any, event: SbmlEvent, rules: Mapping[str, Any]) -> Any:
        """Value of an event's expression in all periods after a steady-state start."""
        periods = self.over_time(expression)[1 if self.timeline.is_steady else 0 :]
        first, *others = (flat(e, rules) for e in periods)
        if any(e != first for e in others):
            raise unread(event, "a change of conditions alters it during the experiment")
        return first


def keep(conditions: Sequence[Conditions], formulas: Sequence[Any], taken: set[str]) -> None:
    """Let numbers that differ between experiments, or their periods, become inputs.

    Experiments then share their formulas. Exponents stay numbers, as derivatives depend on them.

    formulas  expressions that are used beside the model's, of what is measured
    taken     names that inputs cannot have; their names join them
    """
    sympy, sbml = library("sympy"), conditions[0].sbml
    unknown = sympy.Dummy() > 0
    every = [
        e.xreplace(dict.fromkeys(comparisons(e), unknown))
        for e in (*formulas, *sbml.rates.values(), *sbml.rules.values())
    ]
    raised = {s for e in every for a in e.atoms(sympy.Pow) for s in names_in(a.exp)}
    taken |= {TIME, *dir(pyo.ConcreteModel())}
    for name in sorted({n for e in every for n in names_in(e)} - raised - {TIME}):
        if not any(name in c.periods[0].values for c in conditions):
            continue
        each = [c.numbers(name) for c in conditions]
        if len({v for values in each for v in values}) > 1:
            kept = symbol(free_name(name, taken))
            for c, values in zip(conditions, each, strict=True):
                if values:
                    c.kept[name] = kept


def with_kinds(models: Mapping[str, ConditionModel]) -> dict[str, ConditionModel]:
    """Give experiments that share their formulas one kind, and the outputs of all of them."""
    families: list[tuple[Any, dict[str, Any]]] = []
    kinds = {}
    for name, of in models.items():
        key = dict(of.rates), list(of.rules.items()), tuple(of.inputs)
        fit = (
            kind
            for kind, (other, outputs) in enumerate(families)
            if other == key and all(outputs.get(n, e) == e for n, e in of.outputs.items())
        )
        kinds[name] = next(fit, len(families))
        if kinds[name] == len(families):
            families.append((key, {}))
        families[kinds[name]][1].update(of.outputs)
    return {
        name: replace(of, outputs=families[kinds[name]][1], kind=kinds[name])
        for name, of in models.items()
    }


def _decided(expression: Any, start: float) -> Any:
    """Replace conditions on the time alone by their value after the start, where it is known."""
    swaps = {}
    for atom in comparisons(expression):
        crossing = _crossing(atom)
        if crossing is not None and _jump(atom, crossing) <= start:
            swaps[atom] = library("sympy").S(_sides(atom, crossing)[1])
    return expression.xreplace(swaps)


def _sides(atom: Any, crossing: float) -> tuple[bool, bool]:
    """Whether a condition on the time alone is true before and after it changes."""
    before, after = (inserted(atom, {TIME: number(crossing + side)}) for side in (-1.0, 1.0))
    return bool(before), bool(after)


def _jump(atom: Any, crossing: float) -> float:
    """When an input that stands for a condition on the time alone jumps.

    What is measured at the crossing itself sees the side that the condition gives to it.
    """
    is_after = (atom.rel_op in ("<=", ">=")) == _sides(atom, crossing)[1]
    return just_before(crossing) if is_after else just_after(crossing)


def _with_switches(of: ConditionModel, start: float, taken: set[str]) -> ConditionModel:
    """Conditions on the time alone become inputs: no integrator steps across their jump."""
    sympy = library("sympy")
    families = [of.rates, of.rules, of.outputs]
    atoms = {a for family in families for e in family.values() for a in comparisons(e)}
    swaps: dict[Any, Any] = {}
    inputs = dict(of.inputs)
    taken = taken | inputs.keys()
    for atom in sorted(atoms, key=str):
        crossing = _crossing(atom)
        if crossing is None:
            continue
        before, after = _sides(atom, crossing)
        name = free_name(f"switch_{len(swaps) + 1}", taken)
        times = [start, _jump(atom, crossing)]
        inputs[name] = step_input(times, [float(before), float(after)])
        swaps[atom] = symbol(name) > sympy.Rational(1, 2)
    rates, rules, outputs = ({n: e.xreplace(swaps) for n, e in f.items()} for f in families)
    return replace(of, rates=rates, rules=rules, outputs=outputs, inputs=inputs)


def _crossing(atom: Any) -> float | None:
    """When an inequality that is linear in the time, and holds nothing else, becomes equal."""
    if names_in(atom) != {TIME}:
        return None
    line = linear_in_time(atom.lhs - atom.rhs)
    return None if line is None else float(line[1])


def free_name(name: str, taken: set[str]) -> str:
    """The name, or one like it that nothing else has."""
    while name in taken:
        name += "_"
    taken.add(name)
    return name


class PetabRow(NamedTuple):
    """A row of the measurement table, and the column of the experiment that it became.

    time    in the experiment;  given: column of the table -> what is written there
    """

    experiment: str
    column: str
    time: float
    given: Mapping[str, Any]


class PetabParameter(NamedTuple):
    """A row of the parameter table that is estimated; bounds may be infinite."""

    lower: float
    upper: float
    nominal: float


@dataclass(frozen=True)
class PetabModel:
    """`model(times, experiment)` of a PEtab problem; the experiment's name is the condition's.

    parameters        name -> what is estimated
    condition_models  experiment -> its formulas
    transformations   measured name -> "log10" or "log", if the logarithm is what is compared
    scales            parameter -> "log10" or "log", if its logarithm is what is estimated
    rows              of the measurement table, in its order
    flat              minus the logarithm of all uniform densities beside other priors (PEtab 2)
    """

    parameters: Mapping[str, PetabParameter]
    condition_models: Mapping[str, ConditionModel]
    transformations: Mapping[str, str]
    scales: Mapping[str, str]
    rows: tuple[PetabRow, ...] = ()
    flat: float = 0.0

    @property
    def nominal(self) -> dict[str, float]:
        """Values of the parameter table."""
        return {n: p.nominal for n, p in self.parameters.items()}

    def kind_of_experiment(self, experiment: Any) -> int:
        """Experiments of one kind have the same formulas, see `igpe.problem.building.kind_of`."""
        return self.condition_models[experiment.name].kind

    def __call__(self, times: Sequence[float], experiment: Any) -> Any:
        of, m = self.condition_models[experiment.name], pyo.ConcreteModel()
        taken = {*self.parameters, *of.rates, *of.rules, *of.outputs, *of.inputs}
        own = sorted(n for n in taken if hasattr(m, n))
        if own:
            raise ModelError(
                f"{own} are names of attributes of a Pyomo model; rename them in the SBML "
                "model and the tables."
            )
        time = ContinuousSet(initialize=times)
        m.add_component(free_name("t", taken), time)
        for name, p in self.parameters.items():
            bounds = tuple(b if np.isfinite(b) else None for b in (p.lower, p.upper))
            m.add_component(name, pyo.Var(bounds=bounds))
            m.component(name).set_value(p.nominal, skip_validation=True)  # also outside of them
        for name in of.inputs:
            m.add_component(name, pyo.Param(time, mutable=True, initialize=0.0))
        nominal = {n: number(v) for n, v in self.nominal.items()}
        for name, start in of.starts.items():
            guess = float(inserted(start, nominal))
            state = pyo.Var(time, initialize=guess)
            m.add_component(name, state)
            if start.is_number:
                state[time.first()].fix(guess)
            else:
                equation = state[time.first()] == to_pyomo(start, m.component)
                m.add_component(free_name(f"start_{name}", taken), pyo.Constraint(expr=equation))
        shown = {n: e for n, e in of.outputs.items() if n in of.shown or n in experiment.outputs}
        for name, rule in {**of.rules, **shown}.items():
            value = _over_time(m, rule)
            m.add_component(name, pyo.Expression(time, rule=lambda _, t, value=value: value(t)))
        for name, rate in of.rates.items():
            slope, value = DerivativeVar(m.component(name), wrt=time), _over_time(m, rate)
            m.add_component(free_name(f"d_{name}", taken), slope)
            equation = pyo.Constraint(
                time, rule=lambda _, t, slope=slope, value=value: slope[t] == value(t)
            )
            m.add_component(free_name(f"rate_{name}", taken), equation)
        return m


def _over_time(m: Any, expression: Any) -> Callable[[float], Any]:
    """Time -> the expression in the components of a model."""
    return lambda t: at_time(m, expression, t)
