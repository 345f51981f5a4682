"""Reading a PEtab problem (https://petab.readthedocs.io, version 1 or 2) with an SBML model.

Tables of version 2 become those of version 1. An experiment of one period that begins at time 0 is
a condition; conditions in long format are columns; placeholders get the names they had; a
log-normal distribution is a logarithm that is compared. What only version 2 can say is refused by
name. Version 2 has no parameter scales: positive parameters whose bounds are decades apart are
searched in logarithms.

Each simulation condition becomes an experiment.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.formats.petab.formulas import (
    inserted,
    library,
    named,
    names_in,
    number,
    parsed,
    petab_config,
    plain,
    quiet,
    symbol,
)
from igpe.formats.petab.sbml import Meaning, PetabModel, PetabParameter, Sbml, read_sbml
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import step_input
from igpe.problem.losses import NormalPrior
from igpe.problem.noise.estimated import EstimatedSigma
from igpe.problem.problem import Problem
from igpe.problem.tables import SOURCE, checksum

NEEDED = ("petab.v1", "libsbml", "sbmlmath", "sympy", "yaml")
LOGARITHMS = {"log": 1.0, "log10": float(np.log(10.0))}  # natural logarithm of their base
DECADES = 1e3  # ratio of positive bounds from which on logarithms are searched
UNNAMED = "model"  # the experiment of measurements that name none: the model as it is
DISTRIBUTIONS = {"normal": ("normal", "lin"), "log-normal": ("normal", "log")}
"""noiseDistribution of version 2 -> that of version 1, and the transformation."""
FLAT = ("uniform", "parameterScaleUniform")  # priors inside the bounds
TABLES = ("model", "condition_df", "measurement_df", "observable_df", "parameter_df")


def read_petab(path: str | Path) -> Problem:
    """The estimation problem of a PEtab YAML file (version 1 or 2, one SBML model).

    Each simulation condition (in version 2 each experiment) is an experiment of its name; each
    observable a column, numbered (`obs`, `obs__2`) where measurements differ in their observable or
    noise parameters. Logarithms are compared where the observable's transformation, or its
    log-normal distribution, says so. Standard deviations that depend on parameters are
    `igpe.EstimatedSigma`. Parameters on a logarithmic scale are searched in logarithms; version 2
    has no scales, and positive ones whose bounds are three decades apart are.

    path    of the YAML file; the tables and the model lie where it says
    raises  DataError for tables, ModelError for what an SBML model has that igpe does not read,
            ProblemError if the file is not there, SolverMissing without the extra igpe[petab]
    """
    for name in NEEDED:
        library(name)
    try:
        return _read(Path(path))
    except (IgpeError, OSError):
        raise
    except Exception as error:  # of the libraries, which do not expect every file
        raise DataError(
            f"'{path}' could not be read as a PEtab problem ({type(error).__name__}: "
            f"{str(error)[:200]}). Check it with `petablint`."
        ) from error


def _read(path: Path) -> Problem:
    if not path.is_file():
        raise ProblemError(f"There is no PEtab file '{path}' (looked from {Path.cwd()}).")
    config = petab_config(path)
    is_version2 = str(config.get("format_version", "")).startswith("2")
    petab = (_version2 if is_version2 else _version1)(path, config)
    table = petab.parameter_df
    free = table[table["estimate"].astype(int) == 1]
    fixed = table.drop(free.index)["nominalValue"]
    lost = [str(n) for n, v in fixed.items() if not np.isfinite(v)]
    if lost:
        raise DataError(f"The parameters {lost} are not estimated and have no nominalValue.")
    known = {str(n): number(float(v)) for n, v in fixed.items()}
    files = (name for key, name in named(config) if key == "measurement_files")
    petab.measurement_df.attrs[SOURCE] = "; ".join(checksum(path.parent / f) for f in files)
    estimated = {str(n): _parameter(row) for n, row in free.iterrows()}
    experiments, conditions, transformations = _experiments(
        petab, read_sbml(petab.model.sbml_document), known, set(estimated)
    )
    priors = {str(n): prior for n, row in free.iterrows() if (prior := _prior(str(n), row))}
    scales = {n: str(free.loc[n, "parameterScale"]) for n in estimated}
    scales = {n: scale for n, scale in scales.items() if scale in LOGARITHMS}
    return Problem(
        PetabModel(estimated, conditions, transformations, scales),
        parameters=list(estimated),
        experiments=experiments,
        priors=priors,
        logarithmic=list(scales),
    )


def _parameter(row: Any) -> PetabParameter:
    lower, upper = float(row["lowerBound"]), float(row["upperBound"])
    nominal = float(row.get("nominalValue", np.nan))
    middle = np.sqrt(lower * upper) if lower > 0 else (lower + upper) / 2
    return PetabParameter(lower, upper, nominal if np.isfinite(nominal) else float(middle))


def _prior(name: str, row: Any) -> NormalPrior | None:
    """The objective prior, or None; raises ProblemError for laws that are not normal."""
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


class MeasurementRow(NamedTuple):
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


def _experiments(
    petab: Any, sbml: Sbml, known: Mapping[str, Any], estimated: set[str]
) -> tuple[list[Experiment], dict[str, Any], dict[str, str]]:
    """The measurement, observable and condition tables.

    petab      with the tables of version 1
    known      name -> number by the parameter table;  estimated: parameters that it estimates
    returns    experiments; condition -> its model; measured name -> logarithm that is compared
    raises     DataError for what igpe does not read, by its name
    """
    table = petab.measurement_df
    _refuse_tables(table, petab.observable_df)
    meanings = {
        n: Meaning(sbml, _given(petab.condition_df, n), known, estimated)
        for n in dict.fromkeys(table["simulationConditionId"].astype(str))
    }
    reader = _MeasurementReader(petab.observable_df, meanings)
    rows = [reader.row(record) for record in table.to_dict("records")]
    taken = {*sbml.values, *sbml.rates, *sbml.rules, *estimated}
    columns: dict[tuple[str, str, str], str] = {}
    for key in dict.fromkeys(row.key for row in rows):
        count = 1 + sum(other[0] == key[0] for other in columns)
        name = f"observable_{key[0]}" if key[0] in taken else key[0]
        columns[key] = name if count == 1 else f"{name}__{count}"
    models, experiments = {}, []
    for name, meaning in meanings.items():
        own = [r for r in rows if r.condition == name]
        outputs = {columns[r.key]: r.formula for r in own}
        noise = {f"noise_{columns[r.key]}": r.noise for r in own if not r.noise.is_number}
        models[name] = meaning.condition_model(outputs | noise)
        switches, source = models[name].switches, table.attrs[SOURCE]
        experiments.append(_experiment(name, own, columns, switches, source))
    scales = {column: reader.scale(key[0]) for key, column in columns.items()}
    return experiments, models, {c: s for c, s in scales.items() if s in LOGARITHMS}


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
        self._formulas: dict[tuple[str, ...], tuple[Any, Any]] = {}

    def scale(self, observable: str) -> str:
        """On which scale it is compared."""
        given = self.observables.loc[observable].get("observableTransformation")
        return "lin" if pd.isna(given) or not given else str(given)

    def row(self, record: Mapping[Any, Any]) -> MeasurementRow:
        """One row of the measurement table."""
        observable, condition = str(record["observableId"]), str(record["simulationConditionId"])
        given = (record.get(f"{kind}Parameters") for kind in ("observable", "noise"))
        texts = tuple("" if pd.isna(text) else str(text) for text in given)
        where = (condition, observable, *texts)
        if where not in self._formulas:
            self._formulas[where] = self._read(condition, observable, texts)
        formula, noise = self._formulas[where]
        key = (observable, texts[0], "" if noise.is_number else texts[1])
        value, scale = float(record["measurement"]), self.scale(observable)
        if scale != "lin":
            if not value > 0:
                raise DataError(
                    f"A measurement of '{observable}' is {value:g}, but its logarithm is compared "
                    f"({scale}); leave it out or compare it as it is."
                )
            value = float(np.log(value) / LOGARITHMS[scale])
        return MeasurementRow(condition, key, float(record["time"]), value, formula, noise)

    def _read(self, condition: str, observable: str, texts: tuple[str, ...]) -> tuple[Any, Any]:
        """What is measured and its standard deviation, constants inserted."""
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
                f"The placeholders {left} of '{observable}' have no value in a row of the "
                "measurement table; give them, separated by ';'."
            )
        formula, noise = map(self.meanings[condition].over_time, (formula, noise))
        scale, log = self.scale(observable), library("sympy").log
        if scale in LOGARITHMS:
            formula = log(formula) / (1 if scale == "log" else log(10))
        return formula, noise


def _experiment(
    name: str,
    rows: list[MeasurementRow],
    columns: Mapping[tuple[str, str, str], str],
    switches: Mapping[str, tuple[float, float, float]],
    source: str,
) -> Experiment:
    records: list[dict[str, float]] = []
    sigma: dict[str, str | EstimatedSigma] = {}
    for row in rows:
        column = columns[row.key]
        record = {"time": row.time, column: row.value}
        if row.noise.is_number:
            sigma[column] = f"sigma_{column}"
            record[f"sigma_{column}"] = float(row.noise)
        else:
            sigma[column] = EstimatedSigma(f"noise_{column}")
        records.append(record)
    table = pd.DataFrame(records).sort_values("time", kind="stable", ignore_index=True)
    table.attrs[SOURCE] = source
    return Experiment(
        table,
        name=name,
        start_time=0.0,
        inputs={n: step_input([0.0, at], levels) for n, (at, *levels) in switches.items()},
        sigma=sigma,
        replicates=True,
    )


def _version1(path: Path, config: dict[str, Any]) -> Any:
    """The tables, after PEtab's own check."""
    try:
        with quiet():
            petab = library("petab.v1").Problem.from_yaml(config, base_path=str(path.parent))
    except Exception as error:  # pydantic's, pandas', petab's
        raise DataError(f"'{path}' is no PEtab problem of version 1 or 2: {error}") from error
    missing = [name for name in TABLES if getattr(petab, name) is None]
    if missing or not hasattr(petab.model, "sbml_document"):
        raise DataError(f"'{path}' lacks {missing or 'an SBML model'}; igpe reads PEtab with SBML.")
    messages: list[str] = []
    listener = logging.Handler(logging.ERROR)
    listener.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    lint = library("petab.v1.lint")
    before, lint.logger.propagate = lint.logger.propagate, False
    lint.logger.addHandler(listener)
    try:
        with quiet():
            failed = lint.lint_problem(petab)
    finally:
        lint.logger.removeHandler(listener)
        lint.logger.propagate = before
    _require_sound(messages[:-1] if failed else [], path, failed)
    return petab


