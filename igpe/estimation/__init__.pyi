from .campaigns import Campaign as Campaign
from .campaigns import Comparison as Comparison
