"""Sets of values that structure predicts to explain the data as well as the estimate.

`igpe.check` counts the sets that give the same outputs, and knows functions that are the same for
all of them: k1 + k2 and k1 k2, say. The other solutions of these equations inside the bounds are
where the search for other optima begins.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
from scipy.optimize import least_squares

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.numerics.optima import first_of_each, has_same_values
from igpe.structure.identifiability.solutions import Alternatives

TRIALS, MOST = 40, 8  # points that equations are solved from; solutions of one group of unknowns
SOLVED = 1e-9  # relative to the functions' values at the estimate
FORMULA = re.compile(r"(?:q\[\d+\]|[0-9+\-*/(). ])+")


def predicted(
    alternatives: Sequence[Alternatives], box: Box, x: FloatArray, *, seed: int
) -> list[tuple[FloatArray, list[int]]]:
    """Points (n,) with other solutions than those at x (n,), and the places of what has moved."""
    points, here = [], box.mapping(x)
    for one in alternatives:
        names = [n for n in one.unknowns if any(n in text for text in one.functions)]
        own, function = box.select(names), _function(names, one.functions)
        if function is None or not own.bounded:
            continue
        held = [box.names.index(n) for n in names]
        for values in _solutions(function, own, own.vector(here), seed):
            points.append((box.vector({**here, **own.mapping(values)}), held))
    return points


def _function(
    names: Sequence[str], functions: Sequence[str]
) -> Callable[[FloatArray], FloatArray] | None:
    """Values of the unknowns -> of the functions; None where they are no plain formulas."""
    if not names:
        return None
    longest_first = sorted(names, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    codes = []
    for text in functions:
        formula = pattern.sub(lambda found: f"q[{names.index(found[0])}]", text)
        formula = formula.replace("^", "**")
        if not FORMULA.fullmatch(formula):
            return None
        codes.append(compile(formula, "function", "eval"))
    return lambda q: np.array([eval(code, {"__builtins__": {}}, {"q": q}) for code in codes])


def _solutions(
    function: Callable[[FloatArray], FloatArray], box: Box, here: FloatArray, seed: int
) -> Iterator[FloatArray]:
    """Distinct solutions in the box of function(q) = function(here), without `here`."""
    wanted = function(here)
    size = np.where(wanted != 0, np.abs(wanted), 1.0)
    if not np.isfinite(wanted).all():
        return

    def residual(q: FloatArray) -> FloatArray:
        return np.nan_to_num((function(q) - wanted) / size, nan=1e9, posinf=1e9, neginf=-1e9)

    ends = []
    for start in box.sobol(TRIALS, seed):
        with np.errstate(all="ignore"):
            end = least_squares(
                residual,
                start,
                bounds=(box.lower, box.upper),
                xtol=1e-14,
                ftol=1e-14,
                gtol=1e-14,
            )
        if np.max(np.abs(end.fun)) <= SOLVED:
            ends.append(end.x)
    yield from first_of_each([here, *ends], partial(has_same_values, box=box))[1 : MOST + 1]
