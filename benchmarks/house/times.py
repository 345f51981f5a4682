"""Processor seconds of a first use in a fresh process, and of the tests of every room.

First uses are medians of repeated runs, beside those of the commit `--before`; bytecode is compiled
by a run that does not count. `--only TEXT` takes the cases whose name contains the text, and
`--store FOLDER` keeps the seconds of rooms, to resume from.
"""

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from figures import Row, at_most

ROOT = Path(__file__).resolve().parents[2]
REPEATS = 7
ESTIMATE = "import consecutive, igpe; igpe.estimate(consecutive.problem(), certify=False)"
FIRST_USES = {
    "igpe --help": ("from igpe.cli import main; main()", ["--help"], 0.5),
    "import igpe; igpe.Problem": ("import igpe; igpe.Problem", [], 1.0),
    "first estimate": (ESTIMATE, [], 2.0),
}
"""Case -> code, its arguments, and the most seconds it should take."""
ROOM, ALL = 60.0, 960.0  # s that the tests of a room and all of them should take: two cores, 8 min


def options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this section."""
    parser.add_argument("--store", type=Path, help="folder that keeps answers, to resume from")
    parser.add_argument("--only", help="take only the cases whose name contains this text")


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Seconds of first uses, then those of tests."""
    with tempfile.TemporaryDirectory() as folder:
        before = _exported(given.before, Path(folder))
        for case in _chosen(FIRST_USES, given):
            *_, most = FIRST_USES[case]
            if before:
                yield at_most(case, "processor, before", _first_use(case, before), "s")
            yield at_most(case, "processor", _first_use(case, ROOT), "s", most)
    yield from _of_tests(given)


def _chosen(cases: Sequence[str] | dict[str, object], given: argparse.Namespace) -> list[str]:
    return [case for case in cases if not given.only or given.only in case]


def _first_use(case: str, package: Path) -> float:
    """Median of the processor seconds of fresh processes."""
    code, arguments, _ = FIRST_USES[case]
    folders = os.pathsep.join(map(str, (package, ROOT / "models")))
    with tempfile.TemporaryDirectory() as bytecode:
        more = {"PYTHONPATH": folders, "PYTHONPYCACHEPREFIX": bytecode, "OMP_NUM_THREADS": "1"}
        more |= {"PYTHONDONTWRITEBYTECODE": "", "OPENBLAS_NUM_THREADS": "1"}
        words = [sys.executable, "-c", code, *arguments]
        runs = [_processor(words, more) for _ in range(1 + REPEATS)]
    if any(status for status, _ in runs):
        return float("nan")
    return statistics.median(seconds for _, seconds in runs[1:])


def _processor(words: Sequence[str], more: dict[str, str]) -> tuple[int, float]:
    """Run a command: its exit status, and the processor seconds of it and of its children."""
    run = subprocess.Popen(
        words, cwd=ROOT, env=os.environ | more, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(run.pid, 0)
    run.returncode = os.waitstatus_to_exitcode(status)
    return run.returncode, usage.ru_utime + usage.ru_stime


def _of_tests(given: argparse.Namespace) -> Iterator[Row]:
    """Seconds of README's tests, room by room; those beside the rooms are a room as well."""
    store = given.store / "times.json" if given.store else None
    known = json.loads(store.read_text()) if store and store.exists() else {}
    tests = ROOT / "tests"
    rooms = {
        f"tests/{d.name}": [str(d)] for d in sorted(tests.iterdir()) if any(d.glob("**/test_*.py"))
    }
    rooms["tests/*.py"] = sorted(map(str, tests.glob("test_*.py")))
    for case in _chosen(rooms, given):
        if case not in known:
            words = [sys.executable, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider"]
            status, seconds = _processor([*words, *rooms[case]], {})
            known[case] = float("nan") if status else seconds
            if store:
                store.parent.mkdir(parents=True, exist_ok=True)
                store.write_text(json.dumps(known, indent=1))
        yield at_most(case, "processor", known[case], "s", ROOM if case != "tests/*.py" else None)
    if not given.only:
        yield at_most("all tests", "processor", sum(known[c] for c in rooms), "s", ALL)


def _exported(commit: str, folder: Path) -> Path | None:
    """A folder with the package of a commit; None where the checkout has no history."""
    words = ["git", "-C", str(ROOT), "archive", commit, "igpe"]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode:
        return None
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder
