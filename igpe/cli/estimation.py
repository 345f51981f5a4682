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
    nominal_of,
    problem_of,
    values_of,
    writable,
)
from igpe.cli.output import progress_shown, save, write

if TYPE_CHECKING:
    from igpe.problem import Problem


@app.command()
def check(model: Model, data: DataFile = None, json: JsonFile = None) -> None:
    """Say which parameters can be estimated from the measurements, and why not."""
    from igpe.pipeline import check as analyse

    structure = analyse(problem_of(model, data))
    if json is None:
        typer.echo(str(structure))
    else:
        write(json, structure.to_frame().to_json(orient="index", indent=2))


@app.command()
def estimate(
    model: Model,
    *,
    data: DataFile = None,
    plot: PlotFile = None,
    report: ReportFile = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    json: JsonFile = None,
    starts: Annotated[
        int, typer.Option(min=1, help="Searches for a PEtab problem, of which the best counts.")
    ] = 20,
    petab: Annotated[
        Path | None,
        typer.Option("--petab", callback=writable, help="Write a PEtab parameter table."),
    ] = None,
) -> None:
    """Estimate the parameters globally, in five steps; of a PEtab problem from many starts."""
    from igpe.model_file import is_petab
    from igpe.pipeline import estimate as run

    problem = problem_of(model, data)
    if is_petab(model):
        _best_of_starts(problem, model, (starts, seed), (plot, json, petab))
        return
    if petab is not None:
        raise typer.BadParameter(f"--petab needs a PEtab problem, but '{model}' is none.")
    with progress_shown() as tell:
        result = run(problem, seed=seed, progress=tell)
    if str(json) != "-":
        typer.echo(str(result))
    if json is not None:
        write(json, result.to_json())
    if plot is not None:
        save(result.plot(), plot)
    if report is not None:
        result.report(report)


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
    from igpe.simulation import simulate as run

    problem = problem_of(model, data)
    table = run(problem, {**nominal_of(problem), **values_of(values or [])})
    if json is not None:
        write(json, table.to_json(orient="records", indent=2))
    else:
        typer.echo(table.to_csv(index=False), nl=False)
    if plot is not None:
        from igpe.plots import plot_simulation

        save(plot_simulation(table), plot)


def _best_of_starts(
    problem: "Problem",
    model: Path,
    search: tuple[int, int],
    files: tuple[Path | None, Path | None, Path | None],
) -> None:
    """Estimate from many starts; `files` are those of picture, JSON and parameter table."""
    from igpe.petab.estimate import as_json, estimate_petab, told
    from igpe.petab.export import write_petab_parameters

    plot, json, petab = files
    with progress_shown() as tell:
        tell(f"The best of {search[0]} starts")
        found = estimate_petab(problem, *search)
    if str(json) != "-":
        typer.echo(told(problem, found))
    if json is not None:
        write(json, as_json(problem, found))
    if petab is not None:
        write_petab_parameters(found, model, petab)
    if plot is not None:
        from igpe.plots import plot_simulation
        from igpe.simulation import simulate as run

        save(plot_simulation(run(problem, found.parameters)), plot)
