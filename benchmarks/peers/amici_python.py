"""AMICI in an environment of its own: its Python, and what scripts print that it runs.

apt-get install -y g++ libopenblas-dev swig cmake
python -m venv AMICI && AMICI/bin/pip install 'amici[petab]' scipy swig cmake
"""

import argparse
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def amici_python(given: str) -> Path:
    """A Python that has AMICI, as type of an argument of the command line."""
    missing = argparse.ArgumentTypeError(
        f"{given} has no AMICI; install it as `python benchmarks/petab_speed.py --help` says."
    )
    try:
        ran = subprocess.run([given, "-c", "import amici"], capture_output=True, check=False)
    except OSError as error:
        raise missing from error
    if ran.returncode:
        raise missing
    return Path(given).absolute()


def environment(python: Path) -> dict[str, str]:
    """In which it compiles models."""
    given = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    given.pop("PYTHONPATH", None)
    return given


def answer(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """The last line that a program prints, as JSON.

    raises RuntimeError with its last words if it fails
    """
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(words)} failed:\n{ran.stderr.strip()[-2000:]}")
    found: dict[str, Any] = json.loads(ran.stdout.strip().splitlines()[-1])
    return found
