"""igpe: globally right parameters of dynamic models, from measurements.

problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=[igpe.Experiment(data, ...)])
print(igpe.check(problem))        # what can be estimated from these measurements
result = igpe.estimate(problem)   # the five steps
print(result)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from igpe.core.scipy_alone import import_scipy_alone

if TYPE_CHECKING:
    from igpe.algebraic.base import SlopeErrors as SlopeErrors
    from igpe.algebraic.base import StateErrors as StateErrors
    from igpe.algebraic.base import Unweighted as Unweighted
    from igpe.algebraic.decomposed import Decomposed as Decomposed
    from igpe.algebraic.global_solver import GlobalSolver as GlobalSolver
    from igpe.algebraic.local import Local as Local
    from igpe.algebraic.projected import Projected as Projected
    from igpe.algebraic.step import Routes as Routes
    from igpe.core.errors import DataError as DataError
    from igpe.core.errors import EstimationFailed as EstimationFailed
    from igpe.core.errors import IgpeError as IgpeError
    from igpe.core.errors import ModelError as ModelError
    from igpe.core.errors import ProblemError as ProblemError
    from igpe.core.errors import SolverMissing as SolverMissing
    from igpe.core.errors import Unsupported as Unsupported
    from igpe.core.estimates import Estimate as Estimate
    from igpe.core.status import Status as Status
    from igpe.dynamics.collocation.collocation import Collocation as Collocation
    from igpe.dynamics.integrators.automatic import Automatic as Automatic
    from igpe.dynamics.integrators.batch.automatic_intervals import (
        AutomaticIntervals as AutomaticIntervals,
    )
    from igpe.dynamics.integrators.batch.local_linearization import (
        LocalLinearization as LocalLinearization,
    )
    from igpe.dynamics.integrators.batch.lock_step import LockStep as LockStep
    from igpe.dynamics.integrators.batch.runge_kutta import RungeKutta as RungeKutta
    from igpe.dynamics.integrators.dormand_prince import DormandPrince as DormandPrince
    from igpe.dynamics.integrators.lsoda import Lsoda as Lsoda
    from igpe.dynamics.integrators.sundials import Sundials as Sundials
    from igpe.dynamics.likelihood import negative_log_likelihood as negative_log_likelihood
    from igpe.dynamics.search.iterated_search import IteratedSearch as IteratedSearch
    from igpe.dynamics.search.multistart import MultiStart as MultiStart
    from igpe.dynamics.search.restarts import Restarts as Restarts
    from igpe.dynamics.shooting.incremental.incremental_shooting import (
        IncrementalShooting as IncrementalShooting,
    )
    from igpe.dynamics.shooting.multiple.multiple_shooting import (
        MultipleShooting as MultipleShooting,
    )
    from igpe.dynamics.shooting.single_shooting import SingleShooting as SingleShooting
    from igpe.dynamics.simulation import simulate as simulate
    from igpe.estimation.comparison import Comparison as Comparison
    from igpe.estimation.comparison import compare as compare
    from igpe.estimation.many_starts import Campaign as Campaign
    from igpe.estimation.many_starts import campaign as campaign
    from igpe.estimation.settings import ProveComplement as ProveComplement
    from igpe.estimation.settings import Settings as Settings
    from igpe.formats.petab.errors import petab_errors as petab_errors
    from igpe.formats.petab.errors import petab_objective as petab_objective
    from igpe.formats.petab.errors import write_petab_parameters as write_petab_parameters
    from igpe.formats.petab.read import read_petab as read_petab
    from igpe.numerics.least_squares.chains.backward_lifting import (
        BackwardLifting as BackwardLifting,
    )
    from igpe.pipeline import check as check
    from igpe.pipeline import estimate as estimate
    from igpe.planning.design import design as design
    from igpe.planning.evidence import AOptimal as AOptimal
    from igpe.planning.evidence import DOptimal as DOptimal
    from igpe.planning.evidence import EOptimal as EOptimal
    from igpe.planning.evidence import ModifiedE as ModifiedE
    from igpe.planning.freedom import Between as Between
    from igpe.planning.freedom import Levels as Levels
    from igpe.planning.freedom import Noise as Noise
    from igpe.planning.freedom import Ramps as Ramps
    from igpe.planning.freedom import Sampling as Sampling
    from igpe.planning.freedom import Unmeasured as Unmeasured
    from igpe.planning.plan import Plan as Plan
    from igpe.problem.experiment import Experiment as Experiment
    from igpe.problem.experiment import Unknown as Unknown
    from igpe.problem.experiment import read_experiments as read_experiments
    from igpe.problem.inputs import linear as linear
    from igpe.problem.inputs import steps as steps
    from igpe.problem.noise.sigma import Estimated as Estimated
    from igpe.problem.noise.sigma import Proportional as Proportional
    from igpe.problem.problem import Problem as Problem
    from igpe.problem.problem_checks import L1 as L1
    from igpe.problem.problem_checks import Huber as Huber
    from igpe.problem.problem_checks import LeastSquares as LeastSquares
    from igpe.problem.problem_checks import Normal as Normal
    from igpe.problem.problem_checks import PiecewiseConstant as PiecewiseConstant
    from igpe.proofs.checker.verify import Verdict as Verdict
    from igpe.proofs.checker.verify import Verified as Verified
    from igpe.proofs.checker.verify import verify as verify
    from igpe.proofs.prover.certify import BranchAndBound as BranchAndBound
    from igpe.proofs.prover.certify import certify as certify
    from igpe.results.dynamic_certificate import DynamicCertificate as DynamicCertificate
    from igpe.results.plots.fit import plot_correlation as plot_correlation
    from igpe.results.plots.fit import plot_ellipses as plot_ellipses
    from igpe.results.plots.fit import plot_residuals as plot_residuals
    from igpe.results.plots.search import horizon_table as horizon_table
    from igpe.results.plots.search import plot_gaps as plot_gaps
    from igpe.results.plots.search import plot_horizons as plot_horizons
    from igpe.results.plots.search import plot_waterfall as plot_waterfall
    from igpe.results.result import Result as Result
    from igpe.results.stages import plot_film_strip as plot_film_strip
    from igpe.results.stages import plot_pieces as plot_pieces
    from igpe.smoothing.bootstrap import Bootstrap as Bootstrap
    from igpe.smoothing.gcv_spline import GcvSpline as GcvSpline
    from igpe.smoothing.spline_curve import Interpolation as Interpolation
    from igpe.solvers.ipopt import Ipopt as Ipopt
    from igpe.solvers.maingo import MAiNGO as MAiNGO
    from igpe.solvers.program import AmplProgram as AmplProgram
    from igpe.solvers.programs import Couenne as Couenne
    from igpe.solvers.programs import Scip as Scip
    from igpe.uncertainty.bootstrap import Bootstrapped as Bootstrapped
    from igpe.uncertainty.bootstrap import Parametric as Parametric
    from igpe.uncertainty.bootstrap import Residual as Residual
    from igpe.uncertainty.bootstrap import bootstrap as bootstrap
    from igpe.uncertainty.models import ModelComparison as ModelComparison
    from igpe.uncertainty.models import compare_models as compare_models
    from igpe.uncertainty.prediction import Prediction as Prediction
    from igpe.uncertainty.prediction import predict as predict
    from igpe.uncertainty.profile import Profiles as Profiles
    from igpe.uncertainty.profile import profile as profile
    from igpe.uncertainty.region import Region as Region
    from igpe.uncertainty.region import region as region
    from igpe.uncertainty.sampling import Samples as Samples
    from igpe.uncertainty.sampling import sample as sample

_HOME = {
    "AOptimal": "igpe.planning.evidence",
    "AmplProgram": "igpe.solvers.program",
    "Automatic": "igpe.dynamics.integrators.automatic",
    "AutomaticIntervals": "igpe.dynamics.integrators.batch.automatic_intervals",
    "BackwardLifting": "igpe.numerics.least_squares.chains.backward_lifting",
    "Between": "igpe.planning.freedom",
    "Bootstrap": "igpe.smoothing.bootstrap",
    "Bootstrapped": "igpe.uncertainty.bootstrap",
    "BranchAndBound": "igpe.proofs.prover.certify",
    "Campaign": "igpe.estimation.many_starts",
    "Collocation": "igpe.dynamics.collocation.collocation",
    "Comparison": "igpe.estimation.comparison",
    "Couenne": "igpe.solvers.programs",
    "DOptimal": "igpe.planning.evidence",
    "DataError": "igpe.core.errors",
    "Decomposed": "igpe.algebraic.decomposed",
    "DormandPrince": "igpe.dynamics.integrators.dormand_prince",
    "DynamicCertificate": "igpe.results.dynamic_certificate",
    "EOptimal": "igpe.planning.evidence",
    "Estimate": "igpe.core.estimates",
    "Estimated": "igpe.problem.noise.sigma",
    "EstimationFailed": "igpe.core.errors",
    "Experiment": "igpe.problem.experiment",
    "GcvSpline": "igpe.smoothing.gcv_spline",
    "GlobalSolver": "igpe.algebraic.global_solver",
    "Huber": "igpe.problem.problem_checks",
    "IgpeError": "igpe.core.errors",
    "IncrementalShooting": "igpe.dynamics.shooting.incremental.incremental_shooting",
    "Interpolation": "igpe.smoothing.spline_curve",
    "Ipopt": "igpe.solvers.ipopt",
    "IteratedSearch": "igpe.dynamics.search.iterated_search",
    "L1": "igpe.problem.problem_checks",
    "LeastSquares": "igpe.problem.problem_checks",
    "Levels": "igpe.planning.freedom",
    "Local": "igpe.algebraic.local",
    "LocalLinearization": "igpe.dynamics.integrators.batch.local_linearization",
    "LockStep": "igpe.dynamics.integrators.batch.lock_step",
    "Lsoda": "igpe.dynamics.integrators.lsoda",
    "MAiNGO": "igpe.solvers.maingo",
    "ModelComparison": "igpe.uncertainty.models",
    "ModelError": "igpe.core.errors",
    "ModifiedE": "igpe.planning.evidence",
    "MultiStart": "igpe.dynamics.search.multistart",
    "MultipleShooting": "igpe.dynamics.shooting.multiple.multiple_shooting",
    "Noise": "igpe.planning.freedom",
    "Normal": "igpe.problem.problem_checks",
    "Parametric": "igpe.uncertainty.bootstrap",
    "PiecewiseConstant": "igpe.problem.problem_checks",
    "Plan": "igpe.planning.plan",
    "Prediction": "igpe.uncertainty.prediction",
    "Problem": "igpe.problem.problem",
    "ProblemError": "igpe.core.errors",
    "Profiles": "igpe.uncertainty.profile",
    "Projected": "igpe.algebraic.projected",
    "Proportional": "igpe.problem.noise.sigma",
    "ProveComplement": "igpe.estimation.settings",
    "Ramps": "igpe.planning.freedom",
    "Region": "igpe.uncertainty.region",
    "Residual": "igpe.uncertainty.bootstrap",
    "Restarts": "igpe.dynamics.search.restarts",
    "Result": "igpe.results.result",
    "Routes": "igpe.algebraic.step",
    "RungeKutta": "igpe.dynamics.integrators.batch.runge_kutta",
    "Samples": "igpe.uncertainty.sampling",
    "Sampling": "igpe.planning.freedom",
    "Scip": "igpe.solvers.programs",
    "Settings": "igpe.estimation.settings",
    "SingleShooting": "igpe.dynamics.shooting.single_shooting",
    "SlopeErrors": "igpe.algebraic.base",
    "SolverMissing": "igpe.core.errors",
    "StateErrors": "igpe.algebraic.base",
    "Status": "igpe.core.status",
    "Sundials": "igpe.dynamics.integrators.sundials",
    "Unknown": "igpe.problem.experiment",
    "Unmeasured": "igpe.planning.freedom",
    "Unsupported": "igpe.core.errors",
    "Unweighted": "igpe.algebraic.base",
    "Verdict": "igpe.proofs.checker.verify",
    "Verified": "igpe.proofs.checker.verify",
    "bootstrap": "igpe.uncertainty.bootstrap",
    "campaign": "igpe.estimation.many_starts",
    "certify": "igpe.proofs.prover.certify",
    "check": "igpe.pipeline",
    "compare": "igpe.estimation.comparison",
    "compare_models": "igpe.uncertainty.models",
    "design": "igpe.planning.design",
    "estimate": "igpe.pipeline",
    "horizon_table": "igpe.results.plots.search",
    "linear": "igpe.problem.inputs",
    "negative_log_likelihood": "igpe.dynamics.likelihood",
    "petab_errors": "igpe.formats.petab.errors",
    "petab_objective": "igpe.formats.petab.errors",
    "plot_correlation": "igpe.results.plots.fit",
    "plot_ellipses": "igpe.results.plots.fit",
    "plot_film_strip": "igpe.results.stages",
    "plot_gaps": "igpe.results.plots.search",
    "plot_horizons": "igpe.results.plots.search",
    "plot_pieces": "igpe.results.stages",
    "plot_residuals": "igpe.results.plots.fit",
    "plot_waterfall": "igpe.results.plots.search",
    "predict": "igpe.uncertainty.prediction",
    "profile": "igpe.uncertainty.profile",
    "read_experiments": "igpe.problem.experiment",
    "read_petab": "igpe.formats.petab.read",
    "region": "igpe.uncertainty.region",
    "sample": "igpe.uncertainty.sampling",
    "simulate": "igpe.dynamics.simulation",
    "steps": "igpe.problem.inputs",
    "verify": "igpe.proofs.checker.verify",
    "write_petab_parameters": "igpe.formats.petab.errors",
}
"""Where each public name is defined. They are loaded on first use: `igpe --help` must not wait for
Pyomo and CasADi."""

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the hand-written list


def __getattr__(name: str) -> Any:
    if name == "kinetics":
        return import_module("igpe.formats.kinetics")
    if name not in _HOME:
        raise AttributeError(f"module 'igpe' has no attribute '{name}'")
    import_scipy_alone()
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
