"""Switches at known times, and the times that an integrator must not step over."""

from copy import copy
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

from igpe.core.errors import ModelError
from igpe.equations import known_times
from igpe.equations.timed import Held, TimeSymbols, as_products, stops
from igpe.problem.inputs import Table, linear_input

T, X, Q = (ca.SX.sym(n) for n in ("t", "x", "q"))
ABOVE = np.nextafter(0.4, 1)


NO_INPUTS = ca.SX(0, 1)


def clock(last=1.0, *, u=NO_INPUTS, tables=()):
    return TimeSymbols(T, u, Q, X, tuple(tables), 0.0, last)


def switched(condition, last=1.0, known=()):
    """The expression that is x where the condition holds, else 2 x; and its only switch."""
    found = Held(clock(last), [ca.if_else(condition, X, 2 * X)], known)
    return found, found.tables[0] if found.tables else None


def test_a_threshold_is_a_table():
    for condition in (T < 0.4, T <= 0.4, ca.logic_not(T >= 0.4)):
        found, table = switched(condition, known=[0.4])
        assert (table.hold, list(table.times)) == (True, [0.0, 0.4])
        value = ca.Function("f", [*found.switches, X], found.expressions)
        assert [float(value(s, 3.0)) for s in table.values] == [3.0, 6.0]


def test_a_threshold_is_found_to_the_last_digit():
    for number in (0.1 + 0.2, 1 / 3, 0.7 * 0.7, 1e-9, 1 - 1e-12):
        assert switched(number <= T)[1].times[1] == pytest.approx(number, rel=4e-16)


def test_conditions_that_say_the_same_are_one_switch():
    one, other = ca.if_else(T < 0.4, X, 0), ca.if_else(T >= 0.4, X, 1)
    found = Held(clock(), [ca.vertcat(one, other)], [])
    assert len(found.switches) == 1


def test_two_thresholds_at_the_same_time_make_one_break():
    found = Held(clock(), [ca.if_else(T < 0.4, X, 0) + ca.if_else(T <= 0.4, 2, X)], [])
    assert {t for table in found.tables for t in table.times} == {0.0, found.tables[0].times[1]}
    assert found.tables[0].times[1] in (0.4, ABOVE)


def test_thresholds_at_the_ends_or_beyond_do_not_switch():
    outside = (
        (T < 0, 2),
        (T <= 0, 2),
        (T >= 1, 2),
        (T < 1, 1),
        (T > 5, 2),
        (T < 5, 1),
        (T != 0.3, 1),
    )
    for condition, chosen in outside:
        found, table = switched(condition)
        assert table is None
        value = ca.Function("f", [T, X], found.expressions)
        assert float(value(0.0, 3.0)) == float(value(1.0, 3.0)) == 3.0 * chosen


def test_a_train_of_switches():
    _, table = switched(ca.sin(T) > 0.95, 40.0)
    first = np.arcsin(0.95)
    k = np.arange(7)
    on, off = first + 2 * np.pi * k, np.pi - first + 2 * np.pi * k
    assert table.times[1:] == pytest.approx(np.sort([*on, *off]), rel=1e-14)
    assert list(table.values) == [0.0, *[1.0, 0.0] * 7]


def test_a_window_much_shorter_than_any_sampling():
    _, table = switched(ca.logic_and(T > 0.3217, T < 0.3217 + 1e-11))
    assert table.times[1:] == pytest.approx([0.3217, 0.3217 + 1e-11], abs=1e-16)


def test_rounded_times_are_held():
    found = Held(clock(), [ca.floor(3.3 * T) * X], [])
    assert list(found.tables[0].values) == [0.0, 1.0, 2.0, 3.0]
    assert found.tables[0].times == pytest.approx([0, 1 / 3.3, 2 / 3.3, 3 / 3.3], rel=1e-15)


def test_a_condition_on_a_ramp_is_one_on_time():
    u = ca.SX.sym("u")
    ramp = linear_input([0.0, 0.5, 1.0], [0.0, 2.0, 0.0])
    found = Held(clock(u=u, tables=[ramp]), [ca.if_else(u > 1, X, 0)], [])
    assert found.tables[0].times == pytest.approx([0.0, 0.25, 0.75])


@pytest.mark.parametrize("top", [26.0, 11 + 1e-6])
def test_a_ramp_that_begins_at_the_threshold_is_on_the_side_just_after(top):
    u = ca.SX.sym("u")
    ramp = linear_input([0.0, 0.5, 1.0], [11.0, top, 22.0 - top])
    found = Held(clock(u=u, tables=[ramp]), [ca.if_else(u >= 11, X, 0)], [])
    assert found.tables[0].times == pytest.approx([0.0, 0.75], abs=1e-8)
    assert list(found.tables[0].values) == [1.0, 0.0]


def test_conditions_of_unknowns_and_states_are_left():
    for condition in (T < Q, X > 0.5):
        found, _ = switched(condition)
        assert not found.switches


def test_too_many_switches_are_refused():
    with pytest.raises(ModelError, match="changes too often between t = 0 and t = 1"):
        switched(ca.sin(1e7 * T) > 0)


def test_products_instead_of_choices():
    found, table = switched(T < 0.4)
    s = found.switches[0]
    product = as_products(found.expressions[0], ca.vertcat(s))
    value = ca.Function("f", [s, X], [product])
    assert [float(value(v, 3.0)) for v in (1.0, 0.0)] == [3.0, 6.0]
    codes = {value.instruction_id(k) for k in range(value.n_instructions())}
    assert ca.OP_IF_ELSE_ZERO not in codes
    assert table.at(0.4, before=True) == 1.0


