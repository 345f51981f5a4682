"""Rival models by PEtab Select (https://petab-select.readthedocs.io): its library proposes them.

It walks through a space of models (all of them, forward, backward, FAMoS) and compares criteria;
igpe estimates each model that it proposes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from igpe.core.errors import DataError, EstimationFailed, ProblemError, Unsupported
from igpe.core.status import Status
from igpe.formats.petab.errors import petab_objective
from igpe.formats.petab.formulas import library, quiet
from igpe.formats.petab.read import read_petab
from igpe.problem.problem import Problem

COMPARED = ("AIC", "AICc", "BIC", "LH", "LLH", "NLLH")
UPWARDS = ("LH", "LLH")  # the larger the better
MISSING = "igpe selects models with `petab-select` ({}). Install it: pip install 'igpe[select]'."


@dataclass(frozen=True)
class RivalModel:
    """A model that was estimated.

    name        of the model space
    parameters  unknown -> estimate; empty if the estimation failed
    negative_log_likelihood  by PEtab's definition; infinite if the estimation failed
    criterion   what models are compared by; None if the estimation failed, or if AICc is not
                defined, as there are fewer than two more measurements than parameters
    failed      why the estimation failed; empty if it did not
    problem     what was estimated
    result      what `estimate` returned; None if it failed
    """

    name: str
    parameters: dict[str, float]
    negative_log_likelihood: float
    criterion: float | None
    failed: str
    problem: Problem
    result: Any


@dataclass(frozen=True)
class ModelSelection:
    """The models in the order in which they were estimated, and the best of them.

    criterion  criterion of the comparison: AIC, AICc, BIC, LH, LLH or NLLH
    """

    best: RivalModel
    candidates: tuple[RivalModel, ...]
    criterion: str


def petab_select(path: str | Path, estimate: Callable[[Problem], Any]) -> ModelSelection:
    """Estimate the models that the method of a PEtab Select problem proposes, and compare them.

    A model whose estimation fails is never ranked above another model.

    path      YAML file of the selection problem (its PEtab problems must be of version 1)
    estimate  `igpe.estimate`, or a function that takes a problem and calls `igpe.estimate` with
              your own settings
    raises    SolverMissing without the extra igpe[select], ProblemError if the file does not exist,
              DataError if it is not a PEtab Select problem, Unsupported for a criterion other than
              AIC, AICc, BIC, LH, LLH and NLLH, EstimationFailed if no model could be estimated;
              also the errors of `read_petab` and `estimate`
    """
    select: Any = library("petab_select", MISSING)
    posed = _read(select, Path(path))
    space, candidates = None, list[RivalModel]()
    with TemporaryDirectory() as folder:
        while True:
            with quiet():
                round_ = select.ui.start_iteration(problem=posed, candidate_space=space)
            for model in round_[select.constants.UNCALIBRATED_MODELS]:
                place = Path(folder) / str(len(candidates))
                candidates.append(_estimated(select, model, posed.criterion, place, estimate))
            with quiet():
                finished = select.ui.end_iteration(
                    problem=posed,
                    candidate_space=round_[select.constants.CANDIDATE_SPACE],
                    calibrated_models=round_[select.constants.UNCALIBRATED_MODELS],
                )
            space = finished[select.constants.CANDIDATE_SPACE]
            if finished[select.constants.TERMINATE]:
                break
    return _compared(candidates, posed.criterion.value)


def _estimated(
    select: Any, model: Any, criterion: Any, folder: Path, estimate: Callable[[Problem], Any]
) -> RivalModel:
    """A model estimated; its likelihood and parameters are put into the library's model."""
    with quiet():
        files = model.to_petab(output_path=folder)
    problem = read_petab(files[select.constants.PETAB_YAML])
    result, value, compared, failed = None, np.inf, None, ""
    try:
        result = estimate(problem)
        value = petab_objective(problem, result.parameters)
    except EstimationFailed as error:
        failed = str(error)
    parameters = {} if result is None else {n: float(v) for n, v in result.parameters.items()}
    few = len(files[select.constants.PETAB_PROBLEM].measurement_df) <= len(parameters) + 1
    if np.isfinite(value) and not (criterion.value == "AICc" and few):
        model.set_criterion(select.constants.Criterion.NLLH, value)
        model.set_estimated_parameters(parameters)
        with quiet():
            compared = float(model.get_criterion(criterion))
    else:  # worse than any other
        model.set_criterion(criterion, -np.inf if criterion.value in UPWARDS else np.inf)
    name = str(model.model_id)
    return RivalModel(name, parameters, float(value), compared, failed, problem, result)


def _compared(candidates: list[RivalModel], criterion: str) -> ModelSelection:
    usable = [c for c in candidates if c.criterion is not None]
    if not usable:
        why = " ".join(dict.fromkeys(c.failed for c in candidates if c.failed))
        raise EstimationFailed(
            f"{criterion} could not be computed for any of the {len(candidates)} models. "
            f"{why}".rstrip(),
            Status.FAILED,
        )
    sign = -1.0 if criterion in UPWARDS else 1.0
    best = min(usable, key=lambda c: sign * (c.criterion or 0.0))
    return ModelSelection(best, tuple(candidates), criterion)


def _read(select: Any, path: Path) -> Any:
    """The selection problem; raises as `petab_select` says."""
    if not path.is_file():
        raise ProblemError(
            f"There is no PEtab Select file '{path}' (working folder: {Path.cwd()})."
        )
    try:
        with quiet():
            problem = select.Problem.from_yaml(path)
    except Exception as error:  # of the library, which does not expect every file
        raise DataError(
            f"'{path}' could not be read as a PEtab Select problem ({type(error).__name__}: "
            f"{str(error)[:200]}). It needs the entries `criterion`, `method` and "
            "`model_space_files`."
        ) from error
    if problem.criterion.value not in COMPARED:
        raise Unsupported(
            f"'{path}' compares models by {problem.criterion.value}; igpe supports "
            f"{', '.join(COMPARED)}."
        )
    return problem
