"""Any program that reads a model from an AMPL `.nl` file and writes its solution to `.sol`.

A run ends its children and keeps its time limit. `.sol` files come from a foreign program: nothing
in them is taken for granted.

Known programs are SCIP and Couenne; SCIP also comes as a wheel. Couenne's AMPL interface:
BonAmplTMINLP.cpp (solve codes 3, 220, 300, 421 or 410 at a limit, 422 or 411 if interrupted, 500)
and BonCouenne.cpp.
"""

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyomo.environ as pyo
from pyomo.common.errors import InfeasibleConstraintException, PyomoException
from pyomo.contrib.solver.common.factory import SolverFactory
from pyomo.contrib.solver.common.results import TerminationCondition
from pyomo.contrib.solver.solvers.asl_sol_reader import parse_asl_sol_file

from igpe.core.arrays import FloatArray
from igpe.core.errors import SolverMissing
from igpe.core.status import Status
from igpe.solvers.base import (
    INFINITE,
    MARGIN,
    Answer,
    Goal,
    divided,
    no_solver,
    objective_of,
    restored,
    solve_closed,
    value_of,
)
from igpe.solvers.located import environment, locate
from igpe.solvers.nl import NlFile, load, solve_in_folder, violation

GRACE = 5.0  # s beyond the time limit before a program and its children are killed
LATE = 2.5  # s beyond a time limit the program was given before it is interrupted as by Ctrl-C
KEPT = 200_000  # bytes of the output that are read, from its end
GOING = 0.5  # s that killed children may take to end


