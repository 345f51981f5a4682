"""Plans and measurements in a file, day after day."""

import json

import numpy as np
import pandas as pd
import pytest
from test_design_limits import AT, FREE, P, unconstrained

import igpe

GIVEN = {
    "free": FREE,
    "times": P.Sampling(np.linspace(0.5, 4, 8), at_most=4),
    "pool": 16,
    "starts": 1,
}


def nothing():
    """A model without measurements."""
    return P.ProblemWithoutData(unconstrained, ["k", "E"], ["A"], 4.0, start={"V": 1.0})


def test_a_series_continues_from_its_file(tmp_path):
    path = tmp_path / "series.json"
    first = P.DesignSeries(path, nothing()).plan(AT, measure={"A": 0.02}, **GIVEN)
    again = P.DesignSeries(path, nothing())  # the next day
    assert again.open_plan.sentence == first.sentence
    sheet = first.simulated(seed=1)
    again.add(sheet)
    assert again.open_plan is None
    result = igpe.estimate(again.problem, certify=False)
    second = again.plan(result, **GIVEN, experiments=2)
    assert second.before == pytest.approx(first.after, rel=0.5)  # at other values
    assert [e.name for e in second.experiments] == ["plan2", "plan3"]
    last = P.DesignSeries(path, nothing())
    filled = second.simulated(seed=2)
    filled.to_csv(tmp_path / "sheet.csv", index=False)
    last.add(tmp_path / "sheet.csv")
    problem = P.DesignSeries(path, nothing()).problem
    assert [e.name for e in problem.experiments] == ["plan1", "plan2", "plan3"]
    values = problem.experiments[2].measurements.of("A")[1]
    assert values == pytest.approx(filled.loc[filled["experiment"] == "plan3", "A"])
    assert list(last.table["measured"]) == [True, True]
    assert "2 plans in" in repr(last)


def test_a_series_of_a_problem_with_data_keeps_its_experiments(tmp_path):
    table = pd.DataFrame({"time": [1.0, 2.0, 3.0], "A": [0.62, 0.36, 0.23]})
    run = igpe.Experiment(table, start={"A": 1.0, "V": 1.0}, sigma=0.02, name="before")
    problem = igpe.Problem(unconstrained, parameters=["k", "E"], experiments=run)
    series = P.DesignSeries(tmp_path / "series.json", problem)
    plan = series.plan(AT, **GIVEN, experiments=2)
    some = plan.simulated(seed=1)
    series.add(some[some["experiment"] == "plan1"])  # the other one failed
    assert [e.name for e in series.problem.experiments] == ["before", "plan1"]


def test_wrong_order_is_refused_and_a_plan_can_be_discarded(tmp_path):
    path = tmp_path / "series.json"
    series = P.DesignSeries(path, nothing())
    with pytest.raises(igpe.errors.ProblemError, match="Every plan of this series already has"):
        series.add(pd.DataFrame({"time": [1.0], "A": [1.0]}))
    series.plan(AT, measure={"A": 0.02}, **GIVEN)
    with pytest.raises(igpe.errors.ProblemError, match="Plan 1 has no measurements yet"):
        series.plan(AT, measure={"A": 0.02}, **GIVEN)
    with pytest.raises(igpe.errors.DataError):
        series.add(pd.DataFrame({"time": [1.0], "B": [1.0]}))
    assert P.DesignSeries(path, nothing()).open_plan is not None  # nothing is lost
    series.discard()
    assert P.DesignSeries(path, nothing()).plans == ()


def test_discarded_measurements_are_replaced(planned_file, tmp_path):
    path = tmp_path / "series.json"
    path.write_text(planned_file[0])
    series, sheet = P.DesignSeries(path, nothing()), planned_file[1]
    series.add(sheet.assign(A=2 * sheet["A"]))
    series.discard()
    assert len(series.plans) == 1
    series.add(sheet)
    assert list(series.problem.experiments[0].measurements.value) == list(sheet["A"])
    for _ in range(3):  # more than there is
        series.discard()
    assert P.DesignSeries(path, nothing()).plans == ()


def test_other_files_and_problems_are_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text('{"stored": "plan", "format": 2}')
    with pytest.raises(igpe.errors.DataError, match=r"not a series of plans; give .*DesignSeries"):
        P.DesignSeries(path, nothing())
    for content in ("[3]", "3", '[{"criterion": "DOptimal"}]'):
        head = '{"stored": "series of plans", "format": 1, "sheets": [], "plans": '
        path.write_text(head + content + "}")
        with pytest.raises(igpe.errors.DataError, match="damaged"):
            P.DesignSeries(path, nothing())
    with pytest.raises(igpe.errors.ProblemError, match="DesignSeries got a int"):
        P.DesignSeries(path, 3)
    with pytest.raises(igpe.errors.ProblemError, match="path of a DesignSeries"):
        P.DesignSeries(3, nothing())
    with pytest.raises(igpe.errors.DataError, match="folder"):  # before hours of planning
        P.DesignSeries(tmp_path / "missing" / "series.json", nothing())


@pytest.fixture(scope="module")
def planned_file(tmp_path_factory):
    """A file with an open plan, and a completed sheet."""
    path = tmp_path_factory.mktemp("series") / "series.json"
    plan = P.DesignSeries(path, nothing()).plan(AT, measure={"A": 0.02}, **GIVEN)
    return path.read_text(), plan.simulated(seed=1)


@pytest.mark.parametrize(
    "change",
    [
        {"plans": 3},
        {"plans": [3]},
        {"plans": None},
        {"sheets": [{"time": [1.0], "A": [1.0]}] * 2},
        {"sheets": [{"time": [1.0, 2.0], "A": [1.0]}]},
        {"sheets": [{"B": [1.0]}]},
    ],
    ids=str,
)
def test_damaged_files_are_refused(change, planned_file, tmp_path):
    path = tmp_path / "series.json"
    path.write_text(json.dumps({**json.loads(planned_file[0]), **change}))
    with pytest.raises(igpe.errors.DataError):
        P.DesignSeries(path, nothing())


def test_measurements_that_another_session_stored_are_not_overwritten(planned_file, tmp_path):
    path = tmp_path / "series.json"
    path.write_text(planned_file[0])
    one, other = P.DesignSeries(path, nothing()), P.DesignSeries(path, nothing())
    one.add(planned_file[1])
    for change in (other.discard, lambda: other.add(planned_file[1])):
        with pytest.raises(igpe.errors.DataError, match="changed by another DesignSeries"):
            change()
    assert P.DesignSeries(path, nothing()).open_plan is None


def test_a_sheet_may_have_notes_and_a_wrong_one_is_not_stored(planned_file, tmp_path):
    path, sheet = tmp_path / "series.json", planned_file[1]
    path.write_text(planned_file[0])
    series = P.DesignSeries(path, nothing())
    with pytest.raises(igpe.errors.DataError):
        series.add(sheet.assign(time=sheet["time"] - 10))  # before the experiment starts
    assert P.DesignSeries(path, nothing()).open_plan is not None
    series.add(sheet.assign(day=pd.Timestamp("2024-05-01"), note=pd.NA))
    again = P.DesignSeries(path, nothing()).problem
    assert again.experiments[0].measurements.of("A")[1] == pytest.approx(sheet["A"])
    with pytest.raises(igpe.errors.DataError, match="does not match the problem"):
        P.DesignSeries(path, again)  # its measurements would count twice
