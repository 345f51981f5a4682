"""igpe: globally right parameters of dynamic models, from measurements.

problem = igpe.Problem(model, parameters=["k1", "k2"], experiments=[igpe.Experiment(data, ...)])
print(igpe.check(problem))        # what can be estimated from these measurements
result = igpe.estimate(problem)   # the five steps
print(result)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from igpe.algebraic.decomposed import Decomposed as Decomposed
    from igpe.algebraic.global_solver import GlobalSolver as GlobalSolver
    from igpe.algebraic.local import Local as Local
    from igpe.algebraic.projected import Projected as Projected
    from igpe.algebraic.step import Routes as Routes
    from igpe.algebraic.weights import SlopeErrors as SlopeErrors
    from igpe.algebraic.weights import StateErrors as StateErrors
    from igpe.algebraic.weights import Unweighted as Unweighted
    from igpe.comparison import Comparison as Comparison
    from igpe.comparison import compare as compare
    from igpe.dynamic.collocation import Collocation as Collocation
    from igpe.dynamic.incremental_shooting import IncrementalShooting as IncrementalShooting
    from igpe.dynamic.iterated_search import IteratedSearch as IteratedSearch
    from igpe.dynamic.multiple_shooting import MultipleShooting as MultipleShooting
    from igpe.dynamic.multistart import MultiStart as MultiStart
    from igpe.dynamic.restarts import Restarts as Restarts
    from igpe.dynamic.single_shooting import SingleShooting as SingleShooting
    from igpe.dynamic_certificate import DynamicCertificate as DynamicCertificate
    from igpe.error_model import Proportional as Proportional
    from igpe.errors import DataError as DataError
    from igpe.errors import EstimationFailed as EstimationFailed
    from igpe.errors import IgpeError as IgpeError
    from igpe.errors import ModelError as ModelError
    from igpe.errors import ProblemError as ProblemError
    from igpe.errors import SolverMissing as SolverMissing
    from igpe.errors import Unsupported as Unsupported
    from igpe.estimated import Estimated as Estimated
    from igpe.estimates import Estimate as Estimate
    from igpe.experiment import Experiment as Experiment
    from igpe.experiment import Unknown as Unknown
    from igpe.experiment import read_experiments as read_experiments
    from igpe.horizons_plot import horizon_table as horizon_table
    from igpe.horizons_plot import plot_film_strip as plot_film_strip
    from igpe.horizons_plot import plot_horizons as plot_horizons
    from igpe.inputs import linear as linear
    from igpe.inputs import steps as steps
    from igpe.integrators.automatic import Automatic as Automatic
    from igpe.integrators.automatic_intervals import AutomaticIntervals as AutomaticIntervals
    from igpe.integrators.dormand_prince import DormandPrince as DormandPrince
    from igpe.integrators.local_linearization import LocalLinearization as LocalLinearization
    from igpe.integrators.lock_step import LockStep as LockStep
    from igpe.integrators.lsoda import Lsoda as Lsoda
    from igpe.integrators.runge_kutta import RungeKutta as RungeKutta
    from igpe.integrators.sundials import Sundials as Sundials
    from igpe.least_squares.backward_lifting import BackwardLifting as BackwardLifting
    from igpe.likelihood import negative_log_likelihood as negative_log_likelihood
    from igpe.loss import L1 as L1
    from igpe.loss import Huber as Huber
    from igpe.loss import LeastSquares as LeastSquares
    from igpe.loss import Normal as Normal
    from igpe.loss import PiecewiseConstant as PiecewiseConstant
    from igpe.many_starts import Campaign as Campaign
    from igpe.many_starts import campaign as campaign
    from igpe.petab.errors import petab_errors as petab_errors
    from igpe.petab.export import write_petab_parameters as write_petab_parameters
    from igpe.petab.objective import petab_objective as petab_objective
    from igpe.petab.read import read_petab as read_petab
    from igpe.pipeline import check as check
    from igpe.pipeline import estimate as estimate
    from igpe.planning.criteria import AOptimal as AOptimal
    from igpe.planning.criteria import DOptimal as DOptimal
    from igpe.planning.criteria import EOptimal as EOptimal
    from igpe.planning.criteria import ModifiedE as ModifiedE
    from igpe.planning.design import design as design
    from igpe.planning.existing import Unmeasured as Unmeasured
    from igpe.planning.freedom import Between as Between
    from igpe.planning.freedom import Levels as Levels
    from igpe.planning.freedom import Noise as Noise
    from igpe.planning.freedom import Ramps as Ramps
    from igpe.planning.freedom import Sampling as Sampling
    from igpe.planning.plan import Plan as Plan
    from igpe.problem import Problem as Problem
    from igpe.proof.certify import BranchAndBound as BranchAndBound
    from igpe.proof.certify import certify as certify
    from igpe.replay.verified import Verdict as Verdict
    from igpe.replay.verified import Verified as Verified
    from igpe.replay.verify import verify as verify
    from igpe.result import Result as Result
    from igpe.settings import ProveComplement as ProveComplement
    from igpe.settings import Settings as Settings
    from igpe.shooting_plot import plot_gaps as plot_gaps
    from igpe.shooting_plot import plot_pieces as plot_pieces
    from igpe.simulation import simulate as simulate
    from igpe.smoothing.bootstrap import Bootstrap as Bootstrap
    from igpe.smoothing.gcv_spline import GcvSpline as GcvSpline
    from igpe.smoothing.interpolation import Interpolation as Interpolation
    from igpe.solvers.ipopt import Ipopt as Ipopt
    from igpe.solvers.maingo import MAiNGO as MAiNGO
    from igpe.solvers.program import AmplProgram as AmplProgram
    from igpe.solvers.programs import Couenne as Couenne
    from igpe.solvers.scip import Scip as Scip
    from igpe.status import Status as Status
    from igpe.uncertainty.bootstrap import bootstrap as bootstrap
    from igpe.uncertainty.bootstrapped import Bootstrapped as Bootstrapped
    from igpe.uncertainty.drawing import Parametric as Parametric
    from igpe.uncertainty.drawing import Residual as Residual
    from igpe.uncertainty.models import ModelComparison as ModelComparison
    from igpe.uncertainty.models import compare_models as compare_models
    from igpe.uncertainty.prediction import Prediction as Prediction
    from igpe.uncertainty.prediction import predict as predict
    from igpe.uncertainty.profile import profile as profile
    from igpe.uncertainty.profiles import Profiles as Profiles
    from igpe.uncertainty.region import Region as Region
    from igpe.uncertainty.region import region as region
    from igpe.uncertainty.result_pictures import plot_correlation as plot_correlation
    from igpe.uncertainty.result_pictures import plot_ellipses as plot_ellipses
    from igpe.uncertainty.result_pictures import plot_residuals as plot_residuals
    from igpe.uncertainty.sampling import Samples as Samples
    from igpe.uncertainty.sampling import sample as sample
    from igpe.waterfall import plot_waterfall as plot_waterfall

_HOME = {
    "AOptimal": "igpe.planning.criteria",
    "AmplProgram": "igpe.solvers.program",
    "Automatic": "igpe.integrators.automatic",
    "AutomaticIntervals": "igpe.integrators.automatic_intervals",
    "BackwardLifting": "igpe.least_squares.backward_lifting",
    "Between": "igpe.planning.freedom",
    "Bootstrap": "igpe.smoothing.bootstrap",
    "Bootstrapped": "igpe.uncertainty.bootstrapped",
    "BranchAndBound": "igpe.proof.certify",
    "Campaign": "igpe.many_starts",
    "Collocation": "igpe.dynamic.collocation",
    "Comparison": "igpe.comparison",
    "Couenne": "igpe.solvers.programs",
    "DOptimal": "igpe.planning.criteria",
    "DataError": "igpe.errors",
    "Decomposed": "igpe.algebraic.decomposed",
    "DormandPrince": "igpe.integrators.dormand_prince",
    "DynamicCertificate": "igpe.dynamic_certificate",
    "EOptimal": "igpe.planning.criteria",
    "Estimate": "igpe.estimates",
    "Estimated": "igpe.estimated",
    "EstimationFailed": "igpe.errors",
    "Experiment": "igpe.experiment",
    "GcvSpline": "igpe.smoothing.gcv_spline",
    "GlobalSolver": "igpe.algebraic.global_solver",
    "Huber": "igpe.loss",
    "IgpeError": "igpe.errors",
    "IncrementalShooting": "igpe.dynamic.incremental_shooting",
    "Interpolation": "igpe.smoothing.interpolation",
    "Ipopt": "igpe.solvers.ipopt",
    "IteratedSearch": "igpe.dynamic.iterated_search",
    "L1": "igpe.loss",
    "LeastSquares": "igpe.loss",
    "Levels": "igpe.planning.freedom",
    "Local": "igpe.algebraic.local",
    "LocalLinearization": "igpe.integrators.local_linearization",
    "LockStep": "igpe.integrators.lock_step",
    "Lsoda": "igpe.integrators.lsoda",
    "MAiNGO": "igpe.solvers.maingo",
    "ModelComparison": "igpe.uncertainty.models",
    "ModelError": "igpe.errors",
    "ModifiedE": "igpe.planning.criteria",
    "MultiStart": "igpe.dynamic.multistart",
    "MultipleShooting": "igpe.dynamic.multiple_shooting",
    "Noise": "igpe.planning.freedom",
    "Normal": "igpe.loss",
    "Parametric": "igpe.uncertainty.drawing",
    "PiecewiseConstant": "igpe.loss",
    "Plan": "igpe.planning.plan",
    "Prediction": "igpe.uncertainty.prediction",
    "Problem": "igpe.problem",
    "ProblemError": "igpe.errors",
    "Profiles": "igpe.uncertainty.profiles",
    "Projected": "igpe.algebraic.projected",
    "Proportional": "igpe.error_model",
    "ProveComplement": "igpe.settings",
    "Ramps": "igpe.planning.freedom",
    "Region": "igpe.uncertainty.region",
    "Residual": "igpe.uncertainty.drawing",
    "Restarts": "igpe.dynamic.restarts",
    "Result": "igpe.result",
    "Routes": "igpe.algebraic.step",
    "RungeKutta": "igpe.integrators.runge_kutta",
    "Samples": "igpe.uncertainty.sampling",
    "Sampling": "igpe.planning.freedom",
    "Scip": "igpe.solvers.scip",
    "Settings": "igpe.settings",
    "SingleShooting": "igpe.dynamic.single_shooting",
    "SlopeErrors": "igpe.algebraic.weights",
    "SolverMissing": "igpe.errors",
    "StateErrors": "igpe.algebraic.weights",
    "Status": "igpe.status",
    "Sundials": "igpe.integrators.sundials",
    "Unknown": "igpe.experiment",
    "Unmeasured": "igpe.planning.existing",
    "Unsupported": "igpe.errors",
    "Unweighted": "igpe.algebraic.weights",
    "Verdict": "igpe.replay.verified",
    "Verified": "igpe.replay.verified",
    "bootstrap": "igpe.uncertainty.bootstrap",
    "campaign": "igpe.many_starts",
    "certify": "igpe.proof.certify",
    "check": "igpe.pipeline",
    "compare": "igpe.comparison",
    "compare_models": "igpe.uncertainty.models",
    "design": "igpe.planning.design",
    "estimate": "igpe.pipeline",
    "horizon_table": "igpe.horizons_plot",
    "linear": "igpe.inputs",
    "negative_log_likelihood": "igpe.likelihood",
    "petab_errors": "igpe.petab.errors",
    "petab_objective": "igpe.petab.objective",
    "plot_correlation": "igpe.uncertainty.result_pictures",
    "plot_ellipses": "igpe.uncertainty.result_pictures",
    "plot_film_strip": "igpe.horizons_plot",
    "plot_gaps": "igpe.shooting_plot",
    "plot_horizons": "igpe.horizons_plot",
    "plot_pieces": "igpe.shooting_plot",
    "plot_residuals": "igpe.uncertainty.result_pictures",
    "plot_waterfall": "igpe.waterfall",
    "predict": "igpe.uncertainty.prediction",
    "profile": "igpe.uncertainty.profile",
    "read_experiments": "igpe.experiment",
    "read_petab": "igpe.petab.read",
    "region": "igpe.uncertainty.region",
    "sample": "igpe.uncertainty.sampling",
    "simulate": "igpe.simulation",
    "steps": "igpe.inputs",
    "verify": "igpe.replay.verify",
    "write_petab_parameters": "igpe.petab.export",
}
"""Where each public name is defined. They are loaded on first use: `igpe --help` must not wait for
Pyomo and CasADi."""

__all__ = sorted(_HOME)  # noqa: PLE0605 - the table above is the hand-written list


def __getattr__(name: str) -> Any:
    if name == "kinetics":
        return import_module("igpe.kinetics")
    if name not in _HOME:
        raise AttributeError(f"module 'igpe' has no attribute '{name}'")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
