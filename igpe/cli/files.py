"""igpe new, convert: problem files from the user's tables, stored answers in other formats."""

import re
import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated, Any

import typer

from igpe.cli.application import (
    Force,
    JsonFile,
    answer,
    converted_file,
    merged,
    python_file,
    require_new,
    resolved,
    rows,
)
from igpe.core.errors import DataError, ModelError, ProblemError
from igpe.core.markup import cell, closest_file

if TYPE_CHECKING:
    import pandas as pd


def convert(
    source: Annotated[
        Path,
        typer.Argument(
            help="JSON file written by an igpe command, a table (CSV, Excel, Parquet), or a "
            "Python file with a function problem()."
        ),
    ],
    target: Annotated[
        Path,
        typer.Argument(
            callback=converted_file,
            help="File to write: .csv, .xlsx or .parquet for a table; for an estimate, also .tsv "
            "(PEtab parameter table) or .html (report). If the source is a Python file: the "
            "folder for the PEtab problem.",
        ),
    ],
    petab: Annotated[
        Path | None,
        typer.Option(
            help="PEtab problem (YAML) whose parameter table igpe writes with the estimates."
        ),
    ] = None,
    force: Force = False,
    json: JsonFile = None,
) -> None:
    """Convert a stored result to a table, PEtab parameters or a report; a table to another format;
    a problem to PEtab with an SBML model.

    igpe convert result.json estimates.xlsx
    """
    from igpe.core.files import write

    if not target.suffix:
        yaml = _problem_as_petab(source, target, force=force)
        answer("convert", f"Written: {yaml}", {"file": str(yaml), "table": []}, json)
        return
    require_new(target, force=force)
    ending = target.suffix.lower()
    if petab is not None and ending != ".tsv":
        raise ProblemError(
            f"--petab writes a parameter table, so the target must end in .tsv; it is '{target}'."
        )
    content: str | bytes
    if ending == ".html":
        result = _result(source, ".html")
        content, table = result.report(), rows(result.to_frame(), "name")
    elif ending == ".tsv":
        frame = _petab(source, petab)
        content, table = frame.to_csv(sep="\t", index=False), rows(frame)
    else:
        frame = _table(source)
        content, table = _content(frame, target), rows(frame)
    write(target, content, force=force)
    answer("convert", f"Written: {target}", {"file": str(target), "table": table}, json)


def _problem_as_petab(source: Path, folder: Path, *, force: bool) -> Path:
    """A Python file's problem in a folder."""
    from igpe.cli.model_file import load_problem
    from igpe.formats.petab.write import to_petab

    if source.suffix.lower() != ".py":
        raise ProblemError(
            f"'{folder}' has no file extension, so igpe treats it as a folder for PEtab files. "
            f"igpe can write PEtab files only from a Python problem file, and '{source}' is not "
            "one. Give a target that ends in .csv, .xlsx, .parquet, .tsv or .html."
        )
    return to_petab(load_problem(source), folder, force=force)


def _result(source: Path, target: str) -> Any:
    from igpe.results.result import Result

    if source.suffix.lower() != ".json":
        raise DataError(
            f"'{source}' is not a stored result, but igpe writes {target} files only from stored "
            "results. Give the file that `igpe estimate MODEL --json result.json` wrote."
        )
    return Result.from_json(source)


def _stored(source: Path, entry: str, kind: type) -> Any:
    """An entry of an answer's file; None if it has none of that kind."""
    from igpe.core.files import read_json

    try:
        content = read_json(source)
    except (OSError, ValueError) as error:
        raise DataError(
            f"'{source}' could not be read as JSON ({error}). Give a file that an igpe command "
            "wrote with --json."
        ) from None
    value = content.get(entry) if isinstance(content, dict) else None
    return value if isinstance(value, kind) else None


def _petab(source: Path, problem: Path | None) -> "pd.DataFrame":
    """A parameter table: the problem's with other nominal values, or a new one."""
    from igpe.formats.petab.errors import filled_table, parameter_table

    is_json = source.suffix.lower() == ".json"
    values = _stored(source, "parameters", dict) if is_json else None
    if values is None:
        raise DataError(
            f"'{source}' contains no parameters. Give the file that `igpe estimate MODEL --json "
            "result.json` wrote."
        )
    if problem is not None:
        return filled_table(values, problem)
    if _stored(source, "estimates", list) is None:
        raise DataError(
            f"'{source}' is the result of a PEtab problem. Give this problem's file: "
            "--petab problem.yaml. igpe then writes the problem's parameter table, with the "
            "estimates as nominal values."
        )
    return parameter_table(_result(source, ".tsv").estimates)


