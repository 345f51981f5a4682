"""What rounding can do to a number, and how it is covered.

IEEE double precision, to nearest: one operation returns its exact result times 1 + d, |d| <= UNIT,
or, where it underflows, at most `TINY` off. Two rules follow, and nothing else is used:

- a sum of n products, however ordered, is off by at most (n + 1) UNIT times the sum of the absolute
  products, as n UNIT / (1 - n UNIT) <= (n + 1) UNIT for all n < 1e7;
- what is computed from numbers >= 0 by at most 4000 additions, multiplications and divisions is not
  above `up` of it and not below `down` of it.
"""

import numpy as np

from igpe.core.arrays import FloatArray

UNIT = 2.0**-53
SLACK = 2.0**-40  # > 4000 UNIT
TINY = 1e-290


def up(x: FloatArray) -> FloatArray:
    """At least the exact number that x >= 0 was to be."""
    return np.asarray(x * (1 + SLACK) + TINY)


def down(x: FloatArray) -> FloatArray:
    """At most the exact number that x >= 0 was to be."""
    return np.asarray(np.maximum(x * (1 - SLACK) - TINY, 0.0))


def above(x: FloatArray) -> FloatArray:
    """The next number above; what one rounded operation was to be is not above it."""
    return np.asarray(np.nextafter(x, np.inf))


def below(x: FloatArray) -> FloatArray:
    """The next number below."""
    return np.asarray(np.nextafter(x, -np.inf))
