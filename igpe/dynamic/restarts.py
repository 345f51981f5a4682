"""Further starts where a fit is worse than the measurement errors explain.

With known standard deviations the sum of squares of the right parameters is chi squared; a fit far
beyond it is a wrong minimum, or the model is wrong. The search begins again elsewhere, until it
passes or several starts agree that nothing better is there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri

from igpe.arrays import FloatArray
from igpe.box import Box
from igpe.estimates import Estimate, Horizon
from igpe.least_squares.base import Fit
from igpe.status import Status

SAME = 1e-3  # relative difference of estimates that agree
PERFECT = 1e-8  # cost in (guessed) standard deviations: only rounding is left
DECADES = 2.0  # a new start without bounds lies so many below the first, at most


class Attempt(NamedTuple):
    """One run from one start.

    limited  whether the accuracy of the integration limits it: its cost cannot be judged
    sparse   whether the model oscillates between the measurements: a slower one may fit as well
    """

    fit: Fit
    trail: tuple[Horizon, ...] = ()
    notes: tuple[str, ...] = ()
    limited: bool = False
    sparse: bool = False


@dataclass(frozen=True)
class Restarts:
    """When and where a search begins again.

    count     at most so many further starts
    chance    of a right fit to be taken for a wrong one
    agreeing  so many estimates that agree end the search, though the errors do not explain them;
              two do where the errors are not known, or the integration is not exact
    seed      of the starts; the same seed gives the same result
    """

    count: int = 20
    chance: float = 1e-6
    agreeing: int = 3
    seed: int = 0

    def explained(self, size: int) -> float:
        """Cost that errors of known standard deviations explain, of so many residuals."""
        return float(chdtri(size, self.chance))

    def run(
        self, attempt: Callable[[FloatArray], Attempt], start: FloatArray, box: Box, gate: float
    ) -> list[Attempt]:
        """Attempts from `start` (n,) and, as long as needed, from elsewhere; the best first.

        gate  cost that needs no further start; infinite if errors are not known
        """
        others = self._elsewhere(start, box)
        found = [attempt(start)]
        while len(found) <= self.count and not self._enough(found, gate):
            found.append(attempt(next(others)))
        return sorted(found, key=partial(_rank, gate=gate))

    def _enough(self, found: Sequence[Attempt], gate: float) -> bool:
        best = min(found, key=partial(_rank, gate=gate))
        if not best.fit.status.usable:
            return False
        explained = best.fit.cost <= (gate if np.isfinite(gate) else PERFECT)
        if explained and not best.sparse:
            return True
        alike = sum(_agree(best, other) for other in found)
        return alike >= (2 if best.limited or gate == np.inf else self.agreeing)

    def _elsewhere(self, start: FloatArray, box: Box) -> Iterator[FloatArray]:
        """Anywhere in finite bounds, else at the start or below it, where models are slow."""
        if box.bounded:
            yield from box.sobol(self.count, self.seed)
        random = np.random.default_rng(self.seed)
        while True:
            yield box.clip(start * 10.0 ** (-DECADES * random.uniform(size=len(start))))


def concluded(attempts: Sequence[Attempt], box: Box, method: str) -> Estimate:
    """The first attempt as an estimate; residuals are in units of one standard deviation."""
    best, several = attempts[0], len(attempts) > 1
    status = best.fit.status
    if several:
        method = f"best of {len(attempts)} starts, {method}"
        status = Status.BEST_OF_SEVERAL if status is Status.CONVERGED else status
    return Estimate(
        box.mapping(best.fit.x),
        best.fit.cost,
        status,
        method,
        trail=best.trail,
        notes=best.notes,
        iterations=sum(h.iterations for h in best.trail) or best.fit.steps,
    )


def _rank(attempt: Attempt, gate: float) -> tuple[bool, bool, bool, float]:
    """What sorts attempts: usable ones first, then explained, then well sampled, then by cost."""
    fit = attempt.fit
    return not fit.status.usable, fit.cost > gate, attempt.sparse, fit.cost


def _agree(one: Attempt, other: Attempt) -> bool:
    if not (one.fit.status.usable and other.fit.status.usable):
        return False
    return bool(np.allclose(one.fit.x, other.fit.x, rtol=SAME, atol=0.0))
