"""The estimation problem: a model, its experiments, and the unknown parameters."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import reduce, wraps
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np

from igpe.core.arguments import is_finite, require_mapping
from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.core.errors import ProblemError
from igpe.core.markup import Suggesting, counted
from igpe.problem.building import as_builder, build, build_all
from igpe.problem.card import problem_html
from igpe.problem.experiment import Experiment, Uncertain, Unknown
from igpe.problem.labelled import read_labelled
from igpe.problem.losses import (
    ROUNDING,
    LeastSquares,
    Loss,
    NormalPrior,
    PiecewiseConstant,
    Prior,
    kinks_of,
)
from igpe.problem.measurements import time_unit, unit_name
from igpe.problem.members import names_of
from igpe.problem.model import Form, Instance, ModelStarts, model_starts
from igpe.problem.noise.correlated import Correlation
from igpe.problem.noise.sigma import require_values
from igpe.problem.problem_checks import (
    Bounds,
    bounds_of,
    check_arguments,
    check_problem,
    check_uncertain,
    check_weights,
    convert_units,
    expanded,
    held_sigma,
    name_experiments,
    spectral_groups,
    uncertain_inputs,
    with_logarithms,
)
from igpe.problem.space import FiniteDifference, OnGrid, read_space
from igpe.problem.spectra import Spectra, absorbing, compressed
from igpe.problem.starts import as_members
from igpe.problem.tables import Data, read_table

EMPTY: Mapping[str, Any] = MappingProxyType({})


class HeldWeights(NamedTuple):
    """The arguments of `Problem.weighted`, by name."""

    sigma: tuple[FloatArray, ...] | None
    relative: bool
    correlations: tuple[Correlation | None, ...]
    at: Mapping[str, float] | None = None


class Problem(Suggesting):
    """An estimation problem: a model, unknowns with bounds, and measurements.

    model         an ordinary pyomo.dae model, or a function `model(times)` or
                  `model(times, experiment)` that returns one. igpe copies the model, or calls the
                  function, each time it needs a model, and never changes the user's own objects
    parameters    the scalar Vars (or mutable Params) of the model that igpe estimates, by name, or
                  as m.k1 where a model is given; or a dict with bounds that replace those of the
                  model: {"k1": (0, 10)}. The name of an indexed Var stands for all its members
    experiments   an `Experiment`, or a list of them
    local         parameters that have a separate value in each experiment
    priors        a dict {parameter: prior}; a prior is `NormalPrior(mean, deviation)` or
                  `Prior(law, parameters)`
    loss          `LeastSquares()`, `L1()` or `Huber(delta)`
    time_varying  a dict {name of a time-indexed Var: `PiecewiseConstant(...)`}
    logarithmic   parameters whose bounds are positive and span decades: igpe distributes starts
                  evenly on a logarithmic scale, the Gauss-Newton methods (shooting) iterate on the
                  logarithms of these parameters, and their linearised intervals are those of their
                  logarithms
    space         a dict {name of a ContinuousSet other than time: grid}; a grid is a number of
                  intervals, or `igpe.integrators.FiniteDifference(50, scheme="central")`. The
                  states then have names such as `c[0.5]`, which are also the column names in tables
    raises        ModelError, DataError or ProblemError; the message states the cause and the remedy

    Names of unknowns: a parameter has its own name, `k1`; an estimated start value has a name such
    as `A(t0)`; the values of a time-varying unknown have names such as `w(0)` and `w(2.5)`, where
    each value is valid from the given time to the next break. If the problem has several
    experiments, the experiment's name is appended to the names of local parameters (`k1@run2`),
    start values (`A(t0)@run2`) and time-varying unknowns (`w(2.5)@run2`).

    Additional constraints of the model (constraints without time, and inequalities over time) are
    part of the problem, and so are bounds of states and algebraic variables. `igpe.estimate`,
    Collocation and MultipleShooting enforce them.
    """

    _forms: tuple[Form, ...] = ()

    def __init__(
        self,
        model: Any,
        *,
        parameters: Sequence[str] | Mapping[str, Bounds],
        experiments: Sequence[Experiment] | Experiment,
        local: Iterable[str] = (),
        priors: Mapping[str, NormalPrior | Prior] = EMPTY,
        loss: Loss = LeastSquares(),
        time_varying: Mapping[str, PiecewiseConstant] = EMPTY,
        logarithmic: Iterable[str] = (),
        space: Mapping[str, int | FiniteDifference] = EMPTY,
    ) -> None:
        model, runs = as_builder(model), name_experiments(experiments)
        parameters = names_of(parameters)
        uncertain = uncertain_inputs(runs)
        check_arguments(local, loss, priors=priors, time_varying=time_varying)
        self._given: dict[str, Any] = {
            "model": model,
            "parameters": parameters,
            "experiments": runs,
            "local": local if isinstance(local, str) else tuple(local),
            "priors": dict(priors),
            "loss": loss,
            "time_varying": dict(time_varying),
            "logarithmic": names_of(logarithmic),
            "space": read_space(space),
        }
        model = OnGrid(model, self._given["space"]) if space else model
        self.instances = build_all(model, runs)
        runs = list(map(absorbing, runs, self.instances))
        runs = list(map(as_members, runs, self.instances))
        self.instance: Instance = self.instances[0]
        self.starts: tuple[ModelStarts, ...] = tuple(map(model_starts, self.instances))
        self.model, self.loss = model, loss
        self.time_varying = MappingProxyType(dict(time_varying))
        self.parameters = expanded("parameters", parameters, self.instances)
        self.local = frozenset(expanded("local", self._given["local"], self.instances))
        if uncertain:
            check_uncertain(uncertain, self.parameters, self.instances)
            self.parameters += uncertain
            self.local |= set(uncertain)
        self.experiments = tuple(map(convert_units, runs, self.instances))
        check_problem(self)
        if not self.has_spectra:
            require_values(e.measurements for e in self.experiments)
        self.fixed: Mapping[str, float] = EMPTY
        self._weights: HeldWeights | None = None
        # Equations that were read, by experiment and outputs; None: by another process.
        self.systems: dict[tuple[str, tuple[str, ...]], Any] = {}
        self.compiled: Any = None  # `igpe.equations.compiled`
        self.unknowns = with_logarithms(
            replace(self._unknowns(parameters), kinks=kinks_of(priors)),
            expanded("logarithmic", self._given["logarithmic"], self.instances),
        )
        self.priors = MappingProxyType({**self._known_with_errors(), **priors})
        check_weights(self.experiments, self.priors, self.unknowns)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy keep what the problem was made of and build the models again.

        The object comes before its parts: its builder may belong to an object that keeps it.
        """
        parts = self._given, dict(self.fixed), self._weights, list(self.systems), self._forms
        return object.__new__, (Problem,), parts

    def __setstate__(self, parts: tuple[Any, ...]) -> None:
        self.__dict__.update(_made_again(*parts).__dict__)

    @classmethod
    def from_parmest(cls, experiments: Sequence[Any], **settings: Any) -> "Problem":
        """Create a problem from parmest `Experiment` objects with labelled models (Pyomo's
        convention).

        experiments  objects whose method `get_labeled_model()` returns a model with the
                     suffixes `experiment_outputs`, `unknown_parameters` and, if errors are known,
                     `measurement_error`
        settings     other arguments of `Problem`; give `parameters` to override the bounds in the
                     models
        raises       ModelError if a model is not labelled or not dynamic
        """
        builder, parameters, runs = read_labelled(experiments)
        return cls(builder, experiments=runs, **{"parameters": parameters, **settings})

    @property
    def given(self) -> dict[str, Any]:
        """The arguments with which the problem was created."""
        return dict(self._given)

    @property
    def box(self) -> Box:
        """The unknowns that are not fixed, with their bounds."""
        return self.unknowns.without(self.fixed)

    @property
    def size(self) -> int:
        """Number of measurements in all experiments."""
        spectra = (e.spectra for e in self.experiments)
        spectral = sum(s.values.size for s in spectra if s is not None)
        return spectral + sum(len(e.measurements.value) for e in self.experiments)

    @property
    def has_spectra(self) -> bool:
        """Return True if spectra were measured in at least one experiment."""
        return any(e.spectra is not None for e in self.experiments)

    @property
    def has_signs(self) -> bool:
        """Return True if pure spectra must be nonnegative in at least one experiment."""
        return any(e.spectra is not None and e.spectra.nonnegative for e in self.experiments)

    @property
    def has_noise_level(self) -> bool:
        """Return True if igpe estimates the noise level of spectra in at least one experiment."""
        return any(e.spectra is not None and e.spectra.sigma is None for e in self.experiments)

    def compressed(self) -> "Problem":
        """Return the problem with its spectra projected onto their leading singular vectors."""
        every = self._spectra
        for group in spectral_groups(self.experiments):
            own = compressed([s for k in group if (s := every[k])])
            for k, one in zip(group, own, strict=True):
                every[k] = one
        return self._with_spectra(every)

    def with_free_signs(self) -> "Problem":
        """Return the problem without the constraint that pure spectra must be nonnegative."""
        return self._with_spectra([s and s.with_free_signs() for s in self._spectra])

    @property
    def _spectra(self) -> list[Spectra | None]:
        return [e.spectra for e in self.experiments]

    def _with_spectra(self, spectra: Sequence[Spectra | None]) -> "Problem":
        if not self.has_spectra:
            return self
        other = self._copied()
        other.experiments = tuple(map(copy, self.experiments))
        for e, own in zip(other.experiments, spectra, strict=True):
            e.spectra = own
        return other

    @property
    def sigma_known(self) -> bool:
        """Return True if the standard deviations are known in every experiment."""
        return all(e.sigma_known for e in self.experiments)

    @property
    def weights_unknown(self) -> bool:
        """Return True if the size of the errors is unknown and affects the optimum.

        The size affects the optimum if several quantities are measured, or if the loss depends on
        standard deviations (`Loss.needs_deviations`).
        """
        runs = [e for e in self.experiments if e.weights_unknown]
        quantities = {e.measured[k] for e in runs for k in set(e.measurements.column)}
        return len(quantities) > (0 if self.loss.needs_deviations else 1)

    @property
    def relative_sigma(self) -> dict[str, float]:
        """Map each quantity to the relative standard deviation that `weighted` fixed for it."""
        runs = [e.measurements for e in self.experiments if e.has_relative_sigma]
        firsts = ((m, *np.unique(m.column, return_index=True)) for m in runs)
        return {
            m.names[k]: float(m.sigma[i])
            for m, ks, at in firsts
            for k, i in zip(ks, at, strict=True)
        }

    @property
    def weights_follow_fit(self) -> bool:
        """Return True if standard deviations or correlations depend on the fit."""
        return self.sigma_follows or self.correlation_estimated

    @property
    def sigma_follows(self) -> bool:
        """Return True if standard deviations depend on predictions (`Noise`) or on residuals."""
        return self.weights_unknown or any(e.error_models for e in self.experiments)

    @property
    def is_correlated(self) -> bool:
        """Return True if the errors of at least one experiment are correlated."""
        return any(e.measurements.correlation is not None for e in self.experiments)

    @property
    def correlation_estimated(self) -> bool:
        """Return True if correlations of errors are to be estimated."""
        every = (e.measurements.correlation for e in self.experiments)
        return any(c is not None and c.is_estimated for c in every)

    @property
    def correlations(self) -> dict[str, float]:
        """Map names to the estimated error correlations that `weighted` fixed."""
        held = self._weights.correlations if self._weights else ()
        return {n: v for c in held if c is not None for n, v in c.named.items()}

    @property
    def sigma_estimated(self) -> bool:
        """Return True if standard deviations are estimated (`EstimatedSigma`)."""
        return any(e.estimated_sigma for e in self.experiments)

    @property
    def is_censored(self) -> bool:
        """Return True if some values are known only to be below a limit (`losses.Censored`)."""
        return any(e.measurements.censored is not None for e in self.experiments)

    @property
    def inequalities(self) -> frozenset[str]:
        """Names of the inequalities over time in the models of all experiments."""
        return frozenset(name for i in self.instances for name in i.inequalities)

    @property
    def normal_priors(self) -> dict[str, NormalPrior]:
        """Normal priors of free unknowns."""
        names = self.box.names
        return {n: p for n, p in self.priors.items() if isinstance(p, NormalPrior) and n in names}

    @property
    def other_priors(self) -> dict[str, Prior]:
        """Priors of free unknowns, except normal priors."""
        names = self.box.names
        return {n: p for n, p in self.priors.items() if isinstance(p, Prior) and n in names}

    def fixing(self, values: Mapping[str, float]) -> "Problem":
        """Return a copy of the problem in which some unknowns are fixed at the given values.

        raises ProblemError for names that are not unknowns, or for values that are not finite
        """
        require_mapping("fixing", values, "problem.fixing({'k1': 0.5})", ProblemError)
        if unknown := [n for n in values if n not in self.unknowns.names]:
            raise ProblemError(
                f"Unknown parameter names: {unknown}. The problem's unknowns are "
                f"{list(self.unknowns.names)}."
            )
        if lost := {n: v for n, v in values.items() if not is_finite(v)}:
            raise ProblemError(f"Unknowns cannot be fixed at {lost}. Give finite numbers.")
        smaller = self._copied()
        held = {n: float(v) for n, v in values.items()}
        smaller.fixed = MappingProxyType({**self.fixed, **held})
        return smaller

    def weighted(
        self,
        sigma: Sequence[FloatArray] | None,
        *,
        relative: bool = False,
        correlations: Sequence[Correlation | None] = (),
        at: Mapping[str, float] | None = None,
    ) -> "Problem":
        """Return a copy of the problem with fixed standard deviations, correlations or both.

        sigma         a list with an array (n,) of standard deviations for each experiment, in the
                      order and unit of its `measurements.value`; None leaves them unchanged
        relative      whether only the ratios of the standard deviations are known
        correlations  a list with one entry for each experiment: the correlation of its errors, or
                      None to leave it unchanged. An empty list changes no correlation
        at            a dict {unknown: value} if `sigma` comes from a fit: its estimate
        raises        ProblemError unless `sigma` has a positive number for each measurement
        """
        copy, runs = self._copied(), self.experiments
        own = tuple(correlations) or (None,) * len(runs)
        held = None if sigma is None else held_sigma(runs, sigma)
        copy._weights = HeldWeights(held, relative, own, at)
        copy.experiments = tuple(
            e.weighted(s, relative=relative, correlation=c)
            for e, s, c in zip(runs, held or (None,) * len(runs), own, strict=True)
        )
        return copy

    def in_logarithms(self, names: Iterable[str]) -> "Problem":
        """Return a copy of the problem in which these unknowns are also `logarithmic`."""
        copy = self._copied()
        every = self.unknowns.logarithmic.union(names)
        copy.unknowns = replace(self.unknowns, logarithmic=every)
        return copy

    def _copied(self) -> "Problem":
        """Return a copy to be changed, which shares the equations that were read."""
        copy = object.__new__(Problem)
        copy.__dict__.update(self.__dict__, compiled=None)
        return copy

    def with_data(self, data: Data, sigma: Any = None) -> "Problem":
        """Return a copy of the problem with other measurements made under the same conditions.

        data    a table with the new measurements, or its path; if the problem has several
                experiments, the table must have a column `experiment`
        sigma   standard deviations of the new measurements, as for `Experiment`; None: unchanged
        raises  DataError if the table does not fit the problem
        """
        table, runs = read_table(data), self._given["experiments"]
        several = len(runs) > 1
        changed = [e.with_data(table, one_of_several=several, sigma=sigma) for e in runs]
        return Problem(**{**self._given, "experiments": changed}).fixing(self.fixed)

    def of_experiments(self, names: Sequence[str]) -> "Problem":
        """Return a copy with only the named experiments, which must not have local unknowns.

        raises  ProblemError if none of the named experiments exists
        """
        places = [k for k, e in enumerate(self.experiments) if e.name in names]
        if not places:
            every = [e.name for e in self.experiments]
            raise ProblemError(f"Unknown experiments: {list(names)}; the problem has {every}.")
        runs = [self._given["experiments"][k] for k in places]
        if (held := self._weights) is not None:
            sigma = held.sigma and tuple(held.sigma[k] for k in places)
            own = tuple(held.correlations[k] for k in places)
            held = held._replace(sigma=sigma, correlations=own)
        given = {**self._given, "experiments": runs}
        return _made_again(given, self.fixed, held, (), self._forms)

    def on_finer_grid(self) -> "Problem":
        """Return a copy of the problem with twice as many intervals in space.

        raises  ProblemError if the problem was created without `space`
        """
        space = {name: grid.refined() for name, grid in self._given["space"].items()}
        if not space:
            raise ProblemError(
                "The problem was created without space=, so it has no grid to refine. Leave the "
                "ContinuousSet undiscretised in the builder, and pass igpe.Problem(..., "
                "space={'x': 50})."
            )
        given = {**self._given, "space": space}
        return _made_again(given, self.fixed, self._weights, (), self._forms)

    @property
    def held_weights(self) -> HeldWeights | None:
        """The arguments that were passed to `weighted`; None if it was not called."""
        return self._weights

    def built_at(self, k: int, times: Iterable[float]) -> "Problem":
        """Return a copy with the model of experiment `k` built at these times."""
        instance = build(self.model, times, self.experiments[k])
        for form in self._forms:
            instance = form(instance)
        return self.with_instances([*self.instances[:k], instance, *self.instances[k + 1 :]])

    def with_instances(self, instances: Iterable[Instance]) -> "Problem":
        """Return a copy of the problem with its models as they were built at other times."""
        copy = self._copied()
        copy.instances = tuple(instances)
        copy.starts = tuple(map(model_starts, copy.instances))
        return copy

    def formed(self, form: Form) -> "Problem":
        """Return a copy whose models are changed by a function, whenever they are built."""
        copy = self.with_instances(map(form, self.instances))
        copy._forms = (*self._forms, form)
        return copy

    def reporting(self, names: Sequence[str]) -> "Problem":
        """Return a copy with additional quantities that simulations report but that are not
        measured.

        names  names of time-dependent quantities of the model
        """
        copy = self._copied()
        copy.experiments = tuple(e.reporting(names) for e in self.experiments)
        return copy

    def unknown_of(self, parameter: str, experiment: Experiment) -> str:
        """Return the name of the unknown for a model parameter in one experiment."""
        return self._own(parameter, experiment) if parameter in self.local else parameter

    def start_unknown(self, state: str, experiment: Experiment) -> str:
        """Return the name of the unknown for an estimated start value."""
        return self._own(f"{state}(t0)", experiment)

    def pieces(self, name: str, experiment: Experiment) -> dict[str, float]:
        """Map each unknown of a time-varying parameter to the start time of its piece in one
        experiment.

        If a break differs from a measured time only by rounding, igpe uses the measured
        time.
        """
        first, times = experiment.start_time, experiment.times
        nearest_starts = {}
        for begin in self.time_varying[name].begins(first, float(times[-1])):
            nearest = float(times[np.argmin(np.abs(times - begin))])
            is_same = abs(nearest - begin) <= ROUNDING * (float(times[-1]) - first)
            unknown = f"{name}({repr(float(begin)).removesuffix('.0')})"
            nearest_starts[self._own(unknown, experiment)] = nearest if is_same else begin
        return nearest_starts

    @property
    def varying(self) -> dict[str, str]:
        """Map the unknowns of time-varying parameters to the names of these parameters."""
        return {
            u: n for n in self.time_varying for e in self.experiments for u in self.pieces(n, e)
        }

    def unit(self, name: str) -> str:
        """Unit that the model gives for an unknown, a state or a measured quantity; may be empty.

        If the model has no unit of time, the unit of "time" comes from the data.
        """
        if name == "time":
            given = (e.units.get("time", "") for e in self.experiments)
            return time_unit(self.instances[0]) or next(filter(None, given), "")
        base = self.varying.get(name, name.split("@", maxsplit=1)[0].removesuffix("(t0)"))
        for instance in self.instances:
            if base in instance.scalars:
                return unit_name(instance.scalars[base])
            series = instance.over_time(base)
            if series is not None:
                return unit_name(next(iter(series.values())))
        return ""

    def _own(self, name: str, experiment: Experiment) -> str:
        return name if len(self.experiments) == 1 else f"{name}@{experiment.name}"

    def _unknowns(self, parameters: Sequence[str] | Mapping[str, Bounds]) -> Box:
        overrides = parameters if isinstance(parameters, Mapping) else {}
        bounds: dict[str, Bounds] = {}
        for name in self.parameters:
            given = overrides.get(name, overrides.get(name.split("[")[0]))
            models: dict[str, list[Instance]] = {}
            for e, instance in zip(self.experiments, self.instances, strict=True):
                models.setdefault(self.unknown_of(name, e), []).append(instance)
            bounds |= {u: bounds_of(name, given, of) for u, of in models.items()}
        for e in self.experiments:
            for state, start in e.start.items():
                if isinstance(start, Unknown):
                    bounds[self.start_unknown(state, e)] = (start.lower, start.upper)
            for name, known in e.uncertain_inputs.items():
                bounds[self.unknown_of(name, e)] = (known.lower, known.upper)
        for unknown, name in self.varying.items():
            bounds[unknown] = (self.time_varying[name].lower, self.time_varying[name].upper)
        lower, upper = (np.array([b[i] for b in bounds.values()], dtype=float) for i in (0, 1))
        return Box(tuple(bounds), lower, upper)

    def _known_with_errors(self) -> dict[str, NormalPrior]:
        """Unknown -> the prior that an experiment gives as its start value or input."""
        priors: dict[str, NormalPrior] = {}
        for e in self.experiments:
            of: dict[str, Any] = {self.start_unknown(n, e): v for n, v in e.start.items()}
            of |= {self.unknown_of(n, e): v for n, v in e.uncertain_inputs.items()}
            priors |= {n: v.prior for n, v in of.items() if isinstance(v, Uncertain)}
        return priors

    def _repr_html_(self) -> str:
        return problem_html(self)

    def __repr__(self) -> str:
        return (
            f"Problem({counted(len(self.box), 'unknown')}: {', '.join(self.box.names)}; "
            f"{counted(len(self.experiments), 'experiment')}, "
            f"{counted(self.size, 'measurement')})"
        )


