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
from igpe.solvers.program import AmplProgram
from igpe.solvers.programs import Bonmin, Couenne, ScipProgram

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

    body    what it does, in Python; or its whole text, if `raw`; None: there is no such program
    status  expected;  words: expected in the message, beside the program's name
    gap     largest expected distance of incumbent and bound; inf: no bound is expected
    point   whether the model must hold POINT afterwards, else its start values
    """

    body: str | bytes | None
    status: Status
    words: tuple[str, ...] = ()
    gap: float = np.inf
    point: bool = False
    model: str = "three"
    limit: float | None = None
    raw: bool = False


OPTIMAL, FAILED, INFEASIBLE = Status.OPTIMAL_WITHIN_GAP, Status.FAILED, Status.INFEASIBLE
TIME, LIMIT, LOCAL = Status.TIME_LIMIT, Status.ITERATION_LIMIT, Status.CONVERGED
UNSURE, STOPPED = Status.BEST_OF_SEVERAL, Status.INTERRUPTED
TOLERANT = """
worse, best = objective((0.5, 2.0)), objective((1.0, 2.0))
point = (0.5, 2.0) if worse - best <= 3e-7 else (1.0, 2.0)
"""  # to a solver whose tolerance is absolute both are optimal
GAP = "solving was interrupted [gap limit reached]"
TRAP = "signal.signal(signal.SIGINT, lambda *_: interrupted())\n"
CHILD = "known(subprocess.Popen(['sleep', '60']).pid)\n"

FAKES: dict[str, Fake] = {
    # SCIP: the message says which limit it was, as its numbers differ between versions
    "scip optimal": Fake(
        "scip('problem is solved [optimal solution found]', 3.0)", OPTIMAL, (), 1e-3, True
    ),
    "scip gap limit, version 10": Fake(f"scip({GAP!r}, 2.9999, code=409)", OPTIMAL, (), 1e-3, True),
    "scip time limit": Fake(
        "assert 'limits/time = 7.5' in options()\n"
        "scip('solving was interrupted [time limit reached]', 1.5, code=403)",
        TIME,
        ("time limit reached",),
        1.51,
        True,
        limit=7.5,
    ),
    "scip time limit without incumbent": Fake(
        "scip('solving was interrupted [time limit reached]', 1.5, (), 403)",
        TIME,
        ("time limit",),
        limit=7.5,
    ),
    "scip node limit": Fake(
        "scip('solving was interrupted [node limit reached]', -4.0, code=400)",
        LIMIT,
        ("node limit reached",),
        7.1,
        True,
    ),
    "scip user interrupt": Fake(
        "scip('solving was interrupted [user interrupt]', 2.0, code=450)", STOPPED, (), 1.1, True
    ),
    "scip infeasible": Fake(
        "scip('problem is solved [infeasible]', 1e20, (), 200)", INFEASIBLE, ("infeasible",)
    ),
    "scip infeasible or unbounded": Fake(
        "scip('problem is solved [infeasible or unbounded]', -1e20, (), 299)",
        FAILED,
        ("infeasible or unbounded",),
    ),
    "scip no bound yet": Fake(
        "scip('solving was interrupted [time limit reached]', -1e20, code=403)",
        TIME,
        point=True,
        limit=5.0,
    ),
    "scip optimum zero": Fake(
        "assert 'limits/absgap' in options()\n"
        "scip('problem is solved [optimal solution found]', -1e-7)",
        OPTIMAL,
        (),
        1e-5,
        True,
        "zero",
    ),
    "scip negative optimum": Fake(
        f"scip({GAP!r}, -3.0002, code=409)", OPTIMAL, (), 1e-3, True, "negative"
    ),
    "scip tolerant of 1e-12": Fake(
        TOLERANT + f"scip({GAP!r}, objective(point), point, 409)", OPTIMAL, (), 1e-15, True, "tiny"
    ),
    "scip bound far below": Fake(
        "scip('problem is solved [optimal solution found]', -5.0)", UNSURE, ("apart",), 8.1, True
    ),
    "scip bound above its point": Fake(
        "scip('problem is solved [optimal solution found]', 4.0)",
        UNSURE,
        ("lies above the objective",),
        point=True,
    ),
    "scip prints no bound": Fake(
        "sol('optimal solution found', 0)", UNSURE, ("optimal solution found",), point=True
    ),
    "scip prints nan": Fake(
        "print('Dual Bound         : nan')\nsol('optimal solution found', 0)", UNSURE, point=True
    ),
    "scip prints words": Fake(
        "print('Dual Bound         : unknown')\nsol('optimal solution found', 0)",
        UNSURE,
        point=True,
    ),
    "scip solves with a late child": Fake(
        CHILD + "scip('problem is solved [optimal solution found]', 3.0)", OPTIMAL, (), 1e-3, True
    ),
    # Couenne and Bonmin
    "couenne rounds its bound up": Fake("couenne('3.00001')", OPTIMAL, (), 1e-3, True),
    "couenne time limit": Fake(
        "assert 'time_limit 7.5' in options()\nassert 'allowable_gap' in options()\n"
        "couenne('2.9', 421, ': Optimization interrupted on limit.')",
        LIMIT,
        ("interrupted on limit",),
        0.2,
        True,
        limit=7.5,
    ),
    "couenne uses up its time": Fake(
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(0.49)\n"
        "couenne('2.9', 421, ': Optimization interrupted on limit.')",
        TIME,
        ("interrupted on limit",),
        0.2,
        True,
        limit=0.5,
    ),
    "couenne interrupted": Fake(
        TRAP + "def interrupted():\n"
        "    couenne('2.9', 422, ': Optimization interrupted by user.')\n    sys.exit()\n"
        "time.sleep(60)",
        TIME,
        ("interrupted by user",),
        0.2,
        True,
        limit=0.2,
    ),
    "couenne unknown option": Fake(
        "print('Ipopt exception : Read Option: \"allowable_gap\". It is not a valid option.')",
        FAILED,
        ("wrote no solution", "not a valid option"),
    ),
    "bonmin optimal": Fake("sol('bonmin: Optimal', 3)", LOCAL, ("Optimal",), point=True),
    "bonmin limit": Fake(
        "assert 'bonmin.time_limit 5' in options()\n"
        "sol('bonmin: Optimization interrupted on limit.', 421)",
        LIMIT,
        point=True,
        limit=5.0,
    ),
    "bonmin limit without incumbent": Fake(
        "sol('bonmin: Optimization interrupted on limit.', 410, ())", LIMIT, ("on limit",)
    ),
    "bonmin infeasible": Fake("sol('bonmin: Infeasible problem', 220, ())", INFEASIBLE),
    "bonmin unbounded": Fake(
        "sol('bonmin Continuous relaxation is unbounded.', 300)", FAILED, ("unbounded",)
    ),
    # IPOPT
    "ipopt optimal": Fake(
        "sol('Ipopt 3.14.19: Optimal Solution Found', 0,"
        " tail='suffix 4 2 13 0 0\\nipopt_zL_out\\n0 1.5\\n1 2.5\\n')",
        LOCAL,
        ("Optimal Solution Found",),
        point=True,
    ),
    "ipopt wall time": Fake(
        "assert 'max_wall_time=5.0' in options()\n"
        "sol('Ipopt 3.14.19: Maximum Wallclock Time Exceeded.', 402)",
        TIME,
        point=True,
        limit=5.0,
    ),
    "ipopt diverging": Fake(
        "sol('Ipopt 3.14.19: Iterates diverging; problem might be unbounded.', 300)",
        FAILED,
        ("diverging",),
    ),
    # Broken programs
    "scip hangs": Fake(
        "time.sleep(60)", FAILED, ("did not stop at its time limit of 0.2 s",), limit=0.2
    ),
    "scip ignores signals": Fake(
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM,"
        " signal.SIG_IGN)\n" + CHILD + "time.sleep(60)",
        FAILED,
        ("did not stop",),
        limit=0.2,
    ),
    "ipopt hangs after its answer": Fake(
        "sol('Ipopt 3.14.19: Optimal Solution Found', 0)\ntime.sleep(60)",
        LOCAL,
        point=True,
        limit=0.2,
    ),
    "scip hangs with a bound": Fake(
        "print('Dual Bound         : +2.0e+00', flush=True)\ntime.sleep(60)",
        TIME,
        ("ended at the time limit",),
        limit=0.4,
    ),
    "ipopt hangs after half an answer": Fake(
        "pathlib.Path('model.sol').write_text('Ipopt: Opt')\ntime.sleep(60)",
        FAILED,
        ("did not stop", "incomplete"),
        limit=0.4,
    ),
    "scip crashes": Fake(
        "os.kill(os.getpid(), signal.SIGSEGV)", FAILED, ("signal 11", "no solution")
    ),
    "scip crashes after its answer": Fake(
        "scip('optimal solution found', 3.0)\nsys.stdout.flush()\n"
        "os.kill(os.getpid(), signal.SIGABRT)",
        FAILED,
        ("signal 6",),
    ),
    "ipopt writes garbage": Fake(
        "pathlib.Path('model.sol').write_bytes(os.urandom(5000) + b'\\n')", FAILED, ("cannot read",)
    ),
    "ipopt no UTF-8": Fake(
        "sys.stdout.buffer.write(b'\\xff\\xfe\\xe9 Gr\\xf6\\xdfe \\x1b[31m')", FAILED, ("Gr",)
    ),
    "ipopt no UTF-8 in its message": Fake(
        "sol('M', 0)\ntext = pathlib.Path('model.sol').read_bytes()\n"
        "pathlib.Path('model.sol').write_bytes(text.replace(b'M', b'Gr\\xf6\\xdfe', 1))",
        LOCAL,
        ("Gr",),
        point=True,
    ),
    "couenne truncated in its code": Fake(
        "couenne('3', 421)\ntext = pathlib.Path('model.sol').read_text()\n"
        "pathlib.Path('model.sol').write_text(text[:text.index('objno') + 9])",
        FAILED,
        ("incomplete",),
    ),
    "ipopt no code": Fake(
        "sol('Ipopt: Optimal', 0)\ntext = pathlib.Path('model.sol').read_text()\n"
        "pathlib.Path('model.sol').write_text(text.replace('objno 0 0', 'objno 0'))",
        FAILED,
        ("cannot read",),
    ),
    "ipopt other model": Fake(
        "sol('Ipopt: Optimal', 0)\ntext = pathlib.Path('model.sol').read_text()\n"
        "pathlib.Path('model.sol').write_text(text.replace('2\\n2\\n1.0', '3\\n3\\n9.0\\n1.0'))",
        FAILED,
        ("3 values for 2 variables",),
    ),
    "ipopt huge count": Fake(
        "pathlib.Path('model.sol').write_text('M\\n\\nOptions\\n3\\n1\\n1\\n0\\n1\\n0\\n2\\n"
        "99999999999\\n1.0\\n')",
        FAILED,
        ("cannot read",),
    ),
    "ipopt huge file": Fake(
        "pathlib.Path('model.sol').write_bytes(b'M\\n' * 2_000_000)", FAILED, ("too large",)
    ),
    "ipopt nan": Fake("sol('Ipopt: Optimal', 0, (float('nan'), 2.0))", FAILED, ("not finite",)),
    "ipopt solved without values": Fake(
        "sol('Ipopt: Optimal', 0, ())", FAILED, ("returned no values",)
    ),
    "scip outside the bounds": Fake(
        "scip('optimal solution found', 3.0, (-7.0, 2.0))", FAILED, ("'x' = -7", "bounds 0 and 4")
    ),
    "couenne violates a constraint": Fake(
        "couenne('3', point=(3.0, 3.0))", FAILED, ("violates a constraint", "'limit' is 6")
    ),
    "ipopt a hair outside": Fake("sol('M', 0, (1.0, 2.0 + 1e-12))", LOCAL, point=True),
    "ipopt a pipe": Fake("os.mkfifo('model.sol')", FAILED, ("wrote no solution",)),
    "ipopt a locked folder": Fake(
        "os.makedirs('a/b')\nos.chmod('a', 0)\nsol('M', 0)", LOCAL, point=True
    ),
    "ipopt reads its input": Fake("assert sys.stdin.read() == ''\nsol('M', 0)", LOCAL, point=True),
    "couenne bound before a long log": Fake(
        "couenne('3')\nprint('x' * 1_000_000)", UNSURE, point=True
    ),
    "ipopt no program": Fake(b"\x7fELF no program at all\n", FAILED, ("cannot be run",), raw=True),
    "couenne missing": Fake(None, Status.NO_SOLVER, ("idaes get-extensions",)),
}
"""By name; its first word is the program's."""

SOLVERS = {
    "scip": ScipProgram(),
    "couenne": Couenne(),
    "bonmin": Bonmin(),
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
