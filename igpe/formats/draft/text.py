"""A problem file as text: the user's tables, start values, a model, and what igpe is asked for.

First numbers for a problem: when it starts, from which values, and within which bounds.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from igpe.core.errors import DataError
from igpe.core.markup import docstring, one_line, quoted
from igpe.formats.draft.headers import Column, Run, Sheet
from igpe.problem.experiment import start_time_of

FASTEST = 10.0  # turns of a reaction between two measurements: faster ones cannot be seen


class Start(NamedTuple):
    """A start value as Python text, and why it is so."""

    value: str
    why: str


def start_time(runs: Sequence[Run]) -> float:
    """When the start values hold: 0 where that is plausible for all runs, else the first time."""
    firsts = [float(run.table["time"].iloc[0]) for run in runs]
    try:
        begins = {start_time_of(run.table["time"].to_numpy(dtype=float), None) for run in runs}
    except DataError:
        begins = set(firsts)
    return min(begins)


def measured_start(
    run: Run, name: str, begin: float, factor: float = 1.0, least: float = -np.inf
) -> Start:
    """To be estimated, from what is measured when the run starts; 0 if exactly that is measured.

    A first measurement has an error like all others. To take it as exact would make the intervals
    of the other unknowns too narrow.

    factor  from the table's unit to the model's;  least: no start value is below it
    """
    values = run.table[name].to_numpy(dtype=float) * factor
    there = np.isfinite(values) & (run.table["time"].to_numpy(dtype=float) == begin)
    if there.any() and not values[there].any():
        return Start("0.0", "assumed exact: measured as 0")
    most = round_up(2 * float(np.nanmax(np.abs(values))))
    low = 0.0 if np.nanmin(values) >= 0 else max(-most, least)
    if not there.any():
        return Start(f"igpe.Unknown({short(low)}, {short(most)})", "estimated: not measured there")
    value = float(values[there].mean())
    guess = min(max(value, low), most)
    return Start(
        f"igpe.Unknown({short(low)}, {short(most)}, guess={short(guess)})",
        f"estimated: measured as {short(value)}",
    )


def unmeasured_start(size: float) -> Start:
    """To be estimated, up to twice what is measured elsewhere."""
    return Start(
        f"igpe.Unknown(0.0, {short(round_up(2 * size))})",
        "estimated: not measured; give the number if you know it",
    )


def largest(runs: Iterable[Run], name: str) -> float:
    """The largest size that was measured; 1 where all is zero."""
    sizes = [np.nanmax(np.abs(r.table[name])) for r in runs if name in r.table.columns]
    return float(max(sizes)) or 1.0


def fastest(runs: Iterable[Run], begin: float) -> float:
    """A rate, in one over the table's time, beyond which measurements cannot tell how fast."""
    gaps = [
        float(np.diff(np.unique([begin, *run.table["time"].to_numpy(dtype=float)])).min())
        for run in runs
    ]
    return FASTEST / min(gaps)


