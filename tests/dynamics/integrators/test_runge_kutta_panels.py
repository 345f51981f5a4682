"""Many directions stand in panels of eight, which go through a step one after the other."""

import numpy as np
import pandas as pd
import pytest
from initial_values import needs_compiler
from interval_problems import cut
from ode import row

import igpe
from igpe.dynamics.integrators.runge_kutta import Pair, RungeKutta

STATES = 45
RATES = np.random.default_rng(0).uniform(1.0, 4.0, STATES - 1)
STEP = 1e-4  # of differences


def chain():
    """Reactions in a row, each with a rate constant of its own, so that panels move few of them."""

    def slope(m, i, t):
        gain = m.k[i - 1] * m.x[i - 1, t] if i else 0.0
        return gain - (m.k[i] * m.x[i, t] if i < STATES - 1 else 0.0)

    model = row(range(STATES), slope, indexed={"k": (range(STATES - 1), (0.01, 100))})
    names = [f"x[{i}]" for i in range(STATES)]
    data = pd.DataFrame({"time": [0.0, 1.0]}).assign(**dict.fromkeys(names, 0.1))
    start = {name: float(name == "x[0]") for name in names}
    run = igpe.Experiment(data, start=start, sigma=0.01)
    unknowns = [f"k[{i}]" for i in range(STATES - 1)]
    return igpe.Problem(model, parameters=unknowns, experiments=[run])


@pytest.fixture(scope="module")
def one():
    truth = {f"k[{i}]": float(k) for i, k in enumerate(RATES)}
    return cut(chain(), truth, [0.0, 1.0, 3.0], [0.5, 1.0, 2.0, 3.0])


@needs_compiler
@pytest.mark.parametrize("pair", [Pair.EXPLICIT, Pair.IMPLICIT])
def test_derivatives_in_panels_are_those_of_differences(one, pair):
    intervals = one.made(RungeKutta(1e-11, 1e-13, pair=pair))
    came = intervals.run(one.starts, one.q)
    for d in (0, 7, 8, 30, STATES - 2):
        sides = []
        for sign in (1, -1):
            q = one.q.copy()
            q[d] += sign * STEP
            sides.append(intervals.run(one.starts, q, derivatives=False))
        for name in ("ends", "measured"):
            high, low = (getattr(side, name) for side in sides)
            by = getattr(came, f"{name}_by")[:, :, STATES + d]
            assert by == pytest.approx((high - low) / (2 * STEP), rel=1e-4, abs=1e-7)


@needs_compiler
@pytest.mark.parametrize("pair", [Pair.EXPLICIT, Pair.IMPLICIT])
def test_directions_have_the_same_derivatives_in_whatever_panel_they_stand(one, pair):
    """With a probe, on which steps depend alone; gaps are added to the last direction."""
    intervals = one.made(RungeKutta(1e-6, 1e-8, pair=pair))
    first = np.random.default_rng(1).standard_normal((STATES + len(RATES), 9))
    many = intervals.chained(one.starts, one.q, np.tile(first, 10), probed=True)
    few = intervals.chained(one.starts, one.q, first[:, ::-1], probed=True)
    assert (many.ends == few.ends).all()
    by, scale = many.ends_by[:, :, 1:9], np.abs(many.ends_by).max()
    assert few.ends_by[:, :, 7::-1] == pytest.approx(by, rel=1e-12, abs=1e-14 * scale)
