"""An initial value problem whose states are states and sensitivities, as a function of a design.

With S = dx/dp W, Y = dy/dp W and the design d (start values, inputs, operating parameters),

    dx = f(t, x, y, d),     dS = f_x S + f_y Y + f_p W,     0 = g,   0 = g_x S + g_y Y + g_p W,
    told: h and h_x S + h_y Y + h_p W

at given parameters p. As an initial value problem like any other it is integrated by any of the
integrators, and their sensitivities are the exact second derivatives d²h/dp dd that the gradient of
a criterion needs. Profiles are sums of fixed profiles, one for each number to choose, so that no
integrator steps across a jump and nothing depends on where d is.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.equations.initial_value import InitialValueProblem
from igpe.problem.inputs import Table

NEAREST = 1e-2  # of its range: so large a number to choose counts at least


class Choice(NamedTuple):
    """One number to choose.

    label         what the user reads;  lower, upper: its bounds
    unknown       the unknown of the initial value problem that it is; empty for a profile
    profile       which of its tables it is part of, and of which shape; None for an unknown
    """

    label: str
    lower: float
    upper: float
    unknown: str = ""
    profile: tuple[int, Table] | None = None


def sensitivity_problem(
    ivp: InitialValueProblem,
    choices: Sequence[Choice],
    values: Mapping[str, float],
    sizes: Mapping[str, float],
) -> InitialValueProblem:
    """States and sensitivities by `sizes`' unknowns, as a function of the choices.

    values  unknown -> value of all unknowns that are not chosen
    sizes   unknown -> W: sensitivities are by p / W; these unknowns in this order, also those on
            which nothing depends
    """
    design = ca.SX.sym("design", len(choices))
    shapes, tables, u = _profiles(ivp, choices, design)
    chosen = {c.unknown: i for i, c in enumerate(choices) if c.unknown}
    symbols = {n: ivp.q[i] for i, n in enumerate(ivp.unknowns)}
    p = ca.vertcat(*(symbols.get(n, ca.SX.sym(n)) for n in sizes))
    width, n_x, n_y = ca.diag(ca.DM(list(sizes.values()))), ivp.x.numel(), ivp.y.numel()
    s, y_s = ca.SX.sym("S", n_x, len(sizes)), ca.SX.sym("Y", n_y, len(sizes))
    old = ca.vertcat(ivp.u, ivp.q)
    fixed = [design[chosen[n]] if n in chosen else ca.SX(values[n]) for n in ivp.unknowns]
    new = ca.vertcat(u, *fixed)

    def varied(expression: Any) -> Any:
        by_x, by_y = ca.jacobian(expression, ivp.x), ca.jacobian(expression, ivp.y)
        both = ca.vertcat(
            expression, ca.vec(by_x @ s + by_y @ y_s + ca.jacobian(expression, p) @ width)
        )
        return ca.densify(ca.substitute(both, old, new))

    begins = ca.vertcat(ivp.start, ca.vec(ca.jacobian(ivp.start, p) @ width))
    times = 1 + len(sizes)
    return replace(
        ivp,
        states=(*ivp.states, *(f"d({x})/d({n})" for n in sizes for x in ivp.states)),
        implicit=(*ivp.implicit, *(f"d({y})/d({n})" for n in sizes for y in ivp.implicit)),
        unknowns=tuple(c.label for c in choices),
        x=ca.vertcat(ivp.x, ca.vec(s)),
        y=ca.vertcat(ivp.y, ca.vec(y_s)),
        u=shapes,
        q=design,
        f=varied(ivp.f),
        g=varied(ivp.g),
        start=ca.densify(ca.substitute(begins, old, new)),
        measured=varied(ivp.measured),
        algebraic={},
        tables=tables,
        scale=np.tile(ivp.scale, times),
        largest=np.tile(ivp.largest, times),
        unknown_scale=np.array([NEAREST * (c.upper - c.lower) for c in choices]),
        implicit_scale=np.tile(ivp.implicit_scale, times),
        guess=_padded(ivp.guess, 0.0, times),
        lower=_padded(ivp.lower, -np.inf, times),
        upper=_padded(ivp.upper, np.inf, times),
    )


def _profiles(
    ivp: InitialValueProblem, choices: Sequence[Choice], design: Any
) -> tuple[Any, tuple[Table, ...], Any]:
    """Symbols and tables of the shapes, and the inputs (n_u,) as sums of them."""
    symbols, tables, sums = [], [], []
    for k in range(ivp.u.numel()):
        mine = [(i, c.profile[1]) for i, c in enumerate(choices) if c.profile and c.profile[0] == k]
        if not mine:
            symbols.append(ca.SX.sym(f"u{k}"))
            tables.append(ivp.tables[k])
            sums.append(symbols[-1])
            continue
        shapes = [ca.SX.sym(f"u{k}_{i}") for i, _ in mine]
        symbols += shapes
        tables += [table for _, table in mine]
        sums.append(sum(design[i] * shape for (i, _), shape in zip(mine, shapes, strict=True)))
    return ca.vertcat(ca.SX(0, 1), *symbols), tuple(tables), ca.vertcat(ca.SX(0, 1), *sums)


def _padded(values: FloatArray, rest: float, times: int) -> FloatArray:
    return np.concatenate([values, np.full(len(values) * (times - 1), rest)])
