"""Labelled models of Pyomo.DoE and parmest as design problems, taken as they are."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from igpe.core.errors import ModelError
from igpe.planning.design_variables import Between, DesignVariable, Levels
from igpe.problem.labelled import read_labelled
from igpe.problem.problem import Problem


class LabelledDesign(NamedTuple):
    """What labelled models say.

    problem     with their measurements; 0 where outputs have no values
    parameters  unknown -> nominal value
    free        what `experiment_inputs` lists: a number or, over time, levels at the times listed
    measured    whether every output has a value, so that it counts as measured
    """

    problem: Problem
    parameters: dict[str, float]
    free: dict[str, DesignVariable]
    measured: bool


def is_labelled(given: Any) -> bool:
    """Whether it is a list of experiments with labelled models, or one of them."""
    every = given if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    return bool(every) and all(hasattr(e, "get_labeled_model") for e in every)


def labelled_design(experiments: Any) -> LabelledDesign:
    """Read labelled models; the first one's inputs may be chosen.

    raises  ModelError as `Problem.from_parmest` does, and for inputs without two finite bounds
    """
    every = list(experiments) if isinstance(experiments, Sequence) else [experiments]
    builder, parameters, runs = read_labelled(every, planned=True)
    problem = Problem(builder, parameters=parameters, experiments=runs)
    model = every[0].get_labeled_model()
    values = {
        v.name: float(v.value if n is None else n) for v, n in model.unknown_parameters.items()
    }
    outputs = [v for e in every for v in e.get_labeled_model().experiment_outputs.values()]
    free = _free(problem, list(getattr(model, "experiment_inputs", {})))
    return LabelledDesign(problem, values, free, None not in outputs)


def _free(problem: Problem, inputs: Sequence[Any]) -> dict[str, DesignVariable]:
    instance, end = problem.instance, float(problem.experiments[0].times[-1])
    at: dict[str, dict[float | None, tuple[float, float]]] = {}
    for one in inputs:
        lower, upper = one.bounds
        if lower is None or upper is None or not lower < upper:
            raise ModelError(
                f"The experiment_inputs have '{one.name}' with the bounds ({lower}, {upper}). Set "
                "both in the model, or give free={...} to igpe.design."
            )
        parent, index = one.parent_component().name, one.index()
        over = parent in instance.series or parent in instance.states
        place = (parent, float(index)) if over and index is not None else (one.name, None)
        at.setdefault(place[0], {})[place[1]] = float(lower), float(upper)
    free: dict[str, DesignVariable] = {}
    for name, bounds in at.items():
        times = sorted(t for t in bounds if t is not None)
        lower, upper = next(iter(bounds.values()))
        if name in instance.series and times:
            breaks = tuple(t for t in times if t < end)
            free[name] = Levels(breaks, lower, upper)
        else:
            free[name] = Between(lower, upper)
    return free
