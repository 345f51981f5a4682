"""Reading a PEtab problem (https://petab.readthedocs.io, version 1 or 2) with an SBML model.

Each simulation condition, in version 2 each experiment, becomes an experiment of its name.
"""

from collections.abc import Iterable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.formats.petab.conditions import (
    ConditionModel,
    Conditions,
    Period,
    PetabModel,
    PetabParameter,
    PetabRow,
    Timeline,
    keep,
    with_kinds,
)
from igpe.formats.petab.formulas import (
    inserted,
    library,
    named,
    names_in,
    number,
    parsed,
    petab_config,
)
from igpe.formats.petab.sbml import Sbml, read_sbml
from igpe.formats.petab.tables import TIMELINE, Tables, explained, read_tables
from igpe.problem.experiment import Experiment
from igpe.problem.losses import NormalPrior, Prior
from igpe.problem.noise.sigma import EstimatedSigma
from igpe.problem.problem import Problem
from igpe.problem.tables import SOURCE, checksum

LIBRARIES = ("petab.v1", "libsbml", "sbmlmath", "sympy", "yaml")
LOGARITHMS = {"log": 1.0, "log10": float(np.log(10.0))}  # natural logarithm of their base
AT_REST = "_steady"  # behind the name of an experiment of which only the steady state is measured
FLAT = ("uniform", "parameterScaleUniform")  # priors inside the bounds
LAWS = {
    "normal": ("normal", False),
    "laplace": ("laplace", False),
    "logNormal": ("log-normal", False),
    "logLaplace": ("log-laplace", False),
    "parameterScaleNormal": ("normal", True),
    "parameterScaleLaplace": ("laplace", True),
}
"""Prior of version 1 -> its law, and whether it is one of the parameter on its scale."""


def read_petab(path: str | Path) -> Problem:
    """Read the estimation problem of a PEtab YAML file (version 1 or 2, one SBML model).

    Each simulation condition (in version 2, each experiment) becomes an experiment of the same
    name. Each observable becomes a column, or several numbered columns (`obs`, `obs__2`) if its
    measurements differ in their observable or noise parameters. igpe compares logarithms if the
    observable has a logarithmic transformation or a log-normal distribution: the column, which
    holds the logarithms, is then `log10_obs` or `log_obs`. Standard deviations
    that depend on parameters become `igpe.EstimatedSigma`. If a parameter has a
    logarithmic scale, igpe searches on that scale. PEtab version 2 has no scales: there, igpe
    searches on a logarithmic scale if a parameter is positive and its bounds span three decades
    or more.

    path    path of the YAML file, which contains the paths of the tables and the model
    raises  DataError for invalid tables, ModelError for SBML features that igpe does not support,
            ProblemError if the file does not exist, SolverMissing without the extra igpe[petab]
    """
    for name in LIBRARIES:
        library(name)
    try:
        return _read(Path(path))
    except (IgpeError, OSError):
        raise
    except Exception as error:  # of the libraries, which do not expect every file
        why = f"{type(error).__name__}: {str(error)[:200]}. Check it with `petablint`."
        with suppress(Exception):
            rows = explained(Path(path), petab_config(Path(path)))
            why = f"{rows}Correct the files." if rows else why
        raise DataError(f"'{path}' could not be read as a PEtab problem. {why}") from error


