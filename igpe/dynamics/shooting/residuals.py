"""The residuals of a problem by integration, with exact sensitivities.

r = (h(t; q) - measured) / sigma for every measurement of every experiment (Michalik et al. 2009,
IGPE, eq. 3, W = diag(1/sigma^2)); with a robust loss those that it weights (`Robust.reweighted`).
Where errors are correlated these and their derivative are multiplied by the whitening of the
experiment (igpe/problem/noise/correlated.py).

Standard deviations that are estimated: -2 log L, but for a constant, is sum z^2 + 2 log s with
z = (h - y) / s. Half its gradient is

    sum  z h'/s + (1 - z^2) s'/s,

and half its expected second derivative is Fisher's information, sum h'h'/s^2 + 2 s's'/s^2 (outer
products; Seber & Wild, Nonlinear Regression (1989), section 2.8).
Two residuals for each measurement have just these as A'r and A'A:

    r = z,                  A = h'/s
    r = (1 - z^2)/sqrt(2w), A = sqrt(2w) s'/s,      w = max(1, (z / FAR)^2)

so that Gauss-Newton on them is Fisher's scoring, and A'A the inverse of the estimates' covariance.
Their sum of squares is not the cost; what is missing is the offset. Where |z| is beyond FAR, where
no fit ends, w takes the place of the 1 that Fisher expects of z^2: the curvature is then of the
size it has, and squares and offset are of the size of their sum. Without it they grow with z^4,
and beyond |z| = 1e8 their sum is rounding: points far off seemed the best.

Residuals that hang on no measurement: (q - mean) / deviation for every prior;
root(penalty) (w_(i+1) - w_i) between the pieces of an unknown that varies with time (Houska,
Logist, Diehl & Van Impe, section 2.4). All are linear.
"""

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from threading import get_ident
from typing import Any, NamedTuple, TypeAlias

import casadi as ca
import numpy as np

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.deadline import Deadline, finishing, require_going_on, session
from igpe.core.estimates import Estimate
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import cheaper
from igpe.dynamics.integrators.base import Integrator, Intervals, Simulation, Trajectory
from igpe.dynamics.integrators.limits import STRETCH, allowance, allowed
from igpe.dynamics.shooting.base import losses_of
from igpe.dynamics.shooting.estimated_errors import Piece, joined
from igpe.dynamics.shooting.spectral import SpectralBlock, spectral_blocks
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.numerics.least_squares.base import Fit, Linearised, have_squares, stacked
from igpe.problem.experiment import Experiment
from igpe.problem.losses import Prior
from igpe.problem.measurements import Measurements
from igpe.problem.noise.sigma import below
from igpe.problem.problem import Problem

OVERHEAD = 30_000  # numbers that could be moved, 25 ns each, in the least time of an integration
SWITCHED = 20_000  # the same, in a stretch between two switches
FACTORED, BOUNDED = 0.02, 0.15  # the same, of a step inside bounds with n unknowns and m residuals:
# for each n^2 m and n^3 (14 ms for 150 and 90, 15 ms for 120 and 1340)
MORE_STEPS, LEAST_STEPS = 30, 10_000  # times as many as at a good point, and at least so many


class Unmeasured(NamedTuple):
    """k residuals weight (matrix x - known) of the free unknowns x (n,).

    matrix  (k, n);  known, weight  (k,)
    priors  place of an unknown, and its prior that is not normal: more residuals behind these,
            with the right gradient and an offset
    """

    matrix: FloatArray
    known: FloatArray
    weight: FloatArray
    priors: tuple[tuple[int, Prior], ...] = ()

    def __call__(self, x: FloatArray, factor: float = 1.0) -> Linearised:
        """Residuals and derivative at x, all multiplied by a factor."""
        weight = factor * self.weight
        residual, jacobian = (self.matrix @ x - self.known) * weight, self.matrix * weight[:, None]
        if not self.priors:
            return Linearised(residual, jacobian)
        own, by, offset = np.zeros(len(self.priors)), np.zeros((len(self.priors), len(x))), 0.0
        for k, (i, prior) in enumerate(self.priors):
            slope, curvature = prior.bend(float(x[i]))
            by[k, i] = factor * np.sqrt(curvature)
            own[k] = factor * slope / np.sqrt(curvature)
            offset += -2 * factor**2 * prior.log_density(float(x[i])) - own[k] ** 2
        return stacked([Linearised(residual, jacobian), Linearised(own, by, offset)])

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.known) + len(self.priors)

    @property
    def concerned(self) -> BoolArray:
        """(n,) which unknowns some of them depend on."""
        concerned = (self.matrix != 0).any(axis=0)
        concerned[[i for i, _ in self.priors]] = True
        return np.asarray(concerned)


