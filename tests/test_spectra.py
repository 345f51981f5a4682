"""Spectra through the public door: fits, errors, structure, preprocessing, refusals."""

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from scipy.optimize import least_squares

import igpe
from igpe.core.arrays import FloatArray
from igpe.dynamics.search.complement import complement
from igpe.dynamics.search.multistart import MultiStart
from igpe.dynamics.shooting.residuals import Residuals
from igpe.estimation.further_searches import searched_for
from igpe.problem.plausibility import warnings_about

pytestmark = pytest.mark.thorough

TRUE = {"k1": 0.9, "k2": 0.3}
WAVELENGTHS = np.linspace(400, 700, 40)
TIMES = np.linspace(0.3, 10, 30)


model = ode(
    {
        "A": lambda m, t: -m.k1 * m.A[t],
        "B": lambda m, t: m.k1 * m.A[t] - m.k2 * m.B[t],
        "C": lambda m, t: m.k2 * m.B[t],
    },
    k1=(0.01, 5),
    k2=(0.01, 5),
)


def amounts(a0: float = 1.0, times: FloatArray = TIMES) -> FloatArray:
    k1, k2 = TRUE.values()
    a = a0 * np.exp(-k1 * times)
    b = a0 * k1 / (k2 - k1) * (np.exp(-k1 * times) - np.exp(-k2 * times))
    return np.column_stack([a, b, a0 - a - b])


def pure() -> FloatArray:
    """(3, n_wavelengths)"""

    def peak(centre: float, width: float) -> FloatArray:
        return np.exp(-0.5 * ((WAVELENGTHS - centre) / width) ** 2)

    return np.array([peak(450, 30) + 0.3 * peak(600, 40), 0.8 * peak(540, 35), peak(620, 30)])


def frame(seed: int = 0, noise: float = 5e-3, a0: float = 1.0, extra: Any = 0.0) -> pd.DataFrame:
    d = amounts(a0) @ pure() + extra
    d = d + np.random.default_rng(seed).normal(0, noise, d.shape)
    return pd.DataFrame(d, index=TIMES, columns=WAVELENGTHS)


def run(spectra: igpe.Spectra, a0: float = 1.0, data: Any = None, **given: Any) -> igpe.Experiment:
    start = {"A": a0, "B": 0.0, "C": 0.0}
    return igpe.Experiment(data, spectra=spectra, start=start, start_time=0.0, **given)


def problem(*runs: igpe.Experiment) -> igpe.Problem:
    return igpe.Problem(model, parameters=["k1", "k2"], experiments=list(runs))


@cache
def fitted(**options: Any) -> igpe.Result:
    return igpe.estimate(problem(run(igpe.Spectra(frame(), **options))), progress=False)


def near(result: igpe.Result, errors: float = 4.0) -> None:
    for p in result.estimates:
        assert abs(p.value - TRUE[p.name]) < errors * p.standard_error < 0.2 * p.value


@pytest.mark.slow
@pytest.mark.parametrize("smooth", [0, 12, 20])
def test_no_start_values_are_needed_and_the_slow_fast_twin_is_told(smooth: int) -> None:
    result = fitted(smooth=smooth) if smooth else fitted()
    near(result)
    (twin,) = result.other_optima
    assert twin.parameters["k1"] == pytest.approx(result.parameters["k2"], rel=1e-4)
    assert twin.parameters["k2"] == pytest.approx(result.parameters["k1"], rel=1e-4)
    assert "With the values of set 2, some pure spectra are negative" in str(result.details)
    assert "With the values of set 1" not in str(result.details)
    assert result.adequacy is not None
    assert not result.adequacy.lacks


@pytest.mark.slow
def test_non_negative_spectra_decide_between_the_twins() -> None:
    result = fitted(nonnegative=True)
    assert not result.other_optima
    near(result)
    assert (result.spectral[0].values >= 0).all()
    assert (result.spectral[0].values == 0).any()


