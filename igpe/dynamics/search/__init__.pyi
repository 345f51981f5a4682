from .backward_lifting import BackwardLifting as BackwardLifting
from .engine import Restarts as Restarts
from .multistart import IteratedSearch as IteratedSearch
from .multistart import MultiStart as MultiStart
