"""Data reconciliation: gross errors that are named right, false alarms, coverage.

    python benchmarks/toolbox/reconciliation.py [SECTION ...] [--draws N] [--json FILE]

errors    data sets with one or two gross errors each: single values, or all values of a quantity by
          an offset or a factor, of random sign and size (2 to 40 standard deviations of a value).
          An error is detectable if a test of this error alone, beside the other one, at the level
          0.01 shared among all suspects (Sidak) finds it with a probability of 90 % or more. That
          is decided from the true values, by dense formulas of this file, before igpe sees the
          data. It is named right if igpe lists its kind, quantity, experiment and time. It is
          named alone if nothing else is listed with it; that is asked for where the likelihood
          ratios of all others are expected to stay behind (union bound 10 %). A wrong name is a
          gross error of igpe that lists none of the true ones
clean     data sets without gross errors: how many have one named (at most 5 %)
coverage  95 % intervals of reconciled values, of clean data and beside gross errors

Systems: a network of flows at several loads; the same once, at rest; with leaks (soft balances);
a fermentation by formulas in two experiments; the same with missing values, water not measured and
relative errors; consecutive reactions whose sum the model conserves, with replicates.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).resolve().parent.parent))

import numpy as np
import pandas as pd
from figures import Row, at_least, at_most, command
from scipy.linalg import null_space
from scipy.special import ndtr, ndtri

import igpe
from igpe import kinetics

LEVEL, POWER = 0.01, 0.9
BEHIND = 1.959964**2  # ratio by which igpe still lists a suspect
SMALLEST, LARGEST = 2.0, 40.0  # standard deviations of a value
MOST = 0.9  # of a factor
SHARE = 0.4  # of gross errors that hold all values of a quantity

STREAMS = ("feed", "mixed", "light", "heavy", "purge", "recycle", "product")
NODES = {
    "mixer": "feed + recycle - mixed = 0",
    "column": "mixed - light - heavy = 0",
    "splitter": "heavy - recycle - purge = 0",
    "dryer": "light - product = 0",
}
SPECIES = {
    "glucose": "C6H12O6",
    "ethanol": "C2H6O",
    "glycerol": "C3H8O3",
    "CO2": "CO2",
    "O2": "O2",
    "water": "H2O",
}
ATOMS = {"glucose": (6, 12, 6), "ethanol": (2, 6, 1), "glycerol": (3, 8, 3), "CO2": (1, 0, 2)}
ATOMS |= {"O2": (0, 0, 2), "water": (0, 2, 1)}


class System(NamedTuple):
    """True tables by experiment, and what igpe is given.

    truth   experiment -> (t, q) true values, NaN where nothing is measured
    matrix  (b, q);  constant: whether totals are unknown;  soft: standard deviation of balances
    sigma   absolute and relative standard deviation of each quantity
    repeat  how often each value is measured
    """

    name: str
    quantities: tuple[str, ...]
    truth: dict[str, np.ndarray]
    matrix: np.ndarray
    constant: bool
    sigma: np.ndarray
    reconcile: Callable[[list[igpe.Experiment]], Any]
    soft: float = 0.0
    repeat: int = 1

    def deviations(self, name: str) -> np.ndarray:
        """(t, q) of the means of replicates, at the true values."""
        absolute, relative = self.sigma.T
        size = np.hypot(absolute, relative * np.abs(self.truth[name]))
        return np.asarray(size / np.sqrt(self.repeat))

    def noise(self) -> dict[str, igpe.Noise]:
        """As igpe is given it."""
        pairs = zip(self.quantities, self.sigma, strict=True)
        return {n: igpe.Noise(absolute=a, relative=r) for n, (a, r) in pairs}


def flows(name: str, loads: int, soft: float = 0.0) -> System:
    """A feed of 80 to 120, with a recycle that changes too."""
    rng = np.random.default_rng(17)
    feed, back, part = (rng.uniform(*r, loads) for r in ((80, 120), (20, 40), (0.3, 0.5)))
    light = part * (feed + back)
    heavy = feed + back - light
    truth = np.column_stack([feed, feed + back, light, heavy, heavy - back, back, light])
    matrix = np.zeros((4, len(STREAMS)))
    for row, terms in enumerate((
        {0: 1, 5: 1, 1: -1},
        {1: 1, 2: -1, 3: -1},
        {3: 1, 5: -1, 4: -1},
        {2: 1, 6: -1},
    )):
        for column, value in terms.items():
            matrix[row, column] = value
    sigma = np.array([[1.0, 0], [1.5, 0], [0.8, 0], [1.0, 0], [0.7, 0], [0.5, 0], [0.8, 0]])
    given = dict.fromkeys(NODES, soft) if soft else {}
    return System(
        name,
        STREAMS,
        {"run": truth},
        matrix,
        False,
        sigma,
        lambda runs: igpe.estimation.reconcile(runs, NODES, soft=given),
        soft,
    )


def fermentation(name: str, missing: float) -> System:
    """Glucose to ethanol, glycerol and, with oxygen, CO2; two experiments."""
    rng, names, truth = np.random.default_rng(23), list(SPECIES), {}
    for run, (first, rate) in {"dry": (200.0, 0.2), "wet": (120.0, 0.35)}.items():
        t = np.arange(12.0)
        used = first * (1 - np.exp(-rate * t))
        a, b = 0.8 * used, 0.1 * used * (1 - np.exp(-t / 5))
        burnt = used - a - b
        # C6H12O6 -> 2 C2H6O + 2 CO2; C6H12O6 -> 2 C3H6O3 is written with water and oxygen:
        # C6H12O6 + 2 H2O -> 2 C3H8O3 + O2; C6H12O6 + 6 O2 -> 6 CO2 + 6 H2O
        glycerol, oxygen = 2 * b, 700 + b - 6 * burnt
        carbon_dioxide, water = 2 * a + 6 * burnt, 300 - 2 * b + 6 * burnt
        table = np.column_stack([first - used, 2 * a, glycerol, carbon_dioxide, oxygen, water])
        lost = rng.uniform(size=table.shape) < missing
        lost[:, -1] |= missing > 0
        truth[run] = np.where(lost, np.nan, table)
    relative = 0.03 if missing else 0.0
    sigma = np.array([[2.0, relative]] * len(names))
    kept = names[:-1] if missing else names
    truth = {run: table[:, : len(kept)] for run, table in truth.items()}
    atoms = np.array([ATOMS[n] for n in names], dtype=float).T
    if missing:  # water is eliminated: hydrogen and oxygen give one balance
        atoms = np.array([atoms[0], 2 * atoms[2] - atoms[1]])[:, : len(kept)]
    others = ["water"] if missing else []
    return System(
        name,
        tuple(kept),
        truth,
        atoms,
        True,
        sigma[: len(kept)],
        lambda runs: igpe.estimation.reconcile(runs, formulas=SPECIES, unmeasured=others),
    )


def reactions() -> System:
    """A -> B -> C from a start that is not known."""
    t = np.arange(1.0, 11.0)
    a = np.exp(-0.4 * t)
    b = 0.4 / (0.4 - 0.15) * (np.exp(-0.15 * t) - a)
    reactor = kinetics.Batch(["A -> B", "B -> C"], bounds={"k1": (1e-2, 2), "k2": (1e-2, 2)})

    def reconcile(runs: list[igpe.Experiment]) -> Any:
        problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=runs)
        return igpe.estimation.reconcile(problem)

    truth = {"run": np.column_stack([a, b, 1 - a - b])}
    sigma = np.array([[0.02, 0.0]] * 3)
    return System(
        "reactions", ("A", "B", "C"), truth, np.ones((1, 3)), True, sigma, reconcile, repeat=2
    )


SYSTEMS = (
    flows("flows", 8),
    flows("flows at rest", 1),
    flows("leaking flows", 8, soft=0.5),
    fermentation("fermentation", 0.0),
    fermentation("missing values", 0.15),
    reactions(),
)


class Error(NamedTuple):
    """A gross error: kind, quantity, experiment (None: all), time (None: all), and its size."""

    kind: str
    name: str
    experiment: str | None
    time: float | None
    size: float


class Dense:
    """Balances of a system by dense formulas, at the true values."""

    def __init__(self, system: System) -> None:
        self.system = system
        runs = system.truth
        self.cells = [
            (e, t, q) for e, v in runs.items() for t in range(len(v)) for q in range(v.shape[1])
        ]
        values = np.concatenate([v.ravel() for v in runs.values()])
        self.values, missing = np.nan_to_num(values), np.isnan(values)
        times, b = sum(map(len, runs.values())), len(system.matrix)
        A = np.kron(np.eye(times), system.matrix)
        sigma = np.concatenate([system.deviations(e).ravel() for e in runs])
        unknown = [A[:, missing]]
        if system.constant:
            ends = np.cumsum([0, *map(len, runs.values())]) * b
            for i in range(len(runs)):
                own = np.zeros((times * b, b))
                own[ends[i] : ends[i + 1]] = np.tile(
                    np.eye(b), (len(own[ends[i] : ends[i + 1]]) // b, 1)
                )
                unknown.append(own)
        left = null_space(np.hstack(unknown).T).T
        noise = A[:, ~missing] * sigma[~missing]
        V = left @ (noise @ noise.T + system.soft**2 * np.eye(len(A))) @ left.T
        size, modes = np.linalg.eigh(V)
        kept = size > 1e-10 * size.max()
        self.G = (modes[:, kept] / np.sqrt(size[kept])).T @ left @ A
        self.missing, self.sigma = missing, sigma
        self.suspects = self._suspects()

    def _suspects(self) -> list[tuple[Error, np.ndarray]]:
        """All kinds of errors with size 1, and their directions."""
        found, q = [], self.system.quantities
        seen = [i for i in range(len(self.cells)) if not self.missing[i]]
        for i in seen:
            e, t, k = self.cells[i]
            found.append((Error("value", q[k], e, float(t), 1.0), np.eye(len(self.cells))[i]))
        runs = list(self.system.truth)
        for k, name in enumerate(q):
            for e in [*runs, *([None] if len(runs) > 1 else [])]:
                own = [i for i in seen if self.cells[i][2] == k and e in (None, self.cells[i][0])]
                if len(own) > 1:
                    f = np.zeros(len(self.cells))
                    f[own] = 1.0
                    found.append((Error("offset", name, e, None, 1.0), f))
                    found.append((Error("factor", name, e, None, 1.0), f * self.values))
        return found

    def judged(self, errors: list[tuple[Error, np.ndarray]]) -> list[tuple[bool, bool]]:
        """Of each error whether it is detectable, and whether it can be told from all others."""
        limit = -ndtri((1 - (1 - LEVEL) ** (1 / len(self.suspects))) / 2)
        found, images = [], [self.G @ f for _, f in errors]
        every = np.column_stack([self.G @ f for _, f in self.suspects])
        names = [s._replace(size=1.0) for s, _ in self.suspects]
        for i, (error, _) in enumerate(errors):
            others = np.column_stack(
                [images[j] for j in range(len(errors)) if j != i] or [np.zeros(len(self.G))]
            )
            Q = np.linalg.qr(others)[0] if np.any(others) else others
            rest = every - Q @ (Q.T @ every)
            g = images[i] - Q @ (Q.T @ images[i])
            center = float(np.linalg.norm(g)) * error.size if np.linalg.norm(g) > 1e-9 else 0.0
            power = ndtr(abs(center) - limit)
            length = np.linalg.norm(rest, axis=0)
            able = length > 1e-6 * np.linalg.norm(every, axis=0).max()
            miss = 0.0
            for j in np.flatnonzero(able):
                if names[j] != error._replace(size=1.0) and center:
                    rho = min(abs(rest[:, j] @ g) / length[j] / np.linalg.norm(g), 1 - 1e-12)
                    x = np.sqrt(2 * (1 - rho)) * abs(center)
                    miss += ndtr(BEHIND / ((1 + rho) * x) - x / 2)
            found.append((bool(power >= POWER), bool(power >= POWER and miss <= 1 - POWER)))
        return found


def data(
    system: System, rng: np.random.Generator, errors: list[tuple[Error, np.ndarray]]
) -> tuple[list[igpe.Experiment], np.ndarray]:
    """Experiments with noise and gross errors, and the true values of all cells."""
    runs, every, begin = [], [], 0
    off = sum((e.size * f for e, f in errors), np.zeros(sum(v.size for v in system.truth.values())))
    for name, values in system.truth.items():
        own = off[begin : begin + values.size].reshape(values.shape)
        begin += values.size
        scatter = np.hypot(system.sigma[:, 0], system.sigma[:, 1] * np.abs(values))
        shift = system.soft * rng.standard_normal((len(values), len(system.matrix)))
        true = values + shift @ np.linalg.pinv(system.matrix).T
        every.append(true.ravel())
        tables = []
        for _ in range(system.repeat):
            table = pd.DataFrame(
                true + own + scatter * rng.standard_normal(values.shape),
                columns=list(system.quantities),
            )
            tables.append(table.assign(time=np.arange(len(values), dtype=float) + 1))
        table = pd.concat(tables).sort_values("time", kind="stable")
        start = (
            {n: igpe.Unknown(0, 2) for n in system.quantities} if system.name == "reactions" else {}
        )
        runs.append(
            igpe.Experiment(
                table, name=name, start=start, start_time=0.0, sigma=system.noise(), replicates=True
            )
        )
    return runs, np.concatenate(every)


def drawn(
    dense: Dense, rng: np.random.Generator, times: float = 1.0
) -> list[tuple[Error, np.ndarray]]:
    """One or two errors of different quantities."""
    single = [s for s in dense.suspects if s[0].kind == "value"]
    wide = [s for s in dense.suspects if s[0].kind != "value"]
    found: list[tuple[Error, np.ndarray]] = []
    for _ in range(rng.integers(1, 3)):
        among = wide if wide and rng.uniform() < SHARE else single
        among = [s for s in among if s[0].name not in {e.name for e, _ in found}]
        error, f = among[rng.integers(len(among))]
        level = times * np.exp(rng.uniform(np.log(SMALLEST), np.log(LARGEST))) * rng.choice([-1, 1])
        touched = f != 0
        size = level * float(np.median(dense.sigma[touched] / np.abs(f[touched])))
        size = size if error.kind == "value" else size / 2
        if error.kind == "factor":  # no instrument shows less than a tenth, or the other sign
            size = max(min(size, MOST), -MOST)
        found.append((error._replace(size=size), f))
    return found


def _key(one: Any) -> tuple[Any, ...]:
    time = None if one.time is None else float(one.time)
    return one.kind, one.name, one.experiment, time


def errors(arguments: argparse.Namespace) -> Iterator[Row]:
    """Data sets with gross errors."""
    sums = np.zeros(7)
    for index, system in enumerate(SYSTEMS):
        dense, counts = Dense(system), np.zeros(7)
        for draw in range(arguments.draws):
            rng = np.random.default_rng([1, index, draw])
            wrong = drawn(dense, rng)
            judged = dense.judged(wrong)
            found = system.reconcile(data(system, rng, wrong)[0]).gross_errors
            # times of the dense tables count from 0
            true = [_key(e._replace(time=None if e.time is None else e.time + 1)) for e, _ in wrong]
            named = [{_key(s) for s in g.suspects} for g in found]
            right = [any(t in own for own in named) for t in true]
            alone = [any({t} == own for own in named) for t in true]
            for (detectable, apart), is_right, is_alone in zip(judged, right, alone, strict=True):
                counts[:4] += detectable, detectable and is_right, apart, apart and is_alone
            counts[4] += any(not own & set(true) for own in named)
            counts[5:] += len(named), sum(map(len, named))
        yield from _rates(system.name, counts, arguments.draws)
        sums += counts
    yield from _rates("all", sums, arguments.draws * len(SYSTEMS))


def _rates(case: str, counts: np.ndarray, sets: int) -> Iterator[Row]:
    detectable, right, apart, alone, wrong, names, listed = counts
    yield at_most(case, "detectable gross errors", detectable)
    yield at_least(case, "of these named right", 100 * right / max(detectable, 1), "%", 90.0)
    yield at_most(case, "that can be told from all others", apart)
    yield at_least(case, "of these named alone", 100 * alone / max(apart, 1), "%", 90.0)
    yield at_most(case, "data sets with a wrong name", 100 * wrong / sets, "%", 5.0)
    yield at_most(case, "suspects in a name", listed / max(names, 1))


def clean(arguments: argparse.Namespace) -> Iterator[Row]:
    """Data sets without gross errors."""
    total, sets = 0, 3 * arguments.draws
    for index, system in enumerate(SYSTEMS):
        alarms = 0
        for draw in range(sets):
            rng = np.random.default_rng([2, index, draw])
            alarms += bool(system.reconcile(data(system, rng, [])[0]).gross_errors)
        total += alarms
        yield at_most(system.name, "false alarms", 100 * alarms / sets, "%", 5.0)
    yield at_most("all", "false alarms", 100 * total / sets / len(SYSTEMS), "%", 5.0)


def coverage(arguments: argparse.Namespace) -> Iterator[Row]:
    """Intervals of reconciled values."""
    for index, system in enumerate(SYSTEMS):
        dense = Dense(system)
        for kind in ("clean", "with gross errors"):
            inside, ratio = [], []
            for draw in range(arguments.draws):
                rng = np.random.default_rng([3, index, draw])
                # large errors only: small ones that stay bias whatever method is used
                wrong = drawn(dense, rng, 3.0) if kind != "clean" else []
                if wrong and not all(d for d, _ in dense.judged(wrong)):
                    continue
                runs, true = data(system, rng, wrong)
                table = system.reconcile(runs).table
                table = table[table["name"].isin(system.quantities)]
                seen = table["measured"].notna().to_numpy() & table["reconciled"].notna().to_numpy()
                off = (table["reconciled"].to_numpy() - true)[seen]
                inside.append(np.abs(off) <= 1.959964 * table["standard_deviation"][seen])
                ratio.append((table["standard_deviation"] / table["sigma"])[seen])
            within, narrower = np.concatenate(inside), np.concatenate(ratio)
            case = f"{system.name}, {kind}"
            yield at_least(case, "values in 95 % intervals", 100 * within.mean(), "%", 93.0)
            if kind == "clean":
                yield at_most(case, "deviation by that of measurements", float(np.median(narrower)))


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draws", type=int, default=100, help="data sets of each system")


if __name__ == "__main__":
    sections = {"errors": errors, "clean": clean, "coverage": coverage}
    command(__doc__, "Data reconciliation", sections, _options)
