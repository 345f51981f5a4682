"""Is the true value inside? Each check counts how often it is not; correct code gives 0.

The same checks must find code that was broken on purpose (`proofs/checker/test_mutations.py`).
True values are fractions where only + - * / are used, mpmath's where a function is, and an
accurate integration where time is.
"""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement
from math import prod
from typing import Any, NamedTuple

import casadi as ca
import mpmath
import numpy as np
import sympy
from evaluated import Evaluated
from plain import CHECKER, plain
from scipy.integrate import solve_ivp

import igpe
from igpe.equations.compiled import compiled
from igpe.problem.inputs import Table
from igpe.proofs.checker import confirm
from igpe.proofs.checker.experiments import Factored, Replay, line, replay_tape, replays
from igpe.proofs.checker.interval import Interval

K = plain("checker", CHECKER)  # a fault can be planted in each
LENGTHS = (1e-3, 1.0, 1e3)
INTEGRATED = 1e-10  # relative: how exact the integration is that we compare with


def numbers(seed: int, n: int) -> np.ndarray:
    """Of many sizes, with long mantissas."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) * rng.choice(LENGTHS, n) / 3


def of_intervals(seed: int) -> int:
    """+ - * / and squares of intervals, at rational points inside."""
    rng = np.random.default_rng(seed)
    n = 60
    a, b = (_intervals(seed + k, n) for k in (1, 2))
    share = [Fraction(int(k), 8) for k in rng.integers(0, 9, 2 * n)]
    wrong = 0
    found = {"+": a + b, "-": a - b, "/": a / b, "s": a.square()}
    for k in range(n):
        x, y = _inside(a, k, share[k]), _inside(b, k, share[n + k])
        true = {"+": x + y, "-": x - y, "*": x * y, "s": x * x}
        if y:
            true["/"] = x / y
        ends = {name: (float(one.low[k]), float(one.high[k])) for name, one in found.items()}
        wrong += sum(not _holds(ends[name], true[name]) for name in ends if name in true)
        single = _single(a, b, k)
        wrong += sum(not _holds(single[name], value) for name, value in true.items())
    return wrong


def _single(a: Interval, b: Interval, k: int) -> dict[str, tuple[float, float]]:
    """Results of the kernels."""
    kernel, ends = K["intervals"], (a.low[k], a.high[k], b.low[k], b.high[k])
    names = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
    with np.errstate(all="ignore"):
        found = {name: getattr(kernel, function)(*ends) for name, function in names.items()}
    return found | {"s": kernel.square(*ends[:2])}


def _holds(ends: tuple[float, float], value: Fraction) -> bool:
    low, high = ends
    return (low == -np.inf or Fraction(low) <= value) and (
        high == np.inf or value <= Fraction(high)
    )


def of_functions(seed: int) -> int:
    """Taylor coefficients of the elementary functions, against mpmath's to 40 digits."""
    x = _intervals(seed, 20)
    x = Interval(np.clip(x.low, -30, 30), np.clip(x.high, -30, 30))  # mpmath differentiates there
    least = np.abs(x.low) + 1e-3
    positive = Interval(least, least + (x.high - x.low))
    kernel = K["intervals"]
    known = [
        (kernel.EXP, mpmath.exp, x),
        (kernel.SIN, mpmath.sin, x),
        (kernel.COS, mpmath.cos, x),
        (kernel.LOG, mpmath.log, positive),
        (kernel.SQRT, mpmath.sqrt, positive),
    ]
    wrong = 0
    with mpmath.workdps(40):
        for ours, true, domain in known:
            for k in range(20):
                found = np.empty((5, 2))
                kernel.series(ours, domain.low[k], domain.high[k], 4, found)
                at = mpmath.mpf(float(domain.low[k] if k % 2 else domain.high[k]))
                exact = mpmath.taylor(true, at, 4)
                tiny = mpmath.mpf(10) ** -22  # mpmath's differences are so exact
                wrong += sum(
                    not (low <= v + tiny * abs(v) and v - tiny * abs(v) <= high)
                    for (low, high), v in zip(found.tolist(), exact, strict=True)
                )
    return wrong


Evaluation = Callable[..., Any]
"""Of a CasADi vector of two numbers, or of a list of two fractions or mpmath's numbers."""


def of_polynomials(seed: int) -> int:
    """Sums, differences, products, squares and ends of polynomials, at rational points."""
    return _of_expressions(
        seed,
        lambda x, y: [x + y, x - y, -x * y, x * x, (x * y) * x, (x * y - y) * (x * y - y)],
        spread=1.0,
    )


def of_quotients(seed: int) -> int:
    """Quotients of polynomials, at rational points."""
    return _of_expressions(
        seed, lambda x, y: [x / (4 + y), (x * y) / (x - 4), 3 / (4 + x * y)], spread=1.0
    )


