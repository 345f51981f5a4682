"""How far the grid in space moves the estimates: the same fit once more on a grid twice as fine.

With errors of the first order in the width h, estimates move by C h; from h to h / 2 by C h / 2.
The error on the coarse grid is then twice what they move (Richardson's extrapolation; Roache,
Annual Review of Fluid Mechanics 29, 1997). Of a scheme of second order it is less, 4/3 of it.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.problem import Problem, takes_problem
from igpe.uncertainty.likelihood import at_estimate, likelihood

FACTOR = 2.0  # first order; more than enough for higher ones


@takes_problem
def grid_error(problem: Problem, estimate: Any | Mapping[str, float]) -> pd.DataFrame:
    """Estimate how much the grid in space contributes to the error of each unknown.

    problem   a problem with `space={"x": ...}`
    estimate  a result of `igpe.estimate` or of a method, or a dict {unknown: value}
    returns   a table with one row for each free unknown and the columns `value`, `standard_error`,
              `refined` (the best value on a grid with twice as many intervals) and `grid_error`
              (twice the difference between `value` and `refined`). For first-order schemes,
              `grid_error` estimates the distance of `value` from the grid-converged value
    raises    ProblemError if the problem was created without `space`, EstimationFailed if the model
              cannot be integrated on the finer grid, Unsupported as in `igpe.profile`
    """
    finer = problem.on_finer_grid()
    method = SingleShooting()
    base = at_estimate(problem, estimate, method, "igpe.uncertainty.grid_error")
    values = dict(zip(base.box.names, base.x.tolist(), strict=True))
    if base.problem.held_weights is not None:
        finer = finer.weighted(**base.problem.held_weights._asdict())
    refined = likelihood(finer, values, method, "igpe.uncertainty.grid_error")
    return pd.DataFrame(
        {
            "value": base.x,
            "standard_error": base.errors.standard_error,
            "refined": refined.x,
            "grid_error": FACTOR * np.abs(refined.x - base.x),
        },
        index=pd.Index(base.box.names, name="unknown"),
    )