def unmeasured(problem: Problem) -> Unmeasured:
    """Those of the problem's free unknowns, priors first."""
    rows = [({n: 1.0}, p.mean, 1 / p.deviation) for n, p in problem.normal_priors.items()]
    for name, course in problem.time_varying.items():
        weight = float(np.sqrt(course.penalty))
        for experiment in problem.experiments if weight else ():
            for before, after in pairwise(problem.pieces(name, experiment)):
                rows.append(({before: -1.0, after: 1.0}, 0.0, weight))
    names, held = problem.box.names, problem.fixed
    free = [row for row in rows if any(n in names for n in row[0])]
    matrix, known = np.zeros((len(free), len(names))), np.zeros(len(free))
    for i, (factors, mean, _) in enumerate(free):  # what is held goes to the known part
        known[i] = mean - sum(f * held[n] for n, f in factors.items() if n in held)
        for n, f in factors.items():
            if n not in held:
                matrix[i, names.index(n)] = f
    other = tuple((names.index(n), p) for n, p in problem.other_priors.items())
    return Unmeasured(matrix, known, np.array([weight for *_, weight in free]), other)


FINISH = 2_000  # steps that an integration may take while the user waits for the answer
NO_NUMBER = "A prediction or one of its derivatives is not a number, or is too large to be squared."
NO_DEVIATION = "An estimated standard deviation is {:.3g}, not positive. Correct its formula."


class Broken(NamedTuple):
    """The last integration that broke down: of which experiment, how and why."""

    experiment: str
    status: Status
    reason: str

    @property
    def sentence(self) -> str:
        """What the user reads."""
        return f"The last integration of experiment {self.experiment} failed: {self.reason}"


