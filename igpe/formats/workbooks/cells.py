"""Files as typed cells: numbers, limits of detection, clock times, durations, dates, texts.

A number means the same in every file: decimal commas, separators of thousands, per cent and
"0.95 ± 0.02" are resolved here. What is ambiguous is a `Question`.
"""

import csv
import re
import zipfile
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from enum import Enum
from functools import partial
from io import BytesIO, StringIO
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from igpe.core.errors import DataError
from igpe.core.files import read
from igpe.formats.workbooks.words import TIME_UNITS, word_set
from igpe.problem.tables import decoded, last_row, open_file, read_parquet, require_cells

MOST_CELLS = 1_000_000  # of a text file; Excel's files have a lower limit of their own
MOST_SHEETS = 200
SEPARATORS = ("\t", ";", ",")
MISSING = word_set(". - -- \N{EN DASH} \N{EM DASH} na n/a n.a. nan null none #n/a #div/0! ?")
UNDETECTED = word_set("n.d. nd n.d <lod <loq bdl bql lod loq n.n.")  # without their spaces
_NUMBER = r"[-+\u2212]?(?:\d+(?:[.,]\d*)*|[.,]\d+)(?:[eE][-+\u2212]?\d+)?"
NUMBER = re.compile(_NUMBER)
_PLUS_MINUS = rf"\s*(?:±|\+/-|\+-)\s*({_NUMBER})"
_LIMIT = re.compile(rf"([<>≤≥])\s*({_NUMBER})\s*%?")
_GAP = re.compile(r"(?<=\d)[\s'\N{RIGHT SINGLE QUOTATION MARK}](?=\d{3}(?!\d))")  # thousands
_GROUPED = r"[-+]?[1-9]\d{0,2},\d{3}"  # 1,234: thousands or decimals
_POINTED = r"[-+]?[1-9]\d{0,2}\.\d{3}"  # 1.234, the same where commas stand before decimals
_COMMA = re.compile(
    rf"[<>±\s]*([-+\u2212]?\d*,\d+(?:[eE][-+\u2212]?\d+)?)(\s+\S{{1,8}}|[%°]\S?|{_PLUS_MINUS})?"
)
_CLOCK = re.compile(r"(\d{1,3}):(\d{2})(?::(\d{2}(?:[.,]\d+)?))?\s*([AaPp][Mm])?")
_DURATION = rf"(\d+(?:[.,]\d+)?)\s*({'|'.join(TIME_UNITS)})(?![a-z])\.?\s*"
_DATE = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2(\d{1,4})(?:[T ,]+(\d.*))?")
_ISO, _NOON = 4, 12

Kind = Enum("Kind", ["EMPTY", "MISSING", "NUMBER", "LIMIT", "CLOCK", "DURATION", "DATE", "TEXT"])
"""What a cell holds; LIMIT: a limit of detection; CLOCK: the time of day, or a duration."""
VALUES = {Kind.NUMBER, Kind.LIMIT, Kind.CLOCK, Kind.DURATION, Kind.DATE}


class Cell(NamedTuple):
    """A cell.

    value    a number, also of a limit such as "<0.05"; seconds of clock times and durations; of
             dates (day first, month first), each a datetime or None
    text     as it stands in the file
    sigma    of "0.95 ± 0.02";  per_cent: the cell says so
    short    a clock time of two parts: 08:15
    """

    kind: Kind
    value: Any = None
    text: str = ""
    sigma: float | None = None
    per_cent: bool = False
    short: bool = False


EMPTY = Cell(Kind.EMPTY)


@dataclass(frozen=True)
class CellGrid:
    """A sheet: its file and name, and the cells of its rows. All rows are equally long.

    hidden  rows that Excel does not show;  shown: whether it shows the sheet
    grouped  a number such as "1.000" that is read as 1000 because of other numbers; or ""
    """

    file: Path
    sheet: str
    rows: list[list[Cell]]
    hidden: frozenset[int] = frozenset()
    shown: bool = True
    grouped: str = ""

    def place(self, row: int, column: int) -> str:
        """A cell as spreadsheets name it: "B7"; with its sheet, if the sheet has a name."""
        letters, number = "", column + 1
        while number:
            number, rest = divmod(number - 1, 26)
            letters = chr(ord("A") + rest) + letters
        return f"{f'{self.sheet}!' if self.sheet else ''}{letters}{row + 1}"


