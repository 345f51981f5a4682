"""Is the true value inside? Each check counts how often it is not; correct code gives 0.

The same checks must find code that was broken on purpose (`proofs/checker/test_mutations.py`).
True values are fractions where only + - * / are used, mpmath's where a function is, and an
accurate integration where time is.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import casadi as ca
import mpmath
import numpy as np
from evaluated import Evaluated
from scipy.integrate import solve_ivp

import igpe
from igpe.equations.compiled import compiled
from igpe.problem.inputs import Table
from igpe.proofs.checker import confirm as bound
from igpe.proofs.checker import functions, polynomial, rows, step
from igpe.proofs.checker import rows as transport
from igpe.proofs.checker.experiments import Replay, ReplayTape, line, replays
from igpe.proofs.checker.interval import Interval

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
    found = {"+": a + b, "-": a - b, "*": a * b, "/": a / b, "s": a.square()}
    for k in range(n):
        x, y = _inside(a, k, share[k]), _inside(b, k, share[n + k])
        true = {"+": x + y, "-": x - y, "*": x * y, "s": x * x}
        if y:
            true["/"] = x / y
        wrong += sum(_outside(found[name], k, value) for name, value in true.items())
    return wrong


def of_functions(seed: int) -> int:
    """Taylor coefficients of the elementary functions, against mpmath's to 40 digits."""
    x = _intervals(seed, 20)
    x = Interval(np.clip(x.low, -30, 30), np.clip(x.high, -30, 30))  # mpmath differentiates there
    positive = Interval(np.abs(x.middle) + 1e-3, np.abs(x.middle) + 1e-3 + (x.high - x.low))
    known: list[tuple[Callable[..., list[Interval]], Callable[[Any], Any], Interval]] = [
        (functions.exp, mpmath.exp, x),
        (functions.sin, mpmath.sin, x),
        (functions.cos, mpmath.cos, x),
        (functions.log, mpmath.log, positive),
        (functions.sqrt, mpmath.sqrt, positive),
        (functions.reciprocal, lambda v: 1 / v, positive),
    ]
    wrong = 0
    with mpmath.workdps(40):
        for ours, true, domain in known:
            found = ours(domain, 4)
            for k in range(20):
                at = mpmath.mpf(float(domain.low[k] if k % 2 else domain.high[k]))
                exact = mpmath.taylor(true, at, 4)
                pairs = zip(found, exact, strict=True)
                tiny = mpmath.mpf(10) ** -22  # mpmath's differences are so exact
                wrong += sum(
                    not (i.low[k] <= v + tiny * abs(v) and v - tiny * abs(v) <= i.high[k])
                    for i, v in pairs
                )
    return wrong


def of_polynomials(seed: int) -> int:
    """Sums, products, multiples and ends of polynomials, at rational points."""
    rng = np.random.default_rng(seed)
    space = polynomial.TaylorSpace(int(rng.integers(1, 4)), 2, int(rng.integers(1, 4)))
    f, g = _polynomial(space, rng), _polynomial(space, rng)
    factor = rng.normal(size=2) / 3
    wrong = 0
    for _ in range(3):
        delta, z, tau = _place(space, rng)
        for k in range(2):
            x, y = _value(f, k, delta, z, tau), _value(g, k, delta, z, tau)
            told = {
                "+": (f + g, x + y),
                "-": (f - g, x - y),
                "*": (f * g, x * y),
                "s": (f.square(), x * x),
                "t": (f.times(factor), x * Fraction(factor[k])),
                "c": (f.constant(Interval(factor, factor)), Fraction(factor[k])),
            }
            wrong += sum(
                abs(value - _value(p, k, delta, z, tau)) > Fraction(p.e[k])
                for p, value in told.values()
            )
            end = f.at_end()
            apart = _value(f, k, delta, z, Fraction(1)) - _value(end, k, delta, z, Fraction(1))
            wrong += abs(apart) > Fraction(end.e[k])
            wrong += _outside(f.range(), k, x)
    return wrong


