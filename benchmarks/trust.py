"""Trust: nothing false before or after the proof. Seeded cases, judged by independent means.

    python benchmarks/trust.py [SECTION ...] [--quick] [--store FOLDER] [--only TEXT] [--json FILE]

Sections are the modules of `benchmarks/trust/`; each docstring says what is compared with what.
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
sys.path += [str(HERE.parent / "tests"), str(HERE.parent / "tests" / "structure")]  # known_models

SECTIONS = (
    "simulation",  # random models: igpe.simulate beside SciPy on Pyomo's own expressions
    "verdicts",  # igpe.check: known models, and random ones beside the rank of sensitivities
    "agreement",  # check and estimate beside the rank of the Jacobian at the optimum
    "optima",  # problems with several equally good optima: all of them are reported
    "lack_of_fit",  # good fits and wrong models: how often the alarm is raised
    "small_samples",  # coverage of intervals from few measurements
    "interrupts",  # Ctrl-C and time limits at any moment
    "drafts",  # coverage of intervals from problem files that `igpe new` writes
    "petab",  # objectives of public problems with switches
    "edges",  # proofs where arithmetic overflows or divides by zero, beside grids of points
    "known",  # igpe.check: models with known answers
    "agreement_cost",  # what comparing each translation with Pyomo's values costs
)


if __name__ == "__main__":
    command(__doc__, "Trust", sections("trust", SECTIONS), options)
