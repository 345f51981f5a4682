"""Problems cut into intervals for the tests of interval integrators, and the integrators."""

from functools import cache
from typing import Any, NamedTuple

import calcium
import henon_heiles
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from initial_values import needs_compiler, one_state, posed
from ode import over_time
from zoo import CASES

from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.local_linearization import LocalLinearization
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta
from igpe.dynamics.integrators.sundials import Sundials
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import step_input
from igpe.problem.problem import Problem

EXACT = Sundials(1e-11, 1e-13, max_steps=10**6)
EXPLICIT, IMPLICIT = ({"pair": pair} for pair in (Pair.EXPLICIT, Pair.IMPLICIT))
LANES = {
    "explicit": lambda *numbers: made(RungeKutta, *numbers, **EXPLICIT),
    "implicit": lambda *numbers: made(RungeKutta, *numbers, **IMPLICIT),
    "by stiffness": lambda *numbers: made(RungeKutta, *numbers),
    "lock step": lambda *numbers: made(LockStep, *numbers),
}
"""What the lanes make of (rtol, atol, slack, max_steps)."""


def made(kind, rtol, atol, slack=1.0, max_steps=20_000, **fields):
    """An integrator that controls the error of derivatives."""
    return kind(rtol, atol, max_steps, slack=slack, **fields)


COMPILED = ("explicit", "implicit", "by stiffness")
every_lane = pytest.mark.parametrize(
    "lane", [pytest.param(n, marks=needs_compiler) if n in COMPILED else n for n in LANES]
)
every_method = pytest.mark.parametrize(
    "method",
    [
        pytest.param(RungeKutta(), marks=needs_compiler),
        LockStep(),
        Automatic(),
        LocalLinearization(),
    ],
    ids=lambda m: type(m).__name__,
)
NUMBERS = ("ends", "by_start", "by_unknown", "measured", "measured_by_start", "measured_by_unknown")


class Cut(NamedTuple):
    """An initial value problem, K + 1 nodes, K starts, unknowns, times."""

    ivp: Any
    nodes: Any
    starts: Any
    q: Any
    times: Any

    def made(self, method):
        """Ready to run."""
        return method.prepare(self.ivp, self.nodes, self.times)

    def run(self, method, **options):
        """Run once."""
        return self.made(method).run(self.starts, self.q, **options)


def cut(problem, truth, nodes, times):
    """Intervals that begin on the course of `truth`."""
    ivp = posed(problem)
    q = np.array([truth[n] for n in ivp.unknowns])
    nodes, times = np.array(nodes, dtype=float), np.array(times, dtype=float)
    course = Sundials(1e-11, 1e-13).simulation(ivp, nodes, sensitivities=False).run(q)
    return Cut(ivp, nodes, course.states[:-1], q, times)


def fed(*, start=1.0):
    """x' = u - k x^2, y = u x, where u jumps inside an interval, at a node and at a time."""

    def build(times):
        m = over_time(times, "x", "y", k=(0, 5))
        m.u = pyo.Param(m.t, mutable=True, default=0.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.u[t] - m.k * m.x[t] ** 2)
        m.flow = pyo.Constraint(m.t, rule=lambda m, t: m.y[t] == m.u[t] * m.x[t])
        return m

    feed = step_input([0.0, 0.4, 1.0, 1.25], [1.0, 3.0, 0.5, 2.0])
    table = pd.DataFrame({"time": [0.0, 1.0, 2.0], "x": 1.0, "y": 1.0})
    run = Experiment(table, start={"x": start}, inputs={"u": feed})
    return Problem(build, parameters=["k"], experiments=run)


def of_zoo(name, intervals):
    """A case of the zoo, cut at equal distances; times are those of its measurements."""
    case = CASES[name]
    nodes = np.linspace(0.0, case.times[-1], intervals + 1)
    return cut(case.problem(), case.truth, nodes, case.times)


@cache
def prepared(name):
    """A problem by name."""
    return {
        "henon_heiles": lambda: cut(
            henon_heiles.problem(),
            henon_heiles.TRUTH,
            np.linspace(0.0, 6.0, 13),
            np.linspace(0.0, 6.0, 41),
        ),
        "calcium": lambda: cut(
            calcium.problem(), calcium.TRUTH, np.linspace(0.0, 4.0, 6), calcium.TIMES[:41]
        ),
        "fed": lambda: cut(
            fed(), {"k": 0.7}, [0.0, 0.6, 1.0, 2.0], [0.0, 0.2, 0.4, 0.6, 0.9, 1.0, 1.25, 1.7, 2.0]
        ),
        "stirred_tank": lambda: of_zoo("stirred_tank", 4),
        "reversible": lambda: of_zoo("reversible", 3),
        "decay": lambda: cut(
            one_state(lambda m, t: -m.k * m.x[t]), {"k": 0.5}, [0.0, 0.5, 2.0], [0.5, 1.0, 2.0]
        ),
    }[name]()


@cache
def exact(name):
    """The shots of a problem, by CVODES at 1e-11."""
    return prepared(name).run(EXACT)


def assert_close(came, wanted, rel, derivatives=None):
    """All numbers, relative to the largest of each state's or quantity's derivatives."""
    for name in NUMBERS:
        ours, theirs = getattr(came, name), getattr(wanted, name)
        assert ours.shape == theirs.shape
        allowed = rel if name in ("ends", "measured") else derivatives or rel
        size = np.abs(theirs).max(axis=0) if theirs.size else 0.0
        assert np.max(np.abs(ours - theirs) - allowed * size, initial=0.0) <= 0, name
