"""Ctrl-C ends an integration and is no break-down; a handler of the user's own is called."""

import os
import signal
import threading
import time

import numpy as np
import pandas as pd
import pytest
from initial_values import every_method, simulation
from ode import ode

from igpe.core.status import Status
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.sundials import Sundials
from igpe.problem.experiment import Experiment
from igpe.problem.problem import Problem

LONG = 6.0  # s that a run would take on the processor of the test, whatever it is


def oscillator(method):
    """x'' = -w^2 x, with steps for any w."""

    build = ode({"x": lambda m, t: m.v[t], "v": lambda m, t: -(m.w**2) * m.x[t]}, w=(None, None))

    times = np.linspace(1.0, 10.0, 10)
    run = Experiment(
        pd.DataFrame({"time": times, "x": np.cos(times)}), start={"x": 1.0, "v": 0.0}, start_time=0
    )
    problem = Problem(build, parameters=["w"], experiments=run)
    return simulation(problem, times, method=method(max_steps=50_000_000))


@pytest.fixture
def interrupted():
    """SIGINT from another thread, soon after it is called."""
    timers = []

    def soon():
        timers.append(threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)))
        timers[-1].start()

    yield soon
    for timer in timers:
        timer.join()


def spent(made, w):
    """Processor seconds of a run, which are proportional to w."""
    began = time.process_time()
    made.run(np.array([w]))
    return time.process_time() - began


@pytest.mark.slow
@every_method
def test_an_interrupt_ends_the_run(method, interrupted, capsys):
    """Of a run that is long on any processor no more than a half is made after the signal."""
    made, q = oscillator(method), np.array([3.0])
    before = made.run(q)
    trial = 30.0 if method is LockStep else 300.0  # it is ten times as slow
    w = trial * LONG / spent(made, trial)
    interrupted()
    began = time.process_time()
    with pytest.raises(KeyboardInterrupt):
        made.run(np.array([w]))
    assert capsys.readouterr() == ("", "")
    assert time.process_time() - began < LONG / 2
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    again = made.run(q)
    assert again.status is Status.CONVERGED
    assert (again.states == before.states).all()


def test_a_handler_of_the_user_is_called_and_the_run_goes_on(interrupted):
    made, q = oscillator(Sundials), np.array([1e3])
    before, heard = made.run(q), []
    handler = lambda number, frame: heard.append(number)  # noqa: E731
    default = signal.signal(signal.SIGINT, handler)
    try:
        interrupted()
        came = made.run(q)
        while not heard:  # on a machine that is faster than the timer
            came = made.run(q)
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, default)
    assert heard == [signal.SIGINT]
    assert came.status is before.status
    assert (came.states == before.states).all()


def test_other_threads_integrate_without_handlers():
    made, q = oscillator(Sundials), np.array([3.0])
    came = []
    thread = threading.Thread(target=lambda: came.append(made.run(q)))
    thread.start()
    thread.join()
    assert came[0].status is Status.CONVERGED
