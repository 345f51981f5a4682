"""Bands around what the fitted model says: of its mean, and of a further measurement.

Linearised, with S = d quantity / d unknown from the integrated sensitivities,

    var(mean) = S V S',     var(measurement) = S V S' + sigma^2

(Seber & Wild, Nonlinear Regression, 1989, section 5.1); or the percentiles over bootstrap refits.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from igpe.core.arguments import shown
from igpe.core.arrays import FloatArray, IntArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.core.json_form import Columns, Stored
from igpe.core.markup import Rows, Shown, frame_rows, in_words
from igpe.dynamics.integrators.base import Simulation, Trajectory
from igpe.dynamics.shooting.limits_of_model import FAR, within_reach
from igpe.dynamics.shooting.residuals import Residuals, Run
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import distinct_times, fine_grid
from igpe.problem.noise.sigma import NoiseModel
from igpe.problem.plausibility import held_inputs
from igpe.problem.problem import Problem, takes_problem
from igpe.results.plots.axes import Plot
from igpe.results.plots.uncertainty import plot_prediction
from igpe.uncertainty.bootstrap import UNBIASED, Bootstrapped
from igpe.uncertainty.likelihood import Likelihood, at_estimate, left_out, require_confidence

CURVED = 0.25  # of half a linearised interval: ends of profile intervals so far from it are others
BY_REFITS = "For bands from refits, pass replications=igpe.bootstrap(problem, result)."
NUMBERS = ("value", "standard_error", "lower", "upper", "band_lower", "band_upper")


class PredictedTrajectory(NamedTuple):
    """One experiment's quantities at some times; bands are tables of columns `NUMBERS`.

    base     the estimate
    problem  whose experiment it is: that of the estimate or another one
    run      its unknowns are placed among those of the estimate
    noise    quantity -> its noise model, where there is one: `base` has only numbers
    """

    base: Likelihood
    problem: Problem
    run: Run
    grid: FloatArray
    names: list[str]
    noise: Mapping[str, NoiseModel]

    def linearised(self) -> Iterator[pd.DataFrame]:
        """From sensitivities and covariance."""
        trajectory = self._integrated(self._prepared(sensitivities=True), self.base.x)
        errors = self.base.errors
        spread, level = errors.spread, errors.confidence
        for name in self.names:
            value, by_own = self._quantity(trajectory, name)
            change = np.zeros((len(self.grid), len(self.base.x)))
            change[:, self.run.index] = by_own
            parts = spread.parts(change)
            error, half = spread.limits(parts, level)
            place, sigma = self._sigma(trajectory, name)
            parts[:, place] += sigma**2
            _, band = spread.limits(parts, level)
            yield self._band(value, error, value - half, value + half, value - band, value + band)

    def drawn(self, replications: Bootstrapped) -> Iterator[pd.DataFrame]:
        """Percentiles over refits; measurements get normal errors, the same at every time.

        Where sigma is unknown, these have the sigma that was drawn for the refit.
        Infinite where a quantity depends on what is not determined: refits do not show it.
        """
        simulation = self._prepared(sensitivities=False)
        centre = self._integrated(simulation, self.base.x)
        vectors = replications.parameters[list(self.base.box.names)].to_numpy(dtype=float)
        runs = [simulation.run(x[self.run.index]) for x in vectors]
        is_usable = np.array([r.status.usable for r in runs], dtype=bool)
        usable, drawn = [r for r in runs if r.status.usable], replications.sigma_drawn[is_usable]
        if len(usable) < 2:  # noqa: PLR2004
            raise ProblemError(
                "Fewer than two replications can be integrated; use more replications."
            )
        wider = np.broadcast_to(drawn, (len(usable), len(self.base.errors.spread.variance)))
        random = np.random.default_rng(replications.seed)
        errors = random.standard_normal((len(usable), len(self.grid)))
        tail = (1 - self.base.errors.confidence) / 2
        lost = list(self.linearised()) if self.base.errors.undetermined.any() else []
        for k, name in enumerate(self.names):
            values = np.array([self._quantity(r, name)[0] for r in usable])
            place, _ = self._sigma(centre, name)
            sigma = np.array([self._sigma(r, name)[1] for r in usable]) * wider[:, [place]]
            noisy = values + sigma * errors
            low, high, below, above = (
                end
                for drawn in (values, noisy)
                for end in np.quantile(drawn, [tail, 1 - tail], axis=0, method=UNBIASED)
            )
            value, error = self._quantity(centre, name)[0], np.std(values, axis=0, ddof=1)
            band = self._band(value, error, low, high, below, above)
            if lost:
                known = np.isfinite(lost[k]["standard_error"])
                band = band.where(band.isna() | known.to_numpy()[:, None], lost[k])
            yield band

    def _estimated_sigma(self, name: str) -> tuple[int, float]:
        """As `_sigma`, of errors whose size only the residuals tell; NaN if it is not measured."""
        problem, spread = self.base.problem, self.base.errors.spread
        sizes = problem.relative_sigma
        if name not in (sizes or {n for e in problem.experiments for n in e.measured}):
            return 0, np.nan
        place = spread.place([*sizes].index(name) if sizes else -1)
        return place, float(np.sqrt(spread.variance[place])) * sizes.get(name, 1.0)

    def _band(self, *columns: FloatArray) -> pd.DataFrame:
        return pd.DataFrame(dict(zip(NUMBERS, columns, strict=True)))

    def _prepared(self, *, sensitivities: bool) -> Simulation:
        return self.run.integrator.simulation(self.run.ivp, self.grid, sensitivities=sensitivities)

    def _integrated(self, simulation: Simulation, x: FloatArray) -> Trajectory:
        trajectory = simulation.run(x[self.run.index])
        if not trajectory.status.usable:
            raise EstimationFailed(
                f"Experiment {self.run.name} could be integrated only to time "
                f"{trajectory.reached:g} instead of {self.grid[-1]:g}. {trajectory.reason}",
                trajectory.status,
            )
        return trajectory

    def _quantity(self, trajectory: Trajectory, name: str) -> tuple[FloatArray, FloatArray]:
        """Values (n_times,) and derivatives by the run's unknowns (n_times, n_q)."""
        measured = self.run.measurements.names
        if name in measured:
            place, value, by = (
                measured.index(name),
                trajectory.measured,
                trajectory.measured_by_unknown,
            )
        else:
            place, value, by = (
                self.run.ivp.states.index(name),
                trajectory.states,
                trajectory.by_unknown,
            )
        rate = by[:, place] if by.size else np.zeros((len(self.grid), 0))
        if np.isnan(rate).any():  # 0 / 0 where no state moves yet; nothing is sure of any other
            resting = (trajectory.by_unknown == 0).all(axis=1)
            rate = np.where(np.isnan(rate) & resting, 0.0, rate)
        return value[:, place], rate

    def _sigma(self, trajectory: Trajectory, name: str) -> tuple[int, FloatArray]:
        """Where a measurement's error stands in `Spread`, and its size (n_times,).

        The size is estimated, by the noise model, or as given and linear in between; else NaN.
        """
        nothing = 0, np.full(len(self.grid), np.nan)
        if name not in self.run.measurements.names:
            return nothing
        m, own_errors = self.run.measurements, self.base.problem
        own = m.column == m.names.index(name)
        if self.run.deviation is not None and own.any() and self.run.deviation[own][0] >= 0:
            return 0, trajectory.measured[:, self.run.deviation[own][0]]
        if not self.problem.sigma_known and not own_errors.sigma_known:
            place, size = self._estimated_sigma(name)
            return place, np.full(len(self.grid), size)
        times, values, sigma = m.of(name)
        if len(times) == 0 or not self.problem.sigma_known:
            return nothing
        if (model := self.noise.get(name)) is not None:
            return 0, model.at(trajectory.measured[:, m.names.index(name)], values)
        order = np.argsort(times, kind="stable")
        return 0, np.interp(self.grid, times[order], sigma[order])


