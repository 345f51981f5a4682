"""Reading tables of measurements: DataFrames, CSV, Excel, Parquet; refusing the unusable.

A workbook (.xlsx) is a zip file of XML: a few bytes may stand for gigabytes, and one cell in the
last row for a million rows. How large its sheets really are is found out before they are read.
"""

import csv
import re
import zipfile
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from hashlib import sha256
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any, TypeAlias, TypeVar
from xml.parsers import expat

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.core.files import WORKBOOK, read
from igpe.core.markup import cell, closest, closest_file

MOST = 64 * 2**20  # bytes of all parts, unpacked
MOST_CELLS = 500_000  # in all sheets; more take minutes
LAST_ROW, LAST_COLUMN = 2**20, 2**14  # of the format
CELL = re.compile(r"([A-Z]{1,4})(\d{1,20})")
CHUNK = 2**16
LONGEST = 100  # letters of another package's message
SOURCE = "igpe_source"  # attribute of a table: the file that it was read from
FEW = 3  # entries that are shown
ROLES = ("time", "experiment")  # columns that may be an index
SEPARATORS = (",", ";", "\t")
LINES = 20  # of a CSV file that are looked at
FIELD = 2**17  # letters
HEAD = 5_000_000  # letters in which these lines are
LARGEST = 50 * 2**20  # bytes of a CSV file
LARGEST_TABLE, MOST_COLUMNS = 5_000_000, 10_000  # cells and columns of any table
_WITH_COMMA = re.compile(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*")

Data: TypeAlias = pd.DataFrame | str | Path
Read = TypeVar("Read")


def read_csv(path: Path) -> pd.DataFrame:
    """A table separated by commas, semicolons or tabs; with decimal commas where these do not
    separate; in UTF-8 or, if it is none, in Windows' western code page. Spaces around names and
    entries do not count.
    """
    text = decoded(path)
    lines = [line for line in text[:HEAD].splitlines() if line.strip()][:LINES]
    counts = {s: {len(row) for row in _rows(lines, s)} for s in SEPARATORS}
    # All lines have equally many fields, and more than one.
    separator = next((s for s, n in counts.items() if len(n) == 1 and min(n) > 1), ",")
    rows = _rows(lines, separator)
    fields = [field for row in rows for field in row]
    if any(len(field) > FIELD for field in fields):
        raise DataError(
            f"'{path}' has an entry of more than {FIELD} characters, so it is not a table."
        )
    breaks = max(text.count("\n") + text.count("\r"), 1)
    require_cells(path, breaks, max(len(rows[0]) if rows else 0, text.count(separator) // breaks))
    has_comma = separator != "," and any(map(_WITH_COMMA.fullmatch, fields))
    decimal = "," if has_comma else "."
    table = pd.read_csv(StringIO(text), sep=separator, decimal=decimal, skipinitialspace=True)
    return table.rename(columns=str.strip)


def decoded(path: Path) -> str:
    """The text of a file: UTF-8, UTF-16 with its mark, else Windows' western code page."""
    raw = read(path, LARGEST)
    if raw.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return raw.decode("utf-16")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in raw:  # no text at all
            raise
        return raw.decode("cp1252", errors="replace")


def require_cells(path: Path, rows: int, columns: int, most: int = LARGEST_TABLE) -> None:
    """Raise DataError for a table that would take more memory than any measurements need."""
    if rows * columns > most or columns > MOST_COLUMNS:
        raise DataError(
            f"'{path}' contains or declares {rows} rows and {columns} columns; igpe reads at "
            f"most {most:,} cells and {MOST_COLUMNS:,} columns. Save only the measurements."
        )


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    if any(len(line) > FIELD for line in lines):  # longer than the longest field of `csv`
        return [line.split(separator) for line in lines]
    return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))


class _Sheets:
    """Counts the cells of all sheets, and the rows of the longest up to the last that holds one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cells = self.rows = 0

    def read(self, stream: Any) -> None:
        """Scan one part of the workbook."""
        self.row = self.column = self.last_row = self.last_column = 0
        parser = expat.ParserCreate()
        parser.StartElementHandler, parser.StartDoctypeDeclHandler = self._begin, self._refuse
        while self.cells <= MOST_CELLS and (chunk := stream.read(CHUNK)):
            parser.Parse(chunk, False)
        if self.cells <= MOST_CELLS:
            parser.Parse(b"", True)
        require_cells(self.path, self.last_row, self.last_column)
        if self.cells > MOST_CELLS:
            raise DataError(
                f"'{self.path}' has more than {MOST_CELLS:,} cells and would take minutes to read. "
                "Save the sheet you need as CSV."
            )
        if self.row > LAST_ROW or self.column > LAST_COLUMN:
            raise DataError(
                f"'{self.path}' has cells beyond row {LAST_ROW} or column {LAST_COLUMN}, the "
                "limits of a workbook."
            )
        self.rows = max(self.rows, self.last_row)

    def _refuse(self, *_: object) -> None:
        raise DataError(
            f"'{self.path}' defines entities (a DOCTYPE), which igpe does not accept in workbooks."
        )

    def _begin(self, tag: str, entries: dict[str, str]) -> None:
        tag = tag.rpartition(":")[2]
        if tag == "row":
            given = entries.get("r", "")
            self.row, self.column = int(given) if given.isdigit() else self.row + 1, 0
        elif tag == "c":
            place = CELL.fullmatch(entries.get("r", ""))
            self.cells, self.column = self.cells + 1, self.column + 1
            if place is not None:
                self.row, self.column = int(place[2]), 0
                for letter in place[1]:
                    self.column = 26 * self.column + ord(letter) - ord("A") + 1
        elif tag in ("v", "is"):
            self.last_row = max(self.last_row, self.row)
            self.last_column = max(self.last_column, self.column)


def last_row(path: Path) -> int:
    """The last row that holds anything, in any sheet.

    raises DataError for a workbook that is too large or holds what workbooks do not; zipfile's and
           expat's errors for what is none
    """
    sheets = _Sheets(path)
    with zipfile.ZipFile(path) as archive:
        size = sum(part.file_size for part in archive.infolist())
        if size > MOST:
            raise DataError(
                f"'{path}' would unpack to {size / 2**20:.3g} MiB; igpe reads workbooks of at most "
                f"{MOST / 2**20:.3g} MiB. Save the sheet you need as CSV."
            )
        for part in archive.infolist():
            if part.filename.lower().endswith((".xml", ".rels")):
                with archive.open(part) as stream:
                    sheets.read(stream)
    return sheets.rows


def read_workbook(path: Path) -> pd.DataFrame:
    """All sheets of a workbook that hold anything, as one table.

    Several sheets are several experiments, named by their sheets in the column `experiment`, unless
    they have such a column. All must begin with the same column, the times.

    raises DataError if they do not
    """
    packed = zipfile.is_zipfile(path)
    rows = last_row(path) if packed else None  # rows below are empty, though a sheet may say so
    engine: Any = "openpyxl" if packed or path.suffix.lower() == ".xlsx" else "xlrd"
    frames = pd.read_excel(BytesIO(read(path)), sheet_name=None, nrows=rows, engine=engine)
    sheets = {name: table for name, table in frames.items() if not table.dropna(how="all").empty}
    if len(sheets) <= 1:
        return next(iter(sheets.values()), pd.DataFrame())
    if len({str(table.columns[0]).strip() for table in sheets.values()}) > 1:
        listed = "; ".join(f"'{n}' with {list(t.columns)[:FEW]}" for n, t in sheets.items())
        raise DataError(
            f"'{path}' has several sheets, whose tables differ: {listed}. igpe reads the sheets "
            "as experiments only if they all have the same first column. Pass the table you need: "
            f"pd.read_excel('{path.name}', sheet_name='{next(iter(sheets))}'), or save it as CSV."
        )
    named = [t.assign(experiment=t.get("experiment", str(name))) for name, t in sheets.items()]
    return pd.concat(named, ignore_index=True)


def read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file, if it does not promise more than a table of measurements holds."""
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    content = BytesIO(read(path))
    promised = ParquetFile(content).metadata
    require_cells(path, promised.num_rows, promised.num_columns)
    return pd.read_parquet(content, engine="pyarrow")


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": read_csv,
    ".xls": read_workbook,
    ".xlsx": read_workbook,
    ".parquet": read_parquet,
}
PACKAGES = {".xls": "xlrd", ".xlsx": "openpyxl", ".parquet": "pyarrow"}


