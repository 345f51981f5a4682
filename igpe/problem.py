"""The estimation problem: a model, its experiments, and the parameters to be found."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from igpe.box import Box
from igpe.errors import ProblemError
from igpe.experiment import Experiment, Unknown
from igpe.labelled import read_labelled
from igpe.loss import LeastSquares, Loss, Normal, PiecewiseConstant
from igpe.model import Builder, Instance, build
from igpe.problem_checks import check_experiment, check_model, convert_units, name_experiments
from igpe.starts import ModelStarts, model_starts
from igpe.tables import Data, read_table, rows_of
from igpe.units import unit_name

Bounds = tuple[float, float]
EMPTY: Mapping[str, Any] = MappingProxyType({})


class Problem:
    """What is to be estimated, from which measurements.

    model         the user's builder: `model(times)` or `model(times, experiment)` returns an
                  ordinary pyomo.dae model; it is called afresh for every use and never changed
    parameters    names of the model's scalar Vars (or mutable Params) to estimate; a mapping gives
                  bounds that override the model's: {"k1": (0, 10)}; an indexed Var's name stands
                  for all its members
    experiments   one or several `Experiment`
    local         parameters that each experiment has for itself
    priors        parameter -> `Normal(mean, deviation)`
    loss          `LeastSquares()`, `L1()` or `Huber(delta)`
    time_varying  name of a time-indexed Var -> `PiecewiseConstant(...)`
    raises        ModelError, DataError, ProblemError: what was found, what was wanted, what to do

    Unknowns have names: `k1`; `k1@run2` if local; `A(t0)` (or `A(t0)@run2`) for a start value.
    Extra constraints of the model (without time, or inequalities over time) belong to the problem;
    methods that cannot keep them say so.
    """

    def __init__(
        self,
        model: Builder,
        *,
        parameters: Sequence[str] | Mapping[str, Bounds],
        experiments: Sequence[Experiment] | Experiment,
        local: Iterable[str] = (),
        priors: Mapping[str, Normal] = EMPTY,
        loss: Loss = LeastSquares(),
        time_varying: Mapping[str, PiecewiseConstant] = EMPTY,
    ) -> None:
        runs = name_experiments(experiments)
        self._given: dict[str, Any] = {
            "model": model,
            "parameters": parameters,
            "experiments": runs,
            "local": local if isinstance(local, str) else tuple(local),
            "priors": priors,
            "loss": loss,
            "time_varying": time_varying,
        }
        instances = [build(model, [e.start_time, *e.times], e) for e in runs]
        self.model = model
        self.loss = loss
        self.time_varying = MappingProxyType(dict(time_varying))
        self.instance: Instance = instances[0]
        self.starts: tuple[ModelStarts, ...] = tuple(model_starts(i) for i in instances)
        self.parameters = _expand("parameters", parameters, self.instance)
        self.local = frozenset(_expand("local", self._given["local"], self.instance))
        self.experiments = tuple(convert_units(e, i) for e, i in zip(runs, instances, strict=True))
        check_model(self)
        for e, instance, starts in zip(self.experiments, instances, self.starts, strict=True):
            check_experiment(self, e, instance, starts)
        self.fixed: Mapping[str, float] = EMPTY
        self.unknowns = self._unknowns(parameters)
        self.priors = MappingProxyType(dict(priors))
        strangers = [n for n in self.priors if n not in self.unknowns.names]
        if strangers:
            raise ProblemError(
                f"Priors are given for {strangers}, which are no unknowns; the unknowns are "
                f"{list(self.unknowns.names)}."
            )

    @classmethod
    def from_parmest(cls, experiments: Sequence[Any], **settings: Any) -> "Problem":
        """A problem from Pyomo's own convention: parmest `Experiment` objects with labelled models.

        experiments  each has `get_labeled_model()` whose model carries the suffixes
                     experiment_outputs, unknown_parameters and, where known, measurement_error
        settings     as for `Problem`; `parameters` overrides the bounds
        raises       ModelError if a model is not labelled or not dynamic
        """
        found = read_labelled(experiments)
        parameters = settings.pop("parameters", found.parameters)
        return cls(found.builder, parameters=parameters, experiments=found.experiments, **settings)

    @property
    def box(self) -> Box:
        """The unknowns that are not fixed, with their bounds."""
        return self.unknowns.without(self.fixed)

    @property
    def size(self) -> int:
        """Number of measurements in all experiments."""
        return sum(len(e.measurements.value) for e in self.experiments)

    @property
    def sigma_known(self) -> bool:
        """Whether every experiment gives its standard deviations."""
        return all(e.sigma_known for e in self.experiments)

    def fixing(self, values: Mapping[str, float]) -> "Problem":
        """The same problem with some unknowns held at given values.

        raises ProblemError for names that are no unknowns, and values that are not finite
        """
        strangers = [n for n in values if n not in self.unknowns.names]
        if strangers:
            raise ProblemError(
                f"{strangers} are no unknowns of the problem; it has {list(self.unknowns.names)}."
            )
        lost = {n: v for n, v in values.items() if not np.isfinite(v)}
        if lost:
            raise ProblemError(f"Unknowns cannot be held at {lost}; give finite values.")
        smaller = object.__new__(Problem)
        smaller.__dict__.update(self.__dict__)
        smaller.fixed = MappingProxyType({**self.fixed, **values})
        return smaller

    def with_data(self, data: Data) -> "Problem":
        """The same problem with other measurements, under the same conditions.

        data    a table or its path; with several experiments it has a column `experiment`
        raises  DataError if the table does not fit
        """
        given = self._given
        table = read_table(data)
        if len(self.experiments) == 1:
            runs = [given["experiments"][0].with_data(table)]
        else:
            runs = [e.with_data(rows_of(table, e.name)) for e in given["experiments"]]
        return Problem(**{**given, "experiments": runs}).fixing(self.fixed)

    def unknown_of(self, parameter: str, experiment: Experiment) -> str:
        """The unknown that a model parameter is in one experiment."""
        return self._own(parameter, experiment) if parameter in self.local else parameter

    def start_unknown(self, state: str, experiment: Experiment) -> str:
        """The unknown that an estimated start value is."""
        return self._own(f"{state}(t0)", experiment)

    def unit(self, name: str) -> str:
        """Unit of an unknown, a state or a measured quantity, as the model has it; may be empty."""
        base = name.split("@", maxsplit=1)[0].removesuffix("(t0)")
        if base in self.instance.scalars:
            return unit_name(self.instance.scalars[base])
        series = self.instance.over_time(base)
        return "" if series is None else unit_name(next(iter(series.values())))

    def _own(self, name: str, experiment: Experiment) -> str:
        return name if len(self.experiments) == 1 else f"{name}@{experiment.name}"

    def _unknowns(self, parameters: Sequence[str] | Mapping[str, Bounds]) -> Box:
        bounds = _bounds(parameters, self.parameters, self.instance)
        found: dict[str, Bounds] = {}
        for name in self.parameters:
            for e in self.experiments:
                found[self.unknown_of(name, e)] = bounds[name]
        for e in self.experiments:
            for state, start in e.start.items():
                if isinstance(start, Unknown):
                    found[self.start_unknown(state, e)] = (start.lower, start.upper)
        lower, upper = (np.array([b[i] for b in found.values()], dtype=float) for i in (0, 1))
        return Box(tuple(found), lower, upper)

    def __repr__(self) -> str:
        return (
            f"Problem({len(self.unknowns)} unknowns: {', '.join(self.box.names)}; "
            f"{len(self.experiments)} experiments, {self.size} measurements)"
        )


def _expand(role: str, names: Iterable[str], instance: Instance) -> tuple[str, ...]:
    """Names of scalar parameters; an indexed component's name stands for its members."""
    if isinstance(names, str):
        raise ProblemError(f"{role}={names!r} is one text; wanted names: {role}=[{names!r}].")
    found: list[str] = []
    for name in names:
        members = [s for s in instance.scalars if s.startswith(f"{name}[")]
        found += members if members and name not in instance.scalars else [name]
    twice = sorted({n for n in found if found.count(n) > 1})
    if twice:
        raise ProblemError(f"Parameters {twice} are listed more than once; list each once.")
    return tuple(found)


def _bounds(
    given: Sequence[str] | Mapping[str, Bounds], names: tuple[str, ...], instance: Instance
) -> dict[str, Bounds]:
    overrides = given if isinstance(given, Mapping) else {}
    return {
        n: _bounds_of(n, overrides.get(n, overrides.get(n.split("[")[0])), instance) for n in names
    }


def _bounds_of(name: str, given: Bounds | None, instance: Instance) -> Bounds:
    component = instance.scalars[name]
    pair = given if given is not None else getattr(component, "bounds", (None, None))
    try:
        lower, upper = pair
        low = -np.inf if lower is None else float(lower)
        high = np.inf if upper is None else float(upper)
    except (TypeError, ValueError):
        raise ProblemError(
            f"The bounds of parameter '{name}' are {pair!r}; give a pair (lower, upper), with None "
            "where there is no bound."
        ) from None
    if not low < high:
        raise ProblemError(
            f"Parameter '{name}' has bounds [{low:g}, {high:g}]; wanted lower < upper. "
            "Fix the variable in the model if it is known."
        )
    return low, high
