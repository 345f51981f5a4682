"""Other forms of a problem: PEtab and SBML, reaction equations, tables of a new user.

Uses the public floor: `problem` and `dynamics`. A new format is a sub-room that returns a
`Problem`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
