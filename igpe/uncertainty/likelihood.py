"""The likelihood of a problem around its estimate: compiled once, asked many times.

With standard deviations given, -2 log L = sum of squares + constant, and chi squared tells which
rise of it chance explains. Where they are unknown the rise is measured in s^2 = sum of squares /
degrees of freedom, and F tells (Bates & Watts, Nonlinear Regression Analysis, 1988, section 6.1):

    rise <= chi2(confidence, k)     or     rise <= s^2 k F(confidence, k, degrees)

for k unknowns held. Where the model is linear both are the usual normal and t intervals.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from igpe.core.arguments import FRACTION, is_finite, require, require_mapping
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.errors import EstimationFailed, IgpeError, ProblemError, Unsupported
from igpe.core.markup import bracketed, in_words
from igpe.core.status import Status
from igpe.dynamics.collocation.assembled import NONE, Assembled, parts
from igpe.dynamics.collocation.collocation import Collocation, refined_meshes
from igpe.dynamics.collocation.mesh import Radau
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.likelihood import allowed_rise, errors_at
from igpe.dynamics.shooting.base import constraints, refuse, require_plain
from igpe.dynamics.shooting.limits_of_model import violated
from igpe.dynamics.shooting.refine import require_inactive, search_beside
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.reweighting import fully_held_weights
from igpe.dynamics.shooting.single_shooting import SingleShooting, between_jumps
from igpe.dynamics.simulation import Simulated, profiles
from igpe.equations.compiled import compiled, require_smooth_and_normal
from igpe.numerics.covariance import Uncertainty
from igpe.numerics.least_squares.active import refitted_on_bounds
from igpe.numerics.least_squares.base import Linearised, Search
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.model import without_constraints
from igpe.problem.problem import Problem

FEW = 30  # iterations
FARTHEST = 4.0  # rise of the sum of squares, in variances, from the optimum to an estimate of it
ROUGHLY = 0.01  # relative difference of values that were rounded
UNFINISHED = {Status.ITERATION_LIMIT, Status.STALLED}
SHARE = 1e-2  # of bounds or value: a first step where nothing tells one
NEXT = 1e-8  # of bounds' width or value: an unknown so close to its bound lies on it
NEAR = (("mu_init", 1e-6), ("bound_push", 1e-8), ("bound_frac", 1e-8))
"""IPOPT's options for a start that is nearly the solution."""
MOST = 200  # results of an analysis that are looked at for constraints
BY_COLLOCATION = "For intervals with constraints, use igpe.profile(..., method=igpe.Collocation())."
NO_ESTIMATE = "{'k1': 0.5}, or an estimate that igpe.estimate or a method returned"
NO_ERRORS = (
    "There are at least as many unknowns as measurements, so the errors cannot be estimated. "
    "Specify standard deviations for the experiments: Experiment(sigma=...)."
)


@dataclass(frozen=True)
class Likelihood:
    """A problem compiled, and the optimum next to the estimate that was given.

    x, at      the free unknowns (n,), and residuals and derivative there
    errors     linearised
    smooth     bounds, which also keep from jumps of the objective beyond the allowed rise
    """

    problem: Problem
    residuals: Residuals
    search: Search
    x: FloatArray
    at: Linearised
    errors: Uncertainty
    smooth: Box

    @property
    def box(self) -> Box:
        """The free unknowns with their bounds."""
        return self.problem.box

    @property
    def switches(self) -> bool:
        """Whether events or conditions may make the objective jump."""
        return any(compiled(self.problem).switching)

    @property
    def held(self) -> BoolArray:
        """(n,) which unknowns lie on a bound at the optimum."""
        return self.errors.held


def likelihood(
    problem: Problem,
    estimate: Any,
    method: SingleShooting,
    owner: str,
    *,
    confidence: float = 0.95,
    deviations_too: bool = False,
) -> Likelihood:
    """Compile a problem and go to the optimum next to an estimate.

    estimate  a Result, an Estimate, or unknown -> value
    owner     the public function that needs it, for messages; it leaves constraints out
    deviations_too  whether standard deviations may be estimated; `at` has an offset then
    raises    ProblemError if it lacks an unknown or nothing is to be estimated, or the method
              is not single shooting; Unsupported if the problem is not plain least squares,
              EstimationFailed if it cannot be integrated there
    """
    if not isinstance(method, SingleShooting):
        others = " or igpe.Collocation()" * (owner == "igpe.profile")
        raise ProblemError(
            f"method is {type(method).__name__}; {owner} needs igpe.SingleShooting(){others}."
        )
    problem = problem.formed(without_constraints) if constraints(problem) else problem
    require_plain(problem, owner, constraints_too=False, losses_too=False, spectra_too=False)
    if not problem.loss.is_squares:
        raise Unsupported(
            f"{owner} supports only least squares; the problem has {type(problem.loss).__name__}. "
            "Use the standard errors and intervals in the result of igpe.estimate."
        )
    if problem.sigma_estimated and not deviations_too:
        raise Unsupported(
            f"{owner} does not support estimated standard deviations (igpe.EstimatedSigma). "
            "Use igpe.profile or igpe.predict, or give standard deviations as numbers."
        )
    values = values_of(problem, estimate)
    problem = fully_held_weights(problem, estimate or values, values)
    start = problem.box.clip(problem.box.vector(values))
    residuals = Residuals(problem, method.integrator)
    search = method.search
    if isinstance(search, GaussNewton):
        search = search_beside(problem, residuals, start, search)
    fit = search.fit(residuals, start, problem.box)
    fit = refitted_on_bounds(residuals, fit, problem.box, search)
    if fit.at is None:
        broken = residuals.broken
        reason = broken.sentence if broken else fit.status.value
        raise EstimationFailed(
            f"The model could not be integrated at the estimate. {reason} Give an estimate "
            "at which it can be integrated, or another integrator.",
            fit.status,
        )
    residuals.limit_steps(fit.x)
    errors = errors_at(problem, fit.x, fit.at, confidence)
    most = fit.cost + allowed_rise(errors, problem.sigma_known, confidence)
    smooth = between_jumps(residuals, fit.x, problem.box, most)
    return Likelihood(problem, residuals, method.search, fit.x, fit.at, errors, smooth)


