"""Fluxes in space stand in the middles of intervals, as in the method of finite volumes.

A flux is an algebraic variable that an equation differentiates by x, and whose own equation holds a
derivative by x: q = -D c_x, c_t = -q_x. A central difference of a central difference steps over
the point between, so profiles at odd and at even points would hardly know of each other. Therefore
a flux whose scheme is "central" gets further members in the middles of the intervals, and its
derivative is the difference of two neighbouring ones. The equations there are those that the
builder writes on a grid twice as fine. In them, derivatives are differences of neighbouring points,
and other quantities vary linearly between these. A flux that depends on such a quantity is the mean
of two, by Gauss's rule: for D(c), a steady flux has the mean of D along c. At fronts with
D = exp(6c), mean errors are a third to a twentieth of those with D of the mean c, or with the mean
of D at the two points.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import pyomo.environ as pyo
from pyomo.common.modeling import unique_component_name
from pyomo.core.expr.visitor import (
    ExpressionReplacementVisitor,
    identify_mutable_parameters,
    identify_variables,
)
from pyomo.dae import ContinuousSet, DerivativeVar
from scipy.sparse import coo_array
from scipy.sparse.csgraph import min_weight_full_bipartite_matching

from igpe.problem.model import Instance, differences_of, is_over, position_in, sets_of

DIGITS = 12  # of a position: names of members are legible
MIDDLE = (0.5,)  # shares of an interval
GAUSS = (0.5 - 12**-0.5, 0.5 + 12**-0.5)
EXPLICIT, IMPLICIT, NONE = 1, 2, 1000  # cost of the equation that defines a variable
Defined: TypeAlias = dict[int, tuple[Any, Any]]
"""Variables and the equations that define them, by the variables' ids."""


def middles(points: Iterable[float]) -> list[float]:
    """The middles between neighbouring points."""
    places = np.array(sorted(points), dtype=float)
    return [float(f"{p:.{DIGITS}g}") for p in (places[1:] + places[:-1]) / 2]


def key_of(index: Any) -> tuple[Any, ...]:
    """An index as a tuple."""
    return index if isinstance(index, tuple) else (index,)


def moved(index: Any, place: int | None, position: float) -> tuple[Any, ...]:
    """An index with another position at its place."""
    key = list(key_of(index))
    key[place or 0] = position
    return tuple(key)


def indices_at(places: Collection[float], component: Any, x: Any) -> list[Any]:
    """Indices of the members at some positions; of a component that is not over x, all."""
    place = position_in(component, x) if component.is_indexed() else None
    if place is None:
        return list(component)
    return [i for i in component if key_of(i)[place] in places]


def profiles(instance: Instance) -> Iterator[tuple[str, str, list[tuple[float, str]]]]:
    """States over a set in space: their variable's name, the set's, and positions with names."""
    for x in instance.in_space:
        found: dict[Any, list[tuple[float, str]]] = {}
        for name, members in instance.states.items():
            first = next(iter(members.values()))
            component, key = first.parent_component(), key_of(first.index())
            if (place := position_in(component, x)) is not None:
                line = component.name, *key[:place], *key[place + 1 :]
                found.setdefault(line, []).append((float(key[place]), name))
        yield from ((str(line[0]), x.name, sorted(members)) for line, members in found.items())


def once(indices: Iterable[Any], component: Any, kept: Collection[str]) -> Collection[Any]:
    """Of indices that differ only in other ContinuousSets, such as time, the last.

    kept  names of the sets that count
    """
    others = {
        position_in(component, s)
        for s in sets_of(component)
        if s.ctype is ContinuousSet and s.name not in kept
    }
    keys = {tuple(k for i, k in enumerate(key_of(j)) if i not in others): j for j in indices}
    return keys.values()


def _held(equation: Any) -> list[Any]:
    """Variables and parameters with values of their own, fixed ones too, of an equation."""
    held = identify_variables(equation.expr, include_fixed=True)
    return [*held, *identify_mutable_parameters(equation.expr)]


