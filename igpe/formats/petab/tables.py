"""The tables of a PEtab problem of version 1 or 2, in the terms of version 1.

Conditions of version 2 in long format are columns; placeholders get the names they had; a
log-normal distribution is a logarithm that is compared. Version 2 has no parameter scales: positive
parameters whose bounds are decades apart are searched in logarithms.

Messages say what is wrong in them, where PEtab's own check is silent or unclear. For these the
tables are read as text, as the libraries' tables no longer show the mistakes.
"""

import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from igpe.core.errors import DataError
from igpe.core.files import read
from igpe.formats.petab.conditions import Period, Timeline, free_name
from igpe.formats.petab.formulas import (
    cells,
    inserted,
    library,
    named,
    parsed,
    plain,
    quiet,
    symbol,
)

DECADES = 1e3  # ratio of positive bounds from which on logarithms are searched
UNNAMED = "model"  # the experiment of measurements that name none: the model as it is
DISTRIBUTIONS = {
    "normal": ("normal", "lin"),
    "log-normal": ("normal", "log"),
    "laplace": ("laplace", "lin"),
    "log-laplace": ("laplace", "log"),
}
"""noiseDistribution of version 2 -> that of version 1, and the transformation."""
NEEDED = {
    "model": "sbml_files",
    "measurement_df": "measurement_files",
    "observable_df": "observable_files",
    "parameter_df": "parameter_file",
}
"""Part of a problem of version 1 -> its entry in the YAML file."""
CONDITION, BEFORE = "simulationConditionId", "preequilibrationConditionId"
PLACEHOLDERS = ("observableParameters", "noiseParameters")
NUMBERS = {"time", "measurement"}  # columns in which rows of one kind differ
CRASHED = "Validation task"  # how messages begin of a check that itself failed
REVERSED = "lowerBound greater than upperBound"  # how messages begin of bounds
UNCLEAR = "No placeholders "  # and of placeholders that rows leave open; `_overlooked` names these
_ROW = re.compile(r"in: |for model_id=")  # before the row that a message is about
_ARRAY = re.compile(r"<\w+>\s*(\[.*?\])\s*Length: \d+, dtype: \w+")  # of pandas, as it is printed
_SERIES = re.compile(r"Name: (\d+), dtype: \w+")  # of pandas: the row of a table, counted from 0
_NAME = r"[A-Za-z_]\w*"  # what PEtab takes for the name of a row
NAMES = ("observableId", "parameterId", CONDITION)  # columns of names
MAY_LACK = ("conditionId", "experimentId", BEFORE)  # and of names that some rows do without
TIMELINE = "timeline"  # column of the measurements: which timeline a row belongs to


class Tables(NamedTuple):
    """Content of a problem's files.

    document      the SBML model
    timelines       the experiments, each named once
    measurements  one row each, with columns `timeline`, `observableId`, `time`, `measurement`,
                  `observableParameters`, `noiseParameters`
    observables   by observableId, columns as in version 1
    parameters    by parameterId, columns as in version 1
    rows          of the measurement table, with its own columns and times
    """

    document: Any
    timelines: tuple[Timeline, ...]
    measurements: pd.DataFrame
    observables: pd.DataFrame
    parameters: pd.DataFrame
    rows: tuple[Mapping[str, Any], ...]


def read_tables(path: Path, config: Mapping[str, Any]) -> Tables:
    """The tables that a YAML file names; raises DataError for what PEtab's check finds."""
    config = {"format_version": 1, **config}  # a missing one PEtab's library takes for a type
    written = config["format_version"]
    version = str(written).partition(".")[0]
    if version not in ("1", "2"):
        raise DataError(
            f"'{path}' is not a valid PEtab problem of version 1 or 2: its format_version is "
            f"{str(written)!r:.50}. Write format_version: 1 or format_version: 2.0.0."
        )
    _refuse_other_version(path, config, int(version))
    if version == "2" and not isinstance(written, str):  # PEtab's library reads text alone
        config = {**config, "format_version": "2.0.0"}
    return (_version2 if version == "2" else _version1)(path, config)


