"""Least squares whose residuals are linear in some of the parameters.

min over theta, beta of | d - phi_0(theta) - sum_k beta_k phi_k(theta) |^2

theta in a box, beta in a box, and for some pairs  low beta_k <= beta_l <= high beta_k,
low <= theta_i - theta_j <= high

The scale on which a nonlinear parameter is halved.

A span covers t in [first, first + cells] / 2^level of a coordinate t in [0, 1]:

    linear       p = lower + t (upper - lower)
    logarithmic  p = lower (upper / lower)^t,  or where the lower bound is zero or near it
                 p = lower + (upper - lower) expm1(a t) / expm1(a)

Neighbouring spans share the same number as their common end, so that they always cover the box.

The functions phi_k, CasADi expressions, evaluated in Taylor models.

Quotients of sums of positive terms are evaluated through logarithms where a variable is affine in
its own; as they stand as well where a logarithm is unknown, and then the narrower enclosure counts,
row by row. Through logarithms a/(a + b) is the sigmoid of ln a - ln b, whose
derivatives stay bounded however wide the interval; written as it stands, numerator and denominator
of its derivatives forget that they are the same.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.algebraic.bounds import taylor
from igpe.algebraic.bounds.taylor import UNIT, Taylor, constant, variable
from igpe.core.arrays import FloatArray, IntArray
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


DECADES = np.log(1e3)  # a: how much finer the scale is at zero than at the upper bound
SPAN = 1e6  # ratio of the bounds beyond which the scale is the one for zero


class Span(NamedTuple):
    """A part of an axis; see the top of the file."""

    level: int
    first: int
    cells: int = 1

    @property
    def width(self) -> float:
        """Share of the axis that the span covers."""
        return self.cells * 0.5**self.level

    def parts(self, halvings: int) -> "list[Span]":
        """The spans into which it falls when it is halved so many times."""
        level, first = self.level + halvings, self.first << halvings
        return [Span(level, first + i * self.cells, self.cells) for i in range(1 << halvings)]


@dataclass(frozen=True)
class Axis:
    """A nonlinear parameter.

    logarithmic  whether it is halved on a logarithmic scale
    log_affine   whether cells are enclosed in its logarithm
    """

    lower: float
    upper: float
    logarithmic: bool
    log_affine: bool = False

    def ends(
        self, level: IntArray, first: IntArray, cells: IntArray | int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Lower and upper ends (n,) of spans."""
        whole = 2.0**level
        return self._value(first / whole), self._value((first + cells) / whole)

    def at(self, t: float) -> float:
        """The parameter at coordinate t."""
        return float(self._value(np.array(t)))

    def _value(self, t: FloatArray) -> FloatArray:
        width = self.upper - self.lower
        if not self.logarithmic:
            p = self.lower + t * width
        elif self.lower > self.upper / SPAN:
            p = self.lower * (self.upper / self.lower) ** t
        else:
            p = self.lower + width * (np.expm1(DECADES * t) / np.expm1(DECADES))
        p = np.where(t <= 0, self.lower, np.where(t >= 1, self.upper, p))
        return np.asarray(np.clip(p, self.lower, self.upper))


class ParameterPair(NamedTuple):
    """low <= ratio or difference of two parameters <= high: of `second` to or from `first`."""

    first: int
    second: int
    low: float
    high: float


@dataclass(frozen=True)
class ColumnBlock:
    """Residuals that n_out expressions make at the same places.

    columns    SX (n_out, 1 + K): phi_0, phi_1, ..., before weighting
    known      SX symbols of `columns`, with their numbers `places` (n_known, n_places)
    nonlinear  SX symbols theta of `columns`
    combine    (n, q) weights of q places in a row for each residual, or None: identity
    target     (n_out, n) d;  weight: (n_out, n)
    """

    columns: Any
    known: Any
    nonlinear: Any
    places: FloatArray
    combine: FloatArray | None
    target: FloatArray
    weight: FloatArray

    @cached_property
    def depends(self) -> tuple[tuple[int, ...], ...]:
        """For each column the indices of theta it depends on."""
        result = []
        for column in ca.horzsplit(self.columns):
            pattern = ca.jacobian_sparsity(column, self.nonlinear)
            result.append(tuple(sorted({int(j) for j in pattern.get_triplet()[1]})))
        return tuple(result)

    def graph(self, ks: tuple[int, ...]) -> TaylorGraph:
        """Columns `ks`, all outputs of the first, then of the second, ..: they share their parts.

        raises UnknownOperation
        """
        if ks not in self._graphs:
            columns = ca.vertcat(*[self.columns[:, k] for k in ks])
            self._graphs[ks] = TaylorGraph(columns, self.known, self.nonlinear)
        return self._graphs[ks]

    @cached_property
    def _graphs(self) -> dict[tuple[int, ...], TaylorGraph]:
        return {}

    def values(self, thetas: FloatArray) -> FloatArray:
        """(n_thetas, n_out * n, 1 + K) weighted columns; thetas: (n_thetas, J)."""
        n_out, n_columns = self.columns.shape
        shape = (len(thetas), self.places.shape[1])
        result = self.graph(tuple(range(n_columns))).values(self.places, thetas)
        f = np.stack([np.broadcast_to(v, shape) for v in result])  # columns, of each its outputs
        rows = self._weighted(f.reshape(n_columns, n_out, *shape).transpose(2, 0, 1, 3))
        return rows.reshape(len(thetas), n_columns, -1).transpose(0, 2, 1)

    def enclosures(self, ks: tuple[int, ...], leaves: Sequence[Leaf]) -> list[Taylor]:
        """Columns of the weighted residuals, each (n_boxes, n_out * n)."""
        result, n = self.graph(ks)(self.places, leaves), self.columns.shape[0]
        return [self._column(result[i * n : (i + 1) * n]) for i in range(len(ks))]

    def _column(self, outputs: list[Taylor]) -> Taylor:
        e = [f.e + (3 + self._width) * UNIT * (f.size + f.e) for f in outputs]
        c = self._gathered([f.c for f in outputs], 0)
        g = self._gathered([f.g for f in outputs], 1)
        t = self._gathered([f.t for f in outputs], 1)
        return Taylor(c, g, t, self._gathered(e, 0, sign=False))

    def _gathered(self, parts: list[Any], leading: int, *, sign: bool = True) -> Any:
        """(..., n_boxes, n_out * n) weighted rows of all outputs side by side."""
        shapes = [p.shape[:-1] for p in parts if p is not None]
        if not shapes:
            return None
        shape = np.broadcast_shapes(*shapes)
        places = self.places.shape[1]
        full = np.zeros((*shape, len(parts), places))
        for i, part in enumerate(parts):
            if part is not None:
                full[..., i, :] = part
        rows = self._weighted(full, sign=sign)
        return rows.reshape(*shape, -1)

    @cached_property
    def _width(self) -> int:
        return 0 if self.combine is None else self.combine.shape[1]

    def _weighted(self, values: FloatArray, *, sign: bool = True) -> FloatArray:
        """(..., n_out, n_places) -> (..., n_out, n)."""
        weight = self.weight if sign else np.abs(self.weight)
        if self.combine is None:
            return values * weight
        combine = self.combine if sign else np.abs(self.combine)
        split = values.reshape(*values.shape[:-1], *combine.shape)
        with np.errstate(invalid="ignore"):  # 0 * inf
            return np.asarray(np.einsum("iq,...iq->...i", combine, split) * weight)


