"""The problem file that `igpe new` writes: the user's tables, start values, bounds and a model.

The model is a pyomo.dae skeleton that runs as it is, or a batch reactor with mass action where
reactions are given. The reactor has the table's units where the table gives all of them.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from pyomo.environ import units as pyomo_units

from igpe.core.errors import DataError
from igpe.core.markup import counted, docstring, one_line, quoted
from igpe.formats.kinetics.laws import Equation, Reaction, numbered
from igpe.formats.kinetics.reactor import Batch
from igpe.formats.kinetics.temperature import Units
from igpe.formats.workbooks.reading import read_workbook
from igpe.formats.workbooks.words import TEMPERATURE, dimension, identifier, meant, split_header
from igpe.formats.workbooks.workbook import Quantity, Workbook, WorkbookRun, share_of
from igpe.problem.experiment import start_time_of
from igpe.problem.measurements import conversion

IS_DOSE = re.compile(r"(?i)(amt|dose|dosis|dosage)\b")
DOSES = (
    "doses? Give each as an event of its experiment: events=[igpe.Event(at=..., add={'A': ...})]"
)
EXCESS = 10.0  # bound of an unmeasured start value, relative to the largest measured value
MOST_ENERGY = 250e3  # J/mol, of an activation energy
FASTEST = 10.0  # bound of a rate constant times the shortest time between two measurements

FILE = '''\
"""{title}

    igpe check {file}
    igpe estimate {file} --plot fit.png --report report.html

`igpe new` wrote this file from the table; edit it as needed. Comments mark \
the assumptions that igpe made. For all options of a problem: python -c "import igpe; \
help(igpe.Problem)"
"""

from pathlib import Path

{imports}

HERE = Path(__file__).parent
DATA = {data}

# Maps each header in the table to its name in the model.
NAMES = {{
{columns}}}
{unused}
# At time {begin:g}{unit}. A number is a known value; igpe estimates each igpe.Unknown(low, high).
START = {{
{starts}}}

{model}


def problem():
    """The estimation problem."""
    experiments = {experiments}
    return igpe.Problem(
        {builder},
        parameters={parameters},
        experiments=experiments,
    )
'''

EQUATIONS_MODEL = '''
def model(times):
    """The equations. Replace these placeholders with your own right-hand sides.

    In the placeholders, each quantity forms at a constant rate and decays at a first-order rate:

        d{first}/dt = {first}_made - {first}_lost * {first}
    """
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times){time}

    # Quantities that change with time, and their slopes. Declare unmeasured
    # quantities in the same way, and give their start values in START.
{states}

    # Parameters to estimate, with their bounds.
{parameters}

    # One Constraint for each equation. Add algebraic equations, without derivatives, here too.
{equations}

    return m'''

STATE = """    m.{name} = pyo.Var(m.t){unit}
    m.{slope} = dae.DerivativeVar(m.{name})"""

BOUNDED = """    m.{made} = pyo.Var(bounds=(-{most}, {most}))
    m.{lost} = pyo.Var(bounds=(0.0, {rate}))"""

EQUATION = """    @m.Constraint(m.t)
    def balance_{name}(m, t):
        return m.{slope}[t] == m.{made} - m.{lost} * m.{name}[t]"""

REACTIONS_MODEL = """# Bounds of the rate constants.
BOUNDS = {{
{bounds}
}}

# The rates follow mass action:
{rates}
{laws}
REACTOR = kinetics.Batch(
    [
{reactions}
    ],
    bounds=BOUNDS,
{units})"""


ISOTHERMAL = """\
# Another law: kinetics.Reaction("A -> B", kinetics.MichaelisMenten("vmax", "km")). A constant that
# depends on temperature: kinetics.MassAction(kinetics.Arrhenius("kref", "Ea", reference=350.0)),
# with inputs={"T": 345.0} in the experiment. With feeds: kinetics.Semibatch, kinetics.Cstr."""

