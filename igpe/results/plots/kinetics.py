"""Plots of reaction kinetics: rates over time, and Arrhenius' lines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arrays import FloatArray
from igpe.core.errors import ProblemError
from igpe.core.markup import label
from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.simulation import fine_grid, simulate_all
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem
from igpe.results.plots.axes import BLUE, GREY, Plot, axes_for, legend_above, looks, panels
from igpe.results.plots.fit import experiment_handles
from igpe.results.residual_table import sigma_known
from igpe.results.result_data import ResultData

TEMPERATURE = "T"  # the reactors' name of it, K
NO_RATES = "Pass the names of the model's time-dependent Expressions: names=['r1']."


def plot_rates(result: ResultData, problem: Problem, names: Sequence[str] | None = None) -> Plot:
    """Plot the reaction rates over time, and the slopes of the measured quantities.

    Lines show the rates and slopes of the model. Dotted lines show the slopes of the smoothed
    measurements; step 3 fits the model to these slopes. igpe computes all slopes from the
    differences between neighbouring points of each curve on a fine grid.

    result   a result of `igpe.estimate`
    problem  the problem whose parameters were estimated
    names    names of time-dependent quantities of the model; None: the rates `r1`, `r2`, ... of a
             reactor of `igpe.kinetics`
    raises   ProblemError if no names are given and the model is not a reactor
    """
    steps = getattr(problem.model, "steps", ())
    names = [f"r{k}" for k in range(1, len(steps) + 1)] if names is None else list(names)
    if not names:
        raise ProblemError(f"The model is not a reactor of igpe.kinetics. {NO_RATES}")
    from matplotlib.lines import Line2D  # noqa: PLC0415 - slow to import

    table = _rate_table(result, problem, names)
    drawn, shown = panels(table, None, time_unit=result.time_unit)
    every = looks(table["experiment"])
    for panel, step in zip(shown, [*steps, *[None] * len(shown)], strict=False):
        for name, course in panel.rows.groupby("experiment", sort=False):
            look = every[str(name)]
            line = {"linestyle": look.line, "color": look.color}
            panel.axes.plot(course["time"], course["value"], **line)
            if course["smoothed"].notna().any():
                color = "black" if len(every) == 1 else look.color
                panel.axes.plot(course["time"], course["smoothed"], ":", color=color)
        if step is not None and panel.name in names:
            panel.axes.set_title(label(step.text), fontsize=9)
    marks = {"model": Line2D([], [], color=GREY if len(every) > 1 else BLUE)}
    if table["smoothed"].notna().any():
        dotted = Line2D([], [], linestyle=":", color=GREY if len(every) > 1 else "black")
        marks["slope of the smoothed measurements"] = dotted
    legend_above(drawn, None, experiment_handles(every, marker="") | marks)
    return Plot(drawn)


def _rate_table(result: ResultData, problem: Problem, names: Sequence[str]) -> pd.DataFrame:
    """Columns experiment, name, unit, time, value, and smoothed where slopes were measured."""
    with_rates, values = problem.reporting(names), result.parameters
    grids = tuple(fine_grid(problem, k) for k in range(len(problem.experiments)))
    free = {n: values[n] for n in with_rates.box.names}

    def per_time(name: str) -> str:
        unit = problem.unit(name)
        return f"{unit}/{result.time_unit}" if unit and result.time_unit else ""

    # Pyomo finds no unit of a rate with Arrhenius' exponential; a reactor's is per volume and time.
    species = next(iter(getattr(problem.model, "species", ())), "")
    rows, runs = [], simulate_all(with_rates, Sundials(), free, grids)
    for e, (_, run) in zip(with_rates.experiments, runs, strict=True):
        for name in names:
            course = {"time": run.times, "value": run.measured[:, e.measured.index(name)]}
            kind = {
                "experiment": e.name,
                "name": name,
                "unit": problem.unit(name) or per_time(species),
            }
            rows.append(pd.DataFrame(kind | course))
    for (run_name, quantity), curve in result.curves.groupby(["experiment", "name"], sort=False):
        course = {
            "value": np.gradient(curve["fitted"], curve["time"]),
            "smoothed": np.gradient(curve["smoothed"], curve["time"]),
        }
        slopes = pd.DataFrame({"time": curve["time"].to_numpy()} | course)
        kind = {"name": f"d {quantity} / dt", "unit": per_time(str(quantity))}
        rows.append(slopes.assign(experiment=str(run_name), **kind))
    return pd.concat(rows, ignore_index=True)


def plot_arrhenius(
    result: ResultData,
    problem: Problem,
    *,
    temperatures: tuple[float, float] | None = None,
    table: pd.DataFrame | None = None,
    axes: Any = None,
) -> Plot:
    """Plot the logarithms of rate constants against 1/T, with linearised confidence bands.

    result        a result of `igpe.estimate`
    problem       problem whose model is a reactor of `igpe.kinetics` with `Arrhenius` constants
    temperatures  lowest and highest temperature, K; None: the range of the experiments, as given
                  or measured
    table         estimates at individual temperatures, drawn as markers; its columns are `constant`
                  (the name of the factor), `temperature` (K), `value` and, if known, `lower` and
                  `upper`
    axes          matplotlib axes; None: draw in a new figure
    raises        ProblemError if the model has no `Arrhenius` constants, or no temperature is known
    """
    laws = [c for s in getattr(problem.model, "steps", ()) for c, _ in s.law.constants(s.equation)]
    constants = {str(c.factor): c for c in laws if hasattr(c, "reference")}
    if not constants:
        raise ProblemError(
            "The model has no Arrhenius constants. Write them as igpe.kinetics.Arrhenius('k1', "
            "'E1', 350.0) in the rate laws of a reactor."
        )
    known = list(map(float, temperatures or _temperatures(problem) or _fitted(result)))
    if not known:
        raise ProblemError(
            "The temperatures of the experiments are neither given nor measured. Pass a range: "
            "temperatures=(300.0, 350.0)."
        )
    low, high = min(known), max(known)
    if low == high:
        low, high = low - 10.0, high + 10.0
    t = np.linspace(low, high, 100)
    ax, every = axes_for(1, axes, (5.0, 3.8))[0], looks(constants)
    for name, constant in constants.items():
        line, half = _line(result, constant, t)
        color = every[name].color
        ax.plot(1000 / t, line, every[name].line, color=color, label=label(name))
        ax.fill_between(1000 / t, line - half, line + half, color=color, alpha=0.2, linewidth=0)
        at = np.array(sorted(set(known)))
        if table is None:  # where experiments are
            ax.plot(1000 / at, _line(result, constant, at)[0], every[name].marker, color=color)
            continue
        own = table[table["constant"] == name]
        ends = [np.log(own["value"]) - np.log(own[c]) for c in ("lower", "upper") if c in own]
        error = np.abs(np.array(ends)) if ends else None
        mark = {"fmt": every[name].marker, "color": color, "markerfacecolor": "none"}
        ax.errorbar(1000 / own["temperature"], np.log(own["value"]), yerr=error, **mark)
    ax.set(xlabel="1000 K / T", ylabel="ln k")
    legend_above([ax], axes)
    return Plot([ax])


def _line(result: ResultData, constant: Any, t: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The logarithm of a constant at temperatures (n,), and half of its confidence band."""
    values = result.parameters
    factor, energy = (values.get(v, v) for v in (constant.factor, constant.energy))
    by = 1 / t - 1 / constant.reference
    line = np.log(float(factor)) - float(energy) / constant.gas * by
    names = [p.name for p in result.estimates[: len(result.covariance)]]
    change = np.zeros((len(t), len(names)))
    slopes = {constant.factor: 1 / float(factor), constant.energy: -by / constant.gas}
    for name, slope in slopes.items():
        if name in names:
            change[:, names.index(name)] = slope
    own = change.any(axis=0)
    covariance = result.covariance[np.ix_(own, own)]
    variance = np.sum(change[:, own] @ covariance * change[:, own], axis=1)
    level = 0.5 + result.confidence / 2
    is_known = sigma_known(result.points)
    quantile = special.ndtri(level) if is_known else special.stdtrit(result.degrees, level)
    return line, np.asarray(quantile * np.sqrt(variance))


def _fitted(result: ResultData) -> list[float]:
    """The lowest and the highest fitted temperature, where temperatures are measured."""
    fitted = result.points.loc[result.points["name"] == TEMPERATURE, "fitted"].dropna()
    return [float(fitted.min()), float(fitted.max())] if len(fitted) else []


def _temperatures(problem: Problem) -> list[float]:
    """Temperatures of the experiments, K; for a programme its lowest and highest."""
    degrees: list[float] = []
    for e in problem.experiments:
        given = e.inputs.get(TEMPERATURE, getattr(problem.model, "temperature", None))
        if isinstance(given, Table):
            degrees += [float(np.min(given.values)), float(np.max(given.values))]
        elif isinstance(given, (int, float)):
            degrees.append(float(given))
    return degrees
