"""Structural identifiability of models with known answers, and of their variations."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from known_models import CASES, PULSE, SIX, TIMES, Known, cascade, checked
from repeated import statistical

import igpe
from igpe.structure.identifiability import Identifiable, identifiability, moved_unknowns
from igpe.structure.posed import pose


def examined(problem, seed=0, **options):
    posed = [pose(problem, i) for i in range(len(problem.experiments))]
    return identifiability(problem, posed, seed=seed, **options)


def lost(problem, seed=0):
    """Unknowns that are not identifiable; nothing may be undecided."""
    found = examined(problem, seed)
    assert found.why == ""
    return set(found.names(Identifiable.NO))


SIMULATED = (
    "STAT5, amount unknown",
    "three compartments, two losses",
    "dimer, implicit",
    "Arrhenius, energy of each run",
    "SIR, share of prevalence",
    "HIV, virus and cells",
)


@pytest.mark.parametrize("name", SIMULATED)
def test_integrations_say_the_same(name):
    """Independent of all exact arithmetic: singular values of integrated sensitivities."""
    problem = CASES[name].problem()
    moved = moved_unknowns(problem, seed=0)
    seen = {n for n, m in zip(problem.box.names, moved, strict=True) if m}
    assert seen == lost(problem)


def test_integrations_leave_open_what_is_too_small_to_see():
    """Both rates are identifiable; but B is gone before anything is seen of b."""
    slopes = {"A": "-exp(a + b) * A", "B": "-exp(a) * B"}
    case = Known("fast", slopes, "a b", "A B", {"A": 1.0, "B": 1.0}, "", "", bounds=(5.0, 10.0))
    problem = case.problem()
    assert lost(problem) == set()
    moved = moved_unknowns(problem, seed=0)
    assert moved is None or not moved.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bolie, glucose", statistical("Goodwin, unknown exponent")])
def test_the_same_seed_gives_the_same_answer_and_other_seeds_the_same_verdicts(name):
    problem = CASES[name].problem()
    assert examined(problem, 3) == examined(problem, 3)
    assert all(lost(problem, seed) == lost(problem) for seed in range(1, 6))


@pytest.mark.parametrize(
    "name",
    [statistical("STAT5, amount unknown"), "Bolie, glucose", "gas oil, product, feed unknown"],
)
def test_what_is_advised_frees(name):
    case = CASES[name]
    measure = examined(case.problem()).measure
    assert set(measure) == set(case.lost.split())
    for unknown, sets in measure.items():
        assert sets
        for names in sets:
            more = replace(case, measured=" ".join([case.measured, *names]))
            assert unknown not in lost(more.problem())


@pytest.mark.parametrize(
    "name", ["Vajda", "gas oil, product, feed unknown", "SIR, share of prevalence"]
)
def test_advice_is_all_the_smallest_sets(name):
    case = CASES[name]
    before, measure = lost(case.problem()), examined(case.problem()).measure
    others = [n for n in case.slopes if n not in case.measured.split()]
    freed: dict[str, dict[int, set]] = {unknown: {} for unknown in before}
    for size in (1, 2):
        for names in combinations(others, size):
            more = replace(case, measured=" ".join([case.measured, *names]))
            for unknown in before - lost(more.problem()):
                freed[unknown].setdefault(size, set()).add(names)
    assert {n: set(sets) for n, sets in measure.items()} == {
        n: sets[min(sets)] if sets else set() for n, sets in freed.items()
    }


def test_pairs_are_advised_where_no_single_measurement_frees():
    case = Known(
        "product",
        {"A": "p * B * C", "B": "-k * B", "C": "-l * C"},
        "p k l",
        "A",
        {"B": "?", "C": "?"},
        "p k l B(t0) C(t0)",
        "by hand: A' = p B(t0) C(t0) exp(-(k + l) t)",
    )
    found = examined(case.problem())
    assert [c.functions for c in found.combinations] == [("p*B(t0)*C(t0)",), ("k + l",)]
    assert found.measure["p"] == (("B", "C"),)
    assert found.measure["k"] == (("B",), ("C",))
    assert found.measure["C(t0)"] == (("C",),)


def test_advice_is_not_looked_for_where_nothing_helps():
    case = replace(CASES["Arrhenius, one temperature"], name="Arrhenius")
    found = examined(case.problem())
    assert found.measure == {"k": (), "E": ()}


def test_known_zero_starts_count_as_zero():
    case = Known(
        "dead branch",
        {"A": "-k * A + s * B", "B": "-d * B"},
        "k s d",
        "A",
        {"A": 1.0, "B": 0.0},
        "s d",
        "by hand: B stays zero",
    )
    assert lost(case.problem()) == {"s", "d"}
    assert lost(replace(case, start={"A": 1.0, "B": 1.0}).problem()) == set()
    assert lost(replace(case, start={"A": 1.0, "B": "?"}).problem()) == {"s", "B(t0)"}


def test_a_varying_input_tells_more_than_a_constant_one():
    tank = CASES["fed tank"]
    leak = {"h": "(q - c * h - d) / area"}
    constant = replace(tank, slopes=leak, parameters="c d area", inputs=({"q": 0.5},))
    assert lost(constant.problem()) == {"c", "d", "area"}
    varying = replace(constant, inputs=({"q": PULSE},))
    assert lost(varying.problem()) == set()
    function = replace(constant, inputs=({"q": lambda t: 1 + t},))
    assert lost(function.problem()) == set()
    resting = replace(constant, inputs=({"q": pd.Series([0.5, 0.5], index=[0.0, 1.0])},))
    assert lost(resting.problem()) == lost(constant.problem())


def test_the_same_table_in_two_experiments_is_the_same_function():
    """d, before a difference of two inputs, is not seen where they are one."""
    case = Known(
        "two feeds",
        {"A": "k * u + d * (u - w)"},
        "k d",
        "A",
        {"A": 1.0},
        "d",
        "by hand: u = w",
        inputs=({"u": PULSE, "w": PULSE},),
    )
    assert lost(case.problem()) == {"d"}
    assert lost(replace(case, inputs=({"u": PULSE, "w": 2 * PULSE},)).problem()) == {"k", "d"}
    assert lost(replace(case, inputs=({"u": PULSE, "w": PULSE**2},)).problem()) == set()


def measured_at(times, case, **conditions):
    table = pd.DataFrame({"time": times, **{n: times for n in case.measured.split()}})
    run = igpe.Experiment(table, start_time=0.0, **conditions)
    return igpe.Problem(case.model, parameters=case.parameters.split(), experiments=run)


def test_one_measurement_gives_one_combination_two_give_two():
    case = Known("decay", {"A": "-k * A"}, "k", "A", {}, "", "")
    start = {"A": igpe.Unknown(0.0, 2.0)}
    assert lost(measured_at([1.0], case, start=start)) == {"k", "A(t0)"}
    assert lost(measured_at([0.0, 1.0], case, start=start)) == set()
    at_start = pd.DataFrame({"time": [0.0, 1.0], "A": [1.0, np.nan], "B": [np.nan, 1.0]})
    two = Known("two", {**case.slopes, "B": "A"}, "k", "A B", {}, "", "")
    run = igpe.Experiment(at_start, start={**start, "B": 0.0}, start_time=0.0)
    one_each = igpe.Problem(two.model, parameters=["k"], experiments=run)
    assert lost(one_each) == set()


def test_starts_at_which_equations_are_undefined_are_left_to_integrations():
    """A' = k sqrt(A) from 0 stays at 0, or leaves it at any time."""
    case = Known("root", {"A": "k * sqrt(A)"}, "k", "A", {"A": 0.0}, "", "")
    found = examined(case.problem())
    assert found.generic
    assert found.names(Identifiable.YES) == ()
    assert "given start values are treated as arbitrary" in str(igpe.check(case.problem()))


