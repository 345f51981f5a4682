"""How far each problem of incremental shooting reaches.

The i-th horizon holds 2^(i-1) data points (Michalik et al. 2009, ISS, section 3.2): 1, 2, 4, 8, ...
and at last all of them. Small beginnings matter: there the problem is nearly linear.

What helps an estimate over to the next horizon.

An early horizon with as many residuals as unknowns is fitted exactly, noise and all, and its
optimum may have a pole soon after: then no start reaches the next horizon. Two remedies together:
a weak prior where residuals are few, and, where an estimate still cannot be integrated, a place
between it and an earlier one.

Bounds that follow the estimates from horizon to horizon.

Michalik et al. (2009), ISS, section 3.1: after each horizon the bounds become the 99 % confidence
limits of its estimate, inside the user's own; where the next estimate meets one, it is moved out,

    UB_new = min(UB_old + BRF (UB_old - LB_old), UB)                                          (10)
    LB_new = max(LB_old - BRF (UB_old - LB_old), LB)                                          (11)

The paper's covariance (S' V_M^-1 S)^-1 (9) believes that the model fits. On an early horizon caught
in a wrong minimum it does not, and its tiny limits would lock the search in: variances are here
multiplied by chi squared per degree of freedom, as far as that exceeds one.

An exact fit of rounded or few measurements has no covariance at all. Limits are never narrower than
rounding, bounds without width go back to the user's at once, and so do those that were relaxed
often enough.

Whether measurements are dense enough for the model they are fitted with.

A model that oscillates between two measurements looks at them like a slower one: Lotka-Volterra
with all rates 18.6 times as large goes through the same points at equally spaced times, with the
same sum of squares. Its states then go a way between measurements that is many times as long as
what they change from one to the next,

    sum of (|dx/dt(t_k-1)| + |dx/dt(t_k)|) / 2 (t_k - t_k-1)  >>  sum of |x(t_k) - x(t_k-1)| .

That costs next to nothing, but a decay sampled for minutes and once the next morning looks the same
to it. So it only raises the question; the answer is how often what is measured turns between
neighbouring measurements, on a dense grid.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.special import ndtri

from igpe.core.arguments import is_finite, require, shown
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.dynamics.integrators.base import Simulation
from igpe.dynamics.shooting.residuals import Run
from igpe.numerics.least_squares.base import Fit, Linearised, Search
from igpe.numerics.least_squares.bounded import bounded_solution
from igpe.numerics.statistics.covariance import RANK
from igpe.problem.experiment import Experiment


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

    intervals  their ends, for all experiments; those before any measurement are left out. None:
               each experiment is cut at its own 1st, 2nd, 4th, ... time of measurement after the
               start; what is measured at the start belongs to all
    raises     ProblemError if intervals are no increasing times
    """
    if intervals is None:
        ends = _doubling(experiments)
    else:
        require_increasing(intervals)
        first = min(_after_start(e)[0] for e in experiments)
        useful = [end for end in intervals if end >= first]
        ends = [tuple(_last_until(e, end) for e in experiments) for end in useful]
    whole = tuple(_measured(e)[-1] for e in experiments)
    distinct = list(dict.fromkeys([*ends, whole]))
    return tuple(Reach(e, _share(experiments, e)) for e in distinct)


def require_increasing(intervals: Sequence[float]) -> None:
    """Raise ProblemError unless intervals are one or more finite numbers, in order."""
    given = isinstance(intervals, tuple | list | np.ndarray) and len(intervals) > 0
    if not (given and is_finite(*intervals) and all(a < b for a, b in pairwise(intervals))):
        raise ProblemError(
            f"The intervals {shown(intervals)} do not increase; give the finite times at which "
            "horizons end, in order: IncrementalShooting(intervals=(1.0, 5.0))."
        )


def _doubling(experiments: Sequence[Experiment]) -> list[tuple[float, ...]]:
    later = [_after_start(e) for e in experiments]
    counts = doubling_counts(max(map(len, later)))
    return [tuple(float(times[min(k, len(times)) - 1]) for times in later) for k in counts]


def _measured(experiment: Experiment) -> list[float]:
    """Times at which something was measured; the table may have more."""
    m = experiment.measurements
    return [float(t) for t in m.times[np.unique(m.row)]]


def _after_start(experiment: Experiment) -> list[float]:
    """Those after the start, where the model is still exact; the last if there are none."""
    times = _measured(experiment)
    return [t for t in times if t > experiment.start_time] or times[-1:]


def _last_until(experiment: Experiment, end: float) -> float:
    """The last time of measurement not after `end`; the start if there is none."""
    times = [t for t in _measured(experiment) if t <= end]
    return times[-1] if times else experiment.start_time


def _share(experiments: Sequence[Experiment], ends: tuple[float, ...]) -> float:
    starts = [e.start_time for e in experiments]
    now = sum(ends) - sum(starts)
    whole = sum(_measured(e)[-1] for e in experiments) - sum(starts)
    return float(now / whole) if whole > 0 else 1.0


BACK = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)  # of the way from an earlier estimate to the present one
SHRINK, SHRINKS = 0.3, 8  # of a start that cannot be integrated even to the first measurement


