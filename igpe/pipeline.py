"""Incremental global parameter estimation: the five steps of the paper, top-down."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from igpe.algebraic.step import (
    Algebraic,
    estimate_algebraic,
    series_of,
    smooth_measurements,
)
from igpe.core.arguments import POSITIVE, is_count, or_none, require
from igpe.core.deadline import (
    Deadline,
    ended_by,
    finishing,
    if_in_time,
    in_call,
    interruptible,
    require_going_on,
    session,
    stopped,
    waited,
)
from igpe.core.errors import EstimationFailed, Unsupported
from igpe.core.estimates import Estimate
from igpe.core.progress import Progress, teller, with_bar
from igpe.core.status import Clock, Status
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.search.complement import (
    ComplementJob,
    complements,
    corrections,
    roughly,
    searches_everywhere,
)
from igpe.dynamics.shooting.base import (
    Profile,
    beside_constraints,
    constraints,
    estimate_each,
    is_plain,
    objective_at,
    require_plain,
    require_spectra,
)
from igpe.dynamics.shooting.limits_of_model import passed_bounds
from igpe.dynamics.shooting.refine import (
    Refined,
    Uncorrected,
    by_shooting,
    refine,
)
from igpe.dynamics.shooting.residuals import FINISH, Residuals
from igpe.dynamics.shooting.reweighting import Reweighted, first_weighted, iterate_weights
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import Simulated, profiles
from igpe.equations.compiled import require_outputs_at_start
from igpe.equations.undefined import require_slopes_at_start, undefined_at_starts
from igpe.estimation.equally_good import (
    with_other_optima,
    with_own_weights,
    with_proof,
    with_refusal,
    with_unasked_proof,
)
from igpe.estimation.further_searches import (
    LADDER,
    climbed,
    coarse_grid,
    few_agree,
    searched_for,
    was_searched_everywhere,
    with_grid_error,
    with_incremental_shooting,
)
from igpe.estimation.profiled import with_profiles, with_stop
from igpe.estimation.relaxation import UNCONSTRAINED, beside, by_relaxation, from_free
from igpe.estimation.settings import CandidatePath, Settings, Steps, known_objective
from igpe.estimation.summary import summarise
from igpe.problem.problem import Problem, takes_problem
from igpe.results.residual_table import ALARM, clear_failures
from igpe.results.result import Result
from igpe.structure.identifiability import MOST_WORK, Access
from igpe.structure.spectral import analyse_any
from igpe.structure.structure import Structure, tied
from igpe.tasks.run import Backend, Workers
from igpe.uncertainty.adequacy import NO_OPTIMUM

UNCORRECTED = (
    "The estimate was interrupted before step 5, so these are the values of steps 3 and 4; "
    "errors and intervals are only a rough indication."
)
CUT_SHORT = (
    "The estimate was interrupted in step 5: the values are the best so far and may not be an "
    "optimum; errors and intervals are only a rough indication."
)
LATE = 2.0  # s after an interrupt: an answer that comes later says why
SLOW = (
    "The result came {:.1f} s after the interrupt, because igpe still had to integrate the model "
    "and to compute errors and tables."
)
CONTENDS = 2.0  # times the best objective, up to which a candidate may be the best by new weights
ENDING = 0.5  # s after which an interrupted call integrates no further candidate


@takes_problem
@with_bar
def estimate(
    problem: Problem,
    settings: Settings | None = None,
    *,
    seed: int | None = None,
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress = None,
    certify: bool | Literal["auto"] = "auto",
    time_limit: float | None = None,
) -> Result:
    """Estimate the unknowns in five steps (Michalik, Chachuat & Marquardt 2009, Fig. 1).

    settings  methods to use in the five steps
    seed      seed of all random choices; the same seed gives the same result
    executor, store, timeout   as for `igpe.campaign`; igpe uses them when step 4 processes the
                               candidates from step 3; `timeout` limits each candidate, and
                               `time_limit` limits the whole call
    progress  a function that receives a message at the beginning of each step; None: a progress
              bar, but only in notebooks; True: a progress bar in notebooks and terminals; False:
              nothing
    certify   whether to run `igpe.certify` after the fit; `Result.proof` contains the proof.
              "auto": run it for about ten seconds, but only if the problem has at most four
              unknowns, finite bounds and fewer than 40 states; True: run it for at most a minute,
              and add a note if there is no proof; False: do not run it
    time_limit  limit on the wall time of the whole call, in seconds. At the limit, igpe returns the
                best estimate so far (`stopped_by` TIME_LIMIT). None: no limit
    raises    ModelError if the equations cannot be read, ProblemError if bounds are missing,
              Unsupported if no step supports the problem, EstimationFailed if no candidate could be
              fitted before the time limit

    On Ctrl-C, igpe returns the best estimate so far, if there is one (`stopped_by` INTERRUPTED).
    """
    ok = or_none(POSITIVE).holds(time_limit)
    require(ok, "estimate", "time_limit", time_limit, "seconds above 0, or None")
    is_seed = seed is None or is_count(seed)
    require(is_seed, "estimate", "seed", seed, "a whole number, 0 or more")
    known = certify == "auto" or isinstance(certify, bool)
    require(known, "estimate", "certify", certify, "True, False or 'auto'")
    if certify == "auto" and in_call():  # a part of another call
        certify = False
    is_settings = isinstance(settings, Settings | None)
    wanted = "igpe.Settings(...) or None (give measurements in igpe.Experiment(data))"
    require(is_settings, "estimate", "settings", settings, wanted)
    clock, backend = Clock(teller(progress)), Backend(executor, store, timeout)
    with session(time_limit) as now:
        try:
            with_settings = partial(_estimate, settings=settings, seed=seed, certify=certify)
            return by_relaxation(problem, partial(with_settings, backend=backend, clock=clock))
        except KeyboardInterrupt:
            if now.status is not Status.TIME_LIMIT or time_limit is None:
                raise
            raise EstimationFailed(
                f"The time limit of {time_limit:g} s was reached before any parameters were "
                "estimated. Increase the limit: time_limit=...",
                Status.TIME_LIMIT,
            ) from None


def _estimate(
    problem: Problem,
    free: Result | None,
    is_accepted: Callable[[Result], bool],
    *,
    settings: Settings | None,
    seed: int | None,
    backend: Backend,
    clock: Clock,
    certify: bool | Literal["auto"],
) -> Result:
    """The five steps.

    free  the result without constraints, from which step 5 begins too
    is_accepted  whether profiles and a proof of a result are of use
    raises   KeyboardInterrupt if it comes before there is an answer
    """
    settings = settings or Settings()
    settings = (settings if seed is None else settings.seeded(seed)).suited(problem)
    _require_supported(problem)
    given, problem = problem, first_weighted(problem)
    with clock.step("1 smoothing", "Step 1: smoothing the measurements"):
        series = series_of(problem)
        ladder = [smooth_measurements(problem, one, series) for one in settings.ladder]
    with clock.step("2 structure", "Step 2: finding unknowns that can be estimated algebraically"):
        structure = analyse_any(problem)
        problem = _without_unreachable(problem, structure)
    with clock.step("3 algebraic", "Step 3: global algebraic estimation"):
        methods = settings.routes, settings.weights
        algebraic = estimate_algebraic(problem, structure, ladder, *methods)
    with clock.step("4 complement", "Step 4: estimating the remaining unknowns by integration"):
        started = _complemented(problem, algebraic, settings, backend, free)
    with clock.step("5 correction", "Step 5: simultaneous correction"):
        reweighted = _reweighted(problem, given, started, settings)
        paths, best = _last(reweighted)
    done = ladder, structure, algebraic[0], paths, best, clock.seconds
    steps = Steps(reweighted.problem, *done, given=given if given.weights_follow_fit else None)
    steps, result = _concluded(steps, settings, clock)
    if not is_accepted(result):
        return result
    result = with_profiles(steps, settings, result, clock)
    result = with_grid_error(steps, settings, result, clock)
    if certify and not (stopped() or result.active):
        prove = with_unasked_proof if certify == "auto" else with_proof
        result = prove(steps, settings, result, clock)
    return with_stop(with_refusal(steps, result, given))


def _require_supported(problem: Problem) -> None:
    """Raise Unsupported for what no estimate is made of, ProblemError for outputs without value."""
    require_plain(
        problem, "igpe.estimate", constraints_too=False, losses_too=False, spectra_too=False
    )
    require_spectra(problem)
    if problem.sigma_estimated and constraints(problem):
        raise Unsupported(
            f"igpe.estimate cannot enforce the constraints {constraints(problem)} if standard "
            "deviations are estimated (igpe.EstimatedSigma). Give standard deviations as numbers, "
            "or remove these constraints or bounds from the model."
        )
    if problem.is_censored and not is_plain(problem):
        raise Unsupported(
            "igpe.estimate supports neither constraints nor unknowns that vary with time if values "
            "are below a limit of detection (igpe.losses.Censored). Deactivate the constraints, or "
            "omit the quantity with such values."
        )
    if why := beside_constraints(problem):
        raise Unsupported(why)
    require_slopes_at_start(problem)
    require_outputs_at_start(problem)


def _concluded(steps: Steps, settings: Settings, clock: Clock) -> tuple[Steps, Result]:
    """The result with other optima, after a further search where the data refute the fit.

    A fit that is refuted after a search everywhere explains nothing: it has no other optima.
    """
    is_refuted = False
    if was_searched_everywhere(steps, settings):
        steps = steps._replace(several=())  # without a search for them they are of no use
        result = _summarised(steps, settings, clock)
        is_refuted = _is_refuted(result)
    if not is_refuted:
        steps = _with_other_optima(steps, settings, clock)
        result = _summarised(steps, settings, clock)
    if _is_unacceptable(steps, result):
        steps, result = _searched_again(steps, result, settings, clock)
    if (late := waited()) > LATE:
        result = replace(result, notes=(*result.notes, SLOW.format(late)))
    return steps, result


def _summarised(steps: Steps, settings: Settings, clock: Clock) -> Result:
    with clock.step("statistics", "Statistics of the fit"), finishing():
        return summarise(steps, settings)


def _searched_again(
    steps: Steps, result: Result, settings: Settings, clock: Clock
) -> tuple[Steps, Result]:
    """Climb further rungs until the data no longer refute the fit; none where a grid misfits."""
    if result.active:  # what holds the optimum is the cause, and most searches do not keep it
        return steps, result
    if grid := if_in_time(lambda: coarse_grid(steps, settings)):
        odd = clear_failures(result.residual_tests())  # which may well be right
        return steps, replace(result, actions=(grid, *(a for a in result.actions if a not in odd)))
    for search in LADDER:
        if not _is_unacceptable(steps, result) or stopped():
            break
        with clock.step("further search", "No acceptable fit yet: searching from other starts"):
            further, note = climbed(search, steps, settings)
            further = with_own_weights(further, settings)
        if further is not steps:
            steps = further
            result = _summarised(steps, settings, clock)
        result = replace(result, notes=(*result.notes, *[note] * bool(note)))
    return steps, result


def _is_unacceptable(steps: Steps, result: Result) -> bool:
    stuck = result.adequacy is not None and NO_OPTIMUM in result.adequacy.reasons
    stuck = stuck and result.probability < ALARM and not result.status.is_early
    return _is_refuted(result) or stuck or steps.best.at is None


def _is_refuted(result: Result) -> bool:
    return result.adequacy is not None and result.adequacy.lacks


def _with_other_optima(steps: Steps, settings: Settings, clock: Clock) -> Steps:
    if stopped():
        return steps
    if few_agree(steps, settings):
        with clock.step("more starts", "Incremental shooting, because few candidates agree"):
            steps = with_incremental_shooting(steps, settings)
    with clock.step("other optima", "Other optima that explain the data equally well"):
        return with_own_weights(with_other_optima(steps, settings), settings)


@takes_problem
def check(problem: Problem, *, identifiability: bool | None = None) -> Structure:
    """Run only step 2: report which unknowns can be estimated, and why the others cannot.

    problem          the problem; igpe checks it but does not fit it
    identifiability  whether to test structural identifiability with an exact rank test, or with
                     numerical integrations if no exact test is possible; None: only if the test
                     is fast; True: always
    raises           ModelError if the equations cannot be read
    """
    most_work = {None: MOST_WORK, True: np.inf, False: 0.0}[identifiability]
    return analyse_any(problem, most_work=most_work)


def _without_unreachable(problem: Problem, structure: Structure) -> Problem:
    """Hold what nothing measured depends on: at its prior's mean, or amid its bounds."""
    kept = tied(problem)  # a constraint may tie them to what is measured
    lost = problem.box.select(n for n in structure.names(Access.UNREACHABLE) if n not in kept)
    if not len(lost):
        return problem
    if len(lost) == len(problem.box):
        raise EstimationFailed(f"Nothing can be estimated.\n{structure}", Status.UNDETERMINED)
    means = {n: prior.mean for n, prior in problem.priors.items() if n in lost.names}
    return problem.fixing(lost.mapping(lost.middle) | means)


