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
    raw = read(path, MOST)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        if b"\0" in raw:  # no text at all
            raise
        text = raw.decode("cp1252", errors="replace")
    lines = [line for line in text[:HEAD].splitlines() if line.strip()][:LINES]
    counts = {s: {len(row) for row in _rows(lines, s)} for s in SEPARATORS}
    # All lines have equally many fields, and more than one.
    separator = next((s for s, n in counts.items() if len(n) == 1 and min(n) > 1), ",")
    rows = _rows(lines, separator)
    fields = [field for row in rows for field in row]
    if any(len(field) > FIELD for field in fields):
        raise DataError(f"'{path}' has an entry of more than {FIELD} letters, so it is no table.")
    breaks = max(text.count("\n") + text.count("\r"), 1)
    require_cells(path, breaks, max(len(rows[0]) if rows else 0, text.count(separator) // breaks))
    has_comma = separator != "," and any(map(_WITH_COMMA.fullmatch, fields))
    decimal = "," if has_comma else "."
    table = pd.read_csv(StringIO(text), sep=separator, decimal=decimal, skipinitialspace=True)
    return table.rename(columns=str.strip)


def require_cells(path: Path, rows: int, columns: int) -> None:
    """Raise DataError for a table that would take more memory than any measurements need."""
    if rows * columns > MOST_CELLS or columns > MOST_COLUMNS:
        raise DataError(
            f"'{path}' holds or promises {rows} rows of {columns} columns; igpe reads up to "
            f"{MOST_CELLS:,} cells in up to {MOST_COLUMNS:,} columns. Save only what was measured."
        )


def _rows(lines: list[str], separator: str) -> list[list[str]]:
    if any(len(line) > FIELD for line in lines):  # longer than the longest field of `csv`
        return [line.split(separator) for line in lines]
    return list(csv.reader(lines, delimiter=separator, skipinitialspace=True))
