"""No start values: 21 published systems, all parameters and all initial states unknown.

    python benchmarks/no_start.py [igpe] [scipy] [--quick] [--store FOLDER] [--only TEXT]
                                  [--levels 0,1e-4] [--replicas 8] [--json FILE]

igpe    the defaults of `igpe.estimate`, nothing that knows the system
scipy   20 starts, uniform in the logarithm, of `least_squares` over `solve_ivp`, the same weights
        for all, within BUDGET processor seconds a cell (some six times the median of igpe)

Protocol (no_start_systems/README.md): parameters and initial states from U(0.1, 0.9), three
decimals; 1,501 times; normal noise of level x mean of the column; each unknown in [1e-5, 10].
Each cell (system, level, replica) runs in a process of its own and is kept in the store.

right           every identifiable unknown within 10 %, or those of another reported set are
named           not right, but each wrong unknown is called not determined (by itself: also "only
                as a ratio" or a product), its interval contains the truth, or one other reported
                set holds the truth: within 10 %, or in its intervals
no answer       refused with a message, killed after LONGEST seconds, or crashed
wrong           not right and not named
by chance       of these: the data themselves exclude the truth of each unknown that is not named
                at the level of 95 %, as they do in one of twenty cases. Held there, the sum of
                squares, weighted by the true noise, rises by more than 3.84
out of reach    the optimum next to the truth (local least squares from the truth, weighted by the
                true noise) is itself off by more than 10 %
--quick         two replicas at the levels 0, 1e-4, 1e-2
"""

# ruff: noqa: E402 - the number of threads must be set before NumPy is loaded
import os

for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from figures import Row, at_least, at_most, command
from pyomo import dae
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares
from scipy.special import chdtri
from trust.run import Answer, run_all

import igpe

HERE = Path(__file__).resolve().parent / "no_start_systems"
SYSTEMS: dict[str, Any] = json.loads((HERE / "systems.json").read_text())
LEVELS = ("0", "1e-8", "1e-6", "1e-4", "1e-2")
COUNTED = ("0", "1e-6", "1e-4", "1e-2")  # of the published means
LOW, HIGH = 1e-5, 10.0
TIMES, NEAR = 1501, 0.1
LONGEST = 600.0  # s of processor time of a cell
STARTS, BUDGET = 20, 60.0
SCIPY_TOLERANCES = 1e-7, 1e-9
UNSEEN = {"aircraft_pitch": {"theta(t0)"}, "biohydrogenation": {"x7(t0)"}}
"""Initial states that no output depends on."""
IN_PAIRS = r"(^| ){0} and \S+ only as|(^| )\S+ and {0} only as"
"""Of the verdict: an unknown that is determined with another one alone."""


class Cell(NamedTuple):
    """One problem of the benchmark."""

    system: str
    level: str
    replica: int

    @property
    def key(self) -> str:
        """Its name in a store."""
        return f"{self.system} {self.level} {self.replica}"

    @classmethod
    def of(cls, key: str) -> "Cell":
        """The cell of that name."""
        system, level, replica = key.split()
        return cls(system, level, int(replica))

    @property
    def random(self) -> np.random.Generator:
        """Its own numbers, the truth being the same at all levels."""
        return np.random.default_rng([zlib.crc32(self.system.encode()), self.replica])


def truth(cell: Cell) -> dict[str, float]:
    """Parameter, or initial state as igpe names it -> value."""
    system, rng = SYSTEMS[cell.system], cell.random
    names = [*system["parameters"], *(f"{s}(t0)" for s in system["states"])]
    while True:
        drawn = dict(zip(names, rng.uniform(0.1, 0.9, len(names)).round(3).tolist(), strict=True))
        if cell.system != "bicycle_model" or drawn["Cf"] <= 2.5 * drawn["Cr"]:
            return drawn


def compiled(text: str) -> Any:
    """A formula of the file as Python code."""
    return compile(text.replace("^", "**"), "formula", "eval")