def _read(path: Path) -> Problem:
    config = petab_config(path)
    tables = _at_rest(read_tables(path, config))
    table = tables.parameters
    flags = table["estimate"].astype(float)
    if unclear := [str(n) for n in flags.index[~flags.isin([0, 1])]]:
        raise DataError(f"`estimate` of the parameters {unclear} is neither 0 nor 1. Correct it.")
    free = table[flags == 1]
    if free.empty:
        raise DataError(
            f"'{path}' estimates no parameter: in the parameter table, `estimate` is 1 (PEtab 2: "
            "true) in no row. Set it for the parameters that igpe should estimate."
        )
    fixed = table.drop(free.index)["nominalValue"]
    lost = [str(n) for n, v in fixed.items() if not np.isfinite(v)]
    if lost:
        raise DataError(
            f"The parameters {lost} are not estimated and have no nominalValue. Give their values, "
            "or set `estimate` to 1."
        )
    known = {str(n): number(float(v)) for n, v in fixed.items()}
    files = (name for key, name in named(config) if key == "measurement_files")
    tables.measurements.attrs[SOURCE] = "; ".join(checksum(path.parent / f) for f in files)
    estimated = {str(n): _parameter(row) for n, row in free.iterrows()}
    priors = {str(n): prior for n, row in free.iterrows() if (prior := _read_prior(str(n), row))}
    sbml = read_sbml(tables.document)
    experiments, models, transformations, rows = _experiments(tables, sbml, known, set(estimated))
    scales = {n: str(free.loc[n, "parameterScale"]) for n in estimated}
    scales = {n: scale for n, scale in scales.items() if scale in LOGARITHMS}
    return Problem(
        PetabModel(
            estimated, models, transformations, scales, rows, _flat(free) if priors else 0.0
        ),
        parameters=list(estimated),
        experiments=experiments,
        priors=priors,
        logarithmic=[n for n in scales if estimated[n].lower > 0 and estimated[n].upper < np.inf],
    )


def _at_rest(tables: Tables) -> Tables:
    """Move measurements at time infinity into experiments that start at steady state."""
    times = tables.measurements["time"].astype(float)
    if not (times == np.inf).any():
        return tables
    by_name = {c.name: c for c in tables.timelines}
    timelines, measurements = dict(by_name), tables.measurements.copy()
    for name in dict.fromkeys(measurements.loc[times == np.inf, TIMELINE]):
        timeline = by_name[name]
        main = [p for p in timeline.periods if np.isfinite(p.time)]
        if len(main) > 1 or (timeline.is_steady and main and main[0].changes):
            raise DataError(
                f"The experiment '{name}' has a steady-state measurement (time inf) after a "
                "change of conditions, which igpe does not support. Give a finite time at which "
                "the steady state is reached."
            )
        rested = f"{name}{AT_REST}"
        period = timeline.periods[0] if timeline.is_steady else main[0]
        timelines[rested] = Timeline(rested, (Period(-np.inf, period.changes), Period(0.0, {})))
        rows = (times == np.inf) & (measurements[TIMELINE] == name)
        measurements.loc[rows, TIMELINE], measurements.loc[rows, "time"] = rested, 0.0
    used = set(measurements[TIMELINE])
    kept = tuple(c for n, c in timelines.items() if n in used)
    measurements.attrs.update(tables.measurements.attrs)
    return tables._replace(timelines=kept, measurements=measurements)


def _parameter(row: Any) -> PetabParameter:
    lower, upper = _bounds(row)
    nominal = float(row.get("nominalValue", np.nan))
    if nominal <= 0 and row["parameterScale"] in LOGARITHMS:
        raise DataError(
            f"The parameter '{row.name}' has the nominalValue {nominal:g}, but a logarithmic scale "
            f"and the bounds [{lower:g}, {upper:g}]. Give a positive nominalValue, or leave it "
            "empty."
        )
    if not np.isfinite(nominal):
        nominal = float(np.sqrt(lower * upper) if lower > 0 else (lower + upper) / 2)
    if not np.isfinite(nominal):
        raise DataError(
            f"The parameter '{row.name}' has neither finite bounds nor a nominalValue. Give at "
            "least one of them."
        )
    return PetabParameter(lower, upper, nominal)