def test_implicit_equations_without_linear_unknowns_take_start_values_as_any():
    case = CASES["dimer, implicit"]
    problem = case.problem().fixing({"K": 0.5})
    found = examined(problem)
    assert found.generic
    assert found.names(Identifiable.YES) == ("k",)
    assert "cannot use the given start values" in found.why_not


def test_implicit_equations_of_several_experiments_may_share_an_unknown():
    """Two roots, one linear unknown: the second start value has to give way."""
    found = examined(replace(CASES["dimer, implicit"], inputs=({}, {})).problem())
    assert found.generic
    assert found.names(Identifiable.YES) == ("k", "K")


def test_long_linear_blocks_are_solved_as_implicit_ones():
    ring = Known(
        "ring",
        {"A": "-k * z4"},
        "k a",
        "A",
        {"A": 1.0},
        "k a",
        "by hand: A' = -k c(a) A",
        algebraic={
            "z1": "z1 + a * z2 - A",
            "z2": "z2 + 2 * z3 - A",
            "z3": "z3 - z4 + 0.5 * z1 - 0.2 * A",
            "z4": "3 * z4 + z1 - 0.7 * A",
        },
    )
    assert lost(ring.problem()) == {"k", "a"}
    assert not examined(ring.problem()).generic
    assert lost(replace(ring, measured="A z2").problem()) == set()


