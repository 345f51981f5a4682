"""The problem file that `igpe new` writes: the user's tables, start values, bounds and a model.

The model is a pyomo.dae skeleton that runs as it is, or a batch reactor with mass action where
reactions are given. The reactor has the table's units where the table gives all of them.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyomo.environ import units as pyomo_units

from igpe.core.errors import DataError
from igpe.core.markup import docstring, one_line, quoted
from igpe.formats.draft.headers import (
    Column,
    Sheet,
    TableOptions,
    TableRun,
    dimension,
    identifier,
    read_sheet,
)
from igpe.formats.kinetics.laws import Equation, numbered, read_equation
from igpe.formats.kinetics.reactor import Batch
from igpe.problem.experiment import start_time_of
from igpe.problem.units import conversion

FASTEST = 10.0  # turns of a reaction between two measurements: faster ones cannot be seen


class DraftStart(NamedTuple):
    """A start value as Python text, and why it is so."""

    value: str
    why: str


def start_time(runs: Sequence[TableRun]) -> float:
    """When the start values hold: 0 where that is plausible for all runs, else the first time."""
    firsts = [float(run.table["time"].iloc[0]) for run in runs]
    try:
        begins = {start_time_of(run.table["time"].to_numpy(dtype=float), None) for run in runs}
    except DataError:
        begins = set(firsts)
    return min(begins)


def measured_start(
    run: TableRun, name: str, begin: float, factor: float = 1.0, least: float = -np.inf
) -> DraftStart:
    """To be estimated, from what is measured when the run starts; 0 if exactly that is measured.

    A first measurement has an error like all others. To take it as exact would make the intervals
    of the other unknowns too narrow.

    factor  from the table's unit to the model's;  least: no start value is below it
    """
    values = run.table[name].to_numpy(dtype=float) * factor
    there = np.isfinite(values) & (run.table["time"].to_numpy(dtype=float) == begin)
    if there.any() and not values[there].any():
        return DraftStart("0.0", "assumed exact: measured as 0")
    most = round_up(2 * float(np.nanmax(np.abs(values))))
    low = 0.0 if np.nanmin(values) >= 0 else max(-most, least)
    if not there.any():
        return DraftStart(
            f"igpe.Unknown({short(low)}, {short(most)})", "estimated: not measured there"
        )
    value = float(values[there].mean())
    guess = min(max(value, low), most)
    return DraftStart(
        f"igpe.Unknown({short(low)}, {short(most)}, guess={short(guess)})",
        f"estimated: measured as {short(value)}",
    )


def unmeasured_start(size: float) -> DraftStart:
    """To be estimated, up to twice what is measured elsewhere."""
    return DraftStart(
        f"igpe.Unknown(0.0, {short(round_up(2 * size))})",
        "estimated: not measured; give the number if you know it",
    )


def largest(runs: Iterable[TableRun], name: str) -> float:
    """The largest size that was measured; 1 where all is zero."""
    sizes = [np.nanmax(np.abs(r.table[name])) for r in runs if name in r.table.columns]
    return float(max(sizes)) or 1.0


def fastest(runs: Iterable[TableRun], begin: float) -> float:
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


class DraftModel(NamedTuple):
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
    starts: Mapping[str, Mapping[str, DraftStart]]
    begin: float
    unit: str
    units: Mapping[str, str]


def problem_file(sheet: Sheet, part: DraftModel, path: Path) -> str:
    """The text of the file at `path`, from where the tables are found."""
    title, name = docstring(part.title), docstring(path.name)
    head = HEAD.format(title=title, file=name, imports="\n".join(part.imports))
    sections = [
        "\n".join(lines) for lines in (_data(sheet, path), _columns(sheet), _written_starts(part))
    ]
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


def _written_starts(part: DraftModel) -> list[str]:
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


def _problem(sheet: Sheet, part: DraftModel, path: Path) -> list[str]:
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


def _experiments(sheet: Sheet, part: DraftModel, path: Path) -> list[str]:
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


def _conditions(sheet: Sheet, part: DraftModel, start: str, there: Sequence[Column]) -> list[str]:
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


EQUATIONS_MODEL = '''def model(times):
    """The equations. Each quantity is made at a constant rate and lost in proportion to itself,

        d{first}/dt = {first}_made - {first}_lost * {first},

    which any measurements can be compared with: replace these right-hand sides by yours.
    """
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times){time}

    # What changes with time, and its slope. What is not measured is declared in the same way and
    # gets its start value in START.
{states}

    # What is estimated, with the bounds between which it is sought.
{parameters}

    # An equation that holds at all times without a slope is one more Constraint like these.
{equations}

    return m
'''

EQUATION = """    @m.Constraint(m.t)
    def balance_{name}(m, t):
        return m.{slope}[t] == m.{made} - m.{lost} * m.{name}[t]"""


def by_equations(sheet: Sheet) -> DraftModel:
    """The part of a problem file that stands in for equations still to be written."""
    begin = start_time(sheet.runs)
    rate = round_up(fastest(sheet.runs, begin))
    names = [c.name for c in sheet.measured]
    states: list[str] = []
    parameters: list[str] = []
    equations: list[str] = []
    listed: list[str] = []
    for column in sheet.measured:
        name = column.name
        most = short(round_up(rate * largest(sheet.runs, name)))
        slope, made, lost = (
            identifier(made_of, [*names, *listed])
            for made_of in (f"d{name}", f"{name}_made", f"{name}_lost")
        )
        states += [
            f"    m.{name} = pyo.Var(m.t){_comment(column.unit)}",
            f"    m.{slope} = dae.DerivativeVar(m.{name})",
        ]
        parameters += [
            f"    m.{made} = pyo.Var(bounds=(-{most}, {most}))",
            f"    m.{lost} = pyo.Var(bounds=(0.0, {short(rate)}))",
        ]
        equations.append(EQUATION.format(name=name, slope=slope, made=made, lost=lost))
        listed += [made, lost]
    return DraftModel(
        title=f"A model of {', '.join(names)}: its parameters from "
        f"{' and '.join(f.name for f in sheet.files)}.",
        imports=("import igpe", "import pyomo.environ as pyo", "from pyomo import dae"),
        model=EQUATIONS_MODEL.format(
            first=names[0],
            time=_comment(sheet.time.unit),
            states="\n".join(states),
            parameters="\n".join(parameters),
            equations="\n\n".join(equations),
        ),
        builder="model",
        parameters=f"[{', '.join(map(quoted, listed))}]",
        starts={
            run.name: {
                c.name: measured_start(run, c.name, begin)
                if c.name in run.table.columns
                else unmeasured_start(largest(sheet.runs, c.name))
                for c in sheet.measured
            }
            for run in sheet.runs
        },
        begin=begin,
        unit="",
        units={},
    )


def _comment(unit: str) -> str:
    return f"  # {one_line(unit)}" if unit else ""


CONCENTRATION = {"[substance]": 1.0, "[length]": -3.0}
AMOUNT, VOLUME, TIME = {"[substance]": 1.0}, {"[length]": 3.0}, {"[time]": 1.0}


class ReactorUnits(NamedTuple):
    """Arguments of `kinetics.Units`."""

    amount: str
    volume: str
    time: str

    @property
    def concentration(self) -> str:
        """Of the states."""
        return f"{self.amount}/{self.volume}"

    def factor(self, column: Column) -> float:
        """From a column's unit to that of the states."""
        return conversion(column.name, column.unit, self.concentration)[0]


