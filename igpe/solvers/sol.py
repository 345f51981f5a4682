"""Read AMPL's `.sol` files, which a foreign program wrote: nothing in them is taken for granted."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from pyomo.common.errors import PyomoException
from pyomo.contrib.solver.solvers.asl_sol_reader import parse_asl_sol_file

from igpe.core.arrays import FloatArray

LARGEST = 1_000_000  # bytes of a `.sol` file beside its numbers,
A_NUMBER = 1000  # and bytes for each variable and constraint


class Solution(NamedTuple):
    """What a `.sol` file says.

    code     AMPL's solve code
    message  the program's own words
    point    (n,) the variables' values; None if it has none
    """

    code: int
    message: str
    point: FloatArray | None


def read_sol(path: Path, n_variables: int, n_constraints: int) -> Solution | str:
    """Return the solution, or what is wrong with the file, as the end of a sentence."""
    if not path.is_file():
        return "wrote no solution"
    if path.stat().st_size > LARGEST + A_NUMBER * (n_variables + n_constraints):
        return f"wrote a solution file of {path.stat().st_size} bytes, too large for this model"
    text = path.read_bytes().decode("utf-8", "replace")
    if not text.endswith("\n"):  # `objno 0 421`, cut after the 4, would say "solved"
        return "wrote an incomplete solution file"
    try:
        with path.open(encoding="utf-8", errors="replace") as stream:
            found = parse_asl_sol_file(stream)
    except (PyomoException, ArithmeticError, AssertionError, LookupError, ValueError) as error:
        reason = str(error) or type(error).__name__
        return f"wrote a solution file that igpe cannot read ({reason[:200]})"
    point = np.array(found.primals or (), dtype=float)
    wrong = _wrong(point, n_variables)
    return wrong or Solution(int(found.solve_code), found.message, point if len(point) else None)


def _wrong(point: FloatArray, n_variables: int) -> str:
    if len(point) not in (0, n_variables):
        return f"returned {len(point)} values for {n_variables} variables"
    return "" if np.isfinite(point).all() else "returned values that are not finite"
