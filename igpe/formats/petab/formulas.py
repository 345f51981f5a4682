"""Formulas of SBML and PEtab as SymPy expressions and in Pyomo, and limits on what they may hold.

Symbols are known by name alone; the time is called `time`. The libraries that read PEtab and SBML
are an extra, whose absence is an error with the command that installs them.

A problem's folder is checked before any library reads it. The YAML file may name tables and one
SBML model in its own folder, and nothing else: no network address, no path to elsewhere, no model
in a language whose files are programs (PySB). Numbers and nesting are limited: the libraries would
compute 9^9^9^9 and nest as deep as a file says.
"""

import importlib
import math
import operator
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache, reduce
from io import BytesIO
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any
from xml.parsers import expat

import pandas as pd
import pyomo.environ as pyo

from igpe.core.errors import DataError, IgpeError, ModelError, ProblemError, SolverMissing
from igpe.core.files import read
from igpe.problem.tables import require_cells

_IMPORTED: set[str] = set()  # names that were: a search for a library takes as long as a formula


MISSING = (
    "igpe reads PEtab problems with `petab`, `python-libsbml` and `sbmlmath` ({}). Install them: "
    "pip install 'igpe[petab]'."
)


def library(name: str, missing: str = MISSING) -> ModuleType:
    """An imported library of an extra; raises SolverMissing with the command that installs it."""
    if name in _IMPORTED and (known := sys.modules.get(name)) is not None:
        return known
    try:
        with quiet():
            imported = importlib.import_module(name)
    except ImportError as error:
        raise SolverMissing(missing.format(error)) from error
    _IMPORTED.add(name)
    return imported


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings, such as those about what these libraries use of others."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


TIME = "time"
HIGHEST = 1000  # exponent of an expression
BITS = 1020.0  # of a number
LAST_FACTORIAL = 170
MOST_NODES = 50_000  # of a formula, once what it refers to is inserted
TOO_LARGE = (
    f"A formula contains numbers beyond 1e300, exponents beyond {HIGHEST}, or more than "
    f"{MOST_NODES} operations. Correct it."
)
EXACT = 2**53  # larger whole numbers are floats that were rounded
ANGLES = [f"{a}{n}{h}" for n in ("sin", "cos", "tan") for a in ("", "a") for h in ("", "h")]
SAME_NAME = ("exp", "log", "floor", *ANGLES)
FUNCTIONS = {n: getattr(pyo, n) for n in SAME_NAME}
FUNCTIONS |= {"Abs": abs, "ceiling": pyo.ceil}
OF_INVERSE = {  # f(x) = 1 / g(x), or g(1 / x) where f is the inverse of such a function
    f"{a}{f}{h}": f"{a}{g}{h}"
    for a in ("", "a") for h in ("", "h")
    for f, g in (("sec", "cos"), ("csc", "sin"), ("cot", "tan"))
}  # fmt: skip
NUMERIC: dict[str, Callable[..., float]] = {n: getattr(math, n) for n in SAME_NAME}
NUMERIC |= {"Abs": abs, "Max": max, "Min": min, "Mul": lambda *factors: math.prod(factors)}
FOLDED: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Mul": operator.mul,
    "Pow": operator.pow,
    "Max": lambda a, b: pyo.Expr_if(a >= b, a, b),
    "Min": lambda a, b: pyo.Expr_if(a <= b, a, b),
}
SIDES = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def number(value: float) -> Any:
    """A number as an expression; a whole one exactly, so that powers stay what they are."""
    sympy, is_whole = library("sympy"), float(value).is_integer() and abs(value) <= EXACT
    return sympy.Integer(int(value)) if is_whole else sympy.Float(float(value))


def symbol(name: str) -> Any:
    """The symbol of that name."""
    return library("sympy").Symbol(name)


def parsed(text: Any, *, evaluate: bool = True) -> Any:
    """A formula of a PEtab table; what is an expression already is taken as it is.

    evaluate  False leaves it as it is written
    raises    ModelError if it is none
    """
    if isinstance(text, library("sympy").Basic):
        return plain(text)
    if isinstance(text, float) and math.isfinite(text):  # NumPy's too, which the parser lacks
        return number(text)
    try:
        expression = _sympified(text, evaluate=evaluate)
        return plain(expression) if evaluate else expression
    except Exception as error:  # each parser has its own
        raise ModelError(
            f"'{text}' is not a formula that PEtab supports: {error}. Correct it."
        ) from error