class Definitions:
    """The equations that define algebraic variables at some positions, one for each variable.

    x       a set in space, of a model that is discretised or not
    places  the positions
    space   names of all sets in space
    others  further positions whose variables the equations may hold. None where fluxes are looked
            for: all positions, and the last time stands for all
    """

    def __init__(
        self,
        x: Any,
        places: Collection[float],
        space: Collection[str],
        others: Collection[float] | None = None,
    ) -> None:
        self.x, self._space, self._others = x, space, others
        every = [v for v in x.model().component_objects() if isinstance(v, DerivativeVar)]
        self.by_time = {
            id(d)
            for d in every
            for s in d.get_continuousset_list()
            if s.name not in space and not s.get_discretization_info()
        }
        self.by_x = {id(d): d for d in every if is_over(d, x)}
        never = {id(d) for d in every}
        self.states = {id(d.get_state_var()) for d in every if id(d) in self.by_time}
        self.used: set[int] = set()
        self._places: dict[int, int | None] = {}
        pairs = [
            (variable, equation, cost)
            for equation, at in self._equations(places)
            for variable, cost in self._defined_by(equation, at)
            if id(variable.parent_component()) not in never | self.states
        ]
        self.equations = _matched(pairs)

    def place(self, component: Any) -> int | None:
        """Where in the indices of a component the position stands."""
        if id(component) not in self._places:
            self._places[id(component)] = position_in(component, self.x)
        return self._places[id(component)]

    def position(self, member: Any) -> Any:
        """The position of a member; None if its component is not over the set."""
        place = self.place(member.parent_component())
        return None if place is None else key_of(member.index())[place]

    def _equations(self, places: Collection[float]) -> Iterator[tuple[Any, Any]]:
        """Equations at the positions, without derivatives by time or higher ones by the set."""
        there = {None, *(self.x if self._others is None else self._others)}
        for component in self.x.model().component_objects(pyo.Constraint, active=True):
            if self.place(component) is None or component.local_name.endswith("_disc_eq"):
                continue
            indices = indices_at(places, component, self.x)
            kept = once(indices, component, self._space) if self._others is None else indices
            for index in kept:
                at = self.position(component[index])
                held = list(identify_variables(component[index].expr))
                self.used |= {id(v.parent_component()) for v in held}
                if component[index].equality and all(
                    (self.position(v) == at or self.position(v) in there)
                    and id(v.parent_component()) not in self.by_time
                    and not self._is_higher(v.parent_component())
                    for v in held
                ):
                    yield component[index], at

    def _is_higher(self, component: Any) -> bool:
        derivative = self.by_x.get(id(component))
        return derivative is not None and not is_over(derivative, self.x, alone=True)

    def _defined_by(self, equation: Any, at: Any) -> Iterator[tuple[Any, int]]:
        """Variables that an equation may define, with the cost: those it does not differentiate."""
        held = [v for v in identify_variables(equation.expr) if self.position(v) == at]
        slopes = [self.by_x[i] for v in held if (i := id(v.parent_component())) in self.by_x]
        differentiated = {id(d.get_state_var()) for d in slopes}
        for v in held:
            if id(v.parent_component()) not in differentiated:
                is_side = any(side is v for side in equation.expr.args)
                yield v, EXPLICIT if is_side else IMPLICIT

    def behind(self, variable: Any) -> tuple[Defined, set[int]]:
        """The definitions of a variable's members and of what these need, and the gradients there.

        What is differentiated in one of them stays at the points of the grid.
        """
        at_points = self.states
        while True:
            found: Defined = {}
            waiting = list(variable.values())
            while waiting:
                v = waiting.pop()
                if id(v) in found or id(v.parent_component()) in at_points:
                    continue
                if (equation := self.equations.get(id(v))) is not None:
                    found[id(v)] = v, equation
                    waiting += identify_variables(equation.expr)
            held = {
                id(v.parent_component())
                for _, equation in found.values()
                for v in identify_variables(equation.expr)
            }
            gradients = held & self.by_x.keys()
            differentiated = {id(self.by_x[g].get_state_var()) for g in gradients}
            if not differentiated & {id(v.parent_component()) for v, _ in found.values()}:
                return found, gradients
            at_points = at_points | differentiated

    def fluxes(self) -> Iterator[tuple[Any, list[Any]]]:
        """Derivatives of fluxes that equations hold, with the derivatives that the fluxes hold."""
        for derivative in self.by_x.values():
            flux = derivative.get_state_var()
            if id(derivative) in self.used and is_over(derivative, self.x, alone=True):
                gradients = () if id(flux) in self.states else self.behind(flux)[1]
                if gradients:
                    yield derivative, [self.by_x[g] for g in gradients]