def test_functions_with_corners_are_undecided_or_integrated():
    case = Known(
        "corner", {"A": lambda v: -v.k * abs(v.A) * v.s}, "k s", "A", {"A": 1.0}, "k s", ""
    )
    problem = case.problem()
    found = igpe.check(problem)
    assert found.exact.numerical
    assert found.exact.names(Identifiable.UNDECIDED) == ("k", "s")
    assert "not identifiable at the points tried, but may be identifiable at others" in str(found)


def test_a_long_test_is_left_until_it_is_asked_for():
    problem = CASES["six species, both reactions"].problem()
    assert "long" in examined(problem, most_work=1.0).why
    assert igpe.check(problem, identifiability=False).exact.why == ""
    assert "dentifiable" not in str(igpe.check(problem, identifiability=False))


def test_unknowns_that_vary_with_time_are_undecided():
    case = Known("fed", {"A": "u - k * A"}, "k", "A", {"A": 1.0}, "", "", inputs=({"u": PULSE},))
    run = igpe.Experiment(pd.DataFrame({"time": TIMES, "A": TIMES}), start={"A": 1.0}, start_time=0)
    unknown = {"u": igpe.losses.PiecewiseConstant(breaks=(0.5,), lower=0.0, upper=1.0)}
    problem = igpe.Problem(case.model, parameters=["k"], experiments=run, time_varying=unknown)
    assert "vary with time" in examined(problem).why


def test_constraints_without_time_are_said_to_be_left_out():
    def tied(times):
        m = CASES["gas oil, feed"].model(times)
        m.tie = pyo.Constraint(expr=m.p1 == 2 * m.p3)
        return m

    table = pd.DataFrame({"time": TIMES, "y1": TIMES, "y2": TIMES})
    run = igpe.Experiment(table, start={"y1": 1.0, "y2": 0.0}, start_time=0.0)
    problem = igpe.Problem(tied, parameters=["p1", "p2", "p3"], experiments=run)
    assert "tie left out" in str(igpe.check(problem))


def test_words():
    text = str(checked("STAT5, amount unknown"))
    assert (
        "p2, s1, s2, x1(t0): the data can determine only p2*x1(t0), s1*x1(t0) and s2*x1(t0)" in text
    )
    assert "measuring x1, x2, x3, q1, q2 or q3 as well would make them identifiable" in text
    assert "would allow a direct estimate (step 3); globally identifiable\n" in text
    assert "(exact rank at random points; for nearly all durations" in text
    assert "(exact rank, proved)" in str(checked("FitzHugh and Nagumo"))
    text = str(checked("Arrhenius, one temperature"))
    assert "k, E: the data can determine only k*exp(c*E) (c is known)" in text
    assert "exp by differential equation" in text
    text = str(checked("two compartments, two losses"))
    assert "k01, k21, k12, k02: the data can determine only 3 combinations" in text


def test_table_has_the_verdicts():
    table = checked("Bolie, glucose").to_frame()
    assert table.loc["p1", "identifiable"] == "identifiable"
    assert table.loc["p2", "identifiable"] == "not identifiable"
    assert table.loc["p2", "determined"] == "p2*p4"
    assert table.loc["p2", "freeing"] == "I"


def test_unreachable_unknowns_are_freed_by_what_identifies_them():
    """To see k2 at all x6 would do; but with a scale of its own only x4 or x5 tell k2."""
    case = replace(CASES["six species, one measured"], parameters="k1 k2 s")
    case = replace(case, slopes={**SIX, "x6": "s * k2 * x4 * x5"})
    found = igpe.check(case.problem())
    assert found["k2"].measure == (("x4",), ("x5",), ("x6",))
    assert found["s"].measure == (("x6",),)


def test_a_long_chain_of_twenty_states_and_thirty_parameters():
    problem = cascade(20, measured=(20,))
    assert len(problem.box) == 30
    assert lost(problem) == set()
    first = cascade(20, measured=(1,))
    assert len(lost(first)) == 28
