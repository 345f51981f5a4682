"""How sure an estimate is: profiles, bootstrap, regions, posterior samples, predictions.

Uses `dynamics`, `results`. What is computed is a data class of plain numbers; its plots are in
`results/plots/`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
