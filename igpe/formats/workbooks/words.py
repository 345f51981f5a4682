"""What the headers of laboratory tables mean: times, experiments, units, deviations, conversions.

A header such as "c(A) [mol/L]" names the quantity c(A) in mol/L.
"""

import keyword
import re
from collections.abc import Collection, Iterable
from functools import cache
from tokenize import TokenError
from typing import NamedTuple
from unicodedata import normalize

import pint
import pyomo.environ as pyo
from pyomo.environ import units as pyomo_units

from igpe.problem.units import require_unit

TIMES = {"time", "times", "t", "zeit", "temps", "tempo", "tiempo", "elapsed", "duration", "dauer"}
TIMES |= {
    "timestamp",
    "tijd",
    "tid",
    "czas",
    "uhrzeit",
    "clock",
    "tos",
    "relzeit",
    "minutes",
    "hours",
    "days",
    "seconds",
}
TIMES |= {"stunden", "stunde", "minuten", "sekunden", "tage", "tag", "day", "hour", "datetime"}
DATES = {"date", "datum", "fecha"}
OTHER_TIMES = {"retention", "ret", "rettime", "rt", "dwell", "integration", "induction"}
OTHER_TIMES |= {"exposure", "lag", "doubling"}
RESIDENCE = {"residence", "verweilzeit", "tau"}
RUNS = {"experiment", "run", "exp", "batch", "trial", "lauf", "versuch"}
INDICES = {
    "no",
    "nr",
    "index",
    "injection",
    "inj",
    "vial",
    "cycle",
    "spectrum",
    "scan",
    "point",
    "replicate",
    "rep",
}
INDICES |= {"sample", "#", "number", "probe", "well", "line", "row", "id", "position"}
COMPONENTS = {"name", "component", "compound", "analyte", "species", "substance", "parameter"}
COMPONENTS |= {"komponente", "substanz", "stoff", "peak"}
AMOUNTS = ("amount", "concentration", "conc", "result", "value", "wert", "ergebnis", "gehalt")
STATISTICS = {"mean", "average", "avg", "sd", "std", "stdev", "rsd", "min", "max", "minimum", "sum"}
STATISTICS |= {
    "summe",
    "gesamt",
    "maximum",
    "standard",
    "mittelwert",
    "stabw",
    "median",
    "total",
    "cv",
    "slope",
    "n",
}
MEANS = {"mean", "average", "avg", "mittelwert", "moyenne"}
NO_REACTION = {"column", "oven", "detector", "jacket", "ambient", "room", "wall", "coolant"}
NO_REACTION |= {"inlet", "feed", "sample", "injector", "autosampler", "storage", "säulen"}
CONTROLLED = {"pressure", "druck", "p", "flow", "flowrate", "feed", "fluss", "stirrer", "stirr"}
CONTROLLED |= {"stirring", "agitation", "rpm", "speed", "ghsv", "whsv", "light", "setpoint"}
TAKEN = {"t", "time", "experiment", *dir(pyo.ConcreteModel())}
"""Names that a variable of a model cannot have."""

