"""The model of a drafted problem by reactions: a batch reactor with mass action."""

from collections.abc import Sequence

from igpe.core.markup import one_line, quoted
from igpe.formats.draft.sheet import Sheet
from igpe.formats.draft.text import (
    Part,
    Start,
    fastest,
    largest,
    measured_start,
    round_up,
    short,
    start_time,
    unmeasured_start,
)
from igpe.formats.draft.units import ReactorUnits, reactor_units
from igpe.formats.kinetics.equation import Equation, read_equation
from igpe.formats.kinetics.reaction import numbered
from igpe.formats.kinetics.reactor import Batch

MODEL = """# Between which values the rate constants are sought.
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
        model=MODEL.format(
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
