"""How residuals count: each way's optimum, units and limits."""

import numpy as np
import pytest
from zoo import CASES

import igpe
from igpe.algebraic.base import SlopeErrors, StateErrors, Target, Unweighted
from igpe.algebraic.routes import LinearRoute
from igpe.algebraic.step import Posing, TargetForm, smooth_measurements
from igpe.structure.structure import analyse

WAYS = [Unweighted(), StateErrors(), SlopeErrors()]
TARGETS = [
    Target(np.array([3.0, 4.0]), np.array([0.1, 0.7])),
    Target(np.array([300.0]), np.array([50.0])),
]


def test_unweighted_has_one_number_for_all_in_units_of_the_typical_error():
    first, second = Unweighted().of(TARGETS)
    assert len({*first, *second}) == 1
    assert second[0] == pytest.approx(1 / np.sqrt((0.1**2 + 0.7**2 + 50.0**2) / 3))


def test_state_errors_have_one_number_for_each_state():
    first, second = StateErrors().of(TARGETS)
    assert first == pytest.approx([1 / 0.5, 1 / 0.5])
    assert second == pytest.approx([1 / 50.0])


def test_slope_errors_have_a_number_of_their_own_with_a_floor():
    assert SlopeErrors(0.1).of(TARGETS)[0] == pytest.approx([10.0, 1 / 0.7])
    assert SlopeErrors(0.5).of(TARGETS)[0] == pytest.approx([4.0, 1 / 0.7])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("error", [0.0, np.inf])
@pytest.mark.parametrize("value", [0.0, 5.0])
def test_weights_are_positive_and_finite_whatever_step_1_tells(way, error, value):
    mixed = Target(np.full(3, value), np.array([error, error, 0.2]))
    alone = Target(np.full(2, value), np.full(2, error))
    for weights in way.of([mixed, alone]):
        assert np.isfinite(weights).all()
        assert (weights > 0).all()


def unweighted(form):
    """The chain's only group."""
    problem = CASES["consecutive"].problem(0.02, 3)
    structure, curves = analyse(problem), smooth_measurements(problem, igpe.smoothing.GcvSpline())
    (group,) = structure.groups
    return Posing(problem, structure, curves, form, Unweighted()).regression(group)


@pytest.mark.parametrize("form", list(TargetForm))
def test_unweighted_is_plain_least_squares_on_the_slopes(form):
    """The chain is linear: its optimum without weights is that of lstsq on the raw rows."""
    regression = unweighted(form)
    at = regression.linearised(np.zeros(2))
    weights = np.concatenate([p.weight for p in regression.pieces])
    matrix, target = -at.jacobian / weights[:, None], at.residual / weights
    plain = np.linalg.lstsq(matrix, target, rcond=None)[0]
    found = LinearRoute().estimate(regression).estimate.parameters
    assert regression.box.vector(found) == pytest.approx(plain, rel=1e-8)


@pytest.mark.parametrize("way", WAYS)
def test_the_whole_method_takes_the_weights_of_its_settings(way):
    result = igpe.estimate(CASES["decay"].problem(0.02, 1), igpe.Settings(weights=way))
    first = next(c for c in result.candidates if c.origin == "slopes of smoothed data")
    problem = CASES["decay"].problem(0.02, 1)
    structure, curves = analyse(problem), smooth_measurements(problem, igpe.smoothing.GcvSpline())
    (group,) = structure.groups
    posed = Posing(problem, structure, curves, TargetForm.SLOPES, way).regression(group)
    assert first.incremental == pytest.approx(LinearRoute().estimate(posed).estimate.parameters)
