"""Files: written completely or not at all, replaced only if igpe wrote them, read up to a size."""

import json
import os
import re
import secrets
import shutil
import stat
from pathlib import Path
from typing import Any

from igpe.core.errors import DataError

MOST = 100 * 2**20  # bytes of a file that is read
LOOKED_AT = 4096  # bytes at both ends, in which the mark of a file of igpe's stands
WORKBOOK = b"workbook by igpe"  # comment of the archive that an Excel file is
MARK = re.compile(
    rb'\A\{\s*("(?:command|stored|format)": "[^"]*")'
    rb'|\A<!DOCTYPE html>.{0,300}(<meta name="generator" content="igpe">)'
    rb"|\A\x89PNG.{0,300}(Software\0igpe)|\A<\?xml.*(<dc:title>igpe<)|\A%PDF.*(/Creator \(igpe\))"
    rb"|\A(parameterId\t)[^\n]*\tstandardErrorOnScale"
    rb"|\APK\x03\x04.*(" + WORKBOOK + rb")\Z",
    re.DOTALL,
)
"""JSON of a command or a class, pages, pictures, tables of parameters and workbooks of igpe."""
RESULT = b'"stored": "result"'
RESULT_OF_0_1 = re.compile(rb'\A\{\s*"estimates": \[\s*\{\s*"name": "')


def write(path: str | Path, content: str | bytes, *, force: bool = False) -> None:
    """Write a file completely: to a temporary name first, which is then renamed.

    A file that is there is replaced if igpe wrote it and it is of the same kind.

    force   replace any file
    raises  DataError for a file that is not igpe's, and for a link that leads nowhere; OSError
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    place = Path(path)
    if place.exists() and not place.is_file():  # a pipe, a terminal
        place.write_bytes(data)
        return
    if not place.parent.is_dir():
        raise DataError(f"The folder of '{path}' does not exist. Create it, or give another path.")
    require_writable(place, force=force, kind=_mark(data))
    if place.is_symlink():
        place = place.resolve()
    temporary = place.with_name(f".{place.name[:100]}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if place.exists():
            shutil.copymode(place, temporary)
        os.replace(temporary, place)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def require_writable(path: Path, *, force: bool = False, kind: bytes | None = None) -> None:
    """Raise DataError unless a file can be written here without losing another file.

    kind  mark of what is going to be written; None if that is not known yet
    """
    if path.is_symlink() and not path.exists():
        raise DataError(f"'{path}' is a link whose target does not exist; give another name.")
    if force or not path.is_file():
        return
    with path.open("rb") as file:
        start = file.read(LOOKED_AT)
        file.seek(-min(LOOKED_AT, path.stat().st_size), os.SEEK_END)
        existing = _mark(start + file.read())
    if not existing or kind not in (None, existing):
        raise DataError(
            f"The file '{path}' already exists. igpe replaces only files that it wrote itself, and "
            "only with a file of the same kind. Give another name, or remove the file first."
        )


def _mark(data: bytes) -> bytes:
    """Kind of a file that igpe wrote, from its first and last bytes; empty for other files."""
    if RESULT_OF_0_1.match(data):
        return RESULT
    match = MARK.match(data[:LOOKED_AT] + data[-LOOKED_AT:])
    return b"" if match is None else next(mark for mark in match.groups() if mark)


def read(path: str | Path, most: int = MOST) -> bytes:
    """The content of a file. Raises DataError if it is larger than `most` bytes; OSError."""
    with Path(path).open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise DataError(
            f"'{path}' is larger than {most / 2**20:.3g} MiB, the limit for such a file. Remove "
            "the parts that are not needed."
        )
    return content


def read_json(source: str | Path | bytes) -> Any:
    """Content of a JSON file, or of a JSON text in bytes.

    raises ValueError if it is none, or nested too deeply; DataError, OSError as `read`
    """
    content = source if isinstance(source, bytes) else read(source)
    try:
        return json.loads(content)
    except (RecursionError, MemoryError) as error:
        raise ValueError("it is too large or too deeply nested") from error


def is_own(folder: Path) -> bool:
    """Return True if a folder is not a link and only the user or the system can write in it."""
    if not hasattr(os, "getuid"):  # Windows: a user's folders are the user's
        return True
    status = folder.lstat()
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid in (os.getuid(), 0)
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )
