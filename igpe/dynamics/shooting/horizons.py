"""Horizons of incremental shooting: how far each reaches, and what leads from one to the next.

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

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from igpe.core.arguments import is_finite, shown
from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.dynamics.integrators.base import Simulation
from igpe.dynamics.shooting.residuals import Run
from igpe.numerics.covariance import RANK
from igpe.numerics.least_squares.base import Fit, Linearised, Search
from igpe.numerics.least_squares.bounded import bounded_solution
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
        require_increasing(intervals)
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
