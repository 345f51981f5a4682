"""Where solver programs lie. Imports nothing heavy: `igpe --version` needs it."""

import os
import shutil
import sys
from pathlib import Path


def idaes_folder() -> Path:
    """The folder that `idaes get-extensions` writes programs to (`idaes bin-directory` shows it).

    IDAES, idaes/config.py, get_data_directory.
    """
    if "IDAES_DATA" in os.environ:
        return Path(os.environ["IDAES_DATA"]) / "bin"
    if os.name == "nt":
        return Path(os.environ.get("LOCALAPPDATA", "~")).expanduser() / "idaes" / "bin"
    return Path(os.environ.get("HOME", "/")) / ".idaes" / "bin"


def locate(program: str) -> str | None:
    """Absolute path of a program, or None.

    Searches PATH, the folder of the running Python (where pip puts programs), and the IDAES folder.
    """
    for folder in (None, os.path.dirname(sys.executable), str(idaes_folder())):
        if path := shutil.which(program, path=folder):
            return os.path.abspath(path)
    return None


def environment(path: str) -> dict[str, str]:
    """Environment variables for a program; those of IDAES find their libraries beside them."""
    variables, folder = dict(os.environ), Path(path).parent
    if folder == idaes_folder() and os.name != "nt":
        for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
            known = [v for v in [variables.get(name)] if v]
            libraries = [str(folder), str(folder.parent / "lib"), *known]
            variables[name] = os.pathsep.join(libraries)
    return variables
