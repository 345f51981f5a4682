"""Tables among the cells of a sheet: header, units, rows, and what stands above them.

A table begins with a row of values below a row of texts. Tables stand below each other, or beside
each other with the same headers. A table whose times run across is turned.

Conditions of runs stand above a table, in its title, or in the name of its sheet.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from igpe.core.errors import DataError
from igpe.formats.workbooks import words
from igpe.formats.workbooks.cells import EMPTY, NUMBER, VALUES, Cell, CellGrid, Kind

FEW_ROWS = 3  # from which the columns of a table are known
Row: TypeAlias = Sequence[Cell]


@dataclass(frozen=True)
class SheetTable:
    """A table of a sheet.

    columns  where it stands;  headers, units: their texts, "" where there is none
    rows     those that hold values;  breaks: rows that follow an empty one
    above    texts and values above the table that belong to it, row by row
    title    the first text above the table
    beside   whether only the title distinguishes it from tables beside it
    turned   the sheet's rows are its columns
    """

    grid: CellGrid
    columns: tuple[int, ...]
    headers: tuple[str, ...]
    units: tuple[str, ...]
    rows: tuple[int, ...]
    breaks: frozenset[int]
    above: tuple[Row, ...] = ()
    title: str = ""
    beside: bool = False
    turned: bool = False

    def cells(self, column: int) -> list[Cell]:
        """The cells of the column with this number within the table."""
        return [self.grid.rows[r][self.columns[column]] for r in self.rows]

    def place(self, row: int, column: int) -> str:
        """Place of a cell in its sheet, from its row and column in the table: "Sheet1!B7"."""
        r, c = self.rows[row], self.columns[column]
        return self.grid.place(c, r) if self.turned else self.grid.place(r, c)


def find_blocks(grid: CellGrid) -> list[SheetTable]:
    """All tables of a sheet that have headers, from the top."""
    rows, start = grid.rows, 0
    blocks: list[SheetTable] = []
    for r in range(len(rows) - 1):
        if r < start or not (times := _times_across(rows, r)):
            continue
        end = next((k for k in range(r, len(rows)) if _is_empty(rows[k])), len(rows))
        first = r
        while first > start and len(_values(rows[first - 1])) > 1:
            first -= 1
        shown = [row if first <= k < end else [EMPTY] * len(row) for k, row in enumerate(rows)]
        shown[r] = times
        across = _below_each_other(replace(grid, rows=[list(c) for c in zip(*shown, strict=True)]))
        above = tuple(row for row in rows[start:first] if not _is_empty(row))
        blocks += [replace(b, turned=True, above=above, title=_title(above)) for b in across]
        start = end
    return blocks or list(_below_each_other(grid))


def _times_across(rows: Sequence[list[Cell]], r: int) -> list[Cell]:
    """A row that holds the times of those below: "Time [s]|0|30", "Name|5 min|9 min"; or []."""
    row, values, below = rows[r], _values(rows[r]), rows[r + 1]
    if len(values) < 2 or len(_values(below)) < 2 or _first(below).kind is not Kind.TEXT:  # noqa: PLR2004
        return []
    if _first(row).kind is Kind.TEXT and words.is_time(_first(row).text):
        return row
    above = rows[r - 1] if r else [EMPTY] * len(row)
    if any(row[c].kind is not Kind.DURATION or above[c].kind is not Kind.EMPTY for c in values):
        return []
    return [Cell(Kind.TEXT, text="time"), *(c if c.kind in VALUES else EMPTY for c in row[1:])]


def _is_empty(row: Row) -> bool:
    return all(c.kind is Kind.EMPTY for c in row)


def _first(row: Row) -> Cell:
    return next((c for c in row if c.kind is not Kind.EMPTY), EMPTY)


def _texts(row: Row, first: int = 0) -> list[int]:
    return [c for c, cell in enumerate(row, first) if cell.kind is Kind.TEXT]


def _values(row: Row) -> list[int]:
    return [c for c, cell in enumerate(row) if cell.kind in VALUES]


def _is_text_row(row: Row) -> bool:
    return bool(_texts(row)) and not _values(row)


def _below_each_other(grid: CellGrid) -> Iterator[SheetTable]:
    rows = grid.rows
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
        if first <= last and not all(_is_condition(rows[k]) for k in data):
            tables = _blocks(grid, (above, first, last), data, breaks)
            if len(data) > 1 or any(map(words.is_time, tables[0].headers)):
                yield from tables
                above = end
        r = max(end, r + 1)


def _is_condition(row: Row) -> bool:
    """Whether a row above a table gives conditions: "T / °C", "40"."""
    first, rest = _first(row), [c for c in row if c.kind is not Kind.EMPTY][1:]
    is_name = first.kind is Kind.TEXT and bool(words.split_header(first.text)[1])
    return is_name and not words.is_time(first.text) and bool(rest) and rest[0].kind is Kind.NUMBER


def _starts(rows: Sequence[Row], r: int) -> bool:
    values = _values(rows[r])
    if len(values) != 1 or r == 0:
        return len(values) > 1
    texts = [rows[r - 1][c].text for c in _texts(rows[r - 1])]
    return len(texts) > 1 and any(words.is_time(t) or words.is_run(t) for t in texts)


def _extent(rows: Sequence[Row], first: int) -> tuple[list[int], frozenset[int], int]:
    """Rows with values, those after an empty row or header, and the row after the table."""
    data: list[int] = []
    breaks: set[int] = set()
    always = set(_values(rows[first]))  # columns that have had values in all rows
    gap = False
    for r in range(first, len(rows)):
        row = rows[r]
        values, texts = set(_values(row)), _texts(row)
        is_header = not values and not gap and list(row) in rows[max(first - 2, 0) : first]
        if is_header or not (values or texts):  # headers come again on the next page
            gap = gap or is_header or _is_empty(row)
            continue
        if not values:
            return data, frozenset(breaks), r
        lost = [c for c in always - values if row[c].kind in (Kind.TEXT, Kind.EMPTY)]
        is_footer = bool(texts) and words.begins_with(words.STATISTICS, row[texts[0]].text)
        if lost and (is_footer or (gap and any(row[c].kind is Kind.TEXT for c in lost))):
            after = range(r, len(rows))
            ends = (k for k in after if _is_text_row(rows[k]) or not _values(rows[k]))
            end = next(ends, len(rows))
            is_above = not is_footer and end < len(rows) and _is_text_row(rows[end])
            return data, frozenset(breaks), r if is_above else end
        breaks |= {r} if gap else set()
        data.append(r)
        always &= values
        gap = False
    return data, frozenset(breaks), len(rows)


def _blocks(
    grid: CellGrid, texts: tuple[int, int, int], data: list[int], breaks: frozenset[int]
) -> list[SheetTable]:
    """The tables beside each other whose headers stand in the rows from texts[1] to texts[2].

    texts  first row above that is free, first and last row of the texts right above the values
    """
    above, first, last = texts
    rows = grid.rows
    valued = {c for r in data[:FEW_ROWS] for c in _values(rows[r])}
    candidates = [r for r in range(first, last + 1) if not _is_unit_row(rows[r])] or [first]
    # "t / min", "A" are units
    if not any(words.is_time(c.text) for r in candidates for c in rows[r]):
        candidates += [r for r in range(first, last + 1) if any(map(_is_time_in_unit, rows[r]))]
    header = max(candidates, key=lambda r: (len(valued & set(_texts(rows[r]))), r))
    over = rows[header - 1] if header > first else [EMPTY] * len(rows[header])
    names = [cell.text for cell in rows[header]]
    if len(_texts(over)) > 1:  # some names may stand a row higher
        names = [text or above.text for text, above in zip(names, over, strict=True)]
    headers = {
        c: clean(text)
        for c, text in enumerate(names)
        if rows[header][c].text or any(rows[r][c].kind is not Kind.EMPTY for r in data)
    }
    units = dict.fromkeys(headers, "")
    for r in range(header + 1, last + 1):
        target = units if _is_unit_row(rows[r]) else headers
        target |= {c: clean(rows[r][c].text) for c in headers if rows[r][c].text}
    columns, lists = _without_lists(list(headers), [rows[r] for r in data])
    parts = _beside(columns, headers, [rows[r] for r in data])
    labels = _labelled(columns, headers, over) if len(parts) == 1 else []
    if len(parts) == 1 and not labels and _texts(over) != columns[:1]:
        _units_above(over, columns, headers, units)
    parts = [part for _, part in labels] or parts
    starts = [c for c, _ in labels] or [0, *(part[0] for part in parts[1:])]
    listed = [rows[r][lists:] for r in data] if lists else []
    blocks = []
    for part, begin, following in zip(parts, starts, [*starts[1:], None], strict=True):
        own = [rows[r][begin:following] for r in range(first, header)]
        shared = [_for_table(rows[r], starts, begin, following) for r in range(above, first)]
        shared += listed
        filled = [r for r in data if any(rows[r][c].kind is not Kind.EMPTY for c in part)]
        blocks.append(
            SheetTable(
                grid,
                tuple(part),
                tuple(headers[c] for c in part),
                tuple(units[c] for c in part),
                tuple(filled),
                breaks,
                tuple(row for row in (*shared, *own) if not _is_empty(row)),
                over[begin].text if labels else _title(own) or _title(shared),
                bool(labels),
            )
        )
    return blocks


def _for_table(row: Row, starts: list[int], begin: int, following: int | None) -> Row:
    """Cells of a row above adjacent tables that belong to one of them."""
    ends = [*starts[1:], len(row)]
    keys = [
        {re.split("[:=]", row[c].text)[0].strip().lower() for c in _texts(row[a:b], a)}
        for a, b in zip([0, *starts[1:]], ends, strict=True)
    ]
    repeated = any(a & b for k, a in enumerate(keys) for b in keys[:k])
    is_titles = _texts(row) == [c for c, cell in enumerate(row) if cell.text] == starts
    own = slice(begin if begin != starts[0] else 0, following)
    return row[own] if repeated or is_titles else row


def _is_time_in_unit(cell: Cell) -> bool:
    return words.is_time(cell.text) and words.split_header(cell.text)[1] != ""


def _is_unit_row(row: Row) -> bool:
    texts = [c.text for c in row if c.kind is not Kind.EMPTY]
    return all(map(words.is_unit, texts)) and any(
        words.unit_below(t) or words.is_form(t) for t in texts
    )


def clean(text: str) -> str:
    """A header with single spaces, without the marks of a comment."""
    return " ".join(text.lstrip("#").split())


def _units_above(
    row: Row, columns: Sequence[int], headers: dict[int, str], units: dict[int, str]
) -> None:
    """A text above several columns may give their unit."""
    unit = ""
    for c in range(len(row)):
        unit = words.split_header(row[c].text)[1] if row[c].text else unit
        own = c not in columns or words.is_time(headers[c]) or words.split_header(headers[c])[1]
        if not own and not units[c] and headers[c]:
            units[c] = unit


def _without_lists(columns: list[int], data: Sequence[Row]) -> tuple[list[int], int]:
    """The columns without a list of names and values beside them, and where it begins; or 0."""
    for before, c in pairwise(columns):
        own = [row[c:] for row in data if row[c].kind is not Kind.EMPTY]
        named = c > before + 1 and own and all(row[0].kind is Kind.TEXT for row in own)
        if named and any(map(_values, own)):
            return columns[: columns.index(c)], c
    return columns, 0


def _spans(columns: Sequence[int], starts: Sequence[int]) -> list[list[int]]:
    ends = pairwise([*starts, columns[-1] + 1])
    return [[c for c in columns if begin <= c < end] for begin, end in ends]


def _beside(columns: list[int], headers: dict[int, str], data: Sequence[Row]) -> list[list[int]]:
    """The columns of each table: one begins where the headers come again, or other times."""
    times = [c for c in columns if words.is_time(headers[c])]
    texts = {tuple(row[c].text for row in data) for c in times}
    if len(texts) == len(times) > 1 and times[0] == columns[0]:
        parts = _spans(columns, times)
        are_dates = any(words.speaks_of(words.DATES, headers[c]) for c in times)
        if all(len(p) > 1 for p in parts) and not are_dates:
            return parts
    again = [c for c in times if headers[c].lower() == headers[times[0]].lower()]
    if len(again) <= 1:
        return [columns]
    first = [c for c in columns if headers[c] and headers[c].lower() == headers[columns[0]].lower()]
    parts = _spans(columns, first if len(first) == len(again) else again)
    return [[c for c in columns if c < parts[0][0]] + parts[0], *parts[1:]]


def _labelled(
    columns: list[int], headers: dict[int, str], over: Row
) -> list[tuple[int, list[int]]]:
    """Where tables begin, and their columns: the same headers below different texts."""
    starts = [c for c in columns if over[c].kind is Kind.TEXT and over[c].text != headers[c]]
    shared = [c for c in columns if starts and c < starts[0]]
    spans = [{headers[c]: c for c in span} for span in _spans(columns, starts)]
    again = any({*a} & {*b} for k, a in enumerate(spans) for b in spans[:k])
    if not again or not any(words.is_time(headers[c]) for c in shared):
        return []
    return [(c, shared + list(s.values())) for c, s in zip(starts, spans, strict=True)]


def _title(rows: Sequence[Row]) -> str:
    """The first text alone in its row that is no condition."""
    for row in rows:
        filled = [c for c in row if c.kind is not Kind.EMPTY]
        is_alone = len(filled) == 1 and filled[0].kind is Kind.TEXT
        if is_alone and not re.match(r"[^,]*[:=]", filled[0].text):
            return filled[0].text
    return ""


ABSOLUTE = {"degC": (1.0, 273.15), "degF": (5 / 9, 459.67 * 5 / 9), "K": (1.0, 0.0)}
ROUNDED = 0.5  # K: 333 K is 60 °C
COLDEST_KELVIN = 200.0  # "5 K" is no temperature of a reaction
_GIVEN = re.compile(rf"([^\W\d][\w .()/-]*?)\s*[:=]\s*({NUMBER.pattern})\s*([^\s,;]*)")
WITH_UNIT = re.compile(rf"({NUMBER.pattern})\s*(\S.*)")
DEGREES = re.compile(rf"(?<![\w.,])({NUMBER.pattern})\s*(°\s?C|℃|degC|Grad(?: C)?|K)(?!\w)")
_AT = re.compile(rf"(?:\bat|\bbei|@|\bà)\s*({NUMBER.pattern})\s*(°\s?C|℃|degC|Grad(?: C)?|K)(?!\w)")


class Condition(NamedTuple):
    """A number that holds for a run, in the unit it is used in, and as it was written."""

    value: float
    unit: str
    written: str


def absolute(value: float, unit: str) -> tuple[float, str]:
    """A number and its unit; temperatures in kelvin."""
    if unit in ABSOLUTE:
        factor, offset = ABSOLUTE[unit]
        return round(factor * value + offset, 9), "K"
    return value, unit


def condition(value: float, unit: str, text: str = "") -> Condition:
    """A condition in the unit it is used in."""
    shown = unit.replace("degC", "°C")
    return Condition(*absolute(value, unit), text or f"{value:g} {shown}".strip())


def degrees_in(text: str) -> Condition | None:
    """The one temperature that a title or the name of a sheet gives; None if it gives none."""
    return _one_temperature(DEGREES, text)


def _one_temperature(pattern: re.Pattern[str], text: str) -> Condition | None:
    matches = [
        condition(n, "K" if m[2] == "K" else "degC", m[0].lstrip("at @"))
        for m in pattern.finditer(text)
        if (n := _plain(m[1])) is not None and (m[2] != "K" or n >= COLDEST_KELVIN)
    ]
    return matches[0] if len(matches) == 1 else None


def _plain(text: str) -> float | None:
    """A number in a sentence; None where its comma may part thousands."""
    bare = text.rstrip(".,").replace("\N{MINUS SIGN}", "-")
    if re.fullmatch(r"[1-9]\d{0,2},\d{3}", bare) or bare.count(",") + bare.count(".") > 1:
        return None
    return float(bare.replace(",", "."))


def conditions_above(block: SheetTable) -> dict[str, Condition]:
    """The conditions that the lines above a table, its title and its sheet's name give.

    raises  DataError if they give several temperatures
    """
    conditions: dict[str, Condition] = {}
    for text in (block.grid.sheet, block.title):
        _put(conditions, words.TEMPERATURE, degrees_in(text), block)
    for row in block.above:
        cells = [c for c in row if c.kind is not Kind.EMPTY]
        for k, cell in enumerate(cells):
            if cell.kind is Kind.TEXT:
                _put(conditions, words.TEMPERATURE, _one_temperature(_AT, cell.text), block)
                for entry in _entries(cell.text, [*cells[k + 1 :], EMPTY, EMPTY, EMPTY]):
                    _put(conditions, *_condition(*entry), block)
    return conditions


def _put(
    conditions: dict[str, Condition], name: str, one: Condition | None, block: SheetTable
) -> None:
    before = conditions.get(name, one)
    if one is None or before is None:
        return
    if name == words.TEMPERATURE and one.unit and abs(before.value - one.value) > ROUNDED:
        raise DataError(
            f"The table in {block.place(0, 0)} of '{block.grid.file.name}' has two "
            f"temperatures ({before.written} and {one.written}) in its title, in the lines "
            "above it or in the name of its sheet. Remove the wrong one."
        )
    conditions[name] = one


def _entries(text: str, following: Sequence[Cell]) -> Iterator[tuple[str, float | None, str]]:
    """Names, numbers and units in a text, and in the cells that follow it."""
    for key, number, unit in _GIVEN.findall(text):
        yield key, _plain(number), unit.rstrip(".")
    if following[0].kind is Kind.NUMBER:
        is_name = following[2].kind is Kind.NUMBER  # of the next number, not this one's unit
        yield text, following[0].value, "" if is_name else following[1].text
    elif match := WITH_UNIT.fullmatch(following[0].text):
        yield text, _plain(match[1]), match[2]


def _condition(key: str, number: float | None, unit: str) -> tuple[str, Condition | None]:
    """Name and value of a condition; None if neither name nor unit identifies it."""
    written, own = words.split_header(key.strip().rstrip(":=").strip())
    known = words.known_unit(unit) or ("" if unit else own)
    known = {"C": "degC", "F": "degF"}.get(known, known) if words.is_temperature(written) else known
    speaks = words.is_temperature(written) or words.is_controlled(written, "")
    if number is None or not written or (unit and not known) or not (known or speaks):
        return "", None
    shown = f"{number:g} {unit or own.replace('degC', '°C')}".strip()
    return condition_name(written, known), condition(number, known, shown)


def condition_name(written: str, unit: str) -> str:
    """The name of a condition in the model; "T" for the temperature of the reaction."""
    is_degrees = unit in ABSOLUTE or not unit
    if is_degrees and words.is_temperature(written) and words.is_reaction_temperature(written):
        plain = {w.lower() for w in words.words_of(written)}
        return words.TEMPERATURE if not plain & {"tj", "tset"} else words.identifier(written)
    if is_degrees and unit and written.lower().endswith(("temperature", "temperatur")):
        own = words.is_reaction_temperature(written)
        reaction = re.match("(?i)rea[ck]t", written) is not None
        return words.TEMPERATURE if own and reaction else words.identifier(written)
    return words.identifier(written)


def table_of_conditions(block: SheetTable, names: Iterable[str]) -> dict[str, dict[str, Condition]]:
    """Run -> conditions, of a table without times that lists runs of these names; else empty."""
    known = set(names)
    for number, header in enumerate(block.headers):
        cells = block.cells(number)
        if not {c.text for c in cells} & known or len(set(c.text for c in cells)) < len(cells):
            continue
        conditions: dict[str, dict[str, Condition]] = {}
        for other, title in enumerate(block.headers):
            written, unit = words.split_header(title)
            unit = unit or words.unit_below(block.units[other])
            for run, cell in zip(cells, block.cells(other), strict=True):
                if other != number and cell.kind is Kind.NUMBER and run.text in known and header:
                    own = conditions.setdefault(run.text, {})
                    own[condition_name(written, unit)] = condition(cell.value, unit)
        return conditions
    return {}
