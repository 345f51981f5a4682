"""Files as typed cells: numbers, limits of detection, clock times, durations, dates, texts.

A number means the same in every file: decimal commas, separators of thousands, per cent and
"0.95 ± 0.02" are resolved here. What is ambiguous is a `Question`.
"""

import csv
import math
import re
import zipfile
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from io import BytesIO, StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from igpe.core.errors import DataError
from igpe.core.files import read
from igpe.formats.workbooks.words import word_set
from igpe.problem.tables import decoded, last_row, open_file, read_parquet, require_cells

MOST_CELLS = 1_000_000  # of a text file; Excel's files have a lower limit of their own
MOST_SHEETS = 200
SEPARATORS = ("\t", ";", ",")
MISSING = word_set("- -- \N{EN DASH} \N{EM DASH} na n/a n.a. nan null none #n/a #div/0! ?")
UNDETECTED = word_set("n.d. nd n.d <lod <loq bdl bql lod loq n.n.")  # without their spaces
_NUMBER = r"[-+\u2212]?(?:\d+(?:[.,]\d*)*|[.,]\d+)(?:[eE][-+\u2212]?\d+)?"
NUMBER = re.compile(_NUMBER)
_LIMIT = re.compile(rf"[<>≤≥]\s*({_NUMBER})\s*%?")
_WITH_ERROR = re.compile(rf"({_NUMBER})\s*(?:±|\+/-|\+-)\s*({_NUMBER})")
_CLOCK = re.compile(r"(\d{1,3}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?\s*([AaPp][Mm])?")
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "std": 3600.0, "d": 86400.0, "t": 86400.0}
_DURATION = (
    r"(\d+(?:[.,]\d+)?)\s*"
    r"(s|sec|seconds?|min|minutes?|minuten?|h|hrs?|hours?|std|d|days?|tage?)(?![a-z])\.?\s*"
)
_GAP = re.compile(r"(?<=\d)[\s'\N{RIGHT SINGLE QUOTATION MARK}](?=\d{3}(?!\d))")  # thousands
_DATE = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2(\d{1,4})(?:[T ,]+(\d.*))?")
_GROUPED = re.compile(r"[-+]?[1-9]\d{0,2},\d{3}")  # 1,234: thousands or decimals
_POINT_GROUP = re.compile(r"[-+]?[1-9]\d{0,2}\.\d{3}")
_ISO, _NOON, _DAY = 4, 12, 86400.0


class Kind(Enum):
    """What a cell holds."""

    EMPTY = "nothing"
    MISSING = "no value"
    NUMBER = "a number"
    LIMIT = "a limit of detection"
    CLOCK = "a clock time or a duration"
    DURATION = "a duration"
    DATE = "a date"
    TEXT = "a text"


VALUES = {Kind.NUMBER, Kind.LIMIT, Kind.CLOCK, Kind.DURATION, Kind.DATE}


class Cell(NamedTuple):
    """A cell.

    value    a number; seconds of clock times and durations; of dates (day first, month first), each
             a datetime or None
    text     as it stands in the file
    sigma    of "0.95 ± 0.02";  per_cent: the cell says so
    parts    of a clock time: 2 for 08:15, 3 for 08:15:00
    """

    kind: Kind
    value: Any = None
    text: str = ""
    sigma: float | None = None
    per_cent: bool = False
    parts: int = 0


EMPTY = Cell(Kind.EMPTY)


@dataclass(frozen=True)
class CellGrid:
    """A sheet: its file and name, and the cells of its rows. All rows are equally long.

    hidden  rows that Excel does not show;  shown: whether it shows the sheet
    """

    file: Path
    sheet: str
    rows: list[list[Cell]]
    hidden: frozenset[int] = frozenset()
    shown: bool = True

    def place(self, row: int, column: int) -> str:
        """A cell as spreadsheets name it: "B7"; with its sheet, if the sheet has a name."""
        letters, number = "", column + 1
        while number:
            number, rest = divmod(number - 1, 26)
            letters = chr(ord("A") + rest) + letters
        return f"{f'{self.sheet}!' if self.sheet else ''}{letters}{row + 1}"


