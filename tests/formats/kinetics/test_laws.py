"""Rate laws against formulas written by hand; every constant has the unit that it says."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from kinetic_examples import EXAMPLES
from scipy.integrate import solve_ivp

import igpe
from igpe import kinetics
from igpe.core.errors import ModelError
from igpe.formats.kinetics.temperature import parts

QUICK = igpe.Settings(routes=igpe.algebraic.RouteSelection(proven=igpe.algebraic.LocalSearch()))
CONSTANTS = {"k": 1.3, "K": 2.2, "v": 1.7, "m": 0.6, "n": 1.4, "p": 0.45, "q": 0.8, "E": 4e4}
LEVELS = {"A": 0.7, "B": 1.9, "C": 0.35, "I": 1.1, "X": 2.5}
k, K, v, m, n, p, q, E = CONSTANTS.values()
A, B, C, I, X = LEVELS.values()  # noqa: E741 - as inhibitors are called
LAWS = {
    "power law": (
        "A + B -> C",
        kinetics.PowerLaw("k", {"A": "n", "C": -1.0}, reference=1.0),
        k * A**n / C,
    ),
    "mixed": (
        "A -> C",
        kinetics.MichaelisMenten(
            "v", "m", inhibitors={"I": "p"}, uncompetitive={"I": "q"}, enzyme="X"
        ),
        v * X * A / (m * (1 + I / p) + A * (1 + I / q)),
    ),
    "substrate inhibition": (
        "A -> C",
        kinetics.MichaelisMenten("v", "m", excess="q"),
        v * A / (m + A + A**2 / q),
    ),
    "reversible enzyme": (
        "A <-> C",
        kinetics.MichaelisMenten("v", "m", inhibitors={"C": "p"}, equilibrium="K"),
        v * (A - C / K) / (m * (1 + C / p) + A),
    ),
    "Hill": ("A -> C", kinetics.Hill("v", "m", "n"), v * A**n / (m**n + A**n)),
    "Monod": (
        "A -> X",
        kinetics.Monod("k", "m", limits={"B": "p"}, inhibitors={"I": "q"}),
        k * A / (m + A) * B / (p + B) * q / (q + I) * X,
    ),
    "Haldane": ("A -> X", kinetics.Haldane("k", "m", "p"), k * A / (m + A + A**2 / p) * X),
    "Contois": ("A -> X", kinetics.Contois("k", "q"), k * A / (q * X + A) * X),
    "maintenance": ("A ->", kinetics.Maintenance("k", "X"), k * X),
    "maintenance that ends": (
        "A ->",
        kinetics.Maintenance("k", "X", half="m"),
        k * X * A / (m + A),
    ),
    "Langmuir-Hinshelwood": (
        "A + B <-> C",
        kinetics.LangmuirHinshelwood("k", {"A": "p", "B": "q", "C": "m"}, equilibrium="K"),
        k * p * q * (A * B - C / K) / (1 + p * A + q * B + m * C) ** 2,
    ),
    "dissociative": (
        "A -> C",
        kinetics.LangmuirHinshelwood("k", {"A": "p", "I": "q"}, dissociative=("A",)),
        k * p * A / (1 + np.sqrt(p * A) + q * I) ** 2,
    ),
    "Eley-Rideal": (
        "A + B -> C",
        kinetics.EleyRideal("k", {"A": "p", "C": "q"}),
        k * p * A * B / (1 + p * A + q * C),
    ),
    "transfer": ("-> A", kinetics.Transfer("k", "m", "n"), k * (m * n - A)),
    "dissolution": (
        "B -> A",
        kinetics.Dissolution("k", "m", "K"),
        k * K * (B / K) ** (2 / 3) * (1 - A / m),
    ),
    "mass action": ("2 A <-> C", kinetics.MassAction("k", equilibrium="K"), k * (A**2 - C / K)),
    "Arrhenius": (
        "A <-> C",
        kinetics.MassAction(
            kinetics.Arrhenius("k", "E", 350.0), equilibrium=kinetics.VantHoff("K", "E", 340.0)
        ),
        k
        * np.exp(-E / 8.314462618 * (1 / 360 - 1 / 350))
        * (A - C / (K * np.exp(-E / 8.314462618 * (1 / 360 - 1 / 340)))),
    ),
}


def rate_of(text, law, levels, constants):
    """The rate that the reactor's model says."""
    reactor = kinetics.Batch([kinetics.Reaction(text, law)], temperature=360.0)
    model = reactor([0.0, 1.0])
    for name in reactor.parameters:
        model.component(name).value = constants[name]
    for name in reactor.species:
        model.component(name)[0.0].value = levels[name]
    return pyo.value(model.r1[0.0])


