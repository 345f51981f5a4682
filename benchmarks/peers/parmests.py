"""parmest: the user's pyomo.dae model, discretised by Radau collocation, in IPOPT's hands.

`parmest` insists on a program called `ipopt`; where there is none POUNCE, which pip brings, stands
in for it. Measured states begin at their measurements, the others at their start value. Several
starts are a loop around it, as parmest 6.10 has none itself.
"""

import logging
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pyomo.environ as pyo

import igpe
from igpe.core.arrays import FloatArray
from igpe.problem.building import build
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import evaluate
from igpe.problem.model import Instance
from peers.task import Found, NotPosedError, Search, Task

ELEMENTS, POINTS = 40, 3  # at least so many elements, with so many Radau points


def parmest(task: Task) -> Search:
    """`Estimator.theta_est` from random starts."""
    from pyomo.contrib.parmest.parmest import Estimator

    logging.getLogger("pyomo").setLevel(logging.CRITICAL)
    logging.getLogger("pyomo.contrib.parmest").setLevel(logging.CRITICAL)
    problem = task.problem
    _ipopt()
    if problem.sigma_estimated or problem.local:
        raise NotPosedError("estimated standard deviations or local parameters")
    labelled = [Labelled(problem, e) for e in problem.experiments]
    objective = "SSE_weighted" if problem.sigma_known else "SSE"

    def one(start: FloatArray) -> Found:
        for each in labelled:
            each.begin(dict(zip(problem.box.names, start.tolist(), strict=True)))
        try:
            estimator = Estimator(labelled, obj_function=objective)
            _, theta = estimator.theta_est()
        except (RuntimeError, ValueError, AttributeError) as error:
            logging.getLogger(__name__).info("%s", error)
            return None
        names = dict(zip(labelled[0].names, labelled[0].unknowns, strict=True))
        return {names[str(n)]: float(v) for n, v in dict(theta).items()}

    def search() -> Iterator[Found]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for start in task.points(logarithmic=False):
                yield one(start)

    return search


def _ipopt() -> None:
    """A program of that name first on the path."""
    if shutil.which("ipopt"):
        return
    found = shutil.which("pounce")
    if found is None:
        raise NotPosedError("no ipopt, and no pounce in its place")
    folder = Path(mkdtemp(prefix="peers-ipopt-"))
    (folder / "ipopt").symlink_to(found)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"


class Labelled:
    """One experiment in parmest's convention; the model is built and discretised once.

    names     of the model's variables that are estimated;  unknowns: igpe's names of them
    """

    def __init__(self, problem: igpe.Problem, run: Experiment) -> None:
        self.problem, self.run = problem, run
        instance = build(problem.model, [run.start_time, *run.times], run)
        self.model = instance.model
        self._variables: dict[str, Any] = {}
        self._parameters(instance)
        self._starts(instance)
        elements = max(ELEMENTS, len(run.times))
        pyo.TransformationFactory("dae.collocation").apply_to(
            self.model, wrt=instance.time, nfe=elements, ncp=POINTS, scheme="LAGRANGE-RADAU"
        )
        self._inputs(instance)
        self._label(instance)
        self._guesses(instance)
        self.unknowns = tuple(self._variables)
        self.names = tuple(v.name for v in self._variables.values())

    def begin(self, start: dict[str, float]) -> None:
        """Set what is estimated, and all variables as at first."""
        for variable, value in self._first:
            variable.set_value(value, skip_validation=True)
        for name, variable in self._variables.items():
            variable.set_value(start[name])

    def get_labeled_model(self) -> Any:
        """What parmest asks for."""
        return self.model.clone()

    def _parameters(self, instance: Instance) -> None:
        box = self.problem.box
        for name in self.problem.parameters:
            variable = instance.scalars[name]
            k = box.names.index(name)
            variable.setlb(box.lower[k])
            variable.setub(box.upper[k])
            self._variables[name] = variable

    def _starts(self, instance: Instance) -> None:
        """Known start values are fixed, estimated ones are variables of their own."""
        m, box = instance.model, self.problem.box
        m.begins = pyo.ConstraintList()
        for state, series in instance.states.items():
            value: Any = self.run.start.get(state)
            first = series[instance.first]
            if isinstance(value, igpe.Unknown):
                name = self.problem.start_unknown(state, self.run)
                k = box.names.index(name)
                begin = pyo.Var(bounds=(box.lower[k], box.upper[k]))
                m.add_component(f"begin_{state}", begin)
                self._variables[name] = begin
                m.begins.add(first == begin)
            elif isinstance(value, str):
                m.begins.add(first == instance.scalars[value])
            elif value is not None:
                first.fix(value)

    def _inputs(self, instance: Instance) -> None:
        for name, given in self.run.inputs.items():
            if name in instance.scalars:
                _set(instance.scalars[name], float(given))  # type: ignore[arg-type]
                continue
            component = next(iter(instance.series[name].values())).parent_component()
            for t in instance.time:  # discretising added some
                _set(component[t], evaluate(given, float(t)))

    def _label(self, instance: Instance) -> None:
        m, measured = self.model, self.run.measurements
        m.experiment_outputs = pyo.Suffix(direction=pyo.Suffix.LOCAL)
        m.measurement_error = pyo.Suffix(direction=pyo.Suffix.LOCAL)
        m.unknown_parameters = pyo.Suffix(direction=pyo.Suffix.LOCAL)
        for row, column, value, sigma in zip(
            measured.row, measured.column, measured.value, measured.sigma, strict=True
        ):
            series = instance.over_time(measured.names[column])
            data = series[float(measured.times[row])]  # type: ignore[index]
            m.experiment_outputs[data] = float(value)
            m.measurement_error[data] = float(sigma) if self.problem.sigma_known else None
        for variable in self._variables.values():
            m.unknown_parameters[variable] = 1.0

    def _guesses(self, instance: Instance) -> None:
        """Where each variable begins: at measurements if there are any."""
        self._first: list[tuple[Any, float]] = []
        given = {id(v) for v in self._variables.values()}
        curves = {}
        for name in self.run.measured:
            times, values, _ = self.run.measurements.of(name)
            known = self.run.start.get(name)
            if isinstance(known, float) and times[0] > self.run.start_time:
                times, values = np.append(self.run.start_time, times), np.append(known, values)
            curves[name] = times, values
        for name, series in (*instance.states.items(), *instance.series.items()):
            component = next(iter(series.values())).parent_component()
            if component.ctype is not pyo.Var:
                continue
            start: Any = self.run.start.get(name)
            for t, data in _along(component, name, series, instance):
                if id(data) in given or data.fixed:
                    continue
                value = start if isinstance(start, float) else (data.value or 0.1)
                if name in curves:
                    value = float(np.interp(t, *curves[name]))
                self._first.append((data, value))


def _along(component: Any, name: str, series: Any, instance: Instance) -> Iterator[Any]:
    """(time, data) of all times, of which discretising added some."""
    sample = next(iter(series.values())).index()
    first = instance.first
    for t in instance.time:
        if isinstance(sample, tuple):
            key: Any = tuple(t if i == first and isinstance(i, float) else i for i in sample)
        else:
            key = t
        yield float(t), component[key]


def _set(component: Any, value: float) -> None:
    (component.fix if component.is_variable_type() else component.set_value)(value)