def _require_sound(messages: list[str], path: Path, failed: bool) -> None:
    """Raise what PEtab's own check finds wrong as one error."""
    if failed:
        raise DataError(f"PEtab's check of '{path}' says: {' '.join(messages)} Mend the files.")


def _version2(path: Path, config: dict[str, Any]) -> SimpleNamespace:
    """The tables of a problem of version 2, columns and indices as in version 1."""
    try:
        with quiet():
            petab = library("petab.v2").Problem.from_yaml(config, base_path=path.parent)
    except Exception as error:  # pydantic's, pandas', petab's
        raise DataError(f"'{path}' is no PEtab problem of version 2: {error}") from error
    _refuse_version2(petab)
    bad = library("petab.v2.lint").ValidationIssueSeverity.ERROR
    with quiet():
        wrong = [issue.message for issue in petab.validate() if issue.level >= bad]
    _require_sound(wrong, path, bool(wrong))
    conditions = {c.id: c for c in petab.conditions}
    experiments = {e.id: e for e in petab.experiments}
    unnamed = UNNAMED
    while unnamed in experiments:
        unnamed += "_"
    written = library("petab.v1.math").petab_math_str
    measurements = [
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
    return SimpleNamespace(
        model=petab.model,
        condition_df=_frame({
            name: {
                change.target_id: change.target_value
                for period in _only_period(experiments.get(name))
                for condition in period.condition_ids
                for change in conditions[condition].changes
            }
            for name in dict.fromkeys(m["simulationConditionId"] for m in measurements)
        }),
        measurement_df=pd.DataFrame(measurements),
        observable_df=_frame({one.id: _observable(one) for one in petab.observables}),
        parameter_df=_frame({p.id: _version2_parameter(p) for p in petab.parameters}),
    )


def _frame(rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows.values()), index=list(rows), dtype=object)


