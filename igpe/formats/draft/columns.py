"""Which columns of a table are measured, which are conditions, and which no one asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from igpe.core.errors import DataError
from igpe.formats.draft.headers import Column, deviation_of, identifier, meant, split_header

DEVIATION = "standard deviations, which not all measured columns have"
CONDITION = "a condition: it does not change"


@dataclass(frozen=True)
class Choice:
    """What the columns beside time and experiment are.

    measured    the columns that the model is to explain
    sigma       measured name -> header of its standard deviations; empty unless all have one
    conditions  headers of numbers that do not change within an experiment
    left_out    header -> why it is not used
    """

    measured: tuple[Column, ...]
    sigma: Mapping[str, str]
    conditions: tuple[str, ...]
    left_out: Mapping[str, str]


def choose(
    table: pd.DataFrame,
    named: Mapping[str, str],
    species: Sequence[str],
    experiments: Sequence[str],
) -> Choice:
    """Sort the columns of a table.

    named        header -> name in the model, as the user says
    species      of the reactions; empty: every column of numbers becomes a quantity
    experiments  of each row
    raises       DataError if nothing is left that could be measured
    """
    measured: list[Column] = []
    others: dict[str, str] = {}
    for header in map(str, table.columns):
        said, unit = split_header(header)
        taken = [c.name for c in measured]
        name = named.get(header) or meant(said, species)
        if name and name in taken:
            raise _twice(name, header, measured)
        why = "" if name else _why_not(table[header], header, species, experiments)
        if why:
            others[header] = why
        else:
            free = name if species else identifier(name or said, taken)
            measured.append(Column(header, free, unit))
    if not measured:
        raise _nothing(list(map(str, table.columns)), species)
    deviations = {h: deviation_of(h) for h, why in others.items() if why == DEVIATION}
    sigma = _sigma(measured, deviations, species)
    conditions = tuple(h for h, why in others.items() if why == CONDITION)
    unused = set(others) - set(conditions) - set(sigma.values())
    return Choice(
        tuple(measured), sigma, conditions, {h: w for h, w in others.items() if h in unused}
    )


def _why_not(
    values: "pd.Series[float]", header: str, species: Sequence[str], experiments: Sequence[str]
) -> str:
    """Why a column that nobody named is not measured; empty if it is."""
    if not pd.to_numeric(values, errors="coerce").notna().any():
        return "no numbers"
    if deviation_of(header):
        return DEVIATION
    if _is_constant(values, experiments):
        return CONDITION
    return "no species of the reactions" if species else ""


def _sigma(
    measured: Sequence[Column], deviations: Mapping[str, str], species: Sequence[str]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for column in measured:
        for header, of in deviations.items():
            names = {column.name, identifier(split_header(column.header)[0]), column.header}
            if of in names or identifier(of) in names or meant(of, species) == column.name:
                found.setdefault(column.name, header)
    return found if len(found) == len(measured) else {}


def _is_constant(values: "pd.Series[float]", experiments: Sequence[str]) -> bool:
    """Whether it has one value in each experiment, and rows enough to tell."""
    counts = values.groupby(np.array(experiments)).nunique()
    return len(values) > len(counts) and bool((counts <= 1).all())


def _twice(name: str, header: str, measured: Sequence[Column]) -> DataError:
    other = next(c.header for c in measured if c.name == name)
    return DataError(
        f"The columns '{other}' and '{header}' both seem to be '{name}'. Remove one from the "
        f"table, or say which is which: --column '{other}={name}' --column '{header}=OTHER_NAME'."
    )


def _nothing(headers: Sequence[str], species: Sequence[str]) -> DataError:
    if not species:
        return DataError(
            f"No column beside the time holds numbers that change: {list(headers)}. Give a table "
            "with one column for each measured quantity."
        )
    example = headers[0] if headers else "c(A) [mol/L]"
    return DataError(
        f"No column is a species of the reactions: the columns are {list(headers)}, the species "
        f"{list(species)}. Say which is which: --column '{example}={species[0]}'."
    )
