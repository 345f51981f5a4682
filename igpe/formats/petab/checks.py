"""What is wrong in the tables of a PEtab problem, where PEtab's own check is silent or unclear.

The tables are read as text: what libraries make of them may not tell any more.
"""

from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from igpe.core.errors import DataError
from igpe.core.files import read
from igpe.formats.petab.formulas import named


class Moved(NamedTuple):
    """A column that another version of PEtab has.

    table  end of the YAML key without "_file(s)";  instead: the column of this version
    plain  cells that say nothing
    """

    table: str
    column: str
    instead: str
    plain: tuple[str, ...] = ("",)


MOVED = {
    1: (Moved("parameter", "priorDistribution", "objectivePriorType"),),
    2: (
        Moved("observable", "observableTransformation", "noiseDistribution", ("", "lin")),
        Moved("parameter", "objectivePriorType", "priorDistribution"),
        Moved("measurement", "simulationConditionId", "experimentId"),
        Moved("measurement", "preequilibrationConditionId", "experimentId"),
    ),
}
"""Version -> columns of the other one that would change the objective, were they not ignored."""


def refuse_other_version(path: Path, config: Mapping[str, Any], version: int) -> None:
    """Raise DataError for cells in columns of the other version, unless this one's are filled."""
    for kind, name, table in _tables(path, config):
        for moved in MOVED[version]:
            if kind != moved.table or moved.column not in table:
                continue
            nothing = pd.Series("", index=table.index)
            is_lost = ~table[moved.column].str.strip().isin(moved.plain)
            is_lost &= table.get(moved.instead, nothing).str.strip() == ""
            if is_lost.any():
                rows = [int(n) + 1 for n in table.index[is_lost][:5]]
                raise DataError(
                    f"Rows {rows} of '{name}' have entries in the column '{moved.column}' of PEtab "
                    f"{3 - version}. The problem has version {version}, which ignores this column. "
                    f"Fill in the column '{moved.instead}', or empty '{moved.column}'."
                )


def explained(path: Path, config: Mapping[str, Any]) -> str:
    """Sentences on the rows in which numbers are missing; empty if there are none."""
    found = ""
    for kind, name, table in _tables(path, config):
        for column, is_wrong, needs in _WRONG.get(kind, lambda _: ())(table):
            if is_wrong.any():
                rows = [int(n) + 1 for n in table.index[is_wrong][:5]]
                found += f"Rows {rows} of '{name}' have {needs} in the column '{column}'. "
    return found


Wrong = tuple[str, "pd.Series[bool]", str]
"""A column, in which rows it is wrong, and what these have."""


def _no_numbers(cells: "pd.Series[str]") -> "pd.Series[bool]":
    return pd.to_numeric(cells, errors="coerce").isna()


def _of_measurements(table: pd.DataFrame) -> Iterator[Wrong]:
    for column in table.columns.intersection(["time", "measurement"]):
        yield column, _no_numbers(table[column]), "no number"


def _of_parameters(table: pd.DataFrame) -> Iterator[Wrong]:
    cells = table.apply(lambda column: column.str.strip())
    if "estimate" in cells:
        flags = cells["estimate"].str.lower()
        yield "estimate", ~flags.isin([*YES, *NO]), "neither 0 nor 1 (PEtab 2: true or false)"
        for column in cells.columns.intersection(["lowerBound", "upperBound"]):
            yield column, flags.isin(YES) & _no_numbers(cells[column]), "no number"
    if "nominalValue" in cells:
        values = cells["nominalValue"]
        yield "nominalValue", (values != "") & _no_numbers(values), "no number"
    if {"objectivePriorType", "objectivePriorParameters"} <= set(cells):
        given = cells["objectivePriorParameters"].str.split(";")
        is_pair = given.map(lambda p: len(p) == 2 and not _no_numbers(pd.Series(p)).any())  # noqa: PLR2004
        is_prior = cells["objectivePriorType"] != ""
        yield "objectivePriorParameters", is_prior & ~is_pair, "no two numbers separated by ';'"


YES, NO = ("1", "1.0", "true"), ("0", "0.0", "false")
_WRONG = {"measurement": _of_measurements, "parameter": _of_parameters}


def _tables(path: Path, config: Mapping[str, Any]) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Kind ("measurement"), name and cells of each table that can be read."""
    for key, name in named(config):
        kind = key.rpartition("_")[0]
        if kind in ("observable", "parameter", "measurement", "condition", "experiment"):
            try:
                content = BytesIO(read(path.parent / name))
                yield kind, name, pd.read_csv(content, sep="\t", dtype=str, keep_default_na=False)
            except (ValueError, OSError):  # told by PEtab's library
                continue
