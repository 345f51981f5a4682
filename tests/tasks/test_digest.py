"""A hash of values: equal for equal ones in every process, different for all others."""

import os
import subprocess
import sys
from collections import OrderedDict

import numpy as np

import igpe
from igpe.core.arguments import digest

VALUES = [
    None,
    True,
    False,
    0,
    1,
    1.0,
    -0.0,
    0.1,
    np.nextafter(0.1, 1),
    "1",
    b"1",
    "",
    (),
    [1],
    [[1]],
    [1, 2],
    [[1], 2],
    {1: 2},
    {1, 2},
    {"a": [1]},
    np.array([1.0]),
    np.array([1]),
    np.array([[1.0]]),
    np.zeros(3000),
    np.r_[np.zeros(1500), 1e-9, np.zeros(1499)],
    float("nan"),
    float("inf"),
    igpe.SingleShooting(),
    igpe.SingleShooting(igpe.integrators.RungeKutta()),
    igpe.IncrementalShooting(),
    igpe.SingleShooting(restarts=igpe.search.Restarts(seed=1)),
    igpe.Status.CONVERGED,
    igpe.Status.FAILED,
    igpe.SingleShooting,
    len,
    print,
    np.float64(0.25),
]


class Own:
    """An estimator of the user's, without a __repr__."""

    def __init__(self, steps):
        self.steps = steps


def test_different_values_differ():
    found = [digest(value) for value in [*VALUES, Own(3), Own(4)]]
    assert len(set(found)) == len(found)
    assert digest(1, 2) != digest([1, 2])
    assert digest("ab", "c") != digest("a", "bc")


def test_equal_values_are_equal():
    assert digest(Own([1.5])) == digest(Own([1.5]))
    assert digest(OrderedDict(a=1)) == digest({"a": 1})
    assert digest((1, 2)) == digest([1, 2])
    assert digest(np.arange(6.0).reshape(2, 3).T) == digest(np.array([[0, 3], [1, 4], [2, 5.0]]))
    assert digest(igpe.IncrementalShooting()) == digest(igpe.IncrementalShooting())


def test_another_process_finds_the_same():
    words = (
        "from igpe.core.arguments import digest; import numpy as np; "
        "print(digest({'b', 'a', 'c'}, np.arange(5), {'x': 0.1}, print))"
    )
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        said = subprocess.run(
            [sys.executable, "-c", words],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
        )
        assert said.stdout.strip() == digest({"b", "a", "c"}, np.arange(5), {"x": 0.1}, print)
