"""Tables among the cells of a sheet: header, units, rows, and what stands above them.

A table begins with a row of values below a row of texts. Tables stand below each other, or beside
each other with the same headers. A table whose times run across is turned.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from igpe.formats.workbooks.cells import EMPTY, VALUES, Cell, CellGrid, Kind
from igpe.formats.workbooks.words import (
    is_date,
    is_run,
    is_statistic,
    is_time,
    is_unit,
    known_unit,
    split_header,
)

FEW_ROWS = 3  # from which the columns of a table are known


@dataclass(frozen=True)
class SheetTable:
    """A table of a sheet.

    columns  where it stands;  headers, units: their texts, "" where there is none
    header   row of the headers;  rows: those that hold values
    breaks   rows that follow an empty one
    above    texts and values above the table that belong to it, row by row
    title    the first text above the table; beside: whether it stands with others in one row
    turned   the sheet's rows are its columns
    """

    grid: CellGrid
    columns: tuple[int, ...]
    headers: tuple[str, ...]
    units: tuple[str, ...]
    header: int
    rows: tuple[int, ...]
    breaks: frozenset[int]
    above: tuple[tuple[Cell, ...], ...] = ()
    title: str = ""
    turned: bool = False

    def cells(self, column: int) -> list[Cell]:
        """The cells of the column with this number within the table."""
        return [self.grid.rows[r][self.columns[column]] for r in self.rows]

    def place(self, row: int, column: int) -> str:
        """Where the cell of a row and column of the table stands: "Sheet1!B7"."""
        r, c = self.rows[row], self.columns[column]
        return self.grid.place(c, r) if self.turned else self.grid.place(r, c)


def find_blocks(grid: CellGrid) -> list[SheetTable]:
    """All tables of a sheet that have headers, from the top."""
    rows, start = grid.rows, 0
    blocks: list[SheetTable] = []
    for r in range(len(rows) - 1):
        if r < start or not (row := _times_across(rows, r)):
            continue
        end = next((k for k in range(r, len(rows)) if _is_empty(rows[k])), len(rows))
        first = r
        while first > start and len(_values(rows[first - 1])) > 1:
            first -= 1
        blank = [EMPTY] * len(row)
        shown = [rows[k] if first <= k < end else blank for k in range(len(rows))]
        shown[r] = row
        across = _below_each_other(replace(grid, rows=[list(c) for c in zip(*shown, strict=True)]))
        above = tuple(tuple(rows[k]) for k in range(start, first) if not _is_empty(rows[k]))
        blocks += [replace(b, turned=True, above=above, title=_title(above)) for b in across]
        start = end
    return blocks or _below_each_other(grid)


def _times_across(rows: Sequence[list[Cell]], r: int) -> list[Cell]:
    """A row that holds the times of those below: "Time [s]|0|30", "Name|5 min|9 min"; or []."""
    row, values, below = rows[r], _values(rows[r]), rows[r + 1]
    if len(values) < 2 or len(_values(below)) < 2 or _first(below).kind is not Kind.TEXT:  # noqa: PLR2004
        return []
    if _first(row).kind is Kind.TEXT and is_time(_first(row).text):
        return row
    above = rows[r - 1] if r else [EMPTY] * len(row)
    if any(row[c].kind is not Kind.DURATION or above[c].kind is not Kind.EMPTY for c in values):
        return []
    return [Cell(Kind.TEXT, text="time"), *(c if c.kind in VALUES else EMPTY for c in row[1:])]


def _is_empty(row: Sequence[Cell]) -> bool:
    return all(c.kind is Kind.EMPTY for c in row)


def _first(row: Sequence[Cell]) -> Cell:
    return next((c for c in row if c.kind is not Kind.EMPTY), EMPTY)


def _texts(row: Sequence[Cell]) -> list[int]:
    return [c for c, cell in enumerate(row) if cell.kind is Kind.TEXT]


def _values(row: Sequence[Cell]) -> list[int]:
    return [c for c, cell in enumerate(row) if cell.kind in VALUES]


def _is_text_row(row: Sequence[Cell]) -> bool:
    return bool(_texts(row)) and not _values(row)


def _below_each_other(grid: CellGrid) -> list[SheetTable]:
    rows, blocks = grid.rows, []
    above = r = 0
    while r < len(rows):
        if not _starts(rows, r):
            r += 1
            continue
        last = r - 1  # of the texts above
        last -= last > above and not _texts(rows[last]) and not _values(rows[last])
        first = last + 1
        while first > above and _is_text_row(rows[first - 1]):
            first -= 1
        data, breaks, end = _extent(rows, r)
        if first <= last:
            made = _blocks(grid, (above, first, last), data, breaks)
            if len(data) > 1 or any(map(is_time, made[0].headers)):
                blocks += made
                above = end
        r = max(end, r + 1)
    return blocks


def _starts(rows: Sequence[Sequence[Cell]], r: int) -> bool:
    values = _values(rows[r])
    if len(values) != 1 or r == 0:
        return len(values) > 1
    before = rows[r - 1]
    texts = [before[c].text for c in _texts(before)]
    return len(texts) > 1 and any(is_time(t) or is_run(t) for t in texts)


def _extent(rows: Sequence[Sequence[Cell]], first: int) -> tuple[list[int], set[int], int]:
    """Rows with values, those after an empty row, and where the table has ended."""
    data: list[int] = []
    breaks: set[int] = set()
    always = set(_values(rows[first]))  # columns that have had values in all rows
    gap = False
    for r in range(first, len(rows)):
        row = rows[r]
        values, texts = set(_values(row)), _texts(row)
        if not values and not texts:
            gap = gap or all(c.kind is Kind.EMPTY for c in row)
            continue
        if not values:
            return data, breaks, r
        lost = [c for c in always - values if row[c].kind in (Kind.TEXT, Kind.EMPTY)]
        is_footer = bool(texts) and is_statistic(row[texts[0]].text)
        is_other = gap and any(row[c].kind is Kind.TEXT for c in lost)
        if lost and (is_footer or is_other):
            end = r
            while end < len(rows) and (_values(rows[end]) or _texts(rows[end])):
                if _is_text_row(rows[end]):
                    break
                end += 1
            return data, breaks, end
        breaks |= {r} if gap else set()
        data.append(r)
        always &= values
        gap = False
    return data, breaks, len(rows)


def _blocks(
    grid: CellGrid, texts: tuple[int, int, int], data: list[int], breaks: set[int]
) -> list[SheetTable]:
    """The tables beside each other whose headers stand in the rows from texts[1] to texts[2].

    texts  first row above that is free, first and last row of the texts right above the values
    """
    above, first, last = texts
    rows = grid.rows
    valued = {c for r in data[:FEW_ROWS] for c in _values(rows[r])}
    candidates = [r for r in range(first, last + 1) if not _is_unit_row(rows[r])] or [first]
    cover = {r: len(valued & set(_texts(rows[r]))) for r in candidates}
    header = max(cover, key=lambda r: (cover[r], r))
    columns = [
        c
        for c in range(len(rows[header]))
        if rows[header][c].text or any(rows[r][c].kind is not Kind.EMPTY for r in data)
    ]
    headers = {c: clean(rows[header][c].text) for c in columns}
    units = dict.fromkeys(columns, "")
    for r in range(header + 1, last + 1):
        is_units = _is_unit_row(rows[r])
        for c in columns:
            text = rows[r][c].text
            if text and is_units:
                units[c] = text
            elif text:
                headers[c] = clean(text)
    columns, lists = _without_lists(columns, rows, data)
    parts = _beside(columns, headers, [rows[r] for r in data])
    over = header - 1
    if len(parts) == 1 and over >= first and _texts(rows[over]) != columns[:1]:
        _units_above(rows[over], columns, headers, units)
    found = []
    for part, following in zip(parts, [*parts[1:], [len(rows[header])]], strict=True):
        begin = 0 if part is parts[0] else part[0]
        own = [tuple(rows[r][begin : following[0]]) for r in range(first, header)]
        shared = [tuple(rows[r]) for r in range(above, first)]
        shared += [tuple(rows[r][lists:]) for r in data] if lists else []
        mine = [r for r in data if any(rows[r][c].kind is not Kind.EMPTY for c in part)]
        found.append(
            SheetTable(
                grid,
                tuple(part),
                tuple(headers[c] for c in part),
                tuple(units[c] for c in part),
                header,
                tuple(mine),
                frozenset(breaks),
                tuple(row for row in (*shared, *own) if any(c.kind is not Kind.EMPTY for c in row)),
                _title(own) or _title(shared),
            )
        )
    return found


def _is_unit_row(row: Sequence[Cell]) -> bool:
    texts = [c.text for c in row if c.kind is not Kind.EMPTY]
    return all(map(is_unit, texts)) and any(known_unit(t.strip().strip("[]()")) for t in texts)


def clean(text: str) -> str:
    """A header with single spaces, without the marks of a comment."""
    return " ".join(text.lstrip("#").split())


def _units_above(
    row: Sequence[Cell], columns: Sequence[int], headers: dict[int, str], units: dict[int, str]
) -> None:
    """A text above several columns may give their unit."""
    unit = ""
    for c in range(len(row)):
        unit = split_header(row[c].text)[1] if row[c].text else unit
        own = c not in columns or is_time(headers[c]) or split_header(headers[c])[1]
        if not own and not units[c] and headers[c]:
            units[c] = unit


def _without_lists(
    columns: list[int], rows: Sequence[Sequence[Cell]], data: Sequence[int]
) -> tuple[list[int], int]:
    """The columns without a list of names and values beside them, and where it begins; or 0."""
    for before, c in pairwise(columns):
        own = [rows[r][c:] for r in data if rows[r][c].kind is not Kind.EMPTY]
        named = c > before + 1 and own and all(row[0].kind is Kind.TEXT for row in own)
        if named and any(cell.kind in VALUES for row in own for cell in row):
            return columns[: columns.index(c)], c
    return columns, 0


def _beside(
    columns: list[int], headers: dict[int, str], data: Sequence[Sequence[Cell]]
) -> list[list[int]]:
    """The columns of each table: one begins where the headers come again, or other times."""
    times = [c for c in columns if is_time(headers[c])]
    starts = [c for c in times if not is_date(headers[c])]
    texts = {tuple(row[c].text for row in data) for c in starts}
    own = list(pairwise([*starts, columns[-1] + 1]))
    differ = len(texts) == len(starts) > 1 and starts[0] == columns[0] and times == starts
    if differ and all(a + 1 < b for a, b in own):
        return [[c for c in columns if a <= c < b] for a, b in own]
    again = [c for c in times if times and headers[c].lower() == headers[times[0]].lower()]
    first = [c for c in columns if headers[c] and headers[c].lower() == headers[columns[0]].lower()]
    starts = first if len(first) == len(again) else again
    if len(again) <= 1:
        return [columns]
    ends = [*starts[1:], columns[-1] + 1]
    parts = [[c for c in columns if a <= c < b] for a, b in zip(starts, ends, strict=True)]
    return [[c for c in columns if c < starts[0]] + parts[0], *parts[1:]]


def _title(rows: Sequence[Sequence[Cell]]) -> str:
    """The first text alone in its row that is no condition."""
    for row in rows:
        filled = [c for c in row if c.kind is not Kind.EMPTY]
        if (
            len(filled) == 1
            and filled[0].kind is Kind.TEXT
            and not re.match(r"[^,]*[:=]", filled[0].text)
        ):
            return filled[0].text
    return ""
