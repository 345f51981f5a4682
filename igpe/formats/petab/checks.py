"""What is wrong in the tables of a PEtab problem, where PEtab's own check is silent or unclear.

The tables are read as text: what libraries make of them may not tell any more.
"""

from collections.abc import Collection, Iterator, Mapping
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
    kinds = {moved.table for moved in MOVED[version]}
    for kind, name, table in _tables(path, config, kinds):
        for moved in MOVED[version]:
            if kind != moved.table or moved.column not in table:
                continue
            nothing = pd.Series("", index=table.index)
            is_lost = ~table[moved.column].str.strip().isin(moved.plain)
            is_lost &= table.get(moved.instead, nothing).str.strip() == ""
            if is_lost.any():
                raise DataError(
                    f"Rows {_rows(is_lost)} of '{name}' have entries in the column "
                    f"'{moved.column}' of PEtab {3 - version}. The problem has version {version}, "
                    f"which ignores this column. Fill in the column '{moved.instead}', or "
                    f"empty '{moved.column}'."
                )


def explained(path: Path, config: Mapping[str, Any]) -> str:
    """Sentences on the rows in which numbers are missing; empty if there are none."""
    logarithmic = _logarithmic(path, config)
    return "".join(
        f"Rows {_rows(is_wrong)} of '{name}' have {needs} in the column '{column}'. "
        for kind, name, table in _tables(path, config, _WRONG)
        for column, is_wrong, needs in _WRONG[kind](table, logarithmic)
        if is_wrong.any()
    )


def _rows(which: "pd.Series[bool]") -> list[int]:
    """Numbers of the first of these rows, as a reader counts them."""
    return [int(n) + 1 for n in which.index[which][:5]]


YES, NO = ("1", "1.0", "true"), ("0", "0.0", "false")
Wrong = tuple[str, "pd.Series[bool]", str]
"""A column, in which rows it is wrong, and what these have."""


def _no_numbers(cells: "pd.Series[str]") -> "pd.Series[bool]":
    return pd.to_numeric(cells, errors="coerce").isna()


def _logarithmic(path: Path, config: Mapping[str, Any]) -> set[str]:
    """The observables of which logarithms are compared."""
    found: set[str] = set()
    for _, _, table in _tables(path, config, {"observable"}):
        for column in table.columns.intersection(["observableTransformation", "noiseDistribution"]):
            found |= {*table.loc[table[column].str.startswith("log"), "observableId"]}
    return found


def _of_measurements(table: pd.DataFrame, logarithmic: Collection[str]) -> Iterator[Wrong]:
    for column in table.columns.intersection(["time", "measurement"]):
        yield column, _no_numbers(table[column]), "no number"
    if {"observableId", "measurement"} <= set(table):
        values = pd.to_numeric(table["measurement"], errors="coerce")
        is_wrong = table["observableId"].isin(logarithmic) & (values <= 0)
        yield "measurement", is_wrong, "no positive number, which a logarithm needs,"


def _of_parameters(table: pd.DataFrame, _: Collection[str]) -> Iterator[Wrong]:
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


_WRONG = {"measurement": _of_measurements, "parameter": _of_parameters}


def _tables(
    path: Path, config: Mapping[str, Any], kinds: Collection[str]
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Kind ("measurement"), name and cells of each table of these kinds that can be read."""
    for key, name in named(config):
        kind = key.rpartition("_")[0]
        if kind in kinds:
            try:
                content = BytesIO(read(path.parent / name))
                yield kind, name, pd.read_csv(content, sep="\t", dtype=str, keep_default_na=False)
            except (ValueError, OSError):  # told by PEtab's library
                continue
