"""SBML models: their formulas by name, and their events, also as events of igpe.

A species stands for its concentration, or for its amount where it has only substance units:

    d(amount)/dt = sum of stoichiometry * rate over reactions,  concentration = amount / compartment

If the size of a compartment changes, amounts stay constant and concentrations change.
Parameters, compartments and species that events change are states whose rate is 0.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    plain,
    quiet,
    require_few_calls,
    require_moderate_math,
    symbol,
)
from igpe.problem.events import Event
from igpe.problem.inputs import just_after

RATE = "rateOf"  # SBML's name for the slope of something
PACKAGES = ("arrays", "comp", "distrib", "dyn", "multi", "qual", "spatial")
"""Packages that change what a model means."""
EXPLICIT = 3  # the level from which on nothing has a default
LATEST = 1e-9  # relative difference of times that are the same
HUGE_POWER = re.compile(r"<sep/>\s*[-+]?\d{4,}")


class SbmlEvent(NamedTuple):
    """An event; expressions are SymPy's.

    name      as it is called in messages
    trigger   the condition, a Boolean expression
    sets      name -> its new value
    delay     between the trigger and the change;  priority: None where the model gives none
    at_start  whether it happens where the trigger is true at the start
    keeps     whether values are those from when the trigger became true
    persists  whether it happens even if the trigger becomes false before
    """

    name: str
    trigger: Any
    sets: Mapping[str, Any]
    delay: Any
    priority: Any
    at_start: bool
    keeps: bool
    persists: bool


@dataclass(frozen=True)
class Sbml:
    """Content of an SBML model as SymPy expressions.

    rates      name -> slope of all that a reaction, a rate rule or an event changes
    rules      name -> what an assignment rule says it is at every time
    values     name -> value at the start of all else, and of what has a rate
    events     in the order of the model
    """

    rates: Mapping[str, Any]
    rules: Mapping[str, Any]
    values: Mapping[str, Any]
    events: tuple[SbmlEvent, ...] = ()


def read_sbml(document: Any) -> Sbml:
    """The formulas of a libSBML document; raises ModelError for delays and the like."""
    if document.getModel() is None:
        raise ModelError("The SBML file contains no model.")
    require_few_calls(document.getModel())
    copy = document.clone()
    for option in ("expandFunctionDefinitions", "promoteLocalParameters"):
        conversion = library("libsbml").ConversionProperties()
        conversion.addOption(option, True)
        code = copy.convert(conversion)
        if code != library("libsbml").LIBSBML_OPERATION_SUCCESS:
            raise ModelError(
                f"The libSBML conversion '{option}' failed (code {code}); check the model with "
                "`petablint` or an SBML validator."
            )
    model = copy.getModel()
    refused = list(_refused(model))
    if refused:
        raise ModelError(
            f"The SBML model has {'; '.join(refused)}, which igpe does not support. Write these as "
            "reactions, rules or events, or write the model in Pyomo."
        )
    return _Reader(model).sbml()


def _refused(model: Any) -> Iterator[str]:
    for package in PACKAGES:
        plugin = model.getPlugin(package)
        if plugin is not None and (package != "comp" or plugin.getNumSubmodels() > 0):
            yield f"the package '{package}'"
    for reaction in model.getListOfReactions():
        if reaction.isSetFast() and reaction.getFast():
            yield f"the fast reaction '{reaction.getId()}'"
        if not reaction.isSetKineticLaw() or not reaction.getKineticLaw().isSetMath():
            yield f"the reaction '{reaction.getId()}' without a kinetic law"


class _Reader:
    """Reads one model, whose functions are written out and whose parameters are all global."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.species = {s.getId(): s for s in model.getListOfSpecies()}
        self.compartment_of = {
            n: s.getCompartment()
            for n, s in self.species.items()
            if not s.getHasOnlySubstanceUnits()
        }
        """Species that stand for concentrations -> their compartment."""

    def sbml(self) -> Sbml:
        """See `Sbml`."""
        rates, rules = dict[str, Any](), self._reaction_rates()
        for rule in self.model.getListOfRules():
            if not rule.isAlgebraic():
                name = rule.getVariable()
                target = rates if rule.isRate() else rules
                target[name] = _formula(rule, f"rule of {name}")
        values = self._values()
        rules |= self._algebraic(rates, rules)
        events = tuple(self._event(e) for e in self.model.getListOfEvents())
        rates = self._concentrations(rates, rules) | rates
        moved = [n for event in events for n in event.sets]
        if lost := sorted({*moved} & rules.keys()):
            raise ModelError(
                f"Events change the values of {lost}, but rules compute these values. Remove the "
                "events or the rules from the SBML model."
            )
        rates = {**dict.fromkeys(moved, number(0)), **rates}
        events, memory = _remembered(events, {TIME, *rates, *rules})
        rates, values = {**rates, **memory}, {**values, **memory}
        used = set().union(*(names_in(e) for e in self._all(rates, rules, values, events)))
        reactions = {r.getId() for r in self.model.getListOfReactions()}
        rules = {n: e for n, e in rules.items() if n not in reactions or n in used}
        rates, rules, values = (
            {n: self._with_rates(e, rates, rules) for n, e in family.items()}
            for family in (rates, rules, values)
        )
        return Sbml(rates, rules, {n: e for n, e in values.items() if n not in rules}, events)

    @staticmethod
    def _all(*families: Any) -> Iterator[Any]:
        *mappings, events = families
        for mapping in mappings:
            yield from mapping.values()
        for event in events:
            yield from (event.trigger, event.delay, *event.sets.values())
            yield number(0) if event.priority is None else event.priority

    # What has a value

    def _values(self) -> dict[str, Any]:
        model = self.model
        listed = model.getListOfCompartments()
        values = {c.getId(): number(c.getSize() if c.isSetSize() else 1.0) for c in listed}
        values |= {
            p.getId(): number(p.getValue()) for p in model.getListOfParameters() if p.isSetValue()
        }
        for reaction in model.getListOfReactions():
            for r in (*reaction.getListOfReactants(), *reaction.getListOfProducts()):
                if r.getId():
                    values[r.getId()] = self._stoichiometry(r, by_name=False)
        for name, species in self.species.items():
            is_amount = species.getHasOnlySubstanceUnits()
            compartment = symbol(species.getCompartment())
            if species.isSetInitialAmount():
                amount = number(species.getInitialAmount())
                values[name] = amount if is_amount else amount / compartment
            elif species.isSetInitialConcentration():
                concentration = number(species.getInitialConcentration())
                values[name] = concentration * compartment if is_amount else concentration
        for one in model.getListOfInitialAssignments():
            values[one.getSymbol()] = _formula(one, f"initial assignment of {one.getSymbol()}")
        return values

    # What changes

    def _reaction_rates(self) -> dict[str, Any]:
        """Reaction -> its rate: formulas may use it by the reaction's name."""
        return {
            r.getId(): _formula(r.getKineticLaw(), f"kinetic law of {r.getId()}")
            for r in self.model.getListOfReactions()
        }

    def _stoichiometry(self, reference: Any, *, by_name: bool = True) -> Any:
        if reference.isSetStoichiometryMath():
            where = f"stoichiometry of {reference.getSpecies()}"
            return _formula(reference.getStoichiometryMath(), where)
        if by_name and reference.getId():
            return symbol(reference.getId())
        is_set = reference.isSetStoichiometry() or self.model.getLevel() < EXPLICIT
        return number(reference.getStoichiometry() if is_set else 1.0)

    def _amounts(self) -> dict[str, Any]:
        """Species -> how fast its amount changes by reactions."""
        changes: dict[str, Any] = {}
        for reaction in self.model.getListOfReactions():
            rate = symbol(reaction.getId())
            sides = (-1, reaction.getListOfReactants()), (1, reaction.getListOfProducts())
            for sign, r in ((sign, r) for sign, side in sides for r in side):
                change = number(sign) * self._stoichiometry(r) * rate
                changes[r.getSpecies()] = changes.get(r.getSpecies(), number(0)) + change
        laws = self._reaction_rates()
        for name, change in changes.items():
            species = self.species[name]
            factor = species.getConversionFactor() or self.model.getConversionFactor()
            rate = plain(change).xreplace({symbol(n): law for n, law in laws.items()})
            changes[name] = rate * symbol(factor) if factor else rate
        return changes

    def _concentrations(self, rates: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
        """Species -> its rate, of concentrations with the change of their compartments."""
        slopes: dict[str, Any] = {}
        amounts = self._amounts()
        for name, species in self.species.items():
            is_free = not (species.getBoundaryCondition() or species.getConstant())
            change = amounts.get(name, number(0)) if is_free else number(0)
            compartment = self.compartment_of.get(name)
            if name in rules or (compartment is None and change == 0):
                continue
            if compartment is not None:
                size = symbol(compartment)
                growth = self._slope(size, rates, rules)
                change = change / size - (symbol(name) * growth / size if growth != 0 else 0)
            if change != 0 or (is_free and name in amounts):
                slopes[name] = change
        return slopes

    def _slope(self, expression: Any, rates: Mapping[str, Any], rules: Mapping[str, Any]) -> Any:
        """The derivative by time along the model's equations."""
        slope = expression.diff(symbol(TIME))
        for name in sorted(names_in(expression) - {TIME}):
            by = number(0)
            if name in rates:
                by = rates[name]
            elif name in rules:
                by = self._slope(rules[name], rates, rules)
            if by != 0:
                slope += expression.diff(symbol(name)) * by
        return slope

    def _with_rates(
        self, expression: Any, rates: Mapping[str, Any], rules: Mapping[str, Any]
    ) -> Any:
        """The expression with what stands for rates of change (rateOf) written out."""
        functions = expression.atoms(library("sympy").core.function.AppliedUndef)
        slopes = [f for f in functions if str(f.func) == RATE]
        if not slopes:
            return expression
        swaps = {f: self._slope(f.args[0], rates, rules) for f in slopes}
        return expression.xreplace(swaps)

    def _algebraic(self, rates: Mapping[str, Any], rules: Mapping[str, Any]) -> dict[str, Any]:
        """Solve algebraic rules for the quantities they determine; returns assignment rules."""
        listed = [r for r in self.model.getListOfRules() if r.isAlgebraic()]
        if not listed:
            return {}
        sympy = library("sympy")
        equations = [_formula(r, "algebraic rule") for r in listed]
        changed = {n for n, c in self._amounts().items() if c != 0}
        changed -= {n for n, s in self.species.items() if s.getBoundaryCondition()}
        movable = {
            e.getId()
            for family in ("Species", "Parameters", "Compartments")
            for e in getattr(self.model, f"getListOf{family}")()
            if not e.getConstant()
        }
        open_names = sorted(
            set().union(*map(names_in, equations)) & movable - changed - rates.keys() - rules.keys()
        )
        names = [symbol(n) for n in open_names]
        solved = sympy.solve(equations, names, dict=True) if len(names) == len(equations) else []
        if len(solved) != 1 or len(solved[0]) != len(names):
            raise ModelError(
                f"The algebraic rules {[f'0 = {e}' for e in equations]} do not determine "
                f"{open_names} uniquely. Write them as assignment rules."
            )
        return {s.name: plain(e) for s, e in solved[0].items()}

    # Events

    def _event(self, event: Any) -> SbmlEvent:
        name = event.getId() or event.getName() or "unnamed"
        trigger, delay, priority = event.getTrigger(), event.getDelay(), event.getPriority()
        if trigger is None or not trigger.isSetMath():
            raise ModelError(f"The event '{name}' of the SBML model has no trigger.")
        sets = {
            one.getVariable(): _formula(one, f"event '{name}'", may_ask_rates=False)
            for one in event.getListOfEventAssignments()
            if one.isSetMath()
        }
        for species, compartment in self.compartment_of.items():
            if compartment in sets and species not in sets:  # its amount stays
                sets[species] = symbol(species) * symbol(compartment) / sets[compartment]
        known = self.model.getLevel() < EXPLICIT
        return SbmlEvent(
            name,
            _formula(trigger, f"trigger of event '{name}'", may_ask_rates=False),
            sets,
            number(0) if delay is None else _formula(delay, f"delay of event '{name}'"),
            None if priority is None else _formula(priority, f"priority of event '{name}'"),
            not known and not trigger.getInitialValue(),
            event.getUseValuesFromTriggerTime(),
            known or trigger.getPersistent(),
        )


def _with_avogadro(node: Any) -> Any:
    """The formula with Avogadro's constant as a number."""
    sbml = library("libsbml")
    copy = node.deepCopy()
    todo = [copy]
    while todo:
        one = todo.pop()
        todo += [one.getChild(i) for i in range(one.getNumChildren())]
        if one.getType() == sbml.AST_NAME_AVOGADRO:
            value = one.getValue()
            one.setType(sbml.AST_REAL)
            one.setValue(value)
    return copy


def _remembered(
    events: tuple[SbmlEvent, ...], moving: set[str]
) -> tuple[tuple[SbmlEvent, ...], dict[str, Any]]:
    """Events that wait and remember, as events that remember in states; these states -> 0.

    One event notes when the trigger became true, and the values then. Another follows after the
    delay, if that note is still the latest: else the trigger was false in between; a third
    event notes that, and gives up what does not persist. What persists would need several notes
    at once: it becomes log(0) then, and the integration fails.

    moving  names that change in time
    """
    sympy, remembering, memory = library("sympy"), list[SbmlEvent](), dict[str, Any]()
    for place, event in enumerate(events, start=1):
        kept = {n: e for n, e in event.sets.items() if event.keeps and names_in(e) & moving}
        if event.delay == 0 or (event.persists and not kept):
            remembering.append(event)
            continue
        since = f"_since_{place}"
        notes = {n: f"_kept_{place}_{n}" for n in kept}
        memory |= dict.fromkeys([since, *notes.values()], number(0))
        gap = symbol(TIME) - event.delay - symbol(since)
        is_latest = sympy.Abs(gap) < number(LATEST) * (1 + sympy.Abs(symbol(TIME)))
        values = {n: symbol(notes[n]) if n in notes else e for n, e in event.sets.items()}
        once = sympy.Piecewise((number(1), is_latest), (number(0), True))
        sets = {
            n: e + sympy.log(once)
            if event.persists
            else sympy.Piecewise((e, is_latest), (symbol(n), True))
            for n, e in values.items()
        }
        noted = {since: symbol(TIME), **{notes[n]: e for n, e in kept.items()}}
        noting = event._replace(sets=noted, delay=number(0), keeps=True, persists=True)
        remembering += [noting, event._replace(sets=sets, keeps=False, persists=True)]
        if not event.persists:
            off = sympy.Not(boolean(event.trigger))
            expired = {since: symbol(TIME) - event.delay - 1}
            remembering.append(noting._replace(trigger=off, sets=expired, at_start=False))
    return tuple(remembering), memory


def _formula(element: Any, where: str, *, may_ask_rates: bool = True) -> Any:
    """The mathematics of an element; raises ModelError for delays and what is unknown."""
    sympy = library("sympy")
    try:
        with quiet():
            text = library("libsbml").writeMathMLToString(_with_avogadro(element.getMath()))
            if HUGE_POWER.search(text):
                raise ValueError("it contains a number beyond 1e300")
            require_moderate_math(element.getMath())
            reader = library("sbmlmath").SBMLMathMLParser(
                floats_as_rationals=False, ignore_units=True, evaluate=True
            )
            formula = plain(reader.parse_str(text))
    except ModelError as error:
        raise ModelError(f"In the {where}: {error}") from None
    except Exception as error:  # each parser has its own
        raise ModelError(f"The {where} cannot be read: {error}. Correct the SBML model.") from error
    unread = sorted({type(f).__name__ for f in formula.atoms(sympy.Function)} & {"Delay"})
    undefined = {str(f.func) for f in formula.atoms(sympy.core.function.AppliedUndef)}
    undefined -= {RATE} if may_ask_rates else set()
    if unread or undefined:
        raise ModelError(
            f"The {where} uses {[*unread, *sorted(undefined)]}, which igpe does not support. "
            f"Rewrite it without them, for example with additional species, or with rules that "
            f"depend on {TIME}."
        )
    return formula


def unread(event: SbmlEvent, why: str) -> ModelError:
    """The error for an event that igpe does not support."""
    return ModelError(
        f"igpe does not support the event '{event.name}' of the SBML model: {why}. Rewrite the "
        "model without this event, or write the model in Pyomo."
    )


def flat(expression: Any, rules: Mapping[str, Any]) -> Any:
    """The expression with rules written out."""
    while names := names_in(expression) & rules.keys():
        expression = inserted(expression, {n: rules[n] for n in names})
    return expression


class EventReading(NamedTuple):
    """An event of the model, its expressions in states, time and estimated parameters.

    start   of the experiment;  period: the symbol that counts periods
    before  the trigger before a steady-state start; None if the start is not steady
    begins  the trigger at the very start; None if the start is steady
    """

    event: SbmlEvent
    trigger: Any
    sets: Mapping[str, Any]
    delay: Any
    priority: float
    start: float
    period: Any
    before: Any = None
    begins: Any = None

    @property
    def formulas(self) -> tuple[Any, ...]:
        """Formulas that may contain the period."""
        own = () if self.before in (None, self.trigger) else (self.period,)
        return (*own, *self.sets.values(), self.trigger)

    @property
    def at_start(self) -> bool:
        """Whether it happens at the start of the experiment where its trigger is true."""
        return self.event.at_start or self.before is library("sympy").false

    @property
    def time(self) -> Any | None:
        """Time of an event that happens once, in terms of parameters; None for other events."""
        clock = [_since(part) for part in _parts(self.trigger)]
        if not clock or any(since is None for since in clock):
            return None
        return clock[0] if len(clock) == 1 else None

    def igpe(self, sets: Mapping[str, Any]) -> Event | None:
        """Convert to an event of igpe; None if the event never happens."""
        rules = {n: FormulaRule(e) for n, e in sets.items()}
        common: dict[str, Any] = {
            "set": rules, "delay": FormulaRule(self.delay), "priority": self.priority,
            "measured": "after" if self._is_seen else "before",
        }  # fmt: skip
        if self.before in (None, library("sympy").false):
            return self._alone(common)
        if self.before == self.trigger and self.trigger is library("sympy").true:
            return None
        return Event(when=self._when, before=True, at_start=self.event.at_start, **common)

    def _alone(self, common: Mapping[str, Any]) -> Event | None:
        """See `igpe`, of an event that does not happen before a steady-state start."""
        if self.trigger in (library("sympy").true, library("sympy").false):
            happens = bool(self.trigger) and self.at_start
            return Event(at=self.start, **common) if happens else None
        time = self.time
        if time is not None and time.is_number:
            at = float(time) if _is_closed(self.trigger) else just_after(float(time))
            common = {**common, "measured": "after"}  # `at` distinguishes < from <=
            happens = at > self.start or self.at_start
            return Event(at=max(at, self.start), **common) if happens else None
        if time is not None and not self.event.at_start:
            return Event(at=FormulaRule(time), **common)
        is_steady = self.before is not None
        return Event(when=self._when, before=is_steady, at_start=self.event.at_start, **common)

    @property
    def _is_seen(self) -> bool:
        """Whether a measurement at the very time of the event shows the states after it.

        States pass no limit at such a time; those that are at it at the start pass it just after.
        """
        if self.event.at_start and self.begins is not library("sympy").false:
            return True
        clock = [a for a in comparisons(self.trigger) if _since(a) is not None]
        return not clock or any(map(_is_closed, clock))

    @property
    def _when(self) -> "TriggerRule":
        gap, sympy = _gap(self.trigger, self.event), library("sympy")
        if self.before not in (None, self.trigger):
            first = self.period < sympy.Rational(1, 2)
            gap = sympy.Piecewise((_gap(self.before, self.event), first), (gap, True))
        closed = _is_closed(self.trigger)
        if self.begins is not None and len({*map(_is_closed, comparisons(self.trigger))}) > 1:
            # Of < and <= together, the start tells which of them is at its limit. Those that only
            # the estimated parameters decide are not: in `and` they are true, in `or` false.
            is_all = type(self.trigger).__name__ == "And"
            closed = self.begins is not sympy.false if is_all else self.begins is sympy.true
        return TriggerRule(gap, closed)


def _parts(trigger: Any) -> Sequence[Any]:
    return trigger.args if type(trigger).__name__ == "And" else (trigger,)


def _since(atom: Any) -> Any | None:
    """Time from which a comparison of the time alone is true; None for others."""
    if getattr(atom, "rel_op", "") not in ("<", "<=", ">", ">=") or TIME not in names_in(atom):
        return None
    slope, zero = linear_in_time(atom.gts - atom.lts) or (0, None)
    return zero if slope > 0 else None


def _gap(trigger: Any, event: SbmlEvent) -> Any:
    """Expression that is positive where the trigger is true."""
    sympy, kind = library("sympy"), type(trigger).__name__
    if trigger in (sympy.true, sympy.false):
        return number(1 if trigger else -1)
    if kind in ("And", "Or"):
        gaps = [_gap(part, event) for part in trigger.args]
        return (sympy.Min if kind == "And" else sympy.Max)(*gaps, evaluate=False)
    if kind == "Not":
        return -_gap(trigger.args[0], event)
    if getattr(trigger, "rel_op", "") in ("<", "<=", ">", ">="):
        return trigger.gts - trigger.lts
    raise unread(event, f"its trigger {trigger} is not a comparison with <, <=, > or >=")


def _is_closed(trigger: Any) -> bool:
    """Whether the trigger is true where its gap is 0."""
    kind = type(trigger).__name__
    if kind in ("And", "Or"):
        return all(map(_is_closed, trigger.args))
    if kind == "Not":
        return not _is_closed(trigger.args[0])
    return getattr(trigger, "rel_op", "<=") in ("<=", ">=")


def joined(read: Sequence[EventReading]) -> list[Event]:
    """Events that happen at one time as one, where their values are those from before.

    Of several values for one state the last counts, which is that of the lowest priority.
    """
    groups: dict[Any, list[EventReading]] = {}
    for place, one in enumerate(read):
        joins = one.event.keeps and one.delay == 0
        key: Any = (one.trigger, one.before, one.event.at_start) if joins else place
        if joins and one.time is not None and one.time.is_number:
            closed = _is_closed(one.trigger)
            key = (one.time, closed, one.before, one.event.at_start)
        groups.setdefault(key, []).append(one)
    events = []
    for group in groups.values():
        ordered = sorted(group, key=lambda one: -one.priority)
        sets = {n: e for one in ordered for n, e in one.sets.items()}
        events.append(ordered[0].igpe(sets))
    return [event for event in events if event is not None]


@dataclass(frozen=True)
class FormulaRule:
    """A rule (m, t) of an event: an expression in the components of a model."""

    expression: Any

    def __call__(self, m: Any, t: Any) -> Any:
        return at_time(m, self.expression, t)


@dataclass(frozen=True)
class TriggerRule:
    """A rule (m, t) that is true where an expression is positive, if closed also where it is 0."""

    gap: Any
    closed: bool = True

    def __call__(self, m: Any, t: Any) -> Any:
        gap = at_time(m, self.gap, t)
        return gap >= 0 if self.closed else gap > 0
