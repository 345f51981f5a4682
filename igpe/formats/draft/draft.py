"""The problem file that `igpe new` writes: the user's tables, start values, bounds and a model.

The model is a pyomo.dae skeleton that runs as it is, or a batch reactor with mass action where
reactions are given. The reactor has the table's units where the table gives all of them.
"""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

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
from igpe.formats.kinetics.reactor import Batch, Units
from igpe.problem.experiment import start_time_of
from igpe.problem.units import conversion

FASTEST = 10.0  # turns of a reaction between two measurements: faster ones cannot be seen

FILE = '''"""{title}

    igpe check {file}
    igpe estimate {file} --plot fit.png --report report.html

Written by `igpe new` from the table; it is yours to change. What igpe had to assume says so behind
its line. What else a problem can hold: python -c "import igpe; help(igpe.Problem)"
"""

from pathlib import Path

{imports}

HERE = Path(__file__).parent
{data}
# Column of the table -> its name in the model.
COLUMNS = {{
{columns}}}
{unused}
# At time {begin:g}{unit}. A number is known, igpe.Unknown(low, high) is estimated.
START = {{
{starts}}}

{model}


def problem():
    """What igpe is asked to estimate."""
    experiments = {experiments}
    return igpe.Problem(
        {builder},
        parameters={parameters},
        experiments=experiments,
    )
'''

EQUATIONS_MODEL = '''
def model(times):
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

    return m'''

STATE = """    m.{name} = pyo.Var(m.t){unit}
    m.{slope} = dae.DerivativeVar(m.{name})"""

BOUNDED = """    m.{made} = pyo.Var(bounds=(-{most}, {most}))
    m.{lost} = pyo.Var(bounds=(0.0, {rate}))"""

EQUATION = """    @m.Constraint(m.t)
    def balance_{name}(m, t):
        return m.{slope}[t] == m.{made} - m.{lost} * m.{name}[t]"""

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


class DraftStart(NamedTuple):
    """A start value as Python text, and why it is so."""

    value: str
    why: str


Starts: TypeAlias = dict[str, dict[str, DraftStart]]
"""Experiment -> state -> start value."""


@dataclass(frozen=True)
class Draft:
    """A problem file.

    text   of the file, as it stands at the path it was drafted for
    sheet  what the tables hold;  starts: the start values
    model  a sentence about it
    """

    text: str
    sheet: Sheet
    starts: Starts
    model: str

    @property
    def remarks(self) -> list[str]:
        """What was found, and what was assumed, in sentences."""
        sheet, names = self.sheet, ", ".join(c.name for c in self.sheet.measured)
        runs = f"{len(sheet.runs)} experiment{'s' * (len(sheet.runs) > 1)}"
        return [
            f"{sheet.size} measurements of {names} in {runs}; times from '{sheet.time.header}'.",
            *(f"Not used: '{h}' ({why})." for h, why in sheet.left_out.items()),
            *(f"Not used: '{h}' (a condition)." for h in sheet.conditions),
            *(
                f"{n} starts at {s.value}: {s.why}."
                for n, s in next(iter(self.starts.values())).items()
            ),
            self.model,
        ]


def draft(
    files: Sequence[Path], reactions: Sequence[str], options: TableOptions, path: Path
) -> Draft:
    """A problem file for the tables.

    files      of the measurements
    reactions  by which the model goes; none: equations that stand in for the user's
    options    what the user says of the columns; the species are added
    path       where the file is going to be
    raises     DataError for tables that do not serve, ModelError for what is no reaction, and for
               names that a reactor needs for something else
    """
    species = Batch(reactions).species if reactions else ()
    sheet = read_sheet(files, replace(options, species=species))
    times = [run.table["time"].to_numpy(dtype=float) for run in sheet.runs]
    try:
        begin = min(start_time_of(t, None) for t in times)
    except DataError:
        begin = min(float(t[0]) for t in times)
    shortest = min(float(np.diff(np.unique([begin, *t])).min()) for t in times)
    fastest = FASTEST / shortest  # in one over the table's time
    if reactions:
        fields, starts, units = _by_reactions(sheet, reactions, begin, fastest)
        sentence = f"The model: {', '.join(reactions)}, by mass action."
    else:
        fields, starts, units = _by_equations(sheet, begin, fastest)
        sentence = "The equations only stand in for yours: write these into the function model()."
    fields |= {"begin": begin, "experiments": _experiments(sheet, begin, units, path)}
    return Draft(_text(sheet, fields, starts, path), sheet, starts, sentence)


