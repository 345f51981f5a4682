"""A problem file as text: the user's tables, start values, a model, and what igpe is asked for."""

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from igpe.core.markup import docstring, one_line, quoted
from igpe.formats.draft.headers import Column
from igpe.formats.draft.sheet import Sheet
from igpe.formats.draft.values import Start, short

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
