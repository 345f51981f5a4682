"""`read_workbook`: the tables of files, put together in common names and units."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pandas as pd

from igpe.core.errors import DataError
from igpe.core.markup import closest
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import (
    ABSOLUTE,
    Condition,
    SheetTable,
    absolute,
    clean,
    condition,
    degrees_in,
    find_blocks,
    table_of_conditions,
)
from igpe.formats.workbooks.cells import CellGrid, Kind, Question, read_grids
from igpe.formats.workbooks.reader import KINDS, ROLES, RawRun, is_set, read_block, times_across
from igpe.formats.workbooks.times import Options
from igpe.formats.workbooks.workbook import Mark, Quantity, Workbook, WorkbookRun, time_unit_of
from igpe.problem.measurements import conversion
from igpe.problem.problem import Problem
from igpe.problem.tables import SOURCE, checksum

LONG = 10 * 3600.0  # seconds from which clock times are given in hours
FAR = 50.0  # times its neighbours: a value whose decimal point was forgotten


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
    """Read experiments from unmodified laboratory files.

    Each table is one experiment, unless a column names the experiments; a sheet may contain several
    tables. Titles and conditions may be above a table; units may be in the headers or below them.
    Clock times and dates are converted to times since the start, and temperatures to kelvin.
    `Workbook.table()` shows how igpe interpreted the files.

    path     path of an Excel, CSV, text or Parquet file; if it is a list of paths, the experiments
             of all files are combined
    sheets   names of the sheets to read; by default all
    roles    a dict {header: role of the column}; a role is "time", "experiment", "measured",
             "input" (set, not measured), "ignore", "replicates", "component", "sd of A",
             "conversion of A", "yield of B from A" or "area"; a column of times may also be
             "clock", "elapsed", "hh:mm" or "mm:ss"
    names    a dict {header: name in the model}; of replicates in columns A_1 and A_2, the header is
             A; of a long table, the headers are the names of the quantities
    units    a dict {header or name of a condition: unit}, for units that the file does not contain
    marked   strings that mark missing values, in addition to "", "-", ".", "NA" and "n.a."
    decimal  decimal separator of numbers that are stored as text: "," or "."
    dates    order of day and month in dates: "day first" or "month first"
    together  whether tables with different quantities belong to one experiment
    raises   DataError, which names the cell that cannot be read. For an ambiguous file,
             `DataError.choices` lists the possible interpretations, and the arguments that select
             them
    """
    files = [Path(p) for p in ([path] if isinstance(path, str | Path) else path)]
    given = [{clean(h): v for h, v in one.items()} for one in (roles, names, units)]
    options = Options(_checked(given[0]), given[1], given[2], dates)
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
    """`read_workbook`, with roles for headers that may be missing."""
    raw: list[RawRun] = []
    left_out: dict[str, str] = {}
    headers: set[str] = set()
    both = replace(options, roles={**expected, **options.roles})
    for file in files:
        grids = read_grids(file, decimal, marked)
        unseen = [g.sheet for g in grids if not g.shown and sheets is None]
        left_out |= {s: f"a hidden sheet; sheets=['{s}'] reads it" for s in unseen}
        blocks = [b for grid in _sheets(file, grids, sheets) for b in find_blocks(grid)]
        raw += _raw_runs(file, blocks, both, left_out, several=len(files) > 1)
        headers |= {h for b in blocks for h in b.headers}
    known = headers | {n for r in raw for n in r.conditions}
    given = {"roles": options.roles, "names": options.names, "units": options.units}
    # Columns of replicates are one quantity, and a long table's column of names is several.
    known_of = {"names": known | {h for r in raw for h in r.values["header"]}}
    for role, header in ((role, h) for role, entries in given.items() for h in entries):
        if header not in known_of.get(role, known):
            raise DataError(
                f"{role}={{...}} refers to the column '{header}', but the columns are "
                f"{sorted(headers)}.{closest(header, headers)}"
            )
    return _workbook(raw, both, left_out, together)


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
            f"'{path}' has none of the measured quantities {sorted(measured)}; its quantities "
            f"are {[q.header for q in book.measured]}. Use the column names of the first table."
        )
    limited = {n for e in runs for n in e.limited}
    limited |= {h for h, n in columns.items() if n in limited}
    return book.frame(units, keep, limited)


def _checked(roles: Mapping[str, str]) -> Mapping[str, str]:
    for header, role in roles.items():
        if role not in ROLES and not KINDS.fullmatch(str(role)):
            raise DataError(
                f"roles={{'{header}': {role!r}}} is not valid; the roles are "
                f"{', '.join(map(repr, ROLES))}, 'area', 'sd of A', 'conversion of A' and "
                "'yield of B from A'."
            )
    return roles


def _sheets(path: Path, grids: list[CellGrid], sheets: Collection[str] | None) -> list[CellGrid]:
    names = [g.sheet for g in grids]
    if unknown := [s for s in sheets or () if s not in names]:
        raise DataError(
            f"'{path}' has no sheet '{unknown[0]}'; its sheets are {names}."
            f"{closest(unknown[0], names)}"
        )
    return [g for g in grids if (g.shown if sheets is None else g.sheet in sheets)]


def _raw_runs(
    path: Path,
    blocks: Sequence[SheetTable],
    options: Options,
    left_out: dict[str, str],
    *,
    several: bool,
) -> list[RawRun]:
    """The runs of a file, named; why columns are left out is added to `left_out`."""
    read = [(block, read_block(block, options)) for block in blocks]
    timed = [(block, runs) for block, runs in read if runs]
    if not timed:
        raise DataError(_no_times(path, blocks))
    in_sheet = Counter(block.grid.sheet for block, _ in timed)
    named: list[RawRun] = []
    for block, runs in timed:
        titled = in_sheet[block.grid.sheet] > 1 or len(runs) > 1
        for run in runs:
            parts = [path.stem] * several + [block.grid.sheet] * (len(in_sheet) > 1)
            is_named = titled or run.name != block.title
            parts += [run.name or f"{len(named) + 1}"] if is_named else []
            name = " ".join(parts)
            twice = sum(re.sub(r" \(\d+\)$", "", r.name) == name for r in named)
            named.append(replace(run, name=f"{name} ({twice + 1})" if twice else name))
    unused = {h: why for run in named for h, why in run.left_out.items()}
    for block in (b for b, runs in read if not runs):
        listed = table_of_conditions(block, [r.name for r in named])
        named = [replace(r, conditions={**r.conditions, **listed.get(r.name, {})}) for r in named]
        if not listed:
            why = f"the table in {block.place(0, 0)} has no times"
            unused |= dict.fromkeys((h for h in block.headers if h), why)
    used = {h for r in named for h in r.values["header"]}
    left_out.update({h: why for h, why in unused.items() if h not in used})
    return named


def _no_times(path: Path, blocks: Sequence[SheetTable]) -> str:
    """Why a file has no experiments, in a sentence."""
    if any(map(times_across, blocks)):
        return (
            f"The headers of '{path.name}' are times: the table has one column for each time, and "
            "one row for each well, channel or quantity. igpe needs one row for each time. Turn "
            "the table around."
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
        other = [h for h in listed if words.speaks_of(words.OTHER_TIMES, h)]
        more = f" '{other[0]}' is not a time since the start of the reaction." if other else ""
        units = {
            h: words.split_header(h)[1] or words.unit_below(b.units[k])
            for b in blocks
            for k, h in enumerate(b.headers)
        }
        best = [h for h in listed if words.dimension(units[h]) == words.TIME and h not in other]
        return (
            f"Which column of '{path.name}' holds the times? None of {listed} looks like a "
            f"time.{more} Name the column of times "
            f"(roles={{'{best[0] if best else 'COLUMN'}': 'time'}}), or add such a column."
        )
    return (
        f"There is no table in '{path.name}': igpe found no header (a line of names) above "
        "rows of numbers. Write one name above each column, with its unit: 't [min]', 'A "
        "[mol/L]'."
    )


# All runs together -----------------------------------------------------------------------------


def _workbook(
    raw: Sequence[RawRun], options: Options, left_out: dict[str, str], together: bool | None
) -> Workbook:
    """The runs in common names and units."""
    unused = "; ".join(f"'{h}' ({why})" for h, why in left_out.items())
    nothing = (
        f"In '{raw[0].block.grid.file.name}', only the column of times contains numbers that "
        f"change.{f' Not used: {unused}.' if unused else ''} Give a "
        "table with one column for each measured quantity."
    )
    if all(r.values.empty for r in raw):
        raise DataError(nothing)
    longest = max(r.values["time"].max() for r in raw)
    time_unit = "h" if longest >= LONG else "min"
    time_unit = next((r.unit for r in raw if not r.from_clock), time_unit)
    values = _in_common_units(pd.concat(_named(raw, time_unit, options), ignore_index=True))
    values, incomplete = _with_whole_deviations(values)
    left_out |= incomplete
    warnings = [_on_thousands(g) for run in raw if (g := run.block.grid).grouped]
    warnings += [w for _, part in _parts(values, "run", "name") for w in _doubts(part, raw)]
    roles = _final_roles(values, options)
    if "measured" not in roles.values():
        raise DataError(nothing)
    if _belong_together(raw, values[values["name"].map(roles) == "measured"], together):
        both: dict[str, Condition] = {}
        for name, c in ((n, c) for r in raw for n, c in r.conditions.items()):
            if both.setdefault(name, c).value != c.value:
                raise DataError(
                    f"The tables {[r.name for r in raw]} cannot be one experiment: '{name}' is "
                    f"{both[name].written} in one and {c.written} in another. Pass together=False."
                )
        raw = [replace(raw[0], name="", conditions=both)]
        values = values.assign(run=0)
    units = values.drop_duplicates("name").set_index("name")["unit"]
    for name in (n for n, role in roles.items() if role == "input" and units[n] in ABSOLUTE):
        rows = values["name"] == name
        values.loc[rows, "value"] = [absolute(v, units[name])[0] for v in values["value"][rows]]
        values.loc[rows, "unit"] = "K"
    runs = [
        _final_run(run, values[values["run"] == k], roles, options) for k, run in enumerate(raw)
    ]
    measured = _quantities(values, [n for n, role in roles.items() if role == "measured"])
    inputs = _quantities(values, [n for run in runs for n in run.inputs])
    time = Quantity(raw[0].time, "time", time_unit)
    return Workbook(tuple(runs), time, measured, inputs, left_out, tuple(dict.fromkeys(warnings)))


def _named(raw: Sequence[RawRun], time_unit: str, options: Options) -> Iterator[pd.DataFrame]:
    """The values of each run with its number, in the model's names and in one unit of time."""
    for number, run in enumerate(raw):
        if run.values["time"].nunique() < 2:  # noqa: PLR2004 - nothing changes in one moment
            where = f", run '{run.name}'," if run.name else ""
            raise DataError(
                f"'{run.block.grid.file.name}'{where} has values at only one time; igpe needs "
                "measurements at several times."
            )
        factor = conversion("time", run.unit, time_unit)[0] if run.unit and time_unit else 1.0
        names = run.values["header"].map(_names(run, options))
        yield run.values.assign(run=number, name=names, time=factor * run.values["time"])


