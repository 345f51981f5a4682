"""Wrong behaviours that a bad change of the code could cause, by what they are about.

Each is a function that replaces public things of igpe; its docstring says what is then wrong.
"""

from importlib import import_module

MODULES = (
    "answers",
    "commands",
    "dynamics",
    "formats",
    "inputs",
    "planning",
    "proofs",
    "searches",
    "uncertainty",
)


def load() -> None:
    """Import all modules, so that their faults are registered."""
    for name in MODULES:
        import_module(f"{__name__}.{name}")