def of_functions_of_polynomials(seed: int) -> int:
    """exp, log, quotients, sqrt and sin of polynomials, at rational points."""

    def functions(x: Any, y: Any) -> list[Any]:
        of = ca if isinstance(x, ca.SX) else mpmath
        return [of.exp(x), of.log(x), 1 / x, of.sqrt(x), of.sin(x), of.cos(x), of.tanh(x * y)]

    return _of_expressions(seed, functions, spread=0.02, start=0.5)


def of_powers(seed: int) -> int:
    """Powers of polynomials with polynomials as exponents; 0 where the base is not positive."""

    def powers(x: Any, y: Any) -> list[Any]:
        return [x**y if isinstance(x, ca.SX) or x > 0 else mpmath.mpf(0)]

    start = 0.5 if seed % 2 else 0.01
    return _of_expressions(seed, powers, spread=0.05, start=start)


def _of_expressions(seed: int, of: Evaluation, spread: float, start: float = 0.0) -> int:
    """Expressions of two random polynomials whose constants are `start` and more."""
    rng, wrong, kernel = np.random.default_rng(seed), 0, K["polynomials"]
    n, order = int(rng.integers(1, 4)), int(rng.integers(1, 4 if not start else 6))
    terms = kernel.Terms(n, bool(rng.random() < 0.5))
    size = kernel.count_of_terms(terms) + 2
    c = rng.normal(size=(2, order + 1, size)) * spread / 3
    c[rng.random(c.shape) < 0.5] = 0
    if seed % 2:  # where all offsets are 1, what is left out adds up
        c = np.abs(c)
    if start:
        c[:, 0, 0] = start * (1 + rng.random(2))
    x = ca.SX.sym("x", 2)
    tape = replay_tape([ca.SX.sym("t"), x, ca.SX.sym("p", n), ca.SX.sym("u", 0)],
                       ca.vertcat(*of(x[0], x[1])))  # fmt: skip
    given = kernel.Leaves(c, np.zeros((n, 2)), np.zeros(2), np.zeros((0, 3)), terms)
    to = K["integration"].polynomials(tape, order, size)
    with np.errstate(all="ignore"), mpmath.workdps(40):
        for k in range(order + 1):
            kernel.extend(tape, given, k, to)
        kernel.bound(tape, given, to)
        ones = [Fraction(1)] * n, [Fraction(1)] * 2, Fraction(1)
        for place in (ones, *(_place(n, rng) for _ in range(3))):
            values = [_value(one, *place) for one in c]
            if start:
                values = [mpmath.mpf(v.numerator) / v.denominator for v in values]
            for at, exact in zip(tape.results, of(*values), strict=True):
                near, e = _value(to.c[at], *place), float(to.e[at])
                if start:
                    near, e = mpmath.mpf(near.numerator) / near.denominator, mpmath.mpf(e)
                wrong += bool(e < np.inf and abs(exact - near) > (e if start else Fraction(e)))
                span = kernel.span(to.norms[at], to.c[at], to.e[at])
                wrong += bool(not start and not _holds(span, exact))
            wrong += _ends_elsewhere(c[0], *place[:2])
    return wrong


def _ends_elsewhere(c: np.ndarray, delta: list[Fraction], z: list[Fraction]) -> bool:
    """Whether the polynomial at tau = 1 is further away than its rounding says."""
    end = c.copy()
    rounding = Fraction(K["step"]._to_end(end))
    apart = _value(c, delta, z, Fraction(1)) - _value(end[:1], delta, z, Fraction(1))
    return abs(apart) > rounding


