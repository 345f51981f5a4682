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
    from igpe.errors import ProblemError

    require_new(target, force=force)
    if petab is not None and target.suffix.lower() != ".tsv":
        raise ProblemError(f"--petab writes a parameter table (.tsv), but '{target}' is none.")
    ending = target.suffix.lower()
    if ending == ".html":
        result = _stored(source, ".html")
        result.report(target)
        table = rows(result.to_frame(), "name")
    elif ending == ".tsv":
        table = _petab(source, target, petab)
    else:
        frame = _table(source)
        _write(frame, target)
        table = rows(frame)
    answer("convert", f"Written: {target}", {"file": str(target), "table": table}, json)


def _stored(source: Path, wanted: str) -> Any:
    from igpe.errors import DataError
    from igpe.result import Result

    if source.suffix.lower() != ".json":
        raise DataError(
            f"'{source}' is no stored result, which {wanted} is made of; give what "
            "`igpe estimate MODEL --json result.json` wrote."
        )
    return Result.from_json(source)


def _loaded(source: Path) -> Any:
    """What an answer's file holds."""
    from json import loads

    from igpe.errors import DataError

    try:
        return loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(
            f"'{source}' could not be read as JSON ({error}); give what a command of igpe wrote "
            "with --json."
        ) from None


def _petab(source: Path, target: Path, problem: Path | None) -> list[dict[str, Any]]:
    """A parameter table: the problem's with other nominal values, or a new one."""
    from igpe.errors import DataError
    from igpe.petab.export import parameter_table, write_petab_parameters

    stored = _loaded(source) if source.suffix.lower() == ".json" else {}
    values = stored.get("parameters") if isinstance(stored, dict) else None
    if not isinstance(values, dict):
        raise DataError(
            f"'{source}' holds no parameters; give what `igpe estimate MODEL --json` wrote."
        )
    if problem is not None:
        write_petab_parameters(values, problem, target)
    elif "estimates" in stored:
        parameter_table(_stored(source, ".tsv").estimates).to_csv(target, sep="\t", index=False)
    else:
        raise DataError(
            f"'{source}' is of a PEtab problem, whose own table gets the estimates: --petab "
            "problem.yaml."
        )
    from pandas import read_csv

    return rows(read_csv(target, sep="\t"))


def _table(source: Path) -> "pd.DataFrame":
    """The table of an answer, or a table."""
    import pandas as pd

    from igpe.errors import DataError
    from igpe.json_form import restored
    from igpe.tables import read_table

    if source.suffix.lower() != ".json":
        return read_table(source)
    stored = _loaded(source)
    if not isinstance(stored, dict) or not isinstance(stored.get("table"), list):
        raise DataError(
            f"'{source}' holds no table; give what a command of igpe wrote with --json."
        )
    return pd.DataFrame(restored(stored["table"]))


def _write(frame: "pd.DataFrame", target: Path) -> None:
    from igpe.errors import DataError
    from igpe.tables import PACKAGES

    ending = target.suffix.lower()
    try:
        if ending == ".csv":
            frame.to_csv(target, index=False)
        elif ending == ".xlsx":
            frame.to_excel(target, index=False)
        else:
            frame.to_parquet(target, index=False)
    except ImportError:
        raise DataError(
            f"Writing '{target}' needs a package that is not installed: pip install "
            f"{PACKAGES[ending]}"
        ) from None
