"""The picture of a proof shows every box that is decided, and where it may not be drawn."""

from dataclasses import replace

import consecutive
import matplotlib.pyplot as plt
import numpy as np
import pytest

import igpe
from igpe.results.certificates import TreeBox


@pytest.fixture(scope="module")
def proof() -> igpe.proofs.DynamicCertificate:
    return igpe.certify(consecutive.problem(), consecutive.OPTIMUM)


def test_all_decided_boxes_and_the_best_parameters_are_drawn(proof: igpe.proofs.DynamicCertificate):
    _, given = plt.subplots()
    (ax,) = proof.plot(given)
    assert ax is given
    leaves = [box for box in proof.tree if box.reason != "split"]
    assert [p.get_xy() for p in ax.patches] == [box.lower for box in leaves]
    assert [line.get_xydata()[0].tolist() for line in ax.lines] == [list(proof.parameters)]
    words = {text.get_text() for text in ax.get_legend().get_texts()}
    assert "best parameters" in words
    assert "not decided" not in words


def test_what_is_open_is_hatched(proof: igpe.proofs.DynamicCertificate):
    whole = TreeBox(proof.lower, proof.upper, "open")
    (ax,) = replace(proof, tree=(whole,)).plot()
    assert [p.get_hatch() for p in ax.patches] == ["///"]


def test_of_other_unknowns_the_bound_is_drawn_over_the_boxes(proof: igpe.proofs.DynamicCertificate):
    fewer = replace(proof, unknowns=("a", "b", "c"))
    (ax,) = fewer.plot()
    level, lower = ax.lines
    assert set(level.get_ydata()) == {proof.objective}
    assert len(lower.get_ydata()) == len(proof.tree)
    assert (np.diff(lower.get_ydata()) >= 0).all()
    assert lower.get_ydata()[-1] == pytest.approx(proof.lower_bound)
