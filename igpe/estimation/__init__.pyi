from .comparison import Comparison as Comparison
from .many_starts import Campaign as Campaign
from .settings import ProveComplement as ProveComplement
