"""Models distributed in space: against SciPy on lines written by hand, and refusals."""

import copy
import os
import pickle
import re
import signal
import threading
from itertools import pairwise

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from deeds import kept, soon
from ode import ode, over_space, row
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from igpe.core.errors import DataError, IgpeError, ModelError, ProblemError
from igpe.problem.space import FiniteDifference

SPEED, DISPERSION, RATE = 1.0, 0.05, 0.8
TIMES = np.linspace(0.1, 1.5, 8)
TRUTH = {"D": DISPERSION, "k": RATE}


def tube(times, *, closed=True, points=(0, 1), index="tx"):
    """A tubular reactor with axial dispersion; closed: Danckwerts' conditions, else c = 1 first."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x = dae.ContinuousSet(initialize=points)
    m.c = pyo.Var(m.t, m.x) if index == "tx" else pyo.Var(m.x, m.t)
    m.dcdt = dae.DerivativeVar(m.c, wrt=m.t)
    m.dcdx = dae.DerivativeVar(m.c, wrt=m.x)
    m.d2c = dae.DerivativeVar(m.c, wrt=(m.x, m.x))
    m.D, m.k = pyo.Var(bounds=(1e-3, 1)), pyo.Var(bounds=(0, 10))

    def at(v, t, x):
        return v[t, x] if index == "tx" else v[x, t]

    @m.Constraint(m.t, m.x)
    def balance(m, t, x):
        if x in (0, 1):
            return pyo.Constraint.Skip
        moved = -SPEED * at(m.dcdx, t, x) + m.D * at(m.d2c, t, x)
        return at(m.dcdt, t, x) == moved - m.k * at(m.c, t, x)

    @m.Constraint(m.t)
    def inlet(m, t):
        first = at(m.c, t, 0)
        return SPEED * first - int(closed) * m.D * at(m.dcdx, t, 0) == SPEED

    @m.Constraint(m.t)
    def outlet(m, t):
        return at(m.dcdx, t, 1) == 0

    return m


def table(*names):
    return pd.DataFrame({"time": TIMES} | dict.fromkeys(names, TIMES))


def posed(model, *columns, start=None, parameters=("D", "k"), events=(), **settings):
    """One experiment from c = 0 at first, unless told otherwise; columns: names, or the table."""
    data = table(*columns) if isinstance(columns[0], str) else columns[0]
    start, more = {"c": 0.0} if start is None else start, {"events": events} if events else {}
    run = igpe.Experiment(data, start=start, start_time=0.0, sigma=0.01, **more)
    return igpe.Problem(model, parameters=parameters, experiments=run, **settings)


def alone(model, *columns, start=None, grid=None, **settings):
    """The same of k alone, where the model says how it starts; grid: of x."""
    settings |= {"space": {"x": grid}} if grid else {}
    return posed(model, *columns, start=start or {}, parameters=["k"], **settings)


def simulated(problem, k=1.0):
    return igpe.simulate(problem, {"k": k}, TIMES)


def lines(n, *, closed=True):
    """(n_times, n + 1) the same by hand: upwind, n intervals."""
    h = 1 / n

    def full(c):
        first = (SPEED + closed * DISPERSION * c[0] / h) / (SPEED + closed * DISPERSION / h)
        return np.concatenate([[first], c, c[-1:]])

    def slopes(_, c):
        f = full(c)
        bend = (f[2:] - 2 * f[1:-1] + f[:-2]) / h**2
        return -SPEED * (f[1:-1] - f[:-2]) / h + DISPERSION * bend - RATE * f[1:-1]

    run = solve_ivp(slopes, (0, TIMES[-1]), np.zeros(n - 1), "LSODA", TIMES, rtol=1e-10, atol=1e-12)
    return np.array([full(c) for c in run.y.T])


@pytest.mark.parametrize("index", ["tx", "xt"])
@pytest.mark.parametrize("closed", [True, False])
def test_upwind_lines_are_those_written_by_hand(closed, index):
    def model(times):
        return tube(times, closed=closed, index=index)

    problem = posed(model, "c[0.5]", "c[1]", space={"x": 10})
    found = igpe.simulate(problem, TRUTH, TIMES)
    exact = lines(10, closed=closed)
    assert found["c[0.5]"].to_numpy() == pytest.approx(exact[:, 5], rel=1e-5)
    assert found["c[1]"].to_numpy() == pytest.approx(exact[:, -1], rel=1e-5)
    assert "c[0]" not in problem.instance.states


def of_the_user(times, *, fixed_at_start=0.0, add=lambda m: None):
    """The same for D = 0, discretised by the user with Pyomo; all is said by `.fix()`."""
    m = over_space(times, "c", "c_t c_x", k=(0, 10))
    m.D = pyo.Param(initialize=0.0)

    @m.Constraint(m.t, m.x)
    def balance(m, t, x):
        return m.c_t[t, x] == -SPEED * m.c_x[t, x] - m.k * m.c[t, x]

    add(m)
    pyo.TransformationFactory("dae.finite_difference").apply_to(m, wrt=m.x, nfe=10)
    m.c[:, 0].fix(1.0)
    m.c[0, :].fix(fixed_at_start)
    return m


def test_what_the_user_discretised_and_fixed_is_kept():
    """The balance at the inlet is not skipped: it gives the derivative by x there, used nowhere."""
    problem = alone(of_the_user, "c[0.5]", "c[1]")
    assert len(problem.instance.states) == 10
    found = simulated(problem, RATE)

    def slopes(_, c):
        return -np.diff(np.append(1.0, c)) / 0.1 - RATE * c

    exact = solve_ivp(slopes, (0, 1.5), np.zeros(10), "LSODA", TIMES, rtol=1e-10, atol=1e-12).y
    assert found["c[0.5]"].to_numpy() == pytest.approx(exact[4], rel=1e-5, abs=1e-9)
    assert found["c[1]"].to_numpy() == pytest.approx(exact[9], rel=1e-5, abs=1e-9)


def heat(times):
    """Pyomo's example of a partial differential equation (examples/dae/PDE_example.py), with k = 1.

    Its solution is exp(-t) sin(pi x).
    """
    m = pyo.ConcreteModel()
    m.t, m.x = dae.ContinuousSet(initialize=times), dae.ContinuousSet(bounds=(0, 1))
    m.u = pyo.Var(m.x, m.t)
    m.dudx = dae.DerivativeVar(m.u, wrt=m.x)
    m.dudx2 = dae.DerivativeVar(m.u, wrt=(m.x, m.x))
    m.dudt = dae.DerivativeVar(m.u, wrt=m.t)
    m.k = pyo.Var(bounds=(0.1, 10))
    skip = pyo.Constraint.Skip

    def balance(m, x, t):
        return skip if t == 0 or x in (0, 1) else np.pi**2 * m.dudt[x, t] == m.k * m.dudx2[x, t]

    def start(m, x):
        return skip if x in (0, 1) else m.u[x, 0] == pyo.sin(np.pi * x)

    m.pde = pyo.Constraint(m.x, m.t, rule=balance)
    m.initcon = pyo.Constraint(m.x, rule=start)
    m.lower = pyo.Constraint(m.t, rule=lambda m, t: m.u[0, t] == 0)
    m.upper = pyo.Constraint(m.t, rule=lambda m, t: np.pi * pyo.exp(-t) + m.dudx[1, t] == 0)
    return m


def test_pyomos_heat_equation_converges_with_the_square_of_the_width():
    errors = []
    for n in (10, 20, 40):
        found = simulated(alone(heat, "u[0.5]", grid=FiniteDifference(n, "central")))
        errors.append(np.abs(found["u[0.5]"] - np.exp(-TIMES)).max())
    assert errors[0] < 0.02
    assert np.log2(np.array(errors[:-1]) / errors[1:]) == pytest.approx(2.0, abs=0.1)


def by_collocation(times, nfe=1, **scheme):
    m = heat(times)
    pyo.TransformationFactory("dae.collocation").apply_to(m, wrt=m.x, nfe=nfe, ncp=7, **scheme)
    return m


@pytest.mark.parametrize("how", [{"nfe": 4}, {"scheme": "LAGRANGE-LEGENDRE"}], ids=str)
def test_second_derivatives_collocated_on_elements_without_joined_slopes_are_refused(how):
    says = r"second derivative 'dudx2' by collocation .*m\.q.*LEGENDRE.*space={'x': "
    with pytest.raises(ModelError, match=says):
        alone(lambda times: by_collocation(times, **how), "u[1.0]")


def test_collocation_in_space_by_the_user_is_kept():
    found = simulated(alone(by_collocation, "u[1.0]"))
    x = 0.558672  # a point of Radau's, as Pyomo rounds it
    exact = np.exp(-TIMES) * np.sin(np.pi * x)
    assert found[f"u[{x}]"].to_numpy() == pytest.approx(exact, abs=2e-4)


def thin(times):
    """A plate of 1 cm, kept cold on one side and heated on the other; its flux is collocated."""
    m = over_space(times, "u q", "u_t u_x q_x", (0, THICK), k=(0.1, 10))

    @m.Constraint(m.t, m.x)
    def fourier(m, t, x):
        return m.q[t, x] == m.u_x[t, x] if x > 0 else pyo.Constraint.Skip

    @m.Constraint(m.t, m.x)
    def balance(m, t, x):
        if x in (0, THICK):
            return m.q[t, x] == 1 / THICK if x else m.u[t, x] == 0
        return m.u_t[t, x] == m.k * THICK**2 * m.q_x[t, x]

    scheme = pyo.TransformationFactory("dae.collocation")
    scheme.apply_to(m, wrt=m.x, nfe=4, ncp=3, scheme="LAGRANGE-LEGENDRE")
    return m


THICK = 0.01


def test_collocated_diffusion_with_its_flux_may_be_in_a_thin_plate():
    found = simulated(alone(thin, f"u[{THICK}]", start={"u": 0.0}))
    n = np.pi * (np.arange(20)[:, None] + 0.5)
    exact = 1 - np.sum(2 / n**2 * np.exp(-(n**2) * TIMES), axis=0)
    assert found[f"u[{THICK}]"].to_numpy() == pytest.approx(exact, abs=2e-4)


def test_params_and_loops_of_the_builder_reach_all_points_of_the_grid():
    def model(times):
        m = tube(times)
        m.share = pyo.Param(m.x, initialize=lambda m, x: 1 + x)
        m.local = pyo.Expression(m.t, m.x, rule=lambda m, t, x: m.share[x] * m.c[t, x])
        for x in m.x:
            m.c[m.t.first(), x].fix(0.25)
        return m

    problem = posed(model, "c[0.5]", "local[0.5]", start={}, space={"x": 4})
    found = igpe.simulate(problem, TRUTH, [0.0, 1.0])
    assert found["c[0.5]"].iloc[0] == 0.25
    assert found["local[0.5]"].to_numpy() == pytest.approx(1.5 * found["c[0.5]"].to_numpy())


def add_mean(m, way):
    def trapezoid(m, t):
        points = sorted(m.x)
        pairs = pairwise(points)
        return sum((b - a) * (m.c[t, a] + m.c[t, b]) / 2 for a, b in pairs)

    if way == "sum":
        m.mean = pyo.Expression(m.t, rule=trapezoid)
        return
    total = dae.Integral(m.t, m.x, wrt=m.x, rule=lambda m, t, x: m.c[t, x])
    if way == "integral":
        m.mean = total
        return
    m.total, m.mean = total, pyo.Var(m.t)
    m.equal = pyo.Constraint(m.t, rule=lambda m, t: m.mean[t] == m.total[t])


@pytest.mark.parametrize("way", ["sum", "integral", "equation"])
@pytest.mark.parametrize("late", [False, True], ids=["of igpe", "of the user"])
def test_means_are_over_all_points_of_the_grid(way, late):
    def model(times):
        if late:
            return of_the_user(times, add=lambda m: add_mean(m, way))
        m = tube(times)
        add_mean(m, way)
        return m

    profile = [f"c[{x:g}]" for x in np.linspace(0, 1, 11)][late:]  # the user fixes c[0]
    if late and way == "sum":
        with pytest.raises(ModelError, match=r"'mean' contains a sum over \['x'\] that lacks"):
            alone(model, "mean")
        return
    given = dict(start={}, parameters=["k"]) if late else dict(start={"c": 0.5}, space={"x": 10})
    problem = posed(model, "mean", *profile, **given)
    found = igpe.simulate(problem, {"k": RATE} if late else TRUTH, TIMES)
    points = found[profile].to_numpy()
    points = np.insert(points, 0, 1.0, axis=1) if late else points
    exact = 0.1 * (points[:, 1:] + points[:, :-1]).sum(axis=1) / 2
    assert found["mean"].to_numpy() == pytest.approx(exact, rel=1e-6)


def exchanger(times):
    """Counter-current: h flows up, c flows down; each balance holds where its stream leaves."""
    m = over_space(times, "h c", "h_t c_t h_x c_x", k=(0, 10))

    @m.Constraint(m.t, m.x)
    def hot(m, t, x):
        lost = m.k * (m.h[t, x] - m.c[t, x])
        return m.h[t, x] == 1 if x == 0 else m.h_t[t, x] == -m.h_x[t, x] - lost

    @m.Constraint(m.t, m.x)
    def cold(m, t, x):
        won = m.k * (m.h[t, x] - m.c[t, x])
        return m.c[t, x] == 0 if x == 1 else m.c_t[t, x] == m.c_x[t, x] + won

    return m


def exchanged(scheme):
    start, grid = {"h": 0.5, "c": 0.5}, FiniteDifference(10, scheme)
    return simulated(alone(exchanger, "h[1]", "c[0]", start=start, grid=grid), RATE)


def test_variables_have_schemes_of_their_own():
    found = exchanged({"h": "backward", "c": "forward"})

    def slopes(_, y):
        h, c = np.append(1.0, y[:10]), np.append(y[10:], 0.0)
        return [*(-np.diff(h) * 10 - RATE * (h - c)[1:]), *(np.diff(c) * 10 + RATE * (h - c)[:-1])]

    exact = solve_ivp(slopes, (0, 1.5), np.full(20, 0.5), "LSODA", TIMES, rtol=1e-10, atol=1e-12).y
    assert found["h[1]"].to_numpy() == pytest.approx(exact[9], rel=1e-5)
    assert found["c[0]"].to_numpy() == pytest.approx(exact[10], rel=1e-5)


def streams(times):
    """The same as `exchanger`, both streams in one variable."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x, m.s, m.k = dae.ContinuousSet(bounds=(0, 1)), pyo.Set(initialize=["h", "c"]), pyo.Var()
    m.k.setlb(0), m.k.setub(10)
    m.T = pyo.Var(m.s, m.x, m.t)
    m.T_t, m.T_x = dae.DerivativeVar(m.T, wrt=m.t), dae.DerivativeVar(m.T, wrt=m.x)

    @m.Constraint(m.s, m.x, m.t)
    def balance(m, s, x, t):
        if (s, x) == ("h", 0):
            return m.T[s, x, t] == 1
        if (s, x) == ("c", 1):
            return m.T[s, x, t] == 0
        lost = m.k * (m.T["h", x, t] - m.T["c", x, t])
        up = 1 if s == "h" else -1
        return m.T_t[s, x, t] == -up * m.T_x[s, x, t] - up * lost

    return m