class ProgramRun(NamedTuple):
    """End of a program.

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
    words: Sequence[str],
    folder: Path,
    time_limit: float | None = None,
    *,
    late: float = 0.0,
    grace: float | None = None,
) -> ProgramRun:
    """Run a program in a folder, in a process group of its own. No process of the group survives.

    time_limit  s of wall time after which it is interrupted (SIGINT, on which SCIP, Bonmin and
                Couenne write what they have), then killed; None: never
    late        s that a program has longer which was given the limit itself
    grace       s beyond the time limit before it is killed; None: `GRACE`
    raises      OSError if the file cannot be run
    """
    start, printed, interrupted = time.perf_counter(), folder / "igpe_printed.txt", False
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
            process.wait(None if time_limit is None else time_limit + late)
        except subprocess.TimeoutExpired:
            interrupted = True
            _signal(process, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max((GRACE if grace is None else grace) - late, 0.0))
        finally:  # Ctrl-C too
            _end(process)
    with printed.open("rb") as stream:
        stream.seek(max(0, printed.stat().st_size - KEPT))
        output = stream.read().decode("utf-8", "replace")
    return ProgramRun(output, process.returncode, time.perf_counter() - start, interrupted)


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


LARGEST = 1_000_000  # bytes of a `.sol` file beside its numbers,
A_NUMBER = 1000  # and bytes for each variable and constraint


class Solution(NamedTuple):
    """Contents of a `.sol` file.

    code     AMPL's solve code
    message  the program's own words
    point    (n,) the variables' values; None if it has none
    """

    code: int
    message: str
    point: FloatArray | None


def read_sol(path: Path, n_variables: int, n_constraints: int) -> Solution | str:
    """Return the solution, or what is wrong with the file, as the end of a sentence."""
    if not path.is_file():
        return "wrote no solution"
    if path.stat().st_size > LARGEST + A_NUMBER * (n_variables + n_constraints):
        return f"wrote a solution file of {path.stat().st_size} bytes, too large for this model"
    if not path.read_bytes().endswith(b"\n"):  # `objno 0 421`, cut after the 4, would say "solved"
        return "wrote an incomplete solution file"
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            solution = parse_asl_sol_file(stream)
    except (PyomoException, ArithmeticError, AssertionError, LookupError, ValueError) as error:
        reason = str(error) or type(error).__name__
        return f"wrote a solution file that igpe cannot read ({reason[:200]})"
    point = np.array(solution.primals or (), dtype=float)
    if len(point) not in (0, n_variables) or not np.isfinite(point).all():
        count = f"{len(point)} values for {n_variables} variables"
        return f"returned {'values that are not finite' if len(point) == n_variables else count}"
    return Solution(int(solution.solve_code), solution.message, point if len(point) else None)


# Solve codes in hundreds: Fourer, Gay, Kernighan, "AMPL", 2nd ed. (2003), section 14.2. What a
# limit was stands in the message: SCIP's numbers differ between versions (gap limit 405, now 409).
CODES = {0: Status.CONVERGED, 2: Status.INFEASIBLE, 4: Status.ITERATION_LIMIT}
UNDECIDED = 299  # SCIP: infeasible or unbounded
WORDS = (
    (re.compile("gap limit reached", re.IGNORECASE), Status.CONVERGED),  # SCIP, reader_nl.cpp
    (re.compile(r"time\s*limit|time\s*exceeded", re.IGNORECASE), Status.TIME_LIMIT),
    (
        re.compile(r"interrupt(ed)? by user|user interrupt|termination signal", re.IGNORECASE),
        Status.INTERRUPTED,
    ),
)
"""Text in the message at a limit, and which limit it was."""
ALMOST = 0.9  # of the time limit: a program that stops later on a limit it does not name used it up
OUTSIDE = 1e-5  # by which a point may lie outside bounds, relative to those above 1
VIOLATED = 1e-3  # the same for constraints
PLACES = 6  # figures of C's "%g", which leaves out zeros at the end
SHORTEST = 1e-3  # s; IPOPT and Bonmin refuse a time limit of 0
LINES, WIDTH = 6, 200  # of a program's output in a message
SOLUTIONS = (Status.CONVERGED, Status.OPTIMAL_WITHIN_GAP)


class Task(NamedTuple):
    """One run of a program.

    time_limit  s of wall time; None: no limit
    folder      holds `model.nl`;  written: what stands in it
    objective   of the Pyomo model
    unit        what the objective is divided by in the file
    absolute    gap at which the program may stop, in that unit
    """

    time_limit: float | None
    folder: Path
    written: NlFile
    objective: Any
    unit: float = 1.0
    absolute: float = 0.0


@dataclass(frozen=True)
class AmplProgram:
    """An external solver program, which igpe calls in the same way as AMPL does:
    `program model.nl -AMPL options`.

    program      name of the program: couenne, bonmin, scip, pounce, ...
    options      command-line arguments, e.g. ("tol=1e-9",)
    files        option files that the program reads from its working directory, as pairs (name,
                 text), e.g. (("couenne.opt", "allowable_fraction_gap 1e-4"),)
    time_option  name of the option that limits the time in seconds, e.g. "max_wall_time". If there
                 is no such option, igpe interrupts the program at the time limit
    time_line    line that igpe adds to the first of `files` to set a time limit; {} stands for the
                 seconds, e.g. "limits/time = {}"
    gap_line     line that igpe adds to the first of `files` to set the absolute gap; {} stands for
                 the gap, e.g. "limits/absgap = {}"
    proven_gap   relative gap that a global solver guarantees when it reports "solved"; None for a
                 local solver
    absolute     absolute gap of a global solver for an optimum near 0, in the objective's unit;
                 None: `margin` * min(1, s), where s is the size of the objective
    bound_label  label that precedes ":" and the lower bound in the program's output, e.g. "Dual
                 Bound"; if it is empty, the bound is the incumbent minus the gap
    margin       possible error of the program's bound, for an objective of order one
    how          installation command
    """

    program: str
    options: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    time_option: str = ""
    time_line: str = ""
    gap_line: str = ""
    proven_gap: float | None = None
    absolute: float | None = None
    bound_label: str = ""
    margin: float = MARGIN
    how: str = ""

    @property
    def name(self) -> str:
        """Name of the program in messages."""
        return Path(self.program).name

    @property
    def install(self) -> str:
        """Installation instructions for the solver, in one sentence."""
        return self.how or (
            f"There is no program `{self.program}` on PATH; try to install it with `conda install "
            f"-c conda-forge {self.program}`."
        )

    def available(self) -> bool:
        """Return True if the program is on PATH, in Python's folder or in the IDAES folder."""
        return locate(self.program) is not None

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`. igpe removes the program's output and files."""
        if self.proven_gap is None or not self.available():
            return solve_in_folder(self, model, lambda *task: self.run(Task(time_limit, *task)))

        def once(unit: float, absolute: float, left: float | None) -> Answer:
            def solve(folder: Path, written: NlFile, objective: Any) -> Answer:
                return self.run(Task(left, folder, written, objective, unit, absolute))

            return solve_in_folder(self, model, solve, unit)

        goal = Goal(self.proven_gap, self.absolute, self.margin)
        return solve_closed(once, model, goal, time_limit)

    def run(self, task: Task) -> Answer:
        """Solve the `model.nl` of a task."""
        if not task.written.variables:
            value = value_of(task.objective)
            if value is None:
                return Answer(Status.FAILED, message="The objective has no finite value.")
            return Answer(self._solved, value, -np.inf if self.proven_gap is None else value)
        limit = None if task.time_limit is None else max(task.time_limit, SHORTEST)
        gap = self.gap_line.format(task.absolute) + "\n" if self.gap_line else ""
        seconds = self.time_line.format(limit) + "\n" if self.time_line and limit else ""
        for k, (name, text) in enumerate(self.files):
            lines = text if k else text + gap + seconds
            (task.folder / name).write_text(lines, encoding="utf-8")
        path = locate(self.program)
        if path is None:
            raise SolverMissing(self.install)
        words = [path, "model.nl", "-AMPL", *self.options]
        if limit is not None and self.time_option:
            words.append(f"{self.time_option}={limit}")
        try:
            finished = run(words, task.folder, task.time_limit, late=LATE * self._knows_limit)
        except OSError as error:
            return self._failed(f"cannot be run: {error}")
        sizes = len(task.written.variables), len(task.written.constraints)
        solution = read_sol(task.folder / "model.sol", *sizes)
        if isinstance(solution, str):
            return self._without_solution(finished, solution, task)
        return self._answer(finished, solution, task)

    @property
    def _solved(self) -> Status:
        return Status.CONVERGED if self.proven_gap is None else Status.OPTIMAL_WITHIN_GAP

    @property
    def _knows_limit(self) -> bool:
        return bool(self.time_option or self.time_line)

    def _failed(self, reason: str, output: str = "") -> Answer:
        printed = _printed(output)
        more = f". It printed last: {printed}" if printed else ""
        return Answer(Status.FAILED, message=f"{self.name} {reason}{more}")

    def _answer(self, run: ProgramRun, solution: Solution, task: Task) -> Answer:
        """Turn a solution into an answer; a usable point is in the model afterwards."""
        status = self._status(solution, run, task.time_limit)
        if run.code and not run.interrupted and status is not Status.FAILED:
            return self._failed(f"ended with {_ending(run.code)}", solution.message)
        message = f"{self.name}: {_printed(solution.message) or f'solve code {solution.code}'}"
        if not status.usable:
            return Answer(status, message=message)
        bound = self._bound(run.output, task.unit)
        if solution.point is None:
            if status in SOLUTIONS:
                return self._failed("reported success but returned no values")
            return Answer(status, lower_bound=bound, message=message)
        value = self._put(solution.point, status, task)
        if isinstance(value, str):
            return self._failed(value)
        if not self.bound_label and status is Status.OPTIMAL_WITHIN_GAP:
            bound = value - (self.proven_gap or 0.0) * abs(value) - self.margin * task.unit
        return Answer(status, value, bound, message)

    def _without_solution(self, run: ProgramRun, missing: str, task: Task) -> Answer:
        bound = self._bound(run.output, task.unit)
        if not run.interrupted:
            how = f"ended with {_ending(run.code)} and " if run.code else ""
            return self._failed(f"{how}{missing}", run.output)
        if self._knows_limit and not np.isfinite(bound):
            limit = f"its time limit of {task.time_limit:g} s"
            return self._failed(f"did not stop at {limit}, was killed and {missing}", run.output)
        message = f"{self.name} was stopped at the time limit and {missing}."
        return Answer(Status.TIME_LIMIT, lower_bound=bound, message=message)

    def _status(self, solution: Solution, run: ProgramRun, time_limit: float | None) -> Status:
        status = CODES.get(solution.code // 100, Status.FAILED)
        if status is Status.ITERATION_LIMIT:
            used_up = time_limit is not None and run.seconds >= ALMOST * time_limit
            named = [limit for words, limit in WORDS if words.search(solution.message)]
            if run.interrupted and named[:1] != [Status.CONVERGED]:
                named = [Status.TIME_LIMIT]
            status = next(iter(named), Status.TIME_LIMIT if used_up else status)
        if solution.code == UNDECIDED:
            return Status.FAILED
        return self._solved if status is Status.CONVERGED else status

    def _bound(self, output: str, unit: float) -> float:
        """The last bound in the output, rounded down, in the objective's own unit; or -inf."""
        if self.proven_gap is None or not self.bound_label:
            return -np.inf
        label = re.escape(self.bound_label)
        bounds = re.findall(rf"^[ \t]*{label}[ \t]*:[ \t]*(\S+)", output, re.MULTILINE)
        try:
            printed = Decimal(bounds[-1]) if bounds else Decimal("nan")
        except InvalidOperation:
            return -np.inf
        if not printed.is_finite() or abs(printed) >= Decimal(INFINITE):
            return -np.inf
        figures = max(PLACES, len(printed.as_tuple().digits))
        return (float(printed) - abs(float(printed)) * 10.0 ** (1 - figures)) * unit

    def _put(self, point: FloatArray, status: Status, task: Task) -> float | str:
        """Give the variables the point's values; return the objective, or why it is no solution."""
        with restored(task.written.variables) as keep:
            if outside := load(task.written.variables, point, OUTSIDE):
                return f"returned a point outside the bounds: {outside}"
            value = value_of(task.objective)
            if value is None:
                return "returned a point at which the objective has no finite value"
            is_checked = status in SOLUTIONS or self.proven_gap is not None
            if is_checked and (violated := violation(task.written.constraints, VIOLATED)):
                return f"returned a point that violates a constraint: {violated}"
            keep()
            return value


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _printed(text: str) -> str:
    """The last lines of a program's output in one line, without control characters."""
    lines = [line.strip() for line in text.splitlines() if line.strip()][-LINES:]
    short = "; ".join(lines)[-LINES * WIDTH :]
    return "".join(c if c.isprintable() else "?" for c in short)


CUTOFF = 1e-5  # Bonmin's `cutoff_decr`: by how much better Couenne's next incumbent must be

IDAES = (
    "to install it, run `pip install idaes-pse`, then `idaes get-extensions` (on Debian `idaes "
    "get-extensions --distro ubuntu2204`)."
)


