"""Bilinear mixtures D = C S' with the factor S eliminated exactly (variable projection).

D (N, M) holds what N rows (times) show in M columns (wavelengths), all with unit standard
deviation; C (N, n) the amounts of n species, which depend on unknowns k; S (M, n) one spectrum for
each species, of which nothing is known but perhaps its sign. For any k the best S is a linear
least-squares problem for each column,

    phi(k) = min over S of |D - C(k) S'|^2 = sum over w of |(1 - P_w) d_w|^2,

P_w the projection on those columns of C whose spectrum is free at w: all of them, or those that
non-negative least squares leaves positive. With E = D - C S' and the others at their best, half the
gradient of phi is J'r, r = -E, J_i = (1 - P) dC/dk_i S', since E is orthogonal to what P contains
(Golub & Pereyra, Inverse Problems 19 (2003), R1); Kaufman's J is also that of the full problem with
S eliminated, so that (J'J)^-1 is the covariance of k with S unknown.

Rows. J_i has N M entries, but for columns with the same P it is (1 - P) dC_i times S', so it lies
in the space of the n spectra. With S' = R'Q', Q orthonormal (M, n), the products J Q and r Q have
N n rows and the same J'J and J'r; a QR decomposition of these leaves as many rows as unknowns. What
of E is orthogonal to Q is a sum of squares that no unknown moves at first order.

Unwanted contributions that vary in time, sum over m of q_m(t) g_m(w) with both factors
unknown, are the leading singular vectors of (1 - P) D: the best ones for any C (Eckart and Young),
if the signs of S are free. They take q out of J from the left, and g from the right.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from igpe.core.arrays import BoolArray, FloatArray, IntArray, column_sizes
from igpe.numerics.least_squares.base import Linearised

RANK = 1e-10  # of the largest singular value of C, its columns scaled: below it they are dependent
PATIENCE = 3  # exchanges of all infeasible variables that may bring no progress (Kim & Park)
ROUNDS = 200  # of exchanges, after which each column is solved for itself
REGULAR = 1e12  # largest condition of normal equations that Gauss's algorithm solves
WIDE = 8  # times as many columns as species: worth a QR decomposition that leaves as many
TINY = 1e-13  # of the largest: signs below it are rounding


class Mixture(NamedTuple):
    """The data, and prior knowledge of the factor that is eliminated.

    data         (N, M) in standard deviations
    pure         (n, M) known spectra, NaN in the rows of those that are not
    extra        (N, e) more columns of C, known ones, whose spectra have any sign
    nonnegative  whether the unknown spectra of species are
    varying      how many unwanted contributions vary in time
    """

    data: FloatArray
    pure: FloatArray
    extra: FloatArray
    nonnegative: bool = False
    varying: int = 0

    @property
    def is_known(self) -> BoolArray:
        """(n,) which spectra are known."""
        return np.asarray(~np.isnan(self.pure).any(axis=1))


class SignPattern(NamedTuple):
    """Columns of D with the same projection.

    columns  (m,) their places
    basis    (N, r) orthonormal, of what is projected out
    unit     (p, r) coefficients of the p columns of [C, extra] that are free: the least-squares
             solution is unit @ (basis' d)
    free     (p,) which columns of [C, extra] these are
    """

    columns: IntArray
    basis: FloatArray
    unit: FloatArray
    free: IntArray


class Unmixed(NamedTuple):
    """The mixture at one C.

    spectra   (n + e, M), those of `extra` last
    error     (N, M) D - C S'
    patterns  columns with the same projection
    lost      (n + e,) which spectra C does not determine, as its columns are dependent
    unwanted  (N, v) and (v, M): contributions that vary in time, which `error` lacks
    """

    spectra: FloatArray
    error: FloatArray
    patterns: tuple[SignPattern, ...]
    lost: BoolArray
    unwanted: tuple[FloatArray, FloatArray]

    @property
    def cost(self) -> float:
        """Sum of squares."""
        return float(np.vdot(self.error, self.error))


def separated(c: FloatArray, mixture: Mixture) -> Unmixed:
    """The best spectra for amounts c (N, n)."""
    n, known = c.shape[1], mixture.is_known
    spectra = np.zeros((n + mixture.extra.shape[1], mixture.data.shape[1]))
    spectra[:n][known] = mixture.pure[known]
    left = mixture.data - c[:, known] @ mixture.pure[known]
    free = np.flatnonzero(np.concatenate([~known, np.ones(mixture.extra.shape[1], dtype=bool)]))
    columns = np.hstack([c, mixture.extra])
    basis, unit, lost = _basis(columns[:, free])
    every = SignPattern(np.arange(left.shape[1]), basis, unit, free)
    patterns, best = [every], unit @ (basis.T @ left)
    signed = free < n
    if mixture.nonnegative and bool((best[signed] < 0).any()):
        patterns = list(_signed_patterns(columns, left, every, signed, best > 0))
        best = np.zeros(best.shape)
        for one in patterns:
            own = np.searchsorted(free, one.free)[:, None]
            best[own, one.columns] = one.unit @ (one.basis.T @ left[:, one.columns])
        best[signed] = np.maximum(best[signed], 0.0)
    spectra[free] = best
    error = left - columns[:, free] @ best
    unwanted = np.zeros((len(c), 0)), np.zeros((0, left.shape[1]))
    if mixture.varying:
        u, s, v = np.linalg.svd(error, full_matrices=False)
        few = slice(mixture.varying)
        unwanted = u[:, few], s[few, None] * v[few]
        error = error - unwanted[0] @ unwanted[1]
        patterns = [every._replace(basis=np.hstack([basis, u[:, few]]))]
        patterns[0] = patterns[0]._replace(unit=np.pad(unit, ((0, 0), (0, mixture.varying))))
    every_lost = np.zeros(len(spectra), dtype=bool)
    every_lost[free] = lost
    return Unmixed(spectra, error, tuple(patterns), every_lost, unwanted)


def _basis(columns: FloatArray) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Orthonormal basis of columns (N, p), the map to their coefficients, and which are lost."""
    if not columns.shape[1]:
        return columns, np.zeros((0, 0)), np.zeros(0, dtype=bool)
    size = np.linalg.norm(columns, axis=0)
    scale = np.where(size > 0, size, 1.0)
    u, s, v = np.linalg.svd(columns / scale, full_matrices=False)
    kept = s > RANK * s.max(initial=0.0)
    unit = (v[kept].T / s[kept]) / scale[:, None]
    lost = (v[~kept] ** 2).sum(axis=0) > TINY if not kept.all() else np.zeros(len(size), dtype=bool)
    return u[:, kept], unit, np.asarray(lost | (size == 0))


def _signed_patterns(
    columns: FloatArray,
    left: FloatArray,
    every: SignPattern,
    signed: BoolArray,
    positive: BoolArray,
) -> Iterator[SignPattern]:
    """Columns of D by which spectra are free where those that are `signed` are non-negative.

    positive  (p, M) which coefficients are positive with all signs allowed
    """
    used = columns[:, every.free]
    scale = column_sizes(used)
    scaled = used / scale
    small = every.basis.T @ scaled
    passive = nonnegative_sets(small, every.basis.T @ left, signed, positive)
    sets = list(_sets(passive))
    masks = np.array([chosen for chosen, _ in sets])
    u, s, v = np.linalg.svd(scaled * masks[:, None], full_matrices=False)
    kept = s > RANK * s.max(axis=1, keepdims=True, initial=0.0)
    for k, (chosen, places) in enumerate(sets):
        some = kept[k]
        unit = (v[k, some][:, chosen].T / s[k, some]) / scale[chosen, None]
        yield SignPattern(places, u[k][:, some], unit, every.free[chosen])


def _sets(passive: BoolArray) -> Iterator[tuple[BoolArray, IntArray]]:
    """The different columns of (p, M), and the places of each."""
    packed = np.packbits(passive, axis=0)
    code = packed[0].astype(np.int64) if len(packed) == 1 else None
    if code is None:
        _, code = np.unique(packed, axis=1, return_inverse=True)
        code = code.ravel()
    order = np.argsort(code, kind="stable")
    ends = np.flatnonzero(np.diff(code[order])) + 1
    for places in np.split(order, ends):
        yield passive[:, places[0]], places


def nonnegative_sets(
    a: FloatArray, b: FloatArray, signed: BoolArray, first: BoolArray | None = None
) -> BoolArray:
    """(p, M) which coefficients are positive in min |a x - b| with x >= 0 where `signed`.

    Block principal pivoting for all columns at once, with the rule of exchanging a single variable
    where exchanging all brings no progress (Kim & Park, SIAM J. Sci. Comput. 33 (2011), 3261).

    a  (r, p);  b  (r, M);  first  (p, M) a guess, None: no coefficient is positive
    """
    gram, right = a.T @ a, a.T @ b
    p, count = right.shape
    regular = bool(np.linalg.cond(gram) < REGULAR)  # so are its principal parts
    level = TINY * np.maximum(np.abs(right).max(axis=0, initial=0.0), np.finfo(float).tiny)
    passive = np.repeat(~signed[:, None], count, axis=1)
    if first is not None:
        passive |= first
    best, patience = np.full(count, p + 1), np.full(count, PATIENCE)
    open_ = np.arange(count)
    for _ in range(ROUNDS):
        x = _solved(gram, right[:, open_], passive[:, open_], regular)
        slope = gram @ x - right[:, open_]
        held = passive[:, open_]
        wrong = np.where(held, x < 0, slope < -level[open_]) & signed[:, None]
        number = wrong.sum(axis=0)
        still = number > 0
        open_, wrong, number = open_[still], wrong[:, still], number[still]
        if not len(open_):
            return passive
        better = number < best[open_]
        patience[open_] = np.where(better, PATIENCE, patience[open_] - 1)
        best[open_] = np.minimum(best[open_], number)
        single = patience[open_] < 0
        last = p - 1 - np.argmax(wrong[::-1], axis=0)
        wrong[:, single] = np.arange(p)[:, None] == last[single]
        passive[:, open_] ^= wrong
    for j in open_:  # rounding keeps the exchanges going
        both = np.hstack([a, -a[:, ~signed]])
        passive[:, j] = (nnls(both, b[:, j])[0][:p] > 0) | ~signed
    return passive


def _solved(gram: FloatArray, right: FloatArray, passive: BoolArray, regular: bool) -> FloatArray:
    """(p, M) solutions of the normal equations of the passive coefficients, the others 0."""
    own = passive.T
    square = gram * (own[:, :, None] & own[:, None])
    square += ~own[:, :, None] * np.eye(len(gram))  # the equations of the others are x = 0
    some = (right * passive).T[..., None]
    if regular:
        return np.asarray(np.linalg.solve(square, some)[..., 0].T)
    cutoff = len(gram) * np.finfo(float).eps
    return np.asarray((np.linalg.pinv(square, cutoff, hermitian=True) @ some)[..., 0].T)


def moved_rows(one: Unmixed, slopes: FloatArray) -> Iterator[tuple[FloatArray, FloatArray]]:
    """For each pattern r Q (N, p) and J Q (N, p, n_k) of the top of the file; Q = 1 for a few.

    slopes  (N, n, n_k) derivative of C by the unknowns
    """
    n, shape = slopes.shape[1], one.unwanted[1]
    for pattern in one.patterns:
        own = one.spectra[:n, pattern.columns]
        if len(shape):
            g = shape / np.linalg.norm(shape, axis=1)[:, None]
            own = own - (own @ g.T) @ g
        error, r = one.error[:, pattern.columns], own.T
        if own.shape[1] > WIDE * n:  # few columns span as much
            q, r = np.linalg.qr(own.T)
            error = error @ q
        by = np.swapaxes(np.swapaxes(slopes, 1, 2) @ r.T, 1, 2)
        flat = by.reshape(len(by), -1)
        flat = flat - pattern.basis @ (pattern.basis.T @ flat)
        yield -error, flat.reshape(by.shape)


def linearised(c: FloatArray, slopes: FloatArray, mixture: Mixture) -> Linearised:
    """Residuals and derivative of phi, in at most as many rows as unknowns; the rest is offset.

    c  (N, n);  slopes  (N, n, n_k) its derivative by the unknowns
    """
    shorter = _fewer_rows(c, slopes, mixture)
    if shorter is None:
        return compressed(separated(c, mixture), slopes)
    c, slopes, mixture, rest = shorter
    return compressed(separated(c, mixture), slopes).with_rest(rest)


def _fewer_rows(
    c: FloatArray, slopes: FloatArray, mixture: Mixture
) -> tuple[FloatArray, FloatArray, Mixture, float] | None:
    """The problem in the space of C, its derivatives and `extra`, and the squares outside of it.

    None where that has no fewer dimensions, or contributions vary in time: these need all rows.
    """
    n, e = c.shape[1], mixture.extra.shape[1]
    every = np.hstack([c, mixture.extra, slopes.reshape(len(c), -1)])
    few = every.shape[1]
    if mixture.varying or few >= len(c):
        return None
    if mixture.data.shape[1] <= few:  # narrow data: their decomposition costs less than forming Q
        both: FloatArray = np.asarray(np.linalg.qr(np.hstack([every, mixture.data]), mode="r"))
        r, data, rest = both[:few, :few], both[:few, few:], both[few:, few:]
    else:
        q, r = np.linalg.qr(every)
        data = q.T @ mixture.data
        rest = mixture.data - q @ data
    shorter = mixture._replace(data=data, extra=r[:, n : n + e])
    by = r[:, n + e :].reshape(len(r), *slopes.shape[1:])
    return r[:, :n], by, shorter, float(np.vdot(rest, rest))


def compressed(one: Unmixed, slopes: FloatArray) -> Linearised:
    """`linearised` where the mixture is separated already."""
    k = slopes.shape[2]
    parts = list(moved_rows(one, slopes))
    rows = np.empty((sum(r.size for r, _ in parts), k + 1))
    rows[:, :k] = np.concatenate([by.reshape(r.size, k) for r, by in parts])
    rows[:, k] = np.concatenate([r.ravel() for r, _ in parts])
    short: FloatArray = np.asarray(np.linalg.qr(rows, mode="r"))
    jacobian, residual = np.zeros((k, k)), np.zeros(k)
    few = min(k, len(short))
    jacobian[:few], residual[:few] = short[:few, :k], short[:few, k]
    return Linearised(residual, jacobian).with_rest(one.cost - float(residual @ residual))
