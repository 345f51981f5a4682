"""Structure analysis of models without algebraic variables."""

import numpy as np
import pandas as pd
import pytest
from ode import ode, row

from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.losses import PiecewiseConstant
from igpe.problem.noise.sigma import EstimatedSigma
from igpe.problem.problem import Problem
from igpe.structure.identifiability import Access, Dependence
from igpe.structure.report import either, sentence
from igpe.structure.structure import analyse
from igpe.structure.subsystems import Member

TIMES = np.linspace(0.0, 1.0, 6)


def run(*measured, **conditions):
    table = pd.DataFrame({"time": TIMES, **{name: TIMES + 1.0 for name in measured}})
    return Experiment(table, start_time=0.0, **conditions)


REACTIONS = (lambda m, t: m.k1 * m.x1[t] * m.x2[t], lambda m, t: m.k2 * m.x4[t] * m.x5[t])


def _slope(i):
    """Of x1 + x2 -> x3 and x4 + x5 -> x6 (IGPE, eqs. 6 to 11)."""
    sign, rate = 1 if i in (3, 6) else -1, REACTIONS[i > 3]
    return lambda m, t: sign * rate(m, t)


six_species = ode({f"x{i}": _slope(i) for i in range(1, 7)}, k1=(0, 10), k2=(0, 10))


def six(*measured):
    start = {f"x{i}": 1.0 for i in range(1, 7)}
    return Problem(six_species, parameters=["k1", "k2"], experiments=run(*measured, start=start))


consecutive = ode(
    {
        "A": lambda m, t: -m.k1 * m.A[t],
        "B": lambda m, t: m.k1 * m.A[t] - m.k2 * m.B[t],
        "C": lambda m, t: m.k2 * m.B[t],
    },
    outputs={"signal": lambda m, t: m.A[t] + m.B[t], "scaled": lambda m, t: m.scale * m.C[t]},
    k1=(0, 10),
    k2=(0, 10),
    scale=(0, 10),
    A0=(0, 10),
)
"""A -> B -> C."""


fed = ode({"A": lambda m, t: m.feed[t] - m.k * m.A[t]}, inputs=("feed",), k=(0, 10))
"""A vanishes and is fed."""


ABC = {"A": 1.0, "B": 0.0, "C": 0.0}


def chain(*runs, parameters=("k1", "k2"), **options):
    return Problem(consecutive, parameters=list(parameters), experiments=list(runs), **options)


def test_one_measured_species_leaves_its_reaction_to_the_dynamics_and_the_other_in_the_dark():
    found = analyse(six("x1"))
    assert found["k1"].reach is Access.DYNAMIC
    assert found["k1"].measure == (("x2",),)
    assert found["k2"].reach is Access.UNREACHABLE
    assert found["k2"].measure == (("x4",), ("x5",), ("x6",))
    assert found.groups == ()
    assert "measuring x2 as well would allow a direct estimate (step 3)" in str(found)
    assert (
        "no measured quantity depends on it. Measuring x4, x5 or x6 would make it identifiable."
        in str(found)
    )


def test_what_is_measured_once_is_to_be_measured_at_more_times():
    table = pd.DataFrame({"time": [2.0], "C": [1.0]})
    found = analyse(chain(Experiment(table, start_time=0.0, start=ABC)), most_work=1e7)
    assert found["k2"].measure == (("A", "B"), ("B", "C at more times"))
    assert "; measuring A and B, or B and C at more times would allow" in str(found)
    assert ("C at more times",) in found["k2"].freeing
    assert "C as well" not in str(found)
    assert "times as well" not in str(found)


def test_both_educts_measured_make_the_rate_algebraic():
    found = analyse(six("x1", "x2"))
    assert found.names(Access.ALGEBRAIC) == ("k1",)
    assert found["k1"].form is Dependence.LINEAR
    assert "k1  from the slopes of x1, x2: equations rate_x1, rate_x2 (linear)" in str(found)
    assert [s.equations for s in found.subsystems] == [("rate_x1",), ("rate_x2",)]


def test_independent_reactions_give_independent_problems():
    found = analyse(six("x1", "x2", "x4", "x5"))
    assert [g.parameters for g in found.groups] == [("k1",), ("k2",)]
    assert found.groups[1].members == (Member(0, "x4"), Member(0, "x5"))
    assert "2 independent problems: k1 | k2" in str(found)


def test_a_product_alone_needs_two_more_measurements():
    assert analyse(six("x3"))["k1"].measure == (("x1", "x2"),)


