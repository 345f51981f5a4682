"""What the header of a column says: "c(A) [mol/L]" is the quantity c(A) in mol/L."""

import keyword
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from unicodedata import normalize

import pint
import pyomo.environ as pyo
from pyomo.environ import units as pyomo_units

from igpe.core.arguments import closest
from igpe.core.errors import DataError
from igpe.problem.units import require_unit

TIMES = {"time", "times", "t", "zeit", "temps", "tempo", "tiempo", "elapsed"}
RUNS = {"experiment", "run", "exp", "batch", "trial", "lauf", "versuch"}
TAKEN = {"t", "time", "experiment", *dir(pyo.ConcreteModel())}
"""Names that a variable of a model cannot have."""

NO_UNIT = pint.PintError, ValueError, TypeError, AttributeError, AssertionError, ArithmeticError
_BRACKETS = re.compile(r"(?P<name>.*\S)(?P<gap>\s*)[\[({](?P<unit>[^\[({]*)[\])}]")
_SLASH = re.compile(r"(?P<name>.*\S)\s+(?:/|in)\s+\(?(?P<unit>[^)]*)\)?")
_COMMA = re.compile(r"(?P<name>.*\S),\s*(?P<unit>\S+)")
_BEFORE = re.compile(r"(?i)(concentration|conc\.?|c)[\s._]*(of\s+)?")
_SIGMA_WORDS = ("sd", "std", "sigma", "err", "error", "stddev")
_MARKS = {
    "·": "*",
    "⁻": "-",
    "¹": "1",
    "²": "2",
    "³": "3",
    "\N{MICRO SIGN}": "u",
    "°C": "degC",
    "^": "**",
}


@dataclass(frozen=True)
class Column:
    """A column of the user's table.

    header  as it stands in the table
    name    in the model
    unit    as text that Pyomo understands; empty if there is none, or none that it knows
    """

    header: str
    name: str
    unit: str


def split_header(header: str) -> tuple[str, str]:
    """Name and unit of a header, as in "t / h", "c(A) [mol/L]", "Temp. (°C)", "time_min".

    Brackets without a space before them, as in "c(A)", belong to the name, but for [...].
    """
    text = header.strip()
    found = _BRACKETS.fullmatch(text)
    if found is not None and not _belongs_to_name(found):
        return found["name"], known_unit(found["unit"])
    for pattern in (_SLASH, _COMMA):
        found = pattern.fullmatch(text)
        if found is not None and known_unit(found["unit"]):
            return found["name"], known_unit(found["unit"])
    name, _, last = text.rpartition("_")
    if name.lower() in TIMES and known_unit(last):
        return name, known_unit(last)
    return text, ""


def _belongs_to_name(found: re.Match[str]) -> bool:
    """Whether what stands in brackets is no unit: "c(A)" is not in ampere, "A (total)" has none."""
    is_empty = not found["unit"].strip(" -%1")
    if found[0].endswith("]") or is_empty:
        return False
    if not known_unit(found["unit"]):
        return True
    is_letter = len(found["name"]) == 1 or re.fullmatch("[A-Z]", found["unit"]) is not None
    return is_letter and not found["gap"]


def known_unit(text: str) -> str:
    """The unit in a form that Pyomo understands: "mol L⁻¹" is "mol L**-1"; empty if unknown."""
    for mark, plain in _MARKS.items():
        text = text.replace(mark, plain)
    text = text.strip().removesuffix(".")
    powers = re.sub(r"(?<=[A-Za-z])(-?\d+)", r"**\1", text)
    for form in (text, powers, re.sub(r"\s+", "*", powers)):
        if not re.search("[A-Za-z]", form):
            continue
        try:
            found = pyomo_units.pint_registry.parse_units(require_unit(form))
        except NO_UNIT:
            continue
        if not found.dimensionless:
            return form
    return ""


def dimension(unit: str) -> dict[str, float]:
    """Base dimension -> power: {"[time]": 1.0}."""
    if not unit:
        return {}
    registry = pyomo_units.pint_registry
    return {
        str(n): float(p) for n, p in registry.parse_units(require_unit(unit)).dimensionality.items()
    }


def is_time(header: str) -> bool:
    """Whether a header speaks of time."""
    words = re.findall(r"[^\W\d_]+", split_header(header)[0])
    if not words or words[0] == "T":  # a temperature
        return False
    lower = [w.lower() for w in words]
    return lower[0] in TIMES or "time" in lower or "zeit" in lower


def is_run(header: str) -> bool:
    """Whether a header speaks of experiments."""
    words = re.findall(r"[^\W\d_]+", header.lower())
    rest = {"id", "no", "nr", "number", "name"}
    return bool(words) and words[0] in RUNS and set(words[1:]) <= rest


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """A name for a variable of the model: letters, digits, underscores; not one of `taken`."""
    kept = (c if f"x{c}".isidentifier() else " " for c in normalize("NFKC", name))
    plain = re.sub(r"\W+", "_", "".join(kept)).strip("_") or "x"
    plain = plain if plain.isidentifier() else f"x{plain}"
    if plain in TAKEN or keyword.iskeyword(plain):
        plain += "_"
    free = plain
    for number in range(2, len(taken) + 3):
        if free not in taken:
            break
        free = f"{plain}_{number}"
    return free


def meant(name: str, species: Iterable[str]) -> str:
    """The species that a column called "c_A", "[A]", "conc. of acid" or "ACID" is; or ""."""
    known = list(species)
    bare = name.strip(" []()")
    forms = [bare, _BEFORE.sub("", bare, count=1).strip(" []()_")]
    for form in (re.sub(r"\W+", "_", f).strip("_") for f in forms):
        same = [s for s in known if s == form] or [s for s in known if s.lower() == form.lower()]
        if len(same) == 1:
            return same[0]
    return ""


def deviation_of(header: str) -> str:
    """What a column such as "sd_A", "A sd" or "error of A" is the standard deviation of; or ""."""
    words = re.split(r"[\s._]+", split_header(header)[0])
    if len(words) > 1 and words[0].lower() in _SIGMA_WORDS:
        return "_".join(w for w in words[1:] if w.lower() != "of")
    if len(words) > 1 and words[-1].lower() in _SIGMA_WORDS:
        return "_".join(words[:-1])
    return ""


def named_column(header: str, headers: Iterable[str], option: str) -> str:
    """The header, if the table has it. Raises DataError with the one that was probably meant."""
    known = list(headers)
    if header in known:
        return header
    raise DataError(
        f"{option} names the column '{header}', but the table's columns are {known}."
        f"{closest(header, known)}"
    )
