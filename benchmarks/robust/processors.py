"""The tests under five processor settings.

Haswell, Zen, Prescott  OpenBLAS is told that it runs on this processor (OPENBLAS_CORETYPE)
generic                 Numba compiles for a processor without extensions (NUMBA_CPU_NAME)
without AVX2            igpe's own C is compiled without it: by a compiler that leaves out the flag

With `--quick` the rooms that compute the most. What was printed is kept in the store's folder.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from figures import Row, at_least, at_most

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "Zen": {"OPENBLAS_CORETYPE": "Zen"},
    "Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "generic": {"NUMBA_CPU_NAME": "generic"},
    "without AVX2": {"CC": "plain-cc"},
}
NUMERICAL = ("least_squares", "integrators", "smoothing", "statistics", "algebraic", "structure")
COMPILER = """#!/bin/sh
for word; do shift; [ "$word" = -mavx2 ] || set -- "$@" "$word"; done
exec {compiler} "$@"
"""


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Tests that failed, for each setting."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.store or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for name in SETTINGS:
            if not given.only or given.only in name:
                counts = _counts(name, folder, quick=given.quick)
                yield at_least(name, "passed", counts["passed"], "-", 1)
                yield at_most(name, "failed", counts["failed"] + counts["error"], "-", 0)


def _counts(name: str, folder: Path, *, quick: bool) -> dict[str, int]:
    kept = folder / f"{name}.json"
    if not kept.exists():
        text = _run(SETTINGS[name], folder, quick=quick)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        last = text.strip().splitlines()[-1]
        kinds = ("passed", "failed", "error")
        found = {k: re.search(rf"(\d+) {k}", last) for k in kinds}
        kept.write_text(json.dumps({k: int(m[1]) if m else 0 for k, m in found.items()}))
    counts: dict[str, int] = json.loads(kept.read_text())
    return counts


def _run(setting: dict[str, str], folder: Path, *, quick: bool) -> str:
    environment = {**os.environ, **setting}
    if "CC" in setting:
        compiler = (folder / setting["CC"]).resolve()
        compiler.write_text(COMPILER.format(compiler=shutil.which("cc")), encoding="utf-8")
        compiler.chmod(0o755)
        environment["CC"] = str(compiler)
    rooms = [f"tests/{room}" for room in NUMERICAL] if quick else []
    words = [sys.executable, "-m", "pytest", "-n", "2", "--tb=short", *rooms]
    done = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    return done.stdout
