"""igpe new: a problem file to start from, made from the user's own tables."""

from pathlib import Path
from typing import Annotated

import typer

from igpe.cli.application import app
from igpe.cli.completion import tables
from igpe.cli.options import JsonFile, require_new, writable


def _python_file(path: Path) -> Path:
    if path.suffix != ".py":
        raise typer.BadParameter(f"'{path}' is no Python file; give a name that ends in .py.")
    writable(path)
    return path


@app.command(context_settings={"allow_extra_args": True})
def new(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(callback=_python_file, help="The problem file to write (.py).")
    ],
    *,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            "--data",
            autocompletion=tables,
            help="Table of measurements (CSV, Excel, Parquet); several are several experiments.",
        ),
    ] = None,
    reaction: Annotated[
        list[str] | None,
        typer.Option("--reaction", help="As 'A + B -> C' or 'A <-> B', in quotes; repeat it."),
    ] = None,
    time: Annotated[str, typer.Option(help="The column of times, if it is not clear.")] = "",
    experiment: Annotated[
        str, typer.Option(help="The column that tells several experiments of a table apart.")
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option("--column", help="What a column is in the model, as 'educt / (mol/L)=A'."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the file if it is there.")
    ] = False,
    json: JsonFile = None,
) -> None:
    """Write a problem file to start from: your table, start values, and a model to adapt.

    igpe new my_problem.py --data my.csv --reaction "A -> B" --reaction "B -> C"
    """
    from igpe.cli.output import answer
    from igpe.core.errors import ProblemError
    from igpe.core.files import write
    from igpe.formats.draft.draft import draft
    from igpe.formats.draft.headers import Asked

    if context.args:
        raise ProblemError(
            f"'{' '.join(context.args)}' is one word too many. Reactions stand in quotes, as "
            "--reaction 'A -> B': the shell takes > for a file."
        )
    if not data:
        raise ProblemError(
            f"Say which table holds the measurements: igpe new {file} --data my.csv. It needs a "
            "column of times, and one for each quantity."
        )
    require_new(file, force=force)
    asked = Asked(time, experiment, _names(column or []))
    made = draft(data, _reactions(reaction or []), asked, file)
    write(file, made.text, force=force)
    said = [
        f"Written: {file}",
        *made.remarks,
        "",
        "Look through it, then:",
        f"  igpe check {file}",
        f"  igpe estimate {file} --report report.html",
    ]
    columns = [c.__dict__ for c in (made.sheet.time, *made.sheet.measured)]
    body = {"file": str(file), "notes": made.remarks, "table": columns}
    answer("new", "\n".join(said), body, json)


def _names(given: list[str]) -> dict[str, str]:
    from igpe.core.errors import ProblemError

    found = {}
    for one in given:
        header, _, name = one.rpartition("=")
        if not header or not name.strip().isidentifier():
            raise ProblemError(
                f"--column '{one}' is not of the form HEADER=NAME, with a name of letters, digits "
                "and underscores: --column 'c(A) [mol/L]=A'."
            )
        found[header] = name.strip()
    return found


def _reactions(given: list[str]) -> list[str]:
    from igpe.core.errors import ModelError
    from igpe.formats.kinetics.equation import read_equation

    reactions = [part.strip() for one in given for part in one.split(";") if part.strip()]
    for reaction in reactions:
        try:
            read_equation(reaction)
        except ModelError as error:
            raise ModelError(
                f"{error} In quotes, as --reaction 'A -> B': the shell takes > for a file."
                if "arrows" in str(error)
                else str(error)
            ) from None
    return reactions
