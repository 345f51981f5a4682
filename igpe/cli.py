"""The command line: check, estimate, profile, simulate and design for a model file; reports.

A model file is a Python file with a function `problem()` that returns an `igpe.Problem`.
Exit codes: 0 done, 1 nothing could be estimated, 2 the input is not usable, 130 interrupted.
Answers go to standard output, progress and errors to standard error.
"""

# Typer reads annotations at run time, and everything slow is imported inside the commands, so that
# `igpe --help` answers at once.
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from igpe.problem import Problem

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
PICTURES = (".pdf", ".png", ".svg")
PAGES = (".html", ".htm")


class Commands(TyperGroup):
    """Every error of igpe becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        from igpe.errors import EstimationFailed, IgpeError

        try:
            return super().invoke(ctx)
        except EstimationFailed as error:
            _complain(error, FAILED)
        except (IgpeError, OSError) as error:
            _complain(error, BAD_INPUT)
        except KeyboardInterrupt:
            _complain("Interrupted.", INTERRUPTED)


def _writable(path: Path | None) -> Path | None:
    """Refuse before the work what could not be written after it."""
    if path is not None and str(path) != "-" and not path.resolve().parent.is_dir():
        raise typer.BadParameter(f"there is no folder '{path.parent}'; make it first.")
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"'{path}' is a folder; give the name of a file to write.")
    return path


def _picture(path: Path | None) -> Path | None:
    return _writable(_ending(path, PICTURES))


def _page(path: Path | None) -> Path | None:
    return _writable(_ending(path, PAGES))


def _ending(path: Path | None, known: tuple[str, ...]) -> Path | None:
    if path is not None and path.suffix.lower() not in known:
        raise typer.BadParameter(f"'{path}' does not end in {', '.join(known)}.")
    return path


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Model = Annotated[Path, typer.Argument(help="Python file with a function problem().")]
DataFile = Annotated[
    Path | None,
    typer.Option("--data", help="CSV, Excel or Parquet table that replaces the measurements."),
]
PlotFile = Annotated[
    Path | None,
    typer.Option("--plot", callback=_picture, help="Write a picture (.png, .pdf, .svg)."),
]
ReportFile = Annotated[
    Path | None,
    typer.Option("--report", callback=_page, help="Write a page with all that was found (.html)."),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", callback=_writable, help="Write JSON to this file; - is standard output."
    ),
]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("igpe"))
        except PackageNotFoundError:
            typer.echo("igpe is not installed; it runs from its source.")
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which igpe.")
    ] = False,
) -> None:
    """Globally optimal parameters of dynamic models, from measurements."""


@app.command()
def check(model: Model, data: DataFile = None, json: JsonFile = None) -> None:
    """Say which parameters can be estimated from the measurements, and why not."""
    from igpe.pipeline import check as analyse

    structure = analyse(_problem(model, data))
    if json is None:
        typer.echo(str(structure))
    else:
        _write(json, structure.to_frame().to_json(orient="index", indent=2))


@app.command()
def estimate(
    model: Model,
    *,
    data: DataFile = None,
    plot: PlotFile = None,
    report: ReportFile = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    json: JsonFile = None,
) -> None:
    """Estimate the parameters globally, in five steps."""
    from igpe.pipeline import estimate as run

    problem = _problem(model, data)
    with _progress() as tell:
        result = run(problem, seed=seed, progress=tell)
    if str(json) != "-":
        typer.echo(str(result))
    if json is not None:
        _write(json, result.to_json())
    if plot is not None:
        _save(result.plot(), plot)
    if report is not None:
        result.report(report)


@app.command()
def report(
    result: Annotated[Path, typer.Argument(help="Stored result (JSON), of estimate --json.")],
    page: Annotated[Path, typer.Argument(callback=_page, help="The page to write (.html).")],
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Estimated parameters",
    date: Annotated[str, typer.Option(help="Stands below the heading as it is given.")] = "",
) -> None:
    """Write a page with all that a stored result holds: answer, fits, residuals, steps."""
    from igpe.result import Result

    Result.from_json(result).report(page, title=title, date=date)


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

    problem = _problem(model, data)
    with _progress() as tell:
        found = run(problem, progress=tell) if result is None else Result.from_json(result)
        profiles = follow(problem, found, names, confidence=confidence, progress=tell)
    if str(json) != "-":
        typer.echo(str(profiles))
    if json is not None:
        _write(json, profiles.to_json())
    if plot is not None:
        _save(profiles.plot(), plot)


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

    problem = _problem(model, data)
    table = run(problem, _values(values or []))
    if json is not None:
        _write(json, table.to_json(orient="records", indent=2))
    else:
        typer.echo(table.to_csv(index=False), nl=False)
    if plot is not None:
        from igpe.plots import plot_simulation

        _save(plot_simulation(table), plot)


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

    problem, settings = _problem(model, data), load_design(model)
    known = set(signature(plan).parameters) - {"problem"}
    if strangers := sorted(set(settings) - known):
        raise ProblemError(
            f"design() in '{model}' returned {strangers}, which are no settings of igpe.design; it "
            f"has {sorted(known)}."
        )
    with _progress() as tell:
        at = settings.pop("parameters", None) or run(problem, seed=seed, progress=tell)
        tell("Planning the next experiment")
        found = plan(problem, at, **{"seed": seed} | settings)
    if str(json) != "-":
        typer.echo(str(found))
    if json is not None:
        _write(json, found.to_json())
    if plot is not None:
        _save(found.plot(), plot)


def main() -> None:
    """Run the command line."""
    app()


def _complain(error: object, code: int) -> NoReturn:
    typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
    typer.echo(str(error), err=True)
    raise SystemExit(code)


def _problem(path: Path, data: Path | None) -> "Problem":
    from igpe.model_file import load_problem

    problem = load_problem(path)
    return problem if data is None else problem.with_data(data)


def _values(given: list[str]) -> dict[str, float]:
    from igpe.errors import ProblemError

    values = {}
    for one in given:
        name, _, number = one.rpartition("=")
        try:
            values[name.strip()] = float(number)
        except ValueError:
            raise ProblemError(f"--set {one} is not of the form name=number.") from None
    return values


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        typer.echo(text)
    else:
        path.write_text(text + "\n", encoding="utf-8")


def _save(axes: Any, path: Path) -> None:
    axes[0].figure.savefig(path)


def _progress() -> Any:
    """A spinner on standard error that shows the step and the time it has taken."""
    from contextlib import contextmanager

    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    @contextmanager
    def shown() -> "Iterator[Any]":
        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        console = Console(stderr=True)
        hidden = not console.is_terminal  # else a log would begin with an empty line
        with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
            task = progress.add_task("Reading the model")
            yield lambda sentence: progress.update(task, description=sentence)

    return shown()