def _names(run: RawRun, options: Options) -> dict[str, str]:
    """Header -> name in the model."""
    units = run.values.drop_duplicates("header").set_index("header")["unit"]
    written = {h: words.without(words.MEANS, words.split_header(h)[0]) or h for h in units.index}
    warm = [
        h
        for h, unit in units.items()
        if unit in ABSOLUTE or (not unit and words.is_temperature(written[h]))
    ]
    names: dict[str, str] = {}
    for header, name in written.items():
        if header in options.names:
            names[header] = words.identifier(options.names[header])
        elif warm == [header] and words.is_reaction_temperature(name):
            names[header] = words.identifier(words.TEMPERATURE, names.values())
        else:
            names[header] = words.identifier(name, names.values())
    for header, name in names.items():
        if other := next((h for h, n in names.items() if n == name and h != header), ""):
            raise DataError(f"The columns '{header}' and '{other}' both seem to refer to '{name}'.")
    return names


def _in_common_units(values: pd.DataFrame) -> pd.DataFrame:
    """The values of each name in the unit that it has first; deviations have no offset."""
    first = values["name"].map(values.drop_duplicates("name").set_index("name")["unit"])
    for name, part in _parts(values, "name", "unit"):
        unit, target = part["unit"].iloc[0], first[part.index[0]]
        if unit and target and unit not in (target, "%"):
            factor, offset = conversion(name, unit, target)
            both = ["value", "limit"]
            values.loc[part.index, both] = factor * part[both] + offset
            values.loc[part.index, "sigma"] = abs(factor) * part["sigma"]
    return values.assign(unit=first)


