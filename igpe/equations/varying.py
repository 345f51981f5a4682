"""Unknowns that vary with time, as sums of switches that are known inputs.

    w(t) = sum of w_i s_i(t),     s_i = 1 from break i to the next, else 0

The switches are tables, so that integrators cut their pieces at the breaks as they do for any
input, and derivatives by the values w_i stay exact.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.equations.symbols import stack
from igpe.problem.experiment import Experiment
from igpe.problem.inputs import Table
from igpe.problem.problem import Problem


class Varying(NamedTuple):
    """The time-varying unknowns of one experiment, in the problem's order.

    values    SX column, each in the switches and the unknowns that are its pieces
    switches  symbols;  tables: when each is on
    """

    values: list[Any]
    switches: list[Any]
    tables: list[Table]


def varying(problem: Problem, experiment: Experiment, free: Callable[[str], Any]) -> Varying:
    """The time-varying unknowns; `free` gives the symbol or the number of an unknown."""
    found = Varying([], [], [])
    for name in problem.time_varying:
        pieces = problem.pieces(name, experiment)
        values = [free(unknown) for unknown in pieces]
        if len(pieces) == 1:
            found.values.append(values[0])
            continue
        switches = [ca.SX.sym(f"{unknown} is on") for unknown in pieces]
        found.values.append(ca.dot(stack(values), stack(switches)))
        begins = np.array(list(pieces.values()))
        found.switches.extend(switches)
        found.tables.extend(Table(begins, row, hold=True) for row in np.eye(len(begins)))
    return found
