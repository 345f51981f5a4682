"""SciPy as one writes it by hand: `solve_ivp`, then `least_squares` or `differential_evolution`.

The right-hand side is plain Python, generated; inputs given by tables are straight lines between
the breaks at which each integration begins again.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import differential_evolution, least_squares

from igpe.core.arrays import FloatArray
from igpe.problem.inputs import Table
from peers.task import Found, Search, Task
from peers.told import PYTHON, Course, Told, told

RTOL, ATOL = 1e-8, 1e-10
STEP = 1e-5  # relative, of differences: the integration's errors are a thousandth of it
MOST = 100_000  # evaluations of the right-hand side in one integration
LOST = 1e6  # a residual where the integration breaks down


class TooManyError(Exception):
    """An integration does not end."""


class Python:
    """The problem's residuals as a Python function of its unknowns (n,)."""

    def __init__(self, problem: Told) -> None:
        self.problem = problem
        self.slopes, self.measured = _functions(problem)
        self.size = problem.problem.size

    def __call__(self, q: FloatArray) -> FloatArray:
        """(m,) residuals; large ones where there are none."""
        try:
            parts = [self._residuals(course, q) for course in self.problem.courses]
        except (TooManyError, ZeroDivisionError, OverflowError, ValueError):
            return np.full(self.size, LOST)
        found = np.concatenate(parts)
        return np.where(np.abs(found) < LOST, found, LOST)

    def _residuals(self, course: Course, q: FloatArray) -> FloatArray:
        m, t0 = course.experiment.measurements, course.experiment.start_time
        values = dict(zip(self.problem.unknowns, q.tolist(), strict=True))
        start = [values[v] if isinstance(v, str) else v for v in course.start.values()]
        p = [values[n] for n in self.problem.problem.parameters]
        breaks = {t for u in course.inputs.values() if isinstance(u, Table) for t in u.times}
        nodes = [t0, *sorted(t for t in breaks if t0 < t < m.times[-1]), float(m.times[-1])]
        x: Any = np.array(start)
        rows: dict[float, Any] = {}
        for a, b in pairwise(nodes):
            inside = m.times[(m.times >= a) & (m.times <= b)]
            u = [_line(course.inputs[n], a) for n in self.problem.inputs]
            x, states = self._piece((a, b), x, (p, u, start), inside)
            rows |= {
                t: self.measured(t, y, p, u, start) for t, y in zip(inside, states, strict=True)
            }
        predicted = np.array([rows[t] for t in m.times])
        return np.asarray((predicted[m.row, m.column] - m.value) / m.sigma)

    def _piece(
        self, span: tuple[float, float], x: Any, given: tuple[Any, ...], at: FloatArray
    ) -> tuple[Any, Any]:
        count = 0

        def slopes(t: float, y: Any) -> list[float]:
            nonlocal count
            count += 1
            if count > MOST:
                raise TooManyError
            return self.slopes(t, y.tolist(), *given)

        wanted = np.unique([*at, span[1]])
        run = solve_ivp(slopes, span, x, "LSODA", wanted, rtol=RTOL, atol=ATOL)
        if not run.success or run.y.shape[1] != len(wanted):
            raise TooManyError
        return run.y[:, -1], run.y.T[np.isin(wanted, at)]


def _line(given: Any, time: float) -> tuple[float, float]:
    return given.segment(time) if isinstance(given, Table) else (given, 0.0)


def _functions(problem: Told) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """slopes(t, x, p, u, s) and measured(t, x, p, u, s), lists of numbers."""
    text = problem.text(PYTHON)

    def source(name: str, lines: Any) -> str:
        body = [
            *(f"{x} = x[{i}]" for i, x in enumerate(problem.states)),
            *(f"{n} = p[{i}]" for i, n in enumerate(problem.problem.parameters)),
            *(f"{n} = u[{i}][0] + u[{i}][1] * t" for i, n in enumerate(problem.inputs)),
            *(f"{problem.begins[x]} = s[{i}]" for i, x in enumerate(problem.states)),
        ]
        used = " ".join([*text.shared.values(), *lines])
        body = [line for line in body if line.split(" =")[0] in used]  # letters suffice
        body += [f"{n} = {e}" for n, e in text.shared.items()]
        return f"def {name}(t, x, p, u, s):\n    " + "\n    ".join([
            *body,
            f"return [{', '.join(lines)}]\n",
        ])

    space: dict[str, Any] = {}
    header = "from math import *\n"
    exec(header + source("slopes", text.slopes.values()), space)
    exec(header + source("measured", text.measured.values()), space)
    return space["slopes"], space["measured"]


def multistart(task: Task, *, logarithmic: bool = False) -> Search:
    """`least_squares` (trust region reflective, differences) from random starts."""
    residuals, box = Python(told(task.problem)), task.problem.box
    logs = task.logarithmic & logarithmic
    lower = task.logarithmic_lower if logarithmic else box.lower

    def back(y: FloatArray) -> FloatArray:
        return np.where(logs, 10.0 ** np.where(logs, y, 0.0), y)

    def scaled(x: FloatArray) -> FloatArray:
        return np.where(logs, np.log10(np.where(logs, x, 1.0)), x)

    def one(start: FloatArray) -> Found:
        found = least_squares(
            lambda y: residuals(back(y)),
            np.clip(scaled(start), scaled(lower), scaled(box.upper)),
            bounds=(scaled(lower), scaled(box.upper)),
            x_scale="jac",
            diff_step=STEP,
        )
        return box.mapping(back(found.x))

    def search() -> Iterator[Found]:
        for start in task.points(logarithmic=logarithmic):
            yield one(start)

    return search


in_logarithms = partial(multistart, logarithmic=True)


def evolution(task: Task) -> Search:
    """`differential_evolution` as it is by default, polished at the end."""
    residuals, box = Python(told(task.problem)), task.problem.box

    def search() -> Iterator[Found]:
        found = differential_evolution(
            lambda x: float(np.sum(residuals(x) ** 2)),
            list(zip(box.lower, box.upper, strict=True)),
            rng=task.seed,
        )
        yield box.mapping(found.x)

    return search