@pytest.mark.parametrize(
    "scheme",
    [{"T": "backward", "T[c]": "forward"}, {"T[h,:]": "backward", "T[c, :, :]": "forward"}],
)
def test_members_have_schemes_of_their_own(scheme):
    grid = FiniteDifference(10, scheme)
    problem = alone(streams, "T[h,1]", "T[c,0]", start={"T": 0.5}, grid=grid)
    found, expected = simulated(problem, RATE), exchanged({"h": "backward", "c": "forward"})
    assert found["T[h,1]"].to_numpy() == pytest.approx(expected["h[1]"].to_numpy(), rel=1e-9)
    assert found["T[c,0]"].to_numpy() == pytest.approx(expected["c[0]"].to_numpy(), rel=1e-9)


@pytest.mark.parametrize("name", ["T[hot]", "S", "T[h,1]"])
def test_schemes_of_unknown_members_are_refused(name):
    with pytest.raises(ModelError, match=rf"given for \['{re.escape(name)}'\].*are \['T'\]"):
        alone(streams, "T[h,1]", grid=FiniteDifference(10, {name: "forward"}))


def test_derivatives_of_higher_order_alone_leave_open_what_is_time():
    def plate_at_rest(times):
        m = pyo.ConcreteModel()
        m.x, m.y = dae.ContinuousSet(bounds=(0, 1)), dae.ContinuousSet(bounds=(0, 1))
        m.u, m.k = pyo.Var(m.x, m.y), pyo.Var(bounds=(0, 2))
        m.uxx = dae.DerivativeVar(m.u, wrt=(m.x, m.x))
        m.uyy = dae.DerivativeVar(m.u, wrt=(m.y, m.y))
        m.balance = pyo.Constraint(
            m.x, m.y, rule=lambda m, x, y: m.uxx[x, y] + m.k * m.uyy[x, y] == 1
        )
        return m

    with pytest.raises(ModelError, match=r"respect to 'x', which igpe takes for time.*no time"):
        posed(plate_at_rest, "u[0.5]", start={}, parameters=["k"], space={"y": 10})


