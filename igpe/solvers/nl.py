"""Writing a Pyomo model as an AMPL `.nl` file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyomo.common.errors import InfeasibleConstraintException
from pyomo.repn.plugins.nl_writer import NLWriter


@dataclass(frozen=True)
class Written:
    """What stands in the file.

    variables  the free Pyomo variables, in the file's order
    refusal    why the model cannot be solved: a constraint without free variables is violated;
               empty if there is none
    """

    variables: tuple[Any, ...]
    refusal: str = ""


def write_nl(model: Any, path: Path) -> Written:
    """Write the active part of the model; fixed variables become numbers.

    Neither presolve nor scaling is asked for, so that columns and variables correspond.
    """
    with path.open("w", newline="\n") as stream:
        try:
            info = NLWriter().write(
                model,
                stream,
                linear_presolve=False,
                scale_model=False,
                symbolic_solver_labels=False,
            )
        except InfeasibleConstraintException as error:
            return Written((), str(error))
    return Written(tuple(info.variables))


def load(variables: tuple[Any, ...], values: Any) -> None:
    """Give the variables their values; what the solver leaves outside a bound is moved onto it."""
    for variable, value in zip(variables, values, strict=True):
        number = float(value)
        if variable.lb is not None:
            number = max(number, variable.lb)
        if variable.ub is not None:
            number = min(number, variable.ub)
        variable.set_value(number, skip_validation=True)
