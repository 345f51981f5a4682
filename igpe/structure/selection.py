"""Which equations and unknowns are left for a choice of measured quantities.

Equations with the slope of an unmeasured state are removed; what they say is left to the dynamics.
In the rest are unknown: slopes of measured states, unmeasured states, unmeasured algebraic
variables. Known are measured quantities, inputs, time and, for this analysis, the parameters.
(Michalik et al. 2009, IGPE, step 2, eq. 4)
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from igpe.core.arrays import IntArray
from igpe.structure.identifiability.posed import Posed


class Selection(NamedTuple):
    """Increasing indices into the rows and the variables of a `Posed`.

    rows     equations without the slope of an unmeasured state
    columns  unknown variables that occur in them
    """

    rows: IntArray
    columns: IntArray


def select(posed: Posed, measured: Iterable[str]) -> Selection:
    """The reduced system if the variables in `measured` are known over time.

    Rows of measured expressions exist only for those the experiment measures often enough.
    """
    known = set(measured)
    is_known = np.array([n in known for n in posed.variable_names], dtype=bool)
    n = posed.n_states
    has_slope = is_known[n : 2 * n]
    is_hidden = np.zeros(len(is_known))
    is_hidden[:n] = ~has_slope
    removed = (posed.pattern @ is_hidden) > 0
    extra = posed.row_names[posed.n_equations :]
    gone = [name.removeprefix("measured ") not in known for name in extra]
    removed[posed.n_equations :] |= np.array(gone, dtype=bool)
    rows = np.flatnonzero(~removed)
    is_unknown = ~is_known
    is_unknown[:n] = has_slope
    used = np.zeros(len(is_known), dtype=bool)
    used[posed.pattern[rows].indices] = True
    return Selection(rows, np.flatnonzero(is_unknown & used))