def _bounds(row: Any) -> tuple[float, float]:
    """The bounds of a parameter, narrowed by a uniform prior.

    raises DataError where they have no value in common
    """
    lower, upper, kind = float(row["lowerBound"]), float(row["upperBound"]), _prior_kind(row)
    given = _text(row.get("objectivePriorParameters"))
    if given and kind in (*FLAT, "log-uniform"):
        on_scale = kind == "parameterScaleUniform" and row["parameterScale"] in LOGARITHMS
        base = 10.0 if row["parameterScale"] == "log10" else np.e
        low, high = (base ** float(v) if on_scale else float(v) for v in given.split(";"))
        if low > high:
            raise _no_prior(row, "the first number is larger than the second")
        if max(lower, low) > min(upper, high):
            raise _no_prior(row, f"the bounds [{lower:g}, {upper:g}] contain none of these values")
        lower, upper = max(lower, low), min(upper, high)
    if lower == upper:
        raise DataError(
            f"The bounds of the parameter '{row.name}' leave the value {lower:g} alone. Set its "
            "`estimate` to 0 (PEtab 2: false) and its nominalValue to this value, or widen the "
            "bounds."
        )
    return lower, upper


class MeasurementRow(NamedTuple):
    """A measurement.

    key       observable and what its placeholders stand for: rows of one key are one column
    formula   what is measured in each period, on the scale on which it is compared
    noise     its standard deviation there: a number, or expressions, one for each period
    """

    timeline: str
    key: tuple[str, str, str]
    time: float
    value: float
    formula: tuple[Any, ...]
    noise: float | tuple[Any, ...]


def _column(reader: "_MeasurementReader", observable: str, count: int, taken: Set[str]) -> str:
    """Column name of an observable; it ends in a number if there are several columns."""
    scale = reader.scale(observable)
    name = f"{scale}_{observable}" if scale in LOGARITHMS else observable
    name = name if count == 1 else f"{name}__{count}"
    while name in taken:
        name = f"observable_{name}"
    return name


def _experiments(
    tables: Tables, sbml: Sbml, known: Mapping[str, Any], estimated: set[str]
) -> tuple[list[Experiment], dict[str, ConditionModel], dict[str, str], tuple[PetabRow, ...]]:
    """Experiments; experiment -> its model; measured name -> logarithm that is compared; rows.

    known      name -> number by the parameter table;  estimated: parameters that it estimates
    raises     DataError for what igpe does not read, by its name
    """
    table = tables.measurements
    _refuse_tables(table, tables.observables)
    meanings = {c.name: Conditions(sbml, c, known, estimated) for c in tables.timelines}
    taken = {*sbml.values, *sbml.rates, *sbml.rules, *estimated}
    taken |= _keep(tables, sbml, meanings, estimated)
    reader = _MeasurementReader(tables.observables, meanings)
    rows = [reader.row(record) for record in table.to_dict("records")]
    columns: dict[tuple[str, str, str], str] = {}
    for key in dict.fromkeys(row.key for row in rows):
        count = 1 + sum(other[0] == key[0] for other in columns)
        columns[key] = _column(reader, key[0], count, taken | {*columns.values()})
    models, experiments = {}, []
    longest = max((r.time for r in rows), default=0.0)
    for name, meaning in meanings.items():
        own = [r for r in rows if r.timeline == name]
        start = meaning.timeline.start
        if early := sorted({r.time for r in own if r.time < start}):
            raise DataError(
                f"The experiment '{name}' starts at {start:g}, but has earlier measurements, at "
                f"{early[:3]}. Remove these rows, or start the experiment earlier."
            )
        outputs = {columns[r.key]: r.formula for r in own}
        noise = {f"noise_{columns[r.key]}": r.noise for r in own if isinstance(r.noise, tuple)}
        models[name] = meaning.model(outputs | noise)
        data = _data(own, columns, start, start + max(longest, 1.0))
        data.attrs[SOURCE] = table.attrs[SOURCE]
        sigma = {columns[r.key]: _sigma(columns[r.key], r) for r in own}
        experiments.append(_experiment(data, sigma, models[name], meaning.timeline))
    scales = {column: reader.scale(key[0]) for key, column in columns.items()}
    scales = {c: s for c, s in scales.items() if s in LOGARITHMS}
    listed = tuple(
        PetabRow(r.timeline, columns[r.key], r.time, given)
        for r, given in zip(rows, tables.rows, strict=True)
    )
    return experiments, with_kinds(models), scales, listed


