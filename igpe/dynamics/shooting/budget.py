"""How exactly, and how long, early horizons are integrated.

Their estimates are only starts for the next ones; and near a pole every further step is wasted.
CVODES needs 90 ms to use up 20,000 steps there, as long as for fifty integrations that succeed.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

from igpe.core.arguments import is_count, is_finite, require
from igpe.dynamics.integrators.base import Integrator


@dataclass(frozen=True)
class Budget:
    """What an integration of an early horizon may use; never more than the integrator's own.

    rtol, atol  tolerances
    max_steps   between two outputs
    """

    rtol: float = 1e-6
    atol: float = 1e-8
    max_steps: int = 500

    def __post_init__(self) -> None:
        for field in ("rtol", "atol"):
            value = getattr(self, field)
            ok = is_finite(value) and value > 0
            require(ok, "Budget", field, value, "a positive number")
        ok = is_count(self.max_steps) and self.max_steps > 0
        require(ok, "Budget", "max_steps", self.max_steps, "a whole number, 1 or more")

    def of(self, integrator: Integrator) -> Integrator:
        """The integrator within this budget; the same where it has no such fields."""
        if not dataclasses.is_dataclass(integrator) or not hasattr(integrator, "max_steps"):
            return integrator
        method: Any = integrator
        within: Integrator = dataclasses.replace(
            method,
            rtol=max(self.rtol, method.rtol),
            atol=max(self.atol, method.atol),
            max_steps=min(self.max_steps, method.max_steps),
        )
        return within
