"""Puts the zoo of problems, the published models and the benchmarks where tests can import them."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), *(str(HERE.parent / room) for room in ("models", "benchmarks"))]
