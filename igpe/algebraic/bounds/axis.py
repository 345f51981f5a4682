"""The scale on which a nonlinear parameter is halved.

A span covers t in [first, first + cells] / 2^level of a coordinate t in [0, 1]:

    linear       p = lower + t (upper - lower)
    logarithmic  p = lower (upper / lower)^t,  or where the lower bound is zero or near it
                 p = lower + (upper - lower) expm1(a t) / expm1(a)

Neighbouring spans share the same number as their common end, so that they always cover the box.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray, IntArray

DECADES = np.log(1e3)  # a: how much finer the scale is at zero than at the upper bound
SPAN = 1e6  # ratio of the bounds beyond which the scale is the one for zero


class Span(NamedTuple):
    """A part of an axis; see the top of the file."""

    level: int
    first: int
    cells: int = 1

    @property
    def width(self) -> float:
        """Its share of the axis."""
        return self.cells * 0.5**self.level

    def parts(self, halvings: int) -> "list[Span]":
        """The spans into which it falls when it is halved so many times."""
        level, first = self.level + halvings, self.first << halvings
        return [Span(level, first + i * self.cells, self.cells) for i in range(1 << halvings)]

    def cut(
        self, level: int, at: tuple[int, int]
    ) -> "tuple[Span | None, Span | None, Span | None]":
        """What is before, between and after two numbers of cells of a level; None: nothing.

        level  not above the span's own
        """
        finer = level - self.level
        begin, end = self.first << finer, (self.first + self.cells) << finer
        low, high = (min(max(a, begin), end) for a in at)
        ends = ((begin, low), (low, high), (high, end))
        before, between, after = (Span(level, a, b - a) if a < b else None for a, b in ends)
        return before, between, after


@dataclass(frozen=True)
class Axis:
    """A nonlinear parameter.

    logarithmic  whether it is halved on a logarithmic scale
    log_affine   whether cells are enclosed in its logarithm
    """

    lower: float
    upper: float
    logarithmic: bool
    log_affine: bool = False

    def ends(
        self, level: IntArray, first: IntArray, cells: IntArray | int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (n,) of spans."""
        whole = 2.0**level
        return self._value(first / whole), self._value((first + cells) / whole)

    def at(self, t: float) -> float:
        """The parameter at coordinate t."""
        return float(self._value(np.array(t)))

    def coordinate(self, p: float) -> float:
        """The coordinate t of a parameter, but for rounding."""
        width = self.upper - self.lower
        share = min(max((p - self.lower) / width, 0.0), 1.0) if width > 0 else 0.0
        if not self.logarithmic or share in (0.0, 1.0):
            return share
        if self.lower > self.upper / SPAN:
            return float(np.log(p / self.lower) / np.log(self.upper / self.lower))
        return float(np.log1p(share * np.expm1(DECADES)) / DECADES)

    def _value(self, t: FloatArray) -> FloatArray:
        width = self.upper - self.lower
        if not self.logarithmic:
            p = self.lower + t * width
        elif self.lower > self.upper / SPAN:
            p = self.lower * (self.upper / self.lower) ** t
        else:
            p = self.lower + width * (np.expm1(DECADES * t) / np.expm1(DECADES))
        p = np.where(t <= 0, self.lower, np.where(t >= 1, self.upper, p))
        return np.asarray(np.clip(p, self.lower, self.upper))
