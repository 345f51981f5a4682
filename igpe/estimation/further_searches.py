"""Further searches after step 5: for a better optimum, and on a finer grid in space.

Where the fit is not good enough, or where few searches agree on it, igpe goes on from other starts
than steps 3 to 5: by incremental shooting, by multiple shooting, and with all unknowns at once.
What is no better than the estimate leaves it as it is.

What the grid in space does to a fit: igpe estimates once more on a grid twice as fine. The
parameters follow a coarse grid, so a few steps of the search on the fine one are part of every
comparison. How far estimates move tells their error (see `igpe.uncertainty.grid_error`).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import compress

import numpy as np
from scipy.optimize import Bounds, differential_evolution

from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.deadline import if_in_time
from igpe.core.errors import IgpeError
from igpe.core.estimates import Estimate, Horizon, agreeing
from igpe.core.markup import listed, number
from igpe.core.status import Clock, Status
from igpe.dynamics.integrators.limits import allowance
from igpe.dynamics.search.complement import BRIEFLY, searches_everywhere
from igpe.dynamics.search.other_optima import lower_optimum, rounding
from igpe.dynamics.shooting.base import is_large, is_plain, minimises_squares
from igpe.dynamics.shooting.incremental_shooting import IncrementalShooting
from igpe.dynamics.shooting.limits_of_model import passed_bounds
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals
from igpe.dynamics.shooting.single_shooting import ONCE
from igpe.dynamics.simulation import simulate_all
from igpe.equations.compiled import compiled
from igpe.estimation.equally_good import (
    led_if_better,
    ordered,
    refined,
    rise_of,
    with_other_weights,
)
from igpe.estimation.settings import BY_FURTHER, BY_HORIZONS, Settings, Steps
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.problem.fluxes import profiles
from igpe.problem.problem import Problem
from igpe.results.result import Result
from igpe.results.result_data import TOO_COARSE, Parameter
from igpe.uncertainty.adequacy import FACTOR

WIDE = 1e2  # ratio of positive bounds
NOTHING_BETTER = (
    "The fit disagrees with the data, so igpe searched again for all unknowns from {} scattered "
    "starts, and found no better fit. The model may be wrong."
)
REFUTED = (
    "The data contradict the fit, although igpe searched for all unknowns from scattered "
    "starts. The model may be wrong."
)
SEARCHED_ALREADY = f"{REFUTED} igpe did not search for other sets of values that fit equally well."
NOTHING_AT_ALL = (
    "igpe searched again for all unknowns from {} scattered starts, without success. Narrow "
    "the bounds, and simulate the model at plausible parameters: igpe.simulate(problem, "
    "{{...}})."
)
CUT_SHORT = "A further search for a better fit was interrupted."
AGREEING, SCATTERED = 3, 16
"""Candidates of one objective that are enough, and the most starts of incremental shooting."""
HORIZONS = 100_000_000  # of its work: some 4 s of a processor
MEMBERS, LEAST_MEMBERS, GENERATIONS = 8, 32, 60
"""Of differential evolution: for each unknown, at least of all, and how many of them."""
EVOLUTION = 6_000_000_000  # its work: some 50 s; five pulses at an unknown level take half of it
CHEAP, COSTLY = 200_000, 2_000_000
"""Work of an integration (`Residuals.work`) up to which multiple shooting restarts, and begins.

