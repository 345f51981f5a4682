"""From tables to a problem file: what `igpe new` writes, and what it says.

The model of a drafted problem by equations: a pyomo.dae skeleton that runs as it is.

The model of a drafted problem by reactions: a batch reactor with mass action.

In which units a drafted reactor is written: those of the table, where it says them all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pyomo.environ import units as pyomo_units

from igpe.core.markup import one_line, quoted
from igpe.formats.draft.headers import Asked, Column, Sheet, dimension, identifier, read_sheet
from igpe.formats.draft.text import (
    Part,
    Start,
    fastest,
    largest,
    measured_start,
    problem_file,
    round_up,
    short,
    start_time,
    unmeasured_start,
)
from igpe.formats.kinetics.equation import Equation, read_equation
from igpe.formats.kinetics.laws import numbered
from igpe.formats.kinetics.reactor import Batch
from igpe.problem.units import conversion

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


def by_equations(sheet: Sheet) -> Part:
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
    return Part(
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


def by_reactions(sheet: Sheet, reactions: Sequence[str]) -> Part:
    """The part of a problem file that a list of reactions makes.

    raises ModelError for what is no reaction
    """
    equations = [read_equation(r) for r in reactions]
    units = reactor_units(sheet.time, sheet.measured)
    begin = start_time(sheet.runs)
    bounds = _bounds(sheet, reactions, units, begin)
    return Part(
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
) -> dict[str, dict[str, Start]]:
    species = dict.fromkeys(s for e in equations for s in e.species)
    columns = {c.name: c for c in sheet.measured}
    made = {s for e in equations for s, n in e.net.items() if n > 0}
    made |= {s for e in equations if e.reversible for s in e.net if s in e.right}
    found: dict[str, dict[str, Start]] = {}
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


def _unmeasured(is_made: bool, size: float) -> Start:
    if is_made:
        return Start("0.0", "assumed: not measured, and made by a reaction")
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
    starts: dict[str, dict[str, Start]]
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


def draft(files: Sequence[Path], reactions: Sequence[str], asked: Asked, path: Path) -> Draft:
    """A problem file for the tables.

    files      of the measurements
    reactions  by which the model goes; none: equations that stand in for the user's
    asked      what the user says of the columns; the species are added
    path       where the file is going to be
    raises     DataError for tables that do not serve, ModelError for what is no reaction
    """
    species = species_of(reactions)
    sheet = read_sheet(files, Asked(asked.time, asked.experiment, asked.named, species))
    part = by_reactions(sheet, reactions) if reactions else by_equations(sheet)
    starts = {run: dict(values) for run, values in part.starts.items()}
    told = (
        f"The model: {', '.join(reactions)}, by mass action."
        if reactions
        else "The equations only stand in for yours: write these into the function model()."
    )
    return Draft(problem_file(sheet, part, path), sheet, starts, told)
