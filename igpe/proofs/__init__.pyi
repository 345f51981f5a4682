from .checker.verify import Verdict as Verdict
from .checker.verify import Verified as Verified
from .prover.certify import BranchAndBound as BranchAndBound
from .prover.certify import DynamicCertificate as DynamicCertificate
from .prover.paving import Paving as Paving
from .prover.paving import pave as pave
from .prover.regions import CertifiedRegion as CertifiedRegion
