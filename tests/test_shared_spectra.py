"""Experiments that share pure spectra, but differ in species, known spectra and noise."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

import igpe
from igpe.dynamics.shooting.residuals import Residuals

WAVELENGTHS, TIMES = np.linspace(300, 600, 24), np.linspace(0.2, 8, 20)
TRUE = {"k1": 0.9, "k2": 0.3}
CENTRES = {"A": 350, "B": 430, "C": 510}
PURE = {n: np.exp(-0.5 * ((WAVELENGTHS - c) / 40) ** 2) for n, c in CENTRES.items()}
BATCH = igpe.kinetics.Batch(["A -> B", "B -> C"], bounds={"k1": (0.01, 5), "k2": (0.01, 5)})


def amounts(a0: float, b0: float) -> dict[str, Any]:
    k1, k2 = TRUE.values()
    a = a0 * np.exp(-k1 * TIMES)
    b = b0 * np.exp(-k2 * TIMES) + a0 * k1 / (k2 - k1) * (np.exp(-k1 * TIMES) - np.exp(-k2 * TIMES))
    return {"A": a, "B": b, "C": a0 + b0 - a - b}


def problem(
    species: tuple[str, str],
    known: tuple[str, str] = ("", ""),
    noise: tuple[float, float] = (5e-3, 5e-3),
    **options: Any,
) -> igpe.Problem:
    random, runs = np.random.default_rng(0), []
    starts = ((1.0, 0.0), (0.2, 1.0))
    for absorbing, given, level, (a0, b0) in zip(species, known, noise, starts, strict=True):
        c = amounts(a0, b0)
        d = sum(np.outer(c[n], PURE[n]) for n in absorbing)
        frame = pd.DataFrame(
            d + level * random.standard_normal(d.shape), index=TIMES, columns=WAVELENGTHS
        )
        pure = {n: PURE[n] for n in given}
        spectra = igpe.Spectra(frame, species=[*absorbing], pure=pure, **options)
        start = {"A": a0, "B": b0, "C": 0.0}
        runs.append(igpe.Experiment(spectra=spectra, start=start, start_time=0.0))
    return igpe.Problem(BATCH, parameters=[*TRUE], experiments=runs)


CASES = {
    "one species more in the second": (("AB", "CBA"), ("", ""), (5e-3, 5e-3)),
    "known in both, noise differs": (("ABC", "ABC"), ("A", "A"), (5e-3, 2e-2)),
    "known in one": (("ABC", "ABC"), ("", "C"), (5e-3, 5e-3)),
    "all known": (("AB", "AB"), ("AB", "AB"), (5e-3, 5e-3)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_compressed_spectra_have_the_objective_of_the_spectra(case: Any) -> None:
    one = problem(*case)
    costs = []
    for p in (one, one.compressed()):
        residuals = Residuals(p, igpe.integrators.Sundials(1e-9, 1e-11))
        every = [residuals(np.array(x)) for x in ([0.9, 0.3], [0.3, 0.9], [2.0, 0.5])]
        costs.append([at.cost for at in every if at is not None])
    full, few = (np.diff(c) for c in costs)
    assert few == pytest.approx(full, rel=0.02, abs=2.0)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_such_problems_are_checked_and_fitted(case: Any) -> None:
    one = problem(*case)
    assert "globally identifiable" in str(igpe.check(one))
    result = igpe.estimate(one, progress=False, certify=False)
    for p in result.estimates:
        assert abs(p.value - TRUE[p.name]) < 4 * p.standard_error


def test_contributions_are_counted_in_all_experiments_together() -> None:
    """Each alone has two: A and B. Together there are three."""
    result = igpe.estimate(problem(("AB", "BC")), progress=False, certify=False)
    assert result.spectral[0].rank == 3


@pytest.mark.slow
def test_experiments_with_spectra_join_concentrations_and_uncertain_starts() -> None:
    """Structure and fit, where only the concentrations have standard deviations."""
    one = problem(("AB", "AB"))
    start = {"A": igpe.losses.NormalPrior(0.5, 0.02), "B": 0.0, "C": 0.0}
    data = pd.DataFrame({"time": TIMES, "C": amounts(0.5, 0.0)["C"]})
    run = igpe.Experiment(data, name="C", start=start, start_time=0.0, sigma=0.01)
    both = igpe.Problem(BATCH, parameters=[*TRUE], experiments=[*one.experiments, run])
    assert "globally identifiable" in str(igpe.check(both))
    result = igpe.estimate(both, progress=False, certify=False)
    for p in result.estimates[:2]:
        assert abs(p.value - TRUE[p.name]) < 4 * p.standard_error
