"""PEtab's objective, standard errors on the scales of its parameter table, and that table written.

Standard errors are those of the observed information, the second derivative of the negative
log-likelihood (Efron & Hinkley, Biometrika 65 (1978)). Fisher's expected information leaves out
what residuals add to it, and where standard deviations are estimated residuals are large: of
Boehm's problem it makes one error 8 times what the profile says, the observed one 1.01 times.

And the model's prediction for each row of the measurement table.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from igpe.core.arguments import is_finite, require
from igpe.core.arrays import BoolArray, FloatArray
from igpe.core.errors import DataError, EstimationFailed, ProblemError
from igpe.core.files import read, write
from igpe.core.status import Status
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator
from igpe.dynamics.likelihood import (
    LikelihoodGradient,
    likelihood_gradient,
    negative_log_likelihood,
)
from igpe.dynamics.shooting.base import require_start
from igpe.dynamics.shooting.single_shooting import PreparedShooting, SingleShooting
from igpe.dynamics.simulation import simulate_all
from igpe.formats.petab.conditions import PetabModel
from igpe.formats.petab.formulas import cells, named, petab_config
from igpe.formats.petab.printing import Ids
from igpe.formats.petab.read import LOGARITHMS
from igpe.numerics.least_squares.active import on_bounds
from igpe.problem.problem import Problem

STEP = 3e-3  # of a natural logarithm, or of a parameter's size: to where gradients are compared,
NEAR = 0.1  # of a standard error along a direction, and at most so far
SMALL = 1e-2  # of the width of its bounds: the least size of a parameter
FLAT = 1e-7  # curvature along a direction, all parameters of one size, that is rounding
PART = 1e-3  # of a flat direction: a smaller squared component of a parameter is rounding


def petab_objective(
    problem: Problem, parameters: Mapping[str, float] | None = None, *, priors: bool = False
) -> float:
    """Compute the negative log-likelihood of the measurements themselves, as PEtab defines it.

    If log10(y) has the density p, then y has the density p / (y ln 10). The objective is therefore
    `negative_log_likelihood` plus one term for each measurement that is compared as a logarithm:
    log(y ln 10) if igpe compares log10(y), and log(y) if igpe compares ln(y).

    parameters  a dict {unknown: value}; by default the nominal values of the parameter table
    priors      whether to include the problem's priors (for PEtab 2, uniform priors as well)
    raises      ProblemError if the problem was not read by `read_petab`; otherwise the errors of
                `negative_log_likelihood`
    """
    model = petab_model(problem)
    values = {**model.nominal, **(parameters or {})}
    return negative_log_likelihood(problem, values, priors=priors) + _constants(problem, priors)


def petab_gradient(
    problem: Problem, parameters: Mapping[str, float] | None = None, *, priors: bool = False
) -> LikelihoodGradient:
    """Compute the objective of `petab_objective` and its exact derivatives.

    The derivatives are taken with respect to the parameters, not to their logarithms, even if the
    table gives them a logarithmic scale; see `igpe.dynamics.likelihood.likelihood_gradient`.

    problem     a problem that `read_petab` returned
    parameters  a dict {unknown: value}; by default the nominal values of the parameter table
    priors      whether to include the problem's priors
    returns     a named tuple: `value` is the objective, and `gradient` maps the name of each
                unknown to the derivative
    raises      the errors of `petab_objective`
    """
    values = {**petab_model(problem).nominal, **(parameters or {})}
    at = likelihood_gradient(problem, values, priors=priors)
    return at._replace(value=at.value + _constants(problem, priors))


def _constants(problem: Problem, priors: bool) -> float:
    """Terms of PEtab's objective besides the likelihood of the compared values."""
    model, total = petab_model(problem), 0.0
    for experiment in problem.experiments:
        for name in model.transformations.keys() & set(experiment.measured):
            base = LOGARITHMS[model.transformations[name]]
            logarithms = base * experiment.measurements.of(name)[1]
            total += float(np.sum(logarithms + np.log(base)))
    return total + model.flat * priors


def petab_model(problem: Problem) -> PetabModel:
    """The builder of the problem's model; raises ProblemError if it was not read from PEtab."""
    model = getattr(problem, "model", None)
    if not isinstance(model, PetabModel):
        raise ProblemError(
            "The problem was not read from PEtab; create it with igpe.petab.read_petab."
        )
    return model


