"""What every estimation method returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from igpe.status import Status


@dataclass(frozen=True)
class Estimate:
    """Parameters found, and how much they can be trusted.

    parameters   name -> value, in the model's units
    objective    what the method minimised (for dynamic methods the weighted sum of squares)
    status       how the computation ended
    method       what produced it, in words
    lower_bound  proven bound on the objective; -inf if the method proves nothing
    seconds      wall time
    trail        the estimates this one came from, oldest first
    """

    parameters: Mapping[str, float]
    objective: float
    status: Status
    method: str = ""
    lower_bound: float = -np.inf
    seconds: float = 0.0
    trail: tuple["Estimate", ...] = field(default=(), repr=False)

    @property
    def gap(self) -> float:
        """Distance to the proven bound relative to the objective; 0 means globally optimal."""
        return relative_gap(self.objective, self.lower_bound)


def relative_gap(objective: float, lower_bound: float) -> float:
    """(objective - bound) / |objective|; 0 if they are equal."""
    if objective == lower_bound:
        return 0.0
    return (objective - lower_bound) / max(abs(objective), 1e-12)
