"""Proofs on the differential equations: boxes, seconds and what is left, of published problems.

Times are of the proof alone, the best parameters being given; processor seconds of one core.
"""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from typing import Any

import numpy as np
import pyomo.environ as pyo
from claims import Claims, arrhenius, cases
from contractors import Contractors
from figures import CONSOLE, MODELS, Row, at_least, at_most, command
from pyomo import dae

import igpe
from igpe.dynamics.collocation.mesh import Radau, first_meshes
from igpe.estimation.equally_good import FEW

LIMITS = {
    "consecutive": 0.1,
    "gas_oil_cracking": 0.1,
    "bellman": 0.1,
    "reversible": 0.4,
    "lotka_volterra": 1.0,
    "cops_gas_oil": 1.0,
}
REPEATS = 3
SAMPLES = 100_000  # (box, parameters), of all models
FEWER = 200  # with claims that are broken on purpose
SHOWN = 3  # claims that do not hold, of each problem
PATIENCE = 120.0  # s, for each of the harder problems, unless --patience says other
REPLAYED = 3.0  # times the search's time
SHARED = 60.0  # s
PAPER = ("consecutive", "reversible", "gas_oil_cracking", "bellman", "lotka_volterra")
CODAC = 60.0  # s
SCIP, LEAST = 10.0, 1.0  # s, many times ours; SCIP has at least the second to begin at all

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


def timed(name: str, gap: float) -> tuple[float, igpe.proofs.DynamicCertificate]:
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
    """Claims of random boxes at random parameters of them: how many do not hold."""
    total = broken = 0
    for case in cases():
        found = Claims(case.problem(), case.near).tally(case.samples)
        for sentence in found.wrong[:SHOWN]:
            CONSOLE.print(f"{case.name}: {sentence}", highlight=False, soft_wrap=True)
        share = found.enclosed / found.residuals
        yield at_most(case.name, f"(box, parameters), {found.boxes} boxes", found.samples)
        yield at_most(case.name, "residuals that have a polynomial", share)
        yield at_most(case.name, "claims that do not hold", len(found.wrong), limit=0)
        total += found.samples
        broken += bool(Claims(case.problem(), case.near, loosened=0.1).tally(FEWER).wrong)
    yield at_least("all", "(box, parameters)", total, "-", SAMPLES)
    yield at_least("remainders a tenth as large", "models where that is found", broken, "-", 10)


def beyond(given: Any) -> Iterator[Row]:
    """Harder ones, to a gap of 1e-2: unknown start values, oscillations, several temperatures."""
    for name, (problem, start) in harder().items():
        if given.only not in name:
            continue
        began = time.process_time()
        found = igpe.certify(problem, start, gap=1e-2, time_limit=given.patience)
        seconds = time.process_time() - began
        CONSOLE.print(f"{name}: {found}\n", highlight=False, soft_wrap=True)
        limit = PATIENCE if "methanol" in name else None
        yield at_most(name, f"gap 1e-2, {found.examined} boxes, time", seconds, "s", limit)
        yield at_most(name, "gap 1e-2, bound : optimum", found.lower_bound / found.objective)
        yield at_most(name, "gap 1e-2, not decided", found.open_share, limit=0.0)


def harder() -> dict[str, tuple[igpe.Problem, dict[str, float] | None]]:
    """Name -> problem, and good parameters where they are known."""
    pendulum, nagumo = (importlib.import_module(n) for n in ("pendulum", "fitzhugh_nagumo"))
    run = igpe.Experiment(
        nagumo.simulated(0, 0), start={"V": -1.0, "R": 1.0}, start_time=0.0, sigma=nagumo.NOISE
    )
    half = {n: (0.5 * nagumo.TRUTH[n], 1.5 * nagumo.TRUTH[n]) for n in ("a", "b", "c")}
    return {
        "pendulum, 2 parameters, 2 starts": (pendulum.problem(), pendulum.OPTIMUM),
        "FitzHugh-Nagumo, +-50 %": (
            igpe.Problem(nagumo.model, parameters=half, experiments=[run]),
            None,
        ),
        "Arrhenius, 3 temperatures": (arrhenius(), None),
        "methanol (problem 5)": (importlib.import_module("methanol").problem(), None),
    }


def ours(name: str) -> Generator[Row, None, tuple[Any, igpe.Problem, Any]]:
    """A published problem and its proof, which others are put beside."""
    case = importlib.import_module(name)
    problem = case.problem()
    igpe.certify(problem, case.OPTIMUM)  # compiles, or loads
    proof = igpe.certify(problem, case.OPTIMUM)
    yield at_most(name, "ours, gap", max(proof.gap, 0.0), limit=1.001e-3)
    yield at_most(name, "ours, wall time", proof.seconds, "s")
    return case, problem, proof