def _text(sheet: Sheet, fields: Mapping[str, Any], starts: Starts, path: Path) -> str:
    """The text of the file at `path`, from where the tables are found."""
    runs = {sheet.experiment: "experiment"} if sheet.experiment else {}
    names = runs | {c.header: c.name for c in (sheet.time, *sheet.measured)}
    unused = {h: f"({one_line(why)})." for h, why in sheet.left_out.items()}
    condition = "(a condition); where the model needs it: inputs={...}."
    unused |= dict.fromkeys(sheet.conditions, condition)
    known: list[str] = []
    for run, values in starts.items():
        own = [f"{quoted(s)}: {v.value},  # {one_line(v.why)}" for s, v in values.items()]
        several = [f"{quoted(run)}: {{", *(f"    {line}" for line in own), "},"]
        known += several if len(starts) > 1 else own
    return FILE.format(**{
        **fields,
        "title": docstring(f"{fields['title']} from {' and '.join(f.name for f in sheet.files)}."),
        "file": docstring(path.name),
        "data": f"DATA = {_place(sheet.files[0], path)}\n" if len(sheet.files) == 1 else "",
        "columns": _lines((f"{quoted(h)}: {quoted(n)}," for h, n in names.items()), 4),
        "unused": _lines((f"# Not used: {quoted(h)} {why}" for h, why in unused.items()), 0),
        "starts": _lines(known, 4),
    })


def _lines(texts: Iterable[str], gap: int) -> str:
    return "".join(f"{' ' * gap}{text}\n" for text in texts)


def _call(function: str, arguments: Sequence[str], gap: str) -> str:
    """A call with one argument a line; comments stand between them."""
    lines = (a if a.startswith("#") else f"{a}," for a in arguments)
    return f"{function}(\n{_lines(lines, len(gap) + 4)}{gap})"


def _dict(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(k)}: {quoted(v)}" for k, v in entries.items()) + "}"


def _place(file: Path, path: Path) -> str:
    """Where a table is, seen from the problem file."""
    try:
        relative = os.path.relpath(file.resolve(), path.resolve().parent)
    except ValueError:  # on another drive
        return f"Path({quoted(str(file.resolve()))})"
    return f"HERE / {quoted(Path(relative).as_posix())}"


def _experiments(sheet: Sheet, begin: float, units: Mapping[str, str], path: Path) -> str:
    """The experiment, or all of a table, or a list of those that have files of their own."""
    if len(sheet.files) == 1:
        function = "igpe.read_experiments" if sheet.experiment else "igpe.Experiment"
        given = _conditions(sheet, begin, units, "START", sheet.measured)
        return _call(function, ["DATA", "columns=COLUMNS", *given], "    ")
    calls = []
    for run in sheet.runs:
        there = [c for c in sheet.measured if c.name in run.table.columns]
        own = _dict({c.header: c.name for c in (sheet.time, *there)})
        arguments = [
            _place(run.file, path),
            f"name={quoted(run.name)}",
            f"columns={'COLUMNS' if len(there) == len(sheet.measured) else own}",
            *_conditions(sheet, begin, units, f"START[{quoted(run.name)}]", there),
        ]
        calls.append(f"{_call('igpe.Experiment', arguments, ' ' * 8)},")
    return f"[\n{_lines(calls, 8)}    ]"


