"""Experiments of which it is known by hand what can be identified: inputs, windows and starts.

The same model is identifiable or not as its inputs are: how many levels they have while something
is measured, whether they vary at all, and whether the states leave their start. Each `source` is
the derivation.
"""

import pyomo.environ as pyo
from known_models import SIR, TWO, Known

import igpe

SATURATING = {"x": "V * s / (K + s) - d * x"}
QUADRATIC = {"x": "-(a + b * s + c * s ** 2) * x"}
LINEAR = {"x": "-(a + b * u) * x"}
WARM = {"x": "-k * exp(-E * (1 / T - 1)) * x"}
MODIFIED = {"x": "-k * exp(-E * (1 / T - 1)) * T ** n * x"}
RISE = {"x": "1 - x"}


def hill(exponent: float | str, x: str = RISE["x"]) -> dict[str, str]:
    """A response to x, which rises to 1, or obeys another equation."""
    return {"x": x, "z": f"p * x**{exponent} / (K**{exponent} + x**{exponent}) - d * z"}


STEP = {"u": igpe.step_input([0, 0.4], [0.0, 1.0])}
DOSE = {"u": igpe.step_input([0, 0.2, 0.3], [0.0, 1.0, 0.0])}
ONE = {"x": 1.0}

# fmt: off
STEPS: tuple[Known, ...] = (
    Known("saturating feed, one step from nothing", SATURATING, "V K d", "x", ONE, "V K",
          "x' = -d x, then 2 V / (K + 2) - d x: (V, K) = (2, 2) and (3, 4) are alike",
          inputs=({"s": igpe.step_input([0, 0.4], [0.0, 2.0])},)),
    Known("saturating feed, one step, empty at first", SATURATING, "V K d", "x", {}, "V K",
          "x stays 0 until the step, then rises by 2 V / (K + 2) and d",
          inputs=({"s": igpe.step_input([0, 0.4], [0.0, 2.0])},)),
    Known("saturating feed, two levels", SATURATING, "V K d", "x", ONE, "",
          "V / (K + 1) and 2 V / (K + 2): their ratio has one K",
          inputs=({"s": igpe.step_input([0, 0.3, 0.6], [0.0, 1.0, 2.0])},)),
    Known("saturating feed, second level after the last measurement", SATURATING, "V K d", "x", ONE,
          "V K", "only V / (K + 1) is seen",
          inputs=({"s": igpe.step_input([0, 0.3, 2.0], [0.0, 1.0, 2.0])},)),
    Known("saturating feed, ramp", SATURATING, "V K d", "x", ONE, "",
          "V s / (K + s) for all s in an interval",
          inputs=({"s": igpe.linear_input([0, 1], [0.0, 2.0])},)),
    Known("quadratic rate, two levels", QUADRATIC, "a b c", "x", ONE, "a b c",
          "a + b + c and a + 2 b + 4 c: two rates of three unknowns, none of them alone",
          inputs=({"s": igpe.step_input([0, 0.5], [1.0, 2.0])},)),
    Known("quadratic rate, two levels, one of them 0", QUADRATIC, "a b c", "x", ONE, "b c",
          "a, then a + b + c", inputs=({"s": igpe.step_input([0, 0.5], [0.0, 1.0])},),
          functions=("b + c",)),
    Known("quadratic rate, there and back", QUADRATIC, "a b c", "x", ONE, "a b c",
          "three pieces of two levels are two rates",
          inputs=({"s": igpe.step_input([0, 0.3, 0.6], [1.0, 2.0, 1.0])},)),
    Known("quadratic rate, three levels", QUADRATIC, "a b c", "x", ONE, "",
          "a polynomial of degree 2 at three places",
          inputs=({"s": igpe.step_input([0, 0.3, 0.6], [1.0, 2.0, 3.0])},)),
    Known("quadratic rate, levels of two experiments", QUADRATIC, "a b c", "x", ONE, "",
          "levels 1, then 2 and 3",
          inputs=({"s": 1.0}, {"s": igpe.step_input([0, 0.5], [2.0, 3.0])})),
    Known("quadratic rate, the same two levels in two experiments", QUADRATIC, "a b c", "x", ONE,
          "a b c", "levels 1 and 2 again",
          inputs=({"s": 1.0}, {"s": igpe.step_input([0, 0.5], [2.0, 1.0])})),
    Known("two rates, one step", LINEAR, "a b", "x", ONE, "", "a, then a + b", inputs=(STEP,)),
    Known("two rates, step after the last measurement", LINEAR, "a b", "x", ONE, "a b",
          "a + b alone", inputs=({"u": igpe.step_input([0, 5], [1.0, 3.0])},),
          functions=("a + b",)),
    Known("two rates, step at the last measurement", LINEAR, "a b", "x", ONE, "a b",
          "what is measured at a jump is measured just before it",
          inputs=({"u": igpe.step_input([0, 1.0], [1.0, 3.0])},), functions=("a + b",)),
    Known("two rates, last measurement before the step", LINEAR, "a b", "x", ONE, "b",
          "u = 0 while it is measured", inputs=(STEP,), times=(0.1, 0.2, 0.3, 0.35)),
    Known("two rates, table that begins after the horizon", LINEAR, "a b", "x", ONE, "a b",
          "the first value is held before the table begins",
          inputs=({"u": igpe.linear_input([2, 3], [1.0, 4.0])},), functions=("a + b",)),
    Known("two rates, ramp that is level within the horizon", LINEAR, "a b", "x", ONE, "b",
          "u = 0 up to t = 1.5", inputs=({"u": igpe.linear_input([0, 1.5, 3], [0.0, 0.0, 4.0])},)),
    Known("two rates, ramp that goes on beyond the horizon", LINEAR, "a b", "x", ONE, "",
          "ln x = -a t - b t**2 / 2", inputs=({"u": igpe.linear_input([0, 10], [0.0, 10.0])},)),
    Known("two rates, input as a function", LINEAR, "a b", "x", ONE, "", "(ln x)' = -a - b exp(-t)",
          inputs=({"u": lambda t: pyo.exp(-t)},)),
    Known("two rates, second experiment's step beyond the horizon", LINEAR, "a b", "x", ONE, "b",
          "u = 0 in both while they are measured",
          inputs=({"u": 0.0}, {"u": igpe.step_input([0, 5], [0.0, 1.0])})),
    Known("two rates, measured twice before the step", LINEAR, "a b", "x", ONE, "a b",
          "a + b, twice", inputs=({"u": igpe.step_input([0, 0.5], [1.0, 2.0])},), times=(0.2, 0.4)),
    Known("two rates, measured before and after the step", LINEAR, "a b", "x", ONE, "",
          "a + b, and from the second measurement 0.5 (a + b) + 0.3 (a + 2 b)",
          inputs=({"u": igpe.step_input([0, 0.5], [1.0, 2.0])},), times=(0.2, 0.8)),
    Known("two rates, measured once after the step", LINEAR, "a b", "x", ONE, "a b",
          "one number of two unknowns", inputs=({"u": igpe.step_input([0, 0.5], [1.0, 2.0])},),
          times=(0.8,)),
    Known("light off, then on", {"A": "-k * u * A"}, "k", "A", {"A": "?"}, "",
          "A stays at its start, then falls by k", inputs=(STEP,)),
    Known("light on after the last measurement", {"A": "-k * u * A"}, "k", "A", {"A": "?"}, "k",
          "A stays at its start", inputs=({"u": igpe.step_input([0, 2], [0.0, 1.0])},)),
    Known("fed and scaled", {"x": "k * u - d * x"}, "k d s", "y", {}, "k s", "x -> a x, k a, s / a",
          outputs={"y": "s * x"}, inputs=(STEP,), functions=("k*s",)),
    Known("dose into the gut", {"gut": "u - ka * gut", "C": "ka * gut / V - ke * C"}, "ka ke V",
          "C", {}, "", "(ka / V) / ((s + ka) (s + ke)): ka and ke exchange, and V follows",
          inputs=(DOSE,), several="ka:2 ke:2 V:2"),
    Known("two compartments, two losses, dose as a pulse",
          {"x1": "u - (k01 + k21) * x1 + k12 * x2", "x2": "k21 * x1 - (k12 + k02) * x2"},
          "k01 k21 k12 k02", "x1", {}, "k01 k21 k12 k02",
          "Bellman and Astrom 1970: k01 + k21, k12 + k02, k12 k21, whatever the dose",
          inputs=(DOSE,)),
    Known("two compartments, one loss, dose as a pulse",
          {**TWO, "x1": "u + " + TWO["x1"]}, "k01 k21 k12", "x1", {}, "",
          "transfer function (s + k12) / (s**2 + (k01 + k21 + k12) s + k01 k12)", inputs=(DOSE,)),
    Known("leaking tank, one inflow", {"h": "(q - c * h - d) / area"}, "c d area", "h", {"h": 1.0},
          "c d area", "(0.5 - d) / area and c / area",
          inputs=({"q": igpe.step_input([0, 3], [0.5, 1.0])},)),
    Known("leaking tank, two inflows", {"h": "(q - c * h - d) / area"}, "c d area", "h", {"h": 1.0},
          "", "1 / area from the change of slope",
          inputs=({"q": igpe.step_input([0, 0.5], [0.5, 1.0])},)),
    Known("Vajda, a step from rest",
          {"x1": "p1 * x1 ** 2 + p2 * x1 * x2 + u", "x2": "p3 * x1 ** 2 + x1 * x2"}, "p1 p2 p3",
          "x1", {}, "p2 p3", "x2 -> a x2, p2 / a, p3 a", inputs=(STEP,), functions=("p2*p3",)),
    Known("Michaelis and Menten, fed from empty, relative", {"S": "u - Vm * S / (Km + S)"},
          "Vm Km c", "y", {}, "", "the feed fixes the scale: y' = c u at the step",
          outputs={"y": "c * S"}, inputs=(STEP,)),
    Known("three tanks in a row, fed late",
          {"x1": "u - a * x1", "x2": "x1 - b * x2", "x3": "x2 - c * x3"}, "a b c", "x3", {}, "",
          "1 / ((s + a) (s + b) (s + c)): all orders of the three", inputs=(STEP,),
          several="a:3 b:3 c:3"),
)
# fmt: on