@pytest.mark.parametrize("scheme", ["backward", "forward"])
def test_slopes_at_walls_are_of_second_order_without_flow(scheme):
    """Upwind formulas have no meaning: conditions and measured fluxes are as for "central"."""

    def model(times):
        m = heat(times)
        m.flux = pyo.Expression(m.t, rule=lambda m, t: -m.k * m.dudx[0, t])
        return m

    found = {
        name: simulated(alone(model, "u[0.5]", "flux", grid=FiniteDifference(20, name)))
        for name in ("central", scheme)
    }
    for column in ("u[0.5]", "flux"):
        assert found[scheme][column].to_numpy() == pytest.approx(found["central"][column])
    assert found[scheme]["flux"].to_numpy() == pytest.approx(-np.pi * np.exp(-TIMES), rel=0.05)


def by_flux(times):
    """Pyomo's heat equation written with the flux."""
    m = heat(times)
    m.q = pyo.Var(m.x, m.t)
    m.dqdx = dae.DerivativeVar(m.q, wrt=m.x)
    m.pde.deactivate()
    skip = pyo.Constraint.Skip
    m.fourier = pyo.Constraint(
        m.x, m.t, rule=lambda m, x, t: m.q[x, t] == -m.k / np.pi**2 * m.dudx[x, t]
    )
    m.balance = pyo.Constraint(
        m.x, m.t, rule=lambda m, x, t: skip if x in (0, 1) else m.dudt[x, t] == -m.dqdx[x, t]
    )
    return m


