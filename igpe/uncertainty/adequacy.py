"""How far a fit can be trusted: verdict on its residuals, notes, and the error of a grid in space.

The grid's error: the same fit once more on a grid twice as fine. With errors of the first order in
the width h, estimates move by C h; from h to h / 2 by C h / 2. The error on the coarse grid is then
twice what they move (Richardson's extrapolation; Roache, Annual Review of Fluid Mechanics 29,
1997). Of a scheme of second order it is less, 4/3 of it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import null_space

from igpe.core.arrays import BoolArray, FloatArray, IntArray, column_sizes
from igpe.core.deadline import if_in_time
from igpe.core.markup import counted, listed
from igpe.dynamics.shooting.single_shooting import ObjectiveJump, SingleShooting, jumps_of
from igpe.numerics.covariance import (
    Combination,
    combinations,
    directions,
    leverage,
    strongly_correlated,
)
from igpe.numerics.lack_of_fit import (
    ODD,
    Evidence,
    FitResiduals,
    chi_squared_probability,
    exact_probability,
    growing_quantities,
    lack_of_fit,
    runs_test,
)
from igpe.numerics.least_squares.base import Linearised
from igpe.problem.problem import Problem, takes_problem
from igpe.results.residual_table import (
    ADEQUATE,
    ALARM,
    CORRELATED,
    LACK,
    NOT_INTEGRATED,
    OFTEN,
    ROUNDING,
    UNJUDGED,
    Adequacy,
    above_limits,
    clear_failures,
    divisors,
    grow,
    oversized,
    probability,
    sigma_given,
    standardised,
)
from igpe.results.result import Result
from igpe.results.result_data import START
from igpe.uncertainty.likelihood import at_estimate, likelihood

FEWEST = 3  # degrees of freedom that can show lack of fit
BEYOND_CHANCE = 1e-6  # probability of so few changes of sign in any of the series
LEFT = 0.05  # share of the sum of squares along the derivative, where no optimum is
FAR = 10.0  # times a start value: so far is no first measurement of the same unit, as a rule
APART = 3.0  # standard deviations by which an experiment's mean residual is off
COURSE = 4  # different times of a series, for its residuals to have an order
MOST = 3  # series, or groups of unknowns, that are named
WEAK = 0.5  # relative standard error of a combination worth a sentence
PART = 0.2  # of the largest component: what belongs to a direction in words
LARGE = 10.0  # a relative change beyond it is given as "over 1000 %"
ROUNDED = "The residuals are rounding errors."
NOTHING_LEFT = (
    "There are at least as many unknowns as measurements, so the residuals say nothing about the "
    "model."
)
NO_OPTIMUM = (
    "A change in the unknowns would still lower the sum of squares: the search stopped early, "
    "a constraint is active, or a switch coincides with a measurement."
)
SIZE_ALONE = "So few degrees of freedom allow only the test of chi squared."
TOO_FEW = (
    "No measured quantity has enough measurements for a test, and the standard deviations are "
    "unknown."
)
MOST_OFF = 0.25  # of the measurements: more outliers are not the measurements' fault
OFF = (
    "{} of {} measurements are outliers: the model is wrong, or standard deviations are too small."
)
LEFT_OUT = (
    "The fit was judged without {} outlier{}, because the loss is robust; see result.outliers()."
)
ALLOWED_FOR = (
    "Several residuals are outliers, for which the robust loss allows. See result.outliers() and "
    "result.residual_tests()."
)
BELOW_LIMIT = (
    "{} of {} measurements are below a limit of detection. For each of them, the objective "
    "contains the probability of a value below the limit. These measurements have no residuals "
    "and do not appear in plots. Residuals near the limit are not tested."
)
AT_JUMP = (
    "At the estimate of {0}, an event coincides with the measurement at t = {1:g}: for {2} values "
    "of {0} the sum of squares jumps up."
)
SIDES = {True: "smaller", False: "larger"}
NO_TIME = "The residuals were not judged because the run was interrupted."


class LinearisedFit(NamedTuple):
    """The linearised model at the estimate, in the order of the result's points.

    jacobian  (M, n); behind the points' rows those of priors
    others    (M - m,) residuals of priors
    held      (n,) unknowns on a bound
    active    (k, n) derivative of active constraints
    ranges    (n,) of the unknowns, from bound to bound
    """

    jacobian: FloatArray
    others: FloatArray
    held: BoolArray
    active: FloatArray
    ranges: FloatArray


def with_findings(
    result: Result, problem: Problem, at: Linearised | None, active: FloatArray
) -> Result:
    """The result with a verdict on the fit, leverages, and notes on poor directions and outliers.

    at      residuals and derivative at the estimate, as `FitResiduals` has them; or None
    active  (k, n) derivative of active constraints
    """
    if at is None or not np.isfinite(at.jacobian).all():
        return replace(result, adequacy=Adequacy(UNJUDGED, reasons=(NOT_INTEGRATED,)))
    free = {p.name: p.value for p in result.estimates[: len(result.covariance)]}
    jumps = jumps_of(problem, x := np.array([*free.values()]))
    held, order, begin = _held(result, problem, at, free, jumps), [], 0
    for m in (e.measurements for e in problem.experiments):
        own = np.lexsort((m.times[m.row], m.column))
        order.append(begin + (own[~m.is_limit[own]]))
        begin += len(m.value)
    # the result's points are sorted by experiment, column and time; priors come last
    rows = np.concatenate([*order, np.arange(begin, len(at.residual))])
    ranges = problem.box.upper - problem.box.lower
    linear = LinearisedFit(at.jacobian[rows], -at.residual[begin:], held, active, ranges)
    if not problem.loss.is_squares:
        verdict = if_in_time(lambda: _of_the_rest(result, linear))
        robust = replace(result, adequacy=verdict or Adequacy(UNJUDGED, reasons=(NO_TIME,)))
        odd = clear_failures(robust.residual_tests())
        return replace(
            robust, actions=(*result.actions, *(odd if len(odd) <= 1 else [ALLOWED_FOR]))
        )
    first = rows[: len(result.points)]
    points = result.points.assign(leverage=leverage(at.jacobian, held)[first])
    if problem.is_censored:
        verdict = if_in_time(lambda: _of_ordinary(points, linear, result, problem))
    else:
        verdict = if_in_time(lambda: adequacy(points, linear, result.degrees, result.seed))
    verdict = verdict or Adequacy(UNJUDGED, reasons=(NO_TIME,))
    if NO_OPTIMUM in verdict.reasons and result.status.is_early:
        verdict = Adequacy(UNJUDGED, reasons=(NO_OPTIMUM,))
    judged = replace(result, points=points, adequacy=verdict)
    notes = weak_sentences(list(free), x, result.covariance, result.linked)
    if problem.is_censored:
        notes.append(BELOW_LIMIT.format(problem.size - len(points), problem.size))
    # Wrong starts make outliers, which are then no news.
    odd = _far_starts(judged, problem) or [*_odd(judged, verdict), *oversized(points)]
    beside = (AT_JUMP.format([*free][i], t, SIDES[is_least]) for i, t, is_least in jumps)
    return replace(judged, notes=(*result.notes, *notes), actions=(*result.actions, *odd, *beside))


def _held(
    result: Result,
    problem: Problem,
    at: Linearised,
    free: Mapping[str, float],
    jumps: Sequence[ObjectiveJump],
) -> BoolArray:
    """(n,) unknowns at whose optimum the residuals need not be stationary.

    Those on bounds, at jumps and on kinks of priors, and those of standard deviations alone: the
    rows that these add to the objective are not in `at`, but their priors are.
    """
    held = np.isnan(np.diag(result.covariance))
    for name, prior in problem.other_priors.items():
        held[problem.box.names.index(name)] |= prior.is_on_kink(free[name])
    if problem.sigma_estimated:
        held |= ~at.jacobian[: problem.size].any(axis=0)
    held[[jump.unknown for jump in jumps]] = True
    return held


def _far_starts(result: Result, problem: Problem) -> list[str]:
    """Sentences on start values that are far from the first measurement of a quantity that the
    model misses altogether: the units differ, as a rule."""
    if result.adequacy is None or not result.adequacy.lacks:
        return []
    explained, sentences = result.r_squared(), []
    several = len(problem.experiments) > 1
    runs = {e.name: e for e in problem.experiments if not (e.events or e.steady)}
    first = result.points.drop_duplicates(["experiment", "name"])  # sorted by time
    for run, name, time, measured in first[["experiment", "name", "time", "measured"]].values:
        start = runs[run].start.get(name) if run in runs else None
        if isinstance(start, float) and start and not explained[name] >= 0:
            ratio = measured / start
            if not 1 / FAR < ratio < FAR:
                where = f" in experiment {run}" if several else ""
                sentences.append(
                    f"{START}{name}{where} is {start:g}, but its first measurement is "
                    f"{measured:.4g} (at t = {time:g}). Check both values and their units."
                )
    return [*_kept_at_zero(result, problem), *sentences]


def _kept_at_zero(result: Result, problem: Problem) -> Iterator[str]:
    """Sentences on quantities that start at 0 and stay there, unlike their measurements."""
    starts = {e.name: e.start for e in problem.experiments}
    for key, rows in result.points.groupby(["experiment", "name"], sort=False):
        run, name = map(str, key)
        is_kept = rows["measured"].any() and not rows["fitted"].any()
        if is_kept and starts[run].get(name) == 0.0:
            where = f" in experiment {run}" if len(starts) > 1 else ""
            yield (
                f"{START}{name}{where} is 0, and the model keeps {name} at 0, but it is measured "
                f"up to {rows['measured'].max():.4g}. If {name} grows in proportion to itself, "
                "give a positive start value."
            )


def _odd(result: Result, verdict: Adequacy) -> Iterator[str]:
    """Sentences on errors that grow, and on measurements that are odd for another reason."""
    if verdict.growing:
        yield grow(verdict.growing)
    if not result.status.is_early:
        yield from clear_failures(result.residual_tests(), verdict.growing)


def _of_ordinary(
    points: pd.DataFrame, linear: LinearisedFit, result: Result, problem: Problem
) -> Adequacy:
    """Judge a fit with censored values by the residuals that no limit of detection cuts off."""
    kept = points.index.isin(above_limits(points).index)
    rows = np.concatenate([kept, np.ones(len(linear.others), dtype=bool)])
    rest = linear._replace(jacobian=linear.jacobian[rows])
    degrees = result.degrees - (problem.size - int(kept.sum()))
    return adequacy(points[kept], rest, degrees, result.seed, robust=True)


def _of_the_rest(result: Result, linear: LinearisedFit) -> Adequacy:
    """Judge a robust fit by the measurements that are no outliers, if these are few."""
    points, off = result.points, result.points.index.isin(result.outliers().index)
    count = int(off.sum())
    if count > MOST_OFF * len(points):
        return Adequacy(LACK, reasons=(OFF.format(count, len(points)),))
    kept = np.concatenate([~off, np.ones(len(linear.others), dtype=bool)])
    rest = linear._replace(jacobian=linear.jacobian[kept])
    degrees = result.degrees - count
    verdict = adequacy(points[~off], rest, degrees, result.seed, robust=True)
    said = [LEFT_OUT.format(count, "s" * (count > 1))] * bool(count)
    return replace(verdict, reasons=(*verdict.reasons, *said))


def adequacy(
    points: pd.DataFrame,
    linear: LinearisedFit,
    degrees: int,
    seed: int = 0,
    *,
    robust: bool = False,
) -> Adequacy:
    """Judge a fit by its residuals.

    points   columns `experiment`, `name`, `time`, `measured`, `fitted`, `residual`, `sigma`, sorted
             by series and time
    degrees  of freedom
    robust   whether another loss was minimised: residuals are judged as least squares next to that
             optimum would leave them
    """
    value = np.concatenate([standardised(points), linear.others])
    image = _image(linear, value)
    size = points.assign(residual=points["residual"].abs(), measured=points["measured"].abs())
    largest = size.groupby(["experiment", "name"])[["residual", "measured"]].transform("max")
    noisy = np.asarray(largest["residual"] > ROUNDING * largest["measured"], dtype=bool)
    if not (np.isfinite(value).all() and np.isfinite(image).all()):
        return Adequacy(UNJUDGED, reasons=(NOT_INTEGRATED,))
    if not noisy.any():
        exact = Adequacy(ADEQUATE, reasons=(ROUNDED,))
        return exact if degrees > 0 else Adequacy(UNJUDGED, reasons=(NOTHING_LEFT,))
    along, squares = image.T @ value, float(value @ value)
    is_plain = sigma_given(points) and not (robust or len(linear.others))
    if degrees < FEWEST:
        return _of_size(squares, degrees, is_plain=is_plain)
    if not robust and (gain := float(along @ along)) > LEFT * squares:
        return _of_no_optimum(squares, gain, degrees, is_plain=is_plain)
    kept = np.concatenate([noisy, np.ones(len(linear.others), dtype=bool)])
    tested = _Tested(points[noisy], (value - image @ along)[kept], image[kept])
    evidence = lack_of_fit(tested.residuals, seed)
    if evidence is None:
        return Adequacy(UNJUDGED, reasons=(TOO_FEW,))
    evidence, reasons = tested.with_fast_patterns(evidence), tuple[str, ...]()
    lacks = evidence.p < ALARM
    if lacks:
        reasons = (*_reasons(tested, evidence, degrees), *_largest(points))
    growing = () if robust or lacks else tested.growing(seed)
    return Adequacy(LACK if lacks else ADEQUATE, evidence.p, reasons, evidence.kinds, growing)


def _of_no_optimum(objective: float, gain: float, degrees: int, *, is_plain: bool) -> Adequacy:
    """Judge values next to which the linearised model fits better, by what it leaves.

    gain  how much lower its sum of squares is
    """
    left = _of_size(objective - gain, degrees, is_plain=is_plain)
    if not (is_plain and left.lacks):
        return Adequacy(UNJUDGED, reasons=(NO_OPTIMUM,))
    large = _too_large(objective - gain, degrees, left.p, " that values nearby could reach")
    return replace(left, reasons=(large, NO_OPTIMUM))


def _of_size(objective: float, degrees: int, *, is_plain: bool) -> Adequacy:
    """Judge a fit by its sum of squares alone, where sigma is given.

    is_plain  whether residuals of measurements with given errors are all there is
    """
    least = 1 if is_plain else FEWEST
    if degrees < least:
        left = counted(max(degrees, 0), "degree")
        few = f"The fit leaves {left} of freedom; a verdict needs at least {least}."
        return Adequacy(UNJUDGED, reasons=(few,))
    p = chi_squared_probability(objective, degrees)
    lacks = p < ALARM
    reasons = (_too_large(objective, degrees, p),) if lacks else (SIZE_ALONE,)
    return Adequacy(LACK if lacks else ADEQUATE, p, reasons, {"size": p})


def _too_large(objective: float, degrees: int, p: float, whose: str = "") -> str:
    return (
        f"The weighted sum of squares {objective:.4g}{whose} is too large for "
        f"{counted(degrees, 'degree')} of freedom ({exact_probability(p)}): the model is wrong, "
        "or the standard deviations are too small."
    )


def _image(linear: LinearisedFit, value: FloatArray) -> FloatArray:
    """(M, r) orthonormal columns along which the unknowns move the predictions.

    value  (M,) residuals. Directions in which the linearised model would follow them out of the
           range of some unknown are left out: the measurements do not determine them. Where two
           unknowns exchange their values (ka = ke in pharmacokinetics) there always is one.
    """
    basis = np.eye(int((~linear.held).sum()))
    if len(linear.active):
        basis = null_space(linear.active[:, ~linear.held])
    moved: FloatArray = linear.jacobian[:, ~linear.held] @ basis
    length = column_sizes(moved)
    moved = moved / length
    if moved.shape[1] == 0 or not np.isfinite(moved).all():
        return np.asarray(moved)
    known = directions(moved)
    image = np.asarray(moved @ (known.known.T / known.singular))
    steps = (known.known / length) @ basis.T * (image.T @ value / known.singular)[:, None]
    return image[:, (np.abs(steps) <= linear.ranges[~linear.held]).all(axis=1)]


def _largest(points: pd.DataFrame) -> Iterator[str]:
    """How large the misfit is: a clear one may still be too small to matter."""
    rows = points.set_index("name")[["residual", "measured"]].abs().groupby(level=0).max()
    shares = [(r / size, name) for name, r, size in rows.itertuples(name=None) if size > 0]
    if shares:
        share, name = max(shares)
        yield f"The largest residual is {100 * share:.2g} % of the largest measured {name}."


class _Tested:
    """The points that are tested, their residuals, and what a series is called.

    without_sigma  number of a quantity -> its name, for those without standard deviation
    """

    def __init__(self, points: pd.DataFrame, value: FloatArray, image: FloatArray) -> None:
        series, self.keys = _numbered(points, ["experiment", "name"])
        quantity, names = _numbered(points, ["name"])
        without = set(points.loc[points["sigma"].isna(), "name"])
        self.without_sigma = {q: name for q, (name,) in enumerate(names) if name in without}
        known = sigma_given(points)
        size = np.abs(points["fitted"]) / divisors(points)
        time = points["time"].to_numpy(dtype=float)
        self.residuals = FitResiduals(value, image, series, quantity, time, size.to_numpy(), known)

    def name(self, series: int) -> str:
        """The series in words."""
        experiment, name = self.keys[series]
        several = len({e for e, _ in self.keys}) > 1
        return f"{name} in experiment {experiment}" if several else name

    def growing(self, seed: int) -> tuple[str, ...]:
        """Names of quantities without sigma whose errors grow with the fitted values."""
        if not self.without_sigma:
            return ()
        grown = growing_quantities(self.residuals, seed)
        return tuple(name for q, name in self.without_sigma.items() if q in grown)

    def with_fast_patterns(self, evidence: Evidence) -> Evidence:
        """The evidence, and that of patterns too fast for its polynomials: a wrong frequency.

        They count only where chance is out of the question, so that nothing else changes.
        """
        runs = [
            runs_test(self._of(j)).p if self._times(j) >= COURSE else 1.0
            for j in range(len(evidence.series))
        ]
        p = np.minimum(len(runs) * np.array(runs), 1.0)
        clear = np.where(p < BEYOND_CHANCE, p, 1.0)
        series = np.minimum(evidence.series, clear)
        return evidence._replace(p=min(evidence.p, float(clear.min())), series=series)

    def _of(self, series: int) -> FloatArray:
        """Residuals of a series, in the order of time."""
        return self.residuals.value[np.flatnonzero(self.residuals.series == series)]

    def _times(self, series: int) -> int:
        """How many different times a series has: replicates are no course over time."""
        return len(np.unique(self.residuals.time[self.residuals.series == series]))

    def pattern(self, series: int) -> str:
        """What is odd about a series: too few changes of sign, if that is it (runs test)."""
        residual = self._of(series)
        if self._times(series) < COURSE:
            return "are not around 0"
        if runs_test(residual).p > ODD:
            return "are not random over time"
        signs = residual[residual != 0] > 0
        changes = int(np.sum(signs[1:] != signs[:-1]))
        words = {0: "never change sign", 1: "change sign once", 2: "change sign twice"}
        said = words.get(changes, f"change sign {changes} times")
        also = CORRELATED * (changes >= OFTEN)
        return f"{said} in {len(residual)} measurements: the model misses a trend{also}"


def _numbered(points: pd.DataFrame, columns: list[str]) -> tuple[IntArray, list[tuple[str, ...]]]:
    """(m,) number of each row's group in the order of appearance, and the groups."""
    groups = points.groupby(columns, sort=False).ngroup()
    first = points.loc[~points.duplicated(columns), columns]
    keys = [tuple(map(str, row)) for row in first.itertuples(index=False)]
    return np.asarray(groups, dtype=np.intp), keys


