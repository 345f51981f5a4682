"""Optimum experimental design: the next experiment, and what it would say.

Uses `dynamics`, `results`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
