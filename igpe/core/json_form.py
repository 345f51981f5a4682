"""Conversion to and from plain values for JSON, which has neither NaN nor infinity.

NaN becomes None, and an infinity {"number": "Infinity"}, so that no text is taken for a number.
Dataclasses are written by their fields and read by the types that the fields declare (`Stored`).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    NamedTuple,
    Self,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import pandas as pd

from igpe.core.errors import DataError
from igpe.core.files import read_json, write
from igpe.core.markup import Suggesting, printable

NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf}
INFINITE: dict[float, Any] = {number: {"number": name} for name, number in NUMBERS.items()}
LARGEST = 2**63
Made = TypeVar("Made")
LONGEST = 100  # letters of another message


def plain(value: Any) -> Any:  # noqa: C901 - one case for each kind
    """Convert a value to types of JSON; a member of an Enum becomes its name."""
    match value:
        case Enum():
            return value.name
        case Stored():
            value = value.entries()
        case pd.DataFrame():
            value = (value if value.index.name is None else value.reset_index()).to_dict("list")
        case np.ndarray() | np.integer() | np.bool_():
            value = value.tolist()
        case _ if is_dataclass(value):
            value = _fields_of(value)
    match value:
        case Mapping():
            return {str(k): plain(v) for k, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case float() | np.floating():
            number = float(value)
            return None if math.isnan(number) else INFINITE.get(number, number)
    return value


def restored(value: Any) -> Any:
    """Reverse `plain`, except for members of Enums."""
    match value:
        case None:
            return math.nan
        case list():
            return [restored(v) for v in value]
        case str():
            return printable(value)
        case int() if abs(value) > LARGEST:
            raise ValueError(f"a whole number with {len(str(value))} digits is too large")
        case {"number": str(name), **others} if name in NUMBERS and not others:
            return NUMBERS[name]
        case dict():
            return {printable(k): restored(v) for k, v in value.items()}
    return value


class Form(NamedTuple):
    """Form of a stored object, and the checks that recognise it.

    name     in a sentence: "result"
    writer   what writes it, in a sentence: "Result.to_json"
    number   of the format
    entries  it must have
    """

    name: str
    writer: str
    number: int | str
    entries: tuple[str, ...]

    def head(self) -> dict[str, Any]:
        """Entries that identify the stored object."""
        return {"stored": self.name, "format": self.number}

    def read(self, source: Any) -> Mapping[str, Any]:
        """Content of a JSON text, or of the file at that path.

        raises DataError if there is no such file, it is not JSON, or not of this form
        """
        written = f"{self.writer} wrote"
        if not isinstance(source, (str, Path)):
            kind = type(source).__name__
            needed = f"expected the text that {written}, or the path of its file"
            raise DataError(f"The {self.name} is a {kind}; {needed}.")
        is_file = isinstance(source, Path) or not source.lstrip().startswith("{")
        where = f"The file '{source}'" if is_file else "The text"
        try:
            content = source if is_file else str(source).encode("utf-8", "surrogatepass")
            return self.checked(read_json(content))
        except OSError as error:
            raise DataError(
                f"The file '{str(source)[:100]}' of the {self.name} could not be read "
                f"({error.strerror}; working folder: {Path.cwd()}); give the path that {written} "
                "to."
            ) from None
        except ValueError as error:
            raise DataError(f"{where} is not JSON ({error}); {self._remedy}.") from None

    def checked(self, stored: Any) -> Mapping[str, Any]:
        """Return the entries; raise DataError with what is missing and what to give."""
        if not isinstance(stored, Mapping) or "format" not in stored:
            raise DataError(
                f"This is not a stored {self.name}: it has no entry 'format'; {self._remedy}."
            )
        other = stored.get("stored", self.name)  # older files do not say
        if other != self.name:
            raise DataError(f"This is a stored {other}, not a {self.name}; {self._remedy}.")
        if stored["format"] != self.number:
            raise DataError(
                f"The stored {self.name} has the format {stored['format']!r}; this version of igpe "
                f"reads format {self.number!r}. Read it with the version of igpe that wrote "
                "it, or create it again."
            )
        if missing := sorted(set(self.entries) - set(stored)):
            raise DataError(
                f"The stored {self.name} lacks {missing}; {self._remedy}, and do not change it."
            )
        return stored

    @property
    def _remedy(self) -> str:
        return f"give the text or file that {self.writer} wrote"


def write_json(value: Any, path: str | Path | None) -> str:
    """Convert plain values to JSON text; also write it to `path`, if given, by `files.write`."""
    if isinstance(value, Mapping) and "command" not in value:
        # What it is comes first, where `files.write` looks.
        value = {k: value[k] for k in ("stored", "format") if k in value} | dict(value)
    written = json.dumps(value, indent=2, allow_nan=False)
    if path is not None:
        write(path, written)
    return written


class Columns(NamedTuple):
    """Which columns a stored table has; those that are not named hold numbers.

    texts, numbers  columns that it must have;  key: the column that is the index
    """

    texts: tuple[str, ...]
    numbers: tuple[str, ...]
    key: str = ""

    def table(self, stored: Mapping[str, Any]) -> pd.DataFrame:
        """The table. Raises pandas' errors if a column is missing, or of another kind."""
        kinds: dict[str, type] = dict.fromkeys((*stored, *self.numbers), float)
        kinds.pop(self.key, None)
        frame = pd.DataFrame(stored).astype(kinds | dict.fromkeys(self.texts, str))
        return frame.set_index(self.key) if self.key else frame


