"""Cases of the official PEtab test suites, through the benchmark that runs them all."""

import pytest
from petab_suite import SUITES, differences

CASES = [
    "v1.0.0/sbml/0005", "v1.0.0/sbml/0006", "v1.0.0/sbml/0014", "v1.0.0/sbml/0018",
    "v2.0.0/sbml/0016", "v2.0.0/sbml/0017", "v2.0.0/sbml/0022", "v2.0.0/sbml/0024",
    "v2.0.0/sbml/0023", "v2.0.0/sbml/0030", "v2.0.0/sbml/0031",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_all_figures_are_within_the_tolerances_of_the_suite(case):
    off = differences(SUITES / case)
    assert {"llh", "chi2", "simulations"} <= off.keys()
    assert {name: d for name, (d, tolerance) in off.items() if not d <= tolerance} == {}
