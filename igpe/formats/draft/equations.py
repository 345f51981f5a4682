"""The model of a drafted problem by equations: a pyomo.dae skeleton that runs as it is."""

from igpe.core.markup import one_line, quoted
from igpe.formats.draft.headers import identifier
from igpe.formats.draft.sheet import Sheet
from igpe.formats.draft.text import (
    Part,
    fastest,
    largest,
    measured_start,
    round_up,
    short,
    start_time,
    unmeasured_start,
)

MODEL = '''def model(times):
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
        model=MODEL.format(
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