@dataclass(frozen=True, repr=False)
class Prediction(Shown, Stored, name="prediction", number=1):
    """Predictions of the model at the estimate, with their uncertainty.

    table       table with the columns `experiment`, `name`, `time`, `value`, `standard_error`,
                `lower` and `upper` (band of the mean), `band_lower` and `band_upper` (band of a
                measurement; NaN for quantities that are not measured), and `unit`. The standard
                errors are infinite if the measurements do not determine the prediction
    measured    table with the columns `experiment`, `name`, `time` and `measured`
    confidence  confidence level of the pointwise bands (at each time separately)
    kind        how the bands were computed: "linearised", or the number of bootstrap refits
    time_unit   unit of the times; empty if unknown
    notes       inputs whose tables end before the predicted times, quantities that the measurements
                do not determine, unknowns whose profile intervals are far from linearised ones, and
                constraints that the prediction does not use
    """

    table: Annotated[pd.DataFrame, Columns(("experiment", "name", "unit"), ("time", *NUMBERS))]
    measured: Annotated[pd.DataFrame, Columns(("experiment", "name"), ("time", "measured"))] = (
        field(repr=False)
    )
    confidence: float
    kind: str
    time_unit: str = ""
    notes: tuple[str, ...] = ()

    def plot(self, axes: Any = None) -> Plot:
        """Plot the mean with both bands and the measurements, one panel per quantity."""
        how: dict[str, Any] = {"confidence": self.confidence, "time_unit": self.time_unit}
        return plot_prediction(self.table, self.measured, axes, **how)

    def _shown(self) -> tuple[list[Rows], list[str]]:
        bands = f"{100 * self.confidence:g} % bands, {self.kind}."
        return [frame_rows(self.table)], [bands, *self.notes]


