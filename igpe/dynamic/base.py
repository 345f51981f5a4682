"""What the estimators of steps 4 and 5 share."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from igpe.arrays import FloatArray
from igpe.errors import Unsupported
from igpe.estimate import Estimate
from igpe.loss import LeastSquares
from igpe.problem import Problem

Profile: TypeAlias = Callable[[str, FloatArray], FloatArray | None]
"""A guess of trajectories in one experiment: (name, times) -> values, None where it knows nothing."""


class Estimator(Protocol):
    """Estimates the free unknowns of a problem on the dynamics."""

    def estimate(
        self,
        problem: Problem,
        start: Mapping[str, float],
        profiles: Sequence[Profile] = (),
    ) -> Estimate:
        """Search from `start` (every free unknown -> value).

        profiles  one per experiment or none: trajectories to begin with, for methods that use them
        returns   an Estimate of the free unknowns; failure is its status
        raises    Unsupported if the method cannot do what the problem asks
        """
        ...


def require_plain(problem: Problem, method: str, *, constraints_too: bool) -> None:
    """Refuse what a least-squares method on plain parameters cannot do.

    constraints_too  whether boundary conditions and path constraints are refused as well
    raises           Unsupported, naming the method, the feature and the way out
    """
    if problem.time_varying:
        raise Unsupported(
            f"{method} estimates constant unknowns only; {sorted(problem.time_varying)} vary with "
            "time."
        )
    if not isinstance(problem.loss, LeastSquares):
        raise Unsupported(
            f"{method} minimises least squares only; the problem asks for "
            f"{type(problem.loss).__name__}."
        )
    kept = [n for s in problem.starts for n in s.others] + list(problem.instance.inequalities)
    if constraints_too and kept:
        raise Unsupported(
            f"{method} cannot keep the constraints {sorted(set(kept))}; use Collocation, or "
            "deactivate them in the model."
        )
