"""Robust: what surrounds an estimate. Seeded cases, committed before their first run.

    python benchmarks/robust.py [SECTION ...] [--quick] [--store FOLDER] [--only TEXT] [--json FILE]

Sections are the modules of `benchmarks/robust/`; each docstring says what is compared with what.
With `--store` a run that was stopped continues where it was.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import sys
from pathlib import Path

from figures import command
from trust.run import options, sections

HERE = Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "tests"))

SECTIONS = (
    "designs",  # predicted errors and plans beside an independent information matrix, brute force
    "campaigns",  # kills of processes and of Dask workers: what is lost, counted twice, waited for
    "programs",  # fake and real solver programs: statuses, bounds, children left
    "files",  # damaged and hostile files of every format, each in a process of its own
    "writes",  # kills while a file is written
    "processors",  # the tests under other processor settings
)


if __name__ == "__main__":
    command(__doc__, "Robust", sections("robust", SECTIONS), options)
