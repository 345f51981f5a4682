"""One simulation with all its forward sensitivities: igpe's integrators and others'.

    python benchmarks/sensitivities.py [stat5] [calcium] [--json FILE]

stat5    eleven states, four parameters, an input that is linear between 16 times (`models/`)
calcium  four stiff states, eleven parameters and four start values, 200 times (`models/`)

At the optimum: what is measured, at the times when it is measured, with its derivatives by all
unknowns. Each method runs at relative tolerances from 1e-3 to 1e-11 (absolute ones a hundredth of
that, of each state's size where a method allows it); its error is that of derivatives, relative to
the largest of their column, against CVODES on the augmented system at 1e-12. Compared are the
cheapest runs that are right to 1e-3 and to 1e-6. AMICI is compiled CVODES; SciPy integrates the
variational equations, evaluated by CasADi; CasADi's are `cvodes` with its own sensitivities;
diffrax is differentiated forward and jitted. `RungeKutta` is igpe's integrator of intervals on a
single one. Inputs are of straight lines: conditions on the time in AMICI's model, which it finds as
events. Times are of the processor, for one run, after translating and compiling (told apart, with
one run), medians of batches in one process with one thread.
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"
os.environ.setdefault(
    "XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import importlib
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import NamedTuple

import numpy as np
from figures import CONSOLE, Row, at_least, at_most, command
from peers.slopes import OTHERS, Came, asked_of, ours

import igpe

TOLERANCES = (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11)
LEVELS = (1e-3, 1e-6)  # errors of derivatives
OURS = {
    "igpe Automatic": igpe.integrators.Automatic,
    "igpe Sundials": igpe.integrators.Sundials,
}
BATCHES, LEAST, MOST = 5, 0.02, 2.0  # batches of at least so many seconds, until so many passed
AMICI, SCIPY = 1.0, 20.0  # times AMICI's time at most, times faster than SciPy at least


class Point(NamedTuple):
    """One method at one tolerance: seconds, errors of what is measured and of its derivatives."""

    tolerance: float
    seconds: float
    values: float
    derivatives: float


def seconds(call: Callable[[], object]) -> float:
    """The median time of one call."""
    call()
    first = time.process_time()
    call()
    one = max(time.process_time() - first, 1e-6)
    repeats = max(1, round(LEAST / one))
    times: list[float] = []
    while not times or (len(times) < BATCHES and time.process_time() - first < MOST):
        begin = time.process_time()
        for _ in range(repeats):
            call()
        times.append((time.process_time() - begin) / repeats)
    return median(times)


def error(found: np.ndarray, right: np.ndarray) -> float:
    """The largest, each relative to the largest of its column over time; infinite if none came."""
    if found.shape != right.shape or not np.isfinite(found).all():
        return math.inf
    size = np.max(np.abs(right), axis=0)
    return float(np.max(np.abs(found - right)[:, size > 0] / size[size > 0], initial=0.0))


def points(make: Callable[[float], Callable[[], Came]], right: Came) -> Iterator[Point]:
    """One method at all tolerances, until it is right to the last level."""
    for tolerance in TOLERANCES:
        run = make(tolerance)
        came = run()
        found = Point(
            tolerance,
            math.nan,
            error(came.values, right.values),
            error(came.derivatives, right.derivatives),
        )
        if found.derivatives > LEVELS[0]:
            yield found
            continue
        yield found._replace(seconds=seconds(run))
        if found.derivatives <= LEVELS[-1]:
            return


def figures(name: str) -> Iterator[Row]:
    """All methods on one model."""
    asked = asked_of(importlib.import_module(name))
    right = ours(asked, igpe.integrators.Sundials)(1e-12)()
    other = ours(asked, igpe.integrators.RungeKutta)(1e-12)()
    yield at_most(name, "references differ by", error(other.derivatives, right.derivatives))
    took: dict[str, dict[float, Point]] = {}
    made = {n: (lambda i=i: ours(asked, i)) for n, i in OURS.items()}
    made |= {n: (lambda f=f: f(asked)) for n, f in OTHERS.items()}
    for method, prepare in made.items():
        try:
            begin = time.process_time(), os.times()
            maker = prepare()
            maker(TOLERANCES[0])()  # what is compiled at first use belongs to it
            spent = time.process_time() - begin[0] + _others(begin[1])
            ran = list(points(maker, right))
        except Exception as why:  # whatever a peer raises is a row
            CONSOLE.print(f"{name}, {method}: {type(why).__name__}: {why}")
            yield at_most(name, f"{method}: not run", math.nan)
            continue
        took[method] = {level: p for level in LEVELS if (p := cheapest(ran, level)) is not None}
        for p in ran:
            CONSOLE.print(
                f"[dim]{name}, {method}, rtol {p.tolerance:g}: {1e3 * p.seconds:.3g} ms, errors "
                f"{p.values:.1e} and {p.derivatives:.1e}[/dim]"
            )
        yield at_most(name, f"{method}: prepared", spent, "s")
        for level in LEVELS:
            best = took[method].get(level)
            told = f"{method}: right to {level:g}"
            if best is None:
                yield at_most(name, f"{told}: never", math.nan)
                continue
            yield at_most(name, told, 1e3 * best.seconds, "ms")
            yield at_most(name, f"{told}: its error", best.derivatives)
    yield from beside(name, took)


def _others(begin: os.times_result) -> float:
    now = os.times()
    return now.children_user + now.children_system - begin.children_user - begin.children_system


def cheapest(ran: list[Point], level: float) -> Point | None:
    """The fastest that is right to a level."""
    right = [p for p in ran if p.derivatives <= level and math.isfinite(p.seconds)]
    return min(right, key=lambda p: p.seconds, default=None)


def beside(name: str, took: dict[str, dict[float, Point]]) -> Iterator[Row]:
    """What igpe takes by itself beside the others."""
    for level in LEVELS:
        if level not in took.get("igpe Automatic", {}):
            continue
        mine = took["igpe Automatic"][level].seconds
        case = f"{name}, right to {level:g}"
        if level in took.get("AMICI", {}):
            yield at_most(
                case, "time beside AMICI's", mine / took["AMICI"][level].seconds, "-", AMICI
            )
        peers = {
            m: p[level].seconds for m, p in took.items() if m.startswith("SciPy") and level in p
        }
        if peers:
            yield at_least(
                case, "faster than SciPy's best", min(peers.values()) / mine, "times", SCIPY
            )
        for method in ("CasADi cvodes", "diffrax"):
            if level in took.get(method, {}):
                yield at_most(
                    case, f"faster than {method}", took[method][level].seconds / mine, "times"
                )


if __name__ == "__main__":
    os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="igpe-")  # igpe compiles, too
    sections = {n: (lambda _, n=n: figures(n)) for n in ("stat5", "calcium")}
    command(__doc__, "Simulation with forward sensitivities", sections)
