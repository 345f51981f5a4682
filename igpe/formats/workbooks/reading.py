"""`read_workbook`: the tables of files, put together in common names and units."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pandas as pd

from igpe.core.arrays import FloatArray
from igpe.core.errors import DataError
from igpe.core.names import closest
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import SheetTable, clean, find_blocks
from igpe.formats.workbooks.cells import CellGrid, Kind, Question, read_grids
from igpe.formats.workbooks.conditions import (
    ABSOLUTE,
    Condition,
    absolute,
    condition,
    table_of_conditions,
)
from igpe.formats.workbooks.fitting import Quantity, WorkbookRun, time_unit_of
from igpe.formats.workbooks.reader import KINDS, ROLES, RawRun, RunColumn, read_block, times_across
from igpe.formats.workbooks.times import Options
from igpe.formats.workbooks.words import identifier, split_header
from igpe.formats.workbooks.workbook import Workbook
from igpe.problem.problem import Problem
from igpe.problem.tables import SOURCE, checksum
from igpe.problem.units import conversion

LONG = 10 * 3600.0  # seconds from which clock times are given in hours
FAR = 50.0  # times its neighbours: a value whose decimal point was forgotten
CONCENTRATIONS = ({"[substance]": 1.0, "[length]": -3.0}, {"[mass]": 1.0, "[length]": -3.0})


def read_workbook(
    path: str | Path | Sequence[str | Path],
    *,
    sheets: Collection[str] | None = None,
    roles: Mapping[str, str] = MappingProxyType({}),
    names: Mapping[str, str] = MappingProxyType({}),
    units: Mapping[str, str] = MappingProxyType({}),
    marked: Collection[str] = (),
    decimal: str | None = None,
    dates: str = "",
    together: bool | None = None,
) -> Workbook:
    """Read the experiments of laboratory files as they are.

    Sheets and tables of a sheet are experiments, or a column names them. Titles and conditions may
    stand above a table, units in headers or below them. Clock times and dates become times since
    the start. Temperatures become kelvin. `Workbook.table()` shows what was understood.

    path    an Excel, CSV, text or Parquet file, or several, whose runs are put together
    sheets  names of the sheets to read; by default all
    roles   header -> what the column is: "time", "experiment", "measured", "input" (set, not
            measured), "ignore", "replicates", "component", "sd of A", "conversion of A",
            "yield of B from A", "area"; of times: "clock", "elapsed", "hh:mm", "mm:ss"
    names   header -> name in the model
    units   header, or name of a condition -> unit, where the file does not say it
    marked  texts that stand for no value, beside "", "-", "NA", "n.a."
    decimal "," or ".": what stands before decimals in texts
    dates   "day first" or "month first"
    together  whether tables of different quantities belong to one experiment
    raises  DataError with the cell that cannot be read; `DataError.choices` lists what an ambiguous
            file may mean, and the arguments to say so
    """
    files = [Path(p) for p in ([path] if isinstance(path, str | Path) else path)]
    said = [{clean(h): v for h, v in one.items()} for one in (roles, names, units)]
    options = Options(_checked(said[0]), said[1], said[2], dates)
    return _read(files, options, sheets=sheets, marked=marked, decimal=decimal, together=together)


def _read(
    files: Sequence[Path],
    options: Options,
    *,
    sheets: Collection[str] | None = None,
    marked: Collection[str] = (),
    decimal: str | None = None,
    expected: Mapping[str, str] = MappingProxyType({}),
    together: bool | None = None,
) -> Workbook:
    """The same, with roles for headers that need not be there."""
    raw: list[RawRun] = []
    left_out: dict[str, str] = {}
    headers: set[str] = set()
    asked = replace(options, roles={**expected, **options.roles})
    for file in files:
        grids = read_grids(file, decimal, marked)
        unseen = [g.sheet for g in grids if not g.shown and sheets is None]
        left_out |= {s: f"a hidden sheet; sheets=['{s}'] reads it" for s in unseen}
        grids = _sheets(file, grids, sheets)
        mine, why, seen = _raw_runs(file, grids, asked, several=len(files) > 1)
        raw += mine
        left_out |= why
        headers |= seen
    known = headers | {n for r in raw for n in r.conditions}
    for role, entries in (
        ("roles", options.roles),
        ("names", options.names),
        ("units", options.units),
    ):
        if unknown := [h for h in entries if h not in known]:
            raise DataError(
                f"{role}={{...}} names the column '{unknown[0]}', but the columns are "
                f"{sorted(headers)}.{closest(unknown[0], headers)}"
            )
    book = _workbook(raw, asked, left_out)
    return _joined(book) if _belong_together(book, together) else book


def _belong_together(book: Workbook, together: bool | None) -> bool:
    """Whether runs that share no quantity are one; raises `Question` unless the user says it."""
    measured = [{q.name for q in book.measured} & {*r.table.columns} for r in book.runs]
    apart = all(not a & b for k, a in enumerate(measured) for b in measured[:k])
    if len(measured) > 1 and apart and together is None:
        names = [r.name for r in book.runs]
        raise Question(
            f"The tables {names} have no quantity in common. They may be one experiment measured "
            "in several ways, or several experiments.",
            {"one experiment": {"together": True}, "several": {"together": False}},
        )
    return bool(together) and len(measured) > 1


def _joined(book: Workbook) -> Workbook:
    """The workbook with all its runs as one."""
    first = book.runs[0]
    counted = [r.table.assign(row=r.table.groupby("time").cumcount()) for r in book.runs]
    table = pd.concat(counted).groupby(["time", "row"], as_index=False).first()
    table = table.drop(columns="row")
    table.attrs = first.table.attrs
    one = replace(
        first,
        name="",
        table=table,
        conditions={n: c for r in book.runs for n, c in r.conditions.items()},
        inputs=tuple(dict.fromkeys(n for r in book.runs for n in r.inputs)),
        marks=book.marks,
        places={n: p for r in book.runs for n, p in r.places.items()},
    )
    return replace(book, runs=(one,))


def table_for(
    path: Path,
    problem: Problem,
    *,
    roles: Mapping[str, str] = MappingProxyType({}),
    decimal: str | None = None,
    dates: str = "",
) -> pd.DataFrame:
    """Other measurements for a problem's experiments, as `Problem.with_data` takes them.

    roles, decimal, dates  as for `read_workbook`
    raises                 DataError, as `read_workbook` and `Workbook.frame` do
    """
    runs = problem.experiments
    columns = {h: n for e in runs for h, n in e.columns.items()}
    measured = {n for e in runs for n in e.measured}
    expected = dict.fromkeys(
        (*measured, *(h for h, n in columns.items() if n in measured)), "measured"
    )
    expected |= {h: n for h, n in columns.items() if n in ("time", "experiment")}
    units = {n: u for e in runs for n, u in e.units.items()}
    units["time"] = units.get("time", time_unit_of(problem.model))
    units |= {h: units[n] for h, n in columns.items() if n in units}
    keep = {*expected, *(n for e in runs for n in e.sigma_columns)}
    options = Options(roles, {}, {}, dates)
    book = _read(
        [path], options, decimal=decimal, expected={clean(h): r for h, r in expected.items()}
    )
    if not any({q.name, q.header} & keep for q in book.measured):
        raise DataError(
            f"'{path}' has none of the measured quantities {sorted(measured)}; its quantities are "
            f"{[q.header for q in book.measured]}. Name its columns as in the first table."
        )
    return book.frame(units, keep)


def _checked(roles: Mapping[str, str]) -> Mapping[str, str]:
    for header, role in roles.items():
        if role not in ROLES and not KINDS.fullmatch(str(role)):
            raise DataError(
                f"roles={{'{header}': {role!r}}}: igpe knows {', '.join(map(repr, ROLES))}, "
                "'area', 'sd of A', 'conversion of A' and 'yield of B from A'."
            )
    return roles


def _sheets(path: Path, grids: list[CellGrid], sheets: Collection[str] | None) -> list[CellGrid]:
    if sheets is None:
        return [g for g in grids if g.shown]
    there = [g.sheet for g in grids]
    if unknown := [s for s in sheets if s not in there]:
        raise DataError(
            f"'{path}' has no sheet '{unknown[0]}'; its sheets are {there}."
            f"{closest(unknown[0], there)}"
        )
    return [g for g in grids if g.sheet in sheets]


def _raw_runs(
    path: Path, grids: list[CellGrid], options: Options, *, several: bool
) -> tuple[list[RawRun], dict[str, str], set[str]]:
    """The runs of a file, named; what is left out and why; all headers."""
    blocks = [(grid, block) for grid in grids for block in find_blocks(grid)]
    headers = {h for _, b in blocks for h in b.headers}
    read = [(block, read_block(block, options, grid.sheet)) for grid, block in blocks]
    timed = [(block, runs) for block, runs in read if runs]
    if not timed:
        raise DataError(_no_times(path, grids, [b for _, b in blocks]))
    in_sheet = {g.sheet: sum(b.grid.sheet == g.sheet for b, _ in timed) for g in grids}
    several_sheets = sum(n > 0 for n in in_sheet.values()) > 1
    made: list[RawRun] = []
    for block, runs in timed:
        titled = in_sheet[block.grid.sheet] > 1 or len(runs) > 1
        for run in runs:
            parts = [block.grid.sheet] if several_sheets else []
            is_named = titled or run.name != block.title
            parts += [run.name or f"{len(made) + 1}"] if is_named else []
            parts = [path.stem, *parts] if several else parts
            made.append(replace(run, name=" ".join(parts)))
    made = _unique(made)
    left_out = {h: w for run in made for h, w in run.left_out.items()}
    for block in (b for b, runs in read if not runs):
        listed = table_of_conditions(block, [r.name for r in made])
        made = [replace(r, conditions={**r.conditions, **listed.get(r.name, {})}) for r in made]
        if not listed:
            why = f"the table in {block.place(0, 0)} has no times"
            left_out |= dict.fromkeys((h for h in block.headers if h), why)
    used = {h for r in made for h in r.series}
    return made, {h: w for h, w in left_out.items() if h not in used}, headers


def _unique(runs: list[RawRun]) -> list[RawRun]:
    seen: dict[str, int] = {}
    made = []
    for run in runs:
        seen[run.name] = seen.get(run.name, 0) + 1
        twice = seen[run.name] > 1
        made.append(replace(run, name=f"{run.name} ({seen[run.name]})") if twice else run)
    return made


def _no_times(path: Path, grids: Sequence[CellGrid], blocks: Sequence[SheetTable]) -> str:
    """Why a file has no experiments, in a sentence."""
    if any(map(times_across, blocks)):
        return (
            f"The headers of '{path.name}' are times: they run across, with one row for each well, "
            "channel or quantity. igpe needs one row for each time. Turn the table around."
        )
    listed = [h for b in blocks for h in b.headers if h]
    for block in blocks:
        for number, header in enumerate(block.headers):
            texts = [c.text for c in block.cells(number) if c.kind is Kind.TEXT]
            if texts and words.is_time(header):
                return (
                    f"igpe cannot read the times of '{header}' in '{path.name}', such as "
                    f"'{texts[0]}'. Write numbers, or times such as 08:30:00 or 2024-02-15 08:30."
                )
    if listed:
        other = [h for h in listed if {w.lower() for w in words.words_of(h)} & words.OTHER_TIMES]
        more = f" '{other[0]}' is no time since the start of the reaction." if other else ""
        return (
            f"Which column of '{path.name}' holds the times? None of {listed} speaks of "
            f"time.{more} Name it: roles={{'{listed[0]}': 'time'}}, or add a column of times."
        )
    if any(sum(c.value is not None for c in row) > 1 for g in grids for row in g.rows):
        return (
            f"'{path.name}' has numbers but no header: no line of names above them. Write the "
            "names of the columns above the numbers, with their units: 't [min]', 'A [mol/L]'."
        )
    return f"There is no table in '{path.name}': igpe found no rows of numbers below names."


def _workbook(raw: Sequence[RawRun], options: Options, left_out: dict[str, str]) -> Workbook:
    """The runs in common names and units."""
    time_unit = _time_unit(raw)
    named = [_named(run, options) for run in raw]
    unit_of: dict[str, str] = {}
    for series in named:
        for name, s in series.items():
            unit_of.setdefault(name, s.unit)
    roles = _final_roles(named, options)
    runs, warnings = [], []
    for run, series in zip(raw, named, strict=True):
        made, sentences = _final_run(run, series, roles, (unit_of, time_unit), options)
        runs.append(made)
        warnings += sentences
    measured = _quantities(named, unit_of, [n for n, r in roles.items() if r == "measured"])
    if not measured:
        unused = "; ".join(f"'{h}' ({why})" for h, why in left_out.items())
        raise DataError(
            f"No column beside the time holds numbers that change in "
            f"'{raw[0].block.grid.file.name}'.{f' Not used: {unused}.' if unused else ''} Give a "
            "table with one column for each measured quantity."
        )
    inputs = _quantities(named, unit_of, [n for n, r in roles.items() if r == "input"])
    inputs = tuple(replace(q, unit=absolute(0.0, q.unit)[1]) for q in inputs)
    time = Quantity(raw[0].time, "time", time_unit)
    return Workbook(tuple(runs), time, measured, inputs, left_out, tuple(warnings))


def _time_unit(raw: Sequence[RawRun]) -> str:
    units = {r.unit for r in raw if not r.from_clock}
    if not units:
        longest = max(float(r.times[-1]) for r in raw)
        return "h" if longest >= LONG else "min"
    return raw[[r.from_clock for r in raw].index(False)].unit


def _named(run: RawRun, options: Options) -> dict[str, RunColumn]:
    """The columns of a run by their names in the model; deviations as `sd_...`."""
    names: dict[str, str] = {}
    warm = [
        h
        for h, s in run.series.items()
        if s.unit in ABSOLUTE or (not s.unit and words.is_temperature(split_header(h)[0]))
    ]
    for header, s in run.series.items():
        if s.role == "sd":
            continue
        written = words.without(words.MEANS, split_header(header)[0]) or header
        only = warm == [header] and words.is_reaction_temperature(written)
        name = options.names.get(header) or (words.TEMPERATURE if only else identifier(written))
        others = [] if header in options.names else names.values()
        names[header] = identifier(name, others)
        if list(names.values()).count(names[header]) > 1:
            other = next(h for h, n in names.items() if n == names[header])
            raise DataError(f"The columns '{other}' and '{header}' both seem to be '{name}'.")
    made = {name: run.series[header] for header, name in names.items()}
    for s in run.series.values():
        if s.role != "sd":
            continue
        of = next(
            (
                n
                for h, n in names.items()
                if s.of in (h, n, split_header(h)[0])
                or identifier(words.without(words.MEANS, s.of) or s.of) == n
            ),
            "",
        )
        if of:
            made[f"sd_{of}"] = s
    return made


def _final_roles(named: Sequence[Mapping[str, RunColumn]], options: Options) -> dict[str, str]:
    """Name -> measured, input or condition: what never changes within a run is a condition."""
    roles: dict[str, str] = {}
    for name in dict.fromkeys(n for series in named for n in series):
        mine = [series[name] for series in named if name in series]
        s = mine[0]
        if s.role == "sd":
            continue
        written = split_header(s.header)[0]
        said = options.roles.get(s.header)
        set_by_user = s.role == "input" or words.is_temperature(written) or s.unit in ABSOLUTE
        set_by_user |= words.is_controlled(written, s.unit)
        rests = all(_rests(x) for x in mine) and any(len(x.values) > 1 for x in mine)
        if said == "measured" or s.kind:
            roles[name] = "measured"
        elif set_by_user:
            roles[name] = "condition" if rests else "input"
        elif s.header in options.names:
            roles[name] = "measured"
        else:
            roles[name] = "condition" if rests and not any(x.marks for x in mine) else "measured"
    if "measured" not in roles.values():  # a pressure, or a cooling curve
        free = [n for n, r in roles.items() if r == "input"]
        some = [n for n in free if not words.is_temperature(n)] or free
        return {n: "measured" if n in some else r for n, r in roles.items()}
    return roles


def _rests(s: RunColumn) -> bool:
    there = s.values[np.isfinite(s.values)]
    return len(there) > 0 and bool((there == there[0]).all())


def _quantities(
    named: Sequence[Mapping[str, RunColumn]], units: Mapping[str, str], names: Sequence[str]
) -> tuple[Quantity, ...]:
    first = {n: next(series[n] for series in named if n in series) for n in names}
    apart = {n: series[f"sd_{n}"].header for n in names for series in named if f"sd_{n}" in series}
    return tuple(
        Quantity(s.header, n, units[n], s.kind, apart.get(n, "")) for n, s in first.items()
    )


def _final_run(
    run: RawRun,
    series: Mapping[str, RunColumn],
    roles: Mapping[str, str],
    units: tuple[Mapping[str, str], str],
    options: Options,
) -> tuple[WorkbookRun, list[str]]:
    """The run with its table in common units, and warnings about its numbers."""
    unit_of, time_unit = units
    factor = conversion("time", run.unit, time_unit)[0] if run.unit and time_unit else 1.0
    columns: dict[str, FloatArray] = {"time": run.times * factor}
    used: dict[str, RunColumn] = {}
    conditions = {n: _said(n, c, options) for n, c in run.conditions.items()}
    for name, s in series.items():
        of = name.removeprefix("sd_") if s.role == "sd" else name
        unit, role = unit_of.get(of, ""), roles.get(of, "measured")
        values = _in_unit(s, of, unit)
        there = values[np.isfinite(values)]
        if role == "condition" or (role == "input" and _rests(s)):
            if len(there) and s.role != "sd":
                conditions[name] = _said(name, condition(float(there[0]), unit), options)
        elif len(there) or s.marks:
            is_set = role == "input"
            columns[name] = np.array([absolute(v, unit)[0] for v in values]) if is_set else values
            used[name] = s
    if len(np.unique(run.times)) < 2:  # noqa: PLR2004 - nothing changes in one moment
        where = f" of run '{run.name}'" if run.name else ""
        raise DataError(
            f"In '{run.block.grid.file.name}'{where}: there is only one time; measurements at "
            "several are needed."
        )
    table = pd.DataFrame(columns)
    table.attrs[SOURCE] = checksum(run.block.grid.file)
    made = WorkbookRun(
        run.name, run.block.grid.file, run.block.grid.sheet, table, conditions,
        tuple(n for n in used if roles.get(n) == "input"),
        tuple(m for s in used.values() for m in s.marks),
        {"time": run.places} | {n: s.places for n, s in used.items()},
    )  # fmt: skip
    grid = run.block.grid
    doubts = [d for n, s in used.items() for d in _doubts(run, s, columns[n])]
    if hidden := [f"{r + 1}" for r in run.block.rows if r in grid.hidden]:
        doubts.append(
            f"Excel hides row {', '.join(hidden)} of '{grid.sheet}' in {grid.file.name}; igpe "
            "reads hidden rows. Delete what is not meant."
        )
    return made, doubts


def _in_unit(s: RunColumn, name: str, unit: str) -> FloatArray:
    """The values of a column in another unit; deviations have no offset."""
    if not (s.unit and unit) or s.unit in (unit, "%"):
        return s.values
    scale, offset = conversion(name, s.unit, unit)
    return scale * s.values + (0.0 if s.role == "sd" else offset)


def _said(name: str, c: Condition, options: Options) -> Condition:
    """The condition with the unit that the user says it has."""
    unit = options.units.get(name, "")
    return condition(c.value, words.known_unit(unit)) if unit and not c.unit else c


def _doubts(run: RawRun, s: RunColumn, values: FloatArray) -> list[str]:
    """Sentences about values far from their neighbours, and concentrations below zero."""
    found = []
    is_concentration = words.dimension(s.unit) in CONCENTRATIONS or s.header.startswith(("c(", "["))
    there = np.flatnonzero(np.isfinite(values))
    sizes = np.abs(values[there])
    for k, at in enumerate(there):
        beside = [sizes[j] for j in (k - 1, k + 1) if 0 <= j < len(sizes)]
        if len(sizes) > 3 and sizes[k] > FAR * max(beside) > 0:  # noqa: PLR2004 - enough to compare
            digits = f"{values[at]:g}, more than {FAR:g} times its neighbours"
            found.append(_doubt(run, s, at, f"{digits}. Was the decimal point forgotten?"))
        if is_concentration and values[at] < 0:
            found.append(_doubt(run, s, at, f"{values[at]:g}, a concentration below zero."))
    return found


def _doubt(run: RawRun, s: RunColumn, at: np.intp, what: str) -> str:
    row = "".join(c for c in s.places[at].rpartition("!")[2] if c.isdigit())
    return f"'{s.header}' in row {row} ({s.places[at]} of {run.block.grid.file.name}) is {what}"
