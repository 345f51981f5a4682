"""Models distributed in space: their further ContinuousSets become points of a grid.

Pyomo's own transformation does it (the method of lines): afterwards the model is an ordinary one
whose states are the members `c[0.5]` of a variable over time and space. igpe gives it formulas of
its own, which also hold where the points are not equally far apart: there Pyomo's central second
derivative is not consistent, and its positions are rounded to six decimals.

Rules may sum over a set. So the set has all points of its grid as soon as the builder makes it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import wraps
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.visitor import identify_variables
from pyomo.dae import ContinuousSet, DerivativeVar

from igpe.core.arguments import require_mapping, shown
from igpe.core.errors import ModelError, ProblemError
from igpe.problem.fluxes import (
    DIGITS,
    Definitions,
    Middles,
    indices_at,
    key_of,
    middles,
    moved,
    once,
)
from igpe.problem.members import Indexed, member
from igpe.problem.model import Instance, differences_of, is_over, position_in, sets_of

Profile: TypeAlias = Callable[[float], Any]
"""Position -> Pyomo variable or expression there."""
EXAMPLE = "space={'x': igpe.integrators.FiniteDifference(50)}"


def backward(v: Profile, s: Any) -> Profile:
    """First derivative from a point and the one before it: first order, upwind for a flow up x."""
    return lambda x: _slope(v, *_points(s, x, -1, 0))


def forward(v: Profile, s: Any) -> Profile:
    """First derivative from a point and the one after it: first order, upwind for a flow down x."""
    return lambda x: _slope(v, *_points(s, x, 0, 1))


def _parabola(first: int, last: int) -> Callable[[Profile, Any], Profile]:
    """First derivative of the parabola through three points: second order, also at the ends."""

    def formula(v: Profile, s: Any) -> Profile:
        def derivative(x: float) -> Any:
            a, b, c = _points(s, x, first, last)
            return _slope(v, a, b) + (2 * x - a - b) * _bend(v, a, b, c)

        return derivative

    return formula


def _weno(up: int) -> Callable[[Profile, Any], Profile]:
    """First derivative by WENO, upwind for a flow up x (+1) or down x (-1).

    Fifth order where the profile is smooth and the points are equally far apart; elsewhere it is
    exact for lines. At a front it takes the smoothest of three parabolas. What flows out of one
    interval flows into the next. Beyond its ends the profile goes on as a line.
    Source: Jiang and Shu, Journal of Computational Physics 126 (1996) 202, section 2.1. Their small
    number is here in proportion to the profile.
    """

    def formula(v: Profile, s: Any) -> Profile:
        def derivative(x: float) -> Any:
            place = s.ord(x)
            value, position = _face(v, s, place, up)
            before, its_position = _face(v, s, place - up, up)
            return (value - before) / (position - its_position)

        return derivative

    return formula


def _face(v: Profile, s: Any, place: int, up: int) -> tuple[Any, Any]:
    """Value between a point and the next one downstream, and its position."""
    around = [place + k * up for k in (-2, -1, 0, 1, 2)]
    a, b, c, d, e = (_extended(v, s, k) for k in around)
    differences = (b - a, c - b, d - c, e - d)
    small = SMOOTH * sum(d**2 for d in differences) + FLAT * c**2 + TINY
    bends = (
        (a - 2 * b + c, a - 4 * b + 3 * c),
        (b - 2 * c + d, b - d),
        (c - 2 * d + e, 3 * c - 4 * d + e),
    )
    weights = [
        best / (small + 13 / 12 * bend**2 + slope**2 / 4) ** 2
        for best, (bend, slope) in zip((0.1, 0.6, 0.3), bends, strict=True)
    ]

    def mean(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        parabolas = (2 * a - 7 * b + 11 * c, -b + 5 * c + 2 * d, 2 * c + 5 * d - e)
        return sum(w * p for w, p in zip(weights, parabolas, strict=True)) / (6 * sum(weights))

    places = [_extended(float, s, k) for k in around]
    if np.ptp(np.diff(places)) < EVEN * abs(places[1] - places[0]):
        return mean(a, b, c, d, e), (places[2] + places[3]) / 2
    return mean(a, b, c, d, e), mean(*places)


def _extended(v: Profile, s: Any, place: int) -> Any:
    """Value at a point of the grid; beyond its ends, that of a line."""
    end = min(max(place, 1), len(s))
    if place == end:
        return v(s.at(end))
    last, inner = v(s.at(end)), v(s.at(end + (1 if place < 1 else -1)))
    return last + abs(place - end) * (last - inner)


def second(v: Profile, s: Any) -> Profile:
    """Second derivative of the parabola through three points."""

    def derivative(x: float) -> Any:
        if x in (s.first(), s.last()):
            raise IndexError(x)  # as Pyomo expects where there is no formula
        return 2 * _bend(v, *_points(s, x, -1, 1))

    return derivative


def _points(s: Any, x: float, first: int, last: int) -> list[float]:
    """Points from so many before x to so many after it; at an end as many that are there."""
    place = s.ord(x)
    shift = max(0, 1 - place - first) - max(0, place + last - len(s))
    return [float(s.at(place + k + shift)) for k in range(first, last + 1)]


def _slope(v: Profile, a: float, b: float) -> Any:
    return (v(b) - v(a)) / (b - a)


def _bend(v: Profile, a: float, b: float, c: float) -> Any:
    """Half the second derivative of the parabola through three points."""
    return (_slope(v, b, c) - _slope(v, a, b)) / (c - a)


SCHEMES: Mapping[str, Callable[[Profile, Any], Profile]] = {
    "backward": backward,
    "backward2": _parabola(-2, 0),
    "backward_weno": _weno(1),
    "central": _parabola(-1, 1),
    "forward": forward,
    "forward2": _parabola(0, 2),
    "forward_weno": _weno(-1),
}
SMOOTH, FLAT, TINY = 1e-6, 1e-10, 1e-40  # of squares that count as none in the choice of parabolas
EVEN = 1e-9  # of an interval, by which others may differ from it
CARRIER = "CENTRAL"  # the name of Pyomo's under which ours go
DEFAULT = "backward"
WIDEST = 1.6  # times the mean width, after rounding the number of parts


@dataclass(frozen=True)
class FiniteDifference:
    """A grid in space, on which finite differences replace derivatives (method of lines).

    intervals  number of intervals, of about equal length. igpe keeps the points that the model's
               ContinuousSet already has, and adds points between them
    scheme     formula for first derivatives. "backward" (for flow towards larger x): upwind, first
               order and robust, but it smears fronts as if the dispersion coefficient
               were larger by speed * grid width / 2. "backward2": upwind with three points,
               second order; it may overshoot at fronts. "forward" and "forward2": the
               corresponding formulas for flow towards smaller x. "backward_weno" and
               "forward_weno": upwind for sharp fronts, fifth order where the profile is smooth,
               without overshoot; their formulas are long. "central": second order, for diffusion,
               also where the model writes its flux, which igpe then computes between the points.
               Formulas for second derivatives are central and second-order. For
               counter-current flow, give variables their own schemes: {"hot": "backward", "cold":
               "forward"}, or members of one: {"T[hot]": "backward", "T[cold]": "forward"}; the
               others get "backward"
    raises     ProblemError for fewer than two intervals, or for an unknown scheme

    First derivatives at boundaries, in boundary conditions or measured expressions, are of second
    order. Only in conditions of variables whose balances contain first derivatives, igpe uses the
    scheme, if it is not WENO, or the slope between the boundary point and the next one.
    """

    intervals: int
    scheme: str | Mapping[str, str] = DEFAULT

    def __post_init__(self) -> None:
        if not (isinstance(self.intervals, int) and self.intervals > 1):
            raise ProblemError(
                f"A grid in space has {shown(self.intervals)} intervals; expected a whole number "
                f"of at least 2: {EXAMPLE}."
            )
        schemes = self.scheme.values() if isinstance(self.scheme, Mapping) else [self.scheme]
        for scheme in (s for s in schemes if s not in SCHEMES):
            raise ProblemError(
                f"The scheme {shown(scheme)} is not one of {list(SCHEMES)}. Use 'backward' "
                "for flow towards larger positions, 'forward' for flow towards smaller positions, "
                "and 'central' for diffusion."
            )

    def refined(self) -> "FiniteDifference":
        """Return a grid with twice as many intervals."""
        return replace(self, intervals=2 * self.intervals)

    def fill(self, x: Any) -> None:
        """Add the points of the grid to a ContinuousSet; whole numbers as the model writes them."""
        whole = all(isinstance(p, int) for p in x)
        edges = np.array(sorted(x), dtype=float)
        widths = np.diff(edges)
        for a, b, share in zip(edges, edges[1:], widths / widths.sum(), strict=False):
            parts = max(1, round(float(share) * self.intervals))
            inner = [float(f"{p:.{DIGITS}g}") for p in np.linspace(a, b, parts + 1)[1:-1]]
            x.update(int(p) if whole and p.is_integer() else p for p in inner)

    def is_filled(self, x: Any) -> bool:
        """Return True if no interval is so wide that `fill` had to divide it."""
        widths = np.diff(sorted(x))
        return bool(widths.max() <= WIDEST * widths.sum() / self.intervals)

    def apply(self, model: Any, x: Any) -> None:
        """Discretise a model over one ContinuousSet, in place."""
        if not self.is_filled(x):
            self.fill(x)
        derivatives = [v for v in model.component_objects() if isinstance(v, DerivativeVar)]
        states = [d.get_state_var() for d in derivatives if is_over(d, x)]
        schemes = self.scheme if isinstance(self.scheme, Mapping) else {}
        names = {s.name for s in states}
        known = {*map(_plain, names), *(_named(v) for s in states for v in s.values())}
        if unknown := sorted(n for n in schemes if _plain(n) not in known):
            raise ModelError(
                f"The schemes of '{x.name}' are given for {unknown}, but the variables with "
                f"derivatives with respect to '{x.name}' are {sorted(names)}."
            )
        x.set_changed(True)  # so that Pyomo's transformation expands what is over x
        method = pyo.TransformationFactory("dae.finite_difference")
        for derivative in derivatives:
            derivative._wrt = _Sets(derivative._wrt)
        method.all_schemes[CARRIER] = (self._first, second)
        method.apply_to(model, wrt=x, nfe=len(x) - 1, scheme=CARRIER)
        _settle_ends(model, x, derivatives, self._scheme_of)

    def _scheme_of(self, v: Any) -> str:
        """The scheme of one member of a variable: its own, or that of the variable."""
        if isinstance(self.scheme, str):
            return self.scheme
        schemes = {_plain(name): scheme for name, scheme in self.scheme.items()}
        return schemes.get(_named(v), schemes.get(_plain(v.parent_component().name), DEFAULT))

    def _schemes_of(self, derivative: Any) -> set[str]:
        """The schemes of all members that a derivative is of."""
        return {self._scheme_of(v) for v in derivative.get_state_var().values()}

    def _first(self, v: Profile, s: Any) -> Profile:
        """First derivative by the scheme of the variable."""

        def derivative(x: float) -> Any:
            member = next(identify_variables(v(x)))
            return SCHEMES[self._scheme_of(member)](v, s)(x)

        return derivative


def _plain(name: str) -> Indexed:
    """A name without what stands for time and positions: `T[hot,:]` as `T[hot]`, `T[:]` as `T`."""
    of = member(name)
    return Indexed(of.component.removesuffix("[]"), tuple(k for k in of.keys if k != ":"))


def _named(v: Any) -> Indexed:
    """The name of a member of a variable without its time and positions."""
    component, index = v.parent_component(), key_of(v.index())
    sets = [s for s in sets_of(component) for _ in range(s.dimen or 1)]
    keys = [":" if s.ctype is ContinuousSet else k for k, s in zip(index, sets, strict=False)]
    return _plain(f"{component.name}[{','.join(map(str, keys))}]")


class _Halved(FiniteDifference):
    """A grid with a further point in the middle of each interval."""

    def fill(self, x: Any) -> None:
        super().fill(x)
        x.update(middles(x))


class _Sets(list[Any]):
    """The sets by which a derivative is taken; Pyomo counts those with the same points as one."""

    def count(self, value: Any) -> int:
        return sum(s is value for s in self)


def read_space(given: Any) -> dict[str, FiniteDifference]:
    """The grids of a problem by the names of the model's sets; a number stands for intervals.

    raises ProblemError for anything else
    """
    require_mapping("space", given, EXAMPLE, ProblemError)
    grids = {n: FiniteDifference(g) if isinstance(g, int) else g for n, g in given.items()}
    if lost := {n: shown(g) for n, g in grids.items() if not isinstance(g, FiniteDifference)}:
        raise ProblemError(f"`space` contains {lost}; expected grids: {EXAMPLE}.")
    return grids


GRIDS: ContextVar[Mapping[str, FiniteDifference]] = ContextVar(
    "grids", default=MappingProxyType({})
)
"""Those of the model that is being built."""


def _with_points(construct: Callable[..., None]) -> Callable[..., None]:
    """Let a ContinuousSet have the points of its grid from the beginning, for rules that sum.

    Pyomo has no hook for this. Nothing changes outside of `OnGrid`. A part of a model may be built
    before it has its place: its set is `x`, later `column.x`.
    """

    @wraps(construct)
    def constructed(x: Any, *arguments: Any, **named: Any) -> None:
        construct(x, *arguments, **named)
        grids = [g for n, g in GRIDS.get().items() if f".{n}".endswith(f".{x.name}")]
        if len(grids) == 1:
            grids[0].fill(x)

    return constructed


ContinuousSet.construct = _with_points(ContinuousSet.construct)


class OnGrid:
    """A builder whose models come discretised in space.

    builder  the user's, of which it has all attributes
    space    name of a ContinuousSet -> its grid
    """

    def __init__(self, builder: Any, space: Mapping[str, FiniteDifference]) -> None:
        self.__wrapped__, self.space = builder, dict(space)
        self.__name__ = getattr(builder, "__name__", type(builder).__name__)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle and copy look for some before there is a builder
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        model = self._built(self.space, arguments, named)
        if not hasattr(model, "component_objects"):
            return model  # refused when it is read
        sets = {s.name: s for s in model.component_objects(ContinuousSet)}
        for name, grid in self.space.items():
            if name not in sets:
                raise ModelError(
                    f"space= contains '{name}', but the model's ContinuousSets are {list(sets)}."
                )
            if set(sets) <= set(self.space):
                raise ModelError(
                    f"space= contains '{name}', but one ContinuousSet of the model must be time, "
                    f"and the model has only {list(sets)}. Leave time out of space=."
                )
            if sets[name].get_discretization_info():
                raise ModelError(
                    f"space= contains '{name}', which the builder already discretises. Remove it "
                    "from space=, or remove TransformationFactory('dae....') from the builder."
                )
            if not grid.is_filled(sets[name]):
                raise ModelError(
                    f"The ContinuousSet '{name}' lacks points of its grid, so sums over it would "
                    "be wrong. The function that builds the model must make this set itself, with "
                    f"all its points: m.{name} = ContinuousSet(initialize=[0, 0.3, 1])."
                )
            grid.apply(model, sets[name])
        for name in self.space:
            self._put_fluxes(model, sets[name], arguments, named)
        return model

    def _built(self, grids: Mapping[str, FiniteDifference], arguments: Any, named: Any) -> Any:
        token = GRIDS.set(grids)
        try:
            return self.__wrapped__(*arguments, **named)
        finally:
            GRIDS.reset(token)

    def _put_fluxes(self, model: Any, x: Any, arguments: Any, named: Any) -> None:
        """Put fluxes whose scheme is central in the middles of intervals, and refuse some."""
        grid, inside, found = self.space[x.name], list(x)[1:-1], []
        for divergence, gradients in Definitions(x, inside, self.space).fluxes():
            _refuse_antidiffusion(divergence, gradients, x, grid._schemes_of)
            schemes = set[str]().union(*map(grid._schemes_of, (divergence, *gradients)))
            found += [(divergence, gradients)] * (schemes == {"central"})
        if not found:
            return
        halves = {**self.space, x.name: _Halved(grid.intervals, grid.scheme)}
        try:
            fine = self._built(halves, arguments, named)  # named: its components do not hold it
        except Exception:  # such as of a table for the points of the grid alone
            return
        its = fine.find_component(x.name)
        if not {*middles(x)} <= {*its}:
            return
        staggered = Middles(x, Definitions(its, middles(x), self.space, x))
        for divergence, gradients in found:
            staggered.put(divergence, gradients)


def skipped(instance: Instance) -> dict[str, list[str]]:
    """Positions in space at which an equation has no member, by the equation's name."""
    sets = instance.in_space
    found: dict[str, list[str]] = {}
    for component in instance.model.component_objects(pyo.Constraint, active=True):
        for s in [s for s in sets if position_in(component, s) is not None]:
            if not component.local_name.endswith("_disc_eq"):
                lacking = [p for p in s if not indices_at({p}, component, s)]
                found.setdefault(component.name, []).extend(f"{s.name} = {p:g}" for p in lacking)
    return {name: places for name, places in found.items() if places}


