"""Models of index 2 and 3, written as engineers write them, for tests of index reduction."""

import math

import pyomo.environ as pyo
from ode import over_time
from pyomo import dae


def pendulum(times):
    """A point on a rod in x, y: index 3. The rod's force is `pull` times the position."""
    length, g = (
        {"initialize": 1.0, "bounds": (0.5, 2.0)},
        {"initialize": 9.81, "bounds": (5.0, 15.0)},
    )
    m = over_time(times, "x y u v", "pull", length=length, g=g)
    m.y[:].value = -0.5
    m.go_x = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.u[t])
    m.go_y = pyo.Constraint(m.t, rule=lambda m, t: m.dy[t] == m.v[t])
    m.force_x = pyo.Constraint(m.t, rule=lambda m, t: m.du[t] == -m.pull[t] * m.x[t])
    m.force_y = pyo.Constraint(m.t, rule=lambda m, t: m.dv[t] == -m.pull[t] * m.y[t] - m.g)
    m.rod = pyo.Constraint(m.t, rule=lambda m, t: m.x[t] ** 2 + m.y[t] ** 2 == m.length**2)
    return m


def reactor(times):
    """A -> B at constant volume; what flows out follows from that: index 2."""
    m = over_time(times, "V nA nB", "out A B", k={"initialize": 0.5, "bounds": (0.01, 5.0)})
    m.feed, m.fed = pyo.Param(initialize=0.2, mutable=True), pyo.Param(initialize=2.0, mutable=True)
    m.volume = pyo.Constraint(m.t, rule=lambda m, t: m.dV[t] == m.feed - m.out[t])
    m.conc_A = pyo.Constraint(m.t, rule=lambda m, t: m.A[t] * m.V[t] == m.nA[t])
    m.conc_B = pyo.Constraint(m.t, rule=lambda m, t: m.B[t] * m.V[t] == m.nB[t])
    m.bal_A = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dnA[t] == m.feed * m.fed - m.out[t] * m.A[t] - m.k * m.A[t] * m.V[t],
    )
    m.bal_B = pyo.Constraint(
        m.t, rule=lambda m, t: m.dnB[t] == -m.out[t] * m.B[t] + m.k * m.A[t] * m.V[t]
    )
    m.full = pyo.Constraint(m.t, rule=lambda m, t: m.V[t] == 1.5)
    return m


def cooled(times):
    """A stirred tank whose temperature is prescribed; the duty of its jacket follows: index 2."""
    m = over_time(
        times,
        "c T",
        "Q setpoint",
        k0={"initialize": 0.1, "bounds": (0.01, 1.0)},
        E={"initialize": 3.0, "bounds": (0.5, 10.0)},
    )
    m.rate = pyo.Expression(
        m.t, rule=lambda m, t: m.k0 * pyo.exp(m.E * (1 - 300.0 / m.T[t])) * m.c[t]
    )
    m.mass = pyo.Constraint(m.t, rule=lambda m, t: m.dc[t] == 0.1 * (2.0 - m.c[t]) - m.rate[t])
    m.heat = pyo.Constraint(
        m.t,
        rule=lambda m, t: m.dT[t] == 0.1 * (290.0 - m.T[t]) + 40.0 * m.rate[t] - m.Q[t],
    )
    m.hold = pyo.Constraint(m.t, rule=lambda m, t: m.T[t] == m.setpoint[t])
    return m


def flash(times):
    """A drum of two volatile substances at constant pressure: index 2, its boiling point implicit.

    The vapour that leaves follows from the energy balance, as the holdup boils at fixed pressure.
    """
    m = over_time(times, "M n H", alpha={"initialize": 2.5, "bounds": (1.2, 6.0)})
    m.heat = pyo.Param(initialize=1.0, mutable=True)
    m.x, m.y, m.T, m.D = (pyo.Var(m.t, initialize=v) for v in (0.5, 0.6, 1.0, 0.1))
    m.total = pyo.Constraint(m.t, rule=lambda m, t: m.dM[t] == -m.D[t])
    m.light = pyo.Constraint(m.t, rule=lambda m, t: m.dn[t] == -m.D[t] * m.y[t])
    m.energy = pyo.Constraint(m.t, rule=lambda m, t: m.dH[t] == m.heat - m.D[t] * (5.0 + m.T[t]))
    m.fraction = pyo.Constraint(m.t, rule=lambda m, t: m.n[t] == m.x[t] * m.M[t])
    m.holdup = pyo.Constraint(m.t, rule=lambda m, t: m.H[t] == m.M[t] * m.T[t])
    m.boiling = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.alpha * m.x[t] * pyo.exp(5 * (1 - 1 / m.T[t]))
            + (1 - m.x[t]) * pyo.exp(6 * (1 - 1 / m.T[t]))
            == 1.0
        ),
    )
    m.equilibrium = pyo.Constraint(
        m.t, rule=lambda m, t: m.y[t] == m.alpha * m.x[t] * pyo.exp(5 * (1 - 1 / m.T[t]))
    )
    return m


