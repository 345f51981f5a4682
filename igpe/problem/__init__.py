"""The user's model and data as a `Problem`: models, experiments, inputs, noise, tables.

Uses `core`. Every check of what the user gives is made here, before any computation. A new kind
of measurement error is one class in `problem/noise/`; a new loss one class in `losses.py`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