class Question(DataError):
    """What a file leaves open.

    choices  what the user may mean -> arguments of `read_workbook` that say so
    """

    def __init__(self, message: str, choices: dict[str, dict[str, Any]], listed: str = "") -> None:
        listed = listed or "; ".join(f"{arguments(how)} ({c})" for c, how in choices.items())
        super().__init__(f"{message} Say which: {listed}.")
        self.question, self.choices, self.listed = message, choices, listed

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.question, self.choices, self.listed)


def arguments(given: dict[str, Any]) -> str:
    """Arguments of `read_workbook` as one types them."""
    return ", ".join(f"{name}={value!r}" for name, value in given.items())


def read_grids(path: Path, decimal: str | None, marked: Collection[str]) -> list[CellGrid]:
    """The sheets of a file, as typed cells; a text file is one sheet without a name.

    decimal  "," or "."; None to find out
    marked   texts that stand for no value
    raises   DataError for files that are too large, or of no kind that igpe reads; `Question`
    """
    sheets = open_file(path, _RAW)
    if len(sheets) > MOST_SHEETS:
        raise DataError(f"'{path}' has {len(sheets)} sheets; igpe reads up to {MOST_SHEETS}.")
    comma = _has_decimal_comma(path, sheets, decimal)
    parse = _Parser(comma, {m.strip().lower() for m in marked})
    grids = []
    for sheet in sheets:
        rows = [[parse.cell(v) for v in row] for row in sheet.rows]
        width = max(map(len, rows), default=0)
        filled = [row + [EMPTY] * (width - len(row)) for row in rows]
        grids.append(CellGrid(path, sheet.name, filled, sheet.hidden, sheet.shown))
    return grids


class _Sheet(NamedTuple):
    """The values of a sheet; its hidden rows; whether it is shown; of a text, the separator."""

    name: str
    rows: list[list[Any]]
    hidden: frozenset[int] = frozenset()
    shown: bool = True
    separator: str = ""


def _text_rows(path: Path) -> list[_Sheet]:
    text = decoded(path)
    lines = [line.lstrip("#% ") if line[:1] in ("#", "%") else line for line in text.splitlines()]
    separator = _separator([line for line in lines[:2000] if line.strip()])
    columns = 1 + text.count(separator or " ") // max(len(lines), 1)
    require_cells(path, len(lines), columns, MOST_CELLS)
    if not separator:
        return [_Sheet("", [line.split() for line in lines])]
    rows = list(csv.reader(StringIO(text, newline=None), delimiter=separator))
    require_cells(path, len(rows), max(map(len, rows), default=0), MOST_CELLS)
    rows = [
        [row[0].lstrip("#% ") if row[0][:1] in ("#", "%") else row[0], *row[1:]] if row else []
        for row in rows
    ]
    return [_Sheet("", rows, separator=separator)]


def _separator(lines: list[str]) -> str:
    """What parts the longest stretch of lines into equally many fields; "" for white space."""
    spaced = [words for line in lines if not {*";\t"} & {*line} and len(words := line.split()) > 1]
    if sum(all(NUMBER.fullmatch(w) and w[-1] != "," for w in words) for words in spaced) > 1:
        return ""

    def stretch(separator: str) -> int:
        runs = groupby(line.count(separator) for line in lines)
        return max((len(list(run)) for fields, run in runs if fields), default=0)

    lengths = {s: stretch(s) for s in SEPARATORS}
    return next(s for s in SEPARATORS if lengths[s] >= max(lengths.values()) / 2)


def _sheet_rows(path: Path) -> list[_Sheet]:
    if not zipfile.is_zipfile(path):
        frames = pd.read_excel(BytesIO(read(path)), sheet_name=None, header=None, engine="xlrd")
        return [_Sheet(str(name), _frame_cells(frame)) for name, frame in frames.items()]
    last, content = last_row(path), read(path)
    sheets = _openpyxl_rows(content, last, values=True)
    with zipfile.ZipFile(BytesIO(content)) as archive:
        parts = [n for n in archive.namelist() if "worksheets/" in n]
        has_formulas = any(b"<f" in archive.read(n) for n in parts)
    if has_formulas:
        formulas = _openpyxl_rows(content, last, values=False)
        for sheet, written in zip(sheets, formulas, strict=True):
            _refuse_formulas(CellGrid(path, sheet.name, []), written.rows, sheet.rows)
    return sheets


