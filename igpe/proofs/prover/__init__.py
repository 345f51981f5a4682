"""The prover: branch and bound over boxes of unknowns, whose bounds come from compiled enclosures.

`posed` reads a problem into tapes, `enclosure` bounds one box by `kernels`, `search` keeps the
tree, `certify` is the entry. A new operation needs a rule in `posed` and a case in `kernels`.
"""
