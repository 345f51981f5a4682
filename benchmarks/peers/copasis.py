"""COPASI through basico: a global method as it is by default, then Levenberg-Marquardt."""

import logging
from collections.abc import Iterator

import basico
import COPASI
import numpy as np

from peers.sbml import sbml
from peers.task import Found, NotPosedError, Search, Task
from peers.told import safe, told

GLOBAL, LOCAL = "Evolution Strategy (SRES)", "Levenberg - Marquardt"


def copasi(task: Task) -> Search:
    """What each of the two methods ended with."""
    logging.getLogger("basico").setLevel(logging.ERROR)
    problem, box = told(task.problem), task.problem.box
    if len(problem.courses) > 1:
        raise NotPosedError("several experiments: the adapter writes one")
    run = problem.courses[0].experiment
    model = basico.load_model_from_string(sbml(problem))
    table = run.table().rename(columns=lambda n: f"Values[observed_{safe(n)}]")
    table = table.reset_index(names="Time")
    basico.add_experiment("only", table, data_dir=str(task.new_folder()))
    _weigh(model, [_deviation(run.measurements.of(n)[2]) for n in run.measured])
    basico.set_fit_parameters([
        {
            "name": f"Values[{n}].InitialValue",
            "lower": low,
            "upper": high,
            "start": (low + high) / 2,
        }
        for n, low, high in zip(
            problem.unknowns, box.lower.tolist(), box.upper.tolist(), strict=True
        )
    ])

    def one(method: str, *, random: bool) -> Found:
        settings = {"method": {"Random Number Generator": 1, "Seed": task.seed + 1}}
        ended = basico.run_parameter_estimation(
            method=method,
            update_model=True,
            randomize_start_values=random,
            calculate_statistics=False,
            settings=settings if random else {},
            write_report=False,
        )
        return box.mapping(ended["sol"].to_numpy(dtype=float))  # in the order asked for

    def search() -> Iterator[Found]:
        yield one(GLOBAL, random=True)
        yield one(LOCAL, random=False)

    return search


def _deviation(sigma: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> float:
    if np.ptp(sigma) > 1e-12 * sigma[0]:
        raise NotPosedError("a standard deviation for each point: COPASI weighs columns")
    return float(sigma[0])


def _weigh(model: "COPASI.CDataModel", deviations: list[float]) -> None:
    """Weights of columns instead of COPASI's own, which divide by mean squares."""
    experiments = model.getTask("Parameter Estimation").getProblem().getExperimentSet()
    experiment = experiments.getExperiment(0)
    columns = experiment.getObjectMap()
    for k, deviation in enumerate(deviations, start=1):
        columns.setScale(k, 1 / deviation**2)
    experiment.calculateWeights()
