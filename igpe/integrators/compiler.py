"""C to loaded libraries: compiled once by the system's compiler, kept by the hash of what matters.

Where there is no compiler, or it fails, the answer is a sentence.
"""

import atexit
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

LOG = logging.getLogger(__name__)
FLAGS = ("-O2", "-std=c11", "-fPIC", "-shared", "-fno-math-errno")
COMPILERS = ("cc", "gcc", "clang")
SUFFIX = ".dll" if sys.platform == "win32" else ".so"
PATIENCE = 120.0  # s that a compiler may take


class Built(NamedTuple):
    """A loaded library, or a sentence on why there is none."""

    library: ctypes.CDLL | None
    why: str = ""


def compiler() -> tuple[str, ...]:
    """The command that compiles C: $CC, or the first found of `COMPILERS`; () if there is none."""
    try:
        wished = shlex.split(os.environ.get("CC", ""))
    except ValueError:  # an open quotation
        wished = []
    for words in (wished, *([name] for name in COMPILERS)):
        found = shutil.which(words[0]) if words else None
        if found:
            return (found, *words[1:])
    return ()


def built(source: str) -> Built:
    """The library of a C source; compiled only if it is not in the cache."""
    command = compiler()
    if not command:
        tried = ", ".join(COMPILERS)
        return Built(None, f"No C compiler was found (looked for $CC, {tried}); install one.")
    target = _cache_folder() / (_key(source, command) + SUFFIX)
    if target.is_file():
        try:
            return Built(_loaded(target))
        except OSError as error:  # what was interrupted or made elsewhere is made anew
            LOG.info("compiling anew: %s", error)
    why = _compile(source, command, target)
    if why:
        LOG.info(why)
        return Built(None, why)
    try:
        return Built(_loaded(target))
    except OSError as error:
        return Built(None, f"The compiled equations could not be loaded: {error}.")


def _key(source: str, command: tuple[str, ...]) -> str:
    parts = (source, *command, *FLAGS, platform.machine(), sys.platform)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _compile(source: str, command: tuple[str, ...], target: Path) -> str:
    """Compile beside the target and rename, so that processes at the same time do not collide."""
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        text, library = Path(folder) / "equations.c", Path(folder) / target.name
        text.write_text(source)
        words = [*command, *FLAGS, str(text), "-o", str(library), "-lm"]
        LOG.debug("compiling: %s", shlex.join(words))
        try:
            ran = subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"The C compiler {command[0]} failed: {error}."
        if ran.returncode or not library.is_file():
            said = ran.stderr.decode(errors="replace").strip().splitlines()
            return f"The C compiler {command[0]} failed: {said[0] if said else ran.returncode}."
        os.replace(library, target)
    return ""


def _cache_folder() -> Path:
    """The user's cache; a folder of this process alone where that cannot be written."""
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (Path(home) if home else Path.home() / ".cache") / "igpe"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except (OSError, RuntimeError):
        return _own_folder()


@cache
def _own_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="igpe-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def _loaded(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path))