# fmt: off
TEMPERATURES: tuple[Known, ...] = (
    Known("Arrhenius, a table of one level", WARM, "k E", "x", ONE, "k E", "one rate constant",
          inputs=({"T": igpe.step_input([0, 0.5], [1.25, 1.25])},), functions=("k*exp(c*E)",)),
    Known("Arrhenius, one step of temperature", WARM, "k E", "x", ONE, "", "two rate constants",
          inputs=({"T": igpe.step_input([0, 0.5], [1.25, 1.5])},)),
    Known("Arrhenius, ramp after the last measurement", WARM, "k E", "x", ONE, "k E",
          "one temperature while it is measured",
          inputs=({"T": igpe.linear_input([0, 1.2, 3], [1.25, 1.25, 1.5])},),
          functions=("k*exp(c*E)",)),
    Known("modified Arrhenius, one step", MODIFIED, "k E n", "x", ONE, "k E n",
          "two rate constants of three unknowns",
          inputs=({"T": igpe.step_input([0, 0.5], [1.25, 1.5])},)),
    Known("modified Arrhenius, one step from the reference", MODIFIED, "k E n", "x", ONE, "E n",
          "at T = 1 the rate constant is k; the other is one number of E and n",
          inputs=({"T": igpe.step_input([0, 0.5], [1.0, 1.5])},)),
    Known("modified Arrhenius, two steps", MODIFIED, "k E n", "x", ONE, "",
          "ln k, E and n are linear in three logarithms, with 1, 1 / T and ln T independent",
          inputs=({"T": igpe.step_input([0, 0.3, 0.6], [1.25, 1.5, 1.75])},)),
    Known("modified Arrhenius, second step after the last measurement", MODIFIED, "k E n", "x", ONE,
          "k E n", "two temperatures are seen",
          inputs=({"T": igpe.step_input([0, 0.3, 1.6], [1.25, 1.5, 1.75])},)),
    Known("modified Arrhenius, two experiments", MODIFIED, "k E n", "x", ONE, "k E n",
          "two temperatures", inputs=({"T": 1.25}, {"T": 1.5})),
    Known("modified Arrhenius, three experiments", MODIFIED, "k E n", "x", ONE, "",
          "three temperatures", inputs=({"T": 1.25}, {"T": 1.5}, {"T": 1.75})),
    Known("modified Arrhenius, ramp", MODIFIED, "k E n", "x", ONE, "",
          "1, 1 / T and ln T are independent on an interval",
          inputs=({"T": igpe.linear_input([0, 1], [1.25, 1.75])},)),
)
# fmt: on