def with_flux(scheme):
    problem = alone(by_flux, "u[0.5]", grid=FiniteDifference(20, scheme))
    return simulated(problem)["u[0.5]"].to_numpy()


@pytest.mark.parametrize("scheme", ["central", {"q": "backward", "u": "forward"}])
def test_diffusion_may_be_written_with_its_flux(scheme):
    assert with_flux(scheme) == pytest.approx(np.exp(-TIMES), abs=0.01)


def plate(times):
    """Two sets beside the time: heat in a square whose edges are cold."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.x, m.y = dae.ContinuousSet(bounds=(0, 1)), dae.ContinuousSet(bounds=(0, 1))
    m.T, m.k = pyo.Var(m.t, m.x, m.y), pyo.Var(bounds=(0.01, 10))
    m.dT = dae.DerivativeVar(m.T, wrt=m.t)
    m.Txx = dae.DerivativeVar(m.T, wrt=(m.x, m.x))
    m.Tyy = dae.DerivativeVar(m.T, wrt=(m.y, m.y))

    @m.Constraint(m.t, m.x, m.y)
    def balance(m, t, x, y):
        if x in (0, 1) or y in (0, 1):
            return m.T[t, x, y] == 0
        return m.dT[t, x, y] == m.k * (m.Txx[t, x, y] + m.Tyy[t, x, y])

    return m


def test_a_plate_cools_as_the_product_of_two_sines():
    def start(x, y):
        return np.sin(np.pi * x) * np.sin(np.pi * y)

    space = {"x": FiniteDifference(12, "central"), "y": FiniteDifference(8, "central")}
    problem = alone(plate, "T[0.5,0.5]", start={"T": start}, space=space)
    assert len(problem.instance.states) == 11 * 7
    found = simulated(problem, 0.05)
    # The sines are eigenvectors of central differences, with these eigenvalues.
    speed = sum((2 * n * np.sin(np.pi / (2 * n))) ** 2 for n in (12, 8))
    assert found["T[0.5,0.5]"].to_numpy() == pytest.approx(np.exp(-0.05 * speed * TIMES), rel=1e-5)


def test_a_start_at_positions_that_are_times_too_is_read_right():
    """x = 0.5 and t = 0.5 are one number: the rule is asked for another time, not another x."""

    def model(times):
        m = heat(times)
        m.extra = pyo.Var(m.x, m.t)
        m.follows = pyo.Constraint(
            m.x, m.t, rule=lambda m, x, t: m.extra[x, t] == pyo.exp(-t) * (1 + x)
        )
        return m

    grid = FiniteDifference(8, "central")
    found = simulated(alone(model, "u[0.5]", "extra[0.5]", grid=grid))
    assert found["extra[0.5]"].to_numpy() == pytest.approx(1.5 * np.exp(-TIMES))


@pytest.mark.parametrize("scheme", ["central", "backward2", "forward2"])
def test_differences_are_exact_for_parabolas_on_uneven_points(scheme):
    m, uneven = (over_space([0, 1], "c", "c_x c_xx", (0, 0.3e-6, 1e-6)) for _ in range(2))
    for one, intervals in ((m, 10), (uneven, 2)):
        one.ends = pyo.Constraint(one.t, rule=lambda m, t: m.c_x[t, 0] + m.c_x[t, 1e-6] >= -1)
        FiniteDifference(intervals, scheme).apply(one, one.x)
    assert list(m.x) == pytest.approx(np.linspace(0, 1e-6, 11), abs=1e-18)
    assert len(uneven.x) == 3
    for name, exact in (("c_x", lambda x: 6 * x - 2e-6), ("c_xx", lambda x: 6.0)):
        for one in (m, uneven):
            v, equations = one.component(name), one.component(f"{name}_disc_eq")
            for (t, x), equation in equations.items():
                one.c.set_values({(s, y): 3 * y**2 - 2e-6 * y for s in one.t for y in one.x})
                v[t, x].value = exact(x)
                scale = {"c_x": 1e-6, "c_xx": 6.0}[name]
                assert pyo.value(equation.body) == pytest.approx(0, abs=1e-8 * scale)
            assert {x for _, x in equations} >= set(list(one.x)[1:-1])
    assert (0, 0) in m.c_x_disc_eq  # the condition uses it
    assert (0, 0) not in m.c_xx_disc_eq


def slopes(profile, points, intervals, scheme):
    """Positions and first derivatives there, by a scheme."""
    m = over_space((0, 1), "c", "c_x", points)
    m.moves = pyo.Constraint(m.t, m.x, rule=lambda m, t, x: m.c_x[t, x] == 0)
    FiniteDifference(intervals, scheme).apply(m, m.x)
    for x in m.x:
        m.c[0, x].value, m.c_x[0, x].value = profile(x), 0.0
    found = {x: -pyo.value(e.body) for (t, x), e in m.c_x_disc_eq.items() if t == 0}
    return np.array(list(found)), np.array(list(found.values()))


@pytest.mark.parametrize("scheme", ["backward_weno", "forward_weno"])
def test_weno_is_exact_for_lines_and_of_the_fifth_order_for_smooth_profiles(scheme):
    _, uneven = slopes(lambda x: 3 - 2 * x, (0, 0.13, 1), 7, scheme)
    assert uneven == pytest.approx(-2, abs=1e-12)
    errors = []
    for intervals in (20, 40):
        x, found = slopes(lambda x: np.exp(2 * x), (0, 1), intervals, scheme)
        inside = (x > 0.2) & (x < 0.8)  # beyond an end the profile goes on as a line
        errors.append(np.abs(found - 2 * np.exp(2 * x))[inside].max())
    assert np.log2(errors[0] / errors[1]) > 4.5


@pytest.mark.parametrize("down", [False, True])
def test_weno_carries_a_front_without_overshoot(down):
    """Against three points, which overshoot, and against flow in the other direction."""

    moments = np.linspace(0.0, 4.0, 81)

    def model(times):
        m = over_space(times, "c", "c_t c_x", u=(-2, 2))
        m.c[:, float(down)].fix(1.0)

        @m.Constraint(m.t, m.x)
        def balance(m, t, x):
            if x == float(down):
                return pyo.Constraint.Skip
            return m.c_t[t, x] == -m.u * m.c_x[t, x]

        return m

    def outlet(scheme):
        column, grid = f"c[{int(not down)}]", {"x": FiniteDifference(20, scheme)}
        problem = posed(model, column, parameters=["u"], space=grid)
        return igpe.simulate(problem, {"u": -0.5 if down else 0.5}, moments)[column].to_numpy()

    front = np.where(moments < 2, 0.0, 1.0)
    way = "forward" if down else "backward"
    sharp, parabola = outlet(f"{way}_weno"), outlet(f"{way}2")
    assert sharp.min() > -1e-3
    assert sharp.max() < 1.01
    assert parabola.min() < -0.05
    assert np.abs(sharp - front).mean() < 0.7 * np.abs(parabola - front).mean()


@pytest.mark.parametrize(("ends", "names"), [((0, 4), "1 1.5 2"), ((0.0, 4.0), "1.0 1.5 2.0")])
def test_whole_positions_are_named_as_the_ends(ends, names):
    m = pyo.ConcreteModel()
    m.x = dae.ContinuousSet(initialize=ends)
    FiniteDifference(8).fill(m.x)
    assert " ".join(map(str, list(m.x)[2:5])) == names


def test_columns_may_be_named_in_several_forms_and_between_points():
    names = ("c[:,0.50]", "c[0.53]", "c[1.0]")
    problem = posed(tube, *names, space={"x": 10})
    assert problem.experiments[0].measured == ("c[0.5]", "c[0.53]", "c[1]")
    found = igpe.simulate(problem, TRUTH, TIMES)
    between = 0.7 * found["c[0.5]"] + 0.3 * found["c[0.6]"]
    assert found["c[0.53]"].to_numpy() == pytest.approx(between.to_numpy(), rel=1e-12)


@pytest.mark.parametrize(
    "profile",
    [
        lambda x: 1 - x,
        {0: 1.0, 0.5: 0.5, 1: 0.0},
        pd.Series([1.0, 0.0], index=[0.0, 1.0]),
    ],
)
def test_a_start_may_be_a_profile_over_positions(profile):
    problem = posed(tube, "c[1]", start={"c": profile, "c[0.20]": 7.0}, space={"x": 5})
    assert problem.experiments[0].start == pytest.approx({
        "c[0.2]": 7.0,
        "c[0.4]": 0.6,
        "c[0.6]": 0.4,
        "c[0.8]": 0.2,
    })


def test_a_start_profile_is_called_with_the_members_integers():
    first = [1.0, 0.2]

    chain = row((1, 2), lambda m, i, t: -m.k * m.n[i, t], name="n", k=(0.01, 10))
    problem = alone(chain, "n[1]", start={"n": lambda i: first[i - 1]})
    assert problem.experiments[0].start == {"n[1]": 1.0, "n[2]": 0.2}


def test_a_start_may_be_a_pattern_or_a_parameter():
    def two(times):
        m = tube(times)
        m.s = pyo.Set(initialize=["A", "B"])
        m.w, m.w0 = pyo.Var(m.s, m.t, m.x), pyo.Var(bounds=(0, 1))
        m.dw = dae.DerivativeVar(m.w, wrt=m.t)
        m.decay = pyo.Constraint(
            m.s, m.t, m.x, rule=lambda m, s, t, x: m.dw[s, t, x] == -m.k * m.w[s, t, x]
        )
        return m

    start = {"c": 0.0, "w[A,:]": "w0", "w[B,:]": lambda x: x}
    problem = posed(two, "w[A,0.5]", start=start, parameters=["D", "k", "w0"], space={"x": 4})
    given = problem.experiments[0].start
    assert given["w[A,0.25]"] == "w0"
    assert given["w[B,0.25]"] == 0.25
    assert len(given) == 3 + 5 + 5


def test_a_start_may_name_a_variable_of_an_indexed_block():
    def layers(times):
        m = over_space(times, "c", "c_t", k=(0, 1))
        m.balance = pyo.Constraint(m.t, m.x, rule=lambda m, t, x: m.c_t[t, x] == -m.k * m.c[t, x])

        @m.Block(["A", "B"])
        def layer(b, _):
            m = b.model()
            b.w = pyo.Var(m.x, m.t)
            b.dw = dae.DerivativeVar(b.w, wrt=m.t)
            b.decay = pyo.Constraint(m.x, m.t, rule=lambda b, x, t: b.dw[x, t] == -b.w[x, t])

        return m

    start = {"c": 1.0, "layer[A].w": 2.0, "layer[B].w": lambda x: x}
    problem = posed(layers, "c[0.5]", start=start, parameters=["k"], space={"x": 4})
    given = problem.experiments[0].start
    assert (given["layer[A].w[0.25]"], given["layer[B].w[0.25]"]) == (2.0, 0.25)
    assert len(given) == 5 + 5 + 5


def ring(times):
    """A loop reactor: what leaves at 4 enters at 0."""
    m = over_space(times, "c", "c_t c_x c_xx", (0, 1.33, 4), u=(0.1, 5))

    @m.Constraint(m.t, m.x)
    def balance(m, t, x):
        if x == 0:
            return m.c[t, 0] == m.c[t, 4]
        if x == 4:
            return m.c_x[t, 0] == m.c_x[t, 4]
        return m.c_t[t, x] == -m.u * m.c_x[t, x] + DISPERSION * m.c_xx[t, x]

    return m


def test_a_pulse_whose_tail_is_next_to_nothing_moves_as_one_on_a_level():
    """The start at the end of the grid is 1e-22; a level of 1 everywhere stays 1."""

    def found(level):
        start = {"c": lambda x: level + np.exp(-(((x - 1) / 0.4) ** 2))}
        grid = {"x": FiniteDifference(20, "central")}
        problem = posed(ring, "c[1.33]", start=start, parameters=["u"], space=grid)
        return igpe.simulate(problem, {"u": 1.1}, TIMES)["c[1.33]"].to_numpy() - level

    assert found(0.0) == pytest.approx(found(1.0), abs=1e-6)


def test_sets_with_the_same_points_are_told_apart():
    """Pyomo's sets are equal if their points are: x and y of one grid, x and the times."""
    times = np.linspace(0.25, 1, 4)
    data = pd.DataFrame({"time": times, "c[0.5]": 0.0})
    problem = posed(tube, data, space={"x": 4})
    assert list(problem.instance.time) == list(problem.instance.model.x)
    other = igpe.simulate(posed(tube, "c[0.5]", space={"x": 4}), TRUTH, times)
    assert igpe.simulate(problem, TRUTH, times)["c[0.5]"].to_numpy() == pytest.approx(
        other["c[0.5]"].to_numpy(), rel=1e-5
    )
    m = plate([0, 1])
    m.Ty, m.Txy = dae.DerivativeVar(m.T, wrt=m.y), dae.DerivativeVar(m.T, wrt=(m.x, m.y))
    for one in (m.x, m.y):
        FiniteDifference(4, "central").apply(m, one)
    m.T.set_values({(t, x, y): 3 * x * y for t, x, y in m.T})
    for (t, x, y), equation in [*m.Ty_disc_eq.items(), *m.Txy_disc_eq.items()]:
        m.Ty[t, x, y], m.Txy[t, x, y] = 3 * x, 3.0
        assert pyo.value(equation.body) == pytest.approx(0, abs=1e-9)
    assert (1, 0.5, 0.5) in m.Txy_disc_eq


