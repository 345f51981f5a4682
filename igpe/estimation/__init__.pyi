from .campaigns import Campaign as Campaign
from .campaigns import Comparison as Comparison
from .settings import ProveComplement as ProveComplement
