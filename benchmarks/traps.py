"""Traps: problems on which global optimisers end wrong, and measurements with gross outliers.

    python benchmarks/traps.py [traps] [outliers] [--quick] [--store FOLDER] [--only TEXT]
                               [--json FILE]

traps     three of SciMLBenchmarks.jl's problems of parameter estimation (data exact, and with
          errors), by the defaults of `igpe.estimate` and by global methods of SciPy and of NLopt;
          where NLopt cannot be imported (pip install nlopt) its methods are left out, and said so
outliers  ten small published systems, a tenth of the measurements replaced by gross errors, by the
          defaults of `igpe.estimate`, but for the proof, with least squares, Huber's loss and
          absolute values

traps: every method is given the processor time of igpe on the same problem, and BUDGET seconds at
least; one that ends sooner is begun again with another seed, and the best of all counts. All
minimise the same sum of squares by igpe's own compiled integrator, without sensitivities.

right           each parameter within 1 % of the truth (exact data), or within 10 %
right (outliers)  each parameter within 10 %
out of reach    least squares on the good measurements alone, from the truth, is itself off by more
--quick         traps: exact data only; outliers: the first kind only, deviations known
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import time
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import count, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import CONSOLE, Row, at_least, at_most, command
from pyomo import dae
from scipy import optimize
from scipy.integrate import solve_ivp
from trust.run import Answer, run_all

import igpe

EXACT, NOISY = 0.01, 0.1  # relative: parameters so near to the truth are right
BUDGET = 10.0  # s of processor time that every other global method has at least
LONGEST = 600.0  # s of processor time of a cell
FAILED = 1e12  # sum of squares where the model cannot be integrated


class System(NamedTuple):
    """Equations with the truth.

    ode         state -> right-hand side in states and parameters
    parameters  name -> true value, lower and upper bound
    start       of the states;  span, times: end, and how many even times until then
    measured    states; empty: all
    """

    ode: dict[str, str]
    parameters: dict[str, tuple[float, float, float]]
    start: tuple[float, ...]
    span: float
    times: int
    measured: tuple[str, ...] = ()

    @property
    def truth(self) -> dict[str, float]:
        """Name -> true value."""
        return {name: value for name, (value, *_) in self.parameters.items()}

    @property
    def outputs(self) -> tuple[str, ...]:
        """States that are measured."""
        return self.measured or tuple(self.ode)


# SciMLBenchmarks.jl, benchmarks/ParameterEstimation: LotkaVolterra-, FitzHughNagumo- and
# LorenzParameterEstimation.jmd: equations, truth, bounds of the global searches, times.
SCIML = {
    "lotka_volterra": System(
        {"x": "a*x - b*x*y", "y": "-c*y + d*x*y"},
        {"a": (1.5, 0, 10), "b": (1.0, 0, 10), "c": (3.0, 0, 10), "d": (1.0, 0, 10)},
        (1.0, 1.0), 30.0, 3000,
    ),
    "fitzhugh_nagumo": System(
        {"v": "v - v**3/3 - w + l", "w": "s*(v + a - b*w)"},
        {"a": (0.7, 0, 5), "b": (0.8, 0, 5), "s": (0.08, 0, 5), "l": (0.5, 0, 5)},
        (1.0, 1.0), 30.0, 3000,
    ),
    "lorenz": System(
        {"x": "s*(y - x)", "y": "x*(r - z) - y", "z": "x*y - b*z"},
        {"s": (10.0, 0, 22), "r": (28.0, 0, 60), "b": (2.66, 0, 6)},
        (1.0, 0.0, 0.0), 30.0, 3000,
    ),
}  # fmt: skip
SHORT, SHORT_TIMES = 3.0, 300  # of their "short" problems
ERRORS = 0.05  # of each column's root mean square, where data are not exact
TRAPS = tuple(f"{s} {kind}" for kind in ("short", "long", "noisy") for s in SCIML)

# Equations, bounds, start values and optima of the models of the same names in models/; and three
# textbook systems: an epidemic, Michaelis and Menten's mechanism, van der Pol's oscillator.
PLAIN = {
    "consecutive": System(
        {"x1": "-p1*x1", "x2": "p1*x1 - p2*x2"},
        {"p1": (5.0, 0, 10), "p2": (1.0, 0, 10)},
        (1.0, 0.0), 1.0, 20,
    ),
    "reversible": System(
        {"x1": "-p1*x1 + p2*x2", "x2": "p1*x1 - (p2 + p3)*x2 + p4*x3", "x3": "p3*x2 - p4*x3"},
        {"p1": (4.0, 0, 10), "p2": (2.0, 0, 10), "p3": (40.0, 10, 50), "p4": (20.0, 10, 50)},
        (1.0, 0.0, 0.0), 1.0, 60,
    ),
    "gas_oil_cracking": System(
        {"x1": "-(p1 + p3)*x1**2", "x2": "p1*x1**2 - p2*x2"},
        {"p1": (12.214, 0, 20), "p2": (7.98, 0, 20), "p3": (2.222, 0, 20)},
        (1.0, 0.0), 0.95, 40,
    ),
    "bellman": System(
        {"x": "p1*(126.2 - x)*(91.9 - x)**2 - p2*x**2"},
        {"p1": (4.57e-6, 0, 0.1), "p2": (2.784e-4, 0, 0.1)},
        (0.0,), 40.0, 60,
    ),
    "lotka_volterra_2": System(
        {"x1": "p1*x1*(1 - x2)", "x2": "p2*x2*(x1 - 1)"},
        {"p1": (3.243, 0, 10), "p2": (0.921, 0, 10)},
        (1.2, 1.1), 10.0, 40,
    ),
    "alpha_pinene": System(
        {"a": "-(k1 + k2)*a", "d": "k1*a", "o": "k2*a - (k3 + k4)*o + k5*m",
         "p": "k3*o", "m": "k4*o - k5*m"},
        {"k1": (5.93e-5, 0, 1e-3), "k2": (2.96e-5, 0, 1e-3), "k3": (2.05e-5, 0, 1e-3),
         "k4": (2.745e-4, 0, 1e-3), "k5": (4.0e-5, 0, 1e-3)},
        (100.0, 0.0, 0.0, 0.0, 0.0), 36420.0, 40,
    ),
    "pendulum": System(
        {"phi": "omega", "omega": "-9.81/l*sin(phi) - alpha*omega"},
        {"l": (1.0, 0.05, 2), "alpha": (1.85, 0, 4)},
        (1.0, 0.0), 3.0, 40, ("phi",),
    ),
    "epidemic": System(
        {"s": "-beta*s*i", "i": "beta*s*i - gamma*i"},
        {"beta": (0.9, 0, 10), "gamma": (0.3, 0, 10)},
        (0.99, 0.01), 30.0, 30, ("i",),
    ),
    "mechanism": System(
        {"s": "-kf*e*s + kr*c", "e": "-kf*e*s + (kr + kc)*c", "c": "kf*e*s - (kr + kc)*c",
         "p": "kc*c"},
        {"kf": (1.0, 0, 10), "kr": (0.5, 0, 10), "kc": (0.4, 0, 10)},
        (3.0, 1.0, 0.0, 0.0), 10.0, 30, ("s", "c", "p"),
    ),
    "van_der_pol": System(
        {"x": "y", "y": "mu*(1 - x**2)*y - w*x"},
        {"mu": (1.5, 0, 10), "w": (1.0, 0, 10)},
        (2.0, 0.0), 12.0, 40,
    ),
}  # fmt: skip
KINDS = ("two-sided", "one-sided", "huge")
DEVIATIONS = ("known", "unknown")
SHARE, NOISE = 0.1, 0.02  # of the measurements; of a column's root mean square
LOSSES = {
    "plain": igpe.losses.LeastSquares(),
    "huber": igpe.losses.Huber(),
    "l1": igpe.losses.L1(),
}


def simulated(system: System, times: np.ndarray) -> np.ndarray:
    """(times, outputs) by SciPy, as exact as double numbers allow."""
    codes = [compile(text, "ode", "eval") for text in system.ode.values()]
    given = system.truth | {"sin": np.sin}

    def slope(t: float, x: np.ndarray) -> list[float]:
        here = given | dict(zip(system.ode, x, strict=True))
        return [eval(code, {"__builtins__": {}}, here) for code in codes]

    how = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
    done = solve_ivp(slope, (0.0, times[-1]), system.start, t_eval=times, **how)
    states = list(system.ode)
    return done.y.T[:, [states.index(name) for name in system.outputs]]


def builder(system: System) -> Callable[[Any], Any]:
    """The system as a user writes it with Pyomo."""

    def model(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.time = dae.ContinuousSet(initialize=times)
        for name, (_, low, high) in system.parameters.items():
            m.add_component(name, pyo.Var(bounds=(low, high)))
        for name in system.ode:
            m.add_component(name, pyo.Var(m.time))
            m.add_component(f"d_{name}", dae.DerivativeVar(m.component(name), wrt=m.time))
        for name, text in system.ode.items():
            code = compile(text, "ode", "eval")
            rule = partial(_equation, system, f"d_{name}", code)
            m.add_component(f"ode_{name}", pyo.Constraint(m.time, rule=rule))
        return m

    return model


def _equation(system: System, derivative: str, code: Any, m: Any, t: Any) -> Any:
    here = {n: m.component(n) for n in system.parameters} | {"sin": pyo.sin}
    here |= {n: m.component(n)[t] for n in system.ode}
    return m.component(derivative)[t] == eval(code, {"__builtins__": {}}, here)


def problem(
    system: System, table: pd.DataFrame, loss: Any = LOSSES["plain"], **more: Any
) -> igpe.Problem:
    """The problem as igpe is given it."""
    start = dict(zip(system.ode, system.start, strict=True))
    run = igpe.Experiment(table, start=start, start_time=0.0, **more)
    return igpe.Problem(
        builder(system), parameters=list(system.parameters), experiments=run, loss=loss
    )


def tabled(system: System, times: np.ndarray, values: np.ndarray) -> pd.DataFrame:
    """Measurements as a table."""
    table = pd.DataFrame(values, columns=list(system.outputs))
    table.insert(0, "time", times)
    return table


def error(system: System, found: dict[str, float]) -> float:
    """The largest relative error of a parameter."""
    return max(abs(found[n] - true) / abs(true) for n, true in system.truth.items())


# --- traps --------------------------------------------------------------------------------------


def trap(name: str) -> tuple[System, pd.DataFrame, float]:
    """A problem of SciMLBenchmarks: system, measurements, and how near is right."""
    which, kind = name.split()
    system = SCIML[which]
    if kind == "short":
        system = system._replace(span=SHORT, times=SHORT_TIMES)
    times = np.linspace(0.0, system.span, system.times + 1)[1:]
    values = simulated(system, times)
    if kind != "noisy":
        return system, tabled(system, times, values), EXACT
    sigma = ERRORS * np.sqrt(np.mean(values**2, axis=0))
    random = np.random.default_rng(zlib.crc32(name.encode()))
    return (
        system,
        tabled(system, times, values + sigma * random.standard_normal(values.shape)),
        NOISY,
    )


class OverError(Exception):
    """The budget is used up."""


class Objective:
    """The sum of squares, until the budget is used up; the best point met is kept.

    Unknowns go over [0, 1], so that no method suffers from units.
    """

    def __init__(self, posed: igpe.Problem, table: pd.DataFrame, seconds: float) -> None:
        from igpe.dynamics.integrators.automatic import Automatic  # noqa: PLC0415
        from igpe.equations.compiled import compiled  # noqa: PLC0415

        self.box, self.measured = posed.box, table.iloc[:, 1:].to_numpy()
        ivp = compiled(posed).initial_value_problem(0)
        order = [self.box.names.index(n) for n in ivp.unknowns]
        self.order = np.array(order, dtype=np.intp)
        self.run = Automatic().simulation(ivp, table["time"].to_numpy(), sensitivities=False).run
        self.end, self.calls = time.process_time() + seconds, 0
        self.best, self.x = np.inf, np.full(len(order), 0.5)

    def __call__(self, u: Any, _: Any = None) -> float:
        """The sum of squares at u (n,) in [0, 1]."""
        if time.process_time() > self.end:
            raise OverError
        self.calls += 1
        u = np.clip(u, 0.0, 1.0)
        x = self.box.lower + u * (self.box.upper - self.box.lower)
        with np.errstate(all="ignore"):
            told = self.run(x[self.order])
            squares = float(np.sum((told.measured - self.measured) ** 2))
        value = squares if told.status.usable and np.isfinite(squares) else FAILED
        if value < self.best:
            self.best, self.x = value, u.copy()
        return value

    @property
    def found(self) -> dict[str, float]:
        """The best parameters met."""
        return self.box.mapping(self.box.lower + self.x * (self.box.upper - self.box.lower))


MANY = 10**8  # evaluations: the budget ends the search, not their number


def by_scipy(method: str, f: Objective, seed: int) -> bool:
    """One search; whether another seed would make another."""
    unit, start = [(0.0, 1.0)] * len(f.x), np.random.default_rng(seed).uniform(size=len(f.x))
    match method:
        case "differential_evolution":
            optimize.differential_evolution(f, unit, maxiter=MANY, rng=seed)
        case "dual_annealing":
            optimize.dual_annealing(f, unit, maxiter=MANY, rng=seed)
        case "basinhopping":
            local = {"method": "L-BFGS-B", "bounds": unit}
            optimize.basinhopping(f, start, niter=10**6, minimizer_kwargs=local, rng=seed)
        case "direct":
            optimize.direct(f, unit, maxfun=10**6, maxiter=10**6, vol_tol=0.0, len_tol=0.0)
        case "shgo":
            optimize.shgo(f, unit, n=256 * 2**seed, sampling_method="sobol")
    return method != "direct"


def by_nlopt(method: str, f: Objective, seed: int) -> bool:
    """One search; whether another seed would make another."""
    import nlopt  # noqa: PLC0415 - it may be missing

    def chosen(name: str) -> Any:
        opt = nlopt.opt(getattr(nlopt, name), len(f.x))
        opt.set_lower_bounds(np.zeros(len(f.x)))
        opt.set_upper_bounds(np.ones(len(f.x)))
        return opt

    nlopt.srand(seed + 1)
    opt = chosen(method)
    opt.set_min_objective(f)
    opt.set_xtol_rel(1e-12)  # as in SciMLBenchmarks
    if method == "G_MLSL_LDS":
        local = chosen("LN_BOBYQA")
        local.set_xtol_rel(1e-8)
        opt.set_local_optimizer(local)
    start = (
        np.full(len(f.x), 0.5) if seed == 0 else np.random.default_rng(seed).uniform(size=len(f.x))
    )
    opt.optimize(start)
    return method != "GN_ORIG_DIRECT_L"


PEERS: dict[str, Callable[[str, Objective, int], bool]] = {
    "differential_evolution": by_scipy,
    "dual_annealing": by_scipy,
    "basinhopping": by_scipy,
    "direct": by_scipy,
    "shgo": by_scipy,
    "GN_ORIG_DIRECT_L": by_nlopt,
    "GN_CRS2_LM": by_nlopt,
    "GN_ISRES": by_nlopt,
    "GN_ESCH": by_nlopt,
    "G_MLSL_LDS": by_nlopt,
}


def spent() -> float:
    """Processor time of this process and of those it started, in s."""
    return sum(os.times()[:4])


def by_igpe(name: str) -> Answer:
    """What the defaults make of a trap."""
    system, table, near = trap(name)
    posed = problem(system, table)
    began = spent()
    result = igpe.estimate(posed, seed=0)
    seconds = spent() - began
    off = error(system, dict(result.parameters))
    return {"error": off, "right": off <= near, "estimation": seconds,
            "objective": result.objective, "verdict": dict(result.verdict)}  # fmt: skip


def by_peer(method: str, seconds: float, name: str) -> Answer:
    """What a global method makes of a trap within its budget."""
    system, table, near = trap(name)
    f = Objective(problem(system, table), table, seconds)
    began = time.process_time()
    why = "ended"
    try:
        for seed in count():
            if not PEERS[method](method, f, seed):
                break
    except Exception as ended:  # NLopt makes another exception of the objective's own
        why = "budget" if time.process_time() > f.end else repr(ended)
    off = error(system, f.found)
    return {"error": off, "right": off <= near, "estimation": time.process_time() - began,
            "objective": f.best, "calls": f.calls, "why": why}  # fmt: skip


def traps(given: argparse.Namespace) -> Iterator[Row]:
    """igpe, and for each method in how many of the problems it is right."""
    chosen = [t for t in TRAPS if given.only in t and not (given.quick and "noisy" in t)]
    store = given.store
    own = run_all(store and store / "traps.jsonl", chosen, by_igpe, LONGEST)
    lost = {"right": False, "error": np.inf}
    for name in chosen:
        answer = lost | own[name]
        yield at_most(f"igpe: {name}", "largest error of a parameter", 100 * answer["error"], "%",
                      100 * trap(name)[2])  # fmt: skip
        seconds = answer.get("estimation", answer["seconds"])
        yield at_most(f"igpe: {name}", "processor time", seconds, "s")
    right = sum((lost | a)["right"] for a in own.values())
    yield at_least("igpe", "right", right, f"of {len(chosen)}", len(chosen))
    peers = [p for p in PEERS if PEERS[p] is by_scipy or find_spec("nlopt")]
    if len(peers) < len(PEERS):
        CONSOLE.print("NLopt cannot be imported, so its methods are left out: pip install nlopt.")
    budget = {n: max(BUDGET, (own[n].get("estimation", own[n]["seconds"]))) for n in chosen}
    cells = [f"{p} {name}" for p, name in product(peers, chosen)]

    def work(cell: str) -> Answer:
        method, name = cell.split(maxsplit=1)
        return by_peer(method, budget[name], name)

    found = run_all(store and store / "peers.jsonl", cells, work, 2 * LONGEST)
    for peer in peers:
        answers = {n: lost | found[f"{peer} {n}"] for n in chosen}
        for name, answer in answers.items():
            case = f"{peer}: {name}"
            yield Row(case, "largest error of a parameter", 100 * answer["error"], "%", "", None)
        count_right = sum(a["right"] for a in answers.values())
        yield Row(peer, "right", count_right, f"of {len(chosen)}", "", None)


# --- outliers -----------------------------------------------------------------------------------


class Spoilt(NamedTuple):
    """Measurements of which a tenth are gross errors.

    sigma    (m,) of the good ones;  bad: (times, m) which are gross errors
    """

    table: pd.DataFrame
    sigma: np.ndarray
    bad: np.ndarray


def spoilt(which: str, kind: str) -> Spoilt:
    """The data of a system with gross errors of a kind, in units of each column's largest value.

    two-sided  0.5 to 1.5 to either side;  one-sided: all upwards;  huge: 5 to 15, either side
    """
    system = PLAIN[which]
    times = np.linspace(0.0, system.span, system.times + 1)[1:]
    exact = simulated(system, times)
    random = np.random.default_rng([9, zlib.crc32(f"{which} {kind}".encode())])
    sigma = NOISE * np.sqrt(np.mean(exact**2, axis=0))
    values = exact + sigma * random.standard_normal(exact.shape)
    size = random.uniform(0.5, 1.5, exact.shape) * np.abs(exact).max(axis=0)
    size *= 10.0 if kind == "huge" else 1.0
    sign = 1.0 if kind == "one-sided" else random.choice([-1.0, 1.0], exact.shape)
    bad = np.zeros(exact.size, dtype=bool)
    bad[random.choice(exact.size, round(SHARE * exact.size), replace=False)] = True
    bad = bad.reshape(exact.shape)
    return Spoilt(tabled(system, times, np.where(bad, exact + sign * size, values)), sigma, bad)


def given_sigma(which: str, sigma: np.ndarray, deviations: str) -> dict[str, Any]:
    """Arguments of an experiment."""
    outputs = PLAIN[which].outputs
    known = deviations == "known"
    return {"sigma": dict(zip(outputs, sigma, strict=True))} if known else {}


def by_loss(cell: str) -> Answer:
    """What the defaults make of spoilt data with a loss."""
    which, kind, deviations, loss = cell.split()
    system, data = PLAIN[which], spoilt(which, kind)
    more = given_sigma(which, data.sigma, deviations)
    posed = problem(system, data.table, LOSSES[loss], **more)
    began = spent()
    result = igpe.estimate(posed, seed=0, certify=False)
    seconds = spent() - began
    off = error(system, dict(result.parameters))
    called = result.outliers()
    named = {(n, round(t, 9)) for n, t in zip(called["name"], called["time"], strict=True)}
    times = data.table["time"].to_numpy()
    truly = {
        (name, round(times[i], 9))
        for k, name in enumerate(system.outputs)
        for i in np.flatnonzero(data.bad[:, k])
    }
    return {"error": off, "right": off <= NOISY, "estimation": seconds,
            "objective": result.objective, "verdict": dict(result.verdict),
            "parameters": dict(result.parameters), "bad": len(truly),
            "named": len(named & truly), "blamed": len(named - truly)}  # fmt: skip


def in_reach(cell: str) -> Answer:
    """Whether least squares on the good measurements alone is right."""
    which, kind = cell.split()
    system, data = PLAIN[which], spoilt(which, kind)
    table = data.table.copy()
    table.iloc[:, 1:] = table.iloc[:, 1:].mask(data.bad)
    posed = problem(system, table, **given_sigma(which, data.sigma, "known"))
    found = igpe.SingleShooting().estimate(posed, start=system.truth)
    off = error(system, dict(found.parameters))
    return {"error": off, "right": off <= NOISY}


def outliers(given: argparse.Namespace) -> Iterator[Row]:
    """Shares that are right with each loss."""
    kinds = KINDS[:1] if given.quick else KINDS
    deviations = DEVIATIONS[:1] if given.quick else DEVIATIONS
    problems = [f"{w} {k}" for w, k in product(PLAIN, kinds) if given.only in w]
    cells = [f"{p} {d} {loss}" for p, d, loss in product(problems, deviations, LOSSES)]
    store = given.store
    good = run_all(store and store / "good.jsonl", problems, in_reach, LONGEST)
    found = run_all(store and store / "outliers.jsonl", cells, by_loss, LONGEST)
    lost = {"right": False, "named": 0, "blamed": 0, "bad": 0, "error": np.inf}
    rows = pd.DataFrame([
        lost | found[c] | dict(zip(("system", "kind", "sigma", "loss"), c.split(), strict=True))
        for c in cells
    ])
    rows["in_reach"] = [
        bool(good[f"{s} {k}"].get("right")) for s, k in rows[["system", "kind"]].to_numpy()
    ]
    yield at_most("all", "out of reach", sum(not a.get("right") for a in good.values()), "-")
    keys = ["system", "kind", "sigma"]
    plain = rows[rows["loss"] == "plain"].set_index(keys)["right"]
    yield Row("plain", "right", 100 * plain.mean(), "%", "", None)
    for loss, of in rows[(rows["loss"] != "plain") & rows["in_reach"]].groupby("loss", sort=False):
        wrong = of[~plain.loc[pd.MultiIndex.from_frame(of[keys])].to_numpy()]
        share = 100 * wrong["right"].mean()
        yield at_least(loss, "right where plain least squares is wrong", share, "%", 90)
        for word in deviations:
            part = wrong[wrong["sigma"] == word]
            yield Row(
                loss, f"the same, deviations {word}", 100 * part["right"].mean(), "%", "", None
            )
        yield Row(loss, "right of all", 100 * of["right"].mean(), "%", "", None)
        named = 100 * of["named"].sum() / max(of["bad"].sum(), 1)
        yield Row(loss, "gross errors named", named, "%", "", None)
        yield Row(loss, "good measurements named", of["blamed"].sum(), "-", "", None)
        seconds = of.get("estimation", of["seconds"]).fillna(of["seconds"])
        yield at_most(loss, "median of processor time", seconds.median(), "s")
        yield at_most(loss, "worst processor time", seconds.max(), "s")
        for _, row in wrong[~wrong["right"]].iterrows():
            case = f"{loss}: {row['system']} {row['kind']}, sigma {row['sigma']}"
            yield at_most(case, "largest error of a parameter", 100 * row["error"], "%")


def options(parser: argparse.ArgumentParser) -> None:
    """Beside --json."""
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--store", type=Path, help="folder; a run that was stopped continues there")
    parser.add_argument("--only", default="", help="cases whose name contains this")


if __name__ == "__main__":
    command(__doc__, "Traps", {"traps": traps, "outliers": outliers}, options)
