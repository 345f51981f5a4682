"""Models of which it is known what can be identified, and where that is known from.

"By hand" answers are derived in the case's `source`: from a scaling of unmeasured states that the
outputs do not feel, or from the differential equation that the measured quantity obeys alone.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
from ode import over_time, row

TIMES = np.linspace(0.0, 1.0, 7)[1:]
RAMP = pd.Series([300.0, 350.0], index=[0.0, 1.0])
PULSE = pd.Series([0.0, 1.0, 0.3], index=[0.0, 0.4, 1.0])
Right = str | Callable[[Any], Any]
"""An expression of names at one time, as text, or made of these names."""


@dataclass(frozen=True)
class Known:
    """A model, what is measured, and the answer.

    slopes     state -> right-hand side
    algebraic  variable -> what vanishes
    outputs    expression over time -> what it is
    inputs     of each experiment, name -> number, Series, table or function of time
    start      state -> number, "?" if it is unknown; all 0 if left out
    lost       unknowns that are not identifiable
    functions  what can be determined of them; None if that is no product or sum, or not tested
    several    unknowns with several values, and how many: "a:2 nu:2"
    undecided  unknowns of which the number of values is not found in the time that is allowed
    bounds     of all parameters
    times      at which everything is measured
    source     of the answer
    """

    name: str
    slopes: Mapping[str, Right]
    parameters: str
    measured: str
    start: Mapping[str, Any]
    lost: str
    source: str
    functions: tuple[str, ...] | None = None
    algebraic: Mapping[str, Right] = field(default_factory=dict)
    outputs: Mapping[str, Right] = field(default_factory=dict)
    inputs: tuple[Mapping[str, Any], ...] = ({},)
    local: tuple[str, ...] = ()
    several: str = ""
    undecided: str = ""
    bounds: tuple[float, float] = (0.0, 10.0)
    times: Sequence[float] = tuple(TIMES)

    def model(self, times: Iterable[float]) -> Any:
        """The builder."""
        others, bounds = " ".join([*self.algebraic, *self.inputs[0]]), self.bounds
        unknowns = dict.fromkeys(self.parameters.split(), bounds)
        m = over_time(times, " ".join(self.slopes), others, **unknowns)
        for state, right in self.slopes.items():
            slope = m.component(f"d{state}")
            self._add(m, f"rate_{state}", lambda t, d=slope, f=right: d[t] == self._at(m, t, f))
        for name, right in self.algebraic.items():
            self._add(m, f"law_{name}", lambda t, f=right: self._at(m, t, f) == 0)
        for name, right in self.outputs.items():
            rule = lambda _, t, f=right: self._at(m, t, f)  # noqa: E731
            m.add_component(name, pyo.Expression(m.t, rule=rule))
        return m

    def problem(self) -> Any:
        """The `igpe.Problem`; its measurements are any numbers."""
        import igpe  # noqa: PLC0415

        start = {s: 0.0 for s in self.slopes} | {
            s: igpe.Unknown(0.0, 10.0) if v == "?" else v for s, v in self.start.items()
        }
        columns = {n: np.ones(len(self.times)) for n in self.measured.split()}
        table = pd.DataFrame({"time": self.times, **columns})
        runs = [
            igpe.Experiment(table, name=f"run{i}", start=start, inputs=u, start_time=0.0)
            for i, u in enumerate(self.inputs)
        ]
        parameters = self.parameters.split()
        return igpe.Problem(self.model, parameters=parameters, experiments=runs, local=self.local)

    @staticmethod
    def _add(m: Any, name: str, rule: Any) -> None:
        m.add_component(name, pyo.Constraint(m.t, rule=lambda _, t: rule(t)))

    def _at(self, m: Any, t: Any, right: Right) -> Any:
        series = (*self.slopes, *self.algebraic, *self.inputs[0])
        names = {"t": t} | {n: getattr(m, n)[t] for n in series}
        names |= {n: getattr(m, n) for n in self.parameters.split()}
        if isinstance(right, str):
            return eval(right, dict(vars(pyo)), names)
        return right(SimpleNamespace(**names))


STAT5: dict[str, Any] = {
    "slopes": {
        "x1": "-p1 * x1 * EpoR + 2 * p3 * q3",
        "x2": "p1 * x1 * EpoR - p2 * x2 ** 2",
        "x3": "p2 * x2 ** 2 / 2 - p3 * x3",
        "q1": "3 / tau * (x3 - q1)",
        "q2": "3 / tau * (q1 - q2)",
        "q3": "3 / tau * (q2 - q3)",
    },
    "outputs": {"pSTAT": "s1 * (x2 + 2 * x3)", "tSTAT": "s2 * (x1 + x2 + 2 * x3)"},
    "parameters": "p1 p2 p3 tau s1 s2",
    "measured": "pSTAT tSTAT",
    "inputs": ({"EpoR": PULSE},),
}
"""JAK2-STAT5 with a chain of three stages for the delay."""
SIX = {
    "x1": "-k1 * x1 * x2",
    "x2": "-k1 * x1 * x2",
    "x3": "k1 * x1 * x2",
    "x4": "-k2 * x4 * x5",
    "x5": "-k2 * x4 * x5",
    "x6": "k2 * x4 * x5",
}
BOLIE = {"G": "-p1 * G - p2 * I + u", "I": "p4 * G - p3 * I"}
SIR = {"S": "-beta * S * I", "I": "beta * S * I - gamma * I"}
HIV = {"T": "s - d * T - beta * V * T", "I": "beta * V * T - delta * I", "V": "p * I - c * V"}
TWO = {"x1": "-(k01 + k21) * x1 + k12 * x2", "x2": "k21 * x1 - k12 * x2"}
LEAKY = {**TWO, "x2": "k21 * x1 - (k12 + k02) * x2"}
THREE = {
    "x1": "-(k01 + k21 + k31) * x1 + k12 * x2 + k13 * x3",
    "x2": "k21 * x1 - k12 * x2",
    "x3": "k31 * x1 - k13 * x3",
}
GAS_OIL = {"y1": "-(p1 + p3) * y1 ** 2", "y2": "p1 * y1 ** 2 - p2 * y2"}
GROWTH = {"X": "mu * S * X / (K + S)", "S": "-mu * S * X / (Y * (K + S))"}
LLW = {
    "x1": "-p1 * x1 + p2 * u",
    "x2": "-p3 * x2 + p4 * u",
    "x3": "-(p1 + p3) * x3 + (p4 * x1 + p2 * x2) * u",
}
ARRHENIUS = {"A": "-k * exp(-E * (1 / T - 1 / 320)) * A"}
CHAIN = {"A": "-k1 * A", "B": "k1 * A - k2 * B", "C": "k2 * B"}
EQUILIBRIUM: dict[str, Any] = {
    "slopes": {"total": "-k * B"},
    "algebraic": {"A": "A + B - total", "B": "B - K * A"},
    "parameters": "k K",
    "start": {"total": 1.0},
}
UNKNOWN = dict.fromkeys

# fmt: off
KNOWN: tuple[Known, ...] = (
    Known(name="six species, one measured", slopes=SIX, parameters="k1 k2", measured="x1",
          start=UNKNOWN(SIX, 1.0), lost="k2",
          source="Michalik et al. 2009 (IGPE), eqs. 6 to 11: the second reaction is not seen"),
    Known(name="six species, both reactions", slopes=SIX, parameters="k1 k2", measured="x1 x6",
          start=UNKNOWN(SIX, 1.0), lost="", source="Michalik et al. 2009 (IGPE), eqs. 6 to 11"),
    Known(name="STAT5, amount unknown", **STAT5, start={"x1": "?"}, lost="p2 s1 s2 x1(t0)",
          functions=("p2*x1(t0)", "s1*x1(t0)", "s2*x1(t0)"),
          source="by hand: amounts -> a amounts, p2 / a, s1 / a, s2 / a"),
    Known(name="STAT5, amount known", **STAT5, start={"x1": 3.7}, lost="",
          source="by hand: the amount that is known forbids that scaling"),
    Known(name="Bolie, glucose", slopes=BOLIE, parameters="p1 p2 p3 p4 V", outputs={"y": "G / V"},
          measured="y", start={}, inputs=({"u": PULSE},), lost="p2 p4", functions=("p2*p4",),
          source="by hand: insulin -> a insulin, p2 / a, p4 a; y'' + (p1 + p3) y' + (p1 p3 + p2 "
          "p4) y = (u' + p3 u) / V"),
    Known(name="Bolie, glucose, insulin's start unknown", slopes=BOLIE, parameters="p1 p2 p3 p4 V",
          outputs={"y": "G / V"}, measured="y", start={"I": "?"}, inputs=({"u": PULSE},),
          lost="p2 p4 I(t0)", functions=("p2*p4", "p2*I(t0)"),
          source="by hand: insulin -> a insulin, p2 / a, p4 a, I(t0) a"),
    Known(name="Bolie, both", slopes=BOLIE, parameters="p1 p2 p3 p4", measured="G I", start={},
          inputs=({"u": PULSE},), lost="",
          source="by hand: both equations are linear in parameters, G and I are independent"),
    Known(name="Goodwin, rational",
          slopes={"x1": "-b * x1 + 1 / (c + x4)", "x2": "alpha * x1 - beta * x2",
           "x3": "gamma * x2 - delta * x3", "x4": "sigma * x4 * (gamma * x2 - delta * x3) / x3"},
          parameters="b c alpha beta gamma delta sigma", measured="x1",
          start=UNKNOWN(("x1", "x2", "x3", "x4"), "?"), lost="alpha gamma x2(t0) x3(t0)",
          functions=("alpha*gamma/x3(t0)", "alpha/x2(t0)"), undecided="b c beta delta sigma x4(t0)",
          source="test of StructuralIdentifiability.jl (where beta and delta exchange); by hand: "
          "x2 -> a x2, x3 -> b x3"),
    Known(name="Goodwin, unknown exponent",
          slopes={"x1": "-b * x1 + a / (A + x3 ** sigma)", "x2": "alpha * x1 - beta * x2",
           "x3": "gamma * x2 - delta * x3"}, parameters="a A b alpha beta gamma delta sigma",
          measured="x1", start=UNKNOWN(("x1", "x2", "x3"), "?"),
          lost="a A alpha gamma x2(t0) x3(t0)", undecided="b beta delta sigma",
          source="by hand from the rational form: x4 = x3**sigma / a, c = A / a"),
    Known(name="SIR, prevalence", slopes=SIR, parameters="beta gamma", measured="I",
          start={"S": "?", "I": "?"}, lost="",
          source="by hand: (ln I)'' = -beta I (ln I)' - beta gamma I"),
    Known(name="SIR, share of prevalence", slopes=SIR, parameters="beta gamma K",
          outputs={"y": "K * I"}, measured="y", start={"S": "?", "I": "?"},
          lost="beta K S(t0) I(t0)", functions=("beta/K", "beta*S(t0)", "beta*I(t0)"),
          source="by hand: S, I -> a S, a I, beta / a, K / a"),
    Known(name="SEIR, prevalence, population unknown",
          slopes={"S": "-b * S * I / N", "E": "b * S * I / N - nu * E", "I": "nu * E - a * I"},
          parameters="a b nu N", measured="I", start=UNKNOWN("SEI", "?"), lost="b N",
          functions=("b/N",), several="a:2 nu:2 S(t0):2 E(t0):2",
          source="by hand: third-order equation of I in a + nu, a nu, b / N (a and nu exchange)"),
    Known(name="HIV, virus", slopes=HIV, parameters="s d beta delta p c", measured="V",
          start=UNKNOWN("TIV", "?"), lost="s p T(t0) I(t0)",
          functions=("s*p", "p*T(t0)", "p*I(t0)"), undecided="d beta delta c",
          source="by hand: cells -> a cells, s a, p / a; as Wu, Zhu, Miao, Perelson, Bull. Math. "
          "Biol. 70 (2008) find four parameters and one product from the virus alone"),
    Known(name="HIV, virus and cells", slopes=HIV, parameters="s d beta delta p c", measured="V T",
          start=UNKNOWN("TIV", "?"), lost="", several="delta:2 c:2 I(t0):2",
          source="by hand: T' is linear in s, d, beta; V'' + (c + delta) V' + c delta V = p beta "
          "V T, so that c and delta exchange"),
    Known(name="HIV with immune response",
          slopes={"x": "lm - d * x - beta * x * v", "y": "beta * x * v - a * y",
           "v": "k * y - u * v", "w": "c * x * y * w - c * q * y * w - b * w",
           "z": "c * q * y * w - h * z"}, parameters="lm d beta a k u c q b h", measured="w z",
          start=UNKNOWN("xyvwz", "?"), lost="lm beta k c q x(t0) y(t0) v(t0)",
          undecided="d a u b h",
          source="example of StructuralIdentifiability.jl; by hand: v -> a v; x, y -> a x, a y, "
          "q a, lm a, c / a**2, k / a"),
    Known(name="two compartments, one loss", slopes=TWO, parameters="k01 k21 k12", measured="x1",
          start={"x1": 1.0}, lost="",
          source="by hand: transfer function (s + k12) / (s**2 + (k01 + k21 + k12) s + k01 k12)"),
    Known(name="two compartments, two losses", slopes=LEAKY, parameters="k01 k21 k12 k02",
          measured="x1", start={"x1": 1.0}, lost="k01 k21 k12 k02",
          source="Bellman, Astrom, Math. Biosci. 7 (1970), as in the tests of "
          "StructuralIdentifiability.jl: k01 + k21, k12 + k02, k12 k21"),
    Known(name="two compartments, volume and dose unknown", slopes=TWO, parameters="k01 k21 k12 V",
          outputs={"y": "x1 / V"}, measured="y", start={"x1": "?"}, lost="V x1(t0)",
          functions=("V/x1(t0)",), source="by hand: amounts -> a amounts"),
    Known(name="two compartments, starts unknown", slopes=TWO, parameters="k01 k21 k12",
          measured="x1", start={"x1": "?", "x2": "?"}, lost="k01 k21 k12 x2(t0)",
          source="test of StructuralIdentifiability.jl; by hand: y'' + (k01 + k21 + k12) y' + "
          "k01 k12 y = 0 and two start values"),
    Known(name="three compartments, one loss", slopes=THREE, parameters="k01 k21 k12 k31 k13",
          measured="x1", start={"x1": 1.0}, lost="", several="k21:2 k12:2 k31:2 k13:2",
          source="by hand: partial fractions of the transfer function; the two arms exchange"),
    Known(name="three compartments, two losses", slopes={**THREE, "x2": LEAKY["x2"]},
          parameters="k01 k21 k12 k31 k13 k02", measured="x1", start={"x1": 1.0},
          lost="k01 k21 k12 k02", several="k31:2 k13:2",
          source="by hand: transfer function of k01 + k21 + k31, k12 + k02, k12 k21, k13, k13 k31"),
    Known(name="Michaelis and Menten", slopes={"S": "-Vm * S / (Km + S)"}, parameters="Vm Km",
          measured="S", start={"S": "?"}, lost="", source="by hand: S / S' = -(Km + S) / Vm"),
    Known(name="Michaelis and Menten, relative", slopes={"S": "-Vm * S / (Km + S)"},
          parameters="Vm Km c", outputs={"y": "c * S"}, measured="y", start={"S": "?"},
          lost="Vm Km c S(t0)", functions=("Vm*c", "Km*c", "c*S(t0)"),
          source="by hand: S, Vm, Km -> a, c / a"),
    Known(name="Arrhenius, one temperature", slopes=ARRHENIUS, parameters="k E",
          measured="A", start={"A": 1.0}, inputs=({"T": 350.0}, {"T": 350.0}), lost="k E",
          functions=("k*exp(c*E)",), source="by hand: one rate constant"),
    Known(name="Arrhenius, two temperatures", slopes=ARRHENIUS, parameters="k E",
          measured="A", start={"A": 1.0}, inputs=({"T": 350.0}, {"T": 330.0}), lost="",
          source="by hand: two rate constants"),
    Known(name="Arrhenius, ramp", slopes=ARRHENIUS, parameters="k E", measured="A",
          start={"A": 1.0}, inputs=({"T": RAMP},), lost="",
          source="by hand: the rate constant over time"),
    Known(name="Arrhenius, energy of each run", slopes=ARRHENIUS, parameters="k E",
          measured="A", start={"A": 1.0}, inputs=({"T": 350.0}, {"T": 330.0}), local=("E",),
          lost="k E@run0 E@run1", source="by hand: two rate constants of three unknowns"),
    Known(name="Lotka and Volterra, prey",
          slopes={"x": "a * x - b * x * y", "y": "d * x * y - c * y"}, parameters="a b c d",
          measured="x", start={"x": "?", "y": "?"}, lost="b y(t0)", functions=("b*y(t0)",),
          source="by hand: predators -> a predators"),
    Known(name="Vajda",
          slopes={"x1": "p1 * x1 ** 2 + p2 * x1 * x2 + u", "x2": "p3 * x1 ** 2 + x1 * x2"},
          parameters="p1 p2 p3", measured="x1", start={}, inputs=({"u": PULSE},), lost="p2 p3",
          functions=("p2*p3",),
          source="by hand: x2 -> a x2, p2 / a, p3 a; of w = (x1' - u) / x1 the equation w' = p1 "
          "x1' + x1 w - p1 x1**2 + p2 p3 x1**2"),
    Known(name="bilinear, starts unknown", slopes=LLW, parameters="p1 p2 p3 p4", measured="x3",
          start=UNKNOWN(LLW, "?"), inputs=({"u": PULSE},), lost="p2 p4 x1(t0) x2(t0)",
          functions=("p2*p4", "p2/x1(t0)", "p2*x2(t0)"), several="p1:2 p3:2",
          source="tutorial of StructuralIdentifiability.jl (Lecourtier, Lamnabhi-Lagarrigue, "
          "Walter 1987): p1 + p3, p1 p3, p2 p4"),
    Known(name="bilinear, starts known", slopes=LLW, parameters="p1 p2 p3 p4", measured="x3",
          start={}, inputs=({"u": PULSE},), lost="p2 p4", functions=("p2*p4",), several="p1:2 p3:2",
          source="the same from rest"),
    Known(name="FitzHugh and Nagumo",
          slopes={"V": "c * (V - V ** 3 / 3 + R)", "R": "-(V - a + b * R) / c"}, parameters="a b c",
          measured="V", start={"V": "?", "R": "?"}, lost="",
          source="by hand: V'' has c before V**2 V', b/3 before V**3, and a alone"),
    Known(name="oral dose", slopes={"gut": "-ka * gut", "C": "ka * F * gut / V - ke * C"},
          parameters="ka ke F V", measured="C", start={"gut": 1.0}, lost="F V", functions=("F/V",),
          several="ka:2 ke:2", source="by hand: F / V alone; ka and ke exchange (flip-flop)"),
    Known(name="gas oil, feed", slopes=GAS_OIL, parameters="p1 p2 p3", measured="y1",
          start={"y1": 1.0}, lost="p1 p2 p3", functions=("p1 + p3",),
          source="by hand: y1 obeys an equation with p1 + p3 alone"),
    Known(name="gas oil, product, feed unknown", slopes=GAS_OIL, parameters="p1 p2 p3",
          measured="y2", start={"y1": "?"}, lost="p1 p3 y1(t0)",
          source="by hand: y1 -> a y1, p1 / a**2, p1 + p3 / a"),
    Known(name="Monod, biomass", slopes=GROWTH, parameters="mu K Y", measured="X",
          start={"X": "?", "S": "?"}, lost="K Y S(t0)", functions=("K*Y", "Y*S(t0)"),
          source="by hand: substrate and K a, Y / a; S is linear in X"),
    Known(name="Monod, both", slopes=GROWTH, parameters="mu K Y", measured="X S",
          start={"X": "?", "S": "?"}, lost="",
          source="by hand: 1 / growth rate is linear in 1 / S; yield from both slopes"),
    Known(name="chain, product, feed unknown", slopes=CHAIN, parameters="k1 k2", measured="C",
          start={"A": "?"}, lost="", several="k1:2 k2:2",
          source="by hand: C = A(t0) (1 - two exponentials); k1 and k2 exchange"),
    Known(name="equilibrium, total", **EQUILIBRIUM, measured="total", lost="k K",
          source="by hand: total' = -k K / (1 + K) total"),
    Known(name="equilibrium, one species", **EQUILIBRIUM, measured="A", lost="",
          source="by hand: A(t0) = 1 / (1 + K)"),
    Known(name="dimer, implicit", slopes={"total": "-k * M"},
          algebraic={"M": "M + 2 * K * M ** 2 - total"}, parameters="k K", measured="total",
          start={"total": 3.0}, lost="",
          source="by hand: total' = -k (sqrt(1 + 8 K total) - 1) / (4 K)"),
    Known(name="draining tank", slopes={"h": "(q - c * sqrt(h)) / area"}, parameters="c area",
          measured="h", start={"h": "?"}, inputs=({"q": 0.0},), lost="c area",
          functions=("c/area",), source="by hand: without inflow c / area is all there is"),
    Known(name="fed tank", slopes={"h": "(q - c * sqrt(h)) / area"}, parameters="c area",
          measured="h", start={"h": "?"}, inputs=({"q": 0.5},), lost="",
          source="by hand: q / area and c / area"),
    Known(name="saturating decay", slopes={"A": "-a * tanh(b * A)"}, parameters="a b", measured="A",
          start={"A": 1.0}, lost="",
          source="by hand: a is the slope at large A, a b that of small A"),
)
# fmt: on


WITH_INPUT: dict[str, Any] = {"inputs": ({"u": PULSE},), "bounds": (-10.0, 10.0)}
TESTED = "test/bodies/identifiability.jl of StructuralIdentifiability.jl"
FUNCTIONS = "test/bodies/identifiable_functions.jl of StructuralIdentifiability.jl"
STARTS = "test/bodies/known_ic.jl of StructuralIdentifiability.jl"

# fmt: off
PUBLISHED: tuple[Known, ...] = (
    Known(name="prey with input",
          slopes={"x0": "a * x0 - b * x0 * x1 + u", "x1": "c * x1 + d * x0 * x1"},
          parameters="a b c d", measured="x0", start=UNKNOWN(("x0", "x1"), "?"), lost="b x1(t0)",
          functions=("b*x1(t0)",), source=TESTED, **WITH_INPUT),
    Known(name="two outputs of one angle",
          slopes={"x1": "(1 + x1 ** 2) / 2", "x2": "(1 - x1 ** 2) / (1 + x1 ** 2)"}, parameters="b",
          outputs={"y": "2 * x1 / (b * (1 + x1 ** 2))"}, measured="y x2",
          start=UNKNOWN(("x1", "x2"), "?"), lost="", bounds=(-10.0, 10.0), source=TESTED),
    Known(name="two pools in a row",
          slopes={"x1": "-a1 * x1 + a21 * x2", "x2": "-a2 * x2 - a21 * x2"}, parameters="a1 a2 a21",
          measured="x1", start=UNKNOWN(("x1", "x2"), "?"), lost="a2 a21 x2(t0)", several="a1:2",
          bounds=(-10.0, 10.0), source=TESTED),
    Known(name="two pools in a row with input",
          slopes={"x1": "-a1 * x1 + a21 * x2", "x2": "-a2 * x2 - a21 * x2 + u"},
          parameters="a1 a2 a21", measured="x1", start=UNKNOWN(("x1", "x2"), "?"), lost="",
          several="a1:2 a2:2 x2(t0):2", source=TESTED, **WITH_INPUT),
    Known(name="three compartments with input",
          slopes={**THREE, "x1": THREE["x1"] + " + u"}, parameters="k01 k21 k12 k31 k13",
          measured="x1", start=UNKNOWN(("x1", "x2", "x3"), "?"), lost="",
          several="k21:2 k12:2 k31:2 k13:2 x2(t0):2 x3(t0):2", source=TESTED, **WITH_INPUT),
    Known(name="SEIR, population known",
          slopes={"S": "-b * S * I / 7", "E": "b * S * I / 7 - nu * E", "I": "nu * E - a * I"},
          parameters="b nu a", measured="I", start=UNKNOWN("SEI", "?"), lost="",
          several="nu:2 a:2 S(t0):2 E(t0):2", bounds=(-10.0, 10.0), source=TESTED),
    Known(name="Michaelis and Menten with growth, relative",
          slopes={"x": "-V * x / (K + x) + k01 * x"}, parameters="V K k01 c",
          outputs={"y": "c * x"}, measured="y", start={"x": "?"}, lost="V K c x(t0)",
          functions=("V*c", "K*c", "c*x(t0)"), bounds=(-10.0, 10.0), source=FUNCTIONS),
    Known(name="integrated square", slopes={"x1": "k * x2 ** 2", "x2": "u"}, parameters="k",
          measured="x1", start=UNKNOWN(("x1", "x2"), "?"), lost="", source=FUNCTIONS, **WITH_INPUT),
    Known(name="three in a row, measured and fed at one end",
          slopes={"x1": "-a1 * x1 + b1 * x2 + u", "x2": "-(a2 + b1) * x2 + a1 * x1 + b2 * x3",
           "x3": "-b2 * x3 + a2 * x2"}, parameters="a1 a2 b1 b2", measured="x1",
          start=UNKNOWN(("x1", "x2", "x3"), "?"), lost="", source=FUNCTIONS, **WITH_INPUT),
    Known(name="quadratic, starts unknown",
          slopes={"x1": "p1 * x1 ** 2 + p2 * x1 * x2", "x2": "p3 * x1 ** 2 + p4 * x1 * x2"},
          parameters="p1 p2 p3 p4", measured="x1", start=UNKNOWN(("x1", "x2"), "?"),
          lost="p1 p2 p3 p4 x2(t0)", bounds=(-10.0, 10.0), source=FUNCTIONS),
    Known(name="prey, predators' start known",
          slopes={"x": "a * x - b * x * y", "y": "d * x * y - c * y"}, parameters="a b c d",
          measured="x", start={"x": "?", "y": 1.7}, lost="", bounds=(-10.0, 10.0), source=STARTS),
    Known(name="square of a parameter",
          slopes={"x1": "a + x2 + x3", "x2": "b ** 2 + c", "x3": "-c"}, parameters="a b c",
          measured="x1", start={"x1": "?", "x2": 0.3, "x3": 0.9}, lost="c", several="b:2",
          bounds=(-10.0, 10.0), source=STARTS),
    Known(name="reciprocal, start known", slopes={"x1": "a * x1", "x2": "x1 + 1 / x1"},
          parameters="a", measured="x2", start={"x1": 1.3, "x2": "?"}, lost="",
          bounds=(-10.0, 10.0), source=STARTS),
    Known(name="forced SIRS",
          slopes={"s": "mu - mu * s - b0 * (1 + b1 * x1) * i * s + g * r",
           "i": "b0 * (1 + b1 * x1) * i * s - (nu + mu) * i", "r": "nu * i - (mu + g) * r",
           "x1": "-M * x2", "x2": "M * x1"}, parameters="mu b0 b1 g nu M", measured="i r",
          start=UNKNOWN(("s", "i", "r", "x1", "x2"), "?"), lost="b1 x1(t0) x2(t0)",
          functions=("b1*x1(t0)", "b1*x2(t0)"), undecided="mu b0 g M s(t0)", bounds=(-10.0, 10.0),
          source=FUNCTIONS + ": M**2, the others are unique"),
)
# fmt: on

CASES = {case.name: case for case in (*KNOWN, *PUBLISHED)}


@cache
def checked(name: str) -> Any:
    """What `igpe.check` says of a case."""
    import igpe  # noqa: PLC0415

    return igpe.check(CASES[name].problem())


def cascade(n: int, measured: Iterable[int]) -> Any:
    """The problem of a chain of n states, each made of the one before.

    The first half of the steps saturates: n rates and n / 2 constants. All start at 1.
    """
    import igpe  # noqa: PLC0415

    def rate(m: Any, i: int, t: float) -> Any:
        if i == 0:
            return 0.0
        return m.v[i] * m.x[i, t] / (m.K[i] + m.x[i, t] if i <= n // 2 else 1.0)

    steps = range(1, n + 1)
    constants = {"v": (steps, (0, 1)), "K": (steps[: n // 2], (0, 1))}
    model = row(steps, lambda m, i, t: rate(m, i - 1, t) - rate(m, i, t), indexed=constants)
    table = pd.DataFrame({"time": TIMES, **{f"x[{i}]": TIMES for i in measured}})
    start = {f"x[{i}]": 1.0 for i in range(1, n + 1)}
    run = igpe.Experiment(table, start=start, start_time=0.0)
    return igpe.Problem(model, parameters=["v", "K"], experiments=run)
