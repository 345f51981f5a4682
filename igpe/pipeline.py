"""Incremental global parameter estimation: the five steps of the paper, top-down."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from igpe.algebraic.curves import smooth_measurements
from igpe.algebraic.step import Algebraic, estimate_algebraic
from igpe.dynamic.base import constrained_unknowns, require_known_sigma, require_plain
from igpe.dynamic.complement import Asked, complements
from igpe.dynamic.guess import Simulated, profiles
from igpe.dynamic.model_weights import first_weighted
from igpe.dynamic.polish import Polished, polish
from igpe.dynamic.residuals import Residuals
from igpe.dynamic.settling import settle
from igpe.equally_good import with_other_optima
from igpe.equations.system import System, read_systems
from igpe.errors import EstimationFailed, ProblemError
from igpe.problem import Problem
from igpe.progress import Clock, Progress
from igpe.proven import complement_proven, with_proof
from igpe.result import Result
from igpe.settings import Settings
from igpe.status import Status
from igpe.structure.findings import Reach
from igpe.structure.identifiability import MOST_WORK
from igpe.structure.structure import Structure, analyse
from igpe.summary import Steps, Way, summarise
from igpe.tasks.crew import Workers
from igpe.tasks.run import Place


def estimate(
    problem: Problem,
    settings: Settings | None = None,
    *,
    seed: int | None = None,
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
    certify: bool = False,
) -> Result:
    """The five steps of IGPE (Michalik, Chachuat & Marquardt 2009, Fig. 1).

    settings  the methods of the steps
    seed      of every random choice; the same seed gives the same result
    executor, store, timeout   where the candidates of step 3 go through step 4 and are kept, one
              an item, as for `igpe.campaign`
    progress  is told a sentence whenever a step begins
    certify   whether `igpe.certify` is to prove, within a minute, that nothing fits better: see
              `Result.proof`; where that cannot be done a note says why
    raises    ModelError if the equations cannot be read, ProblemError if bounds are missing,
              Unsupported if the problem asks for what no step can do, EstimationFailed if no
              candidate could be fitted
    Ctrl-C ends step 3's proof where it is, and steps 4 and 5 with the best found so far (status
    INTERRUPTED), if there is anything.
    """
    settings = settings or Settings()
    settings = settings if seed is None else settings.seeded(seed)
    if not isinstance(settings.seed, int) or settings.seed < 0:
        raise ProblemError(f"The seed is {settings.seed!r}; give an integer of 0 or more.")
    place = Place(executor, store, timeout)
    require_plain(problem, "igpe.estimate", constraints_too=False)
    require_known_sigma(problem, "igpe.estimate")
    clock = Clock(progress)
    given, problem = problem, first_weighted(problem)
    with clock.step("1 smoothing", "Step 1: smoothing the measurements"):
        ladder = [smooth_measurements(problem, smoother) for smoother in settings.ladder]
    with clock.step("2 structure", "Step 2: which equations can be estimated algebraically"):
        systems = read_systems(problem)
        structure = analyse(problem, systems)
        problem = _without_unreachable(problem, structure)
    with clock.step("3 algebraic", "Step 3: global algebraic estimation"):
        algebraic = estimate_algebraic(
            problem, structure, ladder, settings.routes, settings.weights
        )
    with clock.step("4 complement", "Step 4: the remaining unknowns on the dynamics"):
        begun = _complemented(problem, algebraic, settings, place)
    with clock.step("5 correction", "Step 5: simultaneous correction"):

        def fit(weighted: Problem, before: Fitted | None, moved: float) -> Fitted:
            if begun.stopped:
                return _uncorrected(weighted, systems, begun.ways, settings)
            return _fitted(weighted, systems, begun.ways, before, settings)

        found = settle(
            problem,
            given.fixing(problem.fixed),
            systems,
            fit,
            lambda fitted: fitted.best.estimate,
            integrator=settings.integrator,
        )
        ways, best = found.fits[-1]
        best = best._replace(notes=(*best.notes, *found.notes))
    with clock.step("other optima", "Other optima that explain the data alike"):
        steps = with_other_optima(
            Steps(
                found.problem, ladder, systems, structure, algebraic[0], ways, best, clock.seconds
            ),
            settings,
        )
    with clock.step("statistics", "Statistics of the fit"):
        result = summarise(steps, settings, begun.proved)
    return with_proof(found.problem, result, clock) if certify else result


def check(problem: Problem, *, identifiability: bool | None = None) -> Structure:
    """Step 2 alone: what can be estimated from these measurements, and why not.

    problem          is only read, not fitted
    identifiability  whether it is tested, by exact rank. None: where that is quick; True: however
                     long it takes, and by integrations where nothing exact can be computed
    raises           ModelError if the equations cannot be read
    """
    most_work = {None: MOST_WORK, True: np.inf, False: 0.0}[identifiability]
    return analyse(problem, most_work=most_work)


def _without_unreachable(problem: Problem, structure: Structure) -> Problem:
    """Hold what nothing measured depends on: at its prior's mean, or amid its bounds."""
    tied = constrained_unknowns(problem)  # a constraint may tie them to what is measured
    lost = problem.box.select(n for n in structure.names(Reach.UNREACHABLE) if n not in tied)
    if not len(lost):
        return problem
    if len(lost) == len(problem.box):
        raise EstimationFailed(f"Nothing can be estimated.\n{structure}", Status.UNDETERMINED)
    held = lost.mapping(lost.middle)
    return problem.fixing({
        n: problem.priors[n].mean if n in problem.priors else v for n, v in held.items()
    })


