"""Running igpe's commands as a user does, and what a refusal must look like."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from igpe.cli import app

ROOT = Path(__file__).parents[2]
CHAIN = str(ROOT / "models" / "consecutive.py")
BELLMAN = str(ROOT / "models" / "bellman.py")


def run(*words):
    """A command in this process."""
    return CliRunner().invoke(app, [str(w) for w in words])


def started(*words, folder, **settings):
    """A command in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"}
    command = [sys.executable, "-m", "igpe", *map(str, words)]
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, **settings
    )


def refused(done, *words):
    """One error on standard error, no answer and no traceback."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr
    assert [w for w in words if w not in done.stderr] == [], done.stderr
