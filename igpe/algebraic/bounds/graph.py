"""CasADi expressions evaluated in Taylor models.

Quotients of sums of positive terms are evaluated through logarithms where a variable is affine in
its own; as they stand as well where a logarithm is unknown, and then the narrower enclosure counts,
row by row. Through logarithms a/(a + b) is the sigmoid of ln a - ln b, whose
derivatives stay bounded however wide the interval; written as it stands, numerator and denominator
of its derivatives forget that they are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from igpe.algebraic.bounds import taylor
from igpe.algebraic.bounds.taylor import Taylor, constant
from igpe.core.arrays import FloatArray
from igpe.equations.operations import Graph, Node, UnknownOperation

DEEPEST = 200  # operations in a row, which are evaluated by recursion


@dataclass(frozen=True)
class Leaf:
    """A variable, and its logarithm where that is the affine one (else None)."""

    value: Taylor
    log: Taylor | None = None


KNOWN, VARIABLE = range(2)  # columns of symbols


class TaylorGraph:
    """Expressions of known numbers and variables.

    expressions       SX column (n,)
    known, variables  SX columns of symbols
    raises            UnknownOperation
    """

    def __init__(self, expressions: Any, known: Any, variables: Any) -> None:
        self.graph = Graph.of(expressions, [known, variables])
        self.graph.require(_RULES)
        self.nodes = self.graph.nodes
        if self.graph.depth() > DEEPEST:
            raise UnknownOperation(f"more than {DEEPEST} nested operations")

    def logarithmic(self) -> set[int]:
        """Indices of the variables in a denominator or under a power: log is their scale."""
        result: set[int] = set()
        for node in self.nodes:
            if node.name in ("DIV", "POW", "CONSTPOW", "INV", "LOG", "SQRT"):
                place = node.arguments[1] if node.name == "DIV" else node.arguments[0]
                self._collect(place, result)
        return result

    def exponentiated(self) -> set[int]:
        """Indices of the variables under a power whose exponent is a variable as well."""
        result: set[int] = set()
        for node in self.nodes:
            if node.name == "POW" and self._has_variable(node.arguments[1]):
                self._collect(node.arguments[0], result)
        return result

    def _has_variable(self, k: int) -> bool:
        node = self.nodes[k]
        return _is_variable(node) or any(self._has_variable(a) for a in node.arguments)

    def _collect(self, k: int, result: set[int]) -> None:
        """Variables below node k, but not those in the exponent of a power or exponential."""
        node = self.nodes[k]
        if _is_variable(node):
            result.add(node.place[1])
        if node.name == "EXP":
            return
        below = node.arguments[:1] if node.name in ("POW", "CONSTPOW") else node.arguments
        for a in below:
            self._collect(a, result)

    def __call__(self, known: FloatArray, leaves: Sequence[Leaf]) -> list[Taylor]:
        """An enclosure of each expression, its rounding covered.

        known   (n_known, n_places)
        leaves  one for each variable
        """
        with np.errstate(all="ignore"):
            run = _Evaluation(self.nodes, known, leaves)
            return [run.value(k).outward() for k in self.graph.results]

    def values(self, known: FloatArray, thetas: FloatArray) -> list[FloatArray]:
        """Numbers, each (n_thetas, n_places) or broadcastable to it; thetas: (n_thetas, J)."""
        return self.graph.numbers(known[:, None], thetas.T[:, :, None])


class _Evaluation:
    """Values of the nodes for one set of boxes; each is computed when it is first needed."""

    def __init__(self, nodes: list[Node], known: FloatArray, leaves: Sequence[Leaf]) -> None:
        self.nodes, self.known, self.leaves = nodes, known, leaves
        self.values: dict[int, Taylor] = {}
        self.logs: dict[int, Taylor] = {}

    def value(self, k: int) -> Taylor:
        if k not in self.values:
            self.values[k] = self._value(self.nodes[k])
        return self.values[k]

    def log(self, k: int) -> Taylor:
        """The node's logarithm, as a sum where the node is a product."""
        if k not in self.logs:
            self.logs[k] = self._log(k)
        return self.logs[k]

    def _value(self, node: Node) -> Taylor:
        if node.name == "CONST":
            return constant(node.value)
        if node.name == "INPUT":
            column, i = node.place
            return self.leaves[i].value if column == VARIABLE else constant(self.known[i])
        return _RULES[node.name](self, *node.arguments)

    def _log(self, k: int) -> Taylor:
        node = self.nodes[k]
        if _is_variable(node):
            leaf = self.leaves[node.place[1]]
            return taylor.log(leaf.value) if leaf.log is None else leaf.log
        if node.name in _LOGARITHMS:
            return _LOGARITHMS[node.name](self, *node.arguments)
        return taylor.log(self.value(k))

    def product(self, a: int, b: int) -> Taylor:
        """a b, as a quotient where one of them is a reciprocal."""
        for one, other in ((a, b), (b, a)):
            if self.nodes[other].name == "INV":
                return self.quotient(one, self.nodes[other].arguments[0])
        return self.value(a) * self.value(b)

    def quotient(self, top: int | None, bottom: int) -> Taylor:
        """top / bottom (1 / bottom without top), through logarithms where they help."""
        through_logs = None
        if self.nodes[bottom].name == "ADD" and self._has_logarithm(bottom):
            through_logs = self._sigmoid(top, bottom).outward()
            if np.isfinite(through_logs.e).all():
                return through_logs
        inverse = taylor.reciprocal(self.value(bottom))
        plain = inverse if top is None else self.value(top) * inverse
        return plain if through_logs is None else _narrower(plain, through_logs)

    def _has_logarithm(self, k: int) -> bool:
        """Whether some variable below the node is affine in its logarithm, or an exponent."""
        node = self.nodes[k]
        if _is_variable(node):
            return self.leaves[node.place[1]].log is not None
        return any(self._has_logarithm(a) for a in node.arguments)

    def _sigmoid(self, top: int | None, bottom: int) -> Taylor:
        terms = self._terms(bottom)
        if top is None:
            top = next((k for k in terms if self.nodes[k] == ONE), None)
        if top is not None and top in terms:
            terms.remove(top)
            rest = self.log(terms[0])
            for k in terms[1:]:
                rest = _log_of_sum(rest, self.log(k))
            return taylor.sigmoid(self.log(top) - rest)
        if top is None:
            return taylor.exp(-self.log(bottom))
        if self._has_logarithm(top):
            return taylor.exp(self.log(top) - self.log(bottom))
        return self.value(top) * taylor.exp(-self.log(bottom))

    def _terms(self, k: int) -> list[int]:
        node = self.nodes[k]
        if node.name != "ADD":
            return [k]
        return [t for a in node.arguments for t in self._terms(a)]

    def power(self, base: int, exponent: int) -> Taylor:
        """base ** exponent."""
        node = self.nodes[exponent]
        if node.name == "CONST":
            return self._constant_power(base, node.value)
        result = taylor.exp(self.value(exponent) * self.log(base))
        if not self.value(base).is_constant:
            return result
        zero = (self.value(base).c == 0) & (self.value(base).e == 0)
        nothing = zero & (self.value(exponent).range()[0] > 0)
        known = constant(np.zeros(nothing.shape), np.where(nothing, 0.0, np.inf))
        return _narrower(result, known)

    def _constant_power(self, base: int, exponent: float) -> Taylor:
        if exponent == int(exponent) and 0 < abs(exponent) <= MOST_FACTORS:
            f = result = self.value(base)
            for _ in range(int(abs(exponent)) - 1):
                result = result * f
            return result if exponent > 0 else taylor.reciprocal(result)
        return taylor.power(exponent)(self.value(base))