def test_an_event_may_change_all_members():
    dose = igpe.Event(at=0.5, add={"c": 0.25, "c[0.40]": 0.5})
    problem = posed(tube, "c[0.4]", events=[dose], space={"x": 5})
    found = igpe.simulate(problem, TRUTH, [0.5, 0.5 + 1e-9])
    jumps = found[["c[0.2]", "c[0.4]", "c[0.6]", "c[0.8]"]].diff().to_numpy()[1]
    assert jumps == pytest.approx([0.25, 0.5, 0.25, 0.25], abs=1e-6)


def test_the_grid_of_a_problem_with_an_event_is_judged():
    data = table("c[1]")
    dose = igpe.Event(at=0.5, add={"c": 0.25})
    problem = posed(tube, data, events=[dose], space={"x": 5})
    data["c[1]"] = igpe.simulate(problem, TRUTH, data["time"])["c[1]"].to_numpy()
    result = igpe.estimate(problem.with_data(data), certify=False)
    assert result.parameters == pytest.approx(TRUTH, rel=1e-2)
    assert "grid" in f"{result.notes}{result.actions}"


def test_copies_keep_the_grid():
    def start(x):
        return 0.0 * x

    problem = posed(tube, "c[1]", start={"c": start}, space={"x": 5})
    again = copy.deepcopy(problem)
    assert list(again.instance.states) == ["c[0.2]", "c[0.4]", "c[0.6]", "c[0.8]"]
    assert pickle.loads(pickle.dumps(posed(tube, "c[1]", space={"x": 5}))).size == problem.size


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [0.002, None])
def test_the_error_of_the_grid_is_that_of_the_estimate(sigma):
    """Measurements are exact, exp(-t) sin(pi x) with k = 1: all of the error is the grid's."""
    data = table("u[0.5]", "u[0.25]")
    data["u[0.5]"] = np.exp(-data["time"])
    data["u[0.25]"] = np.exp(-data["time"]) * np.sin(np.pi / 4)
    run = igpe.Experiment(data, start_time=0.0, sigma=sigma)
    found = {}
    for scheme in ("central", "backward"):
        grid = FiniteDifference(8, scheme)
        problem = igpe.Problem(heat, parameters=["k"], experiments=run, space={"x": grid})
        estimate = igpe.SingleShooting().estimate(problem, {"k": 1.0})
        errors = igpe.uncertainty.grid_error(problem, estimate)
        found[scheme] = errors.loc["k", "grid_error"] / abs(errors.loc["k", "value"] - 1)
        assert errors.loc["k", "standard_error"] > 0
    assert 1.0 < found["central"] < 1.7  # 1.5 for the second order
    assert 0.5 < found["backward"] < 2.0


