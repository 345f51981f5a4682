"""Reading tables of measurements: DataFrames, CSV, Excel, Parquet; refusing the unusable."""

import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from igpe.core.arguments import closest, closest_file
from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.core.files import read
from igpe.problem.csv_files import read_csv, require_cells
from igpe.problem.workbooks import last_row

Data: TypeAlias = pd.DataFrame | str | Path


def read_workbook(path: Path) -> pd.DataFrame:
    """All sheets of a workbook that hold anything, as one table.

    Several sheets are several experiments, named by their sheets in the column `experiment`, unless
    they have such a column. All must begin with the same column, the times.

    raises DataError if they do not
    """
    packed = zipfile.is_zipfile(path)
    rows = last_row(path) if packed else None  # rows below are empty, though a sheet may say so
    engine: Any = "openpyxl" if packed or path.suffix.lower() == ".xlsx" else "xlrd"
    found = pd.read_excel(BytesIO(read(path)), sheet_name=None, nrows=rows, engine=engine)
    sheets = {name: table for name, table in found.items() if not table.dropna(how="all").empty}
    if len(sheets) <= 1:
        return next(iter(sheets.values()), pd.DataFrame())
    firsts = {str(table.columns[0]).strip() for table in sheets.values()}
    if len(firsts) > 1:
        listed = "; ".join(f"'{n}' with {list(t.columns)[:FEW]}" for n, t in sheets.items())
        raise DataError(
            f"'{path}' has several sheets, whose tables differ: {listed}. igpe reads sheets as "
            "experiments if all begin with the same column. Pass the table you need: "
            f"pd.read_excel('{path.name}', sheet_name='{next(iter(sheets))}'), or save it as CSV."
        )
    tables = [
        table if "experiment" in table.columns else table.assign(experiment=str(name))
        for name, table in sheets.items()
    ]
    return pd.concat(tables, ignore_index=True)


def read_parquet(path: Path) -> pd.DataFrame:
    """A Parquet file, if it does not promise more than a table of measurements holds."""
    from pyarrow.parquet import ParquetFile  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    content = BytesIO(read(path))
    told = ParquetFile(content).metadata
    require_cells(path, told.num_rows, told.num_columns)
    return pd.read_parquet(content, engine="pyarrow")


READERS: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": read_csv,
    ".xls": read_workbook,
    ".xlsx": read_workbook,
    ".parquet": read_parquet,
}
PACKAGES = {".xls": "xlrd", ".xlsx": "openpyxl", ".parquet": "pyarrow"}
LONGEST = 100  # letters of another package's message
FEW = 3  # entries that are shown


def read_table(data: Data) -> pd.DataFrame:
    """A table from a DataFrame or from a file named *.csv, *.xlsx, *.xls or *.parquet.

    Of a file, rows and unnamed columns that are all empty are left out: spreadsheets leave them.
    The sheets of a workbook are read as in `read_workbook`.

    raises DataError if the file is missing, of another kind, or needs a package not installed, or
           if columns share a name or have none
    """
    table = data if isinstance(data, pd.DataFrame) else _read_file(data)
    nameless = [c for c in table.columns if not isinstance(c, str)]
    if nameless:
        raise DataError(f"Columns {nameless} are not named by text; name them as the model does.")
    columns = list(table.columns)
    twice = sorted(c for c, count in Counter(columns).items() if count > 1)
    if twice:
        raise DataError(f"Columns {twice} occur more than once; give each its own name.")
    return table


def _read_file(data: str | Path) -> pd.DataFrame:
    if not isinstance(data, (str, Path)):
        raise DataError(
            f"The data are a {type(data).__name__}; wanted a DataFrame or the path of a file that "
            f"ends in {', '.join(READERS)}."
        )
    path = Path(data)
    if path.suffix.lower() not in READERS:
        raise DataError(
            f"'{path}' is not a table igpe reads; wanted a DataFrame or a file that ends in "
            f"{', '.join(READERS)}."
        )
    if not path.is_file():
        raise DataError(
            f"There is no file '{path}' (looked from {Path.cwd()}).{closest_file(path)}"
        )
    try:
        return _without_empty(READERS[path.suffix.lower()](path))
    except ImportError as error:
        package = PACKAGES.get(path.suffix.lower(), "pandas")
        raise DataError(
            f"Reading '{path}' needs a package that is not installed: pip install {package}"
        ) from error
    except DataError:
        raise
    except Exception as error:  # every package that reads files has errors of its own
        raise DataError(
            f"'{path}' could not be read as a table: {_reason(path, error)}. Open it in the "
            f"program that wrote it and save it again as {path.suffix}."
        ) from error


def _without_empty(table: pd.DataFrame) -> pd.DataFrame:
    nameless = [c for c in table.columns if str(c).startswith("Unnamed:") and table[c].isna().all()]
    return table.drop(columns=nameless).dropna(how="all", ignore_index=True)


