"""Further starts where a fit is worse than the measurement errors explain.

With known standard deviations the sum of squares of the right parameters is chi squared; a fit far
beyond it is a wrong minimum, or the model is wrong. The search begins again elsewhere, until it
passes or several starts agree that nothing better is there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import chdtri

from igpe.core.arguments import is_count, is_finite, require
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.deadline import NEVER, Deadline
from igpe.core.estimates import Estimate, Horizon
from igpe.core.status import Status
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.optima import has_same_values

CLOSE, SHARE = 10.0, 1e-2  # in chi squared, or of the least cost where errors are not known: a fit
# that is no worse than this is preferred to one that oscillates between the measurements
TRIES = 100  # for a start that is none of those before
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

    def __post_init__(self) -> None:
        require(is_count(self.count), "Restarts", "count", self.count, "a whole number, 0 or more")
        require(is_count(self.seed), "Restarts", "seed", self.seed, "a whole number, 0 or more")
        ok = is_count(self.agreeing) and self.agreeing >= 1
        require(ok, "Restarts", "agreeing", self.agreeing, "a whole number, 1 or more")
        ok = is_finite(self.chance) and 0 < self.chance < 1
        require(ok, "Restarts", "chance", self.chance, "a number between 0 and 1")

    def explained(self, size: int) -> float:
        """Cost that errors of known standard deviations explain, of so many residuals."""
        return float(chdtri(size, self.chance))

    def run(
        self,
        attempt: Callable[[FloatArray], Attempt],
        start: FloatArray,
        box: Box,
        gate: float,
        deadline: Deadline = NEVER,
    ) -> list[Attempt]:
        """Attempts from `start` (n,) and, as long as needed, from elsewhere; the best first.

        gate      cost that needs no further start; infinite if errors are not known
        deadline  after which there are none
        At Ctrl-C those that are there; raises KeyboardInterrupt if the first attempt does.
        """
        others = distinct(self._elsewhere(start, box), start)
        found = [attempt(start)]
        while len(found) <= self.count and not self._enough(found, box, gate) and not deadline.over:
            another = next(others, None)
            if another is None or found[-1].fit.status is Status.INTERRUPTED:
                break
            try:
                found.append(attempt(another))
            except KeyboardInterrupt:
                return _cut_short(ranked(found, gate))
        is_whole = found[-1].fit.status is not Status.INTERRUPTED
        return ranked(found, gate) if is_whole else _cut_short(ranked(found, gate))

    def _enough(self, found: Sequence[Attempt], box: Box, gate: float) -> bool:
        best = ranked(found, gate)[0]
        if not best.fit.status.usable:
            return best.fit.status is Status.NO_SOLVER
        explained = best.fit.cost <= (gate if np.isfinite(gate) else PERFECT)
        if explained and not best.sparse:
            return True
        agreeing = sum(_agree(best, other, box) for other in found)
        return agreeing >= (2 if best.limited or gate == np.inf else self.agreeing)

    def _elsewhere(self, start: FloatArray, box: Box) -> Iterator[FloatArray]:
        """Anywhere in finite bounds, else at the start or below it, where models are slow.

        What begins at zero and has no bounds is taken to be of order one.
        """
        if box.bounded:
            yield from box.sobol(self.count, self.seed)
        random = np.random.default_rng(self.seed)
        width = box.upper - box.lower
        order_one = np.where(box.upper > 0, 1.0, -1.0)
        size = np.where(start != 0, start, np.where(np.isfinite(width), width, order_one))
        while True:
            yield box.clip(size * 10.0 ** (-DECADES * random.uniform(size=len(start))))


def distinct(places: Iterator[FloatArray], start: FloatArray) -> Iterator[FloatArray]:
    """Those that are neither `start` nor one before; it ends when no more come."""
    seen, tries = {start.tobytes()}, 0
    for place in places:
        tries += 1
        if place.tobytes() not in seen:
            seen.add(place.tobytes())
            yield place
            tries = 0
        if tries >= TRIES:
            return


def ranked(found: Sequence[Attempt], gate: float) -> list[Attempt]:
    """Usable ones first, by their cost; but of those close to the best, the well sampled first."""
    least = min((a.fit.cost for a in found if a.fit.status.usable), default=np.inf)
    close = least + (CLOSE if np.isfinite(gate) else SHARE * least + PERFECT)

    def place(one: Attempt) -> tuple[bool, bool, bool, float]:
        far = one.fit.cost > close
        return not one.fit.status.usable, far, one.sparse and not far, one.fit.cost

    return sorted(found, key=place)


def _cut_short(found: list[Attempt]) -> list[Attempt]:
    """The attempts, the best of them with the status of an interrupted search."""
    best = found[0]
    if best.fit.status.usable:
        best = best._replace(fit=best.fit._replace(status=Status.INTERRUPTED))
    return [best, *found[1:]]


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
        elsewhere=tuple(h for a in attempts[1:] for h in a.trail),
        iterations=sum(h.iterations for h in best.trail) or best.fit.steps,
        reached=tuple(a.fit.cost if a.fit.status.usable else np.inf for a in attempts),
    )


def _agree(one: Attempt, other: Attempt, box: Box) -> bool:
    if not (one.fit.status.usable and other.fit.status.usable):
        return False
    return has_same_values(one.fit.x, other.fit.x, box)
