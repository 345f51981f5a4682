"""The content of laboratory files: how igpe read them, and experiments for a model."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from textwrap import fill
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd

from igpe.core.arguments import is_finite
from igpe.core.errors import DataError
from igpe.core.markup import closest, counted
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import Condition
from igpe.problem.experiment import Experiment, experiment_of, own_of
from igpe.problem.inputs import linear_input
from igpe.problem.measurements import conversion, unit_name
from igpe.problem.noise.sigma import censored as limits_of
from igpe.problem.tables import SOURCE

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
    kind       meaning of what is no state: "conversion of A", "yield", "area"; else ""
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
        dropped = [c for c in self.table.columns if c.removeprefix("sd_") in leave]
        table = self.table.drop(columns=dropped).rename(columns=both)
        places = {both.get(n, n): p for n, p in self.places.items()}
        return replace(self, table=table, places=places, limits=self.limits.rename(columns=names))


def time_unit_of(model: Any) -> str:
    """The unit of time of a reactor; "" of other models, whose time has none."""
    return str(getattr(getattr(model, "units", None), "time", ""))


class _ModelNames:
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
        return words.meant(words.split_header(quantity.header)[0], self.components)

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
        target = self.unit(name)
        if target and unit and unit != target:
            factor, offset = conversion(name, unit, target)
            values = factor * values + offset
        return values if points is None else linear_input(points["time"].to_numpy(float), values)


# Conversions and yields -------------------------------------------------------------------------


def _subject_of(quantity: Quantity) -> str | None:
    """The text after conversion of, yield of; None if the quantity is neither."""
    kind, _, of = quantity.kind.partition(" of ")
    return of if kind in ("conversion", "yield") else None


def share_of(q: Quantity, species: Sequence[str]) -> tuple[str, ...]:
    """The species of a conversion, or the product and the reactant of a yield; () of another."""
    product, _, reactant = (_subject_of(q) or "").partition(" from ")
    texts = [_coefficient(text)[1] for text in (product, reactant) if text]
    names = tuple(words.meant(text, species) for text in texts)
    return names if all(names) else ()


def concentration(
    q: Quantity, run: WorkbookRun, start: Mapping[str, Any], known: _ModelNames
) -> tuple[str, float, float] | None:
    """Name, offset and factor of A = A0 (1 - X) and B = A0 Y; None for a quantity that is neither.

    This holds at constant volume.
    """
    of = _subject_of(q)
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


def _no_response_factor(area: Quantity) -> str:
    """Message about peak areas that a model of concentrations cannot use."""
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


ASSUMED = "assumed"  # key of the attributes of a table
WIDTH = 80
MOST_LINES = 40
HEADS = ["header", "name", "role", "unit", "values", "count", "cells"]


@dataclass(frozen=True, repr=False)
class Workbook:
    """The experiments of one or several files.

    runs      the data of each experiment;  time: the column of times, with its unit
    measured  the measured quantities; inputs: quantities that were set and vary in time
    left_out  a dict {header: reason why the column is not used}
    warnings  sentences about values that are probably wrong, with their rows
    """

    runs: tuple[WorkbookRun, ...]
    time: Quantity
    measured: tuple[Quantity, ...]
    inputs: tuple[Quantity, ...]
    left_out: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[Path, ...]:
        """The files, each listed once."""
        return tuple(dict.fromkeys(run.file for run in self.runs))

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Cells that hold a limit of detection."""
        return tuple(dict.fromkeys(m for run in self.runs for m in run.marks))

    @property
    def sigma(self) -> dict[str, str]:
        """Map each measured name to the column of its standard deviations in the tables of the
        runs."""
        return {q.name: f"sd_{q.name}" for q in self.measured if q.deviation}

    @property
    def size(self) -> int:
        """Number of measurements."""
        names = [q.name for q in self.measured]
        return sum(int(r.table.reindex(columns=names).notna().to_numpy().sum()) for r in self.runs)

    def table(self) -> pd.DataFrame:
        """Show how igpe read the workbook: one row for each column of each run, and for each
        condition."""
        rows = []
        for run in self.runs:
            rows += [[run.name, *self._row(q, role, [run])] for q, role in self._columns([run])]
            for name, c in run.conditions.items():
                rows.append([run.name, "", name, "condition", c.unit, _shown(c), "1", ""])
        for header, why in self.left_out.items():
            rows.append(["", header, "", f"not used: {why}", "", "", "0", ""])
        return pd.DataFrame(rows, columns=["run", *HEADS]).astype({"count": int})

    def _columns(self, runs: Sequence[WorkbookRun]) -> Iterator[tuple[Quantity, str]]:
        """The columns of some runs, and what they are."""
        every = [(self.time, "time"), *((q, "measured") for q in self.measured)]
        for q, role in (*every, *((q, "input") for q in self.inputs)):
            if any(q.name in run.table for run in runs):
                yield q, role

    def _row(self, q: Quantity, role: str, runs: Sequence[WorkbookRun]) -> list[str]:
        """Row of the summary about a column of some runs, by HEADS."""
        chosen = [run for run in runs if q.name in run.table]
        values = pd.concat([run.table[q.name] for run in chosen]).dropna()
        limits = sum(m.header == q.header for run in chosen for m in run.marks)
        kind = (q.kind or role) + f", {limits} beyond a limit" * (limits > 0)
        kind += f" ± {self.sigma.get(q.name)}" * (q.name in self.sigma)
        cells = chosen[0].places[q.name] + ", …" * (len(chosen) > 1)
        size = f"{values.min():g} to {values.max():g}"
        return [q.header, q.name, kind, q.unit, size, f"{len(values)}", cells]

    def summary(self) -> str:
        """Summary of all runs, in lines of at most 80 characters."""
        rows = [HEADS, *(self._row(q, role, self.runs) for q, role in self._columns(self.runs))]
        given: dict[tuple[str, str], dict[str, str]] = {
            (n, c.unit): {} for run in self.runs for n, c in run.conditions.items()
        }
        for (name, _), shown in given.items():
            shown |= {r.name: _shown(c) for r in self.runs if (c := r.conditions.get(name))}
        names = [run.name for run in self.runs]
        differ = {k: v for k, v in given.items() if len({v.get(n) for n in names}) > 1}
        for (name, unit), shown in given.items():
            if (name, unit) not in differ:
                rows.append(["", name, "condition", unit, shown[names[0]], "", ""])
        if len(names) == 1:
            return _fitted(rows)
        if not differ:
            listed = fill(f"Experiments: {', '.join(names)}.", WIDTH)
            return f"{_fitted(rows)}\n\n{listed}"
        heads = ["experiment", *(f"{n} [{u}]" if u else n for n, u in differ)]
        runs = [[n, *(shown.get(n, "") for shown in differ.values())] for n in names]
        return f"{_fitted(rows)}\n\n{_fitted([heads, *runs])}"

    def conditions(self) -> pd.DataFrame:
        """The conditions of the runs: one row for each run, one column for each condition."""
        units = {n: c.unit for run in self.runs for n, c in run.conditions.items()}
        names = {n: f"{n} [{u}]" if u else n for n, u in units.items()}
        rows = [{names[n]: c.value for n, c in run.conditions.items()} for run in self.runs]
        index = pd.Index([run.name for run in self.runs], name="run")
        return pd.DataFrame(rows, index=index, columns=list(names.values()))

    def __repr__(self) -> str:
        files = ", ".join(f.name for f in self.files)
        count = counted(len(self.runs), "experiment")
        reasons = {
            why: [h for h, w in self.left_out.items() if w == why] for why in self.left_out.values()
        }
        notes = [f"Not used: {', '.join(map(repr, h))} ({why})." for why, h in reasons.items()]
        notes = [fill(note, WIDTH) for note in (*notes, *self.warnings)]
        head = f"{files}: {count}, {self.size} measurements\n"
        return "\n".join([head, self.summary(), *([""] if notes else []), *notes])

    def _repr_html_(self) -> str:
        notes = "".join(f"<p>{escape(w)}</p>" for w in self.warnings)
        return f"{self.table().to_html(index=False, escape=True, max_rows=60)}{notes}"

    def frame(
        self,
        units: Mapping[str, str] = MappingProxyType({}),
        keep: Collection[str] | None = None,
        limited: Collection[str] = (),
    ) -> pd.DataFrame:
        """All measurements in one table: `time`, the file's headers, and `experiment` if several.

        units   a dict {header or name: unit to which the values are converted}; values without a
                unit are taken to have it, and `.attrs["assumed"]` contains these headers and units
        keep    headers or names of the columns to return; by default all
        limited  headers or names of the columns in which cells such as "<0.05" stay
        raises  DataError if a unit does not fit, or other cells hold limits of detection
        """
        kept = {q.header for q in self.measured if {q.name, q.header} & {*limited}}
        self._require_values(None, kept)
        parts, assumed = [], dict[str, str]()
        for run in self.runs:
            columns = {"time": run.table["time"]}
            for q in (self.time, *(q for q in self.measured if q.name in run.table)):
                target = units.get(q.name, units.get(q.header, ""))
                factor, offset = conversion(q.name, q.unit, target) if target and q.unit else (1, 0)
                if keep is None or {q.name, q.header} & {*keep, "time"}:
                    header = "time" if q is self.time else q.header
                    columns[header] = run.cells(q.name, factor, offset)
                    assumed |= {q.header: target} if target and not q.unit else {}
                for deviation in {q.deviation, f"sd_{q.name}"} & {*(keep or ())}:
                    columns[deviation] = abs(factor) * run.table[f"sd_{q.name}"]
            table = pd.DataFrame(columns)
            parts.append(table.assign(experiment=run.name) if len(self.runs) > 1 else table)
        combined = pd.concat(parts, ignore_index=True)
        sources = dict.fromkeys(run.table.attrs[SOURCE] for run in self.runs)
        combined.attrs[SOURCE] = "; ".join(sources)
        combined.attrs[ASSUMED] = assumed
        return combined

    def experiments(
        self,
        model: Callable[..., Any] | None = None,
        *,
        start: Mapping[str, Any] = MappingProxyType({}),
        names: Mapping[str, str] = MappingProxyType({}),
        inputs: Iterable[str] | None = None,
        time_unit: str = "",
        censored: str | None = None,
        **conditions: Any,
    ) -> list[Experiment]:
        """Return the runs as experiments.

        If a model is given, quantities and conditions have the names and units of the model, and
        igpe leaves out those that the model does not contain. A conversion or a yield becomes a
        concentration if the start value of its reactant is a number.

        model       the builder of the problem's model
        start       start values as for `Experiment`, or a dict {run: such start values}
        names       a dict {header: name in the model}, for names that differ
        inputs      names of conditions and set quantities to use as inputs; by default those that
                    the model contains
        time_unit   unit of the model's time; by default the unit of the reactor, or otherwise of
                    the file
        censored    "drop": igpe leaves out cells such as "< 0.01"; it never replaces them with
                    numbers. By default, they are limits of quantities with the standard deviation
                    `igpe.losses.Censored`
        conditions  other arguments of `Experiment`; a dict with the names of all runs gives each
                    run its own value
        raises      DataError for other cells with limits, for a model that contains none of the
                    quantities, or if conditions differ between the runs and no model is given
        """
        known = _ModelNames(model)
        chosen = self._chosen(known, names)
        unit = time_unit or time_unit_of(model)
        factor = conversion("time", self.time.unit, unit)[0] if unit and self.time.unit else 1.0
        runs = [r.name for r in self.runs if r.name]
        more = {"start": start, **conditions}
        owns = [{k: own_of(k, v, runs, run.name) for k, v in more.items()} for run in self.runs]
        states = {n for own in owns if isinstance(own["start"], Mapping) for n in own["start"]}
        given = self._inputs(known, None if inputs is None else tuple(inputs), states)
        limited = {n for own in owns for n in limits_of([*chosen.values()], own.get("sigma"))}
        kept = {q.header for q in self.measured if chosen.get(q.name) in limited}
        self._require_values(censored, set() if censored else kept)
        converted = []
        for one, own in zip(self.runs, owns, strict=True):
            run = replace(one, table=one.table.assign(time=factor * one.table["time"]))
            run = replace(run, limits=run.limits.iloc[:, :0]) if censored else run
            converted.append(self._experiment(run, chosen, given, known, own))
        return converted

    def _require_values(self, censored: str | None, kept: Collection[str]) -> None:
        """Raise DataError for limits in columns other than `kept`, and for those without number."""
        if censored not in (None, "drop"):
            raise DataError(f"`censored` is {censored!r}; give censored='drop', or omit it.")
        lost = [m for m in self.marks if m.header not in kept or m.limit is None]
        if lost and censored is None:
            listed = ", ".join(f"{m.place} ('{m.text}')" for m in lost[:5])
            more = f" and {len(lost) - 5} more" * (len(lost) > 5)  # noqa: PLR2004
            raise DataError(
                f"Cells contain a limit instead of a value: {listed}{more}. igpe does not replace "
                "limits with numbers. For a quantity with a limit of detection, write cells such "
                "as '<0.05' and give sigma={'NAME': igpe.losses.Censored(0.02)}. Otherwise remove "
                "these cells, or pass censored='drop' to experiments(...) to fit without them."
            )

    def _chosen(self, known: _ModelNames, names: Mapping[str, str]) -> dict[str, str]:
        """Name of a quantity here -> name in the model."""
        headers = {q.header for q in self.measured} | {q.name for q in self.measured}
        if unknown := [h for h in names if h not in headers]:
            raise DataError(
                f"names={{...}} contains {unknown}, but the quantities are "
                f"{[q.header for q in self.measured]}.{closest(unknown[0], headers)}"
            )
        chosen: dict[str, str] = {}
        for q in self.measured:
            name = names.get(q.header, names.get(q.name, "")) or known.of(q)
            if name and name in chosen.values():
                other = next(n for n, m in chosen.items() if m == name)
                raise DataError(
                    f"'{other}' and '{q.name}' both seem to refer to '{name}' of the model. Give "
                    f"one of them another name: names={{'{q.header}': 'OTHER_NAME'}}."
                )
            if name:
                chosen[q.name] = name
        if not chosen and not any(_subject_of(q) is not None for q in self.measured):
            areas = [q for q in self.measured if q.kind == "area"]
            if areas:
                raise DataError(_no_response_factor(areas[0]))
            raise DataError(
                f"The model has none of the quantities {[q.header for q in self.measured]}. Give "
                f"the names in the model: names={{'{self.measured[0].header}': 'A'}}."
            )
        return chosen

    def _inputs(
        self, known: _ModelNames, inputs: tuple[str, ...] | None, states: Collection[str]
    ) -> tuple[str, ...]:
        """Names of conditions and set quantities that experiments get: not of states."""
        available = dict.fromkeys(n for r in self.runs for n in (*r.conditions, *r.inputs))
        if inputs is not None:
            if unknown := [n for n in inputs if n not in available]:
                raise DataError(
                    f"inputs={list(inputs)}: {unknown} are not conditions of "
                    f"'{self.files[0].name}', which has {list(available)}."
                    f"{closest(unknown[0], available)}"
                )
            return inputs
        if known.model is not None:
            return tuple(n for n in available if n in known.components and n not in states)
        differ = [
            n
            for n in available
            if len({c.value if (c := r.conditions.get(n)) else None for r in self.runs}) > 1
            or any(n in r.inputs for r in self.runs)
        ]
        if differ:
            raise DataError(
                f"The conditions {differ} change with time or differ between runs. To use the "
                "conditions that the model contains, pass the model: book.experiments(model). "
                f"Alternatively, list the conditions to use (inputs={differ}), or use none "
                "(inputs=[])."
            )
        return ()

    def _experiment(
        self,
        run: WorkbookRun,
        chosen: Mapping[str, str],
        given: Iterable[str],
        known: _ModelNames,
        more: Mapping[str, Any],
    ) -> Experiment:
        """A run as an experiment: its table in the names of the model, with what `chosen` says."""
        columns = {n: m for n, m in chosen.items() if n in run.table}
        deviations = {m: f"sd_{n}" for n, m in columns.items() if f"sd_{n}" in run.table}
        table = run.table[["time", *columns, *deviations.values()]].rename(columns=columns)
        table = table.assign(**{m: run.cells(n) for n, m in columns.items()})
        units = {
            columns[q.name]: q.unit
            for q in self.measured
            if q.name in columns and q.unit not in ("", "%")
        }
        if known.model is not None:
            units = {n: u for n, u in units.items() if known.unit(n)}
        for q in self.measured:
            share = concentration(q, run, more["start"], known)
            if share is not None and share[0] not in columns.values():
                name, offset, scale = share
                table[name] = offset + scale * run.table[q.name]
                columns[q.name] = name
                if f"sd_{q.name}" in run.table:
                    deviations[name] = f"sd_{name}"
                    table[f"sd_{name}"] = abs(scale) * run.table[f"sd_{q.name}"]
        measured = list(columns.values())
        if not measured:
            raise DataError(
                f"Run '{run.name}' has none of the model's quantities {list(chosen.values())}."
            )
        unit_of = {q.name: q.unit for q in self.inputs}
        available = [n for n in given if n in run.conditions or n in run.inputs]
        arguments = {
            "name": run.name,
            "inputs": {n: known.given(n, run, unit_of.get(n, "")) for n in available},
            "units": units,
            "only": measured,
            "replicates": bool(table["time"].duplicated().any()),
            **({"sigma": deviations} if len(deviations) == len(measured) else {}),
            **more,
        }
        headers = {q.header: chosen[q.name] for q in self.measured if q.name in chosen}
        return experiment_of(table[table[measured].notna().any(axis=1)], headers, arguments)


def _shown(c: Condition) -> str:
    same = c.written == f"{c.value:g} {c.unit}".strip()
    return f"{c.value:g}" + f" (= {c.written})" * (not same)


def _fitted(rows: Sequence[Sequence[str]]) -> str:
    """Texts in columns; the widest are shortened until a line fits, runs in the middle left out."""
    sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
    while sum(sizes) + 2 * (len(sizes) - 1) > WIDTH:
        sizes[sizes.index(max(sizes))] -= 1
    lines = [
        "  ".join(
            (t if len(t) <= n else f"{t[: n - 1]}…").ljust(n)
            for t, n in zip(row, sizes, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join(
        lines if len(lines) <= MOST_LINES else [*lines[: MOST_LINES - 5], "…", *lines[-4:]]
    )