def _reasons(tested: _Tested, evidence: Evidence, degrees: int) -> Iterator[str]:
    """Sentences on what is odd, the most telling first."""
    yield from _disagreement(tested.keys, evidence.mean)
    odd = np.argsort(evidence.series, kind="stable")
    clear = [int(j) for j in odd if evidence.series[j] <= ODD]
    for j in clear[:MOST]:
        p = probability(float(evidence.series[j]))
        yield f"Residuals of {tested.name(j)} {tested.pattern(j)} ({p})."
    if len(clear) > MOST:
        yield f"Residuals of {len(clear) - MOST} other series are not random either."
    trend, replicates, size = (
        evidence.kinds.get(kind, 1.0) for kind in ("trend", "replicates", "size")
    )
    if not clear and trend <= ODD:
        yield (
            "Taken together, the residuals of all series are not random over time "
            f"({probability(trend)})."
        )
    if replicates <= ODD:
        yield (
            "The means of replicates deviate from the model by more than their scatter explains "
            f"({probability(replicates)})."
        )
    objective = float(tested.residuals.value @ tested.residuals.value)
    larger = chi_squared_probability(objective, degrees)
    if size <= ODD and larger <= ODD:
        yield _too_large(objective, degrees, larger)


def _disagreement(keys: list[tuple[str, ...]], mean: FloatArray) -> Iterator[str]:
    """The quantity whose residuals differ most in sign between experiments, if clearly."""
    clearest, words = 0.0, ""
    for name in dict.fromkeys(name for _, name in keys):
        above, below = (
            [j for j, key in enumerate(keys) if key[1] == name and side * mean[j] > APART]
            for side in (1, -1)
        )
        apart = min(np.max(mean[above], initial=0.0), np.max(-mean[below], initial=0.0))
        if apart > clearest:
            over, under = (", ".join(keys[j][0] for j in own) for own in (above, below))
            clearest, words = apart, (
                f"The experiments disagree: the measurements of {name} lie above the model in "
                f"experiment {over} and below it in experiment {under}; a condition that differs "
                "between them (temperature?) may be missing from the model."
            )  # fmt: skip
    if words:
        yield words


