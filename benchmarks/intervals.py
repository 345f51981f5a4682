"""All intervals of a multiple shooting with all sensitivities, by every integrator of intervals.

    python benchmarks/intervals.py [models|directions] [--json FILE]

henon-heiles  50 intervals of 0.2, four states, three parameters (`models/`), 101 times
calcium       17 and 199 intervals, four states, eleven parameters, stiff (`models/`), 200 times
linear        the first, with up to 10 000 intervals
directions    Lorenz' model of 1996 with 32 states, 20 intervals: derivatives along the four
              directions that Schloeder's trick needs, beside all 35; and with the probe that
              multiple shooting adds to have the same steps for all directions

At the true parameters, each interval beginning on the true course; rtol 1e-6, atol 1e-8. Beside
ours stand CasADi's `cvodes` with its Jacobian, mapped over the intervals, and SciPy's `solve_ivp`
on the variational equations, both for the ends of intervals alone, while ours also tell what is
measured. Errors are of the ends' states and of their derivatives, relative to the largest, against
CVODES on the augmented system at 1e-11. Times are of the processor, for one `run`, medians of
batches in this one process, which has one thread.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, Section, at_least, at_most, command
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKuttaIntervals
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem

RTOL, ATOL, SLACK = 1e-6, 1e-8, 100.0
EXACT = igpe.integrators.Sundials(1e-11, 1e-13, max_steps=10**6)
OURS: dict[str, Integrator] = {
    "compiled": igpe.integrators.RungeKutta(RTOL, ATOL, slack=SLACK),
    "explicit": igpe.integrators.RungeKutta(RTOL, ATOL, slack=SLACK, pair=Pair.EXPLICIT),
    "implicit": igpe.integrators.RungeKutta(RTOL, ATOL, slack=SLACK, pair=Pair.IMPLICIT),
    "lock step": LockStep(RTOL, ATOL, slack=SLACK),
    "local linearization": igpe.integrators.LocalLinearization(),
    "one by one": igpe.integrators.Sundials(RTOL, ATOL),
}
FASTER = {"henon-heiles, 50": 20.0, "calcium, 17": 8.0, "calcium, 199": 8.0}
BATCHES, LEAST = 9, 0.02  # batches of at least so many seconds
LINEAR = 1.5  # times that an interval of 10 000 may cost one of 100


class Case(NamedTuple):
    """A problem cut into intervals: nodes (K + 1,), starts (K, n_x), unknowns q (n_q,), times."""

    name: str
    ivp: InitialValueProblem
    nodes: FloatArray
    starts: FloatArray
    q: FloatArray
    times: FloatArray


class Came(NamedTuple):
    """Ends (K, n_x), and their derivatives (K, n_x, n_x + n_q)."""

    ends: FloatArray
    by: FloatArray


Run = Callable[[], Came]


def case(name: str, module: Any, intervals: int, times: FloatArray) -> Case:
    """A published model, each interval beginning on its true course."""
    known = {n: v for n, v in module.TRUTH.items() if n.endswith("(t0)")}
    problem = module.problem().fixing(known)  # starts of intervals are starts enough
    ivp = compiled(problem).initial_value_problem(0)
    q = np.array([module.TRUTH[n] for n in ivp.unknowns])
    nodes = np.linspace(0.0, times[-1], intervals + 1)
    course = (
        igpe.integrators.Sundials(1e-10, 1e-12).simulation(ivp, nodes, sensitivities=False).run(q)
    )
    return Case(f"{name}, {intervals}", ivp, nodes, course.states[:-1], q, times)


def ours(one: Case, method: Integrator) -> Run:
    """One of igpe's integrators, made ready."""
    made = method.prepare(one.ivp, one.nodes, one.times)

    def run() -> Came:
        shots = made.run(one.starts, one.q)
        return Came(shots.ends, np.concatenate([shots.by_start, shots.by_unknown], axis=2))

    return run


