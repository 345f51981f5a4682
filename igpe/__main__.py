"""`python -m igpe` is the command `igpe`."""

from igpe.cli import main

main()
