"""Run a solver program: its time limit, its children, and what it printed."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from igpe.solvers.located import environment

GRACE = 5.0  # s beyond the time limit before a program and its children are killed
LATE = 2.5  # s beyond a time limit the program was given before it is interrupted as by Ctrl-C
KEPT = 200_000  # bytes of the output that are read, from its end
GOING = 0.5  # s that killed children may take to end


class Run(NamedTuple):
    """How a program ended.

    output       what it printed last
    code         exit code; minus the number of the signal that ended it
    seconds      wall time
    interrupted  whether igpe interrupted or killed it after the time limit
    """

    output: str
    code: int
    seconds: float
    interrupted: bool


def run(
    words: Sequence[str], folder: Path, time_limit: float | None = None, knows_limit: bool = False
) -> Run:
    """Run a program in a folder, in a process group of its own. No process of the group survives.

    time_limit   s of wall time after which it is interrupted (SIGINT, on which SCIP, Bonmin and
                 Couenne write what they have), then killed; None: never
    knows_limit  whether the program itself was given the limit and so has a little longer
    raises       OSError if the file cannot be run
    """
    began, printed = time.perf_counter(), folder / "igpe_printed.txt"
    with printed.open("wb") as stream:
        process = subprocess.Popen(
            words,
            cwd=folder,
            env=environment(words[0]),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            interrupted = _wait(process, time_limit, LATE if knows_limit else 0.0)
        finally:  # Ctrl-C too
            _end(process)
    output = _tail(printed)
    return Run(output, process.returncode, time.perf_counter() - began, interrupted)


def _wait(process: subprocess.Popen[bytes], time_limit: float | None, late: float) -> bool:
    try:
        process.wait(None if time_limit is None else time_limit + late)
    except subprocess.TimeoutExpired:
        _signal(process, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE - late)
        return True
    return False


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of the process group and wait until it is gone."""
    left = _signal(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    process.wait()
    until = time.perf_counter() + GOING
    while left and time.perf_counter() < until:
        time.sleep(0.01)
        left = _signal(process, 0)


def _signal(process: subprocess.Popen[bytes], number: int) -> bool:
    """Send a signal to the process group; return False if there is none."""
    if not hasattr(os, "killpg"):  # Windows: the process alone
        if process.poll() is None and number:
            process.kill()
        return False
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _tail(path: Path) -> str:
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - KEPT))
        return stream.read().decode("utf-8", "replace")
