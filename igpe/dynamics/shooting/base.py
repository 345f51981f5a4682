"""What the estimators of steps 4 and 5 share: contracts, refusals, sentences on an optimum."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from pyomo.core.expr.visitor import identify_variables
from scipy.special import chdtri

from igpe.core.arguments import is_finite, require_mapping, shown
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.errors import ProblemError, Unsupported
from igpe.core.estimates import Estimate
from igpe.core.markup import bracketed, in_words
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.equations.compiled import compiled
from igpe.numerics.least_squares.active import on_bounds, undetermined
from igpe.numerics.least_squares.base import Fit, Linearised, Robust
from igpe.problem.problem import Problem

Profile: TypeAlias = Callable[[str, FloatArray], FloatArray | None]
"""A guess of trajectories in one experiment: (name, times) -> values, or None if it has none."""


class Estimator(Protocol):
    """Estimates the free unknowns of a problem on the dynamics."""

    def estimate(
        self,
        problem: Problem,
        start: Mapping[str, float],
        profiles: Sequence[Profile] = (),
    ) -> Estimate:
        """Search from `start` (every free unknown -> value).

        profiles  a list of initial trajectories, one for each experiment, or an empty list; methods
                  that need no initial trajectories ignore it
        returns   an Estimate of the free unknowns; failure is its status
        raises    Unsupported if the method cannot do what the problem asks
        """
        ...


def from_many_starts(
    method: Estimator, problem: Problem, profiles: Sequence[Profile] = ()
) -> Callable[[Mapping[str, float]], Estimate]:
    """The method as a function of the start, prepared once if it can be.

    One that translates and compiles once has `prepare(problem, profiles)`, which returns an object
    with `estimate(start)`.
    """
    prepare: Any = getattr(method, "prepare", None)
    if prepare is not None and not problem.weights_follow_fit:
        search: Callable[[Mapping[str, float]], Estimate] = prepare(problem, profiles).estimate
        return search
    return lambda start: method.estimate(problem, start, profiles)


def estimate_each(
    method: Estimator,
    problem: Problem,
    starts: Sequence[Mapping[str, float]],
    profiles_of: Sequence[Sequence[Profile]],
) -> list[Estimate]:
    """One Estimate for each start, in their order; all at once by a method's own `estimate_each`,
    for what starts share is then made once."""
    together: Any = getattr(method, "estimate_each", None)
    if together is not None:
        return list(together(problem, starts, profiles_of))
    pairs = zip(starts, profiles_of, strict=True)
    return [method.estimate(problem, start, profiles) for start, profiles in pairs]


def constraints(problem: Problem) -> list[str]:
    """Names of the model's constraints beyond equations over time and start conditions."""
    return sorted({n for s in problem.starts for n in s.others} | problem.inequalities)


def constrained(problem: Problem, k: int) -> set[str]:
    """Unknowns, and quantities over time, in the constraints of `constraints` in an experiment."""
    instance, experiment = problem.instances[k], problem.experiments[k]
    every = (*instance.series.items(), *instance.states.items(), *instance.slopes.items())
    over_time = {id(v): name for name, series in every for v in series.values()}
    kept = [c for series in instance.inequalities.values() for c in series.values()]
    return {
        over_time.get(id(v)) or problem.unknown_of(v.name, experiment)
        for constraint in (*problem.starts[k].others.values(), *kept)
        for v in identify_variables(constraint.expr)
    }


def is_plain(problem: Problem) -> bool:
    """Return True if the problem has constant unknowns and no constraints, as shooting needs it."""
    return not problem.time_varying and not constraints(problem)


def beside_constraints(problem: Problem) -> str:
    """Why no method keeps the constraints of the problem; empty if one does.

    raises  ModelError if the equations cannot be read
    """
    if not (kept := constraints(problem)):
        return ""
    moved = any(compiled(problem).switching)
    is_steady = any(e.steady is not None for e in problem.experiments)
    is_at_event = any(e.events for e in problem.experiments)
    features = {
        "events": moved and is_at_event,
        "steady-state starts": moved and is_steady,
        "conditions that depend on unknowns or states": moved and not (is_at_event or is_steady),
        "correlated errors": problem.is_correlated,
    }
    if not (others := [name for name, holds in features.items() if holds]):
        return ""
    at_start = sorted(set(kept) & _at_start(problem))
    starts = (
        f" These hold at the start alone: {in_words(at_start)}. Remove them, and give the states "
        "their start values in Experiment(start={...})."
    )
    return (
        f"In a problem with {in_words(others)}, igpe.estimate cannot enforce the constraints "
        f"{bracketed(kept)}: it needs them to be inactive. Otherwise, remove these constraints or "
        f"bounds from the model, and look at them after the fit.{starts * bool(at_start)}"
    )