# fmt: off
STARTS: tuple[Known, ...] = (
    Known("Hill 2 from rest", hill(2), "p K d", "z", {}, "", "x and z rise from 0, x up to 1"),
    Known("Hill 6 from rest", hill(6), "p K d", "z", {}, "",
          "p x**6 / (K**6 + x**6) for x in an interval; the series of z begins at order 7"),
    Known("Hill 4 at rest for ever", {**hill(4), "x": "k * (1 - x)"}, "p K d k", "z", {"x": 1.0},
          "p K k", "x stays 1: z' = p / (K**4 + 1) - d z"),
    Known("unknown Hill exponent, falling signal", hill("n", "-k * x"), "p K n d k", "x z",
          {"x": 1.0}, "", "p / (1 + K**n x**-n) for x in an interval determines p, n and K**n"),
    Known("unknown Hill exponent, constant signal", hill("n", "k * (1 - x)"), "p K n d k", "z",
          {"x": 1.0}, "p K n k", "x stays 1: z' = p / (K**n + 1) - d z"),
    Known("rise from rest", {"x": "k * (1 - x)"}, "k", "x", {}, "", "x = 1 - exp(-k t)"),
    Known("start at the steady state", {"x": "k * (1 - x)"}, "k", "x", ONE, "k", "x stays 1"),
    Known("start at an unknown steady state", {"x": "k * (m - x)"}, "k m", "x", ONE, "",
          "x = m + (1 - m) exp(-k t), and nearly all m are not 1"),
    Known("growth from nothing", {"x": "mu * x * (1 - x)"}, "mu", "x", {}, "mu", "x stays 0"),
    Known("growth from a little", {"x": "mu * x * (1 - x)"}, "mu", "x", {"x": 0.1}, "",
          "mu = x' / (x (1 - x))"),
    Known("no catalyst", {"x": "-k * c * x", "c": "-d * c"}, "k d", "x", ONE, "k d",
          "c stays 0, and x stays 1"),
    Known("SIR without infected", SIR, "beta gamma", "S I", {"S": 1.0}, "beta gamma", "I stays 0"),
    Known("Lotka and Volterra without predators",
          {"x": "a * x - b * x * y", "y": "d * x * y - c * y"}, "a b c d", "x y", ONE, "b c d",
          "y stays 0"),
    Known("Monod without substrate",
          {"X": "mu * S * X / (K + S)", "S": "-mu * S * X / (Y * (K + S))"}, "mu K Y", "X S",
          {"X": 1.0}, "mu K Y", "S stays 0"),
    Known("equal amounts react", {"A": "-a * A * B", "B": "-b * A * B"}, "a b", "A",
          {"A": 1.0, "B": 1.0}, "", "B = 1 - b / a (1 - A): A' = -A (a - b (1 - A))"),
    Known("sum of two decays", {"x1": "-a * x1", "x2": "-b * x2"}, "a b", "y",
          {"x1": 1.0, "x2": 1.0}, "", "exp(-a t) + exp(-b t): a and b exchange",
          outputs={"y": "x1 + x2"}, several="a:2 b:2"),
    Known("sum of two decays, one of nothing", {"x1": "-a * x1", "x2": "-b * x2"}, "a b", "y",
          {"x2": 1.0}, "a", "x1 stays 0", outputs={"y": "x1 + x2"}),
    Known("scaled sum", {"x1": "-k * x1", "x2": "k * x1"}, "k s", "y", {"x1": 1.0}, "k",
          "x1 + x2 stays 1: y = s", outputs={"y": "s * (x1 + x2)"}),
)
# fmt: on

