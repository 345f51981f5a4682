from . import integrators as integrators
from . import likelihood as likelihood
from . import search as search
