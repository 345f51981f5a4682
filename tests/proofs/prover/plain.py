"""The kernels of the proof as plain Python functions: a fault can be planted in each alone."""

import importlib
import sys
from types import ModuleType
from typing import Any

NAMES = (
    "compiled", "tape", "intervals", "sums", "mueller", "taylor", "rows", "bounds", "integration",
)  # fmt: skip


def plain() -> dict[str, ModuleType]:
    """Fresh modules of `igpe.proofs.prover`, not compiled; imported ones stay as they are."""
    package = "igpe.proofs.prover"
    kept = {n: sys.modules.pop(n) for n in list(sys.modules) if n.startswith(package)}
    numba: Any = sys.modules.get("numba")
    sys.modules["numba"] = None  # type: ignore[assignment]
    try:
        return {n: importlib.import_module(f"{package}.kernels.{n}") for n in NAMES}
    finally:
        for n in [n for n in sys.modules if n.startswith(package)]:
            del sys.modules[n]
        sys.modules.update(kept)
        del sys.modules["numba"]
        if numba is not None:
            sys.modules["numba"] = numba
        if package in kept:
            sys.modules["igpe.proofs"].prover = kept[package]  # type: ignore[attr-defined]
