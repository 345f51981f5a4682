from . import kinetics as kinetics
from . import petab as petab
