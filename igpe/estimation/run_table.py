"""Many runs as one table."""

import sys
from array import array
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from igpe.core.status import Status
from igpe.dynamics.search.searches import Run

ARRIVED = {
    Status.CONVERGED,
    Status.BEST_OF_SEVERAL,
    Status.OPTIMAL_WITHIN_GAP,
    Status.GLOBAL_BY_CONVEXITY,
}
WORDS = ("method", "status", "found_by", "note")
NUMBERS = ("start", "objective", "seconds", "iterations")
WORK = ("equivalent_iterations", "equivalent_integrations")
ORDER = ("method", "start", "status", "arrived", *NUMBERS[1:], *WORK, *WORDS[2:])


class RunTable:
    """Grows by one row for each run, and holds no more of it: 8 bytes a number."""

    def __init__(self, unknowns: Sequence[str]) -> None:
        self._unknowns = tuple(unknowns)
        self._words: dict[str, list[str]] = {name: [] for name in WORDS}
        self._numbers = [array("d") for _ in (*NUMBERS, *WORK, *unknowns)]

    def gather(self, runs: Iterable[Run]) -> bool:
        """Add all of them; False if Ctrl-C came between."""
        try:
            for run in runs:
                self.add(run)
        except KeyboardInterrupt:
            return False
        return True

    def add(self, run: Run) -> None:
        """One more."""
        found = run.estimate
        note = "" if found.status.usable else " ".join(found.notes)
        for name, word in zip(
            WORDS, (run.method, found.status.name, found.method, note), strict=True
        ):
            self._words[name].append(sys.intern(word))
        values = (float(found.parameters[n]) for n in self._unknowns)
        told = (run.number, found.objective, found.seconds, found.iterations, *run.work, *values)
        for column, value in zip(self._numbers, told, strict=True):
            column.append(value)

    def frame(self) -> pd.DataFrame:
        """One row for each run, as they came."""
        names = [*NUMBERS, *WORK, *self._unknowns]
        found = pd.DataFrame({
            **self._words,
            **{n: np.array(c) for n, c in zip(names, self._numbers, strict=True)},
        })
        found["arrived"] = found["status"].isin([status.name for status in ARRIVED])
        found = found.astype({"start": int, "iterations": int})
        return found[[*ORDER, *self._unknowns]]
