"""Optimum experimental design: the next experiment, and the errors after it.

Uses `dynamics`, `results`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
