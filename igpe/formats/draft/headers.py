"""What the user's tables hold: times, experiments, measured columns, their units and errors.

A header such as "c(A) [mol/L]" names the quantity c(A) in mol/L. Columns are measured, standard
deviations, conditions, or not used.
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
_MARKS = {"·": "*", "⁻": "-", "¹": "1", "²": "2", "³": "3", "\N{MICRO SIGN}": "u"}
_MARKS |= {"°C": "degC", "^": "**"}
DEVIATION = "standard deviations, which not all measured columns have"
CONDITION = "a condition: it does not change"


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
    """Name and unit of a header: "t / h", "c(A) [mol/L]", "Temp. (°C)", "time_min"."""
    text = header.strip()
    match = _BRACKETS.fullmatch(text)
    if match is not None and not _belongs_to_name(match):
        return match["name"], known_unit(match["unit"])
    for pattern in (_SLASH, _COMMA):
        match = pattern.fullmatch(text)
        if match is not None and known_unit(match["unit"]):
            return match["name"], known_unit(match["unit"])
    name, _, last = text.rpartition("_")
    is_time_unit = name.lower() in TIMES and known_unit(last)
    return (name, known_unit(last)) if is_time_unit else (text, "")


def _belongs_to_name(match: re.Match[str]) -> bool:
    """Whether what stands in brackets is no unit: "c(A)" is not in ampere, "A (total)" has none."""
    if match[0].endswith("]") or not match["unit"].strip(" -%1"):
        return False
    is_letter = len(match["name"]) == 1 or re.fullmatch("[A-Z]", match["unit"]) is not None
    return not known_unit(match["unit"]) or (is_letter and not match["gap"])


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
    candidates = (plain, *(f"{plain}_{number}" for number in range(2, len(taken) + 3)))
    return next(c for c in candidates if c not in taken)


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
    first, *rest = re.split(r"[\s._]+", split_header(header)[0])
    if rest and first.lower() in _SIGMA_WORDS:
        return "_".join(w for w in rest if w.lower() != "of")
    return "_".join([first, *rest[:-1]]) if rest and rest[-1].lower() in _SIGMA_WORDS else ""


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
    measured    the columns that the model is to explain
    sigma       measured name -> header of its standard deviations; empty unless all have one
    conditions  headers of numbers that do not change within an experiment
    left_out    header -> why it is not used
    """

    runs: tuple[TableRun, ...]
    time: Column
    experiment: str
    measured: tuple[Column, ...]
    sigma: Mapping[str, str]
    conditions: tuple[str, ...]
    left_out: Mapping[str, str]

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
    """Read the tables and sort their columns; raises DataError if there is nothing to explain."""
    tables = [read_table(file) for file in files]
    headers = list(dict.fromkeys(str(c) for t in tables for c in t.columns))
    given = [("--time", options.time), ("--experiment", options.experiment)]
    for option, header in [*given, *(("--column", h) for h in options.named)]:
        if header and header not in headers:
            raise DataError(
                f"{option} names the column '{header}', but the table's columns are {headers}."
                f"{closest(header, headers)}"
            )
    runs = options.experiment or _runs_column(headers, tables, options)
    time = options.time or _time_column([h for h in headers if h != runs], tables, options)
    if runs and len(files) > 1:
        raise DataError(
            f"There are {len(files)} tables with a column '{runs}' of experiments; give one table "
            "that holds them all, or one table for each experiment without that column."
        )
    if runs:
        experiments = tables[0][runs].astype(str)
        parts = [(n, files[0], tables[0][experiments == n]) for n in experiments.unique()]
    else:
        experiments = pd.Series([n for n, t in enumerate(tables) for _ in range(len(t))], dtype=str)
        several = len(files) > 1
        parts = [(f.stem * several, f, t) for f, t in zip(files, tables, strict=True)]
    rest = pd.concat(tables, ignore_index=True).drop(columns=[time, *([runs] if runs else [])])
    measured, others = _sorted(rest, options, experiments)
    deviations = {h: deviation_of(h) for h, why in others.items() if why == DEVIATION}
    sigma = _sigma(measured, deviations, options.species)
    names = {time: "time", **{c.header: c.name for c in measured}}
    return Sheet(
        runs=tuple(TableRun(name, file, _checked(name, file, t, names)) for name, file, t in parts),
        time=Column(time, "time", split_header(time)[1]),
        experiment=runs,
        measured=tuple(measured),
        sigma=sigma,
        conditions=tuple(h for h, why in others.items() if why == CONDITION),
        left_out={
            h: why for h, why in others.items() if why != CONDITION and h not in sigma.values()
        },
    )


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


