"""Pyomo's equations in CasADi, checked against Pyomo's own values, and initial value problems.

Uses `problem`. A new operation is one entry in `operations.py`; `reading/` reads what the user
wrote, `known_times` and `timed` find where known functions of time jump or rise.
"""
