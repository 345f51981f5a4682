"""Start values and inputs that are known with an error."""

import pickle

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from error_models import CONDITIONS, OFF, RATE, tank, tank_problem
from ode import over_time

import igpe
from igpe.core.errors import DataError, ProblemError

Known = igpe.losses.NormalPrior
TABLE = pd.DataFrame({"time": [1.0, 2.0, 3.0], "A": [1.5, 1.1, 0.9]})


def test_it_is_the_problem_with_unknowns_and_priors_written_out():
    short = tank_problem(0, exact=False)
    runs = [
        igpe.Experiment(
            e.table().reset_index(),
            name=e.name,
            start={"A": igpe.Unknown(0.0, 5.0)},
            start_time=0.0,
            sigma=0.02,
        )
        for e in short.experiments
    ]
    long = igpe.Problem(
        tank,
        parameters={"k": (0.01, 10), "feed": (0, 5)},
        experiments=runs,
        local=["feed"],
        priors=short.priors,
    )
    assert set(short.box.names) == set(long.box.names)
    results = [igpe.estimate(p) for p in (short, long)]
    one, other = ({e.name: e for e in r.estimates} for r in results)
    assert results[0].objective == pytest.approx(results[1].objective, rel=1e-6)
    for name, estimate in one.items():
        assert estimate.value == pytest.approx(other[name].value, rel=1e-5)
        assert estimate.standard_error == pytest.approx(other[name].standard_error, rel=1e-4)
    assert one["k"].value == pytest.approx(RATE, rel=0.05)
    assert not np.allclose(short.priors["feed@run1"].mean, CONDITIONS[0][2], atol=OFF / 100)


def test_bounds_reach_as_far_as_the_prior_and_its_limits():
    start = Known(1.0, 0.5, lower=0.0)
    run = igpe.Experiment(TABLE, start={"A": start}, inputs={"feed": Known(2.0, 0.1)}, sigma=0.1)
    problem = igpe.Problem(tank, parameters=["k"], experiments=run)
    box = problem.box
    lower, upper = (dict(zip(box.names, b, strict=True)) for b in (box.lower, box.upper))
    assert (lower["A(t0)"], upper["A(t0)"]) == (0.0, 5.0)
    assert (lower["feed"], upper["feed"]) == pytest.approx((1.2, 2.8))
    assert problem.priors == {"A(t0)": start, "feed": Known(2.0, 0.1)}
    for same in (pickle.loads(pickle.dumps(problem)), problem.with_data(TABLE)):
        assert same.box.names == box.names
        assert same.priors == problem.priors


def test_certify_proves_it():
    problem = tank_problem(1, exact=False)
    result = igpe.estimate(problem)
    proof = igpe.certify(problem, result)
    assert proof.gap <= 0.01
    assert proof.lower_bound <= result.objective * (1 + 1e-6)


def fed(times):
    m = over_time(times, "A", k=(0, 1))
    m.feed = pyo.Param(m.t, mutable=True)
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.k * m.A[t])
    return m


def pose(*feeds, model=tank, parameters=("k",), **options):
    runs = [
        igpe.Experiment(TABLE, start={"A": 2.0}, inputs={"feed": f}, sigma=0.1, **options)
        for f in feeds
    ]
    return igpe.Problem(model, parameters=list(parameters), experiments=runs)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: pose(Known(1.0, 0.1), 1.0), DataError, "not in \\['2'\\]"),
        (lambda: pose(Known(1.0, 0.1), model=fed), ProblemError, "no scalar of that name"),
        (
            lambda: pose(Known(1.0, 0.1), parameters=("k", "feed")),
            ProblemError,
            "Remove it from parameters=",
        ),
        (
            lambda: pose(Known(1.0, 0.1), steady={"feed": 0.0}),
            DataError,
            "another value before the start",
        ),
    ],
)
def test_what_is_not_supported_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()