UNCORRECTED = (
    "It was interrupted before step 5, so that these are the values of steps 3 and 4; errors and "
    "intervals are only a hint."
)


class Fitted(NamedTuple):
    """Step 5: all ways, best first, and the best one polished."""

    ways: list[Way]
    best: Polished


def _fitted(
    problem: Problem,
    systems: tuple[System, ...],
    begun: Sequence[Way],
    before: Fitted | None,
    settings: Settings,
) -> Fitted:
    """From what was `before`, with other standard deviations, or at first from what has `begun`."""
    try:
        ways = _corrected(problem, systems, begun if before is None else before.ways, settings)
    except KeyboardInterrupt:
        if before is None:
            return _uncorrected(problem, systems, begun, settings)
        ways = [_interrupted(way) for way in before.ways]
    best = polish(problem, systems, ways[0].corrected, settings.integrator)
    ways[0] = ways[0]._replace(corrected=best.estimate)
    return Fitted(ways, best)


class Begun(NamedTuple):
    """Step 4: all candidates, whether it was interrupted, and what is proved of the best one."""

    ways: list[Way]
    stopped: bool
    proved: tuple[str, ...] = ()


def _complemented(
    problem: Problem, algebraic: Sequence[Algebraic], settings: Settings, place: Place
) -> Begun:
    """Every candidate after step 4; those that are done, if it was interrupted.

    raises KeyboardInterrupt if none is
    """
    asked = Asked(problem, settings.complement)
    found = complements(asked, [a.parameters for a in algebraic], place)
    ways = [Way(a, c, c) for a, c in zip(algebraic, found, strict=True) if c is not None]
    stopped = len(ways) < len(algebraic) or ways[-1].complete.status is Status.INTERRUPTED
    if stopped or settings.proof is None:
        return Begun(ways, stopped)
    ways, proved = complement_proven(problem, ways, settings.proof)
    return Begun(ways, stopped, proved)


def _uncorrected(
    problem: Problem, systems: tuple[System, ...], begun: Sequence[Way], settings: Settings
) -> Fitted:
    """The candidates as they are after step 4, the best of them integrated: step 5 was cut short.

    raises KeyboardInterrupt if none can be integrated
    """
    residuals = Residuals(problem, systems, settings.integrator)
    found = []
    for way in map(_interrupted, begun):
        at = residuals(problem.box.vector(way.corrected.parameters))
        cost = np.inf if at is None else at.cost
        found.append((at, way._replace(corrected=replace(way.corrected, objective=cost))))
    at, best = min(found, key=lambda pair: pair[1].corrected.objective)
    if at is None:
        raise KeyboardInterrupt
    others = [way for _, way in found if way is not best]
    return Fitted([best, *others], Polished(best.corrected, at, (UNCORRECTED,)))


def _interrupted(way: Way) -> Way:
    return way._replace(corrected=replace(way.corrected, status=Status.INTERRUPTED))


def _corrected(
    problem: Problem, systems: tuple[System, ...], begun: Sequence[Way], settings: Settings
) -> list[Way]:
    """Every candidate through step 5, from where it now is, best first.

    raises EstimationFailed if none could be corrected
    """
    guesses = [
        profiles(
            Simulated(problem, systems, settings.integrator, way.corrected.parameters),
            way.algebraic.curves.of,
        )
        for way in begun
    ]
    starts = [way.corrected.parameters for way in begun]
    corrected = settings.correction.estimate_each(problem, starts, guesses, systems)
    ways = [way._replace(corrected=c) for way, c in zip(begun, corrected, strict=True)]
    if not any(np.isfinite(way.corrected.objective) for way in ways if way.usable):
        status = ways[0].corrected.status
        raise EstimationFailed(
            f"None of the {len(ways)} candidates could be corrected on the dynamics; the first "
            f"ended so: {status.value} Check the bounds and the start values, and simulate the "
            "model at plausible parameters: igpe.simulate(problem, {...}).",
            status,
        )
    return sorted(ways, key=lambda way: (not way.usable, way.corrected.objective))