@dataclass(frozen=True)
class Run:
    """One experiment made ready: `index` (n_q,) places its unknowns among the problem's.

    measurements  at the simulation's times and no others
    deviation     (m,) which of the outputs is each one's standard deviation, -1 where that
                  is a number; None if all are
    """

    name: str
    measurements: Measurements
    ivp: InitialValueProblem
    integrator: Integrator
    simulation: Simulation
    index: IntArray
    deviation: IntArray | None = None

    def until(self, last: float) -> "Run | None":
        """The same with the measurements up to a time; None if there are none."""
        m = self.measurements
        early = m.times[m.row] <= last
        if not early.any():
            return None
        if early.all():
            return self
        fewer = replace(m.where(early), times=m.times[m.times <= last])
        deviation = None if self.deviation is None else self.deviation[early]
        simulation = self.simulation.until(last)
        return replace(self, measurements=fewer, simulation=simulation, deviation=deviation)

    def cheaper(self) -> "Run":
        """The same, with derivatives by sweeps back where these take less time."""
        m, own = self.measurements, self.deviation
        rows, columns = [m.row], [m.column]
        if own is not None:
            rows, columns = [*rows, m.row[own >= 0]], [*columns, own[own >= 0]]
        where = np.concatenate(rows), np.concatenate(columns)
        return self._by(cheaper(self.simulation.intervals, *where))

    def forwards(self) -> "Run":
        """The same, with derivatives of all states."""
        return self._by(self.simulation.intervals.forwards)

    def _by(self, intervals: Intervals) -> "Run":
        """The same run, itself where nothing changes."""
        if intervals is self.simulation.intervals:
            return self
        return replace(self, simulation=replace(self.simulation, intervals=intervals))

    @cached_property
    def _cells(self) -> IntArray:
        """(m,) where each measurement stands in the flattened (n_times, n_told) table."""
        m = self.measurements
        return np.asarray(m.row * self.ivp.measured.numel() + m.column)

    @cached_property
    def _weight(self) -> FloatArray:
        return np.asarray(1 / self.measurements.sigma)

    @cached_property
    def _whitening(self) -> Any:
        return self.measurements.whitening()

    def whitened(self, rows: FloatArray) -> FloatArray:
        """(m, ...) rows in standard deviations, of independent errors."""
        return rows if self._whitening is None else np.asarray(self._whitening @ rows)

    def linearised(self, trajectory: Trajectory, size: int) -> "Piece":
        """(m,) residuals and (m, size) derivative, from the run's trajectory.

        size  0 if the trajectory has no derivatives
        """
        m = self.measurements
        by_unknown = self.by_unknown(trajectory, m.column)
        jacobian = self.whitened(by_unknown * self._weight[:, None])
        linearised = Linearised(self.weighted(trajectory), self._placed(jacobian, size))
        if m.censored is not None:
            residual, slope = below(linearised.residual[m.censored])
            linearised.residual[m.censored] = residual
            linearised.jacobian[m.censored] *= slope[:, None]
        if self.deviation is None:
            return Piece(linearised)
        spread = trajectory.measured[m.row, self.deviation]
        slope = self._placed(self.by_unknown(trajectory, self.deviation), size)
        return Piece(linearised, spread, slope, self.deviation >= 0)

    def _placed(self, jacobian: FloatArray, size: int) -> FloatArray:
        """(m, size) a derivative by the run's unknowns, where the problem has them."""
        n = len(self.index)
        if n == size:  # the problem's order is the run's
            return jacobian
        if not size:  # there are no derivatives
            return jacobian[:, :0]
        placed = np.zeros((len(jacobian), size))
        placed[:, self.index] = jacobian
        return placed

    def weighted(self, trajectory: Trajectory) -> FloatArray:
        """(m,) residuals, divided by what is known of the deviations; censored ones by limits."""
        predicted = trajectory.measured.reshape(-1)[self._cells]
        return self.whitened(np.asarray((predicted - self.measurements.value) * self._weight))

    def by_unknown(self, trajectory: Trajectory, column: IntArray) -> FloatArray:
        """(m, n_q) derivative of one output at each measurement's time."""
        row = self.measurements.row
        by_unknown = trajectory.measured_by_unknown[row, column]
        lost = np.isnan(by_unknown)
        if not lost.any():
            return by_unknown
        # sqrt(k B) at B = 0 gives 0 / 0, but nothing moves where no state does
        resting = lost & (trajectory.by_unknown[row] == 0).all(axis=1)
        return np.where(resting, 0.0, by_unknown)


@dataclass
class Best:
    """The best point at which residuals were computed since it was last cleared.

    Those with more residuals, of later horizons, count before those with fewer.

    x   (n,) the point;  at: residuals and derivative there, which may be (m, 0); None if there is
        none
    """

    x: FloatArray | None = None
    at: Linearised | None = None

    def look_at(self, x: FloatArray, at: Linearised) -> None:
        """Keep the point if it is the best."""
        size = len(at.residual)
        before = -1 if self.at is None else len(self.at.residual)
        if size > before or (self.at is not None and size == before and at.cost < self.at.cost):
            self.x, self.at = x.copy(), at

    def clear(self) -> None:
        """Forget the point."""
        self.x = self.at = None


ROUGH = 1e-7  # rtol near enough to an optimum, and for the shape of a likelihood


class ExhaustedError(Exception):
    """The residuals were computed as often as they may be."""


