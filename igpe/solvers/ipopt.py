"""IPOPT: the program where there is one, else the IPOPT inside CasADi.

Waechter and Biegler, "On the implementation of an interior-point filter line-search algorithm for
large-scale nonlinear programming", Math. Program. 106 (2006).
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import casadi as ca
import numpy as np
import pyomo.environ as pyo

from igpe.core.status import Status
from igpe.solvers.base import Answer, no_solver, objective_of
from igpe.solvers.compiled_ipopt import SCALED, Compiled, Known
from igpe.solvers.located import locate
from igpe.solvers.nl import (
    Sizes,
    Written,
    columns_of,
    load,
    read_scaled,
    solve_in_folder,
    write_nl,
    write_suffix,
)
from igpe.solvers.program import AmplProgram, Task


class Prepared(Protocol):
    """A model that is solved again and again."""

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        """Solve from the variables' present values; see `igpe.solvers.base.Solver.solve`.

        known  a solve that gets to one of them may end there: CONVERGED, with message KNOWN; one
               whose multipliers grow beyond measure may be given up: FAILED, with message ASTRAY

        Between solves values and bounds of variables may change, and variables that were free may
        be fixed (and freed again). Whatever else changes (expressions, mutable Params, variables
        that were fixed when it was prepared, what is active) is not seen: prepare anew.
        """
        ...


@dataclass(frozen=True)
class Ipopt:
    """Local optimisation by an interior point method, with exact second derivatives.

    program         program to prefer if it is on PATH; "" always takes the IPOPT inside CasADi
    tolerance       of the scaled optimality conditions
    max_iterations  before it gives up
    options         more of IPOPT's options: (("mu_strategy", "adaptive"), ...)
    """

    program: str = "ipopt"
    tolerance: float = 1e-9
    max_iterations: int = 500
    options: tuple[tuple[str, str | int | float], ...] = ()

    @property
    def install(self) -> str:
        """The sentence that says how to install it."""
        return "IPOPT comes with CasADi: `pip install casadi`, or `conda install ipopt`."

    @property
    def settings(self) -> dict[str, Any]:
        """IPOPT's options."""
        return {"tol": self.tolerance, "max_iter": self.max_iterations, **dict(self.options)}

    def available(self) -> bool:
        """Whether there is a program, or CasADi has IPOPT inside."""
        return self._located() or bool(ca.has_nlpsol("ipopt"))

    def _located(self) -> bool:
        """Not in the IDAES folder: the IPOPT in CasADi is newer than the one there."""
        return locate(self.program, idaes=False) is not None

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`."""
        if not self.available():
            return no_solver(self)
        begun = time.perf_counter()
        answer = self.prepare(model).solve(time_limit)
        return replace(answer, seconds=time.perf_counter() - begun)

    def prepare(self, model: Any, sizes: Sizes | None = None) -> Prepared:
        """Translate the model once, for several solves.

        sizes   with them variables, objective and constraints are scaled to magnitude 1, the
                constraints by their derivatives at the present values. A program gets the factors
                in its file.
        raises  ModelError unless there is exactly one active objective, to be minimised
        """
        objective = objective_of(model)
        if self._located():
            return _WithProgram(model, self.program, self.settings, _factors(model, sizes))
        if not ca.has_nlpsol("ipopt"):
            return _Refused(no_solver(self))
        with tempfile.TemporaryDirectory(prefix="igpe") as folder:
            path = Path(folder) / "model.nl"
            written = write_nl(model, path)
            if written.refusal:
                return _Refused(Answer(Status.INFEASIBLE, message=written.refusal))
            if not written.variables:
                return _Refused(Answer(Status.CONVERGED, float(pyo.value(objective))))
            scaled = read_scaled(path, written, sizes)
            of_scaled = {} if sizes is None else SCALED
            return _Embedded(Compiled(scaled, {**of_scaled, **self.settings}), written, objective)


@dataclass(frozen=True)
class _Refused:
    """Nothing to solve: the answer is known beforehand."""

    answer: Answer

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        return self.answer


Factors = tuple[Any, Any, float]  # Pyomo variable -> factor, constraint -> factor, objective's


@dataclass(frozen=True)
class _WithProgram:
    """The program, which reads the model's file; factors: of the scaling, if there is one."""

    model: Any
    program: str
    settings: dict[str, Any]
    factors: Factors | None

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        scaling = {} if self.factors is None else {"nlp_scaling_method": "user-scaling"}
        words = tuple(f"{k}={v}" for k, v in {**scaling, **self.settings}.items())
        program = AmplProgram(self.program, words, time_option="max_wall_time")

        def solve(folder: Path, written: Written, objective: Any) -> Answer:
            if self.factors is not None:
                variables, rows, unit = self.factors
                of_variables = np.array([variables.get(v, 1.0) for v in written.variables])
                of_rows = np.array([rows.get(c, 1.0) for c in written.constraints])
                factors = (of_variables, of_rows, np.array([unit]))
                write_suffix(folder / "model.nl", "scaling_factor", factors)
            return program.run(Task(time_limit, folder, written, objective))

        return solve_in_folder(program, self.model, solve)


@dataclass(frozen=True)
class _Embedded:
    """CasADi's IPOPT with compiled functions of the model."""

    compiled: Compiled
    written: Written
    objective: Any

    def solve(self, time_limit: float | None = None, known: Sequence[Known] = ()) -> Answer:
        begun = time.perf_counter()
        column = {id(v): i for i, v in enumerate(self.written.variables)} if known else {}
        places = [(k, [column[id(v)] for v in k.variables]) for k in known]
        ended = self.compiled.solve(columns_of(self.written.variables), time_limit, places)
        objective = np.nan
        if ended.point is not None:
            load(self.written.variables, ended.point)
            objective = float(pyo.value(self.objective))
        return ended.answer(objective, time.perf_counter() - begun)


def _factors(model: Any, sizes: Sizes | None) -> Factors | None:
    if sizes is None:
        return None
    with tempfile.TemporaryDirectory(prefix="igpe") as folder:
        path = Path(folder) / "model.nl"
        written = write_nl(model, path)
        if not written.variables:
            return None
        scaled = read_scaled(path, written, sizes)
    variables = zip(written.variables, (1 / scaled.variables).tolist(), strict=True)
    rows = zip(written.constraints, scaled.rows.tolist(), strict=True)
    return pyo.ComponentMap(variables), pyo.ComponentMap(rows), 1 / sizes.objective
