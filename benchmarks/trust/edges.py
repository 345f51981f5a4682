"""Proofs of random small problems at the edges of arithmetic, beside the best of a grid of points.

Right-hand sides are drawn from powers with unknown exponents, exponentials whose bounds overflow,
divisions by what may be zero, logarithms and roots of what may be negative, with 1 to 3 unknowns.
The sum of squares is computed by SciPy (LSODA, 1e-9) on a formula of the same law in NumPy, where 0
is taken for powers of what is not positive. A bound above any of these sums is false. The proof
begins with the best point of the grid.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from itertools import count, product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_most
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from trust.run import Answer, run

CASES = 120
TIMES = np.linspace(0.3, 1.5, 5)
POINTS = {1: 60, 2: 9, 3: 5}  # of the grid along each axis
SECONDS = 1.5  # for a proof; what is proved until then must be true as well
SIGMA = 0.03
EVALUATIONS = 2000  # of a right-hand side: points that need more are not compared


class Law(NamedTuple):
    """x' of x and three unknowns, in Pyomo's functions and NumPy's; bounds of those that occur."""

    pyomo: Callable[..., Any]
    numpy: Callable[..., Any]
    bounds: tuple[tuple[float, float], ...]


def _power(x: float, n: float) -> float:
    return x**n if x > 0 else 0.0


LAWS = (
    Law(lambda x, k, n: -k * x**n, lambda x, k, n: -k * _power(x, n), ((0.1, 3), (-0.5, 3))),
    Law(lambda x, a: -pyo.exp(a) * x, lambda x, a: -np.exp(a) * x, ((-3, 800),)),
    Law(lambda x, k, c: -k / (x - c), lambda x, k, c: -k / (x - c), ((0.05, 1), (-1, 0.5))),
    Law(
        lambda x, k, c: k * pyo.log(x - c), lambda x, k, c: k * np.log(x - c), ((-1, 1), (-1, 0.9))
    ),
    Law(
        lambda x, k, c: -k * pyo.sqrt(x - c), lambda x, k, c: -k * np.sqrt(x - c), ((0, 1), (-1, 1))
    ),
    Law(
        lambda x, k, n, c: k * (x - c) ** n - 0.3 * x,
        lambda x, k, n, c: k * _power(x - c, n) - 0.3 * x,
        ((-1, 1), (0.5, 2), (0, 1.5)),
    ),
    Law(
        lambda x, k, a: -k * x / (x - a * x**2),
        lambda x, k, a: -k * x / (x - a * x**2),
        ((0, 1), (0, 2)),
    ),
    Law(
        lambda x, a, b: -pyo.exp(a - b / x), lambda x, a, b: -np.exp(a - b / x), ((-2, 1), (0, 300))
    ),
)
NAMES = ("p", "q", "r")


def figures(given: argparse.Namespace) -> Iterator[Row]:
    """False bounds, certificates that contradict the checker, and exceptions."""
    case("edges-0")  # compiles or loads once what all processes need
    answers = run("edges", [f"edges-{seed}" for seed in range(CASES)], case, given, limit=120)
    found = list(answers.values())
    done = [a for a in found if "bound" in a]
    wrong = sum(a["bound"] > a["least"] * (1 + 1e-6) + 1e-9 for a in done)
    yield at_most(f"{len(found)} problems", "bounds above a sum of squares", wrong, "-", 0)
    yield at_most(
        "", "certificates that igpe.verify refutes", sum(a["refuted"] for a in done), "-", 0
    )
    yield at_most("", "exceptions that are not igpe's", sum("crashed" in a for a in found), "-", 0)
    yield at_most("", "refused with a sentence", sum("refused" in a for a in found))
    yield at_most("", "stopped by the limit", sum("killed" in a for a in found))
    yield at_most("", "closed", sum(a["closed"] for a in done))


def case(name: str) -> Answer:
    """One problem, its proof, its check, and the least sum of squares on the grid."""
    rng = np.random.default_rng([19, int(name.split("-")[1])])
    law = LAWS[int(rng.integers(len(LAWS)))]
    bounds = [
        tuple(np.sort(rng.uniform(a, b, 2))) if rng.random() < 0.5 else (a, b)
        for a, b in law.bounds
    ]
    data = np.exp(-rng.uniform(0, 1.5) * TIMES) + SIGMA * rng.normal(size=len(TIMES))
    problem = _problem(law, bounds, data)
    warnings.simplefilter("ignore")
    grid = product(*(np.linspace(a, b, POINTS[len(bounds)]) for a, b in bounds))
    least, best = min((_squares(law, p, data), p) for p in grid)
    start = dict(zip(NAMES, map(float, best), strict=False)) if np.isfinite(least) else None
    try:
        proof = igpe.certify(problem, start, time_limit=SECONDS)
        checked = igpe.verify(proof, problem, seconds=SECONDS)
    except igpe.errors.IgpeError as error:
        return {"refused": str(error)}
    least = min(least, _squares(law, proof.parameters, data))
    return {
        "bound": proof.lower_bound,
        "objective": proof.objective,
        "least": least,
        "closed": proof.closed,
        "refuted": checked.verdict is igpe.proofs.Verdict.REFUTED,
    }


def _problem(law: Law, bounds: list[Any], data: Any) -> igpe.Problem:
    names = NAMES[: len(bounds)]

    def build(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.x = pyo.Var(m.t)
        m.dx = dae.DerivativeVar(m.x)
        for n, ends in zip(names, bounds, strict=True):
            setattr(m, n, pyo.Var(bounds=ends))
        p = [getattr(m, n) for n in names]
        m.law = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == law.pyomo(m.x[t], *p))
        return m

    run = igpe.Experiment(
        pd.DataFrame({"time": TIMES, "x": data}), start={"x": 1.0}, start_time=0.0, sigma=SIGMA
    )
    return igpe.Problem(build, parameters=list(names), experiments=[run])


def _squares(law: Law, p: Any, data: Any) -> float:
    """Infinite where there is no solution, or only one that takes too long."""
    calls = count()

    def slope(_: float, x: Any) -> list[float]:
        if next(calls) >= EVALUATIONS:
            raise OverflowError
        return [law.numpy(x[0], *p)]

    with np.errstate(all="ignore"):
        try:
            found = solve_ivp(
                slope, (0.0, TIMES[-1]), [1.0],
                method="LSODA", t_eval=TIMES, rtol=1e-9, atol=1e-11, max_step=0.05,
            )  # fmt: skip
        except (ValueError, OverflowError, ZeroDivisionError):
            return float("inf")
        if not found.success or found.y.shape[1] < len(TIMES):
            return float("inf")
        total = float((((found.y[0] - data) / SIGMA) ** 2).sum())
    return total if np.isfinite(total) else float("inf")
