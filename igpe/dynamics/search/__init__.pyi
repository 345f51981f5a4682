from .iterated_search import IteratedSearch as IteratedSearch
from .multistart import MultiStart as MultiStart
from .restarts import Restarts as Restarts