@dataclass(frozen=True)
class Recovery:
    """How estimates are kept where the model can be integrated.

    deviations  kappa: the prior's standard deviation, in sizes of the start; of one at zero in
                ranges between its bounds, and without bounds there is no prior on it
    """

    deviations: float = 3.0

    def __post_init__(self) -> None:
        ok = is_finite(self.deviations) and self.deviations > 0
        require(ok, "Recovery", "deviations", self.deviations, "a positive number")

    def places(self, x: FloatArray, earlier: Sequence[FloatArray]) -> Iterator[FloatArray]:
        """Where the next horizon may begin instead of at x (n,): nearest first.

        earlier  estimates before x, oldest first; none: x is the start
        """
        if not earlier:
            yield from (x * SHRINK**k for k in range(1, SHRINKS + 1))
        for g in reversed(earlier):
            yield from (g + theta * (x - g) for theta in BACK)

    def prior(self, x: FloatArray, start: FloatArray, box: Box) -> Linearised:
        """Rows (x - start) / (kappa size), that hold what few measurements do not determine.

        box  the user's bounds
        """
        size = np.where(start != 0, np.abs(start), box.upper - box.lower)
        weight = 1 / (self.deviations * np.where(size > 0, size, np.inf))
        return Linearised((x - start) * weight, np.diag(weight))


NARROWEST = 1e-10  # half width of updated bounds, relative to the estimate: above rounding
NEAR = 1e-9  # of a bound's distance from the other: an estimate that lies on it
MOST = 30  # relaxations of one horizon
SHARPEST = 1e-6  # standard deviations: residuals are never taken to be more exact


@dataclass(frozen=True)
class UpdatedBounds:
    """How bounds follow the estimates.

    confidence  of the limits that become bounds; 0: the user's bounds stay as they are
    factor      BRF, by how many widths an active bound is moved
    scaled      whether a bad fit widens the limits (else they are the paper's)
    """

    confidence: float = 0.99
    factor: float = 2.0
    scaled: bool = True

    def __post_init__(self) -> None:
        ok = is_finite(self.confidence) and 0 <= self.confidence < 1
        wanted = "a number from 0 (the user's bounds stay) to less than 1"
        require(ok, "UpdatedBounds", "confidence", self.confidence, wanted)
        ok = is_finite(self.factor) and self.factor > 0
        require(ok, "UpdatedBounds", "factor", self.factor, "a positive number")

    def around(self, x: FloatArray, at: Linearised, user: Box, *, sigma_known: bool) -> Box:
        """Confidence limits of the estimate x (n,) inside the user's bounds."""
        half = self._half_width(at, sigma_known=sigma_known)
        half = np.maximum(half, NARROWEST * np.abs(x))
        lower, upper = np.maximum(x - half, user.lower), np.minimum(x + half, user.upper)
        return replace(user, lower=lower, upper=upper)

    def relaxed(self, x: FloatArray, box: Box, user: Box) -> Box | None:
        """The box with the updated bounds widened that x lies on; None if it lies on none.

        x  an estimate, or where its next step would lead
        """
        low, high = active(x, box, user)
        if not (low.any() or high.any()):
            return None
        width = self.factor * (box.upper - box.lower)
        width[width == 0] = np.inf
        lower = np.where(low, np.maximum(box.lower - width, user.lower), box.lower)
        upper = np.where(high, np.minimum(box.upper + width, user.upper), box.upper)
        return replace(box, lower=lower, upper=upper)

    def in_the_way(
        self, fit: Fit, box: Box, user: Box, search: Search, *, give_up: bool = False
    ) -> Box | None:
        """The box with those updated bounds widened that keep a search from going on, or None.

        give_up  whether they go back to the user's instead
        """
        for x in (fit.x, beyond(fit, box, user, search)):
            wider = opened(x, box, user) if give_up else self.relaxed(x, box, user)
            if wider is not None:
                return wider
        return None

    def _half_width(self, at: Linearised, *, sigma_known: bool) -> FloatArray:
        """(n,) quantile times standard deviation; infinite where nothing is known."""
        m, n = at.jacobian.shape
        if self.confidence == 0 or (self.scaled and m <= n):
            return np.full(n, np.inf)
        variance = at.cost / (m - n) if m > n else 1.0
        if sigma_known:
            variance = max(variance, 1.0) if self.scaled else 1.0
        variance = max(variance, SHARPEST**2)
        quantile = float(ndtri(0.5 + self.confidence / 2))
        return np.asarray(quantile * np.sqrt(variance) * _deviations(at.jacobian))


def active(x: FloatArray, box: Box, user: Box) -> tuple[BoolArray, BoolArray]:
    """(n,), (n,): which of the lower and upper bounds x lies on, the user's own left out."""
    near = NEAR * (box.upper - box.lower)
    low = (box.lower > user.lower) & (x - box.lower <= near)
    high = (box.upper < user.upper) & (box.upper - x <= near)
    return low, high


