"""igpe --version: versions, solvers that were found, and how to install the others."""

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from igpe.dynamics.integrators.compiler import compiler
from igpe.solvers.located import environment, locate

NAMES = {"pyomo": "Pyomo", "casadi": "CasADi", "numpy": "NumPy", "scipy": "SciPy"}
PATIENCE = 0.7  # s that a program may take to tell its version
VERSION = "-v"  # asks every AMPL solver for it


class SolverEntry(NamedTuple):
    """An outside solver, as a Python package, a program, or both.

    inside  whether the package is another one, which brings it
    """

    name: str
    what: str
    package: str
    program: str
    install: str
    inside: bool = False


SOLVERS = (
    SolverEntry("IPOPT", "local", "casadi", "", "pip install casadi", inside=True),
    SolverEntry("SCIP", "global", "pyscipopt", "scip", "pip install pyscipopt"),
    SolverEntry("MAiNGO", "global", "maingopy", "", "pip install maingopy (on x86-64 Linux)"),
    SolverEntry(
        "Couenne", "global", "", "couenne", "pip install idaes-pse && idaes get-extensions"
    ),
    SolverEntry("POUNCE", "local", "pounce-solver", "pounce", "pip install pounce-solver"),
)


def versions_text() -> str:
    """Versions of igpe, Python and its packages; of every solver, or how to install it."""
    packages = {n: _version(n) or f"missing: pip install {n}" for n in NAMES}
    wide = max(len(s.name) for s in SOLVERS)
    none = "none found; install gcc or clang to make integration faster"
    return "\n".join([
        f"igpe {own_version() or '(running from source)'}",
        f"Python {platform.python_version()} ({platform.platform(aliased=True, terse=True)})",
        *(f"{NAMES[name]} {shown}" for name, shown in packages.items()),
        "",
        "Solvers (those that igpe needs are installed with igpe)",
        *(f"  {s.name:<{wide}}  {s.what:<6}  {_installed(s)}" for s in SOLVERS),
        "",
        f"C compiler: {' '.join(compiler()) or none}",
    ])


def own_version() -> str:
    """Version of the installed igpe; empty if it runs from its source."""
    return _version("igpe")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _installed(solver: SolverEntry) -> str:
    """Describe the installation of a solver; the version of a program comes from running it."""
    package = _version(solver.package) if solver.package else ""
    program = locate(solver.program) if solver.program else None
    if not package and not program:
        return f"missing: {solver.install}"
    name = NAMES.get(solver.package, solver.package)
    places = [f"{'in ' if solver.inside else ''}{name} {package}"] if package else []
    if program and not package:
        places.append(f"{_reported(program) or 'program'} ({program})")
    return ", ".join(places)


def _reported(program: str) -> str:
    """The line in which a program tells its version."""
    try:
        done = subprocess.run(
            [program, VERSION],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment(program),
            timeout=PATIENCE,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = map(str.strip, (done.stdout + done.stderr).splitlines())
    line = next((line for line in lines if any(c.isdigit() for c in line)), "")
    return "".join(c if c.isprintable() else "?" for c in line)
