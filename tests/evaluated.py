"""CasADi expressions as functions of arrays, quick enough for integrations by SciPy."""

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np


class Evaluated:
    """An expression as a function of the given symbols' values; it returns a flat array.

    Values pass through buffers: CasADi's own matrices take ten times as long.
    """

    def __init__(self, given: Sequence[Any], expression: Any) -> None:
        function = ca.Function("f", given, [ca.densify(expression)])
        self.sizes = [function.numel_in(i) for i in range(len(given))]
        self.given = [np.zeros(max(n, 1)) for n in self.sizes]
        self.result = np.zeros(expression.numel())
        self.buffer, self.evaluate = function.buffer()
        for i, values in enumerate(self.given):
            self.buffer.set_arg(i, memoryview(values))
        self.buffer.set_res(0, memoryview(self.result))

    def __call__(self, *values: Any) -> np.ndarray:
        for given, size, value in zip(self.given, self.sizes, values, strict=True):
            given[:size] = value
        self.evaluate()
        return self.result.copy()
