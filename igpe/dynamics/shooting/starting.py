"""Where an initial value problem starts, and how that depends on its unknowns, as plain arrays."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.initial_value import InitialValueProblem


class Start(NamedTuple):
    """The start (n_x,) and its derivatives by the unknowns (n_x, n_q)."""

    states: FloatArray
    by_unknown: FloatArray


Starting: TypeAlias = Callable[[FloatArray], Start]


def starting(ivp: InitialValueProblem) -> Starting:
    """The start as a function of the unknowns (n_q,); computed once if it depends on none."""
    by_q = ca.densify(ca.jacobian(ivp.start, ivp.q))
    function = ca.Function("start", [ivp.q], [ca.densify(ivp.start), by_q])

    def at(q: FloatArray) -> Start:
        states, by = (np.asarray(part) for part in function(q))
        return Start(states.ravel(), by)

    if ca.depends_on(ivp.start, ivp.q):
        return at
    known = at(np.zeros(ivp.q.numel()))
    return lambda _: known
