"""Everything a user can get wrong: which error it is, and that its message helps.

Each message must say what was found, what was wanted, and what to do.
"""

from collections.abc import Iterable
from typing import Any

import bad_data
import bad_kinds
import bad_models as bad
import bad_problems
import numpy as np
import pandas as pd
import pytest
from spoiling import pose, run, table

from igpe.core.errors import DataError, IgpeError, ModelError, ProblemError
from igpe.equations.compiled import compiled
from igpe.problem.inputs import step_input

GROUPS = {
    DataError: (
        bad_data.TABLES,
        bad_data.CONDITIONS,
        bad_problems.INPUTS,
        bad_kinds.EXPERIMENTS,
        bad_kinds.RESULTS,
    ),
    ProblemError: (
        bad_data.UNFIT,
        bad_problems.SETTINGS,
        bad_problems.STARTS,
        bad_kinds.PROBLEMS,
    ),
    ModelError: (bad_problems.MODELS, bad_kinds.PARMEST),
}
CASES = {
    name: (error, *case)
    for error, groups in GROUPS.items()
    for group in groups
    for name, case in group.items()
}


def test_no_case_hides_another() -> None:
    assert len(CASES) == sum(len(group) for groups in GROUPS.values() for group in groups)


@pytest.mark.parametrize("name", list(CASES))
def test_it_is_refused_with_a_helpful_sentence(name: str) -> None:
    error, attempt, says = CASES[name]
    with pytest.raises(IgpeError) as caught:
        attempt()
    message = str(caught.value)
    assert type(caught.value) is error, message
    assert [part for part in says.split(" | ") if part not in message] == [], message


def test_too_many_equations_do_not_speak_of_space_and_inputs_without_need() -> None:
    with pytest.raises(ModelError, match="'circle'") as caught:
        bad_problems.read_pendulum()
    assert str(caught.value).endswith(
        "Remove an equation that follows from others, or add a missing equation."
    )


def test_the_sound_problem_is_accepted() -> None:
    assert compiled(pose()).systems[0].unknown_names == ("d(A)", "B")


@pytest.mark.parametrize("wrong", [{}, {"parameters": ["k9"]}, {"local": ["q"]}])
def test_what_the_user_gave_is_not_changed(wrong: dict[str, Any]) -> None:
    data = table(A=[1.0, np.nan, 0.2], s=[0.1, 0.1, 0.2])
    times, values = np.array([0.0, 1.0]), np.array([1.0, 2.0])
    series = pd.Series([1.0, 2.0], index=[0.0, 1.0])
    start, sigma, units = {"A": 1.0}, {"A": "s"}, {"A": "mmol"}
    before = data.copy(), series.copy(), dict(start), dict(sigma), dict(units)
    for given in (series, step_input(times, values)):
        inputs = {"feed": given}
        one = run(data, start=start, sigma=sigma, units=units, inputs=inputs)
        measured = one.measurements.value.copy()
        try:
            compiled(pose(experiments=[one], **wrong))
        except IgpeError:
            assert wrong
        assert one.measurements.value.tolist() == measured.tolist()
        assert inputs == {"feed": given}
        assert one.name == ""
    pd.testing.assert_frame_equal(data, before[0])
    pd.testing.assert_series_equal(series, before[1])
    assert (start, sigma, units) == before[2:]
    assert (times.tolist(), values.tolist()) == ([0.0, 1.0], [1.0, 2.0])


def test_the_users_model_objects_are_not_changed() -> None:
    built = []

    def keeps(times: Iterable[float]) -> Any:
        built.append(bad.model(times))
        return built[-1]

    problem = pose(keeps)
    described = [(_described(m), m) for m in built]
    compiled(problem)
    problem.fixing({"k": 1.0})
    assert [d for d, _ in described] == [_described(m) for _, m in described]


def _described(model: Any) -> list[tuple[str, str, Any]]:
    """Name, expression and value of every component."""
    return [
        (c.name, str(getattr(c, "expr", "")), getattr(c, "value", None))
        for c in model.component_data_objects(descend_into=True)
    ]


def test_a_point_of_time_alone_does_not_reach_pyomo(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(IgpeError):
        pose(experiments=[run(table([0.0], A=[1.0]))])
    assert caplog.records == []
