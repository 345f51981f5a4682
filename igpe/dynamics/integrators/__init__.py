"""Integrators: trajectories and intervals of initial value problems, with exact derivatives.

`base.py` is the seam. A new integrator is one class in one file: a subclass of `Piecewise`
(`piecewise.py`) whose `advancing` integrates smooth ordinary equations from output to output, or of
`Integrator` whose `prepare` integrates many intervals at once. Uses `core` and `equations`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
