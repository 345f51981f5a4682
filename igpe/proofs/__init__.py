"""Certificates: the prover on the dynamics, and a checker that shares only `equations` with it.

Uses `dynamics`, `results`. Every new operation needs an enclosure in both, each by its own code.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
