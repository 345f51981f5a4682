"""Puts the zoo of problems and the published models where tests can import them."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "models")]
