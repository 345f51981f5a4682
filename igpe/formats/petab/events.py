"""An SBML model's events under one experiment of a PEtab problem, as events of igpe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from igpe.core.errors import ModelError
from igpe.formats.petab.formulas import (
    TIME,
    at_time,
    comparisons,
    inserted,
    library,
    linear_in_time,
    names_in,
    number,
)
from igpe.formats.petab.sbml import SbmlEvent
from igpe.problem.events import Event
from igpe.problem.inputs import just_after


def unread(event: SbmlEvent, why: str) -> ModelError:
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
        """All that may ask for the period."""
        own = () if self.before in (None, self.trigger) else (self.period,)
        return (*own, *self.sets.values(), self.trigger)

    @property
    def at_start(self) -> bool:
        """Whether it happens at the start of the experiment where its trigger is true."""
        return self.event.at_start or self.before is library("sympy").false

    @property
    def time(self) -> Any | None:
        """When it happens, if it happens once at a time that parameters give; None otherwise."""
        clock = [_since(part) for part in _parts(self.trigger)]
        if not clock or any(since is None for since in clock):
            return None
        return clock[0] if len(clock) == 1 else None

    def igpe(self, sets: Mapping[str, Any]) -> Event | None:
        """As an event of igpe; None where it never happens."""
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
            common = {**common, "measured": "after"}  # the time itself tells < from <=
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
    """From when on a comparison of the time alone is true."""
    if getattr(atom, "rel_op", "") not in ("<", "<=", ">", ">=") or TIME not in names_in(atom):
        return None
    slope, zero = linear_in_time(atom.gts - atom.lts) or (0, None)
    return zero if slope > 0 else None


def _gap(trigger: Any, event: SbmlEvent) -> Any:
    """What is positive where the trigger is true."""
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
