from .ipopt import Ipopt as Ipopt
from .maingo import MAiNGO as MAiNGO
from .program import AmplProgram as AmplProgram
from .programs import Couenne as Couenne
from .programs import Scip as Scip