def read_table(data: Data) -> pd.DataFrame:
    """A table from a DataFrame or from a file named *.csv, *.xlsx, *.xls or *.parquet.

    Of a file, rows and unnamed columns that are all empty are left out: spreadsheets leave them.
    The sheets of a workbook are read as in `read_workbook`. An index named `time` or `experiment`
    counts as that column.

    raises DataError if the file is missing, of another kind, or needs a package not installed, or
           if columns share a name or have none
    """
    table = data if isinstance(data, pd.DataFrame) else _read_file(data)
    table = with_index(table, ROLES)
    if nameless := [c for c in table.columns if not isinstance(c, str)]:
        raise DataError(
            f"The column names {nameless} are not strings. Use the names of the model's quantities."
        )
    if twice := sorted(c for c, count in Counter(table.columns).items() if count > 1):
        raise DataError(f"Columns {twice} occur more than once. Give each one its own name.")
    return table


def with_index(table: pd.DataFrame, names: Container[str]) -> pd.DataFrame:
    """The table with the levels of its index that have one of the names as columns."""
    levels = [n for n in table.index.names if isinstance(n, str) and n in names]
    levels = [n for n in levels if n not in table.columns]
    return table.reset_index(level=levels) if levels else table


def _read_file(data: str | Path) -> pd.DataFrame:
    table = open_file(data, READERS)
    nameless = [c for c in table.columns if str(c).startswith("Unnamed:") and table[c].isna().all()]
    frame = table.drop(columns=nameless).dropna(how="all", ignore_index=True)
    frame.attrs[SOURCE] = checksum(Path(data))
    return frame


