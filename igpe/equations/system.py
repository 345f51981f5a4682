"""The model's equations at one instant, as CasADi expressions.

    F(t, dx, x, z, u, p, s) = 0          (Michalik et al. 2009, IGPE, eq. 1)

with slopes dx, states x, algebraic variables z, inputs u, parameters p, and start values s of the
states (a balance may speak of them later). A higher index is refused by structure: there the
equations cannot be matched with the slopes and algebraic variables they are to be solved for.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca

from igpe.equations.elimination import Solved, solve_all
from igpe.equations.symbols import Symbols


@dataclass(frozen=True)
class System:
    """A model's equations at one instant, as one experiment uses them.

    symbols    names and symbols of everything they speak of
    equations  names of the model's constraints, in the order of `residual`
    residual   (n_equations,) SX, F above; n_equations = n_states + n_algebraics
    measured   name -> expression of what the experiment measures, and of standard deviations that
               are estimated
    starts     state -> start value where the model gives it: a number or an expression in p
    any_times  whether the model took the times it was given, and no others
    jumps      equation and condition at whose change it jumps, for conditions in Pyomo's terms
    """

    symbols: Symbols
    equations: tuple[str, ...]
    residual: Any
    measured: Mapping[str, Any]
    starts: Mapping[str, Any]
    any_times: bool = True
    jumps: tuple[tuple[str, Any], ...] = ()

    def function(self) -> Any:
        """F as a CasADi function of (t, dx, x, z, u, p, s), with exact derivatives of any order."""
        names = ["t", "dx", "x", "z", "u", "p", "s"]
        return ca.Function("F", list(self.symbols.vectors), [self.residual], names, ["F"])

    @cached_property
    def solved(self) -> Solved:
        """The equations solved for `unknowns`."""
        return solve_all(self.residual, self.unknowns)

    @property
    def unknowns(self) -> Any:
        """What the equations are solved for: slopes and algebraic variables, one SX vector."""
        return ca.vertcat(self.symbols.dx, self.symbols.z)

    @property
    def unknown_names(self) -> tuple[str, ...]:
        """Names of `unknowns`; a slope is written d(state)."""
        return (*(f"d({n})" for n in self.symbols.states), *self.symbols.algebraics)
