"""The bootstrap: right spread, the same numbers whatever the order, and nothing done twice."""

import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import count

import methanol
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from michaelis_menten import DECAY_TRUTH, decay
from scipy import stats
from small_problems import PRODUCT_NEAR, TIMES, line, lines, product

import igpe
from igpe.core.errors import DataError, ProblemError, Unsupported
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.uncertainty.bootstrap import (
    Bootstrapped,
    ParametricBootstrap,
    ResidualBootstrap,
    bootstrap,
    likelihood,
)
from igpe.uncertainty.profile import profile

module = sys.modules["igpe.uncertainty.bootstrap"]
NEAR_LINE = {"k": 0.7, "A(t0)": 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.2, None])
def test_of_a_line_the_spread_is_the_textbooks(sigma):
    found = bootstrap(line(sigma), NEAR_LINE, replications=2000)
    y = line(sigma).experiments[0].measurements.value
    fit = stats.linregress(TIMES, y)
    error = fit.stderr if sigma is None else sigma / (np.std(TIMES) * np.sqrt(10))
    table = found.to_frame()
    assert table.loc["k", "standard_error"] == pytest.approx(error, rel=0.06)
    assert abs(table.loc["k", "bias"]) < 4 * error / np.sqrt(2000)
    if sigma:  # where it is unknown, it is drawn as well, and taken out again
        mean = found.parameters["k"].mean()
        assert table.loc["k", "bias"] == pytest.approx(mean - found.estimate["k"])
    quantile = 1.96 if sigma else stats.t.ppf(0.975, len(y) - 2)
    assert table.loc["k", "upper"] - fit.slope == pytest.approx(quantile * error, rel=0.1)
    design = np.column_stack([TIMES, np.ones(10)])
    v = np.linalg.inv(design.T @ design)
    wanted = v[0, 1] / np.sqrt(v[0, 0] * v[1, 1])
    assert found.correlation.loc["k", "A(t0)"] == pytest.approx(wanted, abs=0.02)


@pytest.mark.slow
def test_residuals_give_the_same_spread_though_sigma_is_wrong():
    """A sigma ten times too large rules parametric errors; residuals know better."""
    problem = line(2.0)
    drawn = bootstrap(problem, NEAR_LINE, ResidualBootstrap(), 1000).to_frame()
    normal = bootstrap(problem, NEAR_LINE, ParametricBootstrap(), 1000).to_frame()
    fit = stats.linregress(TIMES, problem.experiments[0].measurements.value)
    # centred within 10 residuals, the pool's variance is (n - 1) / n of the errors'
    assert drawn.loc["k", "standard_error"] == pytest.approx(fit.stderr, rel=0.15)
    assert normal.loc["k", "standard_error"] > 5 * fit.stderr


def test_columns_keep_their_own_residuals():
    """Two columns with very different errors: none of one is drawn for the other."""
    run = methanol.problem().experiments[0]
    base = likelihood(methanol.problem(), methanol.OPTIMUM, igpe.SingleShooting(), "test")
    pool = ResidualBootstrap()._pool(base)
    errors = ResidualBootstrap().draw(base)(np.random.default_rng(1))
    for k in range(len(run.measured)):
        mine = run.measurements.column == k
        assert set(errors[mine]) <= set(pool[mine])
        assert np.mean(pool[mine]) == pytest.approx(0.0, abs=1e-12)


def test_priors_are_drawn_too():
    """Their means are measurements: without it the spread would be too small."""
    problem = line(0.2, priors={"k": igpe.losses.NormalPrior(0.7, 0.02)})
    found = bootstrap(problem, NEAR_LINE, replications=1000).to_frame()
    rows = np.vstack([np.column_stack([TIMES, np.ones(10)]) / 0.2, [1 / 0.02, 0]])
    error = np.sqrt(np.linalg.inv(rows.T @ rows)[0, 0])
    assert found.loc["k", "standard_error"] == pytest.approx(error, rel=0.08)


@pytest.mark.slow
def test_a_curved_model_has_the_profiles_interval():
    found = bootstrap(decay(), DECAY_TRUTH, replications=1000).to_frame()
    one = profile(decay(), DECAY_TRUTH)["km"]
    half = (one.upper - one.lower) / 2
    assert found.loc["km", "lower"] == pytest.approx(one.lower, abs=0.15 * half)
    assert found.loc["km", "upper"] == pytest.approx(one.upper, abs=0.15 * half)


def test_a_number_has_its_errors_whatever_the_order():
    many = bootstrap(decay(), DECAY_TRUTH, ResidualBootstrap(), 30, seed=4).replications
    few = bootstrap(decay(), DECAY_TRUTH, ResidualBootstrap(), 10, seed=4).replications
    assert few.equals(many.iloc[:10])
    with ProcessPoolExecutor(2) as executor:
        there = bootstrap(decay(), DECAY_TRUTH, ResidualBootstrap(), 30, seed=4, executor=executor)
    assert there.replications.equals(many)
    other = bootstrap(decay(), DECAY_TRUTH, ResidualBootstrap(), 10, seed=5).replications
    assert not np.allclose(other["km"], few["km"])


