"""Connected subsets of reactions, beside an enumeration by hand."""

import pytest

import igpe
from igpe import kinetics
from igpe.core.errors import ModelError
from igpe.selection.behaviour import has_no_match

POSSIBLE = ["A -> B", "B -> C", "D -> E"]


def test_subsets_are_connected_and_can_run():
    assert list(kinetics.networks(POSSIBLE, at_most=3)) == [*POSSIBLE, "A -> B; B -> C"]
    assert list(kinetics.networks(POSSIBLE, at_most=2, present=["A"])) == [
        "A -> B",
        "A -> B; B -> C",
    ]
    back = kinetics.networks(["A <-> B", "C -> B"], at_most=2, present=["B"])
    assert list(back) == ["A <-> B"]


def test_constants_keep_their_names_and_other_species_stay_constant():
    reactor = kinetics.networks(POSSIBLE, at_most=2, bounds={"k2": (0, 3)})["B -> C"]
    assert reactor.parameters == ("k2",)
    assert set(reactor.species) == set("ABCDE")
    import pandas as pd  # noqa: PLC0415

    start = dict.fromkeys("ABCDE", 0.7)
    e = igpe.Experiment(pd.DataFrame({"time": [0.5, 1.0], "C": [1.0, 1.0]}), start=start, sigma=0.1)
    problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=e)
    run = igpe.simulate(problem, {"k2": 1.0}, [0.5, 1.0])
    assert run["A"].to_list() == pytest.approx([0.7, 0.7])
    assert run["B"].iloc[0] < 0.7


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"at_most": 0}, "at_least=1 and at_most=0"),
        ({"at_most": 2, "present": ["X"]}, "`present` is"),
        ({"at_most": 2, "always": ["A -> X"]}, "`always` is"),
        ({"at_most": 1, "present": ["C"]}, "No connected network"),
    ],
)
def test_what_makes_no_network_is_refused(settings, message):
    with pytest.raises(ModelError, match=message):
        kinetics.networks(POSSIBLE, **settings)


def test_algebra_proves_which_network_cannot_give_anothers_outputs():
    """Of C alone: A -> B -> C begins with slope 0, parallel reactions do not."""
    import pandas as pd  # noqa: PLC0415

    table = pd.DataFrame({"time": [1.0, 2.0, 3.0, 4.0], "C": 0.0})
    e = igpe.Experiment(table, start={"A": 1.0, "B": 0.0, "C": 0.0}, start_time=0.0, sigma=0.1)
    made = {}
    for n, r in kinetics.networks(["A -> B", "B -> C", "A -> C"], at_most=3).items():
        made[n] = igpe.Problem(r, parameters=r.parameters, experiments=e)
    series, parallel, both = "A -> B; B -> C", "A -> B; A -> C", "A -> B; B -> C; A -> C"
    assert has_no_match(made[series], made[parallel])
    assert has_no_match(made[both], made[series])
    assert not has_no_match(made[series], made[both])
    assert not has_no_match(made[parallel], made[both])
