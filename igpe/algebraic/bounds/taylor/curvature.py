"""Second derivatives of columns over boxes around a theta, as the directions v see them.

What counts of a second derivative is what it adds to v . d - sum_k beta_k v . phi_k for a few v. A
Taylor model of many rows is therefore contracted with v before its range is taken: rows whose
changes differ in sign cancel, where intervals of each row would add up.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.taylor.derivatives import Derivative, Expanded, Family
from igpe.algebraic.bounds.taylor.taylor import GROWTH, UNIT, Taylor, pairs
from igpe.core.arrays import FloatArray

Enclosed = Sequence[tuple[Family, dict[Derivative, list[Taylor]]]]


class Curvature(NamedTuple):
    """Of columns 0 to K; the last, 1 + K, is their sum with factors f.

    middle, radius  (D, 2 + K, J, J) of v . second derivative, for each of D directions
    norm            (1 + K, J, J) upper bounds on the length of the second derivative
    """

    middle: FloatArray
    radius: FloatArray
    norm: FloatArray


def at_point(at: Expanded, directions: FloatArray, factors: FloatArray) -> Curvature:
    """At one theta, without rounding errors."""
    every = np.concatenate([at.curvature, np.tensordot(factors, at.curvature, axes=1)[None]])
    middle = np.moveaxis(every @ directions.T, -1, 0)
    return Curvature(middle, np.zeros_like(middle), np.linalg.norm(at.curvature, axis=-1))


def over_box(
    enclosed: Enclosed, box: int, directions: FloatArray, factors: FloatArray, n_axes: int
) -> Curvature:
    """Over one of the boxes that were enclosed; infinite or nan where nothing is known."""
    last = len(factors)
    middle, radius = np.zeros((2, len(directions), 1 + last, n_axes, n_axes))
    norm = np.zeros((last, n_axes, n_axes))
    for family, found in enclosed:
        columns = list(family.columns)
        weights = np.vstack([np.eye(len(columns)), factors[columns]])
        for pair in pairs(len(family.own)):
            along, error, most = _contracted(found[pair], box, directions, weights)
            i, j = (family.own[a] for a in pair)
            for a, b in {(i, j), (j, i)}:
                middle[:, [*columns, last], a, b] += along[:, 0].T
                radius[:, [*columns, last], a, b] += (np.abs(along[:, 1:]).sum(axis=1) + error).T
                norm[columns, a, b] = most[:-1]
    return Curvature(middle, radius, norm)


def _contracted(
    found: list[Taylor], box: int, directions: FloatArray, weights: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weighted sums of Taylor models: v . coefficients, v . remainder, norm of the largest value.

    returns  (n, 1 + J + J(J+1)/2, D), (n, D), (n,)
    """
    parts = np.tensordot(weights, np.array([coefficients(f, box) for f in found]), axes=1)
    sizes = np.abs(weights) @ np.array([np.abs(coefficients(f, box)).sum(axis=0) for f in found])
    e = np.abs(weights) @ np.array([f.e[box] for f in found]) * GROWTH
    rounding = relative_rounding(directions) * np.linalg.norm(sizes, axis=1)
    error = e @ np.abs(directions).T + rounding[:, None] * np.linalg.norm(directions, axis=1)
    return parts @ directions.T, error * GROWTH, np.linalg.norm(sizes + e, axis=1) * GROWTH


def missed(enclosed: Enclosed, at: Expanded) -> tuple[FloatArray, FloatArray]:
    """By how much columns (1 + K,) and slopes (1 + K, J) may differ from numbers at the first box.

    It is the box of the one theta where the numbers are taken.
    """
    value, slope = np.zeros(len(at.value)), np.zeros(at.slope.shape[:2])
    for family, found in enclosed:
        for i, k in enumerate(family.columns):
            value[k] = _apart(found[()][i], at.value[k])
            for j, a in enumerate(family.own):
                slope[k, a] = _apart(found[j,][i], at.slope[k, a])
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
