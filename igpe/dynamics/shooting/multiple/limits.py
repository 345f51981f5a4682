"""What a user should know of the constraints of a multiple shooting, as sentences."""

from collections.abc import Iterator, Sequence

from igpe.core.status import Status
from igpe.dynamics.shooting.multiple.chains import Chains
from igpe.numerics.least_squares.chains.chains import Chained
from igpe.numerics.least_squares.chains.limits import Limits

CLOSE = 1e-7  # distance from a bound, relative to its size or 1, of what is active
SHOWN = 5  # names in a sentence, at most


def told(at: Chained, chains: Chains, status: Status, *, kept: bool) -> Iterator[str]:
    """Sentences on constraints that were missed, are active, or are kept at some times only.

    at    where a search ended, and how;  kept: whether constraints are
    """
    found = [
        (name + shooting.limits.of, chain.limits, i)
        for shooting, chain in zip(chains.shootings, at.chains, strict=True)
        if shooting.limits is not None and chain.limits is not None
        for i, name in enumerate(shooting.limits.names)
    ]
    if not kept:
        name, limits, i = max(found, key=lambda one: one[1].missed[one[2]])
        yield (
            f"No parameters were found that keep all constraints: '{name}' is missed by "
            f"{limits.missed[i]:.3g}. Widen constraints or bounds, or start elsewhere."
        )
    elif found and status.usable:
        active = [name for name, limits, i in found if _is_active(limits, i)]
        if active:
            yield f"Active constraints: {_listed(active)}."
        if chains.over_time:
            names = _listed(sorted(chains.over_time))
            yield f"{names} kept at the start and at all measured times, not between them."


def _is_active(limits: Limits, i: int) -> bool:
    """Whether an inequality holds its value where it is."""
    value = limits.value[i]
    near = min(value - limits.low[i], limits.high[i] - value)
    return bool(limits.low[i] < limits.high[i] and near <= CLOSE * max(abs(value), 1.0))


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
