"""Exact profile likelihoods: one unknown moved along its range, the others refitted each time."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from igpe.core.arguments import digest
from igpe.core.arrays import FloatArray
from igpe.core.deadline import session
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.json_form import Stored
from igpe.core.markup import bullets
from igpe.core.status import Progress
from igpe.dynamics.collocation.collocation import Collocation
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.likelihood import errors_at, tangent
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.equations.fingerprint import fingerprint
from igpe.numerics.statistics.covariance import Uncertainty, allowed_rise
from igpe.problem.problem import Problem
from igpe.results.plots.uncertainty import plot_profiles
from igpe.results.result_data import number
from igpe.tasks.executors import Workers
from igpe.tasks.run import Backend, run
from igpe.tasks.workers import Function, Item, ItemOutcome, Row, Work
from igpe.uncertainty.likelihood import (
    chosen,
    likelihood,
    quick,
    require_confidence,
    size_of,
    values_of,
    with_numbers,
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
    collocated,
    walk,
)


@dataclass(frozen=True)
class ParameterProfile:
    """The profile likelihood of one unknown.

    name, unit          of the unknown
    estimate            at the optimum
    lower, upper        ends of the interval; a bound, or infinite, where the profile stays low
    lower_end           why it ends there: "" (the likelihood ratio), "bound reached", "open" (flat:
    upper_end           the measurements set no limit), "no solution beyond"
    values              (k,) of the unknown, increasing
    costs               (k,) least weighted sum of squares with the unknown held there
    others              (k, n) all unknowns there, in the order of `Profiles.names`
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
        """Whether the likelihood ratio ends the interval on both sides."""
        return not (self.lower_end or self.upper_end)

    @property
    def remark(self) -> str:
        """How it ends, in words; empty if on both sides by the likelihood ratio."""
        if self.lower_end == self.upper_end:
            return f"{self.lower_end} on both sides" if self.lower_end else ""
        sides = (("below", self.lower_end), ("above", self.upper_end))
        return ", ".join(f"{end} {side}" for side, end in sides if end)


@dataclass(frozen=True)
class Profiles(Stored, name="set of profiles", number=1):
    """Profile likelihoods with their intervals.

    names        of all unknowns that were free
    parameters   the optimum they are about;  objective  the sum of squares there
    rise         of the sum of squares at the ends: by chi squared, or by F if sigma is unknown
    confidence   of each interval
    profiles     one for each unknown asked for
    linearised   unknown -> (lower, upper) from the covariance, for comparison
    integrations of the whole model, with derivatives; 0 by collocation
    seconds      wall time
    notes        sentences worth reading
    complete     False if it was interrupted: only the finished profiles are there
    """

    names: tuple[str, ...]
    parameters: Mapping[str, float]
    objective: float
    rise: float
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
            f"There is no profile of '{name}'; there are {[p.name for p in self.profiles]}."
        )

    def to_frame(self) -> pd.DataFrame:
        """One row for each profile: estimate, its interval, the linearised one, unit, remark."""
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

    def plot(self, axes: Any = None) -> Any:
        """Rise of the sum of squares over each unknown, with level and parabola; returns axes."""
        return plot_profiles(self, axes)

    def __str__(self) -> str:
        rows: list[tuple[str, ...]] = [
            ("", "estimate", f"{100 * self.confidence:g} % interval", "linearised", "", "")
        ]
        rows += [_cells(p, self.linearised[p.name]) for p in self.profiles]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        told = (
            f"Profile likelihood; the sum of squares {self.objective:.6g} may rise by "
            f"{self.rise:.4g}."
        )
        return "\n".join([*lines, "", told, *self.notes])

    def _repr_html_(self) -> str:
        table = self.to_frame().to_html(float_format="{:.6g}".format)
        return f"{table}{bullets(self.notes)}"


def _cells(p: ParameterProfile, linearised: tuple[float, float]) -> tuple[str, ...]:
    error = (p.upper - p.lower) / 4
    error = error if math.isfinite(error) else math.nan

    def told(pair: tuple[float, float]) -> str:
        low, high = (number(v, error) or "?" for v in pair)
        return f"[{low}, {high}]"

    value = number(p.estimate, error)
    return p.name, value, told((p.lower, p.upper)), told(linearised), p.unit, p.remark


