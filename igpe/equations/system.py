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
import numpy as np

from igpe.core.errors import ModelError
from igpe.core.markup import bracketed, in_words
from igpe.equations.elimination import Solved, solve_all
from igpe.equations.incidence import CANCELLED, Block, combinations, dependent, incidence, parts
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

    @cached_property
    def is_solvable(self) -> bool:
        """Whether equations and `unknowns` can be matched."""
        decomposition = parts(incidence(self.residual, self.unknowns))
        return not decomposition.spare_rows and not decomposition.spare_columns

    def of_another(self, **parts: Any) -> "System":
        """The same equations, solved once, with other outputs, starts, jumps or events."""
        system = replace(self, **parts)
        system.__dict__["solved"] = self.solved
        return system

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


def combined(system: System) -> System:
    """The system, combinations in the place of linear equations that depend on each other.

    A combination of balances in which all slopes cancel is a condition on the states: it was in
    the equations already, but structure does not see it.

    raises  ModelError if equations follow from others, contradict them, or depend on each other
            with factors that are not constant
    """
    while system.is_solvable and (blocks := [*dependent(system.residual, system.unknowns)]):
        names, residual = list(system.equations), ca.vertsplit(system.residual)
        for block in blocks:
            of = [system.equations[r] for r in block.rows]
            for row, expression in _combinations(system, block).items():
                others = in_words([n for n in of if n != names[row]])
                names[row], residual[row] = f"{names[row]} combined with {others}", expression
        system = replace(system, equations=tuple(names), residual=stack(residual))
    return system


def _combinations(system: System, block: Block) -> dict[int, Any]:
    of = bracketed(system.equations[r] for r in block.rows)
    unknowns = in_words([system.unknown_names[c] for c in block.columns])
    rows = combinations(block, system.residual, system.unknowns, system.symbols.p)
    if rows is None:
        raise ModelError(
            f"The equations {of} are linear in {unknowns}, but some combination of them contains "
            "none of these, so that it is an equation for the other variables. igpe finds such a "
            "combination only if its factors are constant. Write it in the place of one of these "
            "equations."
        )
    if _says_nothing(system, block, rows):
        raise ModelError(
            f"Whatever the values are, the equations {of} do not determine {unknowns}: one "
            "equation follows from the others, or contradicts them. Remove it, or replace it by an "
            "equation that is missing. With a grid in space, two equations may contain the same "
            "difference: choose another scheme (space=...)."
        )
    return rows


def _says_nothing(system: System, block: Block, rows: Mapping[int, Any]) -> bool:
    """Whether one of the combinations is free of all variables, seen where they are random.

    Slopes count relative to those that cancel, the equations being divided by their factors of the
    block's unknowns.
    """
    s, equations = system.symbols, system.residual[block.rows]
    by = [ca.jacobian(ca.vertcat(equations, *rows.values()), ca.vertcat(s.dx, s.x, s.z))]
    by.append(ca.jacobian(equations, system.unknowns[block.columns]))
    there = ca.symvar(ca.vertcat(*(ca.vec(m) for m in by)))
    slopes = ca.Function("slopes", [stack(there)], [ca.densify(m) for m in by])
    n, own = len(block.rows), [block.rows.index(row) for row in rows]
    rng, is_free = np.random.default_rng(0), np.ones(len(rows), dtype=bool)
    for _ in range(2):
        every, factors = (np.abs(m.full()) for m in slopes(rng.uniform(0.5, 1.5, len(there))))
        size = factors.max(axis=1, keepdims=True)
        terms = (every[:n] / size).max(axis=0)
        is_free &= (every[n:] / size[own] <= CANCELLED * terms).all(axis=1)
    return bool(is_free.any())


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
