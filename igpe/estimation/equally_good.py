"""Step 5's answer among all optima that are known: the best one first, and those as good as it.

Structure predicts some of these: `igpe.check` counts the sets that give the same outputs, and knows
functions that are the same for all of them: k1 + k2 and k1 k2, say. The other solutions of these
equations inside the bounds are where the search for other optima begins.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice, product

import numpy as np
from scipy.optimize import least_squares

from igpe.core.arrays import FloatArray, connected
from igpe.core.box import Box
from igpe.core.deadline import if_in_time, stopped
from igpe.core.errors import IgpeError
from igpe.core.estimates import Estimate
from igpe.core.status import Clock, Status
from igpe.dynamics.likelihood import errors_at, objective_rise
from igpe.dynamics.search.other_optima import (
    INTERRUPTED,
    Sought,
    most_apart,
    other_optima,
    rounding,
)
from igpe.dynamics.shooting.base import constraints, is_large, is_plain
from igpe.dynamics.shooting.refine import Refined, refine
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals
from igpe.dynamics.shooting.reweighting import (
    favouring_each,
    first_weighted,
    iterate_weights,
    weighted_at,
)
from igpe.dynamics.shooting.tangent import tangent
from igpe.estimation.settings import (
    BETTER,
    BY_FURTHER,
    BY_HORIZONS,
    BY_PROOF,
    CandidatePath,
    Settings,
    Steps,
)
from igpe.estimation.summary import alternatives, summarise
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.optima import (
    Landscape,
    first_of_each,
    has_same_known,
    has_same_values,
    is_near,
    is_same_objective,
)
from igpe.problem.model import without_constraints
from igpe.problem.problem import Problem
from igpe.results.answer import SEARCHED
from igpe.results.certificates import STATE_BOUNDS, DynamicCertificate
from igpe.results.result import Result
from igpe.results.result_data import has_better
from igpe.structure.solutions import Alternatives

TRIALS = 40  # points that equations are solved from
MOST_PREDICTED = 8  # solutions of one group of unknowns
SOLVED = 1e-9  # relative to the functions' values at the estimate
FORMULA = re.compile(r"(?:q\[\d+\]|[0-9+\-*/(). ])+")


def predicted(
    alternatives: Sequence[Alternatives], box: Box, x: FloatArray, *, seed: int
) -> list[tuple[FloatArray, list[int]]]:
    """Points (n,) with other solutions than those at x (n,), and the places of what has moved.

    Unknowns that share no function move independently: all at once first, as where two parts of a
    model change places. Those that their functions do not determine stay, to be fitted.
    """
    points, here = [], box.mapping(x)
    for one in alternatives:
        within = {f: {*_names_in(one.unknowns).findall(f)} for f in one.functions}
        parts = [
            (sorted(part, key=one.unknowns.index), [f for f in within if within[f] & part])
            for part in connected(within.values())
        ]
        determined = [part for part in parts if len(part[1]) >= len(part[0])] or parts
        moves = [[*_moved(*part, box, here, seed), here] for part in determined]
        moved = (some for some in product(*moves) if any(m is not here for m in some))
        held = [box.names.index(n) for names, _ in determined for n in names]
        for some in islice(moved, MOST_PREDICTED):
            values = {
                n: m[n] for m, (names, _) in zip(some, determined, strict=True) for n in names
            }
            points.append((box.vector({**here, **values}), held))
    return points


def _moved(
    names: Sequence[str],
    functions: Sequence[str],
    box: Box,
    here: Mapping[str, float],
    seed: int,
) -> list[dict[str, float]]:
    """Other values of these unknowns at which their functions are what they are here."""
    own, function = box.select(names), _function(names, functions)
    if function is None or not own.bounded:
        return []
    return [own.mapping(q) for q in _solutions(function, own, own.vector(here), seed)]


def _function(
    names: Sequence[str], functions: Sequence[str]
) -> Callable[[FloatArray], FloatArray] | None:
    """Values of the unknowns -> of the functions; None where they are no plain formulas."""
    if not names:
        return None
    pattern, codes = _names_in(names), []
    for text in functions:
        formula = pattern.sub(lambda match: f"q[{names.index(match[0])}]", text)
        formula = formula.replace("^", "**")
        if not FORMULA.fullmatch(formula):
            return None
        codes.append(compile(formula, "function", "eval"))
    return lambda q: np.array([eval(code, {"__builtins__": {}}, {"q": q}) for code in codes])


def _names_in(names: Sequence[str]) -> re.Pattern[str]:
    """What matches these names, the longest first."""
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))


def _solutions(
    function: Callable[[FloatArray], FloatArray], box: Box, here: FloatArray, seed: int
) -> Iterator[FloatArray]:
    """Distinct solutions in the box of function(q) = function(here), without `here`."""
    wanted = function(here)
    size = np.where(wanted != 0, np.abs(wanted), 1.0)
    if not np.isfinite(wanted).all():
        return

    def residual(q: FloatArray) -> FloatArray:
        return np.nan_to_num((function(q) - wanted) / size, nan=1e9, posinf=1e9, neginf=-1e9)

    ends = []
    for start in box.sobol(TRIALS, seed):
        with np.errstate(all="ignore"):
            end = least_squares(
                residual,
                start,
                bounds=(box.lower, box.upper),
                xtol=1e-14,
                ftol=1e-14,
                gtol=1e-14,
            )
        if np.max(np.abs(end.fun)) <= SOLVED:
            ends.append(end.x)
    distinct = first_of_each([here, *ends], partial(has_same_values, box=box))
    yield from distinct[1 : MOST_PREDICTED + 1]


SWITCH = "IGPE_PROOFS"
"""Environment variable: with "asked" `igpe.estimate` tries no proof that was not asked for."""
MOST_WORK = 1_000_000_000  # to confirm other optima: some 25 s of a processor
FEW = 4  # unknowns of which a proof may be had in seconds
ALIKE = 0.01  # change of weights, or of correlations, that means nothing
OTHER_WEIGHTS = (
    "igpe also fitted with weights that favour each quantity in turn, and took the weights of the "
    "highest likelihood. Searches before had other weights."
)
MOST_TURNS = 3  # of weights and the search for other optima
LEVEL = 1e-7  # relative difference of objectives of spectra that are the same: exchanged ones are
WEIGHTS_INTERRUPTED = (
    "igpe was interrupted before it could compute the standard deviations or correlations for this "
    "optimum. They may be those of another optimum."
)
UNCONFIRMED = (
    "Other sets of values that the search found: {}. Accurate integrations did not confirm {} of "
    "them, which igpe omits."
)


def with_other_optima(steps: Steps, settings: Settings) -> Steps:
    """The steps with all distinct optima within the statistical threshold.

    An optimum that is better than the candidates of step 3 becomes the answer. Constraints are not
    kept by this search: of problems with them the ends of the candidates are all that is known. At
    Ctrl-C the steps are as they were, with a note.
    """
    best = steps.best._replace(notes=(*steps.best.notes, INTERRUPTED))
    return if_in_time(lambda: _with_other_optima(steps, settings)) or steps._replace(best=best)


def _with_other_optima(steps: Steps, settings: Settings) -> Steps:
    problem, best, box = steps.problem, steps.best, steps.problem.box
    if best.at is None or best.estimate.status is Status.INTERRUPTED or not len(box):
        return steps
    if not is_plain(problem):
        return _among_candidates(steps, settings)
    is_convex = steps.structure.is_linear and not problem.sigma_estimated
    if is_convex and _ends_agree(steps, settings):
        return steps
    rise, x = rise_of(steps, settings), box.vector(best.estimate.parameters)
    level = best.estimate.objective + rise + rounding(problem)
    starts = [  # where the other candidates ended, and the other optima that step 4 met
        box.vector({**path.corrected.parameters, **estimate.parameters})
        for path in steps.paths
        if path.algebraic.origin != BY_HORIZONS or path.corrected.objective <= level
        for estimate in (path.corrected, *path.complete.trail)
        if estimate.status.usable and np.isfinite(estimate.objective)
    ]
    steps = steps._replace(several=alternatives(problem))
    moved = partial(predicted, steps.several or (), box, seed=settings.seed)
    end = other_optima(problem, Sought(x, starts, moved, rise, settings.seed))
    kept = None if end.is_passed else x
    exact = list(refined(problem, end.values, settings, BETTER, most_work=MOST_WORK, best=kept))
    why = end.why or INTERRUPTED * stopped()
    if not why and len(exact) < len(end.values):
        why = UNCONFIRMED.format(len(end.values), len(end.values) - len(exact))
    if problem.has_spectra or not (end.is_passed and exact):  # its residuals are not those of best
        exact.insert(0, best)
    return ordered(steps, exact, settings, (why,) if why else (), BETTER)


def _ends_agree(steps: Steps, settings: Settings) -> bool:
    """Whether all candidates ended at the estimate, by values or by its standard errors."""
    problem, best, box = steps.problem, steps.best, steps.problem.box
    x, none = box.vector(best.estimate.parameters), rounding(problem)
    own, residuals = Fit(x, best.at, best.estimate.status, 0), Residuals(problem, settings.compiled)
    for end in (box.vector(path.corrected.parameters) for path in steps.paths if path.usable):
        if has_same_values(x, end, box):
            continue
        other = Fit(end, residuals(end), best.estimate.status, 0)
        if other.at is None or not all(is_near(one, end - x, none) for one in (own, other)):
            return False
    return True


def rise_of(steps: Steps, settings: Settings) -> float:
    """How far the objective of another optimum may lie above the best; 0 where that is unknown."""
    problem, best = steps.problem, steps.best
    if best.at is None:
        return 0.0
    x, level = problem.box.vector(best.estimate.parameters), settings.confidence
    errors = errors_at(problem, x, best.at, level, along=tangent(problem, x, best.at))
    rise = objective_rise(problem, best.at, errors, level)
    return rise if np.isfinite(rise) else 0.0


def _among_candidates(steps: Steps, settings: Settings) -> Steps:
    """The steps with those ends of candidates that are other optima.

    What the data do not determine does not count, such as what only an inequality holds.
    """
    problem, best, box = steps.problem, steps.best, steps.problem.box
    residuals, none = Residuals(problem, settings.integrator), rounding(problem)
    level = best.estimate.objective + rise_of(steps, settings) + none
    ends = [p.corrected for p in steps.paths if p.usable and p.corrected.objective <= level]

    def is_same(one: Refined, other: Refined) -> bool:
        fits = [
            Fit(box.vector(r.estimate.parameters), r.at, r.estimate.status, 0) for r in (one, other)
        ]
        if any(fit.at is None for fit in fits):
            return _is_same(problem, one, other)
        return has_same_known(Landscape(residuals, box, none), *fits)

    other = [Refined(end, residuals(box.vector(end.parameters))) for end in ends]
    kept = first_of_each([best, *other], is_same)
    return steps._replace(others=tuple(sorted(kept[1:], key=objective_of)))


def refined(
    problem: Problem,
    values: Sequence[FloatArray],
    settings: Settings,
    origin: str,
    *,
    most_work: float = np.inf,
    best: FloatArray | None = None,
) -> Iterator[Refined]:
    """The optima by the integrator of the result; those it cannot confirm are left out.

    Those that Ctrl-C, or so much work (`Residuals.work`) for all, leave no time for as well, and
    those that take far more steps than the estimate.

    best  (n,) the estimate; None: the first of the optima takes its place, whatever work that is
    """
    residuals = Residuals(problem, settings.compiled)
    with suppress(ExhaustedError):
        for k, x in enumerate(values):
            residuals.most_work = np.inf if best is None and k == 0 else most_work
            if k == int(best is None):
                residuals.limit_steps(values[0] if best is None else best)
            rough = Estimate(problem.box.mapping(x), np.inf, Status.CONVERGED, origin)
            exact = if_in_time(partial(refine, problem, residuals, rough))
            if exact is not None and exact.at is not None and {*exact.notes} <= {*residuals.manner}:
                yield exact


def ordered(
    steps: Steps, exact: Sequence[Refined], settings: Settings, notes: tuple[str, ...], origin: str
) -> Steps:
    """The steps led by the best of some optima, and with those that are as good as it."""
    problem, best, paths = steps.problem, steps.best, steps.paths
    none, least = rounding(problem), min(exact, key=objective_of)
    is_kept = any(one is best for one in exact) and is_level(problem, least, best)
    if problem.has_spectra:  # exchanged rate constants: the set with the least negative spectra
        level_ones = [one for one in exact if is_level(problem, one, least)]
        spectra = Residuals(problem, settings.compiled)
        least = min(level_ones, key=lambda one: _negative_part(spectra, one, problem.box))
        is_kept = least is best
    if not is_kept:
        best = least
        led = replace(best.estimate, status=Status.BEST_OF_SEVERAL)
        paths = [steps.path_to(led, origin), *paths]
    level = objective_of(best) + rise_of(steps._replace(best=best), settings) + none
    low = [one for one in exact if objective_of(one) <= level]
    kept = first_of_each([best, *sorted(low, key=objective_of)], partial(_is_same, problem))
    best = best._replace(notes=(*best.notes, *notes))
    return steps._replace(paths=paths, best=best, others=tuple(kept[1:]))


def _negative_part(residuals: Residuals, one: Refined, box: Box) -> float:
    """Share of the pure spectra's squares that is negative."""
    trajectories = residuals.trajectories(box.vector(one.estimate.parameters))
    if trajectories is None:
        return np.inf
    each = [block.pure(trajectories) for block in residuals.spectral]
    below = sum(float((np.minimum(s, 0.0) ** 2).sum()) for s in each)
    return below / max(sum(float((s**2).sum()) for s in each), 1e-300)


