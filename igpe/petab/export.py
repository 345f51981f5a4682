"""Estimates as a parameter table of PEtab."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from igpe.errors import ProblemError
from igpe.petab.libraries import library


def write_petab_parameters(found: Any, problem: str | Path, path: str | Path) -> None:
    """Write the problem's parameter table with the estimates as nominal values.

    found    a Result, an Estimate, or unknown -> value
    problem  the PEtab YAML file;  path  the table to write (tab-separated)
    raises   ProblemError for unknowns that the table does not have, or a YAML that names no table
    """
    values: Mapping[str, float] = getattr(found, "parameters", found)
    table = pd.read_csv(_table(Path(problem)), sep="\t", dtype=str, keep_default_na=False)
    strangers = sorted(set(values) - set(table["parameterId"]))
    if strangers:
        raise ProblemError(
            f"The parameter table of '{problem}' has no {strangers}; it has "
            f"{list(table['parameterId'])}. Give the YAML file that the problem was read from."
        )
    lost = sorted(n for n, v in values.items() if not np.isfinite(v))
    if lost:
        raise ProblemError(f"The values of {lost} are not finite; there is nothing to export.")
    if "nominalValue" not in table:
        table["nominalValue"] = ""
    told = [repr(float(values[n])) if n in values else "" for n in table["parameterId"]]
    table["nominalValue"] = [
        new or old for new, old in zip(told, table["nominalValue"], strict=True)
    ]
    table.to_csv(path, sep="\t", index=False)


def parameter_table(estimates: Iterable[Any]) -> pd.DataFrame:
    """A new parameter table of PEtab from the `estimates` of a Result.

    raises  ProblemError for names that PEtab does not allow, or bounds that it does not know
    """
    rows = []
    for e in estimates:
        if re.fullmatch(r"[A-Za-z_]\w*", e.name, flags=re.ASCII) is None:
            raise ProblemError(
                f"'{e.name}' is no name for PEtab, which allows letters, digits and underscores. "
                "For a table of all estimates write .csv or .xlsx instead."
            )
        if not np.isfinite([*e.bounds, e.value]).all():
            raise ProblemError(
                f"'{e.name}' has the value {e.value:g} and the bounds {e.bounds}; PEtab needs "
                "finite numbers. Give bounds, and estimate again."
            )
        rows.append({
            "parameterId": e.name,
            "parameterScale": "lin",
            "lowerBound": e.bounds[0],
            "upperBound": e.bounds[1],
            "nominalValue": e.value,
            "estimate": 1,
        })
    return pd.DataFrame(rows)


def _table(problem: Path) -> Path:
    if not problem.is_file():
        raise ProblemError(f"There is no PEtab file '{problem}' (looked from {Path.cwd()}).")
    config = library("yaml").safe_load(problem.read_text(encoding="utf-8"))
    name = config.get("parameter_file") if isinstance(config, dict) else None
    if not isinstance(name, str):
        raise ProblemError(
            f"'{problem}' names no single parameter_file; wanted a PEtab problem of version 1."
        )
    return problem.parent / name