def _refuse_formulas(grid: CellGrid, formulas: list[list[Any]], values: list[list[Any]]) -> None:
    for r, row in enumerate(formulas):
        for c, cell in enumerate(row):
            if isinstance(cell, str) and cell.startswith("=") and values[r][c] is None:
                raise DataError(
                    f"'{grid.file}' holds formulas without values, the first in "
                    f"{grid.place(r, c)}. Open the file in Excel or LibreOffice and save it there, "
                    "so that it holds their results."
                )


def _openpyxl_rows(content: bytes, last: int, *, values: bool) -> list[_Sheet]:
    from openpyxl import load_workbook  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    return [
        _Sheet(
            sheet.title,
            [[_shown(cell) for cell in row] for row in sheet.iter_rows(max_row=max(last, 1))],
            frozenset(r - 1 for r, row in sheet.row_dimensions.items() if row.hidden),
            sheet.sheet_state == "visible",
        )
        for sheet in load_workbook(BytesIO(content), data_only=values, keep_links=False).worksheets
    ]


def _shown(cell: Any) -> Any:
    is_ratio = isinstance(cell.value, float | int) and "%" in str(cell.number_format)
    return f"{100 * cell.value:.15g}%" if is_ratio else cell.value


def _frame_cells(frame: pd.DataFrame) -> list[list[Any]]:
    cells: list[list[Any]] = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
    return cells


def _parquet_rows(path: Path) -> list[_Sheet]:
    frame = read_parquet(path)
    return [_Sheet("", [list(map(str, frame.columns)), *_frame_cells(frame)])]


_RAW = dict.fromkeys((".csv", ".txt", ".tsv", ".dat"), _text_rows)
_RAW |= {".xlsx": _sheet_rows, ".xls": _sheet_rows, ".parquet": _parquet_rows}


def _has_decimal_comma(path: Path, sheets: Iterable[_Sheet], decimal: str | None) -> bool:
    """Whether commas stand before decimals; raises `Question` if they may part thousands."""
    if decimal is not None:
        if decimal not in (",", "."):
            raise DataError(f"decimal is {decimal!r}; give decimal=',' or decimal='.'.")
        return decimal == ","
    example = ""
    for text in (c for s in sheets for row in s.rows for c in row if isinstance(c, str)):
        shows = _comma_in(text.strip()) if "," in text else None
        if isinstance(shows, bool):
            return shows
        example = example or shows or ""
    if example and not any(s.separator == ";" for s in sheets):
        raise Question(
            f"'{path.name}' has numbers such as {example}, whose comma may part thousands or stand "
            "before decimals.",
            {
                "the comma stands before decimals": {"decimal": ","},
                "the comma parts thousands": {"decimal": "."},
            },
        )
    return bool(example)


def _comma_in(text: str) -> bool | str | None:
    """What a text shows of commas: True: decimals; False: thousands; itself: either; None: none."""
    if re.fullmatch(rf"{_GROUPED.pattern}\.\d*|[-+]?\d{{1,3}}(,\d{{3}}){{2,}}", text):
        return False
    if _GROUPED.fullmatch(text):
        return text
    text = _GAP.sub("", text)
    number = re.fullmatch(rf"[<>±\s]*({_NUMBER})(\s*\S{{1,8}}|\s*(±|\+/?-)\s*{_NUMBER})?", text)
    is_decimal = number is not None and re.fullmatch(r"[^.,]*\d,\d[^.,]*", number[1])
    return True if is_decimal and number is not None and not _GROUPED.fullmatch(number[1]) else None