class Question(DataError):
    """An ambiguity of a file, with the choices that resolve it.

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


# Files -------------------------------------------------------------------------------------------


class _Sheet(NamedTuple):
    """The values of a sheet; its hidden rows; whether it is shown; of a text, the separator."""

    name: str
    rows: list[list[Any]]
    hidden: frozenset[int] = frozenset()
    shown: bool = True
    separator: str = ""


def read_grids(path: Path, decimal: str | None, marked: Collection[str]) -> list[CellGrid]:
    """The sheets of a file, as typed cells; a text file is one sheet without a name.

    decimal  "," or "."; None to find out
    marked   texts that stand for no value
    raises   DataError for files that are too large, or of no kind that igpe reads; `Question`
    """
    sheets = open_file(path, _RAW)
    if len(sheets) > MOST_SHEETS:
        raise DataError(f"'{path}' has {len(sheets)} sheets; igpe reads at most {MOST_SHEETS}.")
    comma = _has_decimal_comma(path, sheets, decimal)
    grouped = comma and (decimal == "," or not _has_decimal_points(sheets))
    missing = MISSING | {m.strip().lower() for m in marked}
    grids = []
    for name, values, hidden, shown, _ in sheets:
        rows = [[_cell(v, missing, comma=comma, grouped=grouped) for v in row] for row in values]
        width = max(map(len, rows), default=0)
        filled = [row + [EMPTY] * (width - len(row)) for row in rows]
        texts = (v.strip() for row in values for v in row if isinstance(v, str))
        pointed = (t for t in texts if re.fullmatch(_POINTED, t))
        example = next(pointed, "") if grouped and decimal is None else ""
        grids.append(CellGrid(path, name, filled, hidden, shown, example))
    return grids


def _text_rows(path: Path) -> list[_Sheet]:
    text = decoded(path)
    lines = [_uncommented(line) for line in text.splitlines()]
    separator = _separator([line for line in lines[:2000] if line.strip()])
    columns = 1 + text.count(separator or " ") // max(len(lines), 1)
    require_cells(path, len(lines), columns, MOST_CELLS)
    if not separator:
        return [_Sheet("", [line.split() for line in lines])]
    rows = list(csv.reader(StringIO(text, newline=None), delimiter=separator))
    require_cells(path, len(rows), max(map(len, rows), default=0), MOST_CELLS)
    return [_Sheet("", [[*map(_uncommented, r[:1]), *r[1:]] for r in rows], separator=separator)]


def _uncommented(text: str) -> str:
    return text.lstrip("#% ") if text.startswith(("#", "%")) else text


def _separator(lines: list[str]) -> str:
    """Separator with the longest stretch of lines of equally many fields; "" for white space."""
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
    last, content = max(last_row(path), 1), read(path)
    sheets = _openpyxl_rows(content, last, values=True)
    with zipfile.ZipFile(BytesIO(content)) as archive:
        parts = [n for n in archive.namelist() if "worksheets/" in n]
        has_formulas = any(b"<f" in archive.read(n) for n in parts)
    formulas = _openpyxl_rows(content, last, values=False) if has_formulas else []
    for sheet, written in zip(sheets, formulas, strict=False):
        for (r, row), own in zip(enumerate(written.rows), sheet.rows, strict=True):
            for c, cell in enumerate(row):
                if isinstance(cell, str) and cell.startswith("=") and own[c] is None:
                    raise DataError(
                        f"'{path}' contains formulas without values, the first in "
                        f"{CellGrid(path, sheet.name, []).place(r, c)}. Open the file in Excel "
                        "or LibreOffice and save it, so that it contains the results."
                    )
    return sheets


def _openpyxl_rows(content: bytes, last: int, *, values: bool) -> list[_Sheet]:
    from openpyxl import load_workbook  # type: ignore[import-untyped]  # noqa: PLC0415 - an extra

    return [
        _Sheet(
            sheet.title,
            [[_shown(cell) for cell in row] for row in sheet.iter_rows(max_row=last)],
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


# Cells -------------------------------------------------------------------------------------------


def _has_decimal_comma(path: Path, sheets: list[_Sheet], decimal: str | None) -> bool:
    """Whether commas separate decimals; raises `Question` if they may separate thousands."""
    if decimal not in (None, ",", "."):
        raise DataError(f"`decimal` is {decimal!r}; give decimal=',' or decimal='.'.")
    texts = [c for s in sheets for row in s.rows for c in row if isinstance(c, str) and "," in c]
    example = ""
    for text in map(str.strip, texts if decimal is None else ()):
        number = _COMMA.fullmatch(_GAP.sub("", text))
        if re.fullmatch(_GROUPED, text):
            example = example or text
        elif re.fullmatch(rf"{_GROUPED}\.\d*|[-+]?\d{{1,3}}(,\d{{3}}){{2,}}", text):
            return False
        elif number and not re.fullmatch(_GROUPED, number[1]):
            return True
    if example and not any(s.separator == ";" for s in sheets):
        raise Question(
            f"'{path.name}' has numbers such as {example}, in which the comma may be a "
            "thousands separator or a decimal separator.",
            {
                "the comma separates decimals": {"decimal": ","},
                "the comma separates thousands": {"decimal": "."},
            },
        )
    return bool(example) or decimal == ","


def _has_decimal_points(sheets: list[_Sheet]) -> bool:
    """Whether a number has a decimal point, such as 0.5."""
    texts = [c.strip() for s in sheets for row in s.rows for c in row if isinstance(c, str)]
    pointed = (t for t in texts if t.count(".") == 1 and NUMBER.fullmatch(t))
    return any(not re.fullmatch(rf"{_POINTED}(,\d*)?", t) for t in pointed)


def advice(text: str, otherwise: str) -> str:
    """Advice about a number such as 1.234 that igpe does not read; else `otherwise`."""
    if not re.fullmatch(_POINTED, text):
        return otherwise
    return (
        "Its point may separate thousands or decimals. If it separates thousands, pass "
        f"decimal=','. Otherwise write {text.replace('.', ',')}."
    )


def _cell(value: Any, missing: Collection[str], *, comma: bool, grouped: bool) -> Cell:
    """The typed cell of what a file holds."""
    if value is None or value != value:  # noqa: PLR0124 - not a number
        return EMPTY
    if isinstance(value, int | float) and not isinstance(value, bool):
        return Cell(Kind.NUMBER, float(value), f"{value:.12g}")
    text = str(value).strip()
    if isinstance(value, date):
        at = value if isinstance(value, datetime) else datetime(*value.timetuple()[:3])
        return Cell(Kind.DATE, (at, at), text)
    if isinstance(value, time):
        return Cell(
            Kind.CLOCK, (datetime.combine(date.min, value) - datetime.min).total_seconds(), text
        )
    if isinstance(value, timedelta):
        return Cell(Kind.DURATION, value.total_seconds(), text)
    return _typed(text, missing, comma=comma, grouped=grouped) if text else EMPTY


def _typed(text: str, missing: Collection[str], *, comma: bool, grouped: bool) -> Cell:
    """The cell of a text that is not empty."""
    lower, number = text.lower(), partial(_number, comma=comma, grouped=grouped)
    if lower in missing:
        return Cell(Kind.MISSING, text=text)
    if limit := _LIMIT.fullmatch(text):
        value = number(limit[2]) if limit[1] in "<≤" else None
        return Cell(Kind.LIMIT, value, text)
    if lower.replace(" ", "") in UNDETECTED:
        return Cell(Kind.LIMIT, text=text)
    is_ratio = text.endswith("%")
    match = re.fullmatch(rf"({_NUMBER}){_PLUS_MINUS}", text)
    bare = match[1] if match else text.removesuffix("%").strip()
    value, sigma = (number(part) for part in (bare, match[2] if match else ""))
    if value is not None and (sigma is not None or not match):
        return Cell(Kind.NUMBER, value, text, sigma, is_ratio)
    return _clock(text) or _duration(text, number) or _date(text) or Cell(Kind.TEXT, text=text)


def _number(text: str, *, comma: bool, grouped: bool) -> float | None:
    """Number in a text, or None; also for 1.234, unless points separate thousands for sure."""
    plain = _GAP.sub("", text).replace("\N{MINUS SIGN}", "-")
    thousands, point = (r"\.", ",") if comma else (",", r"\.")
    if not NUMBER.fullmatch(plain) or (comma and not grouped and re.fullmatch(_POINTED, plain)):
        return None
    if re.fullmatch(rf"[-+]?\d{{1,3}}({thousands}\d{{3}})+({point}\d*)?", plain):
        plain = re.sub(thousands, "", plain)
    elif not comma and "," in plain:
        return None
    with suppress(ValueError):
        return float(plain.replace(",", "."))
    return None


def _clock(text: str) -> Cell | None:
    """A clock time; None if the text is none."""
    if match := _CLOCK.fullmatch(text):
        hours, minutes = int(match[1]), int(match[2])
        if match[4]:
            hours = hours % _NOON + _NOON * (match[4].lower() == "pm")
        seconds = hours * 3600 + minutes * 60 + float((match[3] or "0").replace(",", "."))
        return Cell(Kind.CLOCK, seconds, text, short=not (match[3] or match[4]))
    return None


def _duration(text: str, number: Callable[[str], float | None]) -> Cell | None:
    """A duration, such as "1 h 30 min"; None if the text is none."""
    if not re.fullmatch(f"({_DURATION})+", text, re.IGNORECASE):
        return None
    parts = [(number(n), TIME_UNITS[unit]) for n, unit in re.findall(_DURATION, text.lower())]
    seconds = [n * unit for n, unit in parts if n is not None]
    return Cell(Kind.DURATION, sum(seconds), text) if len(seconds) == len(parts) else None


def _date(text: str) -> Cell | None:
    """A date, by itself or with a time; None if the text is none."""
    if re.match(r"\d{4}-\d\d-\d\d[T ]\d", text):
        with suppress(ValueError):
            at = datetime.fromisoformat(text)
            at = at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
            return Cell(Kind.DATE, (at, at), text)
    match = _DATE.fullmatch(text)
    rest = _clock(match[5]) if match and match[5] else Cell(Kind.CLOCK, 0.0)
    if match is None or rest is None or rest.kind is not Kind.CLOCK:
        return None
    first, second, third = int(match[1]), int(match[3]), int(match[4])
    orders = [(third, second, first), (third, first, second)]  # days first, months first
    if len(match[1]) == _ISO:
        orders = [(first, second, third)] * 2
    elif len(match[4]) != _ISO:
        return None
    elif match[2] == ".":  # no country writes months first with points
        orders = orders[:1] * 2
    moments: list[datetime | None] = []
    for order in orders:
        try:
            moments.append(datetime(*order) + timedelta(seconds=rest.value))
        except ValueError:
            moments.append(None)
    return Cell(Kind.DATE, tuple(moments), text) if any(moments) else None
