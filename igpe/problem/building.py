"""Building a user's model.

The builder is the user's function `model(times)` (or `model(times, experiment)`): it returns an
ordinary Pyomo model with a ContinuousSet made of `times`. It is called afresh for every use, so the
user's own objects are never changed.
"""

import inspect
import logging
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from pyomo.core.base.block import Block

from igpe.core.errors import ModelError
from igpe.problem.members import logarithm_of, with_logarithms, with_positions
from igpe.problem.model import Instance, read
from igpe.problem.space import require_whole_sums

Builder: TypeAlias = Callable[..., Any]
POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
FEW = 10  # times that stand for all of an experiment
SHOWN = 4  # times that a message lists


def build(builder: Builder, times: Iterable[float], experiment: Any = None) -> Instance:
    """Call the user's builder and read what it returns.

    raises ModelError if the builder fails or the model is not of a form igpe reads
    """
    if isinstance(builder, Block) or not callable(builder):
        raise ModelError(
            f"The model is a {type(builder).__name__}; expected a function model(times) that "
            "builds and returns the model for any list of times."
        )
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
        ) from error
    inner = [] if experiment is None else [logarithm_of(n) or n for n in experiment.told]
    names = [] if experiment is None else [*inner, *experiment.start, *experiment.inputs]
    instance = read(model, frozenset(names), frozenset(moments))
    require_whole_sums(instance)
    if experiment is None:
        return instance
    instance = with_positions(instance, inner)
    return with_logarithms(instance, experiment.told)


def _explained(error: Exception) -> str:
    """What a builder did wrong and what to write instead."""
    text = str(error)
    found = re.search(r"\((.+)\) to (?:bool|float)", text)
    quantity = " ".join(found[1].split()) if found else ""
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
    tabulated = " Pass tabulated data in Experiment(inputs=...)." * isinstance(error, LookupError)
    return (
        f"{type(error).__name__}: {text}. It must build the model for any list of times.{tabulated}"
    )


def _require_times(instance: Instance, times: Sequence[float]) -> None:
    """Raise ModelError if the model has no point at a measured time: collocation needs one."""
    own = set(map(float, instance.time))
    if missing := [t for t in times if t not in own]:
        listed = ", ".join(f"{t:.6g}" for t in sorted(own)[:SHOWN])
        more = ", ..." * (len(own) > SHOWN)
        raise ModelError(
            f"The model's time has the points [{listed}{more}], "
            f"but not {missing[0]:.6g}. The builder must put the times that it receives into its "
            f"ContinuousSet: m.{instance.time.local_name} = ContinuousSet(initialize=times)."
        )


def build_all(builder: Builder, experiments: Sequence[Any]) -> tuple[Instance, ...]:
    """The model of each experiment, built at its start and the times of its table.

    Of these at a few where a builder says by `kind_of_experiment` that its equations do not depend
    on the times it is given; at the ends alone once it has built another of that kind.
    """
    says = callable(getattr(builder, "kind_of_experiment", None))
    seen, found = set[Hashable](), list[Instance]()
    for e in experiments:
        times = [e.start_time, *e.times.tolist()]
        if says:
            step = len(times) if (kind := kind_of(builder, e)) in seen else len(times) // FEW or 1
            times = [*times[:-1:step], times[-1]]
            seen.add(kind)
        found.append(build(builder, times, e))
        _require_times(found[-1], times)
    return tuple(found)


def kind_of(builder: Builder, experiment: Any) -> Hashable:
    """Experiments of one kind are given the same equations, whatever the times they are built at.

    A builder that takes no experiment has one kind of them for each horizon, as rules may end with
    it; of one that takes it `builder.kind_of_experiment(experiment)`. Without that each is its own.
    """
    if callable(kind := getattr(builder, "kind_of_experiment", None)):
        found: Hashable = kind(experiment)
        return found
    if takes_experiment(builder):
        return str(experiment.name)
    outputs = experiment.told, tuple(experiment.start)
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
