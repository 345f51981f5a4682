"""Names and bounds of the parameters that a problem estimates, from the models and the call.

What is minimised: how residuals count.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from igpe.core.arguments import is_finite, is_number, shown
from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.problem.model import Instance

Bounds = tuple[float, float]


def expanded(role: str, names: Any, instances: Sequence[Instance]) -> tuple[str, ...]:
    """Names of scalar parameters; an indexed component's name stands for its members.

    Members that every model fixes are left out: they are known.
    """
    if isinstance(names, str):
        raise ProblemError(f"{role}={names!r} is one text; wanted names: {role}=[{names!r}].")
    listed = list(names) if isinstance(names, Iterable) else [names]
    if not all(isinstance(name, str) for name in listed):
        raise ProblemError(f"{role} is {shown(names)}; wanted names: {role}=['k1', 'k2'].")
    scalars = list(dict.fromkeys(s for i in instances for s in i.scalars))
    found: list[str] = []
    for name in listed:
        members = [s for s in scalars if s.startswith(f"{name}[")]
        free = [s for s in members if not all(_is_fixed(s, i) for i in instances)]
        found += free if free and name not in scalars else members or [name]
    twice = sorted({n for n in found if found.count(n) > 1})
    if twice:
        raise ProblemError(f"Parameters {twice} are listed more than once; list each once.")
    return tuple(found)


def _is_fixed(name: str, instance: Instance) -> bool:
    component = instance.scalars.get(name)
    return component is None or (component.is_variable_type() and component.fixed)


def shared_bounds(name: str, one: Bounds, other: Bounds) -> Bounds:
    """What lies within the bounds of two experiments' models."""
    low, high = max(one[0], other[0]), min(one[1], other[1])
    if not low < high:
        raise ProblemError(
            f"Parameter '{name}' has bounds {one} in one experiment's model and {other} in "
            "another's, which do not overlap; give it the same bounds, or make it local."
        )
    return low, high


def bounds_of(name: str, given: Bounds | None, instance: Instance) -> Bounds:
    component = instance.scalars[name]
    pair = given if given is not None else getattr(component, "bounds", (None, None))
    try:
        lower, upper = pair
        low = -np.inf if lower is None else float(lower)
        high = np.inf if upper is None else float(upper)
    except (TypeError, ValueError):
        raise ProblemError(
            f"The bounds of parameter '{name}' are {pair!r}; give a pair (lower, upper), with None "
            "where there is no bound."
        ) from None
    if not low < high:
        raise ProblemError(
            f"Parameter '{name}' has bounds [{low:g}, {high:g}]; wanted lower < upper. "
            "Fix the variable in the model if it is known; exchange the bounds if they are crossed."
        )
    return low, high


def with_logarithms(box: Box, names: Iterable[str]) -> Box:
    """The box, in which some parameters (or all their members) are sought in logarithms.

    raises ProblemError if one is no unknown, or its bounds are not positive and finite
    """
    wanted = set(names)
    found = frozenset(n for n in box.names if n.split("@", maxsplit=1)[0] in wanted)
    strangers = sorted(wanted - {n.split("@", maxsplit=1)[0] for n in found})
    if strangers:
        raise ProblemError(
            f"logarithmic names {strangers}, which are not among the unknowns {list(box.names)}."
        )
    inside = box.select(found)
    loose = [
        n
        for n, low, high in zip(inside.names, inside.lower, inside.upper, strict=True)
        if not (low > 0 and np.isfinite(high))
    ]
    if loose:
        raise ProblemError(
            f"{loose} are sought in logarithms, but their bounds are not positive and finite; give "
            f"them: parameters={{'{loose[0]}': (1e-5, 1e5), ...}}."
        )
    return replace(box, logarithmic=found)


ROUNDING = 1e-9  # of an experiment's length: times so close are the same


@dataclass(frozen=True)
class LeastSquares:
    """Sum of squared residuals divided by their standard deviations: maximum likelihood for normal
    errors (Michalik et al. 2009, IGPE, eq. 3)."""


@dataclass(frozen=True)
class L1:
    """Sum of absolute residuals divided by their standard deviations: ignores outliers."""


@dataclass(frozen=True)
class Huber:
    """Squares up to `delta` standard deviations, linear beyond.

    raises ProblemError unless delta is a positive number
    """

    delta: float = 1.345

    def __post_init__(self) -> None:
        if not (is_finite(self.delta) and self.delta > 0):
            raise ProblemError(f"Huber's delta is {shown(self.delta)}; give a positive number.")


Loss: TypeAlias = LeastSquares | L1 | Huber


@dataclass(frozen=True)
class Normal:
    """What is known of a parameter beforehand: a mean and a standard deviation.

    raises ProblemError unless both are finite and the deviation is positive
    """

    mean: float
    deviation: float

    def __post_init__(self) -> None:
        if not (is_finite(self.mean, self.deviation) and self.deviation > 0):
            raise ProblemError(
                f"A prior has mean {shown(self.mean)} and deviation {shown(self.deviation)}; give "
                "a finite mean and a positive deviation."
            )


@dataclass(frozen=True)
class PiecewiseConstant:
    """An unknown function of time, constant between breaks.

    breaks        (n,), increasing times at which it may jump; those not inside an experiment's time
                  have no effect there
    lower, upper  bounds of its values
    penalty       weight of the squared jumps in the objective; 0 leaves them free
    raises        ProblemError if breaks do not increase, bounds are crossed or the penalty negative
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float
    penalty: float = 0.0

    def __post_init__(self) -> None:
        breaks = list(self.breaks) if isinstance(self.breaks, Iterable) else [self.breaks]
        if not (breaks and is_finite(*breaks) and (np.diff(breaks) > 0).all()):
            raise ProblemError(
                f"The breaks {breaks} of a time-varying unknown do not increase; give a tuple of "
                "numbers, each time once, in order."
            )
        object.__setattr__(self, "breaks", tuple(float(b) for b in breaks))
        sound = is_number(self.lower, self.upper) and is_finite(self.penalty)
        if not (sound and self.lower < self.upper and self.penalty >= 0):
            raise ProblemError(
                f"A time-varying unknown has bounds [{shown(self.lower)}, {shown(self.upper)}] and "
                f"penalty {shown(self.penalty)}; give lower < upper and a penalty of 0 or more."
            )

    def begins(self, first: float, last: float) -> tuple[float, ...]:
        """When each piece begins that an experiment from `first` to `last` sees."""
        rounding = ROUNDING * (last - first)
        return (first, *(b for b in self.breaks if first + rounding < b < last - rounding))
