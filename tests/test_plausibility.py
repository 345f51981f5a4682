"""Warnings about units that make no sense beside the gas constant."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import ode, over_time
from pyomo import dae

import igpe

TIMES = np.linspace(0.0, 50.0, 11)
DATA = pd.DataFrame({"time": TIMES, "A": np.exp(-0.05 * TIMES)})
JOULE, KILOJOULE = (1e4, 1e5), (10.0, 200.0)
FORMS = {
    "E / (R T)": lambda m: pyo.exp(-m.E / (8.314 * m.T)),
    "with a reference": lambda m: pyo.exp(-m.E / 8.314 * (1 / m.T - 1 / 350)),
    "R as a Param": lambda m: pyo.exp(-m.E / (m.R * m.T)),
    "one fraction": lambda m: pyo.exp((m.E / 8.314) * (m.T - 350) / (m.T * 350)),
}


def problem(form, energy=JOULE, temperature=300.0):
    def model(times):
        m = over_time(times, "A", k=(0, 1), E=energy)
        m.T, m.R = pyo.Param(mutable=True, initialize=300.0), pyo.Param(initialize=8.314)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * form(m) * m.A[t])
        return m

    run = igpe.Experiment(DATA, start={"A": 1.0}, inputs={"T": temperature})
    return igpe.Problem(model, parameters=["k", "E"], experiments=run)


def warnings(*arguments, **named):
    return igpe.check(problem(*arguments, **named), identifiability=False).warnings


def said_of(model, *runs, parameters=("k",)):
    """The warnings about a model and its experiments."""
    posed = igpe.Problem(model, parameters=parameters, experiments=runs)
    return igpe.check(posed, identifiability=False).warnings


@pytest.mark.parametrize("name", FORMS)
def test_units_that_fit_and_units_that_do_not(name):
    assert warnings(FORMS[name]) == ()
    (weak,) = warnings(FORMS[name], energy=KILOJOULE)
    assert weak.startswith("'E' is at most 200, so E / (R T) is at most 0.08 with R = 8.314 J/(mol")
    (cold,) = warnings(FORMS[name], temperature=50.0)
    assert cold.startswith("'T' is at most 50, but an Arrhenius factor needs kelvin")


def test_factors_between_units_are_seen():
    assert warnings(lambda m: pyo.exp(-1000 * m.E / (8.314 * m.T)), energy=KILOJOULE) == ()
    assert warnings(lambda m: pyo.exp(-m.E / (8.314e-3 * m.T)), energy=KILOJOULE) == ()
    (strong,) = warnings(lambda m: pyo.exp(-m.E / (8.314e-3 * m.T)), energy=JOULE)
    assert "the rate is 0. Give the energy in kJ/mol" in strong


def test_degrees_celsius_that_the_model_converts_are_right():
    def form(m):
        return pyo.exp(-m.E / (8.314 * (m.T + 273.15)))

    assert warnings(form, temperature=50.0) == ()


def test_the_warning_is_printed_by_check_and_noted_by_estimate():
    cold = problem(FORMS["E / (R T)"], temperature=50.0)
    assert "looks like degrees Celsius" in str(igpe.check(cold))
    assert "looks like degrees Celsius" in " ".join(str(igpe.estimate(cold)).split())


@pytest.mark.parametrize(
    ("unit", "count"),
    [
        (pyo.units.mol / pyo.units.L, 0),
        (pyo.units.mmol / pyo.units.mL, 0),
        (pyo.units.mol / pyo.units.m**3, 1),
        (pyo.units.g, 1),
    ],
)
def test_terms_whose_units_cannot_be_added(unit, count):
    """Numbers may hide units, and slopes have none in Pyomo: only known terms are compared."""

    def model(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A = pyo.Var(m.t, units=pyo.units.mol / pyo.units.L)
        m.dA = dae.DerivativeVar(m.A)
        m.k = pyo.Var(bounds=(0, 1), units=1 / pyo.units.min)
        m.rest = pyo.Param(mutable=True, initialize=0.0, units=unit)
        m.balance = pyo.Constraint(
            m.t, rule=lambda m, t: m.dA[t] == 8.3 - m.k * (m.A[t] - 2 * m.rest) + 0.1 * m.A[t]
        )
        return m

    said = said_of(model, igpe.Experiment(DATA, start={"A": 1.0}))
    assert len(said) == count
    clash = "Equation 'balance' adds terms whose units differ: mol"
    assert all(clash in s and "Check the units" in s for s in said)


@pytest.mark.slow
def test_units_may_stand_in_the_equations():
    u = pyo.units

    def model(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.A = pyo.Var(m.t, units=u.mol / u.L)
        m.dA = dae.DerivativeVar(m.A, units=u.mol / u.L / u.min)
        m.k = pyo.Var(bounds=(0, 1), units=1 / u.min)
        m.E = pyo.Var(bounds=JOULE, units=u.J / u.mol)
        m.T = pyo.Param(mutable=True, initialize=300.0, units=u.K)
        gas = 8.314 * u.J / u.mol / u.K
        factor = pyo.exp(-m.E / gas * (1 / m.T - 1 / (300 * u.K)))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * factor * m.A[t])
        return m

    runs = [
        igpe.Experiment(
            DATA.assign(A=DATA["A"] * share),
            name=f"{kelvin} K",
            start={"A": 1.0},
            inputs={"T": kelvin},
        )
        for kelvin, share in ((300.0, 1.0), (310.0, 0.9))
    ]
    posed = igpe.Problem(model, parameters=["k", "E"], experiments=runs)
    assert igpe.check(posed, identifiability=False).warnings == ()
    assert set(igpe.estimate(posed).parameters) == {"k", "E"}


def of_start(given, fix=None, events=()):
    """A decay from A = 2, which the model says by an equation or by a fixed value."""

    def model(times):
        m = over_time(times, "A", k=(0, 1))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        if fix is None:
            m.ic = pyo.Constraint(expr=3 * m.A[0] - 1 == 5)
        else:
            m.A[0].fix(fix)
        return m

    return said_of(model, igpe.Experiment(DATA, start=given, events=events))


@pytest.mark.parametrize("fix", [None, 2.0])
def test_two_different_start_values_are_reported(fix):
    (said,) = of_start({"A": 1.0}, fix)
    expected = "Experiment '1' gives 'A' the start value 1, but the model gives 2. igpe uses 1."
    assert said.startswith(expected)
    assert of_start({"A": 2}, fix) == of_start({}, fix) == ()
    assert of_start({"A": igpe.Unknown(0, 5)}, fix) == ()


def test_events_after_the_last_measurement_are_reported():
    dose = {"add": {"A": 1.0}}
    (said,) = of_start({}, events=[igpe.Event(at=5.0, **dose), igpe.Event(at=300, **dose)])
    assert said.startswith("Event 2 of experiment '1' is at 300, after the last measurement (at 50")
    unknown = igpe.Event(at=lambda m, t: 300 * m.k, **dose)
    assert of_start({}, events=[igpe.Event(at=50.0, **dose), unknown]) == ()


@pytest.mark.parametrize("reference", [260.0, 400.0])
def test_a_temperature_above_another_one_is_no_arrhenius_factor(reference):
    """As Vogel, Fulcher and Tammann have it."""
    shifted = problem(lambda m: pyo.exp(-m.E / (8.314 * (m.T - reference))))
    assert "Celsius" not in str(igpe.check(shifted, identifiability=False))


@pytest.mark.parametrize("apart", [0.0, 1e-3])
def test_replicates_that_are_copies_are_named(apart):
    twice = pd.concat([DATA, DATA.assign(A=DATA["A"] + apart)]).sort_values("time")
    given = problem(lambda m: 1.0)
    run = igpe.Experiment(twice, start={"A": 1.0}, start_time=0.0, replicates=True)
    warnings = " ".join(said_of(given.model, run))
    assert ("All replicates of 'A' in experiment '1' are equal." in warnings) == (apart == 0)


@pytest.mark.parametrize("apart", [0.0, 1e-3])
def test_experiments_that_are_copies_are_named(apart):
    given = problem(lambda m: 1.0)
    runs = [
        igpe.Experiment(DATA.assign(A=DATA["A"] + off), start={"A": 1.0}, start_time=0.0, name=name)
        for name, off in (("one", 0.0), ("two", apart))
    ]
    warnings = " ".join(said_of(given.model, *runs))
    said = "The measurements of A in the experiments 'one' and 'two' are equal."
    assert (said in warnings) == (apart == 0)


@pytest.mark.parametrize("use", ["fix", "value", "equation", "expression", "start", "builder"])
def test_an_input_that_no_equation_uses_is_named(use):
    """Pyomo takes the number of `m.E0` while the model is built."""

    def model(times):
        m = over_time(times, "A", k=(0, 1))
        m.E0 = pyo.Param(mutable=True, initialize=1.0)
        factor = {"equation": m.E0, "value": pyo.value(m.E0)}.get(use, 1.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * factor * m.A[t])
        m.twice = pyo.Expression(
            m.t, rule=lambda m, t: m.A[t] * (m.E0 if use == "expression" else 2)
        )
        first = m.t.first()
        if use == "start":
            m.start = pyo.Constraint(expr=m.A[first] == m.E0)
        elif use == "fix":
            m.A[first].fix(m.E0)
        else:
            m.A[first].fix(1.0)
        return m

    def of_the_run(times, experiment):
        return model(times)

    run = igpe.Experiment(DATA, inputs={"E0": 1.0})
    builder = of_the_run if use == "builder" else model
    found = said_of(builder, run)
    assert [w.partition("uses the input 'E0', so")[0] for w in found] == [
        "No equation, start condition or measured expression "
    ] * (use in {"fix", "value"})


def test_a_table_that_does_not_reach_an_end_while_it_changes_is_named():
    model = ode({"A": lambda m, t: -m.k * m.T[t] * m.A[t]}, inputs=("T",), k=(0, 10))

    def warned(table):
        run = igpe.Experiment(DATA, start={"A": 1.0}, start_time=0.0, inputs={"T": table})
        return said_of(model, run)

    end = float(DATA["time"].max())
    (found,) = warned(igpe.linear_input([0, end / 2], [1.0, 2.0]))
    assert f"ends at {end / 2:g}, before the last measurement (at {end:g})" in found
    assert not warned(igpe.linear_input([0, end], [1.0, 2.0]))
    assert not warned(igpe.linear_input([0, end / 4, end / 2], [1.0, 2.0, 2.0]))
    assert not warned(igpe.step_input([0, end / 2], [1.0, 2.0]))
    (found,) = warned(igpe.linear_input([end / 4, end], [1.0, 2.0]))
    assert f"begins at {end / 4:g}, after the start (at 0). Until then igpe uses" in found
    assert len(warned(igpe.linear_input([end / 4, end / 2], [1.0, 2.0]))) == 2
    assert not warned(igpe.linear_input([end / 4, end / 2, end], [1.0, 1.0, 2.0]))
    assert not warned(igpe.step_input([end / 4, end], [1.0, 2.0]))


def cooling(table, start=373.15, **given):
    def model(times):
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.T = pyo.Var(m.t, units=pyo.units.K)
        m.dT = dae.DerivativeVar(m.T, units=pyo.units.K / pyo.units.s)
        m.Ta = pyo.Param(mutable=True, initialize=293.15, units=pyo.units.K)
        m.k = pyo.Var(bounds=(0, 1), units=1 / pyo.units.s)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dT[t] == -m.k * (m.T[t] - m.Ta))
        m.T[m.t.first()].fix(start)
        return m

    return said_of(model, igpe.Experiment(table, start_time=0.0, **given))


def test_degrees_celsius_of_what_the_model_has_in_kelvin():
    kelvin = pd.DataFrame({"time": TIMES, "T": 293.15 + 80 * np.exp(-0.05 * TIMES)})
    celsius = kelvin.assign(T=kelvin["T"] - 273.15)
    assert not cooling(kelvin)
    assert not cooling(kelvin, units={"T": pyo.units.K})
    assert not cooling(celsius, units={"T": "degC"})
    assert not cooling(celsius, start=77.0)  # the model is cold itself
    (found,) = cooling(celsius)
    assert "pass units={'T': 'degC'}" in found
    (found,) = cooling(kelvin.assign(Ta=20.0), inputs=["Ta"])
    assert "'Ta' is at most 20" in found
    assert "give it in kelvin" in found


@pytest.mark.parametrize("later", [(), (5.0, 10.0)])
def test_a_state_that_is_fixed_later_is_named(later):
    def model(times):
        m = over_time(times, "A", k=(0, 1))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        for t in (0.0, *(t for t in later if t in m.t)):
            m.A[t].fix(1.0)
        return m

    found = said_of(model, igpe.Experiment(DATA))
    assert ["fixes the state 'A' at the time 5, 10, after" in one for one in found] == [True] * (
        len(later) > 0
    )
