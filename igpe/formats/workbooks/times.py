"""Times of a table: numbers with a unit, clock times, durations, dates and days."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import SheetTable
from igpe.formats.workbooks.cells import EMPTY, VALUES, Cell, Kind, Question
from igpe.formats.workbooks.words import split_header
from igpe.problem.units import conversion

TIME_ROLES = ("time", "clock", "elapsed", "hh:mm", "mm:ss")
MORNING = 6 * 3600.0  # clock times begin later, durations earlier
DAY = 86400.0
FIRST_DAY = 20_000  # 1954: numbers in a column of dates are days of Excel


@dataclass(frozen=True)
class Options:
    """What the user says of a file.

    roles    header -> what the column is;  names: header -> name in the model
    units    header -> unit;  dates: "day first" or "month first" or ""
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    dates: str = ""


@dataclass
class Column:
    number: int
    header: str
    unit: str
    cells: list[Cell]
    role: str
    of: str = ""
    kind: str = ""
    note: str = ""

    @property
    def name(self) -> str:
        return split_header(self.header)[0]


def read_times(
    columns: list[Column], block: SheetTable, options: Options
) -> tuple[Column, FloatArray, bool] | None:
    """The column of times, the times, and whether they come from clocks; None if there is none."""
    said = [c for c in columns if options.roles.get(c.header) in TIME_ROLES]
    candidates = said or [c for c in columns if c.role == "time"]
    if not candidates:
        return None
    residence = [c for c in candidates if words.speaks_of(words.RESIDENCE, c.header)]
    if not said and len(residence) == len(candidates):
        raise Question(
            f"'{block.grid.file.name}' gives residence times, which are the time in plug flow, but "
            "not in a stirred tank.",
            {"plug flow": {"roles": {residence[0].header: "time"}}},
        )
    candidates = [c for c in candidates if c not in residence or said]
    dates = [c for c in candidates if any(x.kind is Kind.DATE for x in c.cells)]
    clocks = [c for c in candidates if any(x.kind is Kind.CLOCK for x in c.cells)]
    if len(dates) == len(clocks) == 1 and _are_days(dates[0], options):
        _join(dates[0], clocks[0], options)
        candidates = [c for c in candidates if c is not clocks[0]]
    exact = [c for c in candidates if c.header == "time"] or candidates
    read = [(c, *_seconds(c, block, options)) for c in exact]
    if len(read) > 1 and not _agree(read):
        listed = [c.header for c in exact]
        raise Question(
            f"Which column of '{block.grid.file.name}' holds the times? {listed} all "
            "speak of time.",
            {f"the column '{h}'": {"roles": {h: "time"}} for h in listed},
        )
    best = min(read, key=lambda r: (r[2], any(x.kind is Kind.DATE for x in r[0].cells)))
    for column in columns:
        if column.role == "time" and column is not best[0]:
            column.role, column.note = "ignore", f"the times are those of '{best[0].header}'"
    best[0].role = "time"
    return best


def _are_days(column: Column, options: Options) -> bool:
    days = [_day(c, options) for c in column.cells if c.kind is Kind.DATE]
    return all(d is not None and (d.hour, d.minute, d.second) == (0, 0, 0) for d in days)


def _day(cell: Cell, options: Options) -> Any:
    first, second = cell.value
    return second if options.dates == "month first" else first or second


def _join(dates: Column, clocks: Column, options: Options) -> None:
    """Days and clock times in two columns become moments."""
    joined = []
    for date, clock in zip(dates.cells, clocks.cells, strict=True):
        if date.kind is Kind.DATE and clock.kind is Kind.CLOCK:
            offset = np.timedelta64(int(clock.value * 1000), "ms").item()
            both = tuple(None if d is None else d + offset for d in date.value)
            joined.append(Cell(Kind.DATE, both, f"{date.text} {clock.text}"))
        else:
            joined.append(EMPTY if clock.kind is Kind.EMPTY else clock)
    dates.cells, dates.header = joined, dates.header


def _agree(read: Sequence[tuple[Column, FloatArray, bool]]) -> bool:
    """Whether columns of times say the same, up to when they start."""
    elapsed = []
    for column, values, from_clock in read:
        factor = 1.0 if from_clock else _factor(column.unit, "s")
        seconds = (values - np.nanmin(values)) * factor
        elapsed.append(seconds)
    span = max(float(np.nanmax(elapsed[0])), 1e-300)
    return all(np.allclose(e, elapsed[0], rtol=0, atol=0.01 * span) for e in elapsed[1:])


def _factor(unit: str, other: str) -> float:

    return conversion("time", unit, other)[0] if unit else 1.0


