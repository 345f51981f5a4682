"""What every room uses: errors, statuses, unknowns with bounds, estimates, JSON, time limits.

Imports no other room. Add here only what at least three rooms need and what knows no Pyomo model.
"""
