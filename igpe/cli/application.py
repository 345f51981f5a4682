"""What all commands share: arguments and options, errors, output and progress.

Files that a command will write are checked before the work.
"""

import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from igpe.core.errors import EstimationFailed, IgpeError, ProblemError
from igpe.core.markup import filled, printable
from igpe.core.status import Status

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
FORMAT = 1  # of the JSON that commands write


class Commands(TyperGroup):
    """Every error of igpe becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except EstimationFailed as error:
            _complain(error, FAILED)
        except (IgpeError, OSError) as error:
            _complain(error, BAD_INPUT)
        except KeyboardInterrupt:
            _complain("Interrupted.", INTERRUPTED)


def _complain(error: object, code: int) -> NoReturn:
    typer.secho("Error: ", fg="red", bold=True, err=True, nl=False)
    message = printable(str(error))
    is_word = message.partition(" ")[0].isalpha()  # no name of a function or file
    typer.echo(message[:1].upper() + message[1:] if is_word else message, err=True)
    raise SystemExit(code)


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


def _version(requested: bool) -> None:
    if requested:
        from igpe.cli.versions import versions_text

        typer.echo(versions_text())
        raise typer.Exit


@app.callback()
def before(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Versions; solvers found."
        ),
    ] = False,
) -> None:
    """Globally optimal parameters of dynamic models, from measurements."""


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C, so that all files are written."""
    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if is_main else None
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)


CALL = re.compile(r"igpe\.(certify|check|design|profile)\b(?:\((problem)(?:,\s+result)?\))?(?!\()")


def typed(text: str, model: Path) -> str:
    """The text with what to type in a shell where it says what to write in Python."""
    text = CALL.sub(lambda m: f"igpe {m[1]}" + f" {model}" * bool(m[2]), text)
    return text.replace("result.details", "--report")


