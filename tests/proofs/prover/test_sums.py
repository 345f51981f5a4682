"""Sums of states beside the states: which there are, which are kept, and that their tubes hold."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from test_enclosure import violations

import igpe
from igpe.proofs.prover import posed as posing
from igpe.proofs.prover import sums
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.posed import Dynamic, posed


def problem(
    slopes: Callable[[Any], tuple[Any, ...]], data: dict[str, list[float]], start: dict[str, Any]
) -> igpe.Problem:
    """Unknowns k, l within [0.2, 2] and [0.1, 1]; slopes of the states of `start`."""

    def model(times: Iterable[float]) -> Any:
        m = pyo.ConcreteModel()
        m.t = dae.ContinuousSet(initialize=times)
        m.k, m.l = pyo.Var(bounds=(0.2, 2.0)), pyo.Var(bounds=(0.1, 1.0))
        for name in start:
            m.add_component(name, pyo.Var(m.t))
            m.add_component(f"d{name}", dae.DerivativeVar(m.component(name)))

        def balance(m: Any, t: float, i: int) -> Any:
            now = {n: m.component(n)[t] for n in start} | {"k": m.k, "l": m.l}
            return m.component(f"d{list(start)[i]}")[t] == slopes(now)[i]

        m.balance = pyo.Constraint(m.t, range(len(start)), rule=balance)
        return m

    table = pd.DataFrame({"time": np.arange(1.0, 1 + len(next(iter(data.values()))))} | data)
    run = igpe.Experiment(table, start=start, start_time=0.0, sigma=0.05)
    return igpe.Problem(model, parameters=["k", "l"], experiments=[run])


def epidemic() -> igpe.Problem:
    """S -> I -> R."""

    def slopes(x: Any) -> tuple[Any, ...]:
        new, back = x["k"] * x["S"] * x["I"], x["l"] * x["I"]
        return -new, new - back, back

    data = {"I": [0.25, 0.4, 0.45], "R": [0.06, 0.15, 0.3]}
    return problem(slopes, data, {"S": igpe.Unknown(0.8, 0.9), "I": 0.1, "R": 0.0})


def pairs(share: float) -> igpe.Problem:
    """A, of which a share becomes B, and A to C."""

    def slopes(x: Any) -> tuple[Any, ...]:
        return -x["k"] * x["A"] - x["l"] * x["A"], share * x["k"] * x["A"], x["l"] * x["A"]

    return problem(slopes, {"B": [0.1, 0.2], "C": [0.1, 0.2]}, {"A": 1.0, "B": 0.0, "C": 0.0})


def test_what_is_conserved_comes_first_and_sums_in_which_terms_cancel_after_it() -> None:
    found = sums.candidates(posed(epidemic()).experiments[0].tapes[0])
    assert found[0] == (1, 1, 1)
    assert set(found[1:]) == {(1, 1, 0), (0, 1, 1)}


def test_coefficients_are_whole_numbers_or_the_sum_is_none() -> None:
    assert sums.candidates(posed(pairs(0.75)).experiments[0].tapes[0])[0] == (3, 4, 3)
    # a tenth is no double: 10 B would not be conserved exactly
    found = sums.candidates(posed(pairs(0.1)).experiments[0].tapes[0])
    assert found == [(1, 0, 1)]


def test_a_sum_is_kept_where_it_narrows_tubes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "GAIN", 0.02)
    kept = posed(epidemic()).experiments[0].sums
    assert [1, 1, 1] in kept.tolist()
    monkeypatch.setattr(sums, "GAIN", 1e9)
    assert not len(posed(epidemic()).experiments[0].sums)


def test_tubes_with_sums_know_more(monkeypatch: pytest.MonkeyPatch) -> None:
    low, high = np.array([0.8, 0.2, 0.8]), np.array([1.2, 0.4, 0.9])
    widths = []
    for gain in (0.02, 1e9):
        monkeypatch.setattr(sums, "GAIN", gain)
        enclosure = BoxEnclosure(posed(epidemic()))
        enclosure.coarse(low, high, np.inf)
        widths.append((enclosure.rows.high - enclosure.rows.low).sum())
    assert widths[0] < 0.95 * widths[1]


@pytest.fixture
def all_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "GAIN", -1.0)


@pytest.mark.usefixtures("all_sums")
@pytest.mark.parametrize("given", [epidemic, lambda: pairs(0.75)])
def test_claims_with_sums_hold(given: Callable[[], igpe.Problem]) -> None:
    dynamic = posed(given())
    assert len(dynamic.experiments[0].sums) >= 2
    assert violations(given(), dynamic, boxes=15, seed=11) == []


def _other_coefficients(run: Any) -> Any:
    return run._replace(sums=run.sums * np.array([1.0, 0.9, 1.0]))


def _other_slopes(run: Any) -> Any:
    results = run.sharp.results.copy()
    results[3:] = results[1]
    needed = run.sharp.needed.copy()
    needed[3:] = needed[1]
    return run._replace(sharp=run.sharp._replace(results=results, needed=needed))


@pytest.mark.usefixtures("all_sums")
@pytest.mark.parametrize("spoilt", [_other_coefficients, _other_slopes])
def test_broken_sums_are_caught(spoilt: Callable[[Any], Any]) -> None:
    given = epidemic()
    whole: Dynamic = posing.posed(given)
    broken = whole._replace(experiments=tuple(map(spoilt, whole.experiments)))
    assert violations(given, broken, boxes=15, seed=11) != []


def test_a_proof_with_sums_is_confirmed() -> None:
    proof = igpe.certify(epidemic(), gap=1e-2)
    assert proof.closed
    assert igpe.verify(proof, epidemic())
