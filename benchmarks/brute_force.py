"""Is a proven bound ever above a point of its box? Cases, random boxes, and the search for points.

For a random box of a problem the bound of `igpe.algebraic.bounds` is compared with the best point
that sampling and a shrinking local search find there, the linear parameters by SciPy. No such
point may lie below the bound, however the box, the direction and the options were chosen. The same
is asked of every enclosure: no column, at any sampled point, may reach farther than `Hull.support`
says.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple
from unittest import mock

import casadi as ca
import cops_methanol
import kinetic_family
import methanol
import numpy as np
import urethane
from scipy.optimize import lsq_linear, nnls

import igpe
from igpe.algebraic.base import Contribution, Regression
from igpe.algebraic.bounds import bound as bound_module
from igpe.algebraic.bounds.bound import Bounded, SearchBox, bound
from igpe.algebraic.bounds.search import ProjectedSearch, square
from igpe.algebraic.bounds.separable import Separable, Span
from igpe.algebraic.bounds.separate import Separated, separate
from igpe.algebraic.step import Posing, TargetForm, smooth_measurements
from igpe.core.box import Box as Bounds

POINTS, ROUNDS = 8, 3  # sampled in a box; shrinking rounds of half as many around the best
ROUNDING = 1e-13  # of a residual's parts: what its evaluation in floating point may be wrong by
HUGE = 1e100  # a cutoff above it is none
DEEPEST = 17  # halvings of an axis: 2^-17 is less than 1e-5
KEPT = 1_000_000  # numbers in enclosures that are kept, so that keeping ends now and then


class Checked(NamedTuple):
    """One box.

    lower     proven, on the sum of squares;  found: the best point's sum of squares
    beyond    by how much the bound on the norm exceeds that point's, rounding deducted
    escaped   by how much a column reaches beyond its support, rounding deducted
    """

    lower: float
    found: float
    beyond: float
    escaped: float

    @property
    def valid(self) -> bool:
        """Whether nothing is wrong."""
        return self.beyond <= 0 and self.escaped <= 0


@dataclass(frozen=True)
class Setting:
    """How a problem is written.

    exchange  of parameters;  logarithmic: whether leaves may be affine in their logarithm
    """

    exchange: bool = True
    logarithmic: bool = True


SETTINGS = tuple(Setting(*choice) for choice in itertools.product((True, False), repeat=2))


class Case:
    """A regression under one setting."""

    def __init__(self, name: str, regression: Regression, setting: Setting) -> None:
        self.name, self.regression, self.setting = name, regression, setting
        self.separated: Separated = separate(
            regression.pieces, regression.box, exchange=setting.exchange
        )
        problem = self.separated.problem
        scales = (
            replace(a, log_affine=bool(setting.logarithmic and a.logarithmic)) for a in problem.axes
        )
        problem = replace(problem, axes=tuple(scales))
        self.problem: Separable = problem
        self.search = ProjectedSearch(problem, lambda _: np.inf)

    @cached_property
    def optimum(self) -> tuple[np.ndarray, float]:
        """The best theta of a search over the whole box, and its sum of squares."""
        lower, upper = root_ends(self.problem)
        where = _Where(lower, upper, self.problem.lower, self.problem.upper)
        found = _best(self.problem, where, np.random.default_rng(0), points=64, rounds=12)
        return found.theta, found.square

    def check(self, rng: np.random.Generator) -> Checked:
        """Bound a random box and look for a point below the bound."""
        box = self._box(rng)
        lower, upper = box.ends(self.problem)
        where = _Where(lower, upper, np.array(box.lower), np.array(box.upper))
        best = _best(self.problem, where, rng)
        most = max(len(places) for places in self.problem.depends)
        halvings = int(rng.integers(1, (4 if most < 2 else 2 if most < 3 else 1) + 1))
        with mock.patch.object(bound_module, "MOST_KEPT", KEPT):
            self.search.prepare([box], halvings)
            hull, ranges = self.search.hull(box, halvings)
        cutoff = self._cutoff(best.square, rng)
        found = bound(self.problem.target, hull, ranges, cutoff)
        lower = max(found.lower, self._coupled(box, found, cutoff))
        norm = float(np.sqrt(square(lower)))
        beyond = norm - np.sqrt(best.square) - best.rounding
        direction = rng.normal(size=len(self.problem.target))
        return Checked(
            norm**2, best.square, float(beyond), self._escaped(hull, best.seen, direction)
        )

    def _coupled(self, box: SearchBox, found: Bounded, cutoff: float) -> float:
        """The second bound: of points whose residual is longer than the cutoff it says nothing."""
        if found.direction is None or cutoff > HUGE:
            return 0.0
        return min(self.search._coupled(box, found, cutoff**2)[1], cutoff)

    def _cutoff(self, square: float, rng: np.random.Generator) -> float:
        """Norms as a search asks for, none, and such as the box can just reach or not reach."""
        share = rng.choice([0.5, 0.9, 0.99, 0.9999, 1.0, 1.1])
        near = share * np.sqrt(square if np.isfinite(square) else 1.0)
        return float(rng.choice([np.sqrt(0.9999 * self.optimum[1]), 1e300, near, near, near]))

    def _escaped(self, hull: Any, seen: Sequence[Any], direction: np.ndarray) -> float:
        """How far sampled columns reach beyond their support in a direction."""
        u = direction * hull.usable
        u = u / (np.linalg.norm(u) * (1 + 1e-12) + 1e-300)
        reach = hull.support(u).extent
        worst = -np.inf
        for values in seen:
            own = np.where(hull.usable[:, None], values, 0.0)
            size, along = np.linalg.norm(own, axis=0), u @ own
            for part, most in zip(hull.parts, reach, strict=True):
                slack = 100 * ROUNDING * size[part.column]
                worst = max(worst, part.sign * along[part.column] - most - slack)
        return float(worst)

    def _box(self, rng: np.random.Generator) -> SearchBox:
        """Any width on each axis; half of them around the optimum, others in a corner."""
        n = len(self.problem.axes)
        deepest = int(rng.integers(0, DEEPEST + 1))
        level = [int(rng.integers(max(deepest - 3, 0), deepest + 1)) for _ in range(n)]
        kind = rng.integers(0, 4)
        if kind < 2:
            index = [_at(a, v, x) for a, v, x in zip(self.problem.axes, level, self.optimum[0], strict=True)]  # fmt: skip  # noqa: E501
        elif kind == 2:
            index = [int(rng.choice([0, 2**v - 1])) for v in level]
        else:
            index = [int(rng.integers(0, 2**v)) for v in level]
        lower, upper = self._linear(rng)
        spans = tuple(Span(*cell) for cell in zip(level, index, strict=True))
        return SearchBox(spans, tuple(lower.tolist()), tuple(upper.tolist()))

    def _linear(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """All of the linear parameters' ranges, or parts of them; signs split or not."""
        lower, upper = self.problem.lower.copy(), self.problem.upper.copy()
        for k in range(len(lower)):
            if lower[k] < 0 < upper[k] and rng.random() < 0.7:
                lower[k], upper[k] = (0.0, upper[k]) if rng.random() < 0.5 else (lower[k], 0.0)
            elif rng.random() < 0.2 and not self.problem.ratios and np.isfinite(upper[k]):
                ends = np.sort(rng.uniform(lower[k], upper[k], 2)) * rng.choice([1.0, 0.1])
                lower[k], upper[k] = ends
        return lower, upper


