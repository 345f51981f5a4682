"""Reading a PEtab problem (https://petab.readthedocs.io, version 1 or 2) with an SBML model."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, IgpeError, ProblemError
from igpe.formats.petab.course import Parameter, PetabModel
from igpe.formats.petab.formulas import number
from igpe.formats.petab.guard import petab_config
from igpe.formats.petab.libraries import library, quiet, require_libraries
from igpe.formats.petab.sbml import read_sbml
from igpe.formats.petab.tables import LOGARITHMS, read_conditions
from igpe.formats.petab.version2 import read_version2
from igpe.problem.loss import Normal
from igpe.problem.problem import Problem

FLAT = ("uniform", "parameterScaleUniform")  # inside the bounds


def read_petab(path: str | Path) -> Problem:
    """The estimation problem of a PEtab YAML file (version 1 or 2, one SBML model).

    Each simulation condition (in version 2 each experiment) is an experiment of its name; each
    observable a column, numbered (`obs`, `obs__2`) where measurements differ in their observable or
    noise parameters. Logarithms are compared where the observable's transformation, or its
    log-normal distribution, says so. Standard deviations that hang on parameters are
    `igpe.Estimated`. Parameters on a logarithmic scale are searched in logarithms; version 2 has no
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


def _prior(name: str, row: Any) -> Normal | None:
    """What the objective prior adds; None if nothing.

    raises  ProblemError for laws that are no normal distribution of the parameter itself
    """
    kind = row.get("objectivePriorType")
    if kind is None or pd.isna(kind) or kind in FLAT:
        return None
    linear = row["parameterScale"] == "lin"
    if kind == "normal" or (kind == "parameterScaleNormal" and linear):
        mean, deviation = (float(v) for v in str(row["objectivePriorParameters"]).split(";"))
        return Normal(mean, deviation)
    raise ProblemError(
        f"The prior of '{name}' is {kind} on the scale {row['parameterScale']}; igpe knows normal "
        "ones of the parameter itself. Remove it, or give the parameter a linear scale."
    )
