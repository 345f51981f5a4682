"""One CasADi column from many expressions."""

from collections.abc import Iterable
from typing import Any

import casadi as ca


def stack(expressions: Iterable[Any]) -> Any:
    """SX column vector of the expressions; 0 x 1 if there are none."""
    entries = list(expressions)
    return ca.SX(ca.vertcat(*entries)) if entries else ca.SX(0, 1)