ARRHENIUS = """\
# The temperature T of the table is an input.
# Each k is a rate constant at the temperature REFERENCE, each E an activation energy (J/mol).
# Another law: kinetics.Reaction("A -> B", kinetics.MichaelisMenten("vmax", "km"))
REFERENCE = %s"""


class DraftStart(NamedTuple):
    """A start value as Python text, and why it is so."""

    value: str
    why: str


Starts: TypeAlias = dict[str, dict[str, DraftStart]]
"""Experiment -> state -> start value."""


@dataclass(frozen=True)
class Draft:
    """A problem file.

    text   content of the file
    book   contents of the tables, in the names of the model;  starts: the start values
    model  a sentence about the model
    """

    text: str
    book: Workbook
    starts: Starts
    model: str

    @property
    def remarks(self) -> list[str]:
        """Sentences on what was read and what was assumed."""
        book, names = self.book, ", ".join(q.name for q in self.book.measured)
        runs = counted(len(book.runs), "experiment")
        limits = ", ".join(f"'{m.text}' in {m.place}" for m in book.marks)
        return [
            f"{book.size} measurements of {names} in {runs}; times from '{book.time.header}'.",
            *book.warnings,
            *[f"Left out: {limits}. These are limits of detection, not values."] * bool(limits),
            *(f"Not used: '{h}' ({why})." for h, why in _unused(book, self.starts).items()),
            *_start_sentences(self.starts),
            self.model,
        ]


def _start_sentences(starts: Starts) -> Iterator[str]:
    """Describe the start value of each state; if experiments differ, that of the first one."""
    first = next(iter(starts))
    for name, start in starts[first].items():
        differs = any(states.get(name) != start for states in starts.values())
        place = f" in {first} (START lists all experiments)" * differs
        yield f"{name} starts at {start.value}{place}: {start.why}."


def draft(
    files: Sequence[Path], reactions: Sequence[str], options: Mapping[str, Any], path: Path
) -> Draft:
    """A problem file for the tables.

    files      of the measurements
    reactions  of the model; none: the model gets placeholder equations
    options    arguments of `read_workbook` that describe the columns
    path       path of the file
    raises     DataError for tables that igpe cannot use, ModelError for invalid reactions and for
               names that the reactor needs itself
    """
    species = Batch(reactions).species if reactions else ()
    book = read_workbook(files, **options)
    if species:
        names = options.get("names", {})
        if roles := _species_set(book, species, names):
            options = {**options, "roles": {**roles, **options.get("roles", {})}}
            book = read_workbook(files, **options)
        book = _of_species(book, species, names)
    times = [run.table["time"].to_numpy(dtype=float) for run in book.runs]
    try:
        begin = min(start_time_of(t, None) for t in times)
    except DataError:
        begin = min(float(t[0]) for t in times)
    shortest = min(float(np.diff(np.unique([begin, *t])).min()) for t in times)
    fastest = FASTEST / shortest  # in one over the table's time
    if reactions:
        fields, starts = _by_reactions(book, reactions, begin, fastest)
        thermal = " and Arrhenius constants" * (_temperature(book) is not None)
        sentence = f"The model: {', '.join(reactions)}, with mass-action kinetics{thermal}."
    else:
        fields, starts = _by_equations(book, begin, fastest)
        sentence = "The equations are placeholders: write yours in the function model()."
    read = _call("igpe.read_workbook", _reading(book, options))
    given = _call("experiments", _arguments(book, begin, fields["builder"]))
    fields |= {"begin": begin, "experiments": f"{read}.{given}"}
    return Draft(_text(book, fields, starts, path), book, starts, sentence)


SHARED = DraftStart("1.0", "assumed: igpe computes concentrations with it, so give the true one")