def Couenne(
    gap: float = 1e-4, feasibility: float = 1e-7, absolute: float | None = None
) -> AmplProgram:
    """Couenne: spatial branch and bound, as an external program.

    gap          relative gap between incumbent and bound at which the solver stops
    feasibility  tolerance for violations of the constraints
    absolute     absolute gap for an optimum near 0, in the objective's unit; None:
                 1.1e-5 * min(1, s), where s is the size of the objective

    Couenne treats a time limit as processor time, so igpe also limits the wall time of the run.
    Belotti, Lee, Liberti, Margot, Waechter, "Branching and bounds tightening techniques for
    non-convex MINLP", Optim. Methods Softw. 24 (2009).
    """
    return AmplProgram(
        "couenne",
        files=(("couenne.opt", f"allowable_fraction_gap {gap}\nfeas_tolerance {feasibility}\n"),),
        time_line="time_limit {}",
        gap_line="allowable_gap {}",
        proven_gap=gap,
        absolute=absolute,
        bound_label="Lower bound",
        margin=MARGIN + CUTOFF,
        how=f"Couenne is a separate program, which must be on PATH or in the IDAES folder: {IDAES}",
    )


STATUSES = {
    TerminationCondition.convergenceCriteriaSatisfied: Status.OPTIMAL_WITHIN_GAP,
    TerminationCondition.provenInfeasible: Status.INFEASIBLE,
    TerminationCondition.maxTimeLimit: Status.TIME_LIMIT,
    TerminationCondition.iterationLimit: Status.ITERATION_LIMIT,
    TerminationCondition.interrupted: Status.INTERRUPTED,
}
"""Pyomo's termination conditions; every other is a failure."""