Where all was searched it begins up to the first, and never restarts.
"""


def few_agree(steps: Steps, settings: Settings) -> bool:
    """Return True if fewer than three candidates agree, and incremental shooting may change that.

    Not where the fit is exact, the model is large, or step 4 searched everywhere.
    """
    if not _can_shoot(steps):
        return False
    known = _objectives(steps)
    is_exact = known[0] <= rounding(steps.problem)
    return not (is_exact or agreeing(known) >= AGREEING or was_searched_everywhere(steps, settings))


def with_incremental_shooting(steps: Steps, settings: Settings) -> Steps:
    """The steps after incremental shooting from scattered starts, whose ends are more candidates.

    It finds low frequencies where most searches end at their aliases, which fit the measurements
    almost as well: early horizons exclude these.
    """
    return if_in_time(lambda: _by_horizons(steps, settings, AGREEING, settings.seed)) or steps


def with_more_incremental_shooting(steps: Steps, settings: Settings) -> tuple[Steps, str]:
    """The steps after incremental shooting from other starts, for a fit that the data refute.

    Starts that agree are no reason to end it; no note.
    """
    if not _can_shoot(steps):
        return steps, ""
    return _by_horizons(steps, settings, SCATTERED, settings.seed + 1), ""


def _by_horizons(steps: Steps, settings: Settings, enough: int, seed: int) -> Steps:
    """Until so many ends agree with the estimate, or with the first of a lower objective."""
    problem, box, ends = steps.problem, steps.problem.box, list[Estimate]()
    least = steps.best.estimate.objective
    with suppress(IgpeError, ExhaustedError):
        search = IncrementalShooting(restarts=ONCE).prepare(problem)
        search.residuals.limit_steps(box.vector(steps.best.estimate.parameters))
        search.most_work = HORIZONS
        with allowance(search.residuals.most_steps):
            for start in box.sobol(SCATTERED, seed):
                end = search.estimate(box.mapping(start))
                x = box.vector(end.parameters)
                if end.status.usable and not passed_bounds(problem, search.residuals.integrator, x):
                    ends.append(end)
                if agreeing([least, *(e.objective for e in ends)]) > enough:
                    break
    ends.sort(key=lambda e: e.objective)
    if not ends:
        return steps
    values = [box.vector(end.parameters) for end in ends[:1]]
    exact = list(refined(problem, values, settings, BY_HORIZONS))
    led = led_if_better(steps, exact, settings, BY_HORIZONS)
    others = [steps.path_to(end, BY_HORIZONS) for end in ends[led is not steps :]]
    return led._replace(paths=[*led.paths, *others])


def _objectives(steps: Steps) -> list[float]:
    """Where the candidates ended; of a single one, where the starts of step 4 did."""
    ends = [path.corrected.objective for path in steps.paths[1:] if path.usable]
    starts = () if ends else steps.paths[0].complete.reached
    return [steps.best.estimate.objective, *ends, *sorted(starts)[1:]]


def with_further_search(steps: Steps, settings: Settings) -> tuple[Steps, str]:
    """The steps after a search for all unknowns at once, for a fit that the data refute.

    Or at which the model could not be integrated.

    From scattered starts and from those redrawn; in logarithms where bounds are two decades
    apart. What is no better leaves the steps as they are, with a note that says so. Where step 4
    was this very search, it is not repeated.
    """
    problem, box = steps.problem, steps.problem.box
    if not _can_search(steps):
        return steps, ""
    if steps.best.at is not None and was_searched_everywhere(steps, settings):
        return _followed_along_valleys(steps, settings), SEARCHED_ALREADY
    if (
        steps.best.at is not None
        and problem.has_spectra
        and searches_everywhere(steps.problem, settings.complement)
    ):
        return steps, REFUTED
    search, found = replace(BRIEFLY, seed=settings.seed), None
    with suppress(IgpeError):
        wide = compress(box.names, is_wide(box))
        found = search.estimate(problem.compressed().in_logarithms(wide), {})
    return (steps, "") if found is None else _compared(steps, found, settings)


def _followed_along_valleys(steps: Steps, settings: Settings) -> Steps:
    """The steps led by a better optimum along a valley, if there is one."""
    problem, best, box = steps.problem, steps.best, steps.problem.box
    x = box.vector(best.estimate.parameters)
    return _led_to(steps, lower_optimum(problem, x, rise_of(steps, settings)), settings)


def _can_search(steps: Steps) -> bool:
    is_interrupted = steps.best.estimate.status is Status.INTERRUPTED
    return is_plain(steps.problem) and bool(steps.problem.box.bounded) and not is_interrupted


def _can_shoot(steps: Steps) -> bool:
    """Whether shooting may go on: the model can be integrated at the estimate, and is not large."""
    return steps.best.at is not None and not is_large(steps.problem) and _can_search(steps)


def with_evolution(steps: Steps, settings: Settings) -> tuple[Steps, str]:
    """The steps after differential evolution, where states jump at times that unknowns move.

    The sum of squares jumps as well, once such a time passes a measurement, and searches that
    follow its derivatives end there; no note.
    """
    problem, box = steps.problem, steps.problem.box
    ends = np.stack([box.lower, box.upper])
    if not (_can_shoot(steps) and np.isfinite(ends).all() and _jumps(problem)):
        return steps, ""
    residuals, positive = Residuals(problem, settings.compiled), box.lower > 0
    residuals.limit_steps(box.vector(steps.best.estimate.parameters))
    residuals.best.clear()
    residuals.most_work = residuals.work + EVOLUTION
    explained = ONCE.explained(residuals.degrees)

    def cost(z: FloatArray) -> float:
        at = residuals.cost(box.clip(np.exp(z, where=positive, out=z.copy())))
        if at is not None and at <= explained:
            raise ExhaustedError
        return np.inf if at is None else at

    ends[:, positive] = np.log(ends[:, positive])
    members = max(MEMBERS, -(-LEAST_MEMBERS // len(box)))
    with suppress(ExhaustedError):  # `residuals.best` is what the search has reached by then
        differential_evolution(
            cost, Bounds(*ends), maxiter=GENERATIONS, popsize=members, init="sobol", tol=0,
            polish=False, rng=settings.seed,
        )  # fmt: skip
    return _led_to(steps, residuals.best.x, settings), ""


def _jumps(problem: Problem) -> bool:
    """Whether states jump at a time that unknowns move, in some experiment."""
    given = compiled(problem)
    runs = (given.initial_value_problem(k, switching=True) for k in range(len(given.systems)))
    return any(run.switching is not None and run.switching.moves_jumps for run in runs)


def _led_to(steps: Steps, x: FloatArray | None, settings: Settings) -> Steps:
    """The steps led by the optimum next to x (n,), if there is one and it is better."""
    values = [] if x is None else [x]
    exact = list(refined(steps.problem, values, settings, BY_FURTHER))
    return led_if_better(steps, exact, settings, BY_FURTHER)


def with_multiple_shooting(steps: Steps, settings: Settings) -> tuple[Steps, str]:
    """The steps after multiple shooting, for a fit that the data refute; no note.

    Its intervals begin near the measurements, so it reaches optima that trajectories from the start
    values do not: of chaotic systems, and of long oscillations.
    """
    problem, box = steps.problem, steps.problem.box
    if not _can_shoot(steps):
        return steps, ""
    residuals = Residuals(problem, settings.compiled)
    here = box.vector(steps.best.estimate.parameters)
    residuals(here)
    was_searched = was_searched_everywhere(steps, settings)
    if residuals.work > (CHEAP if was_searched else COSTLY):
        return steps, ""
    is_brief = was_searched or residuals.work >= CHEAP
    method = MultipleShooting(restarts=ONCE) if is_brief else MultipleShooting()
    for start in (here,) if was_searched else (box.middle, here):
        with suppress(IgpeError):
            met = method.estimate(problem, box.mapping(start))
            if met.status.usable:
                better, _ = _compared(steps, met, settings)
                if better is not steps:
                    return better, ""
    return steps, ""


def _compared(steps: Steps, estimate: Estimate, settings: Settings) -> tuple[Steps, str]:
    """The steps with what a further search met, if it is better."""
    problem, best, box = steps.problem, steps.best, steps.problem.box
    # A horizon is a stage on the way, not an optimum of the problem.
    optima = [estimate, *(e for e in estimate.trail if not isinstance(e, Horizon))]
    ends = [e.parameters for e in optima]
    exact = list(refined(problem, [box.vector(end) for end in ends], settings, BY_FURTHER))
    if best.at is None:
        if not exact:
            return steps, NOTHING_AT_ALL.format(BRIEFLY.starts)
        return ordered(steps, exact, settings, (), BY_FURTHER), ""
    better = led_if_better(steps, exact, settings, BY_FURTHER)
    if better is not steps:
        return better, ""
    return steps, NOTHING_BETTER.format(BRIEFLY.starts)


LADDER = (
    with_other_weights,
    with_more_incremental_shooting,
    with_evolution,
    with_multiple_shooting,
    with_further_search,
)
"""Searches for a fit that the data do not refute, in this order."""


def climbed(
    rung: Callable[[Steps, Settings], tuple[Steps, str]], steps: Steps, settings: Settings
) -> tuple[Steps, str]:
    """The steps after a rung of `LADDER`, with its note; the same where Ctrl-C or time ends it."""
    return if_in_time(lambda: rung(steps, settings)) or (steps, CUT_SHORT)


def was_searched_everywhere(steps: Steps, settings: Settings) -> bool:
    """Whether step 4 was the further search itself: of all unknowns, wide ones in logarithms.

    Not of spectra: other optima are the rule there, and an evaluation of their search is cheap.
    """
    box = steps.problem.box
    is_linear = (is_wide(box) & ~box.in_logarithms).any()
    if (
        steps.problem.has_spectra
        or is_linear
        or any(path.algebraic.parameters for path in steps.paths)
    ):
        return False
    return searches_everywhere(steps.problem, settings.complement)


def searched_for(problem: Problem) -> Problem:
    """Return what step 4 searches: of spectra singular vectors, and wide bounds in logarithms."""
    if not problem.has_spectra:
        return problem
    return problem.compressed().in_logarithms(compress(problem.box.names, is_wide(problem.box)))


def is_wide(box: Box) -> BoolArray:
    """(n,) which unknowns have positive bounds decades apart."""
    return (box.lower > 0) & (box.upper >= WIDE * box.lower)


NEAR = 8  # iterations on the finer grid
FINER = 0.8  # of the objective: what is left of it on a finer grid where the coarse one misfits
WORSENED = 0.1  # of the objective on the finer grid: more than its share of the coarse one's
MOST_STATES = 100  # of all experiments, where a model is built once more without being asked for
WORK = 200_000_000  # of its integrations (`Residuals.work`): some 5 s
MOST_NAMED = 3
COARSE = (
    f"{TOO_COARSE}: on a grid with twice as many intervals, the sum of squares near the same "
    "parameter values falls from {:.6g} to {:.6g}. Use a finer grid or a scheme of "
    "higher order (space=...) before you judge the model. igpe did not search for a better fit on "
    "this grid."
)
ALTERNATES = (
    f"{TOO_COARSE} for its scheme: the profile of {{}} over {{}} alternates from point to point, "
    "by {:.2g} at t = {:.4g}. Use more intervals or another scheme. If the model writes a flux, "
    "write it for any position, leave the set continuous, and pass space=... with the scheme "
    "'central'."
)
IN_A_ROW, SHARE = 4, 0.01  # deviations of alternating sign, of the range of the profile
UNKNOWN = "The intervals do not include the error of the grid in space. "
BY_FUNCTION = "Estimate it with igpe.uncertainty.grid_error(problem, result)."
BY_HAND = "Estimate again with twice as many intervals to see how large it is."
LARGE = (
    "A grid in space with twice as many intervals gives {}. The intervals do not include the error "
    "of the grid, which may be larger than the standard error{}. Use a finer grid or a scheme of "
    "higher order (space=...)."
)
WORSE = (
    "With twice as many intervals in space, the model fits much worse: the sum of squares rises "
    "from {:.6g} to {:.6g}. If the grid is far too coarse, use more intervals or a scheme of "
    "higher order (space=...). If the model sums over the set, it depends on the number of points: "
    "write pyomo.dae.Integral(m.t, m.x, wrt=m.x, rule=...) in place of a sum."
)
SMALL = (
    "The intervals do not include the error of the grid in space. With twice as many intervals in "
    "space, {} changes by {} of its standard error{}."
)


def coarse_grid(steps: Steps, settings: Settings) -> str:
    """The sentence on a grid in space that misfits at the estimate; empty if none does."""
    at = steps.best.at
    fine = None if at is None else _refined(steps, settings, enough=FINER * at.cost)
    if at is None or fine is None or not fine.cost < FINER * at.cost:
        return _alternating(steps, settings)
    return COARSE.format(at.cost, fine.cost)


def _alternating(steps: Steps, settings: Settings) -> str:
    """The sentence on the profile that alternates most from point to point; empty if none does."""
    problem = steps.problem
    values = steps.best.estimate.parameters
    times = tuple(e.times for e in problem.experiments)
    runs = simulate_all(problem, settings.integrator, values, times)
    largest, said = 1.0, ""
    for instance, (ivp, run) in zip(problem.instances, runs, strict=True):
        for variable, x, members in profiles(instance) if run.status.usable else ():
            shown = [(p, ivp.states.index(n)) for p, n in members if n in ivp.states]
            if len(shown) < IN_A_ROW + 2:
                continue
            points, columns = np.array(shown).T
            profile = run.states[:, columns.astype(int)]
            by = _zigzag(points, profile)
            if (share := by.max(initial=0.0) / (SHARE * np.ptp(profile) or np.inf)) > largest:
                moment = run.times[by.argmax()]
                largest, said = share, ALTERNATES.format(variable, x, by.max(), moment)
    return said


def _zigzag(points: FloatArray, profile: FloatArray) -> FloatArray:
    """(n_times,) by how much a profile alternates, at least, at some neighbouring points in a row.

    points   (n_points,) positions, at least IN_A_ROW + 2
    profile  (n_times, n_points)
    """
    share = (points[1:-1] - points[:-2]) / (points[2:] - points[:-2])
    line = profile[:, :-2] * (1 - share) + profile[:, 2:] * share
    signed = (profile[:, 1:-1] - line) * (-1.0) ** np.arange(len(share))
    rows = np.lib.stride_tricks.sliding_window_view(signed, IN_A_ROW, axis=1)
    found: FloatArray = np.maximum(rows.min(axis=2), (-rows).min(axis=2)).max(axis=1)
    return found.clip(min=0.0)


def with_grid_error(steps: Steps, settings: Settings, result: Result, clock: Clock) -> Result:
    """The result with a sentence on the error of the grid in space, if the problem has one."""
    problem = steps.problem
    is_told = any(a.startswith(TOO_COARSE) for a in result.actions)
    grids = [x for x in problem.instance.in_space if x.get_discretization_info()]
    if is_told or not (grids and len(problem.box)):
        return result
    said = if_in_time(lambda: _alternating(steps, settings))
    if said or not problem.given["space"]:  # the builder's own grid may be fine enough
        notes = () if said else (UNKNOWN + BY_HAND,)
        actions = (said,) if said else ()
        return replace(result, actions=(*result.actions, *actions), notes=(*result.notes, *notes))
    fine, how = None, BY_FUNCTION if _is_comparable(problem) else BY_HAND
    if result.status.usable and not result.status.is_early and _states(steps) <= MOST_STATES:
        with clock.step("grid in space", "Estimating once more on a finer grid in space"):
            fine, how = if_in_time(lambda: _refined(steps, settings)), BY_HAND
    said = UNKNOWN + how if fine is None else _worse(steps, fine)
    if fine is None or said:
        return replace(result, actions=(*result.actions, said))
    values = problem.box.mapping(fine.x)
    known = [p for p in result.estimates if p.name in values and 0 < p.error < np.inf]
    shares = {p.name: FACTOR * abs(values[p.name] - p.value) / p.error for p in known}
    if not shares:
        return result
    moved = [p for p in known if shares[p.name] > 1]
    if moved:
        return replace(result, actions=(*result.actions, _moved(moved, values)))
    worst = max(shares, key=lambda name: shares[name])
    others = ", and the other unknowns by less" if len(shares) > 1 else ""
    said = SMALL.format(worst, f"{100 * shares[worst] / FACTOR:.2g} %", others)
    return replace(result, notes=(*result.notes, said))


def _worse(steps: Steps, fine: Fit) -> str:
    """The sentence on a finer grid where the model fits far worse than errors explain, or none."""
    problem, at = steps.problem, steps.best.at
    if at is None or not all(e.sigma_known for e in problem.experiments):
        return ""  # exact measurements would make any grid worse
    is_worse = WORSENED * fine.cost > max(at.cost, problem.size)
    return WORSE.format(at.cost, fine.cost) if is_worse else ""


def _is_comparable(problem: Problem) -> bool:
    """Whether `igpe.uncertainty.grid_error` knows the problem's objective."""
    return is_plain(problem) and minimises_squares(problem)