def _species_set(
    book: Workbook, species: Sequence[str], names: Mapping[str, str]
) -> dict[str, str]:
    """Header -> "measured", of columns that are species but were read as set: "P", a pressure."""
    own = {q.header: names.get(q.header) or meant(q.name, species) for q in book.inputs}
    return {h: "measured" for h, one in own.items() if one in species}


def _of_species(book: Workbook, species: Sequence[str], names: Mapping[str, str]) -> Workbook:
    """The workbook with the measured columns that are species, by their names.

    raises DataError if none is, or two are the same
    """
    headers = {q.header: q.name for q in book.measured}
    chosen: dict[str, str] = {}
    for header in headers:
        one = names.get(header) or meant(split_header(header)[0], species)
        if one and one in chosen.values():
            other = next(h for h, s in chosen.items() if s == one)
            raise DataError(
                f"The columns '{other}' and '{header}' both seem to refer to '{one}'. Remove one "
                "from the table, or give each a name: --column "
                f"'{other}={one}' --column '{header}=OTHER_NAME'."
            )
        if one in species:
            chosen[header] = one
    shares = {
        q.header: q.name
        for q in book.measured
        if (of := share_of(q, species)) and not {*of} & {*chosen.values()}
    }
    if not chosen and not shares:
        raise DataError(
            f"No column has the name of a species: the columns are {list(headers)}, and "
            f"the species are {list(species)}. Give a column the name of its species: --column "
            f"'{[*headers, 'c(A) [mol/L]'][0]}={species[0]}'. Or say what it is a share of: --role "
            f"'{[*headers, 'X'][0]}=conversion of {species[0]}'."
        )
    new = {headers[h]: one for h, one in chosen.items()} | {n: n for n in shares.values()}
    others = [q for q in book.measured if q.name not in new]
    why = {
        q.header: q.kind or (DOSES if IS_DOSE.match(q.header) else "not a species of the reactions")
        for q in others
    }
    return replace(
        book,
        runs=tuple(run.with_names(new, leave=[q.name for q in others]) for run in book.runs),
        measured=tuple(replace(q, name=new[q.name]) for q in book.measured if q.name in new),
        left_out={**book.left_out, **why},
    )


def _unused(book: Workbook, starts: Starts) -> dict[str, str]:
    """Map each name that the model does not use to the reason."""
    some = () if len(book.sigma) == len(book.measured) else book.sigma.values()
    incomplete = dict.fromkeys(some, "only some columns have standard deviations")
    given = dict.fromkeys(n for r in book.runs for n in (*r.conditions, *r.inputs))
    used = {n for own in starts.values() for n in own}
    used |= {TEMPERATURE} if _temperature(book) is not None else set()
    measured = "a condition; if it was measured: --role '{}=measured'"
    conditions = dict.fromkeys(given, "a condition")
    conditions |= {q.name: measured.format(q.header) for q in book.inputs}
    conditions = {n: why for n, why in conditions.items() if n not in used}
    return {**book.left_out, **incomplete, **conditions}


def _temperature(book: Workbook) -> float | None:
    """The mean temperature in kelvin, if it differs between or within runs; else None."""
    values = []
    for run in book.runs:
        if TEMPERATURE in run.inputs:
            values += list(run.table[TEMPERATURE].dropna())
        elif TEMPERATURE in run.conditions and run.conditions[TEMPERATURE].unit == "K":
            values.append(run.conditions[TEMPERATURE].value)
        else:
            return None
    return float(np.mean(values)) if len(set(values)) > 1 else None


