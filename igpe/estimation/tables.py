"""Numbers of a result: fitted values, curves with bands, combinations, sizes of errors."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray, typical
from igpe.core.deadline import if_in_time
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.likelihood import of_measurements
from igpe.dynamics.search.other_optima import rounding
from igpe.dynamics.shooting.base import is_plain, minimises_squares
from igpe.dynamics.shooting.residuals import deviations
from igpe.dynamics.shooting.reweighting import assumed_sizes
from igpe.dynamics.simulation import (
    POINTS,
    OtherRoot,
    beyond_bounds,
    fine_grid,
    other_root,
    simulate_all,
)
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem
from igpe.estimation.settings import Settings, Steps
from igpe.numerics.covariance import Uncertainty
from igpe.numerics.least_squares.base import Linearised
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.results.residual_table import standardised
from igpe.results.result_data import ASSUMED, Combined
from igpe.structure.combinations import IdentifiableCombination
from igpe.structure.identifiability import Identifiability

FLAT = 1e-4  # of a state's range: smaller steps from point to point turn nothing
PER_TURN, MOST_POINTS = 20, 4000  # points of a curve
CONFIRMED = 0.01  # of the sum of squares, by which another integration may differ
NOT_CONFIRMED = (
    "Another integration at the same values gives a different sum of squares: the model amplifies "
    "small errors (it may be chaotic or unstable). Plotted curves depend on the integrator."
)


class FitTables(NamedTuple):
    """The fit in tables.

    runs    number of each experiment, and its trajectory at the estimate
    points  see `Result.points`
    note    sentences where the trajectories do not have the objective, or where an algebraic
            variable leaves the bounds of its Var; else empty
    root    of an experiment whose equations have another one at the start
    """

    runs: list[tuple[int, Trajectory]]
    points: pd.DataFrame
    note: str
    root: OtherRoot | None


def fitted(steps: Steps, settings: Settings, values: Mapping[str, float]) -> FitTables:
    """Trajectories and points at the values.

    Of a chaotic model another integration may differ by far more than its tolerance. Then the
    points are those of the objective, which also judge the fit.
    """
    problem, at = steps.problem, steps.best.at
    every = _simulated(problem, settings.integrator, values)
    runs = [(k, run) for k, (_, run) in enumerate(every)]
    table = pd.concat((points(problem, k, run) for k, run in runs), ignore_index=True)
    named = zip(problem.experiments, every, strict=True)
    beyond = [f"Experiment {e.name}: {s}" for e, pair in named if (s := beyond_bounds(*pair))]
    remark = beyond[0] if beyond else ""
    roots = (other_root(ivp, run, values) for ivp, run in every)
    root = next((one for one in roots if one is not None), None)
    of_squares = is_plain(problem) and minimises_squares(problem)
    is_white = all(e.measurements.correlation is None for e in problem.experiments)
    if at is None or not (of_squares and is_white) or problem.has_spectra:
        return FitTables(runs, table, remark, root)
    deviation, value = at.residual[: problem.size], standardised(table)
    squares = float(deviation @ deviation)
    if abs(float(value @ value) - squares) <= CONFIRMED * squares + rounding(problem):
        return FitTables(runs, table, remark, root)
    ends = np.cumsum([len(e.measurements.value) for e in problem.experiments])
    own = np.split(deviation, ends[:-1])
    table = pd.concat((points(problem, k, run, own[k]) for k, run in runs), ignore_index=True)
    return FitTables(runs, table, f"{NOT_CONFIRMED} {remark}".strip(), root)


def _simulated(
    problem: Problem, integrator: Integrator, values: Mapping[str, float]
) -> tuple[tuple[InitialValueProblem, Trajectory], ...]:
    """All experiments on grids that show their oscillations, as far as time is left for them."""

    def on(counts: Sequence[int]) -> tuple[tuple[InitialValueProblem, Trajectory], ...] | None:
        def finely() -> tuple[tuple[InitialValueProblem, Trajectory], ...]:
            grids = tuple(fine_grid(problem, k, count) for k, count in enumerate(counts))
            return simulate_all(problem, integrator, values, grids)

        return if_in_time(finely)

    every = on([POINTS] * len(problem.experiments))
    if every is None:
        measured = tuple(np.union1d(e.start_time, e.times) for e in problem.experiments)
        return simulate_all(problem, integrator, values, measured)
    enough = [_enough_points(run) for _, run in every]
    return (on(enough) if max(enough) > POINTS else None) or every


def _enough_points(run: Trajectory) -> int:
    """How many points show the oscillations of a trajectory as curves."""
    steps = np.diff(run.states, axis=0)
    size = np.ptp(run.states, axis=0) if len(run.states) else np.zeros(0)
    steps = np.where(np.abs(steps) > FLAT * size, steps, 0.0)
    turns = [int((np.diff(np.sign(s[s != 0.0])) != 0).sum()) for s in steps.T]
    return int(np.clip(PER_TURN * max(turns, default=0), POINTS, MOST_POINTS))


def points(
    problem: Problem, k: int, run: Trajectory, deviation: FloatArray | None = None
) -> pd.DataFrame:
    """Measured and fitted values of experiment k; see `Result.points`.

    deviation  (m,) of the fitted values, in the measurements' sigma; None: as in the run
    """
    experiment = problem.experiments[k]
    m = experiment.measurements.known
    times = m.times[m.row]
    fitted = run.measured[np.searchsorted(run.times, times), m.column]
    if deviation is not None:
        fitted = m.value + m.sigma * deviation
    table = m.table(experiment.name).assign(
        fitted=fitted, residual=m.value - fitted, sigma=_sigma(experiment, run)
    )
    if (whitening := m.whitening()) is not None:
        table["whitened"] = whitening @ ((m.value - fitted) / m.sigma)
        table["conditional"] = 1 / whitening.diagonal()
    if problem.is_censored:
        table["limit"] = table["name"].map(_limits(problem))
    if problem.relative_sigma:
        table["relative_sigma"] = m.sigma
    if problem.sigma_estimated:
        table["sigma_estimated"] = table["name"].isin(experiment.estimated_sigma).astype(float)
    table["unit"] = table["name"].map({n: problem.unit(n) for n in m.names})
    return table.iloc[np.lexsort((times, m.column))]


def _limits(problem: Problem) -> "pd.Series[float]":
    """Quantity -> its largest limit of detection, where some value is below one."""
    runs = [e.measurements for e in problem.experiments]
    names = np.concatenate([np.array(m.names, dtype=object)[m.column[m.is_limit]] for m in runs])
    return pd.Series(np.concatenate([m.value[m.is_limit] for m in runs])).groupby(names).max()


def _sigma(experiment: Experiment, run: Trajectory) -> FloatArray | float:
    """(m,) standard deviations, as given or estimated; NaN where they are unknown."""
    m = experiment.measurements.known
    which = deviations(experiment, m)
    if which is None:
        return m.sigma if experiment.sigma_known else np.nan
    estimated = run.measured[np.searchsorted(run.times, m.times[m.row]), which]
    return np.where(which >= 0, estimated, m.sigma)


def curves(
    steps: Steps, k: int, run: Trajectory, errors: Uncertainty, integrator: Integrator
) -> pd.DataFrame:
    """Fitted and smoothed curves of experiment k on a fine grid; see `Result.curves`."""
    experiment = steps.problem.experiments[k]
    smooth = steps.ladder[0].of[k]
    half = if_in_time(lambda: _half_band(steps, k, run, errors, integrator))
    half = np.full(run.measured.shape, np.nan) if half is None else half
    half = np.where(np.isfinite(run.measured), half, 0.0)  # log 0 has no band
    pieces = [
        pd.DataFrame({
            "experiment": experiment.name,
            "name": name,
            "time": run.times,
            "fitted": run.measured[:, i],
            "smoothed": smooth[name].value(run.times) if name in smooth else np.nan,
            "smoothed_error": smooth[name].value_error(run.times) if name in smooth else np.nan,
            "lower": run.measured[:, i] - half[:, i],
            "upper": run.measured[:, i] + half[:, i],
        })
        for i, name in enumerate(experiment.measured)
    ]
    return pd.concat(pieces, ignore_index=True)


def _half_band(
    steps: Steps, k: int, run: Trajectory, errors: Uncertainty, integrator: Integrator
) -> FloatArray | None:
    """(n_times, n_measured) half of the linearised confidence band of the fitted model.

    None for other fits than plain least squares, as `igpe.predict` has it.
    """
    problem, at = steps.problem, steps.best.at
    if (
        at is None
        or not (is_plain(problem) and minimises_squares(problem))
        or not errors.degrees > 0
    ):
        return None
    ivp = compiled(problem).initial_value_problem(k, switching=True)
    names = problem.box.names
    index = [names.index(n) for n in ivp.unknowns]
    x = problem.box.vector(steps.paths[0].corrected.parameters)
    along = integrator.simulation(ivp, run.times, sensitivities=True).run(x[index])
    if not along.status.usable:
        return None
    by = np.zeros((*run.measured.shape, len(names)))
    by[:, :, index] = along.measured_by_unknown
    return errors.spread.limits(errors.spread.parts(by), errors.confidence)[1]


def combined(
    exact: Identifiability,
    names: Sequence[str],
    x: FloatArray,
    jacobian: FloatArray,
    errors: Uncertainty,
) -> tuple[Combined, ...]:
    """Unknowns that cannot be told apart, where that is not in doubt.

    x  (n,) the estimate of the unknowns, whose `names` these are, with its errors
    jacobian  (m, n) of the weighted residuals there
    """
    if exact.doubtful or exact.left_out:
        return ()

    def of(one: IdentifiableCombination) -> Iterator[tuple[float, float]]:
        """Value and standard error of each function of unknowns that are products or sums."""
        own = [names.index(n) for n in one.unknowns]
        values, by_own = one.at(x[own])
        by = np.zeros((len(values), len(x)))
        by[:, own] = by_own
        with np.errstate(invalid="ignore"):  # 0 * inf, of a fit without errors
            error = np.sqrt(errors.spread.parts(by).sum(axis=-1))
        return zip(values.tolist(), error.tolist(), strict=True)

    freeing = [{exact.measure.get(n, ()) for n in one.unknowns} for one in exact.combinations]
    return tuple(
        Combined(
            one.unknowns,
            one.functions,
            one.nothing,
            *sets if len(sets) == 1 else ((),),
            *(tuple(column) for column in zip(*of(one), strict=True)),
        )
        for one, sets in zip(exact.combinations, freeing, strict=True)
    )


def sizes_of_errors(problem: Problem, at: Linearised | None) -> tuple[dict[str, str], list[str]]:
    """Estimated standard deviations of quantities, as texts; those that igpe assumed."""
    sizes, left = problem.relative_sigma, 0 if at is None else problem.size - len(problem.box)
    if not sizes or at is None or left <= 0:
        return {}, []
    squares, rows = problem.loss.is_squares, of_measurements(problem, at).residual
    spread = np.sqrt(at.cost / left) if squares else typical(rows[: problem.size])
    texts = {n: f"{spread * s:.2g} {problem.unit(n)}".strip() for n, s in sizes.items()}
    return texts, assumed_sizes(problem, rows[: problem.size])


def on_assumed_sizes(problem: Problem, at: Linearised | None) -> list[str]:
    """That intervals rest on standard deviations that igpe assumed."""
    sizes, assumed = sizes_of_errors(problem, at)
    if not assumed:
        return []
    values = ", ".join(f"{n} {sizes[n]}" for n in assumed)
    return [
        f"{ASSUMED}, so igpe assumed them: {values}. Intervals depend on them. Write sigma=... if "
        "you know them."
    ]
