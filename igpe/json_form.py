"""Plain values for JSON and back; JSON knows neither NaN nor infinity.

NaN becomes None, and an infinity {"number": "Infinity"}, so that no text is taken for a number.
"""

import json
import math
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from igpe.errors import DataError

NAMES = {math.inf: "Infinity", -math.inf: "-Infinity"}
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
    if isinstance(value, dict):
        is_number = list(value) == ["number"] and isinstance(value["number"], str)
        if is_number and value["number"] in NUMBERS:
            return NUMBERS[value["number"]]
        return {k: restored(v) for k, v in value.items()}
    return value


def write_json(value: Any, path: str | Path | None) -> str:
    """Plain values as JSON text; also written to `path` if given."""
    written = json.dumps(value, indent=2, allow_nan=False)
    if path is not None:
        Path(path).write_text(written, encoding="utf-8")
    return written


def read_json(source: str | Path) -> Any:
    """What a JSON text holds, or the file of that path.

    raises DataError if there is no such file, or it is not JSON
    """
    if not isinstance(source, (str, Path)):
        raise DataError(
            f"The result is a {type(source).__name__}; wanted the text that Result.to_json wrote, "
            "or the path of its file."
        )
    is_file = isinstance(source, Path) or not source.lstrip().startswith("{")
    where = f"The file '{source}'" if is_file else "The text"
    try:
        return json.loads(Path(source).read_text(encoding="utf-8") if is_file else str(source))
    except OSError as error:
        raise DataError(
            f"The result's file '{str(source)[:100]}' could not be read ({error.strerror}; looked "
            f"from {Path.cwd()}); give the path that Result.to_json wrote to."
        ) from None
    except ValueError as error:
        raise DataError(f"{where} is not JSON ({error}); give what Result.to_json wrote.") from None


def _plain_number(value: float) -> Any:
    if math.isnan(value):
        return None
    return {"number": NAMES[value]} if math.isinf(value) else value
