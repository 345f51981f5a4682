"""Objectives of public PEtab problems whose switching times are estimated parameters.

The negative log-likelihood at the nominal parameters, where the times are known, beside what
libRoadRunner and AMICI compute; relative difference. Oliveira's problem is in `data/petab/`. Beer's
(4 MB) is read from the folder that the environment variable PETAB_PROBLEMS names, a copy of
`Benchmark-Models` of Benchmarking-Initiative/Benchmark-Models-PEtab, and left out without it.
An estimate would need sensitivities across a jump that moves: it must be refused by name.
"""

import argparse
import os
from collections.abc import Iterator
from pathlib import Path

from figures import Row, at_least, at_most

import igpe

OBJECTIVES = {"Oliveira_NatCommun2021": 9623396.1, "Beer_MolBioSystems2014": -58622.9146}
FOLDERS = (Path(__file__).parents[2] / "data" / "petab", Path(os.environ.get("PETAB_PROBLEMS", "")))
LARGEST = 1e-4  # relative difference


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Two rows for each problem that is there."""
    for name, published in OBJECTIVES.items():
        files = [f for folder in FOLDERS for f in (folder / name).glob("*.yaml")]
        if not files or (given.only and given.only not in name):
            continue
        problem = igpe.petab.read_petab(files[0])
        told = igpe.petab.petab_objective(problem)
        yield at_most(name, "objective, difference", abs(told / published - 1), "-", LARGEST)
        yield at_least(name, "estimate refused by name", _is_refused(problem), "-", 1)


def _is_refused(problem: igpe.Problem) -> bool:
    try:
        igpe.SingleShooting().prepare(problem)
    except igpe.errors.ModelError as error:
        return "depends on the unknown" in str(error)
    return False
