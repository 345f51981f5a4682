"""Fake solver programs: scripts that end, print and write as real ones do, or as broken ones might.

Codes, messages and printed lines follow SCIP 8 to 10 (src/scip/reader_nl.cpp, scip_general.c),
Couenne 0.5 (BonAmplTMINLP.cpp, BonCouenne.cpp) and IPOPT 3.14 (AmplTNLP.cpp).
"""

import os
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import casadi
import numpy as np
import pyomo.environ as pyo

from igpe.core.status import Status
from igpe.solvers import program as process
from igpe.solvers.base import Answer
from igpe.solvers.program import AmplProgram, Couenne

POINT = (1.0, 2.0)
HEAD = """#!{python} -IS
import os, pathlib, signal, subprocess, sys, time
sys.path.append({site!r})
PIDS = pathlib.Path({pids!r})

def known(pid):
    with PIDS.open("a") as file:
        file.write(f"{{pid}}\\n")

known(os.getpid())

def options():
    files = [*pathlib.Path().glob("*.opt"), *pathlib.Path().glob("*.set")]
    return "".join(f.read_text() for f in files) + " ".join(sys.argv)

def sol(message, code, point=(1.0, 2.0), tail=""):
    numbers = "".join(f"{{x!r}}\\n" for x in point)
    sizes = f"1\\n0\\n2\\n{{len(point)}}\\n"
    text = f"{{message}}\\n\\nOptions\\n3\\n1\\n1\\n0\\n{{sizes}}{{numbers}}"
    text += f"objno 0 {{code}}\\n{{tail}}"
    pathlib.Path("model.sol").write_text(text)

def objective(point):
    import casadi
    nlp = casadi.NlpBuilder()
    nlp.import_nl("model.nl", {{}})
    f = casadi.Function("f", [casadi.vertcat(*nlp.x)], [nlp.f])
    return float(f(list(point)))

def scip(status, dual, point=(1.0, 2.0), code=0):
    print("SCIP version 10.0.2 [precision: 8 byte]")
    print(f"\\nSCIP Status        : {{status}}")
    print(f"Dual Bound         : {{dual:+.14e}}\\nGap                : 0.01 %")
    sol(status.split("[")[-1].rstrip("]"), code, point)

FOUND = "problem is solved [optimal solution found]"
SOL = pathlib.Path("model.sol")

def stopped(limit, *rest, **more):
    scip(f"solving was interrupted [{{limit}}]", *rest, **more)

def rewritten(change):
    SOL.write_text(change(SOL.read_text()))

def couenne(lower, code=3, words=": Optimal", point=(1.0, 2.0)):
    print("Couenne 0.5.8 -- an Open-Source solver for Mixed Integer Nonlinear Optimization")
    print(f"Lower bound:                           {{lower:>10}}")
    print("Upper bound:                                    3  (gap: 0.00%)")
    sol("\\ncouenne" + words, code, point)

"""


def _model(objective: Any) -> Any:
    m = pyo.ConcreteModel()
    m.x, m.y = pyo.Var(bounds=(0, 4), initialize=0.5), pyo.Var(bounds=(0, 4), initialize=0.5)
    m.limit = pyo.Constraint(expr=m.x + m.y <= 5)
    m.cost = pyo.Objective(expr=objective((m.x - 1) ** 2 + (m.y - 2) ** 2))
    return m


OPTIMA = {"three": 3.0, "zero": 0.0, "negative": -3.0, "small": 1e-6, "tiny": 1e-12}
MODELS = {
    "three": lambda square: 3 + square,
    "zero": lambda square: square,
    "negative": lambda square: square - 3,
    "small": lambda square: 1e-6 * (1 + square),
    "tiny": lambda square: 1e-12 * (1 + square),
}
"""Objectives with their optimum at POINT."""