def checksum(path: Path) -> str:
    """The name of a file and the checksum of its content, as the report shows them."""
    return f"{path.name}, SHA-256 {sha256(path.read_bytes()).hexdigest()}"


def open_file(data: str | Path, readers: Mapping[str, Callable[[Path], Read]]) -> Read:
    """What the reader for its ending makes of a file.

    raises DataError if it is missing, of another kind, unsound, or needs a package not installed
    """
    is_path = isinstance(data, (str, Path))
    if not is_path or Path(data).suffix.lower() not in readers:
        what = f"'{data}' is not a table that igpe can read"
        raise DataError(
            f"{what if is_path else f'The data have the type {type(data).__name__}'}; expected a "
            f"DataFrame or the path of a file that ends in {', '.join(readers)}."
        )
    path, ending = Path(data), Path(data).suffix.lower()
    if not path.is_file():
        raise DataError(
            f"No such file: '{path}' (current folder: {Path.cwd()}).{closest_file(path)}"
        )
    try:
        return readers[ending](path)
    except ImportError as error:
        raise DataError(
            f"Reading '{path}' needs a package that is not installed: pip install "
            f"{PACKAGES.get(ending, 'pandas')}"
        ) from error
    except DataError:
        raise
    except Exception as error:  # every package that reads files has errors of its own
        reason = f"it is not a valid {path.suffix} file"  # other packages' texts name their insides
        if ending not in PACKAGES:
            text = str(error).strip() or type(error).__name__
            reason = text.splitlines()[0][:LONGEST].rstrip(".")
        raise DataError(
            f"'{path}' could not be read as a table: {reason}. Open it in the program that wrote "
            f"it and save it again as {path.suffix}."
        ) from error


def renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """The table in the names of the model; what has its new name already may keep it.

    A column `experiment` may be missing: a table of one experiment needs none.

    columns  column of the table -> its name in the model
    raises   DataError if there is neither, or two columns would get one name
    """
    table = with_index(table, columns)
    present = list(table.columns)
    if missing := [c for c, new in columns.items() if not {c, new} & {*present, "experiment"}]:
        raise DataError(
            f"columns={{...}} names {missing}, but the table has no such columns. Its columns are "
            f"{present}.{closest(missing[0], present)} Correct the names in columns={{...}}, or "
            "in the table's first line."
        )
    return read_table(table.rename(columns=dict(columns)))


