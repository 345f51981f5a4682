from .campaigns import Campaign as Campaign
from .campaigns import Comparison as Comparison
from .campaigns import compare as compare
from .reconciliation import GrossError as GrossError
from .reconciliation import Reconciliation as Reconciliation
from .reconciliation import Suspect as Suspect
from .reconciliation import reconcile as reconcile
