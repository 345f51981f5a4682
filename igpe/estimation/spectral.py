"""Pure spectra at the estimate, with errors; the scatter of spectra, and the verdict on their fit.

Errors. The spectra that are free at a wavelength are s = C^+ d, so that with errors e of d, and of
the unknowns k, ds = C^+ e - C^+ (dC/dk s) dk; both are independent to first order, as k depends on
e only orthogonally to C:

    V(s) = sigma^2 (C'C)^-1 + G V(k) G',      G = C^+ dC/dk s

(after Chen, Biegler & Garcia Munoz, J. Chemometrics 30 (2016), 506). If amounts scatter about the
model too, or errors at neighbouring wavelengths are correlated, the covariance W of a time's
residuals is not sigma^2 1. Only its part within the space of the pure spectra matters, W_c =
Q'WQ, which the residuals of many times tell: the estimate's covariance is then V (sum over t of
J_t' W_c J_t) V, V = (J'J)^-1.

Signs. A spectrum s_i that is truly zero is held at 0 in half of all draws, those in which the error
along u = (1 - P) c_i is negative, P without c_i. The gradient keeps this part of the error, so its
mean is -0.4 sigma times the sum of u' dC/dk s over such wavelengths, while its standard deviation
grows as the root of their number only: where spectra are zero at many wavelengths, k is biased by
many standard errors. Which of the s_i are zero, and not merely small, no data say. The optimum
without the signs has no such bias. Intervals are therefore centred there and have its width, and
reach as far as the estimate.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arrays import FloatArray
from igpe.core.markup import listed
from igpe.dynamics.integrators.base import Integrator, Trajectory
from igpe.dynamics.likelihood import errors_at
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.shooting.spectral import SpectralBlock
from igpe.numerics.covariance import Uncertainty, shifted
from igpe.numerics.lack_of_fit import Tested, all_tests
from igpe.numerics.mixtures import Unmixed, moved_rows, separated
from igpe.problem.noise.sigma import contributions
from igpe.problem.problem import Problem
from igpe.problem.spectra import FLOOR, Spectra
from igpe.results.residual_table import (
    ADEQUATE,
    ALARM,
    LACK,
    UNJUDGED,
    Adequacy,
    SpectralFit,
    probability,
)

NEGATIVE = 0.05  # of a spectrum's largest value
RANK = 1e-8  # of the largest: a singular value of the pure spectra below it is none
CLEARLY = 0.5  # standard errors: a bias that intervals feel
SCATTERED = 1e-3  # probability below which amounts scatter beyond the instrument
TOO_FEW = (
    "Standard deviations are unknown, and no absorbing species has spectra at enough times to test "
    "for a trend."
)
TRENDS = {"runs", "autocorrelation"}
MISFIT = (
    "{name}, computed from the spectra: {says} ({p}). The model is incomplete, or "
    "another species absorbs."
)
ONLY_BY_SIGN = (
    "Without the requirement of non-negative spectra, igpe found no comparable optimum, or the "
    "data determine fewer unknowns. Where spectra are zero, this requirement causes a bias, which "
    "the intervals do not include."
)
TOO_LARGE = (
    "The residuals of the spectra are larger than `sigma` can explain ({p}): the model is wrong, "
    "an absorbing species is missing, or `sigma` is too small."
)


class SpectralSummary(NamedTuple):
    """What the spectra add to a result.

    fits       one for each block of shared spectra
    errors     of the unknowns, with the scatter of the amounts
    points     concentrations unmixed by the pure spectra, as `Result.points`
    adequacy   the verdict on the fit of the spectra;  notes: sentences
    """

    fits: tuple[SpectralFit, ...]
    errors: Uncertainty
    points: pd.DataFrame
    adequacy: Adequacy
    notes: tuple[str, ...]


class _Solved(NamedTuple):
    """One block at the estimate.

    amounts   (N, n) of the species;  slopes: (N, n, n_k) their derivative by the unknowns
    by        (N, p, n_k) J Q of all patterns
    degrees   numbers less spectra that are free where they are
    noise     standard deviation outside of the space of the spectra
    scatter   (p, p) W_c
    p         probability of so much scatter inside
    """

    block: SpectralBlock
    one: Unmixed
    amounts: FloatArray
    slopes: FloatArray
    by: FloatArray
    degrees: int
    noise: float
    scatter: FloatArray
    p: float


def spectral_summary(
    problem: Problem,
    integrator: Integrator,
    x: FloatArray,
    errors: Uncertainty,
    others: Sequence[FloatArray] = (),
) -> SpectralSummary | None:
    """What is said of the spectra at unknowns x (n,); None where they cannot be integrated.

    others  values (n,) of the other optima
    """
    residuals = Residuals(problem, integrator)
    trajectories = residuals.trajectories(x)
    if trajectories is None:
        return None
    solved = [_solved(block, trajectories, errors) for block in residuals.spectral]
    errors = _with_scatter(problem, x, errors, solved)
    free = free_sign_errors(problem, integrator, x, errors)
    errors = errors if free is None else free.errors
    fits = tuple(_fit(problem, s, errors) for s in solved)
    tables = [t for s, f in zip(solved, fits, strict=True) for t in _points(problem, s, f)]
    points = pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()
    adequacy = _adequacy(solved, points, errors)
    notes = [*map(str, fits), *_negative(residuals, [x, *others])]
    if problem.has_signs:
        notes += [ONLY_BY_SIGN] if free is None else _moved_by_sign(problem, x, free)
    return SpectralSummary(fits, errors, points, adequacy, tuple(notes))


def _negative(residuals: Residuals, sets: Sequence[FloatArray]) -> Iterator[str]:
    """Which sets of values ask for negative spectra, where there are several sets."""
    for k, x in enumerate(sets if len(sets) > 1 else ()):
        trajectories = residuals.trajectories(x)
        if trajectories is None:
            continue
        for block in residuals.spectral:
            pure = block.pure(trajectories) * block.members[0].spectra.noise
            low, high = pure.min(axis=1), np.abs(pure).max(axis=1)
            below = [
                f"{n} {100 * a / b:.0f} %"
                for n, a, b in zip(block.species, low, high, strict=True)
                if a < -NEGATIVE * b
            ]
            if below:
                yield (
                    f"With the values of set {k + 1}, some pure spectra are negative (minimum "
                    f"relative to the maximum): {', '.join(below)}."
                )


class FreeSigns(NamedTuple):
    """The optimum x (n,) beside an estimate if spectra may be negative, and what follows.

    errors  of the estimate: intervals of that optimum that reach as far as the estimate
    """

    x: FloatArray
    errors: Uncertainty


def free_sign_errors(
    problem: Problem, integrator: Integrator, x: FloatArray, errors: Uncertainty
) -> FreeSigns | None:
    """Errors of unknowns x (n,) of non-negative spectra, without bias (module docstring).

    None where all signs are free, or the data do not determine the unknowns without signs.
    """
    if not problem.has_signs:
        return None
    free = problem.with_free_signs()
    there = SingleShooting(integrator).estimate(free, problem.box.mapping(x))
    residuals, y = Residuals(free, integrator), problem.box.vector(there.parameters)
    trajectories = residuals.trajectories(y)
    at = None if trajectories is None else residuals.stacked(y, trajectories)
    if not there.status.usable or trajectories is None or at is None:
        return None
    own = errors_at(free, y, at, errors.confidence)
    if (own.undetermined & ~errors.undetermined).any() or (own.held != errors.held).any():
        return None
    solved = [_solved(block, trajectories, own) for block in residuals.spectral]
    own = _with_scatter(free, y, own, solved)
    lower, upper = np.minimum(own.lower, x), np.maximum(own.upper, x)
    return FreeSigns(y, replace(own, lower=lower, upper=upper, degrees=errors.degrees))


def _moved_by_sign(problem: Problem, x: FloatArray, free: FreeSigns) -> Iterator[str]:
    """How far the sign of the spectra moved the unknowns, if by more than chance explains."""
    with np.errstate(invalid="ignore", divide="ignore"):
        moved = (x - free.x) / free.errors.standard_error
    names = np.array(problem.box.names)[np.abs(moved) > CLEARLY]
    if len(names):
        each = zip(names, moved[np.abs(moved) > CLEARLY], strict=True)
        yield (
            "The requirement of non-negative spectra shifted these estimates (in standard errors): "
            f"{', '.join(f'{n} {m:+.1f}' for n, m in each)}. If spectra are "
            "zero at many wavelengths, this requirement biases the estimates. The intervals are "
            "therefore those of nonnegative=False, extended to include the estimates."
        )


def _solved(
    block: SpectralBlock, trajectories: Sequence[Trajectory], errors: Uncertainty
) -> _Solved:
    size = len(errors.standard_error)
    amounts, slopes = block.amounts(trajectories), block.slopes(trajectories, size)
    one = separated(amounts, block.mixture)
    amounts = amounts / block.weight[:, None]
    parts = list(moved_rows(one, slopes))
    residual, by = (np.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    n = len(block.species)
    q = np.linalg.qr(one.spectra[:n].T)[0]
    inside = one.error @ q
    count, width = one.error.shape
    shares = (q**2).sum(axis=1)
    freedom = np.zeros(width)
    for pattern in one.patterns:
        freedom[pattern.columns] = count - pattern.basis.shape[1]
    outer = float(((1 - shares) * freedom).sum()) - one.unwanted[0].shape[1] * width
    inner = float((shares * freedom).sum()) - int((~errors.held).sum())
    beyond = one.cost - float(np.vdot(inside, inside)) + block.outside
    outer += block.numbers - one.error.size
    noise = float(np.sqrt(max(beyond, 0.0) / max(outer, 1.0)))
    within = float(np.vdot(inside, inside)) / max(inner, 1.0)
    p = 1.0
    if noise > 0 and outer > 0 and inner > 0:
        p = float(special.fdtrc(inner, outer, within / noise**2))
    free = max(count - one.patterns[0].basis.shape[1], 1)
    scatter = residual.T @ residual / free
    every = int((~block.mixture.is_known).sum()) + block.mixture.extra.shape[1]
    rank = [k.basis.shape[1] - block.mixture.varying for k in one.patterns]  # below len(k.free)
    held = sum((every - r) * len(k.columns) for r, k in zip(rank, one.patterns, strict=True))
    degrees = block.degrees + held
    return _Solved(block, one, amounts, slopes, by, degrees, noise, scatter, p)


def _with_scatter(
    problem: Problem, x: FloatArray, errors: Uncertainty, solved: Sequence[_Solved]
) -> Uncertainty:
    """The errors with the degrees of freedom of the spectra; larger where amounts scatter."""
    held = sum(s.degrees - s.block.degrees for s in solved)
    errors = replace(errors, degrees=errors.degrees + held)
    scattered = [s for s in solved if s.p < SCATTERED]
    free = ~errors.held & ~errors.undetermined
    if not scattered or not free.any():
        return errors
    v = errors.covariance[np.ix_(free, free)]
    more = np.zeros(v.shape)
    for s in scattered:
        by = s.by[:, :, free]
        w = s.scatter - np.eye(len(s.scatter))
        more += np.einsum("tpk,pq,tql->kl", by, w, by, optimize=True)
    covariance = errors.covariance.copy()
    covariance[np.ix_(free, free)] = v + v @ more @ v
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    half = special.ndtri(0.5 + errors.confidence / 2) * error
    box = problem.box
    low, high = (box.clip(shifted(x, side * half, box.in_logarithms)) for side in (-1, 1))
    return replace(
        errors,
        covariance=covariance,
        standard_error=np.where(free, error, errors.standard_error),
        lower=np.where(free, low, errors.lower),
        upper=np.where(free, high, errors.upper),
    )


def _fit(problem: Problem, s: _Solved, errors: Uncertainty) -> SpectralFit:
    block, one = s.block, s.one
    members, first, n = block.members, block.members[0].spectra, len(block.species)
    measured = np.vstack([m.spectra.values for m in members])
    noise = np.vstack([np.broadcast_to(m.spectra.noise, m.spectra.values.shape) for m in members])
    residual = measured - block.at_wavelengths(block.mixture.data - one.error) * noise
    own = [1.0 if m.spectra.sigma is None else m.spectra.sigma for m in members]
    parts = np.split(residual, np.cumsum([len(m.rows) for m in members])[:-1])
    squares = [((r / o) ** 2).sum() for r, o in zip(parts, own, strict=True)]
    deviations = np.sqrt(_variance(s, errors)) * first.noise
    deviations[one.lost] = np.inf
    names = [problem.experiments[m.number].name for m in members]
    extra = [f"constant in {name}" if len(names) > 1 else "constant" for name in names]
    every = (*block.species, *extra[: len(one.spectra) - n])
    return SpectralFit(
        experiments=tuple(names),
        species=every,
        wavelengths=first.wavelengths,
        values=block.at_wavelengths(one.spectra) * first.noise,
        errors=deviations,
        times=np.concatenate([m.spectra.times for m in members]),
        owner=np.repeat(np.arange(len(names), dtype=float), [len(m.rows) for m in members]),
        residuals=residual,
        unwanted=one.unwanted[0],
        lack_of_fit=100 * float(np.linalg.norm(residual) / (np.linalg.norm(measured) or 1.0)),
        noise=s.noise,
        deviations=_deviations(s),
        probability=s.p,
        is_scattered=s.p < SCATTERED,
        rank=_rank([m.spectra for m in members]),
        lost=tuple(name for name, gone in zip(every, one.lost, strict=True) if gone),
        cost=one.cost + block.outside,
        eliminated=block.numbers - s.degrees,
        squares=tuple(map(float, squares)),
    )


def _rank(every: Sequence[Spectra]) -> int:
    """Number of contributions above the noise in these spectra together."""
    parts = []
    for one in every:
        values = one.values if one.sigma is None else one.values / one.sigma
        least = FLOOR * float(np.abs(values).max())
        parts.append(values / (max(one.rank().noise, least) or 1.0))
    both = np.vstack(parts)
    singular = np.asarray(np.linalg.svd(both, compute_uv=False))
    return contributions(singular, both.shape, 1.0)[0]


def _variance(s: _Solved, errors: Uncertainty) -> FloatArray:
    """(n + e, m) of the spectra in standard deviations; NaN where they are held."""
    one, n, basis = s.one, len(s.block.species), s.block.members[0].spectra.basis
    covariance = np.where(np.isfinite(errors.covariance), errors.covariance, 0.0)
    width = one.spectra.shape[1] if basis is None else len(basis)
    variance = np.full((len(one.spectra), width), np.nan)
    for pattern in one.patterns:
        of_error = np.ones(len(pattern.columns))
        if s.p < SCATTERED:
            freedom = max(len(one.error) - pattern.basis.shape[1], 1)
            of_error = (one.error[:, pattern.columns] ** 2).sum(axis=0) / freedom
        shift = np.einsum("pr,rsk->psk", pattern.unit @ pattern.basis.T, s.slopes, optimize=True)
        moved = np.einsum("psk,sw->pkw", shift, one.spectra[:n, pattern.columns], optimize=True)
        places = pattern.columns
        if basis is not None:  # smooth spectra have one pattern
            moved, of_error = moved @ basis.T, (basis**2) @ of_error
            places = np.arange(width)
        own = (pattern.unit**2).sum(axis=1)[:, None] * of_error
        more = np.einsum("pkw,kl,plw->pw", moved, covariance, moved, optimize=True)
        variance[np.ix_(pattern.free, places)] = own + np.maximum(more, 0.0)  # but for rounding
    return variance


def _deviations(s: _Solved) -> FloatArray:
    """(n,) standard deviation of the amounts beyond what the instrument explains."""
    n = len(s.block.species)
    inverse = np.linalg.pinv(s.one.spectra[:n])  # (M, n): amounts from spectra
    amounts = s.one.error @ inverse / s.block.weight[:, None]
    freedom = max(len(amounts) - s.one.patterns[0].basis.shape[1], 1)
    instrument = s.noise**2 * (inverse**2).sum(axis=0) * np.mean(s.block.weight**-2.0)
    return np.asarray(np.sqrt(np.maximum((amounts**2).sum(axis=0) / freedom - instrument, 0.0)))


def _points(problem: Problem, s: _Solved, fit: SpectralFit) -> Iterator[pd.DataFrame]:
    """Amounts unmixed by the pure spectra, of species that are not measured otherwise."""
    inverse = np.linalg.pinv(s.one.spectra[: len(s.block.species)])
    residual = s.one.error @ inverse / s.block.weight[:, None]
    size = np.sqrt((inverse**2).sum(axis=0))
    for k, m in enumerate(s.block.members):
        experiment, rows = problem.experiments[m.number], fit.owner == k
        for i in m.species:
            name = s.block.species[i]
            if not experiment.only_reports(name) or s.one.lost[i] or not size[i] > 0:
                continue
            fitted, beside = s.amounts[rows, i], residual[rows, i]
            table = {
                "experiment": experiment.name,
                "name": name,
                "time": m.spectra.times,
                "measured": fitted + beside,
                "fitted": fitted,
                "residual": beside,
                "sigma": size[i] / s.block.weight[rows],
                "unit": problem.unit(name),
            }
            yield pd.DataFrame(table)


def _combined(s: _Solved) -> Iterator[tuple[str, FloatArray]]:
    """Name and standard residuals, in each experiment, of what spectra that are lost add up to."""
    n = len(s.block.species)
    lost = [name for name, gone in zip(s.block.species, s.one.lost, strict=False) if gone]
    if lost:
        _, size, axes = np.linalg.svd(s.one.spectra[:n], full_matrices=False)
        scores = s.one.error @ axes[size > RANK * size.max()].T
        ends = np.cumsum([len(m.rows) for m in s.block.members])[:-1]
        for rows in np.split(scores, ends):
            yield from ((f"A combination of {listed(lost)}", one) for one in rows.T)


def _adequacy(solved: Sequence[_Solved], points: pd.DataFrame, errors: Uncertainty) -> Adequacy:
    """The verdict on the spectra: size where sigma was given, and trends over time."""
    reasons: list[str] = []
    tests: dict[str, float] = {}
    for s in solved:
        left = s.degrees - int((~errors.held).sum())
        if left > 0 and all(m.spectra.sigma is not None for m in s.block.members):
            p = float(special.chdtrc(left, s.one.cost + s.block.outside))
            tests["size"] = min(p, tests.get("size", 1.0))
            reasons += [TOO_LARGE.format(p=probability(p))] * (p < ALARM)
    trends = list(_trends(solved, points))
    if trends:
        name, least = min(trends, key=lambda one: one[1].p)
        tests["trend"] = min(1.0, len(trends) * least.p)
        if tests["trend"] < ALARM:
            words = least.says[:1].lower() + least.says[1:]
            reasons.append(MISFIT.format(name=name, says=words, p=probability(tests["trend"])))
    if not tests:
        return Adequacy(UNJUDGED, reasons=(TOO_FEW,))
    p = min(1.0, len(tests) * min(tests.values()))
    return Adequacy(LACK if p < ALARM else ADEQUATE, p, tuple(reasons) if p < ALARM else (), tests)


def _trends(solved: Sequence[_Solved], points: pd.DataFrame) -> Iterator[tuple[str, Tested]]:
    """Tests for trends of each species in each experiment, with its name."""
    groups = points.groupby(["experiment", "name"], sort=False) if len(points) else ()
    every = [(str(n), (g["residual"] / g["sigma"]).to_numpy()) for (_, n), g in groups]
    for name, standard in (*every, *chain.from_iterable(map(_combined, solved))):
        yield from ((name, test) for test in all_tests(standard) if test.test in TRENDS)