def without_formula(instance: Instance) -> list[tuple[str, str]]:
    """Derivatives in space that the discretisation does not define, with their variables."""
    series = {**instance.states, **instance.series}
    home = {id(members[max(members)]): name for name, members in series.items()}
    found = []
    for derivative in instance.model.component_objects(pyo.Var):
        if not isinstance(derivative, DerivativeVar):
            continue
        state = derivative.get_state_var()
        equations = differences_of(derivative)
        for index in [i for i in derivative if equations is not None and i not in equations]:
            here, there = id(derivative[index]), id(state[index])
            if here in home and there in home:
                found.append((home[here], home[there]))
    return found


def _settle_ends(
    model: Any, x: Any, derivatives: Sequence[Any], scheme_of: Callable[[Any], str]
) -> None:
    """Delete differences at the ends that the scheme has no formula for and nothing needs.

    A balance that is written at a boundary in place of a condition is not meant to determine it.
    Those needed are of second order where upwind formulas would be no use: outside of balances.
    """
    conditions, others = _used_outside_balances(model, x, derivatives)
    inside = used_inside(model, x)
    for derivative in (d for d in derivatives if is_over(d, x, alone=True)):
        state = derivative.get_state_var()
        equations = differences_of(derivative)
        for index in indices_at((x.first(), x.last()), derivative, x):
            data, scheme = derivative[index], scheme_of(state[index])
            profile, at = _profile(state, index, x)
            precise = derivative.name not in inside or "weno" in scheme
            if id(data) in others or (id(data) in conditions and precise):
                equations[index] = data == SCHEMES["central"](profile, x)(at)
            elif id(data) not in conditions and at not in _covered(x, scheme):
                del equations[index]