FACTOR = 2.0  # first order; more than enough for higher ones


@takes_problem
def grid_error(problem: Problem, estimate: Any | Mapping[str, float]) -> pd.DataFrame:
    """Estimate how much the grid in space contributes to the error of each unknown.

    problem   a problem with `space={"x": ...}`
    estimate  a result of `igpe.estimate` or of a method, or a dict {unknown: value}
    returns   a table with one row for each free unknown and the columns `value`, `standard_error`,
              `refined` (the best value on a grid with twice as many intervals) and `grid_error`
              (twice the difference between `value` and `refined`). For first-order schemes,
              `grid_error` estimates the distance of `value` from the grid-converged value
    raises    ProblemError if the problem was created without `space`, EstimationFailed if the model
              cannot be integrated on the finer grid, Unsupported as in `igpe.profile`
    """
    finer = problem.on_finer_grid()
    method = SingleShooting()
    base = at_estimate(problem, estimate, method, "igpe.uncertainty.grid_error")
    values = dict(zip(base.box.names, base.x.tolist(), strict=True))
    if base.problem.held_weights is not None:
        finer = finer.weighted(**base.problem.held_weights._asdict())
    refined = likelihood(finer, values, method, "igpe.uncertainty.grid_error")
    return pd.DataFrame(
        {
            "value": base.x,
            "standard_error": base.errors.standard_error,
            "refined": refined.x,
            "grid_error": FACTOR * np.abs(refined.x - base.x),
        },
        index=pd.Index(base.box.names, name="unknown"),
    )


