"""A program without the variables that its own equations define.

A variable without finite bounds that an equation gives explicitly (it stands there with a constant
factor) is not searched over but substituted: nothing is lost, as nothing bounds it, and a global
solver has fewer variables to branch on. A single finite bound it has becomes a constraint.
"""

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.solvers.nl import Scaled


@dataclass(frozen=True)
class Reduced:
    """The program in the n columns that are left, of n_all.

    kept          (n,) their places among all columns
    x, f, g       SX: columns (n,), objective, constraints (m,)
    start         (n,) where the columns stand, scaled
    lower, upper  (n,) their bounds, scaled; infinite where an unbounded one is not defined
    bounds        (2, m) of the constraints
    whole         CasADi function (n,) -> (n_all,)
    """

    kept: tuple[int, ...]
    x: Any
    f: Any
    g: Any
    start: FloatArray
    lower: FloatArray
    upper: FloatArray
    bounds: FloatArray
    whole: Any

    @property
    def unbounded(self) -> tuple[int, ...]:
        """Places among all columns of variables that lack a finite bound."""
        loose = ~(np.isfinite(self.lower) & np.isfinite(self.upper))
        return tuple(k for k, is_loose in zip(self.kept, loose, strict=True) if is_loose)


def reduce(scaled: Scaled, start: FloatArray, lower: FloatArray, upper: FloatArray) -> Reduced:
    """Substitute what equations define.

    start, lower, upper  (n_all,) where the columns stand and their bounds, before scaling
    """
    x, g = scaled.program["x"], scaled.program["g"]
    start, lower, upper = (c / scaled.variables for c in (start, lower, upper))
    loose = ~(np.isfinite(lower) & np.isfinite(upper))
    chosen = _defined(x, g, scaled.bounds, loose)
    columns = [j for j, _, _ in chosen]
    symbols = [x[j] for j in columns]
    values = [_solved(g[i] - scaled.bounds[0, i], x[j], factor) for j, i, factor in chosen]
    values, (f, g) = _substituted(symbols, values, [scaled.program["f"], g])
    rows = sorted(set(range(g.numel())) - {i for _, i, _ in chosen})
    half = [k for k, j in enumerate(columns) if np.isfinite([lower[j], upper[j]]).any()]
    sides = [np.array([[lower[columns[k]]], [upper[columns[k]]]]) for k in half]
    kept = tuple(sorted(set(range(x.numel())) - set(columns)))
    left = x[list(kept)]
    whole = ca.SX(x)
    for j, value in zip(columns, values, strict=True):
        whole[j] = value
    return Reduced(
        kept,
        left,
        f,
        ca.vertcat(*(g[i] for i in rows), *(values[k] for k in half)),
        start[list(kept)],
        lower[list(kept)],
        upper[list(kept)],
        np.hstack([scaled.bounds[:, rows], *sides]),
        ca.Function("whole", [left], [whole]),
    )


def _defined(x: Any, g: Any, bounds: FloatArray, loose: Any) -> list[tuple[int, int, float]]:
    """(column, row, factor) of definitions, so ordered that each needs only earlier ones."""
    jacobian = ca.jacobian(g, x)
    entries: dict[int, dict[int, Any]] = {}
    for i, j in zip(*jacobian.sparsity().get_triplet(), strict=True):
        if bounds[0, i] == bounds[1, i] and loose[j]:
            entries.setdefault(i, {})[j] = jacobian[i, j]
    chosen: dict[int, tuple[int, float]] = {}
    needs: dict[int, set[int]] = {}
    for i, row in entries.items():
        for j, entry in row.items():
            needed = set(row) - {j}
            needed |= {far for k in needed for far in needs.get(k, ())}
            factor = float(entry) if entry.is_constant() else 0.0
            if j in chosen or j in needed or factor == 0.0:
                continue
            chosen[j], needs[j] = (i, factor), needed
            for known in needs.values():
                known.update(needed if j in known else ())
            break
    order = sorted(chosen, key=lambda j: len(needs[j] & chosen.keys()))
    return [(j, *chosen[j]) for j in order]


def _solved(residual: Any, symbol: Any, factor: float) -> Any:
    """The symbol, from residual = 0, in which it stands with a constant factor."""
    return -ca.substitute(residual, symbol, 0) / factor


def _substituted(symbols: list[Any], values: list[Any], others: list[Any]) -> tuple[Any, Any]:
    if not symbols:
        return values, others
    return ca.substitute_inplace(symbols, values, others, False)
