"""What the header of a column says: "c(A) [mol/L]" is the quantity c(A) in mol/L.

What the user's tables hold: times, experiments, measured columns, their units and errors.

Which columns of a table are measured, which are conditions, and which no one asks for.
"""

import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import pandas as pd
import pint
import pyomo.environ as pyo
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import closest
from igpe.core.errors import DataError
from igpe.problem.tables import numbers, read_table, time_column
from igpe.problem.units import require_unit

TIMES = {"time", "times", "t", "zeit", "temps", "tempo", "tiempo", "elapsed"}
RUNS = {"experiment", "run", "exp", "batch", "trial", "lauf", "versuch"}
TAKEN = {"t", "time", "experiment", *dir(pyo.ConcreteModel())}
"""Names that a variable of a model cannot have."""

NO_UNIT = pint.PintError, ValueError, TypeError, AttributeError, AssertionError, ArithmeticError
_BRACKETS = re.compile(r"(?P<name>.*\S)(?P<gap>\s*)[\[({](?P<unit>[^\[({]*)[\])}]")
_SLASH = re.compile(r"(?P<name>.*\S)\s+(?:/|in)\s+\(?(?P<unit>[^)]*)\)?")
_COMMA = re.compile(r"(?P<name>.*\S),\s*(?P<unit>\S+)")
_BEFORE = re.compile(r"(?i)(concentration|conc\.?|c)[\s._]*(of\s+)?")
_SIGMA_WORDS = ("sd", "std", "sigma", "err", "error", "stddev")
_MARKS = {
    "·": "*",
    "⁻": "-",
    "¹": "1",
    "²": "2",
    "³": "3",
    "\N{MICRO SIGN}": "u",
    "°C": "degC",
    "^": "**",
}


@dataclass(frozen=True)
class Column:
    """A column of the user's table.

    header  as it stands in the table
    name    in the model
    unit    as text that Pyomo understands; empty if there is none, or none that it knows
    """

    header: str
    name: str
    unit: str


def split_header(header: str) -> tuple[str, str]:
    """Name and unit of a header, as in "t / h", "c(A) [mol/L]", "Temp. (°C)", "time_min".

    Brackets without a space before them, as in "c(A)", belong to the name, but for [...].
    """
    text = header.strip()
    found = _BRACKETS.fullmatch(text)
    if found is not None and not _belongs_to_name(found):
        return found["name"], known_unit(found["unit"])
    for pattern in (_SLASH, _COMMA):
        found = pattern.fullmatch(text)
        if found is not None and known_unit(found["unit"]):
            return found["name"], known_unit(found["unit"])
    name, _, last = text.rpartition("_")
    if name.lower() in TIMES and known_unit(last):
        return name, known_unit(last)
    return text, ""


def _belongs_to_name(found: re.Match[str]) -> bool:
    """Whether what stands in brackets is no unit: "c(A)" is not in ampere, "A (total)" has none."""
    is_empty = not found["unit"].strip(" -%1")
    if found[0].endswith("]") or is_empty:
        return False
    if not known_unit(found["unit"]):
        return True
    is_letter = len(found["name"]) == 1 or re.fullmatch("[A-Z]", found["unit"]) is not None
    return is_letter and not found["gap"]


def known_unit(text: str) -> str:
    """The unit in a form that Pyomo understands: "mol L⁻¹" is "mol L**-1"; empty if unknown."""
    for mark, plain in _MARKS.items():
        text = text.replace(mark, plain)
    text = text.strip().removesuffix(".")
    powers = re.sub(r"(?<=[A-Za-z])(-?\d+)", r"**\1", text)
    for form in (text, powers, re.sub(r"\s+", "*", powers)):
        if not re.search("[A-Za-z]", form):
            continue
        try:
            found = pyomo_units.pint_registry.parse_units(require_unit(form))
        except NO_UNIT:
            continue
        if not found.dimensionless:
            return form
    return ""


def dimension(unit: str) -> dict[str, float]:
    """Base dimension -> power: {"[time]": 1.0}."""
    if not unit:
        return {}
    registry = pyomo_units.pint_registry
    return {
        str(n): float(p) for n, p in registry.parse_units(require_unit(unit)).dimensionality.items()
    }