class _Parser:
    """Makes typed cells of what a file holds."""

    def __init__(self, comma: bool, marked: set[str]) -> None:
        self.comma, self.marked = comma, marked

    def cell(self, value: Any) -> Cell:  # noqa: PLR0911 - one case for each type
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return EMPTY
        if isinstance(value, bool):
            return Cell(Kind.TEXT, text=str(value))
        if isinstance(value, int | float):
            return Cell(Kind.NUMBER, float(value), f"{value:.12g}")
        if isinstance(value, datetime | date):
            at = value if isinstance(value, datetime) else datetime(*value.timetuple()[:3])
            return Cell(Kind.DATE, (at, at), str(value))
        if isinstance(value, time):
            seconds = value.hour * 3600 + value.minute * 60 + value.second + value.microsecond / 1e6
            return Cell(Kind.CLOCK, seconds, str(value), parts=3)
        if isinstance(value, timedelta):
            return Cell(Kind.DURATION, value.total_seconds(), str(value), parts=3)
        return self._text(str(value).strip())

    def _text(self, text: str) -> Cell:
        lower = text.lower()
        if not text:
            return EMPTY
        if lower in self.marked or lower in MISSING:
            return Cell(Kind.MISSING, text=text)
        if lower.replace(" ", "") in UNDETECTED or _LIMIT.fullmatch(text):
            return Cell(Kind.LIMIT, text=text)
        is_ratio = text.endswith("%") and len(text) > 1
        number = self.number(text[:-1].strip() if is_ratio else text)
        if number is not None:
            return Cell(Kind.NUMBER, number, text, per_cent=is_ratio)
        if match := _WITH_ERROR.fullmatch(text):
            value, sigma = self.number(match[1]), self.number(match[2])
            if value is not None and sigma is not None:
                return Cell(Kind.NUMBER, value, text, sigma)
        return _moment(text) or Cell(Kind.TEXT, text=text)

    def number(self, text: str) -> float | None:
        """The number that a text is; None if it is none."""
        text = _GAP.sub("", text)
        if not NUMBER.fullmatch(text):
            return None
        plain = text.replace("\N{MINUS SIGN}", "-")
        thousands, point = (".", ",") if self.comma else (",", ".")
        if self.comma and "," not in plain and plain.count(".") == 1:
            return None if _POINT_GROUP.fullmatch(plain) else float(plain)  # 1.234 may be 1234
        if thousands in plain:
            if not re.fullmatch(rf"[-+]?\d{{1,3}}(\{thousands}\d{{3}})+(\{point}\d*)?", plain):
                return None
            plain = plain.replace(thousands, "")
        try:
            return float(plain.replace(",", "."))
        except ValueError:
            return None


def _moment(text: str) -> Cell | None:
    """A clock time, a duration or a date; None if the text is none of them."""
    return _clock(text) or _date(text)


def _clock(text: str) -> Cell | None:
    if match := _CLOCK.fullmatch(text):
        hours, minutes = int(match[1]), int(match[2])
        if match[4]:
            hours = hours % _NOON + _NOON * (match[4].lower() == "pm")
        seconds = float((match[3] or "0").replace(",", "."))
        parts = 3 if match[3] or match[4] else 2
        return Cell(Kind.CLOCK, hours * 3600 + minutes * 60 + seconds, text, parts=parts)
    if re.fullmatch(f"({_DURATION})+", text, re.IGNORECASE):
        seconds = sum(
            float(number.replace(",", ".")) * _SECONDS.get(unit, _SECONDS[unit[0]])
            for number, unit in re.findall(_DURATION, text.lower())
        )
        return Cell(Kind.DURATION, seconds, text, parts=3)
    return None


def _date(text: str) -> Cell | None:
    if re.match(r"\d{4}-\d\d-\d\d[T ]\d", text):
        with suppress(ValueError):
            at = datetime.fromisoformat(text)
            at = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
            return Cell(Kind.DATE, (at, at), text)
    match = _DATE.fullmatch(text)
    if match is None:
        return None
    rest = _clock(match[5]) if match[5] else Cell(Kind.CLOCK, 0.0)
    if rest is None or rest.kind is not Kind.CLOCK or rest.value >= _DAY:
        return None
    first, mark, second, third = int(match[1]), match[2], int(match[3]), int(match[4])
    if len(match[1]) == _ISO:
        ways = ((first, second, third),) * 2
    elif len(match[4]) == _ISO:
        ways = ((third, second, first), (third, first, second))
        ways = (ways[0],) * 2 if mark == "." else ways  # no country writes months first with points
    else:
        return None
    moments = tuple(_datetime(*ymd, rest.value) for ymd in ways)
    return Cell(Kind.DATE, moments, text) if any(moments) else None


def _datetime(year: int, month: int, day: int, seconds: float) -> datetime | None:
    try:
        return datetime(year, month, day) + timedelta(seconds=seconds)
    except ValueError:
        return None