NO_UNIT: tuple[type[Exception], ...] = pint.PintError, TokenError, ValueError, TypeError
NO_UNIT += AttributeError, AssertionError, ArithmeticError, LookupError
_BRACKETS = re.compile(r"(?P<name>.*\S)(?P<gap>\s*)[\[({](?P<unit>[^\[({]*)[\])}]")
_SLASH = re.compile(r"(?P<name>.*\S)\s+(?:/|in)\s+\(?(?P<unit>[^)]*)\)?")
_CLOSE_SLASH = re.compile(r"(?P<name>[^/]*[^/\s])/(?P<unit>K|%|(?![A-Z]$)[^)]+)")
_COMMA = re.compile(r"(?P<name>.*\S),\s*(?P<unit>\S+)")
_UNDERSCORE = re.compile(
    r"(?P<name>.+)_(?P<unit>[mun\u00b5]M|min|m?bar|[kM]?Pa|mV|degC|m?g/L|m?mol/L)"
)
_BEFORE = re.compile(r"(?i)(concentration|conc\.?|c)[\s._]*(of\s+)?")
_SIGMA_WORDS = ("sd", "std", "sigma", "err", "error", "stddev", "±", "+/-", "stabw")
_MARKS = {"·": "*", "⁻": "-", "¹": "1", "²": "2", "³": "3", "\N{MICRO SIGN}": "u", "μ": "u"}
_MARKS |= {"°C": "degC", "℃": "degC", "ºC": "degC", "deg C": "degC", "° C": "degC", "^": "**"}
_SPELLED = {
    "std": "h",
    "stunden": "h",
    "sek": "s",
    "tage": "d",
    "celsius": "degC",
    "minuten": "min",
}
_SPELLED |= {"stunde": "h", "hour": "h", "hours": "h", "tag": "d", "day": "d", "days": "d"}
_SPELLED |= {
    "minutes": "min",
    "seconds": "s",
    "sekunden": "s",
    "grad": "degC",
    "grad c": "degC",
    "oc": "degC",
    "mins": "min",
    "hrs": "h",
    "secs": "s",
}
TIME = {"[time]": 1.0}
ARBITRARY = {"a.u", "au", "mau", "counts", "cts"}  # to pint astronomical or atomic units
LETTER_DEGREES = {"C": "degC", "F": "degF"}
PER_CENT = re.compile(r"(?i)(wt|mol|vol|mass|area|m|v|w)?[-. ]*%|per ?cent|prozent")
_OF = r"(?:[\s_.]*(?:of|von)?[\s_(]*(?P<of>[A-Za-z]\w*)\)?)?"
_KINDS = {
    "conversion": re.compile(rf"(?i)(?:conversion|conv\.?|umsatz)(?![a-z]){_OF}"),
    "yield": re.compile(rf"(?i)(?:yield|ausbeute|rendement)(?![a-z]){_OF}"),
    "selectivity": re.compile(rf"(?i)(?:selectivity|selektivität)(?![a-z]){_OF}"),
    "area": re.compile(r"(?i)(?:peak[\s_]*)?(?:area|fläche)(?![a-z]).*"),
}
_LETTERS = {"X": "conversion", "Y": "yield", "S": "selectivity"}
_REPLICATES = [
    (re.compile(r"(.*\S)\s*\((\d)\)"), True),
    (re.compile(r"(.*\S)[\s_]*#\s*(\d)"), True),
    (re.compile(r"(?i)(.*[^\s_])[\s_.-]+(?:rep|repl|replicate|dup|wdh)\.?[\s_]*(\d)"), True),
    (re.compile(r"(.*[^\W\d_])[_ .](\d)"), False),
]
_STANDARD = re.compile(r"(?i)standard[ _]dev(iation)?|std\.?[ _]dev\.?|stdev")
_RUN_IN = re.compile(rf"(?i)(.*?)((?:{'|'.join(RUNS)})[\W_]*\d+)\)?")
_NO_TIMES = {"retentionszeit", "halbwertszeit", "totzeit", "verweilzeit"}
TEMPERATURE = "T"  # what the reactors of `kinetics` call it


def split_header(header: str) -> tuple[str, str]:
    """Name and unit of a header: "t / h", "c(A) [mol/L]", "Temp. (°C)", "time_min", "T, C"."""
    name, unit = _split(header.strip())
    degrees = LETTER_DEGREES.get(unit, "")
    return name, degrees if degrees and is_temperature(name) else unit


def _split(text: str) -> tuple[str, str]:
    match = _BRACKETS.fullmatch(text)
    if match is not None and not _belongs_to_name(match):
        return match["name"], known_unit(match["unit"])
    for pattern in (_SLASH, _COMMA, _CLOSE_SLASH, _UNDERSCORE):
        match = pattern.fullmatch(text)
        if match is not None and known_unit(match["unit"]):
            return match["name"], known_unit(match["unit"])
    name, _, last = text.rpartition("_")
    speaks = name.lower() in TIMES or (is_temperature(name) and last in ("C", "K", "F"))
    return (name, known_unit(last)) if speaks and known_unit(last) else (text, "")


