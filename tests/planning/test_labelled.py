"""Labelled models of Pyomo.DoE as design problems: Pyomo's own reactor example."""

from itertools import pairwise

import numpy as np
import pytest
from pyomo.contrib.doe.examples.reactor_experiment import ReactorExperiment

import igpe
from igpe.core.errors import ModelError
from igpe.planning.design import labelled_design

CONTROL = np.arange(9) / 8
NOMINAL = {"A1": 84.79, "A2": 371.72, "E1": 7.78, "E2": 15.05}


def reactor(cls=ReactorExperiment, **changes):
    """The data of Pyomo's `result.json`."""
    control = dict.fromkeys(CONTROL.tolist(), 300) | {0.0: 500}
    bounds = {"CA_bounds": [1, 5], "T_bounds": [300, 700]}
    start = {"CA0": 5, "CB0": 0, "t_range": [0, 1], "control_points": control}
    return cls(NOMINAL | start | bounds | changes, 10, 3)


def test_inputs_nominal_values_and_errors_are_those_of_the_labels():
    read = labelled_design([reactor()])
    assert read.parameters == NOMINAL
    assert not read.measured
    assert read.free["CA"] == igpe.planning.Between(1, 5)
    assert read.free["T"] == igpe.planning.Levels(tuple(CONTROL[:-1]), 300, 700)
    run = read.problem.experiments[0]
    assert run.times == pytest.approx(CONTROL)
    assert set(run.measurements.sigma) == {0.01}


def test_a_labelled_experiment_is_designed_and_its_information_is_that_of_differences():
    plan = igpe.design([reactor()], pool=32, starts=1)
    (e,) = plan.experiments
    assert e.times == pytest.approx(CONTROL)
    levels = igpe.step_input(CONTROL[:-1], [e.settings[f"T at {t:g}"] for t in CONTROL[:-1]])

    def outputs(values):
        k1, k2 = (
            (lambda t, a=a, b=b: a * np.exp(-b * 1000 / (8.314 * levels.at(t))))
            for a, b in ((values["A1"], values["E1"]), (values["A2"], values["E2"]))
        )
        a, b, c, rows = e.settings["CA(t0)"], 0.0, 0.0, []
        for begin, end in pairwise(CONTROL):
            rows.append((a, b, c))
            r1, r2, h = k1(begin), k2(begin), end - begin
            first, second = np.exp(-r1 * h), np.exp(-r2 * h)
            a, b = a * first, b * second + a * r1 / (r2 - r1) * (first - second)
            c = e.settings["CA(t0)"] - a - b
        return np.array([*rows, (a, b, c)]).ravel() / 0.01

    columns = []
    for name, value in NOMINAL.items():
        h = 1e-5 * value
        up, down = (outputs(NOMINAL | {name: value + s * h}) for s in (1, -1))
        columns.append((up - down) / (2 * h))
    jacobian = np.array(columns).T
    errors = np.sqrt(np.diag(np.linalg.inv(jacobian.T @ jacobian)))
    assert plan.errors["after"].to_numpy() == pytest.approx(errors, rel=1e-4)


def test_one_search_begins_with_the_inputs_of_the_model():
    """The best of random experiments ends at 0.00415; Pyomo.DoE, from these inputs, at 0.00388."""
    plan = igpe.design([reactor()])
    assert plan.after <= 0.00389
    assert plan.experiments[0].settings["T at 0"] > 400
    poor = dict.fromkeys(CONTROL.tolist(), 301) | {0.0: 300}
    assert len(igpe.design([reactor(control_points=poor)], pool=32, starts=1).starts) == 2


def test_inputs_without_bounds_are_refused():
    class Open(ReactorExperiment):
        def label_experiment(self):
            super().label_experiment()
            self.model.CA[0].setub(None)

    with pytest.raises(ModelError, match=r"'CA\[0.0\]' has the bounds|'CA\[0\]' has the bounds"):
        igpe.design([reactor(Open)])