@pytest.mark.parametrize(
    ("measured", "algebraic", "others"),
    [
        (["A"], {"k1"}, {"k2": Access.UNREACHABLE}),
        (["B"], set(), {"k1": Access.DYNAMIC, "k2": Access.DYNAMIC}),
        (["C"], set(), {"k1": Access.DYNAMIC, "k2": Access.DYNAMIC}),
        (["A", "B"], {"k1", "k2"}, {}),
        (["A", "C"], {"k1"}, {"k2": Access.DYNAMIC}),
        (["B", "C"], {"k2"}, {"k1": Access.DYNAMIC}),
        (["A", "B", "C"], {"k1", "k2"}, {}),
    ],
)
def test_consecutive_reaction(measured, algebraic, others):
    found = analyse(chain(run(*measured, start=ABC)))
    assert set(found.names(Access.ALGEBRAIC)) == algebraic
    assert {f.unknown: f.reach for f in found.findings if f.unknown not in algebraic} == others


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ([("A",), ("B",), ("C",)], "A, B or C"),
        ([("A", "B"), ("C",), ("D", "E")], "A and B, C, or D and E"),
        ([("T[1,2]", "B", "C"), ("D", "E"), ("F",)], "T[1,2], B and C; D and E; or F"),
        ([tuple("ABCDEFGHIJ")], "A, B, C, D, E, F, G, H and 2 more"),
    ],
)
def test_sets_of_measurements_can_be_told_apart(sets, words):
    assert either(sets) == words


def test_advice_is_followed_by_what_it_promised():
    found = analyse(chain(run("C", start=ABC)))
    assert found["k2"].measure == (("B",),)
    assert found["k1"].measure == (("A",),)
    assert analyse(chain(run("C", "A", start=ABC)))["k1"].reach is Access.ALGEBRAIC


def test_measured_expression_recovers_an_unmeasured_state():
    found = analyse(chain(run("A", "C", "signal", start=ABC)))
    assert found["k2"].reach is Access.ALGEBRAIC
    (one,) = [s for s in found.subsystems if s.slopes == ("C",)]
    assert set(one.equations) == {"rate_C", "measured signal"}
    assert set(one.unknowns) == {"d(C)", "B"}


def test_measured_expression_of_measured_states_is_surplus():
    found = analyse(chain(run("A", "B", "signal", start=ABC)))
    assert [(s.equations, s.needless) for s in found.surplus] == [(("measured signal",), 1)]
    assert "measured signal relates only known variables" in str(found)


def test_scale_of_an_expression_is_in_its_slope():
    """scaled = scale C, C' = k2 B: the slope of what is measured is scale k2 B."""
    found = analyse(chain(run("B", "scaled", start=ABC), parameters=("k1", "k2", "scale")))
    assert found["scale"].reach is found["k2"].reach is Access.ALGEBRAIC
    assert found["k1"].reach is Access.DYNAMIC
    (one,) = found.subsystems
    assert set(one.equations) == {"rate_C", "derivative of measured scaled"}


def test_two_experiments_measure_different_states():
    first = run("A", start=ABC, name="first")
    second = run("B", "C", start=ABC, name="second")
    found = analyse(chain(first, second))
    assert found["k1"].reach is found["k2"].reach is Access.ALGEBRAIC
    assert [g.members for g in found.groups] == [(Member(0, "A"),), (Member(1, "C"),)]


def test_shared_parameters_couple_experiments_and_local_ones_do_not():
    runs = [run("A", start=ABC, name="a"), run("A", start=ABC, name="b")]
    (shared,) = analyse(chain(*runs)).groups
    assert shared.members == (Member(0, "A"), Member(1, "A"))
    assert shared.jointly == ("k1",)
    local = analyse(chain(*runs, local=["k1"]))
    assert [g.parameters for g in local.groups] == [("k1@a",), ("k1@b",)]


def test_local_unknown_is_judged_in_its_own_experiment():
    runs = [run("A", start=ABC, name="a"), run("B", "C", start=ABC, name="b")]
    found = analyse(chain(*runs, local=["k1", "k2"]))
    assert found["k1@a"].reach is Access.ALGEBRAIC
    assert found["k1@b"].reach is Access.DYNAMIC
    assert found["k2@a"].reach is Access.UNREACHABLE
    assert found["k1@b"].measure == (("A",),)


def test_advice_names_the_experiment_where_it_differs():
    runs = [run("B", start=ABC, name="a"), run("C", start=ABC, name="b")]
    assert analyse(chain(*runs))["k2"].measure == (("A in a",), ("C in a",), ("B in b",))


def test_fixed_parameters_are_known():
    problem = chain(run("A", "B", start=ABC)).fixing({"k1": 0.5})
    found = analyse(problem)
    assert [f.unknown for f in found.findings] == ["k2"]
    assert [s.equations for s in found.subsystems] == [("rate_B",)]
    everything = analyse(problem.fixing({"k2": 1.0}))
    assert str(everything) == "No unknowns are free."


