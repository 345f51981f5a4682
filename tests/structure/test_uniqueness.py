"""Global identifiability: what slopes decide, and that nothing else is claimed."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from known_models import PULSE, Known, checked

import igpe
from igpe.structure.identifiability import Identifiable
from igpe.structure.uniqueness import Lattice, NoQuotient, quotient


def unique(case):
    return set(igpe.check(case.problem()).exact.unique)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("Bolie, both", "p1 p2 p3 p4"),
        ("Michaelis and Menten", "Vm Km S(t0)"),
        ("Monod, both", "mu K Y X(t0) S(t0)"),
        ("HIV, virus and cells", "s d beta T(t0) V(t0)"),
        ("fed tank", "c area h(t0)"),
    ],
)
def test_slopes_of_measured_states_decide(name, names):
    assert checked(name).exact.unique == set(names.split())


@pytest.mark.parametrize(
    ("name", "exchange"),
    [
        ("chain, product, feed unknown", "k1 k2"),
        ("SEIR, prevalence, population unknown", "a nu"),
        ("three compartments, one loss", "k21 k31 k12 k13"),
        ("oral dose", "ka ke"),
        ("bilinear, starts known", "p1 p3"),
    ],
)
def test_what_may_be_exchanged_is_not_called_unique(name, exchange):
    found = checked(name).exact
    assert set(exchange.split()) <= set(found.names(Identifiable.YES))
    assert not set(exchange.split()) & found.unique


def test_a_sign_that_is_lost_is_noticed():
    """k**2 is determined; k only with the product k m beside it, if m is known."""
    square = Known("square", {"A": "-k ** 2 * A"}, "k", "A", {"A": 1.0}, "", "")
    assert unique(square) == set()
    slopes = {"A": "u * k ** 3 - k ** 2 * A"}
    both = replace(square, slopes=slopes, inputs=({"u": PULSE},))
    assert unique(both) == {"k"}


def test_experiments_share_what_they_say():
    """k / T of two temperatures: k alone is known by neither slope, k and m by both."""
    slopes = {"A": "-(k + m * T) * A"}
    one = Known("line", slopes, "k m", "A", {"A": 1.0}, "k m", "", inputs=({"T": 2.0},))
    assert unique(one) == set()
    assert unique(replace(one, inputs=({"T": 2.0}, {"T": 3.0}))) == {"k", "m"}


def test_words_say_globally_where_it_is_proved():
    text = str(checked("HIV, virus"))
    lines = {line.split()[0]: line for line in text.splitlines()}
    assert lines["V(t0)"].endswith("; globally identifiable")
    assert lines["beta"].endswith("; locally identifiable")


def test_quotients_that_all_solutions_agree_on_are_enough():
    """What is lost of A by two ways cannot be told apart; how fast it comes can."""
    slopes = {"A": "k * u - (m + g) * A"}
    case = Known("two losses", slopes, "k m g", "A", {"A": 1.0}, "m g", "", inputs=({"u": PULSE},))
    assert unique(case) == {"k"}


def test_quotients_have_the_values_of_their_expressions():
    q, x = ca.SX.sym("q", 2), ca.SX.sym("x", 2)
    random = np.random.default_rng(0)
    for expression in (
        q[0] * x[0] / (q[1] + x[0]) - q[1] ** 2,
        (q[0] + 1) ** -2 * ca.exp(x[1]) + 3,
        (q[0] - q[1]) * (q[0] + q[1]) / (q[0] * q[1] * x[0]),
        ca.sin(x[0]) + 2 * q[0],
    ):
        above, below = quotient(expression, q, x)
        values = random.uniform(0.5, 2.0, 2), random.uniform(0.5, 2.0, 2)
        sides = [
            sum((c * q[0] ** e[0] * q[1] ** e[1] for e, c in part.items()), start=ca.SX(0))
            for part in (above, below)
        ]
        told = ca.Function("f", [q, x], [expression, sides[0] / sides[1]])(*values)
        assert float(told[0]) == pytest.approx(float(told[1]), rel=1e-12)


@pytest.mark.parametrize("function", [ca.exp, ca.sqrt, lambda q: q**0.5, lambda q: 2**q])
def test_what_is_no_quotient_is_refused(function):
    q, x = ca.SX.sym("q"), ca.SX.sym("x")
    with pytest.raises(NoQuotient):
        quotient(x * function(q), q, x)


def test_lattice_holds_whole_combinations_alone():
    lattice = Lattice([[2, 0, 1], [0, 3, 0], [4, 3, 2], [0, 0, 5]])
    assert [2, 3, 6] in lattice
    assert [2, 0, 0] not in lattice
    assert [10, 0, 0] in lattice
    assert [1, 0, 0] not in lattice
    assert [0, 1, 0] not in lattice
    assert [0, 0, 0] in Lattice([])
    assert [1, 0] in Lattice([[6, 1], [0, 1], [10, 3], [15, 7]])
