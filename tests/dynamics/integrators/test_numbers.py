"""Numbers of the equations as an input of the compiled functions: one library, the same bits."""

import casadi as ca
import numpy as np
import pytest
from initial_values import needs_compiler, one_state, posed
from interval_problems import NUMBERS
from repeated import thinned

from igpe.dynamics.integrators.augmented import lifted
from igpe.dynamics.integrators.runge_kutta import RungeKutta

TIMES = np.array([0.0, 0.7, 2.0])
EXPERIMENTS = ((1.3, 2.5), (0.4, 2.5), (0.4, 0.4), (2.0, 300.0), (0.0, 7.0))
"""Start and constant input."""


def fed(start, feed):
    """x' = u - k x^2 / (0.3 + x)."""
    return one_state(
        lambda m, t: m.u[t] - m.k * m.x[t] ** 2 / (0.3 + m.x[t]), start=start, inputs={"u": feed}
    )


def one_run(start, feed):
    """A trajectory of the explicit method."""
    whole = RungeKutta().simulation(posed(fed(start, feed)), TIMES, sensitivities=True)
    return whole.run(np.array([0.6]))


def all_intervals(start, feed):
    """The shots of two intervals."""
    made = RungeKutta().prepare(posed(fed(start, feed)), TIMES, TIMES)
    return made.run(np.array([[start], [1.0]]), np.array([0.6]))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "igpe"


@pytest.fixture
def constants_stay(monkeypatch):
    """A function that compiles constants into the equations from then on."""

    def take():
        monkeypatch.setattr(
            "igpe.dynamics.integrators.runge_kutta_source.lifted", lambda f: (tuple(f), np.zeros(0))
        )

    return take


def test_numbers_become_an_input_and_results_stay():
    x = ca.SX.sym("x", 2)
    curve = ca.vertcat(3.5 * x[0] ** 3 + 0.25 * x[1], x[0] ** 2.7, 7.0, 0.0, ca.sin(3.5 * x[1]))
    plain = ca.Function("f", [x], [curve, ca.jacobian(curve, x)])
    other = ca.Function("g", [x], [x[0] - 1e-3])
    functions, numbers = lifted([plain, other])
    for before, after in zip((plain, other), functions, strict=True):
        assert (after.name(), after.n_in()) == (before.name(), 2)
        given = [1.2, 2.3]
        results = zip(before.call([given]), after.call([given, numbers]), strict=True)
        for one, two in results:
            assert one.sparsity() == two.sparsity()
            assert (np.asarray(one) == np.asarray(two)).all()
        codes = {after.instruction_id(k) for k in range(after.n_instructions())}
        assert ca.OP_CONST not in codes


@needs_compiler
@pytest.mark.parametrize("run", [one_run, all_intervals], ids=lambda f: f.__name__)
def test_experiments_that_differ_in_numbers_share_one_library(run, cache):
    found = [run(*numbers) for numbers in EXPERIMENTS]
    assert len(list(cache.glob("*.so"))) == 1
    sums = {round(float(f.measured.sum()), 9) for f in found}
    assert len(sums) == len(EXPERIMENTS)  # each with its own numbers


@needs_compiler
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("numbers", thinned(EXPERIMENTS, 4))
def test_the_bits_are_those_of_compiled_constants(numbers, constants_stay):
    trajectory, shots = one_run(*numbers), all_intervals(*numbers)
    constants_stay()
    other, others = one_run(*numbers), all_intervals(*numbers)
    assert (trajectory.states == other.states).all()
    assert (trajectory.by_unknown == other.by_unknown).all()
    for name in NUMBERS:
        assert (getattr(shots, name) == getattr(others, name)).all()


@needs_compiler
def test_held_unknowns_and_other_sizes_and_times_compile_nothing(cache):
    for k, start, last in ((0.6, 1.3, 3.0), (0.8, 0.4, 5.0)):
        ivp = posed(fed(start, 2.5).fixing({"k": k}))
        RungeKutta().simulation(ivp, TIMES * last, sensitivities=False)
        RungeKutta().prepare(ivp, TIMES * last, TIMES)
    assert len(list(cache.glob("*.so"))) == 1  # of trajectories and intervals
