"""Building a user's model.

The builder is the user's function `model(times)` (or `model(times, experiment)`): it returns an
ordinary Pyomo model with a ContinuousSet made of `times`. It is called afresh for every use, so the
user's own objects are never changed. Where the user gives a model instead, the builder is
`ModelCopies` of it.
"""

import inspect
import io
import logging
import re
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from typing import Any, TypeAlias

import cloudpickle
import pyomo.environ as pyo
from pyomo.core.base.block import BlockData
from pyomo.core.expr.visitor import (
    identify_mutable_parameters,
    identify_variables,
    replace_expressions,
)
from pyomo.dae import ContinuousSet, DerivativeVar
from pyomo.dae.misc import expand_components

from igpe.core.errors import ModelError
from igpe.core.markup import bracketed
from igpe.problem.fluxes import key_of
from igpe.problem.members import logarithm_of, with_logarithms, with_positions
from igpe.problem.model import Instance, along_time, position_in, read
from igpe.problem.space import GRIDS, used_inside

Builder: TypeAlias = Callable[..., Any]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
FEW = 10  # times that stand for all of an experiment
SHOWN = 4  # times that a message lists
ELSEWHERE = (
    " For a variable at a fixed time, such as m.A[2.5], write m.t = ContinuousSet(initialize="
    "[*times, 2.5]). igpe does not support delays, such as m.A[t - 1]."
)


class _ModelPickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Packs Pyomo's models, of which a DerivativeVar knows its state by a weak reference."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, weakref.ref):
            return weakref.ref, (value(),)
        return super().reducer_override(value)


class ModelCopies:
    """A builder whose models are copies of one model, with further points of time and space.

    Pyomo's own rules write the equations at these points, as they do where it discretises.
    """

    def __init__(self, model: Any) -> None:
        self.original = model.clone()
        self.__name__ = "copy of the model"

    def __getstate__(self) -> tuple[str, bytes]:
        packed = io.BytesIO()
        _ModelPickler(packed).dump(self.original)
        return self.__name__, packed.getvalue()

    def __setstate__(self, state: tuple[str, bytes]) -> None:
        self.__name__, self.original = state[0], cloudpickle.loads(state[1])

    def __call__(self, times: Sequence[float]) -> Any:
        model, grids = self.original.clone(), GRIDS.get()
        sets = {s.name: s for s in model.component_objects(ContinuousSet)}
        before = {n: frozenset(s) for n, s in sets.items()}
        for name in sets.keys() & grids.keys():
            grids[name].fill(sets[name])
        over = [s for n, s in sets.items() if n not in grids and not s.get_discretization_info()]
        if len(over) == 1:  # else there is no time, which is refused where the model is read
            _extend(over[0], times)
        if grown := [s for n, s in sets.items() if len(s) > len(before[n])]:
            off = [
                c
                for c in model.component_objects(pyo.Constraint)
                if len(c) and not any(data.active for data in c.values())
            ]
            for s in grown:
                s.set_changed(True)
            _extend_params(model)
            expand_components(model)
            for data in (data for c in off for data in c.values()):
                data.deactivate()
            for s in grown:
                s.set_changed(False)  # it is not discretised
            _require_rules(model)
            _own_variables(model)
            _fix_further(model, [s for s in grown if s in over], before)
        return model


def _extend(time: Any, times: Sequence[float]) -> None:
    """Add points to the time of a model."""
    first, last, name = time.first(), time.last(), time.name
    if outside := [t for t in times if not first <= t <= last]:
        grids = list(GRIDS.get())
        because = f" igpe takes '{name}' for time since space= contains {grids}." * bool(grids)
        what = (
            f"The model's time '{name}' reaches from {first:g} to {last:g}, but the time "
            f"{outside[-1]:g} is wanted.{because}"
        )
        ends = f"m.{name} = ContinuousSet(bounds=({min(first, *times):g}, {max(last, *times):g}))"
        if outside == [min(times)] and outside[0] < first:  # the start of the experiment
            raise ModelError(
                f"{what} If the start values of the model refer to {first:g}, pass "
                f"Experiment(start_time={first:g}). Otherwise, begin the model earlier: {ends}."
            )
        raise ModelError(f"{what} Give its ends in the model: {ends}.")
    own = set(map(float, time))
    time.update(t for t in times if t not in own)


