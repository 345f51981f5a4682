"""Lower bounds of the sum of squares over parts of a box, from its residuals as polynomials.

On the part of the box the residuals are again r in c + g s + s't s +- e, |s_j| <= 1. Three bounds:

(a) each residual alone, sum of min r^2;
(b) for any u:  sum r^2 >= 2 u'r - |u|^2, where u'r is a polynomial whose curvature may cancel;
(c) for any y, L:  sum (c + g s + s't s)^2 >= |c|^2 + 2 c'G s + s'(G'G + T) s + cubic terms
    >= |c|^2 + 2 c'G s + (2 y'L's - |y|^2) + s'(G'G + T - L L')s + cubic terms; the squares of s't s
    are >= 0 and left out. With L L' the convex part of the form it is as good as a Newton step.

u, y and L are computed in plain floating point: any numbers do.
"""

from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray
from igpe.proofs.checker.interval import SLACK, UNIT, down, outward, up
from igpe.proofs.checker.polynomial import pairs
from igpe.proofs.checker.rows import Boxes, Rows

SWEEPS = 12  # of coordinate descent


class Local(NamedTuple):
    """Residuals on a part of the box, see above.

    c  (n_rows, n);  g  (n_parameters, n_rows, n);  t  (n_pairs, n_rows, n);  e  (n_rows, n)
    """

    c: FloatArray
    g: FloatArray
    t: FloatArray
    e: FloatArray


def least(rows: Rows, boxes: Boxes, low: FloatArray, high: FloatArray) -> tuple[FloatArray, Local]:
    """(n,) lower bounds of the sum of squares on [low, high] (n_parameters, n), a part of each box.

    Also the residuals there: where to cut is read off them.
    """
    local = restricted(rows, boxes, low, high)
    with np.errstate(all="ignore"):
        s = _minimiser(local)
        found = [_each(local), _multiplied(local, s), _quadratic(local, s)]
    return np.max([np.where(np.isfinite(f), f, 0.0) for f in found], axis=0), local


def restricted(rows: Rows, boxes: Boxes, low: FloatArray, high: FloatArray) -> Local:
    """The residuals of delta = m + w s, |s| <= 1, which contains [low, high]."""
    half = np.where(boxes.half > 0, boxes.half, 1.0)
    first = outward(low - boxes.center, low - boxes.center)
    last = outward(high - boxes.center, high - boxes.center)
    ends = outward(first.low / half, last.high / half)
    left, right = np.clip(ends.low, -1.0, 1.0), np.clip(ends.high, -1.0, 1.0)
    m = left / 2 + right / 2
    w = (right - left) / 2 * (1 + 4 * UNIT) + 4 * UNIT * np.abs(m)
    return _shifted(rows, m, w)


def _shifted(rows: Rows, m: FloatArray, w: FloatArray) -> Local:
    n = len(m)
    known = np.isfinite(rows.e) & np.isfinite(rows.c).all(axis=0)
    c0 = np.where(known, rows.c, 0.0)
    c, g, t = c0[0].copy(), c0[1 : 1 + n].copy(), c0[1 + n :].copy()
    for j in range(n):
        c += c0[1 + j] * m[j]
    for k, (i, j) in enumerate(pairs(n)):
        c += t[k] * (m[i] * m[j])
        g[i] += t[k] * m[j]
        g[j] += t[k] * m[i]
    for k, (i, j) in enumerate(pairs(n)):
        t[k] *= w[i] * w[j]
    g *= w[:, None]
    rounding = 8 * (4 + n + n * n) * UNIT * np.abs(c0).sum(axis=0)
    return Local(c, g, t, np.where(known, up(rows.e + rounding), np.inf))


def _each(local: Local) -> FloatArray:
    low = local.c - _peak(-local.g, -local.t)
    high = local.c + _peak(local.g, local.t)
    slack = local.e + _slack(local)
    alone = np.maximum(np.maximum(low - slack, -high - slack), 0.0)
    return down(down(down(alone) ** 2).sum(axis=0))


def _multiplied(local: Local, s: FloatArray) -> FloatArray:
    """(b), with u the residuals at s as far as they exceed their remainders."""
    at = _at(local, s)
    e = np.where(np.isfinite(local.e), local.e, 0.0)
    u = np.where(np.isfinite(local.e), np.sign(at) * np.maximum(np.abs(at) - e, 0.0), 0.0)
    sums = Local(
        (u * local.c).sum(axis=0)[None],
        (u * local.g).sum(axis=1)[:, None],
        (u * local.t).sum(axis=1)[:, None],
        up((np.abs(u) * (e + _slack(local, len(u)))).sum(axis=0))[None],
    )
    value = sums.c - _peak(-sums.g, -sums.t) - sums.e - _slack(sums)
    norm = (u * u).sum(axis=0)
    return np.asarray((2 * value[0] - norm) - 4 * SLACK * (np.abs(value[0]) + norm))


