"""Predicted errors and chosen samples, against information matrices that igpe has no part in."""

import design_cases
import pytest

SAME, WORSE = 1e-5, 0.01
COMPILES_LONG = [n for n in design_cases.INFORMATION if int(n.split()[1]) % 5 == 3]  # the tank


SINGULAR = "information 28"  # one temperature, nothing free: refused, and rightly
CASES = sorted({*design_cases.INFORMATION[:25]} - {*COMPILES_LONG} | {SINGULAR})


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_predicted_errors_are_those_of_an_independent_information_matrix(case):
    assert design_cases.Information(int(case.split()[1])).difference() <= SAME


@pytest.mark.parametrize("case", design_cases.BRUTE)
def test_no_choice_of_samples_is_much_better(case):
    assert design_cases.Brute(int(case.split()[1])).excess() <= WORSE
