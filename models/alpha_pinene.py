"""Thermal isomerisation of alpha-pinene (Fuguitt and Hawkins 1947).

    pinene -> dipentene          (k1)
    pinene -> allo_ocimene       (k2)
    allo_ocimene -> pyronene     (k3)
    allo_ocimene <-> dimer       (k4, k5)

Measurements: R. E. Fuguitt, J. E. Hawkins, J. Am. Chem. Soc. 69, 319-322 (1947), in per cent of the
initial pinene, time in minutes; as in the CRAN package NRAIA (`Pinene`, `Pinene2`) after Bates and
Watts, *Nonlinear Regression Analysis* (1988), appendix A1.6. Run 1 is also the problem "pinene" of
COPS 3.0 (Dolan, More, Munson, ANL/MCS-273, 2004). The amount of pyronene was not measured but taken
as 3 % of the converted pinene (Box, Hunter, MacGregor, Erjavec, Technometrics 15, 33-51, 1973):
every row has pyronene = 0.03*(100 - pinene). COPS counts it as a measurement; `problem()` does not,
unless it is called with `calculated=True`.

The literature gives 189.5 and 204.5 degrees C for the two runs; no source at hand confirms it.
"""

from pathlib import Path
from typing import Any

import pandas as pd

import igpe
from igpe import kinetics

DATA = Path(__file__).parents[1] / "data" / "alpha_pinene.csv"
START: dict[str, float] = {
    "pinene": 100.0,
    "dipentene": 0.0,
    "allo_ocimene": 0.0,
    "pyronene": 0.0,
    "dimer": 0.0,
}
TEMPERATURE: dict[int, float] = {1: 189.5 + 273.15, 2: 204.5 + 273.15}  # K
RANGE = (0.0, 1e-3)  # 1/min: a half-life of twelve minutes, while run 2 takes hours
CALCULATED = "pyronene"  # see above
PUBLISHED: dict[int, float] = {1: 19.8721, 2: 23.656}  # sums of squares, pyronene counted


def reactor(*k: str | kinetics.Arrhenius, bounds: dict[str, tuple[float, float]]) -> kinetics.Batch:
    """Return a batch reactor with the rate constants k1 to k5, by name or with temperature."""
    k1, k2, k3, k4, k5 = k
    steps = (
        kinetics.Reaction("pinene -> dipentene", kinetics.MassAction(k1)),
        kinetics.Reaction("pinene -> allo_ocimene", kinetics.MassAction(k2)),
        kinetics.Reaction("allo_ocimene -> pyronene", kinetics.MassAction(k3)),
        kinetics.Reaction("allo_ocimene <-> dimer", kinetics.MassAction(k4, backward=k5)),
    )
    return kinetics.Batch(steps, bounds=bounds)


def experiment(run: int, *, calculated: bool = False, **more: Any) -> igpe.Experiment:
    """Return run 1 or 2; with `calculated` pyronene counts as a measurement."""
    table = pd.read_csv(DATA)
    table = table[table["run"] == run].drop(columns=["run"] + [CALCULATED] * (not calculated))
    given = {"start": START, "start_time": 0.0, "name": f"run {run}", "sigma": "equal"}
    return igpe.Experiment(table, **{**given, **more})


def problem(run: int = 1, *, calculated: bool = False) -> igpe.Problem:
    """One run: five rate constants (1/min) from four measured species."""
    names = ["k1", "k2", "k3", "k4", "k5"]
    model = reactor(*names, bounds=dict.fromkeys(names, RANGE))
    return igpe.Problem(
        model, parameters=names, experiments=[experiment(run, calculated=calculated)]
    )


def both() -> igpe.Problem:
    """Both runs: every rate constant by Arrhenius around the mean temperature, E in J/mol."""
    mean = sum(TEMPERATURE.values()) / len(TEMPERATURE)
    constants = [kinetics.Arrhenius(f"k{i}", f"E{i}", mean) for i in range(1, 6)]
    bounds = {f"k{i}": RANGE for i in range(1, 6)}
    bounds |= {f"E{i}": (0.0, 400e3) for i in range(1, 6)}
    runs = [experiment(run, inputs={"T": kelvin}) for run, kelvin in TEMPERATURE.items()]
    return igpe.Problem(
        reactor(*constants, bounds=bounds), parameters=list(bounds), experiments=runs
    )
