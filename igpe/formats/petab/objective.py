"""The objective of a PEtab problem, as other programs compute it."""

from collections.abc import Mapping

import numpy as np

from igpe.core.errors import ProblemError
from igpe.dynamics.likelihood import negative_log_likelihood
from igpe.formats.petab.model import PetabModel
from igpe.formats.petab.tables import LOGARITHMS
from igpe.problem.problem import Problem


def petab_objective(
    problem: Problem, parameters: Mapping[str, float] | None = None, *, priors: bool = False
) -> float:
    """The negative log-likelihood of the measurements themselves, by PEtab's definition.

    Where logarithms are compared, log10(y) with density p has the density p / (y ln 10) of y: it is
    `negative_log_likelihood` and the sum of log(y ln 10) of these measurements.

    parameters  unknown -> value; by default the nominal ones of the parameter table
    priors      whether those that the problem has are counted
    raises      ProblemError if the problem is none of `read_petab`; else as
                `negative_log_likelihood`
    """
    model = petab_model(problem)
    values = {**model.nominal, **(parameters or {})}
    return negative_log_likelihood(problem, values, priors=priors) + _of_logarithms(problem, model)


def petab_model(problem: Problem) -> PetabModel:
    """The builder of the problem's model.

    raises ProblemError if it was not read from PEtab
    """
    model = getattr(problem, "model", None)
    if not isinstance(model, PetabModel):
        raise ProblemError("The problem was not read from PEtab; make it with igpe.read_petab.")
    return model


def _of_logarithms(problem: Problem, model: PetabModel) -> float:
    total = 0.0
    for experiment in problem.experiments:
        for name in experiment.measured:
            base = LOGARITHMS.get(model.transformations.get(name, ""))
            if base is not None:
                logarithms = base * experiment.measurements.of(name)[1]
                total += float(np.sum(logarithms + np.log(base)))
    return total