def _seconds(column: Column, block: SheetTable, options: Options) -> tuple[FloatArray, bool]:
    """(n_rows,) the times; nan where there are none; whether these are seconds of a clock."""
    kinds = {c.kind for c in column.cells if c.kind not in (Kind.EMPTY, Kind.MISSING)}
    row = next((r for r, c in enumerate(column.cells) if c.kind in (Kind.TEXT, Kind.LIMIT)), None)
    zero = all(c.value == 0 for c in column.cells if c.kind is Kind.NUMBER)
    kinds -= {Kind.NUMBER} if zero and len(kinds) > 1 else set()
    if row is None and len(kinds) > 1 and kinds != {Kind.CLOCK, Kind.DURATION}:
        odd = Counter(c.kind for c in column.cells).most_common()[-1][0]
        row = next(r for r, c in enumerate(column.cells) if c.kind is odd)
    if row is not None:
        raise DataError(
            f"Cell {block.place(row, column.number)} in '{block.grid.file.name}' holds "
            f"'{column.cells[row].text}' among the times '{column.header}'. Correct it, or name "
            f"another column of times: roles={{'t / h': 'time'}}."
        )
    if Kind.DATE in kinds:
        return _from_dates(column, block, options), True
    values = np.array([c.value if c.kind in VALUES else np.nan for c in column.cells], dtype=float)
    if Kind.NUMBER in kinds:
        is_day = words.speaks_of(words.DATES, column.header) and np.nanmin(values) > FIRST_DAY
        return (DAY * (values - np.nanmin(values)), True) if is_day else (values, False)
    return _from_clock(column, values, block, options), True


def _from_dates(column: Column, block: SheetTable, options: Options) -> FloatArray:
    cells = [c for c in column.cells if c.kind is Kind.DATE]
    orders = {"day first": 0, "month first": 1}
    if options.dates and options.dates not in orders:
        raise DataError(f"dates is {options.dates!r}; give 'day first' or 'month first'.")
    possible = [k for k in (0, 1) if all(c.value[k] is not None for c in cells)]
    seconds: dict[int, FloatArray] = {}
    for k in possible:
        start = min(c.value[k] for c in cells)
        seconds[k] = np.array([
            (c.value[k] - start).total_seconds() if c.kind is Kind.DATE else np.nan
            for c in column.cells
        ])
    if options.dates:
        possible = [k for k in possible if k == orders[options.dates]]
    if not possible:
        raise DataError(
            f"The dates of '{column.header}' in '{block.grid.file.name}' have days and months in "
            f"different orders; the first is '{cells[0].text}'. Write them as 2024-02-15."
        )
    if len(possible) > 1 and not np.array_equal(seconds[0], seconds[1], equal_nan=True):
        raise Question(
            f"'{block.grid.file.name}' has dates such as {cells[0].text}, which may begin with the "
            "day or the month.",
            {
                f"{order}: {cells[0].text} is {day.day} {day:%B %Y}": {"dates": order}
                for order, day in zip(orders, cells[0].value, strict=True)
            },
        )
    return seconds[possible[0]]


def _from_clock(
    column: Column, values: FloatArray, block: SheetTable, options: Options
) -> FloatArray:
    """Seconds since the start, of clock times or durations."""
    said = options.roles.get(column.header, "")
    hint = f"{column.header} {block.units[column.number]}".lower()
    hint = hint.replace("min:s", "mm:s").replace(":min", ":mm").replace(":sec", ":ss")
    cells = [c for c in column.cells if c.kind in (Kind.CLOCK, Kind.DURATION)]
    first = values[np.isfinite(values)][0]
    is_clock = said == "clock" or re.search("clock|uhrzeit|time of day", hint) is not None
    is_elapsed = said in ("elapsed", "hh:mm", "mm:ss") or any(
        c.kind is Kind.DURATION for c in cells
    )
    is_elapsed |= re.search("elapsed|duration|dauer|relative|h+:m+|m+:s+", hint) is not None
    name = block.grid.file.name
    is_short = all(c.parts == 2 for c in cells) and not (is_clock or first >= MORNING)  # noqa: PLR2004
    if is_short and not re.search("h:mm", hint) and said not in ("hh:mm", "clock"):
        if said != "mm:ss" and "mm:ss" not in hint:
            raise Question(
                f"'{name}' has times such as {cells[-1].text} in '{column.header}', which may be "
                "hours and minutes or minutes and seconds.",
                {
                    "hours and minutes": {"roles": {column.header: "hh:mm"}},
                    "minutes and seconds": {"roles": {column.header: "mm:ss"}},
                },
            )
        return values / 60
    if not is_clock and not is_elapsed and 0 < first < MORNING:
        raise Question(
            f"The times '{column.header}' in '{name}' begin at {cells[0].text}: this may be the "
            "time since the start or the time of day.",
            {
                "the time since the start": {"roles": {column.header: "elapsed"}},
                "the time of day": {"roles": {column.header: "clock"}},
            },
        )
    if is_elapsed or (first == 0 and not is_clock):
        return values
    days = np.concatenate([[0], np.cumsum(np.diff(values) < -DAY / 2)])  # past midnight
    elapsed: FloatArray = values + DAY * days - first
    return elapsed
