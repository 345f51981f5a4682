"""Reading a model's equations: at several times, and with a symbol for the time.

Explicit dependence on time hides in the numbers of a Pyomo constraint. Where its members at several
times are not built alike, or its rule asks for the time, the rule is asked again with an `Instant`
and its answer is what is read. Nothing is decided by comparing values at some point.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pyomo.environ as pyo
from pyomo.common.errors import PyomoException
from pyomo.core.expr.numvalue import is_potentially_variable
from pyomo.core.expr.relational_expr import EqualityExpression

from igpe.core.errors import ModelError
from igpe.equations.reading.instant import REFUSALS, Instant, Pretended, reason, said
from igpe.equations.reading.pieces import Joined, Roles, alike, explored, mentions, places
from igpe.equations.symbols import Role, Symbols, require_at
from igpe.equations.translate import Translator
from igpe.problem.model import Instance, Series, along_time

PRETENDED = 199  # times at which a rule that computes outside Pyomo is asked


def read_equations(
    instance: Instance, symbols: Symbols, measured: Sequence[str], times: Sequence[float]
) -> tuple[dict[str, Any], dict[str, Any], list[tuple[str, Any]]]:
    """The equations (as expressions that must be zero), measured quantities, and what jumps.

    times   generic times of the instance at which they are read and compared
    returns name -> expression, twice; names and conditions at whose change they jump
    raises  ModelError if they depend on the time in a way that no symbol for the time explains
    """
    reader = _Reader(instance, symbols, times)
    constant = {n: dict.fromkeys(times, instance.scalars.get(n)) for n in measured}
    series = {n: instance.over_time(n) or constant[n] for n in measured}
    return (
        {n: reader.read(n, c) for n, c in instance.equations.items()},
        {n: reader.read(n, c) for n, c in series.items()},
        reader.jumps,
    )


class _Reader:
    """Reads components over time; knows which named expressions depend on the time."""

    def __init__(self, instance: Instance, symbols: Symbols, times: Sequence[float]) -> None:
        self.times, self.first, self.last = times, instance.first, float(instance.time.last())
        self.time = instance.time
        self.roles: list[dict[int, Role]] = [dict(symbols.roles(instance, t)) for t in times]
        self.symbols = {i: getattr(symbols, r.kind)[r.place] for i, r in self.roles[0].items()}
        self.translate = Translator(self.symbols, symbols.t)  # making one takes Pyomo long
        self.explicit: set[int] = set()
        self.jumps: list[tuple[str, Any]] = []
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
            return self._residual(name, [joined(cuts, row) for row in zip(*answers, strict=True)])
        except REFUSALS as error:
            raise _unexplained(name, reason(error)) from error

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
