"""From the runs of a workbook to what a model needs: names, units, inputs, concentrations."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from igpe.core.arguments import is_finite
from igpe.core.errors import DataError
from igpe.formats.workbooks import words
from igpe.formats.workbooks.conditions import Condition
from igpe.formats.workbooks.words import split_header
from igpe.problem.inputs import linear_input
from igpe.problem.units import conversion, unit_name

PER_CENT = 100.0


class Mark(NamedTuple):
    """A cell that says that a value lies beyond a limit: its place, its text, the quantity.

    limit  the number after "<"; None if there is none
    """

    place: str
    text: str
    header: str
    limit: float | None


@dataclass(frozen=True)
class Quantity:
    """A column of the table as it was understood.

    header     in the file;  name: in the model;  unit: as Pyomo understands it, or ""
    kind       what it means if it is no state: "conversion of A", "yield", "area"; else ""
    deviation  header of its standard deviations; "" if there are none
    """

    header: str
    name: str
    unit: str
    kind: str = ""
    deviation: str = ""


@dataclass(frozen=True)
class WorkbookRun:
    """One experiment.

    table       `time`, the measured quantities, what was set and changes with time, and `sd_...`
    conditions  name -> what holds for the whole run;  inputs: columns that were set
    places      name -> cells of its values: "Sheet1!B2:B9"
    limits      rows as of the table: limits of cells such as "<0.05", NaN elsewhere; columns only
                for names that have such cells
    """

    name: str
    file: Path
    table: pd.DataFrame
    conditions: Mapping[str, Condition]
    inputs: tuple[str, ...]
    marks: tuple[Mark, ...]
    places: Mapping[str, str]
    limits: pd.DataFrame

    def cells(self, name: str, factor: float = 1.0, offset: float = 0.0) -> "pd.Series[Any]":
        """The values of a quantity, converted; "<0.05" where only a limit is known."""
        values = factor * self.table[name] + offset
        if name not in self.limits:
            return values
        limits = factor * self.limits[name] + offset
        below = limits.notna()
        return values.astype(object).mask(below, "<" + limits[below].map(repr))

    def with_names(self, names: Mapping[str, str], leave: Collection[str]) -> "WorkbookRun":
        """The run with other names of quantities, without those in `leave`."""
        both = {**names, **{f"sd_{n}": f"sd_{m}" for n, m in names.items()}}
        gone = [c for c in self.table.columns if c.removeprefix("sd_") in leave]
        table = self.table.drop(columns=gone).rename(columns=both)
        places = {both.get(n, n): p for n, p in self.places.items()}
        return replace(self, table=table, places=places, limits=self.limits.rename(columns=names))


def time_unit_of(model: Any) -> str:
    """The unit of time of a reactor; "" of other models, whose time has none."""
    return str(getattr(getattr(model, "units", None), "time", ""))


class ModelNames:
    """The components of a model, by name, to which quantities and conditions belong."""

    def __init__(self, model: Callable[..., Any] | None) -> None:
        self.model = model
        self.components: dict[str, Any] = {}
        if model is not None:
            built = model([0.0, 1.0])
            self.components = {c.local_name: c for c in built.component_objects()}

    def of(self, quantity: Quantity) -> str:
        """The name of a quantity in the model; its own without a model; "" if there is none."""
        if self.model is None or quantity.name in self.components:
            return quantity.name
        return words.meant(split_header(quantity.header)[0], self.components)

    def unit(self, name: str) -> str:
        """The unit of a component, as text."""
        component = self.components.get(name)
        if component is None:
            return ""
        return unit_name(next(iter(component.values())) if component.is_indexed() else component)

    def given(self, name: str, run: WorkbookRun, unit: str) -> Any:
        """An input of a run, in the model's unit; of a condition, `unit` is passed over."""
        is_table = name in run.inputs
        points = run.table[["time", name]].dropna().drop_duplicates("time") if is_table else None
        if points is None:
            value, unit, written = run.conditions[name]
            if name == words.TEMPERATURE and not unit and value != round(value + 0.35) - 0.35:
                raise DataError(
                    f"The temperature {written} of run '{run.name}' has no unit. Give it: "
                    f"units={{'{name}': 'degC'}} or units={{'{name}': 'K'}} in read_workbook(...)."
                )
        values = value if points is None else points[name].to_numpy(dtype=float)
        wanted = self.unit(name)
        if wanted and unit and unit != wanted:
            factor, offset = conversion(name, unit, wanted)
            values = factor * values + offset
        return values if points is None else linear_input(points["time"].to_numpy(float), values)


# Conversions and yields -------------------------------------------------------------------------


def subject_of(quantity: Quantity) -> str | None:
    """The text after conversion of, yield of; None if the quantity is neither."""
    kind, _, of = quantity.kind.partition(" of ")
    return of if kind in ("conversion", "yield") else None


def concentration(
    q: Quantity, run: WorkbookRun, start: Mapping[str, Any], known: ModelNames
) -> tuple[str, float, float] | None:
    """Name, offset and factor of A = A0 (1 - X) and B = A0 Y; None for a quantity that is neither.

    This holds at constant volume.
    """
    of = subject_of(q)
    if of is None or known.model is None or q.name not in run.table or known.of(q):
        return None
    kind, (product, _, reactant) = q.kind.split()[0], of.partition(" from ")
    factor, product = _coefficient(product)
    other, reactant = _coefficient(reactant)
    name = words.meant(product, known.components)
    source = words.meant(reactant, known.components) if reactant else name
    is_yield = kind == "yield"
    if not name or (is_yield and not reactant) or not source:
        raise DataError(
            f"'{q.header}' is a {kind}, but igpe cannot tell which species it refers to. "
            f"Name the species in read_workbook(...): roles={{'{q.header}': "
            f"'{'yield of B from A' if is_yield else 'conversion of A'}'}}."
        )
    begin = start.get(source)
    if begin is None or not is_finite(begin):
        share = f"{'' if is_yield else '1 - '}m.{name}[t] / m.{source}[m.t.first()]"
        raise DataError(
            f"'{q.header}' is a {q.kind}. To compute '{name}' from it, igpe needs the start value "
            f"of '{source}' as a number: start={{'{source}': 1.0}}. If the start value is "
            f"estimated, add the {kind} to the model, for example m.X = pyo.Expression(m.t, "
            f"rule=lambda m, t: {share}), and pass names={{'{q.header}': 'X'}}."
        )
    if q.unit != "%" and run.table[q.name].abs().max() > 1.5:  # noqa: PLR2004 - no fraction
        raise DataError(
            f"'{q.header}' has no unit, but contains values above 1. Pass "
            f"units={{'{q.header}': '%'}} in read_workbook(...)."
        )
    most = float(begin) * factor / other
    scale = most / (PER_CENT if q.unit == "%" else 1.0)
    return (name, 0.0, scale) if is_yield else (name, most, -scale)


def no_response_factor(area: Quantity) -> str:
    """What a model needs to be compared with peak areas, in a sentence."""
    return (
        f"'{area.header}' is an area, but the model computes concentrations. Convert the "
        "areas to concentrations with your calibration, or estimate a response factor in the "
        f"model: m.f = pyo.Var(bounds=(0, 1e6)) and m.{area.name} = pyo.Expression(m.t, "
        "rule=lambda m, t: m.f * m.A[t])."
    )


def _coefficient(text: str) -> tuple[float, str]:
    number, _, rest = text.strip().partition(" ")
    try:
        return float(number), rest
    except ValueError:
        return 1.0, text.strip()
