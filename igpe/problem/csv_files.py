"""CSV files as laboratory programs write them."""

import csv
import re
from io import StringIO
from pathlib import Path

import pandas as pd

from igpe.core.errors import DataError
from igpe.core.files import read

SEPARATORS = (",", ";", "\t")
LINES = 20  # that are looked at
FIELD = 2**17
HEAD = 5_000_000  # letters, in which they are
MOST = 50 * 2**20  # bytes of a file
MOST_CELLS, MOST_COLUMNS = 5_000_000, 10_000
_WITH_COMMA = re.compile(r"\s*[-+]?\d+,\d+([eE][-+]?\d+)?\s*")


def read_csv(path: Path) -> pd.DataFrame:
    """A table separated by commas, semicolons or tabs; with decimal commas where these do not
    separate; in UTF-8 or, if it is none, in Windows' western code page. Spaces around names and
    entries do not count.
    """
    text = _text(path)
    lines = [line for line in text[:HEAD].splitlines() if line.strip()][:LINES]
    separator = next((s for s in SEPARATORS if _is_separated(lines, s)), ",")
    if any(len(field) > FIELD for row in _rows(lines, separator) for field in row):
        raise DataError(f"'{path}' has an entry of more than {FIELD} letters, so it is no table.")
    widest = max((len(row) for row in _rows(lines[:1], separator)), default=0)
    breaks, separated = text.count("\n") + text.count("\r"), text.count(separator)
    require_cells(path, max(breaks, 1), max(widest, separated // max(breaks, 1)))
    is_comma_decimal = separator != "," and any(
        _WITH_COMMA.fullmatch(field) for row in _rows(lines, separator) for field in row
    )
    table = pd.read_csv(
        StringIO(text),
        sep=separator,
        decimal="," if is_comma_decimal else ".",
        skipinitialspace=True,
    )
    return table.rename(columns=str.strip)


def require_cells(path: Path, rows: int, columns: int) -> None:
    """Raise DataError for a table that would take more memory than any measurements need."""
    if rows * columns > MOST_CELLS or columns > MOST_COLUMNS:
        raise DataError(
            f"'{path}' holds or promises {rows} rows of {columns} columns; igpe reads up to "
            f"{MOST_CELLS:,} cells in up to {MOST_COLUMNS:,} columns. Save only what was measured."
        )


def _text(path: Path) -> str:
    raw = read(path, MOST)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in raw:  # no text at all
            raise
        return raw.decode("cp1252", errors="replace")


def _is_separated(lines: list[str], separator: str) -> bool:
    """Whether all lines have equally many fields, and more than one."""
    counts = {len(row) for row in _rows(lines, separator)}
    return len(counts) == 1 and min(counts) > 1


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    if any(len(line) > FIELD for line in lines):  # longer than the longest field of `csv`
        return [line.split(separator) for line in lines]
    return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
