"""A worked example of each rate law and reactor of `igpe.kinetics`.

Measurements are simulated with known parameters and have normal errors. The parameters are of the
size that the sources of the classes give; start values and times are ours. Bounds lie a factor of
20 below and above the truth (energies: of 3, reaction orders: between 0.2 and 4), so that nothing
starts near it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

import igpe
from igpe import kinetics

NOISE = 0.005  # standard deviation over the largest value of a quantity in an experiment


@dataclass(frozen=True)
class Example:
    """A reactor with known parameters, and the runs that it is seen in.

    make      bounds -> reactor
    truth     parameter -> value
    starts    of each run: state -> start value
    end       the last of `points` times, or positions
    measured  names
    inputs    of each run; {} for all that are left out
    narrow    parameters whose bounds are nearer than a factor of 20 -> that factor
    """

    make: Callable[..., kinetics.Batch | kinetics.Cstr | kinetics.PlugFlow | kinetics.Semibatch]
    truth: Mapping[str, float]
    starts: Sequence[Mapping[str, float]]
    end: float
    measured: Sequence[str]
    inputs: Sequence[Mapping[str, Any]] = ()
    narrow: Mapping[str, float] = field(default_factory=dict)
    points: int = 15

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Parameter -> (lower, upper)."""
        found = {}
        for name, value in self.truth.items():
            factor = self.narrow.get(name, 20.0)
            found[name] = tuple(sorted((value / factor, value * factor)))
        return found

    def problem(self, seed: int, noise: float = NOISE) -> igpe.Problem:
        """The problem with simulated measurements."""
        reactor = self.make(bounds=self.bounds())
        times = np.linspace(0.0, self.end, self.points + 1)[1:]
        blank = pd.DataFrame({"time": times, **dict.fromkeys(self.measured, 1.0)})
        inputs = [*self.inputs, *({} for _ in self.starts)]
        runs = [
            igpe.Experiment(blank, name=f"run{k}", start=start, inputs=given, start_time=0.0)
            for k, (start, given) in enumerate(zip(self.starts, inputs, strict=False), start=1)
        ]
        tables = igpe.simulate(reactor.problem(runs), self.truth, times=times)
        random = np.random.default_rng(seed)
        noisy = []
        for run in runs:
            table = tables[tables["experiment"] == run.name] if len(runs) > 1 else tables
            table = table[["time", *self.measured]].reset_index(drop=True)
            sigma = {n: noise * float(np.abs(table[n]).max()) for n in self.measured}
            for name, deviation in sigma.items():
                table[name] += deviation * random.standard_normal(len(table))
            number = int(run.name.removeprefix("run")) - 1
            noisy.append(
                igpe.Experiment(
                    table,
                    name=run.name,
                    start=self.starts[number],
                    inputs=inputs[number],
                    start_time=0.0,
                    sigma=sigma,
                )
            )
        return reactor.problem(noisy)


def batch(*steps: kinetics.Reaction | str, **options: Any) -> Callable[..., kinetics.Batch]:
    """A builder of `Batch` by its bounds."""
    return lambda bounds: kinetics.Batch(list(steps), bounds=bounds, **options)


def _at(*temperatures: float) -> list[dict[str, float]]:
    return [{"T": t} for t in temperatures]


ENZYME = {"vmax": 2.0, "km": 0.5}
SP = [{"S": 2.0, "P": 0.0}]
INHIBITED = [{"S": 2.0, "P": 0.0, "I": i} for i in (0.0, 0.5, 2.0)]
FRESH = {"A": 1.0, "B": 0.0}
ENERGY = 3.0  # factor of bounds of energies

