"""The kineticist's toolbox: the figures of all its benchmarks by one command.

    python benchmarks/toolbox.py [spectra] [kinetics] [rivals] [design] [errors] [reconciliation]
                                 [--json FILE]

Each section runs the benchmark that its line in SECTIONS names, in a process of its own. The
docstring of that benchmark describes the figures. All of them take hours; run one section at a
time.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from figures import Row, command

HERE = Path(__file__).parent
SECTIONS = {
    "spectra": ("toolbox/spectra.py",),
    "kinetics": ("kinetics.py",),
    "rivals": ("rivals.py",),
    "design": ("design.py", "doe"),
    "errors": ("error_models.py",),
    "reconciliation": ("toolbox/reconciliation.py",),
}


def rows_of(arguments: tuple[str, ...], _: argparse.Namespace) -> Iterator[Row]:
    """The rows of one benchmark."""
    script, *sections = arguments
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.json"
        call = [sys.executable, str(HERE / script), *sections, "--json", str(rows)]
        subprocess.run(call, check=True, stdout=subprocess.DEVNULL)
        for row in json.loads(rows.read_text(encoding="utf-8")):
            yield Row(**{**row, "value": float("nan") if row["value"] is None else row["value"]})


if __name__ == "__main__":
    command(__doc__, "Toolbox", {n: partial(rows_of, a) for n, a in SECTIONS.items()})
