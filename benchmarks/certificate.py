"""Proofs on the differential equations: boxes, seconds and what is left, of published problems.

Times are of the proof alone, the best parameters being given; processor seconds of one core.
"""

import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from figures import CONSOLE, MODELS, Row, at_least, at_most, command

import igpe
from igpe.dynamic.residuals import Residuals
from igpe.equations.system import read_systems
from igpe.proof.enclosure import Enclosure
from igpe.proof.posed import posed

LIMITS = {
    "consecutive": 0.1,
    "gas_oil_cracking": 0.1,
    "bellman": 0.1,
    "reversible": 0.4,
    "lotka_volterra": 1.0,
    "cops_gas_oil": 1.0,
}
REPEATS = 3
SAMPLES = 20_000  # of each problem
PER_BOX = 100
SLACK = 1e-6  # of a residual: what the integration in between may be off

FIRST = """
import importlib, sys, time
sys.path.append({models!r})
case = importlib.import_module("bellman")
import igpe
problem = case.problem()
began = time.perf_counter()
igpe.certify(problem, case.OPTIMUM)
print(time.perf_counter() - began, time.process_time())
"""


def timed(name: str, gap: float) -> tuple[float, igpe.DynamicCertificate]:
    """Least processor seconds of some proofs, and the proof."""
    case = importlib.import_module(name)
    problem, least = case.problem(), np.inf
    for _ in range(REPEATS + 1):  # the first may compile or load
        began = time.process_time()
        found = igpe.certify(problem, case.OPTIMUM, gap=gap, time_limit=300)
        least = min(least, time.process_time() - began)
    return least, found


def problems(_: Any) -> Iterator[Row]:
    """The published problems at two gaps."""
    for name, limit in LIMITS.items():
        seconds, found = timed(name, 1e-3)
        CONSOLE.print(f"{name}: {found}\n", highlight=False, soft_wrap=True)
        yield at_most(name, f"gap 1e-3, {found.examined} boxes, time", seconds, "s", limit)
        yield at_most(name, "gap 1e-3, not decided", found.open_share, limit=0.0)
        tight, found = timed(name, 1e-6)
        yield at_most(name, f"gap 1e-6, {found.examined} boxes, time", tight, "s")
        yield at_most(name, "gap 1e-6 : 1e-3, time", tight / seconds, limit=1.5)
        yield at_most(name, "gap 1e-6, not decided", found.open_share, limit=0.0)


def first(_: Any) -> Iterator[Row]:
    """The first call in a process, with and without what an earlier one left on disk."""
    code = FIRST.format(models=str(MODELS))
    with tempfile.TemporaryDirectory() as folder:
        for figure, limit in (("first call", 60.0), ("first call, cached", 3.0)):
            done = subprocess.run(
                [sys.executable, "-c", code],
                env={**os.environ, "NUMBA_CACHE_DIR": folder},
                capture_output=True,
                text=True,
                check=True,
            )
            wall, processor = (float(v) for v in done.stdout.split())
            yield at_most("bellman", f"{figure}, wall", wall, "s", limit)
            yield at_most("bellman", f"{figure}, process with imports, processor", processor, "s")


def containment(_: Any) -> Iterator[Row]:
    """Residuals of random parameters of random boxes, integrated: how many lie outside."""
    for name in LIMITS:
        problem = importlib.import_module(name).problem()
        residuals = Residuals(problem, read_systems(problem), igpe.Sundials(rtol=1e-10, atol=1e-12))
        outside, checked = violations(problem, residuals)
        yield at_least(name, "residuals checked", checked, "-", SAMPLES)
        yield at_most(name, "outside their enclosure", outside, "-", 0)


def violations(problem: Any, residuals: Residuals) -> tuple[int, int]:
    """How many residuals lie outside what is claimed, and how many were looked at."""
    enclosure, rng = Enclosure(posed(problem), degree=3), np.random.default_rng(1)
    low, high = problem.box.lower, problem.box.upper
    measured = residuals.runs[0].measurements  # of the only experiment
    order = np.lexsort((measured.column, measured.row))
    outside = checked = 0
    while checked < SAMPLES:
        middle = low + (high - low) * rng.random(len(low)) ** 3
        radius = (high - low) * 10 ** rng.uniform(-4, -1)
        lower, upper = np.maximum(low, middle - radius), np.minimum(high, middle + radius)
        claim = enclosure.examine(lower, upper, 1e300)
        rows = enclosure.rows
        for _ in range(PER_BOX // len(rows.low) + 1):
            found = residuals(lower + (upper - lower) * rng.random(len(low)))
            if found is None:
                continue
            r = found.residual[order]
            room = SLACK * (1 + np.abs(r))
            outside += int(((r < rows.low - room) | (r > rows.high + room)).sum())
            outside += int(r @ r < claim.bound * (1 - SLACK))
            checked += len(r)
    return outside, checked


SECTIONS = {"problems": problems, "first": first, "containment": containment}


if __name__ == "__main__":
    command(__doc__, "Proofs on the differential equations", SECTIONS)