def answer(
    command: str,
    text: str,
    body: Mapping[str, Any],
    json: Path | None,
    *,
    picture: tuple[Callable[[], Any], Path | None] | None = None,
    page: tuple[Callable[[], Any], Path] | None = None,
    unfinished: str = "",
    marks: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Print the answer, or write it as JSON, or both; and a picture if one is requested.

    The JSON of every command is an object with the same head (command, igpe, format, complete), a
    list of rows `table`, the sentences `notes`, and what else there is to say.

    body        has `table`
    json        file; - is standard output, which then has nothing else; None: no JSON
    picture     what draws it, and the file
    page        what writes a page besides, and its file
    unfinished  what to say of the rest after Ctrl-C, which ends with its exit code; empty if all
                was done
    marks       words of the text -> their colour, where the terminal has colours (and NO_COLOR is
                not set)
    """
    if str(json) != "-":
        shown = _in_lines(printable(text)) if sys.stdout.isatty() else printable(text)
        for words, colour in {} if os.environ.get("NO_COLOR") else marks.items():
            shown = shown.replace(words, typer.style(words, fg=colour, bold=True), 1)
        typer.echo(shown)
    with _uninterrupted():
        _write(command, body, json, picture, page, is_complete=not unfinished)
    if unfinished:
        typer.echo(f"Interrupted. {unfinished}", err=True)
        raise typer.Exit(INTERRUPTED)


def _write(
    command: str,
    body: Mapping[str, Any],
    json: Path | None,
    picture: tuple[Callable[[], Any], Path | None] | None,
    page: tuple[Callable[[], Any], Path] | None,
    *,
    is_complete: bool,
) -> None:
    """Write the files that `answer` names."""
    if json is not None:
        from igpe.cli.versions import own_version
        from igpe.core.files import write
        from igpe.core.json_form import plain, write_json

        head = {"command": command, "igpe": own_version(), "format": FORMAT}
        head |= {"complete": is_complete, "notes": []}
        content = write_json(plain({**head, **body}), None)
        if str(json) == "-":
            typer.echo(content)
        else:
            write(json, content + "\n")
            written(json)
    if picture is not None and picture[1] is not None:
        _save(picture[0], picture[1])
        written(picture[1])
    if page is not None:
        page[0]()
        written(page[1])


def _in_lines(text: str) -> str:
    """Long lines broken between words; what follows a name stands in a column of its own."""
    width, lines = shutil.get_terminal_size().columns, text.splitlines()
    for k, line in enumerate(lines):
        label = (re.match(r"\S+ {2,}", line) or [""])[0]
        if len(line) > width > 2 * len(label):
            lines[k] = filled(line.removeprefix(label), label, " " * len(label), width)
    return "\n".join(lines)


def written(file: Path) -> None:
    """Tell that a file is there."""
    typer.echo(f"Written: {file}", err=True)


def rows(table: Any, index: str = "") -> list[dict[str, Any]]:
    """A DataFrame as rows; its index becomes the column of that name."""
    named = table.rename_axis(index).reset_index() if index else table
    records: list[dict[str, Any]] = named.to_dict("records")
    return records


def _save(drawn: Callable[[], Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")  # whatever a `matplotlibrc` of the current folder names
    with matplotlib.rc_context({"text.usetex": False}):
        drawn().save(path)


if TYPE_CHECKING:
    from igpe.problem.problem import Problem
    from igpe.results.result import Result

CONVERTED = (".csv", ".xlsx", ".parquet", ".tsv", ".html")


def writable(path: Path | None, *endings: str) -> Path | None:
    """Refuse a file before the work if it could not be written after it, or ends otherwise."""
    if path is not None and endings and path.suffix.lower() not in endings:
        raise typer.BadParameter(f"'{path}' does not end in {', '.join(endings)}.")
    if path is not None and str(path) != "-" and not path.resolve().parent.is_dir():
        raise typer.BadParameter(f"the folder '{path.parent}' does not exist. Create it first.")
    if path is not None and path.is_dir():
        raise typer.BadParameter(f"'{path}' is a folder. Give the name of a file to write.")
    return path


def replaceable(
    *endings: str, kind: str = ""
) -> Callable[[typer.Context, Path | None], Path | None]:
    """Make the callback of an option: the file can be written, and if it exists, it is igpe's.

    endings  allowed file extensions; none: all
    kind     text in an existing file that may be replaced, where {} is the command; "": any of igpe
    """

    def checked(context: typer.Context, path: Path | None) -> Path | None:
        from igpe.core.files import require_writable

        if path is not None and writable(path, *endings) and str(path) != "-":
            require_writable(path, kind=kind.format(context.info_name).encode() or None)
        return path

    return checked


def require_new(path: Path, *, force: bool) -> None:
    """Raise ProblemError for an existing file that may not be overwritten."""
    from igpe.core.files import require_writable

    if path.exists() and not force:
        raise ProblemError(
            f"'{path}' already exists. Give another name, or pass --force to overwrite the file."
        )
    require_writable(path, force=True)


def converted_file(path: Path | None) -> Path | None:
    """Check the target of `igpe convert`; a path without extension is a folder for a problem."""
    return writable(path, *CONVERTED) if path is not None and path.suffix else path


def python_file(path: Path | None) -> Path | None:
    """Check the path of a Python file to write."""
    return writable(path, ".py")


Model = Annotated[
    Path, typer.Argument(help="Python file with a function problem(), or PEtab YAML file.")
]
DataFile = Annotated[
    Path | None,
    typer.Option(
        help="CSV, Excel or Parquet table to use instead of the measurements in the file."
    ),
]
ResultFile = Annotated[
    Path | None, typer.Option(help="Stored result (JSON) to use instead of a new estimate.")
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
        callback=replaceable(".pdf", ".png", ".svg"),
        help="Write the plot to this file (.png, .pdf, .svg).",
    ),
]
JsonFile = Annotated[
    Path | None,
    typer.Option(
        callback=replaceable(kind='"command": "{}"'),
        help="Write the result as JSON to this file; use - for standard output.",
    ),
]
page_file = replaceable(".html", ".htm")
Force = Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")]


def problem_of(path: Path, data: Path | None) -> "Problem":
    """The problem of a model file, with the measurements of another table if `data` is given."""
    from igpe.cli.model_file import load_problem

    problem = load_problem(path)
    if data is None:
        return problem
    from igpe.formats.workbooks.reading import table_for
    from igpe.formats.workbooks.workbook import ASSUMED

    elsewhere = "igpe.read_workbook({}) in the model file"

    def table(**more: Any) -> Any:
        return table_for(data, problem, **more)

    measured = resolved(table, elsewhere.format)
    for header, unit in measured.attrs[ASSUMED].items():
        sentence = f"'{data}' gives no unit for '{header}'; igpe assumes {unit}."
        typer.echo(printable(sentence), err=True)
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


def finished(result: "Result") -> "Result":
    """The estimate on which a command builds; raises KeyboardInterrupt if Ctrl-C stopped it."""
    if result.stopped_by is Status.INTERRUPTED:
        raise KeyboardInterrupt
    return result


def estimated(
    path: Path, problem: "Problem", seed: int | None, tell: Any, time_limit: float | None = None
) -> "Result":
    """`igpe.estimate`, with the settings that the file's settings() returns."""
    from igpe.cli.model_file import load_settings
    from igpe.pipeline import estimate

    return estimate(problem, load_settings(path), seed=seed, progress=tell, time_limit=time_limit)