@pytest.mark.slow
@pytest.mark.parametrize("space", [{"x": 4}, {}], ids=["of igpe", "of the user"])
def test_a_result_says_that_its_intervals_leave_out_the_error_of_the_grid(space):
    model, column = (heat, "u[0.5]") if space else (of_the_user, "c[0.5]")
    result = igpe.estimate(alone(model, column, space=space), certify=False)
    said = f"{result} {result.details}"
    assert "do not include the error of the grid in space. " in " ".join(said.split())
    assert "twice as many intervals" in " ".join(said.split())
    assert any("twice as many intervals to see" in n for n in result.notes) is not bool(space)


@pytest.mark.slow
def test_a_sum_that_grows_with_the_grid_is_said_in_place_of_its_error():
    """Twice as many points hold about twice the sum."""

    def summed(times):
        m = heat(times)
        m.total = pyo.Expression(m.t, rule=lambda m, t: sum(m.u[x, t] for x in m.x))
        return m

    grid = {"x": FiniteDifference(8, "central")}
    blank = alone(summed, "total", space=grid)
    data = simulated(blank)[["time", "total"]]
    data["total"] += 0.01 * np.resize([1, -1], len(data))
    result = igpe.estimate(alone(summed, data, space=grid), certify=False)
    said = " ".join(str(result).split())
    assert "fits much worse" in said
    assert "Integral(m.t, m.x" in said
    assert "instead of" not in said


def test_without_a_grid_of_igpe_its_error_is_unknown():
    problem = alone(of_the_user, "c[0.5]")
    with pytest.raises(ProblemError, match="no grid to refine"):
        igpe.uncertainty.grid_error(problem, {"k": RATE})


def not_closed(times):
    m = tube(times)
    m.inlet.deactivate()
    return m


def bent(times):
    m = tube(times)
    m.outlet.deactivate()
    m.flat = pyo.Constraint(m.t, rule=lambda m, t: m.d2c[t, 1] == 0)
    return m


