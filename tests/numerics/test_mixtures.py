"""Bilinear mixtures with one factor eliminated: beside independent solutions and differences."""

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import nnls

from igpe.core.arrays import FloatArray
from igpe.numerics.mixtures import Mixture, compressed, linearised, separated

TIMES = np.linspace(0.1, 4, 30)
K = np.array([1.3, 0.4])


def amounts(k: FloatArray) -> FloatArray:
    """A -> B -> C from A = 1."""
    a = np.exp(-k[0] * TIMES)
    b = k[0] / (k[1] - k[0]) * (a - np.exp(-k[1] * TIMES))
    return np.column_stack([a, b, 1 - a - b])


def slopes(k: FloatArray) -> FloatArray:
    step = 1e-6
    pairs = [(amounts(k + step * e) - amounts(k - step * e)) / (2 * step) for e in np.eye(2)]
    return np.stack(pairs, axis=2)


def mixture(kind: str) -> Mixture:
    random = np.random.default_rng(3)
    s = np.maximum(random.normal(0.3, 1, (3, 25)), 0)
    data = amounts(K) @ s + random.normal(0, 0.05, (30, 25))
    pure, extra = np.full((3, 25), np.nan), np.zeros((30, 0))
    if kind == "known":
        pure[1] = s[1]
    if kind == "constant":
        data = data[:, :] + random.normal(0, 1, 25)
        pure, extra = np.full((2, 25), np.nan), np.ones((30, 1))
    if kind == "varying":
        data = data + np.outer(np.sin(TIMES), random.normal(0, 1, 25))
    signed = kind in ("signed", "signed constant")
    if kind == "signed constant":
        pure, extra = np.full((2, 25), np.nan), np.ones((30, 1))
    if kind == "narrow":  # fewer columns than amounts and their derivatives
        data, pure, extra = data[:, :4], np.full((2, 4), np.nan), np.ones((30, 1))
    return Mixture(data, pure, extra, signed, int(kind == "varying"))


KINDS = ("free", "signed", "known", "constant", "signed constant", "varying", "narrow")


def of(kind: str) -> tuple[Mixture, Callable[[FloatArray], FloatArray]]:
    m = mixture(kind)
    count = len(m.pure)
    return m, lambda k: amounts(k)[:, :count]


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_that_of_the_cost(kind: str) -> None:
    m, c = of(kind)
    k = K * [1.2, 0.9]
    at = linearised(c(k), slopes(k)[:, : len(m.pure)], m)
    assert at.cost == pytest.approx(separated(c(k), m).cost, rel=1e-12)
    step = 1e-5
    costs = [[separated(c(k + s * step * e), m).cost for s in (1, -1)] for e in np.eye(2)]
    differences = [(up - down) / (2 * step) for up, down in costs]
    assert 2 * at.jacobian.T @ at.residual == pytest.approx(differences, rel=1e-5)


@pytest.mark.parametrize("kind", ["free", "signed", "known", "constant", "signed constant"])
def test_the_curvature_is_that_of_the_full_problem_with_spectra_eliminated(kind: str) -> None:
    m, c = of(kind)
    one, by = separated(c(K), m), slopes(K)[:, : len(m.pure)]
    columns, count = np.hstack([c(K), m.extra]), m.data.shape[1]
    total, known = np.zeros((2, 2)), np.append(m.is_known, np.zeros(m.extra.shape[1], dtype=bool))
    for w in range(count):  # the full Jacobian of one wavelength: rate constants, free spectra
        s = one.spectra[:, w]
        free = ~known & ((s > 0) | (np.arange(len(s)) >= len(m.pure)) | (not m.nonnegative))
        outer = np.einsum("tsk,s->tk", by, s[: len(m.pure)])
        inner = columns[:, free]
        left = outer - inner @ np.linalg.lstsq(inner, outer, rcond=None)[0]
        total += left.T @ left
    at = compressed(one, by)
    assert at.jacobian.T @ at.jacobian == pytest.approx(total, rel=1e-9)


def test_signs_are_those_of_nnls_at_each_wavelength() -> None:
    m, c = of("signed")
    one = separated(c(K), m)
    for w, column in enumerate(m.data.T):
        expected, left = nnls(c(K), column)
        assert one.spectra[:, w] == pytest.approx(expected, abs=1e-9)
        assert np.linalg.norm(one.error[:, w]) == pytest.approx(left, rel=1e-9)
    assert len(one.patterns) > 2


def test_signs_hold_for_many_nearly_dependent_species() -> None:
    random = np.random.default_rng(0)
    base = random.uniform(0, 1, (40, 2))
    c = base @ random.uniform(0, 1, (2, 6)) + 1e-3 * random.uniform(0, 1, (40, 6))
    data = c @ np.maximum(random.normal(0, 1, (6, 200)), 0) + random.normal(0, 0.01, (40, 200))
    m = Mixture(data, np.full((6, 200), np.nan), np.zeros((40, 0)), nonnegative=True)
    one = separated(c, m)
    assert one.spectra.min() >= 0
    assert one.cost == pytest.approx(sum(nnls(c, d)[1] ** 2 for d in data.T), rel=1e-8)


def test_a_varying_contribution_is_the_best_of_its_rank() -> None:
    """Beside alternating least squares from many starts."""
    m, c = of("varying")
    best, random = np.inf, np.random.default_rng(1)
    for _ in range(5):
        q = random.normal(0, 1, (30, 1))
        for _ in range(300):
            every = np.hstack([c(K), q])
            s = np.linalg.lstsq(every, m.data, rcond=None)[0]
            left = m.data - c(K) @ s[:3]
            q = np.linalg.lstsq(s[3:].T, left.T, rcond=None)[0].T
        best = min(best, float(np.sum((left - q @ s[3:]) ** 2)))
    assert separated(c(K), m).cost == pytest.approx(best, rel=1e-7)


def test_dependent_amounts_are_told_and_do_not_break() -> None:
    c = amounts(K)
    same = np.column_stack([c[:, 0], 2 * c[:, 0], c[:, 2]])
    m = mixture("free")
    one = separated(same, m)
    assert one.lost.tolist() == [True, True, False]
    two = separated(same[:, [0, 2]], m._replace(pure=m.pure[:2]))
    assert one.cost == pytest.approx(two.cost, rel=1e-10)
    nothing = separated(np.zeros((30, 3)), m)
    assert nothing.cost == pytest.approx(np.sum(m.data**2))
    assert nothing.lost.all()