@lru_cache(4096, typed=True)  # the rows of a table say the same over and over
def _sympified(text: Any, *, evaluate: bool) -> Any:
    with quiet():
        return library("petab.v1.math").sympify_petab(text, evaluate=evaluate)


def plain(expression: Any) -> Any:
    """The expression with plain symbols, without SymPy's assumptions about them."""
    expression = library("sympy").sympify(expression)
    return expression.xreplace({
        s: symbol(TIME if type(s).__name__ == "TimeSymbol" else s.name)
        for s in expression.free_symbols
    })


def require_moderate(expression: Any, values: Mapping[str, Any] = MappingProxyType({})) -> None:
    """Raise ModelError for numbers that would be computed to something huge, as 9^9^9^9 is.

    expression  as it was written; SymPy has not computed anything in it
    values      name -> expression that is going to be inserted
    """
    sizes: dict[Any, float | None] = {}
    known = {symbol(n): v for n, v in values.items()}
    try:
        for count, node in enumerate(library("sympy").postorder_traversal(expression)):
            if count > MOST_NODES:
                raise OverflowError
            if node not in sizes:
                value = known.get(node, node)
                is_number = value.is_Number and value.is_finite
                parts = [sizes[a] for a in node.args]
                sizes[node] = float(value) if is_number else _size(type(node).__name__, parts)
    except (OverflowError, RecursionError):
        raise ModelError(TOO_LARGE) from None


def require_moderate_math(node: Any) -> None:
    """`require_moderate` of a libSBML formula: what SymPy would compute while it reads it."""
    try:
        _math_size(node)
    except OverflowError:
        raise ModelError(TOO_LARGE) from None


def _math_size(node: Any) -> float | None:
    sbml = library("libsbml")
    sizes = [_math_size(node.getChild(i)) for i in range(node.getNumChildren())]
    if node.isNumber():
        return float(node.getValue()) if math.isfinite(node.getValue()) else None
    kind, last = node.getType(), sizes[-1] if sizes else None
    if kind == sbml.AST_MINUS and last is not None:
        sizes[-1] = -last
    elif kind == sbml.AST_DIVIDE:
        sizes[-1] = 1 / last if last else None
    elif kind == sbml.AST_FUNCTION_ROOT:
        sizes = [last, 1 / sizes[0] if sizes[0] else None]
    kinds = {
        "Pow": (sbml.AST_POWER, sbml.AST_FUNCTION_POWER, sbml.AST_FUNCTION_ROOT),
        "Mul": (sbml.AST_TIMES, sbml.AST_DIVIDE),
        "exp": (sbml.AST_FUNCTION_EXP,),
        "sinh": (sbml.AST_FUNCTION_SINH, sbml.AST_FUNCTION_COSH),
        "factorial": (sbml.AST_FUNCTION_FACTORIAL,),
    }
    return _size(next((name for name, codes in kinds.items() if kind in codes), ""), sizes)


def _size(kind: str, sizes: list[float | None]) -> float | None:
    """A number's rough value by those of its parts, or None; raises OverflowError if huge."""
    if kind == "Pow":
        return _size_of_power(*sizes)
    known = [s for s in sizes if s is not None]
    if not sizes or len(known) < len(sizes):
        return None
    try:
        if kind == "factorial":
            value = math.gamma(known[0] + 1) if 0 <= known[0] <= LAST_FACTORIAL else math.inf
        elif kind in NUMERIC:
            value = float(NUMERIC[kind](*known))
        else:  # no other function exceeds the sum of its arguments
            value = math.fsum(known)
    except ValueError:  # no real number
        return None
    if math.isinf(value):
        raise OverflowError
    return value


def _size_of_power(base: float | None, exponent: float | None) -> float | None:
    if exponent is None or base == 0:
        return None
    bits = abs(exponent) if base is None else abs(exponent * math.log2(abs(base)))
    if bits > (HIGHEST if base is None else BITS):
        raise OverflowError
    if base is None:
        return None
    is_odd = base < 0 and exponent % 2 == 1
    return math.copysign(abs(base) ** exponent, -1.0 if is_odd else 1.0)


@lru_cache(16_384)
def names_in(expression: Any) -> frozenset[str]:
    """Names of the symbols of an expression."""
    return frozenset(s.name for s in expression.free_symbols)