def _states(steps: Steps) -> int:
    made, count = compiled(steps.problem), len(steps.problem.experiments)
    return sum(len(made.initial_value_problem(k, switching=True).states) for k in range(count))


def _moved(moved: Sequence[Parameter], values: dict[str, float]) -> str:
    """The sentence on those that a finer grid moves by more than their standard errors."""
    pairs = [
        f"{p.name} = {number(values[p.name], p.error)} instead of {number(p.value, p.error)}"
        for p in moved[:MOST_NAMED]
    ]
    names = [p.name for p in moved]
    return LARGE.format(listed(pairs), f" of {listed(names)}" if len(values) > 1 else "")


def _refined(steps: Steps, settings: Settings, enough: float = -np.inf) -> Fit | None:
    """The search taken up on the finer grid; None where there is no grid, or it fails."""
    problem = steps.problem
    if steps.best.at is None or not (problem.given["space"] and _is_comparable(problem)):
        return None
    x = problem.box.vector(steps.best.estimate.parameters)
    search = GaussNewton(max_iterations=NEAR, enough=enough)
    with suppress(IgpeError, ExhaustedError):
        finer = problem.on_finer_grid()
        if finer.box.names != problem.box.names:  # as of parameters that vary in space
            return None
        residuals = Residuals(finer, settings.integrator)
        residuals.most_work = WORK
        fit = search.fit(residuals, x, problem.box)
        return None if fit.at is None else fit
    return None
