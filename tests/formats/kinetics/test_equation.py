"""Reaction equations as texts."""

from fractions import Fraction

import pytest

from igpe.core.errors import ModelError
from igpe.formats.kinetics.laws import read_equation


@pytest.mark.parametrize(
    ("text", "left", "right", "reversible"),
    [
        ("A + B -> C", {"A": 1, "B": 1}, {"C": 1}, False),
        ("3 A -> E", {"A": 3}, {"E": 1}, False),
        ("3A→E", {"A": 3}, {"E": 1}, False),
        ("2*A <=> A2", {"A": 2}, {"A2": 1}, True),
        ("A + A <-> B", {"A": 2}, {"B": 1}, True),
        ("1/2 O2 + 0.5 C -> CO", {"O2": Fraction(1, 2), "C": Fraction(1, 2)}, {"CO": 1}, False),
        ("-> A", {}, {"A": 1}, False),
        ("A ->", {"A": 1}, {}, False),
        ("E_1 + S -> E_1 + P", {"E_1": 1, "S": 1}, {"E_1": 1, "P": 1}, False),
    ],
)
def test_a_text_is_read(text, left, right, reversible):
    found = read_equation(text)
    assert (found.left, found.right, found.reversible) == (left, right, reversible)


def test_catalysts_are_no_net_change():
    assert read_equation("E + S -> E + 2 P").net == {"S": -1, "P": 2}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A + B", "has no arrows"),
        ("A -> B -> C", "has 2 arrows"),
        ("A + -> B", "'' in the reaction"),
        ("A- + B -> C", "'A-' in the reaction"),
        ("0 A -> B", "coefficient above 0"),
        ("A + B -> B + A", "changes nothing"),
        ("->", "changes nothing"),
        (3, "expected a string"),
    ],
)
def test_what_is_no_reaction_is_refused(text, says):
    with pytest.raises(ModelError, match=says.replace("+", r"\+")):
        read_equation(text)