def reactor_units(time: Column, measured: Sequence[Column]) -> ReactorUnits | None:
    """The table's own units; None unless time has one and every column is a concentration.

    The time's is kept: a reactor's times have none of their own to be converted to.
    """
    if not _is_name(time.unit, TIME):
        return None
    if any(dimension(c.unit) != CONCENTRATION for c in measured):
        return None
    amount, _, volume = measured[0].unit.partition("/")
    known = _is_name(amount, AMOUNT) and _is_name(volume, VOLUME)
    amount, volume = (amount, volume) if known else ("mol", "L")
    return ReactorUnits(amount, volume, time.unit)


def _is_name(unit: str, wanted: dict[str, float]) -> bool:
    """Whether Pyomo has a unit of that very name and dimension."""
    return unit.isidentifier() and dimension(unit) == wanted and hasattr(pyomo_units, unit)


REACTIONS_MODEL = """# Between which values the rate constants are sought.
BOUNDS = {{
{bounds}
}}

# Rates are by mass action:
{rates}
# Another law: kinetics.Reaction("A -> B", kinetics.MichaelisMenten("vmax", "km")). A constant that
# depends on temperature: kinetics.MassAction(kinetics.Arrhenius("kref", "Ea", reference=350.0)),
# where the experiment says inputs={{"T": 345.0}}. With feeds: kinetics.Semibatch, kinetics.Cstr.
REACTOR = kinetics.Batch(
    [
{reactions}
    ],
    bounds=BOUNDS,
{units})"""


def by_reactions(sheet: Sheet, reactions: Sequence[str]) -> DraftModel:
    """The part of a problem file that a list of reactions makes.

    raises ModelError for what is no reaction
    """
    equations = [read_equation(r) for r in reactions]
    units = reactor_units(sheet.time, sheet.measured)
    begin = start_time(sheet.runs)
    bounds = _bounds(sheet, reactions, units, begin)
    return DraftModel(
        title=f"{', '.join(reactions)}: rate constants from {_tables(sheet)}.",
        imports=("import igpe", "from igpe import kinetics"),
        model=REACTIONS_MODEL.format(
            bounds="\n".join(f"    {line}" for line in bounds),
            rates="\n".join(f"#   {_rate(e, k)}" for k, e in enumerate(equations, start=1)),
            reactions="\n".join(f"        {quoted(r)}," for r in reactions),
            units="" if units is None else f"    units=kinetics.Units{_written(units)},\n",
        ),
        builder="REACTOR",
        parameters="REACTOR.parameters",
        starts=_starts(sheet, equations, units, begin),
        begin=begin,
        unit="" if units is None else units.concentration,
        units={} if units is None else {c.name: c.unit for c in sheet.measured},
    )


