"""SBML models by seed: reactions, and three features of the language in each.

Needs libSBML alone, so that the peer that gives the reference values writes the same models.
"""

import json
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import libsbml

COUNT = 200
TIMES = (0.0, 0.7, 1.6, 2.9, 4.3, 6.1, 8.2, 10.0)


class Builder:
    """One model in the making."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"sbml {seed}")
        self.document = libsbml.SBMLDocument(3, 2)
        self.model: Any = self.document.createModel()
        self.model.setId(f"model_{seed}")
        self.shown: list[str] = []
        self.laws: dict[str, str] = {}
        self.compartment("c", self.random.choice([1.0, 2.0, 0.5]))
        for k in range(self.random.randint(2, 4)):
            self.species(f"S{k}", start=self.value(0.5, 4.0))
        names = list(self.shown)
        for k, name in enumerate(names):
            other = names[(k + 1) % len(names)]
            kinetics = self.random.choice(["mass", "michaelis", "reversible", "modified"])
            rate = self.parameter(f"k{k}", self.value(0.05, 0.6))
            half = self.parameter(f"h{k}", self.value(0.5, 2.0))
            law = {
                "mass": f"c * {rate} * {name}",
                "michaelis": f"c * {rate} * {name} / ({half} + {name})",
                "reversible": f"c * ({rate} * {name} - 0.3 * {half} * {rate} * {other})",
                "modified": f"c * {rate} * {name} / (1 + {names[-1]} / {half})",
            }[kinetics]
            self.reaction(f"R{k}", {name: 1.0}, {other: 1.0}, law)

    def value(self, low: float, high: float) -> float:
        """A number with three digits."""
        return round(self.random.uniform(low, high), 3)

    def pick(self) -> str:
        """A species that reactions change and nothing else does."""
        return f"S{self.random.randrange(2)}"

    def math(self, element: Any, formula: str) -> None:
        """Give an element its formula."""
        node = libsbml.parseL3Formula(formula)
        if node is None:
            raise ValueError(formula)
        element.setMath(node)

    def compartment(self, name: str, size: float, *, constant: bool = True) -> str:
        """A vessel."""
        c = self.model.createCompartment()
        c.setId(name)
        c.setSize(size)
        c.setSpatialDimensions(3)
        c.setConstant(constant)
        return name

    def species(self, name: str, *, start: float, vessel: str = "c", **flags: bool) -> str:
        """A species whose concentration, or amount where `amount` says so, starts at a value."""
        s = self.model.createSpecies()
        s.setId(name)
        s.setCompartment(vessel)
        s.setHasOnlySubstanceUnits(flags.get("units", False))
        (s.setInitialAmount if flags.get("amount", False) else s.setInitialConcentration)(start)
        s.setBoundaryCondition(flags.get("boundary", False))
        s.setConstant(flags.get("constant", False))
        self.shown.append(name)
        return name

    def parameter(
        self, name: str, value: float | None, *, constant: bool = True, shown: bool = False
    ) -> str:
        """A parameter."""
        p = self.model.createParameter()
        p.setId(name)
        p.setConstant(constant)
        if value is not None:
            p.setValue(value)
        if shown:
            self.shown.append(name)
        return name

    def reaction(
        self,
        name: str,
        eaten: dict[str, float],
        made: dict[str, float],
        law: str,
    ) -> Any:
        """A reaction and its kinetic law; species of the law alone are its modifiers."""
        r = self.model.createReaction()
        r.setId(name)
        r.setReversible(False)
        for side, make in ((eaten, r.createReactant), (made, r.createProduct)):
            for species, number in side.items():
                reference = make()
                reference.setSpecies(species)
                reference.setStoichiometry(number)
                reference.setConstant(True)
        known = {s.getId() for s in self.model.getListOfSpecies()}
        for modifier in sorted(known.intersection(re.findall(r"\w+", law)) - {*eaten, *made}):
            r.createModifier().setSpecies(modifier)
        self.math(r.createKineticLaw(), law)
        return r

    def rule(self, kind: str, name: str, formula: str) -> None:
        """A rate, assignment or algebraic rule."""
        made = getattr(self.model, f"create{kind}Rule")()
        if name:
            made.setVariable(name)
        self.math(made, formula)

    def initial(self, name: str, formula: str) -> None:
        """An initial assignment."""
        made = self.model.createInitialAssignment()
        made.setSymbol(name)
        self.math(made, formula)

    def event(self, name: str, when: str, sets: dict[str, str], **given: Any) -> None:
        """An event; given: initial, persistent, at_trigger, delay, priority."""
        e = self.model.createEvent()
        e.setId(name)
        e.setUseValuesFromTriggerTime(given.get("at_trigger", True))
        trigger = e.createTrigger()
        trigger.setInitialValue(given.get("initial", True))
        trigger.setPersistent(given.get("persistent", True))
        self.math(trigger, when)
        for part in ("delay", "priority"):
            if part in given:
                self.math(getattr(e, f"create{part.title()}")(), given[part])
        for variable, formula in sets.items():
            assignment = e.createEventAssignment()
            assignment.setVariable(variable)
            self.math(assignment, formula)

    def input(self, name: str, formula: str, start: float = 1.0) -> None:
        """A species that is made at a rate and decays: shows what a formula is."""
        species = self.species(name, start=start)
        self.reaction(f"in_{name}", {}, {species: 1.0}, formula)
        self.reaction(f"out_{name}", {species: 1.0}, {}, f"0.5 * c * {species}")


def _rate_rule(b: Builder) -> None:
    b.parameter("p_rate", b.value(0.5, 2.0), constant=False, shown=True)
    b.rule("Rate", "p_rate", f"0.3 * {b.pick()} - 0.4 * p_rate")


def _rate_rule_species(b: Builder) -> None:
    b.species("S_rate", start=b.value(0.5, 2.0), boundary=True, amount=b.random.random() < 0.5)
    b.rule("Rate", "S_rate", "0.5 - 0.2 * S_rate")
    b.reaction("R_rate", {"S_rate": 1.0}, {b.pick(): 1.0}, "0.1 * c * S_rate")


def _assignment(b: Builder) -> None:
    b.parameter("p_sum", None, constant=False, shown=True)
    b.rule("Assignment", "p_sum", f"{b.pick()} + 0.5 * {b.pick()}")
    b.input("S_sum", "0.2 * c * p_sum")


def _assignment_species(b: Builder) -> None:
    b.species("S_rule", start=1.0, boundary=b.random.random() < 0.5, units=b.random.random() < 0.5)
    b.rule("Assignment", "S_rule", f"1 + 0.5 * {b.pick()}")
    b.input("S_fed", "0.1 * c * S_rule")


def _algebraic(b: Builder) -> None:
    b.parameter("p_alg", 1.0, constant=False, shown=True)
    b.rule("Algebraic", "", f"2 * p_alg - {b.pick()} - 1")
    b.input("S_alg", "0.3 * c * p_alg")


def _initial_assignment(b: Builder) -> None:
    b.parameter("p_init", 7.0, shown=True)
    b.initial("p_init", "2 * k0 + 0.1")
    b.initial(b.pick(), "1 + p_init * c")


def _function(b: Builder) -> None:
    for name, text in (("f", "lambda(x, y, x / (1 + y))"), ("g", "lambda(z, f(z, 2 * z) + 0.1)")):
        function = b.model.createFunctionDefinition()
        function.setId(name)
        b.math(function, text)
    b.input("S_fun", f"c * g({b.pick()})")


def _growing(b: Builder) -> None:
    b.compartment("d", b.value(0.5, 2.0), constant=False)
    b.rule("Rate", "d", b.random.choice(["0.1 * d", "0.2 - 0.05 * d"]))
    b.species("D0", start=b.value(1, 3), vessel="d", units=b.random.random() < 0.3)
    b.species("D1", start=b.value(1, 3), vessel="d", amount=True)
    b.reaction("R_grow", {"D0": 1.0}, {"D1": 1.0}, "0.2 * d * D0")
    b.shown.append("d")


def _ruled_vessel(b: Builder) -> None:
    b.compartment("e", 1.0, constant=False)
    b.rule("Assignment", "e", "1 + 0.3 * time")
    b.species("E0", start=b.value(1, 3), vessel="e")
    b.reaction("R_ruled", {"E0": 1.0}, {}, "0.1 * e * E0")


def _vessel_event(b: Builder) -> None:
    b.compartment("w", b.value(1, 2), constant=False)
    b.species("W0", start=b.value(1, 3), vessel="w", units=b.random.random() < 0.3)
    b.reaction("R_w", {"W0": 1.0}, {}, "0.1 * w * W0")
    b.event("swell", "time > 3.3", {"w": "2 * w"})


def _second_vessel(b: Builder) -> None:
    b.compartment("v", b.value(0.2, 5.0))
    b.species("V0", start=b.value(0.5, 3.0), vessel="v")
    b.reaction("R_v", {"V0": 1.0}, {b.pick(): 1.0}, f"0.2 * (V0 - 0.5 * {b.pick()})")


def _amounts(b: Builder) -> None:
    b.species("A0", start=b.value(1, 4), units=True, amount=b.random.random() < 0.5)
    b.reaction("R_amount", {"A0": 1.0}, {b.pick(): 1.0}, "0.2 * A0")


def _initial_amount(b: Builder) -> None:
    b.species("M0", start=b.value(1, 4), amount=True)
    b.reaction("R_initial", {"M0": 1.0}, {}, "0.2 * c * M0")


def _boundary(b: Builder) -> None:
    b.species("B0", start=b.value(1, 4), boundary=True, constant=b.random.random() < 0.5)
    b.reaction("R_bound", {"B0": 1.0}, {b.pick(): 1.0}, "0.1 * c * B0")


def _constant(b: Builder) -> None:
    b.species("C0", start=b.value(1, 4), constant=True, units=b.random.random() < 0.5)
    b.reaction("R_const", {}, {b.pick(): 1.0}, "0.1 * c * C0")


def _conversion(b: Builder) -> None:
    b.parameter("cf", b.value(0.5, 2.0))
    if b.random.random() < 0.5:
        b.model.setConversionFactor("cf")
    else:
        b.model.getSpecies(b.pick()).setConversionFactor("cf")


def _local(b: Builder) -> None:
    species = b.pick()
    reaction = b.reaction("R_local", {species: 1.0}, {}, f"c * k0 * {species}")
    local = reaction.getKineticLaw().createLocalParameter()
    local.setId("k0")  # hides the global one
    local.setValue(b.value(0.1, 0.5))


def _stoichiometry(b: Builder) -> None:
    b.reaction(
        "R_st", {b.pick(): b.random.choice([2.0, 1.5])}, {"S1": 0.5}, f"0.05 * c * {b.pick()}"
    )


def _computed_stoichiometry(b: Builder) -> None:
    reaction = b.reaction("R_cs", {"S0": 1.0}, {"S1": 2.0}, "0.1 * c * S0")
    product = reaction.getProduct(0)
    product.setId("sr")
    kind = b.random.choice(["initial", "rule", "rate", "used"])
    product.setConstant(kind in ("initial", "used"))
    if kind == "initial":
        b.initial("sr", "1 + 2 * k0")
    elif kind == "rule":
        b.rule("Assignment", "sr", "1 + 0.1 * time")
    elif kind == "rate":
        b.rule("Rate", "sr", "-0.1 * sr")
    else:
        b.input("S_sr", "0.1 * c * sr")


def _piecewise(b: Builder) -> None:
    s = b.pick()
    formula = b.random.choice([
        "piecewise(0.2, time < 3.1, 0.8)",
        "piecewise(0.2, time < 2.2, 0.9, (time >= 2.2) && (time < 5.5), 0.1)",
        f"piecewise(0.5, {s} > 1, 0.1)",
        f"piecewise({s}, !({s} < 0.8) || (time > 8), 0.8)",
        f"piecewise(0.3, xor(time > 2.5, time > 5.5), 0.1 * {s})",
    ])
    b.input("S_piece", f"c * ({formula})")


def _event_time(b: Builder) -> None:
    s = b.pick()
    b.event("dose", f"time >= {b.value(1, 8)}", {s: f"{s} + {b.value(0.5, 2)}"})


def _event_state(b: Builder) -> None:
    b.input("S_low", "0", start=3.0)
    b.event("refill", "S_low < 1", {"S_low": "S_low + 2", "S0": "0.5 * S0"})


def _event_parameter(b: Builder) -> None:
    b.parameter("p_set", 0.2, constant=False, shown=True)
    b.input("S_set", "c * p_set")
    b.event("change", "time > 4.1", {"p_set": "1.5 * p_set + 0.1"})


def _event_delay(b: Builder) -> None:
    s = b.pick()
    delay = b.random.choice(["1.3", "2 * k0", "0.5 + c"])
    b.event("late", "time > 2.1", {s: f"{s} + 1"}, delay=delay, at_trigger=b.random.random() < 0.5)


def _event_kept(b: Builder) -> None:
    b.event("keeps", "S0 < 0.45", {"S1": "2 * S0 + 1"}, delay="0.9", at_trigger=True)


def _event_given_up(b: Builder) -> None:
    b.input("S_wave", "c * (1 + sin(2 * time))")
    b.event("brief", "S_wave > 1.6", {"S0": "S0 + 1"}, delay="0.4", persistent=False)


def _event_priority(b: Builder) -> None:
    b.event("first", "time > 3.7", {"S0": "2 * S0"}, priority="10", at_trigger=False)
    b.event("second", "time > 3.7", {"S0": "S0 + 1"}, priority="1", at_trigger=False)


def _event_simultaneous(b: Builder) -> None:
    b.event("swap", "time > 3.2", {"S0": "S1", "S1": "S0"})


def _event_initial(b: Builder) -> None:
    b.event("begin", "S0 > 0", {"S1": "S1 + 1"}, initial=b.random.random() < 0.3)


def _event_window(b: Builder) -> None:
    b.event("window", "(time > 2.4) && (S0 < 5)", {"S1": "0.5 * S1"})


def _time(b: Builder) -> None:
    b.input("S_time", "c * (0.1 * time + exp(-time))")


def _avogadro(b: Builder) -> None:
    b.input("S_avo", "0.1 * c * avogadro / 6.02214076e23")


def _ratio(b: Builder) -> None:
    b.input("S_rate_of", f"0.3 * c * (1 + rateOf({b.pick()}))")


def _math_of(name: str, formulas: list[str]) -> Callable[[Builder], None]:
    def feature(b: Builder) -> None:
        b.input(f"S_{name}", f"c * ({b.random.choice(formulas).replace('X', b.pick())})")

    feature.__name__ = f"_{name}"
    return feature


MATH = {
    "trig": ["1 + sin(X)", "1 + cos(time)", "tan(0.1 * X)", "1 + sec(0.1 * X)", "cot(0.1 + X)"],
    "arc": ["arctan(X)", "arcsin(0.1 * X)", "arccos(0.1 * X)", "arccot(1 + X)"],
    "hyper": ["tanh(X)", "sinh(0.3 * X)", "cosh(0.3 * X)", "sech(X)", "coth(1 + X)"],
    "archyper": ["arcsinh(X)", "arccosh(1 + X)", "arctanh(0.1 * X)"],
    "power": ["root(3, X)", "sqrt(X)", "X^2 / (1 + X^2)", "pow(X, 1.7)", "2^(-X)"],
    "logs": ["ln(1 + X)", "log10(1 + X)", "log(2, 1 + X)", "exp(-X)"],
    "steps": ["abs(X - 1)", "floor(2.5 + 0 * X)", "ceil(k0)", "floor(time / 3)",
              "factorial(3) * k0"],
    "extreme": ["min(X, 1)", "max(X, 1, 0.5)", "quotient(7, 3) * k0", "rem(7, 3) * k0"],
    "constants": ["pi * k0", "exponentiale * k0", "1e-1 * X", "0.5 * (1 + 2/4)"],
}  # fmt: skip

FEATURES: tuple[Callable[[Builder], None], ...] = (
    _rate_rule, _rate_rule_species, _assignment, _assignment_species, _algebraic,
    _initial_assignment, _function, _growing, _ruled_vessel, _vessel_event, _second_vessel,
    _amounts, _initial_amount, _boundary, _constant, _conversion, _local, _stoichiometry,
    _computed_stoichiometry, _piecewise, _event_time, _event_state, _event_parameter, _event_delay,
    _event_kept, _event_given_up, _event_priority, _event_simultaneous, _event_initial,
    _event_window, _time, _avogadro, _ratio,
    *(_math_of(name, formulas) for name, formulas in MATH.items()),
)  # fmt: skip


def model(seed: int) -> tuple[str, list[str], list[str]]:
    """SBML text, the names to compare, and the features of a model."""
    b = Builder(seed)
    others = b.random.sample(range(1, len(FEATURES)), 2)
    chosen = [FEATURES[(seed + k) % len(FEATURES)] for k in (0, *others)]
    for feature in chosen:
        feature(b)
    names = [f.__name__.strip("_") for f in chosen]
    return libsbml.writeSBMLToString(b.document), b.shown, names


def selections(text: str, shown: list[str]) -> dict[str, str]:
    """Name -> what libRoadRunner calls it: [S] for a concentration."""
    model = libsbml.readSBMLFromString(text).getModel()
    names = {}
    for name in shown:
        species = model.getSpecies(name)
        is_amount = species is None or species.getHasOnlySubstanceUnits()
        names[name] = name if is_amount else f"[{name}]"
    return names


if __name__ == "__main__":
    models = {}
    for number in range(COUNT):
        written, names, _ = model(number)
        models[number] = {"text": written, "shown": selections(written, names)}
    Path(sys.argv[1]).write_text(json.dumps(models) + "\n")
