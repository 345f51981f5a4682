"""Model selection: rival models fitted to the same measurements, ranked and distinguished.

Uses all rooms but `cli`. `fits` makes one rival's fit ready for any worker, `behaviour` compares
what two rivals can say at all, `rivals` is the public door.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