def _extend_params(model: Any) -> None:
    """Let the rules of Params give their values at further points, as Pyomo itself does not.

    A Param of a table has none there, which is refused where an equation needs it.
    """
    for param in model.component_objects(pyo.Param):
        rule: Any = getattr(param, "_rule", None)
        if param.is_indexed() and rule is not None and not rule.contains_indices():
            known = set(param.sparse_keys())
            for index in (i for i in param.index_set() if i not in known):
                values: Any = param if param.mutable else param._data  # else Pyomo refuses it
                values[index] = rule(param.parent_block(), index)


def _require_rules(model: Any) -> None:
    """Raise ModelError if a rule cannot write its equation at a further point.

    Pyomo takes its KeyError for a constraint that is skipped.
    """
    for component in model.component_objects(pyo.Constraint, active=True):
        rule: Any = getattr(component, "_rule", None)
        missing = [i for i in component.index_set() if i not in component]
        for index in missing if rule is not None else ():
            try:
                rule(component.parent_block(), index)
            except KeyError as error:
                raise ModelError(
                    f"The rule of '{component.name}' cannot write the equation at {index}: "
                    f"KeyError: {error}. A rule must name the model by its first argument, and "
                    "hold for all times: pass tabulated data in Experiment(inputs=...). Or give "
                    "igpe.Problem a function model(times) that builds the model."
                ) from error


def _fix_further(model: Any, times: Sequence[Any], before: Mapping[str, Set[float]]) -> None:
    """Fix a variable at further times where all of its times were fixed at one value."""
    for time in times:
        for series in along_time(model, time, pyo.Var)[1].values():
            old = [v for t, v in series.items() if t in before[time.name]]
            if len(old) > 1 and all(v.fixed and v.value == old[0].value for v in old):
                for v in series.values():
                    v.fix(old[0].value)


def _own_variables(model: Any) -> None:
    """Let the equations hold variables of this model where a rule names those of the original."""
    for component in model.component_data_objects((pyo.Constraint, pyo.Expression)):
        held = identify_variables(component.expr, include_fixed=True)
        held = [*held, *identify_mutable_parameters(component.expr)]
        if others := [v for v in held if v.model() is not model]:
            own = {id(v): pyo.ComponentUID(v).find_component_on(model) for v in others}
            component.set_value(replace_expressions(component.expr, own))


def as_builder(model: Any) -> Builder:
    """The function that builds the model, or one that copies the model given.

    raises  ModelError for anything else
    """
    if isinstance(model, pyo.AbstractModel):
        raise ModelError(
            "The model is an AbstractModel, which has no equations yet; igpe needs a "
            "ConcreteModel. Pass model.create_instance(), or build a pyo.ConcreteModel()."
        )
    if isinstance(model, BlockData):
        return ModelCopies(model)
    if not callable(model):
        raise ModelError(
            f"The model is a {type(model).__name__}; expected a Pyomo model, or a function "
            "model(times) that builds and returns the model for any list of times."
        )
    builder: Builder = model
    return builder


def build(builder: Builder, times: Iterable[float], experiment: Any = None) -> Instance:
    """Call the user's builder and read what it returns.

    raises ModelError if the builder fails or the model is not of a form igpe reads
    """
    moments = sorted({float(t) for t in times})
    try:
        with _quiet():
            model = call(builder, moments, experiment)
    except ModelError:  # with a hint of its own
        raise
    except Exception as error:
        name = getattr(builder, "__name__", type(builder).__name__)
        listed = ", ".join([
            *(f"{t:g}" for t in moments[:SHOWN]),
            *["..."] * (len(moments) > SHOWN),
        ])
        raise ModelError(
            f"The model's builder `{name}` failed for times [{listed}]: {_explained(error)}"
            f"{_second_argument(builder)}"
        ) from error
    inner = [] if experiment is None else [logarithm_of(n) or n for n in experiment.outputs]
    names = [] if experiment is None else [*inner, *experiment.start, *experiment.inputs]
    instance = read(model, frozenset(names), frozenset(moments))
    _require_whole_sums(instance)
    _require_joined_slopes(instance)
    if experiment is None:
        return instance
    instance = with_positions(instance, inner)
    return with_logarithms(instance, experiment.outputs)


