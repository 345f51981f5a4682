"""Other ways to write a problem: PEtab and SBML, reaction equations, tables of a new user.

Uses the public floor: `problem` and `dynamics`. A new format is a sub-room that returns a
`Problem`.
"""
