"""C to loaded libraries: compiled once by the system's compiler, kept by the hash of what matters.

Where there is no compiler, or it fails, the answer is a sentence. One that hangs is an error: a
clock chooses no other integrator.
"""

import atexit
import ctypes
import hashlib
import logging
import os
import platform
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from igpe.core.errors import SolverMissing
from igpe.core.files import is_own
from igpe.core.progress import say

LOG = logging.getLogger(__name__)
# At -O1 alone GCC does not clear the upper halves of wide registers before it calls exp or pow,
# which then takes up to ten times as long.
FLAGS = ("-O1", "-fexpensive-optimizations", "-std=c11", "-fPIC", "-shared", "-fno-math-errno")
WIDE = "avx2"  # vectors of four numbers; with C11 no sums are fused, so that bits are the same
COMPILERS = ("cc", "gcc", "clang")
SUFFIX = ".dll" if sys.platform == "win32" else ".so"
UNUSED = 90 * 86_400.0  # s after which a library that nobody used is removed from the cache
MOST_KEPT = 500  # libraries
LONG = 10.0  # s after which progress says what a call waits for
HUNG = 1_800.0  # s after which a compiler hangs: the longest text it is given takes half a minute


WAITS = (
    "The C compiler is still compiling the equations; igpe compiles each model only once. Set the "
    "environment variable CC=false to integrate without a compiler, which is slower."
)


class Built(NamedTuple):
    """A loaded library, or a sentence on why there is none."""

    library: ctypes.CDLL | None
    why: str = ""


def compiler() -> tuple[str, ...]:
    """The command that compiles C: $CC, or the first found of `COMPILERS`; () if there is none."""
    wished: list[str] = []
    with suppress(ValueError):  # an open quotation
        wished = shlex.split(os.environ.get("CC", ""))
    for words in (wished, *([name] for name in COMPILERS)):
        if words and (path := shutil.which(words[0])):
            return (path, *words[1:])
    return ()


_known: dict[Path, Path] = {}
"""Where libraries of this process were, as to list a full cache takes longer than to load one."""


def built(source: str, wanted: str = "") -> Built:
    """The library of a C source, with the function `wanted`; compiled only if not in the cache."""
    command = compiler()
    if not command:
        tried = ", ".join(COMPILERS)
        return Built(None, f"No C compiler was found (looked for $CC, {tried}); install one.")
    flags = _flags()
    parts = (source, *command, *flags, platform.machine(), sys.platform)
    folder, key = _cache_folder(), hashlib.sha256("\0".join(parts).encode()).hexdigest()
    known = _known.get(folder / key)
    kept = [known] if known and known.exists() else sorted(folder.glob(f"{key}-*{SUFFIX}"))
    for path in kept:
        try:
            library = _verified(path, wanted)
            _known[folder / key] = path
            return Built(library)
        except OSError as error:  # what was interrupted or made elsewhere is made anew
            LOG.info("compiling anew: %s", error)
            path.unlink(missing_ok=True)
    try:
        return Built(_verified(_compile(source, (*command, *flags), folder / key), wanted))
    except _Failed as failed:
        why = f"The C compiler {command[0]} failed: {failed}."
    except OSError as error:
        why = f"The compiled equations could not be loaded: {error}."
    LOG.info(why)
    return Built(None, why)


class _Failed(Exception):
    """The compiler made nothing; why."""


@cache
def _flags() -> tuple[str, ...]:
    """What the compiler is told; part of the key, as machines that share a cache may differ."""
    try:
        known = Path("/proc/cpuinfo").read_text()
    except OSError:  # not Linux
        return FLAGS
    wide = any(WIDE in line.split() for line in known.splitlines() if line.startswith("flags"))
    return (*FLAGS, f"-m{WIDE}") if wide else FLAGS


def _compile(source: str, command: tuple[str, ...], target: Path) -> Path:
    """A library named after the target and its own hash. Raises _Failed.

    Made beside its place and renamed, so that processes at the same time do not collide.
    """
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        text, library = Path(folder) / "equations.c", Path(folder) / ("equations" + SUFFIX)
        text.write_text(source)
        words = [*command, str(text), "-o", str(library), "-lm"]
        LOG.debug("compiling: %s", shlex.join(words))
        try:
            ran = _ran(words)
        except subprocess.TimeoutExpired:
            raise SolverMissing(
                f"The C compiler hangs: `{shlex.join(command)}` did not compile the equations "
                f"within {HUNG / 60:g} minutes. Set the environment variable CC to another "
                "compiler, or set CC=false to integrate without one, which is slower."
            ) from None
        except OSError as error:
            raise _Failed(error) from error
        if ran.returncode or not library.is_file():
            said = ran.stderr.decode(errors="replace").strip().splitlines()
            raise _Failed(said[0] if said else ran.returncode)
        with library.open("r+b") as file:
            os.fsync(file.fileno())  # on the disk, not only on its way there
            content = hashlib.file_digest(file, "sha256").hexdigest()
        made = target.with_name(f"{target.name}-{content}{SUFFIX}")
        os.replace(library, made)
    _prune(target.parent, keep=made)
    return made


def _ran(words: list[str]) -> "subprocess.CompletedProcess[bytes]":
    """A command that ended; one that hangs, or is left, ends with all that it started.

    raises TimeoutExpired after `HUNG`
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            said = _output(process)
        except BaseException:
            if hasattr(os, "killpg"):  # not on Windows
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()
            raise
    return subprocess.CompletedProcess(words, process.returncode, *said)


def _output(process: "subprocess.Popen[bytes]") -> tuple[bytes, bytes]:
    """Output and errors of a compiler; users hear of one that takes long.

    raises TimeoutExpired after `HUNG`
    """
    began = time.perf_counter()
    with suppress(subprocess.TimeoutExpired):
        return process.communicate(timeout=min(LONG, HUNG))
    say(WAITS)
    said = process.communicate(timeout=HUNG)
    say(f"The C compiler took {time.perf_counter() - began:.0f} s.")
    return said


def _verified(library: Path, wanted: str) -> ctypes.CDLL:
    """The library if its content is what its name says: to load a damaged one ends Python.

    raises OSError if it is damaged, cannot be loaded or has no function `wanted`
    """
    with library.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    if content != library.stem.partition("-")[2]:
        raise OSError(f"{library} is damaged")
    loaded = _loaded(library)
    if wanted and not hasattr(loaded, wanted):
        raise OSError(f"{library} has no function {wanted}")
    with suppress(OSError):
        os.utime(library)  # it was used
    return loaded


def _prune(folder: Path, keep: Path) -> None:
    """Remove libraries that nobody used for long, and the oldest if they are many."""
    used = []
    for library in {*folder.glob(f"{'[0-9a-f]' * 64}*{SUFFIX}")} - {keep}:
        with suppress(OSError):
            used.append((library.stat().st_mtime, library))
    for k, (last, library) in enumerate(sorted(used, reverse=True), start=2):
        if k > MOST_KEPT or last < time.time() - UNUSED:
            with suppress(OSError):
                library.unlink()


def _cache_folder() -> Path:
    """The user's cache; a folder of this process alone where others write, or nobody can."""
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        wished = Path(home) if home else Path()  # a relative one must be ignored, says its standard
        folder = (wished if wished.is_absolute() else Path.home() / ".cache") / "igpe"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder if is_own(folder) else _own_folder()
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
