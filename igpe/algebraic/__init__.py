"""Step 3: regressions of slopes, solved globally with a proven gap.

Uses `structure`, `smoothing`, `solvers`. A new route is one file with a class that has `estimate`;
`bounds/` holds branch and bound over the nonlinear parameters.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
