from .errors import petab_errors as petab_errors
from .errors import petab_gradient as petab_gradient
from .errors import petab_objective as petab_objective
from .errors import write_petab_parameters as write_petab_parameters
from .read import read_petab as read_petab
from .simulations import petab_simulations as petab_simulations
from .simulations import write_petab_simulations as write_petab_simulations
from .write import to_petab as to_petab