@dataclass(frozen=True)
class Fake:
    """A program and what igpe must make of it.

    body    what it does, in Python; bytes: its whole text; None: there is no such program
    status  expected;  words: expected in the message, beside the program's name
    gap     largest expected distance of incumbent and bound; inf: no bound is expected
    point   whether the model must hold POINT afterwards, else its start values
    """

    body: str | bytes | None
    status: Status
    words: tuple[str, ...]
    gap: float
    point: bool
    model: str
    limit: float | None


def fake(
    body: str | bytes | None,
    status: Status,
    *words: str,
    gap: float = np.inf,
    point: bool | None = None,
    model: str = "three",
    limit: float | None = None,
) -> Fake:
    """A fake that leaves a point where its status says so, unless told otherwise."""
    leaves = status in (OPTIMAL, LOCAL, UNSURE, LIMIT, STOPPED) if point is None else point
    return Fake(body, status, words, gap, leaves, model, limit)


OPTIMAL, FAILED, INFEASIBLE = Status.OPTIMAL_WITHIN_GAP, Status.FAILED, Status.INFEASIBLE
TIME, LIMIT, LOCAL = Status.TIME_LIMIT, Status.ITERATION_LIMIT, Status.CONVERGED
UNSURE, STOPPED = Status.BEST_OF_SEVERAL, Status.INTERRUPTED
TOLERANT = """
worse, best = objective((0.5, 2.0)), objective((1.0, 2.0))
point = (0.5, 2.0) if worse - best <= 3e-7 else (1.0, 2.0)
"""  # to a solver whose tolerance is absolute both are optimal
TRAP = "signal.signal(signal.SIGINT, lambda *_: interrupted())\n"
CHILD = "known(subprocess.Popen(['sleep', '60']).pid)\n"
DEAF = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
ON_LIMIT = "': Optimization interrupted on limit.'"
UNTIL = (
    TRAP
    + """def interrupted():
    couenne('2.9', 422, ': Optimization interrupted by user.')
    sys.exit()
time.sleep(60)"""
)