def counted(monkeypatch):
    """The numbers of the replications that are really made."""
    made, original = [], module._replicate
    monkeypatch.setattr(
        module, "_replicate", lambda *given: (made.append(given[3]), original(*given))[1]
    )
    return made


def slower(times):
    m = decay().model(times)
    m.del_component(m.rate)
    m.rate = pyo.Constraint(
        m.t, rule=lambda m, t: m.dS[t] == -0.999 * m.vmax * m.S[t] / (m.km + m.S[t])
    )
    return m


@pytest.mark.slow
def test_a_store_keeps_what_is_done(tmp_path, monkeypatch):
    made, store = counted(monkeypatch), tmp_path / "store.db"
    first = bootstrap(decay(), DECAY_TRUTH, replications=25, store=store)
    assert made == list(range(25))
    more = bootstrap(decay(), DECAY_TRUTH, replications=40, store=store)
    assert made == list(range(40))
    assert more.replications.iloc[:25].equals(first.replications)
    whole = bootstrap(decay(), DECAY_TRUTH, replications=40)
    assert more.replications.equals(whole.replications)
    other = igpe.Problem(slower, parameters=["vmax", "km"], experiments=decay().experiments)
    changes = (
        {"seed": 1},
        {"kind": ResidualBootstrap()},
        {"problem": decay(seed=1)},
        {"problem": other},
    )
    for change in changes:
        made.clear()
        bootstrap(**{"problem": decay(), "result": DECAY_TRUTH, "replications": 5, "store": store}
                  | change)  # fmt: skip
        assert len(made) == 5, change


def test_an_interrupt_ends_with_what_is_done(tmp_path):
    told, store = count(), tmp_path / "store.db"

    def stop(sentence):
        if next(told) == 1:
            raise KeyboardInterrupt

    found = bootstrap(decay(), DECAY_TRUTH, replications=100, store=store, progress=stop)
    assert (len(found.replications), found.complete) == (40, False)
    assert "Interrupted: 40 of 100" in " ".join(found.notes)
    whole = bootstrap(decay(), DECAY_TRUTH, replications=100, store=store)
    assert whole.complete
    assert whole.replications.iloc[:40].equals(found.replications)


def test_failed_refits_are_counted_and_told():
    hasty = igpe.SingleShooting(search=GaussNewton(max_iterations=2))
    found = bootstrap(decay(), {"vmax": 1.0, "km": 0.8}, replications=20, method=hasty)
    assert 0 < found.failed <= 20
    assert len(found.parameters) == 20 - found.failed
    assert f"{found.failed} of 20 refits did not converge" in found.notes[0]


def test_what_is_not_determined_has_no_spread_to_show():
    """Refits leave k1 and k2 where they were, which is no sign of certainty."""
    found = bootstrap(product(), PRODUCT_NEAR, replications=20)
    assert found.undetermined == ("k1", "k2")
    row = found.to_frame().loc["k1"]
    assert (row["lower"], row["upper"], row["percentile_upper"]) == (-np.inf, np.inf, np.inf)
    assert "not determined" in str(found)
    both = found.parameters["k1"] * found.parameters["k2"]
    assert both.std() == pytest.approx(0.0119, rel=0.4)


def test_an_estimate_on_a_bound_is_told():
    found = bootstrap(methanol.problem(), methanol.OPTIMUM, replications=10)
    assert any("p3, p4, p5 lie on a bound" in note for note in found.notes)


def test_bca_is_the_percentile_interval_where_nothing_is_skewed():
    values = np.concatenate([-np.arange(1, 500.0), np.arange(1, 500.0)])
    table = pd.DataFrame({"status": "CONVERGED", "objective": 1.0, "k": values})
    for acceleration, shift in ((0.0, 0), (0.1, 1)):
        found = Bootstrapped(
            {"k": 0.0}, {"k": ""}, table, len(table), True, "", 0, 0.95, {"k": acceleration}
        ).to_frame()
        moved = found.loc["k", "lower"] - found.loc["k", "percentile_lower"]
        assert (moved > 1) == bool(shift)
    level = stats.norm.cdf(-1.959964 / (1 + 0.1 * 1.959964))
    assert found.loc["k", "lower"] == pytest.approx(
        np.quantile(values, level, method="weibull"), rel=1e-5
    )


def test_ends_of_intervals_are_where_a_further_replication_falls_outside_as_often_as_told():
    """Of n draws the (n + 1) p-th: with the usual interpolation 200 of them hold 94 %, not 95 %."""
    draws = np.random.default_rng(5).permutation(np.arange(1.0, 200.0))
    table = pd.DataFrame({"status": "CONVERGED", "objective": 0.0, "k": draws})
    found = Bootstrapped({"k": 100.0}, {"k": ""}, table, 199, True, "made up", 0, 0.95, {"k": 0.0})
    row = found.to_frame().loc["k"]
    assert (row["percentile_lower"], row["percentile_upper"]) == pytest.approx((5.0, 195.0))
    assert (row["lower"], row["upper"]) == pytest.approx((5.0, 195.0))