def _refuse_antidiffusion(
    divergence: Any, gradients: Iterable[Any], x: Any, schemes_of: Callable[[Any], set[str]]
) -> None:
    """Raise ModelError if a flux and its divergence are upwind alike: F = -D c_x, c_t = -F_x.

    Such differences amplify what changes from point to point, the more the finer the grid.
    """
    for gradient in gradients:
        names = [d.get_state_var().name for d in (divergence, gradient)]
        schemes = [min(schemes_of(d)) for d in (divergence, gradient)]
        if schemes[0][:7] == schemes[1][:7] != "central":
            raise ModelError(
                f"'{divergence.name}' is the derivative of '{names[0]}', which contains "
                f"the derivative '{gradient.name}'. With {schemes[0]!r} for both, igpe "
                f"cannot integrate diffusion. Pass space={{'{x.name}': "
                "igpe.integrators.FiniteDifference(50, 'central')}. If the flux also "
                f"contains flow, {{'{names[0]}': 'backward', '{names[1]}': 'forward'}} in "
                "place of 'central' is more robust."
            )


def _profile(state: Any, index: Any, x: Any) -> tuple[Profile, float]:
    """A variable along the line of a set that goes through a point, and where this is."""
    place = position_in(state, x)
    return lambda p: state[moved(index, place, p)], float(key_of(index)[place or 0])


