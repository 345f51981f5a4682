"""Programs in tiny units, and optima that are known already."""

import casadi as ca
import numpy as np
import pytest

from igpe.core.status import Status
from igpe.solvers.ipopt import ASTRAY, KNOWN, CompiledProgram, KnownOptimum
from igpe.solvers.nl import Scaled


def compiled(objective, constraints=None, equal=(), sizes=(1.0, 1.0), unit=1.0):
    """A program of x and y."""
    x = ca.SX.sym("x", 2)
    unscaled = x * ca.DM(sizes)
    g = ca.vertcat(*(constraints(*ca.vertsplit(unscaled)) if constraints else ()))
    program = {"x": x, "f": objective(*ca.vertsplit(unscaled)) / unit, "g": g}
    bounds = np.array([equal, equal], dtype=float)
    rows = np.ones(len(equal))
    return CompiledProgram(Scaled(program, np.array(sizes), rows, bounds, unit), {"tol": 1e-9})


def solve(program, start, known=()):
    free = np.full(2, np.inf)
    return program.solve((np.array(start), -free, free), None, known)


def test_sizes_make_tolerances_relative() -> None:
    program = compiled(
        lambda x, y: (x - 2e-12) ** 2 + y**2,
        lambda x, y: [x * y / 1e-24],
        [1.0],
        (1e-12, 1e-12),
        1e-24,
    )
    found = solve(program, [2e-12, 2e-12])
    assert found.status is Status.CONVERGED
    x = max(r.real for r in np.roots([1, -2, 0, 0, -1]) if abs(r.imag) < 1e-9)
    assert found.point == pytest.approx([x * 1e-12, 1e-12 / x], rel=1e-6, abs=0.0)


def test_a_solve_stops_at_a_known_optimum() -> None:
    program = compiled(lambda x, y: 1 + 100 * (y - x**2) ** 2 + (1 - x) ** 2)
    there = KnownOptimum(np.array([1.0]), np.array([0.05]), 1.0, 0.1)
    elsewhere = KnownOptimum(np.array([5.0]), np.array([0.05]), 1.0, 0.1)
    stopped = solve(program, [-1.2, 1.0], [elsewhere, there])
    assert (stopped.status, stopped.message) == (Status.CONVERGED, KNOWN)
    assert abs(stopped.point[0] - 1) <= 0.05
    whole = solve(program, [-1.2, 1.0], [elsewhere])
    assert whole.message != KNOWN
    assert whole.iterations > stopped.iterations


def test_a_solve_that_goes_astray_is_given_up_once_an_optimum_is_known() -> None:
    program = compiled(
        lambda x, y: (x - 1) ** 2 + y**2,
        lambda x, y: [ca.exp(x) - 1e-9 * y**2, y - 1e-3 * ca.exp(-x)],
        [0.0, 0.0],
    )
    known = KnownOptimum(np.array([50.0]), np.array([1e-3]), 1.0, 1e-3)
    stopped = solve(program, [0.0, 1.0], [known])
    assert stopped.message == ASTRAY
    assert stopped.status is Status.FAILED
    alone = solve(program, [0.0, 1.0])
    assert alone.status is not Status.FAILED  # with nothing else at hand it is tried to the end
    assert alone.iterations > stopped.iterations