def is_time(header: str) -> bool:
    """Whether a header speaks of time."""
    words = re.findall(r"[^\W\d_]+", split_header(header)[0])
    if not words or words[0] == "T":  # a temperature
        return False
    lower = [w.lower() for w in words]
    return lower[0] in TIMES or "time" in lower or "zeit" in lower


def is_run(header: str) -> bool:
    """Whether a header speaks of experiments."""
    words = re.findall(r"[^\W\d_]+", header.lower())
    rest = {"id", "no", "nr", "number", "name"}
    return bool(words) and words[0] in RUNS and set(words[1:]) <= rest


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """A name for a variable of the model: letters, digits, underscores; not one of `taken`."""
    kept = (c if f"x{c}".isidentifier() else " " for c in normalize("NFKC", name))
    plain = re.sub(r"\W+", "_", "".join(kept)).strip("_") or "x"
    plain = plain if plain.isidentifier() else f"x{plain}"
    if plain in TAKEN or keyword.iskeyword(plain):
        plain += "_"
    free = plain
    for number in range(2, len(taken) + 3):
        if free not in taken:
            break
        free = f"{plain}_{number}"
    return free


def meant(name: str, species: Iterable[str]) -> str:
    """The species that a column called "c_A", "[A]", "conc. of acid" or "ACID" is; or ""."""
    known = list(species)
    bare = name.strip(" []()")
    forms = [bare, _BEFORE.sub("", bare, count=1).strip(" []()_")]
    for form in (re.sub(r"\W+", "_", f).strip("_") for f in forms):
        same = [s for s in known if s == form] or [s for s in known if s.lower() == form.lower()]
        if len(same) == 1:
            return same[0]
    return ""


def deviation_of(header: str) -> str:
    """What a column such as "sd_A", "A sd" or "error of A" is the standard deviation of; or ""."""
    words = re.split(r"[\s._]+", split_header(header)[0])
    if len(words) > 1 and words[0].lower() in _SIGMA_WORDS:
        return "_".join(w for w in words[1:] if w.lower() != "of")
    if len(words) > 1 and words[-1].lower() in _SIGMA_WORDS:
        return "_".join(words[:-1])
    return ""


def named_column(header: str, headers: Iterable[str], option: str) -> str:
    """The header, if the table has it. Raises DataError with the one that was probably meant."""
    known = list(headers)
    if header in known:
        return header
    raise DataError(
        f"{option} names the column '{header}', but the table's columns are {known}."
        f"{closest(header, known)}"
    )


DEVIATION = "standard deviations, which not all measured columns have"
CONDITION = "a condition: it does not change"


