"""What lies in a PEtab problem's folder, looked at before any library reads it.

The YAML file may name tables and one SBML model in its own folder, and nothing else: no address in
the network, no path to elsewhere, no model in a language whose files are programs (PySB). Numbers
and nesting are limited: the libraries would compute 9^9^9^9 and nest as deep as a file says.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.parsers import expat

import pandas as pd

from igpe.core.errors import DataError, IgpeError, ModelError
from igpe.core.files import read
from igpe.formats.petab.formulas import (
    TOO_LARGE,
    factorial_size,
    library,
    parsed,
    power_size,
    require_moderate,
)
from igpe.problem.csv_files import require_cells

MOST_YAML, MOST_TABLE, MOST_MODEL = 2**20, 50 * 2**20, 50 * 2**20  # bytes
DEEPEST_YAML, DEEPEST_XML = 20, 200  # levels
MOST_EVENTS = 20_000  # of YAML: names and brackets
MOST_ALIASES = 10  # each may double what it stands for
MOST_CALLS = 10**6  # nodes of functions, once their calls are written out
PICTURES = "visualization_files"  # nothing is read of them; they may be missing


def petab_config(path: Path) -> dict[str, Any]:
    """What the YAML file says, every file that it names looked at.

    raises DataError for what is no PEtab problem, for files elsewhere, and other languages
    """
    yaml = library("yaml")
    try:
        text = read(path, MOST_YAML).decode("utf-8-sig")
        _require_flat(yaml.parse(text, Loader=yaml.SafeLoader), path)
        config = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        raise DataError(f"'{path}' is no YAML file: {str(error)[:200]}") from error
    if not isinstance(config, dict):
        raise DataError(f"'{path}' is no PEtab problem: it names no tables.")
    problems = config.get("problems")
    for part in (config, *(problems if isinstance(problems, list) else ())):
        if isinstance(part, dict):
            part.pop(PICTURES, None)
    for key, name in _named(config):
        _require_file(path, key, name)
    return config


def _require_flat(events: Any, path: Path) -> None:
    """Few entries, none nested deeply, and hardly any that stand for others."""
    depth = aliases = 0
    for count, event in enumerate(events):
        kind = type(event).__name__
        depth += kind.endswith("StartEvent") - kind.endswith("EndEvent")
        aliases += kind == "AliasEvent"
        if aliases > MOST_ALIASES or depth > DEEPEST_YAML or count > MOST_EVENTS:
            raise DataError(
                f"'{path}' has more than {MOST_ALIASES} aliases (*), is too large, or nested too "
                "deeply for a PEtab problem. Write each entry out."
            )


def _named(part: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Every text with the last key above it, which says what it is."""
    if isinstance(part, Mapping):
        for name, inside in part.items():
            yield from _named(inside, key if key == "model_files" else str(name))
            if name == "language" and inside != "sbml":
                raise DataError(
                    f"The problem's model is in the language {inside!r:.50}, not in SBML. Models "
                    "in other languages may be programs, which igpe does not run. Write it in SBML."
                )
    elif isinstance(part, list):
        for inside in part:
            yield from _named(inside, key)
    elif key.endswith(("_file", "_files")) and part is not None and part != "sbml":
        yield key, part


def _require_file(path: Path, key: str, name: Any) -> None:
    folder = path.parent.resolve()
    if not isinstance(name, str) or "\0" in name:
        raise DataError(f"'{path}' names {name!r:.50} as a file of {key}; give the name of a file.")
    file = (folder / name).resolve()
    if "://" in name or not file.is_relative_to(folder):
        raise DataError(
            f"'{path}' names '{name}', which is not in its own folder. igpe downloads nothing and "
            "reads no files of other folders for a PEtab problem; copy the file beside it."
        )
    if not file.is_file():
        raise DataError(f"There is no file '{name}', which '{path}' names, beside it.")
    if key in ("sbml_files", "model_files"):
        _require_xml(file)
    else:
        _require_table(file)


def _require_table(file: Path) -> None:
    """A table of moderate size whose formulas are."""
    content = read(file, MOST_TABLE)
    columns = content.partition(b"\n")[0].count(b"\t") + 1
    require_cells(file, content.count(b"\n") + content.count(b"\r") + 1, columns)
    try:
        table = pd.read_csv(BytesIO(content), sep="\t", dtype=str, keep_default_na=False)
    except (ValueError, pd.errors.ParserError, OverflowError) as error:
        raise DataError(f"'{file}' is no table separated by tabs: {str(error)[:200]}") from error
    for column in table.columns:
        for text in table[column].astype(str).unique():
            _require_moderate(text, file)