def petab_errors(
    problem: Problem,
    found: Any,
    *,
    confidence: float = 0.95,
    method: SingleShooting = SingleShooting(),
) -> pd.DataFrame:
    """Compute standard errors and intervals from the observed information at an optimum.

    The information refers to the parameters on their scales: q is log10 p, log p or p. igpe
    computes the information by central differences of exact gradients. For q = log10 p, the delta
    method gives sd(p) = p ln 10 sd(q). The 95 % intervals are q +- 1.96 sd(q), transformed back to
    p. On a logarithmic scale both endpoints are positive, and the interval is asymmetric.

    problem     a problem that `read_petab` returned
    found       an `Estimate`, or a dict {unknown: value}
    confidence  confidence level of the intervals
    method      the method that supplies the integrator
    returns     one row for each unknown, indexed by `parameterId`. The columns are `estimate` and
                `standard_error` (of the parameter itself), `scale` (lin, log or log10),
                `error_on_scale`, `lower` and `upper` (of the parameter itself), and `remark`. The
                errors of an unknown are NaN if the unknown is on a bound or where its Laplace prior
                has a kink, or if the likelihood increases along a direction that changes it ("not
                at an optimum"). They are infinite if the measurements do not determine it within
                its bounds
    raises      ProblemError if the problem was not read by `read_petab`, EstimationFailed if the
                model cannot be integrated at the estimate or near it
    """
    ok = is_finite(confidence) and 0 < confidence < 1
    require(ok, "petab_errors", "confidence", confidence, "a number between 0 and 1")
    scales, box = petab_model(problem).scales, problem.box
    values = getattr(found, "parameters", found)
    require_start(values, box, "petab_errors")
    names = [scales.get(n, "lin") for n in box.names]
    scale, x = _Scale(np.array([LOGARITHMS.get(n, 0.0) for n in names])), box.vector(values)
    width = scale.to_scale(box.upper) - scale.to_scale(box.lower)
    prepared = method.prepare(problem)
    bound = on_bounds(x, prepared.residuals(x), box)
    finite_width = np.where(np.isfinite(width), width, 1.0)
    sizes = np.where(scale.log, 1 / scale.unit, np.maximum(np.abs(x), SMALL * finite_width))
    kink, sizes = _beside_kinks(problem, scale, x, sizes)
    information = _information(prepared, scale, x, sizes, ~(bound | kink))
    error, remarks = _errors(information, width, sizes, bound | kink)
    remarks = np.select([bound, kink], ["on a bound", "at the kink of its prior"], remarks)
    q, half = scale.to_scale(x), special.ndtri(0.5 + confidence / 2) * error
    table = {
        "estimate": x,
        "standard_error": error * scale.slope(x),
        "scale": names,
        "error_on_scale": error,
        "lower": scale.from_scale(q - half),
        "upper": scale.from_scale(q + half),
        "remark": remarks.astype(object),
    }
    return pd.DataFrame(table, index=pd.Index(box.names, name="parameterId"))


class _Scale:
    """The parameters p and q on their scales; `base` (n,): log of the scale's base, 0 if linear."""

    def __init__(self, base: FloatArray) -> None:
        self.log, self.unit = base > 0, np.where(base > 0, base, 1.0)

    def to_scale(self, p: FloatArray) -> FloatArray:
        """(n,) q of p."""
        return np.where(self.log, np.log(np.where(self.log, p, 1.0)) / self.unit, p)

    def from_scale(self, q: FloatArray) -> FloatArray:
        """(n,) p of q; infinite where that is too large for a number."""
        with np.errstate(over="ignore"):
            return np.where(self.log, np.exp(np.where(self.log, self.unit * q, 0.0)), q)

    def slope(self, p: FloatArray) -> FloatArray:
        """(n,) dp / dq."""
        return np.where(self.log, p * self.unit, 1.0)


def _beside_kinks(
    problem: Problem, scale: _Scale, x: FloatArray, sizes: FloatArray
) -> tuple[BoolArray, FloatArray]:
    """(n,) which unknowns are where their priors have kinks, and sizes that reach no kink."""
    on, kinks = np.zeros(len(x), dtype=bool), np.full(len(x), np.inf)
    for name, prior in problem.other_priors.items():
        i = problem.box.names.index(name)
        on[i] = prior.is_on_kink(x[i])
        kinks[i] = prior.mean if prior.has_kink and not on[i] else np.inf
    return on, np.minimum(sizes, np.abs(scale.to_scale(kinks) - scale.to_scale(x)) / (3 * STEP))