def of_transport(seed: int) -> int:
    """A z + eps as C z' with |z'| <= 1, solved in fractions, at corners and inside."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    a = rng.normal(size=(n, n, 4)) * 10.0 ** rng.integers(-9, 1, size=(1, n, 4))
    e = np.abs(rng.normal(size=(n, 4))) * 10.0 ** rng.integers(-14, 0, size=(1, 4))
    e[:, 0] = 0
    c, wrong = np.empty(a.shape), 0
    for k in range(4):
        one = np.empty((n, n))
        K["polynomials"].reset(a[:, :, k].copy(), e[:, k].copy(), one)
        c[:, :, k] = one
    for k in range(4):
        for _ in range(4):
            z, s = (rng.choice([-1, 1], n) for _ in range(2))
            w = [
                sum(Fraction(a[i, j, k]) * int(z[j]) for j in range(n))
                + Fraction(e[i, k]) * int(s[i])
                for i in range(n)
            ]
            matrix = sympy.Matrix(n, n, [Fraction(v) for v in c[:, :, k].ravel()])
            wrong += any(abs(v) > 1 for v in matrix.LUsolve(sympy.Matrix(w)))
    return wrong


def of_defect(seed: int) -> int:
    """How far a polynomial is from following its slope, in fractions, at ends and between."""
    rng, size, order, wrong = np.random.default_rng(seed), 4, 3, 0
    h, e = float(rng.random()), float(10.0 ** rng.integers(-16, -1))
    slope, x = rng.normal(size=(order + 1, size)), np.zeros((order + 1, size))
    for k in range(order):
        x[k + 1] = slope[k] * h / (k + 1)
    x[1] += rng.normal(size=size) * 10.0 ** rng.integers(-18, -2)
    slope[order] *= 10.0 ** rng.integers(-18, 0)
    d = K["step"].defect(x, slope, np.abs(slope).sum(), e, h)
    for tau in (Fraction(0), Fraction(1, 3), Fraction(1)):
        for _ in range(6):
            s = [int(v) for v in rng.choice([-1, 1], size)]
            missing = Fraction(0)
            for k in range(order + 1):
                for i in range(size):
                    rate = Fraction(x[k + 1, i]) * (k + 1) if k < order else Fraction(0)
                    missing += tau**k * s[i] * (Fraction(slope[k, i]) * Fraction(h) - rate)
            wrong += int(abs(missing) + Fraction(h) * Fraction(e) > d)
    return wrong


def of_directions(seed: int) -> int:
    """Errors along old directions and new ones, and the rest, reach no further than they may."""
    rng = np.random.default_rng(seed)
    n, kernel = int(rng.integers(1, 4)), K["polynomials"]
    many = kernel.count_of(n)
    a = rng.normal(size=(n, many)) * 10.0 ** rng.integers(-9, 1, many)
    a[:, rng.random(many) < 0.3] = 0.0
    moved = rng.normal(size=(n, 3)) * 10.0 ** rng.integers(-9, 1, 3)
    e, r, out = 1e-3 * rng.random(n), np.empty(n), np.empty((n, many))
    kernel.ranges_of(a, r)
    flow = rng.normal(size=(n, n))
    if not kernel.carry(flow * r, r, a, moved, e, out):
        return 0
    every = np.concatenate([flow @ a, moved, np.diag(e)], axis=1)
    axes = np.concatenate([np.eye(n), rng.normal(size=(20, n))])
    before, after = (np.abs(axes @ part).sum(axis=1) for part in (every, out))
    return int((before > after * (1 + 1e-13)).sum())


def of_bounds(seed: int) -> int:
    """Lower bounds of the sum of squares on parts of boxes, at rational points of the parts."""
    rng = np.random.default_rng(seed)
    n, m, count = int(rng.integers(1, 4)), int(rng.integers(1, 5)), 6
    low = rng.normal(size=(n, count)) / 3
    high = low + rng.random((n, count)) * rng.choice([1e-8, 1e-3, 1.0])
    boxes = confirm.Boxes.around(low, high)
    size = len(confirm.monomials(n, cubic=bool(rng.random() < 0.5)))
    c = rng.normal(size=(size, m, count)) / 3
    c[1:] *= rng.choice([0.03, 1.0])
    c[0] += rng.choice([0.0, 2.0])
    e = np.abs(rng.normal(size=(m, count))) * rng.choice([1e-300, 1e-3, 0.3])
    e[0, rng.random(count) < 0.2] = np.inf
    given = confirm.BoxRows(c, e, np.zeros(count), np.zeros((n, count)))
    a, b = np.sort(rng.random((2, n, count)), axis=0)
    part = low + a * (high - low), np.minimum(low + b * (high - low), high)
    found, local = confirm.least(given, boxes, *part)
    with np.errstate(all="ignore"):
        at = confirm._minimiser(local)
    wrong = 0
    for k in range(count):
        for share in ([Fraction(1, 3)] * n, *_corners(n), _near(at[:, k])):
            p = [_between(part[0][i, k], part[1][i, k], share[i]) for i in range(n)]
            wrong += _least_square(given, boxes, k, p) < Fraction(found[k])
    return wrong


def of_growth(seed: int) -> int:
    """M >= h J off and on the diagonal of random models, against central differences; and the
    inequality that makes tau v a supersolution."""
    rng = np.random.default_rng(seed)
    experiment, true, low, high = random_experiment(seed)
    tape, kernel, n, wrong = experiment.slopes, K["step"], experiment.states, 0
    for k in range(4):
        t, h = float(rng.random()), 0.6 * float(rng.random())
        length, time = kernel.lengths(h), (t, t + 1.000001 * h)
        p, u = np.column_stack([low[:, k], high[:, k]]), np.zeros((0, 2))
        x0, wide = rng.normal(size=n), 0.3 * rng.random(n)
        x, values = np.column_stack([x0, x0 + wide]), K["integration"].values_of(tape, n)

        def growth(tube: np.ndarray) -> np.ndarray:
            m = np.empty((n, n))
            kernel.evaluate(tape, time, tube, p, u, True, values)  # noqa: B023
            kernel.jacobian(tape, values, length, m)  # noqa: B023
            return m

        m = growth(x)
        for share in rng.random((5, 3)):
            at = x0 + share[0] * wide
            q = low[:, k] + share[1] * (high - low)[:, k]
            jacobian = _differences(true, t + share[2] * h, at, q) * h
            off = np.abs(jacobian) - np.diag(np.abs(np.diag(jacobian)) - np.diag(jacobian))
            wrong += int((off > m + 1e-6 * (1 + np.abs(jacobian))).sum())
        d, v = 1e-3 * rng.random(n) + 1e-6, np.empty(n)
        room = kernel.Room(
            np.zeros((n, 1, 1)),
            v,
            np.zeros((n, 0)),
            v,
            d,
            v,
            np.empty((n, n)),
            x,
            np.empty((n, 2)),
            np.empty((5, 1)),
        )
        with np.errstate(all="ignore"):
            kernel.supersolution(tape, time, p, u, length, values, room)
        if np.isfinite(v).all():
            matrix = growth(np.column_stack([x[:, 0] - v, x[:, 1] + v]))
            wrong += int((d + np.maximum(matrix @ v, 0.0) > v * (1 + 1e-12)).sum())
    return wrong


def of_means(seed: int) -> int:
    """Weighted means of terms >= 0, some of them 0, in fractions; of numbers of any size."""
    rng, wrong, kernel = np.random.default_rng(seed), 0, K["intervals"]
    for _ in range(20):
        n, far = int(rng.integers(2, 5)), rng.random(2) < 0.5
        size = 10.0 ** (rng.integers(-300, 300) if far[0] else rng.integers(-3, 3, n))
        low = np.abs(rng.normal(size=n)) * size * (rng.random(n) < 0.5)
        high = low + np.abs(rng.normal(size=n)) * size * (rng.random(n) < 0.8)
        ends = np.column_stack([low, high])
        if rng.random() < 0.2:
            ends[0, 0] = -0.1 * size[0] if not far[0] else -size
        weights = rng.choice([-1.0, 0.0, 1 / 3, 2.0], n)
        weights *= 10.0 ** (rng.integers(-120, 120) if far[1] else rng.integers(-5, 5, n))
        code = np.column_stack([np.full(n, kernel.WEIGHT), np.arange(n), np.zeros(n, int)])
        with np.errstate(all="ignore"):
            found = kernel.mean(code, weights, 0, n, ends)
        for _ in range(10):
            share = [Fraction(int(k), 4) for k in rng.choice([0, 0, 1, 4, 4], n)]
            t = [_between(*end, s) for end, s in zip(ends, share, strict=True)]
            if total := sum(t):
                mean = sum(Fraction(w) * v for w, v in zip(weights, t, strict=True)) / total
                wrong += not _holds(found, mean)
    return wrong


def of_factored(seed: int) -> int:
    """Slopes multiplied out and factored anew, at points of boxes of states and parameters."""
    rng = np.random.default_rng(seed)
    x, p = ca.SX.sym("x", 3), ca.SX.sym("p", 3)

    def monomial() -> Any:
        of = [x[int(rng.integers(3))], p[int(rng.integers(3))], 1.0]
        return of[int(rng.integers(3))] * of[int(rng.integers(3))]

    below = [sum(float(rng.integers(1, 4)) / 3 * monomial() for _ in range(3)) for _ in range(2)]
    below = [b + (x[k] if seed % 2 else 0.1) for k, b in enumerate(below)]
    f = ca.vertcat(*(
        sum(float(rng.integers(-2, 3)) * monomial() for _ in range(3)) / below[k % 2] * monomial()
        + x[k] * (monomial() - x[k] / below[0]) - ca.exp(-monomial()) * x[k]
        for k in range(3)
    ))  # fmt: skip
    given = [ca.SX.sym("t"), x, p, ca.SX.sym("u", 0)]
    tape, kernel, true = Factored(replay_tape(given, f)).tape, K["step"], Evaluated(given, f)
    values, none, wrong = K["integration"].values_of(tape, 0), np.zeros((0, 2)), 0
    for _ in range(10):
        low = np.abs(rng.normal(size=(2, 3))) * (rng.random((2, 3)) < 0.7)
        high = low + np.abs(rng.normal(size=(2, 3))) * rng.choice([1e-3, 1.0], (2, 3)) + 1e-9
        both = [np.column_stack([low[k], high[k]]) for k in range(2)]
        with np.errstate(all="ignore"):
            kernel.evaluate(tape, (0.0, 0.0), *both, none, False, values)
        for share in rng.random((5, 2, 3)):
            at = low + share * (high - low)
            exact = true(0.0, at[0], at[1], [])
            ends = values.value[tape.results]
            slack = 1e-12 * (1 + np.abs(exact))
            wrong += int(((exact < ends[:, 0] - slack) | (exact > ends[:, 1] + slack)).sum())
    return wrong


def _differences(true: "Reference", t: float, x: np.ndarray, p: np.ndarray) -> np.ndarray:
    h = 1e-5
    steps = [h * row for row in np.eye(len(x))]
    none: list[float] = []
    found = [
        (true.slopes(t, x + s, p, none) - true.slopes(t, x - s, p, none)) / (2 * h) for s in steps
    ]
    return np.column_stack(found)


def of_inputs(seed: int) -> int:
    """Inputs given by tables as polynomials of the time in a step, and as ranges, in fractions."""
    rng, wrong = np.random.default_rng(seed), 0
    for _ in range(10):
        table = _random_table(rng)
        stops = sorted({*(table.times - 0.1).tolist(), *table.times.tolist()})
        begins = np.array(stops)
        ends = np.append(begins[1:], begins[-1] + 1.0)
        t = begins + 0.9 * rng.random(len(begins)) * (ends - begins)
        h = rng.random(len(begins)) * (ends - t)
        kernel, made = K["integration"], line(table, stops)
        rises = np.column_stack([made.slope.low, made.slope.high])[None]
        program = _Inputs(made.start[None], made.value[None], rises)
        for k in range(len(stops)):
            u = np.empty((1, 3))
            kernel.inputs_at(program, k, t[k], h[k], u)
            ranges = kernel.input_range(program, 0, k, (t[k], t[k] + h[k]))
            for tau in (Fraction(0), Fraction(int(rng.integers(1, 8)), 8), Fraction(1)):
                exact = _exactly(table, stops[k], Fraction(t[k]) + tau * Fraction(h[k]))
                near = Fraction(u[0, 0]) + tau * Fraction(u[0, 1])
                wrong += abs(exact - near) > Fraction(u[0, 2])
                wrong += bool(tau < 1) and not _holds(ranges, exact)
    return wrong


class _Inputs(NamedTuple):
    """What the kernels need of a `Program` for inputs."""

    begins: np.ndarray
    levels: np.ndarray
    rises: np.ndarray


def _exactly(table: Table, begin: float, t: Fraction) -> Fraction:
    """A table at t, on the piece that begins at a time."""
    before = np.flatnonzero(table.times <= begin)
    k = int(before[-1]) if len(before) else 0
    if table.hold or not len(before) or k == len(table.times) - 1:
        return Fraction(table.values[k])
    a, b = Fraction(table.times[k]), Fraction(table.times[k + 1])
    y, z = Fraction(table.values[k]), Fraction(table.values[k + 1])
    return y + (z - y) * (t - a) / (b - a)


def of_integration(seed: int, models: int = 1, inputs: int = 0, order: int = 6) -> int:
    """Residuals of random models at random parameters of random boxes, against an integration."""
    wrong = 0
    for k in range(models):
        experiment, true, low, high = random_experiment(1000 * seed + k, inputs)
        for cubic in (False, True):
            wrong += residuals_outside(
                experiment, true, low, high, seed=k, order=order, cubic=cubic
            )[0]
    return wrong


def of_tubes(seed: int, inputs: int = 0) -> int:
    """Residuals where the sum of squares is below a level: what lies above it is cut off."""
    return tubes_outside(*random_experiment(seed, inputs), seed=seed)


def of_faces(seed: int, inputs: int = 0) -> int:
    """Residuals in the ranges of tubes alone, of nearly exact measurements at one of the points.

    One level cuts off nothing, another all but some of the points.
    """
    experiment, truth, low, high = random_experiment(seed, inputs)
    rng, program, wrong = np.random.default_rng(seed), experiment.program, 0
    kernel = K["integration"]
    for k in range(low.shape[1]):
        share = rng.choice([0.0, 0.5, 1.0, rng.random()], (6, len(low)))
        points = (low[:, k] + s * (high - low)[:, k] for s in share)
        known = [r for p in points if (r := integrated(experiment, truth, p)) is not None]
        for shift in [r - 0.02 * rng.normal(size=r.shape) for r in known[:1]]:
            shift[int(rng.integers(len(shift)))] += float(rng.choice([0.0, 0.3, 3.0]))  # an outlier
            program = experiment.program
            program = program._replace(value=program.value + shift * program.sigma)
            known = [r - shift for r in known]
        totals = [float((r**2).sum()) for r in known]
        for level in (1e300, *(1.001 * s + 1e-6 for s in totals[1:2])):
            tube = kernel.tube_of(experiment.states, len(program.value), len(program.times) + 1)
            ends, most = np.stack([low[:, k], high[:, k]], axis=1), int(rng.choice([3, 30]))
            kernel.coarse(program, ends, 0.3, most + len(program.times), level, tube)
            for r, total in zip(known, totals, strict=True):
                if total < level:
                    slack = INTEGRATED * (1 + np.abs(r))
                    wrong += int((r < tube.rows[:, 0] - slack).sum())
                    wrong += int((r > tube.rows[:, 1] + slack).sum())
    return wrong


def of_steps(seed: int) -> int:
    """States during and after one step of a tube, of models that push states to 0 and below.

    Steps are short and long, and rates slow and fast.
    """
    rng = np.random.default_rng(seed)
    n, wrong, none = int(rng.integers(1, 4)), 0, np.zeros((0, 2))
    t, x, p, u = ca.SX.sym("t"), ca.SX.sym("x", n), ca.SX.sym("p", 2), ca.SX.sym("u", 0)
    f = ca.vertcat(*(_random_rates(rng, t, x, p, i) for i in range(n)))
    tape, true = replay_tape([t, x, p, u], f), Evaluated([t, x, p, u], f)
    slopes = K["step"].slopes_of(tape)
    for _ in range(20):
        h, share = 10.0 ** rng.uniform(-2, 1), rng.choice([0.0, 0.5, 1.0], (4, n + 2))
        low = rng.choice([0.0, 0.3, 1.0], n + 2)
        high = low + rng.choice([0.0, 1e-3, 0.3, 1.0], n + 2)
        ends, wide = np.column_stack([low, high]), np.empty((n, 2))
        after, given = ends[:n].copy(), (ends[n:], none)
        K["intervals"].ranges_of_leaves(tape, (0.0, h), after, *given, slopes.v)
        with np.errstate(all="ignore"):
            change = K["step"].coarse_step(slopes, after, (h, h), tape.is_smooth, wide)
        for at in low + share * (high - low) if change < np.inf else ():
            found = _until_broken(lambda t, x, q=at[n:]: true(t, x, q, []), at[:n], h)
            ranges = np.repeat(wide[:, :, None], found.shape[1], axis=2)
            ranges[:, :, -1] = after
            slack = 1e-6 * (1 + np.abs(found))
            wrong += int(((found < ranges[:, 0] - slack) | (found > ranges[:, 1] + slack)).sum())
    return wrong


def _until_broken(slopes: Callable[..., Any], start: np.ndarray, h: float) -> np.ndarray:
    """States (n, n_times) until h, or until one is large, which no bounds have allowed."""

    def is_large(_: float, x: np.ndarray) -> float:
        return 1e4 - float(np.abs(x).max())

    is_large.terminal = True  # type: ignore[attr-defined]
    return np.asarray(
        solve_ivp(slopes, (0.0, h), start, method="LSODA", rtol=1e-9, atol=1e-11, events=is_large).y
    )


def _random_rates(rng: np.random.Generator, t: Any, x: Any, p: Any, i: int) -> Any:
    (a, b), (y, z) = ([of[int(k)] for k in rng.integers(of.numel(), size=2)] for of in (p, x))
    terms = [
        a, -a, a * y * z, -30 * a * x[i], 10 * a * y, (a - y) * y, -(a + z) * x[i], ca.sin(3 * t),
        a * z - b * y, 5 * (b - y) * z, -a * x[i] / (1 + y * y), 20 * a * (1 - x[i]),
    ]  # fmt: skip
    return sum(terms[int(k)] for k in rng.integers(len(terms), size=2))


def tubes_outside(
    experiment: Replay, truth: "Reference", low: np.ndarray, high: np.ndarray, *, seed: int
) -> int:
    """How many residuals lie outside, or sums below their bound, with levels that cut off much.

    The experiment is there twice: what the first one proves lowers the level of the second.
    """
    rng, wrong = np.random.default_rng(seed), 0
    boxes, twice = confirm.Boxes.around(low, high), [experiment] * 2
    for k in range(len(boxes)):
        share = rng.choice([0.0, 0.5, 1.0, rng.random()], (6, len(low)))
        points = [low[:, k] + s * (high - low)[:, k] for s in share]
        rows = [(p, integrated(experiment, truth, p)) for p in points]
        known = [(p, np.concatenate([r, r])) for p, r in rows if r is not None]
        if not known:
            continue
        level = float(rng.choice([0.5, 1.0, 1.1])) * float((known[0][1] ** 2).sum()) + 1e-6
        one = boxes[np.array([k])]
        found = confirm.everything(twice, one, confirm.Effort(), level)
        half = np.where(one.half[:, 0] > 0, one.half[:, 0], 1.0)
        for p, true in known:
            total = float((true**2).sum()) * (1 + 1e-9) + 1e-12
            wrong += total < min(found.sum[0], level)
            if total < level:
                apart = np.abs(true - _rows_at(found.c[:, :, 0], (p - one.center[:, 0]) / half))
                slack = INTEGRATED * (1 + np.abs(true))
                wrong += int((apart > found.e[:, 0] + slack).sum())
    return wrong


def residuals_outside(
    experiment: Replay,
    truth: "Reference",
    low: np.ndarray,
    high: np.ndarray,
    *,
    seed: int,
    order: int = 6,
    cubic: bool = False,
) -> tuple[int, float]:
    """How many residuals at corners and random places lie outside, and the largest share of the
    remainder that was used (how sharp the check is); low, high (n_parameters, n_boxes)."""
    rng = np.random.default_rng(seed)
    boxes = confirm.Boxes.around(low, high)
    effort = confirm.Effort(order=order, cubic=cubic)
    found = confirm.residuals(experiment, boxes, effort, np.inf, np.zeros(len(boxes)))
    wrong, most = 0, 0.0
    for _ in range(3):
        share = rng.choice([0.0, 0.5, 1.0, rng.random()], low.shape)
        p = low + share * (high - low)
        for k in range(len(boxes)):
            true = integrated(experiment, truth, p[:, k])
            if true is None:
                continue
            half = np.where(boxes.half[:, k] > 0, boxes.half[:, k], 1.0)
            delta = (p[:, k] - boxes.center[:, k]) / half
            near = _rows_at(found.c[:, :, k], delta)
            slack = INTEGRATED * (1 + np.abs(true))
            apart = np.abs(true - near)
            wrong += int((apart > found.e[:, k] + slack).sum())
            wrong += int((true**2).sum() * (1 + 1e-9) + 1e-12 < found.sum[k])
            known = np.isfinite(found.e[:, k]) & (found.e[:, k] > 1e3 * slack)
            most = max(most, float(np.max(apart[known] / found.e[known, k], initial=0.0)))
    return wrong, most


class Reference(NamedTuple):
    """CasADi's own functions of an experiment, (t, x, p, u), (p), (t, x, p, u), and tables."""

    slopes: Evaluated
    start: Evaluated
    measured: Evaluated
    tables: tuple[Table, ...] = ()

    def inputs(self, t: float, within: float) -> list[float]:
        """At t, which lies in a piece on which nothing jumps, as does `within`."""
        return [_value_of(table, t, within) for table in self.tables]