def moving(times):
    m = of_the_user(times)
    for t in m.t:
        m.c[t, 0].fix(float(t))
    return m


made = tube([0.0, *TIMES])
REFUSED = {
    "left continuous": (
        lambda: posed(tube, "c[1]"),
        ModelError,
        "['t', 'x'] | space={'x': 50} | apply_to(m, wrt=m.x",
    ),
    "another set": (lambda: posed(tube, "c[1]", space={"z": 5}), ModelError, "'z' | ['t', 'x']"),
    "twice": (
        lambda: posed(of_the_user, "c[1]", space={"x": 5}),
        ModelError,
        "'x' | already discretises | Remove it from space=",
    ),
    "no grid": (
        lambda: posed(tube, "c[1]", space={"x": "fine"}),
        ProblemError,
        "'fine' | expected",
    ),
    "a set made elsewhere": (
        lambda: posed(lambda times: made.clone(), "c[1]", space={"x": 5}),
        ModelError,
        "'x' lacks points | must make this set itself | initialize=",
    ),
    "one interval": (lambda: FiniteDifference(1), ProblemError, "at least 2"),
    "another scheme": (lambda: FiniteDifference(9, "weno"), ProblemError, "'weno' | 'central'"),
    "another scheme of a variable": (
        lambda: FiniteDifference(9, {"c": "weno"}),
        ProblemError,
        "'weno' | 'central'",
    ),
    "scheme of no variable": (
        lambda: posed(tube, "c[1]", space={"x": FiniteDifference(9, {"q": "central"})}),
        ModelError,
        "['q'] | variables with derivatives with respect to 'x' are ['c']",
    ),
    "no formula": (
        lambda: exchanged("central"),
        ModelError,
        "no formula for ['h_x[1]', 'c_x[0]'], | 'backward' | 'forward' | {'hot': 'backward' | "
        "balance of its own | m.T[t, 0] == m.w[t]",
    ),
    "flux upwind twice": (
        lambda: with_flux("backward"),
        ModelError,
        "'dqdx' is the derivative of 'q' | the derivative 'dudx' | With 'backward' for both | "
        "{'q': 'backward', 'u': 'forward'}",
    ),
    "no name": (lambda: posed(tube, "c[1]", space=[50]), ProblemError, "space={'x':"),
    "outside": (
        lambda: posed(tube, "c[1.2]", space={"x": 5}),
        DataError,
        "'c[1.2]' is at position 1.2 | from 0 to 1",
    ),
    "one quantity": (
        lambda: posed(tube, "c[1]", "c[1.0]", space={"x": 5}),
        DataError,
        "'c[1.0]', 'c[1]' | same quantity",
    ),
    "unknown profile": (
        lambda: posed(tube, "c[1]", start={"c": igpe.Unknown(0, 1)}, space={"x": 5}),
        ProblemError,
        "'c' as igpe.Unknown | name it in parameters",
    ),
    "short profile": (
        lambda: posed(tube, "c[1]", start={"c": {0.3: 1.0, 1.0: 0.0}}, space={"x": 5}),
        ProblemError,
        "no value at 0.2",
    ),
    "failing profile": (
        lambda: posed(tube, "c[1]", start={"c": lambda x: 1 / (x - 0.2)}, space={"x": 5}),
        ProblemError,
        "failed at 0.2: ZeroDivisionError",
    ),
    "no start": (
        lambda: posed(tube, "c[1]", start={"q": 0.0}, space={"x": 50}),
        ProblemError,
        "contains ['q'], but | 'c[0.02]', 'c[0.04]' | ... 49 in all",
    ),
    "start left out": (
        lambda: posed(tube, "c[1]", start={}, space={"x": 5}),
        ProblemError,
        "have no start value | start={'c': 0.0}",
    ),
    "no condition": (
        lambda: igpe.simulate(posed(not_closed, "c[1]", space={"x": 5}), TRUTH),
        ModelError,
        "do not determine | 'c[0]'",
    ),
    "skipped": (
        lambda: igpe.simulate(posed(not_closed, "c[1]", space={"x": 5}), TRUTH),
        ModelError,
        "do not determine | The model skips 'balance' at x = 0, x = 1.",
    ),
    "second derivative at the end": (
        lambda: igpe.simulate(posed(bent, "c[1]", space={"x": 5}), TRUTH),
        ModelError,
        "no formula for ['d2c[1]'] | Second derivatives have formulas only between the ends",
    ),
    "time": (
        lambda: posed(tube, "c[1]", space={"t": 5}),
        ModelError,
        "'t' contains the times, but it is discretised | discretise 'x' instead",
    ),
    "event at a boundary": (
        lambda: posed(
            tube, "c[0.4]", events=[igpe.Event(at=0.5, add={"c[1]": 1.0})], space={"x": 5}
        ),
        ProblemError,
        "['c[1]'], which are not states | ['c[1]'] have no differential equation",
    ),
    "moving": (
        lambda: alone(moving, "c[1]"),
        ModelError,
        "'c[0]' is fixed at values that change",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_with_a_helpful_sentence(name):
    attempt, error, says = REFUSED[name]
    with pytest.raises(IgpeError) as caught:
        attempt()
    message = str(caught.value)
    assert type(caught.value) is error, message
    assert [part for part in says.split(" | ") if part not in message] == [], message


@pytest.mark.statistical
def test_starts_on_a_cluster_with_little_memory_one_of_whose_workers_is_killed(tmp_path):
    """A nanny ends workers above their limit, and three ends of a start in a row are recorded."""
    distributed = pytest.importorskip("distributed")
    names = ["c[0.25]", "c[0.5]", "c[1]"]
    problem = posed(tube, *names, space={"x": 100})
    exact = igpe.simulate(problem, TRUTH)
    problem = problem.with_data(exact[exact["time"].isin(TIMES)][["time", *names]])
    store, killed = tmp_path / "starts.sqlite", []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="640MiB", dashboard_address=":0",
            silence_logs=50,
        ) as workers,
        distributed.Client(workers) as client,
    ):  # fmt: skip
        victim = min(client.run(os.getpid).values())

        def kill():
            if soon(lambda: kept(store), 60):
                os.kill(victim, signal.SIGKILL)
                killed.append(victim)

        watch = threading.Thread(target=kill)
        watch.start()
        found = igpe.campaign(problem, starts=12, executor=client.get_executor(), store=store)
        watch.join()
        assert victim not in client.run(os.getpid).values()
    assert killed
    assert len(found.table) == 12
    assert found.table["arrived"].all()
    assert found.best.parameters == pytest.approx(TRUTH, rel=1e-4)


