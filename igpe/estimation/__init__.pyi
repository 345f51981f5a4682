from .campaigns import Campaign as Campaign
from .campaigns import Comparison as Comparison
from .campaigns import compare as compare
