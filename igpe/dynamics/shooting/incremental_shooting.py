"""Incremental single shooting: a growing horizon keeps the integration from breaking down.

Michalik, Hannemann, Marquardt, "Incremental Single Shooting", Comput. Chem. Eng. 33 (2009), Fig. 2:

    for each horizon (t <= t_1, t_2, ..., t_end):
        solve the least squares problem of its measurements inside the present bounds
        while an updated bound is active: relax it (eqs. 10, 11), solve again
        update the bounds by the confidence of the estimate (eq. 9)

Ours differs where measurements taught us: a trust region that bears failed integrations, bounds
widened by a bad fit, help between horizons, rough early searches, further starts:

Reach. The i-th horizon holds 2^(i-1) data points (Michalik et al. 2009, ISS, section 3.2): 1, 2, 4,
8, ... and at last all of them. Small beginnings matter: there the problem is nearly linear.

Bounds. After each horizon the bounds become the 99 % confidence limits of its estimate, inside the
user's own (section 3.1); where the next estimate meets one, it is moved out,

    UB_new = min(UB_old + BRF (UB_old - LB_old), UB)                                          (10)
    LB_new = max(LB_old - BRF (UB_old - LB_old), LB)                                          (11)

The paper's covariance (S' V_M^-1 S)^-1 (9) believes that the model fits. On an early horizon caught
in a wrong minimum it does not, and its tiny limits would lock the search in: variances are here
multiplied by chi squared per degree of freedom, as far as that exceeds one. An exact fit of rounded
or few measurements has no covariance at all. Limits are never narrower than rounding, bounds
without width go back to the user's at once, and so do those that were relaxed often enough.

Recovery. An early horizon with as many residuals as unknowns is fitted exactly, noise and all, and
its optimum may have a pole soon after: then no start reaches the next horizon. Two remedies: a weak
prior where residuals are few, and, where an estimate still cannot be integrated, a place between it
and an earlier one.

Sampling. A model that oscillates between two measurements looks at them like a slower one:
Lotka-Volterra with all rates 18.6 times as large goes through the same points at equally spaced
times, with the same sum of squares. So it is counted how often what is measured turns between
neighbouring measurements, on a dense grid.
"""

import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from igpe.core.arguments import Checked, Flag, is_finite, shown
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.box import Box
from igpe.core.deadline import interruptible
from igpe.core.errors import ProblemError
from igpe.core.estimates import Estimate, Horizon
from igpe.core.markup import counted
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator, Simulation
from igpe.dynamics.search.engine import Attempt, Restarts, concluded
from igpe.dynamics.shooting.base import (
    Profile,
    in_deviations,
    limited,
    refuse,
    remarks,
    require_plain,
    require_start,
    spread_of,
)
from igpe.dynamics.shooting.limits_of_model import without_bounds
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals, Run, untouched
from igpe.dynamics.shooting.reweighting import iteratively_reweighted
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.numerics.covariance import RANK
from igpe.numerics.least_squares.active import bounded_solution
from igpe.numerics.least_squares.base import Fit, Linearised, Search, stacked
from igpe.numerics.least_squares.gauss_newton import GaussNewton, LineSearch
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem


class Reach(NamedTuple):
    """One horizon: the last time of each experiment that counts, and the share of all time."""

    ends: tuple[float, ...]
    share: float


def doubling_counts(most: int) -> list[int]:
    """How many times each horizon sees.

    >>> doubling_counts(10)
    [1, 2, 4, 8, 10]
    """
    counts = [2**i for i in range(max(most - 1, 0).bit_length())]
    return [*counts, max(most, 1)]