@takes_problem
def predict(
    problem: Problem,
    estimate: Any,
    times: npt.ArrayLike | None = None,
    names: Sequence[str] | str | None = None,
    *,
    confidence: float = 0.95,
    under: Problem | None = None,
    replications: Bootstrapped | None = None,
    method: SingleShooting = SingleShooting(),
) -> Prediction:
    """Predict states (measured or not) and measured quantities, with confidence bands.

    problem       the problem that was estimated
    estimate      a Result or Estimate of the problem, or a dict {unknown: value}
    under         another problem, whose experiments are predicted in place of those of `problem`:
                  with other inputs, start values or events. All its unknowns are unknowns of
                  `problem`. Its measurements are not used. A measurement's band needs its sigma
    times         times of the prediction, which may lie beyond the measurements; None: 200 time
                  points, the measurement times, and times just before and after known jumps
    names         names of states and measured quantities; None: all
    confidence    confidence level of the bands
    replications  a result of `igpe.bootstrap`: the bands are percentiles of its refits. None:
                  linearised bands
    method        method whose integrator solves the model
    raises        ProblemError for unknown names, invalid times and values that are no estimate of
                  the problem, Unsupported for active constraints and robust losses,
                  EstimationFailed if the model cannot be integrated
    """
    require_confidence("predict", confidence)
    base = at_estimate(
        problem, estimate, method, "igpe.predict", confidence=confidence, deviations_too=True
    )
    full, runs, numbers = problem, [*base.residuals.runs], base.problem
    if under is not None:
        problem = numbers = _with_values(under, base)
        runs = [_placed(r, problem, base) for r in Residuals(problem, method.integrator).runs]
    of_runs = [list(dict.fromkeys((*r.measurements.names, *r.ivp.states))) for r in runs]
    known = list(dict.fromkeys(n for own in of_runs for n in own))
    given = known if names is None else [names] if isinstance(names, str) else list(names)
    unknown_names = [n for n in given if n not in known]
    if unknown_names or not given:
        raise ProblemError(
            f"Cannot predict these quantities: {unknown_names or 'none given'}. The states and "
            f"measured quantities are {known}."
        )
    tables, measured, notes = [], [], dict[str, str]()
    for k, (run, own) in enumerate(zip(runs, of_runs, strict=True)):
        grid = fine_grid(problem, k) if times is None else _times(times, run)
        noise = problem.experiments[k].error_models
        shown_names = [n for n in given if n in own]
        trajectory = PredictedTrajectory(base, numbers, run, grid, shown_names, noise)
        bands = trajectory.linearised() if replications is None else trajectory.drawn(replications)
        for name, band in zip(trajectory.names, bands, strict=True):
            head = {"experiment": run.name, "name": name, "time": grid}
            tables.append(pd.DataFrame(head).join(band).assign(unit=problem.unit(name)))
        held = held_inputs(problem.experiments[k], float(grid[-1]), "the last predicted time")
        notes = held | notes  # one for each input, about the first experiment
        own_table = run.measurements.table(run.name)
        measured.append(own_table if under is None else own_table.head(0))
    kind = "linearised" if replications is None else f"{len(replications.parameters)} refits"
    table, measurements = (pd.concat(parts, ignore_index=True) for parts in (tables, measured))
    places, unit = np.concatenate([run.index for run in runs]), problem.unit("time")
    curved = _curved(estimate, base, places) if replications is None else ()
    said = (*notes.values(), *_lost(table), *curved, *_left_out(full, base, replications))
    return Prediction(table, measurements, confidence, kind, unit, said)


