"""The official PEtab test suites, SBML cases of versions 1 and 2: all through the public functions.

    python benchmarks/petab_suite.py [v1] [v2] [runner] [--only TEXT] [--peer PYTHON] [--json FILE]

A case passes where log-likelihood, chi squared, every simulated value and, where they are given,
log priors lie within the tolerances of its solution. No case of either suite gives derivatives;
tests compare those with differences. benchmarks/petab_suite holds the cases (PEtab test suite,
https://github.com/PEtab-dev/petab_test_suite, BSD licence).

`runner` lets the suite's own program judge (`petabtests`: evaluate_llh, evaluate_chi2,
evaluate_simulations; it compares whole tables, with condition and observable ids). It is installed
apart, as it wants other versions of its libraries:

    python -m venv PEER && PEER/bin/pip install petabtests
    python benchmarks/petab_suite.py runner --peer PEER/bin/python
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from figures import Row, at_least, at_most, command

import igpe
from igpe.dynamics.likelihood import of_measurements

SUITES = Path(__file__).parent / "petab_suite"
VERSIONS = {"v1": "v1.0.0", "v2": "v2.0.0"}
PEER = """
import io, json, sys
import pandas, petabtests
def table(text):
    found = pandas.read_csv(io.StringIO(text), sep="\\t", dtype={"time": float})
    found = found.rename(columns={"experimentId": "simulationConditionId"})
    named = found.get("simulationConditionId", pandas.Series("", index=found.index))
    return found.assign(simulationConditionId=named.astype(object).fillna(""))
passed = {}
for name, job in json.load(sys.stdin).items():
    mine, true = table(job["mine"]), table(job["true"])
    try:
        passed[name] = [
            bool(petabtests.evaluate_llh(*job["llh"])),
            bool(petabtests.evaluate_chi2(*job["chi2"])),
            bool(petabtests.evaluate_simulations([mine], [true], job["tolerance"])),
        ]
    except AssertionError:
        passed[name] = [False, False, False]
print(json.dumps(passed))
"""


def differences(folder: Path) -> dict[str, tuple[float, float]]:
    """Figure -> how far it is off, and how far it may be."""
    name = folder.name
    solution = yaml.safe_load((folder / f"_{name}_solution.yaml").read_text())
    problem = igpe.petab.read_petab(folder / f"_{name}.yaml")
    found = igpe.petab.petab_simulations(problem)
    wanted = pd.concat(
        pd.read_csv(folder / file, sep="\t") for file in solution["simulation_files"]
    )
    off = found["simulation"].to_numpy() - wanted["simulation"].to_numpy(dtype=float)
    parameters = problem.model.nominal
    llh = -igpe.petab.petab_objective(problem)
    own = {
        "llh": abs(llh - solution["llh"]),
        "chi2": abs(chi2(problem, parameters) - solution["chi2"]),
        "simulations": float(np.max(np.abs(off))),
    }
    if "unnorm_log_posterior" in solution:
        posterior = -igpe.petab.petab_objective(problem, priors=True)
        own["unnorm_log_posterior"] = abs(posterior - solution["unnorm_log_posterior"])
    for prior, value in solution.get("log_prior", {}).items():
        mine = (
            problem.priors[prior].log_density(parameters[prior]) if prior in problem.priors else 0
        )
        if prior in problem.priors:
            own[f"prior of {prior}"] = abs(mine - value)
    tolerance = {k: solution.get(f"tol_{k}", 1e-3) for k in own}
    return {k: (v, tolerance[k] if "prior of" not in k else 1e-12) for k, v in own.items()}


def chi2(problem: igpe.Problem, parameters: dict[str, float]) -> float:
    """Sum of squared residuals, divided by their standard deviations."""
    at = (
        igpe
        .SingleShooting()
        .prepare(problem)
        .residuals(np.array([parameters[n] for n in problem.box.names]))
    )
    assert at is not None
    plain = of_measurements(problem, at).residual[: problem.size]
    return float(plain @ plain)


def folders(args: argparse.Namespace, *versions: str) -> Iterator[tuple[str, Path]]:
    """Version and number of the requested cases, and where they lie."""
    for version in versions:
        for folder in sorted((SUITES / VERSIONS[version] / "sbml").iterdir()):
            if folder.is_dir() and args.only in f"{version} {folder.name}":
                yield f"{version} {folder.name}", folder


def suite(version: str, args: argparse.Namespace) -> Iterator[Row]:
    """Every case, then how many passed."""
    passed, tried = 0, 0
    for name, folder in folders(args, version):
        tried += 1
        try:
            found = differences(folder)
        except igpe.errors.IgpeError as error:
            print(f"{name}: {error}")
            continue
        worst = max(found, key=lambda k: np.nan_to_num(found[k][0], nan=np.inf) / found[k][1])
        off, limit = found[worst]
        row = at_most(name, worst, off, "-", limit)
        passed += bool(off <= limit)
        yield row
    yield at_least(version, "passed", passed, f"of {tried}", tried)


def runner(args: argparse.Namespace) -> Iterator[Row]:
    """The suite's own program."""
    if subprocess.run(
        [args.peer, "-c", "import petabtests"], check=False, capture_output=True
    ).returncode:
        yield Row("runner", f"petabtests is not installed for {args.peer}", np.nan, "-", "", None)
        return
    jobs = {}
    for name, folder in folders(args, *VERSIONS):
        try:
            jobs[name] = _job(folder)
        except igpe.errors.IgpeError as error:
            print(f"{name}: {error}")
            jobs[name] = {}
    text = json.dumps({n: job for n, job in jobs.items() if job})
    done = subprocess.run(
        [args.peer, "-c", PEER], check=False, input=text, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    judged = json.loads(done.stdout.splitlines()[-1])
    for name in jobs:
        given = judged.get(name, [])
        yield at_least(name, "llh, chi2, simulations right", sum(given), "of 3", 3)
    passed = sum(all(given) for given in judged.values())
    yield at_least("runner", "passed", passed, f"of {len(jobs)}", len(jobs))


def _job(folder: Path) -> dict[str, Any]:
    """What the suite's program compares, of one case."""
    solution = yaml.safe_load((folder / f"_{folder.name}_solution.yaml").read_text())
    problem = igpe.petab.read_petab(folder / f"_{folder.name}.yaml")
    (file,) = solution["simulation_files"]
    return {
        "llh": [-igpe.petab.petab_objective(problem), solution["llh"], solution["tol_llh"]],
        "chi2": [chi2(problem, problem.model.nominal), solution["chi2"], solution["tol_chi2"]],
        "mine": igpe.petab.petab_simulations(problem).to_csv(sep="\t", index=False),
        "true": (folder / file).read_text(),
        "tolerance": solution["tol_simulations"],
    }


def options(parser: argparse.ArgumentParser) -> None:
    """Arguments beside those of all benchmarks."""
    parser.add_argument("--only", default="", help="cases whose name holds this text")
    parser.add_argument("--peer", default=sys.executable, help="Python with petabtests")


def v1(args: argparse.Namespace) -> Iterator[Row]:
    """Version 1."""
    yield from suite("v1", args)


def v2(args: argparse.Namespace) -> Iterator[Row]:
    """Version 2."""
    yield from suite("v2", args)


if __name__ == "__main__":
    command(__doc__, "PEtab test suite", {"v1": v1, "v2": v2, "runner": runner}, options)
