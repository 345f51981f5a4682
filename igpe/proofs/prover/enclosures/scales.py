"""Parameters of a box as polynomials of delta in [-1, 1].

Most are linear in delta. Those in denominators are exponential where their range is positive: as
functions of the logarithm, quotients like u / (k u + w) are sigmoid, and their series converge for
ratios of the bounds up to exp(2 pi); as functions of k only up to where the denominator vanishes.
"""

import math

import numpy as np

from igpe.core.arrays import BoolArray, FloatArray
from igpe.proofs.prover.writer import DIV, PARAMETER, Tape, arguments

LEAST_RATIO, MOST_RATIO = 1.1, 500.0  # of positive bounds between which a scale is exponential


def scaled(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """(n_p, 2) middle and radius; the radius is rounded up so that the box is covered."""
    middle = lower + 0.5 * (upper - lower)
    radius = np.maximum(upper - middle, middle - lower) * (1 + 4e-16)
    return np.stack([middle, radius], axis=1)


def bent(lower: FloatArray, upper: FloatArray, divides: BoolArray) -> BoolArray:
    """Which parameters are exp(log middle + radius delta), those that `divides` are allowed to."""
    ratio = upper / np.where(lower > 0, lower, np.inf)
    return np.asarray(divides & (ratio > LEAST_RATIO) & (ratio < MOST_RATIO))


def logarithmic(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """(n_p, 2) geometric middle m and radius r of positive ranges: the box is m exp(r delta)."""
    middle = np.sqrt(lower * upper)
    return np.stack([middle, 0.5 * np.log(upper / lower) + 1e-13], axis=1)


def polynomials(
    lower: FloatArray, upper: FloatArray, divides: BoolArray, degree: int
) -> FloatArray:
    """(n_p, 5) coefficients of 1, delta, delta^2, delta^3, and a bound on what they lack."""
    found = np.zeros((len(lower), 5))
    found[:, :2] = scaled(lower, upper)
    for j in np.flatnonzero(bent(lower, upper, divides)):
        middle, radius = logarithmic(lower[[j]], upper[[j]])[0]
        found[j, :4] = [middle * radius**k / math.factorial(k) for k in range(4)]
        found[j, degree + 1 : 4] = 0.0
        lacking = middle * radius ** (degree + 1) / math.factorial(degree + 1) * math.exp(radius)
        found[j, 4] = lacking * (1 + 1e-12) + 1e-15 * upper[j]
    return found


def unscaled(
    lower: FloatArray, upper: FloatArray, divides: BoolArray, delta: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The part of a box that scaled parameters leave, rounded outward but never beyond the box."""
    middle, radius = scaled(lower, upper).T
    room = 4e-16 * (np.abs(middle) + radius)
    inside = np.clip(delta, -1.0, 1.0)
    low, high = middle + radius * inside[:, 0] - room, middle + radius * inside[:, 1] + room
    which = bent(lower, upper, divides)
    if which.any():
        m, r = logarithmic(lower[which], upper[which]).T
        low[which] = m * np.exp(r * inside[which, 0]) * (1 - 1e-14)
        high[which] = m * np.exp(r * inside[which, 1]) * (1 + 1e-14)
    low = np.where(delta[:, 0] > -1, np.maximum(low, lower), lower)
    high = np.where(delta[:, 1] < 1, np.minimum(high, upper), upper)
    crossed = delta[:, 0] > delta[:, 1]
    return np.where(crossed, 1.0, low), np.where(crossed, 0.0, high)


def dividing(tape: Tape, parameters: int) -> BoolArray:
    """Which parameters occur in a denominator (n_p,)."""
    found = np.zeros(parameters, dtype=bool)
    below = np.zeros(len(tape.op), dtype=bool)
    for k in range(len(tape.op) - 1, -1, -1):
        if tape.op[k] == DIV:
            below[tape.b[k]] = True
        if not below[k]:
            continue
        if tape.op[k] == PARAMETER:
            found[tape.a[k]] = True
        for j in arguments(tape, k):
            below[j] = True
    return found
