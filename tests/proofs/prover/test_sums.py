"""Conserved sums of states: which there are, when tubes heed them, and that such tubes hold."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from pyomo import dae
from scipy.integrate import solve_ivp
from test_enclosure import violations

import igpe
from igpe.proofs.prover import search
from igpe.proofs.prover.enclosure import BoxEnclosure
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.sums import choose_sums, conserved


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


def found(given: igpe.Problem) -> list[list[float]]:
    return conserved(posed(given).experiments[0].tapes[0]).tolist()


def test_what_is_conserved_exactly_is_found_in_whole_numbers() -> None:
    assert found(epidemic()) == [[1, 1, 1]]
    assert found(pairs(0.75)) == [[3, 4, 3]]
    # a tenth is no double: A + 10 B + C is not conserved exactly
    assert found(pairs(0.1)) == []


def heeding(given: igpe.Problem, sums: Sequence[Sequence[float]]) -> BoxEnclosure:
    enclosure = BoxEnclosure(posed(given), 3)
    enclosure.heed([np.array(sums, dtype=float).reshape(-1, 3)])
    return enclosure


BOXES = [(np.array([0.8, 0.2, 0.8]), np.array([1.2, 0.4, 0.9]))]


def test_tubes_with_sums_know_more() -> None:
    widths = []
    for sums in ([[1, 1, 1]], []):
        enclosure = heeding(epidemic(), sums)
        enclosure.coarse(*BOXES[0], np.inf)
        widths.append((enclosure.rows.high - enclosure.rows.low).sum())
    assert widths[0] < 0.95 * widths[1]


def returning() -> igpe.Problem:
    """S -> I -> R -> S: slopes of three states that depend on all of them."""

    def slopes(x: Any) -> tuple[Any, ...]:
        new, back, lost = x["k"] * x["S"] * x["I"], x["l"] * x["I"], 0.1 * x["R"]
        return lost - new, new - back, back - lost

    def rates(_: float, y: Any) -> tuple[Any, ...]:
        return slopes({"S": y[0], "I": y[1], "R": y[2], "k": 1.5, "l": 0.5})

    times = np.arange(1.0, 13.0)
    y = solve_ivp(rates, (0, 12), [0.9, 0.1, 0.0], t_eval=times, rtol=1e-10).y.round(3)
    start = {"S": 0.9, "I": 0.1, "R": 0.0}
    return problem(slopes, {"I": y[1].tolist(), "R": y[2].tolist()}, start)


@pytest.mark.parametrize(("cut", "count"), [(5.0, 1), (100.0, 0)])
def test_sums_are_heeded_where_they_prove_more(cut: float, count: int) -> None:
    enclosure = heeding(returning(), [])
    choose_sums(enclosure, [(np.array([1.4, 0.2]), np.array([1.7, 0.3]), cut)])
    assert len(enclosure.sums[0]) == count


def test_sums_are_not_heeded_for_more_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("igpe.proofs.prover.enclosure.CUT", 50.0)
    enclosure = heeding(returning(), [])
    choose_sums(enclosure, [(np.array([1.4, 0.2]), np.array([1.7, 0.3]), 5.0)])
    assert not len(enclosure.sums[0])


@pytest.mark.parametrize(
    ("given", "sums"), [(epidemic, [[1, 1, 1]]), (lambda: pairs(0.75), [[3, 4, 3]])]
)
def test_claims_with_sums_hold(
    given: Callable[[], igpe.Problem], sums: Sequence[Sequence[float]]
) -> None:
    held = [np.array(sums, dtype=float)]
    assert violations(given(), posed(given()), boxes=15, seed=11, sums=held) == []


@pytest.mark.parametrize("wrong", [[1, 0.9, 1], [1, 1, 0]])
def test_what_is_not_conserved_is_caught(wrong: Sequence[float]) -> None:
    held = [np.array([wrong], dtype=float)]
    given = epidemic()
    assert violations(given, posed(given), boxes=15, seed=11, sums=held) != []


def test_a_search_begins_without_sums_and_confirms_what_it_proves_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "WEIGHED", 1)
    chosen = []

    def all_of_them(enclosure: BoxEnclosure, boxes: Any) -> None:
        enclosure.heed([np.array([[1.0, 1.0, 1.0]])])
        chosen.append(len(boxes))

    monkeypatch.setattr(search, "choose_sums", all_of_them)
    proof = igpe.certify(epidemic(), gap=1e-2)
    assert len(chosen) == 1
    assert proof.closed
    assert igpe.verify(proof, epidemic())