def _text(sheet: Workbook, fields: Mapping[str, Any], starts: Starts, path: Path) -> str:
    """Text of the file at `path`, which refers to the tables by relative paths."""
    names = {q.header: q.name for q in sheet.measured}
    unused = {h: f"({one_line(why)})." for h, why in _unused(sheet, starts).items()}
    known: list[str] = []
    for run, values in starts.items():
        own = [f"{quoted(s)}: {v.value},  # {one_line(v.why)}" for s, v in values.items()]
        several = [f"{quoted(run)}: {{", *(f"    {line}" for line in own), "},"]
        known += several if len(starts) > 1 else own
    places = [_place(file, path) for file in sheet.files]
    data = places[0] if len(places) == 1 else f"[\n{_lines((f'{p},' for p in places), 4)}]"
    return FILE.format(**{
        **fields,
        "title": docstring(f"{fields['title']} from {' and '.join(f.name for f in sheet.files)}."),
        "file": docstring(path.name),
        "data": data,
        "columns": _lines((f"{quoted(h)}: {quoted(n)}," for h, n in names.items()), 4),
        "unused": _lines((f"# Not used: {quoted(h)} {why}" for h, why in unused.items()), 0),
        "starts": _lines(known, 4),
    })


def _lines(texts: Iterable[str], gap: int) -> str:
    return "".join(f"{' ' * gap}{text}\n" for text in texts)


def _call(function: str, arguments: Sequence[str]) -> str:
    """A call in the function problem(), with one argument a line and comments between them."""
    lines = (a if "#" in a else f"{a}," for a in arguments)
    return f"{function}(\n{_lines(lines, 8)}    )"


def _dict(entries: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{quoted(k)}: {quoted(v)}" for k, v in entries.items()) + "}"


def _place(file: Path, path: Path) -> str:
    """Python expression for the path of a table, relative to the problem file."""
    try:
        relative = os.path.relpath(file.resolve(), path.resolve().parent)
    except ValueError:  # on another drive
        return f"Path({quoted(str(file.resolve()))})"
    return f"HERE / {quoted(Path(relative).as_posix())}"


def _reading(book: Workbook, options: Mapping[str, Any]) -> list[str]:
    """Arguments of `read_workbook`."""
    arguments = {k: v for k, v in options.items() if k != "names" and v not in (None, "", {})}
    if roles := arguments.get("roles"):  # columns that the model does not use are left out
        arguments["roles"] = {h: "ignore" if h in book.left_out else r for h, r in roles.items()}
    texts = {
        k: _dict(v) if isinstance(v, Mapping) else str(v) if isinstance(v, bool) else quoted(v)
        for k, v in arguments.items()
    }
    return ["DATA", "names=NAMES", *(f"{k}={v}" for k, v in texts.items())]


def _arguments(book: Workbook, begin: float, builder: str) -> list[str]:
    """Arguments of `Workbook.experiments`."""
    arguments = {
        builder: True,
        "start=START": True,
        f"start_time={short(begin)}": True,
        'censored="drop",  # cells such as < 0.01': book.marks,
        "# sigma=0.02: the standard deviation of a measurement, if you know it": not book.sigma,
    }
    return [argument for argument, is_needed in arguments.items() if is_needed]


def measured_start(
    run: WorkbookRun, name: str, begin: float, factor: float = 1.0, least: float = -np.inf
) -> DraftStart:
    """Start value to estimate, around the measurement at the start; 0 if exactly 0 was measured.

    A first measurement has an error like all others. To take it as exact would make the intervals
    of the other unknowns too narrow.

    factor  from the table's unit to the model's;  least: no start value is below it
    """
    values = run.table[name].to_numpy(dtype=float) * factor
    at_start = np.isfinite(values) & (run.table["time"].to_numpy(dtype=float) == begin)
    if at_start.any() and not values[at_start].any():
        return DraftStart("0.0", "assumed exact: measured as 0")
    most = round_up(2 * float(np.nanmax(np.abs(values))))
    low = 0.0 if np.nanmin(values) >= 0 else max(-most, least)
    bounds = f"{short(low)}, {short(most)}"
    if not at_start.any():
        return DraftStart(f"igpe.Unknown({bounds})", "estimated: not measured there")
    value = float(values[at_start].mean())
    return DraftStart(
        f"igpe.Unknown({bounds}, guess={short(min(max(value, low), most))})",
        f"estimated: measured as {short(value)}",
    )