def at_estimate(
    problem: Problem, estimate: Any, method: SingleShooting, owner: str, **more: Any
) -> Likelihood:
    """`likelihood`, where the optimum next to the estimate is the estimate.

    more    as of `likelihood`
    raises  ProblemError if it is another one, Unsupported if it violates constraints, and what
            `likelihood` raises
    """
    base = likelihood(problem, estimate, method, owner, **more)
    require_inactive(problem, base.x, owner, BY_COLLOCATION)
    require_estimate(base.problem, base.residuals, estimate, (base.x, base.errors), owner)
    return base


def left_out(problem: Problem, owner: str, of: str, points: Iterable[FloatArray]) -> Iterator[str]:
    """Sentences on the constraints that an analysis did not use, which are inactive.

    points  (n,) some of its results, called `of`
    """
    if not (names := constraints(problem)):
        return
    kept = bracketed(names)
    yield f"{owner} does not use the constraints {kept}, which are inactive at the estimate."
    every = np.array([*points])
    some = every[np.linspace(0, len(every) - 1, min(len(every), MOST)).round().astype(int)]
    with suppress(IgpeError):
        lost = violated(problem, *some)
        if count := sum(map(bool, lost)):
            yield (
                f"{count} of {len(some)} {of} that igpe looked at violate "
                f"{in_words(sorted(set[str]().union(*lost)))}. {BY_COLLOCATION}"
            )


def require_estimate(
    problem: Problem,
    residuals: Residuals,
    estimate: Any,
    optimum: tuple[FloatArray, Uncertainty],
    owner: str,
) -> None:
    """Raise ProblemError if the optimum next to an estimate is another one.

    As where a result is that of a problem with other data or inputs: its values differ by more than
    rounding, and the data all but exclude them. As well if a search ended before its optimum.

    optimum  the one next to it (n,), with its errors
    """
    status, box, (best, errors) = getattr(estimate, "status", None), problem.box, optimum
    x, variance = box.vector(values_of(problem, estimate)), errors.variance
    off = np.abs(x - best) / np.maximum(np.abs(x), np.abs(best) + (x == 0.0))
    k = int(np.argmax(off))
    if off[k] <= ROUGHLY or not np.isfinite(variance):
        return
    cost, least = residuals.cost(box.clip(x)), residuals.cost(best)
    if cost is not None and least is not None and cost - least <= FARTHEST * variance:
        return
    if isinstance(status, Status) and (status.is_early or status in UNFINISHED):
        raise ProblemError(
            f"{owner} needs an optimum, but the search for these values ended before it reached "
            f"one: at {box.names[k]} = {x[k]:.6g}, where the data give {best[k]:.6g}. Complete it: "
            "igpe.SingleShooting().estimate(problem, result.parameters)."
        )
    under = (
        "For other inputs, start values or events, pass the problem that has them as `under`: "
        "igpe.predict(problem, result, under=new_problem). igpe.simulate(problem, values) "
        "integrates the model at any values."
    )
    raise ProblemError(
        f"{owner} was given {box.names[k]} = {x[k]:.6g}, but the data of this problem "
        f"give {best[k]:.6g}, so the values are not an estimate of this problem. Pass the "
        "problem that was estimated and its result." + f" {under}" * (owner == "igpe.predict")
    )


def values_of(problem: Problem, estimate: Any) -> dict[str, float]:
    """Free unknown -> value, of whatever an estimation returned.

    raises ProblemError if it lacks an unknown, or a value is not a finite number
    """
    given = getattr(estimate, "parameters", estimate)
    require_mapping("The estimate", given, NO_ESTIMATE, ProblemError)
    names = problem.box.names
    if not names:
        raise ProblemError(
            "All unknowns of the problem are fixed, so there are no uncertainties; give a "
            "problem with free unknowns."
        )
    missing = [n for n in names if n not in given]
    if missing:
        raise ProblemError(
            f"The estimate has no value for {missing}; the problem's unknowns are {list(names)}. "
            "Give the result that igpe.estimate(problem) returns for this problem."
        )
    for name in names:
        ok = is_finite(given[name])
        require(ok, "the estimate", name, given[name], "a finite number")
    return {n: float(given[n]) for n in names}


