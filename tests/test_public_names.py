"""The front door: which names the package offers, and that each opens."""

import os
import subprocess
import sys

import pytest
from front_door import FAMILIES, PUBLIC

import igpe

MOST = 45  # names at the top, families among them
NAMES = PUBLIC | {f"igpe.{n}": module for n, module in FAMILIES.items()}


def test_few_names_are_at_the_top() -> None:
    assert len(igpe.__all__) <= MOST
    assert dir(igpe) == igpe.__all__
    assert {"integrators", "losses", "petab", "planning", "smoothing", "solvers"} <= FAMILIES.keys()


@pytest.mark.parametrize("name", NAMES)
def test_the_name_loads_and_says_what_it_is(name: str) -> None:
    assert NAMES[name].__doc__


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="igpe attribute Solver"):
        igpe.Solver  # noqa: B018 - looking is the test


def test_import_alone_loads_nothing_slow() -> None:
    code = "import sys, igpe; print(sorted({'pyomo', 'casadi', 'pandas'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_a_first_estimate_loads_nothing_slow_that_it_does_not_need() -> None:
    slow = {"matplotlib", "networkx", "numba", "pint", "pyscipopt", "scipy.stats", "sympy"}
    code = (
        "import sys, igpe; igpe.Problem; import consecutive  # igpe before Pyomo\n"
        "igpe.estimate(consecutive.problem(), certify=False)\n"
        f"print(sorted({slow} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=place)
    assert said.stdout.strip() == "[]"
