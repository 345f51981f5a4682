"""The Runge-Kutta pairs: every condition of their orders, and that they are stable."""

import numpy as np
import pytest

from igpe.dynamics.integrators.tableaux import DORMAND_PRINCE, KENNEDY_CARPENTER

ORDER = {7: 5, 6: 4}  # by stages
PAIRS = pytest.mark.parametrize("pair", [DORMAND_PRINCE, KENNEDY_CARPENTER], ids=["DP", "KC"])


def trees(order):
    """All rooted trees with so many nodes, as sorted tuples of subtrees."""

    def forests(nodes, largest):
        if nodes == 0:
            yield ()
        for size in range(min(nodes, largest), 0, -1):
            for tree in trees(size):
                for rest in forests(nodes - size, size):
                    yield (tree, *rest)

    return sorted({tuple(sorted(forest)) for forest in forests(order - 1, order - 1)})


def nodes(tree):
    return 1 + sum(nodes(t) for t in tree)


def density(tree):
    return nodes(tree) * int(np.prod([density(t) for t in tree]))


def weights(tree, a):
    """(s,) the elementary weight before b."""
    found = np.ones(len(a))
    for subtree in tree:
        found = found * (a @ weights(subtree, a))
    return found


def defect(b, a, order, share=1.0):
    """Largest violation of the conditions up to an order, for the weights at a share of a step."""
    return max(
        abs(b @ weights(t, a) - share**n / density(t))
        for n in range(1, order + 1)
        for t in trees(n)
    )


@PAIRS
def test_the_step_has_its_order_and_no_higher(pair):
    assert defect(pair.a[-1], pair.a, ORDER[pair.stages]) < 1e-14
    assert defect(pair.a[-1], pair.a, ORDER[pair.stages] + 1) > 1e-5


@PAIRS
def test_the_embedded_method_has_its_order_and_no_higher(pair):
    embedded = pair.a[-1] - pair.error
    assert defect(embedded, pair.a, ORDER[pair.stages] - 1) < 1e-14
    assert defect(embedded, pair.a, ORDER[pair.stages]) > 1e-5


@PAIRS
@pytest.mark.parametrize("share", [0.1, 0.37, 0.5, 0.9, 1.0])
def test_dense_output_has_its_order_everywhere(pair, share):
    b = pair.dense @ share ** np.arange(1, pair.dense.shape[1] + 1)
    assert defect(b, pair.a, 4, share) < 1e-13


@pytest.mark.parametrize("angle", np.linspace(np.pi / 2, np.pi, 7))
def test_the_implicit_pair_is_stable_in_the_left_half_plane(angle):
    a, n = KENNEDY_CARPENTER.a, KENNEDY_CARPENTER.stages
    for size in np.geomspace(1e-2, 1e4, 60):
        z = size * np.exp(1j * angle)
        stages = np.linalg.solve(np.eye(n) - z * a, np.ones(n))
        assert abs(stages[-1]) <= 1 + 1e-12


def test_the_implicit_pair_forgets_what_is_infinitely_fast():
    a, n = KENNEDY_CARPENTER.a, KENNEDY_CARPENTER.stages
    assert abs(np.linalg.solve(np.eye(n) + 1e9 * a, np.ones(n))[-1]) < 1e-8


@PAIRS
def test_predictors_are_right_for_parabolas(pair):
    for i in range(1, pair.stages):
        for power in range(min(i, 3)):
            told = pair.predictors[i, :i] @ pair.c[:i] ** power
            assert told == pytest.approx(pair.c[i] ** power, abs=1e-12)


@PAIRS
def test_dense_output_ends_in_the_step(pair):
    assert pair.dense.sum(axis=1) == pytest.approx(pair.a[-1], abs=1e-14)
