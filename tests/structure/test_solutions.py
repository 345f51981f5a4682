"""Numbers of values: published and derived answers, and that nothing more is claimed."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
import sympy
from known_models import CASES, PULSE, TIMES, Known, checked
from ode import over_time

import igpe
from igpe.structure.identifiability import Identifiable
from igpe.structure.posed import expand, pose
from igpe.structure.sensitivity_rows import SeriesStart
from igpe.structure.series import ideal as ideals
from igpe.structure.series.ideal import Ideal, ModularPolynomial, Relations, TooLong, Unrolled
from igpe.structure.solutions import solutions

PRIME = 2**31 - 1


def found(case):
    return igpe.check(case.problem()).exact


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=lambda c: c.name)
def test_known_answers(case):
    """Verdicts, functions of what is lost, and numbers of values."""
    exact = checked(case.name).exact
    functions = tuple(f for c in exact.combinations for f in c.functions)
    assert case.functions in (None, functions)
    assert exact.names(Identifiable.UNDECIDED) == ()
    assert exact.unique <= set(exact.names(Identifiable.YES))
    several = {name: int(n) for name, n in (s.rsplit(":", 1) for s in case.several.split())}
    undecided = set(case.undecided.split())
    assert set(exact.names(Identifiable.NO)) == set(case.lost.split())
    expected = {n: several.get(n, 1) for n in exact.names(Identifiable.YES) if n not in undecided}
    assert dict(exact.values) == expected
    assert bool(exact.why_not) == bool(undecided)


def test_most_known_models_are_decided():
    assert sum(not case.undecided for case in CASES.values()) >= 50


@pytest.mark.parametrize(
    ("name", "unknowns", "functions"),
    [
        ("chain, product, feed unknown", "k1 k2", ("k1 + k2", "k1*k2")),
        ("bilinear, starts unknown", "p1 p3", ("p1 + p3", "p1*p3")),
        ("square of a parameter", "b", ("b**2",)),
        (
            "three compartments, one loss",
            "k21 k12 k31 k13",
            ("k21 + k31", "k12 + k13", "k21*k31", "k12*k13"),
        ),
        (
            "SEIR, prevalence, population unknown",
            "a nu S(t0) E(t0)",
            ("a + nu", "a*nu", "nu*S(t0)"),
        ),
    ],
)
def test_what_is_the_same_for_all_values(name, unknowns, functions):
    (one,) = checked(name).exact.alternatives
    assert (one.unknowns, one.number, one.functions) == (tuple(unknowns.split()), 2, functions)


def simulated(case, values):
    problem = case.problem()
    return igpe.simulate(problem, values, times=np.linspace(0, 1, 21))[case.measured.split()]


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        (
            "HIV, virus and cells",
            {"delta": 0.7, "c": 3.0, "I(t0)": 2.0},
            {"delta": 3.0, "c": 0.7, "I(t0)": 2.0 - 1.5 * 2.3 / 4.0},
        ),
        (
            "SEIR, prevalence, population unknown",
            {"a": 1.2, "nu": 0.5, "S(t0)": 4.0, "E(t0)": 3.0},
            {"a": 0.5, "nu": 1.2, "S(t0)": 4.0 * 0.5 / 1.2, "E(t0)": (0.5 * 3.0 - 0.7 * 1.5) / 1.2},
        ),
    ],
)
def test_other_values_that_are_claimed_give_the_same_outputs(name, one, other):
    rest = {"s": 2.0, "d": 0.3, "beta": 0.4, "p": 4.0, "T(t0)": 3.0, "V(t0)": 1.5}
    rest |= {"b": 0.9, "N": 3.0, "I(t0)": 1.5}
    names = CASES[name].problem().box.names
    runs = [simulated(CASES[name], {n: (rest | v)[n] for n in names}) for v in (one, other)]
    np.testing.assert_allclose(runs[0], runs[1], rtol=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        "FitzHugh and Nagumo",
        "dimer, implicit",
        "fed tank",
        "STAT5, amount known",
        "Arrhenius, ramp",
    ],
)
def test_equations_hold_at_the_point_they_were_made_at(name):
    problem = CASES[name].problem()
    posed = [pose(problem, i) for i in range(len(problem.experiments))]
    experiments = expand(problem, posed)
    n = len(problem.box)
    random = np.random.default_rng(4)
    first = [replace(e.dynamics, pieces=e.dynamics.pieces[:1]) for e in experiments]
    start = SeriesStart(first, n, random, generic=False)
    for course in start.courses:
        for _ in range(5):
            course.advance()
    for k, prime in enumerate(start.primes):
        relations = Relations(prime)
        q = [relations.unknown(int(v)) for v in start.point.q[k]]
        runs = [
            Unrolled(course, k, [q[c] for c in course.dynamics.columns], relations)
            for course in start.courses
        ]
        for run, course in zip(runs, start.courses, strict=True):
            for order in range(4):
                told = [relations.value(a) for a in run.advance()]
                assert told == [int(number[k, 0]) for number in course.outputs[order]]
        assert relations.equations
        assert all(relations.value(a) == 0 for a in relations.equations)


def variable(i):
    return ModularPolynomial({(i,): 1}, PRIME)


X, Y = variable(0), variable(1)
CIRCLE, LINE = X**2 + Y**2 - 25, X + Y - 7


def test_an_ideal_knows_its_solutions():
    ideal = Ideal([CIRCLE, LINE], PRIME, 1e6)
    assert ideal.degree(X, 5) == ideal.degree(Y, 5) == 2
    assert ideal.degree(X + Y, 5) == 1
    assert ideal.reduced(X * Y).constant == 12
    assert ideal.degree(variable(2), 5) is None  # of which nothing is said
    with pytest.raises(TooLong):
        Ideal([CIRCLE, CIRCLE, X * Y], PRIME, 3)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_linear_consequences_leave_the_ideal_as_it_is(count, monkeypatch):
    """Random conics through a point: none, some or all variables follow without a basis."""
    random, monomials = np.random.default_rng(count), [(0, 0), (0, 1), (1, 1), (0,), (1,)]
    conics = []
    for _ in range(count):
        terms = {m: int(random.integers(1, 100)) for m in monomials}
        conic = ModularPolynomial(terms, PRIME)
        conics.append(conic - conic.value([3, 5]))
    checked_forms = []
    for most in (ideals.MOST_ENTRIES, 0):
        monkeypatch.setattr(ideals, "MOST_ENTRIES", most)
        ideal = Ideal(conics, PRIME, 1e6)
        degrees = [ideal.degree(a, 9) for a in (X, Y, X + Y)]
        checked_forms.append((degrees, [ideal.reduced(a).constant for a in (X, Y, X * Y)]))
    assert checked_forms[0] == checked_forms[1]
    assert (checked_forms[0][1] == [3, 5, 15]) == (count > 2)


def test_linear_consequences_need_no_sympy():
    script = (
        "import sys; from igpe.structure.series.ideal import Ideal, ModularPolynomial; "
        "x, y = (ModularPolynomial({(i,): 1}, 101) for i in (0, 1)); "
        "ideal = Ideal([x * y - 6, x * x * y - 12, x * y * y - 18], 101, 1e6); "
        "assert ideal.reduced(x).constant == 2; raise SystemExit('sympy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_normal_forms_agree_with_those_over_the_rationals():
    """Three variables; SymPy computes the same basis over the rationals, by other orders."""
    x, y, z = sympy.symbols("x y z")
    system = [x**2 - y * z - 1, y**2 - z - 2, x + y + z - 4]
    equations = [
        ModularPolynomial(
            {
                tuple(i for i, e in enumerate(m) for _ in range(e)): int(c)
                for m, c in sympy.Poly(a, x, y, z).terms()
            },
            PRIME,
        )
        for a in system
    ]
    ideal = Ideal(equations, PRIME, 1e6)
    basis = sympy.groebner(system, x, y, z, order="lex")
    assert ideal.degree(variable(2), 10) == sympy.Poly(basis.exprs[-1], z).degree() > 2


def test_signs_that_bounds_exclude_do_not_count():
    free = CASES["square of a parameter"]
    assert found(free).values["b"] == 2
    assert found(replace(free, bounds=(0.0, 10.0))).values["b"] == 1
    assert found(replace(free, bounds=(-10.0, 0.0))).values["b"] == 1


@pytest.mark.parametrize(
    ("power", "free", "positive"), [(2, 2, 1), (3, 1, 1), (4, 4, 1), (5, 1, 1), (1.5, 1, 1)]
)
def test_powers_of_an_unknown_have_real_roots(power, free, positive):
    case = Known("power", {"A": lambda v: -(v.k**power) * v.A}, "k", "A", {"A": 1.0}, "", "")
    assert found(replace(case, bounds=(-10.0, 10.0))).values == {"k": free}
    assert found(case).values == {"k": positive}


def test_a_sign_that_is_known_settles_others():
    """u, k**2 and k m are known: m follows k's sign."""
    case = Known(
        "signs",
        {"A": "u - k ** 2 * A", "B": "k * m - B"},
        "k m",
        "A B",
        {"A": 1.0},
        "",
        "by hand",
        inputs=({"u": PULSE},),
        bounds=(-10.0, 10.0),
    )
    assert found(case).values == {"k": 2, "m": 2}
    assert found(replace(case, bounds=(0.0, 10.0))).values == {"k": 1, "m": 1}


