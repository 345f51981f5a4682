"""What a peer is asked: a problem, a seed, a number of starts."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import igpe
from igpe.core.arrays import FloatArray

LEAST = 1e-6  # of the upper bound: where a logarithmic search begins above a bound of zero


@dataclass(frozen=True)
class Task:
    """A problem to be solved by somebody.

    yaml    the PEtab problem it was read from, if it was
    starts  local searches of those that make several
    """

    problem: igpe.Problem
    seed: int = 0
    starts: int = 20
    yaml: Path | None = None

    def new_folder(self) -> Path:
        """A new folder, for what is written and compiled."""
        return Path(mkdtemp(prefix="peers-"))

    @property
    def logarithmic(self) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
        """(n,) which unknowns are sought in logarithms by those whose custom that is."""
        box = self.problem.box
        return np.asarray((box.lower >= 0) & (box.upper > 0))

    @property
    def logarithmic_lower(self) -> FloatArray:
        """(n,) lower bounds; above zero where logarithms are sought."""
        box = self.problem.box
        floor = np.where(box.lower > 0, box.lower, LEAST * box.upper)
        return np.where(self.logarithmic, floor, box.lower)

    @property
    def spread(self) -> FloatArray:
        """(starts, n) of a Sobol sequence, in logarithms where the box is: the same for all."""
        return self.problem.box.sobol(self.starts, self.seed)

    def points(self, *, logarithmic: bool) -> FloatArray:
        """(starts, n) uniformly random between bounds, or in logarithms of positive unknowns."""
        box = self.problem.box
        unit = np.random.default_rng(self.seed).random((self.starts, len(box)))
        straight = box.lower + unit * (box.upper - box.lower)
        if not logarithmic:
            return straight
        low = np.where(self.logarithmic, self.logarithmic_lower, 1.0)
        ratio = np.where(self.logarithmic, box.upper / low, 1.0)
        return np.where(self.logarithmic, low * ratio**unit, straight)


Found = Mapping[str, float] | None
Search = Callable[[], Iterator[Found]]
Method = Callable[[Task], Search]


class NotPosedError(Exception):
    """The peer has no place for something that the problem has."""
