"""Figures: what every benchmark prints as a table and writes as rows of JSON."""

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

CONSOLE = Console(width=140)
MODELS = Path(__file__).resolve().parent.parent / "models"


class Row(NamedTuple):
    """One figure; reached is None where there is no target."""

    case: str
    figure: str
    value: float
    unit: str
    target: str
    reached: bool | None


def at_most(
    case: str, figure: str, value: float, unit: str = "-", limit: float | None = None
) -> Row:
    """A figure that should not exceed the limit, if there is one."""
    if limit is None:
        return Row(case, figure, value, unit, "", None)
    return Row(case, figure, value, unit, f"<= {limit:g}", value <= limit)


def at_least(case: str, figure: str, value: float, unit: str, limit: float) -> Row:
    """A figure that should not be below the limit."""
    return Row(case, figure, value, unit, f">= {limit:g}", value >= limit)


def show(title: str, rows: Sequence[Row]) -> None:
    """One line for each figure."""
    table = Table("case", "figure", "value", "target", "", title=title)
    for row in rows:
        verdict = {None: "", True: "reached", False: "MISSED"}[row.reached]
        unit = "" if row.unit == "-" else f" {row.unit}"
        table.add_row(row.case, row.figure, f"{row.value:.4g}{unit}", row.target, verdict)
    CONSOLE.print(table)


def written(rows: Sequence[Row]) -> str:
    """Rows as JSON, which knows no infinity and none of NumPy's numbers."""
    plain: list[dict[str, Any]] = [row._asdict() for row in rows]
    for row in plain:
        row["value"] = float(row["value"]) if math.isfinite(row["value"]) else None
        row["reached"] = None if row["reached"] is None else bool(row["reached"])
    return json.dumps(plain, indent=1) + "\n"


Section = Callable[[argparse.Namespace], Iterator[Row]]


def command(
    doc: str | None,
    title: str,
    sections: Mapping[str, Section],
    options: Callable[[argparse.ArgumentParser], Any] = lambda parser: None,
) -> None:
    """The command line of a benchmark: sections to run (default: all), a table of each, --json.

    options  adds the benchmark's own; sections get all that was given
    """
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(sections)}; default: all")
    parser.add_argument("--json", type=Path, help="file for the rows; complete after each section")
    options(parser)
    given = parser.parse_args()
    for name in given.sections:
        if name not in sections:
            parser.error(f"No section '{name}'; there are {', '.join(sections)}.")
    sys.path.append(str(MODELS))
    rows: list[Row] = []
    for name in given.sections or sections:
        found = list(sections[name](given))
        show(f"{title}: {name}", found)
        rows += found
        if given.json:
            given.json.write_text(written(rows), encoding="utf-8")