def _table(source: Path) -> "pd.DataFrame":
    """The table of an answer, or a table."""
    import pandas as pd

    from igpe.core.json_form import restored
    from igpe.problem.tables import read_table

    if source.suffix.lower() != ".json":
        return read_table(source)
    table = _stored(source, "table", list)
    if table is None:
        raise DataError(
            f"'{source}' contains no table. Give a file that an igpe command wrote with --json."
        )
    return pd.DataFrame(restored(table))


def _content(frame: "pd.DataFrame", target: Path) -> bytes:
    """The table as the bytes of a file; what a spreadsheet would take for a formula is a text."""
    from io import BytesIO

    from igpe.problem.tables import PACKAGES

    ending, content = target.suffix.lower(), BytesIO()
    if ending != ".parquet":
        frame = frame.map(lambda v: cell(v) if isinstance(v, str) else v).rename(columns=cell)
    writers: Any = {".csv": frame.to_csv, ".xlsx": frame.to_excel, ".parquet": frame.to_parquet}
    try:
        writers[ending](content, index=False)
    except ImportError:
        raise DataError(
            f"Writing '{target}' needs a package that is not installed: pip install "
            f"{PACKAGES[ending]}"
        ) from None
    return content.getvalue()


def new(
    context: typer.Context,
    file: Annotated[
        Path | None, typer.Argument(callback=python_file, help="Problem file to write (.py).")
    ] = None,
    *,
    data: Annotated[
        list[Path] | None,
        typer.Option(
            help="Table of measurements (CSV, Excel, Parquet). Repeat for several experiments."
        ),
    ] = None,
    reaction: Annotated[
        list[str] | None,
        typer.Option(help="Reaction in quotes: 'A + B -> C' or 'A <-> B'. Repeat for several."),
    ] = None,
    time: Annotated[
        str, typer.Option(help="Column that contains the times, if igpe cannot find it.")
    ] = "",
    experiment: Annotated[
        str, typer.Option(help="Column that names the experiment of each row.")
    ] = "",
    column: Annotated[
        list[str] | None,
        typer.Option(help="A column and its name in the model: 'reactant / (mol/L)=A'."),
    ] = None,
    role: Annotated[
        list[str] | None,
        typer.Option(
            help="Role of a column, for example 'T / K=input', 'X [%]=conversion of A', "
            "'pH=ignore'."
        ),
    ] = None,
    decimal: Annotated[str | None, typer.Option(help="Decimal separator: ',' or '.'.")] = None,
    dates: Annotated[
        str, typer.Option(help="Order of day and month in dates: 'day first' or 'month first'.")
    ] = "",
    together: Annotated[
        bool | None,
        typer.Option(
            "--together/--apart",
            help="Whether tables of different quantities belong to one experiment or to several.",
        ),
    ] = None,
    force: Force = False,
    json: JsonFile = None,
) -> None:
    """Write a problem file from your table, with start values and a model to adapt. In a
    terminal igpe asks for missing options.

    igpe new my_problem.py --data my.csv --reaction "A -> B" --reaction "B -> C"
    """
    from igpe.core.files import write
    from igpe.formats.draft import draft

    if context.args:
        raise ProblemError(
            f"Unexpected argument '{' '.join(context.args)}'. Quote reactions: --reaction "
            "'A -> B'. Without quotes, the shell treats > as redirection of output."
        )
    file, data, reaction = _required(file, data or [], reaction or [])
    require_new(file, force=force)
    reactions = _reactions(reaction)
    roles = {time: "time"} if time else {}
    roles |= {experiment: "experiment"} if experiment else {}
    roles |= _pairs("--role", role or [], "'T / K=input'")
    options: dict[str, Any] = {"roles": roles, "names": _names(column or [])}
    options |= {"decimal": decimal, "dates": dates, "together": together}
    drafted = _drafted(lambda **more: draft(data, reactions, merged(options, more), file))
    write(file, drafted.text, force=force)
    text = [
        f"Written: {file}",
        "",
        drafted.book.summary(),
        "",
        *(fill(remark, 80, break_on_hyphens=False) for remark in drafted.remarks),
        "",
        "Review the file, then run:",
        f"  igpe check {file}",
        f"  igpe estimate {file} --report report.html",
    ]
    quantities = (drafted.book.time, *drafted.book.measured)
    columns = [{"header": q.header, "name": q.name, "unit": q.unit} for q in quantities]
    body = {"file": str(file), "notes": drafted.remarks, "table": columns}
    answer("new", "\n".join(text), body, json)


