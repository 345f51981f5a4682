"""The picture of a proof shows every box that is decided, and where it may not be drawn."""

from dataclasses import replace

import consecutive
import matplotlib.pyplot as plt
import pytest

import igpe
from igpe.results.dynamic_certificate import TreeBox


@pytest.fixture(scope="module")
def proof() -> igpe.DynamicCertificate:
    return igpe.certify(consecutive.problem(), consecutive.OPTIMUM)


def test_all_decided_boxes_and_the_best_parameters_are_drawn(proof: igpe.DynamicCertificate):
    _, given = plt.subplots()
    (ax,) = proof.plot(given)
    assert ax is given
    leaves = [box for box in proof.tree if box.reason != "split"]
    assert [p.get_xy() for p in ax.patches] == [box.lower for box in leaves]
    assert [line.get_xydata()[0].tolist() for line in ax.lines] == [list(proof.parameters)]
    words = {text.get_text() for text in ax.get_legend().get_texts()}
    assert "best parameters" in words
    assert "not decided" not in words
    plt.close(ax.figure)


def test_what_is_open_is_hatched(proof: igpe.DynamicCertificate):
    whole = TreeBox(proof.lower, proof.upper, "open")
    (ax,) = replace(proof, tree=(whole,)).plot()
    assert [p.get_hatch() for p in ax.patches] == ["///"]
    plt.close(ax.figure)


def test_boxes_of_three_unknowns_are_not_drawn(proof: igpe.DynamicCertificate):
    more = replace(proof, unknowns=("a", "b", "c"))
    with pytest.raises(igpe.errors.ProblemError, match=r"3 unknowns \(a, b, c\).*\.remaining"):
        more.plot()
