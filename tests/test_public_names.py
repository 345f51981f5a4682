"""The front door: which names the package offers, and that each opens."""

import subprocess
import sys

import pytest

import igpe

NAMES = [
    "AOptimal",
    "AmplProgram",
    "Automatic",
    "AutomaticIntervals",
    "Between",
    "Bootstrap",
    "Collocation",
    "Comparison",
    "Couenne",
    "DOptimal",
    "DataError",
    "Decomposed",
    "DormandPrince",
    "EOptimal",
    "Estimate",
    "EstimationFailed",
    "Experiment",
    "GcvSpline",
    "GlobalSolver",
    "Huber",
    "IgpeError",
    "IncrementalShooting",
    "Interpolation",
    "Ipopt",
    "L1",
    "LeastSquares",
    "Levels",
    "Local",
    "LocalLinearization",
    "LockStep",
    "Lsoda",
    "MAiNGO",
    "ModelError",
    "ModifiedE",
    "MultiStart",
    "MultipleShooting",
    "Noise",
    "Normal",
    "PiecewiseConstant",
    "Plan",
    "Problem",
    "ProblemError",
    "Projected",
    "Proportional",
    "Ramps",
    "Restarts",
    "Result",
    "Routes",
    "RungeKutta",
    "Sampling",
    "Scip",
    "Settings",
    "SingleShooting",
    "SlopeErrors",
    "SolverMissing",
    "StateErrors",
    "Status",
    "Sundials",
    "Unknown",
    "Unmeasured",
    "Unsupported",
    "Unweighted",
    "check",
    "compare",
    "design",
    "estimate",
    "horizon_table",
    "linear",
    "plot_film_strip",
    "plot_horizons",
    "read_experiments",
    "simulate",
    "steps",
]


def test_these_and_no_other_names_are_public() -> None:
    assert list(igpe.__all__) == NAMES
    assert dir(igpe) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_name_loads_and_says_what_it_is(name: str) -> None:
    assert getattr(igpe, name).__doc__


def test_no_other_name_is_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Solver'"):
        igpe.Solver  # noqa: B018 - looking is the test


def test_import_alone_loads_nothing_slow() -> None:
    code = "import sys, igpe; print(sorted({'pyomo', 'casadi', 'pandas'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