def _value_of(table: Table, t: float, within: float) -> float:
    if table.hold:
        past = table.values[table.times <= within]
        return float(past[-1] if len(past) else table.values[0])
    return float(np.interp(t, table.times, table.values))


def replay_and_reference(problem: igpe.Problem) -> tuple[Replay, Reference]:
    """The first experiment of a problem, as the checker reads it and as CasADi evaluates it."""
    ivp = compiled(problem).initial_value_problem(0)
    assert ivp.unknowns == problem.box.names
    given = [ivp.t, ivp.x, ivp.q, ivp.u]
    told = ca.vertcat(ivp.measured, ivp.q)  # the unknowns themselves, for priors
    slopes, measured = Evaluated(given, ivp.f), Evaluated(given, told)
    start = Evaluated([ivp.q], ivp.start)
    return replays(problem)[0], Reference(slopes, start, measured, ivp.tables)


def integrated(experiment: Replay, truth: Reference, p: np.ndarray) -> np.ndarray | None:
    """Residuals at p (n_parameters,), in plain floating point; None if that broke down."""
    x, found = truth.start(p), []
    for a, b, rows_there in zip(
        [experiment.t0, *experiment.times[:-1]], experiment.times, experiment.rows, strict=True
    ):
        inputs = partial(truth.inputs, within=(a + b) / 2)
        if b > a:
            with np.errstate(all="ignore"):
                run = solve_ivp(
                    lambda t, x, u=inputs: truth.slopes(t, x, p, u(t)),
                    (a, float(b)),
                    x,
                    method="DOP853",
                    rtol=3e-14,
                    atol=1e-15,
                )
            if not run.success:
                return None
            x = run.y[:, -1]
        column, y, sigma = rows_there
        found.append((truth.measured(b, x, p, inputs(b))[column] - y) / sigma)
    return np.concatenate(found)


