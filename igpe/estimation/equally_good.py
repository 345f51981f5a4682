"""Step 5's answer among all optima that are known: the best one first, and those as good as it.

What the pipeline has proved on the dynamics: of step 4, and of its answer.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.deadline import if_in_time, stopped
from igpe.core.errors import IgpeError
from igpe.core.estimates import Estimate
from igpe.core.status import Clock, Status
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.likelihood import errors_at, objective_rise, tangent
from igpe.dynamics.search.other_optima import INTERRUPTED, Sought, other_optima, rounding
from igpe.dynamics.shooting.base import is_plain
from igpe.dynamics.shooting.refine import Refined, refine
from igpe.dynamics.shooting.residuals import Residuals
from igpe.estimation.settings import ProveComplement, Settings
from igpe.estimation.summary import CandidatePath, Steps, summarise
from igpe.numerics.optima import first_of_each, has_same_values, is_same_objective
from igpe.problem.problem import Problem
from igpe.results.result import Result
from igpe.results.result_data import has_better

BETTER = "the search for other optima"
BY_PROOF = "the proof of the optimum"


def with_other_optima(steps: Steps, settings: Settings) -> Steps:
    """The steps with all distinct optima within the statistical threshold.

    An optimum that is better than the candidates of step 3 becomes the answer. Constraints are not
    kept by this search: of problems with them the ends of the candidates are all that is known. At
    Ctrl-C the steps are as they were, with a note.
    """
    found = if_in_time(lambda: _with_other_optima(steps, settings))
    return _noted(steps) if found is None else found


def _noted(steps: Steps) -> Steps:
    return steps._replace(best=steps.best._replace(notes=(*steps.best.notes, INTERRUPTED)))


def _with_other_optima(steps: Steps, settings: Settings) -> Steps:
    problem, best = steps.problem, steps.best
    is_cut = best.estimate.status is Status.INTERRUPTED
    if best.at is None or is_cut or not len(problem.box):
        return steps
    if not is_plain(problem):
        return _among_candidates(steps, settings)
    is_convex = steps.structure.is_linear and not problem.sigma_estimated
    if is_convex and _agree(problem, steps.paths):
        return steps
    x = problem.box.vector(best.estimate.parameters)
    rise = _rise(steps, settings)
    sought = Sought(x, _starts(problem, steps.paths), rise, settings.seed)
    values, why = other_optima(problem, sought)
    exact = [best, *_refined(problem, steps, values, settings.integrator)]
    why = why or (INTERRUPTED if stopped() else "")
    return _ordered(steps, exact, rise, (why,) if why else ())


def led_by(steps: Steps, settings: Settings, values: Mapping[str, float]) -> Steps:
    """The steps with the optimum next to `values`, if it is better than the estimate.

    values  unknown -> value, as a proof met them
    """
    x = steps.problem.box.vector(values)
    better = list(_refined(steps.problem, steps, [x], settings.integrator, BY_PROOF))
    exact = [steps.best, *better, *steps.others]
    return _ordered(steps, exact, _rise(steps, settings), (), BY_PROOF) if better else steps


def _rise(steps: Steps, settings: Settings) -> float:
    """How far the objective of another optimum may lie above the best; 0 where that is unknown."""
    problem, best = steps.problem, steps.best
    x = problem.box.vector(best.estimate.parameters)
    active = tangent(problem, x).rows
    errors = errors_at(problem, x, best.at, settings.confidence, active=active)
    rise = np.nan
    if best.at is not None:
        rise = objective_rise(problem, best.at, errors, settings.confidence)
    return rise if np.isfinite(rise) else 0.0


def _among_candidates(steps: Steps, settings: Settings) -> Steps:
    """The steps with those ends of candidates that are other optima, compared by values."""
    problem, best = steps.problem, steps.best
    residuals = Residuals(problem, settings.integrator)
    level = best.estimate.objective + _rise(steps, settings) + rounding(problem)
    kept = [best]
    for path in steps.paths:
        end = path.corrected
        is_good = end.status.usable and end.objective <= level
        if is_good and not any(_is_same(problem, Refined(end, None), k) for k in kept):
            kept.append(Refined(end, residuals(problem.box.vector(end.parameters))))
    others = sorted(kept[1:], key=lambda one: one.estimate.objective)
    return steps._replace(others=tuple(others))


def _agree(problem: Problem, paths: Sequence[CandidatePath]) -> bool:
    """Return True if all candidates ended at the same values."""
    box = problem.box
    best, *others = (box.vector(w.corrected.parameters) for w in paths if w.usable)
    return all(has_same_values(best, other, box) for other in others)


def _starts(problem: Problem, paths: Sequence[CandidatePath]) -> list[FloatArray]:
    """Where the other candidates ended, and the other optima that step 4 met."""
    return [problem.box.vector(values) for values in _met(paths)]


def _met(paths: Sequence[CandidatePath]) -> Iterator[dict[str, float]]:
    for path in paths:
        for estimate in (path.corrected, *path.complete.trail):
            if estimate.status.usable and np.isfinite(estimate.objective):
                yield {**path.corrected.parameters, **estimate.parameters}


def _refined(
    problem: Problem,
    steps: Steps,
    values: Sequence[FloatArray],
    integrator: Integrator,
    origin: str = BETTER,
) -> Iterator[Refined]:
    """The optima by the integrator of the result; those it cannot confirm are left out.

    Those that Ctrl-C leaves no time for as well.
    """
    residuals = Residuals(problem, integrator)
    for x in values:
        rough = Estimate(problem.box.mapping(x), np.inf, Status.CONVERGED, origin)
        found = if_in_time(partial(refine, problem, residuals, rough))
        if found is not None and found.at is not None and not found.notes:
            yield found


def _ordered(
    steps: Steps,
    exact: Sequence[Refined],
    rise: float,
    notes: tuple[str, ...],
    origin: str = BETTER,
) -> Steps:
    problem, given = steps.problem, steps.best
    none = rounding(problem)
    least = min(exact, key=lambda one: one.estimate.objective)
    same = is_same_objective(least.estimate.objective, given.estimate.objective, none)
    best, paths = (given, steps.paths) if same else (least, _led(least, steps.paths, origin))
    level = best.estimate.objective + rise + none
    low = [one for one in exact if one.estimate.objective <= level]
    ordered = [best, *sorted(low, key=lambda one: one.estimate.objective)]
    kept = first_of_each(ordered, partial(_is_same, problem))
    best = best._replace(notes=(*best.notes, *notes))
    return steps._replace(paths=paths, best=best, others=tuple(kept[1:]))


def _led(best: Refined, paths: Sequence[CandidatePath], origin: str) -> list[CandidatePath]:
    """The candidates, after one more that is better than they are."""
    algebraic = replace(paths[0].algebraic, parameters={}, answers=(), origin=origin)
    estimate = replace(best.estimate, status=Status.BEST_OF_SEVERAL)
    return [CandidatePath(algebraic, estimate, estimate), *paths]


def _is_same(problem: Problem, one: Refined, other: Refined) -> bool:
    a, b = (problem.box.vector(p.estimate.parameters) for p in (one, other))
    return has_same_values(a, b, problem.box)


def with_proof(
    steps: Steps, settings: Settings, result: Result, clock: Clock, proved: tuple[str, ...]
) -> Result:
    """The result with its proof, or with a note why there is none.

    Where the proof meets better parameters the estimate is fitted again from them.

    proved  sentences on what was proved of step 4, as for `summarise`
    """
    from igpe.proofs.prover.certify import certify  # noqa: PLC0415 - Numba is slow to load

    with clock.step("certificate", "A proof that no parameters within the bounds fit better"):
        try:
            proof = certify(steps.problem, result).without_tree()
        except IgpeError as error:
            return _unproved(result, f"Nothing was proved. {error}", clock)
        except KeyboardInterrupt:  # before there is a bound
            return _unproved(result, "Nothing was proved: it was interrupted.", clock)
        if has_better(result, proof) and not stopped():
            values = dict(zip(proof.unknowns, proof.parameters, strict=True))
            result = summarise(led_by(steps, settings, values), settings, proved)
    return replace(result, proof=proof, seconds=dict(clock.seconds))


def _unproved(result: Result, note: str, clock: Clock) -> Result:
    return replace(result, notes=(*result.notes, note), seconds=dict(clock.seconds))


def complement_proven(
    problem: Problem, paths: Sequence[CandidatePath], proof: ProveComplement
) -> tuple[list[CandidatePath], tuple[str, ...]]:
    """The candidates after step 4, and what is proved of the best, where it is small enough.

    The best one may become better by that. Ctrl-C only ends the proof.
    """
    k = int(np.argmin([np.nan_to_num(w.complete.objective, nan=np.inf) for w in paths]))
    found, before = list(paths), paths[k].complete
    rest = problem.fixing(paths[k].algebraic.parameters)
    if not len(rest.box):
        return found, ()
    if len(rest.box) > proof.unknowns:
        many = f"{len(rest.box)} unknowns, more than ProveComplement(unknowns={proof.unknowns})"
        return found, (f"Step 4: nothing was proved of {many}.",)
    at = {name: before.parameters[name] for name in rest.box.names}
    try:
        from igpe.proofs.prover.certify import certify  # noqa: PLC0415 - Numba is slow to load

        proved = certify(rest, at, gap=proof.gap, time_limit=proof.time_limit)
    except IgpeError as error:
        return found, (f"Step 4: nothing was proved. {error}",)
    except KeyboardInterrupt:  # before there is anything to tell
        return found, ("Step 4: nothing was proved, as you stopped it.",)
    better = dict(zip(proved.unknowns, proved.parameters, strict=True))
    complete = replace(
        before,
        parameters={**before.parameters, **better},
        objective=proved.objective,
        lower_bound=proved.lower_bound,
    )
    found[k] = paths[k]._replace(complete=complete, corrected=complete)
    return found, (f"Step 4, with what step 3 found held: {proved.sentence}",)
