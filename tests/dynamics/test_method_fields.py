"""Fields of methods, and starts, that mean nothing are refused, in a sentence."""

import math
import re

import pytest
from zoo import CASES

from igpe.core.errors import ProblemError
from igpe.dynamics.integrators.automatic import Automatic
from igpe.dynamics.integrators.lock_step import LockStep
from igpe.dynamics.integrators.runge_kutta import RungeKutta
from igpe.dynamics.search.backward_lifting import BackwardLifting
from igpe.dynamics.search.engine import Restarts
from igpe.dynamics.search.multistart import IteratedSearch, MultiStart
from igpe.dynamics.shooting.multiple_shooting import MultipleShooting
from igpe.numerics.least_squares.gauss_newton import GaussNewton
from igpe.numerics.least_squares.generalised import GeneralisedGaussNewton
from igpe.numerics.least_squares.soft_links import SoftLinks

DECAY = CASES["decay"]


@pytest.mark.parametrize(
    ("made", "field", "value", "wanted"),
    [
        *[
            (MultipleShooting, "integrator", v, "an object of class Integrator")
            for v in ("x", Automatic)
        ],
        *[
            (MultipleShooting, "rough", v, "an object of class Integrator")
            for v in (None, LockStep)
        ],
        *[
            (MultipleShooting, n, v, "a whole number, 1 or more")
            for n in ("intervals", "finer")
            for v in (0, -3, 2.5, True, "9", None)
        ],
        (
            MultipleShooting,
            "search",
            GaussNewton(),
            "an object of class GeneralisedGaussNewton or BackwardLifting",
        ),
        *[
            (BackwardLifting, n, v, wanted)
            for names, values, wanted in (
                (("tolerance", "decrease"), (-1e-9, math.nan), "0 or more"),
                (("max_iterations", "renewed"), (0, 1.5), "1 or more"),
            )
            for n in names
            for v in values
        ],
        *[(MultipleShooting, "restarts", v, "an object of class Restarts") for v in (3, None)],
        *[(MultipleShooting, "links", v, "a tuple of") for v in (None, "x", (1,), SoftLinks())],
        *[
            (MultipleShooting, "unobserved", v, "a finite number")
            for v in ("x", math.nan, {"A": "x"}, {"A": math.inf})
        ],
        *[
            (SoftLinks, n, v, "a positive number")
            for n in ("first", "last", "size")
            for v in (0, -1, "1")
        ],
        *[(SoftLinks, "factor", v, "above 1") for v in (1.0, 0.5, math.nan, math.inf)],
        *[(SoftLinks, "enough", v, "0 or more") for v in (-0.1, math.nan)],
        *[
            (GeneralisedGaussNewton, n, v, "0 or more")
            for n in ("tolerance", "decrease")
            for v in (-1e-9, math.nan, "x")
        ],
        *[(GeneralisedGaussNewton, "first", v, "above 0 and at most 1") for v in (0.0, 1.5, None)],
        *[(GeneralisedGaussNewton, "max_iterations", v, "1 or more") for v in (0, -2, 1.5)],
        *[(LockStep, "slack", v, "a positive number") for v in (0.0, -1.0, math.inf, "1")],
        *[(RungeKutta, "pair", v, "an object of class Pair") for v in (7, "explicit")],
        *[(Restarts, n, -1, "a whole number, 0 or more") for n in ("count", "seed")],
        (Restarts, "chance", 0.0, "a number between 0 and 1"),
        (Restarts, "agreeing", 0, "1 or more"),
        *[(MultiStart, n, v, "1 or more") for n, v in (("starts", 0), ("trials", 2.5))],
        *[(IteratedSearch, n, v, "1 or more") for n, v in (("starts", 0), ("pool", 0.5))],
        (IteratedSearch, "most", -1, "0 or more"),
    ],
)
def test_fields_that_mean_nothing_are_refused(made, field, value, wanted):
    says = rf"{field} is .*{made.__name__} needs .*{re.escape(wanted)}"
    with pytest.raises(ProblemError, match=says):
        made(**{field: value})


def test_unobserved_states_must_be_states():
    method = MultipleShooting(unobserved={"A": 1.0, "C": 2.0})
    with pytest.raises(ProblemError, match=r"\['C'\].* not states of the model.*\['A'\]"):
        method.prepare(DECAY.problem())


@pytest.mark.parametrize(
    ("start", "says"),
    [
        ({}, r"MultipleShooting needs a value for each of \['k'\]"),
        ({"k": math.nan}, "The start of 'k' is nan; MultipleShooting needs a finite number"),
        ({"k": "fast"}, "The start of 'k' is 'fast'"),
        ([0.7], r"The start is \[0.7\]; expected a mapping"),
    ],
)
def test_starts_that_are_none_are_refused(start, says):
    prepared = MultipleShooting().prepare(DECAY.problem())
    for call in (prepared.estimate, prepared.fit):
        with pytest.raises(ProblemError, match=says):
            call(start)
