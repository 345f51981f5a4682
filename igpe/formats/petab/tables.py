"""The tables of a PEtab problem as experiments: one for each simulation condition."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.errors import DataError
from igpe.formats.petab.course import Course, Meaning
from igpe.formats.petab.formulas import inserted, library, names_in, parsed
from igpe.formats.petab.sbml import Sbml
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import step_input
from igpe.problem.noise.sigma import EstimatedSigma

LOGARITHMS = {"log": 1.0, "log10": float(np.log(10.0))}  # natural logarithm of their base
SEPARATOR = ";"


@dataclass(frozen=True)
class Row:
    """A measurement.

    key       observable and what its placeholders stand for: rows of one key are one column
    formula   what is measured, on the scale on which it is compared
    noise     its standard deviation there
    """

    condition: str
    key: tuple[str, str, str]
    time: float
    value: float
    formula: Any
    noise: Any


@dataclass(frozen=True)
class Conditions:
    """All that was read: an experiment and a course for each condition."""

    experiments: list[Experiment]
    courses: dict[str, Course]
    transformations: dict[str, str]


def read_conditions(
    petab: Any, sbml: Sbml, known: Mapping[str, Any], estimated: Mapping[str, Any]
) -> Conditions:
    """The measurement, observable and condition tables.

    petab      petab.v1.Problem
    known      name -> number by the parameter table
    estimated  names of the parameter table that are estimated
    raises     DataError for what igpe does not read, by its name
    """
    table = petab.measurement_df
    _refuse(table, petab.observable_df)
    names = list(dict.fromkeys(table["simulationConditionId"].astype(str)))
    meanings = {
        n: Meaning(sbml, _given(petab.condition_df, n), known, set(estimated)) for n in names
    }
    reader = _Rows(petab.observable_df, meanings)
    rows = [reader.row(record) for record in table.to_dict("records")]
    columns = _columns(rows, {*sbml.values, *sbml.rates, *sbml.rules, *estimated})
    scales = {columns[r.key]: reader.scale(r.key[0]) for r in rows}
    courses, experiments = {}, []
    for name, meaning in meanings.items():
        own = [r for r in rows if r.condition == name]
        outputs = {columns[r.key]: r.formula for r in own}
        noise = {_noise(columns[r.key]): r.noise for r in own if not r.noise.is_number}
        courses[name] = meaning.course(outputs | noise)
        experiments.append(_experiment(name, own, columns, courses[name]))
    return Conditions(experiments, courses, {c: s for c, s in scales.items() if s in LOGARITHMS})


def _refuse(measurements: pd.DataFrame, observables: pd.DataFrame) -> None:
    column = "preequilibrationConditionId"
    if column in measurements and measurements[column].notna().any():
        which = sorted(set(measurements[column].dropna().astype(str)))
        raise DataError(
            f"Measurements follow a pre-equilibration ({which}), which igpe does not read. Give "
            "the steady state as start values (initial assignments), or begin before it."
        )
    if not np.isfinite(measurements["time"].astype(float)).all():
        raise DataError(
            "Measurements are of the steady state (time inf), which igpe does not read; give a "
            "time at which it is reached."
        )
    laws = set(observables.get("noiseDistribution", pd.Series(dtype=object)).dropna())
    strange = sorted(laws - {"normal", ""})
    if strange:
        raise DataError(
            f"The noise distributions {strange} are not read; igpe knows `normal`, also of "
            "logarithms (observableTransformation)."
        )


def _given(conditions: pd.DataFrame, name: str) -> dict[str, Any]:
    if name not in conditions.index:
        raise DataError(
            f"The condition '{name}' is measured but not in the condition table, which has "
            f"{list(conditions.index)}."
        )
    row = conditions.loc[name].drop("conditionName", errors="ignore")
    return {str(k): parsed(v) for k, v in row.items() if pd.notna(v) and str(v).strip()}


class _Rows:
    """Reads measurements, each formula once."""

    def __init__(self, observables: pd.DataFrame, meanings: Mapping[str, Meaning]) -> None:
        self.observables, self.meanings = observables, meanings
        self._found: dict[tuple[str, str, str, str], tuple[Any, Any]] = {}

    def scale(self, observable: str) -> str:
        """On which scale it is compared."""
        given = self.observables.loc[observable].get("observableTransformation")
        return "lin" if pd.isna(given) or not given else str(given)

    def row(self, record: Mapping[Any, Any]) -> Row:
        """One row of the measurement table."""
        observable, condition = str(record["observableId"]), str(record["simulationConditionId"])
        of_observable = _text(record.get("observableParameters"))
        of_noise = _text(record.get("noiseParameters"))
        where = (condition, observable, of_observable, of_noise)
        if where not in self._found:
            self._found[where] = self._formulas(*where)
        formula, noise = self._found[where]
        key = (observable, of_observable, "" if noise.is_number else of_noise)
        value = self._scaled(observable, float(record["measurement"]))
        return Row(condition, key, float(record["time"]), value, formula, noise)

    def _scaled(self, observable: str, value: float) -> float:
        scale = self.scale(observable)
        if scale == "lin":
            return value
        if not value > 0:
            raise DataError(
                f"A measurement of '{observable}' is {value:g}, but its logarithm is compared "
                f"({scale}); leave it out or compare it as it is."
            )
        return float(np.log(value) / LOGARITHMS[scale])

    def _formulas(
        self, condition: str, observable: str, of_observable: str, of_noise: str
    ) -> tuple[Any, Any]:
        """What is measured and its standard deviation, constants inserted."""
        row, meaning = self.observables.loc[observable], self.meanings[condition]
        swaps = _placed("observable", observable, of_observable)
        swaps |= _placed("noise", observable, of_noise)
        formula = self._over_time(parsed(row["observableFormula"]), swaps, meaning, observable)
        noise = parsed(row["noiseFormula"])
        if observable in names_in(noise):
            swaps = {**swaps, observable: inserted(parsed(row["observableFormula"]), swaps)}
        deviation = self._over_time(noise, swaps, meaning, observable)
        scale, log = self.scale(observable), library("sympy").log
        if scale in LOGARITHMS:
            formula = log(formula) / (1 if scale == "log" else log(10))
        return formula, deviation

    def _over_time(
        self, formula: Any, swaps: Mapping[str, Any], meaning: Meaning, observable: str
    ) -> Any:
        found = inserted(formula, swaps)
        left = sorted(n for n in names_in(found) if _is_placeholder(n, observable))
        if left:
            raise DataError(
                f"The placeholders {left} of '{observable}' have no value in a row of the "
                "measurement table; give them, separated by ';'."
            )
        return meaning.over_time(found)


def _is_placeholder(name: str, observable: str) -> bool:
    return name.startswith(("observableParameter", "noiseParameter")) and name.endswith(
        f"_{observable}"
    )


def _text(value: Any) -> str:
    return "" if value is None or (isinstance(value, float) and np.isnan(value)) else str(value)


def _placed(kind: str, observable: str, text: str) -> dict[str, Any]:
    """Placeholder -> what a row gives for it."""
    parts = [p.strip() for p in text.split(SEPARATOR) if p.strip()]
    return {f"{kind}Parameter{i}_{observable}": parsed(p) for i, p in enumerate(parts, start=1)}


def _columns(rows: Iterable[Row], taken: set[str]) -> dict[tuple[str, str, str], str]:
    """A name for each key: the observable's, numbered where it is measured in several ways."""
    found: dict[tuple[str, str, str], str] = {}
    for row in rows:
        if row.key in found:
            continue
        observable = row.key[0]
        count = 1 + sum(key[0] == observable for key in found)
        name = f"observable_{observable}" if observable in taken else observable
        found[row.key] = name if count == 1 else f"{name}__{count}"
    return found


def _noise(column: str) -> str:
    return f"noise_{column}"


def _experiment(
    name: str, rows: list[Row], columns: Mapping[tuple[str, str, str], str], course: Course
) -> Experiment:
    records: list[dict[str, float]] = []
    sigma: dict[str, str | EstimatedSigma] = {}
    for row in rows:
        column, deviation = columns[row.key], f"sigma_{columns[row.key]}"
        record = {"time": row.time, column: row.value}
        if row.noise.is_number:
            record[deviation] = float(row.noise)
            sigma[column] = deviation
        else:
            sigma[column] = EstimatedSigma(_noise(column))
        records.append(record)
    inputs = {
        n: step_input([0.0, at], [first, last]) for n, (at, first, last) in course.switches.items()
    }
    return Experiment(
        pd.DataFrame(records).sort_values("time", kind="stable", ignore_index=True),
        name=name,
        start_time=0.0,
        inputs=inputs,
        sigma=sigma,
        replicates=True,
    )
