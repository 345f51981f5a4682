from . import integrators as integrators
from . import search as search