@pytest.mark.parametrize("name", LAWS)
def test_a_law_is_its_formula(name):
    text, law, expected = LAWS[name]
    close = 1e-4 if name == "dissolution" else 1e-12  # its surface ends smoothly
    assert rate_of(text, law, LEVELS, CONSTANTS) == pytest.approx(expected, rel=close)


@pytest.mark.parametrize("name", LAWS)
def test_a_law_does_not_depend_on_units(name):
    """In units of amount and time that are smaller by 7 and 3 the same rate has another number."""
    text, law, _ = LAWS[name]
    if name == "power law":  # its reference concentration is a number, in units of its own
        text, law = "A -> C", kinetics.PowerLaw("k", {"A": "n"}, reference=7.0)
    amount, time = 7.0, 3.0
    scaled = dict(CONSTANTS)
    for constant, dimension in law.constants(kinetics.Reaction(text).equation):
        for part, own in parts(constant, dimension):
            if isinstance(part, str):
                factor = amount ** float(own.amount) * time**own.time
                scaled[part] = CONSTANTS[part] * factor
    other = rate_of(text, law, {s: amount * c for s, c in LEVELS.items()}, scaled)
    if name == "power law":
        law = kinetics.PowerLaw("k", {"A": "n"}, reference=1.0)
    assert other == pytest.approx(rate_of(text, law, LEVELS, CONSTANTS) * amount / time, rel=1e-12)


