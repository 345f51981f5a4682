"""The last digits: from the optimum of the discretised equations to that of the exact ones.

Collocation ends where its mesh no longer moves the optimum by its tolerance; a few Gauss-Newton
steps on an accurate integration end at the optimum itself, and their last linearisation is what the
statistics need.
"""

from dataclasses import replace
from typing import NamedTuple

from igpe.dynamic.base import is_plain
from igpe.dynamic.residuals import Residuals
from igpe.equations.system import System
from igpe.estimates import Estimate
from igpe.integrators.base import Integrator
from igpe.least_squares.base import Linearised
from igpe.least_squares.gauss_newton import GaussNewton
from igpe.problem import Problem

SMALL = GaussNewton(radius=0.1, max_iterations=20)  # it is near: no step may lead elsewhere


class Polished(NamedTuple):
    """The estimate, and residuals and derivative there (None if it cannot be integrated)."""

    estimate: Estimate
    at: Linearised | None


def polish(
    problem: Problem, systems: tuple[System, ...], rough: Estimate, integrator: Integrator
) -> Polished:
    """The estimate at the optimum of the integrated model, if it is one without constraints."""
    residuals = Residuals(problem, systems, integrator)
    box = problem.box
    x = box.vector(rough.parameters)
    if not is_plain(problem) or len(box) == 0:
        return Polished(rough, residuals(x))
    fit = SMALL.fit(residuals, x, box)
    if fit.at is None:
        return Polished(rough, None)
    better = replace(rough, parameters=box.mapping(fit.x), objective=fit.cost)
    return Polished(better, fit.at)
