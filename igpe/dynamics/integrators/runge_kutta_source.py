"""The C sources of the batch integrator: the driver, the slopes as CasADi writes them, the outputs.

The driver is the same for all models, so a machine compiles it once. Slopes are a source of their
own, and outputs with what happens at breaks another one: conditions that share slopes measure other
things, and have other doses. All are made of a `SharedFormula`, so that experiments which differ in
numbers alone are derived once.

`PlanStruct`, `ModelStruct`, `MapStruct`, `BatchStruct`, `Tape` and `Sweep` are structures of
`runge_kutta_model.c`.

The slopes of few directions come straight from the equations, without their Jacobians: CasADi
differentiates along one direction and writes that in C, each number once. Here each line that
depends on the direction is made one of four directions side by side, and of four more that stand
`e` columns on; what directions share stays one number. With few of them that is faster than
Jacobians, whose entries are computed, stored, read and multiplied.
"""

import ctypes
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray, IntArray
from igpe.dynamics.integrators.cut import Cut
from igpe.dynamics.integrators.formulas import (
    SLACK,
    ImplicitUnits,
    SharedFormula,
    eliminated,
    sparse_factors,
)
from igpe.dynamics.integrators.limits import MOST_STEPS
from igpe.dynamics.integrators.tableaux import DORMAND_PRINCE, KENNEDY_CARPENTER, STAGES, Tableau
from igpe.equations.initial_value import InitialValueProblem

QUESTION = ctypes.CFUNCTYPE(ctypes.c_int)  # while Python answers it, a signal reaches the session
KINDS = {"integer": ctypes.c_longlong, "real": ctypes.c_double, "function": QUESTION}


def _fields(words: str) -> list[tuple[str, Any]]:
    """Fields of a structure in their order: `name:kind`, or the name of a pointer."""
    pairs = (word.partition(":") for word in words.split())
    return [(name, KINDS.get(kind, ctypes.c_void_p)) for name, _, kind in pairs]


