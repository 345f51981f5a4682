"""Everything to estimate in the examples of the installed `pyomo.contrib.parmest` and `.doe`.

Optima are compared with SciPy's on functions written by hand, or with the parameters of the data.
"""

import importlib
import inspect
import pkgutil
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from pyomo.contrib.doe import examples as of_doe
from pyomo.contrib.parmest import examples as of_parmest
from pyomo.contrib.parmest.experiment import Experiment as Labelled
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import igpe
from igpe.core.errors import ModelError, ProblemError


def classes():
    """Name -> class, of all labelled experiments in both packages."""
    found = {}
    for package in (of_parmest, of_doe):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            members = vars(importlib.import_module(module.name)).values()
            found |= {
                c.__name__: c for c in members if inspect.isclass(c) and issubclass(c, Labelled)
            }
    del found["Experiment"]
    return found


EXAMPLES = classes()
HOURS = [(1, 8.3), (2, 10.3), (3, 19.0), (4, 16.0), (5, 15.6), (7, 19.8)]
BARD = """0.1 100 0.98, 0.2 100 0.983, 0.3 100 0.955, 0.4 100 0.979, 0.5 100 0.993, 0.05 200 0.626,
0.1 200 0.544, 0.15 200 0.455, 0.2 200 0.225, 0.25 200 0.167, 0.02 300 0.566, 0.04 300 0.317,
0.06 300 0.034, 0.08 300 0.016, 0.1 300 0.006"""
"""Y. Bard, Nonlinear Parameter Estimation, 1974, table 5.2, as in Pyomo's example."""
REACTOR = pd.DataFrame(
    [
        (1.05, 10000, 3458.4, 1060.8, 1683.9, 1898.5),
        (1.10, 10000, 3535.1, 1064.8, 1613.3, 1893.4),
        (1.20, 10000, 3680.7, 1070.0, 1486.1, 1881.6),
        (1.30, 10000, 3817.1, 1072.2, 1374.6, 1868.0),
    ],
    columns=["sv", "caf", "ca", "cb", "cc", "cd"],
)
"""From Pyomo's example; made with k1 = 5/6, k2 = 5/3, k3 = 1/6000."""
REACTOR_BOUNDS = {"k1": (1e-3, 10), "k2": (1e-3, 10), "k3": (1e-6, 1e-2)}
REACTOR_TRUTH = {"k1": 5 / 6, "k2": 5 / 3, "k3": 1 / 6000}


def rooney_biegler(name):
    table = pd.DataFrame(HOURS, columns=["hour", "y"])
    hour, y = table.to_numpy(dtype=float).T
    best = least_squares(lambda q: q[0] * (1 - np.exp(-q[1] * hour)) - y, [15, 0.5], xtol=1e-12)
    given = [EXAMPLES[name](table.loc[i]) for i in table.index]
    bounds = {"asymptote": (0, 100), "rate_constant": (0, 5)}
    return given, bounds, dict(zip(bounds, best.x, strict=True)), 1e-5


def simple_reaction(name):
    rows = np.array([row.split() for row in BARD.split(",")], dtype=float)
    x1, x2, y = rows.T
    given = [EXAMPLES[name](dict(zip(("x1", "x2", "y"), row, strict=True))) for row in rows]
    is_fixed = name.endswith("Fixed")

    def misfit(q):
        return np.exp(-q[0] * x1 * np.exp(-(1200 if is_fixed else q[1]) / x2)) - y

    best = least_squares(misfit, [2000] if is_fixed else [800, 1000], xtol=1e-14, x_scale="jac")
    names = ["k[1]"] if is_fixed else ["k[1]", "k[2]"]
    return given, dict.fromkeys(names, (1, 5000)), dict(zip(names, best.x, strict=True)), 1e-4


def reactor(name):
    kind = EXAMPLES[name]
    if name.startswith("TimeSeries"):
        table = pd.concat([REACTOR.assign(experiment=i) for i in range(2)]).sort_values("sv")
        table["experiment"] = table.groupby("sv").ngroup()
        given = [kind(table, i) for i in table["experiment"].unique()]
    elif name.startswith("Multisensor"):
        columns = {"ca1": "ca", "ca2": "ca", "ca3": "ca", "cc1": "cc", "cc2": "cc"}
        table = REACTOR.assign(**{new: REACTOR[old] for new, old in columns.items()})
        given = [kind(table, i) for i in table.index]
    elif "DataRec" in name:
        given = [kind(REACTOR, REACTOR.std(), i) for i in REACTOR.index]
    else:
        given = [kind(REACTOR, i) for i in REACTOR.index]
    return given, REACTOR_BOUNDS, REACTOR_TRUTH, 1e-3