def simulator(
    name: str,
    times: np.ndarray,
    tolerances: tuple[float, float] = (1e-11, 1e-13),
    end: float = np.inf,
) -> Callable[[np.ndarray], np.ndarray | None]:
    """Unknowns (n,) -> outputs (times, m), by SciPy; None where it cannot integrate.

    end     processor time at which an integration raises TimeoutError
    """
    system = SYSTEMS[name]
    states, parameters = system["states"], system["parameters"]
    free = {"sin": np.sin, "__builtins__": {}}

    def function(texts: Iterable[str]) -> Any:
        arguments = ", ".join(["t", *states, *parameters])
        return eval(compiled(f"lambda {arguments}: [{', '.join(texts)}]"), free)

    ode = function(system["ode"][s] for s in states)
    outputs = function(system["measured"].values())

    def run(x: np.ndarray) -> np.ndarray | None:
        given, start = x[: len(parameters)].tolist(), x[len(parameters) :]

        def slope(t: float, y: np.ndarray) -> list[float]:
            if time.process_time() > end:
                raise TimeoutError
            try:
                slopes: list[float] = ode(t, *y.tolist(), *given)
            except ArithmeticError:  # of numbers beyond the range of doubles, or 1 / 0
                return [np.inf] * len(states)
            return slopes

        rtol, atol = tolerances
        how = {"method": "LSODA", "rtol": rtol, "atol": atol, "t_eval": times}
        with np.errstate(all="ignore"):
            done = solve_ivp(slope, (times[0], times[-1]), start, **how)
            if not done.success or done.y.shape[1] != len(times):
                return None
            return np.stack([y + 0 * times for y in outputs(times, *done.y, *given)], axis=1)

    return run


def data(cell: Cell) -> tuple[pd.DataFrame, np.ndarray]:
    """Measurements of a cell, and their standard deviations (m,)."""
    system = SYSTEMS[cell.system]
    times = np.linspace(*system["time_interval"], TIMES)
    exact = simulator(cell.system, times)(np.array(list(truth(cell).values())))
    assert exact is not None
    noise = np.random.default_rng([cell.replica, zlib.crc32(cell.key.encode())])
    sigma = float(cell.level) * np.abs(exact.mean(axis=0))
    values = exact + sigma * noise.standard_normal(exact.shape)
    table = pd.DataFrame(values, columns=list(system["measured"]))
    table.insert(0, "time", times)
    return table, sigma


def _value(code: Any, system: dict[str, Any], m: Any, t: Any) -> Any:
    """A formula in the model's variables at a time."""
    here = {s: m.component(s)[t] for s in system["states"]} | {"t": t, "sin": pyo.sin}
    here |= {p: m.component(p) for p in system["parameters"]}
    return eval(code, {"__builtins__": {}}, here)


def _equation(derivative: Any, code: Any, system: dict[str, Any], m: Any, t: Any) -> Any:
    return derivative[t] == _value(code, system, m, t)


def builder(name: str) -> Callable[[Any], Any]:
    """The system as a user writes it with Pyomo."""
    system = SYSTEMS[name]

    def model(times: Any) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for p in system["parameters"]:
            m.add_component(p, pyo.Var(bounds=(LOW, HIGH)))
        for s in system["states"]:
            m.add_component(s, pyo.Var(m.t))
            m.add_component(f"d{s}dt", dae.DerivativeVar(m.component(s), wrt=m.t))
        for s, text in system["ode"].items():
            rule = partial(_equation, m.component(f"d{s}dt"), compiled(text), system)
            m.add_component(f"{s}_ode", pyo.Constraint(m.t, rule=rule))
        for output, text in system["measured"].items():
            rule = partial(_value, compiled(text), system)
            m.add_component(output, pyo.Expression(m.t, rule=rule))
        return m

    return model


def problem(cell: Cell, sigma: np.ndarray | None = None) -> igpe.Problem:
    """The problem without, or with the standard deviations (m,) of the measurements."""
    table, _ = data(cell)
    system = SYSTEMS[cell.system]
    start = {s: igpe.Unknown(LOW, HIGH) for s in system["states"]}
    known = {} if sigma is None else {"sigma": dict(zip(table.columns[1:], sigma, strict=True))}
    run = igpe.Experiment(table, start=start, start_time=table["time"].iloc[0], **known)
    return igpe.Problem(builder(cell.system), parameters=system["parameters"], experiments=run)


def near(values: dict[str, float], true: dict[str, float], names: set[str]) -> bool:
    """Whether all of these unknowns are within 10 %."""
    return all(abs(values[n] - true[n]) <= NEAR * abs(true[n]) for n in names)