class PlanStruct(ctypes.Structure):
    """`Plan` of the C code: the intervals and the limits."""

    _fields_ = _fields(
        "intervals:integer first edges inputs until breaks rows times row_inputs size most "
        "nearest lower upper model outputs room rtol:real atol:real slack:real max_steps:integer "
        "most_steps:integer pair:integer stopped:function"
    )

    @classmethod
    def of(
        cls,
        pieces: Cut,
        method: Any,
        model: "CompiledModel",
        stopped: Any,
    ) -> "PlanStruct":
        """The plan; it keeps the arrays it points at."""
        breaks = [0, *map(ctypes.addressof, model.breaks)]
        arrays = model.sizes | {
            "first": pieces.first.astype(np.int64),
            "edges": pieces.edges,
            "inputs": pieces.inputs,
            "until": pieces.ends.astype(np.int64),
            "breaks": np.array(breaks, dtype=np.int64)[pieces.broken + 1],
            "rows": pieces.rows.astype(np.int64),
            "times": pieces.times,
            "row_inputs": pieces.row_inputs,
            "room": model.room,
        }
        fields = ("rtol", "atol", "slack", "max_steps", "pair")
        plan = cls(
            intervals=pieces.intervals,
            most_steps=MOST_STEPS,
            stopped=stopped,
            model=ctypes.addressof(model.slopes),
            outputs=ctypes.addressof(model.outputs),
            **{name: getattr(method, name) for name in fields},
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        plan.kept = arrays, model
        return plan


class _Functions(ctypes.Structure):
    """Functions of a library, which come first, with sizes and places of their entries."""

    @classmethod
    def of(cls, written: "Written", library: ctypes.CDLL, numbers: FloatArray) -> Self:
        """It keeps the arrays that it points at, and the library."""
        functions = (getattr(library, name, None) for name in written.names)
        arrays = {"numbers": numbers, **written.places}
        struct = cls(
            *(f and ctypes.cast(f, ctypes.c_void_p) for f in functions),
            **written.sizes,
            **{name: array.ctypes.data for name, array in arrays.items()},
        )
        struct.kept = arrays, library
        return struct


class ModelStruct(_Functions):
    """`Model` of the C code: the slopes."""

    _fields_ = _fields(
        "slope slopes products along numbers few:integer states:integer unknowns:integer "
        "inputs:integer implicit:integer work:integer iwork:integer "
        "fx_n:integer fq_n:integer lu_n:integer "
        "fx_row fx_col fx_first fq_row fq_col fq_first fq_begin fq_at "
        "lu_order lu_place lu_first lu_col lu_diagonal"
    )


class MapStruct(_Functions):
    """`Map` of the C code: what is measured, or what a break makes of the states."""

    _fields_ = _fields(
        "plain both numbers size:integer unknowns:integer x_entries:integer q_entries:integer "
        "x_row x_col q_row q_col integers:integer reals:integer"
    )

    @property
    def room(self) -> list[int]:
        """What it needs of `Plan.room`."""
        return [self.x_entries, self.q_entries, self.size, self.reals, self.integers]


class CompiledModel(NamedTuple):
    """A model's compiled functions, and the driver that integrates them.

    outputs  what is measured;  breaks: what happens at them, by `Break.which`
    sizes    of states and unknowns;  room: the most that functions of outputs and breaks need
    operations  of the slopes and their Jacobians
    """

    driver: ctypes.CDLL
    slopes: ModelStruct
    outputs: MapStruct
    breaks: list[MapStruct]
    sizes: dict[str, FloatArray]
    room: IntArray
    operations: int


class BatchStruct(ctypes.Structure):
    """`Batch` of the C code: starts, unknowns, directions, and where results go."""

    _fields_ = _fields(
        "directions:integer rest:integer starts implicit q along gaps probed:integer "
        "chained:integer "
        "ends ends_by measured measured_by states states_by reached outcome tape"
    )


class Tape(ctypes.Structure):
    """`Tape` of the C code: the steps of a run, with room for so many."""

    _fields_ = _fields("room:integer count:integer first kinds steps states jumped")

    @classmethod
    def of(cls, pieces: Cut, n_x: int, n_y: int, room: int) -> "Tape":
        """An empty one; it keeps the arrays it points at."""
        arrays = {
            "first": np.empty(pieces.intervals + 1, dtype=np.int64),
            "kinds": np.empty((room, 4), dtype=np.int64),
            "steps": np.empty((room, 2 + STAGES * n_x + n_y)),
            "states": np.empty((len(pieces.times), n_x + n_y)),
            "jumped": np.empty((len(pieces.edges), n_x)),
        }
        tape = cls(room=room, **{name: array.ctypes.data for name, array in arrays.items()})
        tape.kept = arrays
        return tape


class Sweep(ctypes.Structure):
    """`Sweep` of the C code: what is asked of a way back through a tape."""

    _fields_ = _fields("q tape sums:integer weights which by_node by_q")


LONGEST = 2_000  # lines of directions that are written: they run faster, but build longer
MOST = 64  # directions for which it may be faster, in eights
NUMBER = re.compile(r"(a\d+)=(.*);")
RESULT = re.compile(r"if \(res\[(\d)\]!=0\) res\[\d\]\[(\d+)\]=(a\d+);")
GIVEN = re.compile(r"arg\[(\d)\]\? arg\[\1\]\[(\d+)\] : 0")
TERM = re.compile(r"\((-?)([\w.]+)(?:([-+*/?])([\w.]+)(?::0)?)?\)")
PLACES = (
    "t",
    "x[{}]",
    "q[{}]",
    "ab[{}]",
    "s + {} * w",
    "by + {} * w",
    "number[{}]",
)
DX, DQ = 4, 5  # arguments that are directions


def directional(slope: Any) -> Any:
    """Of a function (t, x, q, ab, c) -> f, one (t, x, q, ab, dx, dq, c) -> f, df."""
    given = slope.sx_in()
    f, (*arguments, numbers) = slope(*given), given
    _, x, q, _ = arguments
    dx, dq = ca.SX.sym("dx", x.numel()), ca.SX.sym("dq", q.numel())
    by = ca.jtimes(f, ca.vertcat(x, q), ca.vertcat(dx, dq))
    return ca.Function("igpe_along", [*arguments, dx, dq, numbers], [f, ca.densify(by)])


def directions(along: Any, slopes: Any, known: str) -> tuple[int, list[str]]:
    """Up to how many directions the C code ALONG is faster than Jacobians, and this code.

    along   from `directional`, numbers being an input;  slopes: the Jacobians' function
    known   C text in which CasADi's own helpers stand: ALONG may use no others
    """
    text, few = _Text(), 0
    if text.read(along) and len(text.vectors) <= LONGEST:
        helpers, there = (set(re.findall(r"casadi_\w+", v)) for v in (" ".join(text.lines), known))
        few = _few(text, slopes) if helpers <= there else 0
    return few, [f"#define ALONG {' '.join(text.lines)}"] if few else []


def _few(text: "_Text", slopes: Any) -> int:
    """For how many directions it takes fewer operations than Jacobians do."""
    entries = 2 * (slopes.nnz_out(1) + slopes.nnz_out(2))  # a product and a sum each
    each = (len(text.lines) + len(text.vectors)) / 8
    fit = [n for n in range(8, MOST + 1, 8) if n * (each - entries / 4) < slopes.n_instructions()]
    return max(fit, default=0)


class _Text:
    """Lines of C, and the names in them that are directions."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.vectors: set[str] = set()

    def read(self, along: Any) -> bool:
        """Rewrite CasADi's lines; return whether all could be, being linear in the directions."""
        given = along.sx_in()
        once = ca.Function("along", given, along(*given), {"live_variables": False})
        generator = ca.CodeGenerator("along", {"with_header": False})
        generator.add(once)
        body = re.search(r"\n(  a\d+=.*?)  return 0;", generator.dump(), re.DOTALL)
        return body is not None and all(self._add(line.strip()) for line in body[1].splitlines())

    def _add(self, line: str) -> bool:
        """Whether the line could be rewritten."""
        if result := RESULT.fullmatch(line):
            which, place, name = result.groups()
            one, other = name, self._other(name)
            if name not in self.vectors:  # a slope that depends on no state and no unknown
                one = other = f"(Four){{0}} + {name}"
            to = f"*(Four *)(to + {place} * w"
            both = [f"{to}) = {one};", f"{to} + e) = {other};"]
            self.lines += [f"k[{place}] = {name};"] if which == "0" else both
            return True
        number = NUMBER.fullmatch(line)
        return bool(number and self._number(number[1], number[2]))

    def _number(self, name: str, value: str) -> bool:
        one, other, is_vector = value, "", False
        if given := GIVEN.fullmatch(value):
            one = PLACES[int(given[1])].format(given[2])
            is_vector = int(given[1]) in {DX, DQ}
            if is_vector:
                one, other = f"*(const Four *)({one})", f"*(const Four *)({one} + e)"
        elif not self.vectors.isdisjoint(re.findall(r"a\d+", value)):
            one, is_vector = self._linear(value), True
            other = re.sub(r"a\d+", lambda m: self._other(m[0]), one)
        if is_vector:
            self.vectors.add(name)
            self.lines.append(f"const Four {name} = {one}, {self._other(name)} = {other};")
        else:
            self.lines.append(f"const double {name} = {one};")
        return bool(one)

    def _other(self, name: str) -> str:
        """The same of the directions e columns on."""
        return name.replace("a", "b") if name in self.vectors else name

    def _linear(self, value: str) -> str:
        """An operation on directions in C; empty if it is not linear in them."""
        term = TERM.fullmatch(value)
        if not term or (term[1] and term[3]):
            return ""
        _, one, operation, other = term.groups()
        first, second = one in self.vectors, other in self.vectors
        forms = {"/": f"({one} * (1 / {other}))", "?": f"({one} ? {other} : (Four){{0}})"}
        refused = {"/": second, "?": first, "*": first and second}.get(operation, False)
        return "" if refused else forms.get(operation, value)


FORWARDS, BACK = "igpe_intervals", "igpe_back"
DRIVER = {
    function: [Path(__file__).with_name(f"runge_kutta_{part}.c") for part in parts.split()]
    for function, parts in ((FORWARDS, "model linear steps run"), (BACK, "model linear steps back"))
}
"""Files of the runs forwards, and of the sweep back, which few need."""
SLOPES = Path(__file__).with_name("runge_kutta_slopes.c")
IMPLICIT = Path(__file__).with_name("runge_kutta_implicit.c")
WRITTEN_OUT = 500  # entries of Jacobians up to which products are: they run faster, build longer


class Written(NamedTuple):
    """A C text with functions of these names, their number of operations, sizes and places in C."""

    names: tuple[str, ...]
    source: str
    length: int
    sizes: dict[str, int]
    places: dict[str, IntArray]


MOST_WRITTEN = 100  # texts that a process keeps


@cache
def driver(function: str, is_sparse: bool) -> str:
    """The source of one of the functions in `DRIVER`, with or without sparse factors."""
    lines = [f"#define STAGES {STAGES}", f"#define SPARSE {is_sparse:d}", f"#define SLACK {SLACK}"]
    lines += [*_numbers("DP", DORMAND_PRINCE), *_numbers("KC", KENNEDY_CARPENTER)]
    return "\n".join([*lines, *(part.read_text() for part in DRIVER[function])])


@lru_cache(MOST_WRITTEN)
def written(slope: SharedFormula, implicit: int = 0) -> Written | None:
    """The source of the slopes f, of which the last are to be 0 by so many implicit variables.

    None if these cannot be eliminated (`igpe.dynamics.integrators.formulas.blocks_of`)
    """
    name = "igpe_slope"
    functions, jacobians = with_jacobians(slope, name + "_raw" * bool(implicit), "fx", "fq")
    _, x, q, ab, _ = functions[0].sx_in()
    parts = _parts(functions)
    model = _generated(parts)
    model += "\n".join(_calls(parts, jacobians)) if len(parts) > len(functions) else ""
    work, iwork = max(f.sz_w() for f in parts), max(f.sz_iw() for f in parts)
    few, lines = 0, list[str]()
    if implicit:
        left = eliminated(name, (work, iwork), jacobians["fx"], jacobians["fq"], implicit)
        if left is None:
            return None
        model, work, iwork = model + IMPLICIT.read_text() + left.source, left.reals, left.integers
        jacobians = {"fx": left.by_x, "fq": left.by_q}
    else:
        few, lines = directions(directional(functions[0]), functions[1], model)
    lines += _products(*jacobians.values())
    of = np.array(jacobians["fq"].sparsity().row(), dtype=int)  # unknowns of the entries
    begins = np.cumsum([0, *np.bincount(of, minlength=q.numel())])
    places = {
        **_entries(jacobians["fx"], "fx"),
        **_entries(jacobians["fq"], "fq"),
        **sparse_factors(jacobians["fx"]),  # of 1 - factor f_x
        "fq_begin": begins,
        "fq_at": np.argsort(of, kind="stable"),
    }
    sizes = {
        "few": few,
        "states": x.numel() - implicit,
        "unknowns": q.numel(),
        "inputs": ab.numel() // 2,
        "implicit": implicit,
        "work": work,
        "iwork": iwork,
        "fx_n": jacobians["fx"].nnz(),
        "fq_n": jacobians["fq"].nnz(),
        "lu_n": len(places.get("lu_col", ())),
    }
    return Written(
        ("igpe_slope", "igpe_slopes", "igpe_products", "igpe_along"),
        "\n".join([model, *lines, SLOPES.read_text()]),
        sum(f.n_instructions() for f in functions),
        sizes,
        {name: np.ascontiguousarray(v, np.intc) for name, v in places.items()},
    )


PART = 2_000  # operations of a function in C: a compiler's time grows faster than their number


def _parts(functions: Sequence[Any]) -> list[Any]:
    """Functions of some rows of the slopes each, named by the first, or the given ones.

    Where rows have much in common, which each part would compute for itself, they stay together.
    """
    plain, both = functions
    given, n_x = plain.sx_in(), plain.numel_out(0)
    length = sum(f.n_instructions() for f in functions)
    count = min(-(-length // PART), n_x)
    if count == 1:
        return [plain, both]
    f, by_x, by_q = both(*given)
    parts = []
    for a, b in pairwise(n_x * k // count for k in range(count + 1)):
        slopes = [f[a:b], by_x[:, a:b], by_q[:, a:b]]
        parts += [
            ca.Function(f"{plain.name()}_{a}", given, slopes[:1]),
            ca.Function(f"{both.name()}_{a}", given, slopes),
        ]
    return parts if sum(p.n_instructions() for p in parts) <= 1.5 * length else [plain, both]


def _calls(parts: Sequence[Any], jacobians: dict[str, Any]) -> list[str]:
    """The functions that call all parts, whose results follow each other."""
    lines, firsts = [], [matrix.sparsity().colind() for matrix in jacobians.values()]
    kinds = dict.fromkeys(part.name().rpartition("_")[0] for part in parts)
    for kind, results in zip(kinds, (1, 3), strict=True):
        given = "const double **arg, double **res, casadi_int *iw, double *w, int m"
        lines.append(f"CASADI_SYMBOL_EXPORT int {kind}({given}) {{")
        for part in parts:
            name, _, row = part.name().rpartition("_")
            if name == kind:
                first = [int(row), *(begins[int(row)] for begins in firsts)]
                to = ", ".join(f"res[{i}] + {first[i]}" for i in range(results))
                lines.append(f"{{ double *to[] = {{{to}}}; {part.name()}(arg, to, iw, w, m); }}")
        lines.append("return 0; }")
    return lines


@lru_cache(MOST_WRITTEN)
def written_maps(*formulas: SharedFormula, implicit: int = 0) -> tuple[Written, ...]:
    """One source of what is measured and of what happens at breaks, with functions of each.

    implicit  how many last rows are to be 0, see `written`
    """
    functions, made, parts = list[Any](), list[Any](), []
    for k, formula in enumerate(formulas):
        name = f"igpe_map{k}"
        both, jacobians = with_jacobians(formula, name + "_raw" * bool(implicit), "x", "q")
        memory = max(f.sz_w() for f in both), max(f.sz_iw() for f in both)
        if implicit:
            left = eliminated(name, memory, jacobians["x"], jacobians["q"], implicit)
            assert left is not None, "the slopes have the same equations"
            memory, jacobians = (left.reals, left.integers), {"x": left.by_x, "q": left.by_q}
            made.append(left.source)
        sizes = {
            "size": both[0].numel_out(0) - implicit,
            "unknowns": both[0].numel_in(2),
            "reals": memory[0],
            "integers": memory[1],
        }
        places: dict[str, IntArray] = {}
        for by, transposed in jacobians.items():
            columns, rows = transposed.sparsity().get_triplet()
            sizes[f"{by}_entries"] = len(rows)
            places |= {
                f"{by}_row": np.array(rows, np.int64),
                f"{by}_col": np.array(columns, np.int64),
            }
        functions += both
        parts.append(((name, f"{name}s"), sum(f.n_instructions() for f in both), sizes, places))
    text = "\n".join([_generated(functions), *([IMPLICIT.read_text()] * bool(implicit)), *made])
    return tuple(Written(names, text, *part) for names, *part in parts)


def model_formulas(ivp: InitialValueProblem, moving: int) -> list[SharedFormula]:
    """f, h and the breaks as functions of (t, x, q, ab), with u = a + b t.

    f is one of the first `moving` unknowns; a break gives the states after it, and its time. With
    implicit variables y there are (t, [x, z], q, ab), z being y without dimension; h gives y too,
    and g = 0 comes last.
    """
    a, b = ca.SX.sym("a", ivp.u.numel()), ca.SX.sym("b", ivp.u.numel())
    z = ca.SX.sym("z", ivp.y.numel())
    new = [a + b * ivp.t, ImplicitUnits.of(ivp).symbols_back(z)]
    f, h = ca.vertcat(ivp.f, ivp.g), ca.vertcat(ivp.measured, ivp.y, ivp.g)
    f, h = ca.substitute([f, h], [ivp.u, ivp.y], new)
    x, ab, q = ca.vertcat(ivp.x, z), ca.vertcat(a, b), ca.SX(0, 1)
    if moving:
        q = ivp.q[:moving]
    slope = ca.Function("f", [ivp.t, x, q, ab], [ca.densify(f)])
    measured = ca.Function("h", [ivp.t, x, ivp.q, ab], [ca.densify(h)])
    formulas = [SharedFormula(slope), SharedFormula(measured)]
    if (given := ivp.switching) is not None:
        afters = [ivp.x] * given.modes + [jump.after for jump in given.jumps]
        for after, time in zip(afters, ca.vertsplit(given.all_times), strict=True):
            (then,) = ca.substitute([after], [ivp.u, ivp.t], [a + b * time, time])
            rows = [ca.densify(ca.vertcat(then, time))]
            formulas.append(SharedFormula(ca.Function("h", [ivp.t, ivp.x, ivp.q, ab], rows)))
    return formulas


def with_jacobians(
    formula: SharedFormula, name: str, by_x: str, by_q: str
) -> tuple[list[Any], dict[str, Any]]:
    """The function without and with its Jacobians, and these by name.

    They are sparse and transposed: C gives their entries row by row.
    """
    given = formula.function.sx_in()
    value = formula.function(*given)
    jacobians = {n: ca.jacobian(value, given[i]).T for n, i in ((by_x, 1), (by_q, 2))}
    both = ca.Function(f"{name}s", given, formula.once([value, *jacobians.values()]))
    return [ca.Function(name, given, [value]), both], jacobians


ABOUT = (  # a function whose arguments are not those of a function of the model
    r"^CASADI_SYMBOL_EXPORT [^(\n]*\((?!const casadi_real\*\* arg)[^{\n]*\{(.*\}|(?s:.*?)^\})\n\n?"
)


MATHS = "#include <math.h>\n"
POWERS = """#ifdef __GNUC__ /* 10^x, as of vapour pressures, by exp takes half the time */
#define pow(a, b) (__builtin_constant_p(a) && (a) > 0 ? exp(log(a) * (b)) : (pow)(a, b))
#endif
"""


def _generated(functions: list[Any]) -> str:
    generator = ca.CodeGenerator("igpe", {"with_header": False})
    for function in functions:
        generator.add(function)
    # functions about functions, which nobody calls, take a third of a compiler's time for outputs
    text = re.sub(ABOUT, "", generator.dump(), flags=re.MULTILINE)
    # CasADi asks before each number whether its place is given, which is 3 to 5 % of a run: all are
    model = re.sub(r"arg\[(\d+)\]\? (arg\[\1\]\[\d+\]) : 0", r"\2", text)
    return re.sub(r"if \(res\[\d+\]!=0\) ", "", model).replace(MATHS, MATHS + POWERS, 1)


def _entries(transposed: Any, name: str) -> dict[str, Any]:
    """Rows and columns of a sparse matrix's entries, and where each row begins."""
    columns, rows = transposed.sparsity().get_triplet()
    first = transposed.sparsity().colind()
    return {f"{name}_row": rows, f"{name}_col": columns, f"{name}_first": first}


def _products(by_x: Any, by_q: Any) -> list[str]:
    """All rows of f_x S + f_q D, written out unless they are long."""
    if by_x.nnz() + by_q.nnz() > WRITTEN_OUT:
        tables = {**_entries(by_x, "fx"), **_entries(by_q, "fq")}
        lines = [
            f"static const int {name}[] = {{{', '.join(map(str, places)) or '0'}}};"
            for name, places in tables.items()
        ]
        return [*lines, f"#define N_X {by_x.size2()}", "#define PRODUCTS LOOPED"]
    words = []
    for row in range(by_x.size2()):
        words.append(f"ROW({row})")
        for macro, matrix in (("BY_X", by_x), ("BY_Q", by_q)):
            first, columns = matrix.sparsity().colind(), matrix.sparsity().row()
            words += [f"{macro}({m}, {columns[m]})" for m in range(first[row], first[row + 1])]
        words.append(f"ENDS({row})")
    return [f"#define PRODUCTS {' '.join(words)}"]


def _numbers(name: str, pair: Tableau) -> list[str]:
    """A Runge-Kutta pair: A, D (dense output), P (predictors), C, E (error)."""
    matrices = {"A": pair.a, "D": pair.dense, "P": pair.predictors, "C": pair.c, "E": pair.error}
    lines = [f"#define {name}_STAGES {pair.stages}"]
    for letter, matrix in matrices.items():
        size = "".join(f"[{n}]" for n in matrix.shape)
        text = str(matrix.tolist()).translate(str.maketrans("[]", "{}"))
        lines.append(f"static const double {name}_{letter}{size} = {text};")
    return lines
