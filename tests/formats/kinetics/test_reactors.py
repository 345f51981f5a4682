"""Reactors against balances written by hand and integrated by SciPy."""

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from scipy.integrate import solve_ivp

import igpe
from igpe import kinetics
from igpe.core.errors import ModelError
from models import urethane

TIMES = np.linspace(0.0, 3.0, 13)


def simulated(reactor, values, start, inputs=None, names=()):
    """Courses of the reactor's states and of `names`, from igpe.simulate."""
    data = pd.DataFrame({"time": TIMES} | dict.fromkeys([*start, *names], 0.0))
    run = igpe.Experiment(data, start=start, inputs=inputs or {}, start_time=TIMES[0])
    problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=run)
    return igpe.simulate(problem, values, times=TIMES)


def integrated(slopes, start):
    run = solve_ivp(slopes, TIMES[[0, -1]], start, "LSODA", TIMES, rtol=1e-10, atol=1e-12)
    return run.y.T


def course(table, *names):
    return table[list(names)].to_numpy()


def compared(found, names, slopes, start):
    expected = integrated(slopes, start)
    np.testing.assert_allclose(course(found, *names), expected, rtol=1e-6, atol=1e-8)
    return expected


def test_batch_by_mass_action():
    reactor = kinetics.Batch(["2 A + B -> C", "C <-> D"], bounds={"k1": (0, 10)})
    assert reactor.parameters == ("k1", "k2f", "k2r")
    values = {"k1": 1.5, "k2f": 0.8, "k2r": 0.3}
    found = simulated(reactor, values, {"A": 2.0, "B": 1.0, "C": 0.0, "D": 0.1})

    def slopes(_, x):
        a, b, c, d = x
        r1, r2 = 1.5 * a * a * b, 0.8 * c - 0.3 * d
        return [-2 * r1, -r1, r1 - r2, r2]

    compared(found, "ABCD", slopes, [2.0, 1.0, 0.0, 0.1])


def test_enzymes_hill_own_laws_and_orders():
    own = kinetics.OwnLaw(lambda m, t, c: m.k0 / (1 + c["P"]), parameters=("k0",))
    enzyme = kinetics.MichaelisMenten("kcat", "km", inhibitors={"P": "ki"}, enzyme="E")
    reactor = kinetics.Batch([
        kinetics.Reaction("S -> P", enzyme),
        kinetics.Reaction("P ->", kinetics.Hill("v", "h", "n", repressing=False)),
        kinetics.Reaction("E ->", kinetics.MassAction("kd", orders={"E": 2})),
        kinetics.Reaction("-> S", own),
    ])
    values = {"kcat": 3, "km": 0.5, "ki": 0.7, "v": 0.9, "h": 0.4, "n": 2.5, "kd": 0.2, "k0": 0.6}
    assert set(reactor.parameters) == set(values)
    found = simulated(reactor, values, {"S": 1.0, "P": 0.2, "E": 0.8})

    def slopes(_, x):
        s, p, e = x
        r1 = 3 * e * s / (0.5 * (1 + p / 0.7) + s)
        r2 = 0.9 * p**2.5 / (0.4**2.5 + p**2.5)
        return [-r1 + 0.6 / (1 + p), r1 - r2, -0.2 * e**2]

    compared(found, "SPE", slopes, [1.0, 0.2, 0.8])


def test_conserved_species_may_be_algebraic():
    texts, values = ["E + S <-> ES", "ES -> E + P"], {"k1f": 4.0, "k1r": 0.5, "k2": 1.2}
    whole = kinetics.Batch(texts)
    smaller = kinetics.Batch(texts, algebraic=["ES", "P"])
    start = {"E": 0.3, "S": 1.0}
    one = simulated(whole, values, start | {"ES": 0.05, "P": 0.0})
    other = simulated(smaller, values, start, {"ES0": 0.05}, ["ES", "P"])
    names = ("E", "S", "ES", "P")
    np.testing.assert_allclose(course(one, *names), course(other, *names), rtol=1e-6, atol=1e-8)


def test_temperature_programme():
    law = kinetics.MassAction(kinetics.Arrhenius("k", "Ea", reference=350.0))
    reactor = kinetics.Batch([kinetics.Reaction("A -> B", law)])
    ramp = igpe.linear_input([0.0, 3.0], [340.0, 370.0])
    found = simulated(reactor, {"k": 0.7, "Ea": 5e4}, {"A": 1.0, "B": 0.0}, {"T": ramp})

    def slopes(t, x):
        k = 0.7 * np.exp(-5e4 / 8.314462618 * (1 / (340 + 10 * t) - 1 / 350))
        return [-k * x[0]]

    compared(found, "A", slopes, [1.0])
    with pytest.raises(igpe.errors.IgpeError, match="T"):
        simulated(reactor, {"k": 0.7, "Ea": 5e4}, {"A": 1.0, "B": 0.0})