def test_intervals_of_non_negative_spectra_are_those_without_the_biasing_sign() -> None:
    """They are centred at the optimum with free signs, and reach as far as the estimate."""
    signed, free = fitted(nonnegative=True), fitted()
    k1, k2 = free.estimates
    if k1.value < k2.value:  # the twin
        k1, k2 = free.other_optima[0].estimates
    for one, other in zip(signed.estimates, (k1, k2), strict=True):
        assert abs(one.value - other.value) > 0.1 * other.standard_error
        assert one.standard_error == pytest.approx(other.standard_error, rel=1e-3)
        half = 1e-3 * other.standard_error
        assert one.lower == pytest.approx(min(other.lower, one.value), abs=half)
        assert one.upper == pytest.approx(max(other.upper, one.value), abs=half)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_the_cost_of_spectra_where_no_unknown_is_free(nonnegative: bool) -> None:
    one = problem(run(igpe.Spectra(frame(), nonnegative=nonnegative)))
    there = igpe.SingleShooting().estimate(one.fixing(TRUE), {})
    best = igpe.SingleShooting().estimate(one, TRUE)
    assert 0 < there.objective - best.objective < 30


def test_a_known_spectrum_decides_between_the_twins() -> None:
    shown = pd.Series(pure()[1], index=WAVELENGTHS)
    one = problem(run(igpe.Spectra(frame(), pure={"B": shown})))
    result = igpe.estimate(one, progress=False)
    assert not result.other_optima
    near(result)
    assert result.spectra["B"]["value"].to_numpy() == pytest.approx(pure()[1])
    assert np.isnan(result.spectra["B"]["standard_error"]).all()
    assert igpe.check(one)["k1"].values == 1


@pytest.mark.slow
def test_the_optimum_and_the_covariance_are_those_of_the_full_problem() -> None:
    """Rate constants and all 120 numbers of the spectra at once, by SciPy."""
    spectra = igpe.Spectra(frame(), sigma=5e-3)
    result = igpe.estimate(problem(run(spectra)), progress=False)
    d = frame().to_numpy()

    def residual(x: FloatArray) -> FloatArray:
        k1, k2 = x[:2]
        a = np.exp(-k1 * TIMES)
        b = k1 / (k2 - k1) * (a - np.exp(-k2 * TIMES))
        c = np.column_stack([a, b, 1 - a - b])
        return np.asarray((c @ x[2:].reshape(3, -1) - d) / 5e-3).ravel()

    fit = least_squares(residual, [*TRUE.values(), *pure().ravel()], xtol=1e-14, ftol=1e-14)
    assert result.objective == pytest.approx(2 * fit.cost, rel=1e-8)
    assert list(result.parameters.values()) == pytest.approx(fit.x[:2], rel=1e-6)
    covariance = np.linalg.inv(fit.jac.T @ fit.jac)
    assert result.covariance == pytest.approx(covariance[:2, :2], rel=1e-3)
    errors = np.sqrt(np.diag(covariance))[2:].reshape(3, -1)
    assert result.spectral[0].values == pytest.approx(fit.x[2:].reshape(3, -1), abs=1e-5)
    assert result.spectral[0].errors == pytest.approx(errors, rel=1e-2)
    assert result.degrees == d.size - 3 * 40 - 2


def test_the_gradient_of_a_problem_is_that_of_its_cost() -> None:
    table = pd.DataFrame({"time": [1.5, 4.1], "C": [0.2, 0.6]})
    one = run(igpe.Spectra(frame(), species=["A", "B"], nonnegative=True), data=table, sigma=0.01)
    other = run(igpe.Spectra(frame(1, a0=2.0), species=["A", "C"], nonnegative=True), 2.0)
    residuals = Residuals(problem(one, other), igpe.integrators.Sundials(1e-11, 1e-13))
    x = np.array([1.1, 0.25])
    at = residuals(x)
    assert at is not None
    step, differences = 1e-5, []
    for e in np.eye(2):
        ends = [residuals(x + s * step * e) for s in (1, -1)]
        differences.append((ends[0].cost - ends[1].cost) / (2 * step))
    assert 2 * at.jacobian.T @ at.residual == pytest.approx(differences, rel=1e-4)


