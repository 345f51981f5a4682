"""Units do not matter to multiple shooting: the same fit, from the same start, in any."""

import numpy as np
import pandas as pd
import pytest
from ode import ode

from igpe.core.status import Status
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.dynamics.shooting.single_shooting import SingleShooting
from igpe.problem.experiment import Experiment, Unknown
from igpe.problem.problem import Problem

TIMES = np.linspace(0.0, 4.0, 17)
A = "2 1.558 1.213 .945 .736 .573 .446 .348 .271 .211 .164 .128 .0996 .0775 .0604 .047 .0366"
B = ".5 .912 1.15 1.258 1.281 1.254 1.203 1.142 1.08 1.022 .969 .922 .881 .845 .815 .788 .766"
COUPLED = np.array([A.split(), B.split()], dtype=float).T  # k1 = 1, k2 = 0.5, c = 0.2, roughly
ONCE = MultipleShooting(restarts=Restarts(count=0))


def problem(time, a, b, *, bounds=(None, None), known=True):
    """A vanishes into B, which is fed and pairs; the units of time, A and B."""

    builder = ode(
        {
            "A": lambda m, t: -m.k1 * m.A[t],
            "B": lambda m, t: m.k1 * m.A[t] * (b / a) - m.k2 * m.B[t] ** 2 + m.c,
        },
        k1=bounds,
        k2=bounds,
        c=bounds,
    )

    data = pd.DataFrame({"time": TIMES * time, "A": COUPLED[:, 0] * a, "B": COUPLED[:, 1] * b})
    start = {"A": 2 * a, "B": 0.5 * b}
    if not known:
        start = {"A": Unknown(0, 10 * a), "B": Unknown(0, 10 * b)}
    run = Experiment(data, start=start, sigma={"A": 0.02 * a, "B": 0.02 * b})
    return Problem(builder, parameters=["k1", "k2", "c"], experiments=run)


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("factor", [3.0, 0.0])
@pytest.mark.parametrize("units", [(1e-8, 1e12, 1e-12), (1e9, 1e-15, 1e-9)])
def test_any_units_of_time_states_and_unknowns_give_the_same_fit(units, factor, known):
    time, a, b = units
    sizes = {"k1": 1 / time, "k2": 1 / (time * b), "c": b / time}
    if not known:
        sizes |= {"A(t0)": a, "B(t0)": b}
    here = problem(*units, bounds=(0, None), known=known)
    found = ONCE.estimate(here, {n: factor * size for n, size in sizes.items()})
    plain = problem(1.0, 1.0, 1.0, bounds=(0, None), known=known)
    expected = SingleShooting().estimate(plain, dict.fromkeys(sizes, 1.0))
    assert found.status is Status.CONVERGED
    assert found.objective == pytest.approx(expected.objective, rel=1e-5)
    for name, size in sizes.items():
        assert found.parameters[name] / size == pytest.approx(expected.parameters[name], rel=1e-4)