@dataclass(frozen=True)
class Separable:
    """See the top of the file.

    axes          bounds of theta
    lower, upper  (K,) bounds of beta; may be infinite
    ratios        of linear parameters;  differences: of nonlinear ones
    """

    blocks: tuple[ColumnBlock, ...]
    axes: tuple[Axis, ...]
    lower: FloatArray
    upper: FloatArray
    ratios: tuple[ParameterPair, ...] = ()
    differences: tuple[ParameterPair, ...] = ()

    @cached_property
    def target(self) -> FloatArray:
        """(n_residuals,) weighted d."""
        return np.concatenate([(b.weight * b.target).ravel() for b in self.blocks])

    @cached_property
    def depends(self) -> tuple[tuple[int, ...], ...]:
        """For each column, phi_0 first, the indices of theta it depends on."""
        columns = zip(*(b.depends for b in self.blocks), strict=True)
        return tuple(tuple(sorted(set().union(*own))) for own in columns)

    @property
    def n_linear(self) -> int:
        """K."""
        return len(self.lower)

    def thetas(self, unit: FloatArray) -> FloatArray:
        """(n, J) nonlinear parameters at coordinates between 0 and 1 of their axes."""
        return np.array([[a.at(t) for a, t in zip(self.axes, ts, strict=True)] for ts in unit])

    def values(self, thetas: FloatArray) -> FloatArray:
        """(n_thetas, n_residuals, 1 + K) weighted columns, phi_0 first; thetas: (n_thetas, J)."""
        return np.concatenate([b.values(thetas) for b in self.blocks], axis=1)

    def same_axes(self, k: int) -> tuple[int, ...]:
        """The columns that depend on the same parameters as column k."""
        return tuple(i for i, own in enumerate(self.depends) if own == self.depends[k])

    def enclosures(self, ks: tuple[int, ...], lower: FloatArray, upper: FloatArray) -> list[Taylor]:
        """Weighted columns that depend on the same theta, over boxes of the theta they depend on.

        lower, upper  (n_boxes, J) in the order of `depends[ks[0]]`
        returns       c, e (n_boxes, n_residuals), g and t with their leading axes, never None
        """
        own = self.depends[ks[0]]
        leaves: list[Any] = [None] * len(self.axes)
        logs = all(lower[:, j].min() > 0 for j, a in enumerate(own) if self.axes[a].log_affine)
        for j, index in enumerate(own):
            leaves[index] = _leaf(lower, upper, j, logs and self.axes[index].log_affine)
        parts = [b.enclosures(ks, leaves) for b in self.blocks]
        sizes = [b.target.size for b in self.blocks]
        shape = (len(lower), len(own))
        return [_joined([p[i] for p in parts], sizes, shape) for i in range(len(ks))]


def _leaf(lower: FloatArray, upper: FloatArray, j: int, logarithmic: bool) -> Leaf:
    """The j-th variable, affine in itself or in its logarithm."""
    low, high, count = lower[:, j], upper[:, j], lower.shape[1]
    if not logarithmic:
        return Leaf(variable(low, high, j, count))
    step = 4 * UNIT
    log = variable(
        np.log(low) - step * np.abs(np.log(low)),
        np.log(high) + step * np.abs(np.log(high)),
        j,
        count,
    )
    return Leaf(taylor.exp(log), log)


def _joined(parts: list[Taylor], sizes: list[int], shape: tuple[int, int]) -> Taylor:
    """The rows of all blocks side by side."""
    boxes, n = shape
    total = sum(sizes)
    c, e = np.zeros((boxes, total)), np.zeros((boxes, total))
    g = np.zeros((n, boxes, total))
    t = np.zeros((n * (n + 1) // 2, boxes, total))
    begin = 0
    for part, size in zip(parts, sizes, strict=True):
        rows = slice(begin, begin + size)
        begin += size
        c[:, rows], e[:, rows] = part.c, part.e
        if part.g is not None:
            g[..., rows] = part.g
        if part.t is not None:
            t[..., rows] = part.t
    return Taylor(c, g, t, e)