def objective_of(one: Refined) -> float:
    return one.estimate.objective


def _is_same(problem: Problem, one: Refined, other: Refined) -> bool:
    a, b = (problem.box.vector(p.estimate.parameters) for p in (one, other))
    return has_same_values(a, b, problem.box)


def led_if_better(steps: Steps, exact: Sequence[Refined], settings: Settings, origin: str) -> Steps:
    """The steps led by the best of some optima, if it is better than the estimate."""
    problem, best = steps.problem, steps.best
    if any(objective_of(e) < objective_of(best) and not is_level(problem, e, best) for e in exact):
        return ordered(steps, [best, *exact, *steps.others], settings, (), origin)
    return steps


def is_level(problem: Problem, one: Refined, other: Refined) -> bool:
    """Whether two optima have one objective.

    That of spectra is a sum of so many squares that what is refuted may differ by a small share.
    """
    a, b, none = objective_of(one), objective_of(other), rounding(problem)
    if problem.has_spectra and np.isfinite([a, b]).all():
        return abs(a - b) <= LEVEL * max(abs(a), abs(b)) + none
    return is_same_objective(a, b, none, most_apart(problem))


def is_small(problem: Problem) -> bool:
    """Whether a proof may be had in seconds, and may be tried."""
    box = problem.box
    is_few = 0 < len(box) <= FEW and not is_large(problem)
    return is_few and bool(box.bounded) and os.environ.get(SWITCH) != "asked"