def experiments_in(table: pd.DataFrame) -> "pd.Series[str]":
    """The column `experiment` as texts.

    raises DataError if there is none, or if it is empty in a row
    """
    if "experiment" not in table.columns:
        raise DataError(
            f"The table has no column 'experiment'; its columns are {list(table.columns)}. Add one "
            "that names the experiment of each row, or use igpe.Experiment for a single run."
        )
    column = table["experiment"]
    if column.isna().any():
        row = int(np.flatnonzero(column.isna())[0])
        raise DataError(
            f"The column 'experiment' is empty in row {row} (rows are counted from 0). Every row "
            "needs the name of its experiment: fill it in, or remove the row."
        )
    return column.map(experiment_name).astype(str)


def experiment_name(given: Any) -> str:
    """The name of an experiment as text: 1, 1.0 and "1" are the same."""
    is_whole = isinstance(given, float) and given.is_integer()
    return str(int(given) if is_whole else given)


def rows_of(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The rows of one experiment, without columns it did not measure.

    raises DataError if there is no column `experiment`, or no such experiment in it
    """
    names = experiments_in(table)
    if not (names == experiment).any():
        raise DataError(
            f"The table has no experiment '{experiment}'; it has {list(names.unique())}."
        )
    rows = table[names == experiment].drop(columns="experiment")
    return rows.dropna(axis="columns", how="all")


def time_column(table: pd.DataFrame, *, replicates: bool, name: str = "") -> FloatArray:
    """(n_rows,) the times, checked to be there, finite, increasing, and each once.

    name  of the experiment, for messages
    """
    where = f" in experiment '{name}'" if name else ""
    if "time" not in table.columns:
        index = table.index.name
        is_nameless = index is None and not isinstance(table.index, pd.RangeIndex)
        raise DataError(
            f"The table has no column 'time'; its columns are {list(table.columns)}"
            + (f" and its index is '{index}'" if index else "")
            + ". Rename the column that holds the times, or name it: "
            f"columns={{'{index or 't / h'}': 'time'}}."
            + " If the index holds the times, pass table.rename_axis('time')."
            * is_nameless
        )
    if len(table) == 0:
        raise DataError("The table has no rows. Give at least one measurement.")
    times = numbers(table, "time")
    if not np.isfinite(times).all():
        row = int(np.flatnonzero(~np.isfinite(times))[0])
        raise DataError(
            f"The time in row {row}{where} (rows are counted from 0) is {times[row]}. Every row "
            "needs a finite time: fill it in, or remove the row."
        )
    step = np.diff(times)
    if (step < 0).any():
        row = int(np.flatnonzero(step < 0)[0]) + 1
        raise DataError(
            f"The times are not sorted{where}: row {row} has {times[row]:g} after "
            f"{times[row - 1]:g}. Sort the table by time. If it contains several runs, pass each "
            f"one as a separate experiment.{_pivot(table)}"
        )
    if (step == 0).any() and not replicates:
        row = int(np.flatnonzero(step == 0)[0])
        raise DataError(
            f"Time {times[row]:g} occurs more than once{where} (rows {row} and {row + 1}, "
            "counted from 0). If these are replicates, pass replicates=True. If they are several "
            "runs, use igpe.read_experiments with a column 'experiment'."
        )
    return times


def _pivot(table: pd.DataFrame) -> str:
    """What to write where each row of a table holds one quantity, which a column names."""
    texts = [c for c in table.columns if not pd.api.types.is_numeric_dtype(table[c])]
    others = [c for c in table.columns if c not in {"time", *texts}]
    if len(texts) != 1 or len(others) != 1 or table.duplicated(["time", *texts]).any():
        return ""
    return (
        f" If '{texts[0]}' names the measured quantity of each row, give each quantity a column: "
        f"table.pivot(index='time', columns='{texts[0]}', values='{others[0]}').reset_index()."
    )


def select_columns(
    table: pd.DataFrame, only: Iterable[str] | None, *, leave: set[str]
) -> list[str]:
    """The measured columns: those asked for, or all but time, experiment and `leave`."""
    columns = [str(c) for c in table.columns]
    chosen = [c for c in columns if c not in {"time", "experiment", *leave}]
    if only is not None:
        chosen = list(only)
        if unknown := [c for c in chosen if c not in columns]:
            raise DataError(f"Columns {unknown} are not in the table; its columns are {columns}.")
        if len(set(chosen)) < len(chosen) or "time" in chosen:
            raise DataError(
                f"only={chosen} is not valid. Name each measured column once, and leave out "
                "the time."
            )
    if not chosen:
        raise DataError(f"The table has no measured column, only {columns}. Add one.")
    for name in chosen:
        _require_measured(table, name, chosen)
    return chosen


def _require_measured(table: pd.DataFrame, name: str, chosen: Sequence[str]) -> None:
    """Raise DataError for a column of `chosen` that holds no measurements."""
    values = numbers(table, name)
    if table[name].dtype.kind == "b":
        raise DataError(
            f"Column '{name}' holds True and False, which are not measurements. Leave it out with "
            "only=[...], or name it in inputs=[...] if it was set."
        )
    if np.isinf(values).any():
        raise DataError(f"Column '{name}' has infinite entries. Leave missing values empty (NaN).")
    if np.isnan(values).all():
        raise DataError(f"Column '{name}' contains no numbers.{_instead(chosen, name)}")


def _instead(chosen: Sequence[str], empty: str) -> str:
    """What to do about an empty measured column: leave it out, if there are others."""
    if others := [c for c in chosen if c != empty]:
        return f" List the columns to use, for example only={others}."
    return (
        " An experiment needs a number in at least one measured column. For a simulation or a plan "
        f"before any measurement, give any number, such as {empty} = 0.0."
    )


SEPARATED = {r"[-+]?\d+,\d+(e[-+]?\d+)?": "decimal", r"[-+]?\d{1,3}(,\d{3})+\.\d+": "thousands"}
"""Texts with a comma in a number, and the option of pandas that reads them."""


def numbers(table: pd.DataFrame, name: str) -> FloatArray:
    """(n_rows,) a column as numbers. Raises DataError if it has other entries."""
    if table[name].dtype.kind in "mMc":  # pandas would count dates in microseconds
        durations = ", for example hours since the start" * (table[name].dtype.kind != "c")
        raise DataError(
            f"Column '{name}' holds {table[name].dtype}; give numbers in the unit of the "
            f"model{durations}."
        )
    try:
        return table[name].to_numpy(dtype=float)
    except (TypeError, ValueError):
        strange = table[name][pd.to_numeric(table[name], errors="coerce").isna()].dropna()
        shown = ", ".join(repr(entry) for entry in strange.unique()[:FEW])
        is_limit = strange.astype(str).str.strip().str.startswith("<").any()
        censored = f"sigma={{'{name}': igpe.losses.Censored(0.01)}}"
        hint = f" Entries such as '<0.05' need {censored}." * bool(is_limit)
        for pattern, option in SEPARATED.items():
            if strange.astype(str).str.strip().str.fullmatch(pattern).all():
                hint = f" Read the file with pd.read_csv(..., {option}=',')."
        raise DataError(
            f"Column '{name}' has entries that are not numbers: {shown}. Give numbers in the unit "
            "of the model (times as durations since the start), leave missing values empty, or "
            f"omit the column with only=[...].{hint}"
        ) from None


def workbook(sheets: Mapping[str, pd.DataFrame]) -> bytes:
    """Tables as the sheets of an Excel file; what would be taken for a formula is a text.

    raises DataError without openpyxl
    """
    content = BytesIO()
    try:
        with pd.ExcelWriter(content, engine="openpyxl") as writer:
            for name, table in sheets.items():
                texts = table.map(lambda v: cell(v) if isinstance(v, str) else v)
                texts.rename(columns=cell).to_excel(writer, sheet_name=name, index=False)
    except ImportError:
        raise DataError("Excel files need a package: pip install openpyxl") from None
    with zipfile.ZipFile(content, "a") as archive:
        archive.comment = WORKBOOK
    return content.getvalue()
