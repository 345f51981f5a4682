"""Systems of `toolbox/spectra.py`: systems like those of KIPET's tutorials, with seeded data.

The kinds of systems are those of KIPET's tutorials: consecutive reactions, several experiments,
unwanted contributions, species that do not absorb, complementary concentrations. The Michael
reaction (Chen, Biegler & Garcia Munoz) has the rate constants, and first amounts of AH and B, of
KIPET's example. All other constants, amounts, bounds, times and errors are our own or from memory
of the tutorials. All spectra are our own: pure ones are seeded sums of Gaussians, from 190 to 490
nm, with seeded normal errors.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from pyomo import dae
from scipy.integrate import solve_ivp

import igpe

Reaction = tuple[str, Mapping[str, int], Mapping[str, int]]
"""Rate constant, reactants and products, with their orders."""


def network(species: Sequence[str], reactions: Sequence[Reaction], bounds: Any) -> Any:
    """A builder of mass action kinetics in a batch."""

    def model(times: Sequence[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        for k, _, _ in reactions:
            m.add_component(k, pyo.Var(bounds=bounds))
        for s in species:
            m.add_component(s, pyo.Var(m.t))
            m.add_component(f"d{s}", dae.DerivativeVar(m.component(s), wrt=m.t))

        def slope(m: Any, t: float, s: str) -> Any:
            total = 0.0
            for k, used, made in reactions:
                rate = m.component(k)
                for name, order in used.items():
                    rate = rate * m.component(name)[t] ** order
                total = total + (made.get(s, 0) - used.get(s, 0)) * rate
            return m.component(f"d{s}")[t] == total

        for s in species:
            rule = pyo.Constraint(m.t, rule=lambda m, t, s=s: slope(m, t, s))
            m.add_component(f"balance_{s}", rule)
        return m

    return model


def amounts(
    species: Sequence[str],
    reactions: Sequence[Reaction],
    k: Mapping[str, float],
    start: Mapping[str, float],
    times: np.ndarray,
) -> np.ndarray:
    """(n_times, n) of a batch, by SciPy's LSODA."""
    place = {s: i for i, s in enumerate(species)}

    def slopes(_: float, y: np.ndarray) -> np.ndarray:
        total = np.zeros(len(y))
        for name, used, made in reactions:
            rate = k[name] * np.prod([y[place[s]] ** order for s, order in used.items()])
            for s, order in used.items():
                total[place[s]] -= order * rate
            for s, order in made.items():
                total[place[s]] += order * rate
        return total

    y0 = [start.get(s, 0.0) for s in species]
    out = solve_ivp(slopes, (0.0, times[-1]), y0, "LSODA", times, rtol=1e-9, atol=1e-12)
    return np.asarray(out.y.T)


def pure(count: int, w: np.ndarray, seed: int) -> np.ndarray:
    """(n_wavelengths, count) sums of two Gaussians each."""
    random, span = np.random.default_rng(seed), w[-1] - w[0]
    centres = (
        w[0] + span * (np.arange(count)[:, None] + random.uniform(0.2, 0.8, (count, 2))) / count
    )
    widths, heights = (
        span * random.uniform(0.05, 0.15, (count, 2)),
        random.uniform(0.3, 1.0, (count, 2)),
    )
    each = heights[:, :, None] * np.exp(
        -0.5 * ((w - centres[:, :, None]) / widths[:, :, None]) ** 2
    )
    return np.asarray(each.sum(axis=1).T)


class Case(NamedTuple):
    """A system, and how its spectra are measured and fitted.

    absorbing  species;  starts: one for each experiment;  end, times, wavelengths: of the spectra
    noise      of the absorbances, relative to the largest
    options    of `igpe.Spectra`;  unwanted: what is added to the spectra
    sets       of values that explain the data: first-order steps can be exchanged
    measured   species whose concentrations are measured too, at other times
    """

    name: str
    species: Sequence[str]
    reactions: Sequence[Reaction]
    truth: Mapping[str, float]
    starts: Sequence[Mapping[str, float]]
    absorbing: Sequence[str]
    end: float
    times: int = 60
    wavelengths: int = 100
    noise: float = 5e-3
    bounds: tuple[float, float] = (1e-2, 10.0)
    options: Mapping[str, Any] = {}
    unwanted: str = ""
    sets: int = 1
    measured: str = ""
    known: str = ""
    seed: int = 0

    @property
    def model(self) -> Any:
        """The builder."""
        return network(self.species, self.reactions, self.bounds)

    def measurements(self, seed: int) -> list[tuple[pd.DataFrame, pd.DataFrame | None]]:
        """Spectra, and concentrations if there are any, of each experiment."""
        random = np.random.default_rng([self.seed, seed])
        w = np.linspace(190.0, 490.0, self.wavelengths)
        s = pure(len(self.absorbing), w, self.seed)
        result = []
        for start in self.starts:
            t = np.linspace(0.0, self.end, self.times + 1)[1:]
            c = amounts(self.species, self.reactions, self.truth, start, t)
            own = c[:, [self.species.index(n) for n in self.absorbing]]
            d = own @ s.T
            size = float(d.max())
            drift = np.exp(-0.5 * ((w - 300) / 60) ** 2) * size * 0.3
            if self.unwanted == "constant":
                d = d + drift
            if self.unwanted == "varying":
                d = d + np.outer(np.sin(3 * t / self.end) ** 2, drift)
            d = d + random.normal(0, self.noise * size, d.shape)
            table = None
            if self.measured:
                place, few = self.species.index(self.measured), t[4::12] * 0.99
                conc = amounts(self.species, self.reactions, self.truth, start, few)[:, place]
                noisy = conc + random.normal(0, 0.02 * conc.max(), len(few))
                table = pd.DataFrame({"time": few, self.measured: noisy})
                table.attrs["sigma"] = 0.02 * float(conc.max())
            result.append((pd.DataFrame(d, index=t, columns=w), table))
        return result

    def problem(self, seed: int = 0, **changes: Any) -> igpe.Problem:
        """The problem of one draw; `changes` of the options of `igpe.Spectra`."""
        runs = []
        for k, (spectra, table) in enumerate(self.measurements(seed)):
            options = {"species": self.absorbing, **self.options, **changes}
            if self.known:
                w = spectra.columns.to_numpy()
                place = list(self.absorbing).index(self.known)
                options["pure"] = {self.known: pure(len(self.absorbing), w, self.seed)[:, place]}
            start = {s: self.starts[k].get(s, 0.0) for s in self.species}
            sigma = None if table is None else table.attrs["sigma"]
            one = igpe.Experiment(
                table, name=f"run{k + 1}", start=start, start_time=0.0, sigma=sigma,
                spectra=igpe.Spectra(spectra, **options),
            )  # fmt: skip
            runs.append(one)
        return igpe.Problem(self.model, parameters=list(self.truth), experiments=runs)