class Complemented(NamedTuple):
    """Step 4: all candidates, and whether it was interrupted."""

    paths: list[CandidatePath]
    stopped: bool


def _complemented(
    problem: Problem,
    algebraic: Sequence[Algebraic],
    settings: Settings,
    backend: Backend,
    free: Result | None,
) -> Complemented:
    """Every candidate after step 4, and `free`; those that are done, if it was interrupted.

    raises KeyboardInterrupt if none is, and the model cannot be integrated at what is there
    """
    if free is not None and (near := beside(problem, free, settings)) is not None:
        return Complemented([from_free(algebraic[0], near)], stopped())
    job = ComplementJob(searched_for(problem), settings.complement)
    try:
        require_going_on()
        with interruptible():
            complete = complements(job, [a.parameters for a in algebraic], backend)
            if problem.has_spectra:  # its sentences are about singular vectors
                complete = [None if c is None else replace(c, notes=()) for c in complete]
    except KeyboardInterrupt:
        complete = [roughly(problem, algebraic[0].parameters), *[None] * (len(algebraic) - 1)]
    pairs = zip(algebraic, complete, strict=True)
    paths = [CandidatePath(a, c, c) for a, c in pairs if c is not None]
    is_cut = len(paths) < len(algebraic) or paths[-1].complete.status is Status.INTERRUPTED
    if problem.has_spectra and not is_cut:
        paths = [end for path in paths for end in _ends(path)]
    if free is not None:
        values = problem.box.mapping(problem.box.middle) | free.parameters
        start = Estimate(values, np.nan, Status.NOTHING_TO_DO, UNCONSTRAINED)
        paths.insert(0, from_free(algebraic[0], start))  # collocation's mesh is for the first
    return Complemented(paths, is_cut or stopped())


