"""The columns of a problem with their first and second derivatives by theta."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import casadi as ca
import numpy as np

from igpe.algebraic.bounds.separable import Block, Separable
from igpe.algebraic.bounds.taylor.taylor import Taylor, pairs
from igpe.core.arrays import FloatArray

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
    """Alike columns: with their derivatives one separable problem, whose columns are those.

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
        found = self.problem.enclosures(every, lower[:, own], upper[:, own])
        return {d: found[q * count : (q + 1) * count] for q, d in enumerate(self.order)}


class Derivatives:
    """The derivatives of a problem's columns."""

    def __init__(self, problem: Separable) -> None:
        self.problem = problem

    @cached_property
    def families(self) -> list[Family]:
        """All columns, those together that depend on the same theta."""
        alike = sorted({self.problem.alike(k) for k in range(1 + self.problem.n_linear)})
        return [_family(self.problem, columns) for columns in alike]

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


def _with_derivatives(block: Block, columns: Sequence[int], own: Sequence[int]) -> Block:
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