@pytest.mark.slow
def test_experiments_share_spectra_or_do_not() -> None:
    first, second = frame(), frame(1, a0=2.0)
    shared = igpe.estimate(
        problem(run(igpe.Spectra(first)), run(igpe.Spectra(second), 2.0)), progress=False
    )
    near(shared)
    assert [f.experiments for f in shared.spectral] == [("1", "2")]
    labels = [ax.get_ylabel() for ax in shared.plot_spectra()]
    assert labels == ["pure spectrum (1 and 2)", "time (1)", "time (2)"]
    own = igpe.estimate(
        problem(
            run(igpe.Spectra(first, shared=False)),
            run(igpe.Spectra(2 * second, shared=False), 2.0),
        ),
        progress=False,
    )
    near(own)
    assert [f.experiments for f in own.spectral] == [("1",), ("2",)]
    ratio = own.spectral[1].values[0].max() / own.spectral[0].values[0].max()
    assert ratio == pytest.approx(2.0, rel=0.05)
    assert own.spectra.index.names == ["experiments", "wavelength"]


@pytest.mark.slow
def test_unwanted_contributions_are_taken_out() -> None:
    drift = np.linspace(0, 1, 40)
    constant = igpe.Spectra(frame(extra=drift), species=["A", "B"], unwanted="constant")
    truth = amounts()[:, :2] @ pure()[:2] + drift
    noisy = truth + np.random.default_rng(0).normal(0, 5e-3, truth.shape)
    constant = constant.with_values(noisy)
    result = igpe.estimate(problem(run(constant)), progress=False)
    near(result)
    assert result.spectra["constant"]["value"].to_numpy() == pytest.approx(drift, abs=0.05)
    varying = np.outer(np.sin(TIMES), drift)
    one = igpe.Spectra(frame(extra=varying), unwanted=1)
    found = igpe.estimate(problem(run(one)), progress=False)
    best = min(
        (found.parameters, *(o.parameters for o in found.other_optima)),
        key=lambda p: abs(p["k1"] - TRUE["k1"]),
    )
    assert best["k1"] == pytest.approx(TRUE["k1"], rel=0.1)
    ignored = igpe.estimate(problem(run(igpe.Spectra(frame(extra=varying)))), progress=False)
    assert ignored.adequacy is not None
    assert ignored.adequacy.lacks


def test_smooth_spectra_are_splines_with_smaller_errors() -> None:
    smooth, free = fitted(smooth=20).spectral[0], fitted().spectral[0]
    assert np.abs(smooth.values - pure()).max() < 0.1
    assert np.median(smooth.errors[2]) < 0.85 * np.median(free.errors[2])
    rough = np.abs(np.diff(free.values[2], 3)).mean()
    assert np.abs(np.diff(smooth.values[2], 3)).mean() < rough


def test_concentrations_at_other_times_count_too() -> None:
    times = np.array([0.7, 2.2, 5.3, 8.8])
    b = amounts(times=times)[:, 1] + np.random.default_rng(2).normal(0, 0.01, 4)
    table = pd.DataFrame({"time": times, "B": b})
    d = amounts()[:, ::2] @ pure()[::2] + np.random.default_rng(3).normal(0, 5e-3, (30, 40))
    absorbing = igpe.Spectra(frame(), species=["A", "C"]).with_values(d)
    one = run(absorbing, data=table, sigma=0.01)
    result = igpe.estimate(problem(one), progress=False)
    near(result)
    assert not result.other_optima
    assert set(result.points["name"]) == {"A", "B", "C"}
    assert result.degrees == 4 + 30 * 40 - 2 * 40 - 2


def test_check_names_the_slow_fast_ambiguity() -> None:
    said = str(igpe.check(problem(run(igpe.Spectra(frame())))))
    assert "k1 and k2 have up to 2 sets of values" in said
    assert "slow-fast ambiguity" in said
    assert "igpe_" not in said