def _ends(path: CandidatePath) -> Iterator[CandidatePath]:
    """The candidate, and one for each other optimum that its search met.

    Of spectra that search knows neither signs nor digits beyond the singular vectors: what is best
    there need not be best by the exact residuals.
    """
    yield path
    for end in path.complete.trail:
        if isinstance(end, Estimate) and end.status.usable:
            own = replace(path.algebraic)  # step 5 tells candidates apart by identity
            yield CandidatePath(own, end, end)


class Fitted(NamedTuple):
    """Step 5: all candidates, best first, and the best one refined."""

    paths: list[CandidatePath]
    best: Refined


def _reweighted(
    problem: Problem, given: Problem, started: Complemented, settings: Settings
) -> Reweighted[Fitted]:
    """Step 5, repeated until standard deviations that follow the model are those of the fit."""

    def fit(weighted: Problem, before: Fitted | None, moved: float) -> Fitted:
        if started.stopped:
            return _cut_short(weighted, started.paths, settings)
        return _fitted(weighted, started.paths, before, settings)

    return iterate_weights(
        problem,
        given.fixing(problem.fixed),
        fit,
        lambda fitted: fitted.best.estimate,
        integrator=settings.integrator,
    )


def _last(found: Reweighted[Fitted]) -> tuple[list[CandidatePath], Refined]:
    """The last fit with all notes, and with the status of what ended the call, if anything did."""
    paths, best = found.fits[-1]
    best = best._replace(notes=(*best.notes, *found.notes))
    if not stopped():
        return paths, best
    ended = replace(best.estimate, status=ended_by())
    return [paths[0]._replace(corrected=ended), *paths[1:]], best._replace(estimate=ended)


