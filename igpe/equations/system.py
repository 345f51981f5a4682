"""The model's equations at one instant, as CasADi expressions.

    F(t, dx, x, z, u, p, s) = 0          (Michalik et al. 2009, IGPE, eq. 1)

with slopes dx, states x, algebraic variables z, inputs u, parameters p, and start values s of the
states (a balance may speak of them later). A higher index is refused by structure: there the
equations cannot be matched with the slopes and algebraic variables they are to be solved for.

In which parameters expressions are linear, as far as their structure shows it.

Let H be the pattern of second derivatives of any weighted sum of the expressions. Parameter i is
linear by itself if H[i, i] = 0; a set is jointly linear if H vanishes on it, so that with all other
parameters held the expressions are affine in the whole set.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np
from scipy.sparse import csr_array

from igpe.equations.elimination import Solved, solve_all
from igpe.equations.symbols import Symbols, stack


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


class Linearity(NamedTuple):
    """Indices of parameters, increasing.

    individually  linear while all others are held
    jointly       linear together: free of products among each other; a subset of `individually`
    """

    individually: tuple[int, ...]
    jointly: tuple[int, ...]


def linear_parameters(expressions: Any, p: Any) -> Linearity:
    """Where SX `expressions` are linear in the SX symbols `p`, by structure alone.

    The jointly linear set is found greedily: of the individually linear parameters the one with
    most products (the last of equals) leaves until no products remain. It cannot be enlarged.
    """
    second = _second_derivatives(stack([expressions]), p)
    diagonal = second.diagonal().astype(bool)
    individually = [i for i in range(p.numel()) if not diagonal[i]]
    return Linearity(tuple(individually), _without_products(second, individually))


def equation_linearity(system: System) -> dict[str, Linearity]:
    """In which of the model's parameters each equation is linear; indices of the parameters."""
    rows = zip(system.equations, ca.vertsplit(system.residual), strict=True)
    return {name: linear_parameters(row, system.symbols.p) for name, row in rows}


def _second_derivatives(expressions: Any, p: Any) -> Any:
    """Pattern of H; the weights are symbols, so that no terms of two expressions cancel."""
    if p.numel() == 0 or expressions.numel() == 0:
        return csr_array((p.numel(), p.numel()), dtype=bool)
    weights = ca.SX.sym("w", expressions.numel())
    gradient = ca.gradient(ca.dot(weights, ca.densify(expressions)), p)
    pattern = ca.jacobian_sparsity(gradient, p)
    rows, columns = (np.array(i, dtype=int) for i in pattern.get_triplet())
    entries = np.ones(2 * len(rows), dtype=bool)
    both = (np.concatenate([rows, columns]), np.concatenate([columns, rows]))
    return csr_array((entries, both), shape=pattern.shape)


def _without_products(second: Any, candidates: list[int]) -> tuple[int, ...]:
    inside = set(candidates)
    partners = {i: {int(j) for j in second[[i]].indices} & inside - {i} for i in candidates}
    removed = []
    while any(partners.values()):
        worst = max(partners, key=lambda i: (len(partners[i]), i))
        for other in partners.pop(worst):
            partners[other].discard(worst)
        removed.append(worst)
    for i in sorted(removed):  # one that left early may fit again now that its partners have left
        if not ({int(j) for j in second[[i]].indices} & partners.keys()):
            partners[i] = set()
    return tuple(sorted(partners))
