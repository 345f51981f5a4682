"""The objective at given parameters by one accurate integration: the same for all.

Discretised objectives, and those of integrations with loose tolerances, do not count.
"""

from collections.abc import Mapping

import numpy as np

import igpe
from igpe.dynamics.shooting.residuals import measured_only
from igpe.equations.compiled import compiled

ACCURATE = igpe.integrators.Sundials(rtol=1e-10, atol=1e-12, max_steps=10**6)


class Judge:
    """Weighted sum of squares; for a problem with estimated deviations PEtab's likelihood."""

    def __init__(self, problem: igpe.Problem) -> None:
        self.problem = problem
        self._runs = []
        if problem.sigma_estimated or hasattr(problem.model, "nominal"):
            return
        for k, e in enumerate(problem.experiments):
            ivp = compiled(problem).initial_value_problem(k)
            m = measured_only(e.measurements)
            self._runs.append((ivp, m, ACCURATE.simulation(ivp, m.times, sensitivities=False)))

    def __call__(self, parameters: Mapping[str, float]) -> float:
        """The objective at the nearest point inside the bounds; infinite if there is none."""
        box = self.problem.box
        values = box.mapping(box.clip(box.vector(parameters)))
        if not self._runs:
            try:
                return igpe.petab.petab_objective(self.problem, values, priors=True)
            except igpe.errors.IgpeError:
                return np.inf
        total = 0.0
        for ivp, m, simulation in self._runs:
            course = simulation.run(np.array([values[n] for n in ivp.unknowns]))
            if not course.status.usable:
                return np.inf
            total += float(np.sum(((course.measured[m.row, m.column] - m.value) / m.sigma) ** 2))
        return total