def _at_start(problem: Problem) -> set[str]:
    """Names of constraints between quantities at the first time."""
    names = set[str]()
    for instance, starts in zip(problem.instances, problem.starts, strict=True):
        families = (instance.states, instance.series)
        first = {id(s.get(instance.first)) for family in families for s in family.values()}
        scalars = set(map(id, instance.scalars.values()))
        for name, constraint in starts.others.items():
            held = set(map(id, identify_variables(constraint.expr, include_fixed=True))) - scalars
            names |= {name} if constraint.equality and held and held <= first else set()
    return names


MANY_STATES = 40  # from which integrations and programs are slow enough to be chosen by their cost
ROUGHLY = Automatic(1e-6, 1e-8, slack=100.0)
"""While optima of many states are sought that are corrected afterwards: in a third of the time of
1e-8, sums of squares right to 1e-5."""


def is_large(problem: Problem) -> bool:
    """Return True if an experiment has many states."""
    return max(len(instance.states) for instance in problem.instances) >= MANY_STATES


def mostly_measured(problem: Problem) -> bool:
    """Return True if half of the states are: collocation knows where trajectories are."""
    pairs = zip(problem.experiments, problem.instances, strict=True)
    return all(2 * len({*e.measured} & {*i.states}) >= len(i.states) for e, i in pairs)


def minimises_squares(problem: Problem) -> bool:
    """Return True if the objective is a sum of squared residuals with given deviations."""
    return problem.loss.is_squares and not (problem.sigma_estimated or problem.is_censored)


def is_chi_squared(problem: Problem) -> bool:
    """Return True if the objective is a sum of squares of errors of known size."""
    return problem.sigma_known and minimises_squares(problem) and not problem.has_spectra


ACCEPTED = 0.05  # chance that a right fit is not taken for explained


def most_explained(size: int, chance: float = ACCEPTED) -> float:
    """The largest cost of so many residuals that errors of known size explain.

    chance  that they do not explain a right fit
    """
    return float(chdtri(size, chance))


def is_explained(problem: Problem, at: Linearised) -> bool:
    """Return True if errors of known size explain the residuals."""
    return is_chi_squared(problem) and at.cost <= most_explained(len(at.residual))


def losses_of(problem: Problem, unit: float = 1.0) -> tuple[Robust, ...]:
    """Losses to be minimised one after the other, the problem's own last.

    unit  what the residuals are divided by, beside their `sigma`
    """
    loss = problem.loss
    limits = loss.limits(spread_of(problem))
    return tuple(Robust(limit / unit, loss.is_absolute) for limit in limits)


def objective_at(problem: Problem, at: Linearised) -> float:
    """The problem's objective at a point, from the residuals that `Residuals` has there.

    For `igpe.losses.L1` the sum of absolute residuals, of which the search minimises a smooth form.
    """
    if not problem.loss.is_absolute:
        return at.cost
    m = problem.size
    plain = losses_of(problem)[-1].unweighted(Linearised(at.residual[:m], at.jacobian[:m]))
    return float(np.abs(plain.residual).sum() + at.residual[m:] @ at.residual[m:])


VARYING = (
    "Use igpe.MultipleShooting, igpe.SingleShooting or igpe.Collocation. "
    "igpe.campaign(problem, igpe.SingleShooting(), starts=10) needs no start values."
)
CONSTANT = "Write one constant unknown for each period, as in pyo.Expr_if(t < 30, m.early, m.late)."