@lru_cache(4096)
def comparisons(expression: Any) -> frozenset[Any]:
    """The comparisons in an expression."""
    return frozenset(expression.atoms(library("sympy").core.relational.Relational))


def inserted(expression: Any, values: Mapping[str, Any]) -> Any:
    """The expression with expressions in the place of names."""
    own = tuple((n, values[n]) for n in sorted(names_in(expression) & values.keys()))
    return _inserted(expression, own)


@lru_cache(4096)  # conditions of one problem insert the same into the same formulas
def _inserted(expression: Any, values: tuple[tuple[str, Any], ...]) -> Any:
    require_moderate(expression, dict(values))
    if not values:
        return expression
    result = expression.xreplace({symbol(n): v for n, v in values})
    require_moderate(result)
    return result


def linear_in_time(expression: Any) -> tuple[Any, Any] | None:
    """Slope of an expression that is linear in the time, and when it is 0; None for others."""
    expanded = library("sympy").expand(expression)
    slope = expanded.diff(symbol(TIME))
    if slope == 0 or not slope.is_number:
        return None
    return slope, -expanded.subs(symbol(TIME), 0) / slope


def at_time(m: Any, expression: Any, t: Any) -> Any:
    """The expression in the components of a model at one time."""

    def leaf(name: str) -> Any:
        component = m.component(name)
        return t if name == TIME else component[t] if component.is_indexed() else component

    return to_pyomo(expression, leaf)


def to_pyomo(expression: Any, leaves: Callable[[str], Any]) -> Any:
    """A SymPy expression in Pyomo's operators.

    leaves  name -> Pyomo component or number
    raises  ModelError for a function that Pyomo does not have
    """
    return _in_pyomo(expression)(leaves)


@lru_cache(4096)  # a formula is written for many times, in conditions that share it
def _in_pyomo(expression: Any) -> Callable[[Callable[[str], Any]], Any]:
    if expression.is_Symbol:
        name = expression.name
        return lambda leaves: leaves(name)
    if expression.is_number and expression.is_real:
        value = int(expression) if expression.is_Integer else float(expression)
        return lambda _: value
    if type(expression).__name__ == "Piecewise":
        return _pieces(expression)
    operation, parts = _operation(expression), [_in_pyomo(a) for a in expression.args]
    return lambda leaves: operation(*(part(leaves) for part in parts))


def _pieces(expression: Any) -> Callable[[Callable[[str], Any]], Any]:
    *branches, (otherwise, _) = expression.args
    last, others = _in_pyomo(otherwise), [(_in_pyomo(v), c) for v, c in reversed(branches)]

    def chosen(leaves: Callable[[str], Any]) -> Any:
        result = last(leaves)
        for value, condition in others:
            result = _chosen(condition, value(leaves), result, leaves)
        return result

    return chosen


def _operation(expression: Any) -> Callable[..., Any]:
    kind = type(expression).__name__
    if kind in FOLDED:
        return lambda *values: reduce(FOLDED[kind], values)
    if kind in FUNCTIONS:
        plain: Callable[..., Any] = FUNCTIONS[kind]
        return plain
    if kind in OF_INVERSE:
        function = FUNCTIONS[OF_INVERSE[kind]]
        if kind.startswith("a"):
            return lambda value: function(1 / value)
        return lambda value: 1 / function(value)
    raise ModelError(
        f"The model uses '{kind}' in {expression}, which igpe does not support; use only "
        f"{', '.join(sorted(FUNCTIONS))}, powers and piecewise."
    )


def boolean(condition: Any) -> Any:
    """A condition of comparisons, `and`, `or` and `not` alone, numbers and pieces taken as such."""
    sympy = library("sympy")
    kind = type(condition).__name__
    if condition.is_Number:
        return sympy.true if condition != 0 else sympy.false
    if kind == "Piecewise":
        result, rest = sympy.false, sympy.true
        for value, case in condition.args:
            current = sympy.And(rest, boolean(case))
            result = sympy.Or(result, sympy.And(current, boolean(value)))
            rest = sympy.And(rest, sympy.Not(boolean(case)))
        return result
    if kind == "Xor":
        first, *others = map(boolean, condition.args)
        for other in others:
            first = sympy.Or(sympy.And(first, sympy.Not(other)), sympy.And(sympy.Not(first), other))
        return first
    if kind == "ITE":  # SymPy's piecewise of conditions
        case, then, otherwise = map(boolean, condition.args)
        return sympy.Or(sympy.And(case, then), sympy.And(sympy.Not(case), otherwise))
    if kind in {"And", "Or", "Not"}:
        return condition.func(*map(boolean, condition.args))
    return condition


