"""The candidates of the five steps, and all that is known of them, for the result."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from igpe.algebraic.curves import Curves
from igpe.algebraic.step import Algebraic
from igpe.core.estimates import Estimate
from igpe.dynamics.shooting.refine import Refined
from igpe.problem.problem import Problem
from igpe.structure.solutions import Alternatives
from igpe.structure.structure import Structure

BETTER = "the search for other optima"
BY_PROOF = "the proof of the optimum"
BY_FURTHER = "a further search"
BY_HORIZONS = "incremental shooting"
FROM_PROFILE = "a profile"
LATER = BETTER, BY_PROOF, BY_FURTHER, BY_HORIZONS, FROM_PROFILE
"""Origins of candidates that come from none of the five steps."""


class CandidatePath(NamedTuple):
    """One candidate of step 3, and what steps 4 and 5 made of it."""

    algebraic: Algebraic
    complete: Estimate
    corrected: Estimate

    @property
    def usable(self) -> bool:
        """Return True if step 5 gave parameters."""
        return self.corrected.status.usable

    @property
    def rank(self) -> tuple[bool, float]:
        """Return a key that sorts candidates, best first."""
        return not self.usable, self.corrected.objective


class Steps(NamedTuple):
    """Results of the five steps.

    problem  with unreachable unknowns held
    ladder   step 1;  structure: step 2
    first    the paper's path of posing step 3, the one that is solved with a proof
    paths    steps 3 to 5, best first
    best     the best path's estimate, refined, with residuals and derivative
    seconds  wall time of each step
    others   further optima within the statistical threshold
    several  `alternatives(problem)`, once they are known
    given    the problem with weights that follow the fit, if they do
    """

    problem: Problem
    ladder: Sequence[Curves]
    structure: Structure
    first: Algebraic
    paths: Sequence[CandidatePath]
    best: Refined
    seconds: dict[str, float]
    others: tuple[Refined, ...] = ()
    several: tuple[Alternatives, ...] | None = None
    given: Problem | None = None

    def path_to(self, end: Estimate, origin: str) -> CandidatePath:
        """Return the path of an estimate that comes from none of the five steps."""
        algebraic = replace(self.paths[0].algebraic, parameters={}, answers=(), origin=origin)
        return CandidatePath(algebraic, end, end)
