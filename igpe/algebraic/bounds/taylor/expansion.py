"""The residual of a separable problem around one theta, linear parameters following.

With theta = theta^ + T z and beta = beta^ + B z + (the rest eta),

    d - Phi beta = rho(z) - Phi eta,     rho(z) = rho^ + L z + q(z)

Everything here is chosen, not proved: any beta^, B and T make the statements of `neighbourhood`
true, good ones make them useful.

The columns of a problem with their first and second derivatives by theta.

Second derivatives of columns over boxes around a theta, as the directions v see them.

What counts of a second derivative is what it adds to v . d - sum_k beta_k v . phi_k for a few v. A
Taylor model of many rows is therefore contracted with v before its range is taken: rows whose
changes differ in sign cancel, where intervals of each row would add up.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import casadi as ca
import numpy as np

from igpe.algebraic.bounds.bound import best_linear
from igpe.algebraic.bounds.separable import ColumnBlock, Separable
from igpe.algebraic.bounds.taylor.taylor import GROWTH, UNIT, Taylor, pairs
from igpe.core.arrays import BoolArray, FloatArray

STEP = 1e-3  # of differences, relative to theta or to what is smallest of its range

Derivative = tuple[int, ...]  # (): the column itself, (j,), or (i, j) with i <= j


class Expanded(NamedTuple):
    """All columns at one theta, phi_0 first, of r residuals.

    value  (1 + K, r);  slope: (1 + K, J, r);  curvature: (1 + K, J, J, r)
    """

    value: FloatArray
    slope: FloatArray
    curvature: FloatArray


class Family(NamedTuple):
    """Columns of the same theta; with their derivatives they are a separable problem.

    columns  their numbers;  own: the theta they depend on
    """

    columns: tuple[int, ...]
    own: tuple[int, ...]
    problem: Separable

    @property
    def order(self) -> list[Derivative]:
        """The derivatives, by positions in `own`; of each all columns follow each other."""
        n = len(self.own)
        return [(), *((j,) for j in range(n)), *pairs(n)]

    def enclosed(self, lower: FloatArray, upper: FloatArray) -> dict[Derivative, list[Taylor]]:
        """Enclosures of all columns, by derivative, over boxes; lower, upper: (n, J)."""
        own, count = list(self.own), len(self.columns)
        every = tuple(range(count * len(self.order)))
        result = self.problem.enclosures(every, lower[:, own], upper[:, own])
        return {d: result[q * count : (q + 1) * count] for q, d in enumerate(self.order)}


class Derivatives:
    """The derivatives of a problem's columns."""

    def __init__(self, problem: Separable) -> None:
        self.problem = problem

    @cached_property
    def families(self) -> list[Family]:
        """All columns, those together that depend on the same theta."""
        groups = sorted({self.problem.same_axes(k) for k in range(1 + self.problem.n_linear)})
        return [_family(self.problem, columns) for columns in groups]

    def at(self, theta: FloatArray) -> Expanded:
        """Numbers, with rounding errors."""
        r, k, j = len(self.problem.target), 1 + self.problem.n_linear, len(theta)
        value, slope, curvature = np.zeros((k, r)), np.zeros((k, j, r)), np.zeros((k, j, j, r))
        for f in self.families:
            rows = f.problem.values(theta[None])[0].T
            for q, derivative in enumerate(f.order):
                part = rows[q * len(f.columns) : (q + 1) * len(f.columns)]
                if not derivative:
                    value[list(f.columns)] = part
                elif len(derivative) == 1:
                    slope[list(f.columns), f.own[derivative[0]]] = part
                else:
                    i, m = (f.own[a] for a in derivative)
                    curvature[list(f.columns), i, m] = part
                    curvature[list(f.columns), m, i] = part
        return Expanded(value, slope, curvature)