def reaches(
    experiments: Sequence[Experiment], intervals: tuple[float, ...] | None
) -> tuple[Reach, ...]:
    """The horizons, increasing; the last holds all measurements.

    intervals  their increasing ends, for all experiments, less those before any measurement; None:
               each experiment is cut at its own 1st, 2nd, 4th, ... time of measurement after the
               start; what is measured at the start belongs to all
    """
    measured = []  # times at which something was; the table may have more
    for m in (e.measurements for e in experiments):
        measured.append([float(t) for t in m.times[np.unique(m.row)]])
    begins = [e.start_time for e in experiments]
    pairs = list(zip(measured, begins, strict=True))
    # At the start the model is still exact; it counts where there is nothing else.
    later = [[t for t in times if t > begin] or times[-1:] for times, begin in pairs]
    if intervals is None:
        counts = doubling_counts(max(map(len, later)))
        ends = [tuple(times[min(k, len(times)) - 1] for times in later) for k in counts]
    else:
        first = min(times[0] for times in later)
        ends = [
            tuple(max((t for t in times if t <= end), default=begin) for times, begin in pairs)
            for end in intervals
            if end >= first
        ]
    last = tuple(times[-1] for times in measured)
    span = sum(last) - sum(begins)
    distinct = dict.fromkeys([*ends, last])
    return tuple(Reach(e, (sum(e) - sum(begins)) / span if span > 0 else 1.0) for e in distinct)


def require_increasing(intervals: Sequence[float]) -> None:
    """Raise ProblemError unless intervals are one or more finite numbers, in order."""
    given = isinstance(intervals, tuple | list | np.ndarray) and len(intervals) > 0
    if not (given and is_finite(*intervals) and all(a < b for a, b in pairwise(intervals))):
        raise ProblemError(
            f"`intervals` is {shown(intervals)}; expected the end times of the horizons, finite "
            "and in increasing order: IncrementalShooting(intervals=(1.0, 5.0))."
        )


BACK = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)  # of the way from an earlier estimate to the present one
SHRINK, SHRINKS = 0.3, 8  # of a start that cannot be integrated even to the first measurement
DEVIATIONS = 3.0  # the prior's standard deviation, in sizes of the start


def places(x: FloatArray, earlier: Sequence[FloatArray]) -> Iterator[FloatArray]:
    """Where the next horizon may begin instead of at x (n,): nearest first.

    earlier  estimates before x, oldest first; none: x is the start
    """
    if not earlier:
        yield from (x * SHRINK**k for k in range(1, SHRINKS + 1))
    for before in reversed(earlier):
        yield from (before + share * (x - before) for share in BACK)


def prior(x: FloatArray, start: FloatArray, box: Box) -> Linearised:
    """Rows (x - start) / (3 size), that hold what few measurements do not determine.

    size is that of the start; of one at zero the range between the user's bounds (`box`), and
    without bounds there is no prior on it.
    """
    size = np.where(start != 0, np.abs(start), box.upper - box.lower)
    weight = 1 / (DEVIATIONS * np.where(size > 0, size, np.inf))
    return Linearised((x - start) * weight, np.diag(weight))


CONFIDENCE = 0.99  # of the limits that become bounds
FACTOR = 2.0  # BRF, by how many widths an active bound is moved
NARROWEST = 1e-10  # half width of updated bounds, relative to the estimate: above rounding
NEAR = 1e-9  # of a bound's distance from the other: an estimate that lies on it
MOST = 30  # relaxations of one horizon
SHARPEST = 1e-6  # standard deviations: residuals are never taken to be more exact


def limits_around(
    x: FloatArray, at: Linearised, user: Box, *, sigma_known: bool, scaled: bool = True
) -> Box:
    """Confidence limits of the estimate x (n,) inside the user's bounds.

    scaled  whether a bad fit widens them (else they are the paper's)
    """
    m, n = at.jacobian.shape
    half = np.full(n, np.inf)
    if m > n or not scaled:
        variance = at.cost / (m - n) if m > n else 1.0
        if sigma_known:
            variance = max(variance, 1.0) if scaled else 1.0
        quantile = float(ndtri(0.5 + CONFIDENCE / 2))
        half = quantile * np.sqrt(max(variance, SHARPEST**2)) * _deviations(at.jacobian)
    half = np.maximum(half, NARROWEST * np.abs(x))
    lower, upper = np.maximum(x - half, user.lower), np.minimum(x + half, user.upper)
    return replace(user, lower=lower, upper=upper)


