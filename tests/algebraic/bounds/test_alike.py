"""Experiments become one where the same formula holds with other numbers."""

import casadi as ca
import numpy as np
import pytest

from igpe.algebraic.base import Contribution
from igpe.algebraic.bounds.separate import grouped, separate
from igpe.core.box import Box

RNG = np.random.default_rng(5)
BOX = Box(("k", "E"), np.array([0.1, 0.2]), np.array([3.0, 4.0]))


def piece(rate, known, combine=None):
    k, p = ca.SX.sym("k", len(known)), ca.SX.sym("p", 2)
    predict = ca.Function("predict", [k, p], [rate(k, p)])
    n = known.shape[1] if combine is None else len(combine)
    return Contribution(predict, known, combine, RNG.normal(size=n), RNG.uniform(0.5, 2, n))


def first(start):
    return lambda k, p: p[0] * (start + k[0]) * ca.exp(-p[1] * k[1])


def second(start):
    return lambda k, p: 2.5 * k[0] - p[0] * k[0] / (p[1] + start) + start


def experiments(starts, combine=None):
    found = []
    for start in starts:
        known = RNG.uniform(0.2, 1.0, (2, 12))
        found += [piece(first(start), known, combine), piece(second(start), known, combine)]
    return found


@pytest.mark.parametrize("combine", [None, RNG.normal(size=(4, 3))])
def test_one_block_for_experiments_with_other_numbers_and_the_same_residuals(combine):
    pieces = experiments([0.3, 0.7, 1.1], combine)
    found = separate(pieces, BOX)
    assert len(found.problem.blocks) == 1
    assert sorted(found.order) == list(range(3 * 2 * (12 if combine is None else 4)))
    p = np.array([1.3, 0.8])
    posed = np.asarray(ca.vertcat(*(one.symbolic(p) for one in pieces))).ravel()
    np.testing.assert_allclose(found.residual(p), posed[found.order], rtol=1e-12)


def test_another_formula_is_another_group():
    pieces = experiments([0.3, 0.0, 0.7])  # 0 + k[0] is k[0]
    groups = grouped(pieces)
    assert [len(g.sources) for g in groups] == [2, 2]
    assert [list(g.order[[0, 12]]) for g in groups] == [[0, 48], [24, 36]]


def test_numbers_of_all_experiments_reach_every_formula():
    """Two constants that differ, in different formulas, at different places."""
    pieces = experiments([0.3, 0.7])
    (group,) = grouped(pieces)
    known = group.sources[0].known
    assert known.shape[1] == 24
    assert {tuple(np.unique(row)) for row in known[2:]} == {(0.3, 0.7)}
    for source, one, other in zip(group.sources, pieces[:2], pieces[2:], strict=True):
        value = source.predict(known, np.array([1.3, 0.8])).full().ravel()
        alone = [x.predict(x.known, np.array([1.3, 0.8])).full().ravel() for x in (one, other)]
        np.testing.assert_allclose(value, np.concatenate(alone), rtol=1e-14)
