"""MAiNGO: deterministic global optimisation in the variables the equations leave free.

Bongartz, Najman, Sass, Mitsos, "MAiNGO - McCormick-based Algorithm for mixed-integer Nonlinear
Global Optimization", RWTH Aachen (2018). It relaxes expressions as they are written and branches on
their variables alone, so variables that equations define are substituted first.
"""

import json
import sys
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.core.status import Status
from igpe.solvers.base import Answer, Goal, no_solver, solve_closed
from igpe.solvers.nl import NlFile, columns_of, load, read, reduce, solve_in_folder
from igpe.solvers.program import run

WORKER = Path(__file__).with_name("maingo_worker.py")
SHORTEST = 10.0  # s, MAiNGO's own time limit is never less
GRACE = 5.0  # s beyond the time limit before it is ended
NAMED = 5  # variables in a message
SILENT = {"loggingDestination": 0, "BAB_verbosity": 0, "LBP_verbosity": 0, "UBP_verbosity": 0}
REFUSED = "MAiNGO does not support this model: {}"
LACKING = (
    "MAiNGO needs finite bounds. They are missing for {}, and no equation defines these variables "
    "explicitly. Give these variables bounds."
)
STATUSES = {
    "GLOBALLY_OPTIMAL": Status.OPTIMAL_WITHIN_GAP,
    "INFEASIBLE": Status.INFEASIBLE,
    "FEASIBLE_POINT": Status.ITERATION_LIMIT,
    "NO_FEASIBLE_POINT_FOUND": Status.ITERATION_LIMIT,
}
"""MAiNGO's return codes; every other is a failure. A limit may also be that of time."""


@dataclass(frozen=True)
class MAiNGO:
    """Branch and bound with McCormick relaxations.

    gap          relative gap between incumbent and bound at which the solver stops
    absolute     absolute gap for an optimum near 0, in the objective's unit; None:
                 1e-6 * min(1, s), where s is the size of the objective
    feasibility  tolerance for violations of the constraints
    options      additional options for MAiNGO: (("BAB_maxIterations", 1000), ...)

    Every variable needs finite bounds, unless an equation defines it. MAiNGO itself supports no
    time limit below 10 s. If the limit is shorter, igpe stops MAiNGO, and the incumbent is lost.
    """

    gap: float = 1e-4
    absolute: float | None = None
    feasibility: float = 1e-7
    options: tuple[tuple[str, int | float | bool], ...] = ()

    @property
    def install(self) -> str:
        """Installation instructions for the solver, in one sentence."""
        return "MAiNGO comes with maingopy: `pip install igpe[maingo]`."

    def available(self) -> bool:
        """Return True if maingopy is installed."""
        return find_spec("maingopy") is not None

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`. After Ctrl-C the status is INTERRUPTED, and there
        is no incumbent."""
        if not self.available():
            return no_solver(self)

        def once(unit: float, absolute: float, left: float | None) -> Answer:
            solve = partial(self._solve_in, absolute, left)
            answer = solve_in_folder(self, model, solve, unit)
            return replace(answer, lower_bound=answer.lower_bound * unit)

        return solve_closed(once, model, Goal(self.gap, self.absolute), time_limit)

    def _solve_in(
        self,
        absolute: float,
        time_limit: float | None,
        folder: Path,
        written: NlFile,
        objective: Any,
    ) -> Answer:
        if not written.variables:
            value = float(pyo.value(objective))
            return Answer(Status.OPTIMAL_WITHIN_GAP, value, value)
        try:
            scaled = read(folder / "model.nl")
        except RuntimeError as error:  # CasADi's reader
            return Answer(Status.FAILED, message=REFUSED.format(error))
        reduced = reduce(scaled, *columns_of(written.variables))
        if reduced.unbounded:
            names = [written.variables[j].name for j in reduced.unbounded]
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            return Answer(Status.FAILED, message=LACKING.format(f"{names[:NAMED]}{more}"))
        program = ca.Function("program", [reduced.x], [reduced.f, ca.densify(reduced.g)])
        limit = {} if time_limit is None else {"maxwTime": max(SHORTEST, time_limit)}
        tolerances = {"deltaEq": self.feasibility, "deltaIneq": self.feasibility}
        gaps = {"epsilonR": self.gap, "epsilonA": absolute}
        task = {
            "program": program.serialize(),
            "lower": reduced.lower.tolist(),
            "upper": reduced.upper.tolist(),
            "start": np.clip(reduced.start, reduced.lower, reduced.upper).tolist(),
            "bounds": [[b if np.isfinite(b) else None for b in v] for v in reduced.bounds.tolist()],
            "integer": [int(written.variables[j].is_integer()) for j in reduced.kept],
            "options": {**SILENT, **gaps, **tolerances, **limit, **dict(self.options)},
        }
        (folder / "task.json").write_text(json.dumps(task))
        reply = _reply(folder, time_limit)
        if isinstance(reply, Answer):
            return reply
        if "refusal" in reply:
            return Answer(Status.FAILED, message=REFUSED.format(reply["refusal"]))
        status, value = STATUSES.get(reply["code"], Status.FAILED), np.nan
        if status is Status.ITERATION_LIMIT and time_limit is not None:
            status = Status.TIME_LIMIT
        if "point" in reply:
            load(written.variables, np.asarray(reduced.expand(reply["point"])).ravel())
            value = float(pyo.value(objective))
        lower, words = float(reply.get("bound", -np.inf)), f"MAiNGO: {reply['code']}"
        return Answer(status, value, lower, words, iterations=int(reply["iterations"]))


def _reply(folder: Path, time_limit: float | None) -> dict[str, Any] | Answer:
    """Run the worker; an Answer if it had to be ended or broke."""
    late = GRACE if time_limit is not None and time_limit >= SHORTEST else 0.0
    try:
        worker = run([sys.executable, "-P", str(WORKER)], folder, time_limit, late=late, grace=0.0)
    except KeyboardInterrupt:
        return Answer(Status.INTERRUPTED, message="MAiNGO was stopped by Ctrl-C.")
    if worker.interrupted:
        return Answer(Status.TIME_LIMIT, message="MAiNGO was stopped at the time limit.")
    try:
        reply: dict[str, Any] = json.loads((folder / "answer.json").read_text())
    except (OSError, ValueError):  # it died, perhaps while it wrote
        last = (worker.output.strip().splitlines() or [f"exit code {worker.code}"])[-1]
        return Answer(Status.FAILED, message=f"MAiNGO failed: {last}")
    return reply
