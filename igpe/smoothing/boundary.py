"""Boundary correction: unpenalised functions that carry what a natural spline lacks at its ends.

A smoothing spline is natural: f'' = f''' = 0 at both ends, which biases it there, and its slope
more. Functions Q with the missing behaviour enter the fit unpenalised (Eubank & Speckman 1991;
Huang 2001),

    minimise  sum w (y - f - Q a)^2 + lambda integral f''^2,

which gives, with the ordinary smoother S,  a = (Q'W(I - S)Q)^-1 Q'W(I - S) y  and the fit
S y + (I - S) Q a. In coefficients, Q = B C and A = B'WB + lambda Omega:

    Z = A^-1 lambda Omega C               so that (I - S) Q = B Z
    E = Q'W(I - S)Q = Z'NZ + lambda (Z - C)' Omega (Z - C),    N = B'WB
    c = A^-1 g + Z E^-1 C'(g - N A^-1 g),                      g = B'W y
    Cov(c) / sigma^2 = A^-1 + Z E^-1 Z',   trace = tr(A^-1 N) + tr(E^-1 Z'NZ)

Q is one cubic at each end that dies out inside, (tau - u)^3 for u < tau, so that f'' is free to
start anywhere. Its width tau follows the smoother's own reach, the fourth root of lambda / sum w;
as the penalty grows both become global, and the curve tends to a cubic instead of a line. In
measurements as in `benchmarks/smoothing.py` this beats the global x^2, x^3 (and up to x^7) and
functions of fixed width. Its price: where f'' happens to vanish at an end and f''' does not, as for
a sine, the correction takes the one for the other and the slope there is worse than without. Two
functions at each end, which free f''' too, halve that, but cost coverage of the intervals.
"""

import numpy as np

from igpe.arrays import FloatArray
from igpe.smoothing.basis import CubicBasis

FEWEST = 8  # distinct times below which two more free functions cost more than they mend
REACH = 5.0  # tau / (lambda / sum w)^(1/4); 4 ... 9 do about as well
NARROWEST = 3  # intervals between knots that a function spans at least
DEPENDENT = 1e-10  # eigenvalues of the scaled E below this share of the largest are rounding


def end_functions(basis: CubicBasis, penalty: float) -> FloatArray:
    """Coefficients C of the two functions for a penalty scaled to range 1 and weights of sum 1.

    returns  (basis.size, 2)
    """
    breaks, t, tau = basis.breaks, basis.knots, REACH * penalty**0.25
    i = int(np.clip(np.searchsorted(breaks, tau), NARROWEST, breaks.size - 1))
    j = int(np.clip(np.searchsorted(breaks, 1.0 - tau), 1, breaks.size - NARROWEST) - 1)
    columns = []
    for distance in ((breaks[i] - t) / breaks[i], (t - breaks[j]) / (1.0 - breaks[j])):
        d = np.maximum(distance, 0.0)
        # The B-spline coefficients of a truncated cubic at a knot are its blossom there.
        columns.append(d[1:-3] * d[2:-2] * d[3:-1])
    return np.stack(columns, axis=1)


def inverse_root(matrix: FloatArray) -> FloatArray:
    """R with R R' the (pseudo-)inverse of a small symmetric positive semidefinite matrix."""
    scale = 1.0 / np.sqrt(np.maximum(matrix.diagonal(), np.finfo(float).tiny))
    eigenvalues, vectors = np.linalg.eigh(scale[:, None] * matrix * scale)
    kept = eigenvalues > DEPENDENT * eigenvalues[-1]
    root: FloatArray = scale[:, None] * vectors[:, kept] / np.sqrt(eigenvalues[kept])
    return root