def test_a_chain_of_which_only_the_end_is_measured():
    """By hand: the end is a product over (s + k0) (s + k1) (s + k2) (s + k3) of k0 k1 k2 alone."""
    names = [f"k{i}" for i in range(4)]

    def slope(i):
        def right(v):
            rates = [getattr(v, k) * getattr(v, f"x{j}") for j, k in enumerate(names)]
            return (rates[i - 1] if i else 0.0) - rates[i]

        return right

    slopes = {f"x{i}": slope(i) for i in range(4)}
    exact = found(Known("pools", slopes, " ".join(names), "x3", {"x0": 1.0}, "", ""))
    assert exact.values == {"k0": 3, "k1": 3, "k2": 3, "k3": 1}
    (one,) = exact.alternatives
    assert one.number == 6
    assert one.functions == ("k0 + k1 + k2", "k0*k1 + k0*k2 + k1*k2")


def test_a_function_that_is_not_one_to_one_leaves_its_argument_open():
    case = Known("angle", {"A": "-sin(p) * A"}, "p", "A", {"A": 1.0}, "", "")
    exact = found(case)
    assert exact.names(Identifiable.YES) == ("p",)
    assert exact.values == {}
    assert "may allow other values" in exact.why_not
    one_to_one = replace(case, slopes={"A": "-exp(p) * A"})
    assert found(one_to_one).values == {"p": 1}


