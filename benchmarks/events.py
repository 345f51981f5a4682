"""Events: 30 models whose trajectories are known in closed form, and lag times from 20 starts.

    python benchmarks/events.py [exact] [lags] [--quick] [--json FILE]

exact   values of all states at 41 times, and their derivatives by all unknowns, against the closed
        form and its complex-step derivative; by single shooting's integration, and by the intervals
        of multiple shooting put together. Relative to the largest value of each column
lags    lag and dose times among 15 measurements with errors of 2 %: how many of 20 starts, spread
        over bounds that hold all measurements, end within 1e-4 of the best sum of squares
--quick 5 starts
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most, command
from pyomo import dae

import igpe
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.shooting.chains import most_intervals
from igpe.equations.compiled import compiled

END, COUNT, STEP = 10.0, 41, 1e-30
VALUE, DERIVATIVE = 1e-7, 1e-6
exp, log, sqrt = np.exp, np.log, np.sqrt


@dataclass(frozen=True)
class Case:
    """A model with its events, and its states in closed form.

    odes    state -> slope, text in states, parameters, t, when(condition, a, b), exp
    start   state -> number or parameter;  truth: parameter -> value
    exact   (t, parameters) -> states; must take complex parameters
    """

    name: str
    odes: Mapping[str, str]
    start: Mapping[str, Any]
    truth: Mapping[str, float]
    exact: Callable[[float, Any], Sequence[Any]]
    events: Sequence[igpe.Event] = ()


def builder(case: Case) -> Callable[..., Any]:
    """The Pyomo model of a case."""

    def model(times: Sequence[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for name, value in case.truth.items():
            m.add_component(name, pyo.Var(initialize=value, bounds=(-100, 100)))
        for state in case.odes:
            m.add_component(state, pyo.Var(m.t))
            m.add_component(f"d{state}", dae.DerivativeVar(m.component(state), wrt=m.t))
        for state, text in case.odes.items():
            m.add_component(f"ode_{state}", pyo.Constraint(m.t, rule=_rule(case, state, text)))
        return m

    return model


def _rule(case: Case, state: str, text: str) -> Callable[..., Any]:
    def rule(m: Any, t: Any) -> Any:
        names = {n: m.component(n)[t] for n in case.odes}
        names |= {n: m.component(n) for n in case.truth}
        known = {"when": lambda c, a, b: pyo.Expr_if(IF=c, THEN=a, ELSE=b), "exp": pyo.exp, "t": t}
        return m.component(f"d{state}")[t] == eval(text, {**known, **names})

    return rule


def posed(case: Case, times: Any, values: Mapping[str, Any], sigma: float = 1.0) -> igpe.Problem:
    """The problem with such measurements."""
    run = igpe.Experiment(
        pd.DataFrame({"time": times, **values}),
        start=case.start,
        events=case.events,
        start_time=0.0,
        sigma=sigma,
    )
    return igpe.Problem(builder(case), parameters=list(case.truth), experiments=run)


def _decay(a: Any, k: Any, since: Any) -> Any:
    return a * exp(-k * since)


def bolus(t: float, p: Any) -> Any:
    a = _decay(p.A0, p.k, t)
    return [a + _decay(5.0, p.k, t - 2.0) if t > 2 else a]


def repeated(t: float, p: Any) -> Any:
    return [_decay(1.0, p.k, t) + sum(_decay(p.d, p.k, t - s) for s in (0.0, 4.0, 8.0) if t > s)]


def diluted(t: float, p: Any) -> Any:
    return [_decay(p.A0, p.k, t) * (p.f if t > 3 else 1.0)]


def washed(t: float, p: Any) -> Any:
    a, b = _decay(1.0, p.k, t), 1.0 - exp(-p.k * t)
    return [a, b] if t <= 5 else [0.0 * p.k, b]


def _chain(a: Any, b: Any, k: Any, c: Any, since: Any) -> tuple[Any, Any]:
    """A -> B -> with rates k and c."""
    x, y = exp(-k * since), exp(-c * since)
    return a * x, b * y + a * k / (c - k) * (x - y)


def chain(t: float, p: Any) -> Any:
    a, b = _chain(p.A0, 0.0, p.k, p.c, min(t, 1.0))
    if t > 1:
        a, b = _chain(a + p.d, b, p.k, p.c, min(t, 2.0) - 1.0)
    if t > 2:
        a, b = _chain(a, b + p.e, p.k, p.c, t - 2.0)
    return [a, b]


def known_switch(t: float, p: Any) -> Any:
    return [p.A0 if t <= 3 else _decay(p.A0 + p.d, p.k, t - 3.0)]


def lag(t: float, p: Any) -> Any:
    return [p.A0 if t <= p.t0.real else _decay(p.A0, p.k, t - p.t0)]


def induction(t: float, p: Any) -> Any:
    before = t <= p.t0.real
    return [exp(p.m * t) if before else exp(p.m * p.t0 + p.n * (t - p.t0))]


def dose(t: float, p: Any) -> Any:
    a = _decay(1.0, p.k, t)
    return [a if t <= p.td.real else a + _decay(p.d, p.k, t - p.td)]


def two_doses(t: float, p: Any) -> Any:
    a = _decay(1.0, p.k, t)
    for s in (p.td, p.td + p.gap):
        a = a + _decay(p.d, p.k, t - s) if t > s.real else a
    return [a]


def delayed_dose(t: float, p: Any) -> Any:
    a, s = _decay(1.0, p.k, t), 1.0 + p.lag
    return [a + _decay(p.d, p.k, t - s) if t > s.real else a]


def infusion(t: float, p: Any) -> Any:
    since = [t - s if t > s.real else 0.0 * p.k for s in (p.a, p.a + p.b)]
    first, second = ((1 - exp(-p.k * s)) / p.k for s in since)
    return [p.r * (first - second)]


def lagged_chain(t: float, p: Any) -> Any:
    a, b = (1.0 + 0.0 * p.k, 0.0 * p.k) if t <= p.t0.real else _chain(1.0, 0.0, p.k, p.c, t - p.t0)
    return [a, b]


def affine_jump(t: float, p: Any) -> Any:
    a = _decay(2.0, p.k, t)
    if t <= p.td.real:
        return [a]
    return [_decay(p.f * _decay(2.0, p.k, p.td) + p.d, p.k, t - p.td)]


def stopped(t: float, p: Any) -> Any:
    return [_decay(3.0, p.k, t if t < p.t0.real else p.t0)]


def scaled_time(t: float, p: Any) -> Any:
    s = 2.0 / p.w
    return [p.A0 * t if t <= s.real else p.A0 * s - p.k * (t - s)]


def bouncing(t: float, p: Any) -> Any:
    begin, speed, since = 0.0, 0.0, sqrt(2 * 5.0 / p.g)
    if t <= since.real:
        return [5.0 - p.g * t**2 / 2, -p.g * t]
    begin, speed = since, p.e * p.g * since
    while t > (begin + 2 * speed / p.g).real:
        begin, speed = begin + 2 * speed / p.g, p.e * speed
    s = t - begin
    return [speed * s - p.g * s**2 / 2, speed - p.g * s]


def thermostat(t: float, p: Any) -> Any:
    begin, temperature, on = 0.0, 20.0 + 0.0 * p.k, 1.0
    while True:
        rest = 30.0 * on  # where it tends to
        limit = p.high if on else p.low
        until = begin + log((temperature - rest) / (limit - rest)) / p.k
        if t <= until.real:
            return [rest + (temperature - rest) * exp(-p.k * (t - begin)), on + 0.0 * p.k]
        begin, temperature, on = until, limit, 1.0 - on


def drained(t: float, p: Any) -> Any:
    s = log(2.0 / p.least) / p.k
    return [_decay(2.0, p.k, t) if t <= s.real else p.least]


def two_rates(t: float, p: Any) -> Any:
    s = log(p.c / 0.1) / p.m
    return [0.1 * exp(p.m * t) if t <= s.real else p.c * exp(p.n * (t - s))]


def harvest(t: float, p: Any) -> Any:
    begin, volume = 0.0, 1.0
    while t > (begin + (p.full - volume) / p.F).real:
        begin, volume = begin + (p.full - volume) / p.F, p.rest
    return [volume + p.F * (t - begin)]


def firing(t: float, p: Any) -> Any:
    period, begin = -log(1 - p.h / p.i), 0.0
    while t > (begin + period).real:
        begin = begin + period
    return [p.i * (1 - exp(-(t - begin)))]


def exhausted(t: float, p: Any) -> Any:
    s = p.S0 / p.k
    return [p.S0 - p.k * t, p.y * p.k * t] if t <= s.real else [0.0 * p.k, p.y * p.S0]


def relay(t: float, p: Any) -> Any:
    s = log(1.0 / p.c) / p.k
    return [_decay(1.0, p.k, t), 0.0 * p.k if t <= s.real else _decay(p.d, p.k, t - s)]


def delayed_trigger(t: float, p: Any) -> Any:
    begin, a = 0.0, 1.0 + 0.0 * p.k
    while t > (s := begin + log(a / p.c) / p.k + p.lag).real:
        begin, a = s, _decay(a, p.k, s - begin) + p.d  # above c: it triggers again
    return [_decay(a, p.k, t - begin)]


def concentration(t: float, p: Any) -> Any:
    s = (p.F / p.c - 1.0) / p.F
    return [1.0 + 0.0 * p.F if t <= s.real else 1.0 + p.d, 1.0 + p.F * t]


def rising_limit(t: float, p: Any) -> Any:
    s = log(1.0 / p.c) / (p.k - 0.1)
    a = _decay(1.0, p.k, t)
    return [a if t <= s.real else a + _decay(1.0, p.k, t - s)]


def ordered(t: float, p: Any) -> Any:
    a = _decay(1.0, p.k, min(t, 4.0))
    return [a if t <= 4 else _decay(2 * (a + p.d), p.k, t - 4.0)]


def jump_switches(t: float, p: Any) -> Any:
    if t <= p.td.real:
        return [_decay(1.0, 0.2, t) + 0.0 * p.k]
    a = _decay(1.0, 0.2, p.td) + 2.0  # above 1: the rate is k until it is 1 again
    s = p.td + log(a / 1.0) / p.k
    return [_decay(a, p.k, t - p.td) if t <= s.real else _decay(1.0, 0.2, t - s)]


def cascade(t: float, p: Any) -> Any:
    a, b = _decay(1.0, p.k, t), 0.0 * p.k
    if t > p.td.real:
        a, b = a + _decay(2.0, p.k, t - p.td), p.y * (_decay(1.0, p.k, p.td) + 2.0)
    return [a, b]


Event = igpe.Event
CASES = (
    Case("bolus", {"A": "-k*A"}, {"A": "A0"}, {"k": 0.3, "A0": 2.0}, bolus,
         [Event(at=2.0, add={"A": 5.0})]),
    Case("doses from the start", {"A": "-k*A"}, {"A": 1.0}, {"k": 0.4, "d": 2.0}, repeated,
         [Event(at=s, add={"A": "d"}) for s in (0.0, 4.0, 8.0)]),
    Case("dilution", {"A": "-k*A"}, {"A": "A0"}, {"k": 0.2, "A0": 3.0, "f": 0.6}, diluted,
         [Event(at=3.0, set={"A": lambda m, t: m.f * m.A[t]})]),
    Case("washed out", {"A": "-k*A", "B": "k*exp(-k*t)"}, {"A": 1.0, "B": 0.0}, {"k": 0.35}, washed,
         [Event(at=5.0, set={"A": 0.0})]),
    Case("chain with two doses", {"A": "-k*A", "B": "k*A - c*B"}, {"A": "A0", "B": 0.0},
         {"k": 0.5, "c": 0.2, "A0": 1.0, "d": 2.0, "e": 0.7}, chain,
         [Event(at=1.0, add={"A": "d"}), Event(at=2.0, add={"B": "e"})]),
    Case("dose where a rate begins", {"A": "-when(t >= 3.0, k, 0)*A"}, {"A": "A0"},
         {"k": 0.4, "A0": 1.5, "d": 0.5}, known_switch, [Event(at=3.0, add={"A": "d"})]),
    Case("lag time", {"A": "-when(t >= t0, k, 0)*A"}, {"A": "A0"},
         {"k": 0.4, "A0": 1.5, "t0": 2.7}, lag),
    Case("induction", {"X": "when(t >= t0, n, m)*X"}, {"X": 1.0},
         {"m": 0.02, "n": 0.3, "t0": 4.1}, induction),
    Case("dose at an unknown time", {"A": "-k*A"}, {"A": 1.0},
         {"k": 0.3, "d": 2.0, "td": 3.3}, dose, [Event(at="td", add={"A": "d"})]),
    Case("two doses apart", {"A": "-k*A"}, {"A": 1.0},
         {"k": 0.3, "d": 2.0, "td": 1.3, "gap": 4.2}, two_doses,
         [Event(at="td", add={"A": "d"}),
          Event(at=lambda m, t: m.td + m.gap, add={"A": "d"})]),
    Case("delayed dose", {"A": "-k*A"}, {"A": 1.0},
         {"k": 0.3, "d": 2.0, "lag": 1.7}, delayed_dose,
         [Event(at=1.0, delay="lag", add={"A": "d"})]),
    Case("infusion from a to a + b", {"A": "when(t >= a, r, 0)*when(t < a + b, 1, 0) - k*A"},
         {"A": 0.0}, {"k": 0.5, "r": 1.2, "a": 1.6, "b": 3.3}, infusion),
    Case("chain after a lag", {"A": "-when(t > t0, k, 0)*A", "B": "when(t > t0, k, 0)*A - c*B"},
         {"A": 1.0, "B": 0.0}, {"k": 0.6, "c": 0.25, "t0": 1.9}, lagged_chain),
    Case("part replaced", {"A": "-k*A"}, {"A": 2.0}, {"k": 0.25, "f": 0.5, "d": 0.8, "td": 4.4},
         affine_jump, [Event(at="td", set={"A": lambda m, t: m.f * m.A[t] + m.d})]),
    Case("quenched", {"A": "-when(t < t0, k, 0)*A"}, {"A": 3.0}, {"k": 0.25, "t0": 5.2}, stopped),
    Case("switch at w t = 2", {"A": "when(w*t >= 2, -k, A0)"}, {"A": 0.0},
         {"w": 0.45, "k": 0.2, "A0": 0.5}, scaled_time),
    Case("bouncing ball", {"x": "v", "v": "-g"}, {"x": 5.0, "v": 0.0}, {"g": 2.1, "e": 0.8},
         bouncing, [Event(when=lambda m, t: m.x[t] <= 0,
                          set={"v": lambda m, t: -m.e * m.v[t], "x": 0.0})]),
    Case("thermostat", {"T": "k*(30*on - T)", "on": "0"}, {"T": 20.0, "on": 1.0},
         {"k": 0.3, "high": 24.0, "low": 18.0}, thermostat,
         [Event(when=lambda m, t: m.T[t] >= m.high, set={"on": 0.0}),
          Event(when=lambda m, t: m.T[t] <= m.low, set={"on": 1.0})]),
    Case("drained to a rest", {"A": "-when(A > least, k, 0)*A"}, {"A": 2.0},
         {"k": 0.3, "least": 0.5}, drained),
    Case("growth in two rates", {"X": "when(X >= c, n, m)*X"}, {"X": 0.1},
         {"m": 0.5, "n": 0.1, "c": 1.0}, two_rates),
    Case("repeated harvest", {"V": "F"}, {"V": 1.0}, {"F": 0.7, "full": 2.3, "rest": 0.4}, harvest,
         [Event(when=lambda m, t: m.V[t] >= m.full, set={"V": "rest"})]),
    Case("integrate and fire", {"v": "i - v"}, {"v": 0.0}, {"i": 1.6, "h": 1.0}, firing,
         [Event(when=lambda m, t: m.v[t] >= m.h, set={"v": 0.0})]),
    Case("exhausted substrate", {"S": "-when(S > 0, k, 0)", "P": "y*when(S > 0, k, 0)"},
         {"S": "S0", "P": 0.0}, {"k": 0.4, "S0": 2.1, "y": 0.9}, exhausted),
    Case("one state doses another", {"A": "-k*A", "B": "-k*B"}, {"A": 1.0, "B": 0.0},
         {"k": 0.3, "c": 0.4, "d": 1.3}, relay,
         [Event(when=lambda m, t: m.A[t] <= m.c, add={"B": "d"})]),
    Case("delay after a trigger", {"A": "-k*A"}, {"A": 1.0},
         {"k": 0.3, "c": 0.4, "d": 0.3, "lag": 1.1}, delayed_trigger,
         [Event(when=lambda m, t: m.A[t] <= m.c, delay="lag", add={"A": "d"})]),
    Case("trigger on a quotient", {"A": "0", "V": "F"}, {"A": 1.0, "V": 1.0},
         {"F": 0.5, "c": 0.2, "d": 0.1}, concentration,
         [Event(when=lambda m, t: m.F / m.V[t] <= m.c, add={"A": "d"})]),
    Case("trigger on state and time", {"A": "-k*A"}, {"A": 1.0}, {"k": 0.3, "c": 0.5},
         rising_limit, [Event(when=lambda m, t: m.A[t] * pyo.exp(0.1 * t) <= m.c, add={"A": 1.0})]),
    Case("two at one time", {"A": "-k*A"}, {"A": 1.0}, {"k": 0.3, "d": 0.5}, ordered,
         [Event(at=4.0, set={"A": lambda m, t: 2 * m.A[t]}),
          Event(at=4.0, add={"A": "d"}, priority=1.0)]),
    Case("a jump switches a rate", {"A": "-when(A > 1.0, k, 0.2)*A"}, {"A": 1.0 - 1e-9},
         {"k": 0.6, "td": 1.7}, jump_switches, [Event(at="td", add={"A": 2.0})]),
    Case("a jump triggers another", {"A": "-k*A", "B": "0"}, {"A": 1.0, "B": 0.0},
         {"k": 0.2, "td": 2.2, "y": 0.7}, cascade,
         [Event(at="td", add={"A": 2.0}),
          Event(when=lambda m, t: m.A[t] >= 1.5, set={"B": lambda m, t: m.y * m.A[t]})]),
)  # fmt: skip


def closed(case: Case, times: Any) -> tuple[Any, Any]:
    """(n, n_x) states, and (n, n_x, n_p) their derivatives by complex steps."""
    values, by = [], []
    for name in (None, *case.truth):
        p = {n: complex(v) + (1j * STEP if n == name else 0) for n, v in case.truth.items()}
        rows = np.array([case.exact(float(t), SimpleNamespace(**p)) for t in times])
        if name is None:
            values = rows.real
        else:
            by.append(rows.imag / STEP)
    return values, np.stack(by, axis=2)


def single(problem: igpe.Problem, q: Any, times: Any) -> tuple[Any, Any]:
    """By integration from the start."""
    ivp = compiled(problem).initial_value_problem(0, switching=True)
    run = Automatic(1e-11, 1e-13).simulation(ivp, times, sensitivities=True).run(q)
    if not run.status.usable:
        raise RuntimeError(run.reason)
    return run.measured, run.measured_by_unknown


def multiple(problem: igpe.Problem, q: Any, times: Any) -> tuple[Any, Any]:
    """By intervals that begin where the one before ended, their derivatives chained."""
    ivp = compiled(problem).initial_value_problem(0, switching=True)
    nodes = times[::5] if most_intervals(ivp, 2) > 1 else times[[0, -1]]
    intervals = Automatic(1e-11, 1e-13).prepare(ivp, nodes, times)
    state, by = intervals.start(q)
    starts, chained = np.ones((len(nodes) - 1, len(state))), []
    for k in range(len(starts)):
        starts[k] = state
        chained.append(by)
        shots = intervals.run(starts, q)
        if not shots.status[k].usable:
            raise RuntimeError(shots.reason[k])
        state, by = shots.ends[k], shots.by_start[k] @ by + shots.by_unknown[k]
    owner = intervals.cut.owner
    total = np.array([
        shots.measured_by_start[i] @ chained[k] + shots.measured_by_unknown[i]
        for i, k in enumerate(owner)
    ])
    return shots.measured, total


def exact(_: argparse.Namespace) -> Iterator[Row]:
    """Values and derivatives of every case."""
    times = np.linspace(0.0, END, COUNT)
    for case in CASES:
        values, by = closed(case, times)
        problem = posed(case, times, dict(zip(case.odes, values.T, strict=True)))
        ivp = compiled(problem).initial_value_problem(0, switching=True)
        order = [list(case.truth).index(n) for n in ivp.unknowns]
        q = np.array([case.truth[n] for n in ivp.unknowns])
        for name, method in (("single", single), ("multiple", multiple)):
            try:
                found, found_by = method(problem, q, times)
            except RuntimeError as error:
                print(f"{case.name}, {name}: {error}")
                found, found_by = np.full_like(values, np.inf), np.full_like(by, np.inf)
            far = np.abs(found - values).max(axis=0) / np.maximum(np.abs(values).max(axis=0), 1e-3)
            size = np.maximum(np.abs(by).max(axis=0), 1e-3)[:, order]
            wrong = np.abs(found_by - by[:, :, order]).max(axis=0) / size
            yield at_most(case.name, f"value, {name}", float(far.max()), limit=VALUE)
            yield at_most(case.name, f"derivative, {name}", float(wrong.max()), limit=DERIVATIVE)


LAGS = ("lag time", "induction", "dose at an unknown time", "two doses apart",
        "infusion from a to a + b", "chain after a lag")  # fmt: skip
BOUNDS = {"t0": (0.0, 10.0), "td": (0.0, 9.0), "gap": (0.0, 9.0), "a": (0.0, 9.0), "b": (0.0, 9.0)}
NOISE, STARTS, FEW, SAME = 0.02, 20, 5, 1e-4


def lags(given: argparse.Namespace) -> Iterator[Row]:
    """Single shooting from starts all over the bounds."""
    for case in CASES:
        if case.name not in LAGS:
            continue
        random = np.random.default_rng(CASES.index(case))
        times = np.linspace(0.0, END, 15)
        values, _ = closed(case, times)
        sigma = NOISE * float(np.abs(values).max())
        noisy = values + sigma * random.standard_normal(values.shape)
        problem = posed(case, times, dict(zip(case.odes, noisy.T, strict=True)), sigma)
        bounds = {n: BOUNDS.get(n, (0.01, 5.0)) for n in case.truth}
        problem = igpe.Problem(
            builder(case), parameters=bounds, experiments=list(problem.experiments)
        )
        method = igpe.SingleShooting().prepare(problem)
        best = method.estimate(dict(case.truth)).objective
        ends, begin = [], time.process_time()
        for _ in range(FEW if given.quick else STARTS):
            start = {n: float(random.uniform(*b)) for n, b in bounds.items()}
            ends.append(method.estimate(start).objective)
        seconds = (time.process_time() - begin) / len(ends)
        best = min([best, *ends])
        good = float(np.mean([end <= best * (1 + SAME) for end in ends]))
        yield at_least(case.name, "starts that end at the best", 100 * good, "%", 90.0)
        yield at_most(case.name, "processor time of a start", seconds, "s")


if __name__ == "__main__":
    command(
        __doc__,
        "events",
        {"exact": exact, "lags": lags},
        lambda parser: parser.add_argument("--quick", action="store_true"),
    )
