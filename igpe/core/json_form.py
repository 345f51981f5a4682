"""Plain values for JSON and back; JSON knows neither NaN nor infinity.

NaN becomes None, and an infinity {"number": "Infinity"}, so that no text is taken for a number.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import pandas as pd

from igpe.core.errors import DataError
from igpe.core.files import read_json, write
from igpe.core.markup import printable

NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
LARGEST = 2**63
Made = TypeVar("Made")
LONGEST = 100  # letters of another message
NUMBERS = {name: number for number, name in NAMES.items()}


def plain(value: Any) -> Any:
    """The value in types that JSON knows; an Enum's member becomes its name."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, (float, np.floating)):
        return _plain_number(float(value))
    if isinstance(value, (np.integer, np.bool_)):
        return value.item()
    return value


def restored(value: Any) -> Any:
    """Undo `plain`, but for the Enums."""
    if value is None:
        return math.nan
    if isinstance(value, list):
        return [restored(v) for v in value]
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError(f"a whole number of {len(str(value))} digits")
    if isinstance(value, dict):
        is_number = list(value) == ["number"] and isinstance(value["number"], str)
        if is_number and value["number"] in NUMBERS:
            return NUMBERS[value["number"]]
        return {printable(k): restored(v) for k, v in value.items()}
    return value


class Form(NamedTuple):
    """What is stored, and how to tell whether something is just that.

    name     in a sentence: "result"
    writer   the class whose `to_json` writes it
    number   of the format
    entries  it must have
    """

    name: str
    writer: str
    number: int | str
    entries: tuple[str, ...]

    def head(self) -> dict[str, Any]:
        """The entries that say what it is."""
        return {"stored": self.name, "format": self.number}

    def read(self, source: str | Path) -> Mapping[str, Any]:
        """What a JSON text holds, or the file of that path.

        raises DataError if there is no such file, it is not JSON, or not of this form
        """
        return self.checked(self._loaded(source))

    def checked(self, stored: Any) -> Mapping[str, Any]:
        """The same; raises DataError, saying what is missing and what to give, if it is not."""
        if not isinstance(stored, Mapping) or "format" not in stored:
            raise DataError(
                f"This is no stored {self.name}: it has no entry 'format'; {self._remedy}."
            )
        other = stored.get("stored", self.name)  # older files do not say
        if other != self.name:
            raise DataError(f"This is a stored {other}, no {self.name}; {self._remedy}.")
        if stored["format"] != self.number:
            raise DataError(
                f"The stored {self.name} has the format {stored['format']!r}; this igpe reads "
                f"{self.number!r}. Read it with the igpe that wrote it, or make it again."
            )
        missing = sorted(set(self.entries) - set(stored))
        if missing:
            raise DataError(f"The stored {self.name} lacks {missing}; {self._remedy}, all of it.")
        return stored

    @contextmanager
    def intact(self) -> Iterator[None]:
        """Raise DataError for what goes wrong when stored entries are not what they must be."""
        try:
            yield
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise DataError(
                f"The stored {self.name} is damaged ({type(error).__name__}: "
                f"{str(error)[:LONGEST]}); {self._remedy}, unchanged."
            ) from None

    @property
    def _remedy(self) -> str:
        return f"give what {self.writer}.to_json wrote"

    def _loaded(self, source: Any) -> Any:
        if not isinstance(source, (str, Path)):
            raise DataError(
                f"The {self.name} is a {type(source).__name__}; wanted the text that "
                f"{self.writer}.to_json wrote, or the path of its file."
            )
        is_file = isinstance(source, Path) or not source.lstrip().startswith("{")
        where = f"The file '{source}'" if is_file else "The text"
        try:
            return read_json(source if is_file else str(source).encode("utf-8", "surrogatepass"))
        except OSError as error:
            raise DataError(
                f"The file '{str(source)[:100]}' of the {self.name} could not be read "
                f"({error.strerror}; looked from {Path.cwd()}); give the path that "
                f"{self.writer}.to_json wrote to."
            ) from None
        except ValueError as error:
            raise DataError(f"{where} is not JSON ({error}); {self._remedy}.") from None


def write_json(value: Any, path: str | Path | None) -> str:
    """Plain values as JSON text; also written to `path` if given, as `files.write` does."""
    if isinstance(value, Mapping) and "command" not in value:
        # What it is comes first, where `files.write` looks.
        value = {k: value[k] for k in ("stored", "format") if k in value} | dict(value)
    written = json.dumps(value, indent=2, allow_nan=False)
    if path is not None:
        write(path, written)
    return written


def _plain_number(value: float) -> Any:
    if math.isnan(value):
        return None
    return {"number": NAMES[value]} if math.isinf(value) else value


def frame(stored: Mapping[str, Any], texts: Iterable[str], numbers: Iterable[str]) -> pd.DataFrame:
    """The table of stored columns. Raises pandas' errors if one is missing, or of another kind."""
    kinds = dict.fromkeys(texts, str) | dict.fromkeys(numbers, float)
    return pd.DataFrame(stored).astype(kinds)


def checked_types(made: Made) -> Made:
    """The dataclass, if its entries have the types it declares. Raises TypeError, naming one."""
    hints = get_type_hints(type(made))
    for one in fields(made):  # type: ignore[arg-type]
        if not _conforms(getattr(made, one.name), hints[one.name]):
            raise TypeError(f"'{one.name}' is {getattr(made, one.name)!r:.50}")
    return made


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
