"""The problems that all are asked to solve, with the best objective known before."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from published import PAPER as SIX

import igpe

HERE = Path(__file__).resolve().parents[2]
sys.path.append(str(HERE / "models"))
PAPER = (*SIX, "urethane")
OTHERS = ("pendulum", "fitzhugh_nagumo", "calcium", "stat5")
_BEST = pd.read_csv(Path(__file__).parents[1] / "petab_best.csv", index_col="model")
PETAB = {str(model): float(v) for model, v in _BEST["negative_log_likelihood"].items()}
PETAB = {model.split("_", 1)[0]: value for model, value in PETAB.items()}
NEAR = 0.1  # units of the log-likelihood from the best: its zero means nothing, nor do shares of it


@dataclass(frozen=True)
class Case:
    """A problem.

    best    the lowest objective known before
    yaml    its PEtab file, if any
    within  distance from the best that counts as reaching it; None: a share of the best
    """

    name: str
    best: float
    make: Callable[[], Any]
    yaml: Path | None = None
    within: float | None = None


def case(name: str) -> Case:
    """The problem of that name."""
    if name in PETAB:
        yaml = next((HERE / "data" / "petab").glob(f"{name}_*/*.yaml"))
        return Case(name, PETAB[name], lambda: igpe.petab.read_petab(yaml), yaml, NEAR)
    module = importlib.import_module(name)
    return Case(name, module.OBJECTIVE, module.problem)


NAMES = (*PAPER, *OTHERS, *PETAB)
