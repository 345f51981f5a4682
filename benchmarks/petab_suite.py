"""The official PEtab test suites, SBML cases of versions 1 and 2: all through the public functions.

    python benchmarks/petab_suite.py [v1] [v2] [--only TEXT] [--json FILE]

A case passes where log-likelihood, chi squared, every simulated value and, where they are given,
log priors lie within the tolerances of its solution. benchmarks/petab_suite holds the cases (PEtab
test suite, https://github.com/PEtab-dev/petab_test_suite, BSD licence).
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from figures import Row, at_least, at_most, command

import igpe
from igpe.dynamics.likelihood import of_measurements

SUITES = Path(__file__).parent / "petab_suite"
VERSIONS = {"v1": "v1.0.0", "v2": "v2.0.0"}


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


def suite(version: str, args: argparse.Namespace) -> Iterator[Row]:
    """Every case, then how many passed."""
    folders = sorted(p for p in (SUITES / VERSIONS[version] / "sbml").iterdir() if p.is_dir())
    passed, tried = 0, 0
    for folder in folders:
        if args.only and args.only not in f"{version} {folder.name}":
            continue
        tried += 1
        try:
            found = differences(folder)
        except igpe.errors.IgpeError as error:
            print(f"{version} {folder.name}: {error}")
            continue
        worst = max(found, key=lambda k: np.nan_to_num(found[k][0], nan=np.inf) / found[k][1])
        off, limit = found[worst]
        row = at_most(f"{version} {folder.name}", worst, off, "-", limit)
        passed += bool(off <= limit)
        yield row
    yield at_least(version, "passed", passed, f"of {tried}", tried)


def options(parser: argparse.ArgumentParser) -> None:
    """Arguments beside those of all benchmarks."""
    parser.add_argument("--only", default="", help="cases whose name holds this text")


def v1(args: argparse.Namespace) -> Iterator[Row]:
    """Version 1."""
    yield from suite("v1", args)


def v2(args: argparse.Namespace) -> Iterator[Row]:
    """Version 2."""
    yield from suite("v2", args)


if __name__ == "__main__":
    command(__doc__, "PEtab test suite", {"v1": v1, "v2": v2}, options)