# fmt: off
TIME: tuple[Known, ...] = (
    Known("deactivation", {"x": "-a * exp(-b * t) * x"}, "a b", "x", ONE, "",
          "(ln x)' = -a exp(-b t)"),
    Known("deactivation, measured once", {"x": "-a * exp(-b * t) * x"}, "a b", "x", ONE, "a b",
          "one number of two unknowns", times=(0.8,)),
    Known("deactivation, scaled", {"x": "-a * exp(-b * t) * x"}, "a b s", "y", {"x": "?"},
          "s x(t0)", "x -> c x", outputs={"y": "s * x"}, functions=("s*x(t0)",)),
    Known("decaying source", {"x": "a * b * exp(-c * t) - d * x"}, "a b c d", "x", {}, "a b",
          "a b (exp(-c t) - exp(-d t)) / (d - c): c and d exchange", functions=("a*b",),
          several="c:2 d:2"),
    Known("known pulse", {"x": "a * exp(-((t - 0.5) / 0.1) ** 2) - k * x"}, "a k", "x", {}, "",
          "x' is linear in a and k, with functions that are independent"),
    Known("quadratic in time", {"x": "a + b * t + c * t ** 2"}, "a b c", "x", {}, "",
          "x = a t + b t**2 / 2 + c t**3 / 3"),
    Known("oscillating source", {"x": "a * sin(3 * t) - b * x + c"}, "a b c", "x", {}, "",
          "x' is linear in a, b and c, with functions that are independent"),
    Known("time that multiplies a sum", {"x": "-(a + b) * t * x"}, "a b", "x", ONE, "a b",
          "ln x = -(a + b) t**2 / 2", functions=("a + b",)),
)
# fmt: on

# fmt: off
SWITCHED: tuple[Known, ...] = (
    Known("two rates, switched while measured", {"x": "-Expr_if(t >= 0.4, a, b) * x"}, "a b", "x",
          ONE, "", "b up to t = 0.4, then a"),
    Known("two rates, switched after the last measurement", {"x": "-Expr_if(t >= 4, a, b) * x"},
          "a b", "x", ONE, "a", "b alone is seen"),
    Known("product, switched on", {"x": "Expr_if(t >= 0.4, a * b, 0) - c * x"}, "a b c", "x", ONE,
          "a b", "c up to t = 0.4, then a b as well", functions=("a*b",)),
)
# fmt: on
"""Switches at known times, in the equations."""

DESIGNS = (*STEPS, *TEMPERATURES, *STARTS, *TIME, *SWITCHED)
