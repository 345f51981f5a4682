"""Tools of every room: errors, statuses, unknowns with bounds, estimates, JSON, time limits.

Imports no other room. Add here only what at least three rooms need and what knows no Pyomo model.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
