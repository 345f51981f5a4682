"""How large the sheets of a workbook (.xlsx) really are, before they are read.

A workbook is a zip file of XML: a few bytes may stand for gigabytes, and one cell in the last row
for a million rows.
"""

import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from xml.parsers import expat

from igpe.core.errors import DataError
from igpe.problem.csv_files import require_cells

MOST = 64 * 2**20  # bytes of all parts, unpacked
MOST_CELLS = 500_000  # in all sheets; more take minutes
LAST_ROW, LAST_COLUMN = 2**20, 2**14  # of the format
_PLACE = re.compile(r"([A-Z]{1,4})(\d{1,20})")
CHUNK = 2**16


class _Sheet:
    """Counts the cells of a sheet, and remembers the last row and column that hold anything."""

    def __init__(self) -> None:
        self.cells = self.row = self.column = self.last_row = self.last_column = 0

    def begin(self, tag: str, entries: dict[str, str]) -> None:
        """An element begins."""
        tag = tag.rpartition(":")[2]
        if tag == "row":
            given = entries.get("r", "")
            self.row, self.column = int(given) if given.isdigit() else self.row + 1, 0
        elif tag == "c":
            found = _PLACE.fullmatch(entries.get("r", ""))
            self.cells, self.column = self.cells + 1, self.column + 1
            if found is not None:
                self.row, self.column = int(found[2]), _number(found[1])
        elif tag in ("v", "is"):
            self.last_row = max(self.last_row, self.row)
            self.last_column = max(self.last_column, self.column)


def last_row(path: Path) -> int:
    """The last row that holds anything, in any sheet.

    raises DataError for a workbook that is too large or holds what workbooks do not; zipfile's and
           expat's errors for what is none
    """
    last = 0
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        size = sum(part.file_size for part in parts)
        if size > MOST:
            raise DataError(
                f"'{path}' would unpack to {size / 2**20:.3g} MiB; igpe reads workbooks of up to "
                f"{MOST / 2**20:.3g} MiB. Save the sheet that is needed as CSV."
            )
        cells = 0
        for part in parts:
            if part.filename.lower().endswith((".xml", ".rels")):
                with archive.open(part) as stream:
                    sheet = _scanned(stream.read, path)
                cells, last = cells + sheet.cells, max(last, sheet.last_row)
                require_cells(path, sheet.last_row, sheet.last_column)
                _require_format(path, cells, sheet)
    return last


def _require_format(path: Path, cells: int, sheet: _Sheet) -> None:
    if cells > MOST_CELLS:
        raise DataError(
            f"'{path}' has more than {MOST_CELLS:,} cells, which take minutes to read. Save the "
            "sheet that is needed as CSV."
        )
    if sheet.row > LAST_ROW or sheet.column > LAST_COLUMN:
        raise DataError(f"'{path}' has cells beyond row {LAST_ROW}, which no workbook has.")


def _scanned(read: Callable[[int], bytes], path: Path) -> _Sheet:
    sheet, parser = _Sheet(), expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise DataError(f"'{path}' defines entities (a DOCTYPE), which workbooks do not.")

    parser.StartElementHandler, parser.StartDoctypeDeclHandler = sheet.begin, refuse
    while chunk := read(CHUNK):
        parser.Parse(chunk, False)
        if sheet.cells > MOST_CELLS:
            return sheet
    parser.Parse(b"", True)
    return sheet


def _number(letters: str) -> int:
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number