class Stored(Suggesting):
    """Base of dataclasses stored as JSON.

    The types of the fields determine how they are read. A subclass gives its name in messages and
    the number of its format: `class Plan(Stored, name="plan", number=1)`; and `writer`, what writes
    it, if users do not call its `to_json`. A field with a default may be missing in a file, because
    older versions did not write it. A class whose fields need more than their types overrides
    `entries` and `of_entries`.
    """

    _name: ClassVar[str]
    _number: ClassVar[int | str]
    _writer: ClassVar[str]

    def __init_subclass__(cls, *, name: str = "", number: int | str = 1, writer: str = "") -> None:
        super().__init_subclass__()
        if name:
            cls._name, cls._number = name, number
            cls._writer = writer or f"{cls.__name__}.to_json"

    def entries(self) -> dict[str, Any]:
        """Return the entries that are stored in addition to the name and number of the format."""
        return _fields_of(self)

    @classmethod
    def of_entries(cls, stored: Mapping[str, Any]) -> Self:
        """Recreate an object from its stored entries. Raises TypeError, ValueError or LookupError
        for invalid entries."""
        return made(cls, stored)

    def to_dict(self) -> dict[str, Any]:
        """Return all entries as JSON types: NaN as None, infinity as {"number": "Infinity"}."""
        return {**self.form().head(), **plain(self.entries())}

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the JSON text, and write it to `path` if a path is given."""
        return write_json(self.to_dict(), path)

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> Self:
        """Recreate an object from the dict that `to_dict` returned.

        raises DataError if the dict is invalid
        """
        form = cls.form()
        stored = form.checked(stored)
        try:
            return checked_types(cls.of_entries(stored))
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise DataError(
                f"The stored {form.name} is damaged ({type(error).__name__}: "
                f"{str(error)[:LONGEST]}); {form._remedy}, and do not change it."
            ) from None

    @classmethod
    def from_json(cls, source: str | Path) -> Self:
        """Recreate an object from the JSON text that `to_json` returned, or from the path of its
        file.

        raises DataError if there is no such file, or if it does not contain such an object
        """
        return cls.from_dict(cls.form().read(source))

    @classmethod
    def form(cls) -> Form:
        """Return the kind of the stored file and the entries that it must have."""
        needed = tuple(f.name for f in fields(cls) if _is_needed(f))  # type: ignore[arg-type]
        return Form(cls._name, cls._writer, cls._number, needed)


def _is_needed(one: Any) -> bool:
    return one.default is MISSING and one.default_factory is MISSING


def _fields_of(value: Any) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def made(
    kind: type[Made], stored: Mapping[str, Any], special: Mapping[str, Any] = MappingProxyType({})
) -> Made:
    """The dataclass of stored fields; `special` are fields that have their values already."""
    hints, values = get_type_hints(kind, include_extras=True), dict(special)
    for one in fields(kind):  # type: ignore[arg-type]
        if one.name not in special and (one.name in stored or _is_needed(one)):
            values[one.name] = _read(stored[one.name], hints[one.name])
    return kind(**values)


def _read(value: Any, hint: Any) -> Any:
    """Reverse `plain` according to a declared type."""
    kind, inside = get_origin(hint), get_args(hint)
    if kind is Annotated and isinstance(inside[1], Columns):
        return inside[1].table(restored(value))
    if kind in (Union, UnionType):
        others = [h for h in inside if h is not type(None)]
        if value is None and len(others) < len(inside):
            return None
        return _read(value, others[0]) if len(others) == 1 else restored(value)
    kind = kind or hint
    if kind is np.ndarray:
        if not isinstance(value, list):
            raise TypeError(f"{value!r:.50} is not a list")
        return np.array(restored(value), dtype=float)
    if not isinstance(kind, type):
        return restored(value)
    return _read_class(value, hint, kind)


def _read_class(value: Any, hint: Any, kind: type) -> Any:
    if issubclass(kind, Mapping):
        return {printable(k): _read(v, get_args(hint)[1]) for k, v in value.items()}
    if issubclass(kind, tuple):
        return _read_tuple(value, hint)
    if issubclass(kind, Enum):
        return kind[value]
    if issubclass(kind, Stored):
        return kind.of_entries(value)
    return made(kind, value) if is_dataclass(kind) else restored(value)


def _read_tuple(value: Any, hint: Any) -> Any:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.50} is not a list")
    if hasattr(hint, "_fields"):  # a NamedTuple
        hints = get_type_hints(hint).values()
        return hint(*(_read(v, h) for v, h in zip(value, hints, strict=True)))
    inside = get_args(hint)
    each = inside[:1] * len(value) if inside[-1] is ... else inside
    return tuple(_read(v, h) for v, h in zip(value, each, strict=True))


def checked_types(value: Made) -> Made:
    """The dataclass, if its entries have the types it declares. Raises TypeError, naming one."""
    hints = get_type_hints(type(value))
    for one in fields(value):  # type: ignore[arg-type]
        if not _conforms(getattr(value, one.name), hints[one.name]):
            raise TypeError(f"'{one.name}' is {getattr(value, one.name)!r:.50}")
    return value


def _conforms(value: Any, hint: Any) -> bool:
    kind, inside = get_origin(hint), get_args(hint)
    if hint is Any or kind in (Union, UnionType):
        return hint is Any or any(_conforms(value, h) for h in inside)
    if kind is tuple and isinstance(value, (list, tuple)):
        hints = inside[:1] * len(value) if inside[-1] is ... else inside
        return len(value) == len(hints) and all(map(_conforms, value, hints))
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return isinstance(value, Mapping) and all(_conforms(v, inside[1]) for v in value.values())
    if hint in (int, float):
        return isinstance(value, (int, hint)) and not isinstance(value, bool)
    if is_dataclass(hint) and type(value) is hint:
        checked_types(value)
    is_class = isinstance(kind or hint, type) and not getattr(hint, "_is_protocol", False)
    return not is_class or isinstance(value, kind or hint)
