"""Runge-Kutta pairs as numbers, each written once: for the C code, for NumPy and for the tests.

One step of length h from x, with stages i = 1..s and slopes k_i = f(t + c_i h, x_i):

    x_i = x + h sum_j a_ij k_j        x_new = x + h sum_i b_i k_i        error = h sum_i e_i k_i
    x(t + theta h) = x + h sum_i (sum_m d_im theta^m) k_i                     0 <= theta <= 1

In both pairs the last stage is the new state (first same as last, or stiffly accurate).
"""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import FloatArray


class Tableau(NamedTuple):
    """A Runge-Kutta pair with dense output.

    a      (s, s) lower triangular; its last row is b
    error  (s,) e = b - b of the embedded method
    dense  (s, m) coefficients d of theta, theta^2, ...
    """

    a: FloatArray
    error: FloatArray
    dense: FloatArray

    @property
    def stages(self) -> int:
        """How many slopes a step has."""
        return len(self.a)

    @property
    def c(self) -> FloatArray:
        """(s,) where the stages stand in the step, from 0 to 1."""
        return np.asarray(self.a.sum(axis=1))

    @property
    def predictors(self) -> FloatArray:
        """(s, s) row i: a slope guessed from those before it, by the parabola through the nearest.

        What an implicit stage begins its Newton iteration with.
        """
        found = np.zeros((self.stages, self.stages))
        for i in range(1, self.stages):
            near = np.argsort(np.abs(self.c[:i] - self.c[i]), kind="stable")[:3]
            powers = np.vander(self.c[near], increasing=True).T
            found[i, near] = np.linalg.solve(powers, self.c[i] ** np.arange(len(near)))
        return found


def _matrix(rows: list[str]) -> FloatArray:
    """Rows of fractions; missing ones at their end are 0."""
    numbers = [[float(Fraction(word)) for word in row.split()] for row in rows]
    width = max(len(row) for row in numbers)
    return np.array([row + [0.0] * (width - len(row)) for row in numbers])


def _dense(a: FloatArray, without: int) -> FloatArray:
    """The dense output of order 4 of a stiffly accurate pair with stages of order 2.

    With such stages the conditions are sum b_i c_i^m = theta^(m+1) / (m+1) for m = 0..3 and
    sum b_i a_ij c_j^2 = theta^4 / 12; one slope takes no part in it, as in the step itself.
    """
    c = a.sum(axis=1)
    rows = np.vstack([c**m for m in range(4)] + [a @ c**2])
    rows = np.delete(rows, without, axis=1)
    right = np.zeros((5, 4))
    right[range(4), range(4)] = 1 / np.arange(1, 5)
    right[4, 3] = 1 / 12
    return np.insert(np.linalg.solve(rows, right), without, 0.0, axis=0)


DORMAND_PRINCE = Tableau(
    a=_matrix([
        "0 0 0 0 0 0 0",
        "1/5",
        "3/40 9/40",
        "44/45 -56/15 32/9",
        "19372/6561 -25360/2187 64448/6561 -212/729",
        "9017/3168 -355/33 46732/5247 49/176 -5103/18656",
        "35/384 0 500/1113 125/192 -2187/6784 11/84",
    ]),
    error=_matrix(["71/57600 0 -71/16695 71/1920 -17253/339200 22/525 -1/40"])[0],
    dense=_matrix([
        "1 -8048581381/2820520608 8663915743/2820520608 -12715105075/11282082432",
        "0 0 0 0",
        "0 131558114200/32700410799 -68118460800/10900136933 87487479700/32700410799",
        "0 -1754552775/470086768 14199869525/1410260304 -10690763975/1880347072",
        "0 127303824393/49829197408 -318862633887/49829197408 701980252875/199316789632",
        "0 -282668133/205662961 2019193451/616988883 -1453857185/822651844",
        "0 40617522/29380423 -110615467/29380423 69997945/29380423",
    ]),
)
"""Explicit, 5(4): Dormand and Prince (1980); dense output of Shampine (1986)."""

_ESDIRK = _matrix([
    "0 0 0 0 0 0",
    "1/4 1/4",
    "8611/62500 -1743/31250 1/4",
    "5012029/34652500 -654441/2922500 174375/388108 1/4",
    "15267082809/155376265600 -71443401/120774400 730878875/902184768 2285395/8070912 1/4",
    "82889/524892 0 15625/83664 69875/102672 -2260/8211 1/4",
])
_EMBEDDED = _matrix([
    "4586570599/29645900160 0 178811875/945068544 814220225/1159782912 -3700637/11593932 "
    "61727/225920"
])[0]

KENNEDY_CARPENTER = Tableau(
    a=_ESDIRK, error=_ESDIRK[-1] - _EMBEDDED, dense=_dense(_ESDIRK, without=1)
)
"""Implicit, 4(3): the singly diagonal, L-stable, stiffly accurate half of ARK4(3)6L[2]SA, Kennedy
and Carpenter (2003). Its first stage is explicit, its stages are of order 2."""

STAGES = max(DORMAND_PRINCE.stages, KENNEDY_CARPENTER.stages)
"""Of the longer one."""
