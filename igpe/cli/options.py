"""Arguments and options of the commands; files are checked before the work."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from igpe.core.markup import printable

if TYPE_CHECKING:
    from igpe.problem.problem import Problem
    from igpe.results.result import Result

PICTURES = (".pdf", ".png", ".svg")
PAGES = (".html", ".htm")
CONVERTED = (".csv", ".xlsx", ".parquet", ".tsv", ".html")


def writable(path: Path | None) -> Path | None:
    """Refuse a file before the work if it could not be written after it."""
    if path is not None and str(path) != "-" and not path.resolve().parent.is_dir():
        raise typer.BadParameter(f"the folder '{path.parent}' does not exist. Create it first.")
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"'{path}' is a folder. Give the name of a file to write.")
    return path


def replaceable(path: Path | None) -> Path | None:
    """Check a path for writing; an existing file must be one of igpe's."""
    return _replaceable(path)


def json_file(context: typer.Context, path: Path | None) -> Path | None:
    """The same for --json: an existing file must be an answer of the same command."""
    return _replaceable(path, f'"command": "{context.info_name}"')


def certificate_file(path: Path | None) -> Path | None:
    """The same for a certificate, which replaces only another one."""
    return _replaceable(path, '"stored": "certificate"')


def _replaceable(path: Path | None, kind: str | None = None) -> Path | None:
    from igpe.core.files import require_writable

    if path is not None and writable(path) and str(path) != "-":
        require_writable(path, kind=None if kind is None else kind.encode())
    return path


def require_new(path: Path, *, force: bool) -> None:
    """Raise ProblemError for an existing file that may not be overwritten."""
    from igpe.core.errors import ProblemError
    from igpe.core.files import require_writable

    if path.exists() and not force:
        raise ProblemError(
            f"'{path}' already exists. Give another name, or pass --force to overwrite the file."
        )
    require_writable(path, force=True)


def picture_file(path: Path | None) -> Path | None:
    return replaceable(_ending(path, PICTURES))


def page_file(path: Path | None) -> Path | None:
    return replaceable(_ending(path, PAGES))


def converted_file(path: Path | None) -> Path | None:
    if path is not None and not path.suffix:  # a folder, of a problem
        return path
    return writable(_ending(path, CONVERTED))


def python_file(path: Path | None) -> Path | None:
    return writable(_ending(path, (".py",)))


def _ending(path: Path | None, known: tuple[str, ...]) -> Path | None:
    if path is not None and path.suffix.lower() not in known:
        raise typer.BadParameter(f"'{path}' does not end in {', '.join(known)}.")
    return path


Model = Annotated[
    Path, typer.Argument(help="Python file with a function problem(), or PEtab YAML file.")
]
DataFile = Annotated[
    Path | None,
    typer.Option(
        "--data", help="CSV, Excel or Parquet table to use instead of the measurements in the file."
    ),
]
ResultFile = Annotated[
    Path | None,
    typer.Option("--result", help="Stored result (JSON) to use instead of a new estimate."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        min=0, help="Seed of the search; default: the seed from settings() in the file, else 0."
    ),
]
PlotFile = Annotated[
    Path | None,
    typer.Option(
        "--plot", callback=picture_file, help="Write the plot to this file (.png, .pdf, .svg)."
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        callback=json_file,
        help="Write the result as JSON to this file; use - for standard output.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def problem_of(path: Path, data: Path | None) -> "Problem":
    from igpe.cli.model_file import load_problem

    problem = load_problem(path)
    if data is None:
        return problem
    from igpe.formats.workbooks.reading import table_for
    from igpe.formats.workbooks.workbook import ASSUMED

    elsewhere = "In the model file, read the table with igpe.read_workbook({})."

    def table(**more: Any) -> Any:
        return table_for(data, problem, **more)

    measured = resolved(table, elsewhere.format)
    for header, unit in measured.attrs[ASSUMED].items():
        said = f"'{data}' gives no unit for '{header}'; igpe assumes {unit}."
        typer.echo(printable(said), err=True)
    return problem.with_data(measured)


def resolved(read: Callable[..., Any], typed: Callable[[str], str]) -> Any:
    """Read files; in a terminal the user resolves what is ambiguous in them.

    typed  what to type, of arguments of `read_workbook` as Python text
    """
    from igpe.formats.workbooks.cells import Question, arguments

    answers: dict[str, Any] = {}
    while True:
        try:
            return read(**answers)
        except Question as question:
            choices = list(question.choices.items())
            if not (sys.stdin.isatty() and sys.stderr.isatty()):
                listed = "; ".join(f"{typed(arguments(how))} ({c})" for c, how in choices)
                raise Question(question.question, question.choices, listed) from None
            typer.echo(fill(printable(question.question), 80, break_on_hyphens=False), err=True)
            for number, (choice, _) in enumerate(choices, start=1):
                typer.echo(f"  {number}  {printable(choice)}", err=True)
            how = typer.prompt("Number", value_proc=partial(_choice, dict(choices)), err=True)
            answers = merged(answers, how)


def _choice(choices: Mapping[str, dict[str, Any]], number: str) -> dict[str, Any]:
    if number.strip() not in map(str, range(1, len(choices) + 1)):
        raise typer.BadParameter(f"type a number from 1 to {len(choices)}.")
    return list(choices.values())[int(number) - 1]


def merged(options: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of `read_workbook` with more of them."""
    both = {k: {**options[k], **v} for k, v in more.items() if isinstance(options.get(k), dict)}
    return {**options, **more, **both}


def estimated(
    path: Path,
    problem: "Problem",
    seed: int | None,
    tell: Any,
    time_limit: float | None = None,
) -> "Result":
    """`igpe.estimate`, with the settings that the file's settings() returns."""
    from igpe.cli.model_file import load_settings
    from igpe.pipeline import estimate

    return estimate(problem, load_settings(path), seed=seed, progress=tell, time_limit=time_limit)
