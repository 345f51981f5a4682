"""Events of an experiment: doses, injections, dilutions and other jumps of states."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.errors import DataError, ProblemError
from igpe.core.markup import Suggesting, bracketed, closest

Rule: TypeAlias = Callable[[Any, Any], Any]
"""A rule (m, t) like those of Pyomo's constraints: the model, and the time of the event."""
Amount: TypeAlias = float | str | Rule
"""A number, the name of a parameter, or a rule."""
EXAMPLE = "igpe.Event(at=2.0, add={'A': 10.0})"


@dataclass(frozen=True)
class Event(Suggesting):
    """A jump of one or more states in an experiment, at a given time or when a condition becomes
    true.

    at        the time of the event, in the unit of the model's time: a number, the name of a
              parameter, or a rule (m, t) that uses only parameters, for example lambda m, t:
              m.first + 24
    when      a rule (m, t) that returns a comparison, given instead of `at`; for example lambda m,
              t: m.V[t] >= m.full. The event happens each time the comparison becomes true
    add       a dict {state: increment}; an increment is a number, the name of a parameter, or a
              rule (m, t). As in `start`, a name without index stands for all members
    set       a dict {state: new value}; a new value is a number, the name of a parameter, or a rule
              (m, t)
    delay     time from the trigger to the jump: a number, the name of a parameter, or a rule (m, t)
              that uses no states. The trigger is the time `at`, or the moment at which the
              comparison becomes true
    priority  number that orders simultaneous events: the event with the highest priority happens
              first. Events of equal priority happen in the order of the list. Each event uses the
              values of the states after the previous event
    measured  whether a measurement at the time of the event shows the states "before" or "after"
              the event
    at_start  whether the event happens at the start of the experiment if `when` is already true at
              that time. At its limit, a condition with >= is true, and one with > is not
    before    whether the event can also happen before the experiment, while the model approaches
              its initial steady state. For such an event, `at_start` refers to the start of this
              phase. At the start of the experiment, such an event happens only if an input or
              another event makes `when` true at this time
    raises    DataError unless exactly one of `at` and `when` is given and at least one state
              changes

    All states that an event changes jump at the same moment. The rules of the event use the values
    just before the jump.
    """

    at: Amount | None = None
    when: Rule | None = None
    add: Mapping[str, Amount] = field(default_factory=dict)
    set: Mapping[str, Amount] = field(default_factory=dict)
    delay: Amount = 0.0
    priority: float = 0.0
    measured: Literal["before", "after"] = "before"
    at_start: bool = False
    before: bool = False

    def __post_init__(self) -> None:
        for role in ("add", "set"):
            given = getattr(self, role)
            require_mapping(role, given, f"{role}={{'A': 10.0}}", DataError)
            object.__setattr__(self, role, dict(given))
        self._check_trigger()
        if not self.add and not self.set:
            raise DataError(f"This event does not change any state. Name what jumps: {EXAMPLE}.")
        if twice := sorted(self.add.keys() & self.set.keys()):
            raise DataError(f"This event has {twice} in both add= and set=. Use one of the two.")
        self._check_amounts()

    def _check_trigger(self) -> None:
        if (self.at is None) == (self.when is None):
            both = "neither at= nor" if self.at is None else "both at= and"
            raise DataError(f"This event has {both} when=. Give exactly one of them: {EXAMPLE}.")
        if hasattr(self.at, "__len__") and not isinstance(self.at, str):
            raise DataError(
                f"`at` is {shown(self.at)}; expected one time. For several times, write several "
                f"events: {EXAMPLE}."
            )
        if self.when is not None and not callable(self.when):
            raise DataError(
                f"`when` is {shown(self.when)}; expected a rule that returns a comparison: "
                "when=lambda m, t: m.V[t] >= 2.0. For an event at a given time, write at=2.0."
            )

    def _check_amounts(self) -> None:
        for role, value in self.amounts:
            if not (callable(value) or isinstance(value, str) or is_finite(value)):
                raise DataError(
                    f"{role} is {shown(value)}; expected a finite number, the name of a "
                    "parameter, or a function of the model and time: lambda m, t: 0.5 * m.A[t]."
                )
        if is_finite(self.delay) and float(self.delay) < 0:  # type: ignore[arg-type]
            raise DataError(f"`delay` is {shown(self.delay)}; expected a number, 0 or more.")
        if self.measured not in ("before", "after"):
            raise DataError(f"`measured` is {shown(self.measured)}; expected 'before' or 'after'.")
        if self.at_start and self.when is None:
            raise DataError(
                "`at_start` is allowed only for events with `when`. Remove `at_start` from the "
                "event that has `at`."
            )
        if self.before and self.when is None:
            raise DataError(
                "`before` is allowed only for events with `when`: an event with `at` cannot happen "
                "before the experiment starts."
            )
        if not is_finite(self.priority):
            raise DataError(f"`priority` is {shown(self.priority)}; expected a number.")

    @property
    def amounts(self) -> Iterator[tuple[str, Amount]]:
        """Role and value of each field that can be a number, a parameter name, or a rule."""
        if self.at is not None:
            yield "`at`", self.at
        yield "`delay`", self.delay
        yield from ((f"`add` of '{n}'", v) for n, v in self.add.items())
        yield from ((f"`set` of '{n}'", v) for n, v in self.set.items())


def read_events(given: Any, start_time: float) -> tuple[Event, ...]:
    """The events of an experiment; raises DataError for others, and for times before the start."""
    events = (given,) if isinstance(given, Event) else given
    if not isinstance(events, Iterable) or isinstance(events, str | Mapping):
        raise DataError(f"`events` is {shown(given)}; expected a list: events=[{EXAMPLE}].")
    checked = tuple(events)
    for number, event in enumerate(checked, start=1):
        if not isinstance(event, Event):
            raise DataError(
                f"`events` contains {shown(event)}; expected igpe.Event objects, for example "
                f"{EXAMPLE}."
            )
        if is_finite(event.at) and float(event.at) < start_time:  # type: ignore[arg-type]
            raise DataError(
                f"Event {number} is at t = {event.at:g}, before the experiment starts at "
                f"{start_time:g}. Include its effect in the start values, or pass an earlier "
                "start_time=..."
            )
    return checked


def check_events(
    problem: Any, place: str, events: Iterable[Event], states: list[str], others: Container[str]
) -> None:
    """Raise ProblemError for states or parameters that the model does not have."""
    for number, event in enumerate(events, start=1):
        names = [*event.add, *event.set]
        if unknown := [n for n in names if n not in states]:
            algebraic = [n for n in unknown if n in others]
            why = f" {bracketed(algebraic)} have no differential equation." * bool(algebraic)
            raise ProblemError(
                f"{place}event {number} changes {unknown}, which are not states. The states are "
                f"{bracketed(states)}.{why or closest(unknown[0], states)}"
            )
        for role, value in event.amounts:
            if isinstance(value, str) and value not in problem.parameters:
                raise ProblemError(
                    f"{place}event {number}: {role} is '{value}', which is not among the "
                    f"parameters {list(problem.parameters)}. Name it in parameters=[...], or pass "
                    "a number or a rule: lambda m, t: m.dose."
                )
