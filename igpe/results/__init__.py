"""Results of estimations: plain data, sentences, plots and reports, without the model.

Uses `numerics`. Data classes hold numbers and tables; plots and pages take these and nothing else.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