def _require_moderate(text: str, file: Path) -> None:
    """Refuse a formula that would be computed to something huge; what is none is left to PEtab."""
    if len(text) > MOST_FORMULA or HUGE.search(text):
        raise DataError(f"'{file}' has a number or formula that is too large: '{text[:50]}'.")
    if not any(mark in text for mark in "^*("):
        return
    try:
        expression = parsed(text, evaluate=False)
    except IgpeError:
        return
    try:
        require_moderate(expression)
    except ModelError as error:
        raise DataError(f"In '{file}': {error}") from None


MOST_FORMULA = 20_000  # letters
HUGE = re.compile(r"(?<!\w)(\d+\.?\d*|\.\d+)[eE][-+]?\d{4,}|\d{400}")


def _require_xml(file: Path) -> None:
    """An XML file that is nested as models are, and defines no entities: libSBML would crash."""
    depth = 0
    parser = expat.ParserCreate()

    def begin(*_: object) -> None:
        nonlocal depth
        depth += 1
        if depth > DEEPEST_XML:
            raise DataError(
                f"'{file}' is nested more than {DEEPEST_XML} deep; igpe reads no such model."
            )

    def end(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: object) -> None:
        raise DataError(f"'{file}' defines entities (a DOCTYPE); SBML models do not.")

    parser.StartElementHandler, parser.EndElementHandler = begin, end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(read(file, MOST_MODEL), True)
    except expat.ExpatError as error:
        raise DataError(f"'{file}' is no XML file: {error}.") from None


def require_few_calls(model: Any) -> None:
    """Raise ModelError for functions that are written out to millions of operations."""
    functions = {f.getId(): f.getMath() for f in model.getListOfFunctionDefinitions()}
    sizes: dict[str, int] = {}

    def size(node: Any, depth: int) -> int:
        children = [node.getChild(i) for i in range(node.getNumChildren())]
        inside = sum(size(child, depth) for child in children)
        name = node.getName() or ""
        if name not in functions or functions[name] is None:
            return 1 + inside
        if depth > len(functions):
            raise ModelError(f"The function '{name}' of the SBML model calls itself.")
        if name not in sizes:
            sizes[name] = size(functions[name], depth + 1)
        found = sizes[name] * (1 + inside)
        if found > MOST_CALLS:
            raise ModelError(
                f"The function '{name}' of the SBML model would be written out to {found:.0e} "
                "operations. Write the model with fewer calls."
            )
        return found

    for formula in functions.values():
        if formula is not None:
            size(formula, 0)


def require_moderate_math(node: Any) -> None:
    """`require_moderate` of a libSBML formula: what SymPy would compute while it reads it."""
    try:
        _math_size(node)
    except OverflowError:
        raise ModelError(TOO_LARGE) from None


def _math_size(node: Any) -> float | None:
    """The value of a number, roughly; None for what is no number, OverflowError if it is huge."""
    sbml = library("libsbml")
    sizes = [_math_size(node.getChild(i)) for i in range(node.getNumChildren())]
    kind = node.getType()
    if node.isNumber():
        return float(node.getValue()) if math.isfinite(node.getValue()) else None
    if kind in (sbml.AST_POWER, sbml.AST_FUNCTION_POWER) and len(sizes) == len(("base", "n")):
        return power_size(*sizes)
    if None in sizes or not sizes:
        return None
    known = [s for s in sizes if s is not None]
    value = _computed(kind, known, sbml)
    if value is not None and math.isinf(value):
        raise OverflowError
    return value


def _computed(kind: int, sizes: list[float], sbml: Any) -> float | None:
    first, last = sizes[0], sizes[-1]
    if kind in (sbml.AST_FUNCTION_SINH, sbml.AST_FUNCTION_COSH, sbml.AST_FUNCTION_EXP):
        return math.exp(first if kind == sbml.AST_FUNCTION_EXP else abs(first))
    if kind == sbml.AST_DIVIDE:
        return first / last if last else None
    functions: dict[int, Callable[[], float | None]] = {
        sbml.AST_FUNCTION_FACTORIAL: lambda: factorial_size(first),
        sbml.AST_FUNCTION_ROOT: lambda: power_size(last, 1 / first) if first else None,
        sbml.AST_MINUS: lambda: -first if len(sizes) == 1 else first - last,
        sbml.AST_TIMES: lambda: math.prod(sizes),
    }
    # Of all else the sum will do: no other function is larger than what it is of.
    return functions.get(kind, lambda: math.fsum(sizes))()
