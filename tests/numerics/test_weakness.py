"""Poor directions in words."""

import numpy as np
import pytest

from igpe.numerics.covariance import combinations, ellipse
from igpe.uncertainty.adequacy import weak_sentences

NAMES = ["k2", "kc", "E"]


def covariance(correlation, errors=(0.4, 0.8, 3.0)):
    """k2 and kc correlated, E by itself."""
    c = np.eye(3)
    c[0, 1] = c[1, 0] = correlation
    return c * np.outer(errors, errors)


def test_twins_are_named_with_their_correlation():
    told = weak_sentences(NAMES, np.array([2.0, 4.0, 100.0]), covariance(0.998))
    assert told[0].startswith("k2 and kc are strongly correlated (0.998)")
    assert told[1].startswith(
        "The largest standard error, of unknowns that change together: k2 +20 %, kc +20 %."
    )
    assert told[1].endswith("The smallest: k2 +0.63 %, kc -0.63 %.")


def test_percents_are_plain_numbers():
    wide = covariance(0.998, (6.4, 12.8, 3.0))
    told = weak_sentences(NAMES, np.array([2.0, 4.0, 100.0]), wide)
    assert "together: k2 +320 %, kc +320 %." in told[1]


def test_a_negative_correlation_has_its_sign_in_the_direction():
    told = weak_sentences(NAMES, np.array([2.0, 4.0, 100.0]), covariance(-0.9995))
    assert "0.9995" in told[0]
    assert "k2 +20 %, kc -20 %" in told[1] or "k2 -20 %, kc +20 %" in told[1]


def test_unknowns_that_a_constraint_links_are_not_called_correlated():
    x, of_one = np.array([2.0, 4.0, 100.0]), covariance(1 - 1e-13)
    assert weak_sentences(NAMES, x, of_one, [[0, 1]]) == [
        "Active bounds or constraints link k2 and kc: one of them determines the others."
    ]
    for found, value in ((of_one, "1"), (covariance(1 - 1e-10), "0.9999999999")):
        by_data = weak_sentences(NAMES, x, found)
        assert by_data[0].startswith(f"k2 and kc are strongly correlated ({value}): ")


def test_nothing_is_said_of_what_is_well_determined():
    assert weak_sentences(NAMES, np.array([2.0, 4.0, 100.0]), covariance(0.9)) == []


def test_a_poor_combination_is_told_without_twins():
    told = weak_sentences(NAMES, np.array([2.0, 0.8, 100.0]), covariance(0.5))
    assert len(told) == 1
    assert "kc +100 %" in told[0]


def test_relative_errors_beyond_all_measure_have_a_sign_and_a_limit():
    told = weak_sentences(NAMES, np.array([0.02, 0.04, 100.0]), covariance(-0.998))
    assert "k2 + over 1000 %, kc - over 1000 %" in told[1] or "k2 - over" in told[1]


def test_directions_are_eigenvectors_of_the_relative_covariance():
    x = np.array([2.0, 4.0, 100.0])
    found = combinations(x, covariance(0.7))
    relative = covariance(0.7) / np.outer(x, x)
    assert [c.error for c in found] == sorted((c.error for c in found), reverse=True)
    for c in found:
        assert relative @ c.components == pytest.approx(c.error**2 * c.components, abs=1e-12)


def test_unknowns_without_an_error_take_no_part():
    v = covariance(0.998)
    v[2] = v[:, 2] = np.nan
    found = combinations(np.array([2.0, 4.0, 1.0]), v)
    assert len(found) == 2
    assert all(c.components[2] == 0 for c in found)
    assert combinations(np.zeros(3), covariance(0.1)) == []


@pytest.mark.parametrize("degrees", [None, 7])
def test_an_ellipse_holds_as_many_draws_as_it_says(degrees):
    v = covariance(0.8)[:2, :2]
    edge = ellipse(v, 0.9, degrees)
    assert edge[0] == pytest.approx(edge[-1])
    random = np.random.default_rng(1)
    draws = random.multivariate_normal([0, 0], v, size=40_000)
    if degrees:
        draws /= np.sqrt(random.chisquare(degrees, size=40_000) / degrees)[:, None]
    level = edge[0] @ np.linalg.inv(v) @ edge[0]
    inside = np.einsum("ij,jk,ik->i", draws, np.linalg.inv(v), draws) <= level
    assert np.mean(inside) == pytest.approx(0.9, abs=0.01)
    assert np.isnan(ellipse(v, 0.9, 0)).all()
