"""What the benchmarks give to other programs is the problem itself."""

import importlib
import json

import numpy as np
import pytest
from peers.apart import Point, Ran, as_json, from_json, reaches
from peers.cases import NEAR, OTHERS, PAPER, case
from peers.judge import Judge
from peers.scipys import Python
from peers.told import told


@pytest.mark.parametrize("name", [*PAPER, *OTHERS])
def test_generated_python_has_the_objective_that_igpe_has(name):
    asked = case(name)
    problem = asked.make()
    optimum = importlib.import_module(name).OPTIMUM
    generated = float(np.sum(Python(told(problem))(problem.box.vector(optimum)) ** 2))
    judged = Judge(problem)(optimum)
    assert generated == pytest.approx(judged, rel=1e-5)
    assert judged == pytest.approx(asked.best, rel=1e-6)


def test_the_judge_does_not_believe_what_is_worse_or_cannot_be_integrated():
    asked = case("consecutive")
    judge = Judge(asked.make())
    assert not reaches(judge({"p1": 5.0, "p2": 1.0}), asked.best)
    outside = judge({"p1": 5.003486444942574, "p2": 11.0})
    assert outside == pytest.approx(judge({"p1": 5.003486444942574, "p2": 10.0}))


def test_only_what_reaches_the_best_counts():
    ran = Ran("scipy", 0.0, 8.0, 4, (Point(1.0, 7.0), Point(2.0, 5.0), Point(6.0, 5.004)), "")
    assert [p.seconds for p in ran.hits(5.0)] == [2.0, 6.0]
    assert ran.to_it(5.0) == pytest.approx(2.0)
    assert ran.to_it(4.0) == np.inf


def test_a_log_likelihood_is_reached_by_its_distance():
    best = case("Boehm").best
    points = (Point(1.0, best + 2 * NEAR), Point(3.0, best + NEAR / 2), Point(4.0, np.inf))
    ran = Ran("pypesto", 0.0, 4.0, 3, points, "", case("Boehm").within)
    assert [p.seconds for p in ran.hits(best)] == [3.0]
    assert from_json(json.loads(json.dumps(as_json(ran), allow_nan=False))) == ran
