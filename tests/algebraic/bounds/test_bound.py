"""The bound is below every point of its box: brute force, whatever box, direction and options."""

import brute_force
import numpy as np
import pytest
from brute_force import Case, Setting
from repeated import repeated
from scipy.optimize import linprog

from igpe.algebraic.bounds.bound import BoundedColumn, Cells, Hull, Ranges, bound, farthest
from igpe.algebraic.bounds.separable import Span

MODELS = (
    "COPS methanol, slopes", "COPS methanol, integrals", "methanol, slopes", "urethane, slopes",
    "urethane, integrals", "arrhenius 3", "michaelis 2", "exponential 3", "hill 2", "hill 3",
    "shared 2", "shared 3", "arrhenius 2, any sign", "michaelis 2, any sign", "two equilibria",
    "strange functions",
)  # fmt: skip


def settings(name):
    """Two opposite ones, and one between for models with an exchange."""
    exchanged = "urethane" in name or name == "two equilibria"
    two = [Setting(), Setting(logarithmic=False)]
    return [*two, Setting(exchange=False)] if exchanged else two


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
@repeated(16, 125)  # boxes; `benchmarks/validity.py` takes as many as you like
def test_no_point_of_a_box_is_below_its_bound(name, repetitions):
    own = settings(name)
    tight = 0
    for k, setting in enumerate(own):
        case = Case(name, brute_force.regressions()[name], setting)
        rng = np.random.default_rng([MODELS.index(name), k])
        for _ in range(-(-repetitions // len(own))):
            found = case.check(rng)
            assert found.beyond <= 0, found
            assert found.escaped <= 0, found
            tight += found.lower > 0.95 * found.found
    assert tight > repetitions / 20  # the bounds compared are bounds, not zeros


def test_all_models_are_tested():
    assert set(MODELS) == set(brute_force.regressions())


@pytest.mark.parametrize("seed", range(4))
def test_the_sum_of_ranges_and_ratios_is_at_least_what_a_linear_program_finds(seed):
    rng = np.random.default_rng(seed)
    ties = [(), ((0, 1),), ((1, 0), (2, 0)), ((0, 1), (0, 2)), ((0, 1), (2, 3)), ((0, 1), (1, 2))]
    for _ in range(60):
        lower = np.where(rng.random(4) < 0.5, 0.0, rng.uniform(0, 0.5, 4))
        upper = lower + rng.uniform(0.1, 3, 4)
        pairs = ties[rng.integers(0, len(ties))]
        ratios = tuple((k, m, *np.sort(rng.uniform(0, 2, 2))) for k, m in pairs)
        extent = rng.normal(size=4) * (rng.random(4) > 0.1)
        rows = []
        for k, m, low, high in ratios:
            unit = np.eye(4)
            rows += [low * unit[k] - unit[m], unit[m] - high * unit[k]]
        answer = linprog(
            -extent, np.array(rows) if rows else None, np.zeros(len(rows)) if rows else None,
            bounds=list(zip(lower, upper, strict=True)),
        )  # fmt: skip
        if answer.status == 0:
            assert Ranges(lower, upper, ratios).most(extent) >= -answer.fun - 1e-9


def test_ranges_without_an_upper_end():
    open_ended = Ranges(np.zeros(2), np.array([np.inf, 1.0]))
    assert open_ended.most(np.array([0.0, 2.0])) == pytest.approx(2.0)
    assert open_ended.most(np.array([-1.0, 2.0])) == pytest.approx(2.0)
    assert open_ended.most(np.array([1e-9, -2.0])) == np.inf
    tied = Ranges(np.zeros(2), np.full(2, np.inf), ((0, 1, 1.0, 2.0),))
    assert tied.most(np.array([1.0, -1.5])) == pytest.approx(0.0)
    assert tied.most(np.array([1.0, -0.5])) == np.inf
    without_end = Ranges(np.zeros(2), np.ones(2), ((0, 1, 1.0, np.inf),))
    for extent in ([1.0, -1.0], [1.0, 0.0], [-1.0, 1.0], [0.0, 0.0]):
        wanted = max(0.0, extent[0] + extent[1], extent[1])
        assert without_end.most(np.array(extent)) >= wanted - 1e-12


def test_where_a_parabola_is_farthest():
    rng = np.random.default_rng(0)
    a, t = rng.normal(size=(2, 300))
    a[:20], t[20:40] = 0.0, 0.0
    grid = np.linspace(-1, 1, 1001)[:, None]
    s, most = farthest(a, t)
    assert (np.abs(s) <= 1).all()
    assert (most >= (a * grid + t * grid**2).max(axis=0) - 1e-14).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_support_is_above_every_point_of_every_cell(n):
    rng = np.random.default_rng(n)
    cells, r = 3 if n else 1, 5
    parts = rng.normal(size=(cells, 1 + n + n * (n + 1) // 2, r))
    errors = rng.uniform(0, 0.2, cells)
    usable = np.array([True, True, False, True, True])
    own = BoundedColumn(0, Cells(parts, errors, usable), tuple(range(n)), -1.0)
    hull = Hull([own], r)
    for _ in range(50):
        u = rng.normal(size=r)
        u /= np.linalg.norm(u)
        support = hull.support(u)
        extent, atoms = support.extent, hull.atoms(support)
        s = rng.uniform(-1, 1, (400, n))
        powers = [np.ones((400, 1)), s]
        powers += [(s[:, i] * s[:, j])[:, None] for i in range(n) for j in range(i, n)]
        reached = -(np.hstack(powers) @ parts) @ (u * usable) + errors[:, None]
        assert extent[0] >= reached.max() - 1e-12
        assert (atoms.vectors[:, 2] == 0).all()


@pytest.mark.parametrize("flag", [-1, 0, 1])
@pytest.mark.parametrize("kind", ["nan", "random", "huge"])
def test_whatever_the_quadratic_program_says_the_bound_is_valid(flag, kind, monkeypatch):
    """Its answer only chooses the direction."""
    rng = np.random.default_rng(0)

    def solved(square, *_):
        n = len(square)
        x = {"nan": np.full(n, np.nan), "random": rng.random(n), "huge": rng.random(n) * 1e300}[
            kind
        ]
        return x, 0.0, flag, {}

    monkeypatch.setattr("igpe.algebraic.bounds.bound.daqp.solve", solved)
    case = Case("michaelis 2", brute_force.regressions()["michaelis 2"], Setting())
    with np.errstate(all="ignore"):
        for _ in range(20):
            assert case.check(rng).valid


def test_data_that_are_zero_have_no_bound():
    case = Case("michaelis 2", brute_force.regressions()["michaelis 2"], Setting())
    root = brute_force.SearchBox((Span(0, 0),) * 2, (0.0, 0.0), (100.0, 100.0))
    case.search.prepare([root], 1)
    hull, ranges = case.search.hull(root, 1)
    for cutoff in (0.0, 1.0, np.inf):
        assert bound(np.zeros(len(case.problem.target)), hull, ranges, cutoff).lower == 0.0
