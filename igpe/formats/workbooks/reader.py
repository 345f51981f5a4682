"""Roles of the columns of a table: times, runs, values, deviations, replicates, conditions.

A table gives one or several `RawRun`s in the words of the file. What has to be known of all tables
to be decided, such as whether a quantity changes at all, is decided in `reading`.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import (
    DEGREES,
    WITH_UNIT,
    Condition,
    SheetTable,
    conditions_above,
    degrees_in,
)
from igpe.formats.workbooks.cells import EMPTY, NUMBER, VALUES, Cell, Kind, Question, advice
from igpe.formats.workbooks.times import TIME_ROLES, Column, Options, read_times

OTHER_ROLES = ("experiment", "measured", "input", "ignore", "replicates", "component")
ROLES = (*TIME_ROLES, *OTHER_ROLES)
_TIME_ACROSS = re.compile(rf"[\[(]?{NUMBER.pattern}[\])]?\s*(s|sec|min|h|hr|d)")
KINDS = re.compile(r"(conversion|yield|selectivity|sd)( of .+)?|area")
WELL = re.compile(r"[A-P](0?[1-9]|1\d|2[0-4])")
LEAST_WELLS = 6
VALUE_COLUMNS = ["row", "header", "time", "value", "limit", "sigma", "mark", "place", "at", "role"]
VALUE_COLUMNS += ["unit", "kind", "deviation"]
CLOSE = 0.25  # of the range: replicates differ less


@dataclass(frozen=True)
class RawRun:
    """One experiment with the names and units of its table.

    time        header of the times, which are in `unit`; in seconds where `from_clock`
    values      a row for each value and limit of detection, in order of time: `row` of the table,
                `header`, `time`, `value`, `limit` and `sigma` (nan: none), `mark` (text of a
                limit), `place`, `at` (place of the time), `role`, `unit`, `kind`, `deviation`
                (header of sigma)
    left_out    header -> why
    """

    name: str
    block: SheetTable
    time: str
    unit: str
    from_clock: bool
    values: pd.DataFrame
    conditions: Mapping[str, Condition]
    left_out: Mapping[str, str]


def read_block(block: SheetTable, options: Options) -> list[RawRun]:
    """The runs of a table; none if it has no times.

    raises  DataError naming the cell that cannot be read; `Question`
    """
    columns = _columns(block, options)
    clock = read_times(columns, block, options)
    if clock is None:
        return []
    time, times, from_clock = clock
    rows = _with_values(columns, time, times, block)
    names = _run_names(columns, block)
    columns = _long(columns, times, names, block)
    _replicates(columns, options)
    values = _values(columns, rows, time, times, block=block, options=options)
    left_out = {c.header: c.note for c in columns if c.role == "ignore" and c.note}
    unit, conditions = "s" if from_clock else time.unit, conditions_above(block)
    runs: list[RawRun] = []
    for name in dict.fromkeys(names[r] for r in rows):
        own = [r for r in rows if names[r] == name]
        for part, title in _restarts(own, times, block, columns, named=bool(name)):
            chosen = values[values["row"].isin(part)].sort_values("time", kind="stable")
            run = RawRun(
                name or title, block, time.header, unit, from_clock, chosen, conditions, left_out
            )
            runs += _across(run)
    return runs


def _columns(block: SheetTable, options: Options) -> list[Column]:
    """The columns with what each is, but for times, runs and replicates."""
    columns: list[Column] = []
    for number, header in enumerate(block.headers):
        cells = block.cells(number)
        if all(c.kind is Kind.EMPTY for c in cells):
            continue
        unit = words.known_unit(options.units.get(header, "")) or _unit(
            header, block.units[number], cells
        )
        role = options.roles.get(header, "")
        column = Column(number, header, unit, cells, role, kind=words.kind_of(header))
        if role.startswith("sd"):
            column.role, column.of = "sd", role.partition(" of ")[2]
        elif KINDS.fullmatch(role):
            column.role, column.kind = "measured", role
        elif not role:
            repeated = block.headers.count(header) > 1
            known = header in options.names
            column.role = "measured" if known else _role(column, columns, repeated=repeated)
        if column.role in ("measured", "input", "sd"):
            _require_numbers(column, block)
        columns.append(column)
    return columns


def _unit(header: str, below: str, cells: Sequence[Cell]) -> str:
    """The unit in a header, in the cell below it, or that the numbers are shown in."""
    name, unit = words.split_header(header)
    unit = unit or words.unit_below(below)
    if words.is_temperature(name):
        unit = "degC" if name.startswith("T°") else words.LETTER_DEGREES.get(unit, unit)
    elif (
        not unit and words.is_time(header) and words.dimension(words.known_unit(name)) == words.TIME
    ):
        unit = words.known_unit(name)  # "min", "Tage"
    return unit or "%" * any(c.per_cent for c in cells)


def _role(column: Column, before: Sequence[Column], *, repeated: bool) -> str:
    """Role of a column from its header and cells; also sets its `note` and `of`."""
    header, texts = column.header, [c.text for c in column.cells if c.kind is Kind.TEXT]
    alone = words.is_deviation_alone(header) and bool(before)
    column.of = before[-1].header if alone else "" if repeated else words.deviation_of(header)
    is_index = header.strip() == "#" or words.begins_with(words.INDICES, header)
    numeric = any(c.kind in VALUES for c in column.cells) and len(texts) <= len(column.cells) / 2
    numeric |= any(_is_number_with_more(text, column.unit) for text in texts)
    is_duration = words.dimension(column.unit) == words.TIME and not column.kind
    cases = (
        (not header, "ignore", "no name above it"),
        (words.is_run(header) or (bool(texts) and words.is_charge(header)), "experiment", ""),
        (bool(texts) and words.begins_with(words.COMPONENTS, header), "component", ""),
        (bool(texts) and words.begins_with(words.UNITS, header), "unit", ""),
        (not numeric, "ignore", "no numbers"),
        (words.is_time(header) or words.speaks_of(words.RESIDENCE, header), "time", ""),
        (
            is_duration or words.speaks_of(words.OTHER_TIMES, header),
            "ignore",
            "not a time since the start",
        ),
        (bool(column.of), "sd", ""),
        (is_index and not column.unit, "ignore", "a row number or name"),
        (True, "measured", ""),
    )
    role, column.note = next((r, note) for holds, r, note in cases if holds)
    return role


def _is_number_with_more(text: str, unit: str) -> bool:
    """Whether a text is a number that igpe cannot read: "ca. 5" below a unit, "10 mM"."""
    match = WITH_UNIT.fullmatch(text)
    known = match is not None and bool(words.known_unit(match[2]))
    return known or (bool(unit) and any(c.isdigit() for c in text))


def _require_numbers(column: Column, block: SheetTable) -> None:
    for row, cell in enumerate(column.cells):
        if cell.kind in (Kind.TEXT, Kind.DATE, Kind.CLOCK, Kind.DURATION):
            other = (
                f"Correct it, mark it as a missing value (marked=['{cell.text}']), or leave the "
                f"column out (roles={{'{column.header}': 'ignore'}})."
            )
            raise DataError(
                f"Cell {block.place(row, column.number)} in '{block.grid.file.name}', column "
                f"'{column.header}', contains '{cell.text}', which is not a number. "
                f"{advice(cell.text, other)}"
            )


def _with_values(
    columns: Sequence[Column], time: Column, times: FloatArray, block: SheetTable
) -> list[int]:
    """Rows that hold a time; raises DataError for a row that holds values without one."""
    for r in np.flatnonzero(~np.isfinite(times)):
        if any(c.role == "measured" and c.cells[r].kind in VALUES for c in columns):
            raise DataError(
                f"Row {block.rows[r] + 1} in '{block.grid.file.name}' has values but no time in "
                f"'{time.header}'; every row needs a finite time. Enter a time, or remove the row."
            )
    return [int(r) for r in np.flatnonzero(np.isfinite(times))]


def _restarts(
    rows: list[int], times: FloatArray, block: SheetTable, columns: Sequence[Column], *, named: bool
) -> Iterator[tuple[list[int], str]]:
    """The rows of each run: a new one begins after an empty row if the time starts again."""
    names = next(([c.text for c in x.cells] for x in columns if x.role == "component"), [])
    starts: dict[int, float] = {}  # first row -> the later time before it
    last: dict[str, float] = {}  # component -> time; rows of one may stand below those of another
    for k, r in enumerate(rows):
        name = names[r] if names else ""
        if times[r] < last.get(name, -np.inf):
            starts[k] = last[name]
            last.clear()
        last[name] = times[r]
    ends = [*zip([0, *starts], [*starts, len(rows)], strict=True)]
    for k, before in starts.items():
        if named or block.rows[rows[k]] not in block.breaks:
            by = _distinguishing(columns, [rows[a:b] for a, b in ends])
            raise DataError(
                f"The times are not sorted: the time in '{block.grid.file.name}' goes back from "
                f"{before:g} to {times[rows[k]]:g} in row {block.rows[rows[k]] + 1}. "
                "Sort the rows of a run by time. If another run begins there, insert an empty row "
                f"above it, or {'say which column' if by else 'add a column that'} names the "
                f"run of each row: roles={{'{by or 'COLUMN'}': 'experiment'}}."
            )
    for count, (a, b) in enumerate(ends, start=1):
        yield rows[a:b], f"{block.title or 'run'} {count}" if starts else block.title


def _distinguishing(columns: Sequence[Column], parts: Sequence[Sequence[int]]) -> str:
    """The header of a column with one entry in each part, and another one in each; or ""."""
    for column in columns:
        entries = [{column.cells[r].text for r in part} for part in parts]
        if all(len(e) == 1 for e in entries) and len(set().union(*entries) - {""}) == len(parts):
            return column.header
    return ""


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
            column.role, column.note = "ignore", "it has a different name in every row"
    return [""] * len(block.rows)


def _long(
    columns: list[Column], times: FloatArray, run_of: list[str], block: SheetTable
) -> list[Column]:
    """Turn a table with one row for each component into one with a column for each."""
    component = next((c for c in columns if c.role == "component"), None)
    keys = list(zip(run_of, times, strict=True))
    if component is None:
        _require_replicates(columns, keys, block)
        return columns
    names = [c.text for c in component.cells]
    if len(set(names)) == 1 or len(set(keys)) == len(keys):
        component.role, component.note = "ignore", "no numbers"
        return columns
    measured = [c for c in columns if c.role == "measured"]
    amounts = [c for word in words.AMOUNTS for c in measured if c.name.lower().startswith(word)]
    value = (amounts or measured)[0] if amounts or len(measured) == 1 else None
    if value is None:
        raise Question(
            f"'{block.grid.file.name}' has one row for each component; the column "
            f"'{component.header}' names the components. The values may be in any of the columns "
            f"{[c.header for c in measured]}.",
            {
                c.header: {"roles": {c.header: "measured", component.header: "component"}}
                for c in measured
            },
        )
    units = next((c.cells for c in columns if c.role == "unit"), [EMPTY] * len(names))
    components = []
    for name in dict.fromkeys(n for n in names if n):
        unit = words.known_unit(units[names.index(name)].text) or value.unit
        unit = unit or words.known_unit(value.header.rpartition("_")[2])
        cells = [c if n == name else EMPTY for n, c in zip(names, value.cells, strict=True)]
        kind = words.kind_of(name) or value.kind
        own = words.split_header(name)[1] or unit
        components.append(Column(value.number, name, own, cells, "measured", kind=kind))
    value.role = "used"
    for c in columns:
        if c.role in ("measured", "unit", "sd") and not _is_condition(c, keys):
            c.role, c.note = "ignore", f"the values are taken from '{value.header}'"
    return [*columns, *components]


def _require_replicates(
    columns: Sequence[Column], keys: Sequence[tuple[str, float]], block: SheetTable
) -> None:
    """Raise `Question` if only texts distinguish rows of one time with different values."""
    measured = [c for c in columns if c.role == "measured"]
    values = pd.DataFrame(
        {
            k: [c.value if c.kind is Kind.NUMBER else np.nan for c in m.cells]
            for k, m in enumerate(measured)
        },
        index=pd.MultiIndex.from_tuples(keys),
        dtype=float,
    )
    same = values.groupby(level=[0, 1])
    if ((same.max() - same.min()).max() <= CLOSE * (values.max() - values.min())).all():
        return
    for column in (c for c in columns if c.note == "no numbers"):
        cells = list(zip(keys, [c.text for c in column.cells], strict=True))
        if len(set(cells)) == len(cells):
            raise Question(
                f"'{block.grid.file.name}' has several rows with the same time and different "
                f"values. The column '{column.header}' tells these rows apart.",
                {
                    "its entries name the experiments": {"roles": {column.header: "experiment"}},
                    "its entries are quantities": {"roles": {column.header: "component"}},
                    "the rows are replicates": {"roles": {column.header: "ignore"}},
                },
            )


def _is_condition(column: Column, keys: Sequence[tuple[str, float]]) -> bool:
    """Whether a number belongs to the time, not to the component."""
    seen = {(key, cell.value) for key, cell in zip(keys, column.cells, strict=True)}
    return is_set(column.role, column.name, column.unit) and len(seen) == len(set(keys))


def is_set(role: str, name: str, unit: str) -> bool:
    """Whether a column is one of temperatures or of what else is set, not measured.

    A letter with the unit of a concentration is a substance: "P [mM]" is a product, no pressure.
    """
    is_substance = len(name) == 1 and words.dimension(unit) in words.CONCENTRATIONS
    speaks = words.is_temperature(name) or words.is_controlled(name, unit)
    return role == "input" or (speaks and not is_substance)


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
            column.role, column.note = "ignore", f"'{of}' has replicates"


def _group(of: str, members: Sequence[tuple[int, bool, Column]]) -> None:
    """Make columns replicates if they are numbered 1, 2, ... and either certain or close."""
    numbers, columns = [n for n, _, _ in members], [c for _, _, c in members]
    if len(members) == 1 or numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return
    if not all(sure for _, sure, _ in members) and not _are_close(columns):
        names = [c.header for c in columns]
        raise Question(
            f"Are {names} replicates of '{of}', or separate quantities?",
            {
                "replicates": {"roles": dict.fromkeys(names, "replicates")},
                "quantities of their own": {"roles": dict.fromkeys(names, "measured")},
            },
        )
    for column in columns:
        column.role, column.of = "measured", of


def _are_close(columns: Sequence[Column]) -> bool:
    cells = [[c.value if c.kind is Kind.NUMBER else np.nan for c in col.cells] for col in columns]
    values = np.ma.masked_invalid(np.array(cells, dtype=float))
    return bool(np.ptp(values, axis=0).max() <= CLOSE * np.ptp(values))


# From columns to runs ------------------------------------------------------------------------


def _values(
    columns: Sequence[Column],
    rows: list[int],
    time: Column,
    times: FloatArray,
    *,
    block: SheetTable,
    options: Options,
) -> pd.DataFrame:
    """The values as in `RawRun`, with the `row` of the table that each stands in."""
    measured = [c for c in columns if c.role == "measured"]
    deviations: dict[int, Column] = {}
    for sd in (c for c in columns if c.role == "sd"):
        own = [c for c in measured if sd.of in (c.header, c.name, options.names.get(c.header))]
        own = own or [c for c in measured if _plain(c.name) == _plain(sd.of)]
        deviations |= {id(c): sd for c in own[:1]}
        if not own:
            sd.role, sd.note = "ignore", f"there is no column '{sd.of}'"
    records = []
    for c in columns:
        if c.role not in ("measured", "input"):
            continue
        header = c.of or c.header
        own_sd = deviations.get(id(c))
        apart = own_sd.cells if own_sd else [EMPTY] * len(times)
        named = (
            own_sd.header if own_sd else f"sd {header}" * any(x.sigma is not None for x in c.cells)
        )
        for r in rows:
            cell, sigma = c.cells[r], apart[r].value if apart[r].kind is Kind.NUMBER else math.nan
            if cell.kind in (Kind.NUMBER, Kind.LIMIT):
                is_number = cell.kind is Kind.NUMBER
                records.append((
                    r, header, times[r], cell.value if is_number else math.nan,
                    math.nan if is_number or cell.value is None else cell.value,
                    sigma if cell.sigma is None else cell.sigma, "" if is_number else cell.text,
                    block.place(r, c.number), block.place(r, time.number), c.role, c.unit, c.kind,
                    named,
                ))  # fmt: skip
    return pd.DataFrame(records, columns=VALUE_COLUMNS)


def _plain(name: str) -> str:
    return words.identifier(words.without(words.MEANS, name) or name)


def _across(run: RawRun) -> Iterator[RawRun]:
    """The run, or one for each column where headers name wells, temperatures or runs."""
    values = run.values
    measured = list(dict.fromkeys(values["header"][values["role"] == "measured"]))
    wells = [h for h in measured if WELL.fullmatch(h)]
    degrees = {h: t for h in measured if (t := degrees_in(h)) and DEGREES.fullmatch(h)}
    bare = [
        h for h in measured if (m := WITH_UNIT.fullmatch(h)) is not None and words.known_unit(m[2])
    ]
    named = {h: r for h in measured if (r := words.run_in(h)) is not None}
    prefix = "" if run.name in ("", run.block.title) else f"{run.name} "
    new: dict[str, dict[str, str]] = {}  # run -> header -> header in the run
    if len({r for _, r in named.values()}) > 1:
        for header, (of, name) in named.items():
            new.setdefault(name, {})[header] = of or "value"
    elif len(wells) >= LEAST_WELLS:
        new = {f"{prefix}{h}": {h: "signal"} for h in wells}
    elif len(degrees) > 1:
        new = {f"{prefix}{h}": {h: "value"} for h in degrees}
        values = values.assign(unit=values["unit"].where(~values["header"].isin(degrees), ""))
    elif len(bare) > 1:
        raise DataError(
            f"The headers {bare} in '{run.block.grid.file.name}' are numbers with units. igpe "
            "does not know what differs between these columns. Put each run into its own "
            "sheet or table, with this number as a condition above it."
        )
    else:
        yield run
    others = ~values["header"].isin([h for headers in new.values() for h in headers])
    for name, headers in new.items():
        chosen = values[others | values["header"].isin(headers)]
        chosen = chosen.assign(header=chosen["header"].replace(headers))
        own = dict(run.conditions)
        own.update((words.TEMPERATURE, degrees[h]) for h in headers if h in degrees)
        yield replace(run, name=name, values=chosen, conditions=own)


def times_across(block: SheetTable) -> bool:
    """Whether the headers of a table are times."""
    return sum(bool(_TIME_ACROSS.fullmatch(h)) for h in block.headers) > 1