# Version 1


def _version1(path: Path, config: Mapping[str, Any]) -> Tables:
    _require_one_problem(path, config)
    try:
        with quiet():
            petab = library("petab.v1").Problem.from_yaml(dict(config), base_path=str(path.parent))
    except Exception as error:  # pydantic's, pandas', petab's
        raise _unread(path, config, "1 or 2", error) from error
    _require_checked(petab, path, config)
    table = petab.measurement_df.copy()
    before = table[BEFORE] if BEFORE in table else pd.Series("", index=table.index)
    before = before.astype(object).fillna("").astype(str)
    pairs = pd.Series(
        list(zip(before, table[CONDITION].astype(str), strict=True)), index=table.index
    )
    names = _names(pairs.unique())
    table[TIMELINE] = pairs.map(names)
    timelines = []
    for (first, name), timeline in names.items():
        own = Period(0.0, _given(petab.condition_df, name))
        earlier = [Period(-np.inf, _given(petab.condition_df, first))] if first else []
        timelines.append(Timeline(timeline, (*earlier, own), resets=bool(first)))
    return Tables(
        petab.model.sbml_document,
        tuple(timelines),
        table,
        petab.observable_df,
        petab.parameter_df.assign(nominalValue=petab.parameter_df.get("nominalValue", np.nan)),
        _rows(petab.measurement_df),
    )


def _require_checked(petab: Any, path: Path, config: Mapping[str, Any]) -> None:
    """Raise DataError for what a problem lacks, and for what PEtab's check finds."""
    if missing := [f"`{key}`" for name, key in NEEDED.items() if getattr(petab, name) is None]:
        raise DataError(f"'{path}' has no entry {' and '.join(missing)}, which igpe needs.")
    if not hasattr(petab.model, "sbml_document"):
        raise DataError(f"'{path}' lacks an SBML model, which igpe needs.")
    lint = library("petab.v1.lint")
    with _heard(logging.getLogger("petab")) as messages, quiet():
        try:
            failed = lint.lint_problem(_brief(petab))
        except ValueError as error:  # of cells
            failed = True
            messages.append(str(error).rstrip("."))
    if failed:
        reports = [m for m in messages if not m.startswith("Not OK")]
        _refuse(reports or _errors_of(petab.model.sbml_document), path, config)


def _errors_of(document: Any) -> Iterator[str]:
    """Errors of the model that libSBML reports and PEtab's check omits."""
    for error in map(document.getError, range(document.getNumErrors())):
        if error.getSeverity() >= library("libsbml").LIBSBML_SEV_ERROR:
            yield f"libSBML, line {error.getLine()} of the model: {error.getMessage()}"


def _require_one_problem(path: Path, config: Mapping[str, Any]) -> None:
    problems = config.get("problems")
    if not problems:
        raise DataError(
            f"'{path}' is not a valid PEtab problem of version 1 or 2: it has the entries "
            f"{list(config)}, but no entry `problems` with the names of the tables. Give the YAML "
            "file of a PEtab problem."
        )
    if isinstance(problems, list) and len(problems) > 1:
        raise DataError(
            f"'{path}' lists {len(problems)} problems, but igpe reads one at a time. Write a YAML "
            "file for each of them."
        )


def _brief(petab: Any) -> Any:
    """The problem with one measurement of those that differ in time and value alone.

    PEtab's check looks up each row in other tables: of 27,000 it takes seconds. The one that is
    kept has no value if one of them has none, else the smallest: logarithms need positive ones.
    """
    table = petab.measurement_df
    same = [c for c in table if c not in NUMBERS]
    is_read = set(table) >= NUMBERS and all(map(is_numeric_dtype, (table[n] for n in NUMBERS)))
    if not is_read or not same:
        return petab
    brief, ordered = copy(petab), table.sort_values("measurement", na_position="first")
    brief.measurement_df = ordered.drop_duplicates(same).sort_index()
    return brief