def sentences(profiles: tuple[ParameterProfile, ...]) -> list[str]:
    """What is not determined in practice, in words."""
    found = []
    for p in profiles:
        sides = {"below": p.lower_end, "above": p.upper_end}
        flat = [side for side, end in sides.items() if end == End.OPEN.value]
        broken = [side for side, end in sides.items() if end == End.BROKEN.value]
        if flat:
            found.append(
                f"{p.name} is not identifiable in practice: {' and '.join(flat)} its estimate the "
                "fit hardly becomes worse, whatever the value."
            )
        if broken:
            found.append(
                f"The profile of {p.name} could not be followed to its end "
                f"({' and '.join(broken)}): further away the model breaks down, or its constraints "
                "cannot be kept."
            )
    return found


INCREMENTS = 4  # of the sum of squares, on each side
INEXACT = 1e-3  # of the rise: what one Gauss-Newton correction may still promise

Method: TypeAlias = SingleShooting | Collocation

Better: TypeAlias = tuple[FloatArray, float]
"""Unknowns (n,) and sum of squares of an optimum that is better than the estimate."""


class ProfileJob(NamedTuple):
    """What is asked for, as it goes to a task.

    leaving  whether to stop as soon as a better optimum is met
    """

    problem: Problem
    method: Method
    confidence: float
    leaving: bool = True


@dataclass(frozen=True)
class ProfileSetup:
    """A method made ready: the result without profiles, and how paths are made.

    freed  the optimum next to a point of a path;  integrations: so far
    """

    base: Profiles
    path: Callable[[int], LikelihoodPath]
    scale: Callable[[int], float]
    freed: Callable[[PathPoint], Better]
    integrations: Callable[[], int]


def set_up(job: ProfileJob, values: dict[str, float]) -> ProfileSetup:
    """Compile the problem for the method that is asked for, at the optimum next to the values.

    raises ProblemError for a method that is neither `SingleShooting` nor `Collocation`
    """
    job = job._replace(problem=with_numbers(job.problem, values))
    if isinstance(job.method, Collocation):
        return _by_collocation(job, job.method, values)
    if isinstance(job.method, SingleShooting):
        return _by_shooting(job, job.method, values)
    raise ProblemError(
        f"profile was given method={job.method!r}; it needs igpe.SingleShooting() or "
        "igpe.Collocation()."
    )


def _by_shooting(job: ProfileJob, method: SingleShooting, values: dict[str, float]) -> ProfileSetup:
    base = likelihood(job.problem, values, method, confidence=job.confidence)
    rise = base.rise(job.confidence)
    search = quick(base.search, INEXACT * rise)

    def path(i: int) -> LikelihoodPath:
        return ShootingPath(base, HeldLine((i,), np.ones(1)), search)

    def freed(point: PathPoint) -> Better:
        fit = base.fit(base.residuals, point.x)
        return fit.x, fit.cost

    return ProfileSetup(
        _without_profiles(job, base.x, base.at.cost, rise, (base.errors.lower, base.errors.upper)),
        path,
        lambda i: size_of(job.problem, base.x, i),
        freed,
        lambda: base.residuals.calls,
    )


def _by_collocation(job: ProfileJob, method: Collocation, values: dict[str, float]) -> ProfileSetup:
    base = collocated(job.problem, method, values)
    errors = _errors_at(job, base.x)
    rise = allowed_rise(errors, job.problem.sigma_known, job.confidence)
    first = np.maximum(errors.upper - base.x, base.x - errors.lower) / np.sqrt(INCREMENTS)

    def scale(i: int) -> float:
        told = np.isfinite(first[i]) and first[i] > 0
        return float(first[i]) if told else size_of(job.problem, base.x, i)

    return ProfileSetup(
        _without_profiles(job, base.x, base.cost, rise, (errors.lower, errors.upper)),
        lambda i: CollocatedPath(base, HeldLine((i,), np.ones(1))),
        scale,
        base.freed,
        lambda: 0,
    )


def _errors_at(job: ProfileJob, x: FloatArray) -> Uncertainty:
    """Linearised errors by one integration, with active constraints on parameters kept."""
    problem = job.problem
    at = Residuals(problem, Automatic())(x)
    return errors_at(problem, x, at, job.confidence, active=tangent(problem, x).rows)


