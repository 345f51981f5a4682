"""Diffusion written with its flux: against finite volumes by hand on the same grid, and mass."""

from functools import partial

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_space
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from igpe.problem.space import FiniteDifference

TIMES = np.linspace(0.1, 1.5, 8)
N = 12


def simulated(model, columns, n=N, *, start=None, names="x", k=0.2):
    """Simulate a model with the unknown k on grids of n intervals with the scheme "central"."""
    blank = pd.DataFrame({"time": TIMES} | dict.fromkeys(columns, TIMES))
    run = igpe.Experiment(blank, start=start or {"c": 0.0}, start_time=0.0, sigma=0.01)
    space = {name: FiniteDifference(n, "central") for name in names}
    problem = igpe.Problem(model, parameters=["k"], experiments=run, space=space)
    return igpe.simulate(problem, {"k": k}, TIMES)


def inner(n=N):
    return [f"c[{i / n:.12g}]" for i in range(1, n)]


def slab(times, law, ends, names="c q"):
    """c_t = -q_x; law: the flux; ends: what holds at 0 and 1."""
    slopes = "c_t c_x q_x"
    m = over_space(times, names, slopes, k=(0.001, 5))
    m.law = pyo.Constraint(m.t, m.x, rule=law)

    @m.Constraint(m.t, m.x)
    def balance(m, t, x):
        return ends(m, t, x) if x in (0, 1) else m.c_t[t, x] == -m.q_x[t, x]

    return m


def layered(x):
    return 1.0 if x <= 0.5 else 0.1


LAWS = {
    "layers": (lambda m, t, x: m.q[t, x] == -m.k * layered(x) * m.c_x[t, x], 0, "layers"),
    "concentration": (
        lambda m, t, x: m.q[t, x] == -m.k * pyo.exp(m.c[t, x]) * m.c_x[t, x],
        0,
        "concentration",
    ),
    "flow": (lambda m, t, x: m.q[t, x] == m.c[t, x] - m.k * m.c_x[t, x], 1, ""),
    "implicit": (
        lambda m, t, x: m.q[t, x] * pyo.exp(-m.c[t, x]) / m.k + m.c_x[t, x] == 0,
        0,
        "concentration",
    ),
}


@pytest.mark.parametrize("name", LAWS)
def test_a_flux_is_that_of_finite_volumes(name):
    """Between a wall at c = 1 and one at c = 0."""
    law, speed, varies = LAWS[name]

    def model(times):
        return slab(times, law, lambda m, t, x: m.c[t, x] == 1 - x)

    def slopes(_, c):
        c = np.array([1.0, *c, 0.0])
        mean, middle = (c[1:] + c[:-1]) / 2, (np.arange(N) + 0.5) / N
        gauss = np.polynomial.legendre.leggauss(2)[0]
        share = np.exp(mean + gauss[:, None] * np.diff(c) / 2).mean(axis=0)
        share = share if varies == "concentration" else np.ones(N)
        share = np.array([layered(x) for x in middle]) if varies == "layers" else share
        return -np.diff(speed * mean - 0.2 * share * np.diff(c) * N) * N

    found = simulated(model, inner())[inner()].to_numpy()
    run = solve_ivp(slopes, (0, 1.5), np.zeros(N - 1), "LSODA", TIMES, rtol=1e-10, atol=1e-12)
    assert found == pytest.approx(run.y.T, rel=1e-5, abs=1e-6)


TABLE = {float(f"{i / N:.12g}"): 1.0 for i in range(N + 1)}
ON_POINTS = {
    "table": (lambda m, t, x: TABLE[x], lambda c: 1.0),
    "sum": (lambda m, t, x: 1 + sum(m.c[t, p] for p in m.x), lambda c: 1 + sum(c)),
}


@pytest.mark.parametrize("name", ON_POINTS)
def test_where_the_middles_have_no_law_fluxes_stay_at_the_points(name):
    """A table that only has the points, and a sum over the set."""
    share, by_hand = ON_POINTS[name]

    def given(times):
        return slab(
            times,
            lambda m, t, x: m.q[t, x] == -m.k * share(m, t, x) * m.c_x[t, x],
            lambda m, t, x: m.c[t, x] == 1 - x,
        )

    def slopes(_, c):
        c = np.array([1.0, *c, 0.0])
        gradient = np.gradient(c, 1 / N, edge_order=2)
        return 0.2 * by_hand(c) * (gradient[2:] - gradient[:-2]) * N / 2

    found = simulated(given, inner())[inner()].to_numpy()
    run = solve_ivp(slopes, (0, 1.5), np.zeros(N - 1), "LSODA", TIMES, rtol=1e-10, atol=1e-12)
    assert found == pytest.approx(run.y.T, rel=1e-5, abs=1e-6)