class Residuals:
    """A problem's residuals as a function of its free unknowns (in the order of `problem.box`).

    broken  the last integration that broke down; None if none did since it was last set so
    best    what an interrupted search falls back to; shared with those of earlier horizons
    calls   how often they were computed
    work    steps of integration so far, each times how many numbers it moves, and what a step of a
            search takes with each derivative
    most, most_work  calls and work after which `ExhaustedError` is raised: processors do not change
            the result
    most_steps  that an integration may take; None: as many as its method says
    """

    calls, work, most, most_work = 0, 0, np.inf, np.inf
    most_steps: int | None = None

    def __init__(self, problem: Problem, integrator: Integrator) -> None:
        self.names = problem.box.names
        self.experiments = tuple(e.name for e in problem.experiments)
        self.integrator, self.runs = integrator, runs_of(problem, integrator)
        chosen = tuple(run.cheaper() for run in self.runs)
        is_other = any(a is not b for a, b in zip(chosen, self.runs, strict=True))
        if is_other and not problem.has_spectra:  # these need derivatives of all that absorbs
            self.runs = chosen
        self.unmeasured = unmeasured(problem)
        self.spectral: tuple[SpectralBlock, ...] = spectral_blocks(problem, self.runs)
        self._losses = losses_of(problem)
        self.broken: Broken | None = None
        self.best = Best()

    def __len__(self) -> int:
        """How many residuals there are."""
        spectral = len(self.spectral) * len(self.names)
        measured = sum(len(run.measurements.value) for run in self.runs)
        return measured + spectral + self.unmeasured.size

    @property
    def degrees(self) -> int:
        """How many numbers the cost is made of, less the spectra that are eliminated."""
        spectral = sum(block.degrees - len(self.names) for block in self.spectral)
        return len(self) + spectral

    @property
    def stages(self) -> list["Residuals"]:
        """These residuals, after those of the gentler losses that a search begins with."""
        stages = []
        for k in range(1, len(self._losses)):
            gentler = copy(self)
            gentler._losses, gentler.best = self._losses[:k], Best()
            stages.append(gentler)
        return [*stages, self]

    def until(self, ends: Sequence[float]) -> "Residuals":
        """Those of the measurements up to a time in each experiment, and the unmeasured ones."""
        fewer = copy(self)
        runs = (run.until(end) for run, end in zip(self.runs, ends, strict=True))
        fewer.runs = tuple(run for run in runs if run is not None)
        return fewer

    def rougher(self, rtol: float = ROUGH) -> "Residuals":
        """The same by integrations of a larger tolerance, where the model is compiled."""
        other = copy(self)
        other.runs = tuple(
            replace(run, simulation=run.simulation.rougher(rtol)) for run in self.runs
        )
        other.best = Best()
        return other

    @property
    def forwards(self) -> "Residuals":
        """The same with derivatives of all states, which sweeps back do not give."""
        runs = tuple(run.forwards() for run in self.runs)
        if all(a is b for a, b in zip(runs, self.runs, strict=True)):
            return self
        other = copy(self)
        other.runs = runs
        return other

    def __call__(self, x: FloatArray, *, derivatives: bool = True) -> Linearised | None:
        """Residuals and derivative at x (n,), or None if an integration broke down.

        None as well where one of their numbers is none, or has no square. `broken` tells why.
        raises KeyboardInterrupt once the call must end (`igpe.core.deadline`), ExhaustedError
        """
        every = self.trajectories(x, derivatives=derivatives)
        stacked = None if every is None else self.stacked(x, every, derivatives=derivatives)
        if stacked is not None:
            self.best.look_at(x, stacked)
        return stacked

    def cost(self, x: FloatArray) -> float | None:
        """Cost at x (n,) alone, or None as for a call; without derivatives where that is quicker.

        It takes steps of its own, so that the cost of a call differs by the integrator's tolerance.
        What is not compiled would have to be generated once more.
        """
        is_plain = not self.spectral and all(run.simulation.compiled for run in self.runs)
        at = self(x, derivatives=not is_plain)
        return None if at is None else at.cost

    def trajectories(self, x: FloatArray, *, derivatives: bool = True) -> list[Trajectory] | None:
        """Of each run at x (n,), or None if an integration broke down; it counts as a call."""
        require_going_on()
        if self.calls >= self.most or self.work >= self.most_work:
            raise ExhaustedError
        self.calls += 1
        if derivatives:
            self.work += int(len(x) ** 2 * (FACTORED * len(self) + BOUNDED * len(x)))
        every = []
        with session():  # one for all runs: to open it takes as long as a short integration
            for run in self.runs:
                trajectory = self._trajectory(run, x, derivatives=derivatives)
                if not trajectory.status.usable:
                    self.broken = Broken(run.name, trajectory.status, trajectory.reason)
                    return None
                every.append(trajectory)
        return every

    def _trajectory(self, run: Run, x: FloatArray, *, derivatives: bool) -> Trajectory:
        with allowance(allowed() if self.most_steps is None else self.most_steps):
            trajectory = run.simulation.run(x[run.index], derivatives=derivatives)
        plain, columns = trajectory.plain, 1
        steps = max(trajectory.steps - plain, len(trajectory.times))
        if derivatives:
            columns += round(run.simulation.intervals.share * len(run.index))
        self.work += OVERHEAD + SWITCHED * trajectory.stretches
        self.work += (steps * columns + plain) * len(run.ivp.states)
        return trajectory

    def limit_steps(self, x: FloatArray) -> bool:
        """Give up integrations that take far more steps than those at x (n,), a good point.

        No limit is set where x needs the slower method that takes over when steps are used up.
        returns  whether the model can be integrated at x
        """
        every = self.trajectories(x)
        if every is None:
            return False
        taken = (one.steps + STRETCH * one.stretches for one in every)
        self.most_steps = max([LEAST_STEPS, *(MORE_STEPS * steps for steps in taken)])
        if self.trajectories(x) is None:
            self.most_steps = None
        return True

    def stacked(
        self, x: FloatArray, trajectories: Sequence[Trajectory], *, derivatives: bool = True
    ) -> Linearised | None:
        """Residuals and derivative at x (n,) from each run's trajectory, or None."""
        size = len(x) if derivatives else 0
        runs = zip(self.runs, trajectories, strict=True)
        pieces = [run.linearised(trajectory, size) for run, trajectory in runs]
        parts = [joined(pieces)]
        if not have_squares(*parts[0]):
            lost = (k for k, piece in enumerate(pieces) if not have_squares(*joined([piece])))
            run = next(lost, 0)
            self._without_number(run, pieces[run].least_deviation)
            return None
        parts[0] = self._losses[-1].reweighted(parts[0])
        for block in self.spectral:
            parts.append(block.linearised(trajectories, len(x)))
            if not have_squares(*parts[-1]):
                self._without_number(0)
                return None
        if self.unmeasured.size:
            known = self.unmeasured(x)
            parts.append(known if derivatives else known._replace(jacobian=known.jacobian[:, :0]))
        return stacked(parts)

    def _without_number(self, run: int, deviation: float = np.inf) -> None:
        reason = NO_NUMBER if deviation > 0 else NO_DEVIATION.format(deviation)
        self.broken = Broken(self.experiments[run], Status.INTEGRATION_BROKE, reason)

    def best_of(self, points: Iterable[FloatArray], seconds: float | None = None) -> Fit:
        """The best of points (n,), and of those before, for a user who waits for an answer.

        Where none can be integrated in few steps, the first has as many as it needs.
        seconds  after which no further point is tried; None: all are
        raises   KeyboardInterrupt if none can be integrated
        """
        patience, every = Deadline.after(seconds), list(points)
        with finishing():
            with allowance(FINISH):
                for x in every:
                    self(x)
                    if patience.over:
                        break
            if self.best.at is None and every:
                self(every[0])
        return self.best_fit()

    def best_fit(self) -> Fit:
        """Where an interrupted search ends; raises KeyboardInterrupt if nothing was computed.

        Without residuals where only an earlier horizon can be integrated in short time.
        """
        x, at = self.best.x, self.best.at
        if x is None or at is None:
            raise KeyboardInterrupt
        is_plain = at.jacobian.shape[1] < len(x)
        if is_plain or len(at.residual) < len(self):  # of an earlier horizon
            with finishing(), allowance(FINISH):
                at = self(x)
        return Fit(x, at, Status.INTERRUPTED, 0)

    @property
    def manner(self) -> tuple[str, ...]:
        """Sentences if an experiment is integrated by a slower method than usual, or swept back."""
        every = [run.simulation.intervals for run in self.runs]
        return *slow(every), *[one.manner for one in every if one.manner][:1]

    def ended(self, fit: Fit) -> Fit:
        """The fit, with the status of the integration that kept it from beginning."""
        return fit._replace(status=self.broken.status) if fit.at is None and self.broken else fit

    def reasons(self, fit: Fit) -> list[str]:
        """Why a search ended, if it is for an integration that broke down."""
        broke = fit.status in {Status.INTEGRATION_BROKE, Status.NO_SOLVER, Status.STALLED}
        return [self.broken.sentence] if broke and self.broken else []