def unmeasured_start(size: float) -> DraftStart:
    """Start value to estimate, with a high bound: unmeasured reactants are often in excess."""
    return DraftStart(
        f"igpe.Unknown(0.0, {short(round_up(EXCESS * size))})",
        "estimated: not measured; give the number if you know it",
    )


def largest(runs: Iterable[WorkbookRun], name: str) -> float:
    """Largest absolute measured value; 1 if all values are zero."""
    sizes = [np.nanmax(np.abs(r.table[name])) for r in runs if name in r.table.columns]
    return float(max(sizes)) or 1.0


def round_up(number: float) -> float:
    """Round up to one digit that is 1, 2 or 5."""
    if not (number > 0 and math.isfinite(number)):
        return 1.0
    power = 10.0 ** math.floor(math.log10(number))
    digit = next(d for d in (1, 2, 5, 10) if d * power >= number * (1 - 1e-12))
    return float(f"{digit * power:.1g}")


def short(number: float) -> str:
    """A number as Python text, to ten digits: 0.5, 2.0, 1e-06."""
    return repr(float(f"{number:.10g}"))


def _by_equations(sheet: Workbook, begin: float, fastest: float) -> tuple[dict[str, Any], Starts]:
    """Fields of the file whose equations are still to be written, and start values."""
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
        "title": f"Model of {', '.join(names)}: parameters",
        "imports": "import igpe\nimport pyomo.environ as pyo\nfrom pyomo import dae",
        "unit": "",
        "model": EQUATIONS_MODEL.format(first=names[0], time=_comment(sheet.time.unit), **texts),
        "builder": "model",
        "parameters": f"[{', '.join(map(quoted, listed))}]",
    }
    return fields, starts


def _comment(unit: str) -> str:
    return f"  # {one_line(unit)}" if unit else ""


CONCENTRATION = {"[substance]": 1.0, "[length]": -3.0}
AMOUNT, VOLUME, TIME = {"[substance]": 1.0}, {"[length]": 3.0}, {"[time]": 1.0}


def reactor_units(time: Quantity, measured: Sequence[Quantity]) -> Units | None:
    """The table's units, if time has one and all columns are concentrations; else None."""

    def is_name(unit: str, expected: dict[str, float]) -> bool:
        return unit.isidentifier() and dimension(unit) == expected and hasattr(pyomo_units, unit)

    concentrations = all(dimension(c.unit) == CONCENTRATION for c in measured)
    if not (is_name(time.unit, TIME) and concentrations):
        return None
    amount, _, volume = measured[0].unit.partition("/") if measured else ("", "", "")
    known = is_name(amount, AMOUNT) and is_name(volume, VOLUME)
    return Units(*((amount, volume) if known else ("mol", "L")), time.unit)