def _without_profiles(
    job: ProfileJob,
    x: FloatArray,
    objective: float,
    rise: float,
    linearised: tuple[FloatArray, FloatArray],
) -> Profiles:
    names = job.problem.box.names
    pairs = zip(*(map(float, side) for side in linearised), strict=True)
    return Profiles(
        names=names,
        parameters=job.problem.box.mapping(x),
        objective=objective,
        rise=rise,
        confidence=job.confidence,
        profiles=(),
        linearised=dict(zip(names, pairs, strict=True)),
    )


BETTER = 1e-2  # of the rise: an optimum so much lower is another one
AGAIN = 5  # times that profiles begin again at a better optimum


@session()
def profile(
    problem: Problem,
    estimate: Any,
    names: Sequence[str] | str | None = None,
    *,
    confidence: float = 0.95,
    method: Method = SingleShooting(),
    executor: Workers = None,
    store: str | Path | None = None,
    timeout: float | None = None,
    progress: Progress | None = None,
) -> Profiles:
    """Intervals by the likelihood ratio: all values that some fit with it explains well enough.

    Each unknown is held at values further and further from the estimate while all others are
    estimated again; where the sum of squares has risen by what chance explains, the interval ends.
    Unlike linearised errors this is right for curved problems, and the same in all parameters.

    problem    that was estimated
    estimate   a Result or Estimate of the problem, or unknown -> value: the optimum, or near it
    names      of the unknowns; None: all free ones
    confidence of each interval
    method     `SingleShooting` (fast, exact derivatives) or `Collocation` (keeps constraints)
    executor, store, timeout   where profiles are made and kept, one an item, as for
               `igpe.campaign`; one that is ended is left out, and a note says so
    progress   is told a sentence when a profile begins
    returns    the finished profiles if it is interrupted (Ctrl-C) after the first one
    raises     ProblemError for names or an estimate that do not fit the problem, Unsupported by the
               method, EstimationFailed if the model cannot be integrated at the estimate, or no
               profile could be made;  what `igpe.campaign` raises

    If a better optimum is met on the way, all profiles begin again there, and a note says so.
    """
    require_confidence("profile", confidence)
    wanted, values = chosen(problem, names), values_of(problem, estimate)
    backend = Backend(executor, store, timeout)
    job = ProfileJob(problem, method, confidence)
    told = "" if store is None else fingerprint(problem)
    began = time.perf_counter()
    notes: list[str] = []
    spent = 0
    for turn in range(AGAIN + 1):
        job = job._replace(leaving=turn < AGAIN)
        series = "" if store is None else digest("profile", told, job[1:], values)
        work = Work(partial(_prepared, values), job, series)
        found, complete = _pieces(work, wanted, backend, progress)
        spent += sum(piece.integrations for piece in found) + found[0].begun
        better = min((p.better for p in found if p.better), key=lambda b: b[1], default=None)
        if better is None:
            break
        begins_again = job.leaving and complete
        notes = [_told(found[0].whole.objective, *better, problem, began_again=begins_again)]
        if not complete:
            break
        values = problem.box.mapping(better[0]) if begins_again else values
    profiles = tuple(p for piece in found for p in piece.whole.profiles)
    lost = [n for n in wanted if n not in [p.name for p in profiles]]
    why = "There are" if complete else "Interrupted: there are"
    notes += [f"{why} no profiles of {', '.join(lost)}."] if lost else []
    return replace(
        found[0].whole,
        profiles=profiles,
        integrations=spent,
        seconds=time.perf_counter() - began,
        notes=(*notes, *sentences(profiles)),
        complete=complete,
    )


class ProfileItem(NamedTuple):
    """What one item found.

    whole         with this one profile
    better        an optimum met on the way, or None
    begun         integrations until the problem was ready;  integrations: since then
    """

    whole: Profiles
    better: Better | None
    begun: int
    integrations: int


