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

from igpe.problem.measurements import require_unit


def word_set(text: str) -> frozenset[str]:
    """The words of a text that spaces part."""
    return frozenset(text.split())


TIMES = word_set(
    "time times t zeit temps tempo tiempo tijd tid czas elapsed duration dauer timestamp uhrzeit "
    "clock tos relzeit minutes hours days seconds stunden stunde minuten sekunden tage tag day "
    "hour datetime"
)
DATES = word_set("date datum fecha")
OTHER_TIMES = word_set(
    "retention ret rettime rt dwell integration induction exposure lag doubling retentionszeit "
    "halbwertszeit totzeit"
)
RESIDENCE = word_set("residence verweilzeit tau")
RUNS = word_set("experiment run exp batch trial lauf versuch ansatz subject patient animal proband")
INDICES = word_set(
    "no nr index injection inj vial cycle spectrum scan point replicate rep sample number probe "
    "well line row id position"
)
COMPONENTS = word_set(
    "name component compound analyte species substance parameter komponente substanz stoff peak "
    "quantity variable observable observableid signal messgröße"
)
UNITS = word_set("unit units einheit")
AMOUNTS = ("amount", "concentration", "conc", "result", "value", "wert", "ergebnis", "gehalt")
MEANS = word_set("mean average avg mittelwert moyenne")
STATISTICS = MEANS | word_set(
    "sd std stdev rsd min max minimum maximum sum summe gesamt standard stabw median total cv "
    "slope n"
)
NO_REACTION = word_set(
    "column oven detector jacket ambient room wall coolant inlet feed sample injector autosampler "
    "storage säulen"
)
CONTROLLED = word_set(
    "pressure druck p flow flowrate feed fluss stirrer stirr stirring agitation rpm speed ghsv "
    "whsv light setpoint"
)
TAKEN = {"t", "time", "experiment", *dir(pyo.ConcreteModel())}
"""Names that a variable of a model cannot have."""

NO_UNIT: tuple[type[Exception], ...] = pint.PintError, TokenError, ValueError, TypeError
NO_UNIT += AttributeError, AssertionError, ArithmeticError, LookupError
_BRACKETS = re.compile(r"(?P<name>.*\S)(?P<gap>\s*)[\[({](?P<unit>[^\[({]*)[\])}]")
_UNIT_BEHIND = [
    re.compile(r"(?P<name>.*\S)\s+(?:/|in)\s+\(?(?P<unit>[^)]*)\)?"),
    re.compile(r"(?P<name>.*\S),\s*(?P<unit>\S+)"),
    re.compile(r"(?P<name>[^/]*[^/\s])/(?P<unit>K|%|(?![A-Z]$)[^)]+)"),
    re.compile(r"(?P<name>.+)_(?P<unit>[mun\u00b5]M|min|m?bar|[kM]?Pa|mV|degC|m?g/L|m?mol/L)"),
]
_BEFORE = re.compile(r"(?i)(concentration|conc\.?|c)[\s._]*(of\s+)?")
_SIGMA_WORDS = ("sd", "std", "sigma", "err", "error", "stddev", "±", "+/-", "stabw")
_MARKS = {"·": "*", "⁻": "-", "¹": "1", "²": "2", "³": "3", "\N{MICRO SIGN}": "u", "μ": "u"}
_MARKS |= {"°C": "degC", "℃": "degC", "ºC": "degC", "deg C": "degC", "° C": "degC", "^": "**"}
_TIMES_SPELLED = {
    "s": "s sec secs second seconds sek sekunden",
    "min": "min mins minute minutes minuten",
    "h": "h hr hrs hour hours std stunde stunden",
    "d": "d day days tag tage",
}
_SPELLED = {word: unit for unit, words in _TIMES_SPELLED.items() for word in words.split()}
TIME_UNITS = {
    word: {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}[unit]
    for word, unit in _SPELLED.items()
}
"""Seconds of the units that times are written in."""
_SPELLED |= dict.fromkeys(("celsius", "grad", "grad c", "oc"), "degC")
TIME = {"[time]": 1.0}
CONCENTRATIONS = ({"[substance]": 1.0, "[length]": -3.0}, {"[mass]": 1.0, "[length]": -3.0})
ARBITRARY = word_set("a.u au mau counts cts")  # to pint astronomical or atomic units
LETTER_DEGREES = {"C": "degC", "F": "degF"}
PER_CENT = re.compile(r"(?i)(wt|mol|vol|mass|area|m|v|w)?[-. ]*%|per ?cent|prozent")
_OF = r"(?![a-z])(?:[\s_.]*(?:of|von)?[\s_(]*(?P<of>[A-Za-z]\w*)\)?)?"
_KINDS = {
    "conversion": re.compile(rf"(?i)(?:conversion|conv\.?|umsatz){_OF}"),
    "yield": re.compile(rf"(?i)(?:yield|ausbeute|rendement){_OF}"),
    "selectivity": re.compile(rf"(?i)(?:selectivity|selektivität){_OF}"),
    "area": re.compile(r"(?i)(?:peak[\s_]*)?(?:area|fläche)(?P<of>)(?![a-z]).*"),
}
_CLOCK_FORM = r"(h+|m+|min):(m+|min|s+|sec)(:(s+|sec))?"
_FORM = re.compile(rf"(?i){_CLOCK_FORM}|[dtmyj]{{1,4}}([-./][dtmyj]{{1,4}}){{2}}(\s{_CLOCK_FORM})?")
_LETTERS = {"X": "conversion", "Y": "yield", "S": "selectivity"}
_REPLICATES = [
    (re.compile(r"(.*\S)\s*\((\d)\)"), True),
    (re.compile(r"(.*\S)[\s_]*#\s*(\d)"), True),
    (re.compile(r"(?i)(.*[^\s_])[\s_.-]+(?:rep|repl|replicate|dup|wdh)\.?[\s_]*(\d)"), True),
    (re.compile(r"(.*[^\W\d_])[_ .](\d)"), False),
]
_STANDARD = re.compile(r"(?i)standard[ _]dev(iation)?|std\.?[ _]dev\.?|stdev")
_RUN_IN = re.compile(rf"(?i)(.*?)((?:{'|'.join(sorted(RUNS, reverse=True))})[\W_]*\d+)\)?")
TEMPERATURE = "T"  # what the reactors of `kinetics` call it


