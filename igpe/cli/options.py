"""Arguments and options of the commands, checked before the work; problems in model files."""

import runpy
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from igpe.core.errors import IgpeError, ProblemError
from igpe.core.markup import printable
from igpe.core.names import closest_file
from igpe.estimation.settings import Settings
from igpe.formats.petab.read import read_petab
from igpe.problem.problem import Problem


def load_problem(path: Path) -> Problem:
    """The `Problem` that the file's `problem()` returns, or that a PEtab YAML file describes.

    raises ProblemError if the file is missing, fails, or has no such function; what `read_petab`
           raises
    """
    if is_petab(path):
        return read_petab(path)
    problem: Problem = _returned(path, "problem", Problem, "an igpe.Problem")
    return problem


def load_design(path: Path) -> dict[str, Any]:
    """The settings for `igpe.design` that the file's `design()` returns.

    raises ProblemError if the file is missing, fails, or has no such function
    """
    wanted = "the settings of igpe.design as a dict: {'free': {...}, 'times': [...]}"
    settings = _returned(path, "design", Mapping, wanted)
    return {str(name): value for name, value in settings.items()}


def load_settings(path: Path) -> Settings | None:
    """The settings of `igpe.estimate` that the file's `settings()` returns; None if it has none.

    raises ProblemError if the file is missing, fails, or returns something else; SolverMissing if
           they choose a solver that is not installed
    """
    if is_petab(path):
        return None
    settings: Settings | None = _returned(path, "settings", Settings, "igpe.Settings(...)")
    if settings is not None:
        settings.require_solvers()
    return settings


def _returned(path: Path, name: str, kind: type, wanted: str) -> Any:
    """What a function of the file returns, of this kind; None where settings() is not there."""
    if not path.is_file():
        raise ProblemError(
            f"There is no model file '{path}' (looked from {Path.cwd()}).{closest_file(path)}"
        )
    before = list(sys.path)
    sys.path.insert(0, str(path.parent.resolve()))  # as if the file were run by Python
    try:
        function = runpy.run_path(str(path)).get(name)
        returned = function() if callable(function) else None
    except IgpeError:
        raise
    except Exception as error:
        raise ProblemError(f"The model file '{path}' failed{_reason(path, error)}") from error
    finally:
        sys.path[:] = before
    is_optional = name == "settings"
    if not callable(function) and not is_optional:
        raise ProblemError(f"'{path}' has no function {name}(); write one that returns {wanted}.")
    if not isinstance(returned, kind) and not (is_optional and returned is None):
        raise ProblemError(
            f"{name}() in '{path}' returned a value of type {type(returned).__name__}; wanted "
            f"{wanted}."
        )
    return returned


def is_petab(path: Path) -> bool:
    """Whether a model file is a PEtab problem, by its suffix."""
    return path.suffix.lower() in {".yaml", ".yml"}


def _reason(path: Path, error: Exception) -> str:
    """The last line of the model file itself on the way to the error, and the error."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == str(path)]
    text = str(error)
    if isinstance(error, SyntaxError):
        lines += [error.lineno] if error.filename == str(path) else []
        text = f"{error.msg}: {error.text.strip()}" if error.text else text
    return f"{f' in line {lines[-1]}' if lines else ''}: {type(error).__name__}: {text}"


if TYPE_CHECKING:
    from igpe.problem.problem import Problem
    from igpe.results.result import Result

PICTURES = (".pdf", ".png", ".svg")
PAGES = (".html", ".htm")
CONVERTED = (".csv", ".xlsx", ".parquet", ".tsv", ".html")


def writable(path: Path | None) -> Path | None:
    """Refuse before the work what could not be written after it."""
    if path is not None and str(path) != "-" and not path.resolve().parent.is_dir():
        raise typer.BadParameter(f"there is no folder '{path.parent}'; make it first.")
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"'{path}' is a folder; give the name of a file to write.")
    return path


def replaceable(path: Path | None) -> Path | None:
    """The same, and a file that is there must be one of igpe's."""
    from igpe.core.files import require_writable

    if path is not None and writable(path) and str(path) != "-":
        require_writable(path)
    return path


def require_new(path: Path, *, force: bool) -> None:
    """Raises ProblemError for a file that is there and may not be overwritten."""
    from igpe.core.errors import ProblemError
    from igpe.core.files import require_writable

    if path.exists() and not force:
        raise ProblemError(f"'{path}' is there already; give another name, or --force.")
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
    typer.Option("--data", help="CSV, Excel or Parquet table that replaces the measurements."),
]
ResultFile = Annotated[
    Path | None, typer.Option("--result", help="Stored result (JSON), instead of estimating.")
]
Seed = Annotated[
    int | None, typer.Option(min=0, help="Seed of the search; 0, or that of the file's settings().")
]
PlotFile = Annotated[
    Path | None,
    typer.Option("--plot", callback=picture_file, help="Write a picture (.png, .pdf, .svg)."),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json", callback=replaceable, help="Write JSON to this file; - is standard output."
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite the file if it is there.")]


def problem_of(path: Path, data: Path | None) -> "Problem":
    from igpe.cli.options import load_problem

    problem = load_problem(path)
    if data is None:
        return problem
    from igpe.formats.workbooks.reading import table_for

    elsewhere = "Read the table in the model file, with igpe.read_workbook({})."

    def table(**more: Any) -> Any:
        return table_for(data, problem, **more)

    return problem.with_data(resolved(table, elsewhere.format))


def resolved(read: Callable[..., Any], typed: Callable[[str], str]) -> Any:
    """What a reader of files makes of them; in a terminal the user answers what they leave open.

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
    from igpe.cli.options import load_settings
    from igpe.pipeline import estimate

    return estimate(problem, load_settings(path), seed=seed, progress=tell, time_limit=time_limit)