def _matched(pairs: list[tuple[Any, Any, int]]) -> dict[int, Any]:
    """One equation for each of as many variables as possible, at the lowest cost."""
    rows = {id(v): i for i, v in enumerate({id(v): v for v, _, _ in pairs}.values())}
    columns = {id(e): i for i, e in enumerate({id(e): e for _, e, _ in pairs}.values())}
    if not rows:
        return {}
    n = len(rows)
    where = [(rows[id(v)], columns[id(e)]) for v, e, _ in pairs]
    where += [(i, len(columns) + i) for i in range(n)]
    costs = coo_array(
        ([*(cost for _, _, cost in pairs), *[NONE] * n], tuple(zip(*where, strict=True))),
        shape=(n, len(columns) + n),
    )
    best = min_weight_full_bipartite_matching(costs.tocsr())
    chosen = set(zip(*map(np.ndarray.tolist, best), strict=True))
    return {id(v): e for v, e, _ in pairs if (rows[id(v)], columns[id(e)]) in chosen}


class Middles:
    """Fluxes between the points of a discretised model, with their equations.

    x     a set in space of the model
    fine  the definitions in the middles of its intervals, of a model that is not discretised
    """

    def __init__(self, x: Any, fine: Definitions) -> None:
        self.x, self.fine = x, fine
        self._points, self._middles = sorted(x), middles(x)
        self._around = dict(zip(self._middles, pairwise(self._points), strict=True))
        every = [self._shifted(m, share) for m in self._around for share in MIDDLE + GAUSS]
        self._set = pyo.Set(initialize=every)
        block = x.parent_block()
        block.add_component(unique_component_name(block, f"{x.local_name}_between"), self._set)
        like = fine.x.model().component_objects((pyo.Var, DerivativeVar, pyo.Param))
        self._coarse = {id(c): x.model().find_component(c) for c in like}
        self._further: dict[int, tuple[Any, Any]] = {}
        self._replaced = ExpressionReplacementVisitor()  # once: Pyomo inspects each for 0.3 ms

    def put(self, divergence: Any, gradients: Iterable[Any]) -> None:
        """Put a flux in the middles; its derivative is the difference of two neighbours there."""
        flux, equations = divergence.get_state_var(), differences_of(divergence)
        own = next(d for i, d in self.fine.by_x.items() if self._coarse[i] is divergence)
        found, _ = self.fine.behind(own.get_state_var())
        if not found:  # such as where the equation holds a sum over the set
            return
        laws = [(v, equation.expr, _held(equation)) for v, equation in found.values()]
        others = (h for _, _, held in laws for h in held if id(h) not in found)
        shares = GAUSS if any(map(self._varies, others)) else MIDDLE
        for share in shares:
            further = {i: self._member(v, share) for i, (v, _) in found.items()}
            for v, law, held in laws:
                self._define(v, law, share, {id(h): further.get(id(h), h) for h in held})
        for index in list(equations):
            before, after = (self._face(flux, index, side, shares) for side in (-1, 0))
            if before and after:
                slope = (after[1] - before[1]) / (after[0] - before[0])
                equations[index] = divergence[index] == slope
        for gradient in gradients:
            self._settle_walls(gradient)

    def _settle_walls(self, gradient: Any) -> None:
        """Let a gradient at the ends be that of a cubic, so that a flux given there keeps mass.

        The parabola's error is a share of what half an interval holds.
        """
        state, equations = gradient.get_state_var(), differences_of(gradient)
        place = position_in(gradient, self.x)
        for near in (self._points[:4], self._points[:-5:-1]):
            powers = np.vander(np.array(near) - near[0], increasing=True)
            weights = np.linalg.solve(powers.T, np.eye(len(near))[1]).tolist()
            for index in indices_at(near[:1], gradient, self.x):
                if index in equations:
                    values = (state[moved(index, place, p)] for p in near)
                    slope = sum(w * v for w, v in zip(weights, values, strict=True))
                    equations[index] = gradient[index] == slope

    def _shifted(self, middle: float, share: float) -> float:
        """The position after a share of an interval."""
        a, b = self._around[middle]
        return float(f"{a + share * (b - a):.{DIGITS}g}")

    def _face(
        self, flux: Any, index: Any, side: int, shares: Sequence[float]
    ) -> tuple[float, Any] | None:
        """Position and value of the flux before (-1) or after (0) a point; at an end, there."""
        place = position_in(flux, self.x) or 0
        position = key_of(index)[place]
        interval = self._points.index(position) + side
        if not 0 <= interval < len(self._middles):
            return position, flux[index]
        middle = self._middles[interval]
        members, _ = self._further.get(id(flux), ({}, None))
        there = [moved(index, place, self._shifted(middle, s)) for s in shares]
        if not all(key in members for key in there):
            return None
        return middle, sum(members[key] for key in there) / len(there)

    def _member(self, v: Any, share: float) -> Any:
        """The member of the model for a variable of the fine model."""
        like = self._coarse[id(v.parent_component())]
        if id(like) not in self._further:
            sets = [self._set if s is self.x else s for s in sets_of(like)]
            made = pyo.Var(*sets, dense=False), pyo.Constraint(*sets)
            block = like.parent_block()
            for component, form in zip(made, ("{}_between", "{}_between_law"), strict=True):
                name = unique_component_name(block, form.format(like.local_name))
                block.add_component(name, component)
            self._further[id(like)] = made
        member = self._further[id(like)][0].add(self._index(v, share))
        member.set_value(v.value, skip_validation=True)
        member.domain, member.bounds = v.domain, v.bounds
        return member

    def _index(self, v: Any, share: float) -> Any:
        at = self._shifted(self.fine.position(v), share)
        return moved(v.index(), self.fine.place(v.parent_component()), at)

    def _define(self, v: Any, law: Any, share: float, held: dict[int, Any]) -> None:
        """Write the equation of a variable of the fine model for its member.

        held  what the equation holds, by its ids, or the members that stand for it
        """
        laws = self._further[id(self._coarse[id(v.parent_component())])][1]
        if (index := self._index(v, share)) not in laws:
            at = self.fine.position(v)
            self._replaced.substitute = {
                i: self._value(h, at, share) if id(h) == i else h for i, h in held.items()
            }
            laws.add(index, self._replaced.walk_expression(law))

    def _varies(self, v: Any) -> bool:
        """Return True if a quantity of the fine model has to be interpolated in the middles."""
        is_derivative = id(v.parent_component()) in self.fine.by_x
        return not is_derivative and self.fine.position(v) in self._around

    def _value(self, v: Any, at: float, share: float) -> Any:
        """What stands for a quantity of the fine model, whose position may be the middle `at`."""
        component, index = v.parent_component(), v.index()
        if self.fine.position(v) != at:
            return self._coarse[id(component)][index]
        derivative, (left, right) = self.fine.by_x.get(id(component)), self._around[at]
        like = self._coarse[id(derivative.get_state_var() if derivative else component)]
        place = self.fine.place(component)
        a, b = (like[moved(index, place, p)] for p in (left, right))
        return (b - a) / (right - left) if derivative else (1 - share) * a + share * b
