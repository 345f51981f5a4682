"""Conditions of runs: what stands above a table, in its title, in the name of its sheet."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from igpe.core.errors import DataError
from igpe.formats.workbooks import words
from igpe.formats.workbooks.blocks import SheetTable
from igpe.formats.workbooks.cells import EMPTY, NUMBER, Cell, Kind
from igpe.formats.workbooks.words import identifier, known_unit, split_header

ABSOLUTE = {"degC": (1.0, 273.15), "degF": (5 / 9, 459.67 * 5 / 9), "K": (1.0, 0.0)}
ROUNDED = 0.5  # K: 333 K is 60 °C
COLDEST_KELVIN = 200.0  # "5 K" is no temperature of a reaction
_GIVEN = re.compile(rf"([^\W\d][\w .()/-]*?)\s*[:=]\s*({NUMBER.pattern})\s*([^\s,;]*)")
WITH_UNIT = re.compile(rf"({NUMBER.pattern})\s*(\S.*)")
DEGREES = re.compile(rf"(?<![\w.,])({NUMBER.pattern})\s*(°\s?C|℃|degC|Grad(?: C)?|K)(?!\w)")
_AT = re.compile(rf"(?:\bat|\bbei|@|\bà)\s*({NUMBER.pattern})\s*(°\s?C|℃|degC|Grad(?: C)?|K)(?!\w)")


class Condition(NamedTuple):
    """A number that holds for a run, in the unit it is used in, and as it was written."""

    value: float
    unit: str
    written: str


def absolute(value: float, unit: str) -> tuple[float, str]:
    """A number and its unit; temperatures in kelvin."""
    if unit in ABSOLUTE:
        factor, offset = ABSOLUTE[unit]
        return round(factor * value + offset, 9), "K"
    return value, unit


def condition(value: float, unit: str, text: str = "") -> Condition:
    """A condition in the unit it is used in."""
    shown = unit.replace("degC", "°C")
    return Condition(*absolute(value, unit), text or f"{value:g} {shown}".strip())


def degrees_in(text: str) -> Condition | None:
    """The one temperature that a title or the name of a sheet gives; None if it gives none."""
    return _one_temperature(DEGREES, text)


def _one_temperature(pattern: re.Pattern[str], text: str) -> Condition | None:
    matches = [
        m
        for m in pattern.finditer(text)
        if (n := _plain(m[1])) is not None and (m[2] != "K" or n >= COLDEST_KELVIN)
    ]
    if len(matches) != 1:
        return None
    number = _plain(matches[0][1])
    unit = "K" if matches[0][2] == "K" else "degC"
    return None if number is None else condition(number, unit, matches[0][0].lstrip("at @"))


def _plain(text: str) -> float | None:
    """A number in a sentence; None where its comma may part thousands."""
    bare = text.rstrip(".,").replace("\N{MINUS SIGN}", "-")
    if re.fullmatch(r"[1-9]\d{0,2},\d{3}", bare) or bare.count(",") + bare.count(".") > 1:
        return None
    return float(bare.replace(",", "."))


def conditions_above(block: SheetTable) -> dict[str, Condition]:
    """The conditions that the lines above a table, its title and its sheet's name give.

    raises  DataError if they give several temperatures
    """
    conditions: dict[str, Condition] = {}
    for text in (block.grid.sheet, block.title):
        _put(conditions, words.TEMPERATURE, degrees_in(text), block)
    for row in block.above:
        cells = [c for c in row if c.kind is not Kind.EMPTY]
        for k, cell in enumerate(cells):
            if cell.kind is Kind.TEXT:
                _put(conditions, words.TEMPERATURE, _one_temperature(_AT, cell.text), block)
                for entry in _entries(cell.text, [*cells[k + 1 :], EMPTY, EMPTY, EMPTY]):
                    _put(conditions, *_condition(*entry), block)
    return conditions


def _put(
    conditions: dict[str, Condition], name: str, one: Condition | None, block: SheetTable
) -> None:
    before = conditions.get(name, one)
    if one is None or before is None:
        return
    if name == words.TEMPERATURE and one.unit and abs(before.value - one.value) > ROUNDED:
        raise DataError(
            f"The table in {block.place(0, 0)} of '{block.grid.file.name}' has two "
            f"temperatures ({before.written} and {one.written}) in its title, in the lines "
            "above it or in the name of its sheet. Remove the wrong one."
        )
    conditions[name] = one


def _entries(text: str, following: Sequence[Cell]) -> Iterator[tuple[str, float | None, str]]:
    """Names, numbers and units in a text, and in the cells that follow it."""
    for key, number, unit in _GIVEN.findall(text):
        yield key, _plain(number), unit.rstrip(".")
    if following[0].kind is Kind.NUMBER:
        is_name = following[2].kind is Kind.NUMBER  # of the next number, not this one's unit
        yield text, following[0].value, "" if is_name else following[1].text
    elif match := WITH_UNIT.fullmatch(following[0].text):
        yield text, _plain(match[1]), match[2]


def _condition(key: str, number: float | None, unit: str) -> tuple[str, Condition | None]:
    """One condition and its name, if its unit or its name says what it is."""
    written, own = split_header(key.strip().rstrip(":=").strip())
    known = known_unit(unit) or ("" if unit else own)
    known = {"C": "degC", "F": "degF"}.get(known, known) if words.is_temperature(written) else known
    speaks = words.is_temperature(written) or words.is_controlled(written, "")
    if number is None or not written or (unit and not known) or not (known or speaks):
        return "", None
    shown = f"{number:g} {unit or own.replace('degC', '°C')}".strip()
    return condition_name(written, known), condition(number, known, shown)


def condition_name(written: str, unit: str) -> str:
    """The name of a condition in the model; "T" for the temperature of the reaction."""
    is_degrees = unit in ABSOLUTE or not unit
    if is_degrees and words.is_temperature(written) and words.is_reaction_temperature(written):
        plain = {w.lower() for w in words.words_of(written)}
        return words.TEMPERATURE if not plain & {"tj", "tset"} else identifier(written)
    if is_degrees and unit and written.lower().endswith(("temperature", "temperatur")):
        own = words.is_reaction_temperature(written)
        reaction = re.match("(?i)rea[ck]t", written) is not None
        return words.TEMPERATURE if own and reaction else identifier(written)
    return identifier(written)


def table_of_conditions(block: SheetTable, names: Iterable[str]) -> dict[str, dict[str, Condition]]:
    """Run -> conditions, of a table without times that lists runs of these names; else empty."""
    known = set(names)
    for number, header in enumerate(block.headers):
        cells = block.cells(number)
        if not {c.text for c in cells} & known or len(set(c.text for c in cells)) < len(cells):
            continue
        conditions: dict[str, dict[str, Condition]] = {}
        for other, title in enumerate(block.headers):
            written, unit = split_header(title)
            unit = unit or words.unit_below(block.units[other])
            for run, cell in zip(cells, block.cells(other), strict=True):
                if other != number and cell.kind is Kind.NUMBER and run.text in known and header:
                    own = conditions.setdefault(run.text, {})
                    own[condition_name(written, unit)] = condition(cell.value, unit)
        return conditions
    return {}
