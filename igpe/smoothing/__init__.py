"""Step 1: measurements become curves with errors of value and slope.

Uses `core`. A new smoother is one file with a class that has `smooth(times, values, ...)`
(`base.Smoother`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
