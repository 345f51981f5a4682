"""Smoothing, integration and estimators that do something else than they are asked."""

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from house.planting import around, fault, given, method


@fault("test_smoothing_gcv_spline smoothing")
def penalty_factor_ignored() -> None:
    """The spline smooths as much as cross validation says, whatever factor is given."""

    def wrong(right: Any, smoother: Any, *arguments: Any, **named: Any) -> Any:
        return right(replace(smoother, penalty_factor=1.0), *arguments, **named)

    method("GcvSpline", "smooth", wrong)


@fault("test_smoothing_family smoothing")
def smoothing_without_sigma() -> None:
    """The spline ignores standard deviations."""
    method("GcvSpline", "smooth", given(sigma=lambda _: None))


@fault("test_smoothing_bootstrap smoothing")
def exact_values_smoothed() -> None:
    """The spline smooths values that are known without error."""
    method("GcvSpline", "smooth", given(exact=lambda _: None))


@fault("test_estimators_on_zoo test_single_shooting test_multistart")
def single_shooting_beyond_the_bounds() -> None:
    """Single shooting searches in a box twice as wide as the bounds."""

    def widened(problem: Any) -> Any:
        wide, box = copy(problem), problem.unknowns
        with np.errstate(invalid="ignore"):
            half = np.nan_to_num((box.upper - box.lower) / 2, posinf=0.0)
        low = np.where(np.isin(box.names, list(box.logarithmic)), box.lower, box.lower - half)
        wide.unknowns = replace(box, lower=low, upper=box.upper + half)
        return wide

    method("SingleShooting", "prepare", given(problem=widened))


@fault("test_problem test_single_shooting test_collocation")
def path_constraints_overlooked() -> None:
    """Methods that cannot keep inequalities over time do not see them."""
    method("Problem", "inequalities", lambda right, problem: frozenset())


@fault("petab")
def likelihood_without_its_constant() -> None:
    """The likelihood of a PEtab problem's measurements lacks the factor of 2 pi."""

    def wrong(right: Any, problem: Any, *arguments: Any, **named: Any) -> float:
        value: float = right(problem, *arguments, **named)
        return value - problem.size * np.log(2 * np.pi) / 2

    around("petab_objective", wrong)


@fault("test_read test_version2 petab")
def likelihood_without_priors() -> None:
    """The likelihood of a PEtab problem leaves out priors where they are asked for."""
    around("petab_objective", given(priors=lambda _: False))


@fault("test_global_solver test_estimate_form")
def gap_relative_to_the_bound() -> None:
    """The gap of an estimate is relative to its bound, not to its objective."""

    def wrong(right: Any, estimate: Any) -> float:
        objective, bound = estimate.objective, estimate.lower_bound
        return float((objective - bound) / max(abs(bound), 1e-12))

    method("Estimate", "gap", wrong)


@fault("test_incremental_shooting test_estimate_form")
def horizons_counted_in_full() -> None:
    """Equivalent iterations count those of a short horizon as those of the longest."""

    def wrong(right: Any, estimate: Any) -> float:
        return float(sum(h.iterations for h in (*estimate.trail, *estimate.elsewhere)))

    method("Estimate", "equivalent_iterations", wrong)
