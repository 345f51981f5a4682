"""Leverage and influence against the hat matrix and the pseudoinverse."""

import numpy as np
import pytest

from igpe.numerics.covariance import influence, leverage, root

RANDOM = np.random.default_rng(5)
J = RANDOM.normal(size=(15, 4)) * [1.0, 1e6, 1e-6, 1.0]
FREE = np.zeros(4, dtype=bool)


def test_leverage_is_the_diagonal_of_the_hat_matrix():
    q, _ = np.linalg.qr(J)
    assert leverage(J, FREE) == pytest.approx(np.sum(q**2, axis=1), rel=1e-10)
    assert np.sum(leverage(J, FREE)) == pytest.approx(4)


def test_influence_is_the_pseudoinverse():
    assert influence(J, FREE) == pytest.approx(np.linalg.inv(J.T @ J) @ J.T, rel=1e-6)


def test_what_is_held_takes_no_part():
    held = np.array([False, True, False, False])
    q, _ = np.linalg.qr(J[:, ~held])
    assert leverage(J, held) == pytest.approx(np.sum(q**2, axis=1), rel=1e-10)
    assert (influence(J, held)[1] == 0).all()
    assert (leverage(J, ~FREE) == 0).all()


def test_undetermined_unknowns_have_no_influence_but_combinations_an_error():
    """Of two equal columns only the sum is known."""
    both = np.column_stack([J[:, 0], J[:, 0], J[:, 3]])
    found = influence(both, np.zeros(3, dtype=bool))
    assert (found[:2] == 0).all()
    of = root(both, np.zeros(3, dtype=bool))
    change = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    single = np.linalg.inv(J[:, [0, 3]].T @ J[:, [0, 3]])
    assert of.error(change) == pytest.approx([
        np.sqrt(single[0, 0]),
        np.inf,
        np.sqrt(single[1, 1]),
        0.0,
    ])