def differing(condition, times):
    found, _ = switched(condition, known=times)
    return found.differs(clock().segments, np.array(times))


def test_what_is_measured_at_a_switch_is_compared_with_its_limit():
    assert differing(T < 0.4, [0.0, 0.4, 1.0]) == 0.4
    assert differing(T <= 0.4, [0.0, 0.4, 1.0]) is None
    assert differing(T < 0.4, [0.0, 0.41, 1.0]) is None
    assert differing(T <= 0.0, [0.0, 1.0]) == 0.0


def pulse(center=0.5, width=0.02):
    return ca.exp(-(((T - center) / width) ** 2))


def around(found, center, reach):
    """How many of the times lie in the pulse."""
    return sum(abs(t - center) < reach for t in found)


@pytest.mark.parametrize("width", [0.1, 0.05, 0.02, 1e-3, 1e-5, 1e-7])
@pytest.mark.parametrize("last", [1.0, 1e5])
def test_a_pulse_has_stops(width, last):
    of = ca.exp(-(((T / last - 0.437) / width) ** 2))
    found = stops(clock(last), [X * of]).known
    assert around(found, 0.437 * last, 2 * width * last)
    assert len(found) <= 3


def test_several_pulses_each_have_stops():
    centers = (0.11, 0.5, 0.500_3, 0.9)
    found = stops(clock(), [sum(10.0**-k * pulse(c, 1e-5) for k, c in enumerate(centers))]).known
    for center in centers:
        assert around(found, center, 1e-5)
    assert len(found) <= 4 * len(centers)


def test_pulses_of_rises_in_exponents_and_of_ramps_have_stops():
    found = stops(clock(), [ca.tanh((T - 0.3) / 1e-4) - ca.tanh((T - 0.31) / 1e-4)]).known
    assert around(found, 0.3, 1e-3)
    assert around(found, 0.31, 1e-3)
    assert around(stops(clock(), [ca.exp(X - ((T - 0.437) / 0.01) ** 2)]).known, 0.437, 0.02)
    u = ca.SX.sym("u")
    ramp = Table(np.array([0.0, 0.4, 1.0]), np.array([0.0, 1.0, 0.0]))
    found = stops(clock(u=u, tables=[ramp]), [ca.exp(-(((u - 0.5) / 1e-3) ** 2))]).known
    assert around(found, 0.2, 1e-3)
    assert around(found, 0.7, 1e-3)


ORDINARY = (
    ca.exp(-50 * T) * X,
    ca.sin(2 * np.pi * 20 * T),
    ca.sin(2 * np.pi * 20 * T) ** 2,
    1 + 0.3 * ca.cos(40 * T) + 0.1 * ca.sin(170 * T),
    T * ca.exp(-20 * T),
    ca.exp(-3 * T) * ca.sin(60 * T),
    T**2 * (1 - T),
    ca.sqrt(T + 1) / (1 + T),
    ca.exp(-8000 / (300 + 20 * T)) * X,
    pulse(0.5, 0.2),
    X * X,
)


@pytest.mark.parametrize("ordinary", ORDINARY, ids=str)
def test_ordinary_functions_have_none(ordinary):
    found = stops(clock(), [ordinary])
    assert (found.known, found.moving) == ((), ())


def test_pulses_that_unknowns_move_are_found_for_their_numbers():
    found = stops(clock(), [X * ca.exp(-(((T - Q) / 1e-4) ** 2))])
    assert found.known == ()
    for center in (0.1234, 0.9):
        assert around(found.at([center]), center, 2e-4)
    assert found.at([3.0]) == ()
    assert found.at([np.nan]) is None or found.at([np.nan]) == ()


RISING = ca.tanh((T - 0.4) / 1e-3)


@pytest.mark.parametrize(
    ("product", "with_it"),
    [
        (X * ca.exp(Q * RISING), True),
        (-ca.exp(2 * RISING) / ca.exp(Q + Q * RISING) ** 2, True),
        (ca.exp(Q * RISING) * ca.exp(3 - RISING * Q * Q), True),
        (ca.exp(Q * RISING + T), False),
        (ca.exp(Q * RISING) / (1 + T), False),
        (ca.exp((Q * RISING) ** 3), False),
    ],
    ids=str,
)
def test_products_of_exponentials_rise_with_what_stands_in_their_exponents(product, with_it):
    found = stops(clock(), [product])
    (part,) = found.moving
    assert (part.stretches is not None) == with_it
    without = replace(found, moving=(copy(part),))
    without.moving[0].stretches = None
    for q in (0.0, 0.1, 1.0, 2.0, 5.0, -5.0):
        near = found.at([q])
        known_times._marked.clear()
        alone = without.at([q])  # None: it cannot be followed, where exponents cancel
        assert near == (None if alone is None and not with_it else pytest.approx(alone or ()))
    assert not with_it or around(found.at([5.0]), 0.4, 0.02)


@pytest.mark.parametrize("ordinary", [ca.exp(-Q * T) * X, ca.sin(Q * T), Q * T * X + Q**2])
def test_ordinary_functions_of_unknowns_need_no_look(ordinary):
    assert stops(clock(), [ordinary]).moving == ()


def test_what_unknowns_make_too_often_is_none():
    found = stops(clock(), [ca.exp(-((ca.sin(Q * T) / 0.01) ** 2))])
    assert len(found.at([30.0])) > 10
    assert found.at([1e9]) is None
