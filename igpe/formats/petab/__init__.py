"""PEtab problems (version 1 and 2, with SBML models): read, checked, exported."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