def differences(problem: Separable, theta: FloatArray) -> Expanded:
    """About the same without expressions of derivatives, near theta (J,); nan if that fails."""
    ends = np.array([(a.lower, a.upper) for a in problem.axes]).reshape(-1, 2)
    room = ends[:, 1] - ends[:, 0]
    step = np.minimum(STEP * np.maximum(np.abs(theta), STEP * room), room / 2)
    middle, n = np.clip(theta, ends[:, 0] + step, ends[:, 1] - step), len(theta)
    ahead, places = np.diag(step), [(i, j) for i, j in pairs(n) if i < j]
    both = np.array([ahead[i] + ahead[j] for i, j in places]).reshape(-1, n)
    moves = np.concatenate([np.zeros((1, n)), ahead, -ahead, both, -both])
    columns = problem.values(middle + moves).transpose(0, 2, 1)
    at, rest = columns[0], columns[1:]
    up, down = rest[:n], rest[n : 2 * n]
    with np.errstate(all="ignore"):
        slope = (up - down).transpose(1, 0, 2) / (2 * step[:, None])
        along = up + down - 2 * at
        curvature = np.zeros((len(at), n, n, at.shape[1]))
        curvature[:, range(n), range(n)] = (along / step[:, None, None] ** 2).transpose(1, 0, 2)
        for (i, j), one, other in zip(places, *np.split(rest[2 * n :], 2), strict=True):
            mixed = (one + other - 2 * at - along[i] - along[j]) / (2 * step[i] * step[j])
            curvature[:, i, j] = curvature[:, j, i] = mixed
    return Expanded(at, slope, curvature)


def _family(problem: Separable, columns: Sequence[int]) -> Family:
    own = problem.depends[columns[0]]
    blocks = tuple(_with_derivatives(b, columns, own) for b in problem.blocks)
    return Family(tuple(columns), own, replace(problem, blocks=blocks))


def _with_derivatives(
    block: ColumnBlock, columns: Sequence[int], own: Sequence[int]
) -> ColumnBlock:
    """Some columns, then their derivatives by each theta, then by each pair of them."""
    some = ca.densify(ca.horzcat(*[block.columns[:, k] for k in columns]))
    parts, slopes = [some], [ca.vec(some)]
    if own:
        theta = ca.vertcat(*[block.nonlinear[a] for a in own])
        slopes = ca.horzsplit(ca.densify(ca.jacobian(ca.vec(some), theta)))
        second = [ca.jacobian(slope, theta) for slope in slopes]
        slopes += [second[i][:, j] for i, j in pairs(len(own))]
        parts += [ca.reshape(ca.densify(slope), *some.shape) for slope in slopes]
    return replace(block, columns=ca.horzcat(*parts))


INNER = 1e-6  # of a parameter's size: nearer to its end it is on it
NOTHING = 1e-9  # of the data: what it adds there is rounding
PASSES = 3  # in which widths and scales of parameters on an end are made to agree


class Ends(NamedTuple):
    """Which linear parameters (K,) are held by an end of their range.

    free  by none;  sign: +1 by the lower end, -1 by the upper one, 0 by both, which are the same,
          or none
    """

    free: BoolArray
    sign: FloatArray


@dataclass(frozen=True)
class Expansion:
    """Around theta^; see the top of the file.

    theta     (J,)
    at        the columns there, with derivatives by theta or by z
    factors   (1 + K,) 1 and beta^
    ends      of the linear parameters
    follow    (1 + K, J) B, zero for what does not follow
    residual  (r,) rho^;  slope: (J, r) rows of L
    """

    theta: FloatArray
    at: Expanded
    factors: FloatArray
    ends: Ends
    follow: FloatArray
    residual: FloatArray
    slope: FloatArray

    @property
    def gradient(self) -> FloatArray:
        """(J,) of the sum of squares."""
        return np.asarray(2 * self.slope @ self.residual)

    def hessian(self) -> FloatArray:
        """(J, J) half of the second derivative of |rho|^2."""
        bent = self.factors @ (self.at.curvature @ self.residual).reshape(len(self.factors), -1)
        turned = self.follow.T @ (self.at.slope @ self.residual)
        return np.asarray(
            self.slope @ self.slope.T - bent.reshape(2 * self.follow.shape[1:]) - turned - turned.T
        )

    def along(self, scale: FloatArray) -> "Expansion":
        """By z, theta = theta^ + scale z; the curvature is left as it is."""
        by_z, follow = np.einsum("kjr,ja->kar", self.at.slope, scale), self.follow @ scale
        slope = -(np.tensordot(self.factors, by_z, axes=1) + follow.T @ self.at.value)
        return replace(self, at=self.at._replace(slope=by_z), follow=follow, slope=slope)