ONE = Node("CONST", value=1.0)
MOST_FACTORS = 6  # of an integer power that is multiplied out


def _is_variable(node: Node) -> bool:
    return node.name == "INPUT" and node.place[0] == VARIABLE


def _log_of_sum(a: Taylor, b: Taylor) -> Taylor:
    """ln(exp a + exp b)."""
    return a + taylor.softplus(b - a)


def _narrower(a: Taylor, b: Taylor) -> Taylor:
    """Elementwise the one with the smaller remainder."""
    a, b = a.outward(), b.outward()
    left = a.e <= b.e
    g = None if a.g is None and b.g is None else np.where(left, _full(a.g), _full(b.g))
    t = None if a.t is None and b.t is None else np.where(left, _full(a.t), _full(b.t))
    return Taylor(np.where(left, a.c, b.c), g, t, np.where(left, a.e, b.e))


def _full(part: FloatArray | None) -> FloatArray:
    return np.zeros(()) if part is None else part


def _tanh(run: _Evaluation, a: int) -> Taylor:
    two = constant(2.0)
    return two * taylor.sigmoid(two * run.value(a)) - constant(1.0)


_RULES: Mapping[str, Callable[..., Taylor]] = {
    "ASSIGN": lambda run, a: run.value(a),
    "ADD": lambda run, a, b: run.value(a) + run.value(b),
    "SUB": lambda run, a, b: run.value(a) - run.value(b),
    "MUL": lambda run, a, b: run.product(a, b),
    "DIV": lambda run, a, b: run.quotient(a, b),
    "INV": lambda run, a: run.quotient(None, a),
    "NEG": lambda run, a: -run.value(a),
    "TWICE": lambda run, a: constant(2.0) * run.value(a),
    "SQ": lambda run, a: run.value(a).square(),
    "POW": lambda run, a, b: run.power(a, b),
    "CONSTPOW": lambda run, a, b: run.power(a, b),
    "SQRT": lambda run, a: taylor.power(0.5)(run.value(a)),
    "EXP": lambda run, a: taylor.exp(run.value(a)),
    "LOG": lambda run, a: _narrower(run.log(a), taylor.log(run.value(a))),
    "TANH": _tanh,
    "SIN": lambda run, a: taylor.sine(run.value(a)),
    "COS": lambda run, a: taylor.cosine(run.value(a)),
    "FABS": lambda run, a: taylor.absolute(run.value(a)),
}
"""Values, by CasADi's name of the operation."""

_LOGARITHMS: Mapping[str, Callable[..., Taylor]] = {
    "ASSIGN": lambda run, a: run.log(a),
    "ADD": lambda run, a, b: _log_of_sum(run.log(a), run.log(b)),
    "MUL": lambda run, a, b: run.log(a) + run.log(b),
    "DIV": lambda run, a, b: run.log(a) - run.log(b),
    "INV": lambda run, a: -run.log(a),
    "TWICE": lambda run, a: taylor.log(constant(2.0)) + run.log(a),
    "SQ": lambda run, a: constant(2.0) * run.log(a),
    "POW": lambda run, a, b: run.value(b) * run.log(a),
    "CONSTPOW": lambda run, a, b: run.value(b) * run.log(a),
    "SQRT": lambda run, a: constant(0.5) * run.log(a),
    "EXP": lambda run, a: run.value(a),
}
"""Logarithms of what is positive; where a part is not, the remainder becomes infinite."""