@dataclass(frozen=True)
class Scip:
    """SCIP from the PySCIPOpt wheel: spatial branch and bound within the variables' bounds.

    gap          relative gap between incumbent and bound at which the solver stops
    absolute     absolute gap for an optimum near 0, in the objective's unit; None:
                 1e-6 * min(1, s), where s is the size of the objective
    feasibility  tolerance for violations of the constraints. SCIP's own default, 1e-6, is too
                 loose for least squares, because SCIP treats the objective as a constraint and
                 underestimates small residuals
    threads      number of threads for the linear solver
    seed         seed of SCIP's random choices; the same seed gives the same run
    options      further parameters of SCIP: (("limits/nodes", 1000), ...)
    """

    gap: float = 1e-4
    absolute: float | None = None
    feasibility: float = 1e-9
    threads: int = 1
    seed: int = 0
    options: tuple[tuple[str, str | int | float | bool], ...] = ()

    @property
    def install(self) -> str:
        """Installation instructions for the solver, in one sentence."""
        return "SCIP comes with PySCIPOpt: `pip install pyscipopt`."

    def available(self) -> bool:
        """Return True if PySCIPOpt is installed, in a version that Pyomo supports."""
        return bool(SolverFactory("scip_direct").available())

    def solve(self, model: Any, *, time_limit: float | None = None) -> Answer:
        """See `igpe.solvers.base.Solver.solve`. SCIP does not support asin, sinh and similar
        functions."""
        if not self.available():
            return no_solver(self)
        start = time.perf_counter()
        once, goal = partial(self._once, model), Goal(self.gap, self.absolute)
        answer = solve_closed(once, model, goal, time_limit)
        return replace(answer, seconds=time.perf_counter() - start)

    def _once(self, model: Any, unit: float, absolute: float, left: float | None) -> Answer:
        objective = objective_of(model)
        options = {
            # Pyomo reads SCIP's output through a pipe that nobody empties while SCIP holds
            # Python's lock: a long log would block it for ever, time limit or not.
            "display/verblevel": 0,
            "numerics/feastol": self.feasibility,
            "randomization/randomseedshift": self.seed,
            **dict(self.options),
        }
        try:
            with divided(objective, unit):
                results = SolverFactory("scip_direct").solve(
                    model,
                    time_limit=left,
                    rel_gap=self.gap,
                    abs_gap=absolute,
                    threads=self.threads,
                    load_solutions=False,
                    raise_exception_on_nonoptimal_result=False,
                    solver_options=options,
                )
        except InfeasibleConstraintException as error:
            return Answer(Status.INFEASIBLE, message=str(error))
        except (PyomoException, NotImplementedError, AttributeError, TypeError) as error:
            return Answer(Status.FAILED, message=f"SCIP does not support this model: {error}")
        condition, bound, value = results.termination_condition, results.objective_bound, np.nan
        status = STATUSES.get(condition, Status.FAILED)
        if results.solution_loader.get_number_of_solutions() > 0:
            results.solution_loader.load_solution()
            value = float(pyo.value(objective))
        lower = -np.inf if bound is None or status is Status.INFEASIBLE else float(bound) * unit
        nodes = int(results.extra_info["NNodes"])
        return Answer(status, value, lower, f"SCIP: {condition.name}", iterations=nodes)
