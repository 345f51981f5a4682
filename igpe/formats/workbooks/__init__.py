"""Unmodified laboratory files: workbooks and text files of instruments and of Excel users.

book = igpe.read_workbook("runs.xlsx")
book.table()                                 # what was understood, column by column
experiments = book.experiments(reactor, start={"A": 1.0})

`cells` reads files into typed cells, `blocks` finds the tables among them, `words` knows what
headers mean, `times` reads times, `reader` gives columns their roles and makes runs, `reading`
combines all runs, and `workbook` is the result. Words that laboratories use belong in the tables of
`words`, with a layout in the tests.
"""
