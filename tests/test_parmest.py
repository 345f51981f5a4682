"""Pyomo's own labelled models: parmest's published examples."""

import copy

import numpy as np
import pyomo.environ as pyo
import pytest
from pyomo import dae
from pyomo.contrib.parmest.examples.rooney_biegler.rooney_biegler import RooneyBieglerExperiment
from pyomo.contrib.parmest.examples.semibatch.semibatch import SemiBatchExperiment

from igpe.dynamics.integrators.sundials import Sundials
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.dynamics.simulation import simulate_all
from igpe.pipeline import estimate
from igpe.problem.plausibility import warnings_about
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 21600.0, 21)
TRUTH = {"k1": 15.01, "k2": 85.01, "E1": 30000.0, "E2": 40000.0}
MEASURED = ("Ca", "Cb", "Cc", "Tr")


def semibatch(**values):
    """The data of one semi-batch experiment."""
    series = {n: values.get(n, np.ones(len(TIMES))) for n in MEASURED}
    data = {f"{n}_meas": dict(zip(map(str, TIMES), v, strict=True)) for n, v in series.items()}
    conditions = {"Ca0": 0.0, "Cb0": 0.0, "Cc0": 0.0, "Tc1": 330.0, "Tc2": 320.0}
    return {**data, **conditions, "Fa1": 0.0025, "Fa2": 0.001, "experiment": 1}


class WithErrors(SemiBatchExperiment):
    """The same, with standard deviations of its measurements."""

    def finalize_model(self):
        m = self.model
        m.measurement_error = pyo.Suffix(direction=pyo.Suffix.LOCAL)
        spread = {"Ca": 0.1, "Cb": 0.2, "Cc": 0.3, "Tr": 2.0}
        for v in m.experiment_outputs:
            m.measurement_error[v] = spread[v.parent_component().name]


@pytest.fixture(name="exact", scope="module")
def _exact():
    problem = Problem.from_parmest([SemiBatchExperiment(semibatch())])
    ((_, run),) = simulate_all(problem, Sundials(), TRUTH, (TIMES,))
    names = problem.experiments[0].measured
    return semibatch(**{n: run.measured[:, names.index(n)] for n in MEASURED})


def test_the_semibatch_reactor_is_read_as_labelled(exact):
    source = SemiBatchExperiment(exact)
    problem = Problem.from_parmest([source])
    run = problem.experiments[0]
    assert problem.parameters == ("k1", "k2", "E1", "E2")
    assert problem.unknowns.upper.tolist() == [100.0, 150.0, 40000.0, 50000.0]
    assert sorted(run.measured) == sorted(MEASURED)
    assert run.times == pytest.approx(TIMES)
    assert not run.sigma_known
    assert run.measurements.of("Cc")[1] == pytest.approx(list(exact["Cc_meas"].values()))
    assert run.inputs["Tc"].times.tolist() == [0.0, 10800.0]
    assert run.inputs["Fa"].values.tolist() == [0.0025, 0.001]


def test_the_semibatch_reactors_parameters_are_found_again(exact):
    problem = Problem.from_parmest([SemiBatchExperiment(exact)])
    found = SingleShooting().estimate(problem, {n: 1.05 * v for n, v in TRUTH.items()})
    assert found.parameters == pytest.approx(TRUTH, rel=1e-4)


@pytest.mark.slow
def test_measurement_errors_are_honoured_also_by_a_copy(exact):
    problem = Problem.from_parmest([WithErrors(exact)])
    back = copy.deepcopy(problem)
    assert repr(back) == repr(problem)
    assert back.unknowns.upper.tolist() == problem.unknowns.upper.tolist()
    for one in (problem, back):
        measured = one.experiments[0].measurements
        assert one.sigma_known
        told = {n: set(measured.of(n)[2]) for n in MEASURED}
        assert told == {"Ca": {0.1}, "Cb": {0.2}, "Cc": {0.3}, "Tr": {2.0}}


def test_several_experiments_share_parameters_and_bounds_can_be_given(exact):
    given = {"k1": (10, 20), "k2": (80, 90), "E1": (29e3, 31e3), "E2": (39e3, 41e3)}
    sources = [SemiBatchExperiment(exact), SemiBatchExperiment(semibatch())]
    problem = Problem.from_parmest(sources, parameters=given)
    assert [e.name for e in problem.experiments] == ["1", "2"]
    assert problem.unknowns.names == ("k1", "k2", "E1", "E2")
    assert problem.experiments[1].measurements.of("Ca")[1].tolist() == [1.0] * 21
    assert problem.unknowns.lower.tolist() == [10.0, 80.0, 29e3, 39e3]


def test_a_model_without_time_is_measured_where_it_stays():
    source = RooneyBieglerExperiment({"hour": 1.0, "y": 8.3}, measure_error=0.1)
    problem = Problem.from_parmest([source])
    (run,) = problem.experiments
    assert run.measured == ("y",)
    assert run.measurements.of("y") == ([1.0], [8.3], [0.1])
    ((_, end),) = simulate_all(
        problem, Sundials(), {"asymptote": 10.0, "rate_constant": 0.5}, ([1.0],)
    )
    assert end.measured == pytest.approx(np.array([[10.0 * (1 - np.exp(-0.5))]]))
    assert source.get_labeled_model().component("time") is None


class Tank:
    """A labelled model whose feed is an experiment input, left free as parmest allows."""

    def __init__(self, feed):
        self.feed = feed

    def get_labeled_model(self):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=np.linspace(0.0, 4.0, 9))
        m.x = pyo.Var(m.t, initialize=1.0)
        m.dx = dae.DerivativeVar(m.x)
        m.k, m.u = pyo.Var(bounds=(0, 5), initialize=1.0), pyo.Var(initialize=self.feed)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == m.u - m.k * m.x[t])
        m.x[0].fix(0.0)
        m.experiment_outputs = pyo.Suffix(direction=pyo.Suffix.LOCAL)
        exact = {t: self.feed / 0.7 * (1 - np.exp(-0.7 * t)) for t in m.t}
        m.experiment_outputs.update((m.x[t], exact[t]) for t in m.t)
        m.unknown_parameters = pyo.Suffix(direction=pyo.Suffix.LOCAL)
        m.unknown_parameters[m.k] = 1.0
        m.experiment_inputs = pyo.Suffix(direction=pyo.Suffix.LOCAL)
        m.experiment_inputs[m.u] = self.feed
        return m


def test_experiment_inputs_are_known():
    problem = Problem.from_parmest([Tank(1.0), Tank(2.5)])
    assert estimate(problem).parameters == pytest.approx({"k": 0.7}, rel=1e-3)


class WithSomeErrors(WithErrors):
    """The same, but for two quantities."""

    def finalize_model(self):
        super().finalize_model()
        for v in self.model.experiment_outputs:
            if v.parent_component().name in {"Cb", "Tr"}:
                del self.model.measurement_error[v]


@pytest.mark.parametrize(
    ("kind", "is_said"), [(SemiBatchExperiment, 0), (WithErrors, 0), (WithSomeErrors, 1)]
)
def test_standard_deviations_of_some_outputs_are_said_to_be_unused(exact, kind, is_said):
    said = warnings_about(Problem.from_parmest([kind(exact)]))
    assert sum("measurement_error" in one and "such as Cb[" in one for one in said) == is_said