CONTROLS = {k / 8: 300.0 + 40 * (k % 4) for k in range(9)}
RATES = {"A1": 84.79, "A2": 371.72, "E1": 7.78, "E2": 15.05}
"""Nominal values of Pyomo's example (its result.json, which the wheel lacks)."""
OF_DOE = {
    **{"CA0": 5.0, "CB0": 0.0, "t_range": [0, 1], "control_points": CONTROLS},
    **RATES,
    **{"CA_bounds": [1, 5], "T_bounds": [300, 700]},
}


def three_species():
    """(9, 3) CA, CB, CC at the control points, by SciPy from one to the next."""
    states, controls = [np.array([5.0, 0.0])], list(CONTROLS.items())
    for (begin, T), (end, _) in pairwise(controls):
        k1, k2 = (RATES[f"A{i}"] * np.exp(-RATES[f"E{i}"] * 1000 / (8.314 * T)) for i in (1, 2))
        run = solve_ivp(
            lambda _, x, k1=k1, k2=k2: [-k1 * x[0], k1 * x[0] - k2 * x[1]],
            (begin, end),
            states[-1],
            "LSODA",
            rtol=1e-10,
            atol=1e-12,
        )
        states.append(run.y[:, -1])
    a, b = np.array(states).T
    return np.column_stack([a, b, 5.0 - a - b])


def of_the_design_of_experiments(name):
    values = three_species()

    class Measured(EXAMPLES[name]):
        def label_experiment(self):
            super().label_experiment()
            places = list(self.model.t_control)
            for v in self.model.experiment_outputs:
                column = ("CA", "CB", "CC").index(v.parent_component().name)
                self.model.experiment_outputs[v] = values[places.index(v.index()), column]

    near = {n: (0.9 * v, 1.1 * v) for n, v in RATES.items()}
    return [Measured(OF_DOE, 10, 3)], near, RATES, 1e-3


RUN = {
    "RooneyBieglerExperiment": rooney_biegler,
    "SimpleReactionExperimentK2Fixed": simple_reaction,
    "SimpleReactionExperimentK2Variable": simple_reaction,
    "ReactorDesignExperiment": reactor,
    "TimeSeriesReactorDesignExperiment": reactor,
    "MultisensorReactorDesignExperiment": reactor,
    "ReactorDesignExperimentPostDataRec": reactor,
    "ReactorExperiment": of_the_design_of_experiments,
}
ELSEWHERE = {
    "SemiBatchExperiment": "tests/test_parmest.py",
    "ReactorDesignExperimentDataRec": "nothing to estimate: it has no unknown parameters",
    "SimpleReactionExperiment": "a base class without unknown parameters",
}


def test_every_example_of_the_installed_package_is_in_the_table():
    assert EXAMPLES.keys() == RUN.keys() | ELSEWHERE.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_the_example_runs(name):
    given, bounds, exact, tolerance = RUN[name](name)
    problem = igpe.Problem.from_parmest(given, parameters=bounds)
    found = igpe.estimate(problem, certify=False)
    assert found.parameters == pytest.approx(exact, rel=tolerance)


def test_what_has_nothing_to_estimate_is_refused():
    base = EXAMPLES["SimpleReactionExperiment"]({"x1": 0.1, "x2": 100, "y": 0.98})
    with pytest.raises(ModelError, match=r"lacks the suffixes \['unknown_parameters'\]"):
        igpe.Problem.from_parmest([base])
    given, *_ = reactor("ReactorDesignExperimentDataRec")
    with pytest.raises(ProblemError, match="No parameters are named"):
        igpe.Problem.from_parmest(given)
    with pytest.raises(ModelError, match=r"'CA.0.' in experiment_outputs has no value"):
        igpe.Problem.from_parmest([EXAMPLES["ReactorExperiment"](OF_DOE, 10, 3)])