@contextmanager
def _heard(logger: logging.Logger) -> Iterator[list[str]]:
    """Collect the errors that a logger receives in the block; it does not pass them on."""
    messages: list[str] = []
    listener = logging.Handler(logging.ERROR)
    listener.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    before, logger.propagate = logger.propagate, False
    logger.addHandler(listener)
    try:
        yield messages
    finally:
        logger.removeHandler(listener)
        logger.propagate = before


def _refuse(messages: Iterable[str], path: Path, config: Mapping[str, Any]) -> None:
    """Raise all messages of PEtab's check as one DataError."""
    texts = (_ARRAY.sub(r"\1", m) for m in messages)
    plain = (_SERIES.sub(lambda row: f"(row {int(row[1]) + 1}).", text) for text in texts)
    each = (part for m in plain for part in re.split(r"\s(?=Mismatch of |No placeholders )", m))
    kept = [" ".join(m.split()) for m in each if not m.startswith(UNCLEAR)]
    kept = [m for m in kept if not m.startswith(CRASHED)] or [
        m.split(" Traceback")[0] for m in kept
    ]
    rows = explained(path, config)
    if "Bound" in rows:  # PEtab compares bounds that are missing, too
        kept = [m for m in kept if not m.startswith(REVERSED)] or ["Bounds are missing"]
    kinds = {_ROW.split(m)[0]: m for m in reversed(kept)}  # the first message of each kind
    report = " ".join(m if m.endswith(".") else f"{m}." for m in reversed(kinds.values()))
    raise DataError(f"PEtab's check of '{path}' reports: {report} {rows}Correct the files.")


def _unread(path: Path, config: Mapping[str, Any], version: str, error: Exception) -> DataError:
    """Error for files that PEtab's library cannot read, without internal details."""
    reason = str(getattr(error, "message", error))  # of a schema, without the schema
    if hasattr(error, "errors"):  # pydantic's
        of = f"in the {getattr(error, 'title', '')} table, "
        reason = of + "; ".join(map(_of_row, error.errors()))
    elif isinstance(error, KeyError) and str(error.args[0]).isidentifier():
        reason = f"there is no column or entry {reason}"
    elif isinstance(error, KeyError):
        reason = reason.strip("'")
    reason = " ".join(reason.split()).rstrip(".")
    return DataError(
        f"'{path}' is not a valid PEtab problem of version {version}: {reason}. "
        f"{explained(path, config)}Correct the files."
    )


def _of_row(error: Mapping[str, Any]) -> str:
    """Message of pydantic about a row, with its name, or about a cell."""
    given, place = error["input"], ".".join(map(str, error["loc"]))
    if isinstance(given, Mapping):
        place = next((f"'{v}'" for k, v in given.items() if str(k).endswith("Id")), place)
    what = error["msg"].removeprefix("Value error, ").rstrip(".")
    is_new = isinstance(given, str) and given not in re.findall(r"[\w-]+", what)
    got = f", got '{given}'" if is_new else ""
    return f"{place}: {what}{got}" if place else f"{what}{got}"


def _overlooked(petab: Any, experiments: Mapping[str, Any]) -> list[str]:
    """Mistakes in tables of version 2 that PEtab's check does not report clearly."""
    mistakes = []
    for kind in ("observable", "noise"):
        places = {o.id: len(getattr(o, f"{kind}_placeholders")) for o in petab.observables}
        given = [
            (m.observable_id, len(getattr(m, f"{kind}_parameters"))) for m in petab.measurements
        ]
        if rows := [n for n, (o, count) in enumerate(given, 1) if places.get(o, count) != count]:
            mistakes.append(
                f"Rows {rows[:5]} of the measurement table have more or fewer {kind}Parameters "
                f"than their observables have {kind}Placeholders."
            )
    used = {m.experiment_id for m in petab.measurements if m.experiment_id}
    if lost := sorted(used - experiments.keys()):
        mistakes.append(
            f"The measurement table refers to the experiments {lost}, which are not in the "
            f"experiment table; the experiment table has {sorted(experiments)}."
        )
    for condition in petab.conditions:
        targets = [c.target_id for c in condition.changes]
        if twice := sorted({t for t in targets if targets.count(t) > 1}):
            mistakes.append(f"The condition '{condition.id}' sets {twice} more than once.")
    return mistakes


