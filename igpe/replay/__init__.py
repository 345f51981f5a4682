"""Checks a certificate of global optimality again, by other means than it was found.

Nothing here is shared with the search: own arithmetic, own integration, own bounds. What must be
right for an answer to be right is listed in docs/certificate_replay.md.
"""