def collocated(problem: igpe.Problem, optimum: dict[str, float]) -> pyo.ConcreteModel:
    """A problem of one experiment on a mesh, by pyomo.dae."""
    (experiment,), (mesh,) = problem.experiments, first_meshes(problem, (), Radau(2), 1e-5)
    m = problem.model(mesh.edges.tolist())
    (times,) = m.component_objects(dae.ContinuousSet)
    how = {"nfe": mesh.n_elements, "ncp": 2, "scheme": "LAGRANGE-RADAU"}
    pyo.TransformationFactory("dae.collocation").apply_to(m, wrt=times, **how)
    for state, value in experiment.start.items():
        m.find_component(state)[times.first()].fix(value)
    for name, low, high in zip(
        problem.box.names, problem.box.lower, problem.box.upper, strict=True
    ):
        unknown = m.find_component(name)
        unknown.setlb(low)
        unknown.setub(high)
        unknown.set_value(optimum[name])
    d, cost = experiment.measurements, 0.0
    for row, column, value, sigma in zip(d.row, d.column, d.value, d.sigma, strict=True):
        at = m.find_component(d.names[column])[times.at(times.find_nearest_index(d.times[row]))]
        cost += ((at - float(value)) / float(sigma)) ** 2
    m.sum_of_squares = pyo.Objective(expr=cost)
    return m


def scip(_: Any) -> Iterator[Row]:
    """Ours, and SCIP on the collocated problem, which is another one, for the same time or more."""
    for name in PAPER:
        case, problem, proof = yield from ours(name)
        for limit in (max(proof.seconds, LEAST), SCIP):
            began = time.perf_counter()
            found = igpe.solvers.Scip().solve(collocated(problem, case.OPTIMUM), time_limit=limit)
            seconds = time.perf_counter() - began
            gap = 1 - found.lower_bound / found.objective
            yield at_most(name, f"SCIP on the collocated problem, {limit:.3g} s, gap", gap)
            yield at_most(
                name, f"SCIP on the collocated problem, {limit:.3g} s, wall", seconds, "s"
            )


def contractors(_: Any) -> Iterator[Row]:
    """Ours, and branch and bound with codac's contractors (Lohner's method), for longer."""
    for name in PAPER:
        _, problem, proof = yield from ours(name)
        try:
            paved = Contractors(problem, 0.999 * proof.objective).pave(CODAC)
        except ImportError:
            CONSOLE.print("codac is not installed: pip install codac")
            continue
        gap = 1 - paved.bound / proof.objective
        yield at_most(name, f"codac, {CODAC:g} s, {paved.boxes} boxes, gap", gap)


def replay(_: Any) -> Iterator[Row]:
    """Certificates of the published problems at a gap of 1e-6, proved again by the checker."""
    for name in PAPER:
        search, proof = timed(name, 1e-6)
        given, problem, least = proof.to_json(), importlib.import_module(name).problem(), np.inf
        for _ in range(3):  # the first may compile or load
            began = time.process_time()
            found = igpe.verify(given, problem)
            least = min(least, time.process_time() - began)
        yield at_least(name, "verified", float(bool(found)), "-", 1)
        yield at_most(name, f"verified again, {found.boxes} boxes, time", least, "s")
        yield at_most(name, "verify, time : certify", least / search, limit=REPLAYED)


def shared(_: Any) -> Iterator[Row]:
    """The same wall time with one process and with two: boxes of a search that ends in neither."""
    methanol = importlib.import_module("methanol")
    problem, start = methanol.problem(), methanol.OPTIMUM
    igpe.certify(problem, start, gap=0.5, time_limit=1)  # compiles, or loads
    counts = []
    for executor in (1, 2):
        found = igpe.certify(problem, start, gap=1e-3, time_limit=SHARED, executor=executor)
        counts.append(found.examined)
        yield at_most("methanol", f"boxes in {SHARED:g} s, processes: {executor}", found.examined)
    yield at_least("methanol", "2 processes : 1, boxes", counts[1] / counts[0], "-", 1.7)


CHAOTIC = ("bulirsch", "henon_heiles", "rikitake")


def unasked(given: argparse.Namespace) -> Iterator[Row]:
    """Models of at most four unknowns with finite bounds, not chaotic: proved by default."""
    from igpe.proofs.prover.unasked import compile_kernels  # noqa: PLC0415 - needs Numba

    compile_kernels()
    for path in sorted(MODELS.glob("*.py")):
        problem = getattr(importlib.import_module(path.stem), "problem", None)
        posed = None if problem is None or path.stem in CHAOTIC else problem()
        if posed is None or len(posed.box) > FEW or not posed.box.bounded:
            continue
        began = time.process_time()
        result = igpe.estimate(posed)
        seconds = time.process_time() - began
        is_proved = result.proof is not None and result.proof.closed
        yield at_least(path.stem, "proved", float(is_proved), "-", 1)
        yield at_most(path.stem, "estimate with its proof", seconds, "s")


SECTIONS = {
    "problems": problems,
    "first": first,
    "containment": containment,
    "beyond": beyond,
    "scip": scip,
    "contractors": contractors,
    "replay": replay,
    "shared": shared,
    "unasked": unasked,
}


def options(parser: argparse.ArgumentParser) -> None:
    """Of the harder problems, which may want hours."""
    parser.add_argument("--patience", type=float, default=PATIENCE, help="s for each of `beyond`")
    parser.add_argument("--only", default="", help="those of `beyond` with this in their name")


if __name__ == "__main__":
    command(__doc__, "Proofs on the differential equations", SECTIONS, options)