def _fitted(
    problem: Problem, started: Sequence[CandidatePath], before: Fitted | None, settings: Settings
) -> Fitted:
    """Correct the candidates from where they were `before`, at first as step 4 left them."""
    current, others = (started, []) if before is None else _contenders(problem, before.paths)
    begun = {id(path.algebraic): path.corrected for path in current}
    residuals = None
    try:
        require_going_on()
        with interruptible():
            residuals = Residuals(problem, settings.integrator)
            if before is not None or not _was_accurate(problem, current, settings):
                current = _corrected(problem, current, settings)
            fitted = _refined_best(problem, current, residuals, begun, settings)
            ends = {id(path.algebraic): path.corrected for path in fitted.paths}
            idle = [p._replace(corrected=ends.get(id(leader), p.corrected)) for p, leader in others]
            return fitted._replace(paths=[*fitted.paths, *idle])
    except KeyboardInterrupt:
        if before is None:
            return _cut_short(problem, current, settings, residuals)
        best = replace(before.best.estimate, status=Status.INTERRUPTED)
        kept = before.best._replace(estimate=best)
        return Fitted([path.interrupted for path in before.paths], kept)


def _was_accurate(problem: Problem, paths: Sequence[CandidatePath], settings: Settings) -> bool:
    """Whether step 4 ended with accurate fits of all unknowns together.

    Collocation would only move them: Fujita's sum of squares from 734 to 1267 in 100 iterations.
    """
    if problem.has_spectra or settings.correction != Settings().correction:
        return False
    if all(p.algebraic.origin == UNCONSTRAINED for p in paths):
        return True
    is_whole = not any(path.algebraic.parameters for path in paths)
    return is_whole and searches_everywhere(problem, settings.complement)


