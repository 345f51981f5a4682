"""Fields that check themselves (`igpe.core.arguments`)."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest

from igpe.core.arguments import (
    Checked,
    Count,
    CountFrom1,
    CountOrNone,
    Flag,
    Fraction,
    NotNegative,
    Positive,
    PositiveOrNone,
    instance_of,
    one_of,
)
from igpe.core.errors import ProblemError


@dataclass(frozen=True)
class Base(Checked):
    rtol: Positive = 1e-8
    limit: PositiveOrNone = None


@dataclass(frozen=True)
class Method(Base):
    floor: NotNegative = 0.0
    share: Fraction = 0.5
    seed: Count = 0
    starts: CountFrom1 = 1
    most: CountOrNone = None
    record: Flag = False
    form: Annotated[str, one_of("linear", "log")] = "linear"
    inner: Annotated[Base, instance_of(Base)] = Base()


@pytest.mark.parametrize(
    ("field", "bad", "good"),
    [
        ("rtol", (0, -1.0, np.nan, np.inf, "1", None), (1, 1e-300, np.float64(2))),
        ("limit", (0, np.nan, "x"), (None, 3)),
        ("floor", (-1e-9, np.nan, None), (0, 2.5)),
        ("share", (0, 1, np.nan), (1e-9, 0.99)),
        ("seed", (-1, 1.5, True, "0"), (0, np.int64(7))),
        ("starts", (0, 2.0, None), (1, 10)),
        ("most", (0, 1.0), (None, 1)),
        ("record", (1, 0, None, "yes"), (True, False)),
        ("form", ("cubic", 0, None), ("log",)),
        ("inner", (None, Base), (Base(rtol=1.0),)),
    ],
)
def test_a_field_takes_what_its_rule_says(field, bad, good):
    for value in good:
        assert getattr(Method(**{field: value}), field) is value
    for value in bad:
        with pytest.raises(ProblemError, match=rf"^{field} is .*; Method needs "):
            Method(**{field: value})
