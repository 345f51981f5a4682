"""From the corrected candidates to the result: statistics, tables and sentences."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, version
from pprint import pformat
from typing import NamedTuple

import numpy as np
import pandas as pd

from igpe.algebraic.step import Algebraic
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.box import Box
from igpe.core.deadline import if_in_time
from igpe.core.markup import counted, in_words, listed
from igpe.dynamics.likelihood import errors_at, of_measurements, with_information
from igpe.dynamics.shooting.base import (
    AT_BOUND,
    EXCESS,
    INACCURATE,
    constraints,
    is_plain,
    minimises_squares,
    objective_at,
)
from igpe.dynamics.shooting.estimated_errors import correlation_remarks, likelihood_gain
from igpe.dynamics.shooting.multiple_shooting_search import ACTIVE
from igpe.dynamics.shooting.refine import Refined
from igpe.dynamics.shooting.reweighting import FAR_OFF
from igpe.dynamics.shooting.tangent import Tangent, tangent
from igpe.estimation.settings import LATER, Settings, Steps
from igpe.estimation.spectral import SpectralSummary, free_sign_errors, spectral_summary
from igpe.estimation.tables import combined, curves, fitted, on_assumed_sizes, sizes_of_errors
from igpe.numerics.covariance import Uncertainty
from igpe.numerics.lack_of_fit import chi_squared_probability
from igpe.numerics.least_squares.base import Linearised
from igpe.numerics.optima import first_of_each, has_same_values, is_same_objective
from igpe.problem.card import conditions, problem_equations
from igpe.problem.problem import Problem
from igpe.results.certificates import Certificate
from igpe.results.residual_table import NOT_INTEGRATED
from igpe.results.result import Result
from igpe.results.result_data import LIKELIHOOD, PRIOR, Candidate, Combined, Optimum, Parameter
from igpe.structure.identifiability import (
    Access,
    Identifiability,
    Identifiable,
    identifiability,
)
from igpe.structure.posed import of_errors_alone, pose
from igpe.structure.report import besides, sentence
from igpe.structure.solutions import Alternatives
from igpe.structure.spectral import analyse_any
from igpe.structure.structure import Structure
from igpe.uncertainty.adequacy import with_findings

DISAGREE = 4.0  # standard deviations between a prior and what is measured
UNINFORMED = 1e-6  # of its variance: less is what measurements that say nothing take from a prior
SHOWN = 5  # active constraints in a sentence
FEW_LEFT = 0.9  # of a standard deviation: what maximum likelihood leaves of it
MOST_WORK = 5e7  # products of residues: a few hundredths of a second, little beside an estimation
CLEAR = 1e-5  # of the largest singular value: what is above is no error of integration
NOT_COMPARED = (
    "Because of the interruption, igpe did not compare the standard errors with the verdicts of "
    "igpe.check."
)
SEARCHED, CANDIDATE = "search for other optima", "another candidate from step 3"
PACKAGES = ("igpe", "pyomo", "casadi", "numpy", "scipy", "pandas", "pyscipopt")


def passed(count: int) -> list[str]:
    """Values of step 3 that the later steps did not follow."""
    return [
        f"{count} other local {'optimum' if count == 1 else 'optima'} from step 3 came close to "
        f"the best, but igpe did not correct {'it' if count == 1 else 'them'} in step 5. To "
        "correct more candidates, increase RouteSelection(most=...)."
    ] * (count > 0)


class Ranked(NamedTuple):
    """What structure says beside the errors: sentences, and combinations that are determined."""

    notes: tuple[str, ...] = ()
    combined: tuple[Combined, ...] = ()


def rank_notes(
    problem: Problem,
    x: FloatArray,
    jacobian: FloatArray,
    errors: Uncertainty,
    *,
    free: Uncertainty,
    sets: Sequence[FloatArray] = (),
    several: Sequence[Alternatives] | None = None,
) -> Ranked:
    """Compare what the errors call undetermined with the verdicts of `igpe.check`.

    x         (n,) the unknowns at the optimum, with their errors
    jacobian  (n_residuals, n) of the weighted residuals, priors included
    free      the same as if no unknown were on a bound
    sets      values (n,) of the estimate and of every other optimum of the result; none: they are
              not compared with the number of sets that `igpe.check` counts
    several   `alternatives(problem)`, if they are known
    """
    if not np.isfinite(jacobian).all() or problem.time_varying:
        return Ranked()
    if problem.has_spectra and not free.undetermined.any():
        return Ranked()  # the analysis of spectra takes longer
    exact = _exact(problem, count=False)

    def those(chosen: BoolArray, verdict: Identifiable | None = None) -> str:
        names = [n for n, k in zip(problem.box.names, chosen, strict=True) if k]
        return listed([n for n in names if verdict in (None, exact.verdicts.get(n))])

    open_ = errors.undetermined | (free.undetermined & errors.held)
    apart = free.undetermined & ~open_
    lost = exact.names(Identifiable.NO)
    is_plain = not problem.priors and not exact.left_out and not errors.held.any()
    singular = _smallest(jacobian) if lost and is_plain else 0.0
    lines = [
        (
            those(open_, Identifiable.YES),
            "structurally identifiable (igpe.check), but the Jacobian at the optimum is rank "
            "deficient: to first order, these measurements do not determine them. Additional or "
            "different measurements of the same quantities may determine them.",
        ),
        (
            those(open_, Identifiable.NO),
            "not structurally identifiable (igpe.check), and the Jacobian at the optimum is "
            "rank deficient: more measurements of the same kind do not help.",
        ),
        (
            those(apart) if errors.held.any() else "",
            f"the errors are valid only with {those(errors.held)} held at the bound. Away from the "
            f"bound, the measurements do not determine {those(apart)}.",
        ),
        (
            listed(lost) if singular > CLEAR else "",
            "igpe.check finds no way to identify them, but the Jacobian at the optimum has full "
            f"rank (smallest singular value: {singular:.1g} times the largest). The two results "
            "contradict each other: do not rely on either.",
        ),
    ]
    notes = [f"{names}: {line}" for names, line in lines if names]
    if sets and exact.names(Identifiable.YES) and not exact.doubtful:
        several = alternatives(problem) if several is None else several
        notes += [_fewer(one, problem.box, sets) for one in several]
    return Ranked(
        tuple(note for note in notes if note),
        combined(exact, problem.box.names, x, jacobian, errors),
    )


def _exact(problem: Problem, *, count: bool) -> Identifiability:
    """The verdicts on the unknowns that were estimated, the others being held."""
    if problem.has_spectra:
        return analyse_any(problem, most_work=MOST_WORK).exact
    estimated = problem.fixing(dict.fromkeys(of_errors_alone(problem), 1.0))
    posed = [pose(estimated, i) for i in range(len(estimated.experiments))]
    return identifiability(estimated, posed, most_work=MOST_WORK, count=count)


def alternatives(problem: Problem) -> tuple[Alternatives, ...]:
    """Unknowns that have several sets of values by structure, where that is quick to tell."""
    return (
        ()
        if problem.time_varying or problem.has_spectra
        else _exact(problem, count=True).alternatives
    )


def _fewer(one: Alternatives, box: Box, sets: Sequence[FloatArray]) -> str:
    """What to say where the result has fewer sets of values than the structure allows."""
    own = box.select(one.unknowns)
    values = (own.vector(box.mapping(x)) for x in sets)
    kept = first_of_each(values, lambda a, b: has_same_values(a, b, own))
    if len(kept) >= one.number:
        return ""
    several = "sets of " * (len(one.unknowns) > 1)
    alike = f" The following are the same for all these {several}values: "
    alike = f"{alike}{', '.join(one.functions)}." * bool(one.functions)
    return (
        f"{listed(one.unknowns)}: up to {one.number} {several}values explain perfect measurements "
        "(igpe.check), including complex values and values outside the bounds. This result "
        f"contains {len(kept)} of these; the search found no others within the bounds.{alike}"
    )


def _smallest(jacobian: FloatArray) -> float:
    """Smallest singular value relative to the largest, of columns of one size."""
    size = np.linalg.norm(jacobian, axis=0)
    if len(jacobian) < len(size) or not (size > 0).all():
        return 0.0
    singular = np.linalg.svd(jacobian / size, compute_uv=False)
    return float(singular[-1] / singular[0])


def summarise(steps: Steps, settings: Settings) -> Result:
    """The result of the best candidate, with the others as candidates."""
    problem, best, confidence = steps.problem, steps.paths[0], settings.confidence
    values, status = best.corrected.parameters, best.corrected.status
    x, at = problem.box.vector(values), steps.best.at
    free = tangent(problem, x, None if status.is_early else at)
    errors = errors_at(problem, x, at, confidence, along=free)
    spectral = _spectral(steps, settings, x, errors)
    errors = errors if spectral is None else spectral.errors
    runs, measured, unconfirmed, root = fitted(steps, settings, values)
    origins = _origins(steps)
    parameters = _parameters(problem, x, errors, origins)
    if at is None:  # nothing is known of errors, nor of bounds
        parameters = [
            replace(p, standard_error=np.inf, lower=-np.inf, upper=np.inf, remark="")
            for p in parameters
        ]
    others = tuple(_optimum(problem, one, settings, origins) for one in steps.others)
    rank: Ranked | None = Ranked()
    if at is not None and not status.is_early:
        rank = if_in_time(lambda: _rank(steps, x, at, errors, free))
    rank = Ranked((NOT_COMPARED,)) if rank is None else rank
    probability = np.nan
    is_given = problem.sigma_known and not problem.has_noise_level
    if at is not None and is_given and minimises_squares(problem) and not problem.other_priors:
        probability = chi_squared_probability(at.cost, errors.degrees)
    result = Result(
        estimates=(*parameters, *_held(problem, steps.structure)),
        objective=best.corrected.objective if at is None else objective_at(problem, at),
        status=status,
        covariance=errors.covariance,
        measurements=problem.size,
        degrees=errors.degrees,
        variance=errors.variance,
        probability=probability,
        confidence=confidence,
        certificates=_certificates(problem, steps.first),
        candidates=tuple(
            Candidate(
                origin=path.algebraic.origin,
                incremental=dict(path.complete.parameters),
                corrected=dict(path.corrected.parameters),
                objective=path.corrected.objective,
                status=path.corrected.status,
                reached=path.complete.reached,
            )
            for path in steps.paths
        ),
        structure=str(steps.structure),
        maps=steps.structure.maps,
        points=measured,
        curves=pd.concat(
            (curves(steps, k, run, errors, settings.integrator) for k, run in runs),
            ignore_index=True,
        ),
        seconds=steps.seconds,
        versions=dict(_versions()),
        seed=settings.seed,
        settings=pformat(settings, width=80),
        notes=(*rank.notes, *_notes(steps, free.known), *_rough(settings)),
        other_optima=others,
        equations=tuple(problem_equations(problem)),
        conditions=conditions(problem),
        sources={e.name: e.source for e in problem.experiments},
        criterion=_criterion(problem),
        correlations=problem.correlations,
        likelihood_gain=0.0 if at is None else likelihood_gain(problem, at, errors.held),
        other_priors=tuple(problem.other_priors),
        prior_level=sum((p.log_density(p.mean) for p in problem.other_priors.values()), 0.0),
        time_unit=problem.unit("time"),
        actions=(
            *_held_by(problem, free.active),
            *_contradicted(problem, x, errors),
            *on_assumed_sizes(problem, at),
            *_actions(steps),
            *_small(problem),
            *[unconfirmed] * bool(unconfirmed),
        ),
        combined=rank.combined,
        active=free.active,
        linked=errors.linked,
    )
    if spectral is not None and at is not None:
        return _with_spectra(result, problem, at, spectral, free.rows)
    plain = None if at is None else of_measurements(problem, at)
    judged = with_findings(result, problem, plain, free.rows)
    lacks = judged.adequacy is not None and judged.adequacy.lacks
    if root is not None and (lacks or not root.is_chosen):
        return replace(judged, actions=(*judged.actions, root.sentence))
    return judged


def _spectral(
    steps: Steps, settings: Settings, x: FloatArray, errors: Uncertainty
) -> SpectralSummary | None:
    """What is said of the spectra at the estimate x (n,); None without any."""
    if not steps.problem.has_spectra or steps.best.at is None:
        return None
    others = [steps.problem.box.vector(one.estimate.parameters) for one in steps.others]
    return spectral_summary(steps.problem, settings.integrator, x, errors, others)


def _with_spectra(
    result: Result,
    problem: Problem,
    at: Linearised,
    spectral: SpectralSummary,
    active: FloatArray,
) -> Result:
    """The result with what its spectra say, and the verdict on them and on what else is measured.

    Rows of spectra are as many as unknowns, and hang on no point: they follow as priors do.
    """
    if len(result.points):
        result = with_findings(result, problem, at, active)
    verdicts = [v for v in (result.adequacy, spectral.adequacy) if v is not None]
    worst = min(verdicts, key=lambda v: (not v.lacks, np.nan_to_num(v.p, nan=1.0)))
    points = [t for t in (result.points, spectral.points) if len(t)]
    return replace(
        result,
        points=pd.concat(points, ignore_index=True) if points else result.points,
        adequacy=worst,
        spectral=spectral.fits,
        notes=(*result.notes, *spectral.notes),
    )


def _rank(
    steps: Steps, x: FloatArray, at: Linearised, errors: Uncertainty, free: Tangent
) -> Ranked:
    problem, off_bounds = steps.problem, errors
    if errors.held.any():
        none = np.zeros(len(x), dtype=bool)
        equations = free._replace(equations=np.ones(len(free.rows), dtype=bool))
        off_bounds = errors_at(problem, x, at, along=equations, held=none)
    others = [problem.box.vector(one.estimate.parameters) for one in steps.others]
    sets = [] if steps.structure.is_linear else [x, *others]
    known = steps.several
    jacobian = with_information(problem, at).jacobian
    return rank_notes(problem, x, jacobian, errors, free=off_bounds, sets=sets, several=known)


def _optimum(
    problem: Problem, one: Refined, settings: Settings, origins: Mapping[str, str]
) -> Optimum:
    x = problem.box.vector(one.estimate.parameters)
    found_by = SEARCHED if is_plain(problem) else CANDIDATE
    errors = errors_at(problem, x, one.at, settings.confidence, along=tangent(problem, x, one.at))
    free = None if one.at is None else free_sign_errors(problem, settings.integrator, x, errors)
    errors = errors if free is None else free.errors
    return Optimum(
        tuple(_parameters(problem, x, errors, dict.fromkeys(origins, found_by))),
        one.estimate.objective,
    )


def _parameters(
    problem: Problem, x: FloatArray, errors: Uncertainty, origin: Mapping[str, str]
) -> list[Parameter]:
    box = problem.box
    return [
        Parameter(
            name=name,
            value=float(x[i]),
            standard_error=float(errors.standard_error[i]),
            lower=float(errors.lower[i]),
            upper=float(errors.upper[i]),
            unit=problem.unit(name),
            bounds=_bounds(box.select([name])),
            found_by=origin[name],
            remark=_remark(problem, errors, x, i),
        )
        for i, name in enumerate(box.names)
    ]


def _origins(steps: Steps) -> dict[str, str]:
    """Unknown -> how the best candidate first had its value."""
    best = steps.paths[0].algebraic
    other = best.origin if best.origin in LATER else "step 4, dynamics"
    return {
        **dict.fromkeys(steps.problem.box.names, other),
        **dict.fromkeys(best.parameters, "step 1, smoothing"),
        **{
            name: f"step 3, {answer.estimate.method}"
            for _, answer in best.answers
            for name in answer.estimate.parameters
        },
    }


def _remark(problem: Problem, errors: Uncertainty, x: FloatArray, i: int) -> str:
    if errors.undetermined[i]:
        return "not determined by the data"
    if errors.tied[i]:
        return "held by active constraints"
    if not errors.held[i] or not np.isfinite(errors.lower[i]):
        return ""
    lower = x[i] - problem.box.lower[i] < problem.box.upper[i] - x[i]
    return f"on its {'lower' if lower else 'upper'} bound"


def _held(problem: Problem, structure: Structure) -> list[Parameter]:
    """Unknowns at the value they were held at, by the user or because nothing depends on them."""
    box = problem.unknowns
    lost = structure.names(Access.UNREACHABLE)
    return [
        Parameter(
            name=name,
            value=value,
            standard_error=np.inf,
            lower=-np.inf,
            upper=np.inf,
            unit=problem.unit(name),
            bounds=_bounds(box.select([name])),
            found_by="held",
            remark="no measured quantity depends on it" if name in lost else "given",
        )
        for name, value in problem.fixed.items()
    ]


def _criterion(problem: Problem) -> str:
    """Name of the objective; empty for a sum of squares."""
    is_likelihood = problem.sigma_estimated or problem.is_censored
    return f"{LIKELIHOOD}, up to a constant," if is_likelihood else problem.loss.criterion


def _certificates(problem: Problem, first: Algebraic) -> tuple[Certificate, ...]:
    names = [e.name for e in problem.experiments]
    return tuple(
        Certificate(
            unknowns=group.parameters,
            bounds=tuple(map(_bounds, [problem.box.select([n]) for n in group.parameters])),
            undetermined=answer.undetermined,
            origin=first.origin,
            slopes=tuple(dict.fromkeys(m.state for m in group.members)),
            experiments=tuple(dict.fromkeys(names[m.experiment] for m in group.members)),
            method=answer.estimate.method,
            objective=answer.estimate.objective,
            lower_bound=answer.estimate.lower_bound,
            status=answer.estimate.status,
        )
        for group, answer in first.answers
    )


def _bounds(one: Box) -> tuple[float, float]:
    """Bounds of a box with one unknown."""
    return float(one.lower[0]), float(one.upper[0])


def _notes(steps: Steps, known: frozenset[str]) -> tuple[str, ...]:
    """What was held, what the last step says, and what smoothing says if its ends disagree."""
    problem, best = steps.problem, steps.paths[0]
    held = [n for n in steps.structure.names(Access.UNREACHABLE) if n in problem.fixed]
    costs = [path.corrected.objective for path in steps.paths]
    is_one = all(is_same_objective(cost, costs[0]) for cost in costs)
    kept = [name for name in constraints(problem) if name not in known]
    # Step 4 speaks of its own values, which step 5 may have changed.
    last = dict.fromkeys((*steps.best.notes, *best.corrected.notes))
    if not kept:  # those that matter are named
        last = dict.fromkeys(note for note in last if not note.startswith(ACTIVE))
    stale = (EXCESS, AT_BOUND, INACCURATE, ACTIVE) if best.corrected.status.usable else ()
    before = dict.fromkeys(
        note
        for note in best.complete.notes
        if note not in last and not any(words in note for words in stale)
    )
    return (
        *(f"{name} {sentence(steps.structure[name])}" for name in held),
        *last,
        *_weights(problem, steps.best.at),
        *correlation_remarks(problem),
        *(f"Step 4: {note}" for note in before),
        *steps.structure.index_notes,
        *[f"Errors and intervals ignore the constraints {kept}."] * bool(kept),
        *passed(steps.first.passed),
        *(() if is_one or best.algebraic.origin in LATER else steps.ladder[0].notes(problem)),
    )


def _rough(settings: Settings) -> Iterator[str]:
    """That derivatives may be wrong."""
    if settings.integrator.is_rough:
        name = type(settings.integrator).__name__
        yield (
            f"{name} computes rough derivatives at any tolerance: the estimate may miss the "
            "optimum, and intervals are rough. Use the default integrator, or small steps."
        )


def _small(problem: Problem) -> Iterator[str]:
    """That standard deviations of maximum likelihood are too small for few measurements."""
    if not problem.sigma_estimated:
        return
    others = len(problem.box) - len(of_errors_alone(problem))
    left = max(problem.size - others, 0) / max(problem.size, 1)
    if np.sqrt(left) < FEW_LEFT:
        yield (
            f"igpe estimates {counted(len(problem.box), 'unknown')} from {problem.size} "
            "measurements by maximum likelihood. Standard deviations and intervals come out about "
            f"{100 * (1 - np.sqrt(left)):.0f} % too small then. Where no `sigma` is given, "
            "igpe uses Student's t instead."
        )


def _weights(problem: Problem, at: Linearised | None) -> Iterator[str]:
    """By which errors quantities count, if these were estimated."""
    sizes, assumed = sizes_of_errors(problem, at)
    if sizes:
        how = ", so igpe weights each quantity by the size of its own residuals"
        if len(assumed) == len(sizes):
            how = "; there are too few measurements to estimate them, so igpe assumed these values"
        yield (
            f"No standard deviations were given{how}: {', '.join(map(' '.join, sizes.items()))}. "
            "With igpe.Experiment(..., sigma='equal') all quantities have the same weight."
        )


def _contradicted(problem: Problem, x: FloatArray, errors: Uncertainty) -> Iterator[str]:
    """That normal priors and measurements disagree: the residual of a prior, as of a measurement.

    Its variance is that of the prior less that of the estimate.
    """
    own = dict(zip(problem.box.names, zip(x, errors.standard_error, strict=True), strict=True))
    for name, prior in problem.normal_priors.items():
        value, error = own[name]
        variance = prior.deviation**2 - error**2
        away = abs(value - prior.mean) / np.sqrt(variance) if variance > 0 else 0.0
        if away > DISAGREE and variance > UNINFORMED * prior.deviation**2:
            yield (
                f"{PRIOR}{name} ({prior.mean:g} ± {prior.deviation:g}) and the measurements "
                f"disagree by {away:.2g} standard deviations. Check the prior and its unit before "
                "you change the model."
            )


def _held_by(problem: Problem, active: Sequence[str]) -> Iterator[str]:
    """The sentence on active constraints and bounds of states."""
    if not active:
        return
    beyond = []
    for e, instance in zip(problem.experiments, problem.instances, strict=True):
        for name in [n for n in e.measured if any(a.startswith(f"{n} ") for a in active)]:
            v = (instance.over_time(name) or {})[instance.first]
            low, high = (np.inf * s if b is None else b for s, b in ((-1, v.lb), (1, v.ub)))
            values = e.measurements.of(name)[1]
            count = int(((values < low) | (values > high)).sum())
            beyond += [f"{counted(count, 'measurement')} of {name}"] * bool(count)
    lie = f" {in_words(beyond)} lie outside of the bounds." * bool(beyond)
    it = "this constraint" if len(active) == 1 else "these constraints"
    yield (
        f"Active: {in_words(active, SHOWN)}. Without {it}, the model would fit better.{lie} "
        f"Change bounds and constraints that are only guesses."
    )


def _actions(steps: Steps) -> tuple[str, ...]:
    """What the user should look at: implausible numbers, failures, what nothing depends on."""
    problem, structure = steps.problem, steps.structure
    lost = [n for n in structure.names(Access.UNREACHABLE) if n in problem.fixed]
    return (
        *structure.warnings,
        *(n for n in steps.best.notes if n.startswith(NOT_INTEGRATED) or FAR_OFF in n),
        *(
            f"No measured quantity depends on {n}, so igpe did not estimate {n}. Measure "
            f"{besides(structure[n].measure)}, or fix {n}."
            if structure[n].measure
            else f"In these experiments, no equation depends on {n}, so igpe did not estimate {n}. "
            f"Check the model and the inputs, or leave {n} out of parameters=."
            for n in lost
        ),
    )


@cache
def _versions() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        try:
            # `version` would parse the whole of a long text for this line.
            lines = (distribution(name).read_text("METADATA") or "").splitlines()
            line = next((one for one in lines if one.startswith("Version: ")), None)
            versions[name] = version(name) if line is None else line.removeprefix("Version: ")
        except PackageNotFoundError:
            versions[name] = "not installed"
    return versions
