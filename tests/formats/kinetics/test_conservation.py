"""Conservation laws of reactions."""

from itertools import pairwise

import numpy as np
import pytest

from igpe import kinetics
from igpe.core.errors import ModelError
from igpe.formats.kinetics.laws import conservation_laws, laws_for, read_equation


def laws(*texts):
    equations = [read_equation(t) for t in texts]
    species = list(dict.fromkeys(s for e in equations for s in e.species))
    return species, equations, conservation_laws(species, equations)


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (["A + B -> C", "A + C <-> D", "3 A -> E"], ["B + C + D", "A + C + 2 D + 3 E"]),
        (["E + S <-> ES", "ES -> E + P"], ["E + ES", "S + ES + P"]),
        (["A -> B", "B -> C"], ["A + B + C"]),
        (["2 A -> B"], ["A + 2 B"]),
        (["A + B -> "], ["A - B"]),
        (["A ->", "-> B"], []),
        (["0.5 A -> B"], ["2 A + B"]),
    ],
)
def test_known_laws(texts, wanted):
    assert [str(law) for law in laws(*texts)[2]] == wanted


@pytest.mark.parametrize("seed", range(20))
def test_laws_span_the_left_null_space(seed):
    random = np.random.default_rng(seed)
    names = [f"S{i}" for i in range(7)]
    texts = []
    for _ in range(4):
        left, right = random.choice(names, 2, replace=False), random.choice(names, 2, replace=False)
        texts.append(f"{random.integers(1, 4)} {left[0]} + {left[1]} -> {right[0]} + 2 {right[1]}")
    species, equations, found = laws(*texts)
    matrix = np.array([[float(e.net.get(s, 0)) for e in equations] for s in species])
    rows = np.array([[law.coefficients.get(s, 0) for s in species] for law in found], dtype=float)
    assert len(found) == len(species) - np.linalg.matrix_rank(matrix)
    if len(found):
        assert np.abs(rows @ matrix).max() == 0
        assert np.linalg.matrix_rank(rows) == len(found)


def test_a_long_chain_of_many_laws_is_quick():
    texts = [f"A{i} + B{i} <-> A{j} + B{j}" for i, j in pairwise(range(15))]
    species, _, found = laws(*texts)
    assert len(found) == len(species) - 14


def test_laws_for_species_that_are_not_independent():
    found = laws("E + S <-> ES", "ES -> E + P")[2]
    assert [str(law) for law in laws_for(["E"], found)] == ["E + ES"]
    assert len(laws_for(["E", "P"], found)) == 2
    with pytest.raises(ModelError, match=r"E \+ ES; S \+ ES \+ P"):
        laws_for(["S", "P"], found)
    with pytest.raises(ModelError, match="cannot be computed"):
        kinetics.Batch(["A ->"], algebraic=["A"])