def _contenders(
    problem: Problem, paths: Sequence[CandidatePath]
) -> tuple[list[CandidatePath], list[tuple[CandidatePath, Algebraic | None]]]:
    """The candidates that new weights may make the best, one of each that ended alike.

    returns  also the others, each with the contender that it ended like, or None
    """
    box, most = problem.box, CONTENDS * paths[0].corrected.objective
    contenders: list[CandidatePath] = []
    others: list[tuple[CandidatePath, Algebraic | None]] = []
    for path in paths:
        same = (c.algebraic for c in contenders if path.ends_at(c.corrected, box))
        leader = next(same, None)
        if leader is not None or (contenders and not path.corrected.objective <= most):
            others.append((path, leader))
        else:
            contenders.append(path)
    return contenders, others


def _corrected(
    problem: Problem, started: Sequence[CandidatePath], settings: Settings
) -> list[CandidatePath]:
    """The candidates by the correction of the settings, from where they now are, best first."""
    starts = [path.corrected.parameters for path in started]
    guesses = [_profiles(problem, path, path.corrected, settings) for path in started]
    method = SingleShooting() if problem.has_spectra else settings.correction
    if method == Settings().correction:
        corrected = corrections(problem, starts, guesses)
    else:
        corrected = estimate_each(method, problem, starts, guesses)
    pairs = zip(started, corrected, strict=False)  # the last ones may not have been corrected
    return sorted((path._replace(corrected=c) for path, c in pairs), key=lambda path: path.rank)