def with_unasked_proof(steps: Steps, settings: Settings, result: Result, clock: Clock) -> Result:
    """The result with a proof, where the problem is small and the proof is finished in seconds."""
    if steps.problem.has_spectra or not is_small(steps.problem) or result.status not in SEARCHED:
        return result
    from igpe.proofs.prover import unasked  # noqa: PLC0415 - Numba is slow to load

    def proved(problem: Problem, parameters: dict[str, float]) -> DynamicCertificate | None:
        return if_in_time(lambda: unasked.unasked(problem, parameters))

    with clock.step("certificate", "A proof that no parameter values within the bounds fit better"):
        result, proof = _proved(steps, settings, result, proved)
    proof = proof.without_tree() if proof is not None and proof.closed else None
    return replace(result, proof=proof, seconds=dict(clock.seconds))


def _proved(
    steps: Steps,
    settings: Settings,
    result: Result,
    prove: Callable[[Problem, dict[str, float]], DynamicCertificate | None],
) -> tuple[Result, DynamicCertificate | None]:
    """The result at the better parameters that a proof met, if it met any, and the proof.

    Where these parameters have other weights, the proof is made again with them.
    """
    proof = None
    for _ in range(MOST_TURNS):
        proof = prove(steps.problem, result.parameters)
        if proof is None or not has_better(result, proof) or stopped():
            break
        values = dict(zip(proof.unknowns, proof.parameters, strict=True))
        before = steps.problem
        steps = with_own_weights(led_by(steps, settings, values), settings)
        result = summarise(steps, settings)
        if steps.problem is before:
            break
    return result, proof


