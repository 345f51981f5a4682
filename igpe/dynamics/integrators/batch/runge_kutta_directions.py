"""The slopes of few directions straight from the equations, without their Jacobians.

CasADi differentiates along one direction and writes that in C, each number once. Here each line
that depends on the direction is made one of four directions side by side, and of four more that
stand `e` columns on; what directions share stays one number. With few of them that is faster than
Jacobians, whose entries are computed, stored, read and multiplied.
"""

import re
from typing import Any

import casadi as ca

LONGEST = 2_000  # lines of directions that are written: they run faster, but build longer
MOST = 64  # directions for which it may be faster, in eights
NUMBER = re.compile(r"(a\d+)=(.*);")
RESULT = re.compile(r"if \(res\[(\d)\]!=0\) res\[\d\]\[(\d+)\]=(a\d+);")
GIVEN = re.compile(r"arg\[(\d)\]\? arg\[\1\]\[(\d+)\] : 0")
TERM = re.compile(r"\((-?)([\w.]+)(?:([-+*/?])([\w.]+)(?::0)?)?\)")
PLACES = (
    "t",
    "x[{} * c]",
    "r->q[{}]",
    "r->ab[{}]",
    "s + {} * c",
    "by + {} * (c - 1)",
    "number[{}]",
)
DX, DQ = 4, 5  # arguments that are directions


def directional(slope: Any) -> Any:
    """Of a function (t, x, q, ab) -> f, one (t, x, q, ab, dx, dq) -> f, df."""
    given = slope.sx_in()
    f, (_, x, q, _) = slope(*given), given
    dx, dq = ca.SX.sym("dx", x.numel()), ca.SX.sym("dq", q.numel())
    by = ca.jtimes(f, ca.vertcat(x, q), ca.vertcat(dx, dq))
    return ca.Function("igpe_along", [*given, dx, dq], [f, ca.densify(by)])


def directions(along: Any, slopes: Any, known: str) -> list[str]:
    """ALONG for the C code, and up to how many directions (FEW) it is faster than Jacobians.

    along   from `directional`, numbers being an input;  slopes: the Jacobians' function
    known   C text in which CasADi's own helpers stand: ALONG may use no others
    """
    text, few = _Text.of(along), 0
    if text is not None and len(text.vectors) <= LONGEST and text.helpers <= _helpers(known):
        few = _few(text, slopes)
    written = " ".join(text.lines) if text and few else ""
    return [f"#define FEW {few}", f"#define ALONG {written}"]


def _few(text: "_Text", slopes: Any) -> int:
    """For how many directions it takes fewer operations than Jacobians do."""
    vectors, found = len(text.vectors), 0
    entries = 2 * (slopes.nnz_out(1) + slopes.nnz_out(2))  # a product and a sum each
    for n in range(8, MOST + 1, 8):
        own = n / 8 * (len(text.lines) + vectors)
        if own < slopes.n_instructions() + n / 4 * entries:
            found = n
    return found


def _helpers(text: str) -> set[str]:
    return set(re.findall(r"casadi_\w+", text))


class _Text:
    """Lines of C, and the names in them that are directions."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.vectors: set[str] = set()

    @classmethod
    def of(cls, along: Any) -> "_Text | None":
        """CasADi's lines, rewritten; None if one of them is not linear in the directions."""
        given = along.sx_in()
        once = ca.Function("along", given, along(*given), {"live_variables": False})
        generator = ca.CodeGenerator("along", {"with_header": False})
        generator.add(once)
        body = re.search(r"\n(  a\d+=.*?)  return 0;", generator.dump(), re.DOTALL)
        text = cls()
        lines = [] if body is None else body[1].splitlines()
        return text if lines and all(text._add(line.strip()) for line in lines) else None

    @property
    def helpers(self) -> set[str]:
        """CasADi's functions that are called."""
        return _helpers(" ".join(self.lines))

    def _add(self, line: str) -> bool:
        """Whether the line could be rewritten."""
        if found := RESULT.fullmatch(line):
            self._result(found[1], found[2], found[3])
            return True
        found = NUMBER.fullmatch(line)
        return bool(found and self._number(found[1], found[2]))

    def _number(self, name: str, value: str) -> bool:
        given = GIVEN.fullmatch(value)
        if given:
            place = PLACES[int(given[1])].format(given[2])
            if int(given[1]) in {DX, DQ}:
                self._vector(name, f"*(const Four *)({place})", f"*(const Four *)({place} + e)")
            else:
                self.lines.append(f"const double {name} = {place};")
            return True
        if self.vectors.isdisjoint(re.findall(r"a\d+", value)):
            self.lines.append(f"const double {name} = {value};")
            return True
        term = self._linear(value)
        self._vector(name, term, re.sub(r"a\d+", lambda m: self._other(m[0]), term))
        return bool(term)

    def _vector(self, name: str, one: str, other: str) -> None:
        self.vectors.add(name)
        self.lines.append(f"const Four {name} = {one}, {self._other(name)} = {other};")

    def _other(self, name: str) -> str:
        """The same of the directions e columns on."""
        return name.replace("a", "b") if name in self.vectors else name

    def _linear(self, value: str) -> str:
        """An operation on directions in C; empty if it is not linear in them."""
        found = TERM.fullmatch(value)
        if not found:
            return ""
        sign, one, operation, other = found.groups()
        first, second = one in self.vectors, other in self.vectors
        if sign and operation:
            return ""
        if operation == "/":
            return "" if second else f"({one} * (1 / {other}))"
        if operation == "?":
            return "" if first else f"({one} ? {other} : (Four){{0}})"
        return "" if operation == "*" and first and second else value

    def _result(self, which: str, place: str, name: str) -> None:
        if which == "0":
            self.lines.append(f"k[{place} * c] = {name};")
            return
        one, other = name, self._other(name)
        if name not in self.vectors:  # a slope that depends on no state and no unknown
            one = other = f"(Four){{0}} + {name}"
        self.lines.append(f"*(Four *)(to + {place} * c) = {one};")
        self.lines.append(f"*(Four *)(to + {place} * c + e) = {other};")
