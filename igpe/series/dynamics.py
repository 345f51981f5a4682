"""An initial value problem with outputs, as it is expanded in power series."""

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, eq=False)
class Dynamics:
    """dx = f(x, y, q, u, t),  0 = g(x, y, q, u, t),  x(t0) = start(q). All symbols are SX columns.

    x, y, q, u, t    symbols: states, implicit algebraic variables, unknowns, inputs, time
    f, g, start      see above
    outputs          SX column in the same symbols
    t0               the time at which the series begin
    columns          (n_q,) which of all unknowns each q is
    inputs           (n_u,) keys: an input is a function of time of which nothing is known; inputs
                     with the same key are the same function, in whichever experiments
    """

    x: Any
    y: Any
    q: Any
    u: Any
    t: Any
    f: Any
    g: Any
    start: Any
    outputs: Any
    t0: float
    columns: tuple[int, ...]
    inputs: tuple[Hashable, ...] = field(default=())

    @property
    def symbols(self) -> list[Any]:
        """The arguments of f, g and the outputs."""
        return [self.x, self.y, self.q, self.u, self.t]
