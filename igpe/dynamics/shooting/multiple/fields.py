"""Fields of multiple shooting that mean nothing, refused where they are given."""

from collections.abc import Mapping
from typing import Any

from igpe.core.arguments import is_count, is_finite, require, shown
from igpe.core.errors import ProblemError
from igpe.dynamics.search.restarts import Restarts
from igpe.numerics.least_squares.chains.backward_lifting import BackwardLifting
from igpe.numerics.least_squares.chains.generalised import GeneralisedGaussNewton
from igpe.numerics.least_squares.chains.soft_links import SoftLinks
from igpe.problem.problem import Problem

OWNER = "MultipleShooting"


def check_fields(method: Any) -> None:
    """Raise ProblemError for a field of `MultipleShooting` that means nothing."""
    for field in ("integrator", "rough"):
        value = getattr(method, field)
        ok = hasattr(value, "prepare_intervals") and not isinstance(value, type)
        wanted = (
            "an integrator of many intervals: AutomaticIntervals(), RungeKutta(), LockStep() or "
            "LocalLinearization()"
        )
        require(ok, OWNER, field, value, wanted)
    for field in ("intervals", "finer"):
        value = getattr(method, field)
        ok = is_count(value) and value >= 1
        require(ok, OWNER, field, value, "a whole number, 1 or more")
    kinds = {"search": (GeneralisedGaussNewton, BackwardLifting), "restarts": (Restarts,)}
    for field, kind in kinds.items():
        value, wanted = getattr(method, field), " or ".join(f"a {k.__name__}(...)" for k in kind)
        require(isinstance(value, kind), OWNER, field, value, wanted)
    require(isinstance(method.record, bool), OWNER, "record", method.record, "True or False")
    links = method.links
    ok = isinstance(links, (tuple, list)) and all(isinstance(s, SoftLinks) for s in links)
    require(ok, OWNER, "links", links, "a tuple of SoftLinks(...), which may be empty")
    limit = method.time_limit
    ok = limit is None or (is_finite(limit) and limit > 0)
    require(ok, OWNER, "time_limit", limit, "a number of seconds above 0, or None for no limit")
    said = method.unobserved
    numbers = said.values() if isinstance(said, Mapping) else [said]
    ok = said is None or is_finite(*numbers)
    require(ok, OWNER, "unobserved", said, "a finite number, or one for each state: {'A': 0.0}")


def check_unobserved(unobserved: Mapping[str, float] | float | None, problem: Problem) -> None:
    """Raise ProblemError for names that no experiment's model has as a state."""
    if not isinstance(unobserved, Mapping):
        return
    states = list(dict.fromkeys(n for instance in problem.instances for n in instance.states))
    strangers = [n for n in unobserved if n not in states]
    if strangers:
        raise ProblemError(
            f"unobserved has values for {shown(strangers)}, which are no states of the model; "
            f"its states are {states}."
        )