def test_rank_counts_what_is_above_the_noise() -> None:
    assert igpe.Spectra(frame()).rank().number == 3
    assert igpe.Spectra(frame(), sigma=5e-3).rank().number == 3
    noise = np.random.default_rng(0).normal(0, 1, (30, 40))
    none = pd.DataFrame(noise, index=TIMES, columns=WAVELENGTHS)
    assert igpe.Spectra(none).rank().number == 0
    assert igpe.Spectra(frame()).rank().noise == pytest.approx(5e-3, rel=0.1)
    factors = igpe.Spectra(frame()).evolving_factors(4)
    assert factors["forward", 1].is_monotonic_increasing
    assert factors["backward", 1].is_monotonic_decreasing


def test_a_missing_species_is_a_lack_of_fit() -> None:
    result = igpe.estimate(
        problem(run(igpe.Spectra(frame(), species=["A", "C"], sigma=5e-3))), progress=False
    )
    assert result.adequacy is not None
    assert result.adequacy.lacks
    assert result.probability < 1e-6


def test_amounts_that_scatter_widen_the_errors() -> None:
    random = np.random.default_rng(5)
    scattered = amounts() + random.normal(0, 5e-3, (30, 3))
    d = scattered @ pure() + random.normal(0, 1e-3, (30, 40))
    table = pd.DataFrame(d, index=TIMES, columns=WAVELENGTHS)
    result = igpe.estimate(problem(run(igpe.Spectra(table))), progress=False)
    (fit,) = result.spectral
    assert fit.is_scattered
    assert fit.noise * igpe.Spectra(table, species=["A", "B", "C"]).noise[0] == pytest.approx(
        1e-3, rel=0.1
    )
    assert fit.deviations == pytest.approx([5e-3] * 3, rel=0.35)
    near(result)
    linear = igpe.SingleShooting().prepare(problem(run(igpe.Spectra(table)))).fit(result.parameters)
    assert linear.at is not None
    calm = np.sqrt(np.linalg.inv(linear.at.jacobian.T @ linear.at.jacobian)[0, 0])
    assert result.estimates[0].standard_error > 2 * calm


@pytest.mark.slow
def test_preprocessing() -> None:
    s = igpe.Spectra(frame(), species=["A", "B", "C"])
    assert len(s.select((450, 500), (600, 650)).wavelengths) < 20
    few = s.select(count=10)
    assert len(few.wavelengths) == 10
    near(igpe.estimate(problem(run(few)), progress=False))
    offset = np.random.default_rng(0).normal(0, 1, (30, 1))
    corrected = s.with_values(s.values + offset).baseline((690, 700)).values
    assert np.abs(corrected - s.values).max() < 0.05
    scale = 1 + 0.1 * np.random.default_rng(1).normal(0, 1, (30, 1))
    shape = np.outer(np.ones(30), pure()[0])
    scattered = s.with_values(shape * scale + 0.3 * offset)
    for method in ("msc", "snv"):
        assert np.ptp(scattered.scatter_corrected(method).values, axis=0).max() < 1e-9
    smooth = s.savitzky_golay(7, 3)
    assert np.abs(smooth.values - amounts() @ pure()).mean() < 0.004
    near(igpe.estimate(problem(run(smooth)), progress=False), 5.0)
    assert not s.savitzky_golay(7, 3, derivative=1).nonnegative


def test_known_spectra_are_preprocessed_like_the_measured_ones() -> None:
    """Sums of the known spectra before and after."""
    table = pd.DataFrame(amounts() @ pure(), index=TIMES, columns=WAVELENGTHS)
    s = igpe.Spectra(table, species=["A", "B", "C"], pure=dict(zip("ABC", pure(), strict=True)))
    for changed in (s.savitzky_golay(7, 3, derivative=1), s.baseline((400, 450), order=1)):
        known = np.array([changed.pure[n] for n in "ABC"])
        assert changed.values == pytest.approx(amounts() @ known, abs=1e-12)
        assert np.abs(changed.values - s.values).max() > 0.01


def test_spectra_whose_rows_are_wavelengths_are_named() -> None:
    asked = [problem(run(igpe.Spectra(f))) for f in (frame(), frame().T)]
    said = [" ".join(warnings_about(one)) for one in asked]
    assert "transpose" not in said[0]
    assert "transpose the table" in said[1]


