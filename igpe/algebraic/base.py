"""What the routes of step 3 share."""

from typing import NamedTuple, Protocol

from igpe.algebraic.regression import Regression
from igpe.estimates import Estimate


class Found(NamedTuple):
    """What a route found.

    estimate      of the parameters it could determine; its `lower_bound` says what is proved
    undetermined  parameters of the regression that its data do not determine
    """

    estimate: Estimate
    undetermined: tuple[str, ...]


class Route(Protocol):
    """Solves an algebraic estimation problem and says what it proved."""

    def estimate(self, regression: Regression) -> Found:
        """Failure is the status of the estimate."""
        ...