def _belongs_to_name(match: re.Match[str]) -> bool:
    """Whether what stands in brackets is no unit: "c(A)" is not in ampere, "A (total)" has none."""
    if match[0].endswith("]") or not match["unit"].strip(" -%1"):
        return False
    is_letter = len(match["name"]) == 1 or re.fullmatch("[A-Z]", match["unit"]) is not None
    return not known_unit(match["unit"]) or (is_letter and not match["gap"])


@cache
def known_unit(text: str) -> str:
    """The unit in a form that Pyomo understands: "mol L⁻¹" is "mol L**-1"; empty if unknown.

    Per cent of anything is "%"; other ratios are units if they say of what: "g/kg".
    """
    if PER_CENT.fullmatch(text.strip()):
        return "%"
    for mark, plain in _MARKS.items():
        text = text.replace(mark, plain)
    text = text.strip().removesuffix(".")
    if text.lower() in ARBITRARY:
        return ""
    text = _SPELLED.get(text.lower(), text)
    powers = re.sub(r"(?<=[A-Za-z])(-?\d+)", r"**\1", text)
    for form in (text, powers, re.sub(r"\s+", "*", powers)):
        if not re.search("[A-Za-z]", form):
            continue
        try:
            unit = pyomo_units.pint_registry.parse_units(require_unit(form))
        except NO_UNIT:
            continue
        if not unit.dimensionless or "/" in form:
            return form
    return ""


def is_unit(text: str) -> bool:
    """Whether a cell below a header holds a unit: "[h]", "mol/L", "-", "hh:mm:ss"."""
    bare = text.strip().strip("[]()")
    return (
        not bare.strip("-\N{EN DASH}1")
        or bool(known_unit(bare))
        or bool(re.fullmatch("[hms:]{5,8}", bare))
    )


def dimension(unit: str) -> dict[str, float]:
    """Base dimension -> power: {"[time]": 1.0}."""
    if not unit:
        return {}
    registry = pyomo_units.pint_registry
    return {
        str(n): float(p) for n, p in registry.parse_units(require_unit(unit)).dimensionality.items()
    }


def words_of(text: str) -> list[str]:
    """The words of a text, without digits and marks."""
    return re.findall(r"[^\W\d_]+", text)


def without(words: Collection[str], text: str) -> str:
    """A name without some words: "A" of "mean A"; "" if nothing is left."""
    return " ".join(w for w in text.split() if w.lower().strip(".") not in words)


def is_time(header: str) -> bool:
    """Whether a header speaks of time since the start, of a clock, or of a date."""
    words = words_of(split_header(header)[0])
    if not words or words[0] == "T" or words[:2] == ["t", "R"]:  # temperature, retention time
        return False
    lower = [w.lower() for w in words]
    if {*lower} & (OTHER_TIMES | RESIDENCE):
        return False
    is_unit_alone = header.strip().lower() in ("min", "h", "sec", "hr", "hrs")
    compound = any(
        w.startswith("zeit") or w.endswith(("zeit", "dauer")) for w in lower if w not in _NO_TIMES
    )
    if re.fullmatch(r"t\d+", header.strip()):  # the name of a sample
        return False
    return lower[0] in TIMES or "time" in lower or compound or is_unit_alone or is_date(header)


def is_date(header: str) -> bool:
    """Whether a header speaks of dates."""
    return bool({w.lower() for w in words_of(header)} & DATES)


def is_residence_time(header: str) -> bool:
    """Whether a header speaks of residence times, which are times in plug flow alone."""
    return bool({w.lower() for w in words_of(header)} & RESIDENCE)


def is_temperature(name: str) -> bool:
    """Whether the name of a quantity is one of a temperature."""
    words = words_of(name)
    first = words[0] if words else ""
    return first in ("T", "Tr", "Tj", "Ti", "Tset") or first.lower().startswith("temp")


