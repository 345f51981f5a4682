from . import algebraic as algebraic
from . import estimation as estimation
from . import planning as planning
from . import proofs as proofs
from . import smoothing as smoothing
from . import solvers as solvers
from . import uncertainty as uncertainty
from .core import errors as errors
from .core.estimates import Estimate as Estimate
from .core.status import Status as Status
from .dynamics import integrators as integrators
from .dynamics import search as search
from .dynamics.collocation.collocation import Collocation as Collocation
from .dynamics.shooting.incremental_shooting import (
    IncrementalShooting as IncrementalShooting,
)
from .dynamics.shooting.multiple_shooting import MultipleShooting as MultipleShooting
from .dynamics.shooting.single_shooting import SingleShooting as SingleShooting
from .dynamics.simulation import simulate as simulate
from .estimation.campaigns import campaign as campaign
from .estimation.settings import Settings as Settings
from .formats import kinetics as kinetics
from .formats import petab as petab
from .formats.workbooks.reading import read_workbook as read_workbook
from .pipeline import check as check
from .pipeline import estimate as estimate
from .planning.design import design as design
from .problem import losses as losses
from .problem.events import Event as Event
from .problem.experiment import Experiment as Experiment
from .problem.experiment import Unknown as Unknown
from .problem.experiment import read_experiments as read_experiments
from .problem.inputs import linear_input as linear_input
from .problem.inputs import step_input as step_input
from .problem.noise.sigma import EstimatedSigma as EstimatedSigma
from .problem.noise.sigma import Noise as Noise
from .problem.problem import Problem as Problem
from .problem.spectra import Spectra as Spectra
from .proofs.checker.verify import verify as verify
from .proofs.prover.certify import certify as certify
from .proofs.prover.regions import certify_region as certify_region
from .results import plots as plots
from .results.result import Result as Result
from .selection.rivals import rivals as rivals
from .uncertainty.bootstrap import bootstrap as bootstrap
from .uncertainty.prediction import predict as predict
from .uncertainty.profile import profile as profile

__version__: str
