"""Intervals by profile likelihood where the curvature at the optimum does not give them.

Linearised intervals of poorly determined unknowns are wrong at first order: a sum of squares that
is nearly flat has the curvature of its errors, and one on a bound that of the other unknowns.

Where pure spectra must be non-negative, the intervals are those without this constraint, which
biases them (`igpe.estimation.spectral`): so are the profiles, as far as the estimate.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from igpe.core.box import is_reached
from igpe.core.deadline import ended_by, if_in_time, stopped
from igpe.core.errors import IgpeError
from igpe.core.status import Clock, Status
from igpe.dynamics.likelihood import allowed_rise, errors_at
from igpe.dynamics.shooting.base import is_plain
from igpe.dynamics.shooting.refine import may_creep
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals
from igpe.dynamics.shooting.single_shooting import SingleShooting, jumps_of
from igpe.estimation.equally_good import led_by, with_own_weights
from igpe.estimation.settings import FROM_PROFILE, Settings, Steps
from igpe.estimation.summary import summarise
from igpe.numerics.covariance import shift_to, shifted, strongly_correlated
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.optima import is_same_objective
from igpe.problem.problem import Problem
from igpe.results.answer import agreement, named_or_counted
from igpe.results.result import Result
from igpe.results.result_data import BY_PROFILE, WITHOUT_PROFILE, Parameter, rounding
from igpe.uncertainty.likelihood import chosen
from igpe.uncertainty.path import End, complete, limited, limits
from igpe.uncertainty.profile import ParameterProfile, ProfileJob, Profiles, followed, widened

USUAL = 2.0  # standard errors from an estimate to an end of its interval, of many measurements
WIDE = 0.25  # standard error relative to the estimate, from which it is poorly determined
SMALL = 0.02  # the same, below which an interval is left as it is beside poorly determined ones
FREED = 3.0  # times as large an error without bounds: with them it says nothing
FAR = 2.0  # ratio of what the sum of squares should rise by where an interval ends, and does
SHORTER = 0.6  # of a linearised interval, below which its standard error is not kept
MOST = 20  # profiles
BESIDE = 0.5  # of the limits on work, for those that others show to be needed
INTEGRATIONS = 10_000  # with derivatives, that profiles of an optimum may take
WORK = 1_200_000_000  # of all these (`Residuals.work`), the same; half a minute of a processor
TOO_SHORT = (
    "The intervals of {} are rough: too narrow or too wide. Run igpe.profile(problem, result)."
)
LONGER = (
    "igpe could not compute profile likelihoods of {} to both ends, or not within its work and "
    "time limits: such intervals reach as far as the profiles of other unknowns do, and are rough."
)
WIDENED = (
    "{}: profiles of other unknowns widen the interval, which may still be too short and has no "
    "standard error."
)
STOPPED = (
    "{} after step 5, so the search for other optima, profile intervals and a proof may be "
    "missing. Estimate again to get them."
)
LOST = "not determined by the data"
TURNS = 2  # times that they are made: an optimum met on the way may not be the end of it


def with_profiles(steps: Steps, settings: Settings, result: Result, clock: Clock) -> Result:
    """The result with intervals by profile of those unknowns that need them.

    A better optimum that is met on the way becomes the result. At Ctrl-C it is as it was.
    """
    if not _can_profile(steps, result) or stopped():
        return result
    kinks = [n for n, prior in steps.problem.other_priors.items() if prior.has_kink]
    names = _in_need(steps, settings, result, kinks)
    if not names or stopped():
        return result
    with clock.step("profiles", "Profile intervals where linearised intervals are not reliable"):
        for _ in range(TURNS):
            made = _profiled(steps.problem, result, result.parameters, names, settings)
            if made is None:
                break
            before = steps.problem
            if _is_better(made, result):
                steps = led_by(steps, settings, made.parameters, FROM_PROFILE, is_passed=True)
                steps = with_own_weights(steps, settings)
                result = summarise(steps, settings)
            if steps.problem is not before:  # the profiles have other weights
                continue
            values = result.parameters
            if all(p.lower <= values[p.name] <= p.upper for p in made.profiles):
                made = _with_widened(steps.problem, result, made, settings)
                result = _with_intervals(result, made, names)
                result = _without_errors(result) if kinks else result
                result = replace(result, notes=(*result.notes, *limited(made, steps.problem.box)))
                return _with_others(steps.problem, settings, result)
    return _without_profile(result, names)


def with_stop(result: Result) -> Result:
    """The result with what stopped the call, if anything did; after step 5 with an advice."""
    if not stopped():
        return result
    by = ended_by()
    what = "Interrupted" if by is Status.INTERRUPTED else "The time limit was reached"
    advice = () if result.status.is_early else (STOPPED.format(what),)
    return replace(result, stopped_by=by, actions=(*result.actions, *advice))


def _with_widened(problem: Problem, result: Result, made: Profiles, settings: Settings) -> Profiles:
    """The profiles, with those of unknowns that leave their linearised intervals on them.

    How far the others take an unknown is not yet the end of its interval.
    """
    own = {p.name for p in made.profiles}
    free = [p for p in result.estimates if p.name in made.names and p.name not in own]
    names = [
        p.name
        for p in free
        if p.remark != LOST and widened(ends := (p.lower, p.upper), made.range_of(p.name)) != ends
    ]
    more = None
    if names and len(own) + len(names) <= MOST and not stopped():
        more = _profiled(problem, result, result.parameters, names, settings, share=BESIDE)
    if more is None or not is_same_objective(more.objective, made.objective, rounding(result)):
        return made
    return replace(made, profiles=(*made.profiles, *more.profiles))


def _in_need(steps: Steps, settings: Settings, result: Result, kinks: Sequence[str]) -> list[str]:
    """The unknowns that need a profile.

    kinks  those with a prior that has one
    """
    narrow = []
    if result.objective > rounding(result):  # else a rise of the sum of squares is rounding too
        narrow = if_in_time(lambda: _misjudged(steps, result, settings)) or []
    combined = {n for one in result.combined for n in one.unknowns}
    doubtful = _doubtful(steps.problem, result, result.estimates, steps.best.at, combined)
    same, many, _ = agreement(result)  # a groove may lie beside what no search has seen
    every = steps.problem.box.names if kinks or same == 1 < many else ()
    free = steps.problem.box
    jumps = jumps_of(steps.problem, free.vector(result.parameters))  # no curvature shows these
    at_jumps = [free.names[jump.unknown] for jump in jumps]
    return list(dict.fromkeys([*at_jumps, *narrow, *doubtful, *kinks, *every]))[:MOST]


def _is_better(made: Profiles, result: Result) -> bool:
    is_same = is_same_objective(made.objective, result.objective, rounding(result))
    return made.objective < result.objective and not is_same


def _with_others(problem: Problem, settings: Settings, result: Result) -> Result:
    """The result with profile intervals of its other optima, as far as the limits allow."""
    if problem.has_signs or not result.other_optima:
        return result
    residuals, share = Residuals(problem, settings.integrator), 1 / len(result.other_optima)
    others = []
    for one in result.other_optima:
        at = residuals(problem.box.vector(one.parameters))
        names = _doubtful(problem, result, one.estimates, at)
        made = (
            _profiled(problem, result, one.parameters, names, settings, share=share)
            if names
            else None
        )
        # a path that left this optimum for a better one says nothing about it
        stays = made and is_same_objective(made.objective, one.objective, rounding(result))
        known = _intervals(one.estimates, made) if made and stays else one.estimates
        others.append(replace(one, estimates=known))
    return replace(result, other_optima=tuple(others))


def _reaching(made: Profiles, result: Result) -> Profiles:
    """Profiles without signs, whose intervals reach as far as a result with them."""
    ends = [(p, result.parameters[p.name]) for p in made.profiles]
    longer = [replace(p, lower=min(p.lower, v), upper=max(p.upper, v)) for p, v in ends]
    less = result.objective - made.objective
    rises = {n: rise - less for n, rise in made.rises.items()}
    return replace(made, profiles=tuple(longer), objective=result.objective, rises=rises)


def _profiled(
    problem: Problem,
    result: Result,
    at: Mapping[str, float],
    names: Sequence[str],
    settings: Settings,
    *,
    share: float = 1.0,
) -> Profiles | None:
    """Profiles at an optimum, or at a better one; None if they fail, or time is up.

    share  of the limits on work
    """
    signed, problem = problem.has_signs, problem.with_free_signs()
    method = SingleShooting(settings.compiled)
    residuals = Residuals(problem, method.integrator)
    level = settings.confidence

    def made_now() -> Profiles:
        residuals(problem.box.vector(at))
        most = share * min(INTEGRATIONS, WORK / max(residuals.work, 1))
        return followed(ProfileJob(problem, method, level), dict(at), chosen(problem, names), most)

    try:
        made = if_in_time(made_now)
    except IgpeError:
        return None
    return _reaching(made, result) if made is not None and signed else made


def _can_profile(steps: Steps, result: Result) -> bool:
    """A profile begins at an optimum: not where step 5 gave up a search that hardly gained."""
    at = steps.best.at
    is_cut = result.status is Status.ITERATION_LIMIT
    return (
        at is not None
        and not (is_cut and may_creep(steps.problem, at))
        and not (result.status.is_early or result.active)
        and result.degrees > 0
        and is_plain(steps.problem)
        and steps.problem.loss.is_squares
    )


def _misjudged(steps: Steps, result: Result, settings: Settings) -> list[str]:
    """The unknowns at an end of whose linearised interval the sum of squares is far from expected.

    The others move with the unknown as the covariance has it. A profile, which lies below that
    line, rises even less: where the rise is too small, the interval is certainly longer. Where it
    is too large, the line leaves the valley, or the interval is shorter.
    """
    problem, box, at = steps.problem, steps.problem.box, steps.best.at
    assert at is not None, "see `_can_profile`"
    most = np.inf if problem.has_spectra else FAR  # scattering amounts widen intervals on purpose
    residuals = Residuals(problem, settings.integrator)  # compiled code is not worth its start here
    residuals.most_work = WORK / 4
    names: list[str] = []
    x = box.vector(result.parameters)
    with suppress(ExhaustedError):
        best = residuals.cost(x)
        if best is None:
            return names
        for one, column in zip(result.estimates, result.covariance.T, strict=False):
            if one.remark or not (one.standard_error > 0 and math.isfinite(one.standard_error)):
                continue
            along = np.nan_to_num(column) / one.standard_error**2
            i, logs = box.names.index(one.name), box.in_logarithms
            for end in (one.lower, one.upper):
                shift = shift_to(x[[i]], np.array([end]), logs[[i]])[0]
                there = shifted(x, shift * along, logs)
                if (there < box.lower).any() or (there > box.upper).any():
                    continue
                cost = residuals.cost(there)
                expected = (
                    shift**2 / one.standard_error**2 * result.variance
                    if problem.has_spectra
                    else float(np.sum((at.jacobian @ (shift * along)) ** 2))
                )  # quantities may have errors of their own
                if cost is not None and not 1 / FAR <= (cost - best) / expected <= most:
                    names.append(one.name)
                    break
    return names


def _doubtful(
    problem: Problem,
    result: Result,
    estimates: Sequence[Parameter],
    at: Linearised | None,
    combined: Collection[str] = (),
) -> list[str]:
    """The unknowns whose linearised intervals say too little, the least determined first.

    estimates  of an optimum of the result;  at: what was evaluated there
    combined   unknowns of which a combination is determined: a profile would say the same
    """
    if at is None:
        return []
    every = {p.name: p for p in estimates if p.found_by != "held"}
    x = problem.box.vector({n: p.value for n, p in every.items()})
    errors = errors_at(problem, x, at, held=np.zeros(len(x), dtype=bool))
    rise = allowed_rise(errors, problem.sigma_known, result.confidence)
    free = errors.standard_error
    if rise > USUAL**2 * errors.variance > 0:  # few degrees of freedom: long intervals
        free = free * np.sqrt(rise / errors.variance) / USUAL
    sizes: dict[str, float] = {}
    is_poor = bool(strongly_correlated(result.covariance, result.linked))
    for name, error in zip(problem.box.names, free.tolist(), strict=True):
        one = every[name]
        if one.remark == LOST and name in combined:
            continue
        largest = max(error, one.standard_error)  # without the sign of spectra the second is
        size = largest / abs(one.value) if one.value else math.inf
        is_held = bool(one.remark)
        is_poor |= is_held or size > WIDE or error > FREED * one.standard_error
        if is_held or size > SMALL:
            sizes[name] = size
    return sorted(sizes, key=lambda n: -sizes[n])[:MOST] if is_poor else []


def _with_intervals(result: Result, made: Profiles, wanted: Sequence[str]) -> Result:
    every, before = list(complete(made)), {p.name: (p.lower, p.upper) for p in result.estimates}
    result = replace(result, estimates=_intervals(result.estimates, made))
    left = [n for n in wanted if n not in every]
    is_longer = {p.name: (p.lower, p.upper) != before[p.name] for p in result.estimates}
    lost = {p.name for p in result.estimates if p.remark == LOST}
    if longer := [n for n in left if is_longer[n] and n not in lost]:
        note = LONGER.format(", ".join(longer))
        result = replace(result, notes=(*result.notes, note), actions=(*result.actions, note))
    if left := [n for n in left if not is_longer[n]]:
        result = _without_profile(result, left)
    shown = [n for n in every if n not in lost]
    unasked = [n for n in before if is_longer[n] and n not in {*every, *wanted, *lost}]
    if unasked:
        result = replace(result, notes=(*result.notes, WIDENED.format(", ".join(unasked))))
    notes = [BY_PROFILE.format(100 * made.confidence, ", ".join(shown))] if shown else []
    return replace(result, notes=(*result.notes, *notes))


def _intervals(estimates: Sequence[Parameter], made: Profiles) -> tuple[Parameter, ...]:
    """The estimates of an optimum with the intervals that its profiles show."""
    every, broken = complete(made), {p.name: p for p in made.profiles}
    by_others = limits(made, {p.name: p.bounds for p in estimates})

    def with_interval(one: Parameter) -> Parameter:
        if one.name in every:
            return _with_interval(one, every[one.name], by_others[one.name])
        if one.name not in made.names:
            return one
        lower, upper = one.lower, one.upper
        if (by := broken.get(one.name)) is not None:  # one end of it may be right all the same
            lower = lower if by.lower_end == End.BROKEN.value else by.lower
            upper = upper if by.upper_end == End.BROKEN.value else by.upper
        # A linearised interval is too short if profiles of others leave it with an allowed rise.
        lower, upper = widened((lower, upper), made.range_of(one.name))
        if (lower, upper) != (one.lower, one.upper):
            one = replace(one, lower=lower, upper=upper, standard_error=math.nan)
        reach = replace(one, lower=made.range_of(one.name)[0], upper=made.range_of(one.name)[1])
        return replace(one, remark=LOST) if _fills_bounds(reach) else one

    return tuple(map(with_interval, estimates))


def _without_errors(result: Result) -> Result:
    """The result without standard errors beside profile intervals, and without covariance."""
    by_profile = result.profiled
    estimates = (
        replace(p, standard_error=math.nan) if p.name in by_profile else p for p in result.estimates
    )
    unknown = np.full_like(result.covariance, math.nan)
    return replace(result, estimates=tuple(estimates), covariance=unknown)


def _without_profile(result: Result, names: Sequence[str]) -> Result:
    """The result that says whose intervals need a profile and have none."""
    # No interval is shown, or none can be wider.
    lost = {p.name for p in result.estimates if p.remark == LOST or _fills_bounds(p)}
    names = [n for n in names if n not in lost]
    if not names:
        return result
    return replace(
        result,
        notes=(*result.notes, WITHOUT_PROFILE.format(", ".join(names))),
        actions=(*result.actions, TOO_SHORT.format(named_or_counted(names))),
    )


def _fills_bounds(one: Parameter) -> bool:
    return all(map(is_reached, (one.lower, one.upper), one.bounds))


def _with_interval(
    one: Parameter, by: ParameterProfile, by_others: Sequence[Collection[str]] = ((), ())
) -> Parameter:
    """by_others: unknowns whose bounds end the interval below and above."""
    ends = (by.lower_end or by_others[0], by.upper_end or by_others[1])
    # Where measurements leave a direction open, the bounds of all that take part end it.
    if (by.lower_end and by.upper_end) or (one.remark == LOST and all(ends)):
        return replace(one, lower=by.lower, upper=by.upper, remark=LOST)
    if one.remark == LOST:  # to first order alone, as where two unknowns exchange their values
        one = replace(one, remark="", standard_error=math.nan)
    # The curvature is far too small, as next to a double root: its error contradicts the interval.
    if by.upper - by.lower < SHORTER * (one.upper - one.lower):
        one = replace(one, standard_error=math.nan)
    return replace(one, lower=by.lower, upper=by.upper)
