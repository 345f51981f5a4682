"""Random kinetic regressions: rates that are linear in some parameters and not in others.

Each problem is  d_i = sum_k beta_k phi_k(x_i; theta) + noise  at M places x, noise of 2 % of the
rates' size. The families differ in phi:

    arrhenius    exp(-E_k c_i), c between -1 and 1 (a temperature scale), E in [-1, 9]
    michaelis    x_k / (K_k + x_k), a substrate each, K in [0.01, 10]
    exponential  exp(-l_k t), one t: l in [0.05, 20], in as many parts of equal ratio as there are
                 columns, each made wider so that neighbours overlap by a factor of 2; the true l_k
                 is in the middle of its part, so that no two are nearly the same
    hill         x^n / (K^n + x^n), K in [0.01, 10], n in [1, 4]; two nonlinear parameters a column
    shared       two columns x1 / D and x2 / D with the same D = 1 + x1/K1 + x2/K2 + x3/K3 + ..

Bounds are wide where a user's would be. That the exponentials have an interval each is not
innocent: with one interval for all, every answer has copies with the names exchanged, and a proof
has to find them all.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.algebraic.base import Contribution, Regression
from igpe.core.box import Box

FAMILIES = ("arrhenius", "michaelis", "exponential", "hill", "shared")
NOISE = 0.02
OVERLAP = 2.0  # ratio that neighbouring intervals of the exponentials have in common


class Drawn(NamedTuple):
    """A family's ingredients for J nonlinear parameters.

    rate    (known, p) -> SX, with p = beta then theta
    known   (n_known, M);  linear: number of beta
    bounds  of theta, each (lower, upper);  theta: the truth
    """

    rate: Callable[[Any, Any], Any]
    known: np.ndarray
    linear: int
    bounds: list[tuple[float, float]]
    theta: np.ndarray


def problem(family: str, nonlinear: int, residuals: int, seed: int) -> Regression:
    """A regression with its answer near the drawn truth."""
    rng = np.random.default_rng([FAMILIES.index(family), nonlinear, seed])
    drawn = _DRAW[family](nonlinear, residuals, rng)
    n = drawn.linear + nonlinear
    known, p = ca.SX.sym("known", drawn.known.shape[0]), ca.SX.sym("p", n)
    predict = ca.Function("predict", [known, p], [drawn.rate(known, p)])
    beta = rng.uniform(1.0, 3.0, drawn.linear)
    truth = np.concatenate([beta, drawn.theta])
    exact = predict.map(residuals)(drawn.known, np.tile(truth[:, None], residuals)).full().ravel()
    sigma = NOISE * float(np.sqrt(np.mean(exact**2)))
    target = exact + sigma * rng.standard_normal(residuals)
    piece = Contribution(predict, drawn.known, None, target, np.full(residuals, 1 / sigma))
    lower = np.array([0.0] * drawn.linear + [b[0] for b in drawn.bounds])
    upper = np.array([100.0] * drawn.linear + [b[1] for b in drawn.bounds])
    names = tuple(f"p{i}" for i in range(n))
    return Regression(Box(names, lower, upper), (piece,), f"{family} {nonlinear}", False)


def _apart(rng: np.random.Generator, low: float, high: float, count: int) -> np.ndarray:
    """Numbers that cover an interval, one in each equal part of it."""
    return low + (high - low) * (np.arange(count) + rng.uniform(0.2, 0.8, count)) / count


def _arrhenius(j: int, m: int, rng: np.random.Generator) -> Drawn:
    known = np.vstack([rng.uniform(-1, 1, m), *rng.uniform(0.1, 1.0, (j, m))])

    def rate(k: Any, p: Any) -> Any:
        return sum(p[i] * k[1 + i] * ca.exp(-p[j + i] * k[0]) for i in range(j))

    return Drawn(rate, known, j, [(-1.0, 9.0)] * j, rng.uniform(0.5, 4.0, j))


def _michaelis(j: int, m: int, rng: np.random.Generator) -> Drawn:
    known = np.exp(rng.uniform(np.log(0.01), np.log(10), (j, m)))

    def rate(k: Any, p: Any) -> Any:
        return sum(p[i] * k[i] / (p[j + i] + k[i]) for i in range(j))

    theta = np.exp(rng.uniform(np.log(0.05), np.log(2), j))
    return Drawn(rate, known, j, [(0.01, 10.0)] * j, theta)


def _exponential(j: int, m: int, rng: np.random.Generator) -> Drawn:
    known = np.linspace(0.0, 3.0, m)[None]

    def rate(k: Any, p: Any) -> Any:
        return sum(p[i] * ca.exp(-p[j + i] * k[0]) for i in range(j))

    cuts = np.exp(np.linspace(np.log(0.05), np.log(20), j + 1))
    wider = np.sqrt(OVERLAP)
    bounds = [(float(a / wider), float(b * wider)) for a, b in pairwise(cuts)]
    return Drawn(rate, known, j, bounds, np.exp(_apart(rng, np.log(0.05), np.log(20), j)))


def _hill(j: int, m: int, rng: np.random.Generator) -> Drawn:
    columns = (j + 1) // 2
    known = np.exp(rng.uniform(np.log(0.01), np.log(10), (columns, m)))
    half = [(0.01, 10.0), (1.0, 4.0)]

    def rate(k: Any, p: Any) -> Any:
        total = ca.SX(0)
        for i in range(columns):
            at = columns + 2 * i
            n = p[at + 1] if 2 * i + 1 < j else 2.0
            total += p[i] * k[i] ** n / (p[at] ** n + k[i] ** n)
        return total

    theta = [
        np.exp(rng.uniform(np.log(0.05), np.log(2))) if i % 2 == 0 else rng.uniform(1.2, 3.5)
        for i in range(j)
    ]
    return Drawn(rate, known, columns, [half[i % 2] for i in range(j)], np.array(theta))


def _shared(j: int, m: int, rng: np.random.Generator) -> Drawn:
    known = np.exp(rng.uniform(np.log(0.01), np.log(10), (max(j, 2), m)))

    def rate(k: Any, p: Any) -> Any:
        bottom = 1 + sum(k[i] / p[2 + i] for i in range(j))
        return (p[0] * k[0] + p[1] * k[1]) / bottom

    theta = np.exp(rng.uniform(np.log(0.05), np.log(2), j))
    return Drawn(rate, known, 2, [(0.01, 10.0)] * j, theta)


_DRAW: dict[str, Callable[[int, int, np.random.Generator], Drawn]] = {
    "arrhenius": _arrhenius,
    "michaelis": _michaelis,
    "exponential": _exponential,
    "hill": _hill,
    "shared": _shared,
}
