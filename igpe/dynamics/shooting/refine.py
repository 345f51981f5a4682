"""From the optimum of the discretised equations to that of the exact ones.

Collocation ends where its mesh no longer moves the optimum by its tolerance; a few Gauss-Newton
steps on an accurate integration end at the optimum itself, and their last linearisation is what the
statistics need. Where integration and collocation disagree, shooting goes on from there, and a note
says so.

Collocation may also fail where states die out over hundreds of decades. An accurate integration is
the judge: a candidate that it refutes, or that ends above where it began, is fitted by single
shooting. Where even the start cannot be integrated, multiple shooting begins with the smoothed
measurements.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import IgpeError, Unsupported
from igpe.core.estimates import Estimate
from igpe.core.markup import in_words
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.base import (
    Profile,
    constraints,
    is_explained,
    is_plain,
    minimises_squares,
    objective_at,
)
from igpe.dynamics.shooting.limits_of_model import passed_bounds, violated
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.tangent import tangent
from igpe.equations.undefined import undefined_at_start
from igpe.numerics.least_squares.active import beside_bounds, refitted_on_bounds
from igpe.numerics.least_squares.base import Fit, Linearised
from igpe.numerics.least_squares.gauss_newton import GaussNewton, GaussNewtonInBlocks
from igpe.problem.problem import Problem

SEARCH = GaussNewton(radius=0.1, max_iterations=300)
MANY = 50  # unknowns; 300 iterations of fewer take seconds
FEW = 10  # steps by CVODES, after which the model is compiled
WORSE = 1.0  # relative rise of the objective above another candidate's that is far worse
AGREE = 1e-2  # relative difference of the two sums of squares that is discretisation error
ROUNDING = 1e-6  # of the sum of squares: a rise that is none, where values are put on bounds
FLOOR = 1e-9  # of the data's own sum of squares: below it both are rounding
MESH = 1e-6  # of the same: below it a rise of the objective may be an error of a mesh


class Refined(NamedTuple):
    """The estimate, residuals and derivative there (None if it cannot be integrated), and notes.

    polished  False if igpe did not search for the optimum of the integrated model
    """

    estimate: Estimate
    at: Linearised | None
    notes: tuple[str, ...] = ()
    polished: bool = True


def refine(
    problem: Problem, residuals: Residuals, rough: Estimate, known: float = np.inf
) -> Refined:
    """The optimum of the integrated model next to the corrected one.

    residuals  accurately integrated
    known      objective of another candidate: values that are far worse are only integrated

    Where the two disagree the integrated model is right, if shooting can follow it.
    """
    at = residuals(problem.box.vector(rough.parameters))
    if at is None:
        why = _lost(problem, residuals, rough.parameters)
        lost = f"The model could not be integrated at the estimate.{why}"
        refined = Refined(rough, None, (lost,))
    elif not len(problem.box):
        objective = objective_at(problem, at)
        done = replace(rough, status=Status.NOTHING_TO_DO, objective=objective)
        refined = Refined(done, at)
    elif objective_at(problem, at) - known > WORSE * abs(known) + _floor(problem):
        refined = Refined(rough, at, polished=False)
    else:
        refined = _refine(problem, residuals, rough, at)
    return refined._replace(notes=(*refined.notes, *residuals.manner))


def _lost(problem: Problem, residuals: Residuals, values: Mapping[str, float]) -> str:
    """Why the problem could not be integrated at these values."""
    broken = residuals.broken
    if broken is None:
        return ""
    names = [e.name for e in problem.experiments]
    at_start = ""
    if broken.experiment in names:
        at_start = undefined_at_start(problem, names.index(broken.experiment), values)
    return f" {broken.sentence}{at_start}"


def _refine(problem: Problem, residuals: Residuals, rough: Estimate, at: Linearised) -> Refined:
    box = problem.box
    x = box.vector(rough.parameters)
    fit, is_shot = Fit(x, at, rough.status, 0), is_plain(problem)
    if is_shot:
        search = search_beside(problem, residuals, x, SEARCH, at)
        near = _fitted(problem, residuals, x, search)
        fit = refitted_on_bounds(residuals, near, box, search)
    passed = (
        [] if fit.at is None or not is_shot else passed_bounds(problem, residuals.integrator, fit.x)
    )
    own = objective_at(problem, at)
    objective = np.inf if fit.at is None else objective_at(problem, fit.at)
    estimate = replace(rough, parameters=box.mapping(fit.x), objective=objective)
    level = rough.objective + AGREE * abs(rough.objective) + _floor(problem)
    # Integration may keep what collocation promised, if at a slightly other place.
    as_good = fit.at is not None and objective <= level
    if np.isfinite(rough.objective) and not (_agree(problem, rough.objective, own) or as_good):
        difference = (
            f"Step 5 ends at an objective of {rough.objective:.6g}, but an accurate "
            f"integration of the same estimate gives {own:.6g}: the mesh is too coarse, or the "
            "model is unstable."
        )
        if not is_plain(problem) or fit.at is None or passed:
            note = f"{difference} Look at the plot before you trust either value."
            return Refined(rough, at, (note,))
        end = replace(estimate, status=fit.status, method=f"single shooting after {rough.method}")
        note = f"Single shooting completed the estimation; the objective is now {objective:.6g}."
        return Refined(end, fit.at, (f"{difference} {note}",))
    if fit.at is None or fit.cost > at.cost + ROUNDING * abs(at.cost):
        return Refined(rough, at)
    if passed:
        note = (
            f"Without bounds, the best fit leaves the bounds of {', '.join(passed)}; the estimate "
            "satisfies them."
        )
        return Refined(_held(problem, rough, at), at, (note,))
    if not is_shot:
        estimate = _held(problem, estimate, at)
    if rough.status is Status.ITERATION_LIMIT and fit.status is Status.CONVERGED:
        # meshes were too coarse, the integrator is not
        estimate = replace(estimate, status=fit.status)
    return Refined(estimate, fit.at)


def may_creep(problem: Problem, at: Linearised) -> bool:
    """Whether a search may hardly gain anything for long: of many unknowns, errors explaining all.

    at  residuals at a point
    """
    return len(problem.box) >= MANY and is_explained(problem, at)


def search_beside(
    problem: Problem,
    residuals: Residuals,
    x: FloatArray,
    search: GaussNewton,
    at: Linearised | None = None,
) -> GaussNewton:
    """The search for the optimum beside x (n,), in blocks where it may creep for long.

    at  residuals there, if they are known
    """
    if at is None and len(problem.box) >= MANY:
        at = residuals(x)
    creeps = at is not None and may_creep(problem, at)
    return GaussNewtonInBlocks(**vars(search)) if creeps else search


def _held(problem: Problem, estimate: Estimate, at: Linearised) -> Estimate:
    """The estimate, which is an optimum if active constraints or bounds of states make it one.

    Where one is active, the mesh moves the optimum by more than collocation's tolerance.
    """
    if estimate.status is not Status.ITERATION_LIMIT:
        return estimate
    is_optimum = tangent(problem, problem.box.vector(estimate.parameters), at).active
    return replace(estimate, status=Status.CONVERGED) if is_optimum else estimate


def _fitted(problem: Problem, residuals: Residuals, x: FloatArray, search: GaussNewton) -> Fit:
    """The optimum next to x (n,). Faster integrations bring the search near to it.

    CVODES does only the first and the last steps: compiled code takes a tenth of its time.
    """
    exact, most = residuals.integrator, search.max_iterations
    few = replace(search, max_iterations=min(FEW, most))
    if isinstance(exact, Sundials):
        start = few.fit(residuals, x, problem.box)
        if start.status is not Status.ITERATION_LIMIT:
            return start
        quick = Residuals(problem, Automatic(exact.rtol, exact.atol))
        quick.calls, quick.work = residuals.calls, residuals.work
        quick.most_work = residuals.most_work
        near = _fitted(problem, quick, start.x, search)
        search = few if near.status is Status.ITERATION_LIMIT else search
    else:
        start = Fit(x, residuals(x), Status.ITERATION_LIMIT, 0)
        quick = residuals.rougher()
        near = search.fit(quick, x, problem.box)
    residuals.calls, residuals.work = quick.calls, quick.work
    there = residuals(near.x)
    is_better = there is not None and start.at is not None and there.cost < start.at.cost
    return search.fit(residuals, near.x if is_better else start.x, problem.box)


def put_on_bounds(problem: Problem, estimate: Estimate) -> Estimate:
    """The estimate with values beside bounds on them, where an accurate integration fits as well.

    An interior-point method ends beside a bound; what integration refutes is left as it is.
    """
    x, box = problem.box.vector(estimate.parameters), problem.box
    is_judged = is_plain(problem) and estimate.status.usable and np.isfinite(estimate.objective)
    if not (is_judged and minimises_squares(problem)) or not beside_bounds(x, box).any():
        return estimate
    residuals = Residuals(problem, Sundials())
    at = residuals(x)
    if at is None or not _agree(problem, estimate.objective, at.cost):
        return estimate
    fit = refitted_on_bounds(residuals, Fit(x, at, estimate.status, 0), box, SEARCH)
    if (fit.x == x).all() or passed_bounds(problem, residuals.integrator, fit.x):
        return estimate
    return replace(estimate, parameters=box.mapping(fit.x), objective=fit.cost)


def _agree(problem: Problem, collocated: float, integrated: float) -> bool:
    size = max(abs(collocated), abs(integrated))
    return abs(collocated - integrated) <= AGREE * size + _floor(problem)


def is_above(problem: Problem, objective: float, least: float) -> bool:
    """Whether an objective on a mesh is above an integrated one by more than errors of the mesh."""
    return not objective <= least + AGREE * abs(least) + _floor(problem, MESH)


def _floor(problem: Problem, share: float = FLOOR) -> float:
    data = [m.value / m.sigma for m in (e.measurements for e in problem.experiments)]
    return share * sum(float(v @ v) for v in data)


def require_inactive(problem: Problem, x: FloatArray, owner: str, remedy: str) -> None:
    """Raise Unsupported if the optimum x (n,) of a search without constraints violates some.

    Bounds of variables over time are such constraints too.
    remedy  a sentence on what to do then
    """
    lost = sorted(violated(problem, x)[0]) if constraints(problem) else []
    lost += [f"the bounds of {n}" for n in passed_bounds(problem, Automatic(), x)]
    if lost:
        raise Unsupported(
            f"{owner} uses neither constraints nor bounds of variables over time, and the optimum "
            f"without them violates {in_words(lost)}. {remedy}"
        )


CORRECTION_SEARCH = GaussNewton(max_iterations=50)
SECONDS = 20.0  # of multiple shooting, which is tried last
MOST = 3  # candidates that are shot
MATTERS = 1e-6  # relative difference of sums of squares
AS_THEY_ARE = (
    "Shooting could not improve the values of steps 3 and 4. The result contains these values, "
    "which may not be an optimum."
)


class Uncorrected(NamedTuple):
    """A candidate before step 5.

    objective  its sum of squares there, NaN where nothing was integrated
    profiles   of each experiment, with which multiple shooting begins
    """

    parameters: Mapping[str, float]
    objective: float
    profiles: Sequence[Profile]


class ShootingEnd(NamedTuple):
    """Where shooting ended, and by which method: "no method" if nothing improved on the start.

    at_start  the sum of squares there
    """

    fit: Fit
    method: str
    at_start: float


def _shot(residuals: Residuals, problem: Problem, before: Uncorrected) -> ShootingEnd | None:
    """Shoot from a candidate, by the first method that improves on it.

    returns    None if neither the start nor any end can be integrated
    """
    box = problem.box
    x = box.clip(box.vector(before.parameters))
    at = residuals(x)
    at_start = np.inf if at is None else at.cost
    if at is not None:
        fit = _fitted(problem, residuals, x, CORRECTION_SEARCH)
        if fit.at is not None and (fit.cost < at.cost or fit.status is Status.CONVERGED):
            return ShootingEnd(fit, "single shooting", at_start)
    end = _by_multiple(residuals, problem, before)
    if end is not None and end.cost < at_start:
        return ShootingEnd(end, "multiple shooting", at_start)
    if at is None:
        return None
    return ShootingEnd(Fit(x, at, Status.STALLED, 0), "no method", at_start)


def _by_multiple(residuals: Residuals, problem: Problem, before: Uncorrected) -> Fit | None:
    method = MultipleShooting(restarts=Restarts(count=0), time_limit=SECONDS)
    try:
        estimate = method.estimate(problem, before.parameters, before.profiles)
    except IgpeError:
        return None
    if not estimate.status.usable:
        return None
    x = problem.box.vector(estimate.parameters)
    fit = _fitted(problem, residuals, x, CORRECTION_SEARCH)
    return None if fit.at is None else fit


def by_shooting(
    problem: Problem, residuals: Residuals, candidates: Sequence[Uncorrected], best: Refined | None
) -> tuple[int, Refined] | None:
    """The number of the candidate that shooting brings below the best one, and where it ends.

    Shot are those that are better before step 5 than the best after it, the best first. The first
    candidate, which collocation says is the best, and those whose sum of squares is known to be
    less, are integrated; all if collocation has no answer.

    residuals  accurately integrated
    best       what collocation has; None if it has no answer
    returns    None if collocation's answer is the best; or nothing can be integrated
    """
    box, cost = problem.box, np.inf if best is None or best.at is None else best.at.cost
    before = []
    for k, one in enumerate(candidates):
        if np.isinf(cost) or k == 0 or one.objective < cost:
            at = residuals(box.clip(box.vector(one.parameters)))
            before.append((np.inf if at is None else at.cost, k))
    better = [k for at, k in sorted(before) if np.isinf(cost) or at < cost - MATTERS * abs(cost)]
    ends = [(k, _shot(residuals, problem, candidates[k])) for k in better[:MOST]]
    able = [
        (k, e) for k, e in ends if e and not passed_bounds(problem, residuals.integrator, e.fit.x)
    ]
    k, end = min(able, key=lambda pair: pair[1].fit.cost, default=(0, None))
    if end is None or not end.fit.cost < cost:
        return None
    why = "Step 5: the correction gave no result."
    if np.isfinite(cost):
        why = (
            f"Step 5: the correction ends at an objective of {cost:.6g} (by accurate integration). "
            f"This objective is above the objective {end.at_start:.6g} of an earlier candidate."
        )
    estimate = Estimate(
        box.mapping(end.fit.x),
        np.inf if end.fit.at is None else objective_at(problem, end.fit.at),
        end.fit.status,
        f"{end.method}, starting at the values of step 4",
        iterations=end.fit.steps,
    )
    note = f"{end.method[:1].upper()}{end.method[1:]} completed the estimation."
    note = AS_THEY_ARE if end.method == "no method" else note
    return k, Refined(estimate, end.fit.at, (f"{why} {note}",))
