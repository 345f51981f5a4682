"""Reading a PEtab problem (https://petab.readthedocs.io, version 1 or 2) with an SBML model.

Tables of version 2 become those of version 1. An experiment of one period that begins at time 0 is
a condition; conditions in long format are columns; placeholders get the names they had; a
log-normal distribution is a logarithm that is compared. What only version 2 can say is refused by
name. Version 2 has no parameter scales: positive parameters whose bounds are decades apart are
searched in logarithms.

Each simulation condition becomes an experiment.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.formats.petab.formulas import (
    inserted,
    library,
    names_in,
    number,
    parsed,
    petab_config,
    plain,
    quiet,
    require_libraries,
    symbol,
)
from igpe.formats.petab.sbml import (
    ConditionModel,
    Meaning,
    PetabModel,
    PetabParameter,
    Sbml,
    read_sbml,
)
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import step_input
from igpe.problem.losses import NormalPrior
from igpe.problem.noise.estimated import EstimatedSigma
from igpe.problem.problem import Problem

LOGARITHMS = {"log": 1.0, "log10": float(np.log(10.0))}  # natural logarithm of their base
SEPARATOR = ";"


@dataclass(frozen=True)
class MeasurementRow:
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
class PetabConditions:
    """All that was read: an experiment and a course for each condition."""

    experiments: list[Experiment]
    condition_models: dict[str, ConditionModel]
    transformations: dict[str, str]


def read_conditions(
    petab: Any, sbml: Sbml, known: Mapping[str, Any], estimated: Mapping[str, Any]
) -> PetabConditions:
    """The measurement, observable and condition tables.

    petab      petab.v1.Problem
    known      name -> number by the parameter table
    estimated  names of the parameter table that are estimated
    raises     DataError for what igpe does not read, by its name
    """
    table = petab.measurement_df
    _refuse_tables(table, petab.observable_df)
    names = list(dict.fromkeys(table["simulationConditionId"].astype(str)))
    meanings = {
        n: Meaning(sbml, _given(petab.condition_df, n), known, set(estimated)) for n in names
    }
    reader = _MeasurementReader(petab.observable_df, meanings)
    rows = [reader.row(record) for record in table.to_dict("records")]
    columns = _columns(rows, {*sbml.values, *sbml.rates, *sbml.rules, *estimated})
    scales = {columns[r.key]: reader.scale(r.key[0]) for r in rows}
    condition_models, experiments = {}, []
    for name, meaning in meanings.items():
        own = [r for r in rows if r.condition == name]
        outputs = {columns[r.key]: r.formula for r in own}
        noise = {_noise(columns[r.key]): r.noise for r in own if not r.noise.is_number}
        condition_models[name] = meaning.condition_model(outputs | noise)
        experiments.append(_experiment(name, own, columns, condition_models[name]))
    return PetabConditions(
        experiments, condition_models, {c: s for c, s in scales.items() if s in LOGARITHMS}
    )


def _refuse_tables(measurements: pd.DataFrame, observables: pd.DataFrame) -> None:
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


class _MeasurementReader:
    """Reads measurements, each formula once."""

    def __init__(self, observables: pd.DataFrame, meanings: Mapping[str, Meaning]) -> None:
        self.observables, self.meanings = observables, meanings
        self._found: dict[tuple[str, str, str, str], tuple[Any, Any]] = {}

    def scale(self, observable: str) -> str:
        """On which scale it is compared."""
        given = self.observables.loc[observable].get("observableTransformation")
        return "lin" if pd.isna(given) or not given else str(given)

    def row(self, record: Mapping[Any, Any]) -> MeasurementRow:
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
        return MeasurementRow(condition, key, float(record["time"]), value, formula, noise)

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


def _columns(rows: Iterable[MeasurementRow], taken: set[str]) -> dict[tuple[str, str, str], str]:
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
    name: str,
    rows: list[MeasurementRow],
    columns: Mapping[tuple[str, str, str], str],
    condition_model: ConditionModel,
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
        n: step_input([0.0, at], [first, last])
        for n, (at, first, last) in condition_model.switches.items()
    }
    return Experiment(
        pd.DataFrame(records).sort_values("time", kind="stable", ignore_index=True),
        name=name,
        start_time=0.0,
        inputs=inputs,
        sigma=sigma,
        replicates=True,
    )


DECADES = 1e3  # ratio of positive bounds from which on logarithms are searched
UNNAMED = "model"  # the experiment of measurements that name none: the model as it is
DISTRIBUTIONS = {"normal": ("normal", "lin"), "log-normal": ("normal", "log")}
"""noiseDistribution of version 2 -> that of version 1, and the transformation."""


class Tables(NamedTuple):
    """What `igpe.formats.petab.read` needs of a problem; columns and indices as in version 1."""

    model: Any
    condition_df: pd.DataFrame
    measurement_df: pd.DataFrame
    observable_df: pd.DataFrame
    parameter_df: pd.DataFrame


def read_version2(path: Path, config: dict[str, Any]) -> Tables:
    """The tables of the problem in a YAML file, which says `config`.

    raises DataError for what PEtab's own check finds wrong, and for what igpe does not read
    """
    try:
        with quiet():
            found = library("petab.v2").Problem.from_yaml(config, base_path=path.parent)
    except Exception as error:  # pydantic's, pandas', petab's
        raise DataError(f"'{path}' is no PEtab problem of version 2: {error}") from error
    _refuse(found)
    _check(found, path)
    measurements = _measurements(found)
    names = dict.fromkeys(measurements["simulationConditionId"])
    return Tables(
        model=found.model,
        condition_df=_conditions(found, names),
        measurement_df=measurements,
        observable_df=_observables(found),
        parameter_df=_parameters(found),
    )


def _check(petab: Any, path: Path) -> None:
    """What PEtab's own check finds wrong, as one error."""
    bad = library("petab.v2.lint").ValidationIssueSeverity.ERROR
    with quiet():
        wrong = [issue.message for issue in petab.validate() if issue.level >= bad]
    if wrong:
        raise DataError(f"PEtab's check of '{path}' says: {' '.join(wrong)} Mend the files.")