def test_a_result_is_kept_shown_and_profiled(tmp_path: Any) -> None:
    result = fitted()
    again = igpe.Result.from_json(result.to_json())
    pd.testing.assert_frame_equal(again.spectra, result.spectra)
    assert len(result.plot_spectra()) == 2
    assert "k1" in result.report()
    one = problem(run(igpe.Spectra(frame())))
    profiles = igpe.profile(one, result, progress=False)
    for p, linear in zip(profiles.profiles, result.estimates, strict=True):
        assert (p.lower, p.upper) == pytest.approx((linear.lower, linear.upper), rel=1e-2)


REFUSED = {
    "certify": igpe.certify,
    "bootstrap": igpe.bootstrap,
    "sample": igpe.uncertainty.sample,
    "collocation": lambda p, r: igpe.Collocation().estimate(p, r.parameters),
    "multiple shooting": lambda p, r: igpe.MultipleShooting().estimate(p, r.parameters),
    "incremental": lambda p, r: igpe.IncrementalShooting().estimate(p, r.parameters),
    "petab": lambda p, r: igpe.petab.to_petab(p, "nowhere"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_knows_no_spectra_says_so(name: str) -> None:
    one = problem(run(igpe.Spectra(frame())))
    with pytest.raises(igpe.errors.Unsupported, match="does not support spectra"):
        REFUSED[name](one, fitted())


def bad(**options: Any) -> Any:
    return lambda: igpe.Spectra(frame(), **options)


holes = frame()
holes.iloc[3, 4] = np.nan
rowless = frame().T.assign(hole=np.nan).T.set_axis([*TIMES, 99.0])
numbered = frame().reset_index(drop=True)
dated = frame().set_axis(pd.Timestamp("2024-01-01") + pd.to_timedelta(TIMES, unit="min"))
MISTAKES = {
    "no numbers": (lambda: igpe.Spectra(holes), r"wavelengths \[.*axis='columns'"),
    "a row of none": (lambda: igpe.Spectra(rowless), r"times \['99'\].*axis='index'"),
    "row numbers for times": (lambda: igpe.Spectra(numbered), "set_axis"),
    "dates": (lambda: igpe.Spectra(dated), "total_seconds"),
    "wavelengths": (lambda: igpe.Spectra(frame().assign(x=1.0)), "wavelengths"),
    "sigma": (bad(sigma=-1.0), "one positive number"),
    "species": (bad(species="A"), r"species=\['A', 'B'\]"),
    "pure": (bad(pure={"A": [1.0, 2.0]}), "40 numbers"),
    "smooth and signs": (bad(smooth=10, nonnegative=True), "nonnegative=False"),
    "unwanted": (bad(unwanted="drift"), "'constant'"),
    "no such species": (
        lambda: problem(run(igpe.Spectra(frame(), species=["A", "Q"]))),
        "no time-dependent quantities",
    ),
    "no table": (lambda: igpe.Experiment(start={"A": 1.0}), "has no measurements"),
    "no sigma": (
        lambda: run(igpe.Spectra(frame()), data=pd.DataFrame({"time": [1.0, 2], "C": [0.1, 0.2]})),
        "sigma=...",
    ),
    "too few": (lambda: igpe.Spectra(frame().iloc[:2]), "at least 3"),
    "ranges": (lambda: igpe.Spectra(frame()).select((800, 900)), "remain; at least"),
    "window": (lambda: igpe.Spectra(frame()).savitzky_golay(3, 5), "odd window"),
    "flat": (lambda: igpe.Spectra(frame()).baseline(), "where nothing absorbs"),
    "scaled": (
        lambda: igpe.Spectra(frame(), pure={"B": pure()[1]}).scatter_corrected(),
        "not sums of the known spectra of B",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_answered(name: str) -> None:
    make, said = MISTAKES[name]
    with pytest.raises(igpe.errors.DataError, match=said):
        make()


def test_arrays_have_the_order_of_the_columns() -> None:
    falling = frame().iloc[:, ::-1]
    one = igpe.Spectra(falling, sigma=range(1, 41), species=["B"], pure={"B": pure()[1][::-1]})
    assert one.sigma.tolist() == [*range(40, 0, -1)]
    assert one.pure["B"] == pytest.approx(pure()[1])
    shown = pd.Series(range(1, 41), index=falling.columns.astype(str))
    assert igpe.Spectra(falling, sigma=shown).sigma.tolist() == [*range(40, 0, -1)]


def equilibrium() -> igpe.Problem:
    """A <-> B with 0.6 and 0.3, of which spectra determine the sum alone."""
    reactor = igpe.kinetics.Batch(["A <-> B"], bounds={"k1f": (0.01, 10), "k1r": (0.01, 10)})
    a = (1 + 2 * np.exp(-0.9 * TIMES)) / 3
    d = np.column_stack([a, 1 - a]) @ pure()[:2]
    d = d + np.random.default_rng(2).normal(0, 5e-3, d.shape)
    spectra = igpe.Spectra(pd.DataFrame(d, index=TIMES, columns=WAVELENGTHS))
    one = igpe.Experiment(spectra=spectra, start={"A": 1.0, "B": 0.0}, start_time=0.0)
    return igpe.Problem(reactor, parameters=reactor.parameters, experiments=one)


@pytest.mark.slow
def test_what_spectra_determine_of_two_rate_constants_is_their_sum() -> None:
    assert "the data can determine only k1f + k1r" in str(igpe.check(equilibrium()))
    result = igpe.estimate(equilibrium(), progress=False)
    assert "k1f and k1r only as k1f + k1r" in str(result)
    assert sum(result.parameters.values()) == pytest.approx(0.9, rel=0.02)
    assert {p.remark for p in result.estimates} == {"not determined by the data"}


@pytest.mark.slow
def test_spectra_of_dependent_amounts_are_told_and_the_fit_is_judged() -> None:
    """A + B -> C: two contributions, three spectra."""
    reactor = igpe.kinetics.Batch(["A + B -> C"], bounds={"k1": (0.001, 100)})
    c = 1.3 * np.expm1(0.3 * 2 * TIMES) / (1.3 * np.exp(0.3 * 2 * TIMES) - 1)
    for wrong, words in ((0.0, "consistent with noise"), (0.1, "A combination of A, B and C")):
        d = np.column_stack([1 - c, 1.3 - c, c + wrong * np.sin(TIMES)]) @ pure()
        d = d + np.random.default_rng(0).normal(0, 5e-3, d.shape)
        spectra = igpe.Spectra(pd.DataFrame(d, index=TIMES, columns=WAVELENGTHS))
        one = igpe.Experiment(spectra=spectra, start={"A": 1, "B": 1.3, "C": 0}, start_time=0.0)
        result = igpe.estimate(
            igpe.Problem(reactor, parameters=["k1"], experiments=one), progress=False
        )
        assert words in str(result)
        assert result.spectral[0].lost == ("A", "B", "C")
        assert "linearly dependent" in " ".join(result.notes)
        if not wrong:
            near_k1 = result.estimates[0]
            assert abs(near_k1.value - 2) < 4 * near_k1.standard_error


def rival(*reactions: str) -> igpe.Problem:
    bounds = {f"k{i}": (0.01, 10) for i in range(1, len(reactions) + 1)}
    reactor = igpe.kinetics.Batch(list(reactions), bounds=bounds)
    runs = [run(igpe.Spectra(frame(k, a0=a0)), a0=a0) for k, a0 in enumerate((1.0, 2.0))]
    return igpe.Problem(reactor, parameters=reactor.parameters, experiments=runs)


@pytest.mark.slow
def test_rivals_with_spectra_are_ranked_by_what_their_pure_spectra_leave() -> None:
    """Parallel reactions have two contributions, so they have fewer unknowns, but do not fit."""
    problems = {"series": rival("A -> B", "B -> C"), "parallel": rival("A -> B", "A -> C")}
    problems["both"] = rival("A -> B", "B -> C", "A -> C")
    made = igpe.rivals(problems, seed=0, progress=False)
    assert [*made.table.index] == ["series", "both", "parallel"]
    assert made.table["unknowns"].tolist() == [2 + 120 + 2, 3 + 120 + 2, 2 + 80 + 2]
    assert made.table["p"]["series"] > 0.05
    assert made.table["p"]["parallel"] < 1e-6
    assert made.results["parallel"].degrees == 2 * 40 * len(TIMES) - 80 - 1
    other = igpe.Spectra(frame(5))
    strange = problems["series"].of_experiments([problems["series"].experiments[0].name])
    with pytest.raises(igpe.errors.DataError, match="different measurements"):
        igpe.rivals({"one": strange, "other": problem(run(other))}, progress=False)


def test_spectra_that_cannot_be_shared_are_refused() -> None:
    other = igpe.Spectra(frame().iloc[:, ::2])
    with pytest.raises(igpe.errors.ProblemError, match="shared=False"):
        igpe.estimate(problem(run(igpe.Spectra(frame())), run(other)), progress=False)


STEPS = [
    ("k1", {"AH": 1, "B": 1}, {"Am": 1, "BH": 1}),
    ("k2", {"Am": 1, "C": 1}, {"ACm": 1}),
    ("k3", {"ACm": 1}, {"Am": 1, "C": 1}),
    ("k4", {"ACm": 1, "AH": 1}, {"Am": 1, "P": 1}),
    ("k5", {"ACm": 1, "BH": 1}, {"P": 1, "B": 1}),
]
RATES = {"k1": 49.7796, "k2": 8.93156, "k3": 1.31765, "k4": 0.31087, "k5": 3.87809}
START = {"AH": 0.395555, "B": 0.0351202, "C": 0.3, "Am": 0.0, "BH": 0.0, "ACm": 0.0, "P": 0.0}


def michael(times: Any) -> Any:
    m = over_time(times, " ".join(START), **dict.fromkeys(RATES, (0.05, 200)))
    change = {name: [] for name in START}
    for k, used, made in STEPS:
        for name, sign in [*((n, -1) for n in used), *((n, 1) for n in made)]:
            change[name].append((sign, k, tuple(used)))

    def slope(m: Any, t: float, name: str) -> Any:
        terms = [
            sign * m.component(k) * np.prod([m.component(n)[t] for n in used])
            for sign, k, used in change[name]
        ]
        return m.component(f"d{name}")[t] == sum(terms)

    for name in START:
        rule = pyo.Constraint(m.t, rule=lambda m, t, name=name: slope(m, t, name))
        m.add_component(f"balance_{name}", rule)
    return m


def michael_problem() -> igpe.Problem:
    times, absorbing = np.linspace(0, 20, 76)[1:], ["AH", "Am", "ACm", "P"]
    plan = pd.DataFrame({"time": times, **{n: 0.0 for n in absorbing}})
    there = igpe.Experiment(plan, start=START, start_time=0.0, sigma=1.0)
    known = igpe.Problem(michael, parameters=list(RATES), experiments=[there])
    c = igpe.simulate(known, RATES, times)[absorbing].to_numpy()
    centres = np.array([[430.0], [510.0], [570.0], [650.0]])
    d = c @ np.exp(-0.5 * ((WAVELENGTHS - centres) / 25) ** 2)
    d = d + np.random.default_rng(0).normal(0, 5e-4 * d.max(), d.shape)
    spectra = igpe.Spectra(pd.DataFrame(d, index=times, columns=WAVELENGTHS), species=absorbing)
    one = igpe.Experiment(spectra=spectra, start=START, start_time=0.0)
    return igpe.Problem(michael, parameters=list(RATES), experiments=[one])


@pytest.mark.slow
def test_step_4_meets_what_the_best_of_random_points_do_not() -> None:
    posed = searched_for(michael_problem())
    best = igpe.SingleShooting().estimate(posed, RATES)
    met = complement(posed, {}, MultiStart())
    assert met.objective == pytest.approx(best.objective, rel=1e-6)
