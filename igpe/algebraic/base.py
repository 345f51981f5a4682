"""What the routes of step 3 share."""

from typing import NamedTuple, Protocol, runtime_checkable

from igpe.algebraic.regression import Regression
from igpe.core.estimates import Estimate


class Found(NamedTuple):
    """What a route found.

    estimate      of the parameters it could determine; its `lower_bound` says what is proved
    undetermined  parameters of the regression that its data do not determine
    others        further local optima it met, distinct ones up to ten times the objective, best
                  first; each without the parameters that the data do not determine there
    """

    estimate: Estimate
    undetermined: tuple[str, ...]
    others: tuple[Estimate, ...] = ()


class Route(Protocol):
    """Solves an algebraic estimation problem and says what it proved."""

    def estimate(self, regression: Regression) -> Found:
        """Failure is the status of the estimate."""
        ...


@runtime_checkable
class Seeded(Protocol):
    """A route that makes random choices."""

    def seeded(self, seed: int) -> Route:
        """The same route with another seed."""
        ...


def reseeded(route: Route, seed: int) -> Route:
    """The route with another seed, if it has one."""
    return route.seeded(seed) if isinstance(route, Seeded) else route
