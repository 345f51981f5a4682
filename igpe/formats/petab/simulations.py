"""What a PEtab problem's model predicts for each row of its measurement table."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from igpe.core.errors import DataError
from igpe.core.files import write
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.shooting.simulated import simulate
from igpe.formats.petab.errors import petab_model
from igpe.formats.petab.formulas import named, petab_config
from igpe.formats.petab.read import LOGARITHMS
from igpe.problem.problem import Problem


def petab_simulations(
    problem: Problem,
    parameters: Mapping[str, float] | None = None,
    *,
    integrator: Integrator = Automatic(),
) -> pd.DataFrame:
    """Simulated values of all measurements, in the order of the measurement table.

    parameters  unknown -> value; by default the nominal values of the parameter table
    integrator  that simulates
    returns     the measurement table with its own columns, `simulation` in place of `measurement`:
                what is observed itself, also where its logarithm is compared; NaN where the model
                cannot be integrated
    raises      ProblemError if the problem was not read by `read_petab`
    """
    model = petab_model(problem)
    values = {**model.nominal, **(parameters or {})}
    grids = tuple(e.times for e in problem.experiments)
    runs = simulate(problem, integrator, {n: values[n] for n in problem.box.names}, grids)
    simulated: dict[tuple[str, str, float], float] = {}
    for experiment, (_, run) in zip(problem.experiments, runs, strict=True):
        for i, name in enumerate(experiment.measured):
            shown = run.measured[:, i]
            if name in model.transformations:
                shown = np.exp(LOGARITHMS[model.transformations[name]] * shown)
            keys = ((experiment.name, name, time) for time in experiment.times.tolist())
            simulated |= dict(zip(keys, shown.tolist(), strict=False))
    table = pd.DataFrame([row.given for row in model.rows])
    at = ((row.experiment, row.column, row.time) for row in model.rows)
    table["measurement"] = [simulated.get(key, np.nan) for key in at]
    return table.rename(columns={"measurement": "simulation"})


def write_petab_simulations(simulated: pd.DataFrame, problem: str | Path, path: str | Path) -> None:
    """Write a PEtab simulation table: the measurement table with simulated values.

    simulated  of `petab_simulations`
    problem    the PEtab YAML file;  path: the table to write (tab-separated)
    raises     DataError if the problem's measurement tables have other rows, or for a file at
               `path` that igpe did not write
    """
    folder = Path(problem).parent
    config = petab_config(Path(problem))
    files = [folder / name for key, name in named(config) if key == "measurement_files"]
    parts = [pd.read_csv(f, sep="\t", dtype=str, keep_default_na=False) for f in files]
    table = pd.concat(parts, ignore_index=True)
    if len(table) != len(simulated):
        raise DataError(
            f"'{problem}' has {len(table)} measurements, but {len(simulated)} were simulated. Give "
            "the YAML file that the problem was read from."
        )
    table["measurement"] = [repr(float(v)) for v in simulated["simulation"]]
    write(
        Path(path),
        table.rename(columns={"measurement": "simulation"}).to_csv(sep="\t", index=False),
    )
