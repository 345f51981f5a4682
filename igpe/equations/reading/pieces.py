"""What is written with conditions on the time: asked between the times at which it changes.

A rule or a function that asks `if t < 0.4` answers with one branch only. An `Instant` remembers
0.4; asked again before, at and after it, the rule tells all branches, and

    if t < 0.4 the first, else the second

is what it says at all times. Conditions stay as deep in the expression as they are in the model.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import casadi as ca
from pyomo.common.numeric_types import native_types
from pyomo.core.base.var import VarData
from pyomo.core.expr.numeric_expr import SumExpression

from igpe.equations.reading.alike import Roles, alike, is_plain
from igpe.equations.reading.instant import Computed, Instant, plain
from igpe.equations.translate import Translator

MOST = 400  # times at which one rule may change

Ask = Callable[[float], tuple[Any, set[float]]]
"""The time to pretend -> what is written then, and the numbers the time was compared with."""


class Pieces(NamedTuple):
    """What is written before, at and after each cut.

    cuts     (n,) times at which it may change, increasing
    answers  (2 n + 1,) before the first cut, at it, between it and the second, ...
    """

    cuts: list[float]
    answers: list[Any]


def places(cuts: Sequence[float], first: float, usual: float) -> list[float]:
    """Times before, at and after each cut; `usual` where there is none."""
    if not cuts:
        return [usual]
    ends = [first, *cuts, cuts[-1] + (cuts[-1] - first)]
    between = [(a + b) / 2 for a, b in pairwise(ends)]
    return [t for pair in zip_longest(between, cuts) for t in pair if t is not None]


def explored(ask: Ask, first: float, usual: float) -> Pieces:
    """Ask until no new time of change shows.

    first   start of the horizon: times before and at it are no cuts
    raises  ValueError if there are too many cuts, and whatever `ask` raises
    """
    cuts: list[float] = []
    answers: dict[float, Any] = {}
    while True:
        seen = set(cuts)
        now = places(cuts, first, usual)
        for t in now:
            if t not in answers:
                answers[t], numbers = ask(t)
                seen |= {n for n in numbers if first < n < float("inf")}
        if len(seen) == len(cuts):
            return Pieces(cuts, [answers[t] for t in now])
        cuts = sorted(seen)
        if len(cuts) > MOST:
            raise ValueError(f"it changes at more than {MOST} times; give it as an input")


class Joined:
    """Rewrites what is written in pieces as one CasADi expression.

    translate  of one piece
    roles      of the components that the pieces are written with
    """

    def __init__(self, translate: Translator, roles: Roles) -> None:
        self.translate, self.roles = translate, roles

    def __call__(self, cuts: Sequence[float], nodes: Sequence[Any]) -> Any:
        """The expression that is nodes[0] before the first cut, nodes[1] at it, and so on."""
        nodes = [plain(node) for node in nodes]
        one = nodes[0]
        if all(self._same(one, other) for other in nodes[1:]):
            return self.translate(one)
        if all(isinstance(other, SumExpression) for other in nodes):
            rows = zip_longest(*(n.args for n in nodes), fillvalue=0.0)
            return sum(self(cuts, row) for row in rows)
        if all(is_plain(one, other) and one.nargs() == other.nargs() for other in nodes[1:]):
            columns = zip(*(n.args for n in nodes), strict=True)
            return self.translate.exitNode(one, [self(cuts, column) for column in columns])
        return self._chosen(cuts, nodes)

    def _same(self, one: Any, other: Any) -> bool:
        return one is other or alike(one, other, self.roles, self.roles)

    def _chosen(self, cuts: Sequence[float], nodes: Sequence[Any]) -> Any:
        kinds: list[Any] = []
        for node in nodes:
            kinds.append(next((k for k in kinds if self._same(k, node)), node))
        written = {id(k): self.translate(k) for k in kinds}
        t = self.translate.time
        result, after = written[id(kinds[-1])], kinds[-1]
        for cut, at, before in reversed(list(zip(cuts, kinds[1::2], kinds[0::2], strict=False))):
            if at is not after and at is not before:
                result, after = _either(t <= cut, written[id(at)], result), at
            if before is not after:
                condition = t < cut if at is after else t <= cut
                result = _either(condition, written[id(before)], result)
            after = before
        return result


def _either(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` where the condition holds; conditions are put together of conditions."""
    if not isinstance(then, bool):
        return ca.if_else(condition, then, otherwise)
    if isinstance(otherwise, bool):
        return condition if then else ca.logic_not(condition)
    if then:
        return ca.logic_or(condition, otherwise)
    return ca.logic_and(ca.logic_not(condition), otherwise)


def mentions(node: Any, ids: set[int]) -> bool:
    """Whether an expression holds an `Instant` or one of the components."""
    kind = node.__class__
    if kind in native_types or (kind is VarData and not ids):
        return False
    if kind is Instant or kind is Computed or id(node) in ids:
        return True
    if kind is tuple or kind is list:
        return any(mentions(part, ids) for part in node)
    if not (hasattr(node, "is_expression_type") and node.is_expression_type()):
        return False
    return any(mentions(argument, ids) for argument in node.args)
