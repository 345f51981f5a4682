"""Structural identifiability: which unknowns perfect measurements determine, and how many values.

`identifiability` decides, from the ranks of `sensitivity_rows`; `combinations`, `uniqueness` and
`solutions` say what is determined instead, uniquely, or up to how many values. Uses `series`.
"""
