"""igpe check, estimate, simulate: what a problem says, its estimate, its course."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from igpe.cli.application import app
from igpe.cli.options import (
    DataFile,
    JsonFile,
    Model,
    PlotFile,
    ReportFile,
    Seed,
    estimated,
    nominal_of,
    problem_of,
    replaceable,
    values_of,
)
from igpe.cli.output import answer, interrupted, progress_shown, rows, save

if TYPE_CHECKING:
    from igpe.problem.problem import Problem


@app.command()
def check(
    model: Model, data: DataFile = None, json: JsonFile = None, plot: PlotFile = None
) -> None:
    """Say which parameters can be estimated from the measurements, and why not."""
    from igpe.pipeline import check as analyse

    structure = analyse(problem_of(model, data))
    answer("check", str(structure), {"table": rows(structure.to_frame(), "name")}, json)
    save(structure.plot, plot)


@app.command()
def estimate(
    model: Model,
    *,
    data: DataFile = None,
    plot: PlotFile = None,
    report: ReportFile = None,
    seed: Seed = None,
    json: JsonFile = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Effort for a PEtab problem: 5 times as many random starts.")
    ] = 20,
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds, after which the best so far is the result.")
    ] = None,
    petab: Annotated[
        Path | None,
        typer.Option("--petab", callback=replaceable, help="Write a PEtab parameter table."),
    ] = None,
) -> None:
    """Estimate the parameters globally, in five steps; of a PEtab problem from many starts.

    A function settings() in the file may return other igpe.Settings.

    Ctrl-C ends with the best found so far, if there is one.
    """
    from igpe.cli.model_file import is_petab
    from igpe.core.status import Status

    problem = problem_of(model, data)
    if is_petab(model):
        if report is not None:
            raise typer.BadParameter("--report is about the five steps; of PEtab problems: --json.")
        if time_limit is not None:
            raise typer.BadParameter("--time-limit is about the five steps; of PEtab: --starts.")
        _best_of_starts(problem, model, (starts, seed or 0), (plot, json, petab))
        return
    if petab is not None:
        raise typer.BadParameter(f"--petab needs a PEtab problem, but '{model}' is none.")
    with progress_shown() as tell:
        result = estimated(model, problem, seed, tell, time_limit)
    complete = result.status is not Status.INTERRUPTED
    body = result.to_dict() | {"table": rows(result.to_frame(), "name")}
    answer("estimate", str(result), body, json, complete=complete)
    save(result.plot, plot)
    if report is not None:
        result.report(report)
    if not complete:
        interrupted("The estimates are the best found so far.")


@app.command()
def simulate(
    model: Model,
    values: Annotated[
        list[str] | None, typer.Option("--set", help="Value of an unknown, as k1=2.5.")
    ] = None,
    data: DataFile = None,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Integrate the model at given parameters and print a table (CSV)."""
    from igpe.dynamics.simulation import simulate as run
    from igpe.results.plots.fit import plot_simulation

    problem = problem_of(model, data)
    given = {**nominal_of(problem), **values_of(values or [])}
    table = run(problem, given)
    text = table.to_csv(index=False).removesuffix("\n")
    answer("simulate", text, {"parameters": given, "table": rows(table)}, json)
    save(lambda: plot_simulation(table), plot)


def _best_of_starts(
    problem: "Problem",
    model: Path,
    search: tuple[int, int],
    files: tuple[Path | None, Path | None, Path | None],
) -> None:
    """Estimate from many starts; `files` are those of picture, JSON and parameter table."""
    from igpe.core.status import Status
    from igpe.dynamics.simulation import simulate as run
    from igpe.formats.petab.errors import as_dict, estimate_petab, petab_errors, told
    from igpe.formats.petab.export import write_petab_parameters
    from igpe.results.plots.fit import plot_simulation

    plot, json, petab = files
    with progress_shown() as tell:
        tell("Iterated search")
        found = estimate_petab(problem, *search)
        errors = petab_errors(problem, found)
    complete = found.status is not Status.INTERRUPTED
    body = as_dict(problem, found, errors)
    answer("estimate", told(problem, found, errors), body, json, complete=complete)
    if petab is not None:
        write_petab_parameters(found, model, petab, errors)
    save(lambda: plot_simulation(run(problem, found.parameters)), plot)
    if not complete:
        interrupted("The estimates are the best found so far.")
