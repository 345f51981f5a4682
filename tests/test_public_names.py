"""The front door: which names the package offers, and that each opens."""

import importlib
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


def test_families_can_be_imported_as_modules() -> None:
    for name, module in FAMILIES.items():
        spec = module.__spec__
        assert importlib.import_module(f"igpe.{name}") is module
        assert module.__spec__ is spec
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("igpe.estimate")  # a function


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match=r"igpe has no .Solver.\. Did you mean .solvers.?"):
        igpe.Solver  # noqa: B018 - looking is the test


SLOW = {"matplotlib", "networkx", "numba", "pint", "pyscipopt", "scipy.stats", "sympy"}
ESTIMATE = "igpe.Problem; import consecutive; igpe.estimate(consecutive.problem(), certify=False)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "slow"), [("", {"pyomo", "casadi", "pandas"}), (ESTIMATE, SLOW)], ids=["none", "first"]
)
def test_an_import_and_an_estimate_load_nothing_slow_that_they_do_not_need(
    code: str, slow: set[str]
) -> None:
    """The package before Pyomo, whose hook would load `scipy.stats`."""
    words = [sys.executable, "-c", f"import sys, igpe; {code}\nprint({slow} & set(sys.modules))"]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=place)
    assert said.stdout.strip() == "set()"
