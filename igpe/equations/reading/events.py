"""Events of an experiment, from numbers, names and Pyomo rules to CasADi expressions."""

from collections.abc import Callable
from typing import Any

import casadi as ca

from igpe.core.errors import ModelError
from igpe.equations.reading.instant import REFUSALS, Instant, plain, reason
from igpe.equations.switching import Jump, gap_of
from igpe.equations.symbols import Symbols
from igpe.equations.translate import Translator
from igpe.problem.experiment import Experiment
from igpe.problem.model import Instance


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

    def told(rule: Callable[..., Any], number: int) -> Any:
        instant = Instant(time)
        try:
            found = translate(plain(rule(instance.model, instant)))
        except (*REFUSALS, ModelError) as error:
            raise ModelError(
                f"A rule of event {number} of experiment '{experiment.name}' cannot be followed: "
                f"{reason(error)}. Write it with the model's components at t and with Pyomo's "
                "functions: lambda m, t: 0.5 * m.A[t]."
            ) from error
        if instant.seen:
            raise ModelError(
                f"A rule of event {number} uses `if` with the time. Write pyo.Expr_if(t < 0.4, "
                "a, b), or give two events."
            )
        return found

    def value(given: Any, number: int) -> Any:
        if isinstance(given, str):
            return symbols.p[symbols.parameters.index(given)]
        return ca.SX(told(given, number) if callable(given) else float(given))

    found = []
    for number, event in enumerate(experiment.events, start=1):
        places = {n: i for i, n in enumerate(symbols.states)}
        after = {places[n]: symbols.x[places[n]] + value(v, number) for n, v in event.add.items()}
        after |= {places[n]: value(v, number) for n, v in event.set.items()}
        trigger, at = None, None if event.at is None else value(event.at, number)
        if event.when is not None and (trigger := gap_of(told(event.when, number))) is None:
            raise ModelError(
                f"when of event {number} is not a comparison of quantities that change. Write "
                "one, such as when=lambda m, t: m.V[t] >= 2.0; for several conditions give "
                "several events."
            )
        delay, is_after = value(event.delay, number), event.measured == "after"
        gap, closed = trigger or (None, True)
        jump = Jump(at, gap, after, delay, is_after, event.at_start, event.before, closed)
        found.append((-event.priority, number, jump))
    return tuple(jump for *_, jump in sorted(found, key=lambda one: one[:2]))
