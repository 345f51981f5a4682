"""The check with Arb: what it encloses is true, and forged certificates are refuted by it alone."""

import json
import sys
from collections.abc import Iterable
from typing import Any

import bellman
import consecutive
import containment as true
import mpmath
import numpy as np
import pandas as pd
import pyomo.environ as pyo
import pytest
from ode import over_time
from test_priors_and_tables import tank
from test_verify import OBJECTIVE, certificate

import igpe
from igpe.proofs.checker import verify
from igpe.proofs.checker.experiments import replays
from igpe.proofs.checker.verify import read_tree

pytest.importorskip("flint", reason="python-flint is not installed: pip install 'igpe[arb]'")
from flint import arb

from igpe.proofs.checker.arb import (
    LEAF,
    ArbCheck,
    BallBox,
    ClaimedLeaf,
    Effort,
    Jet,
    TaylorStep,
    ThirdCheck,
    Undecided,
)


def checked(given: Any, problem: igpe.Problem, most: int = 1000) -> ArbCheck:
    """By Arb alone, with so many of the leaves."""
    tree = read_tree(given)
    claims = tree.claims()[:most]
    leaves = claims.low, claims.high, np.full(len(claims), tree.lower_bound)
    return ThirdCheck(problem)(tree.point, tree.objective, leaves, end=np.inf)


def test_the_objective_has_thirty_right_digits() -> None:
    """The chain's concentrations are known as formulas."""
    problem, p = consecutive.problem(), list(consecutive.OPTIMUM.values())
    m = problem.experiments[0].measurements
    with mpmath.workdps(60):
        a, b = map(mpmath.mpf, p)
        curves = [
            lambda t: mpmath.exp(-a * t),
            lambda t: a / (b - a) * (mpmath.exp(-a * t) - mpmath.exp(-b * t)),
        ]
        rows = zip(m.column, m.times[m.row].tolist(), m.value.tolist(), strict=True)
        true = mpmath.fsum((curves[j](mpmath.mpf(t)) - y) ** 2 for j, t, y in rows)
        found = ThirdCheck(problem).objective(p)
        low, high = (
            mpmath.mpf(end.str(60, radius=False)) for end in (found.lower(), found.upper())
        )
        slack = true * mpmath.mpf(10) ** -50  # of printing the ends
        assert low - slack <= true <= high + slack
        assert high - low < true * mpmath.mpf(10) ** -30


@pytest.mark.slow
def test_a_true_certificate_is_confirmed() -> None:
    found = igpe.verify(
        certificate() | {"lower_bound": 0.9 * OBJECTIVE}, consecutive.problem(), with_="arb"
    )
    assert found
    assert found.arb is not None
    assert found.arb.is_objective_confirmed
    assert found.arb.confirmed == found.arb.leaves == 6
    assert "Arb confirms the objective [1.185844860085968" in str(found)
    assert "Of 6 leaves, igpe drew 6 at random: Arb confirms 6 and leaves 0 undecided." in str(
        found
    )


def test_what_no_time_is_left_for_is_undecided() -> None:
    third, problem = ThirdCheck(consecutive.problem()), read_tree(certificate())
    claims = problem.claims()
    leaves = claims.low, claims.high, np.full(len(claims), OBJECTIVE / 2)
    found = third(problem.point, OBJECTIVE, leaves, end=0.0)
    assert (found.confirmed, found.undecided, found.objective) == (0, 6, "")
    assert "does not confirm the objective." in found.sentence
    assert not found.refuted


def test_ctrl_c_leaves_the_rest_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, False])

    def leaf(*_: Any) -> bool:
        for answer in answers:
            return answer
        raise KeyboardInterrupt

    monkeypatch.setattr(ThirdCheck, "leaf", leaf)
    found = checked(certificate(), consecutive.problem())
    assert (found.confirmed, found.undecided, found.refuted) == (1, 5, ())
    assert found.is_objective_confirmed


