"""Taylor models of degree 2 with rigorous remainders, and expressions evaluated on them.

A new function is one `Univariate` in `functions` and one rule in `graph`.
"""
