from .ipopt import Ipopt as Ipopt
from .maingo import MAiNGO as MAiNGO
from .program import AmplProgram as AmplProgram
from .program import Couenne as Couenne
from .program import Scip as Scip
