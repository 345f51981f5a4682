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
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import special

from igpe.core.arrays import FloatArray
from igpe.dynamics.integrators.base import Trajectory
from igpe.dynamics.shooting.residuals import Residuals
from igpe.dynamics.shooting.spectral import SpectralBlock
from igpe.numerics.mixtures import Separated, moved_rows
from igpe.numerics.statistics.covariance import Uncertainty
from igpe.numerics.statistics.lack_of_fit import all_tests
from igpe.problem.problem import Problem
from igpe.results.residual_table import ADEQUATE, ALARM, LACK, Adequacy, probability
from igpe.results.spectral import SpectralFit

SCATTERED = 1e-3  # probability below which amounts scatter beyond the instrument
TRENDS = {"runs", "autocorrelation"}
MISFIT = (
    "Residuals of the spectra along {name} {says} ({p}): the model misses something, or an "
    "absorbing species."
)
TOO_LARGE = (
    "The spectra's residuals are larger than sigma explains ({p}): a wrong model, an absorbing "
    "species that is missing, or too small sigma."
)


class SpectralSummary(NamedTuple):
    """What the spectra add to a result.

    fits       one for each block of shared spectra
    errors     of the unknowns, with the scatter of the amounts
    points     concentrations unmixed by the pure spectra, as `Result.points`
    adequacy   the verdict on the fit of the spectra
    """

    fits: tuple[SpectralFit, ...]
    errors: Uncertainty
    points: pd.DataFrame
    adequacy: Adequacy | None


class _Solved(NamedTuple):
    """One block at the estimate.

    residual  (N, p) r Q of all patterns;  by: (N, p, n_k) J Q
    noise     standard deviation outside of the space of the spectra
    scatter   (p, p) W_c
    p         probability of so much scatter inside
    """

    block: SpectralBlock
    one: Separated
    slopes: FloatArray
    residual: FloatArray
    by: FloatArray
    noise: float
    scatter: FloatArray
    p: float


def spectral_summary(
    problem: Problem, residuals: Residuals, x: FloatArray, errors: Uncertainty
) -> SpectralSummary | None:
    """What is said of the spectra at unknowns x (n,); None where they cannot be integrated."""
    trajectories = residuals.trajectories(x)
    if trajectories is None:
        return None
    solved = [_solved(block, trajectories, errors) for block in residuals.spectral]
    errors = _with_scatter(problem, x, errors, [s for s in solved if s.p < SCATTERED])
    fits = tuple(_fit(problem, s, errors) for s in solved)
    pairs = [
        _points(problem, s, fit, trajectories) for s, fit in zip(solved, fits, strict=True)
    ]
    points = pd.concat(pairs, ignore_index=True)
    return SpectralSummary(fits, errors, points, _adequacy(solved, points, errors))


def _solved(
    block: SpectralBlock, trajectories: Sequence[Trajectory], errors: Uncertainty
) -> _Solved:
    size = len(errors.standard_error)
    one, slopes = block.separated(trajectories), block.slopes(trajectories, size)
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
    return _Solved(block, one, slopes, residual, by, noise, residual.T @ residual / free, p)


def _with_scatter(
    problem: Problem, x: FloatArray, errors: Uncertainty, scattered: Sequence[_Solved]
) -> Uncertainty:
    """The errors of the unknowns where amounts scatter beyond the instrument."""
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
    low, high = np.clip(x - half, *_bounds(problem)), np.clip(x + half, *_bounds(problem))
    return replace(
        errors,
        covariance=covariance,
        standard_error=np.where(free, error, errors.standard_error),
        lower=np.where(free, low, errors.lower),
        upper=np.where(free, high, errors.upper),
    )


def _bounds(problem: Problem) -> tuple[FloatArray, FloatArray]:
    return problem.box.lower, problem.box.upper