def in_reach(cell: Cell, names: set[str]) -> bool:
    """Whether the optimum next to the truth is within 10 % of it."""
    true = truth(cell)
    if float(cell.level) == 0:
        return True
    posed = problem(cell, data(cell)[1])
    found = igpe.SingleShooting().estimate(posed, start=true)
    return near(dict(found.parameters), true, names)


def is_by_chance(cell: Cell, names: set[str], estimate: dict[str, float]) -> bool:
    """Whether the data exclude the truth of each of these unknowns, whatever the others are."""
    if not float(cell.level):
        return False
    posed, true = problem(cell, data(cell)[1]), truth(cell)

    def least(one: igpe.Problem) -> float:
        starts = ({n: start[n] for n in one.box.names} for start in (true, estimate))
        return min(igpe.SingleShooting().estimate(one, start=s).objective for s in starts)

    allowed = least(posed) + chdtri(1, 0.05)
    return all(least(posed.fixing({n: true[n]})) > allowed for n in names)


def by_igpe(cell: Cell) -> dict[str, Any]:
    """What the defaults make of a cell."""
    true = truth(cell)
    names = set(true) - UNSEEN.get(cell.system, set())
    posed = problem(cell)
    began = time.process_time()
    try:
        result = igpe.estimate(posed, seed=0)
    except igpe.errors.IgpeError as failure:
        seconds = time.process_time() - began
        said = {"class": "no answer", "why": str(failure), "estimation": seconds}
        return said | {"in_reach": in_reach(cell, names)}
    seconds = time.process_time() - began
    sets = [result.parameters, *(o.parameters for o in result.other_optima)]
    is_right = any(near(dict(one), true, names) for one in sets)
    off = {n for n in names if not near(result.parameters, true, {n})}
    estimates = {p.name: p for p in result.estimates}
    parameters = result.verdict["parameters"]
    open_ = {n for n, p in estimates.items() if "not determined" in p.remark}
    open_ |= {n for n, p in estimates.items() if not np.isfinite(p.standard_error) and not p.remark}
    open_ |= {n for n in estimates if re.search(IN_PAIRS.format(re.escape(n)), parameters)}
    holds = {n for n, p in estimates.items() if p.lower <= true[n] <= p.upper}
    others = [{p.name: p for p in o.estimates} for o in result.other_optima]
    held = [{n for n, p in o.items() if p.lower <= true[n] <= p.upper} for o in others]
    held = [
        own | {n for n in off if near(dict(one), true, {n})}
        for own, one in zip(held, sets[1:], strict=True)
    ]
    is_named = off <= open_ | holds or any(off <= open_ | holds | own for own in held)
    what = "right" if is_right else "named" if is_named else "wrong"
    unnamed = off - open_ - holds
    return {
        "class": what,
        "by_chance": what == "wrong" and is_by_chance(cell, unnamed, dict(result.parameters)),
        "off": {
            n: [true[n], estimates[n].value, estimates[n].lower, estimates[n].upper] for n in off
        },
        "open": sorted(open_ & names),
        "count": len(names),
        "sets": len(sets),
        "objective": result.objective,
        "verdict": result.verdict,
        "estimation": seconds,
        "steps": dict(result.seconds),
        "in_reach": is_right or in_reach(cell, names),
    }


def by_scipy(cell: Cell) -> dict[str, Any]:
    """The best point that 20 starts pass."""
    table, _ = data(cell)
    true = truth(cell)
    names = set(true) - UNSEEN.get(cell.system, set())
    measured = table.iloc[:, 1:].to_numpy()
    rng, began = np.random.default_rng(0), time.process_time()
    times = table["time"].to_numpy()
    run = simulator(cell.system, times, SCIPY_TOLERANCES, began + BUDGET)
    best, x, ended = np.inf, np.full(len(true), np.nan), 0

    def residuals(z: np.ndarray) -> np.ndarray:
        nonlocal best, x
        got = run(z)
        if got is None or not np.isfinite(got).all():
            return np.full(measured.size, 1e6)
        found = (got - measured).ravel()
        if found @ found < best:
            best, x = found @ found, z.copy()
        return found

    with suppress(TimeoutError):
        while ended < STARTS:
            start = np.exp(rng.uniform(np.log(LOW), np.log(HIGH), len(true)))
            least_squares(residuals, start, bounds=(LOW, HIGH), x_scale="jac")
            ended += 1
    values = dict(zip(true, x, strict=True))
    return {
        "class": "right" if near(values, true, names) else "wrong",
        "starts": ended,
        "estimation": time.process_time() - began,
    }


