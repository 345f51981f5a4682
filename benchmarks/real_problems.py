"""Twelve real data sets, from the defaults of `igpe.estimate`: is the best known optimum reached?

    python benchmarks/real_problems.py [igpe] [search] [--store FOLDER] [--only TEXT] [--json FILE]
                                       [--seconds 120] [--seed 0]

3 to 25 unknowns (nine cases have 13 or more), 2 to 9 states, up to 12 experiments, 35 to 429
numbers, bounds over three to sixteen decades (logarithmic unknowns where they are), standard
deviations that are estimated in seven cases: `real/NAME.json` with sources, data in `data/real`.

igpe    the defaults, nothing that knows the case
search  the best known optimum by SciPy alone (`real/by_scipy.py`): local least squares from the
        published values and from random points for so many seconds of processor time a case; what
        is lower than `real/best_known.json` goes there

right   the objective is within 1 % of the best known, or within 0.1 of its -2 log likelihood where
        standard deviations are estimated; the best known is the lowest of the published values,
        `search` and igpe's own runs
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import Row, at_least, at_most, command
from real.by_scipy import Evaluation, search
from real.cases import CASES, HERE, Case
from trust.run import Answer, run

import igpe

BEST = HERE / "best_known.json"
LONGEST = 300.0  # s of processor time of a case
WANTED, SECONDS = 11, 120.0
SHARE, DIFFERENCE = 0.01, 0.1


def best_known() -> dict[str, Any]:
    """Case -> objective, values and origin."""
    return json.loads(BEST.read_text()) if BEST.exists() else {}


def keep(name: str, found: dict[str, Any], origin: str) -> None:
    """Take a lower optimum into the file."""
    known = best_known()
    if name in known and known[name]["objective"] <= found["objective"]:
        return
    known[name] = {"objective": found["objective"], "origin": origin, "values": found["values"]}
    BEST.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def is_right(case: Case, objective: float, best: float) -> bool:
    """Whether the optimum is reached."""
    near = DIFFERENCE if isinstance(case.sigma, dict) else SHARE * abs(best)
    return bool(objective <= best + near)


def answer(name: str, seed: int) -> Answer:
    """What the defaults make of a case; its objective is SciPy's at igpe's values."""
    case = Case(name)
    problem = case.problem()
    began = time.process_time()
    result = igpe.estimate(problem, seed=seed)
    seconds = time.process_time() - began
    values = {n: float(result.parameters[n]) for n in case.unknowns}
    known = Evaluation(case)
    objective = known.objective(known.scaled(np.array(list(values.values()))))
    return {
        "objective": objective,
        "told": result.objective,
        "estimation": seconds,
        "steps": dict(result.seconds),
        "verdict": dict(result.verdict),
        "values": values,
    }


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """Optima reached, and seconds."""
    known = best_known()
    section = f"real_{given.seed}"
    found = run(section, CASES, partial(answer, seed=given.seed), given, LONGEST)
    right = []
    for name, a in found.items():
        case = Case(name)
        best = known.get(name, {}).get("objective", np.nan)  # unknown: not right
        objective = a.get("objective", np.inf)
        seconds = a.get("estimation", a["seconds"])
        right.append(is_right(case, objective, best) and seconds <= SECONDS)
        title = f"{name} ({len(case.unknowns)} unknowns, {len(case.states)} states)"
        yield at_most(title, "best known", best)
        yield at_most(title, "above the best known", objective - best)
        yield at_most(title, "processor time", seconds, "s", SECONDS)
        if a.get("objective") is not None and a["objective"] < best:
            keep(name, a, f"igpe.estimate, seed {given.seed}")
    yield at_least("all", "optimum reached in time", sum(right), f"of {len(found)}", WANTED)


def searches(given: argparse.Namespace) -> Iterator[Row]:
    """The best known optima by SciPy."""
    work = partial(_searched, seconds=given.seconds, seed=given.seed)
    found = run(f"search_{given.seed}_{given.seconds:g}", CASES, work, given, 20 * given.seconds)
    for name, a in found.items():
        if "objective" not in a:
            continue
        keep(name, a, f"search by SciPy, seed {given.seed}, {a['searches']} starts")
        yield at_most(name, "least objective", a["objective"])
        yield at_most(name, "local searches", a["searches"])
        yield at_most(name, "of these there", a["reached"])


def _searched(name: str, seconds: float, seed: int) -> Answer:
    return search(Case(name), seconds, seed)


def options(parser: argparse.ArgumentParser) -> None:
    """Beside --json."""
    parser.add_argument("--quick", action="store_true", help="one case in ten")
    parser.add_argument("--store", type=Path, help="folder; a run that was stopped continues there")
    parser.add_argument("--only", help="run only the cases whose name contains this text")
    parser.add_argument("--seconds", type=float, default=120.0, help="of search in each case")
    parser.add_argument("--seed", type=int, default=0)


if __name__ == "__main__":
    command(__doc__, "Real problems", {"igpe": figures, "search": searches}, options)
