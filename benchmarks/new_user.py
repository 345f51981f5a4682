"""A new user: from nothing to a report on their own table, and what they do wrong on the way.

    python benchmarks/new_user.py [words] [path] [mistakes] [workbooks] [frames] [--json FILE]

words     of README.md, and of the result that its example prints
path      an empty folder, a new virtual environment, this checkout from pip, and the user's CSV, as
          a spreadsheet of German settings writes it: commands and wall time until the report
mistakes  every mistake of mistakes.py on the command line (exit code 2, no traceback), and those of
          tests/test_bad_input.py in Python: a message that names the remedy
workbooks files in the layouts of instruments, Excel users and papers (tests/formats/workbooks): how
          many are read right, refused where they must be, and wrong
frames    `igpe.plots.explore` on the models of the repository with up to ten states: processor time
          from a slider that moves to the curve that is drawn, of the slowest slider
"""

import argparse
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from figures import Row, at_least, at_most, command
from mistakes import MISTAKES, Mistake

import igpe

ROOT = Path(__file__).resolve().parent.parent
MOVES, REDRAW = 7, 0.1  # steps of a slider; processor time of one, s
TRUTH = {"k1": 0.05, "k2": 0.02}  # 1/min
COMMANDS = (
    f"python3 -m venv .venv && .venv/bin/pip install -q '{ROOT}'",
    ".venv/bin/igpe new my_problem.py --data 'Reactor 7.csv' --reaction 'A -> B; B -> C'",
    ".venv/bin/igpe estimate my_problem.py --plot fit.png --report report.html --json result.json",
)


def table() -> pd.DataFrame:
    """A -> B -> C from 0.8 mol/L of A, measured with an error of 0.005 mol/L."""
    k1, k2 = TRUTH.values()
    times = np.array([0.0, 5, 10, 15, 20, 30, 40, 60, 80, 100, 120])
    a = 0.8 * np.exp(-k1 * times)
    b = 0.8 * k1 / (k2 - k1) * (np.exp(-k1 * times) - np.exp(-k2 * times))
    noise = 0.005 * np.random.default_rng(7).standard_normal((2, len(times)))
    noise[:, 0] = 0  # what was weighed in
    return pd.DataFrame({
        "Zeit [min]": times,
        "c(A) [mol/L]": (a + noise[0]).round(4),
        "c(B) [mol/L]": (b + noise[1]).round(4),
        "Bemerkung": "",
    })


def path(_: argparse.Namespace) -> Iterator[Row]:
    """From nothing to the report."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table().to_csv(
            folder / "Reactor 7.csv", sep=";", decimal=",", index=False, encoding="cp1252"
        )
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))
        }
        spent = []
        for line in COMMANDS:
            began = time.perf_counter()
            subprocess.run(["sh", "-euc", line], cwd=folder, env=environment, check=True)
            spent.append(time.perf_counter() - began)
        report = (folder / "report.html").read_text(encoding="utf-8")
        found = json.loads((folder / "result.json").read_text(encoding="utf-8"))["parameters"]
    worst = max(abs(found[n] / value - 1) for n, value in TRUTH.items())
    yield at_most("path", "commands", len(COMMANDS), limit=3)
    yield at_most("path", "wall time", sum(spent), "s", 60)
    yield at_most("path", "of which installation", spent[0], "s")
    yield at_most("path", "of which igpe", sum(spent[1:]), "s", 10)
    yield at_most("path", "error of the rate constants", 100 * worst, "%", 5)
    yield at_least("path", "parameters in the report", sum(n in report for n in TRUTH), "-", 2)


def words(_: argparse.Namespace) -> Iterator[Row]:
    """Words of README.md, and of what its example prints."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    printed = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    yield at_most("README.md", "words", len(text.split()), limit=500)
    yield at_most("the result it prints", "words", len(printed[0].split()), limit=120)


def mistakes(_: argparse.Namespace) -> Iterator[Row]:
    """Whether each message says what to do."""
    told, slowest = 0, 0.0
    for name, mistake in MISTAKES.items():
        began = time.perf_counter()
        lost = _lost(mistake)
        slowest = max(slowest, time.perf_counter() - began)
        told += not lost
        yield at_most(name, "what the message lacks", len(lost), limit=0)
    sys.path.insert(0, str(ROOT / "tests"))
    from test_bad_input import CASES  # noqa: PLC0415 - with its models

    for name, (error, attempt, says) in CASES.items():
        try:
            attempt()
            message = ""
        except error as raised:
            message = str(raised)
        lacks = [part for part in says.split(" | ") if part not in message]
        told += not lacks
        yield at_most(name, "what the message lacks", len(lacks), limit=0)
    yield at_least("all", "mistakes that are answered", told, "-", len(MISTAKES) + len(CASES))
    yield at_most("all", "slowest answer", slowest, "s")


def _lost(mistake: Mistake) -> list[str]:
    """What is missing of exit code, message and remedy."""
    folder = Path(tempfile.mkdtemp())
    try:
        mistake.write(folder)
        done = subprocess.run(
            [sys.executable, "-m", "igpe", *mistake.words],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        shutil.rmtree(folder)
    lost = [words for words in mistake.remedy if words not in done.stderr]
    return (
        lost
        + ["exit code 2"] * (done.returncode != 2)
        + ["no traceback"] * ("Traceback" in done.stderr)
    )


def workbooks(_: argparse.Namespace) -> Iterator[Row]:
    """Whether laboratory files are understood."""
    sys.path.append(str(ROOT / "tests" / "formats" / "workbooks"))
    from layouts import count  # noqa: PLC0415 - of the tests

    counted = count()
    yield at_least("workbooks", "read right", counted["right"], "-", 40)
    yield at_most("workbooks", "refused or asked about", counted["refused"])
    yield at_most("workbooks", "read wrongly", counted["wrong"], limit=0)


def frames(_: argparse.Namespace) -> Iterator[Row]:
    """How fast the model follows a slider."""
    slowest = 0.0
    for path in sorted((ROOT / "models").glob("*.py")):
        module = runpy.run_path(str(path))
        best = module.get("OPTIMUM")
        problem = module["problem"]()
        is_best = isinstance(best, dict) and set(best) == set(problem.box.names)
        explorer = igpe.plots.explore(problem, best if is_best else None)
        spent = max(_redraw(explorer, slider) for slider in explorer.sliders.values())
        yield at_most(path.stem, "a redraw", spent, "s", REDRAW)
        slowest = max(slowest, spent)
    yield at_least("slowest", "frames", 1 / slowest, "1/s", 1 / REDRAW)


def _redraw(explorer: Any, slider: Any) -> float:
    """Median of some steps of a slider, up or down so that it stays within its bounds."""
    logarithmic = hasattr(slider, "base")
    place = np.log10(slider.value) if logarithmic else slider.value
    up = place + MOVES * slider.step <= slider.max
    spent = []
    for _ in range(MOVES):
        place += slider.step if up else -slider.step
        began, before = time.process_time(), explorer.parameters
        slider.value = 10**place if logarithmic else place
        spent.append(time.process_time() - began)
        assert explorer.parameters != before
    return float(np.median(spent))


if __name__ == "__main__":
    sections = {
        "words": words,
        "path": path,
        "mistakes": mistakes,
        "workbooks": workbooks,
        "frames": frames,
    }
    command(__doc__, "a new user", sections)