def random_experiment(
    seed: int, inputs: int = 0
) -> tuple[Replay, Reference, np.ndarray, np.ndarray]:
    """A model of one to three states with random terms, and four boxes of its parameters.

    inputs  how many tables it has as well
    """
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    t, x, p = ca.SX.sym("t"), ca.SX.sym("x", n), ca.SX.sym("p", m)
    f = ca.vertcat(*(_random_slope(rng, t, x, p, i) for i in range(n)))
    start = ca.vertcat(*(rng.normal() + (p[0] if rng.random() < 0.3 else 0) for _ in range(n)))
    h = ca.vertcat(x[0], ca.sin(x[n - 1]) + t * p[m - 1])
    times = np.cumsum(0.05 + 0.3 * rng.random(4))
    both = np.arange(2)
    data = {at: (both, rng.normal(size=2), np.array([1.0, 0.3])) for at in times.tolist()}
    low = rng.normal(size=(m, 4))
    u, tables = ca.SX.sym("u", inputs), tuple(_random_table(rng) for _ in range(inputs))
    for j in range(inputs):
        f, h = f + u[j] * ca.cos(x), ca.vertcat(h[0] + u[j], h[1] * u[j])
    jumps = {float(at) for table in tables for at in table.times if 0 < at < times[-1]}
    stops = sorted({*data, *jumps})
    nothing = np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0)
    given = [t, x, p, u]
    tapes = replay_tape(given, f), replay_tape(given, start), replay_tape(given, h)
    lines = tuple(line(table, [0.0, *stops[:-1]]) for table in tables)
    rows_there = tuple(data.get(at, nothing) for at in stops)
    experiment = Replay(n, 0.0, *tapes, np.array(stops), rows_there, lines)
    truth = Reference(Evaluated(given, f), Evaluated([p], start), Evaluated(given, h), tables)
    return experiment, truth, low, low + rng.choice([0.0, 1e-6, 0.01, 0.1, 0.4], size=(1, 4))


