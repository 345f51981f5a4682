"""Ctrl-C in step 3: what a route has becomes its answer, with what has been proved."""

import os
import signal
import time

import numpy as np
import pytest
from test_decomposed import mixture, regression, saturation
from test_projected import michaelis

from igpe.algebraic import projected
from igpe.algebraic.bounds.search import ProjectedSearch
from igpe.algebraic.projected import GlobalSolver, Projected
from igpe.algebraic.routes import Decomposed, LinearRoute, LocalSearch
from igpe.core import deadline
from igpe.core.status import Status
from igpe.numerics.least_squares.gauss_newton import GaussNewton

FEW = LocalSearch(trials=8, starts=4)
PLACES = [
    (Projected(gap=1e-9, absolute=0.0), projected, "SearchLimits", 1),  # before branch and bound
    (Projected(gap=1e-9, absolute=0.0), ProjectedSearch, "_handle", 2),  # in it
    (Projected(), GaussNewton, "fit", 3),  # between local searches
    (FEW, GaussNewton, "fit", 3),
    (GlobalSolver(local=FEW), projected, "solve_confirmed", 1),
]


def interrupting(monkeypatch, room, name, call):
    """Ctrl-C at the given call, which another library takes for a failure."""
    calls, function = [], getattr(room, name)

    def counted(*arguments, **named):
        calls.append(1)
        if len(calls) == call:
            try:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(10.0)
            except KeyboardInterrupt:
                raise NotImplementedError from None
        return function(*arguments, **named)

    monkeypatch.setattr(room, name, counted)


@pytest.mark.parametrize(("route", "room", "name", "call"), PLACES)
def test_a_group_keeps_what_it_has(monkeypatch, route, room, name, call):
    one = michaelis()
    interrupting(monkeypatch, room, name, call)
    with deadline.session():
        found = route.estimate(one).estimate
    assert found.status is Status.INTERRUPTED
    assert found.parameters == pytest.approx({"a": 2.0, "b": 0.5}, rel=0.2)
    assert np.isfinite(found.objective)
    assert found.lower_bound <= found.objective
    assert np.isfinite(found.lower_bound) == (room is ProjectedSearch)


def test_stages_that_are_done_are_kept(monkeypatch):
    one = regression(saturation, mixture, noise=0.01)
    interrupting(monkeypatch, LocalSearch, "estimate", 2)
    with deadline.session():
        found = Decomposed(FEW, LinearRoute()).estimate(one)
    assert found.estimate.status is Status.INTERRUPTED
    assert found.estimate.parameters.keys() == {"a", "b"}
    assert set(found.undetermined) == {"c", "d"}
