"""Linear equations of implicit stages by sparse factors, and equations compiled in parts."""

from itertools import pairwise

import casadi as ca
import numpy as np
import pytest
from initial_values import needs_compiler
from interval_problems import EXACT, Cut, cut
from scipy.sparse import random_array
from space import tube
from test_runge_kutta_back import gradients, some_weights

from igpe.dynamics.integrators import runge_kutta_source
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta
from igpe.dynamics.integrators.runge_kutta_source import FORWARDS, sparse_factors

CELLS = 30


@pytest.fixture
def anew():
    """Sources are written anew, before and after."""
    for kept in (runge_kutta_source.written, runge_kutta_source.driver):
        kept.cache_clear()
    yield
    for kept in (runge_kutta_source.written, runge_kutta_source.driver):
        kept.cache_clear()


def of_tube() -> Cut:
    return cut(tube(CELLS), {"D": 0.05, "v": 1.0, "k": 2.0}, [0.0, 0.4, 1.0], [0.1, 0.4, 0.7, 1.0])


@pytest.mark.parametrize("seed", range(5))
def test_elimination_stays_within_the_places(seed):
    n = 40
    pattern = random_array((n, n), density=0.03, rng=seed).toarray()
    order, place, first, columns, diagonal = sparse_factors(ca.sparsify(ca.DM(pattern))).values()
    assert (order[place] == np.arange(n)).all()
    matrix = (pattern + 3 * np.eye(n))[np.ix_(order, order)]
    allowed = np.zeros((n, n), dtype=bool)
    for i, (a, b) in enumerate(pairwise(first)):
        allowed[i, columns[a:b]] = True
        assert columns[diagonal[i]] == i
    for k in range(n):
        matrix[k + 1 :, k] /= matrix[k, k]
        matrix[k + 1 :, k + 1 :] -= np.outer(matrix[k + 1 :, k], matrix[k, k + 1 :])
    assert not (np.abs(matrix) > 0)[~allowed].any()
    assert allowed.sum() < n * n / 2


@pytest.mark.parametrize("n", [5, 40])
def test_few_rows_and_full_matrices_have_none(n):
    assert sparse_factors(ca.DM.ones(n, n)) == {}


@needs_compiler
def test_many_states_have_the_derivatives_of_cvodes():
    one = of_tube()
    came, right = one.run(RungeKutta(1e-9, 1e-11, pair=Pair.IMPLICIT)), one.run(EXACT)
    for name in ("ends", "ends_by", "measured", "measured_by"):
        values = getattr(right, name)
        assert getattr(came, name) == pytest.approx(
            values, rel=1e-5, abs=1e-6 * np.abs(values).max()
        )


@needs_compiler
def test_a_sweep_back_solves_with_the_transpose():
    one = of_tube()
    made = one.made(RungeKutta(1e-6, 1e-8, slack=100.0, pair=Pair.IMPLICIT))
    forwards, back, _ = gradients(one, made, some_weights(one))
    assert back == pytest.approx(forwards, abs=1e-10 * np.abs(forwards).max())


@needs_compiler
def test_pivots_that_are_lost_have_dense_factors(monkeypatch, tmp_path, anew):
    """Here all seem to be: what dense factors give is what sparse ones do."""
    one, method = of_tube(), RungeKutta(1e-6, 1e-8, pair=Pair.IMPLICIT)
    sparse = one.run(method)
    texts = []
    for part in runge_kutta_source.DRIVER[FORWARDS]:
        text = part.read_text().replace("CANCELLED 1e-6", "CANCELLED 2.0")
        texts.append(tmp_path / part.name)
        texts[-1].write_text(text)
    assert any("CANCELLED 2.0" in text.read_text() for text in texts)
    monkeypatch.setitem(runge_kutta_source.DRIVER, FORWARDS, texts)
    runge_kutta_source.driver.cache_clear()
    dense = one.run(method)
    assert (dense.ends != sparse.ends).any()  # another order, other rounding
    assert dense.ends == pytest.approx(sparse.ends, rel=1e-7)
    assert dense.ends_by == pytest.approx(sparse.ends_by, rel=1e-5, abs=1e-7)


@pytest.mark.slow
@needs_compiler
def test_equations_in_parts_have_the_same_values(monkeypatch, anew):
    one, method = of_tube(), RungeKutta(1e-6, 1e-8)
    together = one.run(method)
    runge_kutta_source.written.cache_clear()
    monkeypatch.setattr(runge_kutta_source, "PART", 50)
    apart = one.run(method)
    assert apart.ends == pytest.approx(together.ends, rel=1e-12)
    assert apart.ends_by == pytest.approx(together.ends_by, rel=1e-9, abs=1e-12)


def test_rows_of_a_band_do_not_wait_for_each_other():
    n = 40
    factors = sparse_factors(ca.DM(ca.Sparsity.banded(n, 1)))
    assert len(factors["lu_col"]) == 3 * n - 2  # elimination adds nothing
    assert (np.abs(np.diff(factors["lu_order"])) == 1).sum() <= 2
