"""`python -m igpe` is the command `igpe`."""

import os
import sys

if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
    del sys.path[0]  # Python puts the current folder first: a file `numpy.py` there is not for us

from igpe.cli import main

main()