def _quadratic(local: Local, s: FloatArray) -> FloatArray:
    """(c); rows whose remainder is infinite or large are left out."""
    n, c, g, t = len(local.g), local.c, local.g, local.t
    size = np.abs(c) + np.abs(g).sum(axis=0) + np.abs(t).sum(axis=0)
    good = local.e < size
    c, g, t, size = (np.where(good, part, 0.0) for part in (c, g, t, size))
    e = np.where(good, local.e, 0.0)
    constant, linear = (c * c).sum(axis=0), 2 * (c * g).sum(axis=1)
    form = np.einsum("irb,jrb->ijb", g, g)
    for k, (i, j) in enumerate(pairs(n)):
        curved = (c * t[k]).sum(axis=0)
        form[i, j] += curved
        form[j, i] += curved
    cubic = _cubic(g, t)
    lost = 2 * (e * size).sum(axis=0) + cubic
    whole = (size * size).sum(axis=0)
    lost = lost + 8 * (len(c) + 20) * UNIT * whole
    factor = _factor(form)
    rest = form - np.einsum("ikb,jkb->ijb", factor, factor)
    squares = (np.abs(factor) ** 2).sum(axis=(0, 1))
    lost = lost + np.abs(rest).sum(axis=(0, 1)) + 8 * n * n * (n + 2) * UNIT * squares
    y = np.einsum("ikb,ib->kb", factor, s)
    slope = linear + 2 * np.einsum("ikb,kb->ib", factor, y)
    sizes = np.abs(linear) + 2 * np.einsum("ikb,kb->ib", np.abs(factor), np.abs(y))
    lost = lost + (np.abs(slope) + 8 * (n + 2) * UNIT * sizes).sum(axis=0) + (y * y).sum(axis=0)
    return np.asarray(constant - lost - SLACK * (lost + constant))


def _cubic(g: FloatArray, t: FloatArray) -> FloatArray:
    """Bound on 2 sum_r (g s)(s't s), which is summed over residuals before it is bounded."""
    n = len(g)
    place = {pair: k for k, pair in enumerate(pairs(n))}
    terms: dict[tuple[int, ...], FloatArray] = {}
    for j in range(n):
        for pair, k in place.items():
            key = tuple(sorted((j, *pair)))
            terms[key] = terms.get(key, 0.0) + 2 * (g[j] * t[k]).sum(axis=0)
    sizes = (np.abs(g).sum(axis=0) * np.abs(t).sum(axis=0)).sum(axis=0)
    return np.asarray(sum(np.abs(v) for v in terms.values()) + 8 * g.shape[1] * UNIT * sizes)


def _factor(form: FloatArray) -> FloatArray:
    """L (n, n, n_boxes) with L L' the part of a form that is not negative, nearly."""
    matrix = np.nan_to_num(form.transpose(2, 0, 1), nan=0.0, posinf=0.0, neginf=0.0)
    values, vectors = np.linalg.eigh(matrix)
    found = vectors * np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return np.asarray(found.transpose(1, 2, 0))


def _minimiser(local: Local) -> FloatArray:
    """(n_parameters, n) nearly the least of sum (|c + g s| - e)_+^2 in the box."""
    good = np.isfinite(local.e) & np.isfinite(local.c)
    c, e = np.where(good, local.c, 0.0), np.where(good, local.e, 0.0)
    g = np.where(good & np.isfinite(local.g), local.g, 0.0)
    s = np.zeros((len(g), c.shape[1]))
    for _ in range(SWEEPS):
        for j in range(len(g)):
            r = c + (g * s[:, None]).sum(axis=0)
            dead = np.sign(r) * np.maximum(np.abs(r) - e, 0.0)
            curvature = np.where(dead != 0, g[j] ** 2, 0.0).sum(axis=0) + 1e-300
            s[j] = np.clip(s[j] - (g[j] * dead).sum(axis=0) / curvature, -1, 1)
    return s


def _at(local: Local, s: FloatArray) -> FloatArray:
    value = local.c + (local.g * s[:, None]).sum(axis=0)
    for k, (i, j) in enumerate(pairs(len(s))):
        value = value + local.t[k] * s[i] * s[j]
    return np.asarray(value)


def _peak(g: FloatArray, t: FloatArray) -> FloatArray:
    """Nearly the maximum of g s + s't s (off-diagonal terms by their size)."""
    total = np.zeros(g.shape[1:])
    for k, (i, j) in enumerate(pairs(len(g))):
        if i == j:
            inside = (t[k] < 0) & (np.abs(g[i]) < -2 * t[k])
            below = np.where(inside, -4 * t[k], 1.0)
            total = total + np.where(inside, g[i] * (g[i] / below), np.abs(g[i]) + t[k])
        else:
            total = total + np.abs(t[k])
    return total


def _slack(local: Local, terms: int = 0) -> FloatArray:
    """What rounding does to `_peak` and to sums over so many residuals."""
    size = np.abs(local.c) + np.abs(local.g).sum(axis=0) + np.abs(local.t).sum(axis=0)
    return np.asarray(2 * (terms + 8 * len(local.g) ** 2 + 8) * UNIT * size)
