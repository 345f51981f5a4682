"""Identifiability as inputs, measured windows and start values are, and the same at the optimum."""

import numpy as np
import pyomo.environ as pyo
import pytest
from known_designs import DESIGNS, LINEAR, ONE
from known_models import Known

import igpe
from igpe.estimation.summary import rank_notes
from igpe.numerics.covariance import uncertainty
from igpe.structure.identifiability import Identifiable
from igpe.structure.series.field import local_echelon

CASES = {case.name: case for case in DESIGNS}
PRIME = 2147483647


@pytest.mark.parametrize("case", DESIGNS, ids=lambda c: c.name)
def test_known_answers(case):
    exact = igpe.check(case.problem(), identifiability=None).exact
    assert set(exact.names(Identifiable.NO)) == set(case.lost.split())
    assert exact.names(Identifiable.UNDECIDED) == ()
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


def notes(case, jacobian, held=(False, False)):
    problem, jacobian = case.problem(), np.array(jacobian)
    bounds = problem.box.lower, problem.box.upper

    def errors(held):
        residual, x = np.ones(len(jacobian)), np.ones(2)
        return uncertainty(
            x, residual, jacobian, held=np.array(held), sigma_known=True, bounds=bounds
        )

    x, free = np.ones(2), errors((False, False))
    return rank_notes(problem, x, jacobian, errors(held), free=free).notes


def test_rank_of_the_data_and_verdicts_are_compared():
    good, lost = CASES["two rates, one step"], CASES["two rates, step after the last measurement"]
    full, deficient = [[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [2.0, 2.0]]
    assert notes(good, full) == ()
    assert "structurally identifiable" in notes(good, deficient)[0]
    assert "more measurements of the same kind do not help" in notes(lost, deficient)[0]
    assert "contradict each other" in notes(lost, full)[0]
    assert notes(good, deficient, held=(True, False)) == notes(good, deficient)  # a on its bound


def test_a_fit_with_an_unknown_that_nothing_depends_on_is_told_its_rank():
    case = Known("idle", {"x": "-k * c * x"}, "k c idle", "x", ONE, "k c idle", "")
    problem = case.problem()
    result = igpe.estimate(problem, seed=1)
    remarks = {p.name: p.remark for p in result.estimates}
    assert remarks["idle"] == "no measured quantity depends on it"
    note = next(n for n in result.notes if "not structurally identifiable" in n)
    assert note.startswith("k and c:")


@pytest.mark.parametrize(
    ("slope", "given", "lost"),
    [
        ("-Expr_if(u >= 0.5, a, b) * x", igpe.step_input([0, 0.4], [1, 0]), ""),
        ("-Expr_if(u >= 0.5, a, b) * x", igpe.linear_input([0, 1], [1, 0]), ""),
        (
            "-Expr_if(u >= 0.5, a, b) * x",
            igpe.step_input([0, 1.4], [1, 0]),
            "b",
        ),
        ("a * u - b * x", lambda t: pyo.Expr_if(t < 0.4, 1.0, 2.0), ""),
    ],
)
def test_conditions_on_inputs_and_in_inputs_are_pieces(slope, given, lost):
    case = Known("switched", {"x": slope}, "a b", "x", ONE, lost, "", inputs=({"u": given},))
    exact = igpe.check(case.problem()).exact
    assert set(exact.names(Identifiable.NO)) == set(lost.split())
    assert exact.names(Identifiable.UNDECIDED) == ()


def test_conditions_that_cannot_be_followed_leave_it_undecided():
    slope = "-Expr_if(x >= 0.5, a * (x - 0.5), b * (x - 0.5))"
    text = str(igpe.check(Known("state", {"x": slope}, "a b", "x", ONE, "", "").problem()))
    assert "Undecided at these start values and inputs: b." in text
    assert "numerical rank, not proved" in text


def test_a_start_that_never_moves_tells_nothing():
    """x stays at 0, so that neither its rate nor what it causes is seen."""
    slopes = {
        "x": "-k * x / (K + x)",
        "y": "-d * y + v * x ** n / (1 + x ** n)",
    }
    case = Known("rest", slopes, "k K d v n", "x y", {"x": 0.0, "y": 1.0}, "", "")
    exact = igpe.check(case.problem()).exact
    assert {n for n, v in exact.verdicts.items() if v is Identifiable.YES} <= {"d"}
    assert exact.unique <= {"d"}


def test_a_high_power_from_rest_is_seen_at_high_orders():
    """The first coefficient of y that feels h is of order 7."""
    slopes = {
        "x": "s - k * x",
        "y": "a * x ** 6 / (h ** 6 + x ** 6) - d * y",
    }
    exact = igpe.check(Known("sixth", slopes, "s k a h d", "x y", {}, "", "").problem()).exact
    assert set(exact.verdicts.values()) == {Identifiable.YES}


def test_a_step_beyond_the_last_measurement_tells_nothing():
    rate = "-k0 * exp(-E * 120 * (1 / T - 1 / 350)) * x"
    given = ({"T": igpe.step_input([0.0, 1.8], [333.8, 360.0])},)
    case = Known("beyond", {"x": rate}, "k0 E", "x", ONE, "k0 E", "", inputs=given)
    assert set(igpe.check(case.problem()).exact.names(Identifiable.NO)) == {"k0", "E"}


@pytest.mark.slow
def test_more_pieces_than_can_be_expanded_are_integrated():
    times = np.linspace(0.0, 1.0, 20_000)
    table = igpe.step_input(times, np.where(np.arange(len(times)) % 2, 1.0, 2.0))
    case = Known("many", LINEAR, "a b", "x", ONE, "", "", inputs=({"u": table},))
    exact = igpe.check(case.problem()).exact
    assert exact.numerical
    assert set(exact.verdicts.values()) == {Identifiable.YES}
