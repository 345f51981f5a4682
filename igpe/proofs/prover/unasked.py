"""Proofs that nobody asked for: of small problems, with an effort that is counted.

Numba compiles the kernels once per installation, which takes a minute. No estimate waits for that:
where they are not compiled yet, a process of its own begins to, and proofs come with the estimates
after it.
"""

import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd

from igpe.core.errors import IgpeError
from igpe.core.files import is_own
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem
from igpe.proofs import compiled
from igpe.proofs.prover.certify import BranchAndBound
from igpe.proofs.prover.kernels import rows
from igpe.proofs.prover.search import BoxSearch
from igpe.results.certificates import DynamicCertificate

GAP = 0.01
EFFORT = 10.0  # s of one core, by the two costs below
PER_BOX, PER_OPERATION = 1.5e-3, 3.5e-7  # s
LONGEST = 20.0  # s of wall time, on whatever machine
PATIENCE = 600.0  # s after which a process that was to compile the kernels has failed


def unasked(problem: Problem, parameters: dict[str, float]) -> DynamicCertificate | None:
    """The proof that nothing fits better, if it is finished within the effort.

    Also one that met better parameters. None for all else.
    """
    if compiled.numba is None or not kernels_ready():
        return None
    try:
        return BranchAndBound(GAP, LONGEST).certify(
            problem, parameters, enough=_is_enough, point_work=EFFORT / PER_OPERATION
        )
    except IgpeError:
        return None


def _is_enough(search: BoxSearch) -> bool:
    """Whether one more box may exceed the effort, as counted: the same on every machine."""
    spent = search.examined * PER_BOX + search.enclosure.work * PER_OPERATION
    return spent * (1 + 1 / max(search.examined, 1)) >= EFFORT


def kernels_ready() -> bool:
    """Whether the kernels are compiled; if not, a process begins to compile them."""
    done = _mark()
    if done is None:
        return False
    if done.exists():
        return True
    begun = done.with_suffix(".begun")
    with suppress(OSError):
        if begun.exists() and time.time() - begun.stat().st_mtime < PATIENCE:
            return False
        begun.touch()
        subprocess.Popen(
            [sys.executable, "-P", "-m", "igpe.proofs.prover.unasked"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return False


def compile_kernels() -> None:
    """Compile all that proofs need, and keep it on disk."""
    done = _mark()
    if done is None or done.exists():
        return
    for posed_problem in (_decay(unknowns=1), _decay(unknowns=6)):
        BranchAndBound(0.5, 1.0).certify(posed_problem, dict.fromkeys(posed_problem.box.names, 0.5))
    done.touch()
    done.with_suffix(".begun").unlink(missing_ok=True)


def _mark() -> Path | None:
    """The file that says that the kernels are compiled, for this processor; None if none are kept.

    It lies where Numba keeps them.
    """
    try:
        cache = rows.total._cache  # type: ignore[attr-defined]
        folder = Path(cache.cache_path)
        processor = compiled.numba.core.registry.cpu_target.target_context.codegen().magic_tuple()
    except AttributeError:
        return None
    stamp = compiled.stamp(Path(rows.__file__).parent, processor)
    return folder / f"igpe-kernels-{stamp}.ready" if is_own(folder) else None


def _decay(unknowns: int) -> Problem:
    """x' = -(k0 + k1 + ...) x."""
    import pyomo.environ as pyo  # noqa: PLC0415 - where a model is made
    from pyomo import dae  # noqa: PLC0415

    names = [f"k{i}" for i in range(unknowns)]

    def model(times: object) -> pyo.ConcreteModel:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x = pyo.Var(m.t)
        m.slope = dae.DerivativeVar(m.x)
        for name in names:
            m.add_component(name, pyo.Var(bounds=(0, 1)))
        m.rate = pyo.Constraint(
            m.t, rule=lambda m, t: m.slope[t] == -sum(m.component(n) for n in names) * m.x[t]
        )
        return m

    times = np.arange(1.0, 6.0)
    run = Experiment(
        pd.DataFrame({"time": times, "x": np.exp(-times)}), start={"x": 1.0}, start_time=0.0
    )
    return Problem(model, parameters=names, experiments=run)


if __name__ == "__main__":
    compile_kernels()