def _chosen(condition: Any, then: Any, otherwise: Any, leaves: Callable[[str], Any]) -> Any:
    """`then` where the condition holds."""
    condition = boolean(condition)
    kind = type(condition).__name__
    if kind in {"BooleanTrue", "BooleanFalse"}:
        return then if kind == "BooleanTrue" else otherwise
    if kind == "Not":
        return _chosen(condition.args[0], otherwise, then, leaves)
    if kind in {"And", "Or"}:
        result = then if kind == "And" else otherwise
        for part in condition.args:
            pair = (result, otherwise) if kind == "And" else (then, result)
            result = _chosen(part, *pair, leaves)
        return result
    compare = SIDES.get(getattr(condition, "rel_op", ""))
    if compare is None:
        raise ModelError(
            f"The model contains the condition {condition}, which igpe does not support; write it "
            "with <, <=, >, >=, and, or, not."
        )
    left, right = (to_pyomo(side, leaves) for side in condition.args)
    return pyo.Expr_if(compare(left - right, 0), then, otherwise)


MOST_YAML, MOST_TABLE, MOST_MODEL = 2**20, 50 * 2**20, 50 * 2**20  # bytes
DEEPEST_YAML, DEEPEST_XML = 20, 200  # levels
MOST_EVENTS = 20_000  # of YAML: names and brackets
MOST_ALIASES = 10  # each may double the size of the content
MOST_CALLS = 10**6  # nodes of functions, once their calls are written out
MOST_FORMULA = 20_000  # letters
HUGE = re.compile(r"(?<!\w)(\d+\.?\d*|\.\d+)[eE][-+]?\d{4,}|\d{400}")
PICTURES = "visualization_files"  # nothing is read of them; they may be missing


def petab_config(path: Path) -> dict[str, Any]:
    """The entries of a YAML file, all of whose files are checked.

    raises ProblemError if the file does not exist, DataError for files that igpe does not read
    """
    if not path.is_file():
        raise ProblemError(f"There is no PEtab file '{path}' (working folder: {Path.cwd()}).")
    yaml = library("yaml")
    try:
        text = read(path, MOST_YAML).decode("utf-8-sig")
        _require_flat(yaml.parse(text, Loader=yaml.SafeLoader), path)
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise DataError(f"'{path}' is not a YAML file: {str(error)[:200]}") from error
    if not isinstance(config, dict):
        raise DataError(f"'{path}' is not a PEtab problem: it lists no tables.")
    problems = config.get("problems")
    for part in (config, *(problems if isinstance(problems, list) else ())):
        if isinstance(part, dict):
            part.pop(PICTURES, None)
    for key, name in named(config):
        _require_file(path, key, name)
    return config


def _require_flat(events: Any, path: Path) -> None:
    """Raise DataError for many entries, deep nesting or many aliases."""
    depth = aliases = 0
    for count, event in enumerate(events):
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        aliases += kind == "AliasEvent"
        if aliases > MOST_ALIASES or depth > DEEPEST_YAML or count > MOST_EVENTS:
            raise DataError(
                f"'{path}' has more than {MOST_ALIASES} aliases (*), is too large, or is nested "
                "too deeply for a PEtab problem. Write each entry out."
            )


