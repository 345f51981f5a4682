"""The likelihood of measurements with normal errors, its gradient, and errors of the unknowns.

Active constraints leave directions free (`igpe.dynamics.shooting.tangent`).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import special

from igpe.core.arrays import BoolArray, FloatArray, IntArray
from igpe.core.errors import EstimationFailed, ProblemError
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.shooting.base import losses_of, minimises_squares, refuse, require_start
from igpe.dynamics.shooting.residuals import Run, deviations, runs_of
from igpe.dynamics.shooting.reweighting import FEWEST
from igpe.dynamics.shooting.spectral import spectral_blocks
from igpe.dynamics.shooting.tangent import Tangent
from igpe.numerics.covariance import Uncertainty, uncertainty
from igpe.numerics.least_squares.active import on_bounds
from igpe.numerics.least_squares.base import Judged, Linearised
from igpe.problem.experiment import Experiment
from igpe.problem.noise.sigma import below, information, mills
from igpe.problem.problem import Problem


def negative_log_likelihood(
    problem: Problem,
    parameters: Mapping[str, float],
    *,
    priors: bool = False,
    integrator: Integrator = Automatic(),
) -> float:
    """-log of the probability density of all measurements, their errors being normal.

        sum  log(2 pi s^2) / 2 + ((h - y) / s)^2 / 2

    (correlated errors: log det(2 pi C) / 2 + (h - y)'C^-1 (h - y) / 2 with their covariance C),
    with all constants, so that it compares with other programs'; s are the standard deviations that
    were given, estimated (`EstimatedSigma`) or follow the model (`Noise`), in the model's units.

    problem     with standard deviations
    parameters  a dict {unknown: value} with every free unknown of the problem
    priors      whether the densities of the problem's priors are multiplied in
    integrator  of the model
    returns     infinity where the model cannot predict some measurement, or s is not positive
    raises      ProblemError if an unknown has no value or standard deviations are unknown,
                EstimationFailed if the integration breaks down
    """
    return _likelihood(problem, parameters, integrator, priors=priors, derivatives=False).value


class LikelihoodGradient(NamedTuple):
    """A negative log-likelihood, and its derivative by every free unknown, by name."""

    value: float
    gradient: dict[str, float]


def likelihood_gradient(
    problem: Problem,
    parameters: Mapping[str, float],
    *,
    priors: bool = False,
    integrator: Integrator = Automatic(),
) -> LikelihoodGradient:
    """`negative_log_likelihood` with its exact derivative by every free unknown.

    What is measured, and standard deviations that are estimated or follow the model, are
    differentiated along the very steps of the integration, whose value may differ from that of one
    without derivatives in the digits that its tolerance leaves open. Arguments and errors are those
    of `negative_log_likelihood`; the gradient is NaN where the value is infinite.
    """
    return _likelihood(problem, parameters, integrator, priors=priors, derivatives=True)


def _likelihood(
    problem: Problem,
    parameters: Mapping[str, float],
    integrator: Integrator,
    *,
    priors: bool,
    derivatives: bool,
) -> LikelihoodGradient:
    refuse(problem, "The likelihood", "spectra")
    _require_numbers(problem)
    box = problem.box
    require_start(parameters, box, "negative_log_likelihood")
    total, gradient = 0.0, np.zeros(len(box))
    x = box.vector(parameters)
    for experiment, run in zip(problem.experiments, runs_of(problem, integrator), strict=True):
        trajectory = replace(run.simulation, sensitivities=derivatives).run(x[run.index])
        if not trajectory.status.usable:
            raise EstimationFailed(
                f"Experiment {experiment.name} could be integrated only to time "
                f"{trajectory.reached:g}. {trajectory.reason}",
                trajectory.status,
            )
        value, slope = _of_run(experiment, run, trajectory, derivatives=derivatives)
        total += value
        gradient[run.index] += slope
    if priors:
        known = {**problem.fixed, **box.mapping(x)}
        total -= sum(prior.log_density(known[n]) for n, prior in problem.priors.items())
        for i, n in enumerate(box.names):
            if derivatives and (prior := problem.priors.get(n)) is not None:
                gradient[i] += prior.bend(x[i]).slope
    if not np.isfinite(total):
        gradient[:] = np.nan
    return LikelihoodGradient(total, box.mapping(gradient) if derivatives else {})


def _require_numbers(problem: Problem) -> None:
    """Raise ProblemError where errors have no known size or correlation."""
    if not (problem.sigma_known or problem.sigma_estimated):
        raise ProblemError(
            "The likelihood needs standard deviations, which are unknown here. Give "
            "them as numbers or as igpe.EstimatedSigma(name): Experiment(sigma=...)."
        )
    if problem.correlation_estimated:
        raise ProblemError(
            "The likelihood needs known correlations of errors; give numbers: "
            "igpe.losses.AR1(0.7), igpe.losses.Correlated({('A', 'B'): 0.5})."
        )


def _of_run(
    experiment: Experiment, run: Run, trajectory: Trajectory, *, derivatives: bool
) -> tuple[float, FloatArray]:
    """One experiment's share of the value, and of the gradient (n_q,) by the run's unknowns."""
    m, which = run.measurements, run.deviation
    predicted = trajectory.measured[m.row, m.column]
    sigma, estimated = experiment.sigma_at(predicted), np.zeros(len(predicted), dtype=bool)
    if which is not None:
        estimated = which >= 0
        sigma = np.where(estimated, trajectory.measured[m.row, which], sigma)
    error, slope = predicted - m.value, np.zeros(len(run.index))
    if not ((sigma > 0).all() and np.isfinite(error).all()):
        return np.inf, slope
    white, by_white = error / sigma, error / sigma
    each = np.log(2 * np.pi * sigma**2)
    if (whitening := m.whitening()) is not None:
        each -= 2 * np.log(whitening.diagonal())
        white = whitening @ white
        by_white = whitening.T @ white
    each, by_error = each + white**2, by_white / sigma
    if (limit := m.censored) is not None:
        residual, _ = below(error[limit] / sigma[limit])
        each[limit], by_error[limit] = (
            residual**2,
            mills(-error[limit] / sigma[limit]) / sigma[limit],
        )
    value = float(np.sum(each) / 2)
    if not derivatives:
        return value, slope
    by_sigma = (1 - error / sigma * by_white) / sigma  # of censored ones sigma is a number
    follows = np.where(estimated, 0.0, experiment.sigma_slope_at(predicted))
    slope = (by_error + by_sigma * follows) @ run.by_unknown(trajectory, m.column)
    if which is not None:
        by_unknown = run.by_unknown(trajectory, which)[estimated]
        slope = slope + by_sigma[estimated] @ by_unknown
    return value, slope


def errors_at(
    problem: Problem,
    x: FloatArray,
    at: Linearised | None,
    confidence: float = 0.95,
    *,
    along: Tangent | None = None,
    held: BoolArray | None = None,
) -> Uncertainty:
    """Linearised errors of the free unknowns at an optimum x (n,).

    Where the loss is robust, or standard deviations are estimated, they are those of the
    M-estimate (`Robust.judged`) and of the likelihood.

    at      residuals and derivative there; None where the model cannot be integrated: then nothing
            is known
    along   what active constraints leave; None: there are none
    held    (n,) which unknowns a bound holds; None: those that `on_bounds` names
    """
    held = on_bounds(x, at, problem.box) if held is None else held
    if at is None:
        at = Linearised(np.full(problem.size, np.nan), np.zeros((problem.size, len(x))))
        held = np.ones(len(x), dtype=bool)
    at = with_information(problem, at)
    judged = _judged(problem, at)
    squares = at if judged is None else judged.squares
    errors = uncertainty(
        x, squares.residual, squares.jacobian,
        held=held, sigma_known=_has_unit_variance(problem),
        student=judged is not None and judged.is_estimated,
        confidence=confidence,
        active=None if along is None else along.rows,
        equations=None if along is None else along.equations,
        bounds=(problem.box.lower, problem.box.upper),
        logarithmic=problem.box.in_logarithms,
        quantities=_quantities(problem, len(at.residual)) if judged is None else None,
    )  # fmt: skip
    degrees = errors.degrees - (len(at.residual) - len(of_measurements(problem, at).residual))
    blocks = spectral_blocks(problem, runs_of(problem, Automatic())) if problem.has_spectra else ()
    degrees += sum(block.degrees - len(x) for block in blocks)
    variance = errors.variance if judged is None else judged.variance
    return replace(errors, degrees=degrees, variance=variance)


def _quantities(problem: Problem, rows: int) -> IntArray | None:
    """(rows,) for each residual the place of the quantity whose own residuals weight it.

    -1 of other residuals: of quantities with too few, and of priors. None: all errors are alike.
    """
    places = {n: k for k, n in enumerate(problem.relative_sigma)}
    if not places or problem.is_correlated or problem.has_spectra:
        return None
    runs = [e.measurements for e in problem.experiments]
    own = [np.array([places.get(n, -1) for n in m.names])[m.column] for m in runs]
    place = np.concatenate([*own, np.full(rows - problem.size, -1)])
    count = np.array([np.sum(place == k) for k in places.values()])
    return np.where((place >= 0) & (count[place] >= FEWEST), place, -1)


def with_information(problem: Problem, at: Linearised) -> Linearised:
    """The derivative of which J'J is the information of censored values too, as of all others."""
    if not problem.is_censored:
        return at
    limit, jacobian = censored_rows(problem, at), at.jacobian.copy()
    jacobian[limit] *= information(at.residual[limit])[:, None]
    return at._replace(jacobian=jacobian)


def censored_rows(problem: Problem, at: Linearised) -> BoolArray:
    """(m,) which residuals are of values below a limit; behind the measurements' are priors."""
    rows = np.concatenate([e.measurements.is_limit for e in problem.experiments])
    return np.concatenate([rows, np.zeros(len(at.residual) - len(rows), dtype=bool)])


def allowed_rise(
    errors: Uncertainty, sigma_known: bool, confidence: float, unknowns: int = 1
) -> float:
    """How much the sum of squares may rise if so many unknowns are held at their true values.

    By chi squared where standard deviations are known, else by F (Bates & Watts, Nonlinear
    Regression Analysis, 1988, section 6.1); NaN without degrees of freedom.
    """
    if sigma_known:
        return float(special.chdtri(unknowns, 1 - confidence))
    if errors.degrees <= 0:
        return float("nan")
    quantile = special.fdtri(unknowns, errors.degrees, confidence)
    return float(errors.variance * unknowns * quantile)


def objective_rise(problem: Problem, at: Linearised, errors: Uncertainty, level: float) -> float:
    """How far the objective may rise if one unknown is held at its true value.

    errors  at the optimum, where the residuals are `at`;  level: of confidence
    """
    judged = _judged(problem, at)
    if judged is None:
        return allowed_rise(errors, _has_unit_variance(problem), level)
    in_units = replace(errors, variance=1.0)
    return judged.kappa * allowed_rise(in_units, not judged.is_estimated, level)


def of_measurements(problem: Problem, at: Linearised) -> Linearised:
    """Plain residuals of all measurements and priors, without what only the objective needs.

    That is the weights of a robust loss, and the rows that estimated standard deviations add.
    """
    if problem.sigma_estimated:
        m = sum(len(e.measurements.value) for e in problem.experiments)
        which = [deviations(e, e.measurements) for e in problem.experiments]
        k = sum(int((w >= 0).sum()) for w in which if w is not None)
        own = np.r_[:m, m + k : len(at.residual)]  # in the order of `estimated_sigma.joined`
        return Linearised(at.residual[own], at.jacobian[own])
    loss = losses_of(problem)[-1]
    if loss.is_plain:
        return at
    m = problem.size
    plain = loss.unweighted(Linearised(at.residual[:m], at.jacobian[:m]))
    return Linearised(
        np.concatenate([plain.residual, at.residual[m:]]),
        np.vstack([plain.jacobian, at.jacobian[m:]]),
    )


def _has_unit_variance(problem: Problem) -> bool:
    """Whether the objective is in units of its own variance, as a likelihood is."""
    return problem.sigma_known or problem.sigma_estimated or not minimises_squares(problem)


def _judged(problem: Problem, at: Linearised) -> Judged | None:
    """A robust minimum as least squares; None where the loss is least squares."""
    loss = losses_of(problem)[-1]
    if loss.is_plain:
        return None
    m, plain = problem.size, of_measurements(problem, at)
    of_errors = Linearised(plain.residual[:m], plain.jacobian[:m])
    judged = loss.judged(of_errors, at.jacobian.shape[1], 1.0 if problem.sigma_known else None)
    root = np.sqrt(judged.kappa)
    squares = Linearised(
        np.concatenate([judged.squares.residual, at.residual[m:] / root]),
        np.vstack([judged.squares.jacobian, at.jacobian[m:] / root]),
    )
    return judged._replace(squares=squares)