def _parts(values: pd.DataFrame, *by: str) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each name, and of what else they are grouped by."""
    for _, part in values.groupby(list(by), sort=False):
        yield str(part["name"].iloc[0]), part


def _with_whole_deviations(values: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """The values without standard deviations that only some values of a quantity have, and why."""
    left_out: dict[str, str] = {}
    lost = pd.Series(data=False, index=values.index)
    for _, part in _parts(values[values["value"].notna()], "name"):
        if part["sigma"].notna().any() and part["sigma"].isna().any():
            header = part["header"].iloc[0]
            why = f"some values of '{header}' have no standard deviation"
            left_out |= {d: why for d in part["deviation"].unique() if d}
            lost |= values["name"] == part["name"].iloc[0]
    return values.assign(
        sigma=values["sigma"].mask(lost), deviation=values["deviation"].mask(lost, "")
    ), left_out


def _rests(part: pd.DataFrame) -> bool:
    return part["value"].nunique() == 1


def _final_roles(values: pd.DataFrame, options: Options) -> dict[str, str]:
    """Name -> measured, input or condition: what never changes within a run is a condition."""
    roles: dict[str, str] = {}
    for name, rows in _parts(values, "name"):
        header, role, unit, kind = rows[["header", "role", "unit", "kind"]].iloc[0]
        runs = [part for _, part in _parts(rows, "run")]
        rests = all(map(_rests, runs)) and max(map(len, runs)) > 1
        if options.roles.get(header) == "measured" or kind:
            roles[name] = "measured"
        elif is_set(role, words.split_header(header)[0], unit) or unit in ABSOLUTE:
            roles[name] = "condition" if rests else "input"
        elif header in options.names or not rests or rows["mark"].any():
            roles[name] = "measured"
        else:
            roles[name] = "condition"
    if "measured" not in roles.values():  # a pressure, or a cooling curve
        free = [n for n, r in roles.items() if r == "input"]
        some = [n for n in free if not words.is_temperature(n)] or free
        roles |= dict.fromkeys(some, "measured")
    return roles


def _belong_together(raw: Sequence[RawRun], measured: pd.DataFrame, together: bool | None) -> bool:
    """Whether runs are one experiment, if it is open; raises `Question` unless the user says it.

    It is open if they share no quantity, or if only a text above them distinguishes them.
    """
    names = [{*part} for _, part in measured.groupby("run")["name"]]
    apart = all(not a & b for k, a in enumerate(names) for b in names[:k])
    titled = [r.block.title for r in raw if r.block.beside]
    unclear = [t for t in titled if not degrees_in(t) and not words.begins_with(words.RUNS, t)]
    if len(names) > 1 and (apart or unclear) and together is None:
        why = "have no quantity in common" if apart else "hold the same quantities"
        raise Question(
            f"The tables {[r.name for r in raw]} {why}.",
            {
                "one experiment, measured in several ways": {"together": True},
                "several experiments": {"together": False},
            },
        )
    return bool(together) and len(names) > 1 and bool(apart or unclear)


def _quantities(values: pd.DataFrame, names: Collection[str]) -> tuple[Quantity, ...]:
    rows = values[values["name"].isin(names)]
    apart = rows[rows["deviation"] != ""].drop_duplicates("name").set_index("name")["deviation"]
    first = rows.drop_duplicates("name")[["header", "name", "unit", "kind"]]
    return tuple(Quantity(h, n, u, k, apart.get(n, "")) for h, n, u, k in first.to_numpy().tolist())


def _final_run(
    run: RawRun, values: pd.DataFrame, roles: Mapping[str, str], options: Options
) -> WorkbookRun:
    """The run with its conditions and its table."""
    conditions = dict(run.conditions)
    fixed = []
    for name, part in _parts(values, "name"):
        if roles[name] == "condition" or (roles[name] == "input" and _rests(part)):
            fixed.append(name)
            known = part["value"].dropna()
            if len(known):
                conditions[name] = condition(float(known.iloc[0]), part["unit"].iloc[0])
    for name, c in conditions.items():
        unit = words.known_unit(options.units.get(name, ""))
        conditions[name] = condition(c.value, unit) if unit and not c.unit else c
    used = values[~values["name"].isin(fixed)].sort_values("time", kind="stable")
    inputs = tuple(n for n in used["name"].unique() if roles[n] == "input")
    used = used[~(used["name"].isin(inputs) & used.duplicated(["name", "time"]))]
    used = used.assign(row=used.groupby(["name", "time"]).cumcount())  # several are replicates
    wide = used.set_index(["time", "row", "name"])[["value", "limit", "sigma"]].unstack("name")
    table = wide["value"][list(used["name"].unique())].copy()
    for name in used["name"][used["sigma"].notna()].unique():
        table[f"sd_{name}"] = wide["sigma"][name]
    limited = used["name"][used["limit"].notna()].unique()
    limits = pd.DataFrame(wide["limit"][list(limited)]).reset_index(drop=True)
    table = table.reset_index().drop(columns="row").rename_axis(None, axis=1)
    table.attrs[SOURCE] = checksum(run.block.grid.file)
    marks = used[used["mark"] != ""][["place", "mark", "header", "limit"]]
    places = {n: _range(part["place"]) for n, part in _parts(used, "name")}
    return WorkbookRun(
        run.name, run.block.grid.file, table, conditions, inputs,
        tuple(
            Mark(place, text, header, None if math.isnan(limit) else limit)
            for place, text, header, limit in marks.itertuples(index=False)
        ),
        {"time": _range(used["at"]), **places}, limits,
    )  # fmt: skip


def _range(places: pd.Series) -> str:
    return f"{places.iloc[0]}:{places.iloc[-1].rpartition('!')[2]}"


def _on_thousands(grid: CellGrid) -> str:
    plain = grid.grouped.replace(".", "")
    return (
        f"igpe reads {grid.grouped} in {grid.file.name} as {plain}, because other numbers have "
        f"decimal commas. If the point separates decimals, write {grid.grouped.replace('.', ',')}."
    )


def _doubts(part: pd.DataFrame, raw: Sequence[RawRun]) -> Iterator[str]:
    """Sentences about hidden rows, values far from their neighbours, concentrations below zero."""
    block, (header, unit) = raw[part["run"].iloc[0]].block, part[["header", "unit"]].iloc[0]
    file = block.grid.file.name
    hidden = [f"{r + 1}" for r in block.rows if r in block.grid.hidden and not block.turned]
    if hidden:
        yield (
            f"Excel hides row {', '.join(hidden)} of '{block.grid.sheet}' in {file}; igpe "
            "reads hidden rows. Delete rows that do not belong to the data."
        )
    is_concentration = words.dimension(unit) in words.CONCENTRATIONS or header.startswith((
        "c(",
        "[",
    ))
    part = part[part["value"].notna()]
    sizes = part["value"].abs()
    beside = pd.concat([sizes.shift(1), sizes.shift(-1)], axis=1).max(axis=1)
    far = (sizes > FAR * beside) & (beside > 0) & (len(sizes) > 3)  # noqa: PLR2004 - enough to compare
    for place, value, is_far in zip(part["place"], part["value"], far, strict=True):
        row = re.sub(r"\D", "", place.rpartition("!")[2])
        where = f"'{header}' in row {row} ({place} of {file}) is {value:g}"
        if is_far:
            yield (
                f"{where}, more than {FAR:g} times as large as its neighbours. Check the decimal "
                "point."
            )
        if is_concentration and value < 0:
            yield f"{where}, a concentration below zero."
