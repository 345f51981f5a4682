"""PEtab and kinetics read and written wrongly."""

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from house.planting import answering, around, fault, method, overwritten


@fault("test_published petab")
def log10_taken_for_ln() -> None:
    """The objective of a PEtab problem takes decadic logarithms for natural ones."""

    def wrong(right: Any, problem: Any, *arguments: Any, **named: Any) -> float:
        value: float = right(problem, *arguments, **named)
        decadic = [n for n, kind in problem.model.transformations.items() if kind == "log10"]
        counts = (
            len(e.measurements.of(n)[1])
            for e in problem.experiments
            for n in decadic
            if n in e.measured
        )
        return value - sum(counts) * np.log(np.log(10))

    around("petab_objective", wrong)


@fault("test_read test_version2")
def petab_priors_ignored() -> None:
    """Priors of a PEtab problem are not read."""
    change = answering(lambda problem: overwritten(problem, priors=MappingProxyType({})))
    around("read_petab", change)


@fault("test_version2 test_read")
def petab_searched_on_linear_scales() -> None:
    """Parameters of a PEtab problem on logarithmic scales are searched on linear ones."""

    def change(problem: Any) -> Any:
        return overwritten(problem, unknowns=replace(problem.unknowns, logarithmic=frozenset()))

    around("read_petab", answering(change))


@fault("test_out")
def petab_with_six_digits() -> None:
    """Estimates are written to a PEtab table with six digits."""

    def wrong(right: Any, found: Any, *arguments: Any, **named: Any) -> Any:
        values = getattr(found, "parameters", found)
        return right({n: float(f"{v:.6g}") for n, v in values.items()}, *arguments, **named)

    around("write_petab_parameters", wrong)


@fault("test_reactors kinetics")
def coefficients_are_no_orders() -> None:
    """Mass action is of first order in each species, whatever its coefficient."""

    def wrong(right: Any, law: Any, *known: Any, equation: Any = None) -> Any:
        equation = known[3] if equation is None else equation
        once = {species: type(count)(1) for species, count in equation.left.items()}
        return right(law, *known[:3], replace(equation, left=once))

    method("MassAction", "rate", wrong)
