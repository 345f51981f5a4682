"""A plugin for pytest that plants one fault before any test is imported: `-p house.plugin`."""

import os

from house.planting import FAULTS
from house.wrong import load

NAME = "IGPE_FAULT"  # environment variable with the name of the fault

load()
FAULTS[os.environ[NAME]].plant()
