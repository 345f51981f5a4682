"""Chains whose nodes need not meet yet: a continuation that ends where they do.

    min |r(q, s)|^2 + rho |gap(q, s) / size|^2        rho = 1, 10, 100, ...

over unknowns and nodes by Levenberg and Marquardt's method. While gaps are cheap the nodes stay
near the data and the unknowns find the dynamics that fit each interval; nothing is multiplied along
the chain, so that unstable or chaotic models do no harm. Only the first node, the start, is
bound to the unknowns from the beginning. The normal equations are block tridiagonal with a border
(`normal`), and cost O(K).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from igpe.core.arguments import is_finite, require
from igpe.numerics.least_squares.chains.chains import Chained, Point, Watch, unwatched
from igpe.numerics.least_squares.chains.normal import Normal, Weights
from igpe.numerics.least_squares.chains.proposal import Space

Evaluate: TypeAlias = Callable[[Point], Chained | None]

FIRST_DAMPING, LESS, MORE, MOST = 1e-2, 0.25, 6.0, 1e8
TRIES = 12  # steps with one weight


class Continued(NamedTuple):
    """Where the continuation ended; `at` is None if the start could not be evaluated.

    iterations  steps taken;  evaluations: of the chains
    """

    point: Point
    at: Chained | None
    iterations: int
    evaluations: int


@dataclass(frozen=True)
class SoftLinks:
    """Continuation from free nodes to nodes that meet.

    first, last, factor  weights of the squared gaps, in units of the squared residuals
    size                 of the gaps that weigh one, relative to the sizes of the states
    enough               relative decrease below which the next weight's turn has come
    raises               ProblemError for weights that do not grow, and sizes that are none
    """

    first: float = 1.0
    last: float = 1e6
    factor: float = 10.0
    size: float = 1.0
    enough: float = 0.01

    def __post_init__(self) -> None:
        for field, least in (("first", 0.0), ("last", 0.0), ("factor", 1.0), ("size", 0.0)):
            value = getattr(self, field)
            ok = is_finite(value) and value > least
            require(ok, "SoftLinks", field, value, f"a number above {least:g}")
        ok = is_finite(self.enough) and self.enough >= 0
        require(ok, "SoftLinks", "enough", self.enough, "a number, 0 or more")

    def run(
        self, evaluate: Evaluate, start: Point, space: Space, watch: Watch = unwatched
    ) -> Continued:
        """From `start`, clipped into the space."""
        point = space.clip(start)
        at, evaluations = evaluate(point), 1
        if at is None:
            return Continued(point, None, 0, 1)
        watch(point, at)
        weight, damping, iterations = self.first, FIRST_DAMPING, 0
        while weight <= self.last * (1 + 1e-9):
            for _ in range(TRIES):
                moved = self._step(evaluate, _State(point, at, damping), space, weight)
                evaluations += moved.evaluations
                worth, before = self._merit(moved.at, space, weight), self._merit(at, space, weight)
                if moved.at is not at:
                    watch(moved.point, moved.at)
                iterations += moved.at is not at
                point, at, damping = moved.point, moved.at, moved.damping
                if before - worth <= self.enough * before:
                    break
            weight, damping = weight * self.factor, min(damping, FIRST_DAMPING)
        return Continued(point, at, iterations, evaluations)

    def _weights(self, space: Space, weight: float) -> Weights:
        return tuple(weight / (self.size * size) ** 2 for size in space.size.nodes)

    def _merit(self, at: Chained, space: Space, weight: float) -> float:
        pairs = zip(at.chains, self._weights(space, weight), strict=True)
        return at.cost + sum(float(np.sum(c.gap**2 * w)) for c, w in pairs)

    def _step(self, evaluate: Evaluate, now: "_State", space: Space, weight: float) -> "_State":
        """One step that lowers the merit, or none."""
        merit = self._merit(now.at, space, weight)
        normal = Normal.of(now.at, self._weights(space, weight), now.point, space)
        damping, evaluations = now.damping, 0
        while damping < MOST:
            move = normal.step(damping)
            trial = None
            if move is not None:
                there = space.clip(now.point.moved(move))
                trial = evaluate(there)
                evaluations += 1
                if trial is not None and self._merit(trial, space, weight) < merit:
                    return _State(there, trial, max(damping * LESS, 1e-12), evaluations)
            damping *= MORE
        return _State(now.point, now.at, damping, evaluations)


class _State(NamedTuple):
    """A point, what it is worth, the damping to go on with, and evaluations made."""

    point: Point
    at: Chained
    damping: float
    evaluations: int = 0