def _drafted(make: Callable[..., Any]) -> Any:
    """The draft; what errors say to type in Python is said in the words of the command line."""
    from igpe.formats.workbooks.cells import Question

    try:
        return resolved(make, _as_options)
    except Question:
        raise
    except DataError as error:
        raise DataError(_as_options(str(error))) from None


def _as_options(text: str) -> str:
    """Arguments of `read_workbook` in a sentence, as options of `igpe new`."""
    entry = r"(\"[^\"]*\"|'[^']*'): ('[^']*')"
    short = {"'time'": "--time", "'experiment'": "--experiment"}

    def options(match: re.Match[str]) -> str:
        words = []
        for header, value in re.findall(entry, match[2]):
            bare = f"{header[1:-1]}={value[1:-1]}"
            option = "--role" if match[1] == "roles" else "--column"
            is_short = match[1] == "roles" and value in short
            words.append(f"{short[value]} {header}" if is_short else f"{option} '{bare}'")
        return " ".join(words)

    text = re.sub(rf"(roles|names)=\{{((?:{entry}(?:, )?)+)\}}", options, text)
    text = text.replace("together=True", "--together").replace("together=False", "--apart")
    text = text.replace("names={...}", "--column")
    text = text.replace("roles={...}", "--role, --time or --experiment")
    return re.sub(r"\b(decimal|dates)=('[^']*')", r"--\1 \2", text)


def _required(
    file: Path | None, data: list[Path], reaction: list[str]
) -> tuple[Path, list[Path], list[str]]:
    """The file, the tables and the reactions; in a terminal igpe asks for those that are missing.

    raises ProblemError elsewhere
    """
    is_terminal = sys.stdin.isatty()
    if file is None and not is_terminal:
        raise ProblemError("Name the file to write: igpe new my_problem.py --data my.csv.")
    if file is None:
        file = typer.prompt(
            "Problem file to write",
            default=Path("my_problem.py"),
            value_proc=lambda text: python_file(Path(text)),
        )
    if not data and not is_terminal:
        raise ProblemError(
            f"Name the table of measurements: igpe new {file} --data my.csv. The table needs a "
            "column with the times and a column for each measured quantity."
        )
    if not data:
        data = [typer.prompt("Table of measurements (CSV, Excel, Parquet)", value_proc=_table_file)]
        words = "Reactions, for example A -> B; B -> C (leave empty to write your own equations)"
        given = typer.prompt(words, default="", show_default=False) if not reaction else ""
        reaction = reaction or [given]
    return file, data, reaction


def _table_file(text: str) -> Path:
    """The path of a file that is there; else it is asked for again."""
    path = Path(text.strip().strip("'\""))
    if not path.is_file():
        raise typer.BadParameter(f"No such file: '{path}'.{closest_file(path)}")
    return path


def _names(given: list[str]) -> dict[str, str]:
    names = _pairs("--column", given, "'c(A) [mol/L]=A'")
    for header, name in names.items():
        if not name.isidentifier():
            raise ProblemError(
                f"--column '{header}={name}' is not of the form HEADER=NAME. NAME may contain "
                "letters, digits and underscores, and must not start with a digit. Example: "
                "--column 'c(A) [mol/L]=A'."
            )
    return names


def _pairs(option: str, given: list[str], example: str) -> dict[str, str]:
    pairs = [one.rpartition("=") for one in given]
    for header, _, value in pairs:
        if not header or not value.strip():
            raise ProblemError(
                f"{option} '{value}' is not of the form HEADER=NAME. Example: {option} {example}."
            )
    return {header: value.strip() for header, _, value in pairs}


def _reactions(given: list[str]) -> list[str]:
    from igpe.formats.kinetics.laws import read_equation

    reactions = [part.strip() for one in given for part in one.split(";") if part.strip()]
    quotes = (
        " Quote reactions: --reaction 'A -> B'. Without quotes, the shell treats > as redirection."
    )
    try:
        for reaction in reactions:
            read_equation(reaction)
    except ModelError as error:
        raise ModelError(f"{error}{quotes * ('arrows' in str(error))}") from None
    return reactions
