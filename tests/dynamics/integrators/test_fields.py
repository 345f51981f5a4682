"""An integrator's fields are checked where it is made."""

import math
import re

import numpy as np
import pytest
from initial_values import every_method

from igpe.core.errors import ProblemError


@every_method
@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[(n, v) for n in ("rtol", "atol") for v in (0.0, -1e-8, math.nan, math.inf, "1e-8", None)],
        *[("max_steps", v) for v in (0, -1, 1.5, True, 2**31, math.inf, "9")],
        *[("largest", v) for v in (1.0, -5.0, math.nan, None)],
        *[("seconds", v) for v in (0.0, -1.0, math.nan, "60")],
    ],
)
def test_what_means_nothing_is_refused(method, name, value):
    with pytest.raises(ProblemError) as refused:
        method(**{name: value})
    assert re.match(rf"{name} is .*; {method.__name__} needs a ", str(refused.value))


@every_method
def test_numbers_of_any_kind_are_taken(method):
    made = method(rtol=np.float64(1e-6), max_steps=np.int64(7), largest=math.inf, seconds=5)
    assert made.max_steps == 7