FAKES: dict[str, Fake] = {
    # SCIP: the message says which limit it was, as its numbers differ between versions
    "scip optimal": fake("scip(FOUND, 3.0)", OPTIMAL, gap=1e-3),
    "scip gap limit": fake("stopped('gap limit reached', 2.9999, code=409)", OPTIMAL, gap=1e-3),
    "scip time limit": fake(
        "assert 'limits/time = 7.5' in options()\nstopped('time limit reached', 1.5, code=403)",
        TIME, "time limit reached", gap=1.51, point=True, limit=7.5,
    ),
    "scip time limit without incumbent": fake(
        "stopped('time limit reached', 1.5, (), 403)", TIME, "time limit", limit=7.5
    ),
    "scip node limit": fake(
        "stopped('node limit reached', -4.0, code=400)", LIMIT, "node limit reached", gap=7.1
    ),
    "scip user interrupt": fake("stopped('user interrupt', 2.0, code=450)", STOPPED, gap=1.1),
    "scip infeasible": fake("scip('[infeasible]', 1e20, (), 200)", INFEASIBLE, "infeasible"),
    "scip infeasible or unbounded": fake(
        "scip('[infeasible or unbounded]', -1e20, (), 299)", FAILED, "infeasible or unbounded"
    ),
    "scip no bound yet": fake(
        "stopped('time limit reached', -1e20, code=403)", TIME, point=True, limit=5.0
    ),
    "scip optimum zero": fake(
        "assert 'limits/absgap' in options()\nscip(FOUND, -1e-7)", OPTIMAL, gap=1e-5, model="zero"
    ),
    "scip negative optimum": fake(
        "stopped('gap limit reached', -3.0002, code=409)", OPTIMAL, gap=1e-3, model="negative"
    ),
    "scip tolerant of 1e-12": fake(
        TOLERANT + "stopped('gap limit reached', objective(point), point, 409)",
        OPTIMAL, gap=1e-15, model="tiny",
    ),
    "scip bound far below": fake("scip(FOUND, -5.0)", UNSURE, "leave a gap", gap=8.1),
    "scip bound above its point": fake("scip(FOUND, 4.0)", UNSURE, "lies above the objective"),
    "scip prints no bound": fake("sol('solved', 0)", UNSURE, "solved"),
    "scip prints nan": fake("print('Dual Bound   : nan')\nsol('solved', 0)", UNSURE),
    "scip prints words": fake("print('Dual Bound   : unknown')\nsol('solved', 0)", UNSURE),
    "scip solves with a late child": fake(CHILD + "scip(FOUND, 3.0)", OPTIMAL, gap=1e-3),
    # Couenne and Bonmin
    "couenne rounds its bound up": fake("couenne('3.00001')", OPTIMAL, gap=1e-3),
    "couenne time limit": fake(
        "assert 'time_limit 7.5' in options()\nassert 'allowable_gap' in options()\n"
        f"couenne('2.9', 421, {ON_LIMIT})",
        LIMIT, "interrupted on limit", gap=0.2, limit=7.5,
    ),
    "couenne uses up its time": fake(
        DEAF + f"time.sleep(0.49)\ncouenne('2.9', 421, {ON_LIMIT})",
        TIME, "interrupted on limit", gap=0.2, point=True, limit=0.5,
    ),
    "couenne interrupted": fake(
        UNTIL, TIME, "interrupted by user", gap=0.2, point=True, limit=0.2
    ),
    "couenne unknown option": fake(
        "print('Ipopt exception : Read Option: \"allowable_gap\". It is not a valid option.')",
        FAILED, "wrote no solution", "not a valid option",
    ),
    "bonmin optimal": fake("sol('bonmin: Optimal', 3)", LOCAL, "Optimal"),
    "bonmin limit": fake(
        f"assert 'bonmin.time_limit 5' in options()\nsol({ON_LIMIT}, 421)", LIMIT, limit=5.0
    ),
    "bonmin limit without incumbent": fake(
        f"sol({ON_LIMIT}, 410, ())", LIMIT, "on limit", point=False
    ),
    "bonmin infeasible": fake("sol('bonmin: Infeasible problem', 220, ())", INFEASIBLE),
    "bonmin unbounded": fake("sol('relaxation is unbounded.', 300)", FAILED, "unbounded"),
    # IPOPT
    "ipopt optimal": fake(
        "sol('Optimal Solution Found', 0,"
        " tail='suffix 4 2 13 0 0\\nipopt_zL_out\\n0 1.5\\n1 2.5\\n')",
        LOCAL, "Optimal Solution Found",
    ),
    "ipopt wall time": fake(
        "assert 'max_wall_time=5.0' in options()\nsol('Maximum Wallclock Time Exceeded.', 402)",
        TIME, point=True, limit=5.0,
    ),
    "ipopt diverging": fake("sol('Iterates diverging', 300)", FAILED, "diverging"),
    # Broken programs
    "scip hangs": fake(
        "time.sleep(60)", FAILED, "did not stop at its time limit of 0.2 s", limit=0.2
    ),
    "scip ignores signals": fake(
        DEAF + DEAF.replace("INT", "TERM") + CHILD + "time.sleep(60)",
        FAILED, "did not stop", limit=0.2,
    ),
    "ipopt hangs after its answer": fake("sol('Found', 0)\ntime.sleep(60)", LOCAL, limit=0.2),
    "scip hangs with a bound": fake(
        "print('Dual Bound         : +2.0e+00', flush=True)\ntime.sleep(60)",
        TIME, "stopped at the time limit", limit=0.4,
    ),
    "ipopt hangs after half an answer": fake(
        "SOL.write_text('Ipopt: Opt')\ntime.sleep(60)",
        FAILED, "did not stop", "incomplete", limit=0.4,
    ),
    "scip crashes": fake(
        "os.kill(os.getpid(), signal.SIGSEGV)", FAILED, "signal 11", "no solution"
    ),
    "scip crashes after its answer": fake(
        "scip(FOUND, 3.0)\nsys.stdout.flush()\nos.kill(os.getpid(), signal.SIGABRT)",
        FAILED, "signal 6",
    ),
    "ipopt writes garbage": fake(
        "SOL.write_bytes(os.urandom(5000) + b'\\n')", FAILED, "cannot read"
    ),
    "ipopt no UTF-8": fake(
        "sys.stdout.buffer.write(b'\\xff\\xfe\\xe9 Gr\\xf6\\xdfe \\x1b[31m')", FAILED, "Gr"
    ),
    "ipopt no UTF-8 in its message": fake(
        "sol('M', 0)\nSOL.write_bytes(SOL.read_bytes().replace(b'M', b'Gr\\xf6\\xdfe', 1))",
        LOCAL, "Gr",
    ),
    "couenne truncated in its code": fake(
        "couenne('3', 421)\nrewritten(lambda text: text[:text.index('objno') + 9])",
        FAILED, "incomplete",
    ),
    "ipopt no code": fake(
        "sol('M', 0)\nrewritten(lambda text: text.replace('objno 0 0', 'objno 0'))",
        FAILED, "cannot read",
    ),
    "ipopt other model": fake(
        "sol('M', 0)\nrewritten(lambda t: t.replace('2\\n2\\n1.0', '3\\n3\\n9.0\\n1.0'))",
        FAILED, "3 values for 2 variables",
    ),
    "ipopt huge count": fake(
        "SOL.write_text('M\\n\\nOptions\\n3\\n1\\n1\\n0\\n1\\n0\\n2\\n99999999999\\n1.0\\n')",
        FAILED, "cannot read",
    ),
    "ipopt huge file": fake("SOL.write_bytes(b'M\\n' * 2_000_000)", FAILED, "too large"),
    "ipopt nan": fake("sol('M', 0, (float('nan'), 2.0))", FAILED, "not finite"),
    "ipopt solved without values": fake("sol('M', 0, ())", FAILED, "returned no values"),
    "scip outside the bounds": fake(
        "scip(FOUND, 3.0, (-7.0, 2.0))", FAILED, "'x' = -7", "bounds 0 and 4"
    ),
    "couenne violates a constraint": fake(
        "couenne('3', point=(3.0, 3.0))", FAILED, "violates a constraint", "'limit' is 6"
    ),
    "ipopt a hair outside": fake("sol('M', 0, (1.0, 2.0 + 1e-12))", LOCAL),
    "ipopt a pipe": fake("os.mkfifo('model.sol')", FAILED, "wrote no solution"),
    "ipopt a locked folder": fake("os.makedirs('a/b')\nos.chmod('a', 0)\nsol('M', 0)", LOCAL),
    "ipopt reads its input": fake("assert sys.stdin.read() == ''\nsol('M', 0)", LOCAL),
    "couenne bound before a long log": fake("couenne('3')\nprint('x' * 1_000_000)", UNSURE),
    "ipopt no program": fake(b"\x7fELF no program at all\n", FAILED, "cannot be run"),
    "couenne missing": fake(None, Status.NO_SOLVER, "idaes get-extensions"),
}  # fmt: skip
"""By name; its first word is the program's."""