def with_proof(steps: Steps, settings: Settings, result: Result, clock: Clock) -> Result:
    """The result with its proof, or with a note why there is none.

    Where the proof meets better parameters the estimate is fitted again from them.
    """
    from igpe.proofs.prover.certify import certify  # noqa: PLC0415 - Numba is slow to load

    why = ""

    def proved(problem: Problem, parameters: dict[str, float]) -> DynamicCertificate | None:
        nonlocal why
        try:
            return certify(problem, parameters).without_tree()
        except IgpeError as error:
            why = f"Not proved. {error}"
        except KeyboardInterrupt:  # before there is a bound
            why = "Not proved: the proof was interrupted."
        return None

    with clock.step("certificate", "A proof that no parameter values within the bounds fit better"):
        result, proof = _proved(steps, settings, result, proved)
    actions = (*result.actions, *[why] * (proof is None))
    return replace(result, proof=proof, actions=actions, seconds=dict(clock.seconds))


def with_refusal(steps: Steps, result: Result, given: Problem) -> Result:
    """The result with the reason why `igpe.certify` refuses the given problem, where it does."""
    is_open = result.proof is None and result.status in SEARCHED
    if not is_open or not len(steps.problem.box):
        return result
    if result.active and is_plain(steps.problem):
        return replace(
            result, unprovable=f"igpe.certify {STATE_BOUNDS}: {', '.join(result.active)}."
        )
    from igpe.proofs.prover.posed import refusal  # noqa: PLC0415 - Numba is slow to load

    why = refusal(first_weighted(given.formed(without_constraints)))
    if not why and constraints(given) and constraints(steps.problem):
        why = "igpe.certify supports constraints only if they are inactive."
    return replace(result, unprovable=why)