def _fit(problem: Problem, s: _Solved, errors: Uncertainty) -> SpectralFit:
    block, one = s.block, s.one
    first, n = block.members[0].spectra, len(block.species)
    basis = np.eye(one.spectra.shape[1]) if first.basis is None else first.basis
    variance = np.full(one.spectra.shape, np.nan)
    covariance = np.where(np.isfinite(errors.covariance), errors.covariance, 0.0)
    scattered = s.p < SCATTERED
    for pattern in one.patterns:
        unit, columns = pattern.unit, pattern.columns
        shift = np.einsum("pr,rsk->psk", unit @ pattern.basis.T, s.slopes, optimize=True)
        g = np.einsum("psk,sw->pkw", shift, one.spectra[:n, columns], optimize=True)
        own = (unit**2).sum(axis=1)
        part = basis[:, columns] if first.basis is not None else np.eye(len(columns))
        g = np.einsum("pkm,wm->pkw", g, part, optimize=True)
        size = (part**2).sum(axis=1)
        if scattered:
            freedom = max(len(one.error) - pattern.basis.shape[1], 1)
            each = (one.error[:, columns] ** 2).sum(axis=0) / freedom
            size = (part**2) @ each
        total = own[:, None] * size + np.einsum("pkw,kl,plw->pw", g, covariance, g, optimize=True)
        places = columns if first.basis is None else np.arange(len(basis))
        if first.basis is not None and variance.shape[1] != len(basis):
            variance = np.full((len(one.spectra), len(basis)), np.nan)
        variance[np.ix_(pattern.free, places)] = total
    values = (one.spectra @ basis.T) * first.noise
    found = np.sqrt(variance) * first.noise
    found[one.lost] = np.inf
    noise = np.concatenate([
        np.repeat(m.spectra.noise[None], len(m.rows), axis=0) for m in block.members
    ])
    measured = np.vstack([m.spectra.values for m in block.members])
    fitted = measured - one.error * noise
    if first.basis is not None:
        smooth = (block.mixture.data - one.error) @ basis.T
        fitted = smooth * noise
    residual = measured - fitted
    share = 100 * float(np.linalg.norm(residual) / max(np.linalg.norm(measured), 1e-300))
    names = [problem.experiments[m.number].name for m in block.members]
    extra = [f"constant{' in ' + name if len(names) > 1 else ''}" for name in names]
    count = one.spectra.shape[0] - n
    return SpectralFit(
        experiments=tuple(names),
        species=(*block.species, *extra[:count]),
        wavelengths=first.wavelengths,
        values=values,
        errors=found,
        times=np.concatenate([m.spectra.times for m in block.members]),
        owner=np.repeat(np.arange(len(names), dtype=float), [len(m.rows) for m in block.members]),
        residuals=residual,
        unwanted=one.unwanted[0],
        lack_of_fit=share,
        noise=s.noise,
        deviations=_deviations(s),
        probability=s.p,
        is_scattered=scattered,
        rank=max(m.spectra.rank().number for m in block.members),
    )


def _deviations(s: _Solved) -> FloatArray:
    """(n,) standard deviation of the amounts beyond what the instrument explains."""
    n = len(s.block.species)
    inverse = np.linalg.pinv(s.one.spectra[:n])  # (M, n): amounts from spectra
    amounts = s.one.error @ inverse / s.block.weight[:, None]
    freedom = max(len(amounts) - s.one.patterns[0].basis.shape[1], 1)
    instrument = s.noise**2 * (inverse**2).sum(axis=0) * np.mean(s.block.weight**-2.0)
    return np.sqrt(np.maximum((amounts**2).sum(axis=0) / freedom - instrument, 0.0))


def _points(
    problem: Problem, s: _Solved, fit: SpectralFit, trajectories: Sequence[Trajectory]
) -> pd.DataFrame:
    """Amounts unmixed by the pure spectra, of species that are not measured otherwise."""
    n = len(s.block.species)
    inverse = np.linalg.pinv(s.one.spectra[:n])
    scatter = s.one.error @ inverse / s.block.weight[:, None]
    size = np.sqrt((inverse**2).sum(axis=0))
    tables = []
    for k, m in enumerate(s.block.members):
        e = problem.experiments[m.number]
        rows = fit.owner == k
        run = trajectories[m.number].measured[m.rows[:, None], m.outputs]
        for place, i in enumerate(m.species):
            name = s.block.species[i]
            if not e.only_reports(name) or not np.isfinite(fit.errors[i]).any():
                continue
            sigma = size[i] / s.block.weight[rows]
            residual = scatter[rows, i]
            tables.append(
                pd.DataFrame({
                    "experiment": e.name,
                    "name": name,
                    "time": m.spectra.times,
                    "measured": run[:, place] + residual,
                    "fitted": run[:, place],
                    "residual": residual,
                    "sigma": sigma,
                    "unit": problem.unit(name),
                })
            )
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _adequacy(
    solved: Sequence[_Solved], points: pd.DataFrame, errors: Uncertainty
) -> Adequacy | None:
    """The verdict on the spectra: size where sigma was given, and trends over time."""
    reasons, tests = [], {}
    for s in solved:
        if all(m.spectra.sigma is not None for m in s.block.members):
            left = s.block.degrees - int((~errors.held).sum())
            p = float(special.chdtrc(left, s.one.cost + s.block.outside)) if left > 0 else 1.0
            tests["size"] = min(p, tests.get("size", 1.0))
            reasons += [TOO_LARGE.format(p=probability(p))] * (p < ALARM)
    count, least, worst = 0, 1.0, None
    groups = points.groupby(["experiment", "name"], sort=False) if len(points) else ()
    for (_, name), rows in groups:
        for t in all_tests((rows["residual"] / rows["sigma"]).to_numpy()):
            if t.test in TRENDS:
                count += 1
                if t.p < least:
                    least, worst = t.p, MISFIT.format(name=name, says=_lower(t.says), p="{p}")
    if count:
        tests["trend"] = min(1.0, count * least)
        if tests["trend"] < ALARM and worst is not None:
            reasons.append(worst.format(p=probability(tests["trend"])))
    if not tests:
        return None
    p = min(1.0, len(tests) * min(tests.values()))
    return Adequacy(LACK if p < ALARM else ADEQUATE, p, tuple(reasons) if p < ALARM else (), tests)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
