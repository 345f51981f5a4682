"""Kernels of proofs as plain Python functions: a fault can be planted in each alone."""

import importlib
import sys
from types import ModuleType
from typing import Any

PROVER = ("tape", "intervals", "mueller", "taylor", "rows", "integration")

CHECKER = ("intervals", "polynomials", "step", "integration")


def plain(room: str = "prover", names: tuple[str, ...] = PROVER) -> dict[str, ModuleType]:
    """Fresh modules of `igpe.proofs`, not compiled; imported ones stay as they are."""
    package = f"igpe.proofs.{room}.kernels"
    fresh = (package, "igpe.proofs.compiled")
    kept = {n: sys.modules.pop(n) for n in list(sys.modules) if n.startswith(fresh)}
    numba: Any = sys.modules.get("numba")
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        return {n: importlib.import_module(f"{package}.{n}") for n in names}
    finally:
        for n in [n for n in sys.modules if n.startswith(fresh)]:
            del sys.modules[n]
        sys.modules.update(kept)
        del sys.modules["numba"]
        if numba is not None:
            sys.modules["numba"] = numba
        for n, module in kept.items():  # importing set them as attributes of their packages
            parent, _, name = n.rpartition(".")
            setattr(sys.modules[parent], name, module)