def column(trays, times):  # noqa: C901, PLR0915
    """A distillation column of constant pressure and holdups: flows of both phases follow, index 2.

    Tray 0 is the reboiler; reflux comes from a condenser that condenses all, at fixed reflux.
    """
    m, last = pyo.ConcreteModel(), trays - 1
    m.t, m.i = dae.ContinuousSet(initialize=times), pyo.RangeSet(0, last)
    m.alpha = pyo.Var(initialize=2.0, bounds=(1.2, 5.0))
    m.duty = pyo.Var(m.t)
    m.M, m.n, m.H = (pyo.Var(m.i, m.t, initialize=1.0) for _ in range(3))
    m.dM, m.dn, m.dH = (dae.DerivativeVar(v, wrt=m.t) for v in (m.M, m.n, m.H))
    m.x, m.T = pyo.Var(m.i, m.t, initialize=0.5), pyo.Var(m.i, m.t, initialize=0.9)
    m.V, m.L = pyo.Var(m.i, m.t, initialize=1.0), pyo.Var(m.i, m.t, initialize=1.0)

    def light(m, i, t):
        return m.alpha * m.x[i, t] * pyo.exp(5 * (1 - 1 / m.T[i, t]))

    def enthalpy(m, i, t):
        return 5.0 + m.T[i, t]

    def above(m, i, t):  # flow, fraction and enthalpy of the liquid that comes down
        if i < last:
            return m.L[i + 1, t], m.x[i + 1, t], m.T[i + 1, t]
        return 0.8 * m.V[last, t], light(m, last, t), m.T[last, t]

    def below(m, i, t):  # of the vapour that comes up
        return (m.V[i - 1, t], light(m, i - 1, t), enthalpy(m, i - 1, t)) if i else (0.0, 0.0, 0.0)

    def total(m, i, t):
        feed = 0.4 if i == trays // 2 else 0.0
        return m.dM[i, t] == feed + above(m, i, t)[0] + below(m, i, t)[0] - m.V[i, t] - m.L[i, t]

    def lights(m, i, t):
        (down, x, _), (up, y, _) = above(m, i, t), below(m, i, t)
        feed = 0.4 * 0.5 if i == trays // 2 else 0.0
        gone = m.V[i, t] * light(m, i, t) + m.L[i, t] * m.x[i, t]
        return m.dn[i, t] == feed + down * x + up * y - gone

    def energy(m, i, t):
        (down, _, h), (up, _, vapour) = above(m, i, t), below(m, i, t)
        feed = 0.4 * 0.9 if i == trays // 2 else 0.0
        heat = m.duty[t] if i == 0 else 0.0
        gone = m.V[i, t] * enthalpy(m, i, t) + m.L[i, t] * m.T[i, t]
        return m.dH[i, t] == feed + down * h + up * vapour + heat - gone

    def boiling(m, i, t):
        heavy = (1 - m.x[i, t]) * pyo.exp(6 * (1 - 1 / m.T[i, t]))
        return light(m, i, t) + heavy == 1.0

    for rule in (total, lights, energy, boiling):
        m.add_component(rule.__name__, pyo.Constraint(m.i, m.t, rule=rule))
    m.fraction = pyo.Constraint(m.i, m.t, rule=lambda m, i, t: m.n[i, t] == m.x[i, t] * m.M[i, t])
    m.content = pyo.Constraint(m.i, m.t, rule=lambda m, i, t: m.H[i, t] == m.M[i, t] * m.T[i, t])
    m.holdup = pyo.Constraint(m.i, m.t, rule=lambda m, i, t: m.M[i, t] == 1.0)
    return m


def amplifier(times):
    """Eight voltages between capacitors that tie their slopes (Hairer and Wanner)."""
    m = pyo.ConcreteModel()
    m.t, m.n = dae.ContinuousSet(initialize=times), pyo.RangeSet(8)
    m.y = pyo.Var(m.n, m.t)
    m.dy = dae.DerivativeVar(m.y, wrt=m.t)
    m.beta = pyo.Var(bounds=(1e-7, 1e-5))
    r, gain, supply = 9000.0, 0.99, 6.0

    def current(m, i, j, t):
        return m.beta * (pyo.exp((m.y[i, t] - m.y[j, t]) / 0.026) - 1)

    def balance(m, i, t):
        y, dy = (lambda k: m.y[k, t]), (lambda k: m.dy[k, t])
        signal = 0.1 * pyo.sin(200 * math.pi * t)
        return {
            1: 1e-6 * (dy(2) - dy(1)) == (y(1) - signal) / 1000.0,
            2: 1e-6 * (dy(1) - dy(2)) == (2 * y(2) - supply) / r + 0.01 * current(m, 2, 3, t),
            3: -2e-6 * dy(3) == y(3) / r - current(m, 2, 3, t),
            4: 3e-6 * (dy(5) - dy(4)) == (y(4) - supply) / r + gain * current(m, 2, 3, t),
            5: 3e-6 * (dy(4) - dy(5)) == (2 * y(5) - supply) / r + 0.01 * current(m, 5, 6, t),
            6: -4e-6 * dy(6) == y(6) / r - current(m, 5, 6, t),
            7: 5e-6 * (dy(8) - dy(7)) == (y(7) - supply) / r + gain * current(m, 5, 6, t),
            8: 5e-6 * (dy(7) - dy(8)) == y(8) / r,
        }[i]

    m.balance = pyo.Constraint(m.n, m.t, rule=balance)
    return m