@dataclass(frozen=True)
class ColumnChoice:
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
) -> ColumnChoice:
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
    return ColumnChoice(
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


class TableRun(NamedTuple):
    """One experiment: its name, its file, and its table in the names of the model."""

    name: str
    file: Path
    table: pd.DataFrame


@dataclass(frozen=True)
class TableOptions:
    """What the user said of the tables.

    time, experiment  headers of these columns; "" to find them
    named             header -> name in the model
    species           of the reactions; empty: every column becomes a quantity of its own
    """

    time: str = ""
    experiment: str = ""
    named: Mapping[str, str] = field(default_factory=dict)
    species: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """What was found in the tables.

    runs        one for each experiment
    time        the column of times
    experiment  header of the column that names the experiments; "" if each file is one
    choice      which of the other columns are what
    """

    runs: tuple[TableRun, ...]
    time: Column
    experiment: str
    choice: ColumnChoice

    @property
    def measured(self) -> tuple[Column, ...]:
        """The columns that the model is to explain."""
        return self.choice.measured

    @property
    def files(self) -> tuple[Path, ...]:
        """The tables' files, each once."""
        return tuple(dict.fromkeys(run.file for run in self.runs))

    @property
    def replicated(self) -> bool:
        """Whether several rows of an experiment have the same time."""
        return any(bool(run.table["time"].duplicated().any()) for run in self.runs)

    @property
    def size(self) -> int:
        """Number of measurements."""
        names = [c.name for c in self.measured]
        return sum(int(r.table.reindex(columns=names).notna().to_numpy().sum()) for r in self.runs)


def read_sheet(files: Sequence[Path], options: TableOptions) -> Sheet:
    """Read the tables and find out which column is what.

    raises DataError if there is no time, no order in it, or nothing that could be measured
    """
    tables = [read_table(file) for file in files]
    headers = list(dict.fromkeys(str(c) for t in tables for c in t.columns))
    for option, header in (("--time", options.time), ("--experiment", options.experiment)):
        if header:
            named_column(header, headers, option)
    for header in options.named:
        named_column(header, headers, "--column")
    runs = options.experiment or _runs_column(headers, tables, options)
    time = options.time or _time_column([h for h in headers if h != runs], tables, options)
    whole = pd.concat(tables, ignore_index=True)
    groups = _groups(tables, runs)
    rest = [h for h in headers if h not in (time, runs)]
    choice = choose(whole[rest], options.named, options.species, groups)
    names = {time: "time", **{c.header: c.name for c in choice.measured}}
    found = [
        TableRun(name, file, _checked(name, file, rows, names))
        for file, table in zip(files, tables, strict=True)
        for name, rows in _parts(file, table, runs, files)
    ]
    return Sheet(tuple(found), Column(time, "time", split_header(time)[1]), runs, choice)


def _runs_column(
    headers: Sequence[str], tables: Sequence[pd.DataFrame], options: TableOptions
) -> str:
    """A column that names experiments, if it names any of them twice."""
    for header in headers:
        if is_run(header) and header not in options.named:
            entries = pd.concat([t[header] for t in tables if header in t.columns])
            if bool(entries.duplicated().any()):
                return header
    return ""


def _time_column(
    headers: Sequence[str], tables: Sequence[pd.DataFrame], options: TableOptions
) -> str:
    """The one column that speaks of time, else the first one if its numbers increase."""
    free = [h for h in headers if h not in options.named]
    speaking = [h for h in free if is_time(h)]
    exact = [h for h in speaking if h == "time"] or speaking
    if len(exact) == 1:
        return exact[0]
    if not exact and free and all(_increases(t, free[0]) for t in tables):
        return free[0]
    several = f"; {exact} all speak of time" if exact else ""
    raise DataError(
        f"Which column holds the times? The table has {list(headers)}{several}. Say it: "
        f"--time '{(exact or free or ['t / h'])[0]}'."
    )


def _increases(table: pd.DataFrame, header: str) -> bool:
    if header not in table.columns or table[header].dtype.kind not in "iuf":
        return False
    values = table[header].to_numpy(dtype=float)
    return bool(np.isfinite(values).all() and (np.diff(values) > 0).all())


def _groups(tables: Sequence[pd.DataFrame], runs: str) -> list[str]:
    """For each row of all tables, which experiment it is of."""
    return [
        str(entry)
        for number, table in enumerate(tables)
        for entry in (table[runs] if runs in table.columns else [number] * len(table))
    ]


def _parts(
    file: Path, table: pd.DataFrame, runs: str, files: Sequence[Path]
) -> list[tuple[str, pd.DataFrame]]:
    """The experiments of one file: name -> rows."""
    if not runs:
        return [(file.stem if len(files) > 1 else "", table)]
    if len(files) > 1:
        raise DataError(
            f"There are {len(files)} tables with a column '{runs}' of experiments; give one table "
            "that holds them all, or one table for each experiment without that column."
        )
    names = table[runs].astype(str)
    return [(name, table[names == name]) for name in names.unique()]


def _checked(name: str, file: Path, rows: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The rows in the names of the model, their times in order."""
    table = rows.rename(columns=names).reset_index(drop=True)
    where = f"In '{file}'" + (f", experiment '{name}'" if name else "")
    try:
        time_column(table, replicates=True)
        for column in set(names.values()) & set(table.columns):
            numbers(table, column)
    except DataError as error:
        more = (
            " If a column tells them apart, name it: --experiment 'COLUMN'."
            if "not sorted" in str(error) and not name
            else ""
        )
        raise DataError(f"{where}: {error}{more}") from None
    if len(table["time"].unique()) < 2:  # noqa: PLR2004 - nothing changes in one moment
        raise DataError(f"{where}: there is only one time; measurements at several are needed.")
    return table.dropna(axis="columns", how="all")