def test_eyring_is_the_formula_of_transition_states():
    law = kinetics.MassAction(kinetics.Eyring("dH", "dS", time="min"))
    found = rate_of("A -> C", law, LEVELS, {"dH": 9e4, "dS": -20.0})
    boltzmann, planck, gas = 1.380649e-23, 6.62607015e-34, 8.314462618
    per_second = boltzmann * 360 / planck * np.exp(-20.0 / gas - 9e4 / (gas * 360))
    assert found == pytest.approx(60 * per_second * A, rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_recovers_its_parameters(name):
    example = EXAMPLES[name]
    result = igpe.estimate(example.problem(seed=3, noise=1e-3), QUICK)
    for parameter, value in example.truth.items():
        assert result.parameters[parameter] == pytest.approx(value, rel=0.05)


BOUNDS = {"k": (100.0, 1e5), "Ea": (4e4, 2e5)}


@pytest.mark.slow
def test_the_reference_temperature_is_amid_the_measurements():
    example = EXAMPLES["van 't Hoff"]
    model = example.make(bounds={}).centred(example.problem(seed=0).experiments)([0.0, 1.0])
    assert pyo.value(model.T_reference) == round(3 / (1 / 330 + 1 / 350 + 1 / 370))

    far = kinetics.Arrhenius("k", "Ea", reference=500.0)
    reactor = kinetics.Batch([kinetics.Reaction("A -> B", kinetics.MassAction(far))])
    runs = EXAMPLES["Arrhenius"].problem(seed=0)
    near, away = (
        igpe.estimate(p).correlation.loc["k", "Ea"]
        for p in (runs, reactor.problem(runs.experiments, parameters=BOUNDS))
    )
    assert abs(near) < 0.7
    assert abs(away) > 0.99


def test_yields_are_refused_where_nothing_reacts_and_change_what_is_conserved():
    reactor = kinetics.Batch([kinetics.Reaction("A + B -> C + D", None, yields={"C": "Y"})])
    assert reactor.parameters == ("k1", "Y")
    assert sorted(map(str, reactor.conservation)) == ["A + D", "B + D"]
    with pytest.raises(ModelError, match="yield for 'X'"):
        kinetics.Reaction("A -> B", yields={"X": "Y"})
    with pytest.raises(ModelError, match="positive number"):
        kinetics.Reaction("A -> B", yields={"B": 0.0})


THERMAL = kinetics.MassAction(kinetics.Arrhenius("k", "Ea"))
HEAT = kinetics.HeatBalance([-5e4], 4e3)


def batch(law, text="A -> B", **options):
    return kinetics.Batch([kinetics.Reaction(text, law)], **options)


REFUSED = {
    "two units": (
        lambda: batch(kinetics.MichaelisMenten("k", "k")),
        "'k' is the name of several constants with different units \\(mol/h/L and mol/L\\)",
    ),
    "no reference": (lambda: batch(THERMAL)([0.0, 1.0]), "no reference temperature"),
    "Celsius": (
        lambda: batch(THERMAL).problem(igpe.Experiment(TABLE, start=START, inputs={"T": 60.0})),
        "T from 60",
    ),
    "no temperature": (
        lambda: batch(THERMAL).problem(igpe.Experiment(TABLE, start=START)),
        "no temperature T",
    ),
    "Eyring's time": (
        lambda: batch(kinetics.MassAction(kinetics.Eyring("H", "S")), units=kinetics.Units()),
        "Eyring uses the unit of time 's', but the reactor uses 'h'",
    ),
    "no time": (lambda: kinetics.Eyring("H", "S", time="fortnight_"), "unit of time"),
    "one heat": (
        lambda: kinetics.Batch(["A -> B", "B -> C"], heat=HEAT),
        "1 heats of reaction for 2 reactions",
    ),
    "heat and temperature": (
        lambda: kinetics.Batch(["A -> B"], heat=HEAT, temperature=300.0),
        "temperature is a state",
    ),
    "heats by mass": (
        lambda: kinetics.Batch(["A -> B"], heat=HEAT, units=kinetics.Units("g")),
        "amount is 'g'",
    ),
    "inflow without a temperature": (
        lambda: kinetics.Cstr(["A -> B"], heat=HEAT),
        "of a Cstr needs the temperature of the inflow",
    ),
    "stream without a temperature": (
        lambda: kinetics.Semibatch(["A -> B"], feeds=[kinetics.Stream("q", {})], heat=HEAT),
        "of a Semibatch needs the temperature of the inflow",
    ),
    "temperature of no inflow": (
        lambda: kinetics.Batch(["A -> B"], heat=replace(HEAT, feed=300.0)),
        "no stream flows into this Batch. Omit",
    ),
    "exchange with nothing": (lambda: kinetics.HeatBalance([0.0], 4e3, "UA"), "give both"),
    "heats": (lambda: kinetics.HeatBalance("dH", 4e3), "one heat for each reaction"),
    "no heat balance": (lambda: kinetics.Batch(["A -> B"], heat=4e3), "HeatBalance"),
    "catalyst of nothing": (
        lambda: kinetics.Batch(["A -> B"], catalyst=kinetics.Deactivation("k", reactions=[2])),
        "reactions are \\[1\\]",
    ),
    "poison": (
        lambda: kinetics.Batch(["A -> B"], catalyst=kinetics.Deactivation("k", poisons={"X": 1})),
        "poisons has \\['X'\\]",
    ),
    "tube that ages": (
        lambda: kinetics.PlugFlow(["A -> B"], catalyst=kinetics.Deactivation("k")),
        "steady state",
    ),
    "standing still": (lambda: kinetics.PlugFlow(["A -> B"], velocity=0.0), "positive"),
    "input of nothing": (
        lambda: kinetics.Batch(["A -> B"], inputs=["p"]),
        "inputs has \\['p'\\]; the constants are \\['k1'\\]",
    ),
    "adsorbs nothing": (
        lambda: batch(kinetics.LangmuirHinshelwood("k", {"B": "K"})),
        "use EleyRideal",
    ),
    "adsorbs all": (lambda: batch(kinetics.EleyRideal("k", {"A": "K"})), "others that do not"),
    "falls apart": (
        lambda: kinetics.EleyRideal("k", {"A": "K"}, dissociative=("H",)),
        "tuple of species",
    ),
    "equilibrium of ->": (
        lambda: batch(kinetics.MichaelisMenten("v", "m", equilibrium="K")),
        "the reaction is reversible",
    ),
    "equilibrium of two": (
        lambda: batch(kinetics.MichaelisMenten("v", "m", "A", equilibrium="K"), "A + B <-> C"),
        "one substrate and one product",
    ),
    "biomass": (lambda: batch(kinetics.Monod("v", "m"), "A -> B + C"), "is the biomass"),
    "no species": (lambda: kinetics.Monod("v", "m", substrate=3), "name of a species"),
    "reference": (lambda: kinetics.PowerLaw("k", {"A": 1.0}, reference=0.0), "positive conc"),
}
TABLE = pd.DataFrame({"time": [1.0, 2.0], "A": [0.6, 0.4]})
START = {"A": 1.0, "B": 0.0}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_sense_is_refused(case):
    made, says = REFUSED[case]
    with pytest.raises(ModelError, match=says):
        made()


def test_heat_jacket_and_catalyst_are_the_balances_by_hand():
    """A semibatch with all of them, against SciPy's integration of balances written here."""
    heat = kinetics.HeatBalance(
        ["dH"], 4.0, "UA", kinetics.Jacket(2.0, flow=0.7, inlet=300.0), feed="T_in"
    )
    reactor = kinetics.Semibatch(
        [
            kinetics.Reaction(
                "A + B -> C", kinetics.MassAction(kinetics.Arrhenius("k", "Ea", 330.0))
            )
        ],
        feeds=[kinetics.Stream("q", {"B": 2.0})],
        heat=heat,
        catalyst=kinetics.Deactivation("kd", order=2.0, poisons={"B": 1}, residual=0.2),
    )
    values = {"k": 0.9, "Ea": 4e4, "dH": -40.0, "UA": 1.5, "kd": 0.4}
    start = {"n_A": 1.0, "n_B": 0.1, "n_C": 0.0, "V": 1.0, "T": 325.0, "T_jacket": 310.0}
    start |= {"activity": 1.0}
    times = np.linspace(0.5, 3.0, 6)
    blank = pd.DataFrame({"time": times, "T": 325.0})
    inputs = {"q": 0.3, "T_in": 290.0}
    run = igpe.Experiment(blank, start=start, inputs=inputs, start_time=0.0)
    table = igpe.simulate(reactor.problem(run), values, times=times)

    def slopes(_, x):
        a, b, _, volume, t, jacket, active = x
        r = 0.9 * np.exp(-4e4 / 8.314462618 * (1 / t - 1 / 330)) * a * b / volume**2 * active
        heated = (40.0 * r + 1.5 * (jacket - t) / volume) / 4.0 + 0.3 / volume * (290.0 - t)
        outside = 0.7 * (300.0 - jacket) - 1.5 * (jacket - t) / 2.0
        lost = 0.4 * (active - 0.2) ** 2 * b / volume
        turned = r * volume
        return [-turned, 0.6 - turned, turned, 0.3, heated, outside, -lost]

    run = solve_ivp(slopes, (0, 3), list(start.values()), "LSODA", times, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(table[list(start)].to_numpy(), run.y.T, rtol=1e-5)