def _made_again(
    given: Mapping[str, Any],
    fixed: Mapping[str, float],
    weights: HeldWeights | None,
    read: Iterable[tuple[str, tuple[str, ...]]],
    forms: tuple[Form, ...],
) -> Problem:
    problem = reduce(Problem.formed, forms, Problem(**given).fixing(fixed))
    problem.systems.update(dict.fromkeys(read))
    return problem if weights is None else problem.weighted(**weights._asdict())


EXAMPLE = (
    "igpe.Problem(model, parameters=['k'], experiments=[igpe.Experiment(data, start={'A': 1.0})])"
)
Call = TypeVar("Call", bound=Callable[..., Any])


def takes_problem(function: Call) -> Call:
    """Let a function refuse a first argument, or `under`, that is no `igpe.Problem`."""

    @wraps(function)
    def checked(*arguments: Any, **named: Any) -> Any:
        first = arguments[:1] or ([named["problem"]] if "problem" in named else [])
        under = [named["under"]] if named.get("under") is not None else []
        places = [*((one, "as its first argument") for one in first)]
        places += [(one, "as `under`") for one in under]
        for one, place in places:
            if not isinstance(one, Problem):
                raise ProblemError(
                    f"{function.__name__}() needs an igpe.Problem {place}; got {_kind(one)}. "
                    f"Create one: problem = {EXAMPLE}, then pass it."
                )
        return function(*arguments, **named)

    return checked  # type: ignore[return-value]


def _kind(given: Any) -> str:
    """What was given instead, for a message."""
    if callable(given) and hasattr(given, "__name__"):
        return f"the function `{given.__name__}`"
    kind = type(given).__name__
    return f"{'an' if kind[:1] in 'AEIO' else 'a'} {kind}"