def with_own_weights(steps: Steps, settings: Settings) -> Steps:
    """The steps with the weights of their best optimum, if another search than step 5 led to it.

    Until then, weights that follow the fit are those of the optimum of step 5, and of another
    optimum they may be wrong by factors. With new weights another optimum may be the best.
    """
    if steps.given is None or stopped():
        return steps
    for _ in range(MOST_TURNS):
        again = if_in_time(partial(_with_weights_of_best, steps, settings, steps.given))
        if again is None:
            best = steps.best._replace(notes=(*steps.best.notes, WEIGHTS_INTERRUPTED))
            return steps._replace(best=best)
        if again is steps:
            break
        steps = with_other_optima(again, settings)
    return steps


def with_other_weights(steps: Steps, settings: Settings) -> tuple[Steps, str]:
    """The steps at the likeliest of several estimated weights, for a fit that the data refute.

    Weights that follow the residuals stand still wherever they agree with the fit. One quantity
    after the other counts almost alone at first. With a note if other weights are taken.
    """
    problem, given, best = steps.problem, steps.given, steps.best
    if given is None or best.at is None or not (is_plain(problem) and given.weights_unknown):
        return steps, ""
    if given.correlation_estimated or not given.loss.is_squares:  # objectives do not compare
        return steps, ""
    given, led = given.fixing(problem.fixed), steps
    x = problem.box.vector(best.estimate.parameters)
    for one in favouring_each(given, best.estimate.parameters):
        for end in refined(one, [x], settings, BY_FURTHER):
            paths = [steps.path_to(end.estimate, BY_FURTHER), *steps.paths]
            begun = steps._replace(problem=one, best=end, paths=paths)
            again = _with_weights_of_best(begun, settings, given)
            is_lower = objective_of(again.best) < objective_of(led.best)
            if again is not begun and is_lower and not is_level(problem, again.best, led.best):
                led = again
    return (steps, "") if led is steps else (with_other_optima(led, settings), OTHER_WEIGHTS)


