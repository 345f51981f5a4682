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
    "without AVX2": {"CC": str(ROOT / ".ci" / "plain-cc")},
}
NUMERICAL = ("numerics", "dynamics/integrators", "smoothing", "algebraic", "structure")


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
        text = _run(SETTINGS[name], quick=quick)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        last = text.strip().splitlines()[-1]
        kinds = ("passed", "failed", "error")
        found = {k: re.search(rf"(\d+) {k}", last) for k in kinds}
        kept.write_text(json.dumps({k: int(m[1]) if m else 0 for k, m in found.items()}))
    counts: dict[str, int] = json.loads(kept.read_text())
    return counts


def _run(setting: dict[str, str], *, quick: bool) -> str:
    rooms = [f"tests/{room}" for room in NUMERICAL] if quick else []
    words = [sys.executable, "-m", "pytest", "-n", "2", "--tb=short", *rooms]
    done = subprocess.run(
        words, cwd=ROOT, env={**os.environ, **setting}, capture_output=True, text=True, check=False
    )
    return done.stdout
