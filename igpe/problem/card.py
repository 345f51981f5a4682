"""HTML of a problem for notebooks: equations, experiments, and unknowns with bounds.

The equations of the model become plain trees, and these become MathML. What is read is one instant
of the model. A number that differs between two instants depends on time: it is written as t or a
multiple of t where it is one, else as a number that varies with t.

Browsers and notebooks show MathML without fonts or scripts. An equation is a tree of plain values,
so that it can be stored: a number, a name, or a list of an operation and its operands: ["=", ["d",
"A"], ["*", ["-", "k1"], "A"]]. Every name is escaped here.

Browsers break no formula into lines. A formula is therefore a row of pieces, each a `<math>` of its
own, and a line may end between two of them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import isclose
from typing import Any, NamedTuple
from unicodedata import lookup

from pyomo.core.expr.visitor import StreamBasedExpressionVisitor
from pyomo.environ import value

from igpe.core.markup import folded, heading, in_words, printable, table
from igpe.problem.building import Builder, build
from igpe.problem.inputs import Table
from igpe.problem.losses import NormalPrior
from igpe.problem.model import Instance, Series

MOST = 30  # equations and rows that are not folded
FEW = 6  # values of a table that are listed
LISTED = 12  # start values, inputs or times of one experiment that are listed
CONDITIONS = ("experiment", "start values", "inputs", "events")
HEADS = ("", "measured", "values", "times", "starts", "inputs", "standard deviations")


def problem_html(problem: Any) -> str:
    """Equations, experiments and unknowns."""
    return (
        f"{heading('Equations')}{typeset(problem_equations(problem))}"
        f"{heading('Experiments')}{table(HEADS, [_row(e) for e in problem.experiments])}"
        f"{heading('Unknowns')}{_unknowns(problem)}"
    )


def experiment_html(experiment: Any) -> str:
    """One experiment as a table with one row."""
    return table(HEADS, [_row(experiment)])


def conditions(problem: Any) -> tuple[tuple[str, ...], ...]:
    """Of each experiment: its name, start values, inputs and events in words; see `CONDITIONS`."""
    return tuple(
        (
            e.name or "experiment",
            in_words([f"{n} = {_amount(problem, n, v)}" for n, v in e.start.items()], LISTED),
            in_words([f"{n} = {_amount(problem, n, v)}" for n, v in e.inputs.items()], LISTED),
            in_words(_events(problem, e.events), LISTED),
        )
        for e in problem.experiments
    )


def _amount(problem: Any, name: str, given: Any) -> str:
    """A start value, an input or what an event adds, with its unit."""
    if isinstance(given, Table):
        points = [f"{v:g} at {t:g}" for t, v in zip(given.times, given.values, strict=True)]
        how = "steps" if given.hold else "a line"
        return f"{how} through {len(points)} values ({in_words(points, FEW)})"
    if isinstance(given, str):
        return given
    if hasattr(given, "lower"):
        return f"unknown in [{given.lower:g}, {given.upper:g}]"
    is_number = isinstance(given, int | float)
    return f"{given:g} {problem.unit(name)}".strip() if is_number else "by a rule"


def _events(problem: Any, events: Sequence[Any]) -> list[str]:
    """What events change; equal ones together, with their times."""
    times: dict[str, list[str]] = {}
    for e in events:
        changes = [f"{n} + {_amount(problem, n, v)}" for n, v in e.add.items()]
        changes += [f"{n} = {_amount(problem, n, v)}" for n, v in e.set.items()]
        when = "when a condition holds" if e.at is None else _amount(problem, "time", e.at)
        late = f", {_amount(problem, 'time', e.delay)} later" * (e.delay != 0)
        times.setdefault(" and ".join(changes), []).append(f"{when}{late}")
    return [f"{change} (at {in_words(own, LISTED)})" for change, own in times.items()]


def problem_equations(problem: Any) -> list[Any]:
    """The equations of the first experiment."""
    first = problem.experiments[0]
    return equations(problem.model, first.start_time, float(first.times[-1]), first)


def typeset(trees: Sequence[Any]) -> str:
    """Equations below each other; those of large models are folded."""
    lines = [f"<p>{mathml(one)}</p>" for one in trees]
    more = folded(f"{len(lines) - MOST} more equations", "".join(lines[MOST:]))
    return "".join(lines[:MOST]) + more * (len(lines) > MOST)


def _row(e: Any) -> tuple[str, ...]:
    units = {name: f" [{unit}]" for name, unit in e.units.items()}
    sigma = "given" if e.sigma_known else "estimated" if e.estimated_sigma else "unknown"
    return (
        e.name or "experiment",
        ", ".join(f"{n}{units.get(n, '')}" for n in e.measured),
        str(len(e.measurements.value)),
        f"{len(e.times)} from {e.times[0]:g} to {e.times[-1]:g}{units.get('time', '')}",
        ", ".join(f"{n} = {_start(v)}" for n, v in e.start.items()) or "by the model",
        ", ".join(e.inputs),
        "follow the model" if e.error_models else sigma,
    )


def _start(value: Any) -> str:
    if hasattr(value, "lower"):
        return f"unknown in [{value.lower:g}, {value.upper:g}]"
    return value if isinstance(value, str) else f"{value:g}"


def _unknowns(problem: Any) -> str:
    box = problem.unknowns
    rows = [
        (name, f"{low:.6g}", f"{high:.6g}", problem.unit(name), _remark(problem, name))
        for name, low, high in zip(box.names, box.lower, box.upper, strict=True)
    ]
    written = table(("", "from", "to", "unit", "remark"), rows)
    return folded(f"{len(rows)} unknowns", written) if len(rows) > MOST else written


def _remark(problem: Any, name: str) -> str:
    if name in problem.fixed:
        return f"held at {problem.fixed[name]:g}"
    prior = problem.priors.get(name)
    if isinstance(prior, NormalPrior):
        return f"prior {prior.mean:g} ± {prior.deviation:g}"
    return f"{prior.law} prior" if prior else ""


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
    formulas = [_over_time(instance, series, used) for series in families.values()]
    written = set[str]()
    while pending := [name for name in used if name not in written]:  # theirs may use others
        for name in pending:
            formulas.append(["=", name, _over_time(instance, instance.expressions[name], used)])
            written.add(name)
    writer = _Writer(_leaves(instance, instance.first))
    return formulas + [writer.walk_expression(c.expr) for c in instance.conditions.values()]


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
    """Equation that holds at both instants."""
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


SUM, PRODUCT, POWER, ATOM = range(4)
LONG = 60  # characters of a fraction's part; longer ones are written in a line: a / b
NAME = re.compile(r"([A-Za-z]+?)(?:_?(\d+[a-z]*(?:_\w+)?)|_(\w+))?(?:\[(.*)\])?")
NUMBER = re.compile(r"(-?)([0-9.]+)(?:e([-+]\d+))?")
RELATIONS = {"=": "=", "<": "<", "<=": "≤"}
MINUS = "<mo>&#8722;</mo>"


class Formula(NamedTuple):
    """Part of an equation.

    pieces    between which a line may end
    level     how tightly it holds together
    negative  whether a minus stands before it
    """

    pieces: tuple[str, ...]
    level: int = ATOM
    negative: bool = False

    @property
    def row(self) -> str:
        """All pieces as one element."""
        return f"<mrow>{MINUS * self.negative}{''.join(self.pieces)}</mrow>"

    def within(self, level: int) -> tuple[str, ...]:
        """The pieces as an operand of an operation of that level, in brackets where needed."""
        pieces = _before(MINUS * self.negative, self.pieces)
        is_bare = self.level >= level and not (self.negative and level > SUM)
        return pieces if is_bare else _bracketed(pieces)


def mathml(tree: Any) -> str:
    """The equation as HTML. Raises TypeError, ValueError or KeyError if it is not an equation."""
    return " ".join(
        f'<math displaystyle="true"><mrow>{piece}</mrow></math>'
        for piece in _formula(tree).within(SUM)
    )


def symbol(name: str) -> str:
    """A name, with what follows its letters as an index: k1, mu_max, c[A]."""
    parts = NAME.fullmatch(name)
    if parts is None:
        return f"<mi>{escape(printable(name))}</mi>"
    letters, *indices = parts.groups()
    base = f"<mi>{escape(_greek(letters))}</mi>"
    below = ",".join(filter(None, indices))
    return f"<msub>{base}<mi>{escape(printable(below))}</mi></msub>" if below else base


def _greek(letters: str) -> str:
    case = "CAPITAL" if letters[:1].isupper() else "SMALL"
    try:
        return lookup(f"GREEK {case} LETTER {letters.replace('lambda', 'lamda')}")
    except KeyError:
        return letters


def _formula(tree: Any) -> Formula:
    if isinstance(tree, str):
        return Formula((symbol(tree),))
    if isinstance(tree, (int, float)):
        return _number(float(tree))
    kind, *operands = tree
    made: Formula = _KINDS[kind](*operands)
    return made


def _number(value: float) -> Formula:
    parts = NUMBER.fullmatch(f"{value:.10g}")
    if parts is None:
        return Formula((f"<mi>{value}</mi>",))
    sign, digits, power = parts.groups()
    if power is None:
        return Formula((f"<mn>{digits}</mn>",), ATOM, bool(sign))
    ten = f"<msup><mn>10</mn><mn>{int(power)}</mn></msup>".replace("<mn>-", "<mn>&#8722;")
    times = "" if digits == "1" else f"<mn>{digits}</mn><mo>·</mo>"
    return Formula((f"<mrow>{times}{ten}</mrow>",), PRODUCT, bool(sign))


def _before(markup: str, pieces: Sequence[str]) -> tuple[str, ...]:
    return f"{markup}{pieces[0]}", *pieces[1:]


def _bracketed(pieces: Sequence[str]) -> tuple[str, ...]:
    first = _before("<mo>(</mo>", pieces)
    return *first[:-1], f"{first[-1]}<mo>)</mo>"


def _sum(*terms: Any) -> Formula:
    first, *rest = map(_formula, terms)
    pieces = list(first.within(SUM))
    for term in rest:
        sign = "<mo form='infix'>&#8722;</mo>" if term.negative else "<mo form='infix'>+</mo>"
        level = PRODUCT if term.negative else SUM
        pieces += _before(sign, term._replace(negative=False).within(level))
    return Formula(tuple(pieces), SUM)


def _product(*factors: Any) -> Formula:
    parts = [_formula(f) for f in factors]
    negative = sum(p.negative for p in parts) % 2 == 1
    bare = [p._replace(negative=False).within(PRODUCT) for p in parts]
    shown = [b for b in bare if b != ("<mn>1</mn>",)] or bare[:1]
    if sum(map(_length, shown)) <= LONG:
        return Formula(("<mo>·</mo>".join("".join(b) for b in shown),), PRODUCT, negative)
    pieces = list(shown[0])
    for one in shown[1:]:
        pieces += _before("<mo form='infix'>·</mo>", one)
    return Formula(tuple(pieces), PRODUCT, negative)


def _length(pieces: Sequence[str]) -> int:
    return len(re.sub(r"<[^>]*>", "", "".join(pieces)))


def _ratio(above: Any, below: Any) -> Formula:
    top, bottom = _formula(above), _formula(below)
    negative = top.negative != bottom.negative
    top, bottom = top._replace(negative=False), bottom._replace(negative=False)
    if max(_length(top.pieces), _length(bottom.pieces)) <= LONG:
        return Formula((f"<mfrac>{top.row}{bottom.row}</mfrac>",), PRODUCT, negative)
    under = _before("<mo form='infix'>/</mo>", bottom.within(POWER))
    return Formula((*top.within(PRODUCT), *under), PRODUCT, negative)


def _power(base: Any, exponent: Any) -> Formula:
    if exponent == 0.5:  # noqa: PLR2004
        return Formula((f"<msqrt>{_formula(base).row}</msqrt>",))
    raised = f"<mrow>{''.join(_formula(base).within(ATOM))}</mrow>"
    return Formula((f"<msup>{raised}{_formula(exponent).row}</msup>",), POWER)


def _negative(operand: Any) -> Formula:
    inside = _formula(operand)
    bare = inside._replace(negative=False).within(PRODUCT)
    return Formula(bare, PRODUCT, not inside.negative)


def _function(name: str, *arguments: Any) -> Formula:
    first, *rest = (_formula(a).within(SUM) for a in arguments)
    inside = [*first, *(f"<mo>,</mo>{''.join(pieces)}" for pieces in rest)]
    return Formula(_before(symbol(name), _bracketed(inside)))


def _case(condition: Any, then: Any, otherwise: Any) -> Formula:
    rows = [(then, f"<mtext>if&#160;</mtext>{_formula(condition).row}")]
    rows += [(otherwise, "<mtext>otherwise</mtext>")]
    cells = (
        f"<mtr><mtd>{_formula(value).row}</mtd><mtd>{words}</mtd></mtr>" for value, words in rows
    )
    return Formula((f"<mrow><mo>{{</mo><mtable>{''.join(cells)}</mtable></mrow>",), POWER)


def _relation(sign: str, *sides: Any) -> Formula:
    first, *rest = (_formula(side).within(SUM) for side in sides)
    pieces = list(first)
    for side in rest:
        pieces += _before(f"<mo form='infix'>{escape(sign)}</mo>", side)
    return Formula(tuple(pieces), SUM)


def _slope(name: Any) -> Formula:
    above = f"<mrow><mi>d</mi>{symbol(name)}</mrow>"
    return Formula((f"<mfrac>{above}<mrow><mi>d</mi><mi>t</mi></mrow></mfrac>",), POWER)


def _at_time(name: Any, time: Any) -> Formula:
    return Formula((f"{symbol(name)}<mo>(</mo>{_formula(time).row}<mo>)</mo>",))


_KINDS: dict[str, Any] = {
    "+": _sum,
    "*": _product,
    "/": _ratio,
    "^": _power,
    "-": _negative,
    "d": _slope,
    "at": _at_time,
    "if": _case,
    "f": _function,
    "text": lambda words: Formula((f"<mtext>{escape(printable(words))}</mtext>",)),
    **{kind: lambda *sides, sign=sign: _relation(sign, *sides) for kind, sign in RELATIONS.items()},
}
