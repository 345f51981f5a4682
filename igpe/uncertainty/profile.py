"""Exact profile likelihoods: one unknown moved along its range, the others refitted each time."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from igpe.core.arguments import digest
from igpe.core.arrays import FloatArray
from igpe.core.box import Box, is_reached
from igpe.core.deadline import session
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.json_form import Stored
from igpe.core.markup import Rows, Shown, numbers
from igpe.core.progress import Progress, Share, Tell, teller, with_bar
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.likelihood import allowed_rise, errors_at, objective_rise
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals
from igpe.dynamics.shooting.reweighting import fully_held_weights, held_weights
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.shooting.tangent import tangent
from igpe.equations.compiled import fingerprint
from igpe.numerics.covariance import Uncertainty
from igpe.problem.problem import Problem, takes_problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_profiles
from igpe.tasks.run import Backend, Workers, run
from igpe.tasks.workers import Function, Item, ItemOutcome, Row, Work
from igpe.uncertainty.likelihood import (
    Likelihood,
    at_estimate,
    bending,
    chosen,
    collocated,
    left_out,
    likelihood,
    quick,
    require_collocated,
    require_confidence,
    size_of,
    values_of,
)
from igpe.uncertainty.path import (
    CollocatedPath,
    End,
    HeldLine,
    LikelihoodPath,
    PathPoint,
    ShootingPath,
    Walk,
    WalkSteps,
    limited,
    walk,
)


@dataclass(frozen=True)
class ParameterProfile:
    """The profile likelihood of one unknown.

    name, unit          name and unit of the unknown
    estimate            its value at the optimum
    lower, upper        endpoints of the interval; a bound or infinite if the profile stays low
    lower_end, upper_end  why the interval ends there: "" (the likelihood ratio), "bound reached",
                        "open" (the profile is flat), "no further solution"
    values              (k,) values of the unknown, increasing
    costs               (k,) smallest weighted sum of squares with the unknown fixed at each value
    others              (k, n) values of all unknowns at these points, in the order of
                        `Profiles.names`
    """

    name: str
    unit: str
    estimate: float
    lower: float
    upper: float
    lower_end: str
    upper_end: str
    values: FloatArray = field(repr=False)
    costs: FloatArray = field(repr=False)
    others: FloatArray = field(repr=False)

    @property
    def determined(self) -> bool:
        """Return True if the likelihood ratio determines both endpoints."""
        return not (self.lower_end or self.upper_end)

    @property
    def remark(self) -> str:
        """Why the interval ends, as text; empty if the likelihood ratio determines both sides."""
        if self.lower_end == self.upper_end:
            return f"{self.lower_end} on both sides" if self.lower_end else ""
        sides = (("below", self.lower_end), ("above", self.upper_end))
        return ", ".join(f"{end} {side}" for side, end in sides if end)


@dataclass(frozen=True, repr=False)
class Profiles(Shown, Stored, name="set of profiles", number=2):
    """Profile likelihoods with their intervals.

    names         names of all free unknowns
    parameters    values of these unknowns at the optimum
    objective     the sum of squares at the optimum, or, if standard deviations are estimated, -2
                  log-likelihood up to a constant
    rises         a dict {unknown: rise of the objective at which its interval ends}, from the
                  distribution of chi squared, or F if sigma is unknown
    confidence    confidence level of each interval
    profiles      one `Profile` for each requested unknown
    linearised    linearised intervals for comparison: a dict {unknown: (lower, upper)}
    integrations  number of integrations of the full model with derivatives; 0 for collocation
    seconds       wall time
    notes         remarks for the user
    complete      False if the run was interrupted; `profiles` then contains only the finished
                  profiles
    """

    names: tuple[str, ...]
    parameters: Mapping[str, float]
    objective: float
    rises: Mapping[str, float]
    confidence: float
    profiles: tuple[ParameterProfile, ...]
    linearised: Mapping[str, tuple[float, float]]
    integrations: int = 0
    seconds: float = 0.0
    notes: tuple[str, ...] = ()
    complete: bool = True

    def __getitem__(self, name: str) -> ParameterProfile:
        """The profile of one unknown. Raises ProblemError if it has none."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        raise ProblemError(
            f"There is no profile of '{name}', only of {[p.name for p in self.profiles]}."
        )

    @property
    def rise(self) -> float:
        """Return the largest of `rises`."""
        return max(self.rises.values())

    def range_of(self, name: str) -> tuple[float, float]:
        """Return the smallest and largest values that an unknown takes on the profiles.

        Where these points lie, the objective has risen by at most `rises[name]`, so that the
        profile interval of the unknown contains them.
        """
        values = self.within(self.rises[name])[:, self.names.index(name)]
        return float(values.min()), float(values.max())

    def within(self, rise: float = np.inf) -> FloatArray:
        """(k, n) values of all unknowns, no higher than `rise`: optimum, inner points, ends."""
        points = [np.array([[self.parameters[n] for n in self.names]])]
        for one in self.profiles:
            own = self.rises[one.name]
            points.append(one.others[one.costs <= self.objective + min(rise, own)])
            ends = [np.interp([one.lower, one.upper], one.values, row) for row in one.others.T]
            points += [np.transpose(ends)] * (own <= rise)
        return np.vstack(points)

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row for each profile: estimate, interval, linearised interval,
        unit, remark."""
        rows = [
            {
                "estimate": p.estimate,
                "lower": p.lower,
                "upper": p.upper,
                "linearised_lower": self.linearised[p.name][0],
                "linearised_upper": self.linearised[p.name][1],
                "unit": p.unit,
                "remark": p.remark,
            }
            for p in self.profiles
        ]
        return pd.DataFrame(rows, index=pd.Index([p.name for p in self.profiles], name="name"))

    def plot(self, axes: Any = None) -> Plot:
        """Plot the profile (rise in the objective) of each unknown, and its linearisation."""
        return plot_profiles(self, axes)

    def _shown(self) -> tuple[list[Rows], list[str]]:
        rows: list[tuple[str, ...]] = [
            ("", "estimate", f"{100 * self.confidence:g} % interval", "linearised", "", "")
        ]
        rows += [_cells(p, self.linearised[p.name]) for p in self.profiles]
        level = f"the objective {self.objective:.6g} rises by at most {self.rise:.4g}"
        return [rows], [f"Profile likelihood: within the intervals, {level}.", *self.notes]


def _cells(p: ParameterProfile, linearised: tuple[float, float]) -> tuple[str, ...]:
    error = (p.upper - p.lower) / 4
    error = error if math.isfinite(error) else math.nan

    value, *ends = numbers((p.estimate, p.lower, p.upper, *linearised), error)
    low, high, left, right = (end or "?" for end in ends)
    return p.name, value, f"[{low}, {high}]", f"[{left}, {right}]", p.unit, p.remark


def sentences(profiles: tuple[ParameterProfile, ...]) -> list[str]:
    """What is not determined in practice, in words."""
    lines = []
    for p in profiles:
        sides = {"below": p.lower_end, "above": p.upper_end}
        flat = [side for side, end in sides.items() if end == End.OPEN.value]
        broken = [side for side, end in sides.items() if end == End.BROKEN.value]
        if flat:
            what = "is not identifiable in practice"
            if "" in sides.values():
                limit = f"at most {p.upper:.3g}" if flat == ["below"] else f"at least {p.lower:.3g}"
                what = f"is limited on one side only, and is {limit}"
            where = " or ".join(flat)
            lines.append(
                f"{p.name} {what}: no value {where} the estimate makes the fit much worse."
            )
        if broken:
            lines.append(
                f"The profile of {p.name} could not be computed to its end "
                f"({' and '.join(broken)}): further from the estimate, the integration fails, the "
                "other unknowns cannot be fitted, or the constraints cannot be satisfied."
            )
    return lines


INCREMENTS = 4  # of the sum of squares, on each side
INEXACT = 1e-4  # of the rise: what one Gauss-Newton correction may still promise
BETTER = 1e-2  # of the rise: an optimum so much lower is another one
WIDER = 0.01  # of an interval: what another profile shows beyond its ends is more than rounding
AGAIN = 10  # times that profiles begin again at a better optimum
SHARE = 3.0  # times the mean of what is left is what one profile may take of a limit

Method: TypeAlias = SingleShooting | Collocation

Better: TypeAlias = tuple[FloatArray, float]
"""Unknowns (n,) and sum of squares of an optimum that is better than the estimate."""


class ProfileJob(NamedTuple):
    """What a task needs to know."""

    problem: Problem
    method: Method
    confidence: float


class _Setup(NamedTuple):
    """A method made ready: the result without profiles, and what walks need.

    path   of an unknown by its place;  first: a first step of it
    freed  the optimum next to a point of a path;  integrations: so far
    work   of them so far, in integrations like the one at the optimum
    limit  raise `ExhaustedError` after so much more work
    """

    base: Profiles
    path: Callable[[int], LikelihoodPath]
    first: Callable[[int], float]
    freed: Callable[[PathPoint], Better]
    integrations: Callable[[], int]
    work: Callable[[], float]
    limit: Callable[[float], None]


def _set_up(job: ProfileJob, values: dict[str, float]) -> _Setup:
    """Compile the problem for the method that is asked for, at the optimum next to the values."""
    problem, method = fully_held_weights(job.problem, values), job.method
    names, confidence = problem.box.names, job.confidence

    def without_profiles(x: FloatArray, cost: float, rise: float, errors: Uncertainty) -> Profiles:
        pairs = zip(errors.lower.tolist(), errors.upper.tolist(), strict=True)
        linearised = dict(zip(names, pairs, strict=True))
        rises = problem.box.mapping(rise * errors.inflation)
        return Profiles(names, problem.box.mapping(x), cost, rises, confidence, (), linearised)

    if isinstance(method, Collocation):
        program = collocated(problem, method, values)
        x = program.x
        at = Residuals(problem, Automatic())(x)
        errors = errors_at(problem, x, at, confidence, along=tangent(problem, x, at))
        rise = allowed_rise(errors, problem.sigma_known, confidence)
        far = np.maximum(errors.upper - x, x - errors.lower) / np.sqrt(INCREMENTS)
        return _Setup(
            without_profiles(x, program.cost, rise, errors),
            lambda i: CollocatedPath(program, HeldLine((i,), np.ones(1))),
            lambda i: float(far[i]) if 0 < far[i] < np.inf else size_of(problem, x, i),
            lambda point: program.freed(point.state.values) or (point.x, point.cost),
            integrations=lambda: 0,
            work=lambda: 0.0,
            limit=lambda more: None,
        )
    base = likelihood(
        problem, values, method, "igpe.profile", confidence=confidence, deviations_too=True
    )
    rise = objective_rise(base.problem, base.at, base.errors, confidence)
    profiles = without_profiles(base.x, base.at.cost, rise, base.errors)
    base = _rougher(base, INEXACT * rise)
    residuals, before = base.residuals, base.residuals.work
    residuals(base.x)
    each = residuals.work - before
    search = bending(quick(base, INEXACT * rise))

    def freed(point: PathPoint) -> Better:
        fit = base.search.fit(residuals, point.x, base.box)
        return fit.x, fit.cost

    def limit(more: float) -> None:
        residuals.most_work = residuals.work + more * each

    return _Setup(
        profiles,
        lambda i: ShootingPath(base, HeldLine((i,), np.ones(1)), search),
        lambda i: size_of(problem, base.x, i),
        freed,
        integrations=lambda: residuals.calls,
        work=lambda: residuals.work / each,
        limit=limit,
    )


def _rougher(base: Likelihood, inexact: float) -> Likelihood:
    """With integrations of less accuracy, if they change the sum of squares by less than that."""
    residuals = base.residuals.rougher()
    at = residuals(base.x)
    if at is None or not abs(at.cost - base.at.cost) <= inexact:
        return base
    return replace(base, residuals=residuals, at=at)


@takes_problem
@with_bar
@session()
def profile(
    problem: Problem,
    estimate: Any,
    names: Sequence[str] | str | None = None,
    *,
    confidence: float = 0.95,
    method: Method = SingleShooting(),
    most_integrations: float = np.inf,
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress = None,
) -> Profiles:
    """Compute likelihood ratio intervals: the values of an unknown that fit the data well enough.

    igpe holds one unknown at values progressively further from its estimate and re-estimates all
    others. The interval ends where the rise in the sum of squares reaches a threshold. Unlike
    intervals from linearised errors, these intervals are valid for nonlinear problems and do not
    depend on the parametrisation.

    problem     the problem whose parameters were estimated
    estimate    a Result or Estimate of the problem, or a dict {unknown: value}; it must lie at or
                near the optimum
    names       names of the unknowns; None: all free unknowns
    confidence  confidence level of each interval
    method      `SingleShooting` (fast, exact derivatives) or `Collocation` (supports constraints)
    most_integrations  maximum number of integrations for all profiles together; an integration that
                needs twice as many steps as one at the estimate counts twice. A profile that
                exceeds its share of this number ends without a result. Only for `SingleShooting`
    executor, store, timeout   executor, store and time limit of the profiles, as for
                               `igpe.campaign`; a profile that is stopped is omitted, and a note
                               says so
    progress    as for `igpe.estimate`
    returns     the profiles; after Ctrl-C only those that are finished
    raises      ProblemError if a name or the estimate does not belong to the problem, Unsupported
                if the method does not support it, EstimationFailed if the model cannot be
                integrated there or no profile could be computed; others as in `igpe.campaign`

    If a profile reaches a better optimum, all profiles restart there, and a note says so. If a
    point on the profile of one unknown fits the measurements well enough, the intervals of the
    other unknowns also include their values at this point.
    """
    require_confidence("profile", confidence)
    requested, values = chosen(problem, names), values_of(problem, estimate)
    problem = held_weights(problem, estimate)
    if isinstance(method, Collocation):
        require_collocated(problem, method, estimate)
    else:
        at_estimate(problem, estimate, method, "igpe.profile", deviations_too=True)
    job, backend = ProfileJob(problem, method, confidence), Backend(executor, store, timeout)
    made = followed(job, values, requested, most_integrations, backend=backend, progress=progress)
    if isinstance(method, Collocation):
        return made
    said = left_out(problem, "igpe.profile", "points of the profiles", made.within())
    return replace(made, notes=(*made.notes, *said))


def followed(
    job: ProfileJob,
    values: dict[str, float],
    requested: Sequence[str],
    left: float = np.inf,
    *,
    backend: Backend = Backend(),
    progress: Progress = None,
) -> Profiles:
    """Compute the profiles with at most `left` integrations; see `profile`."""
    problem, store = job.problem, backend.store
    equations = "" if store is None else fingerprint(problem)
    series_of = "profile", 2, equations, job[1:], left
    started, integrations, first, notes = time.perf_counter(), 0, np.inf, list[str]()
    for turn in range(AGAIN + 1):
        series = "" if store is None else digest(*series_of, values)
        work = Work(partial(_prepared, values), job, series)
        tasks = _Tasks(work, requested, left, is_last=turn == AGAIN)
        rows, complete = _rows(tasks, backend, teller(progress))
        single = [Profiles.from_dict(row["profiles"]) for row in rows]
        integrations += rows[0]["setup"] + sum(one.integrations for one in single)
        left -= sum(row["work"] for row in rows)
        better = min((r["better"] for r in rows if r["better"]), key=lambda b: b[1], default=None)
        if better is None:
            break
        again = complete and turn < AGAIN
        there = problem.box.mapping(np.array(better[0]))
        first = single[0].objective if turn == 0 else first
        notes = [_better_sentence(first, there, better[1], again=again)]
        if not again:
            break
        values = there
    every = tuple(p for one in single for p in one.profiles)  # which have one optimum
    made = _with_ranges(replace(single[0], profiles=every), problem.box)
    lost = [n for n in requested if n not in [p.name for p in made.profiles]]
    why = "There are" if complete else "Interrupted: there are"
    notes += [f"{why} no profiles for {', '.join(lost)}."] if lost else []
    return replace(
        made,
        integrations=integrations,
        seconds=time.perf_counter() - started,
        notes=(*notes, *sentences(made.profiles), *limited(made, problem.box)),
        complete=complete,
    )


def widened(interval: tuple[float, float], by: tuple[float, float]) -> tuple[float, float]:
    """The interval with the values of another one, unless only rounding sets them apart."""
    (lower, upper), (low, high) = interval, by
    slack = WIDER * (upper - lower)
    return low if low < lower - slack else lower, high if high > upper + slack else upper


def _with_ranges(made: Profiles, box: Box) -> Profiles:
    """The profiles, their intervals widened to what the others show to be well explained."""
    profiles = []
    for one in made.profiles:
        lower, upper = widened((one.lower, one.upper), made.range_of(one.name))
        low, high = box.select([one.name]).lower[0], box.select([one.name]).upper[0]
        at_low, at_high = (is_reached(*ends) for ends in ((lower, low), (upper, high)))
        profiles.append(
            replace(
                one,
                lower=low if at_low else lower,
                upper=high if at_high else upper,
                lower_end=one.lower_end or End.BOUND.value * at_low,
                upper_end=one.upper_end or End.BOUND.value * at_high,
            )
        )
    return replace(made, profiles=tuple(profiles))


class _Tasks(NamedTuple):
    """One turn of profiles.

    most     integrations that they may take, as in `profile`
    is_last  no profiles restart at a better optimum: those of this turn go to their ends
    """

    work: Work
    names: Sequence[str]
    most: float
    is_last: bool


def _rows(tasks: _Tasks, backend: Backend, tell: Tell) -> tuple[list[Row], bool]:
    """The rows of the tasks in the order of the names; those that are there at Ctrl-C.

    Unless the turn is the last one, no task starts after one has met a better optimum.

    returns  also whether no interruption ended them
    raises   EstimationFailed if there is no row, KeyboardInterrupt if it came before the first
    """
    known: dict[str, ItemOutcome] = {}

    def items() -> Iterator[Item]:
        for done, name in enumerate(tasks.names):
            rows = [one.row for one in known.values() if one.status is None]
            left = tasks.most - sum(row["work"] for row in rows)
            if rows and (left <= 0 or (any(r["better"] for r in rows) and not tasks.is_last)):
                return
            tell(Share(f"Profile of {name}", done / len(tasks.names)))
            share = min(left, SHARE * left / (len(tasks.names) - done))
            yield Item(name, (name, share, tasks.is_last))

    complete = True
    try:
        with closing(run(tasks.work, items(), backend)) as outcomes:
            for one in outcomes:
                known[one.key] = one
    except KeyboardInterrupt:
        if not known:
            raise
        complete = False
    rows = [known[n].row for n in tasks.names if n in known and known[n].status is None]
    if not rows:
        lost = next(iter(known.values()))
        assert lost.status is not None, "all are lost"
        raise EstimationFailed(
            f"No profile could be computed. {lost.status.value} {lost.message}", lost.status
        )
    return rows, complete


def _prepared(values: dict[str, float], job: ProfileJob) -> Function:
    """From the name of an unknown, its share of integrations, and `_Tasks.is_last` to a row.

    profiles  with that of the unknown; without any if its share was not enough
    setup     integrations until the problem was ready; those of `profiles` came later
    work      as in `_Setup`
    better    unknowns and sum of squares of an optimum met on the way, or None
    """
    setup = _set_up(job, values)
    before, margin = setup.integrations(), BETTER * setup.base.rise

    def one(given: tuple[str, float, bool]) -> Row:
        name, share, is_last = given
        begin, work = setup.integrations(), setup.work()
        made: tuple[ParameterProfile, ...] = ()
        better: list[Any] | None = None
        setup.limit(share)
        with suppress(ExhaustedError):
            i = job.problem.box.names.index(name)
            path, first = setup.path(i), setup.first(i)
            steps = WalkSteps(setup.base.rises[name], INCREMENTS, first)
            origin = path.origin
            lowest = origin.cost - margin
            walks = _walks(path, origin, steps if is_last else steps._replace(lowest=lowest))
            best = min((p for w in walks for p in w.points), key=lambda p: p.cost, default=None)
            if best is not None and best.cost < lowest:
                setup.limit(np.inf)
                x, cost = setup.freed(best)
                better = [x.tolist(), cost] if cost < lowest else None
                setup.limit(share - (setup.work() - work))
            if better is None and walks[-1].end is End.LOWER:  # only a linear step promised it
                walks = _walks(path, origin, steps)
            if walks[-1].end is not End.LOWER:
                made = (_profile_of(job.problem, i, origin, *walks),)
        spent = setup.integrations() - begin
        return {
            "profiles": replace(setup.base, profiles=made, integrations=spent).to_dict(),
            "better": better,
            "setup": before,
            "work": setup.work() - work,
        }

    return one


def _walks(path: LikelihoodPath, origin: PathPoint, steps: WalkSteps) -> list[Walk]:
    """To both sides, or to the first if that meets a better optimum."""
    below = walk(path, origin, -1, steps)
    return [below] if below.end is End.LOWER else [below, walk(path, origin, 1, steps)]


def _profile_of(
    problem: Problem, i: int, origin: PathPoint, below: Walk, above: Walk
) -> ParameterProfile:
    points = sorted((*below.points, origin, *above.points), key=lambda p: p.at)
    name, value, box = problem.box.names[i], float(origin.x[i]), problem.box
    ends = np.array([value + below.at, value + above.at])
    low, high = np.clip(ends, box.lower[i], box.upper[i]).tolist()
    return ParameterProfile(
        name, problem.unit(name), value, low, high, below.end.value, above.end.value,
        np.array([p.x[i] for p in points]), np.array([p.cost for p in points]),
        np.array([p.x for p in points]),
    )  # fmt: skip


def _better_sentence(
    before: float, values: Mapping[str, float], objective: float, *, again: bool
) -> str:
    there = ", ".join(f"{n} = {v:.6g}" for n, v in values.items())
    then = "These are the profiles of the better optimum."
    if not again:
        then = (
            "The profiles shown are still those of the worse optimum. Estimate again, starting at "
            "the better one."
        )
    return (
        f"The estimate (objective {before:.6g}) was not the best: the profiles reached a "
        f"better optimum, {there} (objective {objective:.6g}). {then}"
    )