def _keep(
    tables: Tables, sbml: Sbml, meanings: Mapping[str, Conditions], estimated: set[str]
) -> set[str]:
    """Make inputs of numbers that differ between experiments; return the names that are taken."""
    formulas = [parsed(f) for f in tables.observables["observableFormula"]]
    kinds = ("", *(f"{scale}_" for scale in LOGARITHMS))
    noises = {f"noise_{kind}{n}" for kind in kinds for n in tables.observables.index}
    taken = {*sbml.rates, *sbml.rules, *estimated, *noises}
    keep(list(meanings.values()), formulas, taken)
    return taken


def _refuse_tables(measurements: pd.DataFrame, observables: pd.DataFrame) -> None:
    if measurements.empty:
        raise DataError("The measurement table has no rows. Give the measurements.")
    times, values = (measurements[n].astype(float) for n in ("time", "measurement"))
    if lost := np.flatnonzero(~np.isfinite(values) | np.isnan(times)).tolist():
        raise DataError(
            f"Rows {[n + 1 for n in lost[:5]]} of the measurement table have no number for the "
            "time or the measurement. Remove these rows."
        )
    laws = set(observables.get("noiseDistribution", pd.Series(dtype=object)).dropna())
    strange = sorted(laws - {"normal", ""})
    if strange:
        raise DataError(
            f"igpe does not support the noise distributions {strange}; it supports only `normal`, "
            "for values or for their logarithms (observableTransformation)."
        )


class _MeasurementReader:
    """Reads measurements, each formula once."""

    def __init__(self, observables: pd.DataFrame, meanings: Mapping[str, Conditions]) -> None:
        self.observables, self.meanings = observables, meanings
        self._formulas: dict[tuple[str, ...], tuple[tuple[Any, ...], Any]] = {}
        given = observables.get("observableTransformation", pd.Series(index=observables.index))
        self._scales = {n: "lin" if pd.isna(v) or not v else str(v) for n, v in given.items()}

    def scale(self, observable: str) -> str:
        """Scale on which an observable is compared."""
        return self._scales[observable]

    def row(self, record: Mapping[Any, Any]) -> MeasurementRow:
        """One row of the measurement table."""
        observable, timeline = str(record["observableId"]), str(record[TIMELINE])
        given = (record.get(f"{kind}Parameters") for kind in ("observable", "noise"))
        texts = tuple("" if pd.isna(text) else str(text) for text in given)
        where = (timeline, observable, *texts)
        if where not in self._formulas:
            self._formulas[where] = self._read(timeline, observable, texts)
        formula, noise = self._formulas[where]
        key = (observable, texts[0], texts[1] if isinstance(noise, tuple) else "")
        value, scale = float(record["measurement"]), self.scale(observable)
        if scale != "lin":
            if not value > 0:
                raise DataError(
                    f"A measurement of '{observable}' is {value:g}, but the problem uses its "
                    f"logarithm ({scale}); omit the measurement, or compare values "
                    "instead of logarithms."
                )
            value = float(np.log(value) / LOGARITHMS[scale])
        return MeasurementRow(timeline, key, float(record["time"]), value, formula, noise)

    def _read(
        self, timeline: str, observable: str, texts: tuple[str, ...]
    ) -> tuple[tuple[Any, ...], Any]:
        """Formulas of a measurement and its standard deviation in each period."""
        swaps = {
            f"{kind}Parameter{i}_{observable}": parsed(part)
            for kind, text in zip(("observable", "noise"), texts, strict=True)
            for i, part in enumerate(filter(None, map(str.strip, text.split(";"))), start=1)
        }
        row = self.observables.loc[observable]
        formula, noise = (
            inserted(parsed(row[f"{kind}Formula"]), swaps) for kind in ("observable", "noise")
        )
        noise = inserted(noise, {observable: formula})
        left = sorted(
            n
            for n in names_in(formula) | names_in(noise)
            if n.startswith(("observableParameter", "noiseParameter"))
            and n.endswith(f"_{observable}")
        )
        if left:
            raise DataError(
                "In at least one row of the measurement table, the placeholders "
                f"{left} of '{observable}' have no value. Give these values, separated by ';'."
            )
        meaning = self.meanings[timeline]
        formulas, noises = meaning.over_time(formula, keeps=True), meaning.over_time(noise)
        scale, log = self.scale(observable), library("sympy").log
        if scale in LOGARITHMS:
            formulas = tuple(log(f) / (1 if scale == "log" else log(10)) for f in formulas)
        if noises[-1].is_number and all(n == noises[-1] for n in noises):
            if not float(noises[-1]) > 0:
                raise DataError(
                    f"A measurement of '{observable}' has the standard deviation {noises[-1]} "
                    "according to noiseFormula and noiseParameters. Give a positive one."
                )
            return formulas, float(noises[-1])
        return formulas, meaning.over_time(noise, keeps=True)


