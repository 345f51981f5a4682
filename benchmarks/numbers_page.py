"""The page `docs/numbers.md`: how fast, how sure, against whom, on one screen.

    python benchmarks/numbers_page.py                write the page from benchmarks/measured
    python benchmarks/numbers_page.py stamp NAME ... record that NAME.json was measured here, today

`docs/benchmarks.md` (`page.py`) has every figure behind it.
"""

import argparse
import json
import math
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from page import HERE, PAGE, _number, _of, loaded
from peers.registry import PEERS

NUMBERS = PAGE.with_name("numbers.md")
CONDITIONS = HERE / "measured" / "conditions.json"
PACKAGES = ("pyomo", "casadi", "numpy", "scipy")
HEAD = """# Speed and reliability compared

This page compares igpe, which gets no start values, with other methods: how long they take, how
often they reach the best known objective, and how fast they integrate. All times are processor
seconds of one thread. For each problem, all methods get the same model and measurements. A method
reaches the optimum if its parameter values give an objective that is at most 0.1 % above the best
objective of all methods. igpe computes these objectives by accurate integrations. The page
[All comparisons](benchmarks.md) contains all values.

## Compared with other methods

The column "fastest other" names the fastest other method that reaches the optimum, and gives its
total time for all starts. A user needs all this time, because the optimum is not known beforehand.
Only igpe's time includes the translation and compilation of the model. For AMICI,
translation and compilation take about 20 s, which the table does not include. After finding the
optimum, `igpe.estimate` also searches for other sets of values that fit equally well, and computes
intervals. The other methods return only the optimum. igpe does not attempt a proof here
(`certify=False`). The times were measured on different dates (see below).

"""
WINNERS = """
**Methods that reach the optimum in a shorter total time than igpe** \
(in brackets, for each problem): {total}.

**Methods that are faster than igpe if they stop as soon as they reach the known optimum** \
(in brackets, for each problem): {knowing}.

## Reliability

| method | problems | reaches the best known optimum |
|---|---|---|
"""
SPEED = """
## Speed

The table gives the time in milliseconds for one simulation with all forward sensitivities. For
each output and each unknown, the error is at most 1e-6 times the largest sensitivity of this output
to this unknown.

"""
GROWTH = """
The table describes how the run time of `igpe.estimate` grows with the size of the problem, for a
chain of reactions (`benchmarks/growth.py`). The column "power" gives the exponent of this growth.

"""
WHEN = """
## Date, machine and versions

`python benchmarks/numbers_page.py` writes this page from the measurements in `benchmarks/measured`.

| measurement | date | machine | versions |
|---|---|---|---|
"""


def against() -> Iterator[str]:
    """One row for each problem: igpe, the fastest other, and who misses the optimum."""
    runs = loaded("peers*.json")
    yield "| problem | igpe | fastest other | methods that do not reach the optimum |"
    yield "|---|---|---|---|"
    for case in cases(runs):
        own = {p: _of(runs, case, p) for p in PEERS}
        posed = {p: o for p, o in own.items() if "time to it" in o}
        others = {p: o["time of all"] for p, o in posed.items() if _reached(o) and p != "igpe"}
        best = min(others, key=lambda p: others[p] or math.inf, default="")
        missed = [p for p, o in posed.items() if not _reached(o)]
        fastest = f"{best}, {_number(others[best])} s" if best else "none"
        mine = f"{_number(own['igpe']['time to it'])} s"
        yield f"| {case} | {mine} | {fastest} | {', '.join(missed) or 'none'} |"


def winners() -> str:
    """Sentences on the problems on which a peer needs less time."""
    runs = loaded("peers*.json")

    def faster(figure: str) -> str:
        lists = []
        for case in cases(runs):
            mine = _of(runs, case, "igpe")["time to it"] or math.inf
            own = {p: _of(runs, case, p) for p in PEERS if p != "igpe"}
            names = [p for p, o in own.items() if _reached(o) and (o[figure] or math.inf) < mine]
            lists += [f"{case} ({', '.join(names)})"] if names else []
        return "; ".join(lists) or "none"

    return WINNERS.format(total=faster("time of all"), knowing=faster("time to it"))


def sure() -> Iterator[str]:
    """Return how often each method reaches the optimum."""
    runs = loaded("peers*.json")
    for peer, entry in PEERS.items():
        posed = [o for c in cases(runs) if "time to it" in (o := _of(runs, c, peer))]
        if posed:
            yield f"| {peer}: {entry.told} | {len(posed)} | {sum(map(_reached, posed))} |"


def speed() -> Iterator[str]:
    """Milliseconds of the methods, by model."""
    merged: dict[tuple[str, str], float | None] = {}
    for run in loaded("sensitivities*.json"):
        merged |= run
    level = ": right to 1e-06"
    right = {(c, f.removesuffix(level)): v for (c, f), v in merged.items() if f.endswith(level)}
    models = list(dict.fromkeys(c for c, _ in right))
    yield f"| | {' | '.join(models)} |"
    yield "|---" * (len(models) + 1) + "|"
    for method in dict.fromkeys(m for _, m in right):
        cells = [_number(right[c, method]) if (c, method) in right else "" for c in models]
        yield f"| {method} | {' | '.join(cells)} |"


def growth() -> Iterator[str]:
    """Powers of time by what grows."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for (case, figure), value in loaded("growth.json")[0].items():
        if figure == "igpe" and value is not None:
            what, n = case.split()
            curves.setdefault(what, []).append((float(n), value))
    yield "| number of | power | from | to |\n|---|---|---|---|"
    for what, curve in curves.items():
        (n, a), (m, b) = curve[0], curve[-1]
        power = math.log(b / a) / math.log(m / n)
        yield f"| {what} | {power:.2f} | {n:g}: {_number(a)} s | {m:g}: {_number(b)} s |"


def conditions() -> Iterator[str]:
    """One row for each file of measurements."""
    known = _known()
    for path in sorted((HERE / "measured").glob("*.json")):
        if path != CONDITIONS:
            one = known[path.stem]
            yield f"| {path.stem} | {one['date']} | {one['machine']} | {one['versions']} |"


def cases(runs: Sequence[Any]) -> list[str]:
    """Return the problems that igpe was given."""
    return list(dict.fromkeys(c for run in runs for c, f in run if f == "igpe: time to it"))


def _reached(own: Mapping[str, float | None]) -> bool:
    return own.get("time to it") is not None


def _known() -> dict[str, dict[str, str]]:
    known: dict[str, dict[str, str]] = json.loads(CONDITIONS.read_text(encoding="utf-8"))
    return known


def stamp(names: Sequence[str]) -> None:
    """Record date, machine and versions of measurements."""
    import igpe  # noqa: PLC0415 - only here

    here = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, {platform.system()}",
        "versions": ", ".join(
            [f"igpe {igpe.__version__}", f"Python {platform.python_version()}"]
            + [f"{name} {version(name)}" for name in PACKAGES]
        ),
    }
    known = _known() | dict.fromkeys(names, here)
    lines = [f" {json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(known.items())]
    CONDITIONS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def written() -> str:
    """Return the page."""
    parts = [HEAD + "\n".join(against()), winners() + "\n".join(sure())]
    parts += [SPEED + "\n".join(speed()), GROWTH + "\n".join(growth())]
    return "\n".join([*parts, WHEN + "\n".join(conditions())]) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stamp", nargs="*", help="'stamp' and names of measurements")
    given = parser.parse_args().stamp
    if given[:1] == ["stamp"]:
        stamp(given[1:])
    NUMBERS.write_text(written(), encoding="utf-8")
