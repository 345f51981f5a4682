"""PEtab of version 2, as the tables of version 1 that the reader knows.

What both versions can say becomes the same: an experiment of one period that begins at time 0 is a
condition; conditions in long format are columns; placeholders get the names they had; a log-normal
distribution is a logarithm that is compared. What only version 2 can say is refused by name.

Version 2 has no parameter scales: how a parameter is searched is left to the program. Positive ones
whose bounds are decades apart are searched in logarithms.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from igpe.core.errors import DataError
from igpe.formats.petab.formulas import inserted, plain, symbol
from igpe.formats.petab.libraries import library, quiet

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
    rows = {p.id: _parameter(p) for p in petab.parameters}
    return pd.DataFrame.from_dict(rows, orient="index", dtype=object)


def _parameter(p: Any) -> dict[str, Any]:
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
