"""Problems that are written as PEtab: everything that a problem may have, in a few small models."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from ode import over_time
from pyomo.dae import ContinuousSet, DerivativeVar

import igpe

TIMES = np.array([0, 0.5, 1, 2, 3, 4, 5.0])


def model(times, experiment):
    """Two states, an algebraic variable, conditions on time, an unknown time and a state."""
    m = over_time(
        times,
        "A B",
        "r",
        lag={"bounds": (0.1, 3), "initialize": 1.13},
        s0={"bounds": (0.01, 1), "initialize": 0.1},
    )
    m.k = pyo.Var(pyo.RangeSet(2), bounds=(0.01, 5), initialize=0.7)
    m.T, m.feed = pyo.Var(m.t, initialize=1.0), pyo.Var(m.t, initialize=0.0)
    power = 2 if experiment.name == "squared" else 1.5
    m.rate = pyo.Constraint(
        m.t, rule=lambda m, t: m.r[t] == m.k[1] * m.A[t] ** power * pyo.exp(-0.1 / m.T[t])
    )
    m.of_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.r[t])
    m.of_B = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.dB[t]
            == pyo.Expr_if(t >= m.lag, m.r[t], 0)
            - m.k[2] * m.B[t] * pyo.Expr_if(m.A[t] >= 0.6, 2.0, 1.0)
            + pyo.Expr_if(t < 0.33, 0.1, 0) * abs(pyo.sin(t))
        ),
    )
    m.sd = pyo.Expression(m.t, rule=lambda m, t: m.s0 * (1 + m.A[t]))
    m.total = pyo.Expression(
        m.t, rule=lambda m, t: pyo.log(1 + m.A[t] - 2 * -m.B[t]) + m.r[t] + m.feed[t]
    )
    return m


def plain(times, experiment):
    """Two states, without conditions; one start follows the parameters unless it is given."""
    m = pyo.ConcreteModel()
    m.t = ContinuousSet(initialize=times)
    m.k1 = pyo.Var(bounds=(0.01, 5), initialize=0.7)
    m.k2 = pyo.Var(bounds=(0.01, 5), initialize=0.4)
    m.A, m.B, m.feed = pyo.Var(m.t), pyo.Var(m.t), pyo.Var(m.t, initialize=0.0)
    m.dA, m.dB = DerivativeVar(m.A, wrt=m.t), DerivativeVar(m.B, wrt=m.t)
    m.of_A = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == m.feed[t] - m.k1 * m.A[t])
    m.of_B = pyo.Constraint(m.t, rule=lambda m, t: m.dB[t] == m.k1 * m.A[t] - m.k2 * m.B[t])
    if "B" not in experiment.start:
        m.first = pyo.Constraint(expr=m.B[m.t.first()] == 2 * m.k2 + m.k1)
    return m


def run(name="", columns=("A", "B"), seed=1, **given):
    noise = 0.3 * np.random.default_rng(seed).standard_normal((len(columns), len(TIMES)))
    data = pd.DataFrame({"time": TIMES, **dict(zip(columns, np.abs(1 + noise), strict=True))})
    usual = {"start": {"A": 2.0, "B": 0.1}, "sigma": 0.1, "inputs": {"T": 1.0, "feed": 0.1}}
    return igpe.Experiment(data, name=name, **{**usual, **given})


def several():
    """Local parameters, start values, inputs, errors and priors of all kinds."""
    first = run(
        "run 1",
        start={"A": igpe.Unknown(0.5, 5), "B": "s0"},
        sigma=igpe.Noise(absolute=0.05, relative=0.1),
    )
    inputs = {"T": igpe.linear_input([0, 1, 4], [1, 2, 1.5]), "feed": lambda t: 0.1 * pyo.exp(-t)}
    second = run("squared", inputs=inputs, sigma=igpe.Noise(relative=0.2), seed=2)
    sigma = {"A": igpe.EstimatedSigma("sd"), "total": np.linspace(0.1, 0.3, len(TIMES))}
    feed = igpe.step_input([0, 1, 2], [0, 0.5, 0.1])
    third = run("3", ("A", "total"), sigma=sigma, inputs={"T": 1.2, "feed": feed}, seed=3)
    return igpe.Problem(
        model,
        parameters=["k", "lag", "s0"],
        local=["k[1]"],
        logarithmic=["k[2]"],
        priors={
            "k[2]": igpe.losses.NormalPrior(1, 0.2),
            "lag": igpe.losses.Prior("gamma", (2.0, 1.0)),
        },
        experiments=[first, second, third],
    )


def events():
    """Doses, delays, conditions and priorities; measurements at the very time of events."""
    doses = [
        igpe.Event(at=2.0, add={"A": 1.0}),
        igpe.Event(at=2.0, set={"A": lambda m, t: 0.5 * m.A[t]}, priority=1),
        igpe.Event(at="lag", add={"B": "s0"}, delay=0.2),
    ]
    switched = [
        igpe.Event(when=lambda m, t: m.B[t] >= 0.5, set={"B": 0.05}),
        igpe.Event(at=0.0, add={"A": 0.4}),
        igpe.Event(at=3.0, add={"A": 0.4}, measured="after"),
    ]
    add = {"B": lambda m, t: m.r[t]}
    at_start = [igpe.Event(when=lambda m, t: m.A[t] <= 3, at_start=True, add=add, delay=0.5)]
    runs = [
        run("a", events=doses),
        run("b", ("A", "B", "r"), events=switched),
        run("c", events=at_start),
    ]
    return igpe.Problem(model, parameters=["k", "lag", "s0"], experiments=runs)


def steady():
    """Steady starts, one with a dose after it, one with an event that is followed before it too."""
    feed = igpe.step_input([0, 1], [1.0, 2.0])
    dose = [igpe.Event(at=1.5, add={"A": 1.0})]
    cut = [igpe.Event(when=lambda m, t: m.A[t] > 0.9, set={"B": lambda m, t: m.k1}, before=True)]
    runs = [
        run("x", start={"A": 1.0, "B": 1.0}, inputs={"feed": feed}, steady={"feed": 0.5}),
        run("y", start={"A": 1.0, "B": 1.0}, inputs={"feed": 0.3}, steady=True, events=dose),
        run("z", start={"A": 1.0}, inputs={"feed": 0.3}),
        run("w", start={"A": 0.1, "B": 1.0}, inputs={"feed": feed}, steady=True, events=cut),
    ]
    return igpe.Problem(plain, parameters=["k1", "k2"], local=["k2"], experiments=runs)


def varying():
    """An unknown function of time."""
    runs = [run("x", start={"A": 1.0}, inputs={}), run("y", inputs={}, seed=2)]
    feed = igpe.losses.PiecewiseConstant((1.0, 2.5), 0, 3)
    return igpe.Problem(
        plain, parameters=["k1", "k2"], time_varying={"feed": feed}, experiments=runs
    )


def late():
    """An experiment that starts late, with errors of unknown size."""
    times = {"time": TIMES + 2, "A": 1 + 0.1 * TIMES, "B": 2.0}
    feed = {"feed": igpe.step_input([2, 3], [1, 2])}
    start = {"A": 1.0, "B": 0.5}
    one = igpe.Experiment(pd.DataFrame(times), start_time=1.0, start=start, inputs=feed)
    return igpe.Problem(plain, parameters=["k1", "k2"], experiments=one)


def held():
    """Some unknowns held."""
    return several().fixing({"lag": 0.9, "k[1]@3": 0.8})


TERMS = {
    "first order": lambda k, x, y: k * x,
    "second order": lambda k, x, y: k * x * y,
    "saturated": lambda k, x, y: k * x / (0.5 + x),
    "inhibited": lambda k, x, y: k * x / (1 + y**2),
    "power": lambda k, x, y: k * x**1.5 * pyo.exp(-0.2 * y),
    "switched": lambda k, x, y: k * x * pyo.Expr_if(y >= 0.35, 1.0, 0.4),
}


class Drawn:
    """A random network of two to four states: reactions, a feed, what is measured."""

    def __init__(self, seed):
        self.seed, rng = seed, np.random.default_rng(seed)
        self.states = list("ABCD")[: int(rng.integers(2, 5))]
        count = int(rng.integers(2, 5))
        ends = [rng.choice(self.states, 2, replace=False).tolist() for _ in range(count)]
        self.reactions = list(zip(rng.choice(list(TERMS), count), ends, strict=True))
        self.fed, self.lost = rng.choice(self.states, 2).tolist()
        self.rates = rng.uniform(0.2, 1.5, count).round(3).tolist()
        self.shown = rng.choice(self.states, 2, replace=False).tolist()

    def __call__(self, times, experiment):
        m = pyo.ConcreteModel()
        m.t = ContinuousSet(initialize=times)
        m.feed = pyo.Var(m.t, initialize=0.0)
        m.s = pyo.Var(bounds=(0.01, 1), initialize=0.1)
        for i, rate in enumerate(self.rates):
            m.add_component(f"k{i}", pyo.Var(bounds=(0.01, 10), initialize=rate))
        for name in self.states:
            m.add_component(name, pyo.Var(m.t, initialize=0.5))
            m.add_component(f"d{name}", DerivativeVar(m.component(name), wrt=m.t))
        for name in self.states:
            slope = m.component(f"d{name}")
            rule = lambda m, t, name=name, slope=slope: slope[t] == self.slope(m, t, name)  # noqa: E731
            m.add_component(f"of_{name}", pyo.Constraint(m.t, rule=rule))
        m.total = pyo.Expression(m.t, rule=lambda m, t: sum(m.component(n)[t] for n in self.shown))
        m.sd = pyo.Expression(m.t, rule=lambda m, t: m.s * (1 + m.total[t]))
        return m

    def slope(self, m, t, name):
        found = m.feed[t] * int(name == self.fed)
        found = found - 0.3 * int(name == self.lost) * m.component(name)[t]
        for i, (kind, (one, other)) in enumerate(self.reactions):
            x, y = (m.component(n)[t] for n in (one, other))
            rate = TERMS[kind](m.component(f"k{i}"), x, y)
            found = found + (int(name == other) - int(name == one)) * rate
        return found

    def problem(self):
        """One or two experiments with random inputs, events, starts and errors."""
        rng, runs = np.random.default_rng(self.seed + 10**6), []
        for name in ("one", "two")[: int(rng.integers(1, 3))]:
            level, dose = rng.uniform(0.1, 1, 2).round(3).tolist()
            feeds = [
                level,
                igpe.step_input([0, 1.7], [level, 0.2]),
                igpe.linear_input([0, 5], [0, 1]),
            ]
            events = [
                igpe.Event(at=round(rng.uniform(1.1, 2.9), 2), add={self.fed: dose}),
                igpe.Event(at="k0", set={self.lost: lambda m, t: 0.5 * m.component(self.lost)[t]}),
                igpe.Event(when=lambda m, t: m.total[t] >= 1.9, set={self.lost: 0.1}),
            ]
            starts = {
                n: float(v) for n, v in zip(self.states, rng.uniform(0.2, 1, 4), strict=False)
            }
            if rng.random() < 0.5:
                starts[self.fed] = igpe.Unknown(0.1, 2, guess=0.6)
            sigmas = [0.1, igpe.Noise(absolute=0.05, relative=0.1), igpe.EstimatedSigma("sd")]
            columns = (*self.shown, "total")
            runs.append(
                run(
                    name,
                    columns,
                    seed=self.seed,
                    start=starts,
                    inputs={"feed": feeds[int(rng.integers(3))]},
                    events=[events[i] for i in np.flatnonzero(rng.random(3) < 0.4)],
                    sigma=sigmas[int(rng.integers(3))],
                )
            )
        names = [f"k{i}" for i in range(len(self.rates))]
        has_sd = any(e.estimated_sigma for e in runs)
        local = ["k1"] if len(runs) == 2 and rng.random() < 0.5 else []
        return igpe.Problem(
            self, parameters=[*names, *["s"] * has_sd], local=local, experiments=runs
        )


PROBLEMS = {f.__name__: f for f in (several, events, steady, varying, late, held)}