def species_of(reactions: Sequence[str]) -> tuple[str, ...]:
    """All species, in the order they are written.

    raises ModelError for what is no reaction, and names that a reactor needs for something else
    """
    return Batch(reactions).species if reactions else ()


def _tables(sheet: Sheet) -> str:
    return " and ".join(file.name for file in sheet.files)


def _written(units: ReactorUnits) -> str:
    return f"({', '.join(map(quoted, units))})"


def _rate(equation: Equation, place: int) -> str:
    def side(species: dict[str, object], constant: str) -> str:
        powers = (s if n == 1 else f"{s}**{n}" for s, n in species.items())
        return " * ".join([constant, *powers])

    there = side(dict(equation.left), f"k{place}f" if equation.reversible else f"k{place}")
    back = f" - {side(dict(equation.right), f'k{place}r')}" if equation.reversible else ""
    return f"r{place} = {there}{back}"


def _bounds(
    sheet: Sheet, reactions: Sequence[str], units: ReactorUnits | None, begin: float
) -> list[str]:
    """A line for each constant: up to the fastest reaction that the measurements could follow."""
    sizes = [
        largest(sheet.runs, c.name) * (1.0 if units is None else units.factor(c))
        for c in sheet.measured
    ]
    rate = fastest(sheet.runs, begin)
    lines = []
    for reaction in numbered(reactions):
        equation = reaction.equation
        orders = [float(sum(equation.left.values())), float(sum(equation.right.values()))]
        for name, order in zip(reaction.parameters, orders, strict=False):
            upper = round_up(rate * max(sizes) ** (1 - order))
            unit = "" if units is None else f"  # {one_line(_unit(units, order))}"
            lines.append(f"{quoted(name)}: (0.0, {short(upper)}),{unit}")
    return lines


def _unit(units: ReactorUnits, order: float) -> str:
    power = 1 - order
    if power == 0:
        return f"1/{units.time}"
    return (
        f"({units.concentration})**{power:g}/{units.time}"
        if power != 1
        else (f"{units.concentration}/{units.time}")
    )


def _starts(
    sheet: Sheet, equations: Sequence[Equation], units: ReactorUnits | None, begin: float
) -> dict[str, dict[str, DraftStart]]:
    species = dict.fromkeys(s for e in equations for s in e.species)
    columns = {c.name: c for c in sheet.measured}
    made = {s for e in equations for s, n in e.net.items() if n > 0}
    made |= {s for e in equations if e.reversible for s in e.net if s in e.right}
    found: dict[str, dict[str, DraftStart]] = {}
    for run in sheet.runs:
        known = {s: columns[s] for s in species if s in columns and s in run.table.columns}
        factor = {s: 1.0 if units is None else units.factor(c) for s, c in known.items()}
        sizes = [largest([run], s) * factor[s] for s in known]
        found[run.name] = {
            s: measured_start(run, s, begin, factor[s], 0.0)
            if s in known
            else _unmeasured(s in made, max(sizes))
            for s in species
        }
    return found


def _unmeasured(is_made: bool, size: float) -> DraftStart:
    if is_made:
        return DraftStart("0.0", "assumed: not measured, and made by a reaction")
    return unmeasured_start(size)


@dataclass(frozen=True)
class Draft:
    """A problem file.

    text   of the file, as it stands at the path it was drafted for
    sheet  what the tables hold
    starts experiment -> state -> start value
    model  a sentence about it
    """

    text: str
    sheet: Sheet
    starts: dict[str, dict[str, DraftStart]]
    model: str

    @property
    def remarks(self) -> list[str]:
        """What was found, and what was assumed, in sentences."""
        sheet = self.sheet
        runs = f"{len(sheet.runs)} experiment{'s' * (len(sheet.runs) > 1)}"
        names = ", ".join(c.name for c in sheet.measured)
        said = [
            f"{sheet.size} measurements of {names} in {runs}; times from '{sheet.time.header}'."
        ]
        said += [f"Not used: '{h}' ({why})." for h, why in sheet.choice.left_out.items()]
        said += [f"Not used: '{h}' (a condition)." for h in sheet.choice.conditions]
        first = next(iter(self.starts.values()))
        said += [f"{n} starts at {s.value}: {s.why}." for n, s in first.items()]
        return [*said, self.model]


def draft(
    files: Sequence[Path], reactions: Sequence[str], options: TableOptions, path: Path
) -> Draft:
    """A problem file for the tables.

    files      of the measurements
    reactions  by which the model goes; none: equations that stand in for the user's
    options      what the user says of the columns; the species are added
    path       where the file is going to be
    raises     DataError for tables that do not serve, ModelError for what is no reaction
    """
    species = species_of(reactions)
    sheet = read_sheet(
        files, TableOptions(options.time, options.experiment, options.named, species)
    )
    part = by_reactions(sheet, reactions) if reactions else by_equations(sheet)
    starts = {run: dict(values) for run, values in part.starts.items()}
    told = (
        f"The model: {', '.join(reactions)}, by mass action."
        if reactions
        else "The equations only stand in for yours: write these into the function model()."
    )
    return Draft(problem_file(sheet, part, path), sheet, starts, told)
