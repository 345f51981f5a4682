"""One experiment, or a whole problem, as a Pyomo nonlinear program on a mesh.

The user's builder is called with all collocation points as its times, so that every equation,
Expression and bound of the model is there as the user wrote it; only the equations that tie slopes
to states are added. At the first time a Radau method has no such equation: what is determined
there but used nowhere is left out (it may even be undefined there, as 0/0).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from igpe.dynamic.mesh import Mesh
from igpe.experiment import Experiment
from igpe.model import Instance
from igpe.problem import Problem


@dataclass(frozen=True)
class Run:
    """One experiment on its mesh.

    states, algebraics  name -> Pyomo variables, one for each time of the mesh
    slopes              state -> Pyomo variables
    instance            the user's model, now changed and ours
    """

    experiment: Experiment
    mesh: Mesh
    instance: Instance
    states: Mapping[str, list[Any]]
    slopes: Mapping[str, list[Any]]
    algebraics: Mapping[str, list[Any]]


@dataclass(frozen=True)
class Transcription:
    """The nonlinear program. unknowns: name -> the Pyomo variables that it is (first the master)."""

    problem: Problem
    model: Any
    runs: tuple[Run, ...]
    unknowns: Mapping[str, list[Any]]

    @property
    def n_elements(self) -> int:
        """Of all experiments."""
        return sum(run.mesh.n_elements for run in self.runs)

    def parameters(self) -> dict[str, float]:
        """The free unknowns' present values."""
        return {n: float(pyo.value(self.unknowns[n][0])) for n in self.problem.box.names}


def transcribe(problem: Problem, meshes: Sequence[Mesh]) -> Transcription:
    """Build the program on one mesh for each experiment.

    raises ModelError if the builder does not take the mesh's times
    """
    whole = pyo.ConcreteModel()
    unknowns: dict[str, list[Any]] = {}
    cost: list[Any] = []
    for k, (experiment, mesh) in enumerate(zip(problem.experiments, meshes, strict=True)):
        run = _run(problem, experiment, mesh)
        whole.add_component(f"experiment_{k}", run.instance.model)
        cost += _Builder(problem, run, unknowns).residuals()
    cost += [
        ((unknowns[n][0] - prior.mean) / prior.deviation) ** 2
        for n, prior in problem.priors.items()
        if n in unknowns
    ]
    whole.sum_of_squares = pyo.Objective(expr=pyo.quicksum(cost, linear=False))
    return Transcription(problem, whole, tuple_of_runs(whole, cost, problem), unknowns)
