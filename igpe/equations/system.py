"""The model's equations at one instant, as CasADi expressions.

    F(t, dx, x, z, u, p, s) = 0          (Michalik et al. 2009, IGPE, eq. 1)

with slopes dx, states x, algebraic variables z, inputs u, parameters p, and start values s of the
states (a balance may speak of them later). Of a higher index the equations cannot be matched with
the slopes and algebraic variables they are to be solved for; they are reduced right after they were
read (`igpe.equations.reduction`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca

from igpe.core.markup import in_words
from igpe.equations.elimination import Solved, solve_all
from igpe.equations.switching import Jump
from igpe.equations.symbols import Symbols, stack
from igpe.problem.experiment import Experiment


@dataclass(frozen=True)
class Reduction:
    """How equations of a higher index became equations of index 1.

    index           the structural index that they had
    differentiated  equation -> how often it was differentiated
    constraints     those of these that, with their derivatives, bind states
    bound           states that they give from the others: algebraic variables now
    free            states that keep slopes and start values
    starts          bound state -> its start value, an expression in p and s
    given           bound state -> the start value that experiment or model give, if they do
    """

    index: int
    differentiated: Mapping[str, int]
    constraints: tuple[str, ...]
    bound: tuple[str, ...]
    free: tuple[str, ...]
    starts: Mapping[str, Any]
    given: Mapping[str, Any]

    def __str__(self) -> str:
        often = {1: "once", 2: "twice"}
        levels = sorted(self.differentiated.items(), key=lambda item: -item[1])
        rows = in_words([f"{n} ({often.get(k, f'{k} times')})" for n, k in levels])
        binds = "constrains" if len(self.constraints) == 1 else "constrain"
        now = (
            "which is now an algebraic variable; igpe computes its start value"
            if len(self.bound) == 1
            else "which are now algebraic variables; igpe computes their start values"
        )
        return (
            f"The equations have index {self.index}. igpe differentiated these equations with "
            f"respect to time: {rows}. {in_words(self.constraints)} {binds} "
            f"{in_words(self.bound)}, {now}. Free states: {in_words(self.free) or 'none'}."
        )


@dataclass(frozen=True)
class System:
    """A model's equations at one instant, as one experiment uses them.

    symbols    names and symbols of everything they speak of
    equations  names of the model's constraints, in the order of `residual`
    residual   (n_equations,) SX, F above; n_equations = n_states + n_algebraics
    measured   name -> expression of what the experiment measures, and of standard deviations that
               are estimated
    starts     state -> start value where the model gives it: a number or an expression in p
    jumps      equation and condition at whose change it jumps, for conditions in Pyomo's terms
    instants   equation or expression, and a time at which alone it differs, without any effect
    events     jumps of the states, in the order in which they happen at one time
    reduction  how a higher index was reduced; None where there is none
    flow       of reduced equations: the same for integration, with slopes of all states; None
               where these themselves are fit for it
    auxiliary  algebraic variables that the model does not have
    any_value  algebraic variables that have neither bounds nor a value in the model
    """

    symbols: Symbols
    equations: tuple[str, ...]
    residual: Any
    measured: Mapping[str, Any]
    starts: Mapping[str, Any]
    jumps: tuple[tuple[str, Any], ...] = ()
    instants: tuple[tuple[str, float], ...] = ()
    events: tuple[Jump, ...] = ()
    reduction: Reduction | None = None
    flow: "System | None" = None
    auxiliary: frozenset[str] = frozenset()
    any_value: frozenset[str] = frozenset()

    @cached_property
    def solved(self) -> Solved:
        """The equations solved for `unknowns`."""
        names = enumerate(self.unknown_names)
        return solve_all(self.residual, self.unknowns, {i for i, n in names if n in self.any_value})

    def of_another(self, **parts: Any) -> "System":
        """The same equations, solved once, with other outputs, starts, jumps or events."""
        found = replace(self, **parts)
        found.__dict__["solved"] = self.solved
        return found

    def start_of(self, state: str, experiment: Experiment) -> Any:
        """The start value of a state: a number, an `Unknown`, a parameter's name, an expression.

        Of a state that reduced equations bind it is computed, whatever the experiment gives.
        """
        if self.reduction is not None and state in self.reduction.bound:
            return self.reduction.starts[state]
        return experiment.start.get(state, self.starts.get(state))

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

    Let H be the pattern of second derivatives of any weighted sum of the expressions. Parameter i
    is linear by itself if H[i, i] = 0; a set is jointly linear if H vanishes on it. That set is
    found greedily: of the individually linear parameters the one with most products (the last of
    equals) leaves until no products remain. It cannot be enlarged.
    """
    products = _products(stack([expressions]), p)
    individually = {i for i, others in products.items() if i not in others}
    partners = {i: products[i] & individually for i in sorted(individually)}
    removed = []
    while any(partners.values()):
        worst = max(partners, key=lambda i: (len(partners[i]), i))
        for other in partners.pop(worst):
            partners[other].discard(worst)
        removed.append(worst)
    for i in sorted(removed):  # one that left early may fit again now that its partners have left
        if not products[i] & partners.keys():
            partners[i] = set()
    return Linearity(tuple(sorted(individually)), tuple(sorted(partners)))


def _products(expressions: Any, p: Any) -> dict[int, set[int]]:
    """Rows of H; the weights are symbols, so that no terms of two expressions cancel."""
    pattern: dict[int, set[int]] = {i: set() for i in range(p.numel())}
    if pattern and expressions.numel():
        weights = ca.SX.sym("w", expressions.numel())
        gradient = ca.gradient(ca.dot(weights, ca.densify(expressions)), p)
        for i, j in zip(*ca.jacobian_sparsity(gradient, p).get_triplet(), strict=True):
            pattern[i].add(j)
            pattern[j].add(i)
    return pattern
