"""The front door: which names the package offers, and that each opens."""

import os
import subprocess
import sys

import pytest

import igpe

NAMES = [
    "AOptimal",
    "AmplProgram",
    "Automatic",
    "AutomaticIntervals",
    "BackwardLifting",
    "Between",
    "Bootstrap",
    "Bootstrapped",
    "BranchAndBound",
    "Campaign",
    "Collocation",
    "Comparison",
    "Couenne",
    "DOptimal",
    "DataError",
    "Decomposed",
    "DormandPrince",
    "DynamicCertificate",
    "EOptimal",
    "Estimate",
    "Estimated",
    "EstimationFailed",
    "Experiment",
    "GcvSpline",
    "GlobalSolver",
    "Huber",
    "IgpeError",
    "IncrementalShooting",
    "Interpolation",
    "Ipopt",
    "IteratedSearch",
    "L1",
    "LeastSquares",
    "Levels",
    "Local",
    "LocalLinearization",
    "LockStep",
    "Lsoda",
    "MAiNGO",
    "ModelComparison",
    "ModelError",
    "ModifiedE",
    "MultiStart",
    "MultipleShooting",
    "Noise",
    "Normal",
    "Parametric",
    "PiecewiseConstant",
    "Plan",
    "Prediction",
    "Problem",
    "ProblemError",
    "Profiles",
    "Projected",
    "Proportional",
    "ProveComplement",
    "Ramps",
    "Region",
    "Residual",
    "Restarts",
    "Result",
    "Routes",
    "RungeKutta",
    "Samples",
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
    "Verdict",
    "Verified",
    "bootstrap",
    "campaign",
    "certify",
    "check",
    "compare",
    "compare_models",
    "design",
    "estimate",
    "horizon_table",
    "linear",
    "negative_log_likelihood",
    "petab_errors",
    "petab_objective",
    "plot_correlation",
    "plot_ellipses",
    "plot_film_strip",
    "plot_gaps",
    "plot_horizons",
    "plot_pieces",
    "plot_residuals",
    "plot_waterfall",
    "predict",
    "profile",
    "read_experiments",
    "read_petab",
    "region",
    "sample",
    "simulate",
    "steps",
    "verify",
    "write_petab_parameters",
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


def test_a_first_estimate_loads_nothing_slow_that_it_does_not_need() -> None:
    slow = {"matplotlib", "networkx", "numba", "pint", "pyscipopt", "scipy.stats", "sympy"}
    code = (
        "import sys, consecutive, igpe\n"
        "igpe.estimate(consecutive.problem(), certify=False)\n"
        f"print(sorted({slow} & set(sys.modules)))"
    )
    words = [sys.executable, "-c", code]
    place = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    said = subprocess.run(words, capture_output=True, text=True, check=True, env=place)
    assert said.stdout.strip() == "[]"