SCIP = AmplProgram(
    "scip",
    files=(("scip.set", "limits/gap = 0.0001\nnumerics/feastol = 1e-07\n"),),
    time_line="limits/time = {}",
    gap_line="limits/absgap = {}",
    proven_gap=1e-4,
    bound_label="Dual Bound",
)
"""SCIP as a program, where there is no wheel."""

SOLVERS = {
    "scip": SCIP,
    "couenne": Couenne(),
    "bonmin": AmplProgram("bonmin", files=(("bonmin.opt", ""),), time_line="bonmin.time_limit {}"),
    "ipopt": AmplProgram("ipopt", time_option="max_wall_time"),
}


@dataclass(frozen=True)
class Outcome:
    """What igpe made of a fake program.

    false_bound  whether the bound lies above the optimum;  left: processes and files that remained
    """

    answer: Answer | None
    values: tuple[float, float]
    false_bound: bool
    left: tuple[str, ...]
    traceback: str


def outcome(name: str, folder: Path) -> Outcome:
    """Run a fake program from an empty folder, alone on PATH."""
    fake, model = FAKES[name], _model(MODELS[FAKES[name].model])
    solver = SOLVERS[name.split(maxsplit=1)[0]]
    pids, temporary = folder / "pids", folder / "temporary"
    temporary.mkdir()
    _write(folder / solver.program, fake, pids)
    answer, raised = None, ""
    with _surroundings(folder, temporary):
        try:
            answer = solver.solve(model, time_limit=fake.limit)
        except Exception:
            raised = traceback.format_exc(limit=-4)
    bound = -np.inf if answer is None else answer.lower_bound
    files = [str(p) for p in temporary.rglob("*")]
    values = (float(model.x.value), float(model.y.value))
    left = (*_alive(pids), *files)
    return Outcome(answer, values, not bound <= OPTIMA[fake.model], left, raised)


