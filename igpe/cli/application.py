"""The application: errors, output and progress of the commands."""

import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from igpe.core.markup import filled, printable

FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130
FORMAT = 1  # of the JSON that commands write


class Commands(TyperGroup):
    """Every error of igpe becomes one message and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        from igpe.core.errors import EstimationFailed, IgpeError

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


def _version(wanted: bool) -> None:
    if wanted:
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
    """Print the answer, or write it as JSON, or both; and a picture where one is asked for.

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
    found: list[dict[str, Any]] = named.to_dict("records")
    return found


def _save(drawn: Callable[[], Any], path: Path) -> None:
    import matplotlib

    matplotlib.use("agg")  # whatever a `matplotlibrc` of the current folder names
    with matplotlib.rc_context({"text.usetex": False}):
        drawn().save(path)