def of_functions_of_polynomials(seed: int) -> int:
    """exp, log, reciprocal, sqrt and sin of polynomials, at rational points."""
    rng = np.random.default_rng(seed)
    space = polynomial.TaylorSpace(2, 1, int(rng.integers(1, 6)))
    f = _polynomial(space, rng, spread=0.02)
    f.c[0, 0] = 0.5 + rng.random(2)
    known = {
        functions.exp: mpmath.exp,
        functions.log: mpmath.log,
        functions.reciprocal: lambda v: 1 / v,
        functions.sqrt: mpmath.sqrt,
        functions.sin: mpmath.sin,
        functions.cos: mpmath.cos,
    }
    wrong = 0
    with mpmath.workdps(40):
        for ours, true in known.items():
            found = f.through(ours)
            for k in range(2):
                delta, z, tau = _place(space, rng)
                x = _value(f, k, delta, z, tau)
                exact = true(mpmath.mpf(x.numerator) / x.denominator)
                near = _value(found, k, delta, z, tau)
                apart = abs(exact - mpmath.mpf(near.numerator) / near.denominator)
                wrong += bool(apart > mpmath.mpf(float(found.e[k])))
    return wrong


def of_powers(seed: int) -> int:
    """Powers of polynomials with polynomials as exponents; 0 where the base is not positive."""
    rng = np.random.default_rng(seed)
    space = polynomial.TaylorSpace(2, 1, int(rng.integers(1, 6)))
    base, exponent = _polynomial(space, rng, spread=0.05), _polynomial(space, rng, spread=0.05)
    base.c[0, 0], exponent.c[0, 0] = [0.5, 0.01 * rng.random()], 0.3 + 2 * rng.random(2)
    found = base.power(exponent)
    wrong = 0
    with mpmath.workdps(40):
        for _ in range(5):
            delta, z, tau = _place(space, rng)
            for k in range(2):
                x, n = (
                    mpmath.mpf(v.numerator) / v.denominator
                    for v in (_value(f, k, delta, z, tau) for f in (base, exponent))
                )
                exact = x**n if x > 0 else mpmath.mpf(0)
                near = _value(found, k, delta, z, tau)
                apart = abs(exact - mpmath.mpf(near.numerator) / near.denominator)
                wrong += bool(apart > mpmath.mpf(float(found.e[k])))
    return wrong