def _pieces(
    work: Work, wanted: Sequence[str], backend: Backend, progress: Progress | None
) -> tuple[list[ProfileItem], bool]:
    """Of all unknowns in their order; where that is asked for, up to the first better optimum.

    Those that are there at Ctrl-C; whether there was none.
    raises EstimationFailed if there are none, KeyboardInterrupt if it came before the first one
    """

    def items() -> Iterator[Item]:
        for name in wanted:
            if progress is not None:
                progress(f"Profile of {name}")
            yield Item(name, name)

    known: dict[str, ItemOutcome] = {}
    complete = True
    try:
        with closing(run(work, items(), backend)) as outcomes:
            for one in outcomes:
                known[one.key] = one
                if work.arguments.leaving and (enough := _up_to_better(known, wanted)):
                    known = {name: known[name] for name in enough}
                    break
    except KeyboardInterrupt:
        if not known:
            raise
        complete = False
    return _made(known, wanted), complete


def _made(known: Mapping[str, ItemOutcome], wanted: Sequence[str]) -> list[ProfileItem]:
    """What became profiles, in their order; raises EstimationFailed if nothing did."""
    pieces = [_piece(known[n].row) for n in wanted if n in known and known[n].status is None]
    if not pieces:
        lost = next(iter(known.values()))
        assert lost.status is not None, "all are lost"
        raise EstimationFailed(
            f"No profile could be made. {lost.status.value} {lost.message}", lost.status
        )
    return pieces


def _up_to_better(known: Mapping[str, ItemOutcome], wanted: Sequence[str]) -> list[str]:
    """The first names up to one whose profile met a better optimum; none if that may yet change.

    In the order of the names, so that it does not matter which profile was finished first.
    """
    found = list(takewhile(known.__contains__, wanted))
    first = next((k for k, name in enumerate(found) if known[name].row.get("better")), None)
    return [] if first is None else found[: first + 1]


def _prepared(values: dict[str, float], job: ProfileJob) -> Function:
    """From the name of an unknown to its profile."""
    setup = set_up(job, values)
    begun = setup.integrations()

    def one(name: str) -> Row:
        before = setup.integrations()
        i = job.problem.box.names.index(name)
        path = setup.path(i)
        origin = path.origin
        steps = WalkSteps(setup.base.rise, INCREMENTS, setup.scale(i))
        sides = [walk(path, origin, sign, steps) for sign in (-1, 1)]
        whole = replace(setup.base, profiles=(_profile(job.problem, i, origin, sides),))
        low = min((p for side in sides for p in side.points), key=lambda p: p.cost, default=origin)
        is_better = low.cost < origin.cost - BETTER * setup.base.rise
        better = setup.freed(low) if is_better else None
        return {
            "whole": whole.to_dict(),
            "better": None if better is None else {"x": better[0].tolist(), "cost": better[1]},
            "begun": begun,
            "integrations": setup.integrations() - before,
        }

    return one


def _piece(row: Row) -> ProfileItem:
    better = row["better"] and (np.array(row["better"]["x"]), float(row["better"]["cost"]))
    return ProfileItem(Profiles.from_dict(row["whole"]), better, row["begun"], row["integrations"])


def _profile(
    problem: Problem, i: int, origin: PathPoint, sides: Sequence[Walk]
) -> ParameterProfile:
    """Both walks as one curve."""
    value = float(origin.x[i])
    points = sorted((*sides[0].points, origin, *sides[1].points), key=lambda p: p.at)
    name, box = problem.box.names[i], problem.box
    ends = np.clip([value + side.at for side in sides], box.lower[i], box.upper[i])
    return ParameterProfile(
        name=name,
        unit=problem.unit(name),
        estimate=value,
        lower=float(ends[0]),
        upper=float(ends[1]),
        lower_end=sides[0].end.value,
        upper_end=sides[1].end.value,
        values=np.array([p.x[i] for p in points]),
        costs=np.array([p.cost for p in points]),
        others=np.array([p.x for p in points]),
    )


def _told(
    before: float, x: FloatArray, objective: float, problem: Problem, *, began_again: bool
) -> str:
    there = ", ".join(f"{n} = {v:.6g}" for n, v in problem.box.mapping(x).items())
    then = (
        "These are the profiles of the better one."
        if began_again
        else "These are still the profiles of the worse one; estimate again from there."
    )
    return (
        f"The estimate (sum of squares {before:.6g}) was not the best: on the way a better optimum "
        f"was met, {there} (sum of squares {objective:.6g}). {then}"
    )