def test_stirred_tank():
    reactor = kinetics.Cstr(["A -> B"], inlet={"A": "A_in"})
    inputs = {"dilution": 0.4, "A_in": igpe.linear_input([0.0, 3.0], [1.0, 2.0])}
    found = simulated(reactor, {"k1": 0.9}, {"A": 0.2, "B": 0.0}, inputs)

    def slopes(t, x):
        return [0.4 * (1 + t / 3 - x[0]) - 0.9 * x[0], -0.4 * x[1] + 0.9 * x[0]]

    compared(found, "AB", slopes, [0.2, 0.0])


def test_semibatch_filled_by_streams():
    feeds = [kinetics.Stream("q", {"B": "B_feed"}), kinetics.Stream("w", {})]
    reactor = kinetics.Semibatch(["A + B -> C"], feeds=feeds)
    inputs = {"q": igpe.linear_input([0.0, 3.0], [0.1, 0.4]), "w": 0.05, "B_feed": 2.0}
    start = {"n_A": 1.0, "n_B": 0.0, "n_C": 0.0, "V": 0.5}
    found = simulated(reactor, {"k1": 1.1}, start, inputs, ["A"])

    def slopes(t, x):
        q, r = 0.1 + 0.1 * t, 1.1 * x[0] * x[1] / x[3]
        return [-r, -r + 2 * q, r, q + 0.05]

    expected = compared(found, ("n_A", "n_B", "n_C", "V"), slopes, [1.0, 0.0, 0.0, 0.5])
    concentration = course(found, "A")[:, 0]
    np.testing.assert_allclose(concentration, expected[:, 0] / expected[:, 3], rtol=1e-6)


@pytest.mark.parametrize(("volume", "inputs"), [(2.0, {}), ("vessel", {"vessel": 2.0})])
def test_semibatch_of_constant_volume(volume, inputs):
    feeds = [kinetics.MolarFeed("f", "A")]
    reactor = kinetics.Semibatch(["2 A -> B"], volume=volume, feeds=feeds)
    found = simulated(reactor, {"k1": 0.5}, {"n_A": 1.0, "n_B": 0.0}, inputs | {"f": 0.3})

    def slopes(_, x):
        r = 0.5 * (x[0] / 2) ** 2 * 2
        return [-2 * r + 0.3, r]

    compared(found, ("n_A", "n_B"), slopes, [1.0, 0.0])


def urethane_reactor():
    """Problem 7 as a chemist writes it."""

    def arrhenius(factor, energy):
        return kinetics.Arrhenius(factor, energy, urethane.T_REF, urethane.GAS)

    volumes = {s: urethane.MOLAR_VOLUME[s] for s in "ABCDE"}
    to_allophanate = kinetics.MassAction(
        arrhenius("kref2", "Ea2"), equilibrium=arrhenius("kc2", "dh2")
    )
    to_isocyanurate = kinetics.MassAction(arrhenius("kref4", "Ea4"), orders={"A": 2})
    return kinetics.Semibatch(
        [
            kinetics.Reaction("A + B -> C", kinetics.MassAction(arrhenius("kref1", "Ea1"))),
            kinetics.Reaction("A + C <-> D", to_allophanate),
            kinetics.Reaction("3 A -> E", to_isocyanurate),
        ],
        bounds=urethane.BOUNDS,
        algebraic=["D", "E"],
        volume=kinetics.MolarVolumes(volumes, inert={"nS": urethane.MOLAR_VOLUME["S"]}),
        feeds=[kinetics.MolarFeed("fA", "A"), kinetics.MolarFeed("fB", "B")],
        amounts="n{}",
    )


@pytest.mark.slow
def test_problem_7_is_what_is_written_by_hand():
    by_hand = urethane.problem()
    reactor = urethane_reactor()
    assert [str(law) for law in reactor.conservation] == ["B + C + D", "A + C + 2 D + 3 E"]
    problem = igpe.Problem(
        reactor, parameters=list(urethane.BOUNDS), experiments=by_hand.experiments
    )
    assert problem.box.names == by_hand.box.names
    np.testing.assert_array_equal(problem.box.upper, by_hand.box.upper)
    values = {n: 1.1 * v for n, v in urethane.TRUTH.items()}
    one, other = (igpe.simulate(p, values) for p in (by_hand, problem))
    for name in urethane.MEASURED:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-7, atol=1e-9)
    exact = igpe.SingleShooting(igpe.integrators.Automatic(rtol=1e-10, atol=1e-12))
    fits = [exact.estimate(p, urethane.TRUTH) for p in (by_hand, problem)]
    assert fits[0].objective == pytest.approx(urethane.OBJECTIVE, rel=1e-8)
    assert fits[1].objective == pytest.approx(urethane.OBJECTIVE, rel=1e-8)
    for name, optimum in fits[0].parameters.items():
        assert fits[1].parameters[name] == pytest.approx(optimum, rel=1e-6)