def _by_reactions(
    sheet: Workbook, reactions: Sequence[str], begin: float, fastest: float
) -> tuple[dict[str, Any], Starts]:
    """Fields of the file of a batch reactor, and start values."""
    listed = numbered(reactions)
    equations = [reaction.equation for reaction in listed]
    own = [c for c in sheet.measured if not c.kind]
    units = reactor_units(sheet.time, own)
    unit = f"{units.amount}/{units.volume}" if units else ""
    factors = {c.name: conversion(c.name, c.unit, unit)[0] if unit else 1.0 for c in own}
    most = max((largest(sheet.runs, s) * f for s, f in factors.items()), default=1.0)
    bounds = []
    for reaction in listed:
        for name, side in _directions(reaction):
            power = 1 - float(sum(side.values()))
            upper = short(round_up(fastest * most**power))
            factor = "1" if power == 0 else unit if power == 1 else f"({unit})**{power:g}"
            comment = _comment(f"{factor}/{units.time}") if units else ""
            bounds.append(f"    {quoted(name)}: (0.0, {upper}),{comment}")
    middle = _temperature(sheet)
    if middle is not None:
        energies = (f"E{n.removeprefix('k')}" for r in listed for n in r.parameters)
        bounds += [f"    {quoted(e)}: (0.0, {short(MOST_ENERGY)}),  # J/mol" for e in energies]
    arguments = ", ".join(map(quoted, (units.amount, units.volume, units.time))) if units else ""
    fields = {
        "title": f"{', '.join(reactions)}: rate constants",
        "imports": "import igpe\nfrom igpe import kinetics",
        "unit": f" in {one_line(unit)}" if unit else "",
        "model": REACTIONS_MODEL.format(
            bounds="\n".join(bounds),
            rates="\n".join(f"#   r{k} = {_rate(r)}" for k, r in enumerate(listed, start=1)),
            laws=ISOTHERMAL if middle is None else ARRHENIUS % short(round(middle, 2)),
            reactions="\n".join(_reaction(r, middle is not None) for r in listed),
            units=f"    units=kinetics.Units({arguments}),\n" if units else "",
        ),
        "builder": "REACTOR",
        "parameters": "REACTOR.parameters",
    }
    starts = _starts(sheet, equations, factors, begin, unit)
    species = list(dict.fromkeys(s for e in equations for s in e.species))
    sources = {of[-1]: SHARED for c in sheet.measured if (of := share_of(c, species))}
    return fields, {run: each | sources for run, each in starts.items()}


def _reaction(reaction: Reaction, thermal: bool) -> str:
    """A reaction in the list of a reactor; with constants that depend on temperature."""
    if not thermal:
        return f"        {quoted(reaction.text)},"
    constants = [
        f'kinetics.Arrhenius("{name}", "E{name.removeprefix("k")}", reference=REFERENCE)'
        for name in reaction.parameters
    ]
    if len(constants) == 1:
        law = f"            kinetics.MassAction({constants[0]}),\n"
    else:
        forward, backward = constants
        law = (
            "            kinetics.MassAction(\n"
            f"                {forward},\n                backward={backward},\n            ),\n"
        )
    return f"        kinetics.Reaction(\n            {quoted(reaction.text)},\n{law}        ),"


def _directions(reaction: Reaction) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The rate constant of each direction, and the species that it consumes."""
    return zip(reaction.parameters, (reaction.equation.left, reaction.equation.right), strict=False)


def _rate(reaction: Reaction) -> str:
    """The rate by mass action, as a formula."""
    return " - ".join(
        " * ".join([constant, *(s if n == 1 else f"{s}**{n}" for s, n in side.items())])
        for constant, side in _directions(reaction)
    )


def _starts(
    sheet: Workbook,
    equations: Sequence[Equation],
    factors: Mapping[str, float],
    begin: float,
    unit: str,
) -> Starts:
    """Start values by species; 0 for unmeasured species that a reaction forms."""
    species = dict.fromkeys(s for e in equations for s in e.species)
    nets = [(e, s, n) for e in equations for s, n in e.net.items()]
    formed = {s for e, s, n in nets if n > 0 or (e.reversible and s in e.right)}
    zero = DraftStart("0.0", "assumed: not measured, but formed by a reaction")
    most = max((largest(sheet.runs, s) * f for s, f in factors.items()), default=1.0)
    usual = {s: zero if s in formed else unmeasured_start(most) for s in species}
    starts = {}
    for run in sheet.runs:
        constant = {
            n: DraftStart(
                short(c.value * (conversion(n, c.unit, unit)[0] if unit and c.unit else 1.0)),
                "a condition of the table",
            )
            for n, c in run.conditions.items()
            if n in species and (not unit or dimension(c.unit) in ({}, CONCENTRATION))
        }
        measured = factors.keys() & species.keys() & {*run.table.columns}
        own = {s: measured_start(run, s, begin, factors[s], 0.0) for s in measured}
        starts[run.name] = usual | constant | own
    return starts
