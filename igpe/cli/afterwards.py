"""igpe profile, report, design: what comes after an estimate."""

from pathlib import Path
from typing import Annotated

import typer

from igpe.cli.application import app
from igpe.cli.completion import results
from igpe.cli.options import (
    DataFile,
    JsonFile,
    Model,
    PlotFile,
    Seed,
    StoredResult,
    estimated,
    page_file,
    problem_of,
)
from igpe.cli.output import answer, interrupted, progress_shown, rows, save


@app.command()
def profile(
    model: Model,
    *,
    result: Annotated[
        Path | None,
        typer.Option(
            "--result", autocompletion=results, help="Stored result (JSON), instead of estimating."
        ),
    ] = None,
    names: Annotated[
        list[str] | None, typer.Option("--name", help="An unknown; all if none is named.")
    ] = None,
    data: DataFile = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    plot: PlotFile = None,
    json: JsonFile = None,
) -> None:
    """Estimate, and give each parameter its exact interval by profile likelihood.

    Ctrl-C ends with the profiles that are finished, if there are any.
    """
    from igpe.results.result import Result
    from igpe.uncertainty.profile import profile as follow

    problem = problem_of(model, data)
    with progress_shown() as tell:
        found = (
            estimated(model, problem, None, tell) if result is None else Result.from_json(result)
        )
        profiles = follow(problem, found, names, confidence=confidence, progress=tell)
    body = profiles.to_dict() | {"table": rows(profiles.to_frame(), "name")}
    answer("profile", str(profiles), body, json, complete=profiles.complete)
    save(profiles.plot, plot)
    if not profiles.complete:
        interrupted("The profiles above were finished before.")


@app.command()
def report(
    result: StoredResult,
    page: Annotated[Path, typer.Argument(callback=page_file, help="The page to write (.html).")],
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Estimated parameters",
    date: Annotated[str, typer.Option(help="Stands below the heading as it is given.")] = "",
    json: JsonFile = None,
) -> None:
    """Write a page with all that a stored result holds: answer, fits, residuals, steps."""
    from igpe.results.result import Result

    stored = Result.from_json(result)
    stored.report(page, title=title, date=date)
    body = {"file": str(page), "table": rows(stored.to_frame(), "name")}
    answer("report", f"Written: {page}", body, json)


@app.command()
def design(
    model: Model,
    data: DataFile = None,
    plot: PlotFile = None,
    seed: Seed = None,
    json: JsonFile = None,
) -> None:
    """Plan the next experiment, with the settings that the file's function design() returns."""
    from inspect import signature

    from igpe.cli.model_file import load_design
    from igpe.core.errors import ProblemError
    from igpe.planning.design import design as plan

    problem, settings = problem_of(model, data), load_design(model)
    known = set(signature(plan).parameters) - {"problem"}
    if strangers := sorted(set(settings) - known):
        raise ProblemError(
            f"design() in '{model}' returned {strangers}, which are no settings of igpe.design; it "
            f"has {sorted(known)}."
        )
    with progress_shown() as tell:
        at = settings.pop("parameters", None) or estimated(model, problem, seed, tell)
        tell("Planning the next experiment")
        found = plan(problem, at, **{"seed": seed or 0} | settings)
    answer("design", str(found), found.to_dict() | {"table": rows(found.table())}, json)
    save(found.plot, plot)
