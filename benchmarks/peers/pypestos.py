"""pyPESTO on AMICI: forward sensitivities in C++, fides with them, parameters in log10.

The problem goes through PEtab, as its users' problems do. Compiling the model is preparation.
PEtab's own problems begin where igpe's local searches do, the others at random.
"""

import logging
import math
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pypesto.optimize
import yaml
from pypesto.petab import PetabImporter

from peers.sbml import petab_problem
from peers.task import Found, Search, Task
from peers.told import safe


def pypesto_amici(task: Task) -> Search:
    """`pypesto.optimize.minimize`, one start after the other."""
    import amici  # noqa: F401 - pyPESTO finds out only later that it is missing

    logging.disable(logging.WARNING)
    folder = task.new_folder()
    path = _without_pictures(task.yaml, folder) if task.yaml else petab_problem(task, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importer = PetabImporter.from_yaml(
            str(path), output_folder=str(folder / "compiled"), model_name=f"asked_{folder.name[6:]}"
        )
        problem = importer.create_problem(verbose=False)
    optimizer = pypesto.optimize.FidesOptimizer(verbose=logging.ERROR)
    by_safe = {safe(n): n for n in task.problem.box.names}
    nominal = importer.petab_problem.x_nominal_scaled
    scales = importer.petab_problem.parameter_df["parameterScale"]

    def one(start: Mapping[str, float] | None) -> Found:
        if start is not None:
            given = {
                n: _there(start[by_safe[n]], scales[n]) for n in problem.x_names if n in by_safe
            }
            point = [given.get(n, v) for n, v in zip(problem.x_names, nominal, strict=True)]
            problem.set_x_guesses(np.array([point]))
        result = pypesto.optimize.minimize(
            problem, optimizer, n_starts=1, progress_bar=False, filename=None
        )
        best = result.optimize_result.list[0]
        if best.x is None or not np.isfinite(best.fval):
            return None
        told = zip(problem.x_names, best.x.tolist(), strict=True)  # held ones are among them
        return {by_safe[n]: _back(v, scales[n]) for n, v in told if n in by_safe}

    def search() -> Iterator[Found]:
        np.random.seed(task.seed)  # noqa: NPY002 - what pyPESTO draws its starts from
        box = task.problem.box
        starts = [box.mapping(x) for x in task.spread] if task.yaml else [None] * task.starts
        for start in starts:
            yield one(start)

    return search


def _without_pictures(given: Path, folder: Path) -> Path:
    """A copy of a PEtab problem that names no visualisation files: they are not in `data/`."""
    shutil.copytree(given.parent, folder, dirs_exist_ok=True)
    config = yaml.safe_load(given.read_text(encoding="utf-8"))
    for problem in config["problems"]:
        problem.pop("visualization_files", None)
    copy = folder / given.name
    copy.write_text(yaml.safe_dump(config), encoding="utf-8")
    return copy


def _back(value: float, scale: str) -> float:
    powers = {"log10": lambda v: 10.0**v, "log": math.exp}
    return float(powers.get(scale, float)(value))


def _there(value: float, scale: str) -> float:
    scales = {"log10": math.log10, "log": math.log}
    return float(scales.get(scale, float)(value))