def _covered(x: Any, scheme: str) -> list[float]:
    """The ends at which the scheme has a formula."""
    if scheme.startswith("backward"):
        return [x.last()]
    return [x.first()] if scheme.startswith("forward") else []


def _used_outside_balances(
    model: Any, x: Any, derivatives: Sequence[Any]
) -> tuple[set[int], set[int]]:
    """First derivatives by x at the ends that conditions hold, and that Expressions alone do.

    A balance holds the state's derivative by the time as well.
    """
    ends = (x.first(), x.last())
    state_of: dict[int, int] = {}
    slopes: dict[int, set[int]] = {}
    for derivative in derivatives:
        state = derivative.get_state_var()
        for index in indices_at(ends, derivative, x):
            if is_over(derivative, x, alone=True):
                state_of[id(derivative[index])] = id(state[index])
            elif not is_over(derivative, x):
                slopes.setdefault(id(state[index]), set()).add(id(derivative[index]))
    conditions, balances, named = set[int](), set[int](), set[int]()
    for component in model.component_objects((pyo.Constraint, pyo.Expression), active=True):
        for index in indices_at(ends, component, x):
            held = _held(component, index)
            own = held & state_of.keys()
            if component.ctype is pyo.Expression:
                named |= own
                continue
            of_balance = {d for d in own if held & slopes.get(state_of[d], set())}
            balances |= of_balance
            conditions |= own - of_balance
    return conditions, named - conditions - balances


def used_inside(model: Any, x: Any) -> set[str]:
    """Names of components that equations hold between the ends."""
    inside = {float(p) for p in x} - {x.first(), x.last()}
    found: set[str] = set()
    for component in model.component_objects(pyo.Constraint, active=True):
        if position_in(component, x) is not None and not component.local_name.endswith("_disc_eq"):
            for index in once(indices_at(inside, component, x), component, {x.name}):
                held = identify_variables(component[index].expr)
                found |= {v.parent_component().name for v in held}
    return found


def _held(component: Any, index: Any) -> set[int]:
    """Variables of a member of an equation or expression; none of the differences' own."""
    if component.local_name.endswith("_disc_eq") or component[index].expr is None:
        return set()
    return {id(v) for v in identify_variables(component[index].expr)}
