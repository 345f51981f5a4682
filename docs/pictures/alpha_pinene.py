"""The picture of README: `python docs/pictures/alpha_pinene.py` writes it beside this file."""

from pathlib import Path

import igpe
from models import alpha_pinene

if __name__ == "__main__":
    result = igpe.estimate(alpha_pinene.problem())
    result.plot().save(Path(__file__).with_suffix(".png"))