def _data(
    rows: Iterable[MeasurementRow],
    columns: Mapping[tuple[str, str, str], str],
    start: float,
    last: float,
) -> pd.DataFrame:
    """The table of an experiment; one that is measured at its start alone goes on to `last`."""
    records: list[dict[str, float]] = []
    for row in rows:
        record = {"time": row.time, columns[row.key]: row.value}
        if not isinstance(row.noise, tuple):
            record[f"sigma_{columns[row.key]}"] = row.noise
        records.append(record)
    if all(record["time"] == start for record in records):
        records.append({"time": last})
    return pd.DataFrame(records).sort_values("time", kind="stable", ignore_index=True)


def _sigma(column: str, row: MeasurementRow) -> str | EstimatedSigma:
    is_estimated = isinstance(row.noise, tuple)
    return EstimatedSigma(f"noise_{column}") if is_estimated else f"sigma_{column}"


def _experiment(
    data: pd.DataFrame,
    sigma: Mapping[str, str | EstimatedSigma],
    model: ConditionModel,
    timeline: Timeline,
) -> Experiment:
    return Experiment(
        data,
        name=timeline.name,
        start_time=timeline.start,
        inputs=dict(model.inputs),
        events=model.events,
        steady=False if model.before is None else (dict(model.before) or True),
        sigma=sigma,
        replicates=True,
    )


def _read_prior(name: str, row: Any) -> NormalPrior | Prior | None:
    """The objective prior of a row of the parameter table; None where the bounds are all.

    raises DataError for numbers that the law does not have
    """
    kind, numbers = _prior_kind(row), row.get("objectivePriorParameters")
    if not kind or kind in FLAT:
        return None
    law, on_scale = LAWS.get(kind, (kind, False))
    lower, upper = (float(row.get(n, s * np.inf)) for n, s in (("from", -1), ("to", 1)))
    try:
        values = tuple(float(v) for v in str(numbers).split(";"))
        scale = str(row["parameterScale"]) if on_scale else "lin"
        if law == "normal" and scale == "lin":
            mean, deviation = values
            return NormalPrior(mean, deviation, lower=lower, upper=upper)
        return Prior(law, values, scale, lower, upper)
    except (ValueError, TypeError, ProblemError) as error:
        raise _no_prior(row, error) from None


def _prior_kind(row: Any) -> str:
    return _text(row.get("objectivePriorType"))


def _text(cell: Any) -> str:
    return "" if cell is None or pd.isna(cell) else str(cell)


def _no_prior(row: Any, why: object) -> DataError:
    kind, numbers = _prior_kind(row), row.get("objectivePriorParameters")
    return DataError(
        f"The prior of '{row.name}' is {kind} with the parameters {numbers}: "
        f"{str(why).rstrip('.')}. Correct the prior or the bounds."
    )


def _flat(parameters: pd.DataFrame) -> float:
    """Minus the logarithm of the uniform densities, which version 2 counts."""
    if "from" not in parameters:
        return 0.0
    kinds = parameters["objectivePriorType"].astype(object).fillna("")
    plain = parameters[kinds.isin(["", *FLAT])]
    widths = (plain["to"] - plain["from"]).astype(float)
    return float(np.log(widths[np.isfinite(widths)]).sum())