def _refuse_version2(petab: Any) -> None:
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


def _only_period(experiment: Any) -> list[Any]:
    """The period, beginning at time 0, of an experiment; none where it has none."""
    periods = [] if experiment is None else experiment.sorted_periods
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
    return list(periods)


def _observable(one: Any) -> dict[str, Any]:
    """The row of version 1: placeholders have the symbols that stood for them there."""
    placeholders = {"observable": one.observable_placeholders, "noise": one.noise_placeholders}
    named = {
        s.name: symbol(f"{kind}Parameter{i}_{one.id}")
        for kind, symbols in placeholders.items()
        for i, s in enumerate(symbols, start=1)
    }
    kind = str(one.noise_distribution.value)
    noise, scale = DISTRIBUTIONS.get(kind, (kind, "lin"))
    return {
        "observableFormula": inserted(plain(one.formula), named),
        "noiseFormula": inserted(plain(one.noise_formula), named),
        "observableTransformation": scale,
        "noiseDistribution": noise,
    }


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
    return {
        "estimate": int(p.estimate),
        "parameterScale": "log10" if lower > 0 and upper / lower >= DECADES else "lin",
        "lowerBound": lower,
        "upperBound": upper,
        "nominalValue": np.nan if p.nominal_value is None else float(p.nominal_value),
        "objectivePriorType": kind,
        "objectivePriorParameters": ";".join(repr(float(v)) for v in p.prior_parameters),
    }