def test_a_flux_between_the_points_has_the_initial_value_that_the_model_gives():
    """Of the two roots of its equation, the positive one would be diffusion backwards in time."""

    def law(m, t, x):
        m.q[t, x] = -0.6
        return m.q[t, x] ** 2 + 0.5 * m.q[t, x] - 0.06 == m.k * m.c_x[t, x] / 5

    def model(times):
        return slab(times, law, lambda m, t, x: m.c[t, x] == x)

    def slopes(_, c):
        gradient = np.diff([0.0, *c, 1.0]) * N
        return np.diff(0.25 + np.sqrt(0.1225 + 0.04 * gradient)) * N

    found = simulated(model, inner(), start={"c": lambda x: x**2})[inner()].to_numpy()
    start = (np.arange(1, N) / N) ** 2
    run = solve_ivp(slopes, (0, 1.5), start, "LSODA", TIMES, rtol=1e-10, atol=1e-12)
    assert found == pytest.approx(run.y.T, rel=1e-5, abs=1e-6)


def with_mass(m):
    m.mass = dae.Integral(m.t, m.x, wrt=m.x, rule=lambda m, t, x: m.c[t, x])
    return m


def test_balances_at_walls_keep_the_mass():
    """A unit of flux enters at x = 0; the law does not hold at the walls."""

    def law(m, t, x):
        return m.q[t, x] == (1 - x if x in (0, 1) else -m.k * m.c_x[t, x])

    def model(times):
        return with_mass(slab(times, law, lambda m, t, x: m.c_t[t, x] == -m.q_x[t, x]))

    assert simulated(model, ["mass"])["mass"].to_numpy() == pytest.approx(TIMES, abs=1e-9)


def test_mass_that_enters_by_a_flux_given_at_a_wall_is_of_second_order():
    def law(m, t, x):
        return m.q[t, x] == -m.k * m.c_x[t, x]

    def model(times):
        return with_mass(slab(times, law, lambda m, t, x: m.q[t, x] == 1 - x))

    errors = [np.abs(simulated(model, ["mass"], n)["mass"] - TIMES).max() for n in (8, 16)]
    assert errors[0] < 0.03
    assert errors[1] < errors[0] / 4


def test_fluxes_that_depend_on_each_other_are_solved_in_the_middles():
    """Two species: q and r are coupled, and the gradients are variables of their own."""

    def balance(m, t, x, *, c, c_t, q_x, value):
        return c[t, x] == value * (1 - x) if x in (0, 1) else c_t[t, x] == -q_x[t, x]

    def model(times):
        m = over_space(times, "c d q r g h", "c_t d_t c_x d_x q_x r_x", k=(0.001, 5))
        every = m.t, m.x
        m.of_g = pyo.Constraint(*every, rule=lambda m, t, x: m.g[t, x] == m.c_x[t, x])
        m.of_h = pyo.Constraint(*every, rule=lambda m, t, x: m.h[t, x] == m.d_x[t, x])
        m.one = pyo.Constraint(
            *every, rule=lambda m, t, x: m.q[t, x] + 0.5 * m.r[t, x] == -m.k * m.g[t, x]
        )
        m.two = pyo.Constraint(
            *every, rule=lambda m, t, x: m.q[t, x] - 2 * m.r[t, x] == m.k * m.h[t, x]
        )
        for name, flux, value in (("c", "q", 1), ("d", "r", 2)):
            c, c_t = m.component(name), m.component(f"{name}_t")
            q_x = m.component(f"{flux}_x")
            rule = partial(balance, c=c, c_t=c_t, q_x=q_x, value=value)
            m.add_component(f"of_{name}", pyo.Constraint(m.t, m.x, rule=rule))
        return m

    columns = [*inner(), *(c.replace("c", "d") for c in inner())]
    found = simulated(model, columns, start={"c": 0.0, "d": 0.0})[columns].to_numpy()
    matrix = 0.2 * np.linalg.inv([[1, 0.5], [1, -2]]) @ np.diag([-1, 1])

    def slopes(_, y):
        c, d = (np.array([v, *part, 0.0]) for v, part in zip((1, 2), np.split(y, 2), strict=True))
        return -(np.diff(matrix @ (np.diff([c, d]) * N)) * N).ravel()

    run = solve_ivp(slopes, (0, 1.5), np.zeros(2 * N - 2), "LSODA", TIMES, rtol=1e-10, atol=1e-12)
    assert found == pytest.approx(run.y.T, rel=1e-5, abs=1e-6)