def _information(
    prepared: PreparedShooting, scale: _Scale, x: FloatArray, sizes: FloatArray, free: BoolArray
) -> FloatArray:
    """(n, n) second derivatives of the negative log-likelihood by q; 0 where held.

    Differences over two steps cancel their error of second order: it is larger than the curvature
    of directions that measurements determine poorly. Steps follow the expected information: the
    phase of an oscillator is known ten thousand times as well as its other parameters.
    """
    q, information = scale.to_scale(x), np.zeros((len(x), len(x)))

    def derivatives(move: FloatArray) -> tuple[FloatArray, FloatArray]:
        moved = q.copy()
        moved[free] += move
        p = scale.from_scale(moved)
        at = prepared.residuals(p)
        if at is None:
            raise EstimationFailed(
                "The model could not be integrated at the estimate or near it, so igpe "
                "cannot compute errors; give the estimate of a fit that succeeded.",
                Status.INTEGRATION_BROKE,
            )
        jacobian = (at.jacobian * scale.slope(p))[:, free]
        return jacobian, jacobian.T @ at.residual

    def difference(move: FloatArray) -> FloatArray:
        near, far = (derivatives(k * move)[1] - derivatives(-k * move)[1] for k in (1, 2))
        return np.asarray(8 * near - far) / 12

    sized = sizes[free] * derivatives(np.zeros(np.count_nonzero(free)))[0]
    values, vectors = np.linalg.eigh(sized.T @ sized)
    steps = np.minimum(STEP, NEAR / np.sqrt(np.maximum(values, 1.0)))
    moves = steps * vectors * sizes[free][:, None]  # as columns
    along = np.array([difference(move) for move in moves.T]).reshape(moves.shape) @ moves
    back = vectors / steps / sizes[free][:, None]
    information[np.ix_(free, free)] = back @ (along + along.T) @ back.T / 2
    return information


def _errors(
    information: FloatArray, width: FloatArray, sizes: FloatArray, held: BoolArray
) -> tuple[FloatArray, npt.NDArray[np.str_]]:
    """(n,) errors on the scales, and remarks on unknowns that are not held.

    The errors are infinite where bounds are narrower than the errors, and NaN for held unknowns and
    where the objective decreases.
    """
    own = np.abs(np.diag(information))
    out = held | (own * width**2 <= 1)  # alone it would be less sure than its bounds
    size = np.sqrt(np.where(out, 1.0, own))
    inside = np.where(out[:, None] | out, 0.0, information) / np.outer(size, size)
    values, vectors = np.linalg.eigh(inside)
    flat = values <= FLAT * np.max(np.abs(values), initial=0.0)
    reach = np.max(np.abs(vectors) / (size * sizes)[:, None], axis=0)  # to where one moves its size
    falling = flat & (values < -(reach**2))
    root = np.where(flat, 0.0, vectors / np.sqrt(np.where(flat, 1.0, values)))
    error = np.linalg.norm(root, axis=1) / size
    falls, lost = (np.sum(vectors[:, w] ** 2, axis=1) > PART for w in (falling, flat & ~falling))
    cases = [held, falls, lost | out | (error > width)]
    remarks = np.select(cases, ["", "not at an optimum", "not determined"], "")
    return np.select(cases, [np.nan, np.nan, np.inf], error), remarks


ERRORS = {
    "standard_error": "standardError",
    "scale": "standardErrorScale",
    "error_on_scale": "standardErrorOnScale",
    "lower": "lowerConfidence",
    "upper": "upperConfidence",
}
"""Column of `petab_errors` -> that of the table; PEtab allows further columns."""
PARAMETERS = ["parameterId", "parameterScale", "lowerBound", "upperBound"]
PARAMETERS += ["nominalValue", "estimate"]
NAME = "parameterName"


def write_petab_parameters(
    found: Any, problem: str | Path, path: str | Path, errors: pd.DataFrame | None = None
) -> None:
    """Write the problem's parameter table with the estimates as nominal values.

    `read_petab` then reads the estimates as nominal values, exact to the last digit.

    found    a `Result`, an `Estimate`, or a dict {unknown: value}
    errors   a table that `petab_errors` returned, written to separate columns: `standardError` (of
             the parameter itself), `standardErrorOnScale` (of its logarithm if `standardErrorScale`
             is log10 or log), `lowerConfidence` and `upperConfidence` (of the parameter itself)
    problem  the PEtab YAML file
    path     path of the table to write (tab-separated)
    raises   ProblemError if the table lacks an unknown or the YAML file lists no table; DataError
             if `path` is a file that igpe did not write, or one of the problem's own
             files
    """
    place = Path(path)
    if place.exists() and place.samefile(_table(Path(problem))):
        raise DataError(f"'{path}' is the problem's own parameter table; give another name.")
    write(place, filled_table(found, problem, errors).to_csv(sep="\t", index=False))