def _explained(error: Exception) -> str:
    """What a builder did wrong and what to write instead."""
    text = str(error)
    match = re.search(r"\((.+)\) to (?:bool|float)", text)
    quantity = " ".join(match[1].split()) if match else ""
    if "Cannot convert non-constant Pyomo expression" in text:
        return (
            f"Python cannot decide whether `{quantity}` is true, because Pyomo's variables have no "
            "values yet. In place of `if`, write pyo.Expr_if(condition, a, b). In place of max(a, "
            "0), write pyo.Expr_if(a > 0, a, 0)."
        )
    if "Implicit conversion of Pyomo numeric value" in text or "loop of ufunc" in text:
        return (
            f"a function of Python or NumPy cannot compute with {quantity or 'variables'} of "
            "Pyomo. Use Pyomo's functions, such as pyo.exp, pyo.log and pyo.sqrt, in place of "
            "np.exp or math.exp."
        )
    lacking = isinstance(error, LookupError) or "Param value is undefined" in text
    tabulated = " Pass tabulated data in Experiment(inputs=...)." * lacking
    tabulated += ELSEWHERE * ("is not valid for indexed component" in text)
    said = " ".join(text.split()).rstrip(".")
    return (
        f"{type(error).__name__}: {said}. It must build the model for any list of times.{tabulated}"
    )


def _require_times(instance: Instance, times: Sequence[float], *, is_copy: bool) -> None:
    """Raise ModelError if the model has no point at a measured time: collocation needs one.

    is_copy  of a model that was given itself
    """
    own, name = set(map(float, instance.time)), instance.time.local_name
    if missing := [t for t in times if t not in own]:
        listed = ", ".join(f"{t:.6g}" for t in sorted(own)[:SHOWN])
        more = ", ..." * (len(own) > SHOWN)
        remedy = (
            f"The builder must put the times that it receives into its ContinuousSet: m.{name} = "
            "ContinuousSet(initialize=times)."
        )
        if is_copy:
            remedy = (
                "It is discretised already, so igpe cannot add points. Pass the model as it is "
                "before pyo.TransformationFactory('dae....').apply_to(m), or put the measured "
                f"times into m.{name} before."
            )
        raise ModelError(
            f"The model's time has the points [{listed}{more}], but not {missing[0]:.6g}. {remedy}"
        )


def build_all(builder: Builder, experiments: Sequence[Any]) -> tuple[Instance, ...]:
    """The model of each experiment, built at its start and the times of its table.

    Of these at a few where a builder says by `kind_of_experiment` that its equations do not depend
    on the times it is given; at the ends alone once it has built another of that kind.
    """
    says = callable(getattr(builder, "kind_of_experiment", None))
    seen, instances = set[Hashable](), list[Instance]()
    for e in experiments:
        times = [e.start_time, *e.times.tolist()]
        if says:
            step = len(times) if (kind := kind_of(builder, e)) in seen else len(times) // FEW or 1
            times = [*times[:-1:step], times[-1]]
            seen.add(kind)
        instance = build(builder, times, e)
        _require_times(instance, times, is_copy=isinstance(inspect.unwrap(builder), ModelCopies))
        instances.append(instance)
    return tuple(instances)


def kind_of(builder: Builder, experiment: Any) -> Hashable:
    """Experiments of one kind are given the same equations, whatever the times they are built at.

    A builder that takes no experiment has one kind of them for each horizon, as rules may end with
    it; of one that takes it `builder.kind_of_experiment(experiment)`. Without that each is its own.
    """
    if callable(kind := getattr(builder, "kind_of_experiment", None)):
        hashable: Hashable = kind(experiment)
        return hashable
    if takes_experiment(builder):
        return str(experiment.name)
    outputs = experiment.outputs, tuple(experiment.start)
    return (*outputs, experiment.start_time, float(experiment.times[-1]))


@contextmanager
def _quiet() -> Iterator[None]:
    """Let Pyomo not print errors of the builder, which are raised as well."""
    handlers = logging.getLogger("pyomo").handlers

    def is_warning(record: logging.LogRecord) -> bool:
        return record.levelno < logging.ERROR

    for handler in handlers:
        handler.addFilter(is_warning)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_warning)


def call(builder: Builder, times: list[float], experiment: Any) -> Any:
    """Return `builder(times)`, or with the experiment where the builder has a place for it."""
    place = _takes_experiment(builder)
    if place is None:
        return builder(times)
    return builder(times, **{place: experiment}) if place else builder(times, experiment)