def test_arrhenius_laws_that_share_an_energy():
    """k1 exp(-E / T) of two temperatures, k2 exp(-2 E / T) of one of them follows."""
    slopes = {
        "A": "-k1 * exp(-E / T) * A",
        "B": "k1 * exp(-E / T) * A - k2 * exp(-2 * E / T) * B",
    }
    one = {"T": 1.0}
    case = Known("two steps", slopes, "k1 k2 E", "B", {"A": 1.0}, "k1 k2 E", "", inputs=(one,))
    assert found(case).values == {}
    both = replace(case, inputs=(one, {"T": 1.1}))
    # the two rates exchange at each temperature, but not at both with these laws
    exact = found(both)
    assert exact.names(Identifiable.YES) == ("k1", "k2", "E")
    assert set(exact.values.values()) <= {1}


def test_what_is_measured_once_is_not_used_to_count():
    """Of the chain's two rates the intermediate, measured once, would tell which is which."""
    case = CASES["chain, product, feed unknown"]
    table = pd.DataFrame({"time": TIMES, "C": TIMES, "B": [np.nan] * 5 + [1.0]})
    start = {"A": igpe.Unknown(0.0, 10.0), "B": 0.0, "C": 0.0}
    run = igpe.Experiment(table, start=start, start_time=0.0)
    exact = igpe.check(igpe.Problem(case.model, parameters=["k1", "k2"], experiments=run)).exact
    assert exact.values == {"A(t0)": 1}
    assert "once or twice" in exact.why_not


