"""The best parameters so far, whose sum of squares is enclosed as that of boxes is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import EstimationFailed
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.shooting.base import Estimator, from_many_starts
from igpe.problem.problem import Problem
from igpe.proofs.prover.enclosures.enclosure import Enclosure
from igpe.proofs.prover.posed import Dynamic

ORDERS = (12, 8, 5)  # in time, tried one after the other for single points
STEPS_AT_A_POINT = 20_000  # at most
NOTHING = 1e-15  # of the sum of squared measurements: smaller differences are none


@dataclass
class Best:
    """The best parameters so far, and the cut that follows from them."""

    problem: Problem
    dynamic: Dynamic
    gap: float
    local: Estimator
    point: FloatArray = field(default_factory=lambda: np.zeros(0))
    objective: float = np.inf
    _search: Callable[[Mapping[str, float]], Estimate] | None = None

    def first(self, point: FloatArray) -> float:
        """The cut of the first parameters.

        raises  EstimationFailed if their solution cannot be enclosed
        """
        point = self.problem.box.clip(point)
        self.take(point, enclosed(self.dynamic, point))
        if not np.isfinite(self.objective):
            raise EstimationFailed(
                "The solution at the parameters to be proven the best could not be enclosed up to "
                "the last measurement; give parameters at which the model is not singular.",
                Status.INTEGRATION_BROKE,
            )
        return self.cut

    @property
    def cut(self) -> float:
        """What boxes must exceed."""
        courses = [run.course for run in self.dynamic.experiments]
        size = sum(float(((c.value * c.weight) ** 2).sum()) for c in courses)
        return self.objective - max(self.gap * self.objective, NOTHING * size)

    def better(self, middle: FloatArray) -> float | None:
        """The cut after a search from the middle of a promising box; None if it found no better."""
        if self._search is None:
            self._search = from_many_starts(self.local, self.problem)
        found = self._search(self.problem.box.mapping(middle))
        points = [middle]
        if found.status.usable and np.isfinite(found.objective):
            points.append(self.problem.box.clip(self.problem.box.vector(found.parameters)))
        before = self.objective
        for point in points:
            self.take(point, enclosed(self.dynamic, point))
        return self.cut if self.objective < before else None

    def take(self, point: FloatArray, objective: float) -> None:
        """The point, if it is better."""
        if objective < self.objective:
            self.point, self.objective = point, objective


def enclosed(dynamic: Dynamic, point: FloatArray) -> float:
    """Proven upper bound of the sum of squares at one point; infinite if there is none."""
    for order in ORDERS:
        enclosure = Enclosure(dynamic, degree=1, order=order, tolerance=0.0)
        found = enclosure.examine(point, point, np.inf, most=STEPS_AT_A_POINT)
        if found.rows == enclosure.size:
            sizes = np.maximum(np.abs(enclosure.rows.low), np.abs(enclosure.rows.high))
            return float((sizes**2).sum() * (1 + 1e-12))
    return np.inf
