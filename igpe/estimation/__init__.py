"""The parts of the pipeline: settings, candidates, the summary, comparisons and campaigns.

Uses all rooms but `formats` and `cli`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
