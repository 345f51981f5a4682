"""igpe profile, report, design: what comes after an estimate."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from igpe.cli.application import app
from igpe.cli.options import (
    DataFile,
    JsonFile,
    Model,
    PlotFile,
    page_file,
    problem_of,
)
from igpe.cli.output import progress_shown, save, write

if TYPE_CHECKING:
    pass


@app.command()
def profile(
    model: Model,
    *,
    result: Annotated[
        Path | None, typer.Option("--result", help="Stored result (JSON), instead of estimating.")
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--name", help="An unknown; all if none is named.")
    ] = None,
    data: DataFile = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Estimate, and give each parameter its exact interval by profile likelihood."""
    from igpe.pipeline import estimate as run
    from igpe.result import Result
    from igpe.uncertainty.profile import profile as follow

    problem = problem_of(model, data)
    with progress_shown() as tell:
        found = run(problem, progress=tell) if result is None else Result.from_json(result)
        profiles = follow(problem, found, names, confidence=confidence, progress=tell)
    if str(json) != "-":
        typer.echo(str(profiles))
    if json is not None:
        write(json, profiles.to_json())
    if plot is not None:
        save(profiles.plot(), plot)


@app.command()
def report(
    result: Annotated[Path, typer.Argument(help="Stored result (JSON), of estimate --json.")],
    page: Annotated[Path, typer.Argument(callback=page_file, help="The page to write (.html).")],
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Estimated parameters",
    date: Annotated[str, typer.Option(help="Stands below the heading as it is given.")] = "",
) -> None:
    """Write a page with all that a stored result holds: answer, fits, residuals, steps."""
    from igpe.result import Result

    Result.from_json(result).report(page, title=title, date=date)


@app.command()
def design(
    model: Model,
    data: DataFile = None,
    plot: PlotFile = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    json: JsonFile = None,
) -> None:
    """Plan the next experiment, with the settings that the file's function design() returns."""
    from inspect import signature

    from igpe.errors import ProblemError
    from igpe.model_file import load_design
    from igpe.pipeline import estimate as run
    from igpe.planning.design import design as plan

    problem, settings = problem_of(model, data), load_design(model)
    known = set(signature(plan).parameters) - {"problem"}
    if strangers := sorted(set(settings) - known):
        raise ProblemError(
            f"design() in '{model}' returned {strangers}, which are no settings of igpe.design; it "
            f"has {sorted(known)}."
        )
    with progress_shown() as tell:
        at = settings.pop("parameters", None) or run(problem, seed=seed, progress=tell)
        tell("Planning the next experiment")
        found = plan(problem, at, **{"seed": seed} | settings)
    if str(json) != "-":
        typer.echo(str(found))
    if json is not None:
        write(json, found.to_json())
    if plot is not None:
        save(found.plot(), plot)
