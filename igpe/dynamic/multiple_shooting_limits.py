"""What a user should know of the constraints of a multiple shooting, as sentences."""

from collections.abc import Iterator, Sequence

from igpe.dynamic.multiple_shooting_chains import Chains
from igpe.least_squares.generalised import Outcome
from igpe.least_squares.limits import Limits
from igpe.status import Status

CLOSE = 1e-7  # distance from a bound, relative to its size or 1, of what is active
SHOWN = 5  # names in a sentence, at most


def told(status: Status, outcome: Outcome, chains: Chains) -> Iterator[str]:
    """Sentences on constraints that were not kept, are active, or are kept at some times only."""
    if outcome.at is None or not outcome.at.limits:
        return
    found = [
        (name + shooting.limits.of, chain.limits, i)
        for shooting, chain in zip(chains.shootings, outcome.at.chains, strict=True)
        if shooting.limits is not None and chain.limits is not None
        for i, name in enumerate(shooting.limits.names)
    ]
    if status is Status.INFEASIBLE:
        name, limits, i = max(found, key=lambda one: one[1].missed[one[2]])
        yield (
            f"No parameters were found that keep all constraints: '{name}' is missed by "
            f"{limits.missed[i]:.3g}. Widen constraints or bounds, or start elsewhere."
        )
        return
    active = [name for name, limits, i in found if _is_active(limits, i)]
    if active:
        yield f"Active constraints: {_listed(active)}."
    over_time = sorted(chains.over_time)
    if over_time:
        yield f"{_listed(over_time)} kept at the start and at all measured times, not between them."


def _is_active(limits: Limits, i: int) -> bool:
    """Whether an inequality holds its value where it is."""
    value = limits.value[i]
    near = min(value - limits.low[i], limits.high[i] - value)
    return bool(limits.low[i] < limits.high[i] and near <= CLOSE * max(abs(value), 1.0))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
