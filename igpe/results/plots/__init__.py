"""Plots. Every function takes plain data and axes, or makes a figure, and returns a `Plot`."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
