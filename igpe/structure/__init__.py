"""Step 2: which equations can be estimated algebraically, and what is identifiable.

Uses `equations`, `results`. `identifiability/` holds the exact tests, `series/` their arithmetic.
"""