def named(part: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """All names of files, each with its key in the YAML file."""
    if isinstance(part, Mapping):
        language = part.get("language", "sbml")
        if language != "sbml":
            raise DataError(
                f"The problem's model is in the language {language!r:.50}, not in SBML. igpe "
                "reads only SBML, because models in some other languages are programs, which "
                "could do anything when they run. Write the model in SBML."
            )
        for name, inside in part.items():
            yield from named(inside, key if key == "model_files" else str(name))
    elif isinstance(part, list):
        for inside in part:
            yield from named(inside, key)
    elif key.endswith(("_file", "_files")) and part is not None and part != "sbml":
        yield key, part


def cells(content: bytes) -> pd.DataFrame:
    """The cells of a tab-separated table as texts; raises ValueError for other contents."""
    return pd.read_csv(BytesIO(content), sep="\t", dtype=str, keep_default_na=False)


def _require_file(path: Path, key: str, name: Any) -> None:
    folder = path.parent.resolve()
    if not isinstance(name, str) or "\0" in name:
        raise DataError(f"'{path}' has the entry {name!r:.50} in `{key}`; give the name of a file.")
    file = (folder / name).resolve()
    if "://" in name or not file.is_relative_to(folder):
        raise DataError(
            f"'{path}' refers to '{name}', which is not in the same folder. For a PEtab problem, "
            "igpe downloads nothing and reads no files in other folders; copy the file into "
            "this folder."
        )
    if not file.is_file():
        raise DataError(f"'{path}' refers to the file '{name}', which does not exist.")
    (_require_xml if key in ("sbml_files", "model_files") else _require_table)(file)


def _require_tabs(file: Path, head: bytes) -> None:
    """Raise DataError if the first line of a table has commas or semicolons instead of tabs."""
    if b"\t" not in head and (b"," in head or b";" in head):
        raise DataError(
            f"'{file}' is not a tab-separated table: its first line is "
            f"'{head.decode(errors='replace').strip():.80}'. Save the table with tabs between the "
            "columns."
        )


def _require_table(file: Path) -> None:
    """Raise DataError for a table that is too large, or has a formula that is."""
    content = read(file, MOST_TABLE)
    head = content.partition(b"\n")[0]
    _require_tabs(file, head)
    lines = content.count(b"\n") + content.count(b"\r") + 1
    require_cells(file, lines, head.count(b"\t") + 1)
    try:
        table = cells(content)
    except UnicodeDecodeError as error:
        raise DataError(f"'{file}' is not encoded in UTF-8. Save the table as UTF-8.") from error
    except (ValueError, pd.errors.ParserError, OverflowError) as error:
        raise DataError(f"'{file}' is not a tab-separated table: {str(error)[:200]}") from error
    for text in (t for column in table.columns for t in table[column].astype(str).unique()):
        if len(text) > MOST_FORMULA or HUGE.search(text):
            raise DataError(f"'{file}' has a number or formula that is too large: '{text[:50]}'.")
        if not any(mark in text for mark in "^*("):
            continue
        try:
            expression = parsed(text, evaluate=False)
        except IgpeError:
            continue
        try:
            require_moderate(expression)
        except ModelError as error:
            raise DataError(f"In '{file}': {error}") from None


def _require_xml(file: Path) -> None:
    """Raise DataError for deep nesting and for entities, at which libSBML would crash."""
    depth = 0

    def step(down: int) -> None:
        nonlocal depth
        depth += down
        if depth > DEEPEST_XML:
            raise DataError(
                f"'{file}' is nested more than {DEEPEST_XML} levels deep, which igpe does not "
                "support."
            )

    def refuse(*_: object) -> None:
        raise DataError(
            f"'{file}' contains a DOCTYPE, which may define entities; igpe does not accept it in "
            "SBML models."
        )

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = lambda *_: step(1), lambda _: step(-1)
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(read(file, MOST_MODEL), True)
    except expat.ExpatError as error:
        raise DataError(f"'{file}' is not an XML file: {error}.") from None


def require_few_calls(model: Any) -> None:
    """Raise ModelError for functions that are written out to millions of operations."""
    listed = {f.getId(): f.getMath() for f in model.getListOfFunctionDefinitions()}
    functions = {name: formula for name, formula in listed.items() if formula is not None}
    sizes: dict[str, int] = {}

    def size(node: Any, depth: int) -> int:
        inside = sum(size(node.getChild(i), depth) for i in range(node.getNumChildren()))
        name = node.getName() or ""
        if name not in functions:
            return 1 + inside
        if depth > len(functions):
            raise ModelError(f"The function '{name}' of the SBML model calls itself.")
        if name not in sizes:
            sizes[name] = size(functions[name], depth + 1)
        operations = sizes[name] * (1 + inside)
        if operations > MOST_CALLS:
            raise ModelError(
                f"The function '{name}' of the SBML model would expand to {operations:.0e} "
                "operations, too many for igpe. Write the model with fewer function calls."
            )
        return operations

    for formula in functions.values():
        size(formula, 0)