def round_up(number: float) -> float:
    """To one digit that is 1, 2 or 5."""
    if not (number > 0 and math.isfinite(number)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    digit = next(d for d in (1, 2, 5, 10) if d * power >= number * (1 - 1e-12))
    return float(f"{digit * power:.1g}")


def short(number: float) -> str:
    """A number as Python text, to ten digits: 0.5, 2.0, 1e-06."""
    return repr(float(f"{number:.10g}"))


HEAD = '''"""{title}

    igpe check {file}
    igpe estimate {file} --plot fit.png --report report.html

Written by `igpe new` from the table; it is yours to change. What igpe had to assume says so behind
its line. What else a problem can hold: python -c "import igpe; help(igpe.Problem)"
"""

from pathlib import Path

{imports}

'''


class Part(NamedTuple):
    """What the model contributes to the file.

    title       what is estimated, in a line
    imports     beside pathlib
    model       its definition, as Python text
    builder     the expression that `Problem` gets as model;  parameters: and as their names
    starts      experiment -> state -> start value
    begin       time at which they hold, in the table's unit;  unit: of these values, if it is known
    units       name in the model -> unit of its column, where the model has units
    """

    title: str
    imports: tuple[str, ...]
    model: str
    builder: str
    parameters: str
    starts: Mapping[str, Mapping[str, Start]]
    begin: float
    unit: str
    units: Mapping[str, str]


def problem_file(sheet: Sheet, part: Part, path: Path) -> str:
    """The text of the file at `path`, from where the tables are found."""
    title, name = docstring(part.title), docstring(path.name)
    head = HEAD.format(title=title, file=name, imports="\n".join(part.imports))
    sections = ["\n".join(lines) for lines in (_data(sheet, path), _columns(sheet), _starts(part))]
    gap = "\n\n\n" if part.model.startswith("def ") else "\n\n"
    model = gap + part.model.strip("\n")
    return (
        head
        + "\n\n".join(sections)
        + model
        + "\n\n\n"
        + "\n".join(_problem(sheet, part, path))
        + "\n"
    )


def _data(sheet: Sheet, path: Path) -> list[str]:
    single = [f"DATA = {_place(sheet.files[0], path)}"] if len(sheet.files) == 1 else []
    return ["HERE = Path(__file__).parent", *single]


def _place(file: Path, path: Path) -> str:
    """Where a table is, seen from the problem file."""
    try:
        way = os.path.relpath(file.resolve(), path.resolve().parent)
    except ValueError:  # on another drive
        return f"Path({quoted(str(file.resolve()))})"
    return f"HERE / {quoted(Path(way).as_posix())}"


def _columns(sheet: Sheet) -> list[str]:
    runs = {sheet.experiment: "experiment"} if sheet.experiment else {}
    names = runs | {c.header: c.name for c in (sheet.time, *sheet.measured)}
    choice = sheet.choice
    return [
        "# Column of the table -> its name in the model.",
        "COLUMNS = {",
        *(f"    {quoted(header)}: {quoted(name)}," for header, name in names.items()),
        "}",
        *(f"# Not used: {quoted(h)} ({one_line(why)})." for h, why in choice.left_out.items()),
        *(
            f"# Not used: {quoted(h)} (a condition); where the model needs it: inputs={{...}}."
            for h in choice.conditions
        ),
    ]


def _starts(part: Part) -> list[str]:
    """START of one experiment, or of each."""
    unit = f" in {one_line(part.unit)}" if part.unit else ""
    several = len(part.starts) > 1
    lines = [
        f"# At time {part.begin:g}{unit}. A number is known, igpe.Unknown(low, high) is estimated.",
        "START = {",
    ]
    for name, starts in part.starts.items():
        entries = [f"    {quoted(s)}: {v.value},  # {one_line(v.why)}" for s, v in starts.items()]
        if several:
            entries = [f"    {quoted(name)}: {{", *(f"    {e}" for e in entries), "    },"]
        lines += entries
    return [*lines, "}"]


def _problem(sheet: Sheet, part: Part, path: Path) -> list[str]:
    return [
        "def problem():",
        '    """What igpe is asked to estimate."""',
        *_experiments(sheet, part, path),
        "    return igpe.Problem(",
        f"        {part.builder},",
        f"        parameters={part.parameters},",
        "        experiments=experiments,",
        "    )",
    ]


def _experiments(sheet: Sheet, part: Part, path: Path) -> list[str]:
    if len(sheet.files) == 1:
        function = "read_experiments" if sheet.experiment else "Experiment"
        given = ["DATA", "columns=COLUMNS", *_conditions(sheet, part, "START", sheet.measured)]
        return [f"    experiments = igpe.{function}(", *_lines(given, 8), "    )"]
    lines = ["    experiments = ["]
    for run in sheet.runs:
        there = [c for c in sheet.measured if c.name in run.table.columns]
        start = f"START[{quoted(run.name)}]"
        given = [
            _place(run.file, path),
            f"name={quoted(run.name)}",
            f"columns={_columns_of(sheet, there)}",
            *_conditions(sheet, part, start, there),
        ]
        lines += ["        igpe.Experiment(", *_lines(given, 12), "        ),"]
    return [*lines, "    ]"]


def _columns_of(sheet: Sheet, there: Sequence[Column]) -> str:
    if len(there) == len(sheet.measured):
        return "COLUMNS"
    return (
        "{" + ", ".join(f"{quoted(c.header)}: {quoted(c.name)}" for c in (sheet.time, *there)) + "}"
    )


def _conditions(sheet: Sheet, part: Part, start: str, there: Sequence[Column]) -> list[str]:
    """Arguments of an experiment beside its table."""
    names = [c.name for c in there]
    choice = sheet.choice
    sigma = {n: h for n, h in choice.sigma.items() if n in names}
    units = {n: u for n, u in part.units.items() if n in names}
    given = [f"start={start}", f"start_time={short(part.begin)}"]
    if choice.left_out or choice.conditions:
        given.append(f"only=[{', '.join(map(quoted, names))}]")
    if units:
        given.append(f"units={_dict(units)}")
    if sigma:
        given.append(f"sigma={_dict(sigma)}")
    if sheet.replicated:
        given.append("replicates=True")
    if not sigma:
        given.append("# sigma=0.02: the standard deviation of a measurement, if you know it")
    return given


def _dict(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(k)}: {quoted(v)}" for k, v in entries.items()) + "}"


def _lines(arguments: Iterable[str], gap: int) -> list[str]:
    return [" " * gap + (a if a.startswith("#") else f"{a},") for a in arguments]