CONSECUTIVE: Sequence[Reaction] = [("k1", {"A": 1}, {"B": 1}), ("k2", {"B": 1}, {"C": 1})]
MICHAEL: Sequence[Reaction] = [
    ("k1", {"AH": 1, "B": 1}, {"Am": 1, "BH": 1}),
    ("k2", {"Am": 1, "C": 1}, {"ACm": 1}),
    ("k3", {"ACm": 1}, {"Am": 1, "C": 1}),
    ("k4", {"ACm": 1, "AH": 1}, {"Am": 1, "P": 1}),
    ("k5", {"ACm": 1, "BH": 1}, {"P": 1, "B": 1}),
]
SECOND: Sequence[Reaction] = [
    ("k1", {"A": 1, "B": 1}, {"C": 1}),
    ("k2", {"C": 2}, {"D": 1}),
]
SLOW = {"k1": 2.0, "k2": 0.2}
THREE = "A", "B", "C"
CASES = (
    Case("Sawall", THREE, CONSECUTIVE, SLOW, [{"A": 1e-3}], THREE, 10.0, sets=2, seed=1),
    Case(
        "second order", ("A", "B", "C", "D"), SECOND, {"k1": 2.0, "k2": 0.5},
        [{"A": 1.0, "B": 0.8}], ("A", "C", "D"), 8.0, seed=2,
    ),
    Case(
        "Michael", ("AH", "B", "Am", "BH", "C", "ACm", "P"), MICHAEL,
        {"k1": 49.7796, "k2": 8.93156, "k3": 1.31765, "k4": 0.31087, "k5": 3.87809},
        [{"AH": 0.395555, "B": 0.0351202, "C": 0.3}], ("AH", "Am", "ACm", "P"), 20.0,
        times=150, noise=5e-4, bounds=(0.05, 200.0), seed=3,
    ),
    Case(
        "three experiments", THREE, CONSECUTIVE, {"k1": 1.0, "k2": 0.224},
        [{"A": 1e-3}, {"A": 2e-3}, {"A": 1e-3, "B": 5e-4}], THREE, 10.0, times=40, seed=4,
    ),
    Case(
        "complementary", THREE, CONSECUTIVE, SLOW, [{"A": 1e-3}], ("A", "B"), 10.0,
        measured="C", sets=2, seed=5,
    ),
    Case(
        "constant unwanted", THREE, CONSECUTIVE, SLOW, [{"A": 1e-3}], ("A", "B"), 10.0,
        options={"unwanted": "constant"}, unwanted="constant", sets=2, seed=6,
    ),
    Case(
        "varying unwanted", THREE, CONSECUTIVE, SLOW, [{"A": 1e-3}], THREE, 10.0,
        options={"unwanted": 1}, unwanted="varying", sets=2, seed=7,
    ),
    Case(
        "known spectrum", THREE, CONSECUTIVE, SLOW, [{"A": 1e-3}], THREE, 10.0,
        known="B", seed=8,
    ),
)  # fmt: skip
FIVE: Sequence[Reaction] = [
    ("k1", {"A": 1}, {"B": 1}),
    ("k2", {"B": 1}, {"C": 1}),
    ("k3", {"C": 1}, {"D": 1}),
    ("k4", {"A": 1, "D": 1}, {"E": 1}),
]
BIG = Case(
    "1,000 x 500 x 5", ("A", "B", "C", "D", "E"), FIVE,
    {"k1": 1.0, "k2": 0.5, "k3": 0.25, "k4": 0.8}, [{"A": 1.0, "D": 0.5}],
    ("A", "B", "C", "D", "E"), 15.0, times=1000, wavelengths=500, noise=2e-3, seed=9,
)  # fmt: skip
