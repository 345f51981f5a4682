"""Whether what is claimed of a box holds at parameters of it, integrated by other means.

Four claims of `igpe.proofs.prover`: each residual is within its polynomial's error and its range;
the sum of squares is not below the bound; and contraction against a cut loses no parameters below
it. Half of the boxes lie near good parameters, as those do that decide a proof; half anywhere.
"""

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae

import igpe
from igpe.dynamics.shooting.residuals import Residuals
from igpe.proofs.prover.certify import FEW
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.posed import Dynamic, posed

TESTS = Path(__file__).resolve().parent.parent / "tests"
SAMPLES, FEW_SAMPLES = 6_500, 800  # (box, parameters) of a model
PER_BOX = 10
SLACK = 1e-8  # of a residual and its measurement: what the integration in between may be off
EXACT = igpe.integrators.Sundials(rtol=1e-12, atol=1e-14)
WIDTHS = (-5.0, -0.5)  # powers of ten of a box's radius, share of the whole range


@dataclass
class Tally:
    """What was looked at, and what did not hold: sentences."""

    boxes: int = 0
    samples: int = 0
    residuals: int = 0
    enclosed: int = 0
    wrong: list[str] = field(default_factory=list)


class Case(NamedTuple):
    """A problem, good parameters of it if they are known, and how often to look."""

    name: str
    problem: Callable[[], igpe.Problem]
    near: dict[str, float] | None
    samples: int = SAMPLES