def _refuse(petab: Any) -> None:
    extensions = getattr(petab.config, "extensions", None)
    if extensions:
        raise DataError(
            f"The problem uses the extensions {sorted(map(str, extensions))}; igpe reads PEtab "
            "without any. Remove them from the YAML file if they are not required."
        )
    if len(petab.models) != 1:
        raise DataError(
            f"The problem has {len(petab.models)} models; igpe reads one. Write a problem for each."
        )
    if not hasattr(petab.model, "sbml_document"):
        raise DataError("The problem's model is not in SBML, which is what igpe reads.")
    aliases = [m.petab_id for m in petab.mappings if m.model_id and m.model_id != m.petab_id]
    if aliases:
        raise DataError(
            f"The mapping table renames {aliases}, which igpe does not read; use the model's own "
            "names in the tables, and remove the mapping."
        )


def _conditions(petab: Any, names: Iterable[str]) -> pd.DataFrame:
    """One row for each experiment that is measured, one column for each target."""
    conditions = {c.id: c for c in petab.conditions}
    experiments = {e.id: e for e in petab.experiments}
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        rows[name] = {}
        for condition in _of_only_period(experiments[name]) if name in experiments else ():
            for change in conditions[condition].changes:
                rows[name][change.target_id] = change.target_value
    return pd.DataFrame(list(rows.values()), index=list(rows), dtype=object)


def _of_only_period(experiment: Any) -> list[str]:
    """Conditions that begin at time 0 and last."""
    periods = experiment.sorted_periods
    if any(p.is_preequilibration for p in periods):
        raise DataError(
            f"The experiment '{experiment.id}' begins with a pre-equilibration (time -inf), which "
            "igpe does not read. Give the steady state as start values (initial assignments)."
        )
    if len(periods) > 1:
        times = ", ".join(f"{p.time:g}" for p in periods)
        raise DataError(
            f"The experiment '{experiment.id}' has periods at {times}; igpe reads one. Write what "
            "changes later into the model as a piecewise function of time."
        )
    if periods and periods[0].time != 0:
        raise DataError(
            f"The experiment '{experiment.id}' begins at {periods[0].time:g}; igpe begins at 0. "
            "Shift its times."
        )
    return [c for p in periods for c in p.condition_ids]