def _names(pairs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Pre-equilibration and condition -> the condition's name; both where one has several."""
    names: dict[tuple[str, str], str] = {}
    listed = list(pairs)
    for first, name in listed:
        is_alone = sum(other == name for _, other in listed) == 1
        names[first, name] = name if is_alone or not first else f"{name}_after_{first}"
    return names


def _given(conditions: pd.DataFrame | None, name: str) -> dict[str, Any]:
    if conditions is None or name not in conditions.index:
        listed = [] if conditions is None else list(conditions.index)
        raise DataError(
            f"The measurement table refers to the condition '{name}', which is not in the "
            f"condition table; the condition table has {listed}."
        )
    row = conditions.loc[name].drop("conditionName", errors="ignore")
    return {str(k): parsed(v) for k, v in row.items() if pd.notna(v) and str(v).strip()}


# Version 2


def _version2(path: Path, config: Mapping[str, Any]) -> Tables:
    try:
        with quiet():
            petab = library("petab.v2").Problem.from_yaml(dict(config), base_path=path.parent)
    except Exception as error:  # pydantic's, pandas', petab's
        raise _unread(path, config, "2", error) from error
    _refuse_version2(petab)
    bad = library("petab.v2.lint").ValidationIssueSeverity.ERROR
    with quiet():
        wrong = [issue.message for issue in petab.validate() if issue.level >= bad]
    conditions = {c.id: c for c in petab.conditions}
    experiments = {e.id: e for e in petab.experiments}
    wrong += _overlooked(petab, experiments)
    if wrong:
        _refuse(wrong, path, config)
    unnamed = free_name(UNNAMED, set(experiments))
    written = library("petab.v1.math").petab_math_str
    columns = ["observableId", TIMELINE, "time", "measurement", *PLACEHOLDERS]
    records = [
        {
            "observableId": m.observable_id,
            TIMELINE: m.experiment_id or unnamed,
            "time": m.time,
            "measurement": m.measurement,
            "observableParameters": ";".join(map(written, m.observable_parameters)),
            "noiseParameters": ";".join(map(written, m.noise_parameters)),
        }
        for m in petab.measurements
    ]
    measurements = pd.DataFrame(records, columns=columns)
    return Tables(
        petab.model.sbml_document,
        tuple(
            _timeline(name, experiments.get(name), conditions)
            for name in dict.fromkeys(measurements[TIMELINE])
        ),
        measurements,
        _frame({one.id: _observable(one) for one in petab.observables}),
        _frame({p.id: _version2_parameter(p) for p in petab.parameters}),
        _rows(petab.measurement_df),
    )


def _rows(measurements: pd.DataFrame | None) -> tuple[Mapping[str, Any], ...]:
    """The rows of a measurement table, without columns in which nothing is written."""
    if measurements is None:
        return ()

    def is_written(value: Any) -> bool:
        return bool(value) if isinstance(value, str | list) else bool(pd.notna(value))

    columns = [c for c in measurements if c not in ("modelId", "index")]
    used = [c for c in columns if measurements[c].map(is_written).any()]
    records = measurements[used].to_dict("records")
    return tuple({str(name): value for name, value in row.items()} for row in records)


def _timeline(name: str, experiment: Any, conditions: Mapping[str, Any]) -> Timeline:
    """An experiment's periods; conditions of one period are set together."""
    listed = [] if experiment is None else experiment.sorted_periods
    periods: list[Period] = []
    for period in listed:
        time = -np.inf if period.is_preequilibration else float(period.time)
        changes = {
            change.target_id: plain(change.target_value)
            for condition in period.condition_ids
            for change in conditions[condition].changes
        }
        if periods and periods[-1].time == time:
            periods[-1] = Period(time, {**periods[-1].changes, **changes})
        else:
            periods.append(Period(time, changes))
    if not periods or periods[-1].time == -np.inf:
        periods.append(Period(0.0, {}))
    return Timeline(name, tuple(periods))


def _frame(rows: Mapping[str, Mapping[str, Any]]) -> pd.DataFrame:
    return pd.DataFrame(list(rows.values()), index=list(rows), dtype=object)


def _refuse_version2(petab: Any) -> None:
    extensions = getattr(petab.config, "extensions", None)
    if extensions:
        raise DataError(
            f"The problem uses the extensions {sorted(map(str, extensions))}; igpe does not "
            "support PEtab extensions. Remove them from the YAML file if they are not required."
        )
    if len(petab.models) != 1:
        raise DataError(
            f"The problem has {len(petab.models)} models, but igpe supports only one. Write a "
            "separate problem for each model."
        )
    if not hasattr(petab.model, "sbml_document"):
        raise DataError("The problem's model is not in SBML; igpe reads only SBML.")
    aliases = [m.petab_id for m in petab.mappings if m.model_id and m.model_id != m.petab_id]
    if aliases:
        raise DataError(
            f"The mapping table renames {aliases}, which igpe does not support; use the model's "
            "own names in the tables, and remove the mapping."
        )


def _observable(one: Any) -> dict[str, Any]:
    """The row of version 1: placeholders have the symbols that stood for them there."""
    placeholders = {"observable": one.observable_placeholders, "noise": one.noise_placeholders}
    named = {
        s.name: symbol(f"{kind}Parameter{i}_{one.id}")
        for kind, symbols in placeholders.items()
        for i, s in enumerate(symbols, start=1)
    }
    kind = str(one.noise_distribution.value)
    noise, scale = DISTRIBUTIONS.get(kind, (kind, "lin"))
    return {
        "observableFormula": inserted(plain(one.formula), named),
        "noiseFormula": inserted(plain(one.noise_formula), named),
        "observableTransformation": scale,
        "noiseDistribution": noise,
    }


def _version2_parameter(p: Any) -> dict[str, Any]:
    prior = p.prior_distribution
    kind = None if prior is None else str(getattr(prior, "value", prior))
    lower, upper = (
        open_end if b is None else float(b) for b, open_end in ((p.lb, -np.inf), (p.ub, np.inf))
    )
    low, high = p.prior_parameters if kind in ("uniform", "log-uniform") else (lower, upper)
    low, high = max(lower, low), min(upper, high)
    return {
        "estimate": int(p.estimate),
        "parameterScale": "log10" if 0 < DECADES * low <= high < np.inf else "lin",
        "lowerBound": lower,
        "upperBound": upper,
        "nominalValue": np.nan if p.nominal_value is None else float(p.nominal_value),
        "from": low,
        "to": high,
        "objectivePriorType": kind,
        "objectivePriorParameters": ";".join(repr(float(v)) for v in p.prior_parameters),
    }


class _Moved(NamedTuple):
    """A column that another version of PEtab has.

    table  end of the YAML key without "_file(s)";  instead: the column of this version
    plain  cells that say nothing
    """

    table: str
    column: str
    instead: str
    plain: tuple[str, ...] = ("",)


MOVED = {
    1: (_Moved("parameter", "priorDistribution", "objectivePriorType"),),
    2: (
        _Moved("observable", "observableTransformation", "noiseDistribution", ("", "lin")),
        _Moved("parameter", "objectivePriorType", "priorDistribution"),
        _Moved("measurement", "simulationConditionId", "experimentId"),
        _Moved("measurement", "preequilibrationConditionId", "experimentId"),
    ),
}
"""Version -> columns of the other one that would change the objective, were they not ignored."""


def _refuse_other_version(path: Path, config: Mapping[str, Any], version: int) -> None:
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
                    f"Rows {_row_numbers(is_lost)} of '{name}' have entries in the column "
                    f"'{moved.column}' of PEtab {3 - version}. The problem has version {version}, "
                    f"which ignores this column. Fill in the column '{moved.instead}', or "
                    f"empty '{moved.column}'."
                )