METHODS = {"igpe": by_igpe, "scipy": by_scipy}


def cells(given: argparse.Namespace) -> list[Cell]:
    """Those that are chosen."""
    levels = ("0", "1e-4", "1e-2") if given.quick else tuple(given.levels.split(","))
    replicas = 2 if given.quick else given.replicas
    chosen = product(levels, range(replicas), SYSTEMS)
    return [Cell(s, level, r) for level, r, s in chosen if not given.only or given.only in s]


def answers(method: str, given: argparse.Namespace) -> pd.DataFrame:
    """One row a cell."""

    def work(key: str) -> Answer:
        answer: Answer = json.loads(json.dumps(METHODS[method](Cell.of(key)), default=float))
        return answer

    store = given.store / f"{method}.jsonl" if given.store else None
    chosen = {cell.key: cell for cell in cells(given)}
    lost = {"class": "no answer", "in_reach": True}
    found = run_all(store, list(chosen), work, LONGEST)
    rows = [lost | found[key] | cell._asdict() for key, cell in chosen.items()]
    table = pd.DataFrame(rows)
    return table.assign(seconds=table.get("estimation", table["seconds"]).fillna(table["seconds"]))


def figures(method: str, given: argparse.Namespace) -> Iterator[Row]:
    """Classes by level and over all, and seconds."""
    records = answers(method, given)
    published = pd.read_csv(HERE / "success_published.csv", dtype={"noise": str})
    for level, rows in records.groupby("level", sort=False):
        counts = rows["class"].value_counts()
        yield Row(level, "right", 100 * counts.get("right", 0) / len(rows), "%", "", None)
        for column in ("AMIGO2", "ODEPE_polished", "SciML"):
            there = published[(published["noise"] == level)].set_index("system")[column]
            there = there.reindex(rows["system"].unique())
            if there.notna().any():
                yield Row(level, f"published, {column}", there.mean(), "%", "", None)
        for name in ("named", "wrong", "no answer"):
            yield Row(level, name, counts.get(name, 0), "-", "", None)
        if "by_chance" in rows:
            yield Row(
                level, "wrong by chance", int(rows["by_chance"].eq(True).sum()), "-", "", None
            )
        yield Row(level, "out of reach", int((~rows["in_reach"]).sum()), "-", "", None)
        yield Row(level, "median of processor time", rows["seconds"].median(), "s", "", None)
    yield from _overall(records)
    for system, rows in records.groupby("system", sort=False):
        share = 100 * (rows["class"] == "right").mean()
        yield Row(system, "right", share, "%", "", None)
        yield Row(system, "worst processor time", rows["seconds"].max(), "s", "", None)


def _overall(records: pd.DataFrame) -> Iterator[Row]:
    """The figures with a target."""
    counted = records[records["level"].isin(COUNTED)]
    near_ones = records[records["in_reach"] & records["level"].isin(("0", "1e-8", "1e-6", "1e-4"))]
    right = records["class"] == "right"
    share = 100 * right[counted.index].mean()
    yield at_least("all levels", "right", share, "%", 78)
    share = 100 * right[counted.index][counted["in_reach"]].mean()
    yield at_least("all levels", "right of those in reach", share, "%", 85)
    share = 100 * right[near_ones.index].mean()
    yield at_least("0 to 1e-4", "right of those in reach", share, "%", 95)
    share = 100 * (records["class"] == "wrong").mean()
    yield at_most("all levels", "wrong and not named", share, "%", 1)
    if "starts" in records:
        median = records["starts"].median()
        yield Row("all levels", "starts that ended, median", median, "-", "", None)
    if "open" in records:
        of_right = records[right]
        called = of_right["open"].map(len).sum() / max(of_right["count"].sum(), 1)
        yield at_most("right", "unknowns called not determined", 100 * called, "%", 5)
    yield at_most("all levels", "median of processor time", records["seconds"].median(), "s", 10)
    yield at_most("all levels", "worst processor time", records["seconds"].max(), "s", 120)


def options(parser: argparse.ArgumentParser) -> None:
    """Beside --json."""
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--store", type=Path, help="folder; a run that was stopped continues there")
    parser.add_argument("--only", default="", help="systems whose name contains this")
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--replicas", type=int, default=8)


if __name__ == "__main__":
    command(__doc__, "No start", {m: partial(figures, m) for m in METHODS}, options)
