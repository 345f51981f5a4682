"""Checks a certificate of global optimality again, by other means than it was found.

It has its own arithmetic, integration and bounds. It shares with the search how a Problem is read:
the translation of the Pyomo model into CasADi expressions (`igpe.equations`). What must be right
for an answer to be right is listed in docs/certificate_replay.md.
"""
