"""The whole estimate by what Pyomo alone offers: collocation, and one solve by IPOPT.

The model is discretised by Radau collocation with three points in each of 40 or more elements, as
for parmest (`peers/parmests.py`). The solve of one sum of squares begins at the geometric middle of
the bounds, with measured states at their measurements. IPOPT is CasADi's, with MUMPS.
"""

import numpy as np
import pyomo.environ as pyo
from peers.parmests import Labelled

import igpe


def solved(problem: igpe.Problem, limit: float) -> np.ndarray | None:
    """The unknowns (n,) that IPOPT ends with; None if it does not converge in so many seconds."""
    run, box = problem.experiments[0], problem.box
    labelled = Labelled(problem, run)
    middle = np.sqrt(box.lower * box.upper).tolist()
    labelled.begin(dict(zip(box.names, middle, strict=True)))
    m = labelled.model
    terms = [((d - v) / m.measurement_error[d]) ** 2 for d, v in m.experiment_outputs.items()]
    m.misfit = pyo.Objective(expr=sum(terms))
    answer = igpe.solvers.Ipopt(max_iterations=3000).solve(m, time_limit=limit)
    if answer.status is not igpe.Status.CONVERGED:
        return None
    return np.array([variable.value for variable in m.unknown_parameters])