def of_transport(seed: int) -> int:
    """A z + eps as C z' with |z'| <= 1, solved in fractions, at corners and inside."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 4))
    a = rng.normal(size=(n, n, 4)) * 10.0 ** rng.integers(-9, 1, size=(1, n, 4))
    e = np.abs(rng.normal(size=(n, 4))) * 10.0 ** rng.integers(-14, 0, size=(1, 4))
    e[:, 0] = 0
    c = transport.reset(a, e)
    wrong = 0
    for k in range(4):
        for _ in range(4):
            z, s = (rng.choice([-1, 1], n) for _ in range(2))
            w = [
                sum(Fraction(a[i, j, k]) * int(z[j]) for j in range(n))
                + Fraction(e[i, k]) * int(s[i])
                for i in range(n)
            ]
            matrix = [[Fraction(c[i, j, k]) for j in range(n)] for i in range(n)]
            wrong += any(abs(v) > 1 for v in _solved(matrix, w))
    return wrong


def of_bounds(seed: int) -> int:
    """Lower bounds of the sum of squares on parts of boxes, at rational points of the parts."""
    rng = np.random.default_rng(seed)
    n, m, count = int(rng.integers(1, 4)), int(rng.integers(1, 5)), 6
    low = rng.normal(size=(n, count)) / 3
    high = low + rng.random((n, count)) * rng.choice([1e-8, 1e-3, 1.0])
    boxes = rows.Boxes.around(low, high)
    size = 1 + n + n * (n + 1) // 2
    c = rng.normal(size=(size, m, count)) / 3
    c[1:] *= rng.choice([0.03, 1.0])
    c[0] += rng.choice([0.0, 2.0])
    e = np.abs(rng.normal(size=(m, count))) * rng.choice([1e-300, 1e-3, 0.3])
    e[0, rng.random(count) < 0.2] = np.inf
    given = rows.BoxRows(c, e, np.zeros(count), np.zeros((n, count)))
    a, b = np.sort(rng.random((2, n, count)), axis=0)
    part = low + a * (high - low), np.minimum(low + b * (high - low), high)
    found, local = bound.least(given, boxes, *part)
    with np.errstate(all="ignore"):
        at = bound._minimiser(local)
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
    t, h = rng.random(4), 0.6 * rng.random(4)
    p = [Interval(a, b) for a, b in zip(low, high, strict=True)]
    x0 = rng.normal(size=(experiment.states, 4))
    wide = 0.3 * rng.random((experiment.states, 4))
    x = [Interval(a, a + w) for a, w in zip(x0, wide, strict=True)]
    m = step.growth_matrix(experiment, p, x, t, h)
    wrong = 0
    for k in range(4):
        for share in rng.random((5, 3)):
            at = x0[:, k] + share[0] * wide[:, k]
            q = low[:, k] + share[1] * (high - low)[:, k]
            jacobian = _differences(true, t[k] + share[2] * h[k], at, q) * h[k]
            off = np.abs(jacobian) - np.diag(np.abs(np.diag(jacobian)) - np.diag(jacobian))
            wrong += int((off > m[:, :, k] + 1e-6 * (1 + np.abs(jacobian))).sum())
    d = 1e-3 * rng.random((experiment.states, 4)) + 1e-6
    v, _ = step.supersolution(lambda tube: step.growth_matrix(experiment, p, tube, t, h), x, d)
    good = np.isfinite(v).all(axis=0)
    tube = [Interval(i.low - w, i.high + w) for i, w in zip(x, v, strict=True)]
    growth = step.growth_matrix(experiment, p, tube, t, h)
    needed = d + np.maximum(np.einsum("ijb,jb->ib", growth, v), 0.0)
    return wrong + int((needed > v * (1 + 1e-12))[:, good].sum())


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
        made = line(table, stops).of(np.arange(len(stops)))
        f = made.polynomial(polynomial.TaylorSpace(1, 1, 3), t, h)
        ranges = made.between(Interval(t, t + h))
        for k in range(len(stops)):
            for tau in (Fraction(0), Fraction(int(rng.integers(1, 8)), 8), Fraction(1)):
                exact = _exactly(table, stops[k], Fraction(t[k]) + tau * Fraction(h[k]))
                near = _value(f, k, [Fraction(1)], [Fraction(1)], tau)
                wrong += abs(exact - near) > Fraction(f.e[k])
                wrong += bool(tau < 1) and _outside(ranges, k, exact)
    return wrong


def _exactly(table: Table, begin: float, t: Fraction) -> Fraction:
    """A table at t, on the piece that begins at a time."""
    before = np.flatnonzero(table.times <= begin)
    k = int(before[-1]) if len(before) else 0
    if table.hold or not len(before) or k == len(table.times) - 1:
        return Fraction(table.values[k])
    a, b = Fraction(table.times[k]), Fraction(table.times[k + 1])
    y, z = Fraction(table.values[k]), Fraction(table.values[k + 1])
    return y + (z - y) * (t - a) / (b - a)


def of_integration(seed: int, models: int = 1, inputs: int = 0) -> int:
    """Residuals of random models at random parameters of random boxes, against an integration."""
    wrong = 0
    for k in range(models):
        experiment, true, low, high = random_experiment(1000 * seed + k, inputs)
        wrong += residuals_outside(experiment, true, low, high, seed=k)[0]
    return wrong


def residuals_outside(
    experiment: Replay, truth: "Reference", low: np.ndarray, high: np.ndarray, seed: int
) -> tuple[int, float]:
    """How many residuals at corners and random places lie outside, and the largest share of the
    remainder that was used (how sharp the check is); low, high (n_parameters, n_boxes)."""
    rng = np.random.default_rng(seed)
    boxes = rows.Boxes.around(low, high)
    effort = rows.Effort()
    found = rows.residuals(experiment, boxes, effort, np.inf, np.zeros(len(boxes)))
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
    tapes = ReplayTape(given, f), ReplayTape([p], start), ReplayTape(given, h)
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


def _outside(x: Interval, k: int, value: Fraction) -> bool:
    low, high = float(x.low[k]), float(x.high[k])
    return not (
        (low == -np.inf or Fraction(low) <= value) and (high == np.inf or value <= Fraction(high))
    )


def _polynomial(
    space: polynomial.TaylorSpace, rng: np.random.Generator, spread: float = 1.0
) -> Any:
    length = int(rng.integers(1, space.order + 2))
    c = rng.normal(size=(space.size, length, 2)) * spread / 3
    c[rng.random(c.shape) < 0.5] = 0
    return polynomial.Polynomial(space, c, np.zeros(2))


def _place(
    space: polynomial.TaylorSpace, rng: np.random.Generator
) -> tuple[list[Fraction], list[Fraction], Fraction]:
    def some(n: int) -> list[Fraction]:
        return [Fraction(int(k), 4) for k in rng.integers(-4, 5, n)]

    return some(space.parameters), some(space.errors), Fraction(int(rng.integers(0, 5)), 4)


def _value(
    f: polynomial.Polynomial, k: int, delta: list[Fraction], z: list[Fraction], tau: Fraction
) -> Fraction:
    n = len(delta)
    monomials = [
        Fraction(1),
        *delta,
        *(delta[i] * delta[j] for i in range(n) for j in range(i, n)),
        *z,
    ]
    total = Fraction(0)
    for i, monomial in enumerate(monomials):
        for power in range(f.c.shape[1]):
            total += Fraction(f.c[i, power, k]) * monomial * tau**power
    return total


def _solved(matrix: list[list[Fraction]], w: list[Fraction]) -> list[Fraction]:
    """By Cramer's rule."""
    whole = _determinant(matrix)
    found = []
    for j in range(len(w)):
        other = [[w[i] if k == j else v for k, v in enumerate(row)] for i, row in enumerate(matrix)]
        found.append(_determinant(other) / whole)
    return found