def _write(path: Path, fake: Fake, pids: Path) -> None:
    if fake.body is None:
        return
    site = str(Path(casadi.__file__).parents[1])
    head = HEAD.format(python=sys.executable, site=site, pids=str(pids))
    body = fake.body if isinstance(fake.body, bytes) else (head + fake.body).encode()
    path.write_bytes(body)
    path.chmod(0o755)


@contextmanager
def _surroundings(folder: Path, temporary: Path) -> Iterator[None]:
    """Programs of this folder alone, temporary files in the other, a short grace."""
    before, executable = dict(os.environ), sys.executable
    patience = process.GRACE, process.LATE, process.GOING
    os.environ.update({"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(folder)})
    os.environ.pop("IDAES_DATA", None)
    tempfile.tempdir, sys.executable = str(temporary), str(folder / "python")
    process.GRACE, process.LATE, process.GOING = 0.6, 0.1, 0.2
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        tempfile.tempdir, sys.executable = None, executable
        process.GRACE, process.LATE, process.GOING = patience


def _alive(pids: Path) -> list[str]:
    numbers = pids.read_text().split() if pids.exists() else []
    time.sleep(0.0 if numbers else 0.01)
    return [n for n in numbers if _state(n) not in ("", "Z")]


def _state(pid: str) -> str:
    """State of a process by Linux's /proc; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def agrees(name: str, found: Outcome) -> str:
    """What is wrong with an outcome, or nothing."""
    fake, answer = FAKES[name], found.answer
    if answer is None or found.traceback:
        return found.traceback
    distance = answer.objective - answer.lower_bound
    wrong = {
        "status": answer.status is not fake.status,
        "false bound": found.false_bound,
        "left": bool(found.left),
        "words": not all(w in answer.message for w in fake.words),
        "name": name.split(maxsplit=1)[0] not in answer.message.lower(),
        "bound": fake.gap < np.inf and not -1e-12 <= distance <= fake.gap,
        "unexpected bound": fake.gap == np.inf and np.isfinite(distance),
        "point": max(np.abs(np.subtract(found.values, POINT if fake.point else (0.5, 0.5)))) > 1e-9,
        "objective": fake.point is not bool(np.isfinite(answer.objective)),
    }
    return f"{[w for w, is_so in wrong.items() if is_so]}: {found}" if any(wrong.values()) else ""


def real_scip() -> str | None:
    """A program that is SCIP itself, the one in PySCIPOpt's wheel; None where there is none."""
    libraries = sorted(
        Path(casadi.__file__).parents[1].glob("[Pp]y[Ss][Cc][Ii][Pp]*.libs/libscip*")
    )
    if not libraries or os.name != "posix":
        return None
    return (
        f"#!{sys.executable} -IS\nimport ctypes, sys\n"
        f"scip = ctypes.CDLL({str(libraries[0])!r})\n"
        "words = [w.encode() for w in sys.argv]\n"
        "argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)\n"
        "sys.exit(scip.SCIPrunShell(len(words), argv, b'scip.set') != 1)\n"
    )
