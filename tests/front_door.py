"""The public names: those at the top, and those of the families that stand there."""

from types import ModuleType

import igpe

FAMILIES = {n: getattr(igpe, n) for n in igpe.__all__ if isinstance(getattr(igpe, n), ModuleType)}
PUBLIC = {f"igpe.{n}": getattr(igpe, n) for n in igpe.__all__ if n not in FAMILIES} | {
    f"igpe.{family}.{n}": getattr(module, n)
    for family, module in FAMILIES.items()
    for n in module.__all__
}