def _random_table(rng: np.random.Generator) -> Table:
    times = np.cumsum(0.4 * rng.random(4)) - 0.2
    return Table(times, rng.normal(size=4) / 3, hold=bool(rng.random() < 0.5))


def _random_slope(rng: np.random.Generator, t: Any, x: Any, p: Any, i: int) -> Any:
    terms: list[Callable[[Any, Any], Any]] = [
        lambda a, b: a * b,
        lambda a, b: -a * x[i],
        lambda a, b: a / (2 + b * b),
        lambda a, b: ca.sin(a) * b,
        lambda a, b: ca.exp(-a * a),
        lambda a, b: ca.tanh(a + b),
        lambda a, b: ca.sqrt(1 + a * a),
        lambda a, b: ca.log(2 + ca.cos(t + a)),
        lambda a, b: -(a**3) / 8,
    ]
    total: Any = 0.0
    for k in rng.choice(len(terms), 2):
        one = x[int(rng.integers(x.numel()))]
        other = p[int(rng.integers(p.numel()))]
        total = total + terms[k](one, other) if rng.random() < 0.7 else total + terms[k](other, one)
    return total


def _intervals(seed: int, n: int) -> Interval:
    x = numbers(seed, n)
    return Interval(x, x + np.abs(numbers(seed + 99, n)) * np.resize([0.0, 1.0, 1e-9], n))