def slow(every: Iterable[Intervals]) -> tuple[str, ...]:
    """The first sentence of intervals that are integrated by a slower method than usual."""
    return tuple(dict.fromkeys(one.slow for one in every if one.slow))[:1]


def untouched(residuals: Residuals, method: str) -> Estimate:
    """The estimate of a problem that leaves nothing to estimate."""
    residuals.broken = None
    at = residuals(np.zeros(0))
    if at is None and residuals.broken is not None:
        broken = residuals.broken
        return Estimate({}, np.inf, broken.status, method, notes=(broken.sentence,))
    return Estimate({}, np.inf if at is None else at.cost, Status.NOTHING_TO_DO, method)


MOST_KEPT = 4  # sets of runs that are kept with a problem


def runs_of(problem: Problem, integrator: Integrator) -> tuple[Run, ...]:
    """All experiments made ready, with derivatives; kept with the problem, for each thread.

    They remember no run: the same unknowns give the same bits as runs that were made anew.
    """
    kept: dict[Any, Any] = compiled(problem).kept
    key: Any = (runs_of, integrator, get_ident())  # intervals belong to one thread
    try:
        hash(key)
    except TypeError:  # an integrator that may change until the next call
        kept, key = {}, None
    if key not in kept:
        mine = [k for k in list(kept) if k[0] is runs_of]
        for old in mine[: max(0, len(mine) + 1 - MOST_KEPT)]:
            kept.pop(old, None)
        kept[key] = tuple(_run(problem, k, integrator) for k in range(len(problem.experiments)))
    runs: tuple[Run, ...] = kept[key]
    return runs