def require_plain(
    problem: Problem,
    method: str,
    *,
    constraints_too: bool,
    varying_too: bool = True,
    losses_too: bool = True,
    spectra_too: bool = True,
) -> None:
    """Refuse what a least-squares method on constant unknowns cannot do.

    constraints_too  whether boundary conditions and path constraints are refused as well
    varying_too      whether unknowns that vary with time are
    losses_too       whether losses other than least squares are
    spectra_too      whether spectra are
    raises           Unsupported, naming the method, the feature and the way out
    """
    if spectra_too:
        refuse(problem, method, "spectra")
    kept, loss = constraints(problem), type(problem.loss).__name__
    is_plain_loss = problem.loss.is_squares
    is_analysis = method != "igpe.estimate" and method.startswith(("igpe.", "The "))
    remedy = (
        "Deactivate them in the model if they are inactive at the estimate."
        if is_analysis
        else "Use igpe.MultipleShooting or igpe.Collocation, or deactivate them in the model."
    )
    refusals = (
        (
            varying_too and problem.time_varying,
            f"{method} supports only constant unknowns, but {sorted(problem.time_varying)} vary "
            f"with time. {CONSTANT if is_analysis else VARYING}",
        ),
        (
            problem.sigma_estimated and not is_plain_loss,
            f"Estimated standard deviations (igpe.EstimatedSigma) cannot be combined with {loss}: "
            "the likelihood assumes normal errors. Omit the argument `loss`, or give standard "
            "deviations as numbers.",
        ),
        (
            problem.is_censored and (problem.sigma_estimated or not is_plain_loss),
            "Values below a limit of detection (igpe.losses.Censored) cannot be combined with a "
            "robust loss or estimated standard deviations. Omit the argument `loss`, and give "
            "standard deviations as numbers.",
        ),
        (
            problem.is_correlated and not is_plain_loss,
            f"Correlated errors (correlation=) and {loss} cannot be combined: a robust loss "
            "treats errors as independent. Leave out one of the two.",
        ),
        (
            losses_too and not is_plain_loss,
            f"{method} supports only least squares; the problem has {loss}. Omit the argument "
            "`loss`, or use igpe.estimate, igpe.SingleShooting or igpe.MultipleShooting.",
        ),
        (
            constraints_too and kept,
            f"{method} cannot enforce the constraints {kept}. {remedy}",
        ),
    )
    for is_refused, message in refusals:
        if is_refused:
            raise Unsupported(message)


def require_spectra(problem: Problem) -> None:
    """Refuse what cannot be estimated together with spectra.

    raises  Unsupported, naming the way out
    """
    kept, loss = constraints(problem), type(problem.loss).__name__
    others = (
        (kept, f"the constraints {kept}", "Deactivate them in the model"),
        (not problem.loss.is_squares, f"the loss {loss}", "Omit the argument `loss`"),
        (
            problem.time_varying,
            f"the unknowns {sorted(problem.time_varying)}, which vary with time",
            "Fix them",
        ),
        (problem.is_censored, "values below a limit of detection", "Leave that quantity out"),
        (problem.is_correlated, "correlated errors", "Omit the argument `correlation`"),
        (
            problem.sigma_estimated or problem.weights_follow_fit,
            "standard deviations that are estimated or depend on the model",
            "Give them as numbers",
        ),
    )
    for is_refused, what, remedy in others:
        if problem.has_spectra and is_refused:
            raise Unsupported(f"Spectra cannot be fitted together with {what}. {remedy}.")


UNSUPPORTED: Mapping[str, tuple[Callable[[Problem], bool], str]] = {
    "spectra": (
        lambda p: p.has_spectra,
        "{} does not support spectra, because it cannot eliminate the unknown pure spectra. Use "
        "igpe.estimate, igpe.profile or igpe.SingleShooting, or give concentrations.",
    ),
    "weights follow fit": (
        lambda p: p.weights_follow_fit,
        "{} needs fixed standard deviations, but those of this problem depend on the fit "
        "(igpe.Noise, several quantities without standard deviations, or estimated correlations). "
        "Fix them with problem.weighted(sigma), or use igpe.estimate or "
        "igpe.SingleShooting().estimate, which support such standard deviations.",
    ),
    "estimated sigma": (
        lambda p: p.sigma_estimated,
        "{} minimises a sum of squares, but here standard deviations are estimated "
        "(igpe.EstimatedSigma). Use igpe.estimate, igpe.search.MultiStart or "
        "igpe.search.IteratedSearch, which maximise the likelihood, or give standard deviations as "
        "numbers.",
    ),
    "censored": (
        lambda p: p.is_censored,
        "{} does not support values below a limit of detection (igpe.losses.Censored). "
        "igpe.estimate, igpe.SingleShooting, igpe.profile and igpe.predict support them.",
    ),
    "correlated": (
        lambda p: p.is_correlated,
        "{} does not support correlated errors (correlation=). igpe.estimate, "
        "igpe.SingleShooting, igpe.profile, igpe.bootstrap and igpe.predict support them.",
    ),
}
"""Feature of a problem -> whether a problem has it, and the refusal of a method, with the way out.

Spectra of species are eliminated by single shooting alone."""


def refuse(problem: Problem, method: str, *features: str) -> None:
    """Refuse features of a problem, of `UNSUPPORTED`, that a method does not support.

    raises  Unsupported
    """
    for has_it, message in (UNSUPPORTED[feature] for feature in features):
        if has_it(problem):
            raise Unsupported(message.format(method))


