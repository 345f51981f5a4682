"""Settings of the five steps, and the candidates that the steps give.

Every part of the settings is a method that can be replaced.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from igpe.algebraic.base import ResidualWeights, StateErrors
from igpe.algebraic.step import Algebraic, Curves, RouteSelection
from igpe.core.box import Box
from igpe.core.errors import ProblemError, SolverMissing
from igpe.core.estimates import Estimate
from igpe.core.markup import Suggesting
from igpe.core.status import Status
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.complement import MANY
from igpe.dynamics.search.multistart import IteratedSearch, MultiStart
from igpe.dynamics.shooting.base import Estimator, is_large
from igpe.dynamics.shooting.refine import Refined
from igpe.equations.compiled import compiled
from igpe.numerics.optima import has_same_values
from igpe.problem.problem import Problem
from igpe.smoothing.base import Smoother
from igpe.smoothing.gcv_spline import GcvSpline, Interpolation
from igpe.structure.solutions import Alternatives
from igpe.structure.structure import Structure


@dataclass(frozen=True)
class Settings(Suggesting):
    """Methods for the five steps.

    ladder       smoothers for step 1; the first is the smoother of Michalik, Chachuat & Marquardt
                 (2009), and the others give further candidates
    weights      weights of the residuals in step 3
    routes       methods for the algebraic problems in step 3
    complement   search in step 4 for the unknowns that step 3 cannot estimate. `IteratedSearch()`
                 replaces the default if at least 8 unknowns are free and step 3 can estimate none
                 of them
    correction   estimator for step 5, which corrects all unknowns at once. If the default does not
                 support the problem (robust losses, estimated standard deviations), shooting
                 replaces it
    integrator   integrator that simulates the final fit; the default uses compiled code if the
                 problem has many states or unknowns, or events
    confidence   confidence level of the intervals
    """

    ladder: tuple[Smoother, ...] = (GcvSpline(), GcvSpline(penalty_factor=0.01), Interpolation())
    weights: ResidualWeights = StateErrors()
    routes: RouteSelection = RouteSelection()
    complement: MultiStart | IteratedSearch = MultiStart()
    correction: Estimator = Collocation()
    integrator: Integrator = Sundials(rtol=1e-10, atol=1e-12)
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for field in fields(self):
            if isinstance(kind := getattr(self, field.name), type):
                raise ProblemError(
                    f"Settings({field.name}=...) got the class {kind.__name__}; expected an object "
                    f"of it: {field.name}={kind.__name__}()."
                )

    @property
    def seed(self) -> int:
        """Seed of every random choice."""
        return self.complement.seed

    def seeded(self, seed: int) -> "Settings":
        """Return the settings with another seed."""
        ladder: Any = [
            replace(s, seed=seed) if is_dataclass(s) and hasattr(s, "seed") else s
            for s in self.ladder
        ]
        return replace(
            self,
            ladder=tuple(ladder),
            complement=replace(self.complement, seed=seed),
            routes=self.routes.seeded(seed),
        )

    def suited(self, problem: Problem) -> "Settings":
        """Return the settings with the default integrator that suits the problem.

        Compiled code is used if the model has many states, or so many unknowns that step 4 may have
        to compile the model anyway, or events: CVODES starts anew after each. IDAS, for implicit
        algebraic variables, takes many more steps.
        """
        is_compiled = is_large(problem) or len(problem.box) >= MANY
        is_compiled |= any((s.flow or s).solved.implicit for s in compiled(problem).systems)
        pairs = zip(problem.experiments, compiled(problem).switching, strict=True)
        is_compiled |= any(moved and (e.steady is None or e.events) for e, moved in pairs)
        return replace(self, integrator=self.compiled) if is_compiled else self

    @property
    def compiled(self) -> Integrator:
        """The integrator to use: `integrator`, or a compiled integrator of the same accuracy if
        `integrator` is the default."""
        exact = self.integrator
        return Automatic(exact.rtol, exact.atol) if exact == Settings().integrator else exact

    def require_solvers(self) -> None:
        """Check that the chosen external solvers are installed.

        The solvers of the default settings need not be installed, because igpe uses them only if
        its own methods are not sufficient.
        raises SolverMissing with the installation command
        """
        usual = set(map(repr, _solvers(Settings())))
        for solver in _solvers(self):
            if repr(solver) not in usual and not solver.available():
                raise SolverMissing(
                    f"The settings specify {solver!r}, which is not installed. {solver.install}"
                )


def _solvers(part: Any) -> Iterator[Any]:
    """All solvers among the parts of a method."""
    if hasattr(part, "available") and hasattr(part, "install"):
        yield part
    elif is_dataclass(part):
        for field in fields(part):
            yield from _solvers(getattr(part, field.name))
    elif isinstance(part, tuple):
        for one in part:
            yield from _solvers(one)


BETTER = "the search for other optima"
BY_PROOF = "the proof of the optimum"
BY_FURTHER = "a further search"
BY_HORIZONS = "incremental shooting"
FROM_PROFILE = "a profile"
LATER = BETTER, BY_PROOF, BY_FURTHER, BY_HORIZONS, FROM_PROFILE
"""Origins of candidates that come from none of the five steps."""


def known_objective(estimate: Estimate) -> float:
    """Return the objective that a search gave; infinite if it is not known."""
    return float(np.nan_to_num(estimate.objective, nan=np.inf))


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

    @property
    def interrupted(self) -> "CandidatePath":
        """Return the candidate as it is, its step 5 being interrupted."""
        known, status = known_objective(self.corrected), Status.INTERRUPTED
        return self._replace(corrected=replace(self.corrected, objective=known, status=status))

    def ends_at(self, other: Estimate, box: Box) -> bool:
        """Return True if step 5 ended at the same values as another search."""
        own, there = (box.vector(e.parameters) for e in (self.corrected, other))
        return has_same_values(own, there, box)


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
