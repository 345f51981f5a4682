"""An initial value problem with outputs, as it is expanded in power series."""

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import casadi as ca

from igpe.equations.symbols import stack


class Piece(NamedTuple):
    """The inputs between two of their breaks; times count from the start.

    At time t0 + e s input i is levels[i] + e (rises[i] + slopes[i] (s - start)): at e = 1 as it is
    given, and for small e the experiment in which all times and ramps are e times as long.

    start, end  of the piece; end: None after the last break
    """

    start: Fraction
    end: Fraction | None
    levels: tuple[Fraction, ...]
    rises: tuple[Fraction, ...]
    slopes: tuple[Fraction, ...]


@dataclass(frozen=True, eq=False)
class Dynamics:
    """dx = f(x, y, q, u, t),  0 = g(x, y, q, u, t),  x(t0) = start(q). All symbols are SX columns.

    x, y, q, u, t    symbols: states, implicit algebraic variables, unknowns, inputs, time
    f, g, start      see above
    outputs          SX column in the same symbols
    t0               the time at which the series begin
    columns          (n_q,) which of all unknowns each q is
    inputs           (n_u,) keys: without pieces an input is a function of time of which nothing is
                     known; inputs with the same key are the same function
    pieces           the inputs as they are, up to the last measurement
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
    pieces: tuple[Piece, ...] = ()

    @property
    def symbols(self) -> list[Any]:
        """The arguments of f, g and the outputs."""
        return [self.x, self.y, self.q, self.u, self.t]

    def instants(self) -> "list[Dynamics]":
        """The dynamics as each piece begins, its inputs as numbers; itself without pieces."""
        levels = dict.fromkeys(piece.levels for piece in self.pieces)
        return [self._held(one) for one in levels] or [self]

    def _held(self, levels: tuple[Fraction, ...]) -> "Dynamics":
        old, new = [self.u], [stack(float(v) for v in levels)]
        f, g, outputs = ca.substitute([self.f, self.g, self.outputs], old, new)
        empty = ca.SX(0, 1)
        return replace(self, u=empty, f=f, g=g, outputs=outputs, inputs=(), pieces=())