def filled_table(
    result: Any, problem: str | Path, errors: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The table that `write_petab_parameters` writes."""
    values: Mapping[str, float] = getattr(result, "parameters", result)
    table = cells(read(_table(Path(problem))))
    unknown_names = sorted(set(values) - set(table["parameterId"]))
    if unknown_names:
        raise ProblemError(
            f"The parameter table of '{problem}' has no {unknown_names}; it has "
            f"{list(table['parameterId'])}. Give the YAML file from which the problem was read."
        )
    lost = sorted(n for n, v in values.items() if not np.isfinite(v))
    if lost:
        raise ProblemError(f"The values of {lost} are not finite, so they cannot be exported.")
    if "nominalValue" not in table:
        table["nominalValue"] = ""
    pairs = zip(table["parameterId"], table["nominalValue"], strict=True)
    table["nominalValue"] = [_text(values.get(n, old)) for n, old in pairs]
    if errors is not None and len(errors):
        for column, name in ERRORS.items():
            table[name] = [_text(errors[column].get(n, "")) for n in table["parameterId"]]
    return table


def parameter_table(estimates: Iterable[Any]) -> pd.DataFrame:
    """A new PEtab parameter table from a Result's `estimates`; raises ProblemError."""
    rows, ids = [], Ids()  # "X(t0)" is X_t0, as in `igpe.to_petab`
    for e in estimates:
        if not np.isfinite([*e.bounds, e.value]).all():
            raise ProblemError(
                f"'{e.name}' has the value {e.value:g} and the bounds {e.bounds}; PEtab needs "
                "finite numbers. Give finite bounds, and estimate again."
            )
        rows.append((ids(e.name), "lin", *e.bounds, e.value, 1, e.name))
    table = pd.DataFrame(rows, columns=[*PARAMETERS, NAME])
    return table.drop(columns=NAME) if (table[NAME] == table["parameterId"]).all() else table


def _text(value: Any) -> str:
    """All digits of a number; an empty text if it is not finite."""
    if isinstance(value, str):
        return value
    return repr(float(value)) if np.isfinite(value) else ""


def _table(problem: Path) -> Path:
    files = _files(problem, "parameter")
    if len(files) > 1:
        raise ProblemError(
            f"'{problem}' lists {len(files)} parameter tables; put all parameters into one table."
        )
    if not files:
        raise ProblemError(f"'{problem}' lists no parameter table; expected a PEtab problem.")
    return files[0]


def _files(problem: Path, kind: str) -> list[Path]:
    """The problem's tables of a kind ("parameter")."""
    keys = f"{kind}_file", f"{kind}_files"
    return [problem.parent / name for key, name in named(petab_config(problem)) if key in keys]


def petab_simulations(
    problem: Problem,
    parameters: Mapping[str, float] | None = None,
    *,
    integrator: Integrator = Automatic(),
) -> pd.DataFrame:
    """Simulate the values of all measurements, in the order of the measurement table.

    parameters  a dict {unknown: value}; by default the nominal values of the parameter table
    integrator  the integrator that solves the equations
    returns     the measurement table, with a column `simulation` instead of `measurement`. This
                column contains the values of the observable itself, even if igpe compares
                logarithms, and NaN where the model cannot be integrated
    raises      ProblemError if the problem was not read by `read_petab`
    """
    model = petab_model(problem)
    values = {**model.nominal, **(parameters or {})}
    grids = tuple(e.times for e in problem.experiments)
    runs = simulate_all(problem, integrator, {n: values[n] for n in problem.box.names}, grids)
    simulated: dict[tuple[str, str, float], float] = {}
    for experiment, (_, run) in zip(problem.experiments, runs, strict=True):
        for i, name in enumerate(experiment.measured):
            shown = run.measured[:, i]
            if name in model.transformations:
                shown = np.exp(LOGARITHMS[model.transformations[name]] * shown)
            keys = ((experiment.name, name, time) for time in experiment.times.tolist())
            simulated |= dict(zip(keys, shown.tolist(), strict=False))
    table = pd.DataFrame([row.given for row in model.rows])
    at = ((row.experiment, row.column, row.time) for row in model.rows)
    table["measurement"] = [simulated.get(key, np.nan) for key in at]
    return table.rename(columns={"measurement": "simulation"})


def write_petab_simulations(simulated: pd.DataFrame, problem: str | Path, path: str | Path) -> None:
    """Write a PEtab simulation table: the measurement table with simulated values.

    simulated  a table that `petab_simulations` returned
    problem    the PEtab YAML file
    path       path of the table to write (tab-separated)
    raises     DataError if `simulated` and the problem's measurement tables have different numbers
               of rows, or if `path` is a file that igpe did not write
    """
    parts = [cells(read(file)) for file in _files(Path(problem), "measurement")]
    table = pd.concat(parts, ignore_index=True)
    if len(table) != len(simulated):
        raise DataError(
            f"'{problem}' has {len(table)} measurements, but {len(simulated)} were simulated. Give "
            "the YAML file from which the problem was read."
        )
    table["measurement"] = [repr(float(v)) for v in simulated["simulation"]]
    table = table.rename(columns={"measurement": "simulation"})
    write(Path(path), table.to_csv(sep="\t", index=False))
