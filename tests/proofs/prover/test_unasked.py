"""Proofs that nobody asked for."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import consecutive
import lotka_volterra
import methanol
import numpy as np
import pyomo.environ as pyo
import pytest
from one_state import one_state

import igpe
from igpe.estimation.equally_good import SWITCH, with_refusal
from igpe.proofs.prover import unasked


@pytest.fixture
def tried(monkeypatch):
    """As outside of tests, with compiled kernels."""
    monkeypatch.delenv(SWITCH, raising=False)
    unasked.compile_kernels()


def test_a_small_problem_is_proved_by_default(tried):
    result = igpe.estimate(consecutive.problem())
    assert result.proof.closed
    assert result.proof.tree == ()
    assert "proved best within the bounds" in result.verdict["optimum"]


@pytest.mark.slow
def test_two_runs_prove_the_same(tried):
    one, other = (igpe.estimate(lotka_volterra.problem()).proof for _ in range(2))
    assert (one.examined, one.lower_bound) == (other.examined, other.lower_bound)


@pytest.mark.slow
def test_five_unknowns_are_not_tried(tried):
    result = igpe.estimate(methanol.problem())
    assert result.proof is None
    assert "certificate" not in result.seconds


def test_many_states_are_not_tried(tried, monkeypatch):
    monkeypatch.setattr("igpe.dynamics.shooting.base.MANY_STATES", 2)
    result = igpe.estimate(lotka_volterra.problem())
    assert result.proof is None
    assert "certificate" not in result.seconds


def test_the_effort_is_counted(tried, monkeypatch):
    """By what was computed, boxes that are still to come included."""
    searches = []
    is_enough = unasked._is_enough
    monkeypatch.setattr(unasked, "EFFORT", 0.1)
    monkeypatch.setattr(
        unasked, "_is_enough", lambda search: searches.append(search) or is_enough(search)
    )
    igpe.estimate(lotka_volterra.problem())
    last = searches[-1]
    work = last.enclosure.work * unasked.PER_OPERATION
    assert 0 < work < 0.1
    assert 0.05 < work + last.examined * unasked.PER_BOX < 0.1


def test_an_unfinished_proof_says_nothing(tried, monkeypatch):
    monkeypatch.setattr(unasked, "EFFORT", 1e-2)
    result = igpe.estimate(lotka_volterra.problem())
    assert result.proof is None
    assert "not proved: run igpe.certify(problem, result)" in result.verdict["optimum"]
    assert not any("Not proved" in sentence for sentence in (*result.actions, *result.notes))


@pytest.mark.parametrize("certify", [True, "auto", False])
def test_a_proof_that_would_be_refused_is_not_recommended(tried, certify):
    times = np.linspace(0.2, 2.0, 10)
    problem = one_state(
        lambda m, x: -pyo.atan(m.k * x), {"k": (0.1, 3.0)}, (times, np.exp(-0.9 * times)), 0.01
    )
    result = igpe.estimate(problem, certify=certify)
    assert result.verdict["optimum"].endswith("; not proved")
    with pytest.raises(igpe.errors.Unsupported) as refused:
        igpe.certify(problem, result)
    assert result.unprovable == str(refused.value)
    assert any(result.unprovable in sentence for sentence in result.details.sentences)
    assert igpe.Result.from_json(result.to_json()).unprovable == result.unprovable


def test_a_refusal_is_told_of_many_unknowns_too():
    """Nothing else keeps the result from recommending a proof."""
    times, bounds = np.linspace(0.2, 2.0, 10), {f"k{i}": (0.01, 1.0) for i in range(20)}
    data = times, np.exp(-0.9 * times)

    def law(m, x):
        return -pyo.atan(sum(getattr(m, n) for n in bounds) * x)

    problem = one_state(law, bounds, data, 0.01)
    small = one_state(lambda m, x: -m.k * x, {"k": (0.1, 3.0)}, data, 0.01)
    open_ = replace(igpe.estimate(small, certify=False), proof=None, unprovable="")
    told = with_refusal(SimpleNamespace(problem=problem), open_, problem)
    assert "igpe.certify has no bounds" in told.unprovable


@pytest.mark.parametrize("given", [False, "auto"])
def test_it_can_be_left_out(given, monkeypatch):
    if given == "auto":
        monkeypatch.setenv(SWITCH, "asked")
    result = igpe.estimate(consecutive.problem(), certify=given)
    assert result.proof is None
    assert "certificate" not in result.seconds


def test_other_words_are_refused():
    with pytest.raises(igpe.errors.ProblemError, match="True, False or 'auto'"):
        igpe.estimate(consecutive.problem(), certify="maybe")


def test_a_problem_that_cannot_be_proved_is_no_matter(tried):
    problem = consecutive.problem()
    posed = igpe.Problem(
        problem.model,
        parameters=["p1", "p2"],
        experiments=problem.experiments,
        loss=igpe.losses.Huber(1.0),
    )
    result = igpe.estimate(posed)
    assert result.proof is None
    assert result.status.usable


def test_kernels_are_compiled_beside_the_first_estimate(tried, monkeypatch, tmp_path):
    mark, begun = tmp_path / "kernels.ready", []
    monkeypatch.setattr(unasked, "_mark", lambda: mark)
    monkeypatch.setattr(subprocess, "Popen", lambda words, **how: begun.append((words, how)))
    assert not unasked.kernels_ready()
    assert not unasked.kernels_ready()  # it has begun
    ((words, how),) = begun
    assert words == [sys.executable, "-P", "-m", "igpe.proofs.prover.unasked"]
    assert how["stdout"] is subprocess.DEVNULL
    started = mark.with_suffix(".begun")
    ancient = time.time() - 2 * unasked.PATIENCE
    os.utime(started, (ancient, ancient))
    assert not unasked.kernels_ready()  # the first has died: another one
    assert len(begun) == 2
    mark.touch()
    assert unasked.kernels_ready()


def test_a_refused_proof_is_not_recommended_when_time_is_over(tried, monkeypatch):
    times = np.linspace(0.2, 2.0, 10)
    problem = one_state(
        lambda m, x: -pyo.atan(m.k * x), {"k": (0.1, 3.0)}, (times, np.exp(-0.9 * times)), 0.01
    )
    over = []
    monkeypatch.setattr(igpe.pipeline, "stopped", lambda: bool(over))
    monkeypatch.setattr(igpe.pipeline, "with_profiles", lambda *a: over.append(1) or a[2])
    result = igpe.estimate(problem)
    assert "igpe.certify" not in result.verdict["optimum"]
    assert result.unprovable


def test_the_mark_lies_beside_the_kernels(tried):
    mark = unasked._mark()
    assert mark.exists()
    assert Path(mark).parent.name == "__pycache__"


def test_a_proof_with_a_noise_model_is_recommended():
    times = np.linspace(0.2, 2.0, 10)
    data = times, np.exp(-0.9 * times)
    sigma = igpe.Noise(absolute=0.01, relative=0.05)
    problem = one_state(lambda m, x: -m.k * x, {"k": (0.1, 3.0)}, data, sigma)
    result = igpe.estimate(problem, certify=False)
    assert result.unprovable == ""