def _profiles(
    problem: Problem, path: CandidatePath, start: Estimate, settings: Settings
) -> list[Profile]:
    """States over time of each experiment, near a candidate's values or its smoothed curves."""
    simulated = Simulated(problem, settings.integrator, start.parameters)
    return profiles(simulated, path.algebraic.curves.of)


def _refined_best(
    problem: Problem,
    paths: Sequence[CandidatePath],
    residuals: Residuals,
    begun: Mapping[int, Estimate],
    settings: Settings,
) -> Fitted:
    """The best candidate refined, by shooting where collocation has no answer or a wrong one.

    begun   where each candidate was before, by the id of its step 3: shooting may begin there
    raises EstimationFailed if the model cannot be integrated at any of them
    """
    paths = sorted(paths, key=lambda path: path.rank)
    best, first = None, paths[0].corrected
    before = [one.objective for one in begun.values() if np.isfinite(one.objective)]
    if paths[0].usable and np.isfinite(first.objective):
        known = min(before, default=np.inf) if is_plain(problem) else np.inf
        best = refine(problem, residuals, first, known)
    if is_plain(problem) and len(problem.box):
        starts = [(path, begun[id(path.algebraic)]) for path in paths]
        uncorrected = [
            Uncorrected(e.parameters, e.objective, _profiles(problem, path, e, settings))
            for path, e in starts
        ]
        shot = by_shooting(problem, residuals, uncorrected, best)
        if shot is not None:
            number, best = shot
            paths.insert(0, paths.pop(number))
        elif best is not None:
            best = best if best.polished else refine(problem, residuals, first)
            same = [path.usable and path.ends_at(first, problem.box) for path in paths]
            pairs = zip(paths, same, strict=True)
            paths = [p._replace(corrected=best.estimate) if is_same else p for p, is_same in pairs]
    if best is None:
        cause = undefined_at_starts(problem, first.parameters) or (
            f" {residuals.broken.sentence if residuals.broken else first.status.value} Check the "
            "bounds and the start values, and simulate the model at plausible parameters: "
            "igpe.simulate(problem, {...})."
        )
        raise EstimationFailed(
            f"Step 5 could not correct any of the {len(paths)} candidates, and shooting cannot "
            f"integrate the model at any of them.{cause}",
            first.status,
        )
    return Fitted([paths[0]._replace(corrected=best.estimate), *paths[1:]], best)


def _cut_short(
    problem: Problem,
    paths: Sequence[CandidatePath],
    settings: Settings,
    started: Residuals | None = None,
) -> Fitted:
    """The best so far, integrated: where step 5 was, or where steps 4 and 5 brought the candidates.

    paths    as they are now, after step 4 or 5
    started   the residuals that step 5 computed, with the best point among them; None: it had not
    raises  KeyboardInterrupt if nothing can be integrated
    """
    box, best, note = problem.box, paths[0], CUT_SHORT
    points = [(path, path.complete) for path in paths]
    points += [(w, w.corrected) for w in paths if w.corrected is not w.complete and w.usable]
    points.sort(key=lambda point: known_objective(point[1]))
    with finishing():
        residuals = started or Residuals(problem, settings.integrator)
        here, patience = residuals.best, Deadline.after(ENDING)
        if here.x is not None and passed_bounds(problem, residuals.integrator, here.x):
            here.clear()
        for steps in (FINISH, None):  # as many as it needs, where few are not enough for any
            for path, point in points:
                before = here.at
                if before and (patience.over or known_objective(point) >= before.cost):
                    continue
                with allowance(steps):
                    at = residuals(box.vector(point.parameters))
                if at is not None and at is here.at:
                    best, note = path, UNCORRECTED if point is path.complete else CUT_SHORT
            if here.at is not None:
                break
    if here.x is None or here.at is None:
        raise KeyboardInterrupt
    reached = replace(
        best.corrected,
        parameters=box.mapping(here.x),
        objective=objective_at(problem, here.at),
        status=Status.INTERRUPTED,
    )
    others = [path.interrupted for path in paths if path is not best]
    return Fitted([best._replace(corrected=reached), *others], Refined(reached, here.at, (note,)))
