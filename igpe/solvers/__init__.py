"""Outside solvers: programs and wheels that solve a Pyomo model or an AMPL file.

Uses `core`. A new solver is one file with a class that has `solve(model, ...)` and answers with a
`base.Answer`: status, objective and bound as values, never as exceptions.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