def _inside(x: Interval, k: int, share: Fraction) -> Fraction:
    return _between(x.low[k], x.high[k], share)


def _between(low: float, high: float, share: Fraction) -> Fraction:
    return Fraction(low) + share * (Fraction(high) - Fraction(low))


def _place(n: int, rng: np.random.Generator) -> tuple[list[Fraction], list[Fraction], Fraction]:
    """delta, z of two states, tau."""

    def some(n: int) -> list[Fraction]:
        return [Fraction(int(k), 4) for k in rng.integers(-4, 5, n)]

    return some(n), some(2), Fraction(int(rng.integers(0, 5)), 4)


def _value(c: np.ndarray, delta: list[Fraction], z: list[Fraction], tau: Fraction) -> Fraction:
    """Of a polynomial (powers of tau, monomials)."""
    monomials = [*_monomials(delta, c.shape[1] - len(z)), *z]
    total = Fraction(0)
    for power, row in enumerate(c):
        for one, monomial in zip(row, monomials, strict=True):
            total += Fraction(one) * monomial * tau**power
    return total


def _monomials(delta: Sequence[Any], size: int) -> list[Any]:
    """All of degree 2 or, if there are more than these, 3 at one place."""
    for degree in (2, 3):
        found = [
            prod(one) for d in range(degree + 1) for one in combinations_with_replacement(delta, d)
        ]
        if len(found) == size:
            return found
    raise AssertionError