def explained(path: Path, config: Mapping[str, Any]) -> str:
    """Sentences on the rows in which numbers are missing; empty if there are none."""
    logarithmic = _logarithmic(path, config)
    return "".join(
        f"Rows {_row_numbers(is_wrong)} of '{name}' have {needs} in the column '{column}'. "
        for kind, name, table in _tables(path, config, _WRONG)
        for column, is_wrong, needs in _WRONG[kind](table, logarithmic)
        if is_wrong.any()
    )


def _row_numbers(which: "pd.Series[bool]") -> list[int]:
    """Numbers of the first of these rows, counted from 1."""
    return [int(n) + 1 for n in which.index[which][:5]]


YES, NO = ("1", "1.0", "true"), ("0", "0.0", "false")
Wrong = tuple[str, "pd.Series[bool]", str]
"""A column, in which rows it is wrong, and what these have."""


def _no_numbers(column: "pd.Series[str]") -> "pd.Series[bool]":
    return pd.to_numeric(column.str.strip(), errors="coerce").isna()


def _of_names(table: pd.DataFrame, _: Collection[str]) -> Iterator[Wrong]:
    """Names that PEtab's library takes for numbers, or for nothing."""
    for column in table.columns.intersection([*NAMES, *MAY_LACK]):
        is_wrong = ~table[column].str.strip().str.fullmatch(_NAME + "|" * (column in MAY_LACK))
        yield column, is_wrong, "no name (letters, digits and _, a digit not first)"


