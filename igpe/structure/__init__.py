"""Step 2: which equations can be estimated algebraically, and what is identifiable.

Uses `equations`, `results`. Which unknowns perfect measurements determine, and how many values:
`identifiability` decides, from the ranks of `sensitivity_rows`; `combinations`, `uniqueness` and
`solutions` say what is determined instead, uniquely, or up to how many values. `series/` holds the
arithmetic of these exact tests.
"""
