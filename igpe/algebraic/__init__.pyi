from .base import SlopeErrors as SlopeErrors
from .base import StateErrors as StateErrors
from .base import Unweighted as Unweighted
from .decomposed import Decomposed as Decomposed
from .local import LocalSearch as LocalSearch
from .projected import GlobalSolver as GlobalSolver
from .projected import Projected as Projected
from .step import RouteSelection as RouteSelection
