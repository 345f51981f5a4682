"""Times of a table: numbers with a unit, clock times, durations, dates and days."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import SheetTable
from igpe.formats.workbooks.cells import VALUES, Cell, Kind, Question, advice
from igpe.problem.measurements import conversion

TIME_ROLES = ("time", "clock", "elapsed", "hh:mm", "mm:ss")
MORNING = 6 * 3600.0  # clock times begin later, durations earlier
DAY = 86400.0
FIRST_DAY = 20_000  # 1954: numbers in a column of dates are days of Excel
ORDERS = ("day first", "month first")


@dataclass(frozen=True)
class Options:
    """Arguments with which the user describes a file.

    roles    header -> what the column is;  names: header -> name in the model
    units    header -> unit;  dates: "day first" or "month first" or ""
    """

    roles: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, str] = field(default_factory=dict)
    dates: str = ""


@dataclass
class Column:
    """A column of a table; of: header of the quantity it belongs to; note: why it is not used."""

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
        """The header without its unit."""
        return words.split_header(self.header)[0]

    def holds(self, kind: Kind) -> list[Cell]:
        """The cells of a kind."""
        return [c for c in self.cells if c.kind is kind]


Clock: TypeAlias = tuple[Column, FloatArray, bool]
"""The column of times; (n_rows,) the times, nan where there are none; whether in seconds."""


def read_times(columns: list[Column], block: SheetTable, options: Options) -> Clock | None:
    """The times of a table; None if it has none."""
    requested = [c for c in columns if options.roles.get(c.header) in TIME_ROLES]
    candidates = requested or [c for c in columns if c.role == "time"]
    residence = [c for c in candidates if words.speaks_of(words.RESIDENCE, c.header)]
    if candidates and not requested and len(residence) == len(candidates):
        raise Question(
            f"'{block.grid.file.name}' contains residence times. They can serve as "
            "the times in a model of a plug flow reactor, but not of a stirred tank.",
            {"plug flow": {"roles": {residence[0].header: "time"}}},
        )
    candidates = [c for c in candidates if c not in residence or requested]
    dates = [c for c in candidates if c.holds(Kind.DATE)]
    clocks = [c for c in candidates if c.holds(Kind.CLOCK)]
    if len(dates) == len(clocks) == 1 and _join(dates[0], clocks[0]):
        candidates.remove(clocks[0])
    exact = [c for c in candidates if c.header == "time"] or candidates
    read = [(c, *_seconds(c, block, options)) for c in exact]
    if not read:
        return None
    if len(read) > 1 and not _agree(read):
        listed = [c.header for c in exact]
        raise Question(
            f"Which column of '{block.grid.file.name}' holds the times? {listed} all look like "
            "times.",
            {f"the column '{h}'": {"roles": {h: "time"}} for h in listed},
        )
    best = min(read, key=lambda r: (r[2], bool(r[0].holds(Kind.DATE))))
    for column in columns:
        if column.role == "time" and column is not best[0]:
            column.role, column.note = "ignore", f"the times are taken from '{best[0].header}'"
    best[0].role = "time"
    return best


def _join(dates: Column, clocks: Column) -> bool:
    """Whether a column of days and one of clock times are moments; the first then holds them."""
    days = [d for c in dates.holds(Kind.DATE) for d in c.value if d is not None]
    if any((d.hour, d.minute, d.second) != (0, 0, 0) for d in days):
        return False
    for r, (date, clock) in enumerate(zip(dates.cells, clocks.cells, strict=True)):
        dates.cells[r] = clock
        if date.kind is Kind.DATE and clock.kind is Kind.CLOCK:
            offset = timedelta(seconds=clock.value)
            both = tuple(None if d is None else d + offset for d in date.value)
            dates.cells[r] = Cell(Kind.DATE, both, f"{date.text} {clock.text}")
    return True


def _agree(read: Sequence[Clock]) -> bool:
    """Whether columns of times say the same, up to when they start."""
    elapsed = []
    for column, values, is_seconds in read:
        unit = "" if is_seconds else column.unit
        factor = conversion("time", unit, "s")[0] if unit else 1.0
        elapsed.append(factor * (values - np.nanmin(values)))
    span = max(float(np.nanmax(elapsed[0])), 1e-300)
    return all(np.allclose(e, elapsed[0], rtol=0, atol=0.01 * span) for e in elapsed[1:])


def _seconds(column: Column, block: SheetTable, options: Options) -> tuple[FloatArray, bool]:
    """The times and whether they are in seconds, as in `Clock`."""
    kinds = Counter(c.kind for c in column.cells if c.kind not in (Kind.EMPTY, Kind.MISSING))
    if len(kinds) > 1 and not any(c.value for c in column.holds(Kind.NUMBER)):
        del kinds[Kind.NUMBER]  # 0 is one in every unit
    odd = {Kind.TEXT, Kind.LIMIT} & {*kinds}
    if not odd and len(kinds) > 1 and {*kinds} != {Kind.CLOCK, Kind.DURATION}:
        odd = {kinds.most_common()[-1][0]}
    if odd:
        row = next(r for r, c in enumerate(column.cells) if c.kind in odd)
        text = column.cells[row].text
        other = "Correct it, or name another time column: roles={'COLUMN': 'time'}."
        raise DataError(
            f"Cell {block.place(row, column.number)} in '{block.grid.file.name}' contains "
            f"'{text}', which does not match the other times in '{column.header}'. "
            f"{advice(text, other)}"
        )
    if Kind.DATE in kinds:
        return _from_dates(column, block, options), True
    values = np.array([c.value if c.kind in VALUES else np.nan for c in column.cells], dtype=float)
    if Kind.NUMBER not in kinds:
        return _from_clock(column, values, block, options), True
    is_day = words.speaks_of(words.DATES, column.header) and np.nanmin(values) > FIRST_DAY
    return (DAY * (values - np.nanmin(values)), True) if is_day else (values, False)


def _from_dates(column: Column, block: SheetTable, options: Options) -> FloatArray:
    if options.dates not in ("", *ORDERS):
        raise DataError(f"`dates` is {options.dates!r}; give 'day first' or 'month first'.")
    first = column.holds(Kind.DATE)[0]
    possible: dict[str, FloatArray] = {}
    for k, order in enumerate(ORDERS):
        days = [c.value[k] for c in column.holds(Kind.DATE)]
        if options.dates in ("", order) and None not in days:
            start = min(days)
            seconds = np.array([np.nan if c.kind is not Kind.DATE else 0.0 for c in column.cells])
            seconds[np.isfinite(seconds)] = [(d - start).total_seconds() for d in days]
            possible[order] = seconds
    if not possible:
        raise DataError(
            f"igpe found no order of day and month that fits all dates of '{column.header}' in "
            f"'{block.grid.file.name}'; the first date is '{first.text}'. Write them as 2024-02-15."
        )
    times = list(possible.values())
    if not np.array_equal(times[0], times[-1], equal_nan=True):
        raise Question(
            f"'{block.grid.file.name}' has dates such as {first.text}, which may begin with the "
            "day or the month.",
            {
                f"{order}: {first.text} is {day.day} {day:%B %Y}": {"dates": order}
                for order, day in zip(ORDERS, first.value, strict=True)
            },
        )
    return times[0]


def _from_clock(
    column: Column, values: FloatArray, block: SheetTable, options: Options
) -> FloatArray:
    """Seconds since the start, of clock times or durations."""
    header, name, role = column.header, block.grid.file.name, options.roles.get(column.header, "")
    hint = f"{header} {block.units[column.number]}".lower()
    hint = hint.replace("min:s", "mm:s").replace(":min", ":mm").replace(":sec", ":ss")
    clocks, first = column.holds(Kind.CLOCK), values[np.isfinite(values)][0]
    is_clock = role == "clock" or re.search("clock|uhrzeit|time of day", hint) is not None
    is_elapsed = role in ("elapsed", "hh:mm", "mm:ss") or bool(column.holds(Kind.DURATION))
    is_elapsed |= re.search("elapsed|duration|dauer|relative", hint) is not None
    is_form = re.search("h+:m+|m+:s+", hint) is not None  # of the day as well as of a duration
    is_elapsed |= is_form and first < MORNING and not is_clock
    if role == "mm:ss" or ("mm:ss" in hint and "h:mm" not in hint and clocks[0].short):
        return values / 60
    is_open = not (is_clock or first >= MORNING or role == "hh:mm" or "h:mm" in hint)
    if is_open and all(c.short for c in clocks) and len(clocks) == np.isfinite(values).sum():
        raise Question(
            f"Times such as {clocks[-1].text} in '{header}' of '{name}' may be hours and minutes, "
            "or minutes and seconds.",
            {
                "hours and minutes": {"roles": {header: "hh:mm"}},
                "minutes and seconds": {"roles": {header: "mm:ss"}},
            },
        )
    if not is_clock and not is_elapsed and (is_form or 0 < first < MORNING):
        raise Question(
            f"The times '{header}' in '{name}' begin at {clocks[0].text}. These are either times "
            "since the start or times of day.",
            {
                "the time since the start": {"roles": {header: "elapsed"}},
                "the time of day": {"roles": {header: "clock"}},
            },
        )
    if is_elapsed or (first == 0 and not is_clock):
        return values
    days = np.concatenate([[0], np.cumsum(np.diff(values) < -DAY / 2)])  # past midnight
    elapsed: FloatArray = values + DAY * days - first
    return elapsed
