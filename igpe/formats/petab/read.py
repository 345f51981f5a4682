"""Reading a PEtab problem (https://petab.readthedocs.io, version 1 or 2) with an SBML model.

PEtab of version 2, as the tables of version 1 that the reader knows.

What both versions can say becomes the same: an experiment of one period that begins at time 0 is a
condition; conditions in long format are columns; placeholders get the names they had; a log-normal
distribution is a logarithm that is compared. What only version 2 can say is refused by name.

Version 2 has no parameter scales: how a parameter is searched is left to the program. Positive ones
whose bounds are decades apart are searched in logarithms.
"""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.formats.petab.course import Parameter, PetabModel
from igpe.formats.petab.formulas import (
    inserted,
    library,
    number,
    plain,
    quiet,
    require_libraries,
    symbol,
)
from igpe.formats.petab.guard import petab_config
from igpe.formats.petab.sbml import read_sbml
from igpe.formats.petab.tables import LOGARITHMS, read_conditions
from igpe.problem.losses import NormalPrior
from igpe.problem.problem import Problem

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
    return pd.DataFrame.from_dict(rows, orient="index", dtype=object)


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
    return pd.DataFrame.from_dict(rows, orient="index", dtype=object)


def _placeholders(kind: str, observable: str, given: Iterable[Any]) -> Mapping[str, Any]:
    """Name of a placeholder -> the symbol that stood for it in version 1."""
    return {
        s.name: symbol(f"{kind}Parameter{i}_{observable}") for i, s in enumerate(given, start=1)
    }


def _parameters(petab: Any) -> pd.DataFrame:
    rows = {p.id: _version2_parameter(p) for p in petab.parameters}
    return pd.DataFrame.from_dict(rows, orient="index", dtype=object)


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
    model = PetabModel(estimated, found.courses, found.transformations, scales)
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


def _parameter(row: Any) -> Parameter:
    lower, upper = float(row["lowerBound"]), float(row["upperBound"])
    nominal = float(row.get("nominalValue", np.nan))
    middle = np.sqrt(lower * upper) if lower > 0 else (lower + upper) / 2
    return Parameter(lower, upper, nominal if np.isfinite(nominal) else float(middle))


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
