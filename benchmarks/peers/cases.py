"""The problems that all are asked to solve, with the best objective known before."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from published import PAPER as SIX
from published import PETAB as PUBLISHED

import igpe

HERE = Path(__file__).resolve().parents[2]
sys.path.append(str(HERE / "models"))
PAPER = (*SIX, "urethane")
OTHERS = ("pendulum", "fitzhugh_nagumo", "calcium", "stat5")
PETAB = {name: PUBLISHED[name] for name in ("Boehm", "Bruno", "Elowitz")}


@dataclass(frozen=True)
class Case:
    """A problem: `best` is the lowest objective known before; `yaml` its PEtab file, if any."""

    name: str
    best: float
    make: Callable[[], Any]
    yaml: Path | None = None


def case(name: str) -> Case:
    """The problem of that name."""
    if name in PETAB:
        yaml = next((HERE / "data" / "petab").glob(f"{name}_*/*.yaml"))
        return Case(name, PETAB[name], lambda: igpe.petab.read_petab(yaml), yaml)
    module = importlib.import_module(name)
    return Case(name, module.OBJECTIVE, module.problem)


NAMES = (*PAPER, *OTHERS, *PETAB)