def test_start_values_come_from_smoothing_where_the_state_is_measured():
    start = {"A": Unknown(0.0, 2.0), "B": Unknown(0.0, 1.0), "C": Unknown(0.0, 1.0)}
    found = analyse(chain(run("A", "C", start=start)))
    assert found.names(Access.SMOOTHING) == ("A(t0)", "C(t0)")
    assert found["B(t0)"].reach is Access.DYNAMIC
    assert found["B(t0)"].measure == (("B",),)
    assert "start value, from" in str(found)


def test_a_parameter_that_is_a_start_value_comes_from_smoothing():
    problem = chain(run("A", start={**ABC, "A": "A0"}), parameters=["k1", "k2", "A0"])
    assert analyse(problem)["A0"].states == ("A",)


def test_a_parameter_in_no_equation_is_said_to_be_so():
    found = analyse(chain(run("A", "B", start=ABC), parameters=["k1", "k2", "scale"]))
    assert "scale  not identifiable: no equation contains it." in str(found)


def test_many_unknowns_are_counted_by_kind():
    names = [f"k{i}" for i in range(30)]
    rate = {"x": lambda m, t: -sum(getattr(m, n) for n in names[:29]) * m.x[t]}
    model = ode(rate, **dict.fromkeys(names, (0, 1)))
    found = analyse(Problem(model, parameters=names, experiments=run("x", start={"x": 1.0})))
    first, slopes, unseen, hint, *_ = str(found).splitlines()
    assert first == "30 unknowns:"
    assert slopes.startswith("  29 from slopes, by algebra (linear): k0, k1, ")
    assert slopes.endswith(" and 21 more")
    assert unseen == "  1 cannot be estimated: k29"
    assert "to_frame()" in hint
    assert len(found.to_frame()) == 30


def test_a_state_measured_once_has_no_slope_but_is_seen():
    table = pd.DataFrame({"time": TIMES, "A": TIMES, "B": [np.nan] * 5 + [1.0]})
    found = analyse(chain(Experiment(table, start=ABC)))
    assert found["k1"].reach is Access.ALGEBRAIC
    assert found["k2"].reach is Access.DYNAMIC


def test_only_start_values_unknown():
    start = {**ABC, "A": Unknown(0.0, 2.0)}
    problem = chain(run("B", start=start)).fixing({"k1": 1.0, "k2": 1.0})
    assert analyse(problem)["A(t0)"].reach is Access.DYNAMIC


def test_a_function_of_time_that_is_unknown_is_no_datum():
    unknown = {"feed": PiecewiseConstant(breaks=(0.5,), lower=0.0, upper=1.0)}
    for measured, reach in ((["A"], Access.DYNAMIC), (["A", "feed"], Access.ALGEBRAIC)):
        experiment = run(*measured, start={"A": 1.0})
        problem = Problem(fed, parameters=["k"], experiments=experiment, time_varying=unknown)
        assert analyse(problem)["k"].reach is reach


def _made_of_the_one_before(m, i, t):
    gain = m.k[i - 1] * m.x[i - 1, t] if i > 1 else 0
    return gain - m.k[i] * m.x[i, t]


SIXTY = range(1, 61)
cascade = row(SIXTY, _made_of_the_one_before, indexed={"k": (SIXTY, (0, 1))})


def test_advice_on_a_long_cascade_is_local_and_ends_somewhere():
    start = {f"x[{i}]": 1.0 for i in range(1, 61)}
    found = analyse(Problem(cascade, parameters=["k"], experiments=run("x[60]", start=start)))
    assert found["k[1]"].measure == (("x[1]",),)
    assert found["k[9]"].measure == (("x[8]", "x[9]"), ("x[9]", "x[10]"))
    assert found["k[59]"].reach is Access.DYNAMIC
    assert found["k[59]"].measure == ()


def test_long_lists_are_cut():
    start = {f"x[{i}]": 1.0 for i in range(1, 61)}
    found = analyse(Problem(cascade, parameters=["k"], experiments=run("x[1]", start=start)))
    said = sentence(found["k[2]"])
    assert "x[9] or one of 51 more would make it identifiable" in said


def test_table_and_html():
    found = analyse(six("x1"))
    table = found.to_frame()
    assert list(table.index) == ["k1", "k2"]
    assert table.loc["k2", "measure"] == "x4 or x5 or x6"
    assert found._repr_html_().count("<tr>") == 3
    with pytest.raises(KeyError):
        found["k3"]


def test_unknowns_of_standard_deviations_are_named():
    decay = ode(
        {"x": lambda m, t: -m.k * m.x[t]},
        outputs={"sd": lambda m, _: m.spread},
        k=(0, 10),
        spread=(0.01, 10),
    )

    given = run("x", start={"x": 1.0}, sigma={"x": EstimatedSigma("sd")})
    structure = analyse(Problem(decay, parameters=["k", "spread"], experiments=given))
    assert [f.unknown for f in structure.findings] == ["k"]
    assert "Only standard deviations contain spread." in str(structure)
    assert structure.warnings == ()
