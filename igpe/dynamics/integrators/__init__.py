"""Integrators of initial value problems, with sensitivities.

Uses `equations`. An integrator is one file that says what it can do (`base.py`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