def _with_weights_of_best(steps: Steps, settings: Settings, given: Problem) -> Steps:
    """The steps led by the same optimum with weights of its own; the same if it has them.

    given  the problem with weights that follow the fit
    """
    box, best, held = steps.problem.box, steps.best, steps.problem.held_weights
    if held is None or not held.at or best.at is None:
        return steps
    x = box.vector(best.estimate.parameters)
    if has_same_values(x, box.vector(held.at), box):
        return steps
    given = given.fixing(steps.problem.fixed)
    first = weighted_at(given, best.estimate.parameters, settings.integrator)
    if first is None or _are_alike(first, steps.problem):
        return steps

    def fit(weighted: Problem, before: Refined | None, moved: float) -> Refined:
        last = before or best
        start = box.vector(last.estimate.parameters)
        return next(refined(weighted, [start], settings, BETTER), last)

    reweighted = iterate_weights(first, given, fit, lambda one: one.estimate)
    last = reweighted.fits[-1]
    led = replace(last.estimate, status=best.estimate.status)
    residuals = Residuals(reweighted.problem, settings.integrator)

    def evaluated(path: CandidatePath) -> CandidatePath:
        end = box.vector(path.corrected.parameters)
        if has_same_values(end, x, box):
            return path._replace(corrected=led)
        cost = residuals.cost(end)
        objective = np.inf if cost is None else cost
        return path._replace(corrected=replace(path.corrected, objective=objective))

    paths = sorted(map(evaluated, steps.paths), key=lambda path: path.rank)
    last = last._replace(estimate=led, notes=(*best.notes, *reweighted.notes))
    return steps._replace(problem=reweighted.problem, paths=paths, best=last, others=())


def _are_alike(one: Problem, other: Problem) -> bool:
    """Whether two problems have the same weights, to a share of their errors."""
    pairs = zip(one.experiments, other.experiments, strict=True)
    moved = [np.log(a.measurements.sigma / b.measurements.sigma) for a, b in pairs]
    turned = [v - other.correlations[n] for n, v in one.correlations.items()]
    return bool(np.max(np.abs(np.concatenate([*moved, turned]))) <= ALIKE)


def led_by(
    steps: Steps,
    settings: Settings,
    values: Mapping[str, float],
    origin: str = BY_PROOF,
    *,
    is_passed: bool = False,
) -> Steps:
    """The steps with the optimum next to `values`, if it is better than the estimate.

    values     unknown -> value
    is_passed  whether the estimate is no optimum, but on the way to this one
    """
    x = steps.problem.box.vector(values)
    better = list(refined(steps.problem, [x], settings, origin))
    exact = [*better, *steps.others] if is_passed else [steps.best, *better, *steps.others]
    return ordered(steps, exact, settings, (), origin) if better else steps
