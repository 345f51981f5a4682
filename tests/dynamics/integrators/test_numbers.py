"""Numbers of the equations as an input of the compiled functions: one library, the same bits."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from initial_values import needs_compiler, one_state, posed
from interval_problems import NUMBERS
from repeated import thinned

from igpe.dynamics.integrators import formulas
from igpe.dynamics.integrators.formulas import SharedFormula
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.integrators.runge_kutta_source import written

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
        monkeypatch.setattr(formulas, "LIFTED", set())

    return take


def curve(a, b, power, held):
    """A function of all that constants may stand in."""
    x = ca.SX.sym("x", 2)
    rows = a * x[0] ** 3 + b * x[1], x[0] ** power, 7.0, 0.0, ca.sin(a * x[1]) / (b - x[0])
    chosen = ca.if_else(x[0] > held, ca.fmax(x[1], held), a)
    return ca.Function("f", [x], [ca.vertcat(*rows, chosen), x[0] - a])


def test_numbers_become_an_input_and_results_stay():
    plain = curve(3.5, 0.25, 2.7, 1.5)
    formula = SharedFormula(plain)
    for given in ([1.2, 2.3], [1.7, 1.1]):
        pairs = zip(
            plain.call([given]), formula.function.call([given, formula.numbers]), strict=True
        )
        for one, two in pairs:
            assert one.sparsity() == two.sparsity()
            assert (np.asarray(one) == np.asarray(two)).all()
    after = formula.function
    codes = [after.instruction_id(k) for k in range(after.n_instructions())]
    assert codes.count(ca.OP_CONST) == 1  # the exponent


def test_formulas_are_equal_where_nothing_but_numbers_differs():
    one, same = SharedFormula(curve(3.5, 0.25, 2.7, 1.5)), SharedFormula(curve(1.1, 9.0, 2.7, 0.2))
    assert one == same
    assert hash(one) == hash(same)
    assert one != SharedFormula(curve(3.5, 0.25, 2.6, 1.5))  # an exponent
    assert one != SharedFormula(curve(3.5, 1.0, 2.7, 1.5))  # a product that is not there
    given = [1.2, 2.3]
    theirs = [np.asarray(v) for v in one.function.call([given, same.numbers])]
    for mine, right in zip(theirs, same.plain.call([given]), strict=True):
        assert (mine == np.asarray(right)).all()


def test_derivatives_of_a_formula_are_those_of_the_function():
    formula, x = SharedFormula(curve(3.5, 0.25, 2.7, 1.5)), ca.SX.sym("x", 2)
    known = ca.Function("j", [x], [ca.jacobian(formula.plain(x)[0], x)])
    n = ca.SX.sym("n", len(formula.numbers))
    made = ca.Function("j", [x, n], [ca.jacobian(formula.function(x, n)[0], x)])
    for given in ([1.2, 2.3], [1.7, 1.1]):
        assert np.asarray(made(given, formula.numbers)) == pytest.approx(
            np.asarray(known(given)), rel=1e-14
        )


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize("run", [one_run, all_intervals], ids=lambda f: f.__name__)
def test_experiments_that_differ_in_numbers_share_one_library(run, cache):
    found = [run(*numbers) for numbers in EXPERIMENTS]
    assert len(list(cache.glob("*.so"))) == 3  # the driver, slopes, and what is measured
    sums = {round(float(f.measured.sum()), 9) for f in found}
    assert len(sums) == len(EXPERIMENTS)  # each with its own numbers


@needs_compiler
def test_experiments_that_measure_other_things_share_their_slopes(cache):
    ivp = posed(fed(1.3, 2.5))
    for count, measured in ((3, ivp.measured), (4, ca.sin(ivp.x)), (4, ivp.measured)):
        other = replace(ivp, measured=measured)
        RungeKutta().simulation(other, TIMES, sensitivities=True).run(np.array([0.6]))
        assert len(list(cache.glob("*.so"))) == count


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("numbers", thinned(EXPERIMENTS, 4))
def test_the_bits_are_those_of_compiled_constants(numbers, constants_stay):
    trajectory, shots = one_run(*numbers), all_intervals(*numbers)
    constants_stay()
    written.cache_clear()
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
    assert len(list(cache.glob("*.so"))) == 3  # of trajectories and intervals


def cells(n, width, odd):
    """Diffusion between n cells of one width, and one number of each cell's own."""
    x, q = ca.SX.sym("x", n), ca.SX.sym("q")
    rows = [q * width * (x[(i + 1) % n] - x[i]) + (odd + i) * x[i] for i in range(n)]
    return ca.Function("f", [x, q], [ca.vertcat(*rows)])


def test_a_number_of_most_rows_is_one_and_what_they_share_is_computed_once():
    plain = cells(50, 400.0, 0.5)
    formula = SharedFormula(plain)
    assert len(formula.numbers) == 51
    assert formula.function.n_instructions() < plain.n_instructions() + 51 - 40
    x = np.linspace(0.1, 2.0, 50)
    right = np.asarray(plain(x, 0.3))
    assert (np.asarray(formula.function(x, 0.3, formula.numbers)) == right).all()
    assert formula == SharedFormula(cells(50, 300.0, 0.25))
    assert formula != SharedFormula(cells(50, 3.25, 0.25))  # a cell's own number is the width
    assert len(SharedFormula(cells(20, 400.0, 0.5)).numbers) == 40  # few rows share nothing
