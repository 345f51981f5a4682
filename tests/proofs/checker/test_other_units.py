"""States in other units, of which the checker confirms that they are the same problem."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ode import ode
from scipy.integrate import solve_ivp

import igpe
from igpe.equations.compiled import compiled
from igpe.equations.shared_rates import with_shared_rates
from igpe.proofs.checker import experiments
from igpe.proofs.prover.posed import posed

TRUTH = {"mu": 0.8, "Y": 0.5, "a": 0.3}


def slopes(x: Mapping[str, Any], mu: Any, y: Any, a: Any) -> list[Any]:
    """Growth on a substrate with a yield, and a product."""
    growth = mu * x["S"] * x["X"] / (0.5 + x["S"])
    return [growth, -growth / y, a * growth]


def problem() -> igpe.Problem:
    """Three unknowns within a factor of 1.5, all states measured."""

    def slope(m: Any, t: float, i: int) -> Any:
        return slopes({s: m.component(s)[t] for s in "XSQ"}, m.mu, m.Y, m.a)[i]

    model = ode({s: partial(slope, i=i) for i, s in enumerate("XSQ")}, **dict.fromkeys(TRUTH))
    times = np.linspace(0.5, 6.0, 8)
    run = solve_ivp(
        lambda t, x: slopes(dict(zip("XSQ", x, strict=True)), *TRUTH.values()),
        (0.0, 6.0), [0.1, 1.0, 0.0], "LSODA", times, rtol=1e-9, atol=1e-12,
    )  # fmt: skip
    noise = np.random.default_rng(1).standard_normal(run.y.T.shape)
    table = pd.DataFrame(run.y.T + 0.01 * noise, columns=list("XSQ")).assign(time=times)
    given = igpe.Experiment(table, start={"X": 0.1, "S": 1.0, "Q": 0.0}, start_time=0.0, sigma=0.01)
    bounds = {n: (v / 1.5, v * 1.5) for n, v in TRUTH.items()}
    return igpe.Problem(model, parameters=bounds, experiments=[given])


def test_a_certificate_with_yields_is_closed_and_verified() -> None:
    here = problem()
    assert len(posed(here).experiments[0].tapes[0].results) == 2
    proof = igpe.certify(here, TRUTH, gap=0.05)
    assert proof.closed
    assert igpe.verify(proof, here)


def test_both_read_the_same_states() -> None:
    here = problem()
    (replay,) = experiments.replays(here)
    assert replay.states == 2


@pytest.mark.parametrize("wrong", ["f", "start", "measured"])
def test_states_that_are_another_problem_are_not_used(
    wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forged(*given: Any) -> Any:
        made = with_shared_rates(*given)
        off = replace(made.ivp, **{wrong: getattr(made.ivp, wrong) * (1 + 1e-6)})
        return made._replace(ivp=off)

    here = problem()
    monkeypatch.setattr(experiments, "with_shared_rates", forged)
    (replay,) = experiments.replays(here)
    ivp = compiled(here).initial_value_problem(0, plain_powers=True)
    assert replay.states == len(ivp.states) == 3
