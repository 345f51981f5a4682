"""Steps 4 and 5: integrators, shooting, collocation, and searches from many starts.

Uses `equations`, `numerics`, `solvers`. A new estimator is one file with a frozen dataclass that
has `estimate(problem, start)`; a new integrator one file in `integrators/` that says what it
can do.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