def _measurements(petab: Any) -> pd.DataFrame:
    taken = {e.id for e in petab.experiments}
    unnamed = UNNAMED
    while unnamed in taken:
        unnamed += "_"
    written = library("petab.v1.math").petab_math_str
    rows = [
        {
            "observableId": m.observable_id,
            "simulationConditionId": m.experiment_id or unnamed,
            "time": m.time,
            "measurement": m.measurement,
            "observableParameters": ";".join(map(written, m.observable_parameters)),
            "noiseParameters": ";".join(map(written, m.noise_parameters)),
        }
        for m in petab.measurements
    ]
    return pd.DataFrame(rows)


def _observables(petab: Any) -> pd.DataFrame:
    rows = {}
    for one in petab.observables:
        named = {
            **_placeholders("observable", one.id, one.observable_placeholders),
            **_placeholders("noise", one.id, one.noise_placeholders),
        }
        kind = str(one.noise_distribution.value)
        noise, scale = DISTRIBUTIONS.get(kind, (kind, "lin"))
        rows[one.id] = {
            "observableFormula": inserted(plain(one.formula), named),
            "noiseFormula": inserted(plain(one.noise_formula), named),
            "observableTransformation": scale,
            "noiseDistribution": noise,
        }
    return pd.DataFrame(list(rows.values()), index=list(rows), dtype=object)


def _placeholders(kind: str, observable: str, given: Iterable[Any]) -> Mapping[str, Any]:
    """Name of a placeholder -> the symbol that stood for it in version 1."""
    return {
        s.name: symbol(f"{kind}Parameter{i}_{observable}") for i, s in enumerate(given, start=1)
    }


def _parameters(petab: Any) -> pd.DataFrame:
    rows = {p.id: _version2_parameter(p) for p in petab.parameters}
    return pd.DataFrame(list(rows.values()), index=list(rows), dtype=object)


def _version2_parameter(p: Any) -> dict[str, Any]:
    prior = p.prior_distribution
    kind = None if prior is None else str(getattr(prior, "value", prior))
    lower, upper = (np.nan if b is None else float(b) for b in (p.lb, p.ub))
    if kind == "uniform":
        low, high = p.prior_parameters
        lower, upper = max(lower, low), min(upper, high)
    if p.estimate and not (np.isfinite([lower, upper]).all()):
        raise DataError(
            f"The parameter '{p.id}' is estimated between {lower:g} and {upper:g}; igpe needs "
            "finite bounds to begin from. Give them in the parameter table."
        )
    decades = lower > 0 and upper / lower >= DECADES
    return {
        "estimate": int(p.estimate),
        "parameterScale": "log10" if decades else "lin",
        "lowerBound": lower,
        "upperBound": upper,
        "nominalValue": np.nan if p.nominal_value is None else float(p.nominal_value),
        "objectivePriorType": kind,
        "objectivePriorParameters": ";".join(repr(float(v)) for v in p.prior_parameters),
    }


FLAT = ("uniform", "parameterScaleUniform")  # inside the bounds


def read_petab(path: str | Path) -> Problem:
    """The estimation problem of a PEtab YAML file (version 1 or 2, one SBML model).

    Each simulation condition (in version 2 each experiment) is an experiment of its name; each
    observable a column, numbered (`obs`, `obs__2`) where measurements differ in their observable or
    noise parameters. Logarithms are compared where the observable's transformation, or its
    log-normal distribution, says so. Standard deviations that hang on parameters are
    `igpe.EstimatedSigma`. Parameters on a logarithmic scale are searched in logarithms; version
    2 has no
    scales, and positive ones whose bounds are three decades apart are.

    path    of the YAML file; the tables and the model lie where it says
    raises  DataError for tables, ModelError for what an SBML model has that igpe does not read,
            ProblemError if the file is not there, SolverMissing without the extra igpe[petab]
    """
    require_libraries()
    where = Path(path)
    try:
        return _read(where)
    except (IgpeError, OSError):
        raise
    except Exception as error:  # of the libraries, which do not expect every file
        raise DataError(
            f"'{path}' could not be read as a PEtab problem ({type(error).__name__}: "
            f"{str(error)[:200]}). Check it with `petablint`."
        ) from error


