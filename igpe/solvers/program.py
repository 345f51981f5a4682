"""Any program that reads a model from an AMPL `.nl` file and writes its solution to `.sol`."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.contrib.solver.solvers.asl_sol_reader import parse_asl_sol_file

from igpe.errors import SolverMissing
from igpe.solvers.base import Answer
from igpe.solvers.nl import Written, load, solve_in_folder
from igpe.status import Status

GRACE = 5.0  # s beyond the time limit before a program that does not stop by itself is ended

# Solve codes in hundreds: Fourer, Gay, Kernighan, "AMPL", 2nd ed. (2003), section 14.2.
SOLVED, INFEASIBLE, LIMIT = 0, 2, 4


def locate(program: str) -> str | None:
    """Path of a program on PATH, or beside the running Python (where pip puts programs)."""
    beside = os.path.dirname(sys.executable)
    return shutil.which(program) or shutil.which(program, path=beside) if program else None


@dataclass(frozen=True)
class AmplProgram:
    """A solver program called as `program model.nl -AMPL options`, as AMPL calls it.

    program      its name: couenne, bonmin, scip, pounce, ...
    options      words for its command line, e.g. ("tol=1e-9",)
    files        (name, text) of option files it reads from its working directory, e.g.
                 (("couenne.opt", "allowable_fraction_gap 1e-4"),)
    time_option  the option's name that limits wall time in seconds, e.g. "max_wall_time"; without
                 one the program is ended at the limit and its incumbent is lost
    time_line    the same for programs that read it from the first of `files`: a line with {} for
                 the seconds, e.g. "limits/time = {}"
    proven_gap   relative gap that the program guarantees when it says "solved", if it is a global
                 solver (`.sol` files carry no bound); None for a local one
    how          the sentence that installs it
    """

    program: str
    options: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    time_option: str = ""
    time_line: str = ""
    proven_gap: float | None = None
    how: str = ""

    @property
    def install(self) -> str:
        """The sentence that says how to install it."""
        return self.how or (
            f"There is no program `{self.program}` on PATH; "
            f"`conda install -c conda-forge {self.program}` may bring it."
        )

    def available(self) -> bool:
        """Whether the program is on PATH, or beside the running Python."""
        return locate(self.program) is not None

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`. The program's output and files are removed."""
        return solve_in_folder(self, model, partial(self._solve_in, time_limit))

    def _solve_in(
        self, time_limit: float | None, folder: Path, written: Written, objective: Any
    ) -> Answer:
        self._write_options(folder, time_limit)
        said = self._run(folder, time_limit)
        if said is None:
            return Answer(Status.TIME_LIMIT, message=f"{self.program} was ended at the time limit.")
        return self._read(folder / "model.sol", written, objective, said)

    def _write_options(self, folder: Path, time_limit: float | None) -> None:
        for k, (name, text) in enumerate(self.files):
            is_told = k == 0 and time_limit is not None
            line = self.time_line.format(time_limit) + "\n" if is_told else ""
            (folder / name).write_text(text + line)

    def _run(self, folder: Path, time_limit: float | None) -> str | None:
        """What the program printed; None if it had to be ended."""
        path = locate(self.program)
        if path is None:
            raise SolverMissing(self.install)
        words = [path, "model.nl", "-AMPL", *self.options]
        patience = None
        if time_limit is not None:
            words += [f"{self.time_option}={time_limit}"] * bool(self.time_option)
            patience = time_limit + GRACE * bool(self.time_option or self.time_line)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(words, cwd=folder, text=True, **pipes) as process:  # type: ignore[call-overload]
            try:
                said, _ = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                process.kill()
                return None
            except KeyboardInterrupt:  # `with` would not wait for it
                process.kill()
                process.wait()
                raise
        return str(said).strip()

    def _read(self, path: Path, written: Written, objective: Any, said: str) -> Answer:
        if not path.exists():
            return Answer(Status.FAILED, message=said or f"{self.program} wrote no solution.")
        with path.open() as stream:
            solution = parse_asl_sol_file(stream)
        message = (solution.message or said).strip()
        status = self._status(solution.solve_code, message)
        has_point = len(solution.primals or ()) == len(written.variables)
        if not has_point or not status.usable or not np.isfinite(solution.primals).all():
            return Answer(status if not status.usable else Status.FAILED, message=message)
        load(written.variables, solution.primals)
        value = float(pyo.value(objective))
        bound = -np.inf
        if status is Status.OPTIMAL_WITHIN_GAP and self.proven_gap is not None:
            bound = value - self.proven_gap * abs(value)
        return Answer(status, value, bound, message)

    def _status(self, code: int | None, message: str) -> Status:
        hundred = -1 if code is None else code // 100
        if hundred == SOLVED:
            return Status.CONVERGED if self.proven_gap is None else Status.OPTIMAL_WITHIN_GAP
        if hundred == LIMIT:
            return Status.TIME_LIMIT if "time" in message.lower() else Status.ITERATION_LIMIT
        return Status.INFEASIBLE if hundred == INFEASIBLE else Status.FAILED
