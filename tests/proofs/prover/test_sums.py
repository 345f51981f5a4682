"""Sums of states: which there are, when tubes heed them, and that such tubes hold."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
from ode import ode
from scipy.integrate import solve_ivp
from test_enclosure import violations

import igpe
from igpe.proofs.prover import search
from igpe.proofs.prover.enclosure import BoxEnclosure, Heeded
from igpe.proofs.prover.kernels.tape import STATE
from igpe.proofs.prover.posed import posed
from igpe.proofs.prover.search import heeded, keep_sums_that_pay


def problem(
    slopes: Callable[[Any], tuple[Any, ...]], data: dict[str, list[float]], start: dict[str, Any]
) -> igpe.Problem:
    """Unknowns k, l within [0.2, 2] and [0.1, 1]; slopes of the states of `start`."""

    def slope(m: Any, t: float, i: int) -> Any:
        return slopes({n: m.component(n)[t] for n in start} | {"k": m.k, "l": m.l})[i]

    states = {n: partial(slope, i=i) for i, n in enumerate(start)}
    model = ode(states, k=(0.2, 2.0), l=(0.1, 1.0))
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


def tank() -> igpe.Problem:
    """A stirred tank in which S becomes X, and S is lost: S + X has a slope that needs neither."""

    def slopes(x: Any) -> tuple[Any, ...]:
        rate = x["k"] * x["S"] * x["X"]
        return 0.3 * (1 - x["S"]) - rate - x["l"] * x["S"] ** 2, rate - 0.3 * x["X"]

    return problem(slopes, {"S": [0.8, 0.6], "X": [0.15, 0.3]}, {"S": 1.0, "X": 0.1})


def by_product() -> igpe.Problem:
    """2 A -> B + Q, and A is lost: Q is in no slope."""

    def slopes(x: Any) -> tuple[Any, ...]:
        rate = x["k"] * x["A"] ** 2
        return -2 * rate - x["l"] * x["A"], rate - 0.1 * x["B"] * x["A"], rate

    return problem(slopes, {"A": [0.5, 0.3], "Q": [0.2, 0.3]}, {"A": 1.0, "B": 0.5, "Q": 1.0})


def found(given: igpe.Problem) -> list[list[float]]:
    sums = heeded(posed(given).experiments[0].tapes[0])
    return [] if sums is None else sums.sums.tolist()


def with_sums(given: igpe.Problem, sums: Sequence[Sequence[float]]) -> Heeded:
    """These sums, said to be conserved."""
    (run,) = posed(given).experiments
    return Heeded(run.sharp, np.array(sums, dtype=float).reshape(-1, len(run.sharp.results)))


def test_what_is_conserved_exactly_is_found_in_whole_numbers() -> None:
    assert found(epidemic()) == [[1, 1, 1]]
    assert found(pairs(0.75)) == [[3, 4, 3]]
    # a tenth is no double: A + 10 B + C is not conserved exactly
    assert found(pairs(0.1)) == []


def test_a_sum_in_which_rates_cancel_has_a_slope_of_its_own() -> None:
    assert found(tank()) == [[1, 1, -1]]
    (run,) = posed(tank()).experiments
    sums = heeded(run.tapes[0])
    assert sums is not None
    used = sums.slope.needed[2] & (sums.slope.op == STATE)
    assert sums.slope.a[used].tolist() == [0, 2]  # S and the sum


def heeding(given: igpe.Problem, sums: Sequence[Sequence[float]]) -> BoxEnclosure:
    enclosure = BoxEnclosure(posed(given), 3)
    enclosure.heed([with_sums(given, sums)])
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


@pytest.mark.parametrize(
    ("cut", "dearer", "is_kept"), [(5.0, 50.0, True), (1e4, 50.0, False), (1e4, 0.01, True)]
)
def test_sums_are_kept_where_they_prove_more_or_cost_nothing(
    cut: float, dearer: float, is_kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("igpe.proofs.prover.enclosure.CUT", dearer)  # operations of one sum
    enclosure = heeding(returning(), [[1, 1, 1]])
    keep_sums_that_pay(enclosure, [(np.array([1.4, 0.2]), np.array([1.7, 0.3]), cut)])
    assert any(enclosure.heeded) == is_kept


@pytest.mark.parametrize("given", [epidemic, lambda: pairs(0.75), tank, by_product])
def test_claims_with_sums_hold(given: Callable[[], igpe.Problem]) -> None:
    sums = heeded(posed(given()).experiments[0].tapes[0])
    assert sums is not None
    assert violations(given(), posed(given()), boxes=15, seed=11, sums=[sums]) == []


def test_a_sum_with_another_slope_is_caught() -> None:
    (run,) = posed(tank()).experiments
    sums = heeded(run.tapes[0])
    assert sums is not None
    number = np.where(sums.slope.number == 0.3, 0.4, sums.slope.number)
    wrong = sums._replace(slope=sums.slope._replace(number=number))
    assert violations(tank(), posed(tank()), boxes=15, seed=11, sums=[wrong]) != []


@pytest.mark.parametrize("wrong", [[1, 0.9, 1], [1, 1, 0]])
def test_what_is_not_conserved_is_caught(wrong: Sequence[float]) -> None:
    given = epidemic()
    held = [with_sums(given, [wrong])]
    assert violations(given, posed(given), boxes=15, seed=11, sums=held) != []


@pytest.mark.parametrize("given", [epidemic, tank])
def test_a_search_begins_with_sums_and_what_it_proves_is_confirmed(
    given: Callable[[], igpe.Problem], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "WEIGHED", 1)
    seen = []

    def look(enclosure: BoxEnclosure, boxes: Any) -> None:
        seen.append((any(enclosure.heeded), len(boxes)))

    monkeypatch.setattr(search, "keep_sums_that_pay", look)
    proof = igpe.certify(given(), gap=1e-2)
    assert len(seen) == 1
    assert seen[0][0]
    assert proof.closed
    assert igpe.verify(proof, given())
