"""Each smoother says what it makes of the data."""

from typing import Any

import pytest

import igpe
from igpe.smoothing.base import description


class Mine:
    """A user's smoother, which has no description."""

    def smooth(self, times: Any, values: Any, **given: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("smoother", "expected"),
    [
        (igpe.smoothing.GcvSpline(), "smoothed data"),
        (
            igpe.smoothing.GcvSpline(penalty_factor=0.1),
            "data smoothed with 0.1 times the GCV penalty",
        ),
        (igpe.smoothing.Interpolation(), "interpolated data"),
        (
            igpe.smoothing.BootstrapErrors(igpe.smoothing.Interpolation()),
            "interpolated data (errors by bootstrap)",
        ),
        (Mine(), "data smoothed by Mine"),
    ],
)
def test_a_smoother_says_what_it_makes_of_the_data(smoother: Any, expected: str) -> None:
    assert description(smoother) == expected