def _lost(table: pd.DataFrame) -> Iterator[str]:
    """That measurements do not determine some of the predicted quantities."""
    names = table.loc[np.isinf(table["standard_error"]), "name"].unique().tolist()
    if names:
        yield (
            f"The measurements do not determine {in_words(names)}: the band is infinite, and a "
            "dotted line shows the values."
        )


def _left_out(
    problem: Problem, base: Likelihood, replications: Bootstrapped | None
) -> Iterator[str]:
    """Sentences on the constraints, which predictions do not use."""
    if replications is not None:
        points = replications.parameters[list(base.box.names)].to_numpy(dtype=float)
        yield from left_out(problem, "igpe.predict", "replications", points)
        return
    yield from left_out(problem, "igpe.predict", "values", ())
    known = base.errors.covariance
    near = within_reach(problem, base.x, np.where(np.isfinite(known), known, 0.0))
    if near:
        yield (
            f"Some values within {FAR:g} standard errors of the estimate violate "
            f"{in_words(sorted(near))}, so the bands may be too wide."
        )


def _curved(estimate: Any, base: Likelihood, places: IntArray) -> Iterator[str]:
    """That the profile intervals of some of these unknowns are far from linearised ones."""
    if not getattr(estimate, "profiled", ()):
        return
    x, spread = base.x, base.errors.spread
    _, half = spread.limits(spread.parts(np.eye(len(x))), estimate.confidence)
    linear = base.box.clip(np.stack([x - half, x + half]))
    names, shown_names = [], {base.box.names[i] for i in places}
    for one in (p for p in estimate.estimates if p.name in shown_names & estimate.profiled):
        i = base.box.names.index(one.name)
        apart = np.abs(linear[:, i] - (one.lower, one.upper)).max()
        if apart > CURVED * half[i]:
            names.append(one.name)
    if names:
        yield (
            f"The bands are linearised. Linearised intervals of {in_words(names)} differ from "
            "those of the result, which come from profile likelihood."
            + f" {BY_REFITS}"
            * (not base.problem.is_censored)
        )


def _with_values(under: Problem, base: Likelihood) -> Problem:
    """The other problem with the values that are fixed in the estimated one."""
    names, fixed = _names(under, base), base.problem.fixed
    other = under.fixing({n: fixed[own] for n, own in names.items() if own in fixed})
    if unknown := [n for n in other.box.names if names[n] not in base.box.names]:
        raise ProblemError(
            f"The problem given as `under` has the unknowns {unknown}, of which the estimate says "
            f"nothing; its unknowns are {list(base.box.names)}. Give start values as numbers, fix "
            "these unknowns (new_problem.fixing({...})), or name the experiments as those of the "
            "estimate, if parameters are local."
        )
    return other


def _names(under: Problem, base: Likelihood) -> dict[str, str]:
    """Unknown of the other problem -> that of the estimate; empty if there is none.

    The own unknowns of an experiment end with its name only where there are several experiments.
    """

    def full(problem: Problem, name: str) -> str:
        is_bare = len(problem.experiments) == 1 and "@" not in name
        return f"{name}@{problem.experiments[0].name}" if is_bare else name

    every = base.problem.unknowns.names
    known = {full(base.problem, n): n for n in every} | {n: n for n in every}
    return {n: known.get(n) or known.get(full(under, n), "") for n in under.unknowns.names}


def _placed(run: Run, problem: Problem, base: Likelihood) -> Run:
    """The run with its unknowns placed among those of the estimate."""
    names = _names(problem, base)
    places = np.array([base.box.names.index(names[n]) for n in problem.box.names], dtype=int)
    return replace(run, index=places[run.index])


def _times(times: npt.ArrayLike, run: Run) -> FloatArray:
    grid = distinct_times(times)
    if grid[0] < run.ivp.t0:
        raise ProblemError(
            f"The times are {shown(times)}; give numbers, none of them before "
            f"{run.ivp.t0:g}, the start time of experiment {run.name}."
        )
    return grid
