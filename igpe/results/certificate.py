"""What step 3 proved, in one sentence."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from igpe.core.estimates import relative_gap
from igpe.core.status import Status

STOPPED = {
    Status.TIME_LIMIT: ", stopped at its time limit",
    Status.INTERRUPTED: ", stopped by you",
    Status.INTEGRATION_BROKE: ", stopped at boxes whose solutions cannot be enclosed",
}


@dataclass(frozen=True)
class Certificate:
    """What step 3 proved about one algebraic problem.

    unknowns      it estimated, within these `bounds`;  undetermined: those its data do not tell
    origin        smoothing and residuals it was posed with
    slopes        states whose slopes it fits, in these `experiments`
    objective     weighted sum of squared slope residuals
    lower_bound   of it, proven; -inf if nothing is
    """

    unknowns: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    undetermined: tuple[str, ...]
    origin: str
    slopes: tuple[str, ...]
    experiments: tuple[str, ...]
    method: str
    objective: float
    lower_bound: float
    status: Status

    @classmethod
    def restored(cls, stored: dict[str, Any]) -> "Certificate":
        """From what `dataclasses.asdict` and JSON made of it."""
        names = {k: tuple(stored[k]) for k in ("unknowns", "undetermined", "slopes", "experiments")}
        bounds = tuple((float(a), float(b)) for a, b in stored["bounds"])
        return cls(**stored | names | {"bounds": bounds, "status": Status[stored["status"]]})

    @property
    def gap(self) -> float:
        """Distance of the bound relative to the objective."""
        return relative_gap(self.objective, self.lower_bound)

    @property
    def sentence(self) -> str:
        """The problem, what is proved of it and how, and what that does not say."""
        where = f" in {len(self.experiments)} experiments" if len(self.experiments) > 1 else ""
        lost = (
            f"; they do not determine {', '.join(self.undetermined)}" if self.undetermined else ""
        )
        return (
            f"{self._unknowns}, fitted to {self.origin} of {', '.join(self.slopes)}{where}: "
            f"{self._proved}{lost}."
        )

    @property
    def _unknowns(self) -> str:
        return ", ".join(
            f"{', '.join(name for name, _ in same)} in [{low:g}, {high:g}]"
            for (low, high), same in _runs(self.unknowns, self.bounds)
        )

    @property
    def _proved(self) -> str:
        found = f"sum of squares {self.objective:.6g}"
        about = "this is about these slopes, not about the fit to the measurements"
        if self.status is Status.GLOBAL_BY_CONVEXITY:
            return f"globally optimal by convexity ({self.method}, {found}); {about}"
        by = self.method + STOPPED.get(self.status, "")
        best = f"{self.objective:.6g} is the least sum of squares found ({by})"
        if not math.isfinite(self.lower_bound):
            return f"{best}; nothing is proved"
        if self.lower_bound <= 0:
            return f"{best}; its bound is still 0, so nothing is proved"
        return (
            f"no parameters within the bounds have a sum of squares below {self.lower_bound:.6g}, "
            f"{100 * self.gap:.2g} % under the {self.objective:.6g} found ({by}); {about}"
        )


def _runs(
    names: Sequence[str], bounds: Sequence[tuple[float, float]]
) -> list[tuple[tuple[float, float], list[tuple[str, tuple[float, float]]]]]:
    """Neighbours of the same bounds together."""
    pairs = zip(names, bounds, strict=True)
    return [(key, list(same)) for key, same in groupby(pairs, key=lambda pair: pair[1])]