def _sorted(
    table: pd.DataFrame, options: TableOptions, experiments: "pd.Series[str]"
) -> tuple[list[Column], dict[str, str]]:
    """The measured columns of a table, and header -> why it is not one of all others.

    experiments  of each row
    raises       DataError if nothing is left that could be measured
    """
    species, headers = options.species, list(map(str, table.columns))
    measured: dict[str, Column] = {}
    others: dict[str, str] = {}
    for header in headers:
        written, unit = split_header(header)
        name = options.named.get(header) or meant(written, species)
        why = "" if name else _why_not(table[header], header, species, experiments)
        if name in measured:
            other = measured[name].header
            raise DataError(
                f"The columns '{other}' and '{header}' both seem to be '{name}'. Remove one from "
                "the table, or say which is which: --column "
                f"'{other}={name}' --column '{header}=OTHER_NAME'."
            )
        if why:
            others[header] = why
        else:
            free = name if species else identifier(name or written, measured)
            measured[free] = Column(header, free, unit)
    if not measured and not species:
        raise DataError(
            f"No column beside the time holds numbers that change: {headers}. Give a table "
            "with one column for each measured quantity."
        )
    if not measured:
        raise DataError(
            f"No column is a species of the reactions: the columns are {headers}, the species "
            f"{list(species)}. Say which is which: --column "
            f"'{[*headers, 'c(A) [mol/L]'][0]}={species[0]}'."
        )
    return list(measured.values()), others


def _why_not(
    values: "pd.Series[float]", header: str, species: Sequence[str], experiments: "pd.Series[str]"
) -> str:
    """Why a column that nobody named is not measured; empty if it is."""
    if not pd.to_numeric(values, errors="coerce").notna().any():
        return "no numbers"
    if deviation_of(header):
        return DEVIATION
    counts = values.groupby(experiments.to_numpy()).nunique()
    if len(values) > len(counts) and bool((counts <= 1).all()):  # rows enough to tell
        return CONDITION
    return "no species of the reactions" if species else ""


def _sigma(
    measured: Sequence[Column], deviations: Mapping[str, str], species: Sequence[str]
) -> dict[str, str]:
    sigma: dict[str, str] = {}
    for column in measured:
        names = {column.name, identifier(split_header(column.header)[0]), column.header}
        for header, of in deviations.items():
            if of in names or identifier(of) in names or meant(of, species) == column.name:
                sigma.setdefault(column.name, header)
    return sigma if len(sigma) == len(measured) else {}


def _checked(name: str, file: Path, rows: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """The rows in the names of the model, their times in order."""
    table = rows.rename(columns=names).reset_index(drop=True)
    where = f"In '{file}'" + (f", experiment '{name}'" if name else "")
    try:
        time_column(table, replicates=True)
        for column in set(names.values()) & set(table.columns):
            numbers(table, column)
    except DataError as error:
        unsorted = "not sorted" in str(error) and not name
        more = " If a column tells them apart, name it: --experiment 'COLUMN'." * unsorted
        raise DataError(f"{where}: {error}{more}") from None
    if len(table["time"].unique()) < 2:  # noqa: PLR2004 - nothing changes in one moment
        raise DataError(f"{where}: there is only one time; measurements at several are needed.")
    return table.dropna(axis="columns", how="all")