def _conditions(
    sheet: Sheet, begin: float, units: Mapping[str, str], start: str, there: Sequence[Column]
) -> list[str]:
    """Arguments of an experiment beside its table."""
    names = [c.name for c in there]
    sigma, units = ({n: u for n, u in d.items() if n in names} for d in (sheet.sigma, units))
    arguments = {
        f"start={start}": True,
        f"start_time={short(begin)}": True,
        f"only=[{', '.join(map(quoted, names))}]": sheet.left_out or sheet.conditions,
        f"units={_dict(units)}": units,
        f"sigma={_dict(sigma)}": sigma,
        "replicates=True": sheet.replicated,
        "# sigma=0.02: the standard deviation of a measurement, if you know it": not sigma,
    }
    return [argument for argument, is_needed in arguments.items() if is_needed]


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
    bounds = f"{short(low)}, {short(most)}"
    if not there.any():
        return DraftStart(f"igpe.Unknown({bounds})", "estimated: not measured there")
    value = float(values[there].mean())
    return DraftStart(
        f"igpe.Unknown({bounds}, guess={short(min(max(value, low), most))})",
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


def _by_equations(
    sheet: Sheet, begin: float, fastest: float
) -> tuple[dict[str, Any], Starts, Mapping[str, str]]:
    """Fields of the file whose equations are still to be written, start values, and no units."""
    rate = round_up(fastest)
    names = [c.name for c in sheet.measured]
    listed: list[str] = []
    quantities: list[dict[str, str]] = []
    for column in sheet.measured:
        name = column.name
        slope, made, lost = (
            identifier(made_of, [*names, *listed])
            for made_of in (f"d{name}", f"{name}_made", f"{name}_lost")
        )
        most = short(round_up(rate * largest(sheet.runs, name)))
        own = {"name": name, "unit": _comment(column.unit), "slope": slope, "made": made}
        quantities.append(own | {"lost": lost, "most": most, "rate": short(rate)})
        listed += [made, lost]
    states, parameters, equations = (
        gap.join(template.format(**q) for q in quantities)
        for template, gap in ((STATE, "\n"), (BOUNDED, "\n"), (EQUATION, "\n\n"))
    )
    texts = {"states": states, "parameters": parameters, "equations": equations}
    starts = {
        run.name: {
            n: measured_start(run, n, begin)
            if n in run.table.columns
            else unmeasured_start(largest(sheet.runs, n))
            for n in names
        }
        for run in sheet.runs
    }
    fields = {
        "title": f"A model of {', '.join(names)}: its parameters",
        "imports": "import igpe\nimport pyomo.environ as pyo\nfrom pyomo import dae",
        "unit": "",
        "model": EQUATIONS_MODEL.format(first=names[0], time=_comment(sheet.time.unit), **texts),
        "builder": "model",
        "parameters": f"[{', '.join(map(quoted, listed))}]",
    }
    return fields, starts, {}


def _comment(unit: str) -> str:
    return f"  # {one_line(unit)}" if unit else ""


CONCENTRATION = {"[substance]": 1.0, "[length]": -3.0}
AMOUNT, VOLUME, TIME = {"[substance]": 1.0}, {"[length]": 3.0}, {"[time]": 1.0}


def reactor_units(time: Column, measured: Sequence[Column]) -> Units | None:
    """The table's units, if time has one and all columns are concentrations; else None."""

    def is_name(unit: str, wanted: dict[str, float]) -> bool:
        return unit.isidentifier() and dimension(unit) == wanted and hasattr(pyomo_units, unit)

    concentrations = all(dimension(c.unit) == CONCENTRATION for c in measured)
    if not (is_name(time.unit, TIME) and concentrations):
        return None
    amount, _, volume = measured[0].unit.partition("/")
    known = is_name(amount, AMOUNT) and is_name(volume, VOLUME)
    return Units(*((amount, volume) if known else ("mol", "L")), time.unit)


def _by_reactions(
    sheet: Sheet, reactions: Sequence[str], begin: float, fastest: float
) -> tuple[dict[str, Any], Starts, Mapping[str, str]]:
    """Fields of the file of a batch reactor, start values, and units of the columns."""
    equations = [read_equation(r) for r in reactions]
    units = reactor_units(sheet.time, sheet.measured)
    unit = f"{units.amount}/{units.volume}" if units else ""
    factors = {c.name: conversion(c.name, c.unit, unit)[0] if unit else 1.0 for c in sheet.measured}
    most = max(largest(sheet.runs, name) * factor for name, factor in factors.items())
    bounds = []
    for reaction in numbered(reactions):
        sides = reaction.equation.left, reaction.equation.right
        for name, side in zip(reaction.parameters, sides, strict=False):
            power = 1 - float(sum(side.values()))
            upper = short(round_up(fastest * most**power))
            factor = "1" if power == 0 else unit if power == 1 else f"({unit})**{power:g}"
            comment = _comment(f"{factor}/{units.time}") if units else ""
            bounds.append(f"    {quoted(name)}: (0.0, {upper}),{comment}")
    arguments = ", ".join(map(quoted, (units.amount, units.volume, units.time))) if units else ""
    fields = {
        "title": f"{', '.join(reactions)}: rate constants",
        "imports": "import igpe\nfrom igpe import kinetics",
        "unit": f" in {one_line(unit)}" if unit else "",
        "model": REACTIONS_MODEL.format(
            bounds="\n".join(bounds),
            rates="\n".join(f"#   {_rate(e, k)}" for k, e in enumerate(equations, start=1)),
            reactions="\n".join(f"        {quoted(r)}," for r in reactions),
            units=f"    units=kinetics.Units({arguments}),\n" if units else "",
        ),
        "builder": "REACTOR",
        "parameters": "REACTOR.parameters",
    }
    starts = {run.name: _starts(run, equations, factors, begin) for run in sheet.runs}
    return fields, starts, {c.name: c.unit for c in sheet.measured} if units else {}


def _rate(equation: Equation, place: int) -> str:
    """The rate by mass action, as a formula."""
    kinds = ("f", "r") if equation.reversible else ("",)
    there_and_back = (
        " * ".join([f"k{place}{kind}", *(s if n == 1 else f"{s}**{n}" for s, n in side.items())])
        for kind, side in zip(kinds, (equation.left, equation.right), strict=False)
    )
    return f"r{place} = {' - '.join(there_and_back)}"


def _starts(
    run: TableRun, equations: Sequence[Equation], factors: Mapping[str, float], begin: float
) -> dict[str, DraftStart]:
    """Species -> start value; what is not measured but made is not there at the start."""
    made = {s for e in equations for s, n in e.net.items() if n > 0}
    made |= {s for e in equations if e.reversible for s in e.net if s in e.right}
    zero = DraftStart("0.0", "assumed: not measured, and made by a reaction")
    known = {s: f for s, f in factors.items() if s in run.table.columns}
    most = max(largest([run], s) * factor for s, factor in known.items())
    return {
        s: measured_start(run, s, begin, known[s], 0.0)
        if s in known
        else (zero if s in made else unmeasured_start(most))
        for s in dict.fromkeys(s for e in equations for s in e.species)
    }
