"""Residuals of measurements whose standard deviations are estimated with the other unknowns."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.numerics.least_squares.base import Linearised, stacked

FAR = 5.0  # standard deviations from a measurement


class Piece(NamedTuple):
    """Residuals of one run, divided by what is known of the deviations.

    spread, slope, estimated  see `likelihood_residuals`; None where all deviations are known
    """

    plain: Linearised
    spread: FloatArray | None = None
    slope: FloatArray | None = None
    estimated: BoolArray | None = None


def joined(pieces: Sequence[Piece]) -> Linearised:
    """The residuals of several runs, and those by which estimated deviations count."""
    plain = stacked([piece.plain for piece in pieces])
    if all(piece.estimated is None for piece in pieces):
        return plain
    spread, slope, estimated = [], [], []
    for linearised, s, by, which in pieces:
        jacobian = linearised.jacobian
        spread.append(np.ones(len(jacobian)) if s is None else s)
        slope.append(np.zeros(jacobian.shape) if by is None else by)
        estimated.append(np.zeros(len(jacobian), dtype=bool) if which is None else which)
    every = np.concatenate(spread), np.vstack(slope), np.concatenate(estimated)
    return likelihood_residuals(plain, *every)


def likelihood_residuals(
    plain: Linearised, spread: FloatArray, slope: FloatArray, estimated: BoolArray
) -> Linearised:
    """(m + k,) residuals with (m + k, n) derivative, k measurements having an estimated deviation.

    plain      residuals and derivative, divided by what is known of the deviations
    spread     (m,) s;  slope (m, n) its derivative;  both count only where `estimated`
    NaN where some s is not positive
    """
    s, by_unknown = spread[estimated], slope[estimated]
    with np.errstate(all="ignore"):  # what is no number afterwards is refused (`have_squares`)
        factor = np.ones(len(spread))
        factor[estimated] = np.where(s > 0, 1 / s, np.nan)
        z = plain.residual * factor
        logarithms = 2 * float(np.log(s).sum())
        root = np.sqrt(2.0) * np.maximum(np.abs(z[estimated]) / FAR, 1.0)
        own = (1 - z[estimated] ** 2) / root
        relative = by_unknown * factor[estimated][:, None]
        jacobian = np.vstack([plain.jacobian * factor[:, None], root[:, None] * relative])
        offset = plain.offset + logarithms - float(own @ own)
    return Linearised(np.concatenate([z, own]), jacobian, offset)
