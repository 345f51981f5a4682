"""How far proofs reach: problems of 3 to 10 unknowns, or 5 to 12 states, most partially measured.

Synthetic and seeded: simulated by an integrator of its own, with normal errors of a standard
deviation that is a share of each quantity's largest value. Bounds are the true values divided and
multiplied by `wide`. `search` is the proof alone, good parameters being given, in processor
seconds of one core; `two` the same by two processes, in wall time; `verify` its check by other
code; `box` one box with many measurements.
"""

import argparse
import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import CONSOLE, Row, at_least, at_most, command
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.posed import posed

PATIENCE = 120.0  # seconds of each search
LARGE, GAP, CLOSED = 5, 0.01, 8  # unknowns or states of a large problem; how many are to be closed
Slopes = Callable[[Any, Any, Any], Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """One problem.

    slopes    (states, parameters, exp) -> slopes, in the order of `start`
    truth     the unknowns
    measured  which states
    free      states whose start values are unknown as well
    wide      bounds are truth / wide and truth * wide
    limit     seconds to a gap of 1e-2 that were asked for
    """

    slopes: Slopes
    start: dict[str, float]
    truth: dict[str, float]
    measured: tuple[str, ...]
    end: float
    wide: float = 2.0
    count: int = 12
    noise: float = 0.02
    limit: float | None = None
    free: tuple[str, ...] = ()
    rate: Callable[[Any, Any, Any], Any] | None = field(default=None)

    def model(self, times: Iterable[float]) -> Any:
        """The Pyomo model; a rate is an algebraic variable r."""
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for name in self.start:
            m.add_component(name, pyo.Var(m.t))
            m.add_component(f"d{name}", dae.DerivativeVar(m.component(name)))
        for name in self.truth:
            m.add_component(name, pyo.Var())
        p = SimpleNamespace(**{n: m.component(n) for n in self.truth})
        if self.rate is not None:
            m.r = pyo.Var(m.t)

        def states(t: float) -> Any:
            names = [*self.start, *(["r"] if self.rate else [])]
            return SimpleNamespace(**{n: m.component(n)[t] for n in names})

        def balance(m: Any, t: float, i: int) -> Any:
            slope = m.component(f"d{list(self.start)[i]}")[t]
            return slope == self.slopes(states(t), p, pyo.exp)[i]

        m.balance = pyo.Constraint(m.t, range(len(self.start)), rule=balance)
        if self.rate is not None:
            rate = self.rate
            m.law = pyo.Constraint(m.t, rule=lambda m, t: m.r[t] == rate(states(t), p, pyo.exp))
        return m

    def problem(self, count: int | None = None) -> igpe.Problem:
        """With data of seed 26."""
        names, p = list(self.start), SimpleNamespace(**self.truth)

        def slopes(_: float, y: Any) -> Any:
            x = SimpleNamespace(**dict(zip(names, y, strict=True)))
            if self.rate is not None:
                x.r = self.rate(x, p, np.exp)
            return self.slopes(x, p, np.exp)

        times = np.linspace(0, self.end, (count or self.count) + 1)[1:]
        y0 = list(self.start.values())
        run = solve_ivp(slopes, (0, self.end), y0, "LSODA", times, rtol=1e-10, atol=1e-12)
        table = pd.DataFrame(run.y.T, columns=names)[list(self.measured)]
        sigma = (self.noise * table.max()).to_dict()
        rng = np.random.default_rng(26)
        table = table + rng.standard_normal(table.shape) * np.array(list(sigma.values()))
        table.insert(0, "time", times)
        bounds = {n: (v / self.wide, v * self.wide) for n, v in self.truth.items()}
        start: dict[str, Any] = dict(self.start)
        for name in self.free:
            low, high = self.start[name] / self.wide, self.start[name] * self.wide
            start[name] = igpe.Unknown(low, high)
        run_ = igpe.Experiment(table, start=start, start_time=0.0, sigma=sigma)
        return igpe.Problem(self.model, parameters=bounds, experiments=[run_])


def sirs(x: Any, p: Any, _: Any) -> Any:
    """Susceptible, infected, recovered, who lose their immunity."""
    new, back, lost = p.beta * x.S * x.I, p.gamma * x.I, p.mu * x.R
    return lost - new, new - back, back - lost


def seirs(x: Any, p: Any, _: Any) -> Any:
    """The same with an exposed class."""
    new, ill, back, lost = p.beta * x.S * x.I, p.sigma * x.E, p.gamma * x.I, p.mu * x.R
    return lost - new, new - ill, ill - back, back - lost


def seird(x: Any, p: Any, _: Any) -> Any:
    """Also with deaths."""
    new, ill, back, lost = p.beta * x.S * x.I, p.sigma * x.E, p.gamma * x.I, p.mu * x.R
    dead = p.delta * x.I
    return lost - new, new - ill, ill - back - dead, back - lost, dead


def enzyme(x: Any, p: Any, _: Any) -> Any:
    """E + S <-> C <-> E + P."""
    bind = p.k1 * x.E * x.S - p.k2 * x.C
    turn = p.k3 * x.C - p.k4 * x.E * x.P
    return -bind, turn - bind, bind - turn, turn


def network(x: Any, p: Any, _: Any) -> Any:
    """A <-> B <-> C <-> D."""
    r1, r2, r3 = p.k1 * x.A - p.k2 * x.B, p.k3 * x.B - p.k4 * x.C, p.k5 * x.C - p.k6 * x.D
    return -r1, r1 - r2, r2 - r3, r3


def monod(x: Any, p: Any, _: Any) -> Any:
    """Growth on a substrate, with maintenance, decay and a product."""
    growth = p.mu * x.S * x.X / (p.K + x.S)
    return growth - p.d * x.X, -growth / p.Y, p.a * growth


def inhibited(x: Any, p: Any, _: Any) -> Any:
    """Two substrates, the second one inhibited by the product."""
    one = p.m1 * x.S * x.X / (p.K1 + x.S)
    two = p.m2 * x.L * x.X / (p.K2 + x.L)
    return 0.5 * one + 0.4 * two - p.d * x.X, -one, -two, p.a * (one + two)


def brusselator(x: Any, p: Any, _: Any) -> Any:
    """An oscillating reaction."""
    auto = p.c * x.X * x.X * x.Y
    return p.a - p.b * x.X - p.d * x.X + auto, p.b * x.X - auto


def predators(x: Any, p: Any, _: Any) -> Any:
    """Rosenzweig and MacArthur's predators."""
    eaten = p.a * x.N * x.P / (1 + p.h * x.N)
    return p.r * x.N - p.q * x.N * x.N - eaten, p.e * eaten - p.m * x.P


def pinene(x: Any, p: Any, _: Any) -> Any:
    """Isomerisation of alpha-pinene (Box et al. 1973)."""
    dimer = p.k4 * x.Y3 - p.k5 * x.Y5
    one = (p.k1 + p.k2) * x.Y1
    return -one, p.k1 * x.Y1, p.k2 * x.Y1 - p.k3 * x.Y3 - dimer, p.k3 * x.Y3, dimer


def reactor(x: Any, p: Any, exp: Any) -> Any:
    """A -> B -> C in a cooled batch reactor; T in units of 350 K; r, the first rate, algebraic."""
    second = p.k2 * exp(p.E2 * (1 - 1 / x.T)) * x.B
    return -x.r, x.r - second, p.H * x.r - p.U * (x.T - 0.95)


def first_rate(x: Any, p: Any, exp: Any) -> Any:
    """Arrhenius's law about 350 K."""
    return p.k1 * exp(p.E1 * (1 - 1 / x.T)) * x.A


def cascade(x: Any, p: Any, _: Any) -> Any:
    """Double phosphorylation of a kinase by an enzyme, undone by a phosphatase; mass action."""
    b1, b2 = p.a * x.K * x.E - 0.5 * x.KE, p.a * x.KP * x.E - 0.5 * x.KPE
    t1, t2 = p.c1 * x.KE, p.c2 * x.KPE
    u1, u2 = p.d1 * x.KP, p.d2 * x.KPP
    return -b1 + u1, t1 - b2 - u1 + u2, t2 - u2, b1 - t1, b2 - t2, t1 + t2 - b1 - b2


def chain(x: Any, p: Any, _: Any) -> Any:
    """Ten compartments in a row with five rates, and a loss."""
    y = [getattr(x, f"x{i}") for i in range(10)]
    k = [p.k1, p.k1, p.k2, p.k2, p.k3, p.k3, p.k4, p.k4, p.k5]
    flow = [a * b for a, b in zip(k, y, strict=False)]
    first, last = -flow[0], flow[-1]
    return [first, *(a - b for a, b in pairwise(flow)), last]


def biodiesel(x: Any, p: Any, _: Any) -> Any:
    """Transesterification of an oil by methanol (Noureddini and Zhu 1997), in M and 10 min."""
    r1 = p.k1 * x.TG * x.M - p.k2 * x.DG * x.E
    r2 = p.k3 * x.DG * x.M - p.k4 * x.MG * x.E
    r3 = p.k5 * x.MG * x.M - p.k6 * x.G * x.E
    all_three = r1 + r2 + r3
    return -r1, r1 - r2, r2 - r3, r3, -all_three, all_three


def toluene(x: Any, p: Any, _: Any) -> Any:
    """Hydrogenation of toluene by competing adsorption (Belohlav et al. 1997), in 100 min."""
    sites = p.KA * x.A + x.B + p.KC * x.C
    first = (p.kH * p.KA * x.A - p.kD * x.B) / sites
    second = p.k2 * x.B / sites
    return -first, first - second, second


def absorption(x: Any, p: Any, _: Any) -> Any:
    """A drug: depot, blood with saturable elimination, tissue."""
    taken, away, back = p.ka * x.D, p.k12 * x.C, p.k21 * x.T
    return -taken, taken - away + back - p.v * x.C / (p.K + x.C), away - back


def signal(x: Any, p: Any, _: Any) -> Any:
    """STAT5-like: activated, a dimer, into the nucleus and back by four stages."""
    on, pair, back = p.k1 * x.S, p.k2 * x.P * x.P, p.k3 * x.D
    stage = [p.k4 * v for v in (x.n1, x.n2, x.n3)]
    inner = [back - stage[0], stage[0] - stage[1], stage[1] - stage[2]]
    return 2 * stage[2] - on, on - 2 * pair, pair - back, *inner


CASES = {
    "SIRS": Case(
        sirs, {"S": 0.99, "I": 0.01, "R": 0.0}, {"beta": 1.5, "gamma": 0.5, "mu": 0.1},
        ("I", "R"), 20, 4.0, limit=6,
    ),
    "enzyme, 4": Case(
        enzyme, {"S": 1.0, "E": 0.5, "C": 0.0, "P": 0.0},
        {"k1": 2.0, "k2": 1.0, "k3": 1.5, "k4": 0.5}, ("S", "P"), 8, 3.0, limit=20,
    ),
    "SEIRS, 4": Case(
        seirs, {"S": 0.98, "E": 0.01, "I": 0.01, "R": 0.0},
        {"beta": 2.0, "sigma": 0.8, "gamma": 0.5, "mu": 0.1}, ("I", "R"), 20, limit=60,
    ),
    "SEIRD, 5": Case(
        seird, {"S": 0.98, "E": 0.01, "I": 0.01, "R": 0.0, "D": 0.0},
        {"beta": 2.0, "sigma": 0.8, "gamma": 0.4, "mu": 0.1, "delta": 0.1}, ("I", "R", "D"), 20,
        limit=60,
    ),
    "network, 6": Case(
        network, {"A": 1.0, "B": 0.0, "C": 0.0, "D": 0.0},
        {"k1": 1.0, "k2": 0.5, "k3": 0.8, "k4": 0.4, "k5": 0.6, "k6": 0.3}, ("A", "B", "C"), 8,
    ),
    "Monod, 5": Case(
        monod, {"X": 0.1, "S": 2.0, "Q": 0.0},
        {"mu": 0.5, "K": 0.5, "d": 0.03, "Y": 0.5, "a": 0.3}, ("X", "S", "Q"), 12,
    ),
    "two substrates, 6": Case(
        inhibited, {"X": 0.2, "S": 1.0, "L": 1.5, "Q": 0.0},
        {"m1": 1.0, "K1": 0.5, "m2": 0.5, "K2": 0.8, "d": 0.05, "a": 0.3}, ("X", "S", "L", "Q"), 8,
    ),
    "Brusselator, 4 + 1": Case(
        brusselator, {"X": 1.0, "Y": 1.0}, {"a": 1.0, "b": 2.2, "c": 1.0, "d": 1.0}, ("X", "Y"),
        8, 1.5, 16, free=("X",),
    ),
    "predators, 6": Case(
        predators, {"N": 0.5, "P": 0.3},
        {"r": 1.0, "q": 0.5, "a": 1.2, "h": 0.5, "e": 0.6, "m": 0.3}, ("N", "P"), 15, 1.5, 20,
    ),
    "alpha-pinene, 5": Case(
        pinene, {"Y1": 100.0, "Y2": 0.0, "Y3": 0.0, "Y4": 0.0, "Y5": 0.0},
        {"k1": 0.593, "k2": 0.296, "k3": 0.205, "k4": 2.75, "k5": 0.4}, ("Y1", "Y2", "Y3", "Y5"),
        4,
    ),
    "reactor with temperature, 6": Case(
        reactor, {"A": 1.0, "B": 0.0, "T": 1.0},
        {"k1": 1.0, "E1": 10.0, "k2": 0.3, "E2": 15.0, "H": 0.15, "U": 0.8}, ("A", "B", "T"), 4,
        1.5, rate=first_rate,
    ),
    "phosphorylation, 5": Case(
        cascade, {"K": 1.0, "KP": 0.0, "KPP": 0.0, "KE": 0.0, "KPE": 0.0, "E": 0.3},
        {"a": 4.0, "c1": 2.0, "c2": 1.5, "d1": 0.2, "d2": 0.3}, ("K", "KP", "KPP"), 10, 1.5,
    ),
    "chain, 10 states": Case(
        chain, {f"x{i}": 1.0 if i == 0 else 0.0 for i in range(10)},
        {"k1": 1.0, "k2": 0.8, "k3": 1.2, "k4": 0.9, "k5": 1.1}, ("x1", "x3", "x5", "x7", "x9"),
        15, 1.5, 20,
    ),
    "signal, 6 states": Case(
        signal, {"S": 1.0, "P": 0.0, "D": 0.0, "n1": 0.0, "n2": 0.0, "n3": 0.0},
        {"k1": 0.6, "k2": 1.5, "k3": 0.5, "k4": 0.8}, ("P", "D", "n3"), 12, free=("S",),
    ),
    "biodiesel, 6": Case(
        biodiesel, {"TG": 1.0, "DG": 0.0, "MG": 0.0, "G": 0.0, "M": 6.0, "E": 0.0},
        {"k1": 0.5, "k2": 1.1, "k3": 2.15, "k4": 12.28, "k5": 2.42, "k6": 0.07},
        ("TG", "DG", "MG", "E"), 3,
    ),
    "toluene, 5": Case(
        toluene, {"A": 1.0, "B": 0.0, "C": 0.0},
        {"kH": 2.3, "kD": 0.5, "k2": 1.1, "KA": 1.9, "KC": 1.8}, ("A", "B", "C"), 3.8,
    ),
    "absorption, 5": Case(
        absorption, {"D": 2.0, "C": 0.0, "T": 0.0},
        {"ka": 1.2, "k12": 0.5, "k21": 0.4, "v": 0.8, "K": 0.6}, ("C", "T"), 8,
    ),
}  # fmt: skip


def chosen(given: argparse.Namespace) -> Iterator[tuple[str, igpe.Problem, float | None, Any]]:
    """Name, problem, what was asked for, and where to begin."""
    for name, case in CASES.items():
        if given.only in name:
            start = case.truth | {f"{n}0": case.start[n] for n in case.free}
            yield name, case.problem(), case.limit, start
    if given.only in "methanol":
        methanol = importlib.import_module("methanol")
        yield "methanol", methanol.problem(), 60.0, methanol.OPTIMUM


def two(given: argparse.Namespace) -> Iterator[Row]:
    """How many of 5 to 10 unknowns or 5 to 12 states two processes close to 1 %; wall time."""
    closed, executor = 0, 2
    for name, problem, _, truth in chosen(given):
        if max(len(problem.box), len(problem.instances[0].states)) < LARGE:
            continue
        begin = _best(problem, truth)
        igpe.certify(problem, begin, gap=0.5, time_limit=1, executor=executor)  # loads the kernels
        began = time.perf_counter()
        proof = igpe.certify(problem, begin, gap=GAP, time_limit=given.patience, executor=executor)
        seconds = time.perf_counter() - began
        closed += proof.closed
        figure = f"two processes, {proof.examined} boxes"
        yield at_most(name, f"{figure}, time", seconds, "s")
        yield at_most(name, f"{figure}, gap left", max(proof.gap, 0.0), limit=1.01 * GAP)
    yield at_least("all", f"closed to {GAP:.0%}", closed, "-", CLOSED)


def search(given: argparse.Namespace) -> Iterator[Row]:
    """Gaps of 10 % and of 1 %."""
    for name, problem, limit, truth in chosen(given):
        begin = _best(problem, truth)
        for gap in (0.1, 0.01):
            began = time.process_time()
            ours = igpe.proofs.BranchAndBound(gap, 1e6)

            def patient(_: Any, end: float = began + given.patience) -> bool:
                return time.process_time() > end

            proof = ours.certify(problem, begin, enough=patient)
            seconds = time.process_time() - began
            CONSOLE.print(f"{name}, {proof.objective:.6g}: {proof}\n", highlight=False)
            figure = f"gap {gap:g}, {proof.examined} boxes"
            asked = limit if gap == 0.01 else None
            yield at_most(name, f"{figure}, time", seconds, "s", asked)
            yield at_most(name, f"{figure}, gap left", max(proof.gap, 0.0), limit=1.01 * gap)
            if proof.closed:
                continue
            yield at_most(name, f"{figure}, not decided", proof.open_share)
            break


def _best(problem: igpe.Problem, truth: dict[str, float]) -> dict[str, float]:
    start = {n: truth.get(n, np.nan) for n in problem.box.names}
    if not np.isfinite(list(start.values())).all():
        middle = np.sqrt(problem.box.lower * problem.box.upper)
        start = {
            n: v if np.isfinite(v) else float(m)
            for (n, v), m in zip(start.items(), middle, strict=True)
        }
    return dict(igpe.SingleShooting().estimate(problem, start).parameters)


def verify(given: argparse.Namespace) -> Iterator[Row]:
    """What is proved within ten seconds, confirmed by the checker."""
    for name, problem, _, truth in chosen(given):
        began = time.process_time()
        proof = igpe.certify(problem, _best(problem, truth), gap=0.01, time_limit=10)
        middle = time.process_time()
        if not proof.closed:
            continue
        found = igpe.verify(proof, problem, seconds=given.patience)
        seconds = time.process_time() - middle
        yield at_least(name, "verified", float(bool(found)), "-", 1)
        yield at_most(name, "verify : search, time", seconds / (middle - began), "-", 3)


def box(_: argparse.Namespace) -> Iterator[Row]:
    """One box with 3,000 measurements: the least of some times."""
    problem = CASES["SIRS"].problem(count=1500)
    given = posed(problem)
    enclosure = BoxEnclosure(given, degree=3)
    low = high = np.array(list(CASES["SIRS"].truth.values()))
    least = np.inf
    for _ in range(6):
        began = time.process_time()
        bounds = enclosure.examine(low * 0.999, high * 1.001, 1e300)
        least = min(least, time.process_time() - began)
    yield at_least("SIRS", "measurements enclosed", bounds.rows, "-", 3000)
    yield at_most("SIRS", "box with 3,000 measurements", least * 1000, "ms", 40)


def options(parser: argparse.ArgumentParser) -> None:
    """Which problems, and how long."""
    parser.add_argument("--patience", type=float, default=PATIENCE, help="s for each search")
    parser.add_argument("--only", default="", help="those with this in their name")


SECTIONS = {"two": two, "search": search, "verify": verify, "box": box}

if __name__ == "__main__":
    command(__doc__, "Reach of proofs", SECTIONS, options)