EXAMPLES: dict[str, Example] = {
    "mass action, equilibrium constant": Example(
        batch(kinetics.Reaction("A + B <-> C", kinetics.MassAction("k", equilibrium="K"))),
        {"k": 0.8, "K": 3.0},
        [{"A": 1.0, "B": 1.5, "C": 0.0}],
        5.0,
        ["A", "C"],
    ),
    "van 't Hoff": Example(
        batch(
            kinetics.Reaction(
                "A <-> B",
                kinetics.MassAction(
                    kinetics.Arrhenius("k", "Ea"), equilibrium=kinetics.VantHoff("K", "dH")
                ),
            )
        ),
        {"k": 0.5, "Ea": 6e4, "K": 2.0, "dH": -3e4},
        [FRESH] * 3,
        6.0,
        ["A", "B"],
        _at(330.0, 350.0, 370.0),
        {"Ea": ENERGY, "dH": ENERGY},
    ),
    "thermodynamics": Example(
        batch(
            kinetics.Reaction(
                "A <-> B", kinetics.MassAction("k", equilibrium=kinetics.Thermodynamic("dH", "dS"))
            )
        ),
        {"k": 0.5, "dH": -3e4, "dS": -80.0},
        [FRESH] * 3,
        6.0,
        ["A", "B"],
        _at(330.0, 350.0, 370.0),
        {"dH": ENERGY, "dS": ENERGY},
    ),
    "Arrhenius": Example(
        batch(kinetics.Reaction("A -> B", kinetics.MassAction(kinetics.Arrhenius("k", "Ea")))),
        {"k": 0.5, "Ea": 8e4},
        [FRESH],
        5.0,
        ["A"],
        [{"T": igpe.linear_input([0.0, 5.0], [330.0, 380.0])}],
        {"Ea": ENERGY},
    ),
    "Eyring": Example(
        batch(
            kinetics.Reaction(
                "A -> B", kinetics.MassAction(kinetics.Eyring("dH", "dS", time="min"))
            )
        ),
        {"dH": 8e4, "dS": -50.0},
        [FRESH] * 3,
        60.0,
        ["A"],
        _at(320.0, 330.0, 340.0),
        {"dH": 1.5, "dS": ENERGY},
    ),
    "power law": Example(
        batch(kinetics.Reaction("A + B -> C", kinetics.PowerLaw("k", {"A": "n", "B": "m"}))),
        {"k": 0.6, "n": 1.5, "m": 0.7},
        [{"A": 1.0, "B": 3.0, "C": 0.0}, {"A": 3.0, "B": 1.5, "C": 0.0}],
        1.5,
        ["A", "C"],
        narrow={"n": 3.0, "m": 3.0},
    ),
    "Michaelis-Menten": Example(
        batch(kinetics.Reaction("S -> P", kinetics.MichaelisMenten("vmax", "km"))),
        ENZYME,
        SP,
        2.0,
        ["S", "P"],
    ),
    "competitive inhibition": Example(
        batch(
            kinetics.Reaction(
                "S -> P", kinetics.MichaelisMenten("vmax", "km", inhibitors={"I": "Kc"})
            )
        ),
        ENZYME | {"Kc": 0.4},
        INHIBITED,
        3.0,
        ["S", "P"],
    ),
    "uncompetitive inhibition": Example(
        batch(
            kinetics.Reaction(
                "S -> P", kinetics.MichaelisMenten("vmax", "km", uncompetitive={"I": "Ku"})
            )
        ),
        ENZYME | {"Ku": 0.8},
        INHIBITED,
        3.0,
        ["S", "P"],
    ),
    "mixed inhibition": Example(
        batch(
            kinetics.Reaction(
                "S -> P",
                kinetics.MichaelisMenten(
                    "vmax", "km", inhibitors={"I": "Kc"}, uncompetitive={"I": "Ku"}
                ),
            )
        ),
        ENZYME | {"Kc": 0.4, "Ku": 1.6},
        INHIBITED,
        3.0,
        ["S", "P"],
    ),
    "non-competitive inhibition": Example(
        batch(
            kinetics.Reaction(
                "S -> P",
                kinetics.MichaelisMenten(
                    "vmax", "km", inhibitors={"I": "Ki"}, uncompetitive={"I": "Ki"}
                ),
            )
        ),
        ENZYME | {"Ki": 0.9},
        INHIBITED,
        3.0,
        ["S", "P"],
    ),
    "inhibition by the substrate": Example(
        batch(kinetics.Reaction("S -> P", kinetics.MichaelisMenten("vmax", "km", excess="Ks"))),
        ENZYME | {"Ks": 1.5},
        [{"S": s, "P": 0.0} for s in (6.0, 0.8)],
        8.0,
        ["S"],
    ),
    "inhibition by the product": Example(
        batch(
            kinetics.Reaction(
                "S -> P", kinetics.MichaelisMenten("vmax", "km", inhibitors={"P": "Kp"})
            )
        ),
        ENZYME | {"Kp": 0.3},
        [{"S": 2.0, "P": 0.0}, {"S": 2.0, "P": 1.5}, {"S": 0.3, "P": 0.0}],
        4.0,
        ["S", "P"],
    ),
    "reversible enzyme": Example(
        batch(
            kinetics.Reaction(
                "S <-> P",
                kinetics.MichaelisMenten("vmax", "km", inhibitors={"P": "Kp"}, equilibrium="K"),
            )
        ),
        ENZYME | {"Kp": 0.8, "K": 3.0},
        [{"S": 0.4, "P": 0.0}, {"S": 4.0, "P": 0.0}, {"S": 0.0, "P": 3.0}],
        4.0,
        ["S", "P"],
    ),
    "Hill": Example(
        batch(kinetics.Reaction("S -> P", kinetics.Hill("vmax", "half", "n"))),
        {"vmax": 1.0, "half": 1.2, "n": 2.5},
        [{"S": 4.0, "P": 0.0}],
        6.0,
        ["S"],
        narrow={"n": 3.0},
    ),
    "Monod, yield": Example(
        batch(kinetics.Reaction("S -> X", kinetics.Monod("mu", "Ks"), yields={"S": "Y"})),
        {"mu": 0.4, "Ks": 0.8, "Y": 0.5},
        [{"S": 10.0, "X": 0.2}],
        12.0,
        ["S", "X"],
    ),
    "Monod, maintenance": Example(
        lambda bounds: kinetics.Cstr(
            [
                kinetics.Reaction("S -> X", kinetics.Monod("mu", "Ks"), yields={"S": "Y"}),
                kinetics.Reaction("S ->", kinetics.Maintenance("ms", "X", half=0.05)),
            ],
            dilution="D",
            inlet={"S": 10.0},
            bounds=bounds,
        ),
        {"mu": 0.4, "Ks": 0.8, "Y": 0.5, "ms": 0.1},
        [{"S": 10.0, "X": 0.2}] * 2,
        40.0,
        ["S", "X"],
        [{"D": 0.05}, {"D": 0.25}],
    ),
    "Haldane": Example(
        batch(kinetics.Reaction("S -> X", kinetics.Haldane("mu", "Ks", "Ki"), yields={"S": "Y"})),
        {"mu": 0.6, "Ks": 0.8, "Ki": 5.0, "Y": 0.5},
        [{"S": 12.0, "X": 0.3}, {"S": 3.0, "X": 0.3}],
        14.0,
        ["S", "X"],
    ),
    "Contois": Example(
        batch(kinetics.Reaction("S -> X", kinetics.Contois("mu", "B"), yields={"S": "Y"})),
        {"mu": 0.5, "B": 0.7, "Y": 0.6},
        [{"S": 10.0, "X": 0.3}],
        14.0,
        ["S", "X"],
    ),
    "Langmuir-Hinshelwood": Example(
        batch(
            kinetics.Reaction(
                "A + B -> C", kinetics.LangmuirHinshelwood("k", {"A": "KA", "B": "KB", "C": "KC"})
            )
        ),
        {"k": 2.0, "KA": 1.5, "KB": 0.6, "KC": 0.9},
        [
            {"A": 2.0, "B": 1.0, "C": 0.0},
            {"A": 1.0, "B": 4.0, "C": 0.0},
            {"A": 4.0, "B": 2.0, "C": 2.0},
        ],
        6.0,
        ["A", "C"],
    ),
    "Eley-Rideal": Example(
        batch(kinetics.Reaction("A + B -> C", kinetics.EleyRideal("k", {"A": "KA", "C": "KC"}))),
        {"k": 0.8, "KA": 1.2, "KC": 0.6},
        [
            {"A": 2.0, "B": 1.0, "C": 0.0},
            {"A": 1.0, "B": 4.0, "C": 0.0},
            {"A": 4.0, "B": 2.0, "C": 2.0},
        ],
        4.0,
        ["A", "C"],
    ),
    "deactivation": Example(
        lambda bounds: kinetics.Cstr(
            [kinetics.Reaction("A -> B", kinetics.MassAction("k"))],
            dilution=1.0,
            inlet={"A": 2.0},
            catalyst=kinetics.Deactivation("kd", poisons={"A": 1.0}),
            bounds=bounds,
        ),
        {"k": 3.0, "kd": 0.25},
        [{"A": 2.0, "B": 0.0, "activity": 1.0}],
        12.0,
        ["A", "B"],
    ),
    "gas-liquid transfer": Example(
        batch(
            kinetics.Reaction("-> O", kinetics.Transfer("kla", "solubility", "p")),
            inputs=["p"],
        ),
        {"kla": 5.0, "solubility": 1.2},
        [{"O": 0.0}],
        3.0,
        ["O"],
        [{"p": igpe.step_input([0.0, 1.5], [0.21, 1.0])}],
    ),
    "dissolution": Example(
        batch(kinetics.Reaction("s -> A", kinetics.Dissolution("k", "cs", 2.0))),
        {"k": 0.5, "cs": 2.5},
        [{"s": 2.0, "A": 0.0}],
        12.0,
        ["A"],
    ),
    "plug flow": Example(
        lambda bounds: kinetics.PlugFlow(["A -> B", "B -> C"], velocity="u", bounds=bounds),
        {"k1": 1.2, "k2": 0.5},
        [{"A": 1.0, "B": 0.0, "C": 0.0}] * 2,
        2.0,
        ["A", "B"],
        [{"u": 0.5}, {"u": 1.5}],
    ),
    "heat balance, batch": Example(
        batch(
            kinetics.Reaction("A -> B", kinetics.MassAction(kinetics.Arrhenius("k", "Ea", 340.0))),
            heat=kinetics.HeatBalance(["dH"], 4e3, exchange="UA", jacket="T_j"),
        ),
        {"k": 0.5, "Ea": 7e4, "dH": -8e4, "UA": 2e3},
        [{"A": 1.0, "B": 0.0, "T": 330.0}, {"A": 1.0, "B": 0.0, "T": 340.0}],
        8.0,
        ["A", "T"],
        [{"T_j": 330.0}, {"T_j": 325.0}],
        {"Ea": ENERGY, "dH": ENERGY},
    ),
    "jacket, stirred tank": Example(
        lambda bounds: kinetics.Cstr(
            [
                kinetics.Reaction(
                    "A -> B", kinetics.MassAction(kinetics.Arrhenius("k", "Ea", 340.0))
                )
            ],
            dilution=0.4,
            inlet={"A": 1.0},
            heat=kinetics.HeatBalance(
                ["dH"], 4e3, "UA", kinetics.Jacket(1e3, "coolant", 310.0), feed=330.0
            ),
            bounds=bounds,
        ),
        {"k": 0.5, "Ea": 7e4, "dH": -8e4, "UA": 2e3},
        [{"A": 1.0, "B": 0.0, "T": 330.0, "T_jacket": 320.0}],
        10.0,
        ["A", "T", "T_jacket"],
        [{"coolant": igpe.step_input([0.0, 5.0], [1.0, 4.0])}],
        {"Ea": ENERGY, "dH": ENERGY},
        30,
    ),
    "heat balance, semibatch": Example(
        lambda bounds: kinetics.Semibatch(
            [
                kinetics.Reaction(
                    "A + B -> C", kinetics.MassAction(kinetics.Arrhenius("k", "Ea", 340.0))
                )
            ],
            feeds=[kinetics.Stream("q", {"B": 3.0})],
            heat=kinetics.HeatBalance(["dH"], 4e3, "UA", "T_j", feed=300.0),
            bounds=bounds,
        ),
        {"k": 0.8, "Ea": 6e4, "dH": -9e4, "UA": 3e3},
        [{"n_A": 2.0, "n_B": 0.0, "n_C": 0.0, "V": 1.0, "T": 330.0}] * 2,
        6.0,
        ["A", "T"],
        [{"q": igpe.step_input([0.0, 3.0], [0.25, 0.0]), "T_j": t} for t in (325.0, 335.0)],
        {"Ea": ENERGY, "dH": ENERGY},
    ),
}
"""What is shown -> the example."""


def problem(name: str = "Monod, maintenance", seed: int = 0) -> igpe.Problem:
    """One of the examples, simulated with normal errors."""
    return EXAMPLES[name].problem(seed)
