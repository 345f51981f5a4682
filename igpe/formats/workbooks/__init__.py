"""Laboratory files as they are: workbooks and text files of instruments and of Excel users.

book = igpe.read_workbook("runs.xlsx")
book.table()                                 # what was understood, column by column
experiments = book.experiments(reactor, start={"A": 1.0})

`cells` reads files into typed cells, `blocks` finds the tables among them, `words` knows what
headers mean, `reader` gives columns their roles and makes runs, `workbook` is what users get.
A word that laboratories use goes into the tables of `words`, with a layout in the tests.
"""
