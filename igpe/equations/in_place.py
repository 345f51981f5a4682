"""CasADi functions called on arrays in place, without the conversions of an ordinary call."""

from typing import Any

import numpy as np

from igpe.core.arrays import FloatArray


class InPlace:
    """A function that reads and writes arrays of ours; every result must be given a place."""

    def __init__(self, function: Any) -> None:
        self._buffer, self.evaluate = function.buffer()
        self._kept: dict[tuple[str, int], FloatArray] = {}  # CasADi holds addresses alone

    def read(self, index: int, array: FloatArray) -> None:
        """Where an argument stands from now on; in memory in CasADi's order, column by column."""
        kept: Any = np.ascontiguousarray(array)
        self._buffer.set_arg(index, memoryview(kept))
        self._kept["read", index] = kept

    def write(self, index: int, array: FloatArray) -> None:
        """Where a result goes from now on."""
        kept: Any = array
        self._buffer.set_res(index, memoryview(kept))
        self._kept["write", index] = kept