def test_units_of_constants_follow():
    arrhenius = kinetics.Arrhenius("k", "Ea", reference=350.0)
    reactor = kinetics.Semibatch(
        [
            kinetics.Reaction("2 A <-> B", kinetics.MassAction(arrhenius, equilibrium="K")),
            kinetics.Reaction("B ->", kinetics.MichaelisMenten("vmax", "km")),
        ],
        volume=1.0,
        units=kinetics.Units("mol", "L", "h"),
    )
    data = pd.DataFrame({"time": [0.0, 1.0], "n_A": [1000.0, 500.0], "A": [1.0, 0.5]})
    start, given = {"n_A": 1.0, "n_B": 0.0}, {"n_A": "mmol", "A": "mol/L"}
    run = igpe.Experiment(data, start=start, inputs={"T": 350.0}, units=given)
    problem = igpe.Problem(reactor, parameters=reactor.parameters, experiments=run)
    units = [problem.unit(n) for n in ("k", "Ea", "K", "vmax", "km", "n_A", "A")]
    assert units == ["L/h/mol", "J/mol", "L/mol", "mol/h/L", "mol/L", "mol", "mol/L"]
    table = problem.experiments[0].table()
    assert table["n_A"].tolist() == [1.0, 0.5]


def test_a_reactor_is_an_ordinary_builder():
    reactor = kinetics.Batch(["A -> B"], bounds={"k1": (0, 4)})
    m = reactor([0.0, 1.0])
    assert isinstance(m, pyo.ConcreteModel)
    assert m.k1.bounds == (0, 4)
    assert m.k1.value == 2
    assert reactor([0.0, 1.0]) is not m


def batch(reaction, law):
    return kinetics.Batch([kinetics.Reaction(reaction, law)])


def semibatch(**given):
    return kinetics.Semibatch(["A -> B"], **given)


REFUSED = {
    "no list": (lambda: kinetics.Batch("A -> B"), "expected a list"),
    "empty": (lambda: kinetics.Batch([]), "expected a list"),
    "bounds of nothing": (lambda: kinetics.Batch(["A -> B"], bounds={"k": (0, 1)}), "are \\['k1'"),
    "two meanings": (lambda: kinetics.Batch(["k1 -> B"]), "\\['k1'\\] has two meanings"),
    "rate's name": (lambda: kinetics.Batch(["r1 -> B"]), "\\['r1'\\] has two meanings"),
    "algebraic text": (lambda: kinetics.Batch(["A -> B"], algebraic="B"), "single string"),
    "algebraic stranger": (lambda: kinetics.Batch(["A -> B"], algebraic=["X"]), "species are"),
    "no law": (lambda: batch("A -> B", "k"), "expected a rate law"),
    "back missing": (
        lambda: batch("A <-> B", kinetics.MassAction("k")),
        "Reaction 1, 'A <-> B': The reaction is reversible",
    ),
    "back too many": (
        lambda: batch("A -> B", kinetics.MassAction("k", "b")),
        "The reaction is irreversible",
    ),
    "orders": (
        lambda: batch("A -> B", kinetics.MassAction("k", orders={"B": 1})),
        "left side has \\['A'\\]",
    ),
    "substrate": (
        lambda: batch("A + B -> C", kinetics.MichaelisMenten("v", "k")),
        "is the substrate in MichaelisMenten; name it",
    ),
    "two ways": (lambda: batch("A <-> C", kinetics.Hill("v", "k", 2)), "is irreversible"),
    "constant": (lambda: kinetics.MassAction(None), "expected the name of a parameter"),
    "inhibitor": (
        lambda: kinetics.MichaelisMenten("v", "k", inhibitors={"I": None}),
        "expected the name of a parameter",
    ),
    "energy": (lambda: kinetics.Arrhenius("k", [], reference=1.0), "expected the name"),
    "reference": (lambda: kinetics.Arrhenius("k", "E", reference=0.0), "positive numbers"),
    "own law": (lambda: kinetics.OwnLaw("k*A"), "expected a function"),
    "own species": (
        lambda: batch("A -> B", kinetics.OwnLaw(lambda m, t, c: c["X"]))([0.0, 1.0]),
        "needs the species 'X'",
    ),
    "units": (lambda: kinetics.Units("moles_of"), "not a unit that Pyomo knows"),
    "volume missing": (semibatch, "The reactor has no volume"),
    "volume and streams": (
        lambda: semibatch(volume=1.0, feeds=[kinetics.Stream("q", {})]),
        "fill the vessel",
    ),
    "feed": (lambda: semibatch(volume=1.0, feeds=["q"]), "expected a list"),
    "feed of nothing": (
        lambda: semibatch(volume=1.0, feeds=[kinetics.MolarFeed("f", "X")]),
        "feeds has \\['X'\\]",
    ),
    "amounts": (lambda: semibatch(volume=1.0, amounts="{}"), "concentrations"),
    "pattern": (lambda: semibatch(volume=1.0, amounts="n_{species}"), "expected a pattern such as"),
    "inlet": (lambda: kinetics.Cstr(["A -> B"], inlet={"X": 1.0}), "inlet has \\['X'\\]"),
    "dilution": (lambda: kinetics.Cstr(["A -> B"], dilution=None), "name of an input, or a number"),
    "flow and laws": (lambda: kinetics.Cstr(["A -> B"], algebraic=["B"]), "flow through a Cstr"),
    "molar volume": (lambda: kinetics.MolarVolumes({"A": -1.0}), "0 or more"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_makes_no_reactor_is_refused(case):
    made, says = REFUSED[case]
    with pytest.raises(ModelError, match=says):
        made()
