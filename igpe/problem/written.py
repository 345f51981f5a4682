"""The equations of a problem's model as plain trees, to be typeset by `igpe.core.mathml`.

What is read is one instant of the model. A number that differs between two instants depends on
time: it is written as t or a multiple of t where it is one, else as a number that varies with t.
"""

from collections.abc import Iterator, Mapping
from math import isclose
from typing import Any

from pyomo.core.expr.visitor import StreamBasedExpressionVisitor
from pyomo.environ import value

from igpe.problem.model import Builder, Instance, Series, build

Tree = Any
SHARES = 0.3172, 0.7219  # of the span: times that are no round numbers
VARIES = ["at", "number", "t"]  # a number that the rule computes from the time
OPERATIONS = {
    **dict.fromkeys(("Sum", "Linear"), "+"),
    **dict.fromkeys(("Product", "MonomialTerm"), "*"),
    "Division": "/",
    "Pow": "^",
    "Negation": "-",
    "Equality": "=",
    "Expr_if": "if",
}
FUNCTIONS = {"Abs": "abs", "Max": "max", "Min": "min"}
CALLED = {"log": "ln"}


class _Writer(StreamBasedExpressionVisitor):  # type: ignore[misc]
    """Writes Pyomo expressions as trees; `leaves` are known components by id."""

    def __init__(self, leaves: Mapping[int, Tree]) -> None:
        super().__init__()
        self.leaves, self.used = leaves, set[int]()

    def initializeWalker(self, expression: Any) -> tuple[bool, Any]:
        descend, result = self.beforeChild(None, expression, 0)
        return (True, expression) if descend else (False, result)

    def beforeChild(self, node: Any, child: Any, child_idx: int) -> tuple[bool, Any]:
        if id(child) in self.leaves:
            self.used.add(id(child))
            return False, self.leaves[id(child)]
        if not hasattr(child, "is_expression_type"):
            return False, float(child)
        if child.is_expression_type():
            return True, None
        number = None if child.is_variable_type() else value(child, exception=False)
        return False, str(child.name) if number is None else float(number)

    def exitNode(self, node: Any, data: list[Any]) -> Tree:
        kind = type(node).__name__.removeprefix("NPV_").removesuffix("Expression")
        if kind == "Expr_if" and isinstance(data[0], float):  # Python has compared the time
            data[0] = ["text", "a condition on time"]
        if kind in OPERATIONS:
            return [OPERATIONS[kind], *data]
        if kind in ("Inequality", "Ranged"):
            strict = node.strict if isinstance(node.strict, bool) else all(node.strict)
            return ["<" if strict else "<=", *data]
        if kind == "UnaryFunction":
            name = node.getname()
            return ["^", *data, 0.5] if name == "sqrt" else ["f", CALLED.get(name, name), *data]
        if kind in FUNCTIONS:
            return ["f", FUNCTIONS[kind], *data]
        return data[0] if node.is_named_expression_type() else ["text", str(node)]


def equations(builder: Builder, start: float = 0.0, end: float = 1.0, of: Any = None) -> list[Tree]:
    """The model's equations and inequalities, what their Expressions are, and its conditions.

    start, end  times between which the model is looked at;  of: the experiment it is built for
    """
    instance = build(
        builder, [start, *(start + share * (end - start) for share in SHARES), end], of
    )
    used = dict[str, None]()
    families = {**instance.equations, **instance.inequalities}
    found = [_over_time(instance, series, used) for series in families.values()]
    written = set[str]()
    while pending := [name for name in used if name not in written]:  # theirs may use others
        for name in pending:
            found.append(["=", name, _over_time(instance, instance.expressions[name], used)])
            written.add(name)
    writer = _Writer(_leaves(instance, instance.first))
    return found + [writer.walk_expression(c.expr) for c in instance.conditions.values()]


def _over_time(instance: Instance, rules: Series, used: dict[str, None]) -> Tree:
    """One equation, from two of its instants; `used` gathers the Expressions that it needs."""
    # Rules often make an exception of the first time; Pyomo leaves out terms with 0 and 1.
    every = sorted(rules)
    times = [t for t in every[1:] if t not in (0, 1)]
    times = [times[0], times[-1]] if len(times) > 1 else every[-2:]
    trees = []
    for t in times:
        writer = _Writer(_leaves(instance, t))
        trees.append(writer.walk_expression(rules[t].expr))
        of = {id(series.get(t)): name for name, series in instance.expressions.items()}
        used |= {name: None for i, name in of.items() if i in writer.used}
    return _merged(trees[0], trees[-1], times)


def _leaves(instance: Instance, t: float) -> dict[int, Tree]:
    first = instance.first
    return {
        **{id(data): name for name, data in instance.scalars.items()},
        **dict(_at(instance.series, t)),
        **dict(_at(instance.expressions, t)),
        **dict(_at(instance.states, t)),
        **{id(x[first]): ["at", name, first] for name, x in instance.states.items()},
        **{i: ["d", name] for i, name in _at(instance.slopes, t)},
    }


def _at(family: Mapping[str, Any], t: float) -> Iterator[tuple[int, str]]:
    return ((id(series[t]), name) for name, series in family.items() if t in series)


def _merged(one: Tree, other: Tree, times: list[float]) -> Tree:
    """What the equation is at both instants."""
    if one == other:
        return one
    if isinstance(one, float) and isinstance(other, float):
        return _of_time(one, other, times)
    is_alike = isinstance(one, list) and isinstance(other, list) and len(one) == len(other)
    if is_alike and one[0] == other[0]:
        return [one[0], *(_merged(a, b, times) for a, b in zip(one[1:], other[1:], strict=True))]
    return ["if", ["=", "t", times[-1]], other, ["text", "another formula"]]


def _of_time(one: float, other: float, times: list[float]) -> Tree:
    """What has these values at the two times: t, -t or c t, as far as two of them tell."""
    factor = other / times[-1]
    if not isclose(one, factor * times[0], rel_tol=1e-12):
        return VARIES
    return {1.0: "t", -1.0: ["-", "t"]}.get(factor, ["*", factor, "t"])