def _logarithmic(path: Path, config: Mapping[str, Any]) -> set[str]:
    """The observables of which logarithms are compared."""
    observables: set[str] = set()
    for _, _, table in _tables(path, config, {"observable"}):
        if "observableId" not in table:
            continue
        for column in table.columns.intersection(["observableTransformation", "noiseDistribution"]):
            observables |= {*table.loc[table[column].str.startswith("log"), "observableId"]}
    return observables


def _of_measurements(table: pd.DataFrame, logarithmic: Collection[str]) -> Iterator[Wrong]:
    yield from _of_names(table, logarithmic)
    for column in table.columns.intersection(["time", "measurement"]):
        yield column, _no_numbers(table[column]), "no number"
    if {"observableId", "measurement"} <= set(table):
        values = pd.to_numeric(table["measurement"], errors="coerce")
        is_wrong = table["observableId"].isin(logarithmic) & (values <= 0)
        yield "measurement", is_wrong, "no positive number, which a logarithm needs,"


def _of_parameters(table: pd.DataFrame, _: Collection[str]) -> Iterator[Wrong]:
    table = table.apply(lambda column: column.str.strip())
    yield from _of_names(table, ())
    if "estimate" in table:
        flags = table["estimate"].str.lower()
        yield "estimate", ~flags.isin([*YES, *NO]), "neither 0 nor 1 (PEtab 2: true or false)"
        for column in table.columns.intersection(["lowerBound", "upperBound"]):
            yield column, flags.isin(YES) & _no_numbers(table[column]), "no number"
    if "nominalValue" in table:
        values = table["nominalValue"]
        yield "nominalValue", (values != "") & _no_numbers(values), "no number"
    for use in ("objective", "initialization"):
        kinds, numbers = f"{use}PriorType", f"{use}PriorParameters"
        if {kinds, numbers} <= set(table):
            given = table[numbers].str.split(";")
            is_pair = given.map(lambda p: len(p) == 2 and not _no_numbers(pd.Series(p)).any())  # noqa: PLR2004
            yield numbers, (table[kinds] != "") & ~is_pair, "no two numbers separated by ';'"


_WRONG = {
    "measurement": _of_measurements,
    "parameter": _of_parameters,
    "observable": _of_names,
    "condition": _of_names,
    "experiment": _of_names,
}


def _tables(
    path: Path, config: Mapping[str, Any], kinds: Collection[str]
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Kind ("measurement"), name and cells of each table of these kinds that can be read."""
    for key, name in named(config):
        kind = key.rpartition("_")[0]
        if kind in kinds:
            with suppress(ValueError, OSError):  # which PEtab's library reports
                yield kind, name, cells(read(path.parent / name))