def _corners(n: int) -> Iterator[list[Fraction]]:
    for k in range(2**n):
        yield [Fraction(k >> i & 1) for i in range(n)]


def _near(s: np.ndarray) -> list[Fraction]:
    return [(1 + Fraction(float(np.clip(v, -1, 1)))) / 2 for v in s]


def _least_square(
    given: confirm.BoxRows, boxes: confirm.Boxes, k: int, p: list[Fraction]
) -> Fraction:
    """Least sum of squares that the residuals' remainders leave at p."""
    half = [Fraction(h) if h > 0 else Fraction(1) for h in boxes.half[:, k]]
    delta = [(v - Fraction(c)) / h for v, c, h in zip(p, boxes.center[:, k], half, strict=True)]
    monomials, total = _monomials(delta, len(given.c)), Fraction(0)
    for r in range(given.e.shape[0]):
        if np.isfinite(given.e[r, k]):
            value = sum(
                (Fraction(c) * v for c, v in zip(given.c[:, r, k], monomials, strict=True)),
                Fraction(0),
            )
            total += max(abs(value) - Fraction(given.e[r, k]), Fraction(0)) ** 2
    return total


def _rows_at(c: np.ndarray, delta: np.ndarray) -> np.ndarray:
    return np.asarray(np.array(_monomials(delta, len(c)), dtype=float) @ c)
