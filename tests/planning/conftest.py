"""Puts the models of these tests where they can import them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