def relaxed(x: FloatArray, box: Box, user: Box, factor: float = FACTOR) -> Box | None:
    """The box with the updated bounds widened that x lies on; None if it lies on none.

    x       an estimate, or where its next step would lead
    factor  by so many widths; infinite: to the user's
    """
    low, high = active(x, box, user)
    if not (low.any() or high.any()):
        return None
    width = box.upper - box.lower
    width = factor * np.where(width == 0, np.inf, width)
    lower = np.where(low, np.maximum(box.lower - width, user.lower), box.lower)
    upper = np.where(high, np.minimum(box.upper + width, user.upper), box.upper)
    return replace(box, lower=lower, upper=upper)


def in_the_way(
    fit: Fit, box: Box, user: Box, search: Search, *, give_up: bool = False
) -> Box | None:
    """The box with those updated bounds widened that keep a search from going on, or None.

    give_up  whether they go back to the user's instead
    """
    factor = np.inf if give_up else FACTOR
    points = (fit.x, _beyond(fit, user, box, search))
    wider = (relaxed(x, box, user, factor) for x in points)
    return next((b for b in wider if b is not None), None)


def active(x: FloatArray, box: Box, user: Box) -> tuple[BoolArray, BoolArray]:
    """(n,), (n,): which of the lower and upper bounds x lies on, the user's own left out."""
    near = NEAR * (box.upper - box.lower)
    low = (box.lower > user.lower) & (x - box.lower <= near)
    high = (box.upper < user.upper) & (box.upper - x <= near)
    return low, high


def held(x: FloatArray, box: Box, user: Box) -> list[str]:
    """Sentences on unknowns that end on a bound which is not the user's."""
    low, high = active(x, box, user)
    return [
        f"The estimate of {name} lies on {value:g}, a bound that igpe derived from earlier "
        "horizons; a better value may lie beyond this bound. Use igpe.SingleShooting from there."
        for name, value, on in zip(box.names, x, low | high, strict=True)
        if on
    ]


def _beyond(fit: Fit, user: Box, box: Box, search: Search) -> FloatArray:
    """(n,) where the next step from an estimate in `box` leads if the user's bounds alone hold it.

    The estimate itself if that step promises no more than what ends the search.
    """
    if fit.at is None:
        return fit.x
    width = box.upper - box.lower
    size = np.where(np.isfinite(width), width, np.abs(fit.x))
    size = np.where(size > 0, size, 1.0)
    low, high = (user.lower - fit.x) / size, (user.upper - fit.x) / size
    step = size * bounded_solution(fit.at.jacobian * size, -fit.at.residual, low, high)
    rest = fit.at.residual + fit.at.jacobian @ step
    promised = fit.at.cost - float(rest @ rest)
    enough = promised > search.tolerance * fit.at.cost + search.absolute
    return np.asarray(fit.x + step) if enough else fit.x


def _deviations(jacobian: FloatArray) -> FloatArray:
    """(n,) roots of the diagonal of (J'J)^-1; infinite for who takes part in a lost direction."""
    m, n = jacobian.shape
    norm = np.sqrt((jacobian**2).sum(axis=0))
    norm[norm == 0] = 1.0  # scaled columns: rank does not depend on units
    even = jacobian / norm
    _, singular, rows = np.linalg.svd(np.linalg.qr(even, mode="r") if m > n else even)
    known = np.zeros(n, dtype=bool)
    known[: len(singular)] = singular > RANK * max(singular[0], np.finfo(float).tiny)
    k = int(known.sum())
    deviations = np.sqrt(((rows[:k] / singular[:k, None]) ** 2).sum(axis=0)) / norm
    deviations[(rows[k:] ** 2).sum(axis=0) > RANK] = np.inf
    return np.asarray(deviations)


OSCILLATES = (
    "The model oscillates between the measurements. The search found no solution that oscillates "
    "more slowly and fits equally well, but one may exist. Measure more often."
)
DENSE, MOST_TIMES = 24, 4000  # times between two measurements; in all, about
TURNS = 2  # between two neighbouring measurements, in most gaps: the slowest double has so many
GOLDEN = 0.6180339887498949  # shares of a gap that fall in no rhythm
STILL = 1e-3  # of the range of a curve: what is no turn


