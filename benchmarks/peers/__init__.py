"""What people use today, each behind the same door: one file for each peer.

A method is made ready for a `Task`, which may translate and compile, and returns the search: an
iterator that tells unknown -> value whenever it has found something (None: a start that failed).
`run.py` runs one in a process of its own and notes when it told what.
"""
