"""Unknowns with names and bounds."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray

SMALLEST = 1e-4  # of the upper bound: where a logarithmic search begins above a zero bound


ROUNDING = 1e-6  # relative distance of an end from a bound that it has reached


ON = 1e-14  # of a kink: nearer, a value is on it


def is_reached(end: float, bound: float) -> bool:
    """Whether an interval ends at a bound, but for rounding."""
    return math.isclose(end, bound, rel_tol=ROUNDING)


@dataclass(frozen=True)
class Box:
    """The unknowns of a problem, with their bounds.

    names         (n,)
    lower, upper  (n,), in the units of the unknowns; may be infinite
    logarithmic   those whose logarithms are sought and spread; their bounds are positive
    kinks         unknown -> where the objective has one
    """

    names: tuple[str, ...]
    lower: FloatArray
    upper: FloatArray
    logarithmic: frozenset[str] = frozenset()
    kinks: Mapping[str, float] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def finite(self) -> BoolArray:
        """(n,) which unknowns have finite bounds on both sides."""
        return np.isfinite(self.lower) & np.isfinite(self.upper)

    @property
    def bounded(self) -> bool:
        """Whether all bounds are finite, as a global search needs them."""
        return bool(self.finite.all())

    def clip(self, values: FloatArray) -> FloatArray:
        """The nearest point inside."""
        return np.clip(values, self.lower, self.upper)

    def steps(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n,) the least and largest step from x that stays inside and passes no kink."""
        low, high = self.lower - x, self.upper - x
        for name, kink in self.kinks.items():
            i = self.names.index(name)
            if not math.isclose(x[i], kink, rel_tol=ON, abs_tol=ON):
                side = high if x[i] < kink else low
                side[i] = kink - x[i]
        return low, high

    @property
    def middle(self) -> FloatArray:
        """(n,) middle of the bounds; where they are not finite, 1 or the bound nearest to it."""
        with np.errstate(invalid="ignore"):  # -inf + inf
            middle = (self.lower + self.upper) / 2
        return np.where(np.isfinite(middle), middle, self.clip(np.ones(len(self))))

    def select(self, names: Iterable[str]) -> "Box":
        """The box of some of the unknowns, in the order asked for."""
        chosen = tuple(names)
        index = [self.names.index(n) for n in chosen]
        kinks = {n: v for n, v in self.kinks.items() if n in chosen}
        kept = self.logarithmic & {*chosen}
        return Box(chosen, self.lower[index], self.upper[index], kept, kinks)

    def without(self, names: Iterable[str]) -> "Box":
        """The box of all unknowns but these."""
        excluded = set(names)
        return self.select([n for n in self.names if n not in excluded])

    def vector(self, values: Mapping[str, float]) -> FloatArray:
        """(n,) the values in the order of the names."""
        return np.array([values[n] for n in self.names], dtype=float)

    def mapping(self, values: FloatArray) -> dict[str, float]:
        """The values by name."""
        return {n: float(v) for n, v in zip(self.names, values, strict=True)}

    @property
    def in_logarithms(self) -> BoolArray:
        """(n,) which unknowns are sought in logarithms."""
        return np.array([n in self.logarithmic for n in self.names], dtype=bool)

    def sobol(self, count: int, seed: int) -> FloatArray:
        """(count, n) well-spread points, the same for the same seed.

        Where no bound is negative, half of the points are spread evenly over orders of magnitude
        (four of them where the lower bound is zero): rate constants live there. Those sought in
        logarithms are so spread in all points. A dimension more says which half: every other point
        lies in one half of some axis.
        """
        if len(self) == 0:
            return np.zeros((count, 0))
        from scipy.stats import qmc  # noqa: PLC0415 - slow to load, and often not needed

        sampler = qmc.Sobol(len(self) + 1, rng=np.random.default_rng(seed))
        which, *axes = sampler.random_base2(int(np.ceil(np.log2(max(count, 2)))))[:count].T
        straight, logarithmic = self._between(np.column_stack(axes))
        even = (which >= 0.5)[:, None] | self.in_logarithms  # noqa: PLR2004 - a half
        return np.asarray(self.clip(np.where(even, logarithmic, straight)))

    def diagonal(self, count: int) -> FloatArray:
        """(count, n) points at which all unknowns have the same share of their ranges.

        Shares are even over orders of magnitude where no bound is negative (see `sobol`).
        """
        shares = np.linspace(0.0, 1.0, count)[:, None] * np.ones(len(self))
        return self.clip(self._between(shares)[1])

    def _between(self, unit: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Points at shares (count, n) of the ranges, and those at shares of orders of magnitude."""
        straight = self.lower + unit * (self.upper - self.lower)
        positive = (self.lower >= 0) & (self.upper > 0)
        floor = np.where(positive, np.where(self.lower > 0, self.lower, SMALLEST * self.upper), 1.0)
        ratio = np.where(positive, self.upper / floor, 1.0)
        return straight, np.where(positive, floor * ratio**unit, straight)
