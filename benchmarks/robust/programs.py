"""Solver programs: what igpe makes of fake ones, and of a real SCIP, beside what is true.

The fakes are those of `tests/solvers/fake_programs.py`: scripts that end, print and write as SCIP,
Couenne and IPOPT do at optima, limits, infeasible problems and errors, or that hang, crash,
leave children and write garbage. Each has a stated status, bound and point. The optimum of each
problem is known, so a bound above it is false. The real one is the SCIP of PySCIPOpt's wheel,
called as a program through its AMPL interface: seeded least-squares fits of a saturation curve,
scaled down to optima of 1e-12, with residuals as they are or as variables. Its bounds are compared
with the best of many local fits by SciPy.
"""

import argparse
import os
import stat
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
from figures import Row, at_least, at_most
from scipy.optimize import least_squares
from trust.run import Answer, run

from igpe.solvers.program import Scip

sys.path.append(str(Path(__file__).resolve().parents[2] / "tests" / "solvers"))
from fake_programs import FAKES, SCIP, agrees, outcome, real_scip

N_REAL = 16
SCALES = (1.0, 1e-1, 1e-3, 1e-5)  # of the residuals
STARTS = 20
TIME_LIMIT = 20.0  # s for each real solve
ROUNDING = 1e-9  # relative, of the best local fit


def fake(case: str) -> Answer:
    """Run a fake program; what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        found = outcome(case, Path(folder))
        return {
            "traceback": found.traceback,
            "false_bound": found.false_bound,
            "left": list(found.left),
            "wrong": agrees(case, found),
        }


def real(case: str) -> Answer:
    """Solve a fit by SCIP as a program and as a library; their bounds over the best local fit."""
    seed = int(case.split()[1])
    answers = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "scip"
        text = real_scip()
        if text is None:
            return {"missing": True}
        program.write_text(text)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
        for solver in (SCIP, Scip()):
            model, best = _fit(seed)
            answer = solver.solve(model, time_limit=TIME_LIMIT)
            answers[type(solver).__name__] = {
                "status": answer.status.name,
                "bound": answer.lower_bound / best,
                "objective": answer.objective / best,
            }
    return answers


def _fit(seed: int) -> tuple[Any, float]:
    """A saturation curve with noise as a Pyomo model, and its least sum of squares."""
    rng = np.random.default_rng(seed)
    s = np.sort(rng.uniform(0.1, 8.0, 7))
    v, k = rng.uniform(0.5, 3.0, 2)
    y = v * s / (k + s) + 0.02 * rng.standard_normal(len(s))
    scale, slack = SCALES[seed % len(SCALES)], seed // len(SCALES) % 2

    def residuals(p: Any) -> Any:
        return y - p[0] * s / (p[1] + s)

    starts = rng.uniform(0.1, 5.0, (STARTS, 2))
    fits = [least_squares(residuals, x, bounds=(0.1, 5.0), xtol=1e-15, ftol=1e-15) for x in starts]
    m = pyo.ConcreteModel()
    m.v, m.k = (
        pyo.Var(bounds=(0.1, 5.0), initialize=1.0),
        pyo.Var(bounds=(0.1, 5.0), initialize=1.0),
    )
    rows = [scale * (b - m.v * a / (m.k + a)) for a, b in zip(s.tolist(), y.tolist(), strict=True)]
    if slack:
        m.r = pyo.Var(range(len(rows)))
        m.residual = pyo.Constraint(range(len(rows)), rule=lambda m, i: m.r[i] == rows[i])
        rows = list(m.r.values())
    m.cost = pyo.Objective(expr=sum(r**2 for r in rows))
    return m, 2 * min(f.cost for f in fits) * scale**2


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Tracebacks, false bounds, what remained, and disagreements, over all fake programs."""
    fakes = run("programs_fake", list(FAKES), fake, given).values()
    yield at_least("fake programs", "run", len(fakes), "-", 1 if given.quick or given.only else 40)
    ended = [a for a in fakes if "wrong" in a]
    yield at_most("fake programs", "killed or crashed", len(fakes) - len(ended), limit=0)
    yield at_most("fake programs", "tracebacks", sum(bool(a["traceback"]) for a in ended), limit=0)
    yield at_most("fake programs", "false bounds", sum(a["false_bound"] for a in ended), limit=0)
    left = sum(bool(a["left"]) for a in ended)
    yield at_most("fake programs", "children or files left", left, limit=0)
    yield at_most(
        "fake programs", "other than stated", sum(bool(a["wrong"]) for a in ended), limit=0
    )
    yield from _of_real(run("programs_real", [f"fit {i}" for i in range(N_REAL)], real, given))


def _of_real(answers: dict[str, Answer]) -> Iterator[Row]:
    ended = [a for a in answers.values() if "Scip" in a]
    yield at_most("SCIP itself", "fits not run", len(answers) - len(ended))
    for name in ("AmplProgram", "Scip"):
        found = [a[name] for a in ended]
        false = sum(not a["bound"] <= 1 + ROUNDING for a in found)
        yield at_most(f"SCIP itself, {name}", "false bounds", false, limit=0)
        proved = [a for a in found if a["status"] == "OPTIMAL_WITHIN_GAP"]
        yield at_most(f"SCIP itself, {name}", "not closed", len(found) - len(proved))
        wrong = sum(not a["objective"] <= 1.01 for a in proved)
        yield at_most(f"SCIP itself, {name}", "closed beside the optimum", wrong, limit=0)