def _run(problem: Problem, k: int, integrator: Integrator) -> Run:
    experiment, names = problem.experiments[k], problem.box.names
    ivp = compiled(problem).initial_value_problem(k, switching=True)
    m = experiment.measurements
    if experiment.spectra is None:
        m = measured_only(m)
    index = np.array([names.index(n) for n in ivp.unknowns], dtype=np.intp)
    simulation = integrator.simulation(ivp, m.times, sensitivities=True)
    own = deviations(experiment, m)
    return Run(experiment.name, m, ivp, integrator, simulation, index, own)


def deviations(experiment: Experiment, m: Measurements) -> IntArray | None:
    """(m,) which of the outputs is each standard deviation, -1 where it is a number."""
    if not experiment.estimated_sigma:
        return None
    own = [experiment.estimated_sigma.get(n) for n in m.names]
    where = [-1 if n is None else experiment.outputs.index(n) for n in own]
    return np.array(where, dtype=np.intp)[m.column]


def measured_only(m: Measurements) -> Measurements:
    """Without the times at which nothing was measured: they ask for no integration."""
    used, row = np.unique(m.row, return_inverse=True)
    return replace(m, times=m.times[used], row=row)


class Start(NamedTuple):
    """Where an experiment starts (n_x,), and its derivatives by the unknowns (n_x, n_q)."""

    states: FloatArray
    by_unknown: FloatArray


Starting: TypeAlias = Callable[[FloatArray], Start]


def starting(ivp: InitialValueProblem) -> Starting:
    """The start as a function of the unknowns (n_q,); computed once if it depends on none."""
    by_q = ca.densify(ca.jacobian(ivp.start, ivp.q))
    function = ca.Function("start", [ivp.q], [ca.densify(ivp.start), by_q])

    def at(q: FloatArray) -> Start:
        states, by = (np.asarray(part) for part in function(q))
        return Start(states.ravel(), by)

    if ca.depends_on(ivp.start, ivp.q):
        return at
    known = at(np.zeros(ivp.q.numel()))
    return lambda _: known
