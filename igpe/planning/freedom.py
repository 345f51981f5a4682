"""What may be chosen of an experiment: numbers and profiles within bounds, times of sampling."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from igpe.core.arguments import is_count, is_finite, shown
from igpe.core.box import FloatArray
from igpe.core.errors import ProblemError
from igpe.problem.noise.sigma import Estimated, Proportional


@dataclass(frozen=True)
class Between:
    """A number to choose: a start value, a constant input, an operating parameter of the model.

    lower, upper  bounds, in the unit of the model
    raises        ProblemError unless they are finite and lower < upper
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        _check_bounds(self)


@dataclass(frozen=True)
class Levels:
    """An input to choose that jumps at `breaks` and is constant between them.

    breaks        increasing times at which a level begins, the first where the experiment does
    lower, upper  bounds of the levels
    raises        ProblemError for crossed bounds and times that do not increase
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float

    def __post_init__(self) -> None:
        _check_bounds(self)
        _check_breaks(self, 1)


@dataclass(frozen=True)
class Ramps:
    """An input to choose that runs linearly between its values at `breaks`.

    breaks        increasing times, two or more
    lower, upper  bounds of the values
    steepest      largest slope, up or down, in the input's unit by time's; None: any
    raises        ProblemError for crossed bounds, times that do not increase, no positive slope
    """

    breaks: tuple[float, ...]
    lower: float
    upper: float
    steepest: float | None = None

    def __post_init__(self) -> None:
        _check_bounds(self)
        _check_breaks(self, 2)
        if self.steepest is not None and not (is_finite(self.steepest) and self.steepest > 0):
            raise ProblemError(
                f"Ramps has steepest={shown(self.steepest)}; give a positive slope, or leave it "
                "out where any is possible."
            )


Freedom: TypeAlias = Between | Levels | Ramps


@dataclass(frozen=True)
class Sampling:
    """When samples may be taken, and how many.

    candidates  times at which one may be taken; a time that is listed twice may be sampled twice
    at_most     samples in each experiment; None: at all candidates
    spacing     least time between two samples
    quantities  so many of the measured quantities at most, the same ones in all planned
                experiments; None: all
    raises      ProblemError for times that are no finite numbers, or counts that are no counts
    """

    candidates: Sequence[float] | FloatArray
    at_most: int | None = None
    spacing: float = 0.0
    quantities: int | None = None

    def __post_init__(self) -> None:
        try:
            times = np.sort(np.asarray(self.candidates, dtype=float), axis=None)
        except (TypeError, ValueError):
            times = np.zeros(0)
        if times.size == 0 or not np.isfinite(times).all():
            raise ProblemError(
                f"The candidate times are {shown(self.candidates)}; give finite numbers, for "
                "example Sampling(np.linspace(0.5, 8, 16), at_most=6)."
            )
        object.__setattr__(self, "candidates", tuple(float(t) for t in times))
        for field in ("at_most", "quantities"):
            given = getattr(self, field)
            if given is not None and not (is_count(given) and given > 0):
                raise ProblemError(
                    f"Sampling has {field}={shown(given)}; give a whole number above 0, or leave "
                    "it out for all."
                )
        if not (is_finite(self.spacing) and self.spacing >= 0):
            raise ProblemError(
                f"Sampling has spacing={shown(self.spacing)}; give the least time between two "
                "samples, 0 or more."
            )

    @property
    def times(self) -> FloatArray:
        """(n,) the candidates in order; replicates stand side by side."""
        return np.array(self.candidates, dtype=float)


@dataclass(frozen=True)
class Noise:
    """How exact a planned measurement is: variance = absolute² + (relative · value)².

    absolute  standard deviation in the unit of the quantity
    relative  standard deviation as a share of the predicted value
    raises    ProblemError unless both are 0 or more and one is positive
    """

    absolute: float = 0.0
    relative: float = 0.0

    def __post_init__(self) -> None:
        given = self.absolute, self.relative
        if not (is_finite(*given) and min(given) >= 0 and max(given) > 0):
            raise ProblemError(
                f"Noise has absolute={shown(self.absolute)} and relative={shown(self.relative)}; "
                "give standard deviations of 0 or more, one of them positive."
            )


Deviation: TypeAlias = Noise | Estimated
"""How exact a planned measurement is: known, or computed by the model from unknowns."""


def read_deviation(name: str, given: Any) -> Deviation:
    """What a user gives for one measured quantity.

    raises  ProblemError if it is neither a positive number nor one of igpe's error models
    """
    if isinstance(given, Noise | Estimated):
        return given
    if isinstance(given, Proportional):
        return Noise(given.floor, given.share)
    if not (is_finite(given) and given > 0):
        raise ProblemError(
            f"measure has {shown(given)} for '{name}'. Give a standard deviation above 0, "
            f"igpe.Noise(...), igpe.Proportional(...) or igpe.Estimated(...)."
        )
    return Noise(float(given))


def _check_bounds(given: Any) -> None:
    if not (is_finite(given.lower, given.upper) and given.lower < given.upper):
        raise ProblemError(
            f"{type(given).__name__} has bounds [{shown(given.lower)}, {shown(given.upper)}]; give "
            "finite bounds with lower < upper, or fix the value with conditions={...}."
        )


def _check_breaks(given: Any, fewest: int) -> None:
    breaks = list(given.breaks) if isinstance(given.breaks, Iterable) else [given.breaks]
    if len(breaks) < fewest or not (is_finite(*breaks) and (np.diff(breaks) > 0).all()):
        raise ProblemError(
            f"{type(given).__name__} has breaks {shown(given.breaks)}; give {fewest} or more "
            "finite times that increase."
        )
    object.__setattr__(given, "breaks", tuple(float(b) for b in breaks))