def absorbed(times):
    """Gas whose speed falls along a tube as it is absorbed: a steady balance beside that of x."""
    m = over_space(times, "x v", "x_t x_z v_z", space="z", k=(0.01, 5))

    @m.Constraint(m.t, m.z)
    def of_x(m, t, z):
        rate = m.k * m.x[t, z]
        if z == 0:
            return m.x[t, z] == 0.5
        return m.x_t[t, z] == -m.v[t, z] * m.x_z[t, z] - rate * (1 - m.x[t, z])

    @m.Constraint(m.t, m.z)
    def of_all(m, t, z):
        return m.v[t, z] == 1 if z == 0 else m.v_z[t, z] == -m.k * m.x[t, z]

    return m


def of_absorption(intervals, data, sigma=None):
    run = igpe.Experiment(data, start={"x": 0.0}, start_time=0.0, sigma=sigma)
    return igpe.Problem(absorbed, parameters=["k"], experiments=run, space={"z": intervals})


def test_a_speed_that_falls_along_the_tube_is_no_diffusion():
    """At rest v (1 - x) stays as it is, and v' = -k x."""
    found = igpe.simulate(of_absorption(40, table("x[1]", "v[1]")), {"k": 0.5}, [6.0])
    v, x = found["v[1]"].iloc[-1], found["x[1]"].iloc[-1]
    assert v * (1 - x) == pytest.approx(0.5, rel=5e-3)


def test_a_misfit_of_the_grid_is_told_from_one_of_the_model():
    times = np.linspace(0.2, 3, 15)
    names = {"time": times, "x[1]": 0.0, "v[1]": 0.0}
    true = igpe.simulate(of_absorption(320, pd.DataFrame(names)), {"k": 0.5}, times)
    data = true[["time", "x[1]", "v[1]"]].reset_index(drop=True)
    data.loc[:, ["x[1]", "v[1]"]] += 2e-3 * np.random.default_rng(1).standard_normal((15, 2))
    problem = of_absorption(10, data, sigma=2e-3)
    result = igpe.estimate(problem, certify=False)
    said = " ".join(str(result).split())
    assert result.adequacy.lacks
    assert "on a grid with twice as many intervals, the sum of squares near the same" in said
    assert "improve the model" not in said
    assert "scattered starts" not in " ".join(str(result.details).split())


def heated(times):
    """A bed of solid that a gas heats; coarse grids spread the front as a slow exchange does."""
    m = over_space(times, "gas bed", "gas_t gas_z bed_t", space="z", h=(0.1, 100))

    @m.Constraint(m.t, m.z)
    def of_gas(m, t, z):
        given = m.h * (m.gas[t, z] - m.bed[t, z])
        return m.gas[t, z] == 1 if z == 0 else m.gas_t[t, z] == -2 * m.gas_z[t, z] - given

    @m.Constraint(m.t, m.z)
    def of_bed(m, t, z):
        return m.bed_t[t, z] == m.h * (m.gas[t, z] - m.bed[t, z])

    return m


def of_heating(space, data, sigma=None):
    run = igpe.Experiment(data, start={"gas": 0.0, "bed": 0.0}, start_time=0.0, sigma=sigma)
    return igpe.Problem(heated, parameters=["h"], experiments=run, space={"z": space})


def test_a_parameter_that_follows_the_grid_is_named_though_the_fit_is_good():
    times = np.linspace(0.2, 3, 15)
    nothing = pd.DataFrame({"time": times, "gas[1]": 0.0})
    true = igpe.simulate(of_heating(160, nothing), {"h": 8.0}, times)
    data = true[["time", "gas[1]"]].reset_index(drop=True)
    data["gas[1]"] += 0.01 * np.random.default_rng(1).standard_normal(15)
    coarse = igpe.estimate(of_heating(10, data, sigma=0.01), certify=False)
    assert not coarse.adequacy.lacks
    assert coarse.estimates[0].lower > 8
    said = " ".join(str(coarse).split())
    assert re.search(r"A grid in space with twice as many intervals gives h = 1\d", said)
    sharp = igpe.integrators.FiniteDifference(20, "backward_weno")
    fine = igpe.estimate(of_heating(sharp, data, sigma=0.01), certify=False)
    said = " ".join(str(fine.details).split())
    assert re.search(r"intervals in space, h changes by \S+ % of its standard error\.", said)
    assert fine.estimates[0].lower < 8 < fine.estimates[0].upper


def test_time_is_no_set_in_space():
    build = ode({"x": lambda m, t: -m.k * m.x[t]}, k=(0, 5))
    with pytest.raises(igpe.errors.ModelError, match=r"must be time.*Leave time out of"):
        alone(build, "x", start={"x": 1.0}, space={"t": 20})


def test_where_no_finer_grid_tells_the_error_the_result_says_what_to_do():
    """Unknowns that vary in space are others on another grid; without unknowns there is none."""
    times = np.linspace(0.2, 3, 8)
    data = pd.DataFrame({"time": times, "gas[1]": 1 - np.exp(-times)})
    fixed = igpe.estimate(of_heating(4, data, sigma=0.1).fixing({"h": 8.0}), certify=False)
    assert "grid" not in str(fixed)

    def build(times):
        m = over_space(times, "c", "c_t c_z", space="z")
        m.k = pyo.Var(m.z, bounds=(0.01, 9))

        @m.Constraint(m.t, m.z)
        def law(m, t, z):
            lost = m.k[z] * m.c[t, z]
            return m.c[t, z] == 1 if z == 0 else m.c_t[t, z] == -2 * m.c_z[t, z] - lost

        return m

    data = pd.DataFrame({"time": times, "c[0.5]": 0.8, "c[1]": 0.6})
    problem = posed(build, data, parameters=["k"], space={"z": 2})
    said = " ".join(str(igpe.estimate(problem, certify=False)).split())
    assert "Estimate again with twice as many intervals to see how large it is." in said
