"""Model selection: rival models fitted to the same measurements, ranked and distinguished.

Uses all rooms but `cli`. `rivals` fits and ranks rivals and is the public door; `behaviour`
compares the outputs that two rivals can produce.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
