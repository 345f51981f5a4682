from .base import SlopeErrors as SlopeErrors
from .base import StateErrors as StateErrors
from .base import Unweighted as Unweighted
from .projected import GlobalSolver as GlobalSolver
from .projected import Projected as Projected
from .routes import Decomposed as Decomposed
from .routes import LocalSearch as LocalSearch
from .step import RouteSelection as RouteSelection
