"""Tubes whose slopes divide: far-out numbers, states that stay at 0, and quotients 0 / 0."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import casadi as ca
import containment
import numpy as np
import pytest
from one_state import one_state

import igpe
from igpe.proofs.checker.confirm import Claims, Confirmed, Effort, confirm, value_at
from igpe.proofs.checker.experiments import Factored, Replay, replay_tape, replays

INTERVALS, STEP = (containment.K[n] for n in ("intervals", "step"))
T, X, P, U = ca.SX.sym("t"), ca.SX.sym("x"), ca.SX.sym("p", 2), ca.SX.sym("u", 0)
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def one_value(slope: Any, start: float, measured: Any, value: float) -> Replay:
    """One measurement at t = 1, with sigma = 1."""
    tapes = [replay_tape([T, X, P, U], ca.SX(e)) for e in (slope, start, measured)]
    row = np.zeros(1, np.intp), np.array([value]), np.ones(1)
    return Replay(1, 0.0, *tapes, np.ones(1), (row,))


def claimed(experiment: Replay, low: list[float], high: list[float], level: float) -> Confirmed:
    """What the checker says of one box."""
    a, b = np.array([low]), np.array([high])
    claims = Claims(a, b, a, b, np.zeros(1, np.intp))
    return confirm([experiment], claims, level, Effort(), 3.0)


@pytest.mark.parametrize("least", [0.0, 1e-271])
def test_a_false_claim_with_products_that_underflow_is_not_confirmed(least: float) -> None:
    """At p1 = p2 the measured value is that of the model, so that the sum of squares is 0."""
    slope = 1e-59 * P[0] / (1e59 * P[0] + 1e59 * P[1])
    given = one_value(slope, 0.0, 1e118 * X, 0.5)
    assert given.factored.cancelled
    outcome = claimed(given, [least, least], [1e-270, 1e-270], 0.1)
    assert len(outcome.left) or outcome.better is not None


@pytest.mark.parametrize("rates", [(0.0, 1.0), (0.5, 0.6)])
def test_states_that_start_at_0_and_are_not_pushed_below_stay_there(
    rates: tuple[float, float],
) -> None:
    """x1' = -p x1, x2' = p x1 - 2 x2: the slopes of both are exactly 0 at their lower ends."""
    x, p = ca.SX.sym("x", 2), ca.SX.sym("p")
    slopes = ca.vertcat(-p * x[0], p * x[0] - 2 * x[1])
    tape = Factored(replay_tape([T, x, p, U], slopes)).tape
    f, ends, wide = STEP.slopes_of(tape), np.array([[0.0, 1.0], [0.0, 0.0]]), np.empty((2, 2))
    for t in range(5):
        time = 0.1 * t, 0.1 * (t + 1)
        INTERVALS.ranges_of_leaves(tape, time, ends, np.array([rates]), np.zeros((0, 2)), f.v)
        length = INTERVALS.subtract(time[1], time[1], time[0], time[0])
        assert np.isfinite(STEP.coarse_step(f, ends, length, tape.is_smooth, wide))
        assert ends[:, 0].tolist() == wide[:, 0].tolist() == [0.0, 0.0]
    assert ends[0, 1] < 1.5


def test_no_value_is_known_where_the_slope_is_0_by_0() -> None:
    """A mean is finite there; but nothing may be refuted with parameters without a model."""
    slope = -2 * P[0] / (P[0] + P[1]) * X - 2 * P[1] / (P[0] + P[1]) * X
    given = one_value(slope, 1.0, X, math.exp(-2))
    assert value_at([given], np.zeros(2))[1] == math.inf
    assert claimed(given, [0.0, 0.0], [0.0, 0.0], 0.9).better is None
    assert value_at([given], np.full(2, 1e-3))[1] < 1e-9


@pytest.mark.parametrize(("slope", "x"), [(X - P[0], [0.0, 1.0]), (X * (1 / P[0]), [0.0, 0.0])])
def test_ends_of_slopes_at_0_hold_all_that_is_below(slope: Any, x: list[float]) -> None:
    """A difference of what is not negative may be; and 0 times what is not bounded is not 0."""
    written = replay_tape([T, X, P, U], slope)
    for tape in (written, Factored(written).tape):
        values = containment.K["integration"].values_of(tape, 0)
        ends = np.array([x]), np.array([[0.0, 1.0], [0.0, 1.0]]), np.zeros((0, 2))
        INTERVALS.evaluate(tape, (0.0, 1.0), *ends, False, values)
        assert values.value[tape.results[0], 0] <= -1


def test_constants_that_are_no_doubles_hold_what_they_are() -> None:
    """1/3 + x, where -x is the double next to 1/3."""
    third = (P[0] + P[1]) / (3 * P[0] + 3 * P[1])
    tape = Factored(replay_tape([T, X, P, U], third + X)).tape
    values = containment.K["integration"].values_of(tape, 0)
    ends = np.full((1, 2), -1 / 3), np.ones((2, 2)), np.zeros((0, 2))
    INTERVALS.evaluate(tape, (0.0, 0.0), *ends, False, values)
    low, high = values.value[tape.results[0]]
    assert low <= float(Fraction(1, 3) - Fraction(1 / 3)) <= high


@pytest.mark.parametrize("factor", [X, X * X, P[1] * X])
def test_a_factor_of_all_terms_of_a_quotient_may_be_0(factor: Any) -> None:
    """At x = 0 the slope is -3 (10 - p) / (10 + p), the limit, and not 3, of one term alone."""
    slope = 3 * (X * X - 10 * X + P[0] * X) * factor / ((10 * X + X * X + P[0] * X) * factor)
    tape = Factored(replay_tape([T, X, P, U], slope)).tape
    values = containment.K["integration"].values_of(tape, 0)
    ends = np.zeros((1, 2)), np.array([[0.5, 1.0], [0.0, 0.0]]), np.zeros((0, 2))
    INTERVALS.evaluate(tape, (0.0, 1.0), *ends, False, values)
    low, high = values.value[tape.results[0]]
    assert low <= -3 * 9.5 / 10.5
    assert -3 * 9 / 11 <= high < 3


@pytest.mark.parametrize(
    "gone",
    [
        P[0] * X / (P[0] + P[1]) - X * P[0] / (P[1] + P[0]),
        (X / P[0]) * P[1] - (P[1] * X) / P[0],
    ],
)
def test_quotients_that_cancel_each_other_may_be_0_by_0(gone: Any) -> None:
    """Nothing is left of them in the slope, but at 0 the model is still not defined."""
    factored = Factored(replay_tape([T, X, P, U], gone - X))
    kinds = factored.tape.code[factored.tape.every, 0]
    assert not {INTERVALS.DIV, INTERVALS.MEAN} & set(kinds.tolist())
    assert factored.may_be_undefined(np.zeros(2))
    assert not factored.may_be_undefined(np.full(2, 0.5))


@pytest.mark.parametrize(
    ("law", "least", "is_named"),
    [
        (lambda m, x: -m.a * x / (m.a + m.b * x), 0.0, True),
        (lambda m, x: -m.a * x / (m.a + m.b * x), 0.5, False),
        (lambda m, x: -m.a * x / (0.5 + m.b * x), 0.0, False),
        (lambda m, x: -m.a * x / (x + m.b * x), 0.0, True),
        (lambda m, x: -(m.a * x + m.b * x * x) / (m.a + m.b * x), 0.0, True),  # nothing remains
        (lambda m, x: -(m.a * x + m.b * x) / (m.a + m.b), 0.5, False),
    ],
)
def test_the_answer_names_quotients_that_may_be_0_by_0(
    law: Callable[[Any, Any], Any], least: float, is_named: bool
) -> None:
    times = np.linspace(0.25, 1.0, 4)
    data = times, np.exp(-0.5 * times)
    given = one_state(law, {"a": (least, 1.0), "b": (least, 1.0)}, data, sigma=0.5)
    assert replays(given)[0].factored.cancelled
    proof = igpe.certify(given, {"a": 0.8, "b": 0.9}, gap=0.9)
    assert ("0 / 0" in igpe.verify(proof, given).sentence) == is_named
