"""Rate constants told by their value amid the measurements instead of at infinite temperature.

In k*exp(-E/(R*T)) the data determine the product near their own temperatures, and k and E lie on a
narrow ridge over many decades of k. With c the mean factor of E in the exponents and E0 a value of
E, the new parameter

    k' = k*exp(c*(E - E0))       so that     k*exp(a*E + b) = k'*exp(a*E + b - c*(E - E0))

is exact, one to one, and nearly independent of E. The bounds of k become constraints. It is used
where the equations allow it: k occurs in them only together with exponentials of E.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from igpe.core.arrays import FloatArray
from igpe.core.box import Box
from igpe.equations.operations import as_before, replayed
from igpe.equations.symbols import stack

SAME = 1e-9  # relative difference of residuals that are the same
TRIALS = 4  # points at which sameness is tried


class Centring(NamedTuple):
    """k' = k*exp(slope*(E - amid)).

    factor, energy  places of k and E among the parameters
    slope, amid     the mean factor of E in the exponents, and E0
    """

    factor: int
    energy: int
    slope: float
    amid: float

    def ratio(self, energy: float) -> float:
        """k' over k."""
        return float(np.exp(self.slope * (energy - self.amid)))


def centred(residual: Any, p: Any, box: Box, at: FloatArray) -> tuple[Any, list[Centring]]:
    """The residuals in centred parameters, and which these are.

    residual  SX column of the symbols p;  at: (n,) values that E0 is taken from
    returns   SX column of the same symbols, where each `factor` now stands for its k'
    """
    found: list[Centring] = []
    for energy, slope in _mean_slopes(residual, p).items():
        shifted = _shifted(residual, p, energy, slope, float(at[energy]))
        taken = {c.factor for c in found} | {energy}
        for factor in sorted(set(range(p.numel())) - taken):
            one = Centring(factor, energy, slope, float(at[energy]))
            if _same(residual, shifted, p, box, one):
                residual = shifted
                found.append(one)
                break
    return residual, found


def to_centred(centrings: list[Centring], values: FloatArray) -> FloatArray:
    """(n,) parameters -> with k' in the place of each k."""
    new = np.array(values, dtype=float)
    for c in centrings:
        new[c.factor] *= c.ratio(values[c.energy])
    return new


def from_centred(centrings: list[Centring], values: FloatArray) -> FloatArray:
    """(n,) with k' in the place of each k -> parameters."""
    new = np.array(values, dtype=float)
    for c in centrings:
        new[c.factor] /= c.ratio(values[c.energy])
    return new


def centred_bounds(centrings: list[Centring], box: Box) -> FloatArray:
    """(2, n) what centred parameters can be while the parameters are in their box."""
    lower, upper = np.array(box.lower, dtype=float), np.array(box.upper, dtype=float)
    for c in centrings:
        ratios = [c.ratio(box.lower[c.energy]), c.ratio(box.upper[c.energy])]
        products = np.outer([box.lower[c.factor], box.upper[c.factor]], ratios)
        lower[c.factor], upper[c.factor] = products.min(), products.max()
    return np.array([lower, upper])


def _mean_slopes(residual: Any, p: Any) -> Mapping[int, float]:
    """Parameter -> its mean factor in exponents that are linear in it and hold no other."""
    slopes: dict[int, list[float]] = {}
    for exponent in _exponents(residual, p):
        by_p = ca.jacobian(exponent, p)
        columns = by_p.sparsity().get_triplet()[1]
        if len(columns) == 1 and by_p[0, columns[0]].is_constant():
            slopes.setdefault(columns[0], []).append(float(by_p[0, columns[0]]))
    return {j: float(np.mean(a)) for j, a in slopes.items() if np.mean(a) != 0}


def _exponents(residual: Any, p: Any) -> list[Any]:
    found: list[Any] = []

    def keep(exponent: Any) -> Any:
        found.append(exponent)
        return exponent

    _rebuilt(residual, p, keep)
    return found


def _shifted(residual: Any, p: Any, energy: int, slope: float, amid: float) -> Any:
    """With -slope*(E - amid) in every exponent that holds E and nothing else."""

    def shift(exponent: Any) -> Any:
        columns = ca.jacobian(exponent, p).sparsity().get_triplet()[1]
        return exponent - slope * (p[energy] - amid) if columns == [energy] else exponent

    return _rebuilt(residual, p, shift)


def _rebuilt(residual: Any, p: Any, change: Any) -> Any:
    """The residuals, with every exponent changed."""
    function = ca.Function("residual", [p], [ca.densify(residual)])

    def apply(operation: int, operands: list[Any]) -> Any:
        if operation == ca.OP_EXP:
            return ca.exp(change(operands[0]))
        return as_before(operation, operands)

    results = replayed(function, lambda _, i: p[i], ca.SX, apply)
    return stack(results.get(i, 0.0) for i in range(residual.numel()))


def _same(old: Any, new: Any, p: Any, box: Box, centring: Centring) -> bool:
    """Whether the new residuals at centred parameters are the old ones, at a few points."""
    both = ca.Function("both", [p], [old]), ca.Function("both", [p], [new])
    for point in box.sobol(TRIALS, 0):
        a = np.asarray(both[0](point)).ravel()
        b = np.asarray(both[1](to_centred([centring], point))).ravel()
        if not np.isfinite([a, b]).all() or abs(a - b).max() > SAME * abs(a).max():
            return False
    return True