def root_ends(problem: Separable) -> tuple[np.ndarray, np.ndarray]:
    """All of theta."""
    axes = problem.axes
    return np.array([a.lower for a in axes], float), np.array([a.upper for a in axes], float)


def _at(axis: Any, level: int, value: float) -> int:
    """The cell of a level that holds a value, by bisection."""
    low, high = 0, 2**level
    while high - low > 1:
        middle = (low + high) // 2
        end = axis.ends(np.array(level), np.array(middle))[0]
        low, high = (middle, high) if end <= value else (low, middle)
    return low


class _Where(NamedTuple):
    """A box of theta and one of beta."""

    lower: np.ndarray
    upper: np.ndarray
    least: np.ndarray
    most: np.ndarray


class _Point(NamedTuple):
    """theta, its best beta, its sum of squares and what rounding may do to the norm."""

    theta: np.ndarray
    beta: np.ndarray
    square: float
    rounding: float
    seen: list[np.ndarray]


def _best(
    problem: Separable,
    where: _Where,
    rng: np.random.Generator,
    points: int = POINTS,
    rounds: int = ROUNDS,
) -> _Point:
    """The best point of a box that sampling and shrinking around the best one find."""
    n, m = len(where.lower), len(problem.ratios)
    seen: list[np.ndarray] = []
    best, best_t = _Point(where.lower, where.least, np.inf, 0.0, seen), np.full(n + m, 0.5)
    width = 1.0
    for k in range(rounds + 1):
        if k == 0:
            ts = rng.random((points, n + m))
            ts[0], ts[1] = 0.5, rng.integers(0, 2, n + m)
        else:
            width *= 0.4
            ts = np.clip(best_t + width * rng.uniform(-1, 1, (points // 2, n + m)), 0, 1)
        for t in ts:
            theta = np.clip(
                where.lower + t[:n] * (where.upper - where.lower), where.lower, where.upper
            )
            if not _apart(problem, theta):
                continue
            values = problem.values(theta[None])[0]
            if not np.isfinite(values).all():
                continue
            seen.append(values)
            beta = _linear_part(problem, values, where, t[n:])
            if beta is None:
                continue
            rest = problem.target - values[:, 0] - values[:, 1:] @ beta
            square = float(rest @ rest)
            if square < best.square:
                parts = np.linalg.norm(values, axis=0) @ np.abs([1.0, *beta])
                size = float(np.linalg.norm(problem.target) + parts)
                best = _Point(theta, beta, square, ROUNDING * size, seen)
                best_t = t
    return best


def _apart(problem: Separable, theta: np.ndarray) -> bool:
    """Whether the bounds on differences are kept."""
    gaps = [(theta[d.second] - theta[d.first], d) for d in problem.differences]
    return all(d.low <= gap <= d.high for gap, d in gaps)


def _linear_part(
    problem: Separable, values: np.ndarray, where: _Where, t: np.ndarray
) -> np.ndarray | None:
    """The best beta, or where a bound meets a ratio the best of the given ratios; None if none."""
    d, phi = problem.target - values[:, 0], values[:, 1:]
    lower, upper = where.least, where.most
    if not problem.ratios:
        return _bounded(phi, d, lower, upper)
    ends = [(r.low, r.high) for r in problem.ratios]
    rays = _rays(problem, list(itertools.product(*ends)))
    beta = rays @ _bounded(phi @ rays, d, np.zeros(rays.shape[1]), np.full(rays.shape[1], np.inf))
    if (lower <= beta).all() and (beta <= upper).all():
        return beta
    rays = _rays(problem, [tuple(a + x * (b - a) for (a, b), x in zip(ends, t, strict=True))])
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.nanmin(np.where(rays > 0, upper[:, None] / rays, np.inf), axis=0)
    return rays @ _bounded(phi @ rays, d, np.zeros(rays.shape[1]), most) if (lower <= 0).all() else None  # fmt: skip  # noqa: E501


def _rays(problem: Separable, ratios: Sequence[tuple[float, ...]]) -> np.ndarray:
    """Columns: one linear parameter each, those tied by ratios together, once for each choice."""
    (center,) = {r.second for r in problem.ratios}  # more than one is not needed here
    tied = {center, *(r.first for r in problem.ratios)}
    unit = np.eye(problem.n_linear)
    found = [unit[k] for k in range(problem.n_linear) if k not in tied]
    for choice in ratios:
        found.append(unit[center] + sum(unit[r.first] / x for r, x in zip(problem.ratios, choice, strict=True)))  # fmt: skip  # noqa: E501
    return np.array(found).T


def _bounded(phi: np.ndarray, d: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Bounded linear least squares by SciPy, on the triangle of a QR decomposition."""
    size = np.linalg.norm(phi, axis=0)
    size = np.where(size > 0, size, 1.0)
    triangle = np.linalg.qr(np.column_stack([phi / size, d]), mode="r")
    matrix, right = triangle[:, :-1], triangle[:, -1]
    low, high = lower * size, upper * size
    if np.isfinite(low).all():  # nearly always no upper bound is active
        x = low + nnls(matrix, right - matrix @ low)[0]
        if (x <= high).all():
            return np.clip(x / size, lower, upper)
    free = low < high
    x = np.clip(low, -1e300, 1e300)
    if free.any():
        rest = right - matrix[:, ~free] @ x[~free]
        x[free] = lsq_linear(matrix[:, free], rest, (low[free], high[free]), method="bvls").x
    return np.clip(x / size, lower, upper)


@cache
def regressions() -> dict[str, Regression]:
    """All models, by name."""
    return dict(_regressions())


def _regressions() -> Iterator[tuple[str, Regression]]:
    for form, every in ((TargetForm.SLOPES, 1), (TargetForm.INTEGRALS, 1)):
        yield f"COPS methanol, {form.name.lower()}", _posed(cops_methanol.problem(), form, every)
    yield "methanol, slopes", _posed(methanol.problem(), TargetForm.SLOPES, 1)
    yield "urethane, slopes", _posed(urethane.problem(), TargetForm.SLOPES, 3)
    yield "urethane, integrals", _posed(urethane.problem(), TargetForm.INTEGRALS, 4)
    for family, nonlinear in (
        ("arrhenius", 3), ("michaelis", 2), ("exponential", 3), ("hill", 2), ("hill", 3),
        ("shared", 2), ("shared", 3),
    ):  # fmt: skip
        yield f"{family} {nonlinear}", kinetic_family.problem(family, nonlinear, 40, seed=1)
    for family, nonlinear in (("arrhenius", 2), ("michaelis", 2)):
        one = kinetic_family.problem(family, nonlinear, 40, seed=2)
        yield f"{family} {nonlinear}, any sign", replace(one, box=_any_sign(one.box, nonlinear))
    yield "two equilibria", two_equilibria()
    yield "strange functions", strange_functions()


def cases(settings: Sequence[Setting] = SETTINGS) -> Iterator[Case]:
    """All models under all settings; exchange only where it changes something."""
    for name, regression in regressions().items():
        for setting in settings:
            if setting.exchange or "urethane" in name or name == "two equilibria":
                yield Case(name, regression, setting)


def _posed(problem: Any, form: TargetForm, every: int) -> Regression:
    """Step 3 of a published model; of its residuals every so many."""
    curves = smooth_measurements(problem, igpe.smoothing.GcvSpline())
    structure = igpe.check(problem)
    whole = Posing(problem, structure, curves, form).regression(structure.groups[0])
    return replace(whole, pieces=tuple(_thinned(p, every) for p in whole.pieces))


def _thinned(piece: Contribution, every: int) -> Contribution:
    """Some of the residuals, with the places they need."""
    keep = np.arange(0, len(piece.target), every)
    if piece.combine is None:
        return replace(
            piece, known=piece.known[:, keep], target=piece.target[keep], weight=piece.weight[keep]
        )
    q = piece.combine.shape[1]
    places = (keep[:, None] * q + np.arange(q)).ravel()
    return replace(
        piece, known=piece.known[:, places], combine=piece.combine[keep],
        target=piece.target[keep], weight=piece.weight[keep],
    )  # fmt: skip


def _any_sign(box: Bounds, nonlinear: int) -> Bounds:
    lower = box.lower.copy()
    lower[: len(lower) - nonlinear] = -50.0
    return replace(box, lower=lower)


def made(rate: Any, known: np.ndarray, box: Bounds, truth: Sequence[float], seed: int) -> Regression:  # fmt: skip  # noqa: E501
    """Values of rate(known, p) at the truth, with 2 % noise and weights of several sizes."""
    rng = np.random.default_rng(seed)
    k, p = ca.SX.sym("known", len(known)), ca.SX.sym("p", len(box))
    predict = ca.Function("predict", [k, p], [rate(k, p)])
    m = known.shape[1]
    exact = predict.map(m)(known, np.tile(np.array(truth)[:, None], m)).full().ravel()
    noise = 0.02 * np.sqrt(np.mean(exact**2)) * rng.standard_normal(m)
    piece = Contribution(predict, known, None, exact + noise, rng.uniform(0.1, 10.0, m))
    return Regression(box, (piece,), "made", False)


def two_equilibria() -> Regression:
    """k/K1 and k/K2: two ratios that share a parameter."""
    rng = np.random.default_rng(3)
    known = np.vstack([rng.uniform(-1, 1, 40), *rng.uniform(0.2, 1.0, (3, 40))])

    def rate(k: Any, p: Any) -> Any:
        return p[0] * k[1] - p[0] / p[1] * k[2] * ca.exp(-p[3] * k[0]) - p[0] / p[2] * k[3]

    bounds = Bounds(
        ("k", "K1", "K2", "E"), np.array([0.0, 1.0, 1.0, -1.0]), np.array([100.0, 10.0, 10.0, 9.0])
    )
    return made(rate, known, bounds, [2.0, 1.5, 3.0, 0.7], 3)


def strange_functions() -> Regression:
    """Every operation that has an enclosure, some of them where they are not defined everywhere."""
    known = np.linspace(0.1, 3.0, 30)[None]

    def rate(k: Any, p: Any) -> Any:
        wave = p[0] * ca.sin(p[2] * k) + p[1] * ca.tanh(k - p[2]) * ca.cos(p[3])
        powers = (k + 0.1) ** p[2] + (k + p[3]) ** 1.5 / (p[2] ** 2 + k ** p[3] + 1)
        return wave + powers + ca.fabs(k - p[3]) + ca.log(p[2] * k + 0.2) - ca.sqrt(p[3])

    bounds = Bounds(
        ("a", "b", "c", "d"), np.array([-5.0, 0.0, 0.05, 0.5]), np.array([5.0, np.inf, 3.0, 2.0])
    )
    return made(rate, known, bounds, [1.0, 2.0, 1.2, 0.8], 4)