class TestForged:
    """The checker is blind here: it reads the wrong equations, or is not asked."""

    def test_an_objective_that_is_too_small(self) -> None:
        forged = certificate() | {"objective": OBJECTIVE * (1 - 1e-8), "lower_bound": 1e-7}
        found = checked(forged, consecutive.problem(), most=0)
        assert not found.is_objective_confirmed
        ((at, why),) = found.refuted
        assert list(at) == forged["point"]
        assert "is [1.185844860085968" in why

    def test_an_objective_that_is_wrong_in_its_last_digit(self) -> None:
        """True bounds are the doubles beside it."""
        problem, given = consecutive.problem(), certificate()
        at = float(ThirdCheck(problem).objective(given["point"]).mid())
        for end, is_right in ((np.nextafter(at, 1), True), (np.nextafter(at, 0), False)):
            found = checked(given | {"objective": float(end), "lower_bound": 1e-7}, problem, 0)
            assert found.is_objective_confirmed == is_right
            assert bool(found.refuted) != is_right

    @pytest.mark.slow
    def test_a_bound_that_is_too_high(self) -> None:
        problem = consecutive.problem()
        third = ThirdCheck(problem)
        leaf = ClaimedLeaf([4.9, 0.95], [5.1, 1.3], 1.5e-6)
        _, better = third.leaf(leaf)  # type: ignore[misc]
        assert float(third.objective(better)) < 1.5e-6
        forged = certificate() | {"point": [5.05, 1.0], "objective": 1e-3, "lower_bound": 1.5e-6}
        reasons = [why for _, why in checked(forged, problem).refuted]
        assert any("below 1.5e-06 according to Arb" in why for why in reasons)

    @pytest.mark.slow
    def test_equations_that_both_others_read_wrongly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Prover and checker share the translation; a mistake in it convinces both."""

        def wrong(times: Iterable[float]) -> Any:
            m = consecutive.model(times)
            m.del_component(m.rate_B)
            m.rate_B = pyo.Constraint(
                m.t, rule=lambda m, t: m.dx2[t] == m.p1 * m.x1[t] - 1.001 * m.p2 * m.x2[t]
            )
            return m

        runs = consecutive.problem().experiments
        other = igpe.Problem(wrong, parameters=["p1", "p2"], experiments=list(runs))
        proof = igpe.certify(other)
        assert igpe.verify(proof, other)
        monkeypatch.setattr(verify, "replays", lambda _: replays(other))
        assert igpe.verify(proof, consecutive.problem())
        found = igpe.verify(proof, consecutive.problem(), with_="arb")
        assert found.verdict is igpe.proofs.Verdict.REFUTED
        assert "according to Arb" in found.sentence


def _made(times: Iterable[float]) -> Any:
    """Functions, a slope with a factor, algebraic variables, an output and a start to compute."""
    m = over_time(times, "a b", "y rate u", k=(0.2, 2.0), w=(0.5, 3.0))
    m.size = pyo.Param(initialize=1.7, mutable=True)
    m.one = pyo.Constraint(
        m.t, rule=lambda m, t: m.size * m.da[t] + m.rate[t] - m.u[t] == -0.1 * m.k * m.da[t]
    )
    m.law = pyo.Constraint(
        m.t, rule=lambda m, t: m.k * pyo.exp(-m.b[t]) * m.a[t] / (0.5 + m.a[t]) == m.rate[t]
    )
    m.two = pyo.Constraint(
        m.t,
        rule=lambda m, t: (
            m.db[t] == pyo.sin(m.w * m.a[t]) - pyo.sqrt(1 + m.b[t] ** 2) + pyo.cos(m.b[t])
        ),
    )
    m.outputs = pyo.Constraint(
        m.t, rule=lambda m, t: m.y[t] == pyo.log(2 + m.a[t]) + pyo.tanh(m.b[t]) + m.a[t] ** 1.5
    )
    m.sum = pyo.Expression(m.t, rule=lambda m, t: (m.a[t] + m.b[t]) ** m.k / m.w)
    m.begin = pyo.Constraint(expr=m.b[m.t.first()] == 0.2 * m.w)
    return m


def made() -> igpe.Problem:
    times = np.array([0.0, 0.3, 0.8, 1.0, 1.7])
    data = pd.DataFrame({"time": times, "y": 2 - times / 3, "sum": 1 - times / 3})
    table = igpe.linear_input([0.0, 0.5, 3.0], [0.1, 0.4, 0.0])
    start = {"a": igpe.Unknown(0.8, 1.2)}
    run = igpe.Experiment(data, start=start, start_time=0.0, inputs={"u": table}, sigma=0.1)
    prior = igpe.losses.NormalPrior(0.7, 0.2)
    return igpe.Problem(_made, parameters=["k", "w"], experiments=[run], priors={"k": prior})


def one_tank() -> igpe.Problem:
    return tank().of_experiments(["run 1"])


CASES = {
    "made": made,
    "tank": one_tank,
    "consecutive": consecutive.problem,
    "bellman": bellman.problem,
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("share", [0.0, 1e-4, 0.03])
def test_residuals_of_random_boxes_are_enclosed(name: str, share: float) -> None:
    problem, random = CASES[name](), np.random.default_rng(3)
    box = problem.box
    at = box.lower + 0.4 * (box.upper - box.lower)
    if name == "bellman":  # rates vary over decades in its box
        at = np.array(list(bellman.OPTIMUM.values()))
    half = share * np.abs(at)
    effort = Effort(**LEAF, steps=np.inf, end=np.inf)
    where = BallBox.between(box.names, (at - half).tolist(), (at + half).tolist())
    rows = list(ThirdCheck(problem).residuals(where, effort))
    experiment, reference = true.replay_and_reference(problem)
    priors, m = len(problem.priors), problem.experiments[0].measurements
    first = int((m.times[m.row] == experiment.t0).sum()) if priors else 0
    for p in [at, *(at + half * random.uniform(-1, 1, (5, len(half))))]:
        residuals = true.integrated(experiment, reference, p)
        assert residuals is not None
        before, own, after = np.split(residuals, [first, first + priors])
        for row, residual in zip(rows, [*own, *before, *after], strict=True):
            allowed = arb(float(residual), 1e-9 * (1 + abs(residual)))  # of the integration
            assert row.box.value.overlaps(allowed)
            moved = [arb(v) - where.middle[n] for n, v in zip(box.names, p.tolist(), strict=True)]
            slopes = [row.box.by.get(n, arb(0)) for n in box.names]
            by_slopes = sum((s * d for s, d in zip(slopes, moved, strict=True)), row.middle)
            assert by_slopes.overlaps(allowed)
            assert row.box.value.rad() < 1e-3 + 60 * share * (1 + abs(residual))


@pytest.mark.parametrize("h", [0.05, 0.2, 0.5, 1.0, 2.2, 4.0])
def test_a_tube_holds_the_solution_or_there_is_none(h: float) -> None:
    """The chain with p2 < 0 and no A grows like exp(-p2 t)."""
    equations = ThirdCheck(consecutive.problem()).equations[0]
    parameters = equations.parameters({"p1": arb(1), "p2": arb(-1)})
    step = TaylorStep(equations, parameters, 0.0, arb(0), arb(h))
    try:
        _, grown = step.tube([Jet(arb(0), {}), Jet(arb(1), {0: arb(1)})])
    except Undecided:
        assert h > 0.2
    else:
        for v in (grown.value, grown.by[0]):
            assert v.contains(1)
            assert v.contains(arb(h).exp())


def test_what_the_reader_does_not_know_is_refused() -> None:
    def timed(times: Iterable[float]) -> Any:
        m = _made(times)
        m.del_component(m.two)
        m.two = pyo.Constraint(m.t, rule=lambda m, t: m.db[t] == pyo.cos(t))
        return m

    with pytest.raises(igpe.errors.Unsupported, match="'two', whose expression is not the same"):
        ThirdCheck(igpe.Problem(timed, parameters=["k", "w"], experiments=list(made().experiments)))


def test_without_python_flint_it_says_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "igpe.proofs.checker.arb", None)
    with pytest.raises(igpe.errors.SolverMissing, match=r"pip install 'igpe\[arb\]'"):
        igpe.verify(certificate(), consecutive.problem(), with_="arb")


def test_another_name_is_refused() -> None:
    with pytest.raises(igpe.errors.ProblemError, match="verify needs 'arb' or nothing"):
        igpe.verify(json.dumps(certificate()), consecutive.problem(), with_="flint")  # type: ignore[arg-type]


def test_settings_of_flint_come_back() -> None:
    import flint  # noqa: PLC0415

    before = flint.ctx.prec, flint.ctx.cap
    checked(certificate(), consecutive.problem(), 1)
    assert (flint.ctx.prec, flint.ctx.cap) == before


def test_a_start_condition_has_the_experiments_input() -> None:
    """The model's own number is 1."""

    def model(times: Iterable[float]) -> Any:
        m = over_time(times, "A", k=(0, 1))
        m.A0 = pyo.Param(mutable=True, initialize=1.0)
        m.rate = pyo.Constraint(m.t, rule=lambda m, t: m.dA[t] == -m.k * m.A[t])
        m.start = pyo.Constraint(expr=m.A[m.t.first()] == m.A0)
        return m

    data = pd.DataFrame({"time": [0.0, 1.0], "A": [2.0, 2 * np.exp(-0.5)]})
    run = igpe.Experiment(data, inputs={"A0": 2.0}, sigma=1.0)
    problem = igpe.Problem(model, parameters=["k"], experiments=run)
    assert float(ThirdCheck(problem).objective([0.5]).mid()) == pytest.approx(0.0, abs=1e-20)