def words_of(text: str) -> list[str]:
    """The words of a text, without digits and marks."""
    return re.findall(r"[^\W\d_]+", text)


def begins_with(words: Collection[str], text: str) -> bool:
    """Whether the first word of a text is one of these."""
    return bool({*words_of(text.lower())[:1]} & {*words})


def speaks_of(words: Collection[str], text: str) -> bool:
    """Whether one of these words occurs in a text."""
    return bool({*words_of(text.lower())} & {*words})


def without(words: Collection[str], text: str) -> str:
    """A name without some words: "A" of "mean A"; "" if nothing is left."""
    return " ".join(w for w in text.split() if w.lower().strip(".") not in words)


# Units -------------------------------------------------------------------------------------------


def split_header(header: str) -> tuple[str, str]:
    """Name and unit of a header: "t / h", "c(A) [mol/L]", "Temp. (°C)", "time_min", "T, C"."""
    name, unit = _split(header.strip())
    degrees = LETTER_DEGREES.get(unit, "")
    return name, degrees if degrees and is_temperature(name) else unit


def _split(text: str) -> tuple[str, str]:
    match = _BRACKETS.fullmatch(text)
    if match is not None and not _belongs_to_name(match):
        return match["name"], known_unit(match["unit"])
    for pattern in _UNIT_BEHIND:
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


def unit_below(text: str) -> str:
    """The unit in a cell below or beside a name: "[h]", "(mol/L)"; "" if it is none."""
    return known_unit(text.strip().strip("[]()"))


def is_unit(text: str) -> bool:
    """Whether a cell below a header holds a unit: "[h]", "mol/L", "-", "hh:mm:ss"."""
    bare = text.strip().strip("[]()")
    is_none = not bare.strip("-\N{EN DASH}1")
    return is_none or bool(known_unit(bare)) or is_form(bare)


def is_form(text: str) -> bool:
    """Whether a text says how times or dates are written: "hh:mm", "[mm:ss]", "dd.mm.yyyy"."""
    return _FORM.fullmatch(text.strip().strip("[]()")) is not None


def dimension(unit: str) -> dict[str, float]:
    """Base dimension -> power: {"[time]": 1.0}."""
    if not unit:
        return {}
    known = pyomo_units.pint_registry.parse_units(require_unit(unit)).dimensionality
    return {str(n): float(p) for n, p in known.items()}


# What columns are --------------------------------------------------------------------------------


