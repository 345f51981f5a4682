"""Equations typeset as MathML, which browsers and notebooks show without fonts or scripts.

An equation is a tree of plain values, so that it can be stored: a number, a name, or a list of an
operation and its operands: ["=", ["d", "A"], ["*", ["-", "k1"], "A"]]. Every name is escaped here.

Browsers break no formula into lines. A formula is therefore a row of pieces, each a `<math>` of its
own, and a line may end between two of them.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple
from unicodedata import lookup

from igpe.core.markup import printable

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
    """The equation as HTML. Raises TypeError, ValueError or KeyError for what is no equation."""
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


def _at(name: Any, time: Any) -> Formula:
    return Formula((f"{symbol(name)}<mo>(</mo>{_formula(time).row}<mo>)</mo>",))


_KINDS: dict[str, Any] = {
    "+": _sum,
    "*": _product,
    "/": _ratio,
    "^": _power,
    "-": _negative,
    "d": _slope,
    "at": _at,
    "if": _case,
    "f": _function,
    "text": lambda words: Formula((f"<mtext>{escape(printable(words))}</mtext>",)),
    **{kind: lambda *sides, sign=sign: _relation(sign, *sides) for kind, sign in RELATIONS.items()},
}
