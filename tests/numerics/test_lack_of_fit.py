"""The combined test of residuals: right level at small samples, power, and what it looks at."""

import numpy as np
import pytest

from igpe.numerics.lack_of_fit import FitResiduals, growing_quantities, lack_of_fit

CASES = 120
TIMES = np.linspace(0.25, 3.0, 12)


def residuals(random, *, known=True, wrong=None, proportional=False, scales=(1.0, 1.0), copies=1):
    """Of a straight line through two quantities of two runs, with errors of unequal size.

    wrong  (run, times) -> what the line misses, in standard deviations
    """
    times = np.repeat(TIMES[::copies], copies)
    count = len(times)
    series = np.repeat(np.arange(4), count)
    quantity, time = series % 2, np.tile(times, 4)
    fitted = 10 * np.exp(-time)
    spread = np.array(scales)[quantity] * (fitted / 10 if proportional else 1.0)
    error = random.standard_normal(4 * count)
    if wrong is not None:
        error += np.concatenate([wrong(run, times) for run in (0, 0, 1, 1)])
    design = np.column_stack([quantity == 0, quantity == 1, time * (quantity == 0), time]) * 1.0
    weight = 1 / spread if known else np.ones(4 * count)
    image = np.linalg.qr(design * weight[:, None])[0]
    value = spread * error * weight
    value -= image @ (image.T @ value)
    return FitResiduals(value, image, series, quantity, time, np.abs(fitted) * weight, known)


def within(p, level):
    """Whether as many are below the level as chance allows (99.9 %)."""
    share, spread = np.mean(p <= level), np.sqrt(level * (1 - level) / len(p))
    return share <= level + 3.1 * spread


@pytest.mark.slow
@pytest.mark.parametrize(
    "how",
    [
        {"known": True},
        {"known": False, "scales": (1.0, 30.0)},
        {"known": False, "proportional": True},
        {"known": False, "copies": 2},
    ],
    ids=["sigma known", "unequal scales", "proportional", "replicates"],
)
def test_right_models_are_rejected_as_rarely_as_they_should(how):
    random = np.random.default_rng(11)
    p = np.array([lack_of_fit(residuals(random, **how), seed=k).p for k in range(CASES)])
    assert within(p, 0.01)
    assert within(p, 0.05)
    assert np.mean(p) < 0.7  # nor much more rarely


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        (lambda run, t: 3.0 * np.sin(2 * t), "trend"),
        (lambda run, t: 1.2 * (run - 0.5) * np.ones_like(t) * 2, "trend"),
        (lambda run, t: 4.0 * run * np.sin(2 * t), "series"),
    ],
    ids=["waves", "runs disagree", "one run alone"],
)
def test_wrong_models_are_found(known, wrong, kind):
    random = np.random.default_rng(12)
    found = [lack_of_fit(residuals(random, known=known, wrong=wrong)) for _ in range(20)]
    assert np.mean([e.p <= 0.05 for e in found]) >= 0.9
    assert np.mean([e.kinds[kind] <= 0.05 for e in found]) >= 0.9


def test_what_no_smooth_curve_explains_is_found_by_replicates_and_by_sigma():
    """Every other time is off by three standard deviations."""
    random = np.random.default_rng(13)

    def jagged(run, times):
        return 3.0 * (-1.0) ** np.unique(times, return_inverse=True)[1]

    alone = lack_of_fit(residuals(random, known=False, wrong=jagged))
    assert alone.p > 0.05
    repeated = lack_of_fit(residuals(random, known=False, wrong=jagged, copies=2))
    assert repeated.kinds["replicates"] <= 0.01
    assert lack_of_fit(residuals(random, known=True, wrong=jagged)).kinds["size"] <= 0.01


def test_replicates_that_are_copies_say_nothing_of_errors():
    """Division by their scatter of 0 must not overflow either: warnings are errors here."""
    given = residuals(np.random.default_rng(14), known=False, copies=2)
    copied = given._replace(value=np.repeat(given.value[::2], 2))
    assert "replicates" in lack_of_fit(given).kinds
    assert "replicates" not in lack_of_fit(copied).kinds


def test_copies_in_some_series_do_not_add_to_the_scatter_of_the_others():
    """One series of a quantity is copied, and its other one has few replicates."""
    given = residuals(np.random.default_rng(14), known=False, copies=2)
    value = np.where(given.series == 3, given.value, np.repeat(given.value[::2], 2))
    apart = given._replace(value=value, quantity=given.series)
    together = apart._replace(quantity=np.where(given.series == 3, 1, given.quantity))
    found = [lack_of_fit(one).kinds["replicates"] for one in (apart, together)]
    assert found[0] == pytest.approx(found[1], abs=0.1)


def test_the_odd_series_and_the_sign_of_its_mean_are_told():
    random = np.random.default_rng(14)
    found = lack_of_fit(
        residuals(random, wrong=lambda run, t: (2.0 if run else -2.0) * np.ones_like(t))
    )
    assert found.mean[:2].max() < -3
    assert found.mean[2:].min() > 3
    only = lack_of_fit(residuals(random, wrong=lambda run, t: 3.0 * run * np.sin(4 * t)))
    assert only.series[2:].max() < 0.01


def test_the_same_seed_gives_the_same_probability():
    one = residuals(np.random.default_rng(15))
    assert lack_of_fit(one, seed=3).p == lack_of_fit(one, seed=3).p


def test_two_measurements_of_unknown_sigma_show_nothing():
    value, at = np.array([0.5, -0.5]), np.zeros(2, dtype=np.intp)
    one = FitResiduals(value, np.full((2, 1), 0.5**0.5), at, at, np.array([1.0, 2.0]), value, False)
    assert lack_of_fit(one) is None


def test_many_residuals_are_simulated_in_blocks(monkeypatch):
    one = residuals(np.random.default_rng(16))
    whole = lack_of_fit(one)
    monkeypatch.setattr("igpe.numerics.lack_of_fit.BLOCK", 48 * 100)
    parts = lack_of_fit(one)
    assert parts.p == pytest.approx(whole.p, abs=0.05)  # other random numbers
    assert parts.mean == pytest.approx(whole.mean, rel=0.1)
    monkeypatch.setattr("igpe.numerics.lack_of_fit.MOST_NUMBERS", 1)
    assert lack_of_fit(one).p == pytest.approx(whole.p, abs=0.08)


def test_errors_that_grow_with_the_fitted_values_are_found():
    random = np.random.default_rng(4)
    grow = [
        len(growing_quantities(residuals(random, known=False, proportional=True)))
        for _ in range(10)
    ]
    assert np.mean(grow) >= 1.0  # of two quantities


def test_neither_constant_errors_nor_an_outlier_are_growing_errors():
    random = np.random.default_rng(5)
    assert not any(growing_quantities(residuals(random, known=False)) for _ in range(20))
    off = residuals(random, known=False)
    off.value[np.flatnonzero(off.time == TIMES[0])[0]] += 10.0
    assert not growing_quantities(off)