def expanded(problem: Separable, theta: FloatArray, at: Expanded) -> Expansion | None:
    """Around the best linear parameters at theta; None if there are none."""
    solved = best_linear(problem, at.value.T) if np.isfinite(at.value).all() else None
    if solved is None or not all(np.isfinite(x).all() for x in at):
        return None
    beta, ends = _ends(problem, at.value[1:], solved[0])
    some = at.value[1:][ends.free]
    held = problem.target - at.value[0] - np.where(ends.free, 0.0, beta) @ at.value[1:]
    beta[ends.free] = np.linalg.lstsq(some.T, held, rcond=None)[0]
    factors = np.concatenate([[1.0], beta])
    residual = problem.target - factors @ at.value
    by_theta = np.tensordot(factors, at.slope, axes=1)
    follow = np.zeros((len(factors), len(theta)))
    pulled = at.slope[1:][ends.free] @ residual - some @ by_theta.T
    follow[1:][ends.free] = np.linalg.lstsq(some @ some.T, pulled, rcond=None)[0]
    slope = -(by_theta + follow.T @ at.value)
    return Expansion(theta, at, factors, ends, follow, residual, slope)


def _ends(problem: Separable, columns: FloatArray, beta: FloatArray) -> tuple[FloatArray, Ends]:
    """The linear parameters, those that are held on their very ends, and which those are.

    Only there has what is left of them one sign. One that is near both ends but may move is free.
    """
    nothing = NOTHING * np.linalg.norm(problem.target)
    size = INNER * np.abs(beta) + nothing / (np.linalg.norm(columns, axis=1) + 1e-300)
    low, high = beta <= problem.lower + size, beta >= problem.upper - size
    free = (low == high) & (problem.lower < problem.upper)
    held = np.where(low, problem.lower, problem.upper)
    return np.where(free, beta, held), Ends(free, low.astype(float) - high)


def scaled(expansion: Expansion, held: BoolArray, radius: float) -> FloatArray | None:
    """Triangular T (J, J) by which the sum of squares grows as |z|^2; None if it does not grow.

    held  (J,) theta on an end of its axis: its gradient counts as growth up to |z| = radius
    """
    hessian, gradient = expansion.hessian(), np.abs(expansion.gradient)
    width = np.full(len(held), np.inf)
    for _ in range(PASSES if held.any() else 1):
        more = np.where(held, gradient / np.maximum(width, 1e-300), 0.0)
        if np.isinf(width).all():
            size = np.maximum(hessian.diagonal(), gradient**2 / max(radius**2, 1e-300))
            more = np.where(held, size, 0.0)
        try:
            upper = np.linalg.cholesky(hessian + np.diag(more)).T
        except np.linalg.LinAlgError:
            return None
        scale = np.linalg.inv(upper)
        width = lengths(scale) * radius
    return scale if np.isfinite(scale).all() else None


def lengths(scale: FloatArray) -> FloatArray:
    """(J,) how far each theta goes within |z| <= 1."""
    return np.asarray(np.sqrt((scale * scale).sum(axis=1)))


Enclosed = Sequence[tuple[Family, dict[Derivative, list[Taylor]]]]