def is_time(header: str) -> bool:
    """Whether a header speaks of time since the start, of a clock, or of a date."""
    name = split_header(header)[0]
    words = words_of(name)
    is_sample = re.fullmatch(r"t\d+", header.strip()) is not None
    if is_sample or words[:1] == ["T"] or words[:2] == ["t", "R"]:  # temperature, retention time
        return False
    if not words or speaks_of(OTHER_TIMES | RESIDENCE, name):
        return False
    compound = any(re.match("zeit|.*(zeit|dauer)$", w.lower()) for w in words)
    is_unit_alone = header.strip() == "h" or header.strip().lower() in ("min", "sec", "hr", "hrs")
    speaks = begins_with(TIMES, name) or speaks_of(("time",), name) or speaks_of(DATES, header)
    return speaks or compound or is_unit_alone


def is_temperature(name: str) -> bool:
    """Whether the name of a quantity is one of a temperature."""
    first = (words_of(name) or [""])[0]
    return first in ("T", "Tr", "Tj", "Ti", "Tset") or first.lower().startswith("temp")


def is_reaction_temperature(name: str) -> bool:
    """Whether a temperature may be that of the reaction: not that of a column or a jacket."""
    return not speaks_of(NO_REACTION, name) and not name.startswith(("d", "Δ", "Tj"))


def is_controlled(name: str, unit: str) -> bool:
    """Whether what varies under this name was set, not measured: an input of the model."""
    size, words = dimension(unit), words_of(name.lower())
    per_time = size.get("[time]") == -1 and len(size) == 2 and not size.get("[temperature]")  # noqa: PLR2004
    is_flow = per_time and any(size.get(d) for d in ("[length]", "[mass]", "[substance]"))
    is_own = len(words) == 1 or words[:1] != ["p"]  # p(A) is measured
    return unit == "rpm" or is_flow or (is_own and bool({*words[:2]} & CONTROLLED))


def kind_of(header: str) -> str:
    """Kind of a column that is no state: "conversion of A", "yield", "area"; or ""."""
    name, unit = split_header(header)
    for kind, pattern in _KINDS.items():
        if match := pattern.fullmatch(name):
            return f"{kind} of {match['of']}" if match["of"] else kind
    match = re.fullmatch(r"([XYS])[_(\s]+(\w+)\)?", name)
    return f"{_LETTERS[match[1]]} of {match[2]}" if match and unit == "%" else ""


class Replicate(NamedTuple):
    """A header that may be one of several replicates: of what, which, and whether that is sure."""

    of: str
    number: int
    certain: bool


def replicate(name: str) -> Replicate | None:
    """Quantity of which "A (1)", "A rep 2", "A #1" (certain) or "A_1" (not) is a replicate."""
    for pattern, certain in _REPLICATES:
        if match := pattern.fullmatch(name.strip()):
            return Replicate(match[1], int(match[2]), certain)
    return None


def is_charge(header: str) -> bool:
    """Whether a header of texts is the German word for batches; of numbers, it is electric."""
    return header.strip().lower() == "charge"


def is_run(header: str) -> bool:
    """Whether a header speaks of experiments."""
    numbered = any(c.isdigit() for c in header)
    rest = {*words_of(header.lower())[1:]} - {"id", "no", "nr", "number", "name"}
    return not numbered and not rest and begins_with(RUNS, header)


def run_in(header: str) -> tuple[str, str] | None:
    """Quantity and run of a header such as "A run 2"; None if it names no run."""
    match = _RUN_IN.fullmatch(split_header(header)[0])
    return (match[1].strip(" _-("), match[2].strip()) if match else None


def deviation_of(header: str) -> str:
    """Quantity whose standard deviation is in "sd_A", "A sd" or "error of A"; or ""."""
    name = _STANDARD.sub("sd", split_header(header)[0])
    first, *rest = re.split(r"[\s._]+", name)
    if rest and first.lower() in _SIGMA_WORDS:
        return "_".join(w for w in rest if w.lower() != "of")
    return "_".join([first, *rest[:-1]]) if rest and rest[-1].lower() in _SIGMA_WORDS else ""


def is_deviation_alone(header: str) -> bool:
    """Whether a header says no more than "±" or "error": that of the column before."""
    return _STANDARD.sub("sd", split_header(header)[0]).strip(" .").lower() in _SIGMA_WORDS


# Names in the model ------------------------------------------------------------------------------


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
