"""Where igpe's time goes beside the numbers it computes: import, translation, steps, first calls.

    python benchmarks/overhead.py [import] [translation] [steps] [repeated] [--json FILE]

import       of the package in a fresh process, and what takes longest in it
translation  of a chain of n reactions, 2 parameters (pyomo.dae); its growth with n
steps        of `igpe.estimate`, each in a fresh process with an empty cache of compiled models
repeated     the same problem estimated again; one refit of a bootstrap and one search from a start,
             made ready once, beside a whole estimate

All seconds are of the processor. A fresh process begins after everything is imported, but where the
import is what is measured.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import pairwise
from statistics import median
from typing import Any

from figures import MODELS, Row, at_most, command
from kinetic_chain import chain

from igpe.equations.compiled import compiled
from igpe.structure.structure import analyse

TRANSLATION = 2.0  # s, target for 1,000 equations
SIZES = (100, 300, 1000, 3000)
PROBLEMS = (
    "consecutive", "reversible", "gas_oil_cracking", "bellman", "methanol", "lotka_volterra",
    "urethane", "pendulum", "fitzhugh_nagumo",
)  # fmt: skip
RUNS, LARGEST = 3, 5
SAMPLES = 20  # of a bootstrap

ESTIMATE = """
import importlib, json, resource, sys
import igpe
from igpe.pipeline import estimate
import igpe.estimation.summary, igpe.dynamics.integrators.automatic
import igpe.uncertainty.adequacy, scipy.optimize

def cpu():
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)  # with the compiler that was called

def steps(problem):
    at = []
    begun = cpu()
    result = estimate(problem, seed=0, progress=lambda s: at.append((s, cpu())))
    ends = [t for _, t in at[1:]] + [cpu()]
    parts = {s.split(":")[0]: end - t for (s, t), end in zip(at, ends)}
    return cpu() - begun, parts, result

module = importlib.import_module(sys.argv[1])
"""
STEPS = """
begun = cpu()
problem = module.problem()
made = cpu() - begun
whole, parts, result = steps(problem)
print(json.dumps({"made": made, "whole": whole, "parts": parts, "objective": result.objective}))
"""
REPEATED = """
first = steps(module.problem())[0]
problem = module.problem()
again, _, result = steps(problem)
begun = cpu()
igpe.bootstrap(problem, result, replications=int(sys.argv[2]), seed=0)
refit = (cpu() - begun) / int(sys.argv[2])
shooting = igpe.SingleShooting()
begun = cpu()
prepared = shooting.prepare(problem)
ready = cpu() - begun
starts = [problem.box.mapping(p) for p in problem.box.sobol(8, 0)]
begun = cpu()
for start in starts:
    prepared.estimate(start)
search = (cpu() - begun) / len(starts)
told = {"first": first, "again": again, "refit": refit, "ready": ready, "search": search}
print(json.dumps(told))
"""


def imports(given: argparse.Namespace) -> Iterator[Row]:
    """Of the package alone, and with the pipeline."""
    for what, words in (
        ("import igpe", "import igpe"),
        ("import igpe, igpe.estimate", "import igpe; igpe.estimate"),
        ("pyomo.environ and casadi alone", "import pyomo.environ, casadi, pyomo.dae"),
    ):
        code = f"import time; {words}; print(time.process_time())"
        found = median(float(_python(code)) for _ in range(RUNS))
        yield at_most(what, "processor time of the process", found, "s")
    yield from _largest()


def _largest() -> Iterator[Row]:
    """Packages that take longest by themselves, as `-X importtime` tells."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", "import igpe; igpe.estimate"],
        capture_output=True, text=True, check=True, env=_environment(""),
    ).stderr  # fmt: skip
    own: dict[str, float] = {}
    for line in told.splitlines():
        words = line.removeprefix("import time:").split("|")
        if words[0].strip().isdigit():
            package = words[2].strip().split(".")[0]
            own[package] = own.get(package, 0.0) + float(words[0]) * 1e-6
    for name, seconds in sorted(own.items(), key=lambda item: -item[1])[:LARGEST]:
        yield at_most("import igpe, igpe.estimate", f"wall time within {name}", seconds, "s")


def translation(given: argparse.Namespace) -> Iterator[Row]:
    """Problem, equations in CasADi, block triangular form, structure."""
    chain(SIZES[0], 5)  # whatever is imported or made once
    times: list[tuple[int, float]] = []
    for n in SIZES:
        at = [time.process_time()]
        problem = chain(n, 5)
        at.append(time.process_time())
        compiled(problem).initial_value_problem(0)
        at.append(time.process_time())
        analyse(problem, most_work=0.0)
        at.append(time.process_time())
        built, translated, structure = (b - a for a, b in pairwise(at))
        case, limit = f"{n} equations", TRANSLATION if n == 1000 else None
        yield at_most(case, "the user's builder, called twice, and checks", built, "s")
        yield at_most(case, "translated", translated, "s", limit)
        yield at_most(case, "structure", structure, "s")
        times.append((n, translated))
    for (n, a), (m, b) in pairwise(times):
        power = math.log(b / a) / math.log(m / n)
        yield at_most(f"{n} to {m} equations", "power of n that translation grows with", power)


def steps(given: argparse.Namespace) -> Iterator[Row]:
    """Each problem in a process of its own."""
    for name in given.only or PROBLEMS:
        found = _child(STEPS, name)
        yield at_most(name, "problem", found["made"], "s")
        yield at_most(name, "estimate", found["whole"], "s")
        for part, seconds in found["parts"].items():
            yield at_most(name, f"share of {part.lower()}", 100 * seconds / found["whole"], "%")


def repeated(given: argparse.Namespace) -> Iterator[Row]:
    """What is saved where a problem is made ready once."""
    for name in given.only or PROBLEMS[:6]:
        found = _child(REPEATED, name, str(SAMPLES))
        yield at_most(name, "estimate, first", found["first"], "s")
        yield at_most(name, "estimate, again", found["again"], "s")
        yield at_most(name, f"bootstrap of {SAMPLES}, each", found["refit"], "s")
        yield at_most(name, "single shooting, made ready", found["ready"], "s")
        yield at_most(name, "single shooting, each of 8 starts", found["search"], "s")


def _child(code: str, *words: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="overhead-") as cache:
        found: dict[str, Any] = json.loads(_python(ESTIMATE + code, *words, cache=cache))
    return found


def _python(code: str, *words: str, cache: str = "") -> str:
    """The last line that a fresh process prints."""
    ran = subprocess.run(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE, text=True, check=True, env=_environment(cache),
    )  # fmt: skip
    return ran.stdout.splitlines()[-1]


def _environment(cache: str) -> dict[str, str]:
    path = os.pathsep.join([str(MODELS), str(MODELS.parent), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path} | ({"XDG_CACHE_HOME": cache} if cache else {})


def options(parser: argparse.ArgumentParser) -> None:
    """Which problems."""
    parser.add_argument("--only", nargs="*", default=[], choices=PROBLEMS)


if __name__ == "__main__":
    command(
        __doc__,
        "Overhead",
        {"import": imports, "translation": translation, "steps": steps, "repeated": repeated},
        options,
    )