def require_bounds(problem: Problem, method: str) -> None:
    """Refuse unknowns without finite bounds.

    raises  ProblemError, naming the method, the unknowns and the way out
    """
    box = problem.box
    each = zip(box.names, box.lower, box.upper, strict=True)
    loose = [n for n, low, high in each if not is_finite(low, high)]
    if loose:
        raise ProblemError(
            f"{method} needs finite bounds for all unknowns; they are missing for {loose}. Give "
            f"them: parameters={{'{loose[0]}': (0, 10)}}, or set them in the model's Var."
        )


def require_start(start: Mapping[str, float], box: Box, method: str, number: str = "") -> None:
    """Refuse a start that leaves out an unknown or is not a number there.

    number  of the start, where there are several
    raises  ProblemError, naming what was found, what is wanted and what to do
    """
    example = "{" + ", ".join(f"{n!r}: 1.0" for n in box.names[:2]) + "}"
    which = f"Start {number}" if number else "The start"
    require_mapping(which, start, example, ProblemError)
    missing = [n for n in box.names if n not in start]
    if missing:
        where = f" in start {number}" if number else ""
        raise ProblemError(
            f"{method} needs a value for each of {list(box.names)} to begin with, but values are "
            f"missing for {missing}{where}. Add them: {{{missing[0]!r}: 1.0, ...}}."
        )
    for name in box.names:
        if not is_finite(start[name]):
            raise ProblemError(
                f"{which} of '{name}' is {shown(start[name])}; {method} needs a finite number."
            )


NOTICED = 0.1  # in standard deviations or units of chi squared: what matters to a fit
GUESS = 1e-2  # standard deviation where none is known, in root mean squares of the measurements


EXCESS = "is larger than the measurement errors can explain"  # a remark, as the next one
AT_BOUND = "lies on its bound"
INACCURATE = "The accuracy of the optimum is limited by the accuracy of the integration"


def limited(fit: Fit) -> bool:
    """Whether residuals at the optimum are too inexact for its cost to mean something.

    Either the search could not get a decrease that the derivative still promised, or the last digit
    of some unknown already moves a prediction noticeably.
    """
    if fit.at is None:
        return False
    digit = np.finfo(float).eps * np.abs(fit.at.jacobian * fit.x).max()
    broken = fit.status is Status.CONVERGED and fit.promised > NOTICED
    return bool(digit > NOTICED or broken)


def remarks(fit: Fit, box: Box, gate: float) -> Iterator[str]:
    """Sentences on an optimum whose residuals are in standard deviations.

    gate  cost that the measurement errors explain; infinite if they are not known
    """
    if fit.at is None:
        return
    if limited(fit):
        yield (
            f"{INACCURATE}: integration errors, or rounding errors of the parameter values, change "
            "the predictions noticeably. The sum of squares and standard errors are therefore "
            "unreliable, and a longer search with this integrator would hardly improve the "
            "parameter values."
        )
    elif fit.cost > gate:
        yield (
            f"The sum of squares {fit.cost:.4g} {EXCESS} ({gate:.4g}). The search missed the "
            "minimum, the model is wrong, or the standard deviations are too small."
        )
    held = on_bounds(fit.x, fit.at, box)
    for name, value in zip(np.array(box.names)[held], fit.x[held], strict=True):
        yield f"{name} {AT_BOUND} {value:g}; a better value may lie beyond it."
    jacobian = fit.at.jacobian
    if fit.active is not None and len(fit.active):  # what they hold is determined: rows of its size
        effect, own = (np.linalg.norm(m * fit.x, axis=1) for m in (jacobian, fit.active))
        size = effect.max(initial=0.0) / np.where(own > 0, own, 1.0)
        jacobian = np.vstack([jacobian, fit.active * size[:, None]])
    yield from (d.sentence for d in undetermined(jacobian, fit.x, box.names))


def in_deviations(fit: Fit, spread: float) -> Fit:
    """The fit with residuals in standard deviations; spread: one of them, in their units."""
    if spread == 1.0:
        return fit
    at = fit.at
    if at is not None:
        rest = at.rest / spread**2
        at = Linearised(at.residual / spread, at.jacobian / spread, at.offset / spread**2, rest)
    return fit._replace(at=at, promised=fit.promised / spread**2)


def spread_of(problem: Problem) -> float:
    """One standard deviation in units of the residuals: 1 where known, else a guess."""
    sized = problem.loss.needs_deviations and problem.relative_sigma
    if problem.sigma_known or problem.sigma_estimated or problem.has_spectra or sized:
        return 1.0
    values = np.concatenate([
        e.measurements.value / e.measurements.sigma for e in problem.experiments
    ])
    return GUESS * float(np.sqrt(np.mean(values**2))) or 1.0