class Claims:
    """A problem's claims, and the truth.

    near      good parameters, or none
    loosened  what remainders are multiplied by: below 1 breaks them
    """

    def __init__(
        self, problem: igpe.Problem, near: dict[str, float] | None, loosened: float = 1.0
    ) -> None:
        self.dynamic, self.loosened = posed(problem), loosened
        low, high = self.dynamic.lower, self.dynamic.upper
        self.enclosure = BoxEnclosure(self.dynamic, degree=3 if len(low) <= FEW else 2)
        self.truth = Residuals(problem, EXACT)
        self.near = low + 0.5 * (high - low) if near is None else problem.box.vector(near)
        self.size = _sizes(self.dynamic)

    def tally(self, samples: int, seed: int = 1) -> Tally:
        """Look at so many (box, parameters)."""
        rng, found = np.random.default_rng(seed), Tally()
        while found.samples < samples:
            low, high = self._box(rng)
            share = rng.random((PER_BOX, len(low)))
            on_faces = rng.random(share.shape) < 0.3
            share = np.where(on_faces, np.round(share), share)
            self._look(low, high, low + share * (high - low), found)
        return found

    def _box(self, rng: np.random.Generator) -> tuple[Any, Any]:
        low, high = self.dynamic.lower, self.dynamic.upper
        radius = (high - low) * 10 ** (rng.uniform(*WIDTHS) + rng.uniform(-1, 0, len(low)))
        if rng.random() < 0.5:
            middle = self.near + rng.uniform(-2, 2, len(low)) * radius
        else:
            middle = low + (high - low) * rng.random(len(low)) ** 3
        middle = np.clip(middle, low, high)
        return np.maximum(low, middle - radius), np.minimum(high, middle + radius)

    def _look(self, low: Any, high: Any, points: Any, found: Tally) -> None:
        bound = self.enclosure.examine(low, high, 1e300).bound
        rows = self.enclosure.rows
        c, error, least, most = (np.array(a) for a in rows[:4])
        error *= self.loosened
        squares = np.full(len(points), np.inf)
        found.boxes += 1
        for k, p in enumerate(points):
            r = self._residuals(p)
            if r is None:
                continue
            squares[k] = r @ r
            found.samples += 1
            found.residuals += len(r)
            found.enclosed += int(np.isfinite(error).sum())
            room = SLACK * (np.abs(r) + self.size)
            away = np.abs(r - c @ self.enclosure.monomials(low, high, p))
            if (away > error + room).any():
                found.wrong.append(f"polynomial by {np.nanmax(away - error - room):.2g} at {p}")
            elif ((r < least - room) | (r > most + room)).any():
                found.wrong.append(f"range at {p}")
            elif squares[k] * (1 + SLACK) + room @ room < bound:
                found.wrong.append(f"bound {bound} of {squares[k]} at {p}")
        self._contracted(low, high, points, squares, found)

    def _contracted(self, low: Any, high: Any, points: Any, squares: Any, found: Tally) -> None:
        """Cuts above one and above half of the points, and what is left of the box."""
        known = np.sort(squares[np.isfinite(squares)])
        for level in (known[0], known[len(known) // 2]) if len(known) else ():
            cut = level * (1 + 1e-6) + 1e-12
            claim = self.enclosure.examine(low, high, cut)
            below = points[squares <= level]
            room = 1e-9 * np.abs(below) + 1e-300
            lost = (below < claim.lower - room) | (below > claim.upper + room)
            if claim.is_empty or claim.bound > cut or lost.any():
                found.wrong.append(f"cut {cut} loses {below[0]} of [{low}, {high}]")

    def _residuals(self, p: Any) -> Any:
        """In the order of the claims: priors, then by experiment, time and column; or None."""
        found = self.truth(p)
        if found is None:
            return None
        r, parts, begin = found.residual, [], 0
        for run in self.truth.runs:
            m = run.measurements
            parts.append(r[begin : begin + len(m.value)][np.lexsort((m.column, m.row))])
            begin += len(m.value)
        return np.concatenate([r[begin:], *parts])


def _sizes(dynamic: Dynamic) -> Any:
    """Of what is measured, in standard deviations."""
    runs = [run.schedule for run in dynamic.experiments]
    sizes = (run.weight * np.maximum(1, np.abs(run.value)) for run in runs)
    return np.concatenate([np.ones(dynamic.unmeasured.size), *sizes])


def cases() -> Iterator[Case]:
    """Nineteen models; those of which a box takes a second get fewer samples."""
    sys.path += [str(TESTS), str(TESTS / "proofs" / "prover")]
    published = ("consecutive", "reversible", "gas_oil_cracking", "bellman", "lotka_volterra")
    more = ("cops_gas_oil", "methanol", "cops_methanol", "pendulum")
    dear = ("fitzhugh_nagumo", "stat5", "urethane")
    for name in (*published, *more, *dear):
        model = importlib.import_module(name)
        yield Case(name, model.problem, model.OPTIMUM, FEW_SAMPLES if name in dear else SAMPLES)
    zoo = {c.name: c for c in importlib.import_module("zoo").ZOO}
    for name in ("michaelis_menten", "stirred_tank", "logistic", "fast_equilibrium"):
        yield Case(name, zoo[name].problem, dict(zoo[name].truth))
    yield Case("everything", importlib.import_module("cases").everything, None)
    yield Case("arrhenius", arrhenius, {"k": 0.8, "E": 60.0})
    yield Case("powers", powers, None)


def decay(times: Iterable[float]) -> Any:
    """A -> B with a rate constant at 320 K and an activation energy in kJ/mol."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A = pyo.Var(m.t)
    m.dA = dae.DerivativeVar(m.A)
    m.T = pyo.Param(mutable=True, initialize=320.0)
    m.k, m.E = pyo.Var(bounds=(0, 10)), pyo.Var(bounds=(10, 150))
    rate = m.k * pyo.exp(-m.E / 8.314e-3 * (1 / m.T - 1 / 320.0))
    m.balance = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -rate * m.A[t])
    return m


def arrhenius() -> igpe.Problem:
    """The decay at 300, 320 and 340 K, with 1 % of noise."""
    rng, times, runs = np.random.default_rng(0), np.linspace(0.2, 2.0, 10), []
    for temperature in (300.0, 320.0, 340.0):
        k = 0.8 * np.exp(-60.0 / 8.314e-3 * (1 / temperature - 1 / 320.0))
        table = pd.DataFrame({"time": times, "A": np.exp(-k * times)})
        table["A"] += 0.01 * rng.standard_normal(len(times))
        more = {"start": {"A": 1.0}, "start_time": 0.0, "inputs": {"T": temperature}}
        runs.append(igpe.Experiment(table, name=f"{temperature:g} K", **more))
    return igpe.Problem(decay, parameters=["k", "E"], experiments=runs)


def orders(times: Iterable[float]) -> Any:
    """A -> B -> C of broken orders."""
    m = pyo.ConcreteModel()
    m.t = dae.ContinuousSet(initialize=times)
    m.A, m.B = pyo.Var(m.t), pyo.Var(m.t)
    m.dA, m.dB = dae.DerivativeVar(m.A), dae.DerivativeVar(m.B)
    m.k, m.l = pyo.Var(bounds=(0, 2)), pyo.Var(bounds=(0, 2))
    m.first = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t] ** 1.5)
    m.second = pyo.Constraint(
        m.t, rule=lambda m, t: m.dB[t] == m.k * m.A[t] ** 1.5 - m.l * m.B[t] ** 0.7
    )
    return m


def powers() -> igpe.Problem:
    """Two starts, the second of B unknown; B is measured at the end only."""
    runs = []
    for start, unknown in ((1.0, 0.5), (2.0, igpe.Unknown(0.1, 1.0))):
        times = np.linspace(0.25, 2.0, 8)
        exact = (start**-0.5 + 0.3 * times) ** -2.0  # k = 0.6
        table = pd.DataFrame({"time": times, "A": np.round(exact, 2), "B": np.nan})
        table.loc[7, "B"] = 0.6
        more = {"start": {"A": start, "B": unknown}, "start_time": 0.0, "sigma": 0.02}
        runs.append(igpe.Experiment(table, name=f"A0 = {start:g}", **more))
    return igpe.Problem(orders, parameters=["k", "l"], experiments=runs)