def casadis(one: Case) -> Run:
    """CVODES with CasADi's forward sensitivities, mapped over the intervals."""
    ivp, n_k = one.ivp, len(one.starts)
    tau, begin, span = (ca.SX.sym(n) for n in ("tau", "begin", "span"))
    ode = span * ca.substitute(ivp.f, ivp.t, begin + span * tau)
    system = {"t": tau, "x": ivp.x, "p": ca.vertcat(ivp.q, begin, span), "ode": ode}
    # without quad_err_con sensitivities are wrong where no state is on the right (issue 4383)
    options = {"reltol": RTOL, "abstol": ATOL, "quad_err_con": True}
    integrator = ca.integrator("peer", "cvodes", system, 0.0, 1.0, options)
    both, piece = ca.MX.sym("v", ivp.x.numel() + ivp.q.numel()), ca.MX.sym("piece", 2)
    split = ca.vertsplit(both, [0, ivp.x.numel(), both.numel()])
    end = integrator(x0=split[0], p=ca.vertcat(split[1], piece))["xf"]
    mapped = ca.Function("both", [both, piece], [end, ca.jacobian(end, both).T]).map(n_k)
    given = np.column_stack([one.starts, np.tile(one.q, (n_k, 1))]).T
    pieces = np.column_stack([one.nodes[:-1], np.diff(one.nodes)]).T

    def run() -> Came:
        ends, by = mapped(given, pieces)
        shape = (n_k, ivp.x.numel(), both.numel())
        return Came(np.asarray(ends).T, np.asarray(by).T.reshape(shape))

    return run


def scipys(one: Case, method: str) -> Run:
    """`solve_ivp` on the variational equations, one interval after the other."""
    ivp, n_x = one.ivp, one.ivp.x.numel()
    width = n_x + ivp.q.numel()
    s = ca.SX.sym("S", n_x, width)
    by_q = ca.horzcat(ca.SX(n_x, n_x), ca.jacobian(ivp.f, ivp.q))
    slopes = ca.vertcat(ivp.f, ca.vec(ca.jacobian(ivp.f, ivp.x) @ s + by_q))
    wide = ca.vertcat(ivp.x, ca.vec(s))
    function = ca.Function("f", [ivp.t, wide, ivp.q], [ca.densify(slopes)])
    seed = np.eye(n_x, width).T.ravel()

    def end(k: int) -> FloatArray:
        def slope(t: float, x: FloatArray) -> FloatArray:
            return np.asarray(function(t, x, one.q)).ravel()

        start, span = np.concatenate([one.starts[k], seed]), one.nodes[k : k + 2]
        came = solve_ivp(slope, span, start, method, rtol=RTOL, atol=ATOL)
        return np.asarray(came.y[:, -1])

    def run() -> Came:
        found = np.array([end(k) for k in range(len(one.starts))])
        by = found[:, n_x:].reshape(-1, width, n_x).transpose(0, 2, 1)
        return Came(found[:, :n_x], by)

    return run


def seconds(call: Callable[[], object]) -> float:
    """The median time of one call."""
    return median(side_by_side([call])[0])


def side_by_side(calls: Sequence[Callable[[], object]]) -> list[list[float]]:
    """For each call its times, in batches that take turns, so that noise meets all of them."""
    repeats = []
    for call in calls:
        call()
        begin = time.process_time()
        call()
        repeats.append(max(1, round(LEAST / max(time.process_time() - begin, 1e-6))))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(BATCHES):
        for call, count, mine in zip(calls, repeats, times, strict=True):
            begin = time.process_time()
            for _ in range(count):
                call()
            mine.append((time.process_time() - begin) / count)
    return times


def beside(one: Case, scipy: str) -> Iterator[Row]:
    """Time and errors of each method, and how much faster the compiled one is than CasADi's."""
    runs = {name: ours(one, method) for name, method in OURS.items()}
    runs |= {"casadi's cvodes map": casadis(one), f"scipy {scipy}": scipys(one, scipy)}
    exact, took = ours(one, EXACT)(), {}
    for name, run in runs.items():
        took[name] = seconds(run)
        yield at_most(one.name, f"{name}: time", 1e3 * took[name], "ms")
        came = run()
        for what, found, right in zip(("states", "derivatives"), came, exact, strict=True):
            error = float(np.max(np.abs(found - right)) / np.max(np.abs(right)))
            if np.isfinite(error):
                yield at_most(one.name, f"{name}: error of {what}", error)
    faster = took["casadi's cvodes map"] / took["compiled"]
    yield at_least(one.name, "compiled faster than casadi's", faster, "times", FASTER[one.name])