def test_what_alone_is_measured_once_is_undecided():
    case = Known("two", {"A": "-k * A", "B": "m ** 2"}, "k m", "A B", {}, "", "")
    table = pd.DataFrame({"time": TIMES, "A": TIMES, "B": [np.nan] * 5 + [1.0]})
    run = igpe.Experiment(table, start={"A": 1.0, "B": 0.0}, start_time=0.0)
    found = igpe.check(igpe.Problem(case.model, parameters=["k", "m"], experiments=run))
    assert found.exact.values == {"k": 1}
    assert found["m"].verdict is Identifiable.YES
    assert (
        "Global identifiability of m is undecided: quantities that are measured once or twice "
        "are not used." in str(found)
    )


def test_further_orders_are_asked_where_starts_are_special():
    """x from rest: the first order with k comes late; what it says of its sign comes later."""
    case = Known(
        "late",
        {"x": "z - k ** 2 * x", "z": "w", "w": "1 - k * x * z"},
        "k",
        "x",
        {},
        "",
        "by hand: x''' = 1 - k**2 x'' - k x z",
        bounds=(-10.0, 10.0),
    )
    assert found(case).values == {"k": 1}


def test_words():
    text = str(checked("chain, product, feed unknown"))
    assert "locally identifiable, with up to 2 values\n" in text
    assert (
        "k1 and k2 have up to 2 sets of values that give the same measurements; the "
        "following are the same for all these sets of values: k1 + k2, k1*k2" in text
    )
    assert "igpe counted the possible values with Gröbner bases at four random points;" in text
    text = str(checked("Goodwin, rational"))
    said = "Global identifiability of b, c, beta, delta, sigma, x4(t0) is undecided: the comp"
    assert said in text
    text = str(checked("Bolie, both"))
    assert "Groebner" not in text
    table = checked("chain, product, feed unknown").to_frame()
    assert list(table["globally"]) == ["up to 2 values", "up to 2 values", "yes"]


def test_limits_of_work_leave_it_undecided():
    problem = CASES["chain, product, feed unknown"].problem()
    posed = [pose(problem, i) for i in range(len(problem.experiments))]
    told = solutions(
        expand(problem, posed),
        problem.box.names,
        one_sign=[True] * 3,
        seed=0,
        most_work=10.0,
    )
    assert told.values == {}
    assert told.why == "the computation takes too long"


def test_a_substitution_that_would_last_for_minutes_is_too_long():
    """Eight variables in place of one that has a power of 40: 63 million terms."""
    sums = sum((variable(i) for i in range(8)), variable(8))
    with pytest.raises(TooLong):
        Ideal([sums, variable(8) ** 40 + X**2, Y**3 + sums], PRIME, 1e5)


def test_writing_down_long_series_is_too_long():
    problem = CASES["FitzHugh and Nagumo"].problem()
    (experiment,) = expand(problem, [pose(problem, 0)])
    random, n = np.random.default_rng(4), len(problem.box)
    start = SeriesStart([experiment.dynamics], n, random, generic=False)
    relations = Relations(start.primes[0], 100.0)
    q = [relations.unknown(int(v)) for v in start.point.q[0]]
    run = Unrolled(start.courses[0], 0, q, relations)
    for _ in range(20):
        start.courses[0].advance()
    with pytest.raises(TooLong):
        [run.advance() for _ in range(20)]


def test_a_start_that_is_a_root_of_unknowns():
    def model(times):
        m = over_time(times, "x", a=(0.1, 9.0), k=(0.1, 9.0))
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dx[t] == -m.k * m.x[t] ** 2)
        m.begin = pyo.Constraint(expr=m.x[m.t.first()] == (pyo.sqrt(m.a**2 + 4 * m.k) - m.a) / 2)
        return m

    run = igpe.Experiment(pd.DataFrame({"time": TIMES, "x": 1.0 + 0 * np.array(TIMES)}))
    posed = igpe.Problem(model, parameters=["a", "k"], experiments=run)
    told = solutions(
        expand(posed, [pose(posed, 0)]), ["a", "k"], one_sign=[True, True], seed=0, most_work=1e5
    )
    assert told.values.get(1, 1) == 1
    assert told.why
