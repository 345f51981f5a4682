"""Other sets of values that explain the data as well as the estimate does.

Exchangeable unknowns have several optima of one height: the two rate constants of a one-compartment
model with absorption, or the rates of a chain of which the last member alone is measured. They are
sought from where symmetry puts them, and by chance:

- two unknowns of an optimum change places, or one changes its sign; they are held while the others
  are fitted again, and then all are fitted;
- along the valleys of unknowns that the data hardly determine, to their bounds: ridges that data
  with noise do not show may part the estimate from a lower place;
- from the best of points that are spread over the bounds;
- from where the objective has further minima along lines through the best optimum, one for each
  unknown: there lie aliases of a frequency, which other starts meet only if all else is right.

What is found is exchanged again, so that three unknowns that may change places give six optima.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.base import ROUGHLY, is_large
from igpe.dynamics.shooting.residuals import ExhaustedError, Residuals
from igpe.numerics.covariance import root
from igpe.numerics.least_squares.active import bounded_solution, on_bounds
from igpe.numerics.least_squares.base import Fit
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.optima import (
    LIKELIHOOD,
    SAME,
    SOUGHT,
    Landscape,
    differences,
    match,
    profiled,
    spread,
)
from igpe.problem.problem import Problem

TRIALS, STARTS = 64, 8  # points that are simulated, and how many of them are searched from
LINE = 64  # points of a line through an optimum, from bound to bound
MOST_LINED = 4  # optima, each better than the one before, through which lines are laid
EXCHANGES = 12  # the best of all after the others were fitted again
LOOSE, WAYPOINTS = 8, 6  # the least determined unknowns, and points on the way to a bound
HELD = GaussNewton(tolerance=1e-2, max_iterations=8)  # while exchanged unknowns are held
QUICK = GaussNewton(tolerance=1e-4, max_iterations=40)  # to judge where a search leads
CLOSE = GaussNewton(tolerance=1e-9, max_iterations=300)  # along a curved valley
ASIDE = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6)  # of the way to the other bound, to leave a saddle
HOPELESS = 2.0  # times the level above it: ends of quick searches beyond are not followed
MOST = 60  # optima
NEW, KNOWN = -1, -2
QUICKLY = Automatic(1e-8, 1e-10)
GLANCING = Automatic(1e-4, 1e-6, slack=100.0)
"""Along lines through optima of many states, which only give starts: 0.4 of the time of 1e-6."""
FEW_STEPS = 500  # a start that takes more between two outputs leads nowhere, unless the best does
EVALUATIONS = 5000  # of the residuals; a search for 4 unknowns takes some 2000
WORK = 1_200_000_000  # of all these (`Residuals.work`); 25 to 60 s of a processor
COSTLY = 1_000_000  # work of an evaluation, from which they are rough
ROUNDING = 1e-14  # of the data's own sum of squares: below it objectives are rounding


INTERRUPTED = f"{SOUGHT} was interrupted."
EXHAUSTED = (
    f"{SOUGHT} stopped at its limit of {EVALUATIONS} evaluations, or at its limit on integration "
    "steps. More sets may exist."
)
NOT_SEARCHED = "igpe did not search for other, equally good sets of values, because {}"
TOO_SLOW = "the limit on integration steps was reached before the first new start."


class Sought(NamedTuple):
    """What is known before.

    best    (n,) the estimate
    starts  further points (n,) to search from, such as optima that other searches met
    moved   (optimum (n,)) -> points (n,) with some unknowns moved, and the places of these, which
            are held while the others are fitted first
    rise    of the objective above the best one that is within the statistical threshold
    seed    of the points that are spread over the bounds
    """

    best: FloatArray
    starts: Sequence[FloatArray]
    moved: Callable[[FloatArray], Sequence[tuple[FloatArray, list[int]]]]
    rise: float
    seed: int


class OtherOptima(NamedTuple):
    """What was met.

    values       (n,) of each distinct optimum within the threshold, without the estimate's own
    is_passed    whether one of them is the optimum that the estimate had not quite reached
    why          why the search is not complete; empty if it is
    """

    values: list[FloatArray]
    is_passed: bool
    why: str


def other_optima(problem: Problem, sought: Sought) -> OtherOptima:
    """Distinct optima within the threshold, best first."""
    problem = problem.compressed()
    search = _prepared(problem, sought, WORK)
    residuals = search.residuals
    if is_large(problem):
        glancing = Residuals(problem, replace(GLANCING, max_steps=FEW_STEPS))
        glancing.most, glancing.most_work = EVALUATIONS, WORK
        search.lines = search.landscape._replace(residual=glancing)
    why = ""
    try:
        if not search.run():
            reason = "an integration at the estimate failed."
            reason = residuals.broken.sentence if residuals.broken else reason
            why = NOT_SEARCHED.format(reason)
    except KeyboardInterrupt:
        why = INTERRUPTED
    except ExhaustedError:
        why = EXHAUSTED if search.searched else NOT_SEARCHED.format(TOO_SLOW)
    values = [fit.x for fit in sorted(search.others, key=lambda fit: fit.cost)]
    return OtherOptima(values, search.improved, why)


def lower_optimum(problem: Problem, best: FloatArray, rise: float) -> FloatArray | None:
    """A lower optimum (n,) than the one at best (n,), along valleys to bounds; None if none is met.

    rise  of the objective up to which a valley is followed
    """
    sought = Sought(best, (), lambda x: (), rise, 0)
    search = _prepared(problem.compressed(), sought, WORK / 2)
    with suppress(ExhaustedError):
        lower = search.lower_optimum()
        return None if lower is None else lower.x
    return None


def _prepared(problem: Problem, sought: Sought, work: float) -> "_Search":
    """The search, whose residuals have limits."""
    residuals = _integrated(problem, sought.best)
    residuals.most, residuals.most_work = EVALUATIONS, work
    landscape = Landscape(residuals, problem.box, rounding(problem), most_apart(problem))
    return _Search(residuals, landscape, sought, problem.size if problem.sigma_estimated else 0)


def _integrated(problem: Problem, best: FloatArray) -> Residuals:
    """Residuals with few steps, or as many as the integrations at the estimate (n,) need.

    They are rough where there are many states, or where one takes long.
    """
    for quickly in (ROUGHLY,) if is_large(problem) else (QUICKLY, ROUGHLY):
        residuals = Residuals(problem, replace(quickly, max_steps=FEW_STEPS))
        if not residuals.limit_steps(best):
            residuals = Residuals(problem, quickly)
            residuals.limit_steps(best)
        if residuals.work <= COSTLY:
            break
    return residuals


def rounding(problem: Problem) -> float:
    """Differences of the objective below this mean nothing."""
    data = [m.value / m.sigma for m in (e.measurements for e in problem.experiments)]
    spectra = [e.spectra for e in problem.experiments if e.spectra is not None]
    data += [(s.values / s.noise).ravel() for s in spectra]
    return ROUNDING * sum(float(v @ v) for v in data)


def most_apart(problem: Problem) -> float:
    """Differences of the objective above this are those of two optima."""
    return LIKELIHOOD if problem.sigma_estimated else np.inf


class _Search:
    """The search.

    lines     the objective along lines, which may be rougher
    logarithms  how many squares the objective is the logarithm of, as a likelihood; else 0
    found     optima within the threshold, the one next to the estimate first
    improved  whether that one is better than the estimate
    searched  how many other starts were searched from
    """

    def __init__(
        self, residuals: Residuals, landscape: Landscape, sought: Sought, logarithms: int = 0
    ) -> None:
        self.residuals, self.landscape, self.sought = residuals, landscape, sought
        self.logarithms = logarithms
        self.lines = landscape
        self.found: list[Fit] = []
        self.improved = False
        self.searched = 0
        self.level = np.inf

    @property
    def others(self) -> list[Fit]:
        """Those that are not the estimate."""
        return self.found if self.improved else self.found[1:]

    def run(self) -> bool:
        """Search from all starts, then from the exchanges of every optimum.

        returns  False where the model cannot be integrated at the estimate
        """
        here = self.landscape.residual(self.sought.best)
        own = self._minimum(self.sought.best)
        if here is None or own.at is None:
            return False
        before = own._replace(at=here)
        self.improved = own.cost < here.cost and not self.landscape.is_level(own, before)
        self.found = [own]
        self._lower_level(own)
        lower = self._along_valleys(own)
        if lower is not None:
            own, self.improved, self.found = lower, True, [lower]
            self._lower_level(lower)
        moved = self._refitted(self.sought.moved(own.x))
        for start in (*self.sought.starts, *moved, *self._scattered()):
            self._search(start)
        self._search_along_lines()
        for k in range(MOST):
            if k >= len(self.found):
                break
            for start in self._refitted(_exchanges(self.found[k].x, self.landscape.box)):
                self._search(start)
        return True

    def lower_optimum(self) -> Fit | None:
        """A lower optimum along the valleys of the one next to the estimate; or None."""
        own = self._minimum(self.sought.best)
        if own.at is None:
            return None
        self._lower_level(own)
        return self._along_valleys(own)

    def _along_valleys(self, own: Fit) -> Fit | None:
        """A lower optimum on the way from one to bounds that the data do not exclude; or None.

        The other unknowns are fitted again at each waypoint, as in a profile.
        """
        for i, values in _towards_bounds(own, self.landscape.box, self.sought.rise):
            x = own.x
            for value in values:
                there = np.where(np.arange(len(x)) == i, value, x)
                fit = profiled(self.landscape, there, [i], search=HELD)
                if not fit.cost <= self.level:
                    break
                x = fit.x
                if fit.cost < own.cost and not self.landscape.is_level(fit, own):
                    self.residuals.most_work += WORK  # the estimate comes before other sets
                    return self._minimum(x)
        return None

    def _search(self, start: FloatArray) -> None:
        self.searched += 1
        fit = self._fitted(start, QUICK)
        if fit.cost > self.level + self._far or self._known(fit) == KNOWN:
            return
        fit = self._minimum(fit.x)
        known = self._known(fit)
        if fit.cost > self.level or known == KNOWN or fit.status is Status.ITERATION_LIMIT:
            return
        if known == NEW:
            self.found.append(fit)
        else:  # what was known was no optimum: a saddle, or the end of a search too soon
            self.found[known] = fit
            self.improved = self.improved or known == 0
        self._lower_level(fit)

    @property
    def _far(self) -> float:
        """How far above the level ends are hopeless."""
        logarithm = self.logarithms * np.log1p(HOPELESS)
        return float(logarithm if self.logarithms else HOPELESS * abs(self.level))

    def _search_along_lines(self) -> None:
        """Search from the wells of the best optimum, and of what is better, if that is met."""
        best = np.inf
        for _ in range(MOST_LINED if self.landscape.box.bounded else 0):
            least = min(self.found, key=lambda one: one.cost)
            if not least.cost < best - self.landscape.rounding:
                return
            best = least.cost
            for start in wells(self.lines, least.x)[:STARTS]:
                self._search(start)

    def _fitted(self, start: FloatArray, search: GaussNewton) -> Fit:
        return search.fit(self.landscape.residual, start, self.landscape.box)

    def _minimum(self, start: FloatArray) -> Fit:
        """The optimum next to a start, and no saddle, as a product of two unknowns has at 0."""
        fit = self._fitted(start, CLOSE)
        for x in _aside(fit, self.landscape.box):
            cost = self.residuals.cost(x)
            if cost is not None and cost < fit.cost - self.landscape.rounding:
                lower = self._fitted(x, CLOSE)
                return lower if lower.cost < fit.cost else fit
        return fit

    def _lower_level(self, fit: Fit) -> None:
        """The level of a better optimum; those above it are no longer within the threshold."""
        self.level = min(self.level, fit.cost + self.sought.rise + self.landscape.rounding)
        self.found = [*self.found[:1], *(one for one in self.found[1:] if one.cost <= self.level)]

    def _known(self, fit: Fit) -> int:
        """KNOWN, or the place of what it is a better end of, or NEW."""
        if fit.at is None:
            return KNOWN
        place = match(self.landscape, self.found, fit)
        if place is None:
            return NEW
        one = self.found[place]
        is_level = self.landscape.is_level(one, fit)
        return KNOWN if is_level or one.cost <= fit.cost else place

    def _scattered(self) -> list[FloatArray]:
        """The best of points spread over the bounds, none near a better one."""
        box = self.landscape.box
        points = box.sobol(TRIALS, self.sought.seed) if box.bounded else ()
        costs = [self.residuals.cost(p) for p in points]
        able = sorted((c, k) for k, c in enumerate(costs) if c is not None and np.isfinite(c))
        ordered = [points[k] for _, k in able]
        return [ordered[i] for i in spread(ordered, STARTS)]

    def _refitted(self, moved: Iterable[tuple[FloatArray, list[int]]]) -> list[FloatArray]:
        """Points with moved unknowns held and the others fitted again, the best first."""
        ends = []
        for there, held in moved:
            fit = profiled(self.landscape, there, held, search=HELD)
            if fit.at is not None:  # without it, as derivatives of many ends take much memory
                ends.append((fit.cost, fit.x))
        return [x for _, x in sorted(ends, key=lambda end: end[0])[:EXCHANGES]]


def _aside(fit: Fit, box: Box) -> Iterator[FloatArray]:
    """Points next to a fit, along the unknowns on which no residual depends there to first order.

    Some must be at a bound: a Gauss-Newton step does not leave it, however the objective falls.
    """
    if fit.at is None:
        return
    flat = ~fit.at.jacobian.any(axis=0)
    if not (flat & ((fit.x == box.lower) | (fit.x == box.upper))).any():
        return
    far = np.where(box.upper - fit.x > fit.x - box.lower, box.upper, box.lower)
    far = np.where(np.isfinite(far), far, fit.x + 1.0)
    for share in ASIDE:
        yield np.where(flat, fit.x + share * (far - fit.x), fit.x)


def _towards_bounds(fit: Fit, box: Box, rise: float) -> Iterator[tuple[int, FloatArray]]:
    """The places of the least determined unknowns, and values of each on the way to a bound.

    rise  of the objective: only bounds inside the linearised interval at this level are approached
    """
    assert fit.at is not None
    x, held = fit.x, on_bounds(fit.x, fit.at, box)
    error = root(fit.at.jacobian, held).error(np.eye(len(x)))
    lost = np.isinf(error)  # also at a perfect fit, where `rise` is 0
    error = np.where(lost, np.inf, np.sqrt(rise) * np.where(lost, 0.0, error))
    error = np.where(held, 0.0, error)
    for i in np.argsort(-error / np.abs(x).clip(1e-300))[:LOOSE]:
        for bound in (box.upper[i], box.lower[i]):
            is_ratio = bound * x[i] > 0
            away = abs(x[i] * np.log(bound / x[i])) if is_ratio else abs(bound - x[i])
            if 0 < away <= error[i] and np.isfinite(bound):
                space = np.geomspace if is_ratio else np.linspace
                yield int(i), space(x[i], bound, WAYPOINTS + 1)[1:]


def wells(landscape: Landscape, x: FloatArray) -> list[FloatArray]:
    """Points (n,) of further minima along lines through x, one for each unknown, best first.

    At each point of a line the other unknowns take one Gauss-Newton step, and what it promises
    counts: where the wrong frequency has the wrong amplitude, the right one would look no better.
    A minimum on a bound is none: there the objective may fall without a ridge before.
    """
    box, found = landscape.box, []
    for i, (low, high) in enumerate(zip(box.lower, box.upper, strict=True)):
        values = np.clip((np.geomspace if low > 0 else np.linspace)(low, high, LINE), low, high)
        line = [_relaxed(landscape, np.where(np.arange(len(x)) == i, v, x), i) for v in values]
        costs = np.array([cost for cost, _ in line])
        inner = np.flatnonzero((costs[1:-1] < costs[:-2]) & (costs[1:-1] <= costs[2:])) + 1
        own = (values[inner - 1] <= x[i]) & (x[i] <= values[inner + 1])
        found += [line[k] for k in inner[~own]]
    return [point for _, point in sorted(found, key=lambda pair: pair[0])]


def _relaxed(landscape: Landscape, x: FloatArray, held: int) -> tuple[float, FloatArray]:
    """Objective that a step of all unknowns but one promises, none longer than itself; its end."""
    at = landscape.residual(x)
    if at is None or not np.isfinite(at.cost):
        return np.inf, x
    box, reach = landscape.box, np.where(np.arange(len(x)) == held, 0.0, np.abs(x))
    low, high = np.maximum(box.lower - x, -reach), np.minimum(box.upper - x, reach)
    step = bounded_solution(at.jacobian, -at.residual, low, high)
    left = at.residual + at.jacobian @ step
    return float(left @ left) + at.offset, box.clip(x + step)


def _exchanges(x: FloatArray, box: Box) -> Iterator[tuple[FloatArray, list[int]]]:
    """Points inside the bounds with two unknowns exchanged, or with one or two of other sign."""
    pairs = [list(pair) for pair in combinations(range(len(x)), 2)]
    exchanged = [(held, x[held[::-1]]) for held in pairs]
    turned = [(held, -x[held]) for held in (*([i] for i in range(len(x))), *pairs)]
    for held, values in (*exchanged, *turned):
        there = x.copy()
        there[held] = values
        inside = (there >= box.lower) & (there <= box.upper)
        if inside.all() and (differences(there, x, box)[held] > SAME).all():
            yield there, held