def linear(one: Case) -> Iterator[Row]:
    """Time for each of many intervals, as long as those of the case."""
    length, per_interval = float(one.nodes[1]), {}
    for n_k in (100, 1000, 10_000):
        nodes = length * np.arange(n_k + 1)
        starts = np.resize(one.starts, (n_k, one.starts.shape[1]))
        made = igpe.integrators.RungeKutta(RTOL, ATOL, slack=SLACK).prepare(one.ivp, nodes, nodes)
        per_interval[n_k] = seconds(partial(made.run, starts, one.q)) / n_k
        yield at_most("linear", f"{n_k} intervals: each", 1e6 * per_interval[n_k], "us")
    worst = per_interval[10_000] / per_interval[100]
    yield at_most("linear", "each of 10 000 beside each of 100", worst, "times", LINEAR)


def directions(n_x: int = 32, n_k: int = 20) -> Iterator[Row]:
    """Derivatives along four directions beside all."""
    one = lorenz(n_x, n_k)
    made = igpe.integrators.RungeKutta(RTOL, ATOL, slack=SLACK).prepare(
        one.ivp, one.nodes, one.times
    )
    assert isinstance(made, RungeKuttaIntervals)
    few = np.eye(n_x + 3, 4, -n_x)  # the three parameters, and the gaps
    calls = {
        "all 35": partial(made.run, one.starts, one.q),
        "4": partial(made.chained, one.starts, one.q, few),
        "4, probed": partial(made.chained, one.starts, one.q, few, probed=True),
        "none": partial(made.run, one.starts, one.q, derivatives=False),
    }
    took = dict(zip(calls, side_by_side(list(calls.values())), strict=True))
    for name, times in took.items():
        yield at_most("directions", f"{name}: time", 1e3 * median(times), "ms")
    for name in ("4", "4, probed"):
        faster = median(a / b for a, b in zip(took["all 35"], took[name], strict=True))
        yield at_least("directions", f"{name}: faster than 35", faster, "times", 5.0)


def lorenz(n_x: int, n_k: int) -> Case:
    """Lorenz' model, each interval beginning on its true course."""
    problem = ring(n_x, n_k, np.full((n_k + 1, n_x), 8.0))
    run = problem.experiments[0]
    ivp = compiled(problem).initial_value_problem(0)
    times, q = run.measurements.times, np.array([1.0, 1.0, 8.0])
    course = igpe.integrators.Sundials().simulation(ivp, times, sensitivities=False).run(q)
    return Case("lorenz", ivp, times, course.states[:-1], q, times)


def ring(n_x: int, n_k: int, values: FloatArray) -> igpe.Problem:
    """dx_i/dt = a (x_{i+1} - x_{i-2}) x_{i-1} - b x_i + c, on a ring; values (n_k + 1, n_x)."""

    def model(times: Iterable[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t, m.i = dae.ContinuousSet(initialize=times), pyo.RangeSet(0, n_x - 1)
        m.x = pyo.Var(m.i, m.t)
        m.dx = dae.DerivativeVar(m.x, wrt=m.t)
        m.a, m.b, m.c = (pyo.Var(bounds=(0, 20)) for _ in range(3))

        def rate(m: Any, i: int, t: float) -> Any:
            turn = (m.x[(i + 1) % n_x, t] - m.x[i - 2 & n_x - 1, t]) * m.x[i - 1 & n_x - 1, t]
            return m.dx[i, t] == m.a * turn - m.b * m.x[i, t] + m.c

        m.rate = pyo.Constraint(m.i, m.t, rule=rate)
        return m

    names = [f"x[{i}]" for i in range(n_x)]
    begin = 8.0 + np.random.default_rng(1).normal(size=n_x)
    table = pd.DataFrame(values, columns=names).assign(time=np.linspace(0.0, 2.0, n_k + 1))
    start = dict(zip(names, begin.tolist(), strict=True))
    run = igpe.Experiment(table, start=start, sigma=0.1)
    return igpe.Problem(model, parameters=["a", "b", "c"], experiments=[run])


def models() -> Iterator[Row]:
    """The published models by every integrator, and many intervals."""
    heiles, calcium = (importlib.import_module(n) for n in ("henon_heiles", "calcium"))
    first = case("henon-heiles", heiles, 50, np.linspace(0.0, heiles.END, 101))
    yield from beside(first, "RK45")
    for intervals in (17, 199):
        yield from beside(case("calcium", calcium, intervals, calcium.TIMES), "LSODA")
    yield from linear(first)


if __name__ == "__main__":
    sections: dict[str, Section] = {
        "models": lambda _: models(),
        "directions": lambda _: directions(),
    }
    command(__doc__, "All intervals with all sensitivities", sections)
