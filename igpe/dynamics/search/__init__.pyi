from .engine import Restarts as Restarts
from .exact import BackwardLifting as BackwardLifting
from .iterated_search import IteratedSearch as IteratedSearch
from .multistart import MultiStart as MultiStart