def test_words_and_pictures():
    found = bootstrap(decay(), DECAY_TRUTH, replications=20)
    assert "20 refits, ParametricBootstrap(), seed 0" in str(found)
    assert "km" in found._repr_html_()
    assert [ax.get_xlabel() for ax in found.plot()] == ["vmax", "km"]
    pairs = found.plot(pairs=True)
    assert [ax.get_visible() for ax in pairs] == [True, False, True, True]
    (dots, star) = pairs[2].lines
    assert list(dots.get_xdata()) == list(found.parameters["vmax"])
    assert list(dots.get_ydata()) == list(found.parameters["km"])
    assert (*star.get_xdata(), *star.get_ydata()) == tuple(found.estimate.values())


def few(count):
    return line(None).with_data(line(None).experiments[0].table().reset_index().iloc[:count])


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        (
            {"kind": 10},
            ProblemError,
            r"kind is 10; bootstrap needs igpe.uncertainty.ParametricBootstrap\(\)",
        ),
        ({"replications": 1}, ProblemError, "2 or more"),
        ({"seed": -1}, ProblemError, "0 or more"),
        ({"confidence": 1.0}, ProblemError, "between 0 and 1"),
        ({"store": "/no/such/folder/s.db"}, DataError, "cannot be used"),
        ({"store": __file__}, DataError, "cannot be used"),
        ({"problem": decay(loss=igpe.losses.L1())}, Unsupported, "L1"),
        ({"result": {}}, ProblemError, "no value"),
        (
            {"problem": few(4), "result": NEAR_LINE, "kind": ResidualBootstrap()},
            ProblemError,
            r"at least 5 residuals\. Columns with fewer residuals: \{'A': 4\}",
        ),
        ({"problem": few(2), "result": NEAR_LINE}, ProblemError, "as many unknowns as"),
    ],
)
def test_what_makes_no_sense_is_refused(change, error, says):
    given = {"problem": decay(), "result": DECAY_TRUTH, "replications": 2} | change
    with pytest.raises(error, match=says):
        bootstrap(**given)


@pytest.mark.parametrize("problem", [(line(), NEAR_LINE), (product(), PRODUCT_NEAR)])
def test_json_gives_back_all(problem, tmp_path):
    """Infinite errors of what is not determined included."""
    found = bootstrap(*problem, replications=12)
    path = tmp_path / "bootstrap.json"
    written = found.to_json(path)
    for again in (Bootstrapped.from_json(written), Bootstrapped.from_json(path)):
        pd.testing.assert_frame_equal(again.replications, found.replications)
        pd.testing.assert_frame_equal(again.to_frame(), found.to_frame())
        assert again.to_json() == written
        assert str(again) == str(found)
        assert again.undetermined == found.undetermined
        assert again.notes == found.notes
    stored = found.to_dict()
    del stored["replications"][next(iter(found.estimate))]
    with pytest.raises(DataError, match="is damaged"):
        Bootstrapped.from_dict(stored)


def test_what_else_was_stored_is_refused_by_its_name():
    profiles = profile(line(), NEAR_LINE).to_json()
    said = (
        "This is a stored set of profiles, not a bootstrap; give the text or file that "
        "Bootstrapped.to_json wrote."
    )
    with pytest.raises(DataError, match=said):
        Bootstrapped.from_json(profiles)
    with pytest.raises(DataError, match="This is a stored set of profiles, not a result"):
        igpe.Result.from_json(profiles)
    with pytest.raises(DataError, match=r"The file 'nowhere.json' of the bootstrap could not"):
        Bootstrapped.from_json("nowhere.json")
    with pytest.raises(DataError, match=r"The plan is a int; expected the text that Plan.to_json"):
        igpe.planning.Plan.from_json(3)


def test_errors_of_quantities_are_drawn_in_their_own_sizes():
    """As in the result's standard errors, of which that of the short series exceeds that of s^2."""
    problem = lines("A", "B")
    result = igpe.estimate(problem, certify=False)
    table = bootstrap(problem, result, replications=400).to_frame()
    expected = result.to_frame()["standard_error"]
    ratio = table["standard_error"] / expected
    assert ratio[["kA", "A(t0)"]].mean() == pytest.approx(1, abs=0.06)


def test_the_sigma_of_a_short_series_is_drawn_by_its_own_degrees():
    """Beside a long series, where the degrees of all are many: the ends are of Student's t."""
    problem = lines("A", "B")
    result = igpe.estimate(problem, certify=False)
    found = bootstrap(problem, result, replications=1000)
    own, linear = found.to_frame(), result.to_frame()
    half, expected = ((t["upper"] - t["lower"]) / 2 for t in (own, linear))
    assert (half / expected)[["kA", "kB"]].to_numpy() == pytest.approx(1, abs=0.1)
