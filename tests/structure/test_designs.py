"""Identifiability as inputs, measured windows and start values are, and the same at the optimum."""

from dataclasses import replace

import numpy as np
import pytest
from known_designs import DESIGNS, LINEAR, ONE
from known_models import Known

import igpe
from igpe.equations.system import read_systems
from igpe.rank_notes import rank_notes
from igpe.series.local_algebra import local_echelon
from igpe.structure.findings import Verdict

CASES = {case.name: case for case in DESIGNS}
PRIME = 2147483647


@pytest.mark.parametrize("case", DESIGNS, ids=lambda c: c.name)
def test_known_answers(case):
    exact = igpe.check(case.problem(), identifiability=None).exact
    assert set(exact.names(Verdict.NO)) == set(case.lost.split())
    assert exact.names(Verdict.UNDECIDED) == ()
    several = dict(text.rsplit(":", 1) for text in case.several.split())
    assert all(number == int(several.get(n, 1)) for n, number in exact.values.items())
    if case.functions is not None:
        assert tuple(f for c in exact.combinations for f in c.functions) == case.functions


def test_premises_are_named():
    text = str(igpe.check(CASES["two rates, one step"].problem()))
    assert "(exact rank, proved; for nearly all durations of the experiments)" in text
    assert "durations" not in str(igpe.check(CASES["start at the steady state"].problem()))


def test_no_line_contradicts_another():
    """Each unknown has one verdict, and no line says of all that they are identifiable."""
    text = str(igpe.check(CASES["two rates, step after the last measurement"].problem()))
    assert text.count("; not identifiable") == 2
    assert "Identifiable:" not in text
    assert "cannot be estimated" not in text


def test_series_know_their_rank_to_the_orders_that_are_known():
    """(1, e) and (1, e + e**4): alike up to order 3, of rank 2 beyond."""
    rows = np.zeros((2, 2, 6), dtype=np.uint64)
    rows[:, 0, 0] = rows[:, 1, 1] = 1
    rows[1, 1, 4] = 1
    assert local_echelon(rows[:, :, :4], PRIME, 5).form.rank == 1
    assert local_echelon(rows, PRIME, 5).form.rank == 2
    one = local_echelon(rows[:1], PRIME, 5)
    assert not one.steady
    assert one.form.rows.tolist() == [[1, 5]]


def notes(case, jacobian):
    problem = case.problem()
    structure = igpe.check(problem, identifiability=False)
    held = np.zeros(len(problem.box), dtype=bool)
    return rank_notes(problem, read_systems(problem), structure, np.array(jacobian), held)


def test_rank_of_the_data_and_verdicts_are_compared():
    good, lost = CASES["two rates, one step"], CASES["two rates, step after the last measurement"]
    full, deficient = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]]
    assert notes(good, full) == []
    assert "identifiable by structure" in notes(good, deficient)[0]
    assert "more measurements of the same kind do not help" in notes(lost, deficient)[0]
    assert "disagree" in notes(lost, full)[0]


def test_more_pieces_than_can_be_expanded_are_undecided_or_integrated():
    times = np.linspace(0.0, 1.0, 400)
    table = igpe.steps(times, np.where(np.arange(400) % 2, 1.0, 2.0))
    case = replace(Known("many", LINEAR, "a b", "x", ONE, "", ""), inputs=({"u": table},))
    exact = igpe.check(case.problem()).exact
    assert set(exact.verdicts.values()) <= {Verdict.UNDECIDED, Verdict.YES}
