"""Estimates as a parameter table of PEtab."""

import re
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from igpe.core.errors import DataError, ProblemError
from igpe.core.files import read, write
from igpe.formats.petab.guard import petab_config

ERRORS = {
    "standard_error": "standardError",
    "scale": "standardErrorScale",
    "error_on_scale": "standardErrorOnScale",
    "lower": "lowerConfidence",
    "upper": "upperConfidence",
}
"""Column of `petab_errors` -> that of the table; PEtab allows further columns."""


def write_petab_parameters(
    found: Any, problem: str | Path, path: str | Path, errors: pd.DataFrame | None = None
) -> None:
    """Write the problem's parameter table with the estimates as nominal values.

    Read again by `read_petab`, the nominal parameters are the estimates, to the last digit.

    found    a Result, an Estimate, or unknown -> value
    errors   of `igpe.petab.petab_errors`, written in columns of their own: standardError (of the
             parameter itself), standardErrorOnScale (of its logarithm where standardErrorScale is
             log10 or log), lowerConfidence and upperConfidence (of the parameter itself)
    problem  the PEtab YAML file;  path  the table to write (tab-separated)
    raises   ProblemError for unknowns that the table does not have, or a YAML that names no table;
             DataError for a file at `path` that igpe did not write, or that is the problem's own
    """
    place = Path(path)
    if place.exists() and place.samefile(_table(Path(problem))):
        raise DataError(f"'{path}' is the problem's own parameter table; give another name.")
    write(place, filled_table(found, problem, errors).to_csv(sep="\t", index=False))


def filled_table(
    found: Any, problem: str | Path, errors: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The table that `write_petab_parameters` writes."""
    values: Mapping[str, float] = getattr(found, "parameters", found)
    content = BytesIO(read(_table(Path(problem))))
    table = pd.read_csv(content, sep="\t", dtype=str, keep_default_na=False)
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
    table["nominalValue"] = [
        _text(values[n]) if n in values else old
        for n, old in zip(table["parameterId"], table["nominalValue"], strict=True)
    ]
    told = pd.DataFrame(columns=list(ERRORS)) if errors is None else errors
    for column, name in ERRORS.items() if len(told) else ():
        known = told[column].to_dict()
        table[name] = [_text(known.get(n, "")) for n in table["parameterId"]]
    return table


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


def _text(value: Any) -> str:
    """Every digit of a number; nothing where it is not defined."""
    if isinstance(value, str):
        return value
    return repr(float(value)) if np.isfinite(value) else ""


def _table(problem: Path) -> Path:
    if not problem.is_file():
        raise ProblemError(f"There is no PEtab file '{problem}' (looked from {Path.cwd()}).")
    config = petab_config(problem)
    names = config.get("parameter_files", config.get("parameter_file"))
    files = names if isinstance(names, list) else [names]
    if len(files) > 1:
        raise ProblemError(
            f"'{problem}' names {len(files)} parameter tables; put all parameters into one."
        )
    if not files or not isinstance(files[0], str):
        raise ProblemError(f"'{problem}' names no parameter table; wanted a PEtab problem.")
    return problem.parent / files[0]
