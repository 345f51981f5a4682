"""Estimates as JSON and back, whatever they hold."""

import json

import lotka_volterra_iss
import numpy as np

import igpe
from igpe.core.estimates import Estimate, Horizon, estimate_of, estimate_row
from igpe.core.status import Status


def there_and_back(estimate):
    return estimate_of(json.loads(json.dumps(estimate_row(estimate), allow_nan=False)))


def test_an_estimate_with_horizons_comes_back():
    start = {"k1": 4.2176, "k2": 9.1574, "k3": 7.9221, "k4": 9.5949}
    found = igpe.IncrementalShooting().estimate(lotka_volterra_iss.problem(), start)
    assert len(found.trail) > 2
    again = there_and_back(found)
    assert again == found
    assert [type(h) for h in again.trail] == [Horizon] * len(found.trail)
    assert again.equivalent_iterations == found.equivalent_iterations


def test_what_json_does_not_know_comes_back():
    odd = Estimate({"k": np.nan, "j": -np.inf}, np.inf, Status.TIMED_OUT, notes=("Infinity", ""))
    again = there_and_back(odd)
    assert np.isnan(again.parameters["k"])
    assert (again.parameters["j"], again.objective, again.lower_bound) == (-np.inf, np.inf, -np.inf)
    assert (again.status, again.notes) == (Status.TIMED_OUT, ("Infinity", ""))