def opened(x: FloatArray, box: Box, user: Box) -> Box | None:
    """The box with the user's own bounds where x lies on updated ones; None if on none."""
    low, high = active(x, box, user)
    if not (low.any() or high.any()):
        return None
    lower, upper = np.where(low, user.lower, box.lower), np.where(high, user.upper, box.upper)
    return replace(box, lower=lower, upper=upper)


def held(x: FloatArray, box: Box, user: Box) -> list[str]:
    """Sentences on unknowns that end on a bound which is not the user's."""
    low, high = active(x, box, user)
    return [
        f"{name} ends on {value:g}, a bound that followed from earlier horizons; a better value "
        "may lie beyond. Wider ones: bounds=UpdatedBounds(confidence=0)."
        for name, value, on in zip(box.names, x, low | high, strict=True)
        if on
    ]


def beyond(fit: Fit, box: Box, user: Box, search: Search) -> FloatArray:
    """(n,) where the next step from an estimate in `box` leads if the user's bounds alone hold it.

    The estimate itself if that step promises no more than what ends the search.
    """
    if fit.at is None:
        return fit.x
    size = np.where(np.isfinite(box.upper - box.lower), box.upper - box.lower, np.abs(fit.x))
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
    found = np.sqrt(((rows[:k] / singular[:k, None]) ** 2).sum(axis=0)) / norm
    found[(rows[k:] ** 2).sum(axis=0) > RANK] = np.inf
    return np.asarray(found)


TOLD = (
    "The model oscillates between the measurements; a slower one that fits as well may exist, but "
    "was not found. Measure more often."
)
LONGER = 3.0  # with two measurements in each turn, the slowest double is three times as fast
DENSE, MOST_TIMES = 24, 4000  # times between two measurements; in all, about
TURNS = 2  # between two neighbouring measurements, in most gaps: the slowest double has so many
GOLDEN = 0.6180339887498949  # shares of a gap that fall in no rhythm
STILL = 1e-3  # of the range of a curve: what is no turn


class SlopeSampling:
    """The slopes of one experiment's model where it was measured."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def _slopes(self) -> Any:
        ivp = self.run.ivp
        return ca.Function("slopes", [ivp.t, ivp.x, ivp.y, ivp.u, ivp.q], [ca.densify(ivp.f)])

    def too_sparse(self, unknowns: FloatArray) -> bool:
        """Whether at the problem's unknowns (n,) all that is measured oscillates in between."""
        q = unknowns[self.run.index]
        return self._suspect(q) and self._turning(q)

    def _suspect(self, q: FloatArray) -> bool:
        """Whether every state's slopes are too steep for what it changes."""
        ivp, found = self.run.ivp, self.run.simulation.run(q)
        if not found.status.usable or len(found.times) == 1:
            return False
        segments = [ivp.input_segment(t) for t in found.times]
        u = np.array([a + b * t for t, (a, b) in zip(found.times, segments, strict=True)])
        x, y = found.states, found.implicit
        slopes = self._slopes(found.times[None], x.T, y.T, u.T, np.tile(q[:, None], len(x)))
        speed, gaps = np.abs(np.asarray(slopes)).T, np.diff(found.times)
        way = (gaps[:, None] * (speed[1:] + speed[:-1]) / 2).sum(axis=0)
        change = np.abs(np.diff(x, axis=0)).sum(axis=0)
        moving = change > 0
        return bool(moving.any() and (way[moving] > LONGER * change[moving]).all())

    @cached_property
    def _dense(self) -> tuple[FloatArray, Simulation]:
        """Times between the measurements, at uneven distances, and the run at them."""
        times = self.run.measurements.times
        count = max(4, min(DENSE, MOST_TIMES // len(times)))
        parts = np.sort(np.arange(count) * GOLDEN % 1)  # 0 first
        grid = (times[:-1, None] + np.diff(times)[:, None] * parts).ravel()
        grid = np.append(grid, times[-1])
        return grid, self.run.integrator.simulation(self.run.ivp, grid, sensitivities=True)

    def _turning(self, q: FloatArray) -> bool:
        """Whether every measured curve that moves turns often between most measurements."""
        grid, simulation = self._dense
        found = simulation.run(q)
        if not found.status.usable:
            return False
        gap = np.searchsorted(self.run.measurements.times, grid[:-1], side="right") - 1
        moving = np.ptp(found.measured, axis=0) > 0
        counts = [_turns(curve, gap) for curve in found.measured.T[moving]]
        return bool(counts) and all(float(np.median(c)) >= TURNS for c in counts)


def _turns(curve: FloatArray, gap: IntArray) -> IntArray:
    """(n_gaps,) how often a curve (n,) turns in each; gap (n - 1,) is where each change lies."""
    change = np.diff(curve)
    moves = np.abs(change) > STILL * np.ptp(curve)
    up, where = change[moves] > 0, gap[moves]
    turned = (up[1:] != up[:-1]) & (where[1:] == where[:-1])
    return np.bincount(where[1:][turned], minlength=int(gap[-1]) + 1)


def too_sparse(samplings: Sequence[SlopeSampling], unknowns: FloatArray) -> bool:
    """Whether no experiment is measured densely enough to tell the model from a slower one."""
    return all(s.too_sparse(unknowns) for s in samplings)