def _read(where: Path) -> Problem:
    petab = _tables(where)
    table = petab.parameter_df
    free = table[table["estimate"].astype(int) == 1]
    known = {str(n): number(float(v)) for n, v in _nominal(table.drop(free.index)).items()}
    estimated = {str(n): _parameter(row) for n, row in free.iterrows()}
    sbml = read_sbml(petab.model.sbml_document)
    found = read_conditions(petab, sbml, known, estimated)
    priors = {str(n): prior for n, row in free.iterrows() if (prior := _prior(str(n), row))}
    scales = {n: str(free.loc[n, "parameterScale"]) for n in estimated}
    scales = {n: scale for n, scale in scales.items() if scale in LOGARITHMS}
    model = PetabModel(estimated, found.condition_models, found.transformations, scales)
    return Problem(
        model,
        parameters=list(estimated),
        experiments=found.experiments,
        priors=priors,
        logarithmic=list(scales),
    )


def _tables(path: Path) -> Any:
    """The model and the tables, as version 1 has them, after PEtab's own check."""
    if not path.is_file():
        raise ProblemError(f"There is no PEtab file '{path}' (looked from {Path.cwd()}).")
    config = petab_config(path)
    if str(config.get("format_version", "")).startswith("2"):
        return read_version2(path, config)
    petab = _load(path, config)
    _lint(petab, path)
    return petab


def _load(path: Path, config: dict[str, Any]) -> Any:
    try:
        with quiet():
            found = library("petab.v1").Problem.from_yaml(config, base_path=str(path.parent))
    except Exception as error:  # pydantic's, pandas', petab's
        raise DataError(f"'{path}' is no PEtab problem of version 1 or 2: {error}") from error
    missing = [
        name
        for name in ("model", "condition_df", "measurement_df", "observable_df", "parameter_df")
        if getattr(found, name) is None
    ]
    if missing or not hasattr(found.model, "sbml_document"):
        raise DataError(f"'{path}' lacks {missing or 'an SBML model'}; igpe reads PEtab with SBML.")
    return found


def _lint(petab: Any, path: Path) -> None:
    """What PEtab's own check finds wrong, as one error."""
    told: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            told.append(record.getMessage())

    lint = library("petab.v1.lint")
    listener, before = Listener(logging.ERROR), lint.logger.propagate
    lint.logger.addHandler(listener)
    lint.logger.propagate = False
    try:
        with quiet():
            failed = lint.lint_problem(petab)
    finally:
        lint.logger.removeHandler(listener)
        lint.logger.propagate = before
    if failed:
        raise DataError(f"PEtab's check of '{path}' says: {' '.join(told[:-1])} Mend the files.")


def _nominal(table: pd.DataFrame) -> "pd.Series[float]":
    lost = [str(n) for n in table.index if not np.isfinite(table.loc[n, "nominalValue"])]
    if lost:
        raise DataError(f"The parameters {lost} are not estimated and have no nominalValue.")
    return table["nominalValue"]


def _parameter(row: Any) -> PetabParameter:
    lower, upper = float(row["lowerBound"]), float(row["upperBound"])
    nominal = float(row.get("nominalValue", np.nan))
    middle = np.sqrt(lower * upper) if lower > 0 else (lower + upper) / 2
    return PetabParameter(lower, upper, nominal if np.isfinite(nominal) else float(middle))


def _prior(name: str, row: Any) -> NormalPrior | None:
    """What the objective prior adds; None if nothing.

    raises  ProblemError for laws that are no normal distribution of the parameter itself
    """
    kind = row.get("objectivePriorType")
    if kind is None or pd.isna(kind) or kind in FLAT:
        return None
    linear = row["parameterScale"] == "lin"
    if kind == "normal" or (kind == "parameterScaleNormal" and linear):
        mean, deviation = (float(v) for v in str(row["objectivePriorParameters"]).split(";"))
        return NormalPrior(mean, deviation)
    raise ProblemError(
        f"The prior of '{name}' is {kind} on the scale {row['parameterScale']}; igpe knows normal "
        "ones of the parameter itself. Remove it, or give the parameter a linear scale."
    )
