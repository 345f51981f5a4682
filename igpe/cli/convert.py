"""igpe convert: a stored answer or a table in another form."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from igpe.cli.application import app
from igpe.cli.completion import models, tables_and_results
from igpe.cli.options import JsonFile, converted_file, require_new
from igpe.cli.output import answer, rows

if TYPE_CHECKING:
    import pandas as pd


@app.command()
def convert(
    source: Annotated[
        Path,
        typer.Argument(
            autocompletion=tables_and_results,
            help="What a command wrote with --json, or a table (CSV, Excel, Parquet).",
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            callback=converted_file,
            help=".csv, .xlsx, .parquet: its table; of an estimate also .tsv: a PEtab parameter "
            "table, .html: the report.",
        ),
    ],
    petab: Annotated[
        Path | None,
        typer.Option(
            "--petab",
            autocompletion=models,
            help="PEtab problem (YAML) whose parameter table gets the estimates, for .tsv.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite the target if it is there.")
    ] = False,
    json: JsonFile = None,
) -> None:
    """Write a stored answer as a table, PEtab parameters or a report; a table in another format.

    igpe convert result.json estimates.xlsx
    """
    from igpe.core.errors import ProblemError
    from igpe.core.files import write

    require_new(target, force=force)
    if petab is not None and target.suffix.lower() != ".tsv":
        raise ProblemError(f"--petab writes a parameter table (.tsv), but '{target}' is none.")
    ending = target.suffix.lower()
    if ending == ".html":
        result = _stored(source, ".html")
        write(target, result.report(), force=force)
        table = rows(result.to_frame(), "name")
    elif ending == ".tsv":
        frame = _petab(source, petab)
        write(target, frame.to_csv(sep="\t", index=False), force=force)
        table = rows(frame)
    else:
        frame = _table(source)
        write(target, _content(frame, target), force=force)
        table = rows(frame)
    answer("convert", f"Written: {target}", {"file": str(target), "table": table}, json)


def _stored(source: Path, wanted: str) -> Any:
    from igpe.core.errors import DataError
    from igpe.results.result import Result

    if source.suffix.lower() != ".json":
        raise DataError(
            f"'{source}' is no stored result, which {wanted} is made of; give what "
            "`igpe estimate MODEL --json result.json` wrote."
        )
    return Result.from_json(source)


def _loaded(source: Path) -> Any:
    """What an answer's file holds."""
    from igpe.core.errors import DataError
    from igpe.core.files import read_json

    try:
        return read_json(source)
    except (OSError, ValueError) as error:
        raise DataError(
            f"'{source}' could not be read as JSON ({error}); give what a command of igpe wrote "
            "with --json."
        ) from None


def _petab(source: Path, problem: Path | None) -> "pd.DataFrame":
    """A parameter table: the problem's with other nominal values, or a new one."""
    from igpe.core.errors import DataError
    from igpe.formats.petab.export import filled_table, parameter_table

    stored = _loaded(source) if source.suffix.lower() == ".json" else {}
    values = stored.get("parameters") if isinstance(stored, dict) else None
    if not isinstance(values, dict):
        raise DataError(
            f"'{source}' holds no parameters; give what `igpe estimate MODEL --json` wrote."
        )
    if problem is not None:
        return filled_table(values, problem)
    if "estimates" in stored:
        return parameter_table(_stored(source, ".tsv").estimates)
    raise DataError(
        f"'{source}' is of a PEtab problem, whose own table gets the estimates: --petab "
        "problem.yaml."
    )


def _table(source: Path) -> "pd.DataFrame":
    """The table of an answer, or a table."""
    import pandas as pd

    from igpe.core.errors import DataError
    from igpe.core.json_form import restored
    from igpe.problem.tables import read_table

    if source.suffix.lower() != ".json":
        return read_table(source)
    stored = _loaded(source)
    if not isinstance(stored, dict) or not isinstance(stored.get("table"), list):
        raise DataError(
            f"'{source}' holds no table; give what a command of igpe wrote with --json."
        )
    return pd.DataFrame(restored(stored["table"]))


def _content(frame: "pd.DataFrame", target: Path) -> bytes:
    """The table as the bytes of a file; what a spreadsheet would take for a formula is a text."""
    from io import BytesIO

    from igpe.core.errors import DataError
    from igpe.core.markup import cell
    from igpe.problem.tables import PACKAGES

    ending, content = target.suffix.lower(), BytesIO()
    if ending != ".parquet":
        frame = frame.map(lambda v: cell(v) if isinstance(v, str) else v).rename(columns=cell)
    try:
        if ending == ".csv":
            frame.to_csv(content, index=False)
        elif ending == ".xlsx":
            frame.to_excel(content, index=False)
        else:
            frame.to_parquet(content, index=False)
    except ImportError:
        raise DataError(
            f"Writing '{target}' needs a package that is not installed: pip install "
            f"{PACKAGES[ending]}"
        ) from None
    return content.getvalue()