def renamed(table: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """The table in the names of the model; what has its new name already may keep it.

    A column `experiment` may be missing: a table of one experiment needs none.

    columns  column of the table -> its name in the model
    raises   DataError if there is neither, or two columns would get one name
    """
    there = {*table.columns, "experiment"}
    missing = [c for c, new in columns.items() if not {c, new} & there]
    if missing:
        found = list(table.columns)
        raise DataError(
            f"The table has no columns {missing}, which columns={{...}} names; its columns are "
            f"{found}.{closest(missing[0], found)} Mend the names in columns={{...}}, or in the "
            "table's first line."
        )
    return read_table(table.rename(columns=dict(columns)))


def _reason(path: Path, error: Exception) -> str:
    """What pandas says of a CSV file; other packages speak of their own insides."""
    if path.suffix.lower() != ".csv":
        return f"it is no sound {path.suffix} file"
    said = str(error).strip() or type(error).__name__
    return said.splitlines()[0][:LONGEST].rstrip(".")


def rows_of(table: pd.DataFrame, experiment: str) -> pd.DataFrame:
    """The rows of one experiment, without columns it did not measure.

    raises DataError if there is no column `experiment`, or no such experiment in it
    """
    if "experiment" not in table.columns:
        raise DataError(
            f"The table has no column 'experiment'; its columns are {list(table.columns)}. "
            "Add one that names the experiment of each row."
        )
    names = table["experiment"].astype(str)
    if not (names == experiment).any():
        raise DataError(
            f"The table has no experiment '{experiment}'; it has {list(names.unique())}."
        )
    rows = table[names == experiment].drop(columns="experiment")
    return rows.dropna(axis="columns", how="all")


def require_one_experiment(table: pd.DataFrame) -> None:
    """Raise DataError if the rows belong to several experiments."""
    if "experiment" in table.columns and table["experiment"].nunique() > 1:
        names = [str(n) for n in table["experiment"].unique()]
        raise DataError(
            f"The table holds several experiments, {names}. Read it with "
            "igpe.read_experiments(table, ...)."
        )


def time_column(table: pd.DataFrame, *, replicates: bool) -> FloatArray:
    """(n_rows,) the times, checked to be there, finite, increasing, and each once."""
    if "time" not in table.columns:
        raise DataError(
            f"The table has no column 'time'; its columns are {list(table.columns)}. "
            "Rename the one that holds the times, or name it: columns={'t / h': 'time'}."
        )
    if len(table) == 0:
        raise DataError("The table has no rows; at least one measurement is needed.")
    times = numbers(table, "time")
    if not np.isfinite(times).all():
        row = int(np.flatnonzero(~np.isfinite(times))[0])
        raise DataError(
            f"The time in row {row} (the first is row 0) is {times[row]}; every row needs a finite "
            "time. Fill it in, or remove the row."
        )
    step = np.diff(times)
    if (step < 0).any():
        row = int(np.flatnonzero(step < 0)[0]) + 1
        raise DataError(
            f"The times are not sorted: row {row} has {times[row]:g} after {times[row - 1]:g}. "
            "Sort the table by time; give several runs as several experiments."
        )
    if (step == 0).any() and not replicates:
        twice = float(times[1:][step == 0][0])
        raise DataError(
            f"Time {twice:g} occurs more than once. If these are replicates say replicates=True; "
            "if they are several runs use igpe.read_experiments with a column 'experiment'."
        )
    return times


def select_columns(
    table: pd.DataFrame, only: Iterable[str] | None, *, leave: set[str]
) -> list[str]:
    """The measured columns: those asked for, or all but time, experiment and `leave`."""
    columns = [str(c) for c in table.columns]
    if only is None:
        chosen = [c for c in columns if c not in {"time", "experiment", *leave}]
    else:
        chosen = list(only)
        strangers = [c for c in chosen if c not in columns]
        if strangers:
            raise DataError(f"Columns {strangers} are not in the table, which has {columns}.")
        if len(set(chosen)) < len(chosen) or "time" in chosen:
            raise DataError(f"only={chosen}: name each measured column once, without the time.")
    if not chosen:
        raise DataError(f"The table has no measured column beside {columns}; add one.")
    for name in chosen:
        _check_values(name, numbers(table, name))
    return chosen


def numbers(table: pd.DataFrame, name: str) -> FloatArray:
    """(n_rows,) a column as numbers. Raises DataError if it has other entries."""
    if table[name].dtype.kind in "mMc":  # pandas would count dates in microseconds
        raise DataError(
            f"Column '{name}' holds {table[name].dtype}; give numbers in the unit of the model, "
            "for example hours since the start."
        )
    try:
        return table[name].to_numpy(dtype=float)
    except (TypeError, ValueError):
        strange = table[name][pd.to_numeric(table[name], errors="coerce").isna()].dropna()
        shown = ", ".join(repr(entry) for entry in strange.unique()[:FEW])
        raise DataError(
            f"Column '{name}' has entries that are not numbers: {shown}. Give numbers in the unit "
            "of the model (times since the start), leave missing ones empty, or leave the column "
            "out with only=[...]."
        ) from None


def _check_values(name: str, values: FloatArray) -> None:
    if np.isinf(values).any():
        raise DataError(f"Column '{name}' has infinite entries; leave missing values empty (NaN).")
    if np.isnan(values).all():
        raise DataError(f"Column '{name}' has no numbers at all; leave it out with only=[...].")