class SamplingDensity:
    """How densely one experiment was measured, for the model it is fitted with."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def _dense(self) -> tuple[FloatArray, Simulation]:
        """Times between the measurements, at uneven distances, and the run at them."""
        times = self.run.measurements.times
        count = max(4, min(DENSE, MOST_TIMES // len(times)))
        parts = np.sort(np.arange(count) * GOLDEN % 1)  # 0 first
        grid = (times[:-1, None] + np.diff(times)[:, None] * parts).ravel()
        grid = np.append(grid, times[-1])
        return grid, self.run.integrator.simulation(self.run.ivp, grid, sensitivities=True)

    def too_sparse(self, unknowns: FloatArray) -> bool:
        """Whether at the problem's unknowns (n,) all that is measured oscillates in between.

        Every measured curve that moves then turns often between most measurements.
        """
        if len(self.run.measurements.times) == 1:
            return False
        grid, simulation = self._dense
        dense = simulation.run(unknowns[self.run.index])
        if not dense.status.usable:
            return False
        gap = np.searchsorted(self.run.measurements.times, grid[:-1], side="right") - 1
        moving = np.ptp(dense.measured, axis=0) > 0
        counts = [_turns(curve, gap) for curve in dense.measured.T[moving]]
        return bool(counts) and all(float(np.median(c)) >= TURNS for c in counts)


def _turns(curve: FloatArray, gap: IntArray) -> IntArray:
    """(n_gaps,) how often a curve (n,) turns in each; gap (n - 1,) is where each change lies."""
    change = np.diff(curve)
    moves = np.abs(change) > STILL * np.ptp(curve)
    up, where = change[moves] > 0, gap[moves]
    turned = (up[1:] != up[:-1]) & (where[1:] == where[:-1])
    return np.bincount(where[1:][turned], minlength=int(gap[-1]) + 1)


ROUGH_RTOL, ROUGH_ATOL, ROUGH_STEPS = 1e-6, 1e-8, 500
"""Of integrations on early horizons: what they find is a start for the next one, no more; and near
a pole every further step is wasted. CVODES needs 90 ms to use up 20,000 steps there, as long as for
fifty integrations that succeed."""
EARLY = (
    "The search was interrupted before the last horizon. An integration to the end would take too "
    "long, so the sum of squares of the estimate is unknown."
)


@dataclass(frozen=True)
class IncrementalShooting(Checked):
    """Single shooting on a growing horizon: a method that tolerates starts far from the optimum.

    integrator  method that computes the model's trajectories and sensitivities
    search      least-squares method for the last horizon; igpe divides the residuals by their
                standard deviations
    early       least-squares method for all horizons before the last
    intervals   times at which the horizons end; None: after 1, 2, 4, 8, ... measurements
    robust      whether to integrate early horizons with low accuracy first, to widen bounds after a
                bad fit, and to repair an estimate for which the model cannot be integrated over a
                longer horizon; False: as published by Michalik, Hannemann & Marquardt (2009)
    restarts    settings for additional starts, which igpe tries if a fit is bad
    """

    integrator: Integrator = Automatic()
    search: Search = GaussNewton(absolute=1e-6)
    early: Search = GaussNewton(tolerance=1e-3, absolute=1e-2, max_iterations=40)
    intervals: tuple[float, ...] | None = None
    robust: Flag = True
    restarts: Restarts = field(default_factory=Restarts)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.intervals is not None:
            require_increasing(self.intervals)
            object.__setattr__(self, "intervals", tuple(float(t) for t in self.intervals))

    @classmethod
    def as_published(cls, integrator: Integrator = Automatic()) -> "IncrementalShooting":
        """Return the method as published (Michalik, Hannemann & Marquardt 2009, Fig. 2).

        A failed integration ends the run.
        """
        search = LineSearch(absolute=1e-6)
        return cls(integrator, search, search, robust=False, restarts=Restarts(count=0))

    def estimate(
        self, problem: Problem, start: Mapping[str, float], profiles: Sequence[Profile] = ()
    ) -> Estimate:
        """See `igpe.dynamics.shooting.base.Estimator`. The argument `profiles` is ignored.

        The trail of the estimate contains the horizons, each an `igpe.core.estimates.Horizon`.
        """
        again = SingleShooting(self.integrator)
        estimate = iteratively_reweighted(
            problem,
            start,
            lambda p, s: self.prepare(p).estimate(s),
            again.estimate,
            self.integrator,
        )
        return without_bounds(problem, self, estimate)

    def prepare(self, problem: Problem, profiles: Sequence[Profile] = ()) -> "PreparedIncremental":
        """Translate and compile the model once, for many starts.

        The argument `profiles` is ignored.
        raises Unsupported for robust losses, constraints and time-varying unknowns
        """
        require_plain(problem, "IncrementalShooting", constraints_too=True)
        refuse(problem, "IncrementalShooting", "estimated sigma", "censored")
        refuse(problem, "IncrementalShooting.prepare", "weights follow fit")
        exact, rough = self.integrator, self.integrator
        if self.robust:
            rough = dataclasses.replace(
                exact,
                rtol=max(ROUGH_RTOL, exact.rtol),
                atol=max(ROUGH_ATOL, exact.atol),
                max_steps=min(ROUGH_STEPS, exact.max_steps),
            )
        return PreparedIncremental(self, problem, rough)


class _Stage(NamedTuple):
    """The problem of one horizon; last: whether it holds all measurements."""

    residuals: Residuals
    reach: Reach
    last: bool


class _Counted:
    """A horizon's residuals in standard deviations, as its searches see them.

    start   (n,) where the prior is centred; None: there is none
    calls   integrations so far
    """

    def __init__(self, residuals: Residuals, search: "PreparedIncremental") -> None:
        self.residuals, self.search, self.calls = residuals, search, 0
        self.start: FloatArray | None = None

    def __call__(self, x: FloatArray) -> Linearised | None:
        """Residuals and derivative at x (n,), or None if an integration broke down."""
        if self.search.work > self.search.most_work:
            raise ExhaustedError
        self.calls += 1
        before = self.residuals.work
        at = self.residuals(x)
        self.search.work += self.residuals.work - before
        if at is None:
            return None
        spread = self.search.spread
        at = Linearised(at.residual / spread, at.jacobian / spread)
        if self.start is None:
            return at
        return stacked([at, prior(x, self.start, self.search.box)])


class PreparedIncremental:
    """A problem compiled for incremental shooting.

    rough      the integrator of early horizons
    work       of all searches so far (`Residuals.work`)
    most_work  after which `ExhaustedError` is raised
    """

    work, most_work = 0.0, np.inf

    def __init__(self, method: IncrementalShooting, problem: Problem, rough: Integrator) -> None:
        self.method, self.problem, self.box = method, problem, problem.box
        self.horizons = reaches(problem.experiments, method.intervals)
        self.spread, self.sigma_known = spread_of(problem), problem.sigma_known
        self.residuals = Residuals(problem, method.integrator)
        self.stages = self._stages(self.residuals)
        self.rough_stages = self.stages
        if rough != method.integrator:
            roughly = Residuals(problem, rough)
            roughly.best = self.residuals.best
            self.rough_stages = [*self._stages(roughly)[:-1], self.stages[-1]]
        explained = method.restarts.explained(len(self.residuals))
        self.gate = explained if self.sigma_known else np.inf  # cost that errors explain

    def _stages(self, residuals: Residuals) -> list[_Stage]:
        final = self.horizons[-1]
        return [_Stage(residuals.until(r.ends), r, r is final) for r in self.horizons]

    @cached_property
    def samplings(self) -> tuple[SamplingDensity, ...]:
        """Of each experiment, to judge how densely it was measured."""
        return tuple(map(SamplingDensity, self.residuals.runs))

    def estimate(self, start: Mapping[str, float]) -> Estimate:
        """The search from `start`, as an Estimate of the free unknowns."""
        began, count = time.perf_counter(), len(self.horizons)
        name = f"incremental single shooting, {counted(count, 'horizon')}"
        if len(self.box) == 0:
            return untouched(self.residuals, name)
        require_start(start, self.box, "IncrementalShooting")
        first = self.box.clip(self.box.vector(start))
        attempts = self.method.restarts.run(self._attempt, first, self.box, self.gate)
        estimate, unit = concluded(attempts, self.box, name), self.spread**2
        return dataclasses.replace(
            estimate,
            objective=estimate.objective * unit,
            reached=tuple(cost * unit for cost in estimate.reached),
            seconds=time.perf_counter() - began,
            notes=(
                *estimate.notes,
                *remarks(attempts[0].fit, self.box, self.gate),
                *self.residuals.manner,
            ),
        )

    def _attempt(self, start: FloatArray) -> Attempt:
        """One run over all horizons, from `start` (n,) inside the bounds."""
        self.residuals.best.clear()
        try:
            with interruptible():
                attempt = self._run(start, self.rough_stages)
                broke = attempt.fit.status is Status.INTEGRATION_BROKE
                if broke and self.rough_stages is not self.stages:
                    attempt = self._run(start, self.stages)
                return attempt
        except KeyboardInterrupt:
            fit = self.residuals.best_fit()
            notes = (EARLY,) if fit.at is None else ()
            return Attempt(in_deviations(fit, self.spread), notes=notes)

    def _run(self, start: FloatArray, stages: Sequence[_Stage]) -> Attempt:
        x, box = start, self.box
        past: list[FloatArray] = []
        trail: list[Horizon] = []
        for stage in stages:
            fit, box, begin, horizon = self._solved(stage, x, box, past)
            trail.append(horizon)
            if not fit.status.usable or fit.at is None:
                break
            past.append(begin)
            x = fit.x
            if not stage.last:
                rows, known = _without_prior(stage, fit.at), self.sigma_known
                box = limits_around(x, rows, self.box, sigma_known=known, scaled=self.method.robust)
        if not stage.last:  # no cost, and the notes say why it ended
            fit = fit._replace(at=None)
        notes = [*stage.residuals.reasons(fit), *held(fit.x, box, self.box)]
        sparse = fit.at is not None and all(s.too_sparse(fit.x) for s in self.samplings)
        notes += [OSCILLATES] if sparse else []
        return Attempt(fit, tuple(trail), tuple(notes), limited(fit), sparse)

    def _solved(
        self, stage: _Stage, x: FloatArray, box: Box, past: Sequence[FloatArray]
    ) -> tuple[Fit, Box, FloatArray, Horizon]:
        """Solve the horizon's problem, from x or the nearest place that can be integrated.

        past     where earlier horizons began
        returns  the fit, its bounds, where it began, and all of it as an estimate
        """
        robust, search = self.method.robust, self.method.early
        search = self.method.search if stage.last else search
        residual = _Counted(stage.residuals, self)
        few = robust and not stage.last and len(stage.residuals) <= len(x)
        others = places(x, past) if robust else iter(())
        begin: FloatArray | None = x
        while begin is not None:
            stage.residuals.broken, first = None, begin
            residual.start = None if not few else past[0] if past else begin
            fit = stage.residuals.ended(search.fit(residual, begin, box))
            if fit.status is not Status.INTEGRATION_BROKE or fit.at is not None:
                break
            begin = next(others, None)
            if begin is not None:
                begin, box = self.box.clip(begin), self.box
        steps, count = fit.steps, 0
        while count < MOST + len(box) and fit.status.usable:
            wider = in_the_way(fit, box, self.box, search, give_up=count >= MOST)
            if wider is None:
                break
            box, count = wider, count + 1
            fit = search.fit(residual, fit.x, box)
            steps += fit.steps
        unit = self.spread**2
        horizon = Horizon(
            self.box.mapping(fit.x),
            np.inf if fit.at is None else _without_prior(stage, fit.at).cost * unit,
            fit.status,
            "incremental single shooting",
            until=dict(zip(stage.residuals.experiments, stage.reach.ends, strict=True)),
            share=stage.reach.share,
            lower=self.box.mapping(box.lower),
            upper=self.box.mapping(box.upper),
            iterations=steps,
            integrations=residual.calls,
            relaxations=count,
        )
        return fit, box, first, horizon


def _without_prior(stage: _Stage, at: Linearised) -> Linearised:
    """The rows of the problem itself."""
    m = len(stage.residuals)
    return Linearised(at.residual[:m], at.jacobian[:m])