def test_a_steady_balance_beside_one_in_time():
    """0 = i_x + c with i = -(1 + phi) phi_x: phi is no state, and stays at the points."""

    def model(times):
        m = over_space(times, "c phi i", "c_t phi_x i_x", k=(0.001, 5))
        m.of_c = pyo.Constraint(m.t, m.x, rule=lambda m, t, x: m.c_t[t, x] == -m.k * m.c[t, x])
        m.ohm = pyo.Constraint(
            m.t, m.x, rule=lambda m, t, x: m.i[t, x] == -(1 + m.phi[t, x]) * m.phi_x[t, x]
        )

        @m.Constraint(m.t, m.x)
        def charge(m, t, x):
            return m.phi[t, x] == 0 if x in (0, 1) else m.i_x[t, x] == m.c[t, x]

        return m

    columns = [c.replace("c", "phi") for c in inner()]
    found = simulated(model, columns, start={"c": 1.0})[columns].to_numpy()
    x = np.arange(1, N) / N
    exact = np.sqrt(1 + np.exp(-0.2 * TIMES)[:, None] * x * (1 - x)) - 1
    assert found == pytest.approx(exact, rel=1e-3)
    assert np.diff(found, 3).__abs__().max() < 1e-3  # no sawtooth


def plate(times):
    """A square whose edges are cold, with a flux in each direction."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x, m.y = dae.ContinuousSet(bounds=(0, 1)), dae.ContinuousSet(bounds=(0, 1))
    m.T, m.p, m.q = (pyo.Var(m.t, m.x, m.y) for _ in range(3))
    m.k = pyo.Var(bounds=(0.01, 10))
    m.T_t, m.T_x, m.T_y = (dae.DerivativeVar(m.T, wrt=s) for s in (m.t, m.x, m.y))
    m.p_x, m.q_y = dae.DerivativeVar(m.p, wrt=m.x), dae.DerivativeVar(m.q, wrt=m.y)

    @m.Constraint(m.t, m.x, m.y)
    def along(m, t, x, y):
        return m.p[t, x, y] == -m.k * m.T_x[t, x, y]

    @m.Constraint(m.t, m.x, m.y)
    def across(m, t, x, y):
        return m.q[t, x, y] == -m.k * m.T_y[t, x, y]

    @m.Constraint(m.t, m.x, m.y)
    def balance(m, t, x, y):
        if x in (0, 1) or y in (0, 1):
            return m.T[t, x, y] == 0
        return m.T_t[t, x, y] == -m.p_x[t, x, y] - m.q_y[t, x, y]

    return m


@pytest.mark.parametrize("given", [False, True], ids=["builder", "model"])
def test_fluxes_in_two_directions(given):
    def start(x, y):
        return np.sin(np.pi * x) * np.sin(np.pi * y)

    model = plate([0.0, 2.0]) if given else plate
    found = simulated(model, ["T[0.5,0.5]"], 6, start={"T": start}, names="xy", k=0.05)
    # The sines are eigenvectors of the compact differences, with this eigenvalue.
    speed = 2 * (2 * 6 * np.sin(np.pi / 12)) ** 2
    assert found["T[0.5,0.5]"].to_numpy() == pytest.approx(np.exp(-0.05 * speed * TIMES), rel=1e-5)


def by_hand(times, n=20):
    """Layers that the builder discretises itself: points of odd and even number are apart."""
    m = over_space(times, "c q", "c_t c_x q_x", k=(0.01, 5))
    pyo.TransformationFactory("dae.finite_difference").apply_to(m, wrt=m.x, nfe=n, scheme="CENTRAL")

    @m.Constraint(m.t, m.x)
    def law(m, t, x):
        if x in (0, 1):
            a, b = (0, 1 / n) if x == 0 else (1 - 1 / n, 1)
            return m.q[t, x] == -m.k * layered(x) * n * (m.c[t, b] - m.c[t, a])
        return m.q[t, x] == -m.k * layered(x) * m.c_x[t, x]

    @m.Constraint(m.t, m.x)
    def balance(m, t, x):
        return m.c[t, x] == 1 - x if x in (0, 1) else m.c_t[t, x] == -m.q_x[t, x]

    return m


@pytest.mark.slow
@pytest.mark.parametrize("is_own", [True, False])
def test_a_profile_that_alternates_from_point_to_point_is_named(is_own):
    def of_igpe(times):
        return slab(times, LAWS["layers"][0], lambda m, t, x: m.c[t, x] == 1 - x)

    model, space = (by_hand, {}) if is_own else (of_igpe, {"x": FiniteDifference(20, "central")})
    data = pd.DataFrame({"time": TIMES, "c[0.75]": 0.0, "c[0.25]": 0.0})

    def posed(data):
        run = igpe.Experiment(data, start={"c": 0.0}, start_time=0.0, sigma=0.01)
        return igpe.Problem(model, parameters=["k"], experiments=run, space=space)

    exact = igpe.simulate(posed(data), {"k": 1.0}, TIMES)[list(data)]
    said = str(igpe.estimate(posed(exact), certify=False))
    alternates = "the profile of c over x alternates from point to point, by 0.07"
    assert (alternates in " ".join(said.split())) is is_own
