"""Whether igpe became slower: its processor times beside those of an earlier commit, in one run.

    python benchmarks/guard.py [CASE ...] [--against COMMIT] [--quick] [--json FILE]

Each case runs in fresh processes of both versions, by turns, first once without a clock (what is
compiled is kept). A ratio is the median time of today over the median time of before; one above 1.1
ends the program with 1. Without --against it is the commit of version 0.1.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import importlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from figures import Row, at_most, show, written

ROOT = Path(__file__).resolve().parents[1]
FIRST = "158e403"  # version 0.1
LIMIT = 1.1
TURNS = 3  # processes of each version
TIMED = 3  # runs in each process
QUICK = ("build urethane", "check methanol", "estimate consecutive", "single shooting", "simulate")
PROVED = ("consecutive", "reversible", "gas_oil_cracking", "bellman", "methanol", "lotka_volterra")
LONG = ("prove methanol",)  # minutes: one run of each version
PLACES = ("igpe", "igpe.integrators", "igpe.search", "igpe.planning", "igpe.petab")

Run = Callable[[], object]


def named(name: str) -> Any:
    """A public name, wherever a version offers it."""
    igpe = importlib.import_module("igpe")
    for place in PLACES:
        family = igpe if place == "igpe" else getattr(igpe, place.removeprefix("igpe."), None)
        if hasattr(family, name):
            return getattr(family, name)
    raise SystemExit(f"igpe has no {name}")


def posed(model: str) -> Any:
    return importlib.import_module(model).problem()


def optimum(model: str) -> dict[str, float]:
    return dict(importlib.import_module(model).OPTIMUM)


def build(model: str) -> Run:
    """The problem and its equations: what comes before any method."""
    return lambda: named("simulate")(posed(model), optimum(model))


def check(model: str) -> Run:
    problem = posed(model)
    return lambda: named("check")(problem)


def estimate(model: str, *, certify: bool = False) -> Run:
    return lambda: named("estimate")(posed(model), certify=certify)


def simulate(model: str, integrator: str) -> Run:
    problem, method = posed(model), named(integrator)()
    return lambda: named("simulate")(problem, optimum(model), integrator=method)


def by_method(model: str, method: str, away: float, **settings: Any) -> Run:
    """An estimator from values `away` times the best known ones."""
    estimator, values = named(method)(**settings), optimum(model)
    return lambda: estimator.estimate(posed(model), {n: away * v for n, v in values.items()})


def many_starts(model: str) -> Run:
    return lambda: named("MultiStart")(starts=4).estimate(posed(model), {})


def after(model: str, function: str, **given: Any) -> Run:
    """What follows an estimate."""
    problem = posed(model)
    result = named("estimate")(problem, certify=False)
    return lambda: named(function)(problem, result, **given)


def prove(model: str) -> Run:
    """A proof from the best known values; what it compiles is compiled before."""
    problem, known, certify = posed(model), optimum(model), named("certify")
    certify(problem, known, time_limit=1.0)
    return lambda: certify(problem, known, gap=1e-3, time_limit=900.0)


def verify(model: str) -> Run:
    problem = posed(model)
    proof = named("certify")(problem)
    return lambda: named("verify")(proof, problem)


def design(model: str) -> Run:
    problem = posed(model)
    result = named("estimate")(problem, certify=False)
    name = problem.experiments[0].measured[0]
    free = {name: named("Between")(0.5, 1.5)}
    return lambda: named("design")(problem, result, free=free)


def petab(*, objective: bool) -> Run:
    path = ROOT / "data" / "petab" / "Boehm_JProteomeRes2014" / "Boehm_JProteomeRes2014.yaml"
    read = named("read_petab")
    if not objective:
        return lambda: read(path)
    problem = read(path)
    return lambda: named("petab_objective")(problem)


CASES: dict[str, Callable[[], Run]] = {
    "build consecutive": partial(build, "consecutive"),
    "build methanol": partial(build, "methanol"),
    "build urethane": partial(build, "urethane"),
    "check consecutive": partial(check, "consecutive"),
    "check methanol": partial(check, "methanol"),
    "check lotka_volterra": partial(check, "lotka_volterra"),
    "check urethane": partial(check, "urethane"),
    "estimate consecutive": partial(estimate, "consecutive"),
    "estimate gas_oil_cracking": partial(estimate, "gas_oil_cracking"),
    "estimate methanol": partial(estimate, "methanol"),
    "estimate lotka_volterra": partial(estimate, "lotka_volterra"),
    "estimate bellman": partial(estimate, "bellman"),
    "estimate cops_methanol": partial(estimate, "cops_methanol"),
    "estimate and prove consecutive": partial(estimate, "consecutive", certify=True),
    "estimate and prove gas_oil_cracking": partial(estimate, "gas_oil_cracking", certify=True),
    "simulate methanol, Sundials": partial(simulate, "methanol", "Sundials"),
    "simulate stat5, Automatic": partial(simulate, "stat5", "Automatic"),
    "simulate robertson, Sundials": partial(simulate, "robertson", "Sundials"),
    "single shooting, lotka_volterra": partial(by_method, "lotka_volterra", "SingleShooting", 1.02),
    "single shooting, methanol": partial(by_method, "methanol", "SingleShooting", 1.5),
    "incremental shooting, bellman": partial(by_method, "bellman", "IncrementalShooting", 2.0),
    "multiple shooting, lotka_volterra": partial(
        by_method, "lotka_volterra", "MultipleShooting", 1.2
    ),
    "multiple shooting, methanol": partial(by_method, "methanol", "MultipleShooting", 2.0),
    "collocation, methanol": partial(by_method, "methanol", "Collocation", 1.5),
    "collocation, lotka_volterra": partial(by_method, "lotka_volterra", "Collocation", 1.05),
    "many starts, gas_oil_cracking": partial(many_starts, "gas_oil_cracking"),
    "profile consecutive": partial(after, "consecutive", "profile"),
    "bootstrap consecutive": partial(after, "consecutive", "bootstrap", replications=30),
    "predict methanol": partial(after, "methanol", "predict"),
    "certify consecutive": partial(after, "consecutive", "certify"),
    **{f"prove {model}": partial(prove, model) for model in PROVED},
    "verify consecutive": partial(verify, "consecutive"),
    "design consecutive": partial(design, "consecutive"),
    "read PEtab": partial(petab, objective=False),
    "objective PEtab": partial(petab, objective=True),
}


def timed(name: str) -> list[float]:
    """Processor seconds of a case, after one run without a clock."""
    run = CASES[name]()
    if name not in LONG:
        run()
    seconds = []
    for _ in range(1 if name in LONG else TIMED):
        began = time.process_time()
        run()
        seconds.append(time.process_time() - began)
    return seconds


def times(name: str, tree: Path) -> list[float]:
    """A case in a fresh process that imports the igpe of a tree."""
    path = os.pathsep.join(map(str, (tree, tree / "models")))
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--time", name],
        env={**os.environ, "PYTHONPATH": path},
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} in {tree}:\n{done.stderr[-2000:]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def ratios(names: list[str], before: Path) -> Iterator[Row]:
    for name in names:
        today: list[float] = []
        old: list[float] = []
        for _ in range(1 if name in LONG else TURNS):
            today += times(name, ROOT)
            old += times(name, before)
        yield at_most(name, "s, before", median(old), "s")
        yield at_most(name, "s, today", median(today), "s")
        yield at_most(name, "today over before", median(today) / median(old), "-", LIMIT)


def exported(commit: str, folder: Path) -> Path:
    """The package, models and data of a commit."""
    words = ["git", "-C", str(ROOT), "archive", commit, "igpe", "models", "data"]
    done = subprocess.run(words, capture_output=True, check=True)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def main() -> int:
    """0 if nothing became slower."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", help="names, or beginnings of names; default: all")
    parser.add_argument("--against", default=FIRST, help="commit to compare with")
    parser.add_argument("--quick", action="store_true", help="a few quick cases")
    parser.add_argument("--json", type=Path, help="file for the rows")
    parser.add_argument("--time", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.time:
        print(json.dumps(timed(given.time)))
        return 0
    wanted = tuple(QUICK if given.quick else given.cases) or ("",)
    names = [name for name in CASES if name.startswith(wanted)]
    with tempfile.TemporaryDirectory() as folder:
        rows = list(ratios(names, exported(given.against, Path(folder))))
    show("Guard", rows)
    if given.json:
        given.json.write_text(written(rows), encoding="utf-8")
    slower = [row.case for row in rows if row.reached is False]
    if slower:
        print(f"SLOWER by more than 10 %: {', '.join(slower)}.", file=sys.stderr)
    return int(bool(slower))


if __name__ == "__main__":
    sys.exit(main())
