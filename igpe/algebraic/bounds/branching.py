"""Which parameter of a box to halve.

Two things keep the relaxation of a box below its true minimum: a column takes several shapes at
once, or shapes that are not its own (loss); and while that says nothing because no bound is
positive yet, it is the columns that change direction across the box that will matter (shape).
A change of length alone is absorbed by the linear parameters.
"""

from typing import NamedTuple

import numpy as np

from igpe.algebraic.bounds.bound import Bounded
from igpe.algebraic.bounds.box import Box
from igpe.algebraic.bounds.columns import Cell, Columns
from igpe.algebraic.bounds.hull import Hull, Part
from igpe.algebraic.bounds.taylor.taylor import pairs
from igpe.core.arrays import FloatArray

SHAPE = 3.0  # weight of shape beside loss
WIDTH = 0.3  # weight of the mere width of an axis, so that none is forgotten
MOST_ERROR = 10.0  # times a column's length: beyond it remainders say nothing more
MOST_MOVE = 2.0  # distance of opposite directions
SMALLEST = 1e-300


def axis_to_halve(columns: Columns, box: Box, hull: Hull, found: Bounded) -> int:
    """The nonlinear parameter whose halving promises most."""
    n = len(box.spans)
    loss, shape = np.zeros(n), np.zeros(n)
    means: list[list[_Mean]] = [[] for _ in range(n)]
    for k, part in enumerate(hull.parts):
        if not part.axes:
            continue
        own = list(part.axes)
        turns, slopes = _change(columns, box, hull, part)
        np.maximum.at(shape, own, turns)
        course = _course(found, k, len(part.axes))
        if len(course.weights):
            cell = columns.cell(box.key(columns.problem, part.column))
            lost, mean = _loss(cell, slopes, course)
            np.add.at(loss, own, lost)
            for axis, one in zip(own, mean, strict=True):
                means[axis].append(one)
    loss += [_disagreement(seen) for seen in means]
    width = np.array([s.width for s in box.spans])
    score = SHAPE * _share(shape) + WIDTH * _share(width)
    return int(np.argmax(score + _share(loss) if found.lower > 0 else score))


class _Course(NamedTuple):
    """Weights (n,) and places (n, J) of a column's atoms in the relaxation's solution."""

    weights: FloatArray
    places: FloatArray


class _Mean(NamedTuple):
    """Where a column is on one axis, and how much it changes along it."""

    weight: float
    place: float


def _share(x: FloatArray) -> FloatArray:
    return x / max(float(x.sum()), SMALLEST)


def _course(found: Bounded, k: int, n_axes: int) -> _Course:
    owners = found.atoms.owners[: len(found.weights)]
    mine = np.flatnonzero((owners == k) & (found.weights > 0))
    return _Course(found.weights[mine], found.atoms.places[mine, :n_axes])


def _change(columns: Columns, box: Box, hull: Hull, part: Part) -> tuple[FloatArray, FloatArray]:
    """(J,) how a column changes from half to half of its axes: in direction, and in all."""
    n = len(part.axes)
    cells = columns.cells(box.key(columns.problem, part.column), 1)
    halves = cells.parts[:, 0] * hull.usable
    length = np.maximum(np.linalg.norm(halves, axis=1), SMALLEST)
    with np.errstate(over="ignore"):
        doubt = cells.errors / length  # a remainder may look like a move
    turns = _moves(halves / length[:, None], doubt, n)
    width = np.array([box.spans[a].width for a in part.axes])
    turns += min(float(doubt.max()), MOST_MOVE) * _share(width)
    return turns, _moves(halves, np.zeros(len(halves)), n)


def _moves(halves: FloatArray, doubt: FloatArray, n: int) -> FloatArray:
    """(n,) largest distance of neighbours on a 2 x 2 x .. grid, less what is doubtful."""
    grid, unsure = halves.reshape(*([2] * n), -1), doubt.reshape([2] * n)
    found = np.zeros(n)
    for j in range(n):
        move = np.take(grid, 1, axis=j) - np.take(grid, 0, axis=j)
        sure = np.linalg.norm(move, axis=-1) - unsure.sum(axis=j)
        found[j] = max(float(sure.max()), 0.0)
    return found


def _loss(cell: Cell, slopes: FloatArray, course: _Course) -> tuple[FloatArray, list[_Mean]]:
    """(J,) how far a column's course is from one shape of its own, and its mean place."""
    weights, places = course
    n, beta = places.shape[1], float(weights.sum())
    length = np.sqrt((cell.parts * cell.parts).sum(axis=1))
    mean = weights @ places / beta
    spread = np.sqrt(weights @ (places - mean) ** 2 / beta)
    loss = beta * min(cell.error, MOST_ERROR * length[0]) * _share(slopes)
    for q, (i, j) in enumerate(pairs(n)):
        for axis in {i, j}:
            loss[axis] += beta * length[1 + n + q] * spread[i] * spread[j]
    return loss, [_Mean(beta * g, float(m)) for g, m in zip(slopes, mean, strict=True)]


def _disagreement(seen: list[_Mean]) -> float:
    """How much columns that share a parameter disagree on where it is."""
    weight = np.array([m.weight for m in seen])
    if weight.sum() <= 0:
        return 0.0
    place = np.array([m.place for m in seen])
    return float(weight @ np.abs(place - weight @ place / weight.sum()))


def guess(columns: Columns, box: Box, hull: Hull, found: Bounded) -> FloatArray:
    """(J,) a theta where the relaxation's solution points to."""
    n = len(box.spans)
    total, mass = np.zeros(n), np.zeros(n)
    for k, part in enumerate(hull.parts):
        weights, places = _course(found, k, len(part.axes))
        if part.axes and len(weights):
            length = np.sqrt((found.atoms.vectors[found.atoms.owners == k] ** 2).sum(axis=1)).max()
            for j, axis in enumerate(part.axes):
                total[axis] += length * (weights @ places[:, j])
                mass[axis] += length * weights.sum()
    s = np.where(mass > 0, total / np.where(mass > 0, mass, 1.0), 0.0)
    lower, upper = box.ends(columns.problem)
    return (lower + upper) / 2 + np.clip(s, -1, 1) * (upper - lower) / 2