def _determinant(matrix: list[list[Fraction]]) -> Fraction:
    if len(matrix) == 1:
        return matrix[0][0]
    minors = (
        (-1) ** j * matrix[0][j] * _determinant([row[:j] + row[j + 1 :] for row in matrix[1:]])
        for j in range(len(matrix))
    )
    return sum(minors, Fraction(0))


def _corners(n: int) -> Iterator[list[Fraction]]:
    for k in range(2**n):
        yield [Fraction(k >> i & 1) for i in range(n)]


def _near(s: np.ndarray) -> list[Fraction]:
    return [(1 + Fraction(float(np.clip(v, -1, 1)))) / 2 for v in s]


def _least_square(given: rows.BoxRows, boxes: rows.Boxes, k: int, p: list[Fraction]) -> Fraction:
    """Least sum of squares that the residuals' remainders leave at p."""
    half = [Fraction(h) if h > 0 else Fraction(1) for h in boxes.half[:, k]]
    delta = [(v - Fraction(c)) / h for v, c, h in zip(p, boxes.center[:, k], half, strict=True)]
    n, total = len(p), Fraction(0)
    monomials = [Fraction(1), *delta, *(delta[i] * delta[j] for i in range(n) for j in range(i, n))]
    for r in range(given.e.shape[0]):
        if np.isfinite(given.e[r, k]):
            value = sum(
                (Fraction(c) * v for c, v in zip(given.c[:, r, k], monomials, strict=True)),
                Fraction(0),
            )
            total += max(abs(value) - Fraction(given.e[r, k]), Fraction(0)) ** 2
    return total


def _rows_at(c: np.ndarray, delta: np.ndarray) -> np.ndarray:
    n = len(delta)
    value = c[0] + np.einsum("jr,j->r", c[1 : 1 + n], delta)
    for k, (i, j) in enumerate(polynomial.pairs(n)):
        value = value + c[1 + n + k] * delta[i] * delta[j]
    return value