def weak_sentences(
    names: Sequence[str],
    x: FloatArray,
    covariance: FloatArray,
    links: Sequence[Sequence[int]] = (),
) -> list[str]:
    """Unknowns that are linked or strongly correlated, and the poorest combination."""
    groups = strongly_correlated(covariance, links)
    sentences = [
        f"Active bounds or constraints link {listed([names[i] for i in members])}: one of them "
        "determines the others."
        for members in links[:MOST]
    ]
    sentences += [
        f"{listed([names[i] for i in members])} are strongly correlated ({strongest}): the data "
        "determine a combination of them better than any one of them alone."
        for members, strongest in groups[:MOST]
    ]
    if len(groups) > MOST:
        sentences.append(
            f"{len(groups) - MOST} other groups of unknowns are also strongly correlated."
        )
    every = [one for one in combinations(x, covariance) if one.error > 0]
    if every and (groups or every[0].error > WEAK) and np.count_nonzero(every[0].components) > 1:
        sentences.append(
            "The largest standard error, of unknowns that change together: "
            f"{_moved(names, every[0])}. The smallest: {_moved(names, every[-1])}."
        )
    return sentences


def _moved(names: Sequence[str], one: Combination) -> str:
    """Relative changes; near a value of 0 they say nothing but that they are large."""
    least = PART * np.max(np.abs(one.components))
    parts = [
        (n, one.error * c) for n, c in zip(names, one.components, strict=True) if abs(c) >= least
    ]
    return ", ".join(
        f"{n} {'+' if change > 0 else '-'} over {100 * LARGE:.0f} %"
        if abs(change) > LARGE
        else f"{n} {float(f'{100 * change:.2g}'):+g} %"
        for n, change in parts
    )
