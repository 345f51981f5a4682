"""Faults planted at the public door, and which of them the tests see.

Each of `house.wrong` is planted in a process of its own, which runs the tests that should see it
until the first one fails. A fault that cannot be planted any more counts as missed.
"""

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from figures import Row, at_least
from trust.run import Answer, add, stored

from house.planting import FAULTS
from house.wrong import load

ROOT = Path(__file__).resolve().parents[2]
SHARE, SEED = 3, 0  # --quick plants one fault in so many, drawn with this seed
LIMIT = 1200.0  # s for the tests of one fault
BEFORE, MEASURED_AT = 64, "b06a908"  # caught by the tests of that commit, of 75
FAILED = 1  # pytest's code where a test failed


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this section alone."""
    parser.add_argument("--quick", action="store_true", help=f"one fault in {SHARE}")
    parser.add_argument(
        "--checkout", type=Path, default=ROOT, help="whose package and tests are used"
    )


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """How many faults were planted and caught, and each that was missed."""
    load()
    names = [n for n in FAULTS if not given.only or given.only in n]
    if given.quick:
        names = random.Random(SEED).sample(names, len(names) // SHARE)
    store = given.store / "faults.jsonl" if given.store else None
    known = dict(stored(store))
    for name in names:
        if name not in known:
            known[name] = _planted(name, given.checkout.resolve())
            add(store, name, known[name])
    missed = [n for n in names if not known[n]["caught"]]
    for name in missed:
        yield at_least(name, f"caught ({FAULTS[name].sentence})", 0, "-", 1)
    if not (given.quick or given.only):
        yield at_least("all", "faults planted", len(names), "-", 60)
        yield at_least("all", f"faults caught at {MEASURED_AT}", BEFORE, "-", 0)
    yield at_least("all", "faults caught", len(names) - len(missed), "-", len(names))


def _planted(name: str, checkout: Path) -> Answer:
    """Run the tests of a fault: whether one failed, which, and why."""
    paths = _paths(FAULTS[name].tests, checkout / "tests")
    words = ["-x", "-n", "0", "--tb=short", "-p", "no:cacheprovider", "-p", "house.plugin"]
    folders = os.pathsep.join(map(str, (checkout, ROOT / "benchmarks")))
    settings = {"PYTHONPATH": folders, "IGPE_FAULT": name, "MPLBACKEND": "agg"}
    begin = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *paths],
            cwd=checkout, env=os.environ | settings, timeout=LIMIT, check=False,
            capture_output=True, text=True,
        )  # fmt: skip
        code, lines = done.returncode, (done.stdout + done.stderr).splitlines()
    except subprocess.TimeoutExpired:
        code, lines = -1, [f"not finished in {LIMIT:g} s"]
    first = next((line for line in lines if line.startswith("FAILED ")), "")
    why = [line for line in lines if line.startswith("E  ")][:2] or lines[-1:]
    seconds = time.monotonic() - begin
    caught = code == FAILED and bool(first)
    return {"caught": caught, "code": code, "by": first, "why": why, "seconds": seconds}


def _paths(names: Sequence[str], tests: Path) -> list[str]:
    """The folders and files of these names, in the order of the names."""
    found = [p for n in names for p in (*tests.rglob(f"{n}.py"), *tests.rglob(n))]
    return list(dict.fromkeys(str(p) for p in found if p.is_dir() or p.suffix == ".py"))
