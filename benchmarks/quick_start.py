"""The README's two commands, as they stand, on a fresh clone; and how fast `igpe --help` is.

    python benchmarks/quick_start.py [--json FILE]

Each command is timed with its own installation, in a fresh clone of the last commit.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HELP_RUNS = 5


def commands() -> list[str]:
    """The shell commands of the README's quick start."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Quick start")[1].split("\n## ")[0]
    return [block.strip() for block in re.findall(r"```sh\n(.*?)```", section, flags=re.S)]


def fresh(command: str) -> float:
    """Seconds of one command in a fresh clone."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "igpe"
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        began = time.perf_counter()
        subprocess.run(["sh", "-euc", command], check=True, cwd=clone)
        return time.perf_counter() - began


def help_time() -> float:
    """Best of several runs of `python -m igpe --help`, s."""
    found = []
    for _ in range(HELP_RUNS):
        began = time.perf_counter()
        command = [sys.executable, "-m", "igpe", "--help"]
        subprocess.run(command, check=True, cwd=ROOT, capture_output=True)
        found.append(time.perf_counter() - began)
    return min(found)


def row(case: str, value: float, limit: float) -> dict[str, Any]:
    """One figure against its target."""
    return {
        "case": case, "figure": "wall time", "value": value, "unit": "s",
        "target": f"< {limit:g}", "reached": value < limit,
    }  # fmt: skip


def main() -> None:
    """Time everything, print a table, write the rows."""
    parser = argparse.ArgumentParser(description="Times the README's quick start.")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    estimate, tests = commands()
    rows = [
        row("igpe --help", help_time(), 0.5),
        row("README: main command with installation", fresh(estimate), 180.0),
        row("README: tests with installation", fresh(tests), 480.0),
    ]
    for r in rows:
        verdict = "reached" if r["reached"] else "MISSED"
        print(f"{r['case']:<42} {r['value']:8.2f} s  {r['target']:<7} {verdict}")
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
