"""One integration with all sensitivities, by every integrator: its time and its errors.

    python benchmarks/integrators.py [--json FILE]

true, bad  the Lotka-Volterra problem of incremental single shooting (`models/`): four rates, from
           0 to 10 with 20 outputs, at the true parameters and at the start of Table 3
stiff      Robertson's kinetics (`models/`): three rates, 50 outputs over ten decades of time

All at rtol 1e-8. Beside ours stands CasADi's own way, CVODES with forward sensitivities by
`ca.jacobian` of its integrator. Errors are those of all states and sensitivities at all outputs,
relative to the largest of each over time, against CVODES on the augmented system at 1e-12; a method
that broke down has none. Times are wall times of one `run`, medians of batches in this one process;
the targets are for a machine that has nothing else to do.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import importlib
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from figures import Row, at_most, command

import igpe
from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Integrator
from igpe.equations.compiled import compiled
from igpe.equations.initial_value import InitialValueProblem

RTOL, ATOL, STEPS = 1e-8, 1e-10, 20_000
EXACT = igpe.integrators.Sundials(rtol=1e-12, atol=1e-14, max_steps=10**6)
METHODS: dict[str, Integrator] = {
    "compiled": igpe.integrators.RungeKutta(RTOL, ATOL, STEPS),
    "cvodes": igpe.integrators.Sundials(RTOL, ATOL, STEPS),
    "automatic": igpe.integrators.Automatic(RTOL, ATOL, STEPS),
}
TARGETS = {"compiled": 0.2, "automatic": 0.2}  # ms at the true parameters
BATCHES, LEAST = 15, 0.02  # batches of at least so many seconds


class Told(NamedTuple):
    """(n_times, n_states) and (n_times, n_states, n_unknowns)."""

    states: FloatArray
    by_unknown: FloatArray

    def error(self, exact: "Told") -> float:
        """Largest over states and sensitivities, each relative to its largest over time."""
        return max(
            float(np.max(np.abs(ours - theirs) / np.abs(theirs).max(axis=0)))
            for ours, theirs in zip(self, exact, strict=True)
        )


Run = Callable[[FloatArray], Told]


def ours(ivp: InitialValueProblem, times: FloatArray, method: Integrator) -> Run:
    """One of igpe's integrators, made ready."""
    made = method.simulation(ivp, times, sensitivities=True)

    def run(q: FloatArray) -> Told:
        came = made.run(q)
        return Told(came.states, came.by_unknown)

    return run


def casadis(ivp: InitialValueProblem, times: FloatArray) -> Run:
    """CVODES with its own forward sensitivities, as CasADi's users call it."""
    dae = {"x": ivp.x, "p": ivp.q, "t": ivp.t, "ode": ivp.f}
    options = {"reltol": RTOL, "abstol": ATOL, "max_num_steps": STEPS}
    integrator = ca.integrator("peer", "cvodes", dae, ivp.t0, list(times), options)
    q = ca.MX.sym("q", ivp.q.numel())
    start = ca.Function("start", [ivp.q], [ivp.start])
    came = integrator(x0=start(q), p=q)["xf"]
    both = ca.Function("both", [q], [came, ca.jacobian(ca.vec(came), q)])
    shape = (len(times), ivp.x.numel(), ivp.q.numel())

    def run(values: FloatArray) -> Told:
        states, slopes = both(values)
        return Told(np.asarray(states).T, np.asarray(slopes).reshape(shape))

    return run


def seconds(call: Callable[[], object]) -> float:
    """The median time of one call."""
    begin = time.perf_counter()
    call()
    once = time.perf_counter() - begin
    times, repeats = [], max(1, round(LEAST / once))
    for _ in range(BATCHES):
        begin = time.perf_counter()
        for _ in range(repeats):
            call()
        times.append((time.perf_counter() - begin) / repeats)
    return median(times)


def figures() -> Iterator[Row]:
    """Time and error of each method at each point."""
    iss, stiff = (importlib.import_module(n) for n in ("lotka_volterra_iss", "robertson"))
    yield from beside(iss, {"true": iss.TRUTH, "bad": iss.PAPER_START})
    yield from beside(stiff, {"stiff": stiff.TRUTH})


def beside(published: Any, points: dict[str, dict[str, float]]) -> Iterator[Row]:
    """All methods on a published model without noise, at named points."""
    problem = published.problem(noise=0.0)
    ivp = compiled(problem).initial_value_problem(0)
    exact = ours(ivp, published.TIMES, EXACT)
    made = {name: ours(ivp, published.TIMES, method) for name, method in METHODS.items()}
    made["casadi"] = casadis(ivp, published.TIMES)
    for point, values in points.items():
        q = problem.box.vector(values)
        right = exact(q)
        for name, method in made.items():
            limit = TARGETS.get(name) if point == "true" else None
            took = seconds(partial(method, q))
            yield at_most(point, f"{name}: time", 1e3 * took, "ms", limit)
            error = method(q).error(right)
            if math.isfinite(error):
                yield at_most(point, f"{name}: error", error)


if __name__ == "__main__":
    command(__doc__, "One integration with all sensitivities", {"all": lambda _: figures()})
