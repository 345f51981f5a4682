"""What the columns of a table are: times, runs, values, deviations, replicates, conditions.

A table gives one or several `RawRun`s in the words of the file. What has to be known of all tables
to be decided, such as whether a quantity changes at all, is decided in `workbook`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import SheetTable
from igpe.formats.workbooks.cells import EMPTY, NUMBER, VALUES, Cell, Kind, Question
from igpe.formats.workbooks.conditions import (
    DEGREES,
    WITH_UNIT,
    Condition,
    conditions_above,
    degrees_in,
)
from igpe.formats.workbooks.times import TIME_ROLES, Column, Options, read_times
from igpe.formats.workbooks.words import known_unit, split_header

OTHER_ROLES = ("experiment", "measured", "input", "ignore", "replicates", "component")
ROLES = (*TIME_ROLES, *OTHER_ROLES)
_TIME_ACROSS = re.compile(rf"[\[(]?{NUMBER.pattern}[\])]?\s*(s|sec|min|h|hr|d)")
KINDS = re.compile(r"(conversion|yield|selectivity|sd)( of .+)?|area")
WELL = re.compile(r"[A-P](0?[1-9]|1\d|2[0-4])")
LEAST_WELLS = 6
CLOSE = 0.25  # of the range: replicates differ less


class Mark(NamedTuple):
    """A cell that says that a value lies beyond a limit: its place, its text, the quantity."""

    place: str
    text: str
    header: str


@dataclass(frozen=True)
class RunColumn:
    """A column of one run.

    role    "measured", "sd", "input" or "ignore";  of: header of the quantity it belongs to
    values  (n,) one for each time; nan where there is none;  places: their cells
    note    why it is not used, or how it was read
    """

    header: str
    unit: str
    role: str
    values: FloatArray
    places: tuple[str, ...]
    kind: str = ""
    of: str = ""
    note: str = ""
    marks: tuple[Mark, ...] = ()


@dataclass(frozen=True)
class RawRun:
    """One experiment in the words of its table.

    times     (n,) in `unit`; seconds where `from_clock`;  places: their cells
    series    header -> column
    left_out  header -> why
    """

    name: str
    block: SheetTable
    time: str
    times: FloatArray
    unit: str
    from_clock: bool
    series: Mapping[str, RunColumn]
    conditions: Mapping[str, Condition]
    left_out: Mapping[str, str]
    places: tuple[str, ...]


def read_block(block: SheetTable, options: Options, book_conditions: str) -> list[RawRun]:
    """The runs of a table; none if it has no times.

    book_conditions  the name of the sheet, which may give a temperature
    raises           DataError naming the cell that cannot be read; `Question`
    """
    columns = _columns(block, options)
    clock = read_times(columns, block, options)
    if clock is None:
        return []
    time, times, _ = clock
    conditions = conditions_above(block, book_conditions)
    keep = _with_values(columns, time, times, block)
    run_of = _run_names(columns, block)
    columns = _long(columns, times, run_of, block)
    _replicates(columns, options)
    runs: list[RawRun] = []
    for name in dict.fromkeys(run_of[r] for r in keep):
        rows = [r for r in keep if run_of[r] == name]
        for part, title in _restarts(rows, times, block, named=bool(name)):
            runs += _run(
                name or title, part, clock, columns=columns, block=block, conditions=conditions
            )
    return runs


def _columns(block: SheetTable, options: Options) -> list[Column]:
    """The columns with what each is, but for times, runs and replicates."""
    made: list[Column] = []
    names = Counter(block.headers)
    for number, header in enumerate(block.headers):
        cells = block.cells(number)
        if all(c.kind is Kind.EMPTY for c in cells):
            continue
        unit = known_unit(options.units.get(header, "")) or _unit(
            header, block.units[number], cells
        )
        role = options.roles.get(header, "")
        of, kind = "", words.kind_of(header)
        if KINDS.fullmatch(role):
            role, of, kind = _user_kind(role)
        column = Column(number, header, unit, cells, role, of, kind)
        if not column.role:
            known = header in options.names
            column.role = "measured" if known else _role(column, made, repeated=names[header] > 1)
        if column.role in ("measured", "input", "sd"):
            _require_numbers(column, block)
        made.append(column)
    return made


def _unit(header: str, below: str, cells: Sequence[Cell]) -> str:
    """The unit in a header, in the cell below it, or that the numbers are shown in."""
    name, unit = split_header(header)
    unit = unit or known_unit(below.strip().strip("[]()"))
    if words.is_temperature(name):
        unit = "degC" if name.startswith("T°") else words.LETTER_DEGREES.get(unit, unit)
    elif not unit and words.is_time(header) and words.dimension(known_unit(name)) == words.TIME:
        unit = known_unit(name)  # "min", "Tage"
    return unit or "%" * any(c.per_cent for c in cells)


def _user_kind(role: str) -> tuple[str, str, str]:
    first, _, of = role.partition(" of ")
    return ("sd", of, "") if first == "sd" else ("measured", "", role)


def _role(column: Column, before: Sequence[Column], *, repeated: bool) -> str:
    """What a column is by its header and cells; its note or `of` says the rest."""
    header, texts = column.header, [c.text for c in column.cells if c.kind is Kind.TEXT]
    first = ([w.lower() for w in words.words_of(header)] or [""])[0]
    is_other_time = bool({w.lower() for w in words.words_of(header)} & words.OTHER_TIMES)
    alone = words.is_deviation_alone(header) and bool(before)
    deviation = "" if repeated else words.deviation_of(header)
    no_numbers = not column.numeric or len(texts) > len(column.cells) / 2
    no_numbers &= not (column.unit and any(c.isdigit() for text in texts for c in text))
    cases = (
        (not header, "ignore", "no name above it"),
        (words.is_run(header), "experiment", ""),
        (first in words.COMPONENTS and bool(texts), "component", ""),
        (first in ("unit", "units", "einheit") and bool(texts), "unit", ""),
        (no_numbers, "ignore", "no numbers"),
        (words.is_time(header) or words.is_residence_time(header), "time", ""),
        (
            is_other_time or (words.dimension(column.unit) == words.TIME and not column.kind),
            "ignore",
            "no time since the start",
        ),
        (alone or bool(deviation), "sd", ""),
        (words.is_index(header) and not column.unit, "ignore", "a running number or name"),
        (True, "measured", ""),
    )
    role, column.note = next((r, note) for holds, r, note in cases if holds)
    column.of = (before[-1].header if alone else deviation) if role == "sd" else ""
    return role


def _require_numbers(column: Column, block: SheetTable) -> None:
    for row, cell in enumerate(column.cells):
        if cell.kind in (Kind.TEXT, Kind.DATE, Kind.CLOCK, Kind.DURATION):
            raise DataError(
                f"Cell {block.place(row, column.number)} in '{block.grid.file.name}', column "
                f"'{column.header}', holds '{cell.text}', which is no number. Correct it, or say "
                f"that it means no value, marked=['{cell.text}'], or leave the column out: "
                f"roles={{'{column.header}': 'ignore'}}."
            )


def _with_values(
    columns: Sequence[Column], time: Column, times: FloatArray, block: SheetTable
) -> list[int]:
    """Rows that hold a time; raises DataError for a row that holds values without one."""
    rows = []
    for r, at in enumerate(times):
        has = [c for c in columns if c.role == "measured" and c.cells[r].kind in VALUES]
        if np.isfinite(at):
            rows.append(r)
        elif has:
            raise DataError(
                f"Row {block.rows[r] + 1} in '{block.grid.file.name}' has values but no time in "
                f"'{time.header}'; every row needs a finite time. Fill it in, or remove the row."
            )
    return rows


def _restarts(
    rows: list[int], times: FloatArray, block: SheetTable, *, named: bool
) -> Iterator[tuple[list[int], str]]:
    """The rows of each run: a new one begins after an empty row if the time starts again."""
    part: list[int] = []
    count = 0
    for r in rows:
        if part and times[r] < times[part[-1]]:
            if block.rows[r] not in block.breaks or named:
                raise DataError(
                    f"The times are not sorted: the time in '{block.grid.file.name}' goes back "
                    f"from {times[part[-1]]:g} to {times[r]:g} in row {block.rows[r] + 1}. Sort "
                    "the rows of a run by time. If another run begins there, leave an empty row "
                    "above it, or add a column that names the run of each row: "
                    "roles={'COLUMN': 'experiment'}."
                )
            count += 1
            yield part, f"{block.title or 'run'} {count}"
            part = []
        part.append(r)
    yield part, f"{block.title or 'run'} {count + 1}" if count else block.title


# Runs, components, replicates ------------------------------------------------------------------


def _run_names(columns: list[Column], block: SheetTable) -> list[str]:
    """The run of each row; "" where no column names it. What is named once holds for rows below."""
    for column in columns:
        if column.role == "experiment":
            names = [c.text for c in column.cells]
            for r in range(1, len(names)):
                names[r] = names[r] or names[r - 1]
            if len(set(names)) < len(names):
                return names
            column.role, column.note = "ignore", "it names every row differently"
    return [""] * len(block.rows)


def _long(
    columns: list[Column], times: FloatArray, run_of: list[str], block: SheetTable
) -> list[Column]:
    """One column for each component, of a table with one row for each."""
    component = next((c for c in columns if c.role == "component"), None)
    if component is None:
        return columns
    names = [c.text for c in component.cells]
    keys = [(run_of[r], times[r]) for r in range(len(times))]
    if len(set(names)) == 1 or len(set(keys)) == len(keys):
        component.role, component.note = "ignore", "no numbers"
        return columns
    measured = [c for c in columns if c.role == "measured"]
    amounts = [c for word in words.AMOUNTS for c in measured if c.name.lower().startswith(word)]
    value = (amounts or measured)[0] if amounts or len(measured) == 1 else None
    if value is None:
        raise Question(
            f"'{block.grid.file.name}' has a row for each component in '{component.header}'. The "
            f"columns {[c.header for c in measured]} may hold its values.",
            {
                c.header: {"roles": {c.header: "measured", component.header: "component"}}
                for c in measured
            },
        )
    units = next((c.cells for c in columns if c.role == "unit"), [EMPTY] * len(names))
    made = []
    for name in dict.fromkeys(n for n in names if n):
        mine = [r for r, n in enumerate(names) if n == name]
        unit = known_unit(units[mine[0]].text) or value.unit
        unit = unit or known_unit(value.header.rpartition("_")[2])
        cells = [c if names[r] == name else EMPTY for r, c in enumerate(value.cells)]
        own = split_header(name)
        kind = words.kind_of(name) or value.kind
        made.append(Column(value.number, name, own[1] or unit, cells, "measured", kind=kind))
    value.role = "used"
    for c in columns:
        if c.role in ("measured", "unit", "sd") and not _is_condition(c, keys):
            c.role, c.note = "ignore", f"the values are those of '{value.header}'"
    return [*columns, *made]


def _is_condition(column: Column, keys: Sequence[tuple[str, float]]) -> bool:
    """Whether a number belongs to the time, not to the component."""
    seen: dict[tuple[str, float], set[Any]] = {}
    for key, cell in zip(keys, column.cells, strict=True):
        seen.setdefault(key, set()).add(cell.value)
    controlled = words.is_temperature(column.name) or words.is_controlled(column.name, column.unit)
    return controlled and all(len(v) == 1 for v in seen.values())


def _replicates(columns: list[Column], options: Options) -> None:
    """Columns that are replicates of one quantity get its name as `of`."""
    free = [
        c
        for c in columns
        if c.role in ("measured", "replicates")
        and c.header not in options.names
        and options.roles.get(c.header) != "measured"
    ]
    headers = Counter(c.header for c in free)
    groups: dict[tuple[str, str], list[tuple[int, bool, Column]]] = {}
    for column in free:
        one = words.replicate(column.name) or words.replicate(column.header)
        if headers[column.header] > 1:
            group = groups.setdefault((column.header, "=="), [])
            group.append((len(group) + 1, True, column))
        elif one is not None and words.run_in(column.header) is None:
            sure = one.certain or column.role == "replicates"
            groups.setdefault((one.of, column.unit), []).append((one.number, sure, column))
    for (of, _), members in groups.items():
        _group(of, members)
    replicated = {c.of for c in free if c.of}
    for column in columns:
        column.role = "measured" if column.role == "replicates" else column.role
        of = words.without(words.MEANS, column.of if column.role == "sd" else column.name)
        if of in replicated and (column.role == "sd" or not column.of):
            column.role, column.note = "ignore", f"computed from the replicates of '{of}'"


def _group(of: str, members: Sequence[tuple[int, bool, Column]]) -> None:
    """Make columns replicates if they are numbered 1, 2, ... and sure, or alike."""
    numbers, mine = [n for n, _, _ in members], [c for _, _, c in members]
    if len(members) == 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return
    if not all(sure for _, sure, _ in members) and not _are_close(mine):
        names = [c.header for c in mine]
        raise Question(
            f"Are {names} replicates of '{of}', or quantities of their own?",
            {
                "replicates": {"roles": dict.fromkeys(names, "replicates")},
                "quantities of their own": {"roles": dict.fromkeys(names, "measured")},
            },
        )
    for column in mine:
        column.role, column.of = "measured", of


def _are_close(columns: Sequence[Column]) -> bool:
    values = np.array([
        [c.value if c.kind is Kind.NUMBER else np.nan for c in col.cells] for col in columns
    ])
    spread = np.nanmax(np.ptp(np.ma.masked_invalid(values), axis=0).filled(0.0))
    return bool(spread <= CLOSE * (np.nanmax(values) - np.nanmin(values)))


# From columns to runs ------------------------------------------------------------------------


def _run(
    name: str,
    rows: list[int],
    clock: tuple[Column, FloatArray, bool],
    *,
    columns: Sequence[Column],
    block: SheetTable,
    conditions: Mapping[str, Condition],
) -> Iterator[RawRun]:
    time, times, from_clock = clock
    series, count = _series(columns, rows, block)
    at = np.concatenate([times[rows]] * count)
    order = np.argsort(at, kind="stable")
    filled = np.zeros(len(at), dtype=bool)
    for s in series.values():
        filled |= np.isfinite(s.values)
    first = np.arange(len(at)) < len(rows)
    order = order[(filled | first)[order]]
    ordered = {
        h: replace(s, values=s.values[order], places=tuple(s.places[k] for k in order))
        for h, s in series.items()
    }
    ordered, merged = _merge_rows(at[order], ordered)
    left_out = {c.header: c.note for c in columns if c.role == "ignore" and c.note}
    run = RawRun(
        name, block, time.header, merged, "s" if from_clock else time.unit, from_clock,
        ordered, conditions, left_out, tuple(block.place(r, time.number) for r in rows),
    )  # fmt: skip
    yield from _across(run)


def _series(
    columns: Sequence[Column], rows: list[int], block: SheetTable
) -> tuple[dict[str, RunColumn], int]:
    """The columns of these rows, once for each replicate below each other."""
    members: dict[str, list[Column]] = {}
    for c in columns:
        if c.role in ("measured", "input", "sd"):
            key = c.of if c.role == "measured" and c.of else c.header
            key = f"{key} of {c.of}" if c.role == "sd" else key  # several may be called ±
            members.setdefault(key, []).append(c)
    count = max((len(m) for m in members.values()), default=1)
    made: dict[str, RunColumn] = {}
    for key, group in members.items():
        first = group[0]
        cells = [(c, c.cells[r], block.place(r, c.number)) for c in group for r in rows]
        empty = [math.nan] * (count * len(rows) - len(cells))
        numbers = [x.value if x.kind is Kind.NUMBER else math.nan for _, x, _ in cells]
        sigma = np.array([math.nan if x.sigma is None else x.sigma for _, x, _ in cells] + empty)
        places = tuple([place for _, _, place in cells] + [""] * len(empty))
        marks = tuple(Mark(p, x.text, c.header) for c, x, p in cells if x.kind is Kind.LIMIT)
        header = key if first.role == "measured" else first.header
        column = RunColumn(
            header, first.unit, first.role, np.array(numbers + empty), places, first.kind,
            first.of, first.note, marks,
        )  # fmt: skip
        made[key] = column
        if np.isfinite(sigma).any():
            own = replace(column, header=f"sd {key}", role="sd", values=sigma, of=header, marks=())
            made[f"sd {key}"] = own
    return made, count


def _merge_rows(
    times: FloatArray, series: dict[str, RunColumn]
) -> tuple[dict[str, RunColumn], FloatArray]:
    """Rows of one time that hold different quantities become one row."""
    rows: list[list[int]] = []
    values = {h: s.values for h, s in series.items() if not _is_set(s)}
    for k, at in enumerate(times):
        before = rows[-1] if rows and times[rows[-1][0]] == at else None
        clash = before is None or any(
            np.isfinite(v[k]) and np.isfinite(v[before]).any() for v in values.values()
        )
        if clash:
            rows.append([k])
        elif before is not None:
            before.append(k)
    if len(rows) == len(times):
        return series, times

    def pick(s: RunColumn) -> RunColumn:
        best = [next((k for k in group if np.isfinite(s.values[k])), group[0]) for group in rows]
        return replace(s, values=s.values[best], places=tuple(s.places[k] for k in best))

    return {h: pick(s) for h, s in series.items()}, times[[group[0] for group in rows]]


def _is_set(s: RunColumn) -> bool:
    """Whether a column is one of temperatures or of what else is set."""
    name = split_header(s.header)[0]
    return s.role == "input" or words.is_temperature(name) or words.is_controlled(name, s.unit)


def _across(run: RawRun) -> Iterator[RawRun]:
    """The run, or one for each column where headers name wells or temperatures."""
    measured = {h: s for h, s in run.series.items() if s.role == "measured"}
    wells = [h for h in measured if WELL.fullmatch(h)]
    degrees = {h: t for h in measured if (t := degrees_in(h)) and DEGREES.fullmatch(h)}
    bare = [h for h in measured if (m := WITH_UNIT.fullmatch(h)) is not None and known_unit(m[2])]
    named = {h: r for h in measured if (r := words.run_in(h)) is not None}
    if len({r for _, r in named.values()}) > 1:
        yield from _by_run(run, named)
        return
    if len(wells) >= LEAST_WELLS:
        chosen, kind = wells, "signal"
    elif len(degrees) > 1:
        chosen, kind = list(degrees), "value"
    else:
        if len(bare) > 1:
            raise DataError(
                f"The headers {bare} in '{run.block.grid.file.name}' are numbers with units. igpe "
                "does not know what differs between these columns. Give each run a sheet or a "
                "table of its own, with this number as a condition above it."
            )
        yield run
        return
    others = {h: s for h, s in run.series.items() if h not in chosen}
    for header in chosen:
        conditions = dict(run.conditions)
        if header in degrees:
            conditions[words.TEMPERATURE] = degrees[header]
        own = replace(
            measured[header], header=kind, unit="" if header in degrees else measured[header].unit
        )
        name = header if run.name in ("", run.block.title) else f"{run.name} {header}"
        yield replace(run, name=name, series={**others, kind: own}, conditions=conditions)


def _by_run(run: RawRun, named: Mapping[str, tuple[str, str]]) -> Iterator[RawRun]:
    """A run for each that headers name: "A run 1", "A run 2"."""
    others = {h: s for h, s in run.series.items() if h not in named}
    for name in dict.fromkeys(r for _, r in named.values()):
        mine = {
            q or "value": replace(run.series[h], header=q or "value")
            for h, (q, r) in named.items()
            if r == name
        }
        yield replace(run, name=name, series={**others, **mine})


def times_across(block: SheetTable) -> bool:
    """Whether the headers of a table are times."""
    return sum(bool(_TIME_ACROSS.fullmatch(h)) for h in block.headers) > 1