def _second_argument(builder: Builder) -> str:
    """That a builder's second argument is the experiment, where its name does not say so."""
    if _takes_experiment(builder) != "":
        return ""
    given = inspect.signature(builder).parameters.values()
    second = [p.name for p in given if p.kind in POSITIONAL][1]
    return (
        f" igpe passes the experiment as the second argument, `{second}`. For another meaning, "
        f"give it a value that is not None: {second}=False."
    )


def takes_experiment(builder: Builder) -> bool:
    """Return True if a builder is called with the experiment."""
    return _takes_experiment(builder) is not None


def _takes_experiment(builder: Builder) -> str | None:
    """The name by which a builder takes the experiment, "" by its place, None if it does not.

    Its place is a parameter called `experiment`, or the second positional one unless that has a
    value of its own (`scale=2.0`; None is none).
    """
    given = inspect.signature(builder).parameters
    named = given.get("experiment")
    if named is not None and named.kind in (*POSITIONAL[1:], inspect.Parameter.KEYWORD_ONLY):
        return "experiment"
    second = [p.default for p in given.values() if p.kind in POSITIONAL][1:2]
    takes_it = any(default is None or default is inspect.Parameter.empty for default in second)
    return "" if takes_it else None


def _require_joined_slopes(instance: Instance) -> None:
    """Raise ModelError if second derivatives in space are collocated on several elements.

    Pyomo joins the values of neighbouring elements, but not their slopes, so an element does not
    depend on those behind it. With Legendre's points this holds for the end of the last one too.
    """
    derivatives = [d for d in instance.model.component_objects() if isinstance(d, DerivativeVar)]
    for x in instance.in_space:
        info = x.get_discretization_info()
        if "ncp" not in info or (info["nfe"] == 1 and "RADAU" in info["scheme"]):
            continue
        used = used_inside(instance.model, x)
        for d in [d for d in derivatives if d.name in used and _order(d, x) > 1]:
            raise ModelError(
                f"The builder discretises the second derivative '{d.name}' by collocation "
                f"({info['scheme']}). Pyomo has no equations for the slopes at the ends of "
                "elements, so the solution would be wrong. Write the first derivative as a "
                "variable of its own, m.q[t, x] == m.dcdx[t, x], take the derivative of m.q, and "
                "choose scheme='LAGRANGE-LEGENDRE'. Or leave "
                f"'{x.name}' continuous and pass igpe.Problem(..., space={{'{x.name}': "
                "igpe.integrators.FiniteDifference(50, 'central')})."
            )


def _order(derivative: Any, x: Any) -> int:
    return sum(s is x for s in derivative.get_continuousset_list())


def _require_whole_sums(instance: Instance) -> None:
    """Raise ModelError if a rule sums over a set in space that got points after it had run.

    The rule runs again: then it holds the same variables, of which some at further positions.
    """
    sets = instance.in_space
    if not sets:
        return
    for component in instance.model.component_objects((pyo.Expression, pyo.Constraint)):
        rule = getattr(component, "_rule", None)
        if rule is None or component.local_name.endswith("_disc_eq"):
            continue
        members = list(component.items())
        for index, data in (*members[:1], *members[-1:]):
            try:
                again = _positions(rule(component.parent_block(), index), sets)
                seen = _positions(data.expr, sets)
            except Exception:  # a rule that cannot run twice
                continue
            if again.keys() == seen.keys() and any(seen[n] < again[n] for n in seen):
                raise ModelError(
                    f"'{component.name}' contains a sum over {bracketed(s.name for s in sets)} "
                    "that lacks points: the builder writes the sum before it discretises the set. "
                    "Write the sum after apply_to(m, wrt=...), or use an integral: "
                    "m.total = Integral(m.t, m.x, wrt=m.x, rule=...)."
                )


def _positions(expression: Any, sets: Sequence[Any]) -> dict[Any, set[Any]]:
    """Where an expression holds variables over space, by variable and its further indices."""
    positions: dict[Any, set[Any]] = {}
    for variable in identify_variables(expression):
        component = variable.parent_component()
        index = variable.index()
        key = key_of(index)
        places = {position_in(component, s) for s in sets} - {None}
        rest = tuple(None if i in places else k for i, k in enumerate(key))
        positions.setdefault((component.name, rest), set()).add(key)
    return positions
