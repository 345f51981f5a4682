"""A trial that takes too many steps breaks down; what it may take is counted, not timed."""

import numpy as np
import pytest
from initial_values import every_method
from test_interrupts import oscillator

from igpe.core.status import Status
from igpe.dynamics.integrators.limits import allowance


@pytest.mark.slow
@every_method
def test_a_run_that_swings_too_often_is_given_up(method):
    made = oscillator(method)
    slow, fast = np.array([3.0]), np.array([3e3])
    before = made.run(slow)
    with allowance(1_500):
        same, given_up = made.run(slow), made.run(fast)
        again = made.run(fast)
    assert same.status is Status.CONVERGED
    assert same.states == pytest.approx(before.states, rel=1e-5, abs=1e-6)
    assert given_up.status is Status.INTEGRATION_BROKE
    assert "limit of 1500 steps for a trial" in given_up.reason
    assert (given_up.reached, given_up.reason) == (again.reached, again.reason)


@every_method
def test_steps_are_counted(method):
    """Also those of a run that broke down: a search ends by what its integrations cost."""
    made = oscillator(method)
    slow, fast = (made.run(np.array([rate])) for rate in (3.0, 3e1))
    assert 0 < slow.steps < fast.steps
    with allowance(500):
        given_up = made.run(np.array([3e3]))
    assert given_up.status is Status.INTEGRATION_BROKE
    assert given_up.steps > 200