def require_confidence(owner: str, confidence: Any) -> None:
    """Raise ProblemError unless it is a number between 0 and 1."""
    require(FRACTION.holds(confidence), owner, "confidence", confidence, FRACTION.expected)


def chosen(problem: Problem, names: Any) -> tuple[str, ...]:
    """The unknowns asked for, each once; all free ones if none are named.

    raises ProblemError for names that are no free unknowns
    """
    free = problem.box.names
    if names is None:
        return free
    given = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
    unknown_names = [n for n in given if n not in free]
    if unknown_names or not given:
        raise ProblemError(
            f"Unknown parameter names: {unknown_names or 'none given'}. The problem's free "
            f"unknowns are {list(free)}."
        )
    return given


def quick(base: Likelihood, absolute: float) -> Search:
    """Its search, ended where `absolute` (if it is a number) is all that is to be gained.

    Not with priors that have a kink: there Gauss-Newton takes many short steps away from the kink,
    and each of them promises far less than all together.
    """
    kinks = any(prior.has_kink for prior in base.problem.other_priors.values())
    if kinks or not np.isfinite(absolute):
        return base.search
    return replace(base.search, absolute=absolute)  # type: ignore[type-var]


def bending(search: Search) -> Search:
    """The search, learning curvature if it can: valleys that undetermined unknowns leave are bent.

    Gauss-Newton alone takes up to 100 steps along them (an activation energy and its factor). Where
    that does not end it soon, it began too far from the valley.
    """
    if not isinstance(search, GaussNewton):
        return search
    return replace(search, curvature=True, max_iterations=FEW)


def size_of(problem: Problem, x: FloatArray, i: int) -> float:
    """A first step of an unknown where no curvature tells one."""
    width = problem.box.upper[i] - problem.box.lower[i]
    return float(SHARE * (width if np.isfinite(width) else abs(x[i]) or 1.0))


LOST = (
    "Collocation found no optimum near the estimate: {}. Give the estimate that "
    "igpe.Collocation().estimate(problem, ...) returns."
)


@dataclass(frozen=True)
class Collocated:
    """A compiled program at its optimum.

    x, cost    unknowns (n,) and sum of squares there
    values     of all variables there
    """

    problem: Problem
    program: Assembled
    x: FloatArray
    cost: float
    values: FloatArray

    def solved(self, start: FloatArray, held: Mapping[int, float] = NONE) -> float | None:
        """Sum of squares after a solve from a start of all variables; None if it failed.

        held  place of an unknown -> the value that it keeps
        """
        self.program.values = start.copy()
        answer = self.program.solve(held=held)
        return answer.objective if answer.status is Status.CONVERGED else None

    def freed(self, start: FloatArray) -> tuple[FloatArray, float] | None:
        """Unknowns and sum of squares of the optimum next to a start; None if the solve failed."""
        cost = self.solved(start)
        return None if cost is None else (unknowns_in(self.program), cost)


def require_collocated(problem: Problem, method: Collocation, estimate: Any) -> None:
    """Raise ProblemError if collocation ends at another estimate; see `require_estimate`."""
    x = collocated(problem, method, values_of(problem, estimate)).x
    residuals = Residuals(problem, Automatic())
    errors = errors_at(problem, x, residuals(x))
    require_estimate(problem, residuals, estimate, (x, errors), "igpe.profile")


def collocated(problem: Problem, method: Collocation, start: Mapping[str, float]) -> Collocated:
    """Build the program and go to its optimum next to the start.

    raises Unsupported if the problem is not least squares;
           EstimationFailed if there is no optimum to be found
    """
    owner = "The profile likelihood by collocation"
    require_plain(problem, owner, constraints_too=False)
    refuse(problem, owner, "estimated sigma", "censored", "correlated")
    require_smooth_and_normal(problem, owner)
    guesses = profiles(Simulated(problem, Automatic(), start), [{}] * len(problem.experiments))
    if not (meshes := refined_meshes(method, problem, start, guesses)):
        raise EstimationFailed(LOST.format("the estimate itself cannot be refined"), Status.FAILED)
    program = Assembled(problem, parts(problem, Radau(method.points)), meshes)
    program.begin(start, guesses)
    solver = replace(method.solver, options=(*NEAR, *method.solver.options))
    program.prepare(solver, [start])
    answer = program.solve()
    if answer.status is not Status.CONVERGED:
        raise EstimationFailed(LOST.format(answer.message), answer.status)
    return Collocated(problem, program, unknowns_in(program), answer.objective, program.values)


def unknowns_in(program: Assembled) -> FloatArray:
    """(n,) unknowns; where an interior point method stays next to a bound, it means the bound."""
    box = program.problem.box
    x = box.vector(program.parameters())
    for bound in (box.lower, box.upper):
        width = np.where(np.isfinite(box.upper - box.lower), box.upper - box.lower, 0.0)
        x = np.where(abs(x - bound) <= NEXT * np.maximum(abs(x), width), bound, x)
    return np.asarray(x)
