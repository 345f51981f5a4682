"""Samples of posteriors that are known, and what is told of short chains."""

import sys
from dataclasses import replace
from itertools import count

import numpy as np
import pytest
from michaelis_menten import DECAY_TRUTH, decay
from repeated import statistical
from scipy import stats
from small_problems import PRODUCT_NEAR, TIMES, line, product

import igpe
from igpe.core.errors import ProblemError, SolverMissing, Unsupported
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.uncertainty.likelihood import likelihood
from igpe.uncertainty.sampling import Posterior, sample

NEAR_LINE = {"k": 0.7, "A(t0)": 1.0}


def needs_emcee():
    for name in ("emcee", "arviz_base", "arviz_stats"):
        pytest.importorskip(name)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.2, statistical(None)])
def test_of_a_line_the_posterior_is_known(sigma):
    """Normal, or Student's t where sigma is integrated out."""
    needs_emcee()
    found = sample(line(sigma), NEAR_LINE, steps=1500).to_frame()
    y = line(sigma).experiments[0].measurements.value
    fit = stats.linregress(TIMES, y)
    if sigma is None:
        exact = stats.t(8, fit.slope, fit.stderr)
    else:
        exact = stats.norm(fit.slope, sigma / (np.std(TIMES) * np.sqrt(10)))
    row = found.loc["k"]
    assert row["mean"] == pytest.approx(exact.mean(), abs=0.1 * exact.std())
    assert row["standard_deviation"] == pytest.approx(exact.std(), rel=0.08)
    assert [row["lower"], row["upper"]] == pytest.approx(
        exact.interval(0.95), abs=0.2 * exact.std()
    )
    assert row["r_hat"] < 1.05
    assert row["effective_size"] > 400


def test_densities_are_those_of_the_fit_and_the_priors():
    problem = decay(priors={"km": igpe.losses.NormalPrior(1.0, 0.3)})
    base = likelihood(problem, DECAY_TRUTH, SingleShooting(), "test")
    posterior, other = Posterior(base), np.array([1.1, 1.0])
    difference = posterior(base.x) - posterior(other)
    assert difference == pytest.approx((base.residuals(other).cost - base.at.cost) / 2, rel=1e-5)
    assert posterior(np.array([1.0, 50.1])) == -np.inf
    assert posterior(np.array([0.0, 1.0])) == -np.inf


@pytest.mark.parametrize(("scale", "base"), [("log10", np.log(10)), ("log", 1.0)])
def test_a_prior_of_the_logarithm_is_a_density_of_the_unknown(scale, base):
    """The same knowledge in two forms has one posterior."""
    forms = (
        igpe.losses.Prior("normal", (-0.3, 0.2), scale),
        igpe.losses.Prior("log-normal", (-0.3 * base, 0.2 * base)),
    )
    points, differences = np.array([[1.1, 0.4], [1.0, 1.7]]), []
    for prior in forms:
        fit = likelihood(decay(priors={"km": prior}), DECAY_TRUTH, SingleShooting(), "test")
        differences.append(np.diff([Posterior(fit)(x) for x in points])[0])
    assert differences[0] == pytest.approx(differences[1], rel=1e-9)


def test_walkers_begin_inside_and_apart():
    """Also where the data determine only a product."""
    base = likelihood(product(), PRODUCT_NEAR, SingleShooting(), "test")
    posterior = Posterior(base)
    walkers = posterior.walkers(30, np.random.default_rng(0))
    assert all(np.isfinite(posterior(x)) for x in walkers)
    assert np.linalg.matrix_rank(walkers - walkers.mean(axis=0)) == 2
    assert np.linalg.cond((walkers - walkers.mean(axis=0)) / walkers.std(axis=0)) < 100


def test_bounds_are_kept_and_a_seed_gives_the_same():
    needs_emcee()
    tight = igpe.Problem(
        decay().model, parameters={"vmax": (0.9, 1.1), "km": (0.6, 1.0)},
        experiments=decay().experiments,
    )  # fmt: skip
    first, second = (sample(tight, DECAY_TRUTH, steps=60, seed=3) for _ in "12")
    draws = first.flat()
    assert draws["km"].between(0.6, 1.0).all()
    assert draws["vmax"].between(0.9, 1.1).all()
    assert np.array_equal(first.chains, second.chains)
    assert not np.array_equal(first.chains, sample(tight, DECAY_TRUTH, steps=60, seed=4).chains)
    assert "The chains are too short: 60 steps" in first.notes[0]
    assert "16 walkers" in str(first)
    assert "km" in first._repr_html_()


def test_arviz_gets_all_draws():
    needs_emcee()
    found = sample(decay(), DECAY_TRUTH, steps=40)
    tree = found.to_arviz()
    assert tree["posterior"]["km"].values == pytest.approx(found.chains[:, :, 1])
    assert tree["sample_stats"]["lp"].shape == found.log_density.shape
    assert len(found.plot()[2].lines[0].get_xdata()) == found.log_density.size


def test_few_steps_do_not_warn_of_more_walkers():
    needs_emcee()
    found = sample(decay(), DECAY_TRUTH, steps=40)
    few = replace(found, chains=found.chains[:, :3], log_density=found.log_density[:, :3])
    assert few.to_arviz().posterior.sizes["draw"] == 3


def test_an_interrupt_ends_with_what_is_drawn():
    needs_emcee()
    told = count()

    def stop(sentence):
        if next(told) == 1:
            raise KeyboardInterrupt

    found = sample(decay(), DECAY_TRUTH, steps=500, progress=stop)
    assert found.chains.shape[1] + found.burnt == 200
    assert "Interrupted after 200 steps." in found.notes


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"steps": 3}, ProblemError, "10 or more"),
        ({"walkers": 3}, ProblemError, "an even number, at least 4"),
        ({"seed": -1}, ProblemError, "0 or more"),
        ({"problem": decay(loss=igpe.losses.Huber())}, Unsupported, "Huber"),
    ],
)
def test_what_makes_no_sense_is_refused(change, error, says):
    needs_emcee()
    with pytest.raises(error, match=says):
        sample(**({"problem": decay(), "estimate": DECAY_TRUTH, "steps": 20} | change))


def test_without_emcee_it_says_how_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "emcee", None)
    with pytest.raises(SolverMissing, match=r"pip install 'igpe\[mcmc\]'"):
        sample(decay(), DECAY_TRUTH)