class ColumnCurvature(NamedTuple):
    """Of columns 0 to K; the last, 1 + K, is their sum with factors f.

    middle, radius  (D, 2 + K, J, J) of v . second derivative, for each of D directions
    norm            (1 + K, J, J) upper bounds on the length of the second derivative
    """

    middle: FloatArray
    radius: FloatArray
    norm: FloatArray


def at_point(at: Expanded, directions: FloatArray, factors: FloatArray) -> ColumnCurvature:
    """At one theta, without rounding errors."""
    every = np.concatenate([at.curvature, np.tensordot(factors, at.curvature, axes=1)[None]])
    middle = np.moveaxis(every @ directions.T, -1, 0)
    return ColumnCurvature(middle, np.zeros_like(middle), np.linalg.norm(at.curvature, axis=-1))


def over_box(
    enclosed: Enclosed, box: int, directions: FloatArray, factors: FloatArray, n_axes: int
) -> ColumnCurvature:
    """Over one of the boxes that were enclosed; infinite or nan where nothing is known."""
    last = len(factors)
    middle, radius = np.zeros((2, len(directions), 1 + last, n_axes, n_axes))
    norm = np.zeros((last, n_axes, n_axes))
    for family, result in enclosed:
        columns = list(family.columns)
        weights = np.vstack([np.eye(len(columns)), factors[columns]])
        for pair in pairs(len(family.own)):
            along, error, most = _contracted(result[pair], box, directions, weights)
            i, j = (family.own[a] for a in pair)
            for a, b in {(i, j), (j, i)}:
                middle[:, [*columns, last], a, b] += along[:, 0].T
                radius[:, [*columns, last], a, b] += (np.abs(along[:, 1:]).sum(axis=1) + error).T
                norm[columns, a, b] = most[:-1]
    return ColumnCurvature(middle, radius, norm)


def _contracted(
    result: list[Taylor], box: int, directions: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weighted sums of Taylor models: v . coefficients, v . remainder, norm of the largest value.

    returns  (n, 1 + J + J(J+1)/2, D), (n, D), (n,)
    """
    parts = np.tensordot(weights, np.array([coefficients(f, box) for f in result]), axes=1)
    sizes = np.abs(weights) @ np.array([np.abs(coefficients(f, box)).sum(axis=0) for f in result])
    e = np.abs(weights) @ np.array([f.e[box] for f in result]) * GROWTH
    rounding = relative_rounding(directions) * np.linalg.norm(sizes, axis=1)
    error = e @ np.abs(directions).T + rounding[:, None] * np.linalg.norm(directions, axis=1)
    return parts @ directions.T, error * GROWTH, np.linalg.norm(sizes + e, axis=1) * GROWTH


def missed(enclosed: Enclosed, at: Expanded) -> tuple[FloatArray, FloatArray]:
    """By how much columns (1 + K,) and slopes (1 + K, J) may differ from numbers at the first box.

    It is the box of the one theta where the numbers are taken.
    """
    value, slope = np.zeros(len(at.value)), np.zeros(at.slope.shape[:2])
    for family, result in enclosed:
        for i, k in enumerate(family.columns):
            value[k] = _apart(result[()][i], at.value[k])
            for j, a in enumerate(family.own):
                slope[k, a] = _apart(result[j,][i], at.slope[k, a])
    return value, slope


def _apart(f: Taylor, numbers: FloatArray) -> float:
    parts = coefficients(f, 0)
    parts[0] -= numbers
    rounding = UNIT * np.abs(numbers)
    apart: FloatArray = np.abs(parts).sum(axis=0) + f.e[0] + rounding
    return float(np.linalg.norm(apart) * GROWTH)


def coefficients(f: Taylor, box: int) -> FloatArray:
    """(1 + J + J(J+1)/2, r) on one box."""
    assert f.g is not None
    assert f.t is not None
    return np.concatenate([f.c[box][None], f.g[:, box], f.t[:, box]])


def relative_rounding(rows: FloatArray) -> float:
    """More than the rounding error of sums of so many products, relative to their sizes."""
    return float(4 * (64 + rows.shape[-1]) * UNIT)