def is_reaction_temperature(name: str) -> bool:
    """Whether a temperature may be that of the reaction: not that of a column or a jacket."""
    words = {w.lower() for w in words_of(name)}
    return not words & NO_REACTION and not name.startswith(("d", "Δ", "Tj"))


def is_controlled(name: str, unit: str) -> bool:
    """Whether what varies under this name was set, not measured: an input of the model."""
    size, words = dimension(unit), words_of(name)
    per_time = size.get("[time]") == -1 and len(size) == 2 and not size.get("[temperature]")  # noqa: PLR2004
    is_flow = per_time and any(size.get(d) for d in ("[length]", "[mass]", "[substance]"))
    lower = [w.lower() for w in words]
    is_own = len(lower) == 1 or lower[:1] != ["p"]  # p(A) is measured
    return unit == "rpm" or is_flow or (is_own and bool(set(lower[:2]) & CONTROLLED))


def is_index(header: str) -> bool:
    """Whether a header speaks of running numbers or of names of samples."""
    words = [w.lower() for w in words_of(header)]
    return header.strip() == "#" or (bool(words) and words[0] in INDICES)


def is_statistic(text: str) -> bool:
    """Whether a row below a table begins with this word: "Mean", "%RSD", "Standard deviation"."""
    words = [w.lower() for w in words_of(text)]
    return bool(words) and words[0] in STATISTICS


def kind_of(header: str) -> str:
    """What a column is if no state: "conversion of A", "yield", "area"; or ""."""
    name, unit = split_header(header)
    for kind, pattern in _KINDS.items():
        if match := pattern.fullmatch(name):
            of = match.groupdict().get("of")
            return f"{kind} of {of}" if of else kind
    match = re.fullmatch(r"([XYS])[_(\s]+(\w+)\)?", name)
    return f"{_LETTERS[match[1]]} of {match[2]}" if match and unit == "%" else ""


class Replicate(NamedTuple):
    """A header that may be one of several replicates: of what, which, and whether that is sure."""

    of: str
    number: int
    certain: bool


def replicate(name: str) -> Replicate | None:
    """What "A (1)", "A rep 2", "A #1" (certain) and "A_1" (not) may be replicates of."""
    for pattern, certain in _REPLICATES:
        if match := pattern.fullmatch(name.strip()):
            return Replicate(match[1], int(match[2]), certain)
    return None


def is_run(header: str) -> bool:
    """Whether a header speaks of experiments."""
    words = words_of(header.lower())
    rest = {"id", "no", "nr", "number", "name"}
    numbered = any(c.isdigit() for c in header)
    return not numbered and bool(words) and words[0] in RUNS and set(words[1:]) <= rest


def run_in(header: str) -> tuple[str, str] | None:
    """Quantity and run of a header such as "A run 2"; None if it names no run."""
    match = _RUN_IN.fullmatch(split_header(header)[0])
    return (match[1].strip(" _-("), match[2].strip()) if match else None


def identifier(name: str, taken: Collection[str] = ()) -> str:
    """A name for a variable of the model: letters, digits, underscores; not one of `taken`."""
    kept = (c if f"x{c}".isidentifier() else " " for c in normalize("NFKC", name))
    plain = re.sub(r"\W+", "_", "".join(kept)).strip("_") or "x"
    plain = plain if plain.isidentifier() else f"x{plain}"
    if plain in TAKEN or keyword.iskeyword(plain):
        plain += "_"
    candidates = (plain, *(f"{plain}_{number}" for number in range(2, len(taken) + 3)))
    return next(c for c in candidates if c not in taken)


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
    name = _STANDARD.sub("sd", split_header(header)[0])
    first, *rest = re.split(r"[\s._]+", name)
    if rest and first.lower() in _SIGMA_WORDS:
        return "_".join(w for w in rest if w.lower() != "of")
    return "_".join([first, *rest[:-1]]) if rest and rest[-1].lower() in _SIGMA_WORDS else ""


def is_deviation_alone(header: str) -> bool:
    """Whether a header says no more than "±" or "error": that of the column before."""
    return _STANDARD.sub("sd", split_header(header)[0]).strip(" .").lower() in _SIGMA_WORDS
